"""Activations as Cells."""

from __future__ import annotations

from typing import Any

from snncell import ops
from snncell.cell import Cell
from snncell.errors import ArgumentError
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
    """log(1 + exp(x))."""

    def construct(self, x: Tensor) -> Tensor:
        return ops.softplus(x)


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


_BY_NAME: dict[str, Any] = {
    "relu": ReLU,
    "relu6": ReLU6,
    "leakyrelu": LeakyReLU,
    "gelu": GELU,
    "sigmoid": Sigmoid,
    "tanh": Tanh,
    "softplus": Softplus,
    "softmax": Softmax,
    "logsoftmax": LogSoftmax,
}


def activation_of(activation: Any, who: str) -> Any:
    """An activation by name, or as it is."""
    if not isinstance(activation, str):
        return activation
    if activation not in _BY_NAME:
        raise ArgumentError(f"{who}: no activation {activation!r}; there are {', '.join(sorted(_BY_NAME))}.")
    return _BY_NAME[activation]()
