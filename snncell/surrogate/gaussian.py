"""Surrogates with Gaussian derivatives, and with differences of Gaussians."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from snncell import ops
from snncell.surrogate.base import NOT_NEGATIVE, Constant, Surrogate
from snncell.tape.tensor import Tensor

__all__ = ["Erf", "Gaussian", "MultiGaussian"]


def density(x: Tensor, deviation: Constant) -> Tensor:
    """The normal density around 0."""
    bell: Tensor = ops.exp(ops.square(x / deviation) * -0.5)
    return bell / (deviation * math.sqrt(2 * math.pi))


def half_error(x: Tensor, deviation: Constant) -> Tensor:
    """The integral of the normal density around 0, from 0 to x."""
    return ops.erf(x / (deviation * math.sqrt(2))) * 0.5


class Erf(Surrogate):
    """The step function with the derivative of an error function, by its sharpness.

    primitive: (erf(alpha x) + 1) / 2;  derivative: alpha / sqrt(pi) e^(-(alpha x)^2)

    Args:
        alpha: sharpness, positive; a Parameter is learned.

    Source: Esser et al., "Backpropagation for energy-efficient neuromorphic computing", NeurIPS 2015; Wu et al.,
    "Spatio-Temporal Backpropagation for Training High-Performance Spiking Neural Networks", Frontiers 2018.

    Elsewhere:
        SpikingJelly: Erf(alpha=2).
        Norse: method="heavi_erfc" with k is Scaled(Erf(k), 2 / k): its derivative lacks the factor k / 2.
        snncell: Gaussian(sigma) is Erf(1 / (sigma sqrt(2))).

    Example:
        >>> print(grad(snncell.surrogate.Erf())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [1.084 1.128 0.021]
    """

    alpha: Constant

    def __init__(self, alpha: Any = 2.0) -> None:
        super().__init__(alpha=alpha)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        bell = ops.exp(-ops.square(x * self.alpha))
        return self.gradients(x, dout, dout * bell * (self.alpha / math.sqrt(math.pi)))

    def primitive(self, x: Tensor) -> Tensor:
        return ops.erf(x * self.alpha) * 0.5 + 0.5


class Gaussian(Surrogate):
    """The step function with a normal density as derivative, by its standard deviation.

    primitive: (erf(x / (sigma sqrt(2))) + 1) / 2;  derivative: N(x; 0, sigma^2), at most 1 / (sigma sqrt(2 pi))

    Args:
        sigma: standard deviation, in units of the potential, positive; a Parameter is learned.

    Source: Yin, Corradi and Bohte, "Accurate and efficient time-domain classification with adaptive spiking recurrent
    neural networks", Nature Machine Intelligence 2021.

    Elsewhere:
        sinabs: Gaussian(mu=0, sigma=0.5).
        SpikingJelly: Erf(alpha) with alpha = 1 / (sigma sqrt(2)).

    Example:
        >>> print(grad(snncell.surrogate.Gaussian())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [0.782 0.798 0.108]
    """

    sigma: Constant

    def __init__(self, sigma: Any = 0.5) -> None:
        super().__init__(sigma=sigma)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return self.gradients(x, dout, dout * density(x, self.sigma))

    def primitive(self, x: Tensor) -> Tensor:
        return half_error(x, self.sigma) + 0.5


class MultiGaussian(Surrogate):
    """The step function with a normal density as derivative from which two wider ones at its sides are taken.

    derivative: (1 + h) N(x; 0, sigma^2) - h N(x; sigma, (s sigma)^2) - h N(x; -sigma, (s sigma)^2)
    primitive: the same sum of (erf((x - mean) / (deviation sqrt(2)))) / 2, plus 1 / 2

    The derivative is negative far from the threshold. The primitive rises by 1 - h, not by 1, for that is the area
    under the published derivative.

    Args:
        sigma: standard deviation of the one in the middle, in units of the potential, positive.
        h: size of those at the sides, not negative.
        s: how many times wider those at the sides are, positive. All three are learned where they are Parameters.

    Source: Yin, Corradi and Bohte, "Accurate and efficient time-domain classification with adaptive spiking recurrent
    neural networks", Nature Machine Intelligence 2021. Its code multiplies by gamma, Scaled(MultiGaussian(), 0.5).

    Elsewhere:
        sinabs: MultiGaussian(mu=0, sigma=0.5, h=0.15, s=6); for its grad_scale see Scaled.

    Example:
        >>> print(grad(snncell.surrogate.MultiGaussian())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [0.86  0.878 0.087]
    """

    sigma: Constant
    h: Constant
    s: Constant
    ranges: ClassVar = {"h": NOT_NEGATIVE}

    def __init__(self, sigma: Any = 0.5, h: Any = 0.15, s: Any = 6.0) -> None:
        super().__init__(sigma=sigma, h=h, s=s)

    def _sum(self, x: Tensor, bell: Any) -> Tensor:
        wide = self.sigma * self.s
        sides = bell(x - self.sigma, wide) + bell(x + self.sigma, wide)
        total: Tensor = bell(x, self.sigma) * (self.h + 1.0) - sides * self.h
        return total

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return self.gradients(x, dout, dout * self._sum(x, density))

    def primitive(self, x: Tensor) -> Tensor:
        return self._sum(x, half_error) + 0.5
