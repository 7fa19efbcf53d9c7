"""EventProp: a dense spiking layer from spike times to spike times, with exact gradients.

The operations here map the spike times of inputs, (B, N_in, K_in), and weights (N_in, N) to spike times of neurons.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

import numpy as np

from snncell import dtype as dtypes, ops
from snncell.base.arguments.kinds import Count, ExtendedReal, FloatDtype, Positive
from snncell.cell.cell import Cell
from snncell.cell.fields import as_number, field, with_fields
from snncell.common.initializer import Init, Normal, initializer
from snncell.errors import ArgumentError, DeviceError, DTypeError, GradientError, ShapeError
from snncell.kernels.cuda.arrays import DeviceArray
from snncell.kernels.eventprop import cuda as on_device, recurrent, spike_times as on_cpu
from snncell.kernels.eventprop.adjoint import least_slope, send_back
from snncell.kernels.space import DEVICE, IN_USE
from snncell.nn.settings import Settings
from snncell.ops.base import as_tensor
from snncell.tape.parameter import Parameter
from snncell.tape.primitive import Primitive
from snncell.tape.tensor import Tensor
from snncell.tape.transforms import vjp

__all__ = ["EventPropLIF", "bump_weights"]

LAUNCHES = 4  # approximate number of kernel launches on the GPU; sorting takes more

# --- times ------------------------------------------------------------------------------------------------------------


def _times(x: Any) -> Any:
    if x.size and not x.min() > -np.inf:  # the comparison is false for NaN too
        raise _no_time()
    return x


def _no_time() -> ArgumentError:
    return ArgumentError(
        "EventPropLIF, EventDense: times contains NaN or -inf. A time must be a number, or inf for no spike. To "
        "convert NaN, write ops.where(ops.isnan(times), float('inf'), times)."
    )


class _Times(Primitive):
    """Identity that raises for NaN and -inf. Compiled Programs on the GPU skip the check, which would wait for it."""

    def run(self, arrays: Sequence[Any], inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
        (x,) = arrays
        if IN_USE and isinstance(x, DeviceArray) and x.size:
            every = {"axis": tuple(range(x.ndim)), "keepdims": False}
            if not DEVICE.arithmetic["min"].on_device([x], every).host() > -np.inf:
                raise _no_time()
        return super().run(arrays, inputs, attrs)


checked_times = _Times("checked_times", _times)
checked_times.def_on_gpu(lambda x: x)


@checked_times.def_bprop
def _(_x: Tensor, _out: Tensor, dout: Tensor) -> Sequence[Any]:
    return (dout,)


# --- from event to event ----------------------------------------------------------------------------------------------


class _SpikeTimes(Primitive):
    """Times and weights -> spike times (B, N, K), and three arrays for the backward pass.

    `order` sorts the B x E input events by time; `places` is the position of each spike among them, -1 for no spike;
    `currents` is I at each spike.
    """

    def abstract(self, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> list[tuple[Any, Any]]:
        times, weights = inputs
        shape = times.shape[0], weights.shape[1], attrs["spikes"]
        order = times.shape[0], times.shape[1] * times.shape[2]
        kinds = map(np.dtype, (np.int64, np.int32, np.float64))
        return [(shape, times.dtype), *zip((order, shape, shape), kinds, strict=True)]

    def launches(self, attrs: dict[str, Any]) -> int:
        return LAUNCHES


class _SentBack(_SpikeTimes):
    """The backward pass of `_SpikeTimes`: its inputs, results and the gradient of the spike times -> gradients."""

    def abstract(self, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> list[tuple[Any, Any]]:
        return [(x.shape, x.dtype) for x in inputs[:2]]


def _without_silent(find: Callable[..., Any]) -> Callable[..., Any]:
    return lambda times, weights, *, silent, **constants: find(times, weights, **constants)


# `silent` is always inf. With this argument `check_finite` accepts the inf of missing spikes, because it reports inf
# only in results of operations without inf among their arguments.
spike_times = _SpikeTimes("spike_times", _without_silent(on_cpu.find), multiple=True)
spike_times.def_on_gpu(_without_silent(on_device.find))
sent_back = _SentBack("sent_back", send_back, multiple=True)
sent_back.def_on_gpu(on_device.send_back)


def _send_back_by(
    operation: Primitive, times: Tensor, weights: Tensor, out: Any, dout: Any, *, tau_mem: float, tau_syn: float,
    v_threshold: float, **_: Any,
) -> Sequence[Any]:  # fmt: skip
    """The bprop of an operation that finds spike times, by the operation of its backward pass."""
    constants = {"tau_mem": tau_mem, "tau_syn": tau_syn, "v_threshold": v_threshold}
    found, order, places, currents = out
    return operation.bind_all(times, weights, order, found, places, currents, dout[0], **constants)


spike_times.def_bprop(partial(_send_back_by, sent_back))


@sent_back.def_bprop
def _(*both: Any, **constants: float) -> Sequence[Any]:
    times, weights, order, found, places, _currents, gradients, _out, dout = both

    def sent(times: Tensor, weights: Tensor, found: Tensor, gradients: Tensor) -> Any:
        return _sent_back_by_operations(times, weights, found, gradients, order, places, **constants)

    of_times, of_weights, of_found, of_gradients = vjp(sent, times, weights, found, gradients)[1](*dout)
    return of_times, of_weights, None, of_found, None, None, of_gradients


def _sent_back_by_operations(
    times: Tensor, weights: Tensor, found: Tensor, gradients: Tensor, order: Tensor, places: Tensor, *, tau_mem: float,
    tau_syn: float, v_threshold: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The result of `sent_back` by Tensor operations on events and spikes, (B, E, N, K), for gradients of it."""
    samples, inputs, of_each = times.shape
    rank = ops.argsort(order)  # rank of each event in time
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


# --- recurrent layers -------------------------------------------------------------------------------------------------


class _RecurrentSpikeTimes(_SpikeTimes):
    """`_SpikeTimes` with N_in + N rows of weights: the spikes of the layer are events too."""

    def abstract(self, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> list[tuple[Any, Any]]:
        found, (order, kind), *more = super().abstract(inputs, attrs)
        return [found, ((order[0], order[1] + math.prod(found[0][1:])), kind), *more]


def _refuse_device(*_: Any, **__: Any) -> Any:
    raise DeviceError('EventPropLIF: recurrent layers run on the CPU only. Move the layer and inputs by .to("cpu").')


recurrent_times = _RecurrentSpikeTimes("recurrent_times", _without_silent(recurrent.find), multiple=True)
recurrent_times.def_on_gpu(_refuse_device)
recurrent_sent_back = _SentBack("recurrent_sent_back", recurrent.send_back, multiple=True)
recurrent_sent_back.def_on_gpu(_refuse_device)
recurrent_times.def_bprop(partial(_send_back_by, recurrent_sent_back))


@recurrent_sent_back.def_bprop
def _(*_: Any, **__: Any) -> Sequence[Any]:
    raise GradientError("EventPropLIF: recurrent layers have no second-order gradients and no jvp. Use vjp or jacrev.")


# --- the layer --------------------------------------------------------------------------------------------------------

NEARLY = 2.0**-40  # relative difference of time constants that the user sets equal, about 1e-12


RECURRENT_INIT = field(
    None,
    meaning="if given, each spike of a neuron also arrives at all neurons of the layer, with the weight "
    "recurrent_weight (out_channels, out_channels), of which this is the initial value. A neuron is silent after its "
    "K-th spike, so choose `spikes` large enough: a neuron whose last time is not inf may have sent too few spikes",
    keep=False,
)


def columns(of_inputs: Tensor, of_neurons: Tensor | None) -> Tensor:
    """The weights or delays of a layer with a column per neuron, (N_in, N), or (N_in + N, N) with recurrent ones."""
    return of_inputs.T if of_neurons is None else ops.concat([of_inputs.T, of_neurons.T])


def float_dtype(dtype: Any, who: str) -> dtypes.DType:
    """Check that a dtype is float32 or float64."""
    kind = dtypes.as_dtype(dtype)
    if kind not in (dtypes.float32, dtypes.float64):
        raise DTypeError(f"{who}: dtype must be float32 or float64, not {kind}.")
    return kind


def times_of_inputs(layer: Any, times: Any) -> Tensor:
    """Check the spike times of a layer's inputs; return them as (B, N_in, K_in), in the dtype of the weight."""
    who = type(layer).__name__
    times = as_tensor(times, who)
    if times.ndim not in (2, 3) or times.shape[1] != layer.in_channels or 0 in times.shape:
        raise ShapeError(
            f"{who}: times must be (B, {layer.in_channels}) or (B, {layer.in_channels}, K), without empty axes, "
            f"but has shape {times.shape}. Pass the times of spikes, with inf for no spike, not 0 and 1 for each step."
        )
    if times.dtype.category > 2:
        raise DTypeError(f"{who}: times must be real numbers, not {times.dtype}.")
    events = checked_times.bind(times.astype(layer.weight.dtype))
    return ops.reshape(events, (*times.shape[:2], -1))


@with_fields
class EventPropLIF(Settings):
    r"""EventProp: a dense layer of LIF neurons from spike times to spike times, with exact gradients.

        tau_mem dV/dt = -V + I,   tau_syn dI/dt = -I
        an input spike adds its weight to I; if V reaches v_threshold, the neuron spikes and V becomes 0

    Use it for temporal codes with few, precisely timed spikes. There are no time steps: between two events V is a sum
    of two exponentials with at most one peak, so spike times are exact up to rounding. kappa is V per unit of weight:

        V(t) = sum_e w_e kappa(t - t_e) - v_threshold * sum_k exp(-(t - T_k) / tau_mem)
        kappa(s) = tau_syn / (tau_mem - tau_syn) (exp(-s / tau_mem) - exp(-s / tau_syn)),   s > 0

    The gradient follows from V(T_k) = v_threshold. With g_k the gradient of the loss with respect to the output time
    T_k, and the slope V'(T_k) = (I(T_k) - v_threshold) / tau_mem just before the spike, let

        a_k = -(g_k - (v_threshold / tau_mem) sum_{j > k} a_j exp(-(T_j - T_k) / tau_mem)) / V'(T_k)

    Then the gradients of a weight and of an input time are sums over the spikes T_k after t_e:

        dL / dw_e = sum_k a_k kappa(T_k - t_e),   dL / dt_e = -w_e sum_k a_k kappa'(T_k - t_e)

    The adjoint variables of the paper are

        lambda_V(t) = -(1 / tau_mem) sum_{T_k > t} a_k exp(-(T_k - t) / tau_mem)
        lambda_I(t) = -(1 / tau_syn) sum_{T_k > t} a_k kappa(T_k - t)

    They obey tau_mem lambda_V' = -lambda_V and tau_syn lambda_I' = lambda_V - lambda_I backwards in time. At T_k,
    lambda_V jumps by (v_threshold lambda_V + g_k) / (tau_mem V'(T_k)). The gradient of w_e is -tau_syn lambda_I(t_e).

    For training, you should know the following:

    - A silent neuron has the time inf and no gradient. `FirstSpikeLoss` skips samples with a silent label neuron.
    - In your own loss where classes compete, skip them too, and do not replace inf by a late time (ops.minimum). The
      label neuron has no gradient, so such a loss only makes the others later, until they are silent too.
    - Start with weights that make neurons spike, as the default does. `bump_weights` revives neurons that were silent
      in a whole batch.
    - If V only just reaches the threshold, V' is near 0 and gradients are unbounded: use `train.clip_by_global_norm`.
    Inputs: times: (B, N_in), or (B, N_in, K_in) in any order, with inf for no spike, such as another layer's output.
    Returns: The first K spike times of each neuron, ascending, (B, N_out, K); inf for missing spikes.
    Raises: ArgumentError for times that are NaN or -inf, which a jitted function on a GPU takes for no spike;
        ShapeError for times of another shape; DTypeError for another dtype.
    Source: Wunderlich and Pehle, "Event-based backpropagation can compute exact gradients for spiking neural networks",
    Scientific Reports 11, 2021.
    Example:
        >>> layer = nn.EventPropLIF(2, 1, tau_mem=20.0, tau_syn=5.0, weight_init=4.0)
        >>> times = Tensor([[0.0, 3.0]])  # in ms, as the time constants are
        >>> print(layer(times).asnumpy().round(3))  # (B, N_out, K)
        [[[5.983]]]
        >>> print(grad(lambda t: layer(t).sum())(times).asnumpy().round(3))  # both inputs later: the spike as well
        [[0.258 0.742]]
    """

    _all_steps = _steps_inside = True  # tells monitors that they cannot see its time steps
    # Once private attributes, for example _tau_mem: older pickles have these names, and older checkpoints lack them.
    _once_private = ("tau_mem", "tau_syn", "v_threshold", "spikes", "t_max")

    in_channels: Annotated[Count, field(meaning="N_in, the number of inputs")]
    out_channels: Annotated[Count, field(meaning="N_out, the number of neurons")]
    tau_mem: Positive = field(
        20.0, meaning="time constant of V, in the unit of the times, by default ms", convert=as_number
    )
    tau_syn: Positive = field(
        5.0,
        convert=as_number,
        meaning="time constant of I. If it equals tau_mem, it is multiplied by 1 - 1e-12, because the formulas would "
        "divide by 0",
    )
    v_threshold: Positive = field(1.0, meaning="the threshold, in the unit of V", convert=as_number)
    spikes: Count = field(1, meaning="K, the number of spikes that are computed per neuron; later ones are ignored")
    t_max: ExtendedReal = field(
        math.inf, meaning="the end of the simulation; later spikes are ignored", convert=as_number
    )
    weight_init: Init | None = field(
        None,
        meaning="initial weight, (out_channels, in_channels). None draws from a normal distribution with the mean "
        "3 / (n p) and the deviation 1 / (sqrt(n) p) thresholds, n = in_channels, p = max kappa, so that V peaks at "
        "3 +- 1 thresholds if each input spikes once at the same time. Use larger ones for few or distant spikes",
        keep=False,
    )
    dtype: FloatDtype = field(
        dtypes.float32, meaning="dtype of the weight and the computation, float32 or float64", keep=False
    )
    recurrent_init: Init | None = RECURRENT_INIT
    recurrent_weight: Any = None

    def _complete(self, given: dict[str, Any]) -> None:
        kind, init = float_dtype(given["dtype"], "EventPropLIF"), given["weight_init"]
        init = self._default_weights() if init is None else init
        self.weight = Parameter(initializer(init, (self.out_channels, self.in_channels), kind))
        if given["recurrent_init"] is not None:
            self.recurrent_weight = Parameter(initializer(given["recurrent_init"], (self.out_channels,) * 2, kind))

    def __setstate__(self, state: dict[str, Any]) -> None:
        older = {f"_{name}": name for name in self._once_private}
        super().__setstate__({older.get(name, name): value for name, value in state.items()})

    def _time_constants(self) -> tuple[float, float]:
        """The time constants of V and I, made unequal, because the formulas would divide 0 by 0."""
        mem, syn = float(self.tau_mem), float(self.tau_syn)
        return mem, syn if syn != mem else mem * (1.0 - NEARLY)

    def _default_weights(self) -> Normal:
        mem, syn = self._time_constants()
        peak = math.exp(math.log(syn / mem) * mem / (mem - syn))  # maximum of kappa
        scale = self.v_threshold / peak
        return Normal(scale / math.sqrt(self.in_channels), 3.0 * scale / self.in_channels)

    def construct(self, times: Any) -> Tensor:
        mem, syn = self._time_constants()
        operation = spike_times if self.recurrent_weight is None else recurrent_times
        return operation.bind_all(
            times_of_inputs(self, times),
            columns(self.weight, self.recurrent_weight),
            spikes=self.spikes,
            tau_mem=mem,
            tau_syn=syn,
            v_threshold=float(self.v_threshold),
            t_max=float(self.t_max),
            silent=math.inf,
        )[0]

    def extend_repr(self) -> str:
        return (
            f"input_channels={self.in_channels}, output_channels={self.out_channels}, tau_mem={self.tau_mem}, "
            f"tau_syn={self.tau_syn}, v_threshold={self.v_threshold}, spikes={self.spikes}, t_max={self.t_max}"
        )


def bump_weights(layer: Cell, found: Tensor, amount: float) -> None:
    """Weight bumping: raise all input weights of neurons that were silent in a whole batch.

    A silent neuron has no gradient, so an optimiser cannot wake it. Call this after the step of the optimiser, with the
    spike times of the layer in this step. You can call it in a jitted function.

    Args:
        layer: `EventPropLIF` or `EventDense`; recurrent weights stay the same.
        found: the output of the layer, (B, N_out, K), in which inf is a missing spike.
        amount: the number to add to each weight, for example a thousandth of the threshold.
    Source: Goeltz et al., "Fast and energy-efficient neuromorphic deep learning with first-spike times", Nature Machine
    Intelligence 3, 2021; there, the whole layer is bumped only if too many of its spikes are missing.
    Example:
        >>> layer = nn.EventPropLIF(2, 2, weight_init=Tensor([[9.0, 9.0], [0.1, 0.1]]))
        >>> nn.bump_weights(layer, layer(Tensor([[0.0, 3.0]])), 0.5)
        >>> print(layer.weight.asnumpy())
        [[9.  9. ]
         [0.6 0.6]]
    """
    weight = getattr(layer, "weight", None)
    wrong = not getattr(layer, "_steps_inside", False) or found.ndim != 3
    if wrong or not isinstance(weight, Parameter) or found.shape[1] != len(weight):
        raise ArgumentError(
            f"bump_weights: found must be the spike times (B, N_out, K) of the layer, layer(times), and layer an "
            f"EventPropLIF or EventDense; the shape of found is {found.shape}, and the class of layer is "
            f"{type(layer).__name__}."
        )
    silent = (found == math.inf).all((0, 2)).astype(weight.dtype)
    weight.set_data(weight + amount * silent.expand_dims(1))
