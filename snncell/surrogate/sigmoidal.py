"""Surrogates with sigmoidal primitives: the logistic sigmoid, the arc tangent, the hyperbolic tangent."""

from __future__ import annotations

import math
from typing import Any

from snncell import ops
from snncell.cell.cell import Cell
from snncell.dtype import float32, float64
from snncell.surrogate.base import Constant, Surrogate
from snncell.tape.tensor import Tensor

__all__ = ["ATan", "Sigmoid", "Tanh", "relusigmoid"]


class relusigmoid(Cell):  # noqa: N801 (the name it has in MindSpore's guide)
    """The step function with the derivative of sigmoid(5 x), as in MindSpore's guide to custom reverses.

    construct: 1 where x > 0, else 0, as float32, or as float64 where x is; primitive: sigmoid(5 x);
    bprop: 5 s (1 - s) with s = sigmoid(5 x).

    Source: MindSpore 1.9 tutorials, "Customizing Reverse Propagation Function of Cell".

    Elsewhere: Sigmoid(alpha=5) of snncell and SpikingJelly.

    Example:
        >>> print(grad(snncell.surrogate.relusigmoid())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [1.175 1.25  0.033]
    """

    def __init__(self) -> None:
        super().__init__()
        self.sigmoid = ops.Sigmoid()
        self.greater = ops.Greater()

    def construct(self, x: Tensor) -> Tensor:
        spike: Tensor = self.greater(x, 0)
        return spike.astype(float64 if x.dtype is float64 else float32)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor]:
        sgax = self.sigmoid(x * 5.0)
        return (dout * (1 - sgax) * sgax * 5.0,)

    def primitive(self, x: Tensor) -> Tensor:
        return ops.sigmoid(x * 5.0)


class Sigmoid(Surrogate):
    """The step function with the derivative of a logistic sigmoid.

    primitive: sigmoid(alpha x);  derivative: alpha s (1 - s) with s = sigmoid(alpha x), at most alpha / 4

    Args:
        alpha: sharpness, positive; a Parameter is learned.

    Source: Zenke and Vogels, "The remarkable robustness of surrogate gradient learning", Neural Computation 2021.

    Elsewhere:
        SpikingJelly: Sigmoid(alpha=4), its default.
        snnTorch: sigmoid(slope=25), slope being alpha; in 1.0.0 it is NaN where slope x < -88, not 0.

    Example:
        >>> print(grad(snncell.surrogate.Sigmoid())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [0.961 1.    0.071]
    """

    alpha: Constant

    def __init__(self, alpha: Any = 4.0) -> None:
        super().__init__(alpha=alpha)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        s = ops.sigmoid(x * self.alpha)
        return self.gradients(x, dout, dout * s * (1.0 - s) * self.alpha)

    def primitive(self, x: Tensor) -> Tensor:
        return ops.sigmoid(x * self.alpha)


class ATan(Surrogate):
    """The step function with the derivative of an arc tangent.

    primitive: atan(pi / 2 alpha x) / pi + 1 / 2;  derivative: (alpha / 2) / (1 + (pi / 2 alpha x)^2)

    Args:
        alpha: sharpness, positive; a Parameter is learned.

    Source: Fang et al., "Incorporating Learnable Membrane Time Constant to Enhance Learning of Spiking Neural
    Networks", ICCV 2021.

    Elsewhere:
        SpikingJelly: ATan(alpha=2).
        snnTorch: atan(alpha=2), its default; its documentation has a factor of 1 / pi more than its code.
        Spyx: arctan(k=2) is Scaled(ATan(2 k), 1 / (pi k)), at most 1 / pi.

    Example:
        >>> print(grad(snncell.surrogate.ATan())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [0.91  1.    0.092]
    """

    alpha: Constant

    def __init__(self, alpha: Any = 2.0) -> None:
        super().__init__(alpha=alpha)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return self.gradients(x, dout, dout * (self.alpha / 2) / (ops.square(x * (math.pi / 2 * self.alpha)) + 1.0))

    def primitive(self, x: Tensor) -> Tensor:
        return ops.atan(x * (math.pi / 2 * self.alpha)) / math.pi + 0.5


class Tanh(Surrogate):
    """The step function with the squared hyperbolic secant as derivative: 1 at the threshold, whatever the sharpness.

    primitive: tanh(alpha x) / alpha + 1 / 2;  derivative: 1 - tanh(alpha x)^2

    The primitive rises by 2 / alpha, not by 1, for that is the area under the published derivative.

    Args:
        alpha: sharpness, positive; a Parameter is learned.

    Source: Norse; Pehle and Pedersen, "Norse: a deep learning library for spiking neural networks", 2021.

    Elsewhere:
        Norse: method="tanh" with its alpha.
        Spyx: tanh(k=1), k being alpha, written as 4 / (e^(-k x) + e^(k x))^2.

    Example:
        >>> print(grad(snncell.surrogate.Tanh())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [0.99 1.   0.42]
    """

    alpha: Constant

    def __init__(self, alpha: Any = 1.0) -> None:
        super().__init__(alpha=alpha)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return self.gradients(x, dout, dout * (1.0 - ops.square(ops.tanh(x * self.alpha))))

    def primitive(self, x: Tensor) -> Tensor:
        return ops.tanh(x * self.alpha) / self.alpha + 0.5
