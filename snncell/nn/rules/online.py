"""Online learning: e-prop and online training through time (OTTT), and layers with random feedback.

Both rules are Cells with a `bprop` that goes forward in time. The gradient that arrives, `dout`, is the learning signal
of its step; traces hold the part of earlier steps that the weights need.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

from snncell import dtype as dtypes, ops
from snncell.base.arguments.kinds import Count, FloatDtype
from snncell.cell.cell import Cell
from snncell.cell.fields import field, with_fields
from snncell.cell.held import Ranged
from snncell.cell.ranges import Range
from snncell.common.initializer import Init, Normal, Uniform
from snncell.errors import ArgumentError, ShapeError
from snncell.nn.layers.linear import FAN_IN_UNIFORM, Dense, create_parameter
from snncell.nn.time.axis import check_time_axis
from snncell.surrogate import ATan
from snncell.surrogate.base import check_spike_function
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor

__all__ = ["EProp", "FeedbackDense", "OTTTDense"]


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


DECAY_RANGE = Range(0.0, 1.0, "low", "is a number in [0.0, 1.0)")
THRESHOLD_RANGE = Range(0.0, text="is a number above 0")
LEFT = "factor that a step leaves of the potential; a membrane time constant tau leaves exp(-dt / tau)"
SURROGATE = field(
    None, None, "the spike function, a Cell, whose constants are not learned; ATan() if it is left out", keep=False
)
DTYPE = field(dtypes.float32, None, "of the Parameters", keep=False)


@with_fields
class OTTTDense(Ranged, Cell):
    """One step of a dense layer of LIF neurons that learns by online training through time (OTTT).

    u[t] = decay v[t - 1] + W x[t] + b;  s[t] = surrogate(u[t] - v_threshold);  v[t] = u[t] - v_threshold s[t]
    a[t] = decay a[t - 1] + x[t],  c[t] = decay c[t - 1] + 1              the presynaptic traces, of x and of b's 1

    With g[t] the gradient that arrives at s[t], and psi[t] the derivative of the surrogate at u[t] - v_threshold:

    dW = sum over t of (psi[t] g[t]) a[t]^T;  db = sum over t of psi[t] g[t] c[t];  dx[t] = W^T (psi[t] g[t])

    No gradient goes through the states, so none goes back in time. Therefore you can differentiate a step and change
    its weights as soon as it has run, and only v, a and c are stored. For one layer, whose reset is a constant in the
    backward pass, this is the gradient of backpropagation through time; deeper networks leave out the effect of a
    spike of the layer below on later steps.

    It is a Cell of one step. Run it by `MultiStep` for the sum over a sequence, or step by step, as in the example, for
    a memory that does not depend on T. The Cell without its bprop, `class Layer(nn.OTTTDense): bprop = None`, learns
    by backpropagation through time.

    Inputs, Returns: x, v, a, c: x (B, I), the potential after the reset (B, N), the trace of x (B, I), and that of 1
    (B, N); (s, v, a, c).

    Raises:
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

    in_channels: Annotated[Count, field(meaning="I")]
    out_channels: Annotated[Count, field(meaning="N")]
    decay: float = field(0.5, DECAY_RANGE, LEFT)
    v_threshold: float = field(1.0, THRESHOLD_RANGE, "the neuron fires where u > v_threshold")
    weight_init: Init | None = field(None, None, "of W, (N, I), by default even within 1 / sqrt(I)", keep=False)
    bias_init: Init | None = field(None, None, "of b, (N,), by default even within 1 / sqrt(I)", keep=False)
    has_bias: bool = field(True, None, "whether there is b")
    surrogate_function: Any = SURROGATE
    dtype: FloatDtype = DTYPE
    bias: Parameter | None = None  # without a bias, as in MindSpore

    def _complete(self, given: dict[str, Any]) -> None:
        """Make the spike function, and the Parameters."""
        in_channels, out_channels, dtype = self.in_channels, self.out_channels, given["dtype"]
        self.surrogate_function = fixed_surrogate(given["surrogate_function"], self)
        self.weight = create_parameter(given["weight_init"], FAN_IN_UNIFORM, (out_channels, in_channels), dtype)
        self.internal_params = [self.weight]
        if self.has_bias:
            self.bias = create_parameter(
                given["bias_init"], Uniform(1 / math.sqrt(in_channels)), (out_channels,), dtype
            )
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


def _normal(inputs: int) -> Normal:
    return Normal(1 / math.sqrt(inputs))


@with_fields
class EProp(Ranged, Cell):
    """A recurrent layer of adaptive LIF neurons that learns by eligibility propagation (e-prop).

    v[t] = decay v[t - 1] + W x[t] + R z[t - 1] - v_threshold z[t - 1]     R without its diagonal
    z[t] = surrogate(v[t] - v_threshold - adaptation b[t])
    b[t] = adaptation_decay b[t - 1] + z[t - 1]                            adaptation=0: a LIF neuron

    An input i has the trace f_i[t] = decay f_i[t - 1] + x_i[t], or + z_i[t - 1] for one from the layer itself. With
    psi_j[t] the derivative of the surrogate, a synapse from i to j has the eligibility

    e_ji[t] = psi_j[t] (f_i[t] - adaptation k_ji[t])
    k_ji[t + 1] = psi_j[t] f_i[t] + (adaptation_decay - adaptation psi_j[t]) k_ji[t]

    and its gradient is the sum over t of g_j[t] e_ji[t], where the learning signal g[t] is the gradient that arrives at
    z[t]; dx[t] = W^T (psi[t] g[t]). Compared with backpropagation through time, it leaves out the effect of a spike on
    other neurons of the layer; without recurrent weights the two give the same dW and dR. The reset is a constant in
    both backward passes. This one runs forward in time, and stores sequences of the shapes of x and z and, with
    adaptation, one k and one sum, (B, N, I + N).

    The paper's surrogate has psi = 0.3 max(0, 1 - |x|) for v_threshold = 1. The learning signal is up to the readout:
    with `Dense` it is symmetric e-prop, with `FeedbackDense` random e-prop. The layer without its bprop,
    `class Layer(nn.EProp): bprop = None`, learns by backpropagation through time.

    Inputs, Returns: x, (T, B, I); z, (T, B, N). The layer begins at rest.

    Raises:
        ArgumentError: for a spike function with constants to learn.
        ShapeError: for an x that is not (T, B, I).

    Source: Bellec et al., "A solution to the learning dilemma for recurrent networks of spiking neurons", Nature
    Communications 2020.

    Example:
        >>> layer, readout = nn.EProp(3, 8, adaptation=0.2), nn.FeedbackDense(8, 2)
        >>> loss = lambda x: ops.square(readout(layer(x))).mean()
        >>> dw, dr = ops.grad(loss, None, layer.trainable_params())(ops.ones((20, 4, 3)))
        >>> dw.shape, dr.shape
        ((8, 3), (8, 8))
    """

    whole_sequences = True
    weights_inside = True  # a monitor records its spikes alone: its input is no current of its neurons

    in_channels: Annotated[Count, field(meaning="I")]
    out_channels: Annotated[Count, field(meaning="N")]
    decay: float = field(0.95, DECAY_RANGE, LEFT)
    adaptation: float = field(
        0.0, Range(0.0, closed="low", text="is a number in [0.0, inf)"), "by how much a spike raises the threshold"
    )
    adaptation_decay: float = field(0.99, DECAY_RANGE, "factor that a step leaves of that")
    v_threshold: float = field(1.0, THRESHOLD_RANGE, "the threshold without adaptation")
    weight_init: Init | None = field(
        None, None, "of W, (N, I), by default normal with deviation 1 / sqrt(I)", keep=False
    )
    recurrent_init: Init | None = field(
        None, None, "of R, (N, N), by default normal with deviation 1 / sqrt(N)", keep=False
    )
    surrogate_function: Any = SURROGATE
    dtype: FloatDtype = DTYPE

    def _complete(self, given: dict[str, Any]) -> None:
        """Make the spike function, and the Parameters."""
        inputs, neurons, dtype = self.in_channels, self.out_channels, given["dtype"]
        self.surrogate_function = fixed_surrogate(given["surrogate_function"], self)
        self.weight = create_parameter(given["weight_init"], _normal(inputs), (neurons, inputs), dtype)
        self.recurrent = create_parameter(given["recurrent_init"], _normal(neurons), (neurons, neurons), dtype)
        self.internal_params = [self.weight, self.recurrent]

    def others(self, matrix: Tensor) -> Tensor:
        """A matrix (N, N) without its diagonal."""
        return matrix * (1.0 - ops.eye(self.out_channels, dtype=matrix.dtype))

    def construct(self, x: Tensor) -> Tensor:
        check_input(self, x, 3, self.in_channels)
        check_time_axis(x, type(self).__name__)
        current = ops.matmul(cast_spikes(x, self.weight.dtype), self.weight.T)
        feedback = self.others(self.recurrent).T

        def step(state: tuple[Tensor, ...], now: Tensor) -> Any:
            v, z, b = state
            v = self.decay * v + now + ops.matmul(z, feedback) - self.v_threshold * ops.stop_gradient(z)
            b = self.adaptation_decay * b + z
            distance = v - self.v_threshold - self.adaptation * b
            z = surrogate_spikes(self.surrogate_function, distance)
            return (v, z, b), (z, distance)

        _, (z, distance) = ops.scan(step, (ops.zeros_like(current[0]),) * 3, current)
        self.save_for_bprop(distance)
        spikes: Tensor = z
        return spikes

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        (distance,) = self.saved_for_bprop
        psi = surrogate_vjp(self.surrogate_function, distance, ops.ones_like(distance))
        before = ops.concat([ops.zeros_like(out[:1]), out[:-1]])
        arriving = ops.concat([cast_spikes(x, out.dtype), before], -1)  # (T, B, I + N)
        gradient = self.summed_eligibilities(arriving, psi, dout)
        of_recurrent = self.others(gradient[:, self.in_channels :])
        dx = ops.matmul(psi * dout, self.weight) if x.dtype.is_float else None
        return (dx,), {self.weight: gradient[:, : self.in_channels], self.recurrent: of_recurrent}

    def summed_eligibilities(self, arriving: Tensor, psi: Tensor, signal: Tensor) -> Tensor:
        """The sum over time and batch of signal_j e_ji, (N, I + N)."""
        _, traces = ops.scan(lambda f, now: ((f := self.decay * f + now), f), ops.zeros_like(arriving[0]), arriving)
        if not self.adaptation:
            return ops.matmul(as_matrix(signal * psi).T, as_matrix(traces))

        def step(state: tuple[Tensor, Tensor], now: tuple[Tensor, ...]) -> Any:
            k, total = state
            f, slope, g = now[0].expand_dims(1), now[1].expand_dims(2), now[2].expand_dims(2)
            total = total + g * slope * (f - self.adaptation * k)
            k = slope * f + (self.adaptation_decay - self.adaptation * slope) * k
            return (k, total), None

        begin = ops.zeros((arriving.shape[1], self.out_channels, arriving.shape[2]), psi.dtype)
        (_, total), _ = ops.scan(step, (begin, begin), (traces, psi, signal))
        summed: Tensor = total.sum(0)  # over the batch, after the loop, which is elementwise and one kernel
        return summed

    def extend_repr(self) -> str:
        return (
            f"input_channels={self.in_channels}, output_channels={self.out_channels}, decay={self.decay}, "
            f"adaptation={self.adaptation}"
        )


class FeedbackDense(Dense):
    """Feedback alignment: a dense layer whose backward pass has fixed random weights, y = x W^T + b, and dx = dy B.

    dW and db are the true ones. After an `EProp` layer this is random e-prop's broadcast of the errors; after any
    layer it is feedback alignment.

    Args:
        in_channels, out_channels: N and K.
        weight_init, bias_init: of W, (K, N), and b, (K,); by default even within 1 / sqrt(N).
        feedback_init: of B, (K, N), a Parameter that is not trained; by default normal, with deviation 1 / sqrt(N).
        has_bias: whether there is b.
        dtype: of the Parameters.

    Inputs, Returns: x, (..., N); y, (..., K).

    Raises:
        ShapeError: if the last axis of x is not in_channels.

    Source: Lillicrap et al., "Random synaptic feedback weights support error backpropagation for deep learning", Nature
    Communications 2016; Bellec et al. 2020, as for `EProp`.

    Example:
        >>> layer = nn.FeedbackDense(3, 2, feedback_init="ones")
        >>> snncell.grad(lambda x: layer(x).sum())(ops.ones((1, 3))).asnumpy()
        array([[2., 2., 2.]], dtype=float32)
    """

    def __init__(
        self,
        in_channels: Count,
        out_channels: Count,
        weight_init: Init | None = None,
        bias_init: Init | None = None,
        feedback_init: Init | None = None,
        has_bias: bool = True,
        dtype: FloatDtype = dtypes.float32,
    ) -> None:
        super().__init__(in_channels, out_channels, weight_init, bias_init, has_bias, dtype=dtype)
        self.feedback = create_parameter(feedback_init, _normal(in_channels), self.weight.shape, dtype)
        self.feedback.requires_grad = False
        self.internal_params = [self.weight, self.bias] if has_bias else [self.weight]

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        of_parameters = {self.weight: ops.matmul(as_matrix(dout).T, as_matrix(x))}
        if self.bias is not None:
            of_parameters[self.bias] = as_matrix(dout).sum(0)
        return (ops.matmul(dout, self.feedback),), of_parameters
