"""The spike times of neurons from the times of events, and the adjoint that is their gradient, as operations.

The equations, and what the names mean, are in `eventprop.py`; the kernels are in `kernels/eventprop/spike_times.py` and
`kernels/eventprop/cuda.py`. Each operation takes times (B, N_in, K_in) and weights (N_in, N).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from snncell import ops
from snncell.errors import ArgumentError
from snncell.kernels.cuda.arrays import DeviceArray
from snncell.kernels.eventprop import cuda as on_device, spike_times as on_cpu
from snncell.kernels.eventprop.adjoint import least_slope, send_back
from snncell.kernels.space import DEVICE, IN_USE
from snncell.tape.primitive import Primitive
from snncell.tape.tensor import Tensor
from snncell.tape.transforms import vjp

LAUNCHES = 4  # of kernels on the GPU, about; to sort takes more

# --- times ------------------------------------------------------------------------------------------------------------


def _times(x: Any) -> Any:
    if x.size and not x.min() > -np.inf:  # false for NaN too
        raise _no_time()
    return x


def _no_time() -> ArgumentError:
    return ArgumentError(
        "EventPropLIF: times holds NaN or -inf. A time is a number, or inf where there is no spike, for instance "
        "ops.where(ops.isnan(times), float('inf'), times)."
    )


class _Times(Primitive):
    """Spike times as they are, refused where they are none. A compiled Program on the GPU does not wait to look."""

    def run(self, arrays: Sequence[Any], inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
        """Evaluate in an eager call."""
        (x,) = arrays
        if IN_USE and isinstance(x, DeviceArray) and x.size:
            every = {"axis": tuple(range(x.ndim)), "keepdims": False}
            if not DEVICE.arithmetic["min"].on_device([x], every).host() > -np.inf:
                raise _no_time()
        return super().run(arrays, inputs, attrs)


checked_times = _Times("checked_times", _times)
checked_times.def_there(lambda x: x)


@checked_times.def_bprop
def _(_x: Tensor, _out: Tensor, dout: Tensor) -> Sequence[Any]:
    return (dout,)


# --- from event to event ----------------------------------------------------------------------------------------------


class _SpikeTimes(Primitive):
    """Times, weights -> the spike times (B, N, K), and for the reverse: the order, the places and the currents."""

    def abstract(self, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> list[tuple[Any, Any]]:
        times, weights = inputs
        shape = times.shape[0], weights.shape[1], attrs["spikes"]
        order = times.shape[0], times.shape[1] * times.shape[2]
        kinds = map(np.dtype, (np.int64, np.int32, np.float64))
        return [(shape, times.dtype), *zip((order, shape, shape), kinds, strict=True)]

    def launches(self, attrs: dict[str, Any]) -> int:
        return LAUNCHES


class _SentBack(Primitive):
    """Inputs and results of `_SpikeTimes`, the gradient of the spike times -> those of the times and the weights."""

    def abstract(self, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> list[tuple[Any, Any]]:
        return [(x.shape, x.dtype) for x in inputs[:2]]

    def launches(self, attrs: dict[str, Any]) -> int:
        return LAUNCHES


def _find_times(times: Any, weights: Any, *, silent: float, **constants: Any) -> Any:
    return on_cpu.find(times, weights, **constants)


# `silent`, inf, stands for no spike: where results are looked at (`check_finite`), an operation may give what it is
# given, and inf of finite operands is an error.
spike_times = _SpikeTimes("spike_times", _find_times, multiple=True)
spike_times.def_there(lambda times, weights, *, silent, **constants: on_device.find(times, weights, **constants))
sent_back = _SentBack("sent_back", send_back, multiple=True)
sent_back.def_there(on_device.send_back)


@spike_times.def_bprop
def _(
    times: Tensor, weights: Tensor, out: Any, dout: Any, *, tau_mem: float, tau_syn: float, v_threshold: float, **_: Any
) -> Sequence[Any]:
    constants = {"tau_mem": tau_mem, "tau_syn": tau_syn, "v_threshold": v_threshold}
    found, order, places, currents = out
    grads: Sequence[Any] = sent_back.bind(times, weights, order, found, places, currents, dout[0], **constants)
    return grads


@sent_back.def_bprop
def _(
    times: Tensor,
    weights: Tensor,
    order: Tensor,
    found: Tensor,
    places: Tensor,
    _currents: Tensor,
    gradients: Tensor,
    _out: Any,
    dout: Any,
    **constants: float,
) -> Sequence[Any]:
    def sent(times: Tensor, weights: Tensor, found: Tensor, gradients: Tensor) -> Any:
        return _sent_back_by_operations(times, weights, found, gradients, order, places, **constants)

    of_times, of_weights, of_found, of_gradients = vjp(sent, times, weights, found, gradients)[1](*dout)
    return of_times, of_weights, None, of_found, None, None, of_gradients


def _sent_back_by_operations(
    times: Tensor,
    weights: Tensor,
    found: Tensor,
    gradients: Tensor,
    order: Tensor,
    places: Tensor,
    *,
    tau_mem: float,
    tau_syn: float,
    v_threshold: float,
) -> tuple[Tensor, Tensor]:
    """`sent_back` as an expression of all events and spikes, (B, E, N, K), for gradients of higher orders."""
    samples, inputs, of_each = times.shape
    rank = ops.argsort(order)  # of each event in time
    before = rank[:, :, None, None] <= places[:, None]
    spiked = places >= 0
    s = ops.where(before, ops.where(spiked, found, 0.0)[:, None] - times.reshape(samples, -1)[:, :, None, None], 0.0)
    of_i = ops.exp(s / -tau_syn)
    nearer = ops.expm1(s * (-abs(tau_mem - tau_syn) / (tau_mem * tau_syn)))
    slower = ops.exp(s / -max(tau_mem, tau_syn))
    kappa = slower * nearer * (-tau_syn / abs(tau_mem - tau_syn))

    by_event = ops.broadcast_to(weights[:, None], (inputs, of_each, weights.shape[1])).reshape(inputs * of_each, -1)
    current = ops.where(before, by_event[..., None] * of_i, 0.0).sum(1)
    least = least_slope(weights.dtype.dtype, v_threshold, tau_mem)
    slope = ops.where(spiked, ops.maximum((current - v_threshold) / tau_mem, least), 1.0)
    sent: list[Tensor] = []
    received = ops.zeros_like(gradients[..., 0])
    for k in reversed(range(found.shape[2])):
        a = ops.where(spiked[..., k], (received * (v_threshold / tau_mem) - gradients[..., k]) / slope[..., k], 0.0)
        sent.insert(0, a)
        if k:
            gap = ops.where(spiked[..., k], found[..., k] - found[..., k - 1], 0.0)
            received = (received + a) * ops.exp(gap / -tau_mem)
    a = ops.stack(sent, -1)[:, None]

    of_weights = (a * kappa).sum((0, 3)).reshape(inputs, of_each, -1).sum(1)
    of_times = ((ops.where(before, a, 0.0) * (kappa - of_i)).sum(3) * by_event).sum(2) / tau_mem
    return of_times.reshape(times.shape), of_weights
