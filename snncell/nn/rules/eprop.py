"""Eligibility propagation (e-prop): a recurrent layer that learns forward in time, and random feedback weights."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from snncell import dtype as dtypes, ops
from snncell.base.arguments.kinds import Count, FloatDtype
from snncell.cell.cell import Cell
from snncell.cell.held import Ranged
from snncell.cell.ranges import Range
from snncell.common.initializer import Init, Normal
from snncell.nn.layers.linear import Dense, create_parameter
from snncell.nn.rules.online import (
    DECAY_RANGE,
    THRESHOLD_RANGE,
    as_matrix,
    cast_spikes,
    check_input,
    fixed_surrogate,
    surrogate_spikes,
    surrogate_vjp,
)
from snncell.nn.time.axis import check_time_axis
from snncell.tape.tensor import Tensor

__all__ = ["EProp", "FeedbackDense"]


def _normal(inputs: int) -> Normal:
    return Normal(1 / math.sqrt(inputs))


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
    both backward passes. This one runs forward in time. It stores sequences of the shapes of x and z and, with
    adaptation, one k and one sum, (B, N, I + N).

    The learning signal is up to the readout: with `Dense` it is symmetric e-prop, with `FeedbackDense` random
    e-prop. The layer without its bprop, `class Layer(nn.EProp): bprop = None`, learns by backpropagation through
    time.

    Args:
        in_channels, out_channels: I and N.
        decay: what a step leaves of the potential, in [0, 1); a membrane time constant tau leaves exp(-dt / tau).
        adaptation: by how much a spike raises the threshold.
        adaptation_decay: what a step leaves of that, in [0, 1).
        v_threshold: the threshold without adaptation.
        weight_init, recurrent_init: of W, (N, I), and R, (N, N); by default normal, with deviations 1 / sqrt(I) and
            1 / sqrt(N).
        surrogate_function: the spike function, a Cell, whose constants are not learned. The paper's has psi = 0.3
            max(0, 1 - |x|) for v_threshold = 1.
        dtype: of the Parameters.

    Inputs:
        x: (T, B, I). The layer begins at rest.

    Returns:
        z, (T, B, N).

    Raises:
        ArgumentError: for a decay, adaptation or threshold out of range, or what is no spike function.
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

    ranges: ClassVar = {
        "decay": DECAY_RANGE,
        "adaptation": Range(0.0, closed="low", text="is a number in [0.0, inf)"),
        "adaptation_decay": DECAY_RANGE,
        "v_threshold": THRESHOLD_RANGE,
    }

    def __init__(
        self,
        in_channels: Count,
        out_channels: Count,
        decay: float = 0.95,
        adaptation: float = 0.0,
        adaptation_decay: float = 0.99,
        v_threshold: float = 1.0,
        weight_init: Init | None = None,
        recurrent_init: Init | None = None,
        surrogate_function: Any = None,
        dtype: FloatDtype = dtypes.float32,
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.decay = float(decay)
        self.adaptation = float(adaptation)
        self.adaptation_decay = float(adaptation_decay)
        self.v_threshold = float(v_threshold)
        self.surrogate_function = fixed_surrogate(surrogate_function, self)
        self.weight = create_parameter(weight_init, _normal(in_channels), (out_channels, in_channels), dtype)
        self.recurrent = create_parameter(recurrent_init, _normal(out_channels), (out_channels, out_channels), dtype)
        self.internal_params = [self.weight, self.recurrent]

    def others(self, matrix: Tensor) -> Tensor:
        """A matrix (N, N) without its diagonal."""
        masked: Tensor = matrix * (1.0 - ops.eye(self.out_channels, dtype=matrix.dtype))
        return masked

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

    Inputs:
        x: (..., N).

    Returns:
        y, (..., K).

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
