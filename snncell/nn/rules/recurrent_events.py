"""Recurrent layers from spike times to spike times: operations that feed a layer's spikes back to its own neurons.

The spikes of such a layer are a fixed point: they follow from the inputs and from themselves. `find_fixed_point` starts
without recurrent spikes, and repeats the computation of a layer without recurrence until no spike changes. It ends,
because a spike depends on earlier spikes only: after each pass, a sample is right up to a later time. The gradient g of
the spikes is a fixed point too, g = dout + J^T g, with J the derivative of the spikes by the recurrent spikes.
`send_back_fixed_point` repeats the backward pass until g is constant, at most once for each spike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from snncell import ops
from snncell.cell.fields import field
from snncell.errors import DeviceError, GradientError
from snncell.tape.primitive import Primitive
from snncell.tape.tensor import Tensor

# A function of times (B, N_in, K_in) and weights (N_in, N), ..., that returns spike times (B, N, K) and other arrays
# with a row per sample, and its vector-Jacobian product, a function of the same inputs, these arrays, and the gradient
# of the spike times.
Find = Callable[..., tuple[Any, ...]]

RECURRENT_INIT = field(
    None,
    meaning="if given, each spike of a neuron also arrives at all neurons of the layer, with the weight "
    "recurrent_weight (out_channels, out_channels), in which this is the initial value. A neuron is silent after its "
    "K-th spike, so choose `spikes` large enough: if the last spike of a neuron is not inf, others may miss later ones",
    keep=False,
)


def columns(of_inputs: Tensor, of_neurons: Tensor | None) -> Tensor:
    """The weights or delays of a layer with a column per neuron, (N_in, N), or (N_in + N, N) with recurrent ones."""
    return of_inputs.T if of_neurons is None else ops.concat([of_inputs.T, of_neurons.T])


def _with_own(times: Any, own: Any) -> Any:
    """The inputs of a layer, (B, N_in + N, K): those from outside and its own spikes, which arrive after they occur.

    Without this smallest possible delay, a spike whose time is rounded down could prevent itself. Its relative size is
    2.4e-7 in float32, and 9.3e-10 in float64.
    """
    late = own + np.maximum(abs(own), 1e-30) * max(2.0 * float(np.finfo(own.dtype).eps), 2.0**-30)
    most = max(times.shape[2], own.shape[2])
    rows = [np.pad(x, ((0, 0), (0, 0), (0, most - x.shape[2])), constant_values=np.inf) for x in (times, late)]
    events = np.concatenate(rows, 1).astype(own.dtype, copy=False)
    events[np.isnan(events)] = np.inf
    return events


def find_fixed_point(find: Find, times: Any, weights: Any, *others: Any, spikes: int, **attrs: Any) -> Any:
    """The spike times (B, N, K) of a recurrent layer; `weights` are those of the inputs, then those of the neurons.

    Spikes before the earliest change of a sample are final. Later passes leave them alone, because in a longer step
    the solver can round the time of a spike differently.
    """
    samples, neurons = len(times), weights.shape[1]
    own = np.full((samples, neurons, spikes), np.inf, times.dtype)
    final, active = np.full((samples, 1, 1), -np.inf), np.arange(samples)
    while len(active):
        before = own[active]
        found, *_ = find(_with_own(times[active], before), weights, *others, spikes=spikes, **attrs)
        found = np.where(before <= final[active], before, found)
        first = np.where(found == before, np.inf, np.fmin(found, before))  # a NaN reaches no neuron
        first = np.fmin(first, np.inf).min((1, 2), keepdims=True)
        own[active], final[active] = found, first
        active = active[first[:, 0, 0] < np.inf]
    return own


def send_back_fixed_point(find: Find, back: Find, times: Any, *arrays: Any, **attrs: Any) -> tuple[Any, ...]:
    """The gradients of all inputs of `find_fixed_point`, from the spike times and their gradients."""
    *others, own, gradients = arrays
    _, inputs, of_each = times.shape
    events = _with_own(times, own)
    found = find(events, *others, **attrs)
    total, active = gradients.copy(), np.arange(len(times))
    while len(active):
        before = total[active]
        of_events, *_ = back(events[active], *others, tuple(x[active] for x in found), before, **attrs)
        total[active] = gradients[active] + of_events[:, inputs:, : own.shape[2]]
        same = (total[active] == before) | (np.isnan(total[active]) & np.isnan(before))
        active = active[~same.all((1, 2))]
    of_events, *of_others = back(events, *others, found, total, **attrs)
    return np.ascontiguousarray(of_events[:, :inputs, :of_each]), *of_others


class _RecurrentTimes(Primitive):
    """The inputs of a layer without recurrence, with N_in + N rows of weights -> spike times (B, N, K)."""

    def abstract(self, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> list[tuple[Any, Any]]:
        times, weights, *_ = inputs
        return [((times.shape[0], weights.shape[1], attrs["spikes"]), times.dtype)]


class _RecurrentBack(Primitive):
    """Inputs and result of `_RecurrentTimes`, and the gradient of the result -> gradients of the inputs."""

    def abstract(self, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> list[tuple[Any, Any]]:
        return [(x.shape, x.dtype) for x in inputs[:-2]]


def _refuse_device(*_: Any, **__: Any) -> Any:
    raise DeviceError('Recurrent event layers run on the CPU only. Move the layer and its inputs by .to("cpu").')


def _refuse_second_order(*_: Any, **__: Any) -> Sequence[Any]:
    raise GradientError("Recurrent event layers have no second-order gradients, jvp and jacfwd. Use vjp or jacrev.")


def recurrent(name: str, find: Find, back: Find) -> tuple[Primitive, Primitive]:
    """The operation that finds the spikes of a recurrent layer, whose bprop must bind the other one, the gradients."""
    forward = _RecurrentTimes(name, partial(find_fixed_point, find))
    backward = _RecurrentBack(f"{name}_back", partial(send_back_fixed_point, find, back), multiple=True)
    forward.def_there(_refuse_device)
    backward.def_there(_refuse_device)
    backward.def_bprop(_refuse_second_order)
    return forward, backward
