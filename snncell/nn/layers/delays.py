"""Learned synaptic delays (DCLS): each synapse of a dense layer, or of a feedback, has a weight and a real delay."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import numpy as np

from snncell import dtype as dtypes, ops
from snncell.base.arguments.kinds import Count, FloatDtype, Own, PadMode, Size
from snncell.base.arguments.shown import came, percent
from snncell.cell.cell import Cell
from snncell.cell.constants import Ranged
from snncell.cell.fields import field, with_fields
from snncell.cell.ranges import POSITIVE, Range
from snncell.common.initializer import Init, Uniform, initializer
from snncell.errors import ArgumentError, ShapeError
from snncell.kernels.products import delays as kernels
from snncell.nn.layers.linear import FAN_IN_UNIFORM, create_parameter
from snncell.nn.time.axis import check_time_axis
from snncell.nn.time.multistep import initial_states
from snncell.ops.base import array_beside, same_dtype
from snncell.ops.conv import padding_widths
from snncell.tape.parameter import Parameter
from snncell.tape.primitive import Primitive
from snncell.tape.tensor import Tensor

__all__ = ["DelayedConv1d", "DelayedDense", "RecurrentDelay"]

# --- Products with delays: x (T, B, N_in), taps (D + 1, N_in, N_out), y (T, B, N_out) ---------------------------------


class _Delayed(Primitive):
    """y[t] = sum_d x[t - d] @ taps[d]; with `back`, x[t] = sum_d y[t + d] @ taps[d].T."""

    def abstract(self, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> list[tuple[Any, Any]]:
        x, taps, *_ = inputs
        return [((*x.shape[:2], taps.shape[-2 if attrs.get("back") else -1]), taps.dtype)]

    def operations(self, inputs: Sequence[Any], outputs: Sequence[Any], attrs: dict[str, Any], used: float) -> float:
        x, taps = inputs[0].shape, inputs[1].shape
        return float(2.0 * used * math.prod(x) * math.prod(taps) / x[2])

    def choice(self, inputs: Sequence[Any], attrs: dict[str, Any]) -> list[str]:
        x, taps = inputs
        return [_way(0.0 if attrs["back"] else kernels.limit(x, taps), attrs["back"], x, taps.shape)]


class _OfBoth(_Delayed):
    """The gradient of the taps: sum_{t, b} x[t - d, b, i] y[t, b, j]."""

    def abstract(self, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> list[tuple[Any, Any]]:
        x, y = inputs
        return [((attrs["delays"], x.shape[2], y.shape[2]), y.dtype)]

    def operations(self, inputs: Sequence[Any], outputs: Sequence[Any], attrs: dict[str, Any], used: float) -> float:
        return super().operations([inputs[0], outputs[0]], outputs, attrs, used)

    def choice(self, inputs: Sequence[Any], attrs: dict[str, Any]) -> list[str]:
        x, y = inputs
        taps = attrs["delays"], x.shape[2], y.shape[2]
        return [_way(kernels.weight_gradient_limit(x, y, taps[0]), True, y, taps)]


class _OfOne(_Delayed):
    """y[t] = sum_i w[i] x[t - delay[i], i]."""

    def choice(self, inputs: Sequence[Any], attrs: dict[str, Any]) -> list[str]:
        return ["event-driven"]


def _way(below: float, transforms: bool, y: Any, taps: tuple[int, ...]) -> str:
    saves = transforms and kernels.transform_share(y.shape, taps) < 1.0
    dense = "by Fourier transforms of time" if saves else "by BLAS"
    return f"event-driven below {percent(below)} of non-zero elements, else {dense}" if below > 0.0 else dense


def _product(x: Any, taps: Any, back: bool) -> Any:
    return kernels.transposed_product(x, taps) if back else kernels.product(x, taps)


_delayed = _Delayed("delayed_product", _product)
_of_both = _OfBoth("delayed_weight_gradient", kernels.weight_gradient)
_of_one = _OfOne("delayed_product_per_synapse", kernels.product_per_synapse)
_delayed.def_on_gpu(kernels.device_product)
_of_both.def_on_gpu(kernels.device_weight_gradient)
_of_one.def_on_gpu(kernels.device_product_per_synapse)


@_delayed.def_bprop
def _(x: Tensor, taps: Tensor, _out: Tensor, dout: Tensor, *, back: bool) -> Sequence[Any]:
    pair = (dout, x) if back else (x, dout)
    return lambda: _delayed.bind(dout, taps, back=not back), lambda: _of_both.bind(*pair, delays=taps.shape[0])


@_of_both.def_bprop
def _(x: Tensor, y: Tensor, _out: Tensor, dout: Tensor, *, delays: int) -> Sequence[Any]:
    return lambda: _delayed.bind(y, dout, back=True), lambda: _delayed.bind(x, dout, back=False)


@_of_one.def_bprop
def _(x: Tensor, weights: Tensor, delays: Tensor, _out: Tensor, dout: Tensor, *, longest: int) -> Sequence[Any]:
    places = ops.equal(_grid(longest, delays), delays).astype(dout.dtype)

    def of_weights() -> Tensor:
        return (_of_both.bind(x, dout, delays=longest + 1) * places).sum(0)

    return lambda: _delayed.bind(dout, weights * places, back=True), of_weights, None


def _grid(longest: int, delays: Tensor) -> Tensor:
    """The delays 0, 1, ..., D as a Tensor (D + 1, 1, 1), with the dtype and device of `delays`."""
    whole: Tensor = array_beside(np.arange(longest + 1).reshape(-1, 1, 1), delays)
    return whole.astype(delays.dtype)


# --- The layers -------------------------------------------------------------------------------------------------------

_WIDTHS = {"gaussian": POSITIVE, "triangular": Range(0.5)}  # a triangle of width 0.5 can lie between two whole delays


@with_fields
class DelayedDense(Ranged, Cell):
    """Dense layer with a learned delay for each synapse (DCLS): a weight w[j, i] and a real delay p[j, i] in steps.

        y[t, :, j] = sum_i sum_d w[j, i] k(d - p[j, i]) x[t - d, :, i] + b[j],   d = 0, ..., max_delay
        k(s) = exp(-(s / width)^2 / 2)          kernel="gaussian"
        k(s) = max(0, 1 - |s| / width)          kernel="triangular"

    k is normalised: its sum over d is 1. x counts as 0 before the first step. Use it for temporal patterns, such as
    speech: a neuron with learned delays detects spikes that follow each other at certain intervals.

    With a wide kernel, the gradient of a delay depends on many steps around p, so p can move far. A narrow kernel is
    close to a single delay. So start with a large `width`, and let it shrink during training: assign `layer.width`
    between two training steps, for example in a callback. Delays change by steps, weights by fractions of 1, so give
    delays about 100 times the learning rate, by parameter groups. Each write clips delays to [0, max_delay].

    After `set_train(False)`, each synapse has a single delay without a gradient: p rounded to a whole step, because
    neuromorphic chips have such delays. A new Cell is in this mode, so call `set_train()` in your own training loop,
    also before `train.training_step`. `train.fit` calls it for you.

    If few elements of x are nonzero, the layer skips the others. If it saves work, Fourier transforms over time compute
    the gradient of x and, for a dense x, the gradients of w and p. Their rounding errors are then relative to the
    largest gradient of nearby time steps, and a NaN in the gradient of y also reaches the gradients of these steps.
    Inputs: x: (T, B, in_channels), spikes or any other numbers.
    Returns: y, (T, B, out_channels).
    Source: Hammouamri, Khalfaoui-Hassani and Masquelier, "Learning Delays in Spiking Neural Networks using Dilated
    Convolutions with Learnable Spacings", ICLR 2024.
    Example:
        >>> delays = Tensor([[0.0], [2.2]])
        >>> layer = nn.DelayedDense(1, 2, max_delay=3, width=0.3, weight_init=1.0, delay_init=delays, has_bias=False)
        >>> x = Tensor([1.0, 0.0, 0.0, 0.0]).reshape((4, 1, 1))  # one spike at step 0
        >>> print(layer.set_train()(x)[:, 0, 1].asnumpy().round(2))  # spread around step 2.2
        [0.   0.   0.96 0.03]
        >>> print(layer.set_train(False)(x)[:, 0, 1])  # one tap
        [0. 0. 1. 0.]
    """

    in_channels: Annotated[Count, field(meaning="N_in, length of the last axis of x")]
    out_channels: Annotated[Count, field(meaning="N_out, length of the last axis of y")]
    max_delay: Annotated[Size, field(meaning="D, the longest delay, in steps")]
    kernel: str = field("gaussian", tuple(_WIDTHS), "k, the shape of a synapse's response to a spike")
    width: Any = field(
        None,
        meaning="width of k, in steps, above 0; above 0.5 if triangular. None is max_delay / 2, but at least 1",
        keep=False,
    )
    weight_init: Init | None = field(
        None, meaning="initial w, (out_channels, in_channels); None is uniform, +-1 / sqrt(in_channels)", keep=False
    )
    delay_init: Init | None = field(
        None, meaning="initial p, (out_channels, in_channels), in [0, max_delay]; None draws it uniformly", keep=False
    )
    bias_init: Init | None = field(None, meaning="initial b, (out_channels,); None as for w", keep=False)
    has_bias: bool = field(True, meaning="whether to add b")
    dtype: FloatDtype = field(dtypes.float32, meaning="dtype of the Parameters", keep=False)
    bias: Parameter | None = None
    delay: Any = None
    ranges: ClassVar = {"width": POSITIVE, "delay": Range()}

    def _complete(self, given: dict[str, Any]) -> None:
        shape, longest, dtype = (self.out_channels, self.in_channels), self.max_delay, given["dtype"]
        width = max(longest / 2.0, 1.0) if given["width"] is None else given["width"]
        # A Parameter, so that jitted functions are not traced again for a new width.
        self.width = Parameter(Tensor(self.checked("width", width), dtype), requires_grad=False)
        if self.width.ndim:
            raise ShapeError(f"DelayedDense: width must be one number, but has shape {self.width.shape}.")
        self.weight = create_parameter(given["weight_init"], FAN_IN_UNIFORM, shape, dtype)
        if given["delay_init"] is None:
            start = initializer(Uniform(longest / 2), shape, dtype) + longest / 2
        else:
            start = initializer(given["delay_init"], shape, dtype)
        self.delay = Parameter(start)
        if self.has_bias:
            even = Uniform(1 / math.sqrt(self.in_channels))
            self.bias = create_parameter(given["bias_init"], even, shape[:1], dtype)

    def range_of(self, name: str) -> Range:
        """The range of a constant: [0, max_delay] for delays; for the width above 0, or above 0.5 if triangular."""
        if name == "delay":
            return Range(0.0, float(self.max_delay), "both")
        return _WIDTHS[self.kernel] if name == "width" else super().range_of(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "width" and isinstance(self.__dict__.get(name), Parameter) and not isinstance(value, Parameter):
            value = Tensor(self.checked(name, value), self.width.dtype)
        super().__setattr__(name, value)

    def construct(self, x: Tensor) -> Tensor:
        check_time_axis(x, "DelayedDense")
        if x.ndim != 3 or x.shape[2] != self.in_channels:
            raise ShapeError(
                f"{self!r}: the input must be a sequence (T, B, {self.in_channels}), but has shape {x.shape}. Call the "
                f"layer with all time steps, outside of nn.MultiStep. For one sequence, pass x.expand_dims(1)."
            )
        x, weights, delays = same_dtype([x, self.weight.T, self.delay.T], "DelayedDense")
        if self.training:
            out = _delayed.bind(x, self._taps(weights, delays), back=False)
        else:
            whole = ops.round(ops.stop_gradient(delays)).astype(dtypes.int64)
            out = _of_one.bind(x, weights, whole, longest=self.max_delay)
        return out + self.bias if self.has_bias else out

    def taps(self) -> Tensor:
        """The weight of each synapse at each delay, (max_delay + 1, in_channels, out_channels): in training mode
        w k(d - p), in evaluation mode w at the rounded delay and 0 elsewhere.
        """
        weights, delays = self.weight.T, self.delay.T
        if self.training:
            return self._taps(weights, delays)
        return weights * ops.equal(_grid(self.max_delay, delays), ops.round(delays)).astype(weights.dtype)

    def _taps(self, weights: Tensor, delays: Tensor) -> Tensor:
        """w k(d - p) for all delays: (D + 1, N_in, N_out)."""
        distance = (_grid(self.max_delay, delays) - delays) / self.width.astype(delays.dtype)
        if self.kernel == "gaussian":
            return weights * ops.softmax(ops.square(distance) * -0.5, 0)
        heights = ops.relu(1.0 - ops.abs(distance))
        return weights * (heights / heights.sum(0))

    def extend_repr(self) -> str:
        names = "in_channels", "out_channels", "max_delay", "kernel", "has_bias"
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)


class DelayedConv1d(Cell):
    """1D convolution with a learned delay for each synapse (DCLS): over channels, a spatial axis, and time.

        y[t, :, o, l] = sum_c sum_k sum_d w[o, c, k] kernel(d - p[o, c, k]) x[t - d, :, c, l stride + k dilation] + b[o]

    Positions in x are counted after padding. Use it for inputs with neighbours, such as the frequencies of sounds.
    `synapses`, a `DelayedDense` from the C K values of a window to the O outputs, has `weight`, `delay` and `width`.

    Args:
        in_channels, out_channels: C and O.
        kernel_size: K, the length of a window.
        max_delay: the longest delay, in steps.
        stride: the distance between windows.
        pad_mode, padding: as for `Conv1d`; "same" gives ceil(L / stride) positions.
        dilation: the distance between the elements of a window.
        options: kernel, width, weight_init, ... as for `DelayedDense`.
    Inputs: x: (T, B, C, L).
    Returns: y, (T, B, O, positions).
    Source: as for `DelayedDense`.
    Example:
        >>> layer = nn.DelayedConv1d(2, 4, kernel_size=3, max_delay=5)
        >>> layer(ops.ones((10, 1, 2, 16))).shape, layer.synapses.delay.shape
        ((10, 1, 4, 16), (4, 6))
    """

    def __init__(
        self,
        in_channels: Count,
        out_channels: Count,
        kernel_size: Count,
        max_delay: Size,
        stride: Count = 1,
        pad_mode: PadMode = "same",
        padding: Size = 0,
        dilation: Count = 1,
        **options: Any,
    ) -> None:
        super().__init__()
        self.in_channels, self.kernel_size = in_channels, kernel_size
        self.stride, self.pad_mode, self.padding, self.dilation = stride, pad_mode, padding, dilation
        self._padding_of(1)  # checks pad_mode and padding
        self.synapses = DelayedDense(in_channels * kernel_size, out_channels, max_delay, **options)

    def _padding_of(self, places: int) -> tuple[int, int]:
        geometry = (places,), (self.kernel_size,), (self.stride,), (self.dilation,)
        return padding_widths(*geometry, self.pad_mode, self.padding, "DelayedConv1d")[0]

    def construct(self, x: Tensor) -> Tensor:
        if x.ndim != 4 or x.shape[2] != self.in_channels:
            raise ShapeError(
                f"{self!r}: the input must be a sequence (T, B, {self.in_channels}, L), but has shape {x.shape}."
            )
        padded = ops.pad(x, self._padding_of(x.shape[3]))
        span = padded.shape[3] - (self.kernel_size - 1) * self.dilation
        if span < 1:
            raise ShapeError(f"{self!r}: the input of shape {x.shape} has fewer places than a window.")
        steps, batch, _, places = *x.shape[:3], -(-span // self.stride)
        firsts = range(0, self.kernel_size * self.dilation, self.dilation)
        windows = ops.stack([padded[..., first : first + span : self.stride] for first in firsts], 3)  # (T, B, C, K, L)
        rows = windows.transpose((0, 1, 4, 2, 3)).reshape((steps, batch * places, self.synapses.in_channels))
        out: Tensor = self.synapses(rows)
        return out.reshape((steps, batch, places, self.synapses.out_channels)).transpose((0, 1, 3, 2))

    def extend_repr(self) -> str:
        names = "kernel_size", "stride", "pad_mode", "padding", "dilation"
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)


class RecurrentDelay(Cell):
    """Recurrent connections with delays: feed a neuron's spikes back, each synapse after its own delay.

        out[t], *states[t] = cell(x[t] + b + sum_d out[t - 1 - d] taps[d], *states[t - 1]),   d = 0, ..., D

    `feedback` gives the taps, w k(d - p). The feedback takes at least one step, so a spike arrives 1 + p steps later.
    Use it for recurrent networks that must remember the times of their spikes. The result is a Cell of one time step,
    for `MultiStep`. Its first state contains the currents that have not arrived yet; the states of `cell` follow.

    Args:
        cell: the neuron, with N outputs for N inputs.
        feedback: the weights and delays, a `DelayedDense` with N inputs and N outputs.
    Inputs:
        x: the input of one step, (B, N).
        pending: the currents of the next D + 1 steps, (B, D + 1, N).
        states: the states of the neuron.
    Returns: (out, pending, *states).
    Source: Hammouamri, Khalfaoui-Hassani and Masquelier, ICLR 2024 (delays by kernels).
    Example:
        >>> delays = nn.DelayedDense(1, 1, max_delay=4, weight_init=2.0, delay_init=2.0, has_bias=False)
        >>> x = Tensor([2.0] + [0.0] * 8).reshape((9, 1, 1))  # one spike, which comes back every 3 steps
        >>> print(nn.MultiStep(nn.RecurrentDelay(nn.IFNode(reset="zero"), delays))(x)[:, 0, 0])
        [1. 0. 0. 1. 0. 0. 1. 0. 0.]
    """

    def __init__(self, cell: Annotated[Cell, Own()], feedback: Annotated[Cell, Own()]) -> None:
        super().__init__()
        if not isinstance(cell, Cell):
            raise ArgumentError(
                f"RecurrentDelay: cell must be a Cell, an object such as nn.LIFNode(), not {came(cell)}."
            )
        if not isinstance(feedback, DelayedDense) or feedback.in_channels != feedback.out_channels:
            shown = repr(feedback) if isinstance(feedback, DelayedDense) else came(feedback)
            raise ArgumentError(
                f"RecurrentDelay: feedback must be a DelayedDense with as many inputs as outputs, for example "
                f"nn.DelayedDense(n, n, max_delay=25), not {shown}."
            )
        self.cell = cell
        self.feedback = feedback

    def construct(self, x: Tensor, pending: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        neurons = self.feedback.out_channels
        total = x + pending[:, 0]
        out, *after = self.cell(total + self.feedback.bias if self.feedback.has_bias else total, *states)
        side_by_side = self.feedback.taps().transpose((1, 0, 2)).reshape((neurons, -1))  # (N, (D + 1) N)
        new = ops.matmul(out, side_by_side).reshape(pending.shape)
        later = ops.concat([pending[:, 1:], ops.zeros_like(pending[:, :1])], 1)
        return (out, later + new, *after)

    def init_state(self, x: Tensor) -> tuple[Tensor, ...]:
        """Start without pending currents, and with the neuron's own initial states."""
        neurons = self.feedback.out_channels
        if x.ndim != 2 or x.shape[1] != neurons:
            raise ShapeError(
                f"RecurrentDelay: the input of a step must be (B, {neurons}) for {self.feedback!r}, but has shape "
                f"{x.shape}."
            )
        dtype = dtypes.promote(x.dtype if x.dtype.is_float else dtypes.float32, self.feedback.weight.dtype)
        pending = ops.zeros((len(x), self.feedback.max_delay + 1, neurons), dtype)
        return (pending, *initial_states(self.cell, ops.zeros_like(x, dtype)))
