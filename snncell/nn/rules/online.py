"""Online training through time (OTTT), and the parts that it shares with e-prop.

Both are Cells with a `bprop` of their own, which goes forward in time. The gradient that arrives, `dout`, is the
learning signal of its step; traces hold the part of earlier steps that the weights need.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from snncell import dtype as dtypes, ops
from snncell.base.arguments.kinds import Count, FloatDtype
from snncell.cell.cell import Cell
from snncell.cell.held import Ranged
from snncell.cell.ranges import Range
from snncell.common.initializer import Init, Uniform
from snncell.errors import ArgumentError, ShapeError
from snncell.nn.layers.linear import FAN_IN_UNIFORM, create_parameter
from snncell.surrogate import ATan
from snncell.surrogate.base import check_spike_function
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor

__all__ = ["OTTTDense"]


def fixed_surrogate(value: Any, layer: Cell) -> Any:
    """The spike function of a layer; ATan if it is None."""
    who = type(layer).__name__
    chosen = ATan() if value is None else check_spike_function(value, who)
    learned = chosen.trainable_params()
    if learned and getattr(layer, "bprop", None) is not None:
        raise ArgumentError(
            f"{who}: surrogate_function has something to learn, {learned[0].name!r}, which the reverse of {who} gives "
            f"no gradient. Give a number in its place, or set its requires_grad to False."
        )
    return chosen


def surrogate_spikes(surrogate: Any, distance: Tensor) -> Tensor:
    """The spikes of neurons whose potentials are above the threshold by `distance`, in its dtype."""
    spike: Tensor = surrogate(distance).astype(distance.dtype)
    return spike


def surrogate_vjp(surrogate: Any, distance: Tensor, dout: Tensor) -> Tensor:
    """The gradient of `distance` where `dout` is that of its spikes: psi dout, by the surrogate's bprop."""
    _, pull = ops.vjp(lambda x: surrogate_spikes(surrogate, x), distance)
    gradient: Tensor
    (gradient,) = pull(dout)
    return gradient


def as_matrix(x: Tensor) -> Tensor:
    """(..., N) as a matrix of N columns."""
    return x.reshape((-1, x.shape[-1]))


def cast_spikes(x: Tensor, dtype: Any) -> Tensor:
    """Spikes as numbers: x itself if it is float, else in `dtype`."""
    return x if x.dtype.is_float else x.astype(dtype)


def check_input(cell: Cell, x: Tensor, ndim: int, channels: int) -> None:
    """Raise a ShapeError unless x has `ndim` axes, the last of length `channels`."""
    if x.ndim != ndim or x.shape[-1] != channels:
        expected = f"({'T, ' if ndim == 3 else ''}B, {channels})"
        who = type(cell).__name__
        raise ShapeError(f"{who}: x has shape {x.shape}; it must be {expected}, with in_channels = {channels}.")


DECAY_RANGE = Range(0.0, 1.0, "low", "is a number in [0.0, 1.0)")  # what a step leaves
THRESHOLD_RANGE = Range(0.0, text="is a number above 0")


class OTTTDense(Ranged, Cell):
    """One step of a dense layer of LIF neurons that learns by online training through time (OTTT).

    u[t] = decay v[t - 1] + W x[t] + b;  s[t] = surrogate(u[t] - v_threshold);  v[t] = u[t] - v_threshold s[t]
    a[t] = decay a[t - 1] + x[t],  c[t] = decay c[t - 1] + 1              the presynaptic traces, of x and of b's 1

    Where g[t] is the gradient that arrives at s[t], and psi[t] the derivative of the surrogate at u[t] - v_threshold:

    dW = sum over t of (psi[t] g[t]) a[t]^T;  db = sum over t of psi[t] g[t] c[t];  dx[t] = W^T (psi[t] g[t])

    No gradient goes through the states, so none goes back in time. Therefore you can differentiate a step and change
    its weights as soon as it has run, and only v, a and c are stored. For one layer, whose reset is a constant in the
    backward pass, this is the gradient of backpropagation through time; deeper networks leave out the effect of a
    spike of the layer below on later steps.

    It is a Cell of one step. Run it by `MultiStep` for the sum over a sequence, or step by step, as in the example, for
    a memory that does not depend on T. The Cell without its bprop, `class Layer(nn.OTTTDense): bprop = None`, learns
    by backpropagation through time.

    Args:
        in_channels, out_channels: I and N.
        decay: what a step leaves of the potential, in [0, 1); a membrane time constant tau leaves exp(-dt / tau).
        v_threshold: the neuron fires where u > v_threshold.
        weight_init, bias_init: of W, (N, I), and b, (N,); by default even within 1 / sqrt(I).
        has_bias: whether there is b.
        surrogate_function: the spike function, a Cell, whose constants are not learned.
        dtype: of the Parameters.

    Inputs:
        x: (B, I).
        v: (B, N), the potential after the reset.
        a: (B, I), the trace of x.
        c: (B, N), the trace of 1.

    Returns:
        (s, v, a, c).

    Raises:
        ArgumentError: for a decay or threshold out of range, or what is no spike function.
        ShapeError: for an x that is not (B, I).

    Source: Xiao et al., "Online Training Through Time for Spiking Neural Networks", NeurIPS 2022.

    Example:
        >>> layer = nn.OTTTDense(3, 2)
        >>> states = layer.init_state(ops.zeros((1, 3)))
        >>> for x in ops.ones((5, 1, 3)):  # a gradient at each step, and no memory of the steps before
        ...     loss = lambda x: ((out := layer(x, *states))[0].sum(), *out[1:])
        ...     gradient, states = ops.grad(loss, None, layer.weight, has_aux=True)(x)
        >>> gradient.shape
        (2, 3)
    """

    ranges: ClassVar = {"decay": DECAY_RANGE, "v_threshold": THRESHOLD_RANGE}
    bias: Parameter | None = None  # without a bias, as in MindSpore

    def __init__(
        self,
        in_channels: Count,
        out_channels: Count,
        decay: float = 0.5,
        v_threshold: float = 1.0,
        weight_init: Init | None = None,
        bias_init: Init | None = None,
        has_bias: bool = True,
        surrogate_function: Any = None,
        dtype: FloatDtype = dtypes.float32,
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.decay = float(decay)
        self.v_threshold = float(v_threshold)
        self.has_bias = has_bias
        self.surrogate_function = fixed_surrogate(surrogate_function, self)
        self.weight = create_parameter(weight_init, FAN_IN_UNIFORM, (out_channels, in_channels), dtype)
        self.internal_params = [self.weight]
        if has_bias:
            self.bias = create_parameter(bias_init, Uniform(1 / math.sqrt(in_channels)), (out_channels,), dtype)
            self.internal_params = [self.weight, self.bias]

    def construct(self, x: Tensor, v: Tensor, a: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        check_input(self, x, 2, self.in_channels)
        x = cast_spikes(x, self.weight.dtype)
        u = self.decay * v + ops.matmul(x, self.weight.T)
        if self.has_bias:
            u = u + self.bias
        s = surrogate_spikes(self.surrogate_function, u - self.v_threshold)
        v = u - self.v_threshold * ops.stop_gradient(s)
        return s, v, self.decay * a + x, self.decay * c + 1.0

    def bprop(self, x: Tensor, v: Tensor, a: Tensor, c: Tensor, out: Any, dout: Any) -> Any:
        s, v, a, c = out
        u = v + self.v_threshold * s
        du = surrogate_vjp(self.surrogate_function, u - self.v_threshold, dout[0])
        of_parameters = {self.weight: ops.matmul(du.T, a)}
        if self.bias is not None:
            of_parameters[self.bias] = (du * c).sum(0)
        dx = ops.matmul(du, self.weight) if x.dtype.is_float else None
        return (dx, None, None, None), of_parameters

    def init_state(self, x: Tensor) -> tuple[Tensor, ...]:
        """A potential and traces of zero."""
        rest = ops.zeros((x.shape[0], self.out_channels), self.weight.dtype)
        return rest, ops.zeros((x.shape[0], self.in_channels), self.weight.dtype), rest

    def extend_repr(self) -> str:
        return f"input_channels={self.in_channels}, output_channels={self.out_channels}, decay={self.decay}"
