"""Piecewise surrogate gradients: triangles, rectangles, exponentials, leaky ReLUs, straight-through."""

from __future__ import annotations

import math
from typing import Any

from snncell import ops
from snncell.cell.fields import with_fields
from snncell.cell.ranges import NOT_NEGATIVE
from snncell.surrogate.base import Constant, Surrogate, constant
from snncell.tape.tensor import Tensor

__all__ = [
    "S2NN", "Boxcar", "LeakyReLU", "LogTailedReLU", "PiecewiseExp", "PiecewiseLeakyReLU", "PiecewiseQuadratic", "Rect",
    "SpikeRateEscape", "StraightThrough", "Triangle",
]  # fmt: skip


def quadratic(y: Tensor) -> Tensor:
    """The integral of max(0, 1 - |y|) from 0 to y."""
    inside = ops.clip(y, -1.0, 1.0)
    return inside - inside * ops.abs(inside) * 0.5


@with_fields
class Triangle(Surrogate):
    """Triangular surrogate gradient with a height and a half width.

    derivative: height * max(0, 1 - |x| / width)
    primitive: height * width * (y - y |y| / 2) + 1 / 2 with y = clip(x / width, -1, 1); it rises by height * width
    Source: Esser et al., "Convolutional networks for fast, energy-efficient neuromorphic computing", PNAS 2016; Bellec
    et al., NeurIPS 2018, as for `nn.ALIFNode`, with height 0.3 and the threshold as width.
    Elsewhere:
        Norse: method="triangle" with alpha = height and width 1.
        Spyx: triangular(k) with width = 1 / k and height 1.
        SpikingJelly: PiecewiseQuadratic(alpha) with height = alpha, width = 1 / alpha.
        snnTorch: triangular(threshold) has no counterpart: its derivative is threshold below 0, and -threshold above.
    Example:
        >>> print(grad(snncell.surrogate.Triangle())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [0.9 1.  0. ]
    """

    height: Constant = constant(1.0, "the derivative at the threshold")
    width: Constant = constant(
        1.0, "the distance from the threshold at which the derivative becomes 0, in units of the potential"
    )

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return self.gradients(x, dout, dout * ops.relu(1.0 - ops.abs(x / self.width)) * self.height)

    def primitive(self, x: Tensor) -> Tensor:
        return quadratic(x / self.width) * self.width * self.height + 0.5


@with_fields
class PiecewiseQuadratic(Surrogate):
    """Triangular surrogate gradient of area 1 with a sharpness.

    derivative: max(0, alpha - alpha^2 |x|);  primitive: y - y |y| / 2 + 1 / 2 with y = clip(alpha x, -1, 1)
    Source: Bohte, "Error-Backpropagation in Networks of Fractionally Predictive Spiking Neurons", ICANN 2011; Neftci,
    Mostafa and Zenke, "Surrogate Gradient Learning in Spiking Neural Networks", 2019.
    Elsewhere: SpikingJelly: PiecewiseQuadratic(alpha=1); snncell: Triangle(alpha, 1 / alpha).
    Example:
        >>> print(grad(snncell.surrogate.PiecewiseQuadratic())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [0.9 1.  0. ]
    """

    alpha: Constant = constant(1.0, "sharpness, the derivative at the threshold")

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return self.gradients(x, dout, dout * ops.relu(1.0 - ops.abs(x * self.alpha)) * self.alpha)

    def primitive(self, x: Tensor) -> Tensor:
        return quadratic(x * self.alpha) + 0.5


@with_fields
class Rect(Surrogate):
    """Rectangular surrogate gradient of area 1 with a height.

    primitive: clip(alpha x + 1 / 2, 0, 1);  derivative: alpha if |x| < 1 / (2 alpha), else 0
    Source: Wu et al., Frontiers 2018, as for `Erf`.
    Elsewhere: SpikingJelly: Rect(alpha=1); snncell: Boxcar(width=1 / alpha, height=alpha).
    Example:
        >>> print(grad(snncell.surrogate.Rect())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [1. 1. 0.]
    """

    alpha: Constant = constant(1.0, "the height")

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        inside = ops.less(ops.abs(x * self.alpha), 0.5)
        return self.gradients(x, dout, ops.where(inside, dout * self.alpha, 0.0))

    def primitive(self, x: Tensor) -> Tensor:
        return ops.clip(x * self.alpha, -0.5, 0.5) + 0.5


@with_fields
class Boxcar(Surrogate):
    """Rectangular surrogate gradient (boxcar) with a width and a height.

    derivative: height if |x| < width / 2, else 0
    primitive: height * y + 1 / 2 with y = clip(x, -width / 2, width / 2); it rises by width * height
    Source: Kaiser, Mostafa and Neftci, "Synaptic Plasticity Dynamics for Deep Continuous Local Learning (DECOLLE)",
    Frontiers 2020.
    Elsewhere: Spyx: boxcar(width=2, height=0.5); SpikingJelly: Rect(alpha) is Boxcar(1 / alpha, alpha).
    Example:
        >>> print(grad(snncell.surrogate.Boxcar())(Tensor([-0.1, 0.0, 1.5])).asnumpy().round(3))
        [0.5 0.5 0. ]
    """

    width: Constant = constant(2.0, "full width, in units of the potential")
    height: Constant = constant(0.5, "the derivative at the threshold")

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        inside = ops.less(ops.abs(x), self.width * 0.5)
        return self.gradients(x, dout, ops.where(inside, dout * self.height, 0.0))

    def primitive(self, x: Tensor) -> Tensor:
        half = self.width * 0.5
        return ops.clip(x, -half, half) * self.height + 0.5


@with_fields
class PiecewiseExp(Surrogate):
    """Two-sided exponential surrogate gradient, as in SLAYER.

    primitive: e^(alpha x) / 2 below the threshold, 1 - e^(-alpha x) / 2 above;  derivative: alpha / 2 e^(-alpha |x|)
    Source: Shrestha and Orchard, "SLAYER: Spike Layer Error Reassignment in Time", NeurIPS 2018.
    Elsewhere:
        SpikingJelly: PiecewiseExp(alpha=1).
        sinabs: SingleExponential(grad_width=0.5, grad_scale=1), its default, is Scaled(PiecewiseExp(a), 2 * grad_scale)
            with a = 1 / (grad_width * v_threshold).
        lava-dl: Scaled(PiecewiseExp(1 / t), scale_grad / 10) with t = tau_rho = 100 * tau_grad * v_threshold.
    Example:
        >>> print(grad(snncell.surrogate.PiecewiseExp())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [0.452 0.5   0.184]
    """

    alpha: Constant = constant(1.0, "sharpness")

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return self.gradients(x, dout, dout * ops.exp(-ops.abs(x * self.alpha)) * (self.alpha * 0.5))

    def primitive(self, x: Tensor) -> Tensor:
        y = x * self.alpha
        return (ops.exp(ops.minimum(y, 0.0)) - ops.exp(ops.minimum(-y, 0.0))) * 0.5 + 0.5


@with_fields
class SpikeRateEscape(Surrogate):
    """Two-sided exponential surrogate gradient around x = 1: snnTorch's spike_rate_escape.

    derivative: slope e^(-beta |x - 1|);  primitive: its integral from 0 to x, plus 1 / 2

    The derivative has its peak at a potential 1 above the threshold, not at the threshold. The primitive rises by
    2 slope / beta in total, not by 1. For stochastic firing use `StochasticSpike`.
    Source: Gerstner and Kistler, "Spiking Neuron Models", Cambridge 2002, section 5.3, as snnTorch implements it.
    Elsewhere: spike_rate_escape(beta=1, slope=25) in snnTorch.
    Example:
        >>> print(grad(snncell.surrogate.SpikeRateEscape())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [ 8.322  9.197 25.   ]
    """

    beta: Constant = constant(1.0, "sharpness")
    slope: Constant = constant(25.0, "the largest derivative")

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return self.gradients(x, dout, dout * ops.exp(-ops.abs(x - 1.0) * self.beta) * self.slope)

    def primitive(self, x: Tensor) -> Tensor:
        below, above = ops.minimum(x - 1.0, 0.0), ops.minimum(1.0 - x, 0.0)
        rise = ops.exp(below * self.beta) - ops.exp(above * self.beta) + 1.0
        at_zero = ops.exp(-self.beta) if isinstance(self.beta, Tensor) else math.exp(-self.beta)
        return (rise - at_zero) * (self.slope / self.beta) + 0.5


class StraightThrough(Surrogate):
    """Straight-through estimator: the gradient passes the spike function unchanged.

    primitive: x + 1 / 2;  derivative: 1
    Source: Bengio, Leonard and Courville, "Estimating or Propagating Gradients Through Stochastic Neurons for
    Conditional Computation", 2013.
    Elsewhere:
        snnTorch: straight_through_estimator(). SpikingJelly: DeterministicPass().
        Spyx: custom(bwd=jnp.ones_like). custom() is documented as straight-through, but multiplies the gradient by x.
    Example:
        >>> print(grad(snncell.surrogate.StraightThrough())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [1. 1. 1.]
    """

    def __init__(self) -> None:
        super().__init__()

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return (dout,)

    def primitive(self, x: Tensor) -> Tensor:
        return x + 0.5


@with_fields
class LeakyReLU(Surrogate):
    """Leaky ReLU surrogate gradient: one slope above the threshold and a smaller one below.

    primitive: k x + 1 / 2 above the threshold, leak x + 1 / 2 below;  derivative: k if x > 0, else leak
    Source: snnTorch's leaky spike operator; Eshraghian et al., Proc. IEEE 2023, as for `nn.LeakyNode`.
    Elsewhere:
        SpikingJelly: LeakyKReLU(leak=0, k=1). Its derivative at the threshold itself is also k.
        snnTorch: LSO(slope=0.1), where slope is leak; in 1.0.0 it raises a TypeError. heaviside() has leak=0.
    Example:
        >>> print(grad(snncell.surrogate.LeakyReLU())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [0.1 0.1 1. ]
    """

    leak: Constant = constant(0.1, "the derivative up to the threshold; 0 is that of a ReLU", NOT_NEGATIVE)
    k: Constant = constant(1.0, "the derivative above the threshold")

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return self.gradients(x, dout, ops.where(ops.greater(x, 0), dout * self.k, dout * self.leak))

    def primitive(self, x: Tensor) -> Tensor:
        return ops.maximum(x, 0.0) * self.k + ops.minimum(x, 0.0) * self.leak + 0.5


@with_fields
class PiecewiseLeakyReLU(Surrogate):
    """Rectangular surrogate gradient with a small constant derivative outside the rectangle.

    derivative: 1 / (2 w) if |x| < w, else c;  primitive: y / (2 w) + c (x - y) + 1 / 2 with y = clip(x, -w, w)
    Source: Wu et al., "Direct Training for Spiking Neural Networks: Faster, Larger, Better", AAAI 2019.
    Elsewhere: PiecewiseLeakyReLU(w=1, c=0.01) in SpikingJelly.
    Example:
        >>> print(grad(snncell.surrogate.PiecewiseLeakyReLU())(Tensor([-0.1, 0.0, 1.5])).asnumpy().round(3))
        [0.5  0.5  0.01]
    """

    w: Constant = constant(1.0, "half the width of the rectangle, in units of the potential")
    c: Constant = constant(0.01, "the derivative outside of the rectangle", NOT_NEGATIVE)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        inside = ops.less(ops.abs(x), self.w)
        return self.gradients(x, dout, ops.where(inside, dout * (0.5 / self.w), dout * self.c))

    def primitive(self, x: Tensor) -> Tensor:
        inside = ops.clip(x, -self.w, self.w)
        return inside * (0.5 / self.w) + (x - inside) * self.c + 0.5


@with_fields
class LogTailedReLU(Surrogate):
    """Surrogate gradient of a ReLU with a logarithmic tail from x = 1 on.

    primitive: 1 / 2, plus alpha x if x <= 0, x if 0 < x <= 1, and log(x) + 1 if x > 1
    derivative: alpha if x <= 0, 1 if 0 < x <= 1, and 1 / x if x > 1
    Source: Cai et al., "Deep Learning with Low Precision by Half-wave Gaussian Quantization", CVPR 2017.
    Elsewhere: LogTailedReLU(alpha=0) in SpikingJelly. Its primitive is smaller by 1 / 2.
    Example:
        >>> print(grad(snncell.surrogate.LogTailedReLU())(Tensor([-0.1, 0.5, 2.0])).asnumpy().round(3))
        [0.  1.  0.5]
    """

    alpha: Constant = constant(0.0, "the derivative up to the threshold", NOT_NEGATIVE)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        above = dout / ops.maximum(x, 1.0)
        return self.gradients(x, dout, ops.where(ops.greater(x, 0), above, dout * self.alpha))

    def primitive(self, x: Tensor) -> Tensor:
        tail = ops.log(ops.maximum(x, 1.0)) + 1.0
        above = ops.where(ops.greater(x, 1.0), tail, ops.maximum(x, 0.0))
        return above + ops.minimum(x, 0.0) * self.alpha + 0.5


@with_fields
class S2NN(Surrogate):
    """S2NN surrogate gradient: the derivative of a sigmoid below the threshold, and of a logarithm above.

    primitive: sigmoid(alpha x) if x < 0, else beta log(1 + x) + 1 / 2
    derivative: alpha s (1 - s) with s = sigmoid(alpha x) if x < 0, else beta / (1 + x)
    Source: Suetake et al., "S2NN: Time step reduction of spiking surrogate gradients for training energy efficient
    single-step neural networks", Neural Networks 2023.
    Elsewhere: S2NN(alpha=4, beta=1) in SpikingJelly.
    Example:
        >>> print(grad(snncell.surrogate.S2NN())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [0.961 1.    0.5  ]
    """

    alpha: Constant = constant(4.0, "sharpness below the threshold")
    beta: Constant = constant(1.0, "the derivative at the threshold")

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        s = ops.sigmoid(x * self.alpha)
        below, above = s * (1.0 - s) * self.alpha, 1.0 / (ops.maximum(x, 0.0) + 1.0) * self.beta
        return self.gradients(x, dout, dout * ops.where(ops.less(x, 0), below, above))

    def primitive(self, x: Tensor) -> Tensor:
        return ops.sigmoid(ops.minimum(x, 0.0) * self.alpha) + ops.log1p(ops.maximum(x, 0.0)) * self.beta
