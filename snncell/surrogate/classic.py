"""The two spike functions that most papers use, and the one of MindSpore's guide."""

from __future__ import annotations

import math
from typing import Any

from snncell import ops
from snncell.cell import Cell
from snncell.dtype import float32
from snncell.surrogate.base import Surrogate, positive
from snncell.tape.tensor import Tensor


class relusigmoid(Cell):  # noqa: N801 (the name it has in MindSpore's guide)
    """The step function with the derivative of sigmoid(5 x), as in MindSpore's guide to custom reverses.

    construct: 1 where x > 0, else 0, as float32; primitive: sigmoid(5 x); bprop: 5 s (1 - s) with s = sigmoid(5 x).

    Source: MindSpore 1.9 tutorials, "Customizing Reverse Propagation Function of Cell".
    """

    def __init__(self) -> None:
        super().__init__()
        self.sigmoid = ops.Sigmoid()
        self.greater = ops.Greater()

    def construct(self, x: Tensor) -> Tensor:
        spike: Tensor = self.greater(x, 0)
        return spike.astype(float32)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor]:
        sgax = self.sigmoid(x * 5.0)
        return (dout * (1 - sgax) * sgax * 5.0,)

    def primitive(self, x: Tensor) -> Tensor:
        return ops.sigmoid(x * 5.0)


class Sigmoid(Surrogate):
    """primitive: sigmoid(alpha x); derivative: alpha s (1 - s), at most alpha / 4.

    Source: SpikingJelly's default, with alpha = 4.
    """

    def __init__(self, alpha: Any = 4.0) -> None:
        super().__init__()
        self.alpha = positive(alpha, "Sigmoid", "alpha")

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        s = ops.sigmoid(x * self.alpha)
        return self.gradients(x, dout, dout * s * (1.0 - s) * self.alpha)

    def primitive(self, x: Tensor) -> Tensor:
        return ops.sigmoid(x * self.alpha)

    def extend_repr(self) -> str:
        return f"alpha={self.alpha}"


class ATan(Surrogate):
    """primitive: atan(pi / 2 alpha x) / pi + 1 / 2; derivative: (alpha / 2) / (1 + (pi / 2 alpha x)^2).

    Source: Fang et al., "Incorporating Learnable Membrane Time Constant to Enhance Learning of Spiking Neural
    Networks", ICCV 2021.
    """

    def __init__(self, alpha: Any = 2.0) -> None:
        super().__init__()
        self.alpha = positive(alpha, "ATan", "alpha")

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return self.gradients(x, dout, dout * (self.alpha / 2) / (ops.square(x * (math.pi / 2 * self.alpha)) + 1.0))

    def primitive(self, x: Tensor) -> Tensor:
        return ops.atan(x * (math.pi / 2 * self.alpha)) / math.pi + 0.5

    def extend_repr(self) -> str:
        return f"alpha={self.alpha}"
