"""Activations as Cells."""

from __future__ import annotations

from snncell import ops
from snncell.base.arguments.kinds import Positive
from snncell.cell.cell import Cell
from snncell.tape.tensor import Tensor


class ReLU(Cell):
    """max(x, 0)."""

    def construct(self, x: Tensor) -> Tensor:
        return ops.relu(x)


class ReLU6(Cell):
    """x limited to [0, 6]."""

    def construct(self, x: Tensor) -> Tensor:
        return ops.relu6(x)


class LeakyReLU(Cell):
    """x where x > 0, else alpha x."""

    def __init__(self, alpha: float = 0.2) -> None:
        super().__init__()
        self.alpha = alpha

    def construct(self, x: Tensor) -> Tensor:
        return ops.leaky_relu(x, self.alpha)

    def extend_repr(self) -> str:
        return f"alpha={self.alpha}"


class GELU(Cell):
    """x Phi(x); by tanh if `approximate`."""

    def __init__(self, approximate: bool = True) -> None:
        super().__init__()
        self.approximate = approximate

    def construct(self, x: Tensor) -> Tensor:
        return ops.gelu(x, "tanh" if self.approximate else "none")


class Sigmoid(Cell):
    """1 / (1 + exp(-x))."""

    def construct(self, x: Tensor) -> Tensor:
        return ops.sigmoid(x)


class Tanh(Cell):
    """The hyperbolic tangent."""

    def construct(self, x: Tensor) -> Tensor:
        return ops.tanh(x)


class Softplus(Cell):
    """log(1 + exp(beta x)) / beta; x where beta x is above a threshold, if there is one. See `ops.softplus`."""

    def __init__(self, beta: Positive = 1.0, threshold: float | None = None) -> None:
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def construct(self, x: Tensor) -> Tensor:
        return ops.softplus(x, self.beta, self.threshold)

    def extend_repr(self) -> str:
        return "" if (self.beta, self.threshold) == (1.0, None) else f"beta={self.beta}, threshold={self.threshold}"


class SiLU(Cell):
    """x / (1 + exp(-x)), also known as swish."""

    def construct(self, x: Tensor) -> Tensor:
        return ops.silu(x)


class Mish(Cell):
    """x tanh(log(1 + exp(x)))."""

    def construct(self, x: Tensor) -> Tensor:
        return ops.mish(x)


class Softsign(Cell):
    """x / (1 + |x|)."""

    def construct(self, x: Tensor) -> Tensor:
        return ops.softsign(x)


class LogSigmoid(Cell):
    """log(1 / (1 + exp(-x)))."""

    def construct(self, x: Tensor) -> Tensor:
        return ops.logsigmoid(x)


class Tanhshrink(Cell):
    """x - tanh(x)."""

    def construct(self, x: Tensor) -> Tensor:
        return ops.tanhshrink(x)


class GLU(Cell):
    """a / (1 + exp(-b)), where a and b are the halves of x along an axis."""

    def __init__(self, axis: int = -1) -> None:
        super().__init__()
        self.axis = axis

    def construct(self, x: Tensor) -> Tensor:
        return ops.glu(x, self.axis)

    def extend_repr(self) -> str:
        return f"axis={self.axis}"


class Softmax(Cell):
    """exp(x) / sum(exp(x)) along an axis."""

    def __init__(self, axis: int = -1) -> None:
        super().__init__()
        self.axis = axis

    def construct(self, x: Tensor) -> Tensor:
        return ops.softmax(x, self.axis)


class LogSoftmax(Softmax):
    """log(softmax(x)) along an axis."""

    def construct(self, x: Tensor) -> Tensor:
        return ops.log_softmax(x, self.axis)


class Softmin(Softmax):
    """exp(-x) / sum(exp(-x)) along an axis."""

    def construct(self, x: Tensor) -> Tensor:
        return ops.softmin(x, self.axis)
