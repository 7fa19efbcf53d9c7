"""Smooth surrogate gradients: sigmoids, bell curves, long and exponential tails, escape rate and stochastic spikes.

`construct` is the step function of the forward pass, and `bprop` the surrogate gradient of the backward pass.
`primitive` is an antiderivative of the surrogate gradient. `testing.check_bprop` and `surrogate.smooth()` use it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from snncell import ops
from snncell.cell.cell import Cell
from snncell.cell.fields import with_fields
from snncell.cell.ranges import NOT_NEGATIVE, Range
from snncell.dtype import float32, float64
from snncell.surrogate.base import Constant, Surrogate, Wrapper, constant
from snncell.tape.tensor import Tensor

__all__ = [
    "ATan", "Algebraic", "Erf", "EscapeRate", "FastSigmoid", "Gaussian", "MultiGaussian", "NonzeroSignLogAbs",
    "QPseudoSpike", "Sigmoid", "SoftSign", "SparseFastSigmoid", "StochasticSpike", "SuperSpike", "Tanh",
    "relusigmoid",
]  # fmt: skip


class relusigmoid(Cell):  # noqa: N801 (the name it has in MindSpore's guide)
    """Sigmoid surrogate gradient with sharpness 5, from MindSpore's guide to custom gradients.

    construct: 1 if x > 0, else 0, in float32 (float64 for float64);  primitive: s = sigmoid(5 x);  bprop: 5 s (1 - s)
    Source: MindSpore 1.9 tutorials, "Customizing Reverse Propagation Function of Cell".
    Elsewhere: Sigmoid(alpha=5) of snncell and SpikingJelly.
    Example:
        >>> print(grad(snncell.surrogate.relusigmoid())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [1.175 1.25  0.033]
    """

    def __init__(self) -> None:
        super().__init__()

    def construct(self, x: Tensor) -> Tensor:
        spike = ops.greater(x, 0)
        return spike.astype(float64 if x.dtype is float64 else float32)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor]:
        sgax = ops.sigmoid(x * 5.0)
        return (dout * (1 - sgax) * sgax * 5.0,)

    def primitive(self, x: Tensor) -> Tensor:
        return ops.sigmoid(x * 5.0)


@with_fields
class Sigmoid(Surrogate):
    """Sigmoid surrogate gradient: the derivative of the logistic function.

    primitive: sigmoid(alpha x);  derivative: alpha s (1 - s) with s = sigmoid(alpha x), at most alpha / 4
    Source: Zenke and Vogels, "The remarkable robustness of surrogate gradient learning", Neural Computation 2021.
    Elsewhere:
        SpikingJelly: Sigmoid(alpha=4), its default.
        snnTorch: sigmoid(slope=25), where slope is alpha; in 1.0.0 the gradient is NaN instead of 0 if slope x < -88.
    Example:
        >>> print(grad(snncell.surrogate.Sigmoid())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [0.961 1.    0.071]
    """

    alpha: Constant = constant(4.0, "sharpness")

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        s = ops.sigmoid(x * self.alpha)
        return self.gradients(x, dout, dout * s * (1.0 - s) * self.alpha)

    def primitive(self, x: Tensor) -> Tensor:
        return ops.sigmoid(x * self.alpha)


@with_fields
class ATan(Surrogate):
    """Arctangent surrogate gradient, a common default.

    primitive: atan(pi / 2 alpha x) / pi + 1 / 2;  derivative: (alpha / 2) / (1 + (pi / 2 alpha x)^2)
    Source: Fang et al., ICCV 2021, as for `nn.ParametricLIFNode`.
    Elsewhere:
        SpikingJelly: ATan(alpha=2).
        snnTorch: atan(alpha=2), its default; its documentation has an extra factor of 1 / pi that its code lacks.
        Spyx: arctan(k=2) is Scaled(ATan(2 k), 1 / (pi k)), at most 1 / pi.
    Example:
        >>> print(grad(snncell.surrogate.ATan())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [0.91  1.    0.092]
    """

    alpha: Constant = constant(2.0, "sharpness")

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return self.gradients(x, dout, dout * (self.alpha / 2) / (ops.square(x * (math.pi / 2 * self.alpha)) + 1.0))

    def primitive(self, x: Tensor) -> Tensor:
        return ops.atan(x * (math.pi / 2 * self.alpha)) / math.pi + 0.5


@with_fields
class Tanh(Surrogate):
    """Tanh surrogate gradient: the squared hyperbolic secant, which is 1 at the threshold for any sharpness.

    primitive: tanh(alpha x) / alpha + 1 / 2, which rises by 2 / alpha in total, not by 1
    derivative: 1 - tanh(alpha x)^2
    Source: Norse; Pehle and Pedersen, "Norse: a deep learning library for spiking neural networks", 2021.
    Elsewhere:
        Norse: method="tanh", with the same alpha.
        Spyx: tanh(k=1), where k is alpha, written as 4 / (e^(-k x) + e^(k x))^2.
    Example:
        >>> print(grad(snncell.surrogate.Tanh())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [0.99 1.   0.42]
    """

    alpha: Constant = constant(1.0, "sharpness")

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return self.gradients(x, dout, dout * (1.0 - ops.square(ops.tanh(x * self.alpha))))

    def primitive(self, x: Tensor) -> Tensor:
        return ops.tanh(x * self.alpha) / self.alpha + 0.5


def density(x: Tensor, deviation: Constant) -> Tensor:
    """The normal density with mean 0."""
    bell: Tensor = ops.exp(ops.square(x / deviation) * -0.5)
    return bell / (deviation * math.sqrt(2 * math.pi))


def half_error(x: Tensor, deviation: Constant) -> Tensor:
    """The integral of the normal density with mean 0, from 0 to x."""
    return ops.erf(x / (deviation * math.sqrt(2))) * 0.5


@with_fields
class Erf(Surrogate):
    """Error function surrogate gradient: a Gaussian with a sharpness.

    primitive: (erf(alpha x) + 1) / 2;  derivative: alpha / sqrt(pi) e^(-(alpha x)^2)
    Source: Esser et al., "Backpropagation for energy-efficient neuromorphic computing", NeurIPS 2015; Wu et al.,
    "Spatio-Temporal Backpropagation for Training High-Performance Spiking Neural Networks", Frontiers 2018.
    Elsewhere:
        SpikingJelly: Erf(alpha=2).
        Norse: method="heavi_erfc" with sharpness k is Scaled(Erf(k), 2 / k), because it lacks the factor k / 2.
        snncell: Gaussian(sigma) is Erf(1 / (sigma sqrt(2))).
    Example:
        >>> print(grad(snncell.surrogate.Erf())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [1.084 1.128 0.021]
    """

    alpha: Constant = constant(2.0, "sharpness")

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        bell = ops.exp(-ops.square(x * self.alpha))
        return self.gradients(x, dout, dout * bell * (self.alpha / math.sqrt(math.pi)))

    def primitive(self, x: Tensor) -> Tensor:
        return ops.erf(x * self.alpha) * 0.5 + 0.5


@with_fields
class Gaussian(Surrogate):
    """Gaussian surrogate gradient with a standard deviation.

    primitive: (erf(x / (sigma sqrt(2))) + 1) / 2;  derivative: N(x; 0, sigma^2), at most 1 / (sigma sqrt(2 pi))
    Source: Yin, Corradi and Bohte, "Accurate and efficient time-domain classification with adaptive spiking recurrent
    neural networks", Nature Machine Intelligence 2021.
    Elsewhere: sinabs: Gaussian(mu=0, sigma=0.5); SpikingJelly: Erf(alpha) with alpha = 1 / (sigma sqrt(2)).
    Example:
        >>> print(grad(snncell.surrogate.Gaussian())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [0.782 0.798 0.108]
    """

    sigma: Constant = constant(0.5, "standard deviation, in units of the potential")

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return self.gradients(x, dout, dout * density(x, self.sigma))

    def primitive(self, x: Tensor) -> Tensor:
        return half_error(x, self.sigma) + 0.5


@with_fields
class MultiGaussian(Surrogate):
    """Multi-Gaussian surrogate gradient: a normal density minus two wider ones at its sides.

    derivative: (1 + h) N(x; 0, sigma^2) - h N(x; sigma, (s sigma)^2) - h N(x; -sigma, (s sigma)^2)
    primitive: the same sum of (erf((x - mean) / (deviation sqrt(2)))) / 2, plus 1 / 2

    The derivative is negative far from the threshold, and the primitive rises by 1 - h in total, not by 1.
    Source: as for `Gaussian`. That paper's code multiplies the derivative by 0.5, as Scaled(MultiGaussian(), 0.5) does.
    Elsewhere: MultiGaussian(mu=0, sigma=0.5, h=0.15, s=6) in sinabs; for its grad_scale use `Scaled`.
    Example:
        >>> print(grad(snncell.surrogate.MultiGaussian())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [0.86  0.878 0.087]
    """

    sigma: Constant = constant(0.5, "standard deviation of the central density, in units of the potential")
    h: Constant = constant(0.15, "area of each density at the sides", NOT_NEGATIVE)
    s: Constant = constant(6.0, "width of the densities at the sides, as a multiple of sigma")

    def _sum(self, x: Tensor, bell: Callable[[Tensor, Constant], Tensor]) -> Tensor:
        wide = self.sigma * self.s
        sides = bell(x - self.sigma, wide) + bell(x + self.sigma, wide)
        return bell(x, self.sigma) * (self.h + 1.0) - sides * self.h

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return self.gradients(x, dout, dout * self._sum(x, density))

    def primitive(self, x: Tensor) -> Tensor:
        return self._sum(x, half_error) + 0.5


@with_fields
class FastSigmoid(Surrogate):
    """Fast sigmoid surrogate gradient, as in SuperSpike: 1 at the threshold for any slope.

    primitive: x / (1 + slope |x|) + 1 / 2, which rises by 2 / slope in total, not by 1
    derivative: 1 / (1 + slope |x|)^2
    Source: Zenke and Ganguli, "SuperSpike: Supervised Learning in Multilayer Spiking Neural Networks", Neural
    Computation 2018, where the slope is beta.
    Elsewhere:
        snnTorch: fast_sigmoid(slope=25).
        Spyx: superspike(k=25), where k is the slope; SNNAX: superspike with 10.
        Norse: method="super" is FastSigmoid(1), because it ignores alpha.
        SpikingJelly: SoftSign(alpha) is Scaled(FastSigmoid(alpha), alpha / 2).
    Example:
        >>> print(grad(snncell.surrogate.FastSigmoid())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [0.082 1.    0.001]
    """

    slope: Constant = constant(25.0, "sharpness")

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return self.gradients(x, dout, dout / ops.square(ops.abs(x) * self.slope + 1.0))

    def primitive(self, x: Tensor) -> Tensor:
        return x / (ops.abs(x) * self.slope + 1.0) + 0.5


@with_fields
class SparseFastSigmoid(Surrogate):
    """Sparse fast sigmoid: `FastSigmoid` cut off, so that neurons far from their threshold get no gradient.

    primitive: y / (1 + slope |y|) + 1 / 2, with y = clip(x, -bound, bound)
    derivative: 1 / (1 + slope |x|)^2 if |x| < bound, else 0
    Source: Perez-Nieves and Goodman, "Sparse Spiking Gradient Descent", NeurIPS 2021.
    Elsewhere: SFS(slope=25, B=1) in snnTorch, whose derivative is 0 near the threshold: it is kept only for x > B.
    Example:
        >>> print(grad(snncell.surrogate.SparseFastSigmoid())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [0.082 1.    0.   ]
    """

    slope: Constant = constant(25.0, "sharpness")
    bound: Constant = constant(1.0, "the distance from the threshold at which gradients end, in units of the potential")

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        distance = ops.abs(x)
        near = ops.less(distance, self.bound)
        return self.gradients(x, dout, ops.where(near, dout / ops.square(distance * self.slope + 1.0), 0.0))

    def primitive(self, x: Tensor) -> Tensor:
        inside = ops.clip(x, -self.bound, self.bound)
        return inside / (ops.abs(inside) * self.slope + 1.0) + 0.5


@with_fields
class SuperSpike(Surrogate):
    """SuperSpike surrogate gradient: the sharpness is fixed, and you choose the height.

    primitive: alpha x / (1 + |x|) + 1 / 2, which rises by 2 alpha in total, not by 1
    derivative: alpha / (1 + |x|)^2
    Source: as for `FastSigmoid`.
    Elsewhere: frameworks use the name SuperSpike for three different functions.
        SpikingJelly: SuperSpike(alpha=1), where alpha is the height.
        Norse: method="super", its default, ignores alpha: SuperSpike(1).
        Spyx: superspike(k=25), where k is a sharpness: FastSigmoid(25).
    Example:
        >>> print(grad(snncell.surrogate.SuperSpike())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [0.826 1.    0.25 ]
    """

    alpha: Constant = constant(1.0, "the derivative at the threshold, not the paper's sharpness: see FastSigmoid")

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return self.gradients(x, dout, dout * self.alpha / ops.square(ops.abs(x) + 1.0))

    def primitive(self, x: Tensor) -> Tensor:
        return x * self.alpha / (ops.abs(x) + 1.0) + 0.5


@with_fields
class SoftSign(Surrogate):
    """Softsign surrogate gradient.

    primitive: (alpha x / (1 + |alpha x|) + 1) / 2;  derivative: (alpha / 2) / (1 + |alpha x|)^2
    Source: SpikingJelly; Fang et al., Science Advances 2023.
    Elsewhere:
        SpikingJelly: SoftSign(alpha=2), written as 1 / (2 alpha (1 / alpha + |x|)^2).
        snnTorch: fast_sigmoid(slope) is this function with alpha = slope, but snnTorch omits the factor slope / 2.
    Example:
        >>> print(grad(snncell.surrogate.SoftSign())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [0.694 1.    0.111]
    """

    alpha: Constant = constant(2.0, "sharpness")

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return self.gradients(x, dout, dout * (self.alpha * 0.5) / ops.square(ops.abs(x * self.alpha) + 1.0))

    def primitive(self, x: Tensor) -> Tensor:
        y = x * self.alpha
        return y / (ops.abs(y) + 1.0) * 0.5 + 0.5


@with_fields
class NonzeroSignLogAbs(Surrogate):
    """Surrogate gradient that decays as 1 / |x|, so that even neurons far from the threshold get a gradient.

    primitive: sign(x) log(1 + alpha |x|) + 1 / 2, without bounds;  derivative: 1 / (1 / alpha + |x|), at most alpha
    Source: SpikingJelly; Fang et al., Science Advances 2023.
    Elsewhere: NonzeroSignLogAbs(alpha=1) in SpikingJelly. Its primitive is smaller by 1 / 2.
    Example:
        >>> print(grad(snncell.surrogate.NonzeroSignLogAbs())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [0.909 1.    0.5  ]
    """

    alpha: Constant = constant(1.0, "sharpness")

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return self.gradients(x, dout, dout / (ops.abs(x) + 1.0 / self.alpha))

    def primitive(self, x: Tensor) -> Tensor:
        above, below = ops.maximum(x, 0.0), ops.maximum(-x, 0.0)
        return ops.log1p(above * self.alpha) - ops.log1p(below * self.alpha) + 0.5


@with_fields
class Algebraic(Surrogate):
    """Algebraic sigmoid surrogate gradient: 1 at the threshold for any width.

    primitive: x / sqrt(1 + (x / alpha)^2) + 1 / 2, which rises by 2 alpha in total, not by 1
    derivative: (1 + (x / alpha)^2)^(-3/2)
    Source: Norse; Pehle and Pedersen, "Norse: a deep learning library for spiking neural networks", 2021.
    Elsewhere: method="circ" in Norse, with the same alpha.
    Example:
        >>> print(grad(snncell.surrogate.Algebraic())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [0.985 1.    0.354]
    """

    alpha: Constant = constant(1.0, "width, in units of the potential")

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        rise = ops.rsqrt(ops.square(x / self.alpha) + 1.0)
        return self.gradients(x, dout, dout * rise * rise * rise)

    def primitive(self, x: Tensor) -> Tensor:
        return x * ops.rsqrt(ops.square(x / self.alpha) + 1.0) + 0.5


@with_fields
class QPseudoSpike(Surrogate):
    """q-PseudoSpike surrogate gradient: a tail that decays with a chosen power.

    derivative: (1 + 2 |x| / (alpha - 1))^(-alpha)
    primitive: y if x < 0, and 1 - y if x >= 0, with y = (1 + 2 |x| / (alpha - 1))^(1 - alpha) / 2
    Source: Herranz-Celotti and Rouat, "Surrogate Gradients Design", 2022, where alpha is q.
    Elsewhere: QPseudoSpike(alpha=2) in SpikingJelly.
    Example:
        >>> print(grad(snncell.surrogate.QPseudoSpike())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [0.694 1.    0.111]
    """

    alpha: Constant = constant(2.0, "the power of the tail, above 1", Range(1.0, text="is above 1 and finite"))

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return self.gradients(x, dout, dout * self._tail(ops.abs(x), -self.alpha))

    def primitive(self, x: Tensor) -> Tensor:
        power = 1.0 - self.alpha
        below, above = self._tail(ops.maximum(-x, 0.0), power), self._tail(ops.maximum(x, 0.0), power)
        return (below - above) * 0.5 + 0.5

    def _tail(self, distance: Tensor, power: Any) -> Tensor:
        return ops.pow(distance * (2.0 / (self.alpha - 1.0)) + 1.0, power)


@with_fields
class EscapeRate(Surrogate):
    """Escape-rate surrogate gradient: the derivative of the probability to fire within one time step.

    primitive: p = 1 - e^(-r) with r = rate e^(x / width);  derivative: r e^(-r) / width

    The primitive is the probability of a spike in a time step, if spikes come at random, r per step on average. At the
    threshold it is 1 - e^(-rate), not 1 / 2. To fire with this probability, use `StochasticSpike(EscapeRate())`.
    Source: Gerstner et al., "Neuronal Dynamics", section 9.1; Jolivet et al., "Predicting spike timing of neocortical
    pyramidal neurons by simple threshold models", 2006.
    Example:
        >>> print(grad(snncell.surrogate.EscapeRate())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [0.722 0.736 0.009]
    """

    rate: Constant = constant(1.0, "the mean number of spikes per time step at the threshold")
    width: Constant = constant(0.5, "the width of the threshold, in units of the potential")

    def _logarithm(self, x: Tensor) -> Tensor:
        # Clip, because beyond these values the probability is 0 or 1 and the derivative 0.
        return ops.clip(x / self.width, -80.0, 80.0)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        y = self._logarithm(x)
        slope = ops.exp(y - ops.exp(y) * self.rate) * (self.rate / self.width)
        return self.gradients(x, dout, dout * slope)

    def primitive(self, x: Tensor) -> Tensor:
        return -ops.expm1(-ops.exp(self._logarithm(x)) * self.rate)


class StochasticSpike(Wrapper):
    """Stochastic firing (escape noise): fire with the probability given by another spike function's primitive.

    construct: 1 with probability p(x), else 0;  primitive: p(x);  derivative: p'(x), the derivative of E[spike]

    p is the primitive of `surrogate_function`, clipped to [0, 1]. For example, p is sigmoid(alpha x) for
    Sigmoid(alpha), the normal distribution function for Gaussian(sigma), and 1 - e^(-r) for EscapeRate(rate, width).

    Each call and each time step draws new random numbers. After `set_seed` they are the same eagerly, under jit and in
    nn.MultiStep, on any device. In nn.MultiStep the forward pass runs step by step, because drawing is not elementwise;
    the backward pass is one kernel.

    Args:
        surrogate_function: the escape function, a spike function whose primitive rises from 0 to 1. Default: Sigmoid().
    Inputs, Returns: x, the potential minus the threshold; the spikes, 0 or 1, in the shape and dtype of x.
    Source: Gerstner et al., "Neuronal Dynamics", section 9.1; for the derivative as for `StraightThrough`.
    Elsewhere:
        Norse: method="logistic" with its k fires like StochasticSpike(Sigmoid(2 k)), but has no gradient.
        SpikingJelly: PoissonPass() fires with probability x: StochasticSpike(StraightThrough()) of x - 1 / 2.
    Example:
        >>> snncell.set_seed(0)
        >>> fires = snncell.surrogate.StochasticSpike(snncell.surrogate.Sigmoid(alpha=4.0))
        >>> print(0.85 < fires(ops.ones(10000) * 0.5).mean().item() < 0.91)  # sigmoid(2) is 0.88
        True
    """

    def __init__(self, surrogate_function: Any = None) -> None:
        super().__init__(Sigmoid() if surrogate_function is None else surrogate_function)

    def construct(self, x: Tensor) -> Tensor:
        return ops.bernoulli(self.primitive(x)).astype(x.dtype)
