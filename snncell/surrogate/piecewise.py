"""Surrogates with triangular and rectangular derivatives."""

from __future__ import annotations

from typing import Any

from snncell import ops
from snncell.surrogate.base import Constant, Surrogate
from snncell.tape.tensor import Tensor

__all__ = ["Boxcar", "PiecewiseQuadratic", "Rect", "Triangle"]


def quadratic(y: Tensor) -> Tensor:
    """The integral of max(0, 1 - |y|) from 0 to y."""
    inside = ops.clip(y, -1.0, 1.0)
    return inside - inside * ops.abs(inside) * 0.5


class Triangle(Surrogate):
    """The step function with a triangle as derivative, by its height and its half width.

    derivative: height max(0, 1 - |x| / width)
    primitive: height width (y - y |y| / 2) + 1 / 2 with y = x / width limited to [-1, 1]

    The primitive rises by height width, the area under the derivative.

    Args:
        height: the derivative at the threshold, positive.
        width: the distance from the threshold where it ends, in units of the potential, positive. Both are learned
            where they are Parameters.

    Source: Esser et al., "Convolutional networks for fast, energy-efficient neuromorphic computing", PNAS 2016; Bellec
    et al., "Long short-term memory and learning-to-learn in networks of spiking neurons", NeurIPS 2018, with height 0.3
    and the threshold as width.

    Elsewhere:
        Norse: method="triangle" with alpha = height and width 1.
        Spyx: triangular(k) with width = 1 / k and height 1.
        SpikingJelly: PiecewiseQuadratic(alpha) with height = alpha, width = 1 / alpha.
        snnTorch: triangular(threshold) is no triangle: threshold below, -threshold above. It has no counterpart here.

    Example:
        >>> print(grad(snncell.surrogate.Triangle())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [0.9 1.  0. ]
    """

    height: Constant
    width: Constant

    def __init__(self, height: Any = 1.0, width: Any = 1.0) -> None:
        super().__init__(height=height, width=width)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return self.gradients(x, dout, dout * ops.relu(1.0 - ops.abs(x / self.width)) * self.height)

    def primitive(self, x: Tensor) -> Tensor:
        return quadratic(x / self.width) * self.width * self.height + 0.5


class PiecewiseQuadratic(Surrogate):
    """The step function with a triangle of area 1 as derivative, by its sharpness.

    derivative: max(0, alpha - alpha^2 |x|)
    primitive: y - y |y| / 2 + 1 / 2 with y = alpha x limited to [-1, 1]

    Args:
        alpha: sharpness, the derivative at the threshold, positive; a Parameter is learned.

    Source: Bohte, "Error-Backpropagation in Networks of Fractionally Predictive Spiking Neurons", ICANN 2011; Neftci,
    Mostafa and Zenke, "Surrogate Gradient Learning in Spiking Neural Networks", 2019.

    Elsewhere:
        SpikingJelly: PiecewiseQuadratic(alpha=1).
        snncell: Triangle(alpha, 1 / alpha).

    Example:
        >>> print(grad(snncell.surrogate.PiecewiseQuadratic())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [0.9 1.  0. ]
    """

    alpha: Constant

    def __init__(self, alpha: Any = 1.0) -> None:
        super().__init__(alpha=alpha)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return self.gradients(x, dout, dout * ops.relu(1.0 - ops.abs(x * self.alpha)) * self.alpha)

    def primitive(self, x: Tensor) -> Tensor:
        return quadratic(x * self.alpha) + 0.5


class Rect(Surrogate):
    """The step function with a rectangle of area 1 as derivative, by its height.

    primitive: alpha x + 1 / 2 limited to [0, 1];  derivative: alpha where |x| < 1 / (2 alpha), else 0

    Args:
        alpha: the height, positive; a Parameter is learned.

    Source: Wu et al., "Spatio-Temporal Backpropagation for Training High-Performance Spiking Neural Networks",
    Frontiers 2018.

    Elsewhere:
        SpikingJelly: Rect(alpha=1).
        snncell: Boxcar(width=1 / alpha, height=alpha).

    Example:
        >>> print(grad(snncell.surrogate.Rect())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [1. 1. 0.]
    """

    alpha: Constant

    def __init__(self, alpha: Any = 1.0) -> None:
        super().__init__(alpha=alpha)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        inside = ops.less(ops.abs(x * self.alpha), 0.5)
        return self.gradients(x, dout, ops.where(inside, dout * self.alpha, 0.0))

    def primitive(self, x: Tensor) -> Tensor:
        return ops.clip(x * self.alpha, -0.5, 0.5) + 0.5


class Boxcar(Surrogate):
    """The step function with a rectangle as derivative, by its width and its height.

    derivative: height where |x| < width / 2, else 0
    primitive: height y + 1 / 2 with y = x limited to [-width / 2, width / 2]

    The primitive rises by width height, the area under the derivative.

    Args:
        width: from one end to the other, in units of the potential, positive.
        height: the derivative at the threshold, positive. Both are learned where they are Parameters.

    Source: Kaiser, Mostafa and Neftci, "Synaptic Plasticity Dynamics for Deep Continuous Local Learning (DECOLLE)",
    Frontiers 2020.

    Elsewhere:
        Spyx: boxcar(width=2, height=0.5).
        SpikingJelly: Rect(alpha) is Boxcar(1 / alpha, alpha).

    Example:
        >>> print(grad(snncell.surrogate.Boxcar())(Tensor([-0.1, 0.0, 1.5])).asnumpy().round(3))
        [0.5 0.5 0. ]
    """

    width: Constant
    height: Constant

    def __init__(self, width: Any = 2.0, height: Any = 0.5) -> None:
        super().__init__(width=width, height=height)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        inside = ops.less(ops.abs(x), self.width * 0.5)
        return self.gradients(x, dout, ops.where(inside, dout * self.height, 0.0))

    def primitive(self, x: Tensor) -> Tensor:
        half = self.width * 0.5
        return ops.clip(x, -half, half) * self.height + 0.5
