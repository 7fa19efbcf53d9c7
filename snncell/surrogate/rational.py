"""Surrogates with rational derivatives, which fall off as powers of the distance from the threshold."""

from __future__ import annotations

from typing import Any, ClassVar

from snncell import ops
from snncell.cell.ranges import Range
from snncell.surrogate.base import Constant, Surrogate
from snncell.tape.tensor import Tensor

__all__ = [
    "Algebraic", "FastSigmoid", "NonzeroSignLogAbs", "QPseudoSpike", "SoftSign", "SparseFastSigmoid", "SuperSpike",
]  # fmt: skip


class FastSigmoid(Surrogate):
    """The step function with the derivative of a fast sigmoid: 1 at the threshold, whatever the slope.

    primitive: x / (1 + slope |x|) + 1 / 2;  derivative: 1 / (1 + slope |x|)^2

    The primitive rises by 2 / slope, not by 1, for that is the area under the published derivative.

    Args:
        slope: sharpness, positive; a Parameter is learned.

    Source: Zenke and Ganguli, "SuperSpike: Supervised Learning in Multilayer Spiking Neural Networks", Neural
    Computation 2018, where the slope is beta.

    Elsewhere:
        snnTorch: fast_sigmoid(slope=25).
        Spyx: superspike(k=25), k being the slope; SNNAX: superspike with 10.
        Norse: method="super" is FastSigmoid(1), whatever its alpha.
        SpikingJelly: SoftSign(alpha) is Scaled(FastSigmoid(alpha), alpha / 2).

    Example:
        >>> print(grad(snncell.surrogate.FastSigmoid())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [0.082 1.    0.001]
    """

    slope: Constant

    def __init__(self, slope: Any = 25.0) -> None:
        super().__init__(slope=slope)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return self.gradients(x, dout, dout / ops.square(ops.abs(x) * self.slope + 1.0))

    def primitive(self, x: Tensor) -> Tensor:
        return x / (ops.abs(x) * self.slope + 1.0) + 0.5


class SparseFastSigmoid(Surrogate):
    """FastSigmoid, but 0 from a distance on: neurons far from their threshold get no gradient.

    primitive: y / (1 + slope |y|) + 1 / 2 with y = x limited to [-bound, bound]
    derivative: 1 / (1 + slope |x|)^2 where |x| < bound, else 0

    Args:
        slope: sharpness, positive.
        bound: the distance, in units of the potential, positive. Both are learned where they are Parameters.

    Source: Perez-Nieves and Goodman, "Sparse Spiking Gradient Descent", NeurIPS 2021.

    Elsewhere:
        snnTorch: SFS(slope=25, B=1) keeps the derivative where x > B instead, which is 0 near the threshold.

    Example:
        >>> print(grad(snncell.surrogate.SparseFastSigmoid())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [0.082 1.    0.   ]
    """

    slope: Constant
    bound: Constant

    def __init__(self, slope: Any = 25.0, bound: Any = 1.0) -> None:
        super().__init__(slope=slope, bound=bound)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        distance = ops.abs(x)
        near = ops.less(distance, self.bound)
        return self.gradients(x, dout, ops.where(near, dout / ops.square(distance * self.slope + 1.0), 0.0))

    def primitive(self, x: Tensor) -> Tensor:
        inside = ops.clip(x, -self.bound, self.bound)
        return inside / (ops.abs(inside) * self.slope + 1.0) + 0.5


class SuperSpike(Surrogate):
    """The step function with the derivative 1 / (1 + |x|)^2 of SuperSpike, times a height.

    primitive: alpha x / (1 + |x|) + 1 / 2;  derivative: alpha / (1 + |x|)^2

    The primitive rises by 2 alpha, not by 1, for that is the area under the published derivative.

    Args:
        alpha: the derivative at the threshold, positive; a Parameter is learned. It is no sharpness: for that of the
            paper, beta, see FastSigmoid.

    Source: Zenke and Ganguli, "SuperSpike: Supervised Learning in Multilayer Spiking Neural Networks", Neural
    Computation 2018.

    Elsewhere: one name, three functions.
        SpikingJelly: SuperSpike(alpha=1), alpha being the height.
        Norse: method="super", its default, ignores alpha: SuperSpike(1).
        Spyx: superspike(k=25), k being a sharpness: FastSigmoid(25).

    Example:
        >>> print(grad(snncell.surrogate.SuperSpike())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [0.826 1.    0.25 ]
    """

    alpha: Constant

    def __init__(self, alpha: Any = 1.0) -> None:
        super().__init__(alpha=alpha)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return self.gradients(x, dout, dout * self.alpha / ops.square(ops.abs(x) + 1.0))

    def primitive(self, x: Tensor) -> Tensor:
        return x * self.alpha / (ops.abs(x) + 1.0) + 0.5


class SoftSign(Surrogate):
    """The step function with the derivative of softsign.

    primitive: (alpha x / (1 + |alpha x|) + 1) / 2;  derivative: (alpha / 2) / (1 + |alpha x|)^2

    Args:
        alpha: sharpness, positive; a Parameter is learned.

    Source: SpikingJelly; Fang et al., Science Advances 2023.

    Elsewhere:
        SpikingJelly: SoftSign(alpha=2), written as 1 / (2 alpha (1 / alpha + |x|)^2).
        snnTorch: fast_sigmoid(slope) without the factor slope / 2.

    Example:
        >>> print(grad(snncell.surrogate.SoftSign())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [0.694 1.    0.111]
    """

    alpha: Constant

    def __init__(self, alpha: Any = 2.0) -> None:
        super().__init__(alpha=alpha)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return self.gradients(x, dout, dout * (self.alpha * 0.5) / ops.square(ops.abs(x * self.alpha) + 1.0))

    def primitive(self, x: Tensor) -> Tensor:
        y = x * self.alpha
        return y / (ops.abs(y) + 1.0) * 0.5 + 0.5


class NonzeroSignLogAbs(Surrogate):
    """The step function with a derivative that falls off as 1 / |x|, so that no neuron is out of reach.

    primitive: sign(x) log(1 + alpha |x|) + 1 / 2;  derivative: 1 / (1 / alpha + |x|), at most alpha

    The primitive has no bounds: the area under the published derivative is infinite.

    Args:
        alpha: sharpness, positive; a Parameter is learned.

    Source: SpikingJelly; Fang et al., Science Advances 2023.

    Elsewhere:
        SpikingJelly: NonzeroSignLogAbs(alpha=1), its primitive being less by 1 / 2.

    Example:
        >>> print(grad(snncell.surrogate.NonzeroSignLogAbs())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [0.909 1.    0.5  ]
    """

    alpha: Constant

    def __init__(self, alpha: Any = 1.0) -> None:
        super().__init__(alpha=alpha)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return self.gradients(x, dout, dout / (ops.abs(x) + 1.0 / self.alpha))

    def primitive(self, x: Tensor) -> Tensor:
        above, below = ops.maximum(x, 0.0), ops.maximum(-x, 0.0)
        return ops.log1p(above * self.alpha) - ops.log1p(below * self.alpha) + 0.5


class Algebraic(Surrogate):
    """The step function with the derivative of an algebraic sigmoid: 1 at the threshold, whatever the width.

    primitive: x / sqrt(1 + (x / alpha)^2) + 1 / 2;  derivative: (1 + (x / alpha)^2)^(-3/2)

    The primitive rises by 2 alpha, not by 1, for that is the area under the published derivative.

    Args:
        alpha: width, in units of the potential, positive; a Parameter is learned.

    Source: Norse; Pehle and Pedersen, "Norse: a deep learning library for spiking neural networks", 2021.

    Elsewhere:
        Norse: method="circ" with its alpha.

    Example:
        >>> print(grad(snncell.surrogate.Algebraic())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [0.985 1.    0.354]
    """

    alpha: Constant

    def __init__(self, alpha: Any = 1.0) -> None:
        super().__init__(alpha=alpha)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        rise = ops.rsqrt(ops.square(x / self.alpha) + 1.0)
        return self.gradients(x, dout, dout * rise * rise * rise)

    def primitive(self, x: Tensor) -> Tensor:
        return x * ops.rsqrt(ops.square(x / self.alpha) + 1.0) + 0.5


class QPseudoSpike(Surrogate):
    """The step function with a derivative whose tail has the power of one's choice.

    derivative: (1 + 2 |x| / (alpha - 1))^(-alpha)
    primitive: (1 + 2 |x| / (alpha - 1))^(1 - alpha) / 2 below the threshold, 1 minus that above

    Args:
        alpha: the power of the tail, above 1; a Parameter is learned.

    Source: Herranz-Celotti and Rouat, "Surrogate Gradients Design", 2022, where alpha is q.

    Elsewhere:
        SpikingJelly: QPseudoSpike(alpha=2).

    Example:
        >>> print(grad(snncell.surrogate.QPseudoSpike())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [0.694 1.    0.111]
    """

    alpha: Constant
    ranges: ClassVar = {"alpha": Range(1.0, text="is above 1 and finite")}

    def __init__(self, alpha: Any = 2.0) -> None:
        super().__init__(alpha=alpha)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return self.gradients(x, dout, dout * self._tail(ops.abs(x), -self.alpha))

    def primitive(self, x: Tensor) -> Tensor:
        power = 1.0 - self.alpha
        below, above = self._tail(ops.maximum(-x, 0.0), power), self._tail(ops.maximum(x, 0.0), power)
        return (below - above) * 0.5 + 0.5

    def _tail(self, distance: Tensor, power: Any) -> Tensor:
        return ops.pow(distance * (2.0 / (self.alpha - 1.0)) + 1.0, power)
