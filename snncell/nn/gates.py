"""Cells of one step of the classical recurrent networks, and their equations, which the layers over time share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from snncell import dtype as dtypes, ops
from snncell.base.arguments.kinds import Count, FloatDtype
from snncell.cell.cell import Cell
from snncell.common.initializer import Uniform, initializer
from snncell.errors import ShapeError
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor

# --- equations --------------------------------------------------------------------------------------------------------

Parts = Sequence[Tensor]  # (B, H) for each gate
States = tuple[Tensor, ...]  # (B, H) each, the output first


class Gated(NamedTuple):
    """A recurrent network's equations.

    Attributes:
        gates: how many blocks of rows its weights have.
        states: how many states it has.
        step: the states after a step, from what each gate has of the input, what it has of the output before, and the
            states before.
    """

    gates: int
    states: int
    step: Callable[[Parts, Parts, States], States]


def _tanh(of_x: Parts, of_h: Parts, _states: States) -> States:
    return (ops.tanh(of_x[0] + of_h[0]),)


def _relu(of_x: Parts, of_h: Parts, _states: States) -> States:
    return (ops.relu(of_x[0] + of_h[0]),)


def _gru(of_x: Parts, of_h: Parts, states: States) -> States:
    (h,) = states
    reset, update = (ops.sigmoid(a + b) for a, b in zip(of_x[:2], of_h[:2], strict=True))
    new = ops.tanh(of_x[2] + reset * of_h[2])
    return (new + update * (h - new),)


def _lstm(of_x: Parts, of_h: Parts, states: States) -> States:
    _, c = states
    i, f, g, o = (a + b for a, b in zip(of_x, of_h, strict=True))
    c = ops.sigmoid(f) * c + ops.sigmoid(i) * ops.tanh(g)
    return ops.sigmoid(o) * ops.tanh(c), c


SIMPLE = {"tanh": Gated(1, 1, _tanh), "relu": Gated(1, 1, _relu)}
GRU_EQUATIONS = Gated(3, 1, _gru)
LSTM_EQUATIONS = Gated(4, 2, _lstm)


def rows(weight: Tensor, gates: int) -> list[Tensor]:
    """The rows of a weight or a bias that belong to each gate."""
    return list(ops.split(weight, weight.shape[0] // gates))


# --- cells of one step ------------------------------------------------------------------------------------------------


class _RecurrentCell(Cell):
    """The base of cells of one step: their weights, and what the gates have of the input and of the output before."""

    equations: Gated
    bias_ih: Parameter | None = None  # without a bias, as in MindSpore
    bias_hh: Parameter | None = None

    def __init__(self, input_size: Count, hidden_size: Count, has_bias: bool, dtype: FloatDtype) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.has_bias = input_size, hidden_size, has_bias
        long, even = self.equations.gates * hidden_size, Uniform(1 / math.sqrt(hidden_size))
        self.weight_ih = Parameter(initializer(even, (long, input_size), dtype))
        self.weight_hh = Parameter(initializer(even, (long, hidden_size), dtype))
        if has_bias:
            self.bias_ih = Parameter(initializer(even, (long,), dtype))
            self.bias_hh = Parameter(initializer(even, (long,), dtype))

    def after(self, x: Tensor, states: States) -> States:
        """The states after a step."""
        lengths = (self.input_size, *(self.hidden_size,) * len(states))
        for what, length in zip((x, *states), lengths, strict=True):
            if what.ndim != 2 or what.shape != (x.shape[0], length):
                raise ShapeError(
                    f"{self!r}: x is (B, {self.input_size}) and hx (B, {self.hidden_size})"
                    f"{' each' if len(states) > 1 else ''}; x has shape {x.shape}, hx "
                    f"{', '.join(str(s.shape) for s in states)}."
                )
        of_x, of_h = ops.matmul(x, self.weight_ih.T), ops.matmul(states[0], self.weight_hh.T)
        if self.has_bias:
            of_x, of_h = of_x + self.bias_ih, of_h + self.bias_hh
        by_gate, feedback = (ops.split(one, self.hidden_size, 1) for one in (of_x, of_h))
        return self.equations.step(by_gate, feedback, states)

    def extend_repr(self) -> str:
        return f"input_size={self.input_size}, hidden_size={self.hidden_size}, has_bias={self.has_bias}"


class RNNCell(_RecurrentCell):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh), one step of `RNN`.

    Args:
        input_size, hidden_size: I and H.
        has_bias: whether there are b_ih and b_hh.
        nonlinearity: "tanh" or "relu".
        dtype: of the Parameters: weight_ih (H, I), weight_hh (H, H), bias_ih and bias_hh (H,), all begun evenly within
            1 / sqrt(H).

    Inputs:
        x: (B, I).
        hx: (B, H).

    Raises:
        ShapeError: naming this Cell, for other shapes.

    Example:
        >>> nn.RNNCell(3, 4)(ops.ones((2, 3)), ops.zeros((2, 4))).shape
        (2, 4)
    """

    equations = SIMPLE["tanh"]

    def __init__(
        self,
        input_size: Count,
        hidden_size: Count,
        has_bias: bool = True,
        nonlinearity: Literal["tanh", "relu"] = "tanh",
        dtype: FloatDtype = dtypes.float32,
    ) -> None:
        super().__init__(input_size, hidden_size, has_bias, dtype)
        self.nonlinearity, self.equations = nonlinearity, SIMPLE[nonlinearity]

    def construct(self, x: Tensor, hx: Tensor) -> Tensor:
        return self.after(x, (hx,))[0]


class GRUCell(_RecurrentCell):
    """One step of `GRU`, where its equations are.

    Args:
        input_size, hidden_size: I and H.
        has_bias: whether there are biases.
        dtype: of the Parameters: weight_ih (3 H, I), weight_hh (3 H, H), bias_ih and bias_hh (3 H,), with rows in the
            order r, z, n.

    Inputs:
        x: (B, I).
        hx: (B, H).

    Raises:
        ShapeError: naming this Cell, for other shapes.
    """

    equations = GRU_EQUATIONS

    def __init__(
        self, input_size: Count, hidden_size: Count, has_bias: bool = True, dtype: FloatDtype = dtypes.float32
    ) -> None:
        super().__init__(input_size, hidden_size, has_bias, dtype)

    def construct(self, x: Tensor, hx: Tensor) -> Tensor:
        return self.after(x, (hx,))[0]


class LSTMCell(_RecurrentCell):
    """One step of `LSTM`, where its equations are.

    Args:
        input_size, hidden_size: I and H.
        has_bias: whether there are biases.
        dtype: of the Parameters: weight_ih (4 H, I), weight_hh (4 H, H), bias_ih and bias_hh (4 H,), with rows in the
            order i, f, g, o.

    Inputs:
        x: (B, I).
        hx: the pair (h, c), each (B, H).

    Raises:
        ShapeError: naming this Cell, for other shapes.

    Example:
        >>> h, c = nn.LSTMCell(3, 4)(ops.ones((2, 3)), (ops.zeros((2, 4)), ops.zeros((2, 4))))
        >>> h.shape
        (2, 4)
    """

    equations = LSTM_EQUATIONS

    def __init__(
        self, input_size: Count, hidden_size: Count, has_bias: bool = True, dtype: FloatDtype = dtypes.float32
    ) -> None:
        super().__init__(input_size, hidden_size, has_bias, dtype)

    def construct(self, x: Tensor, hx: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        if not isinstance(hx, (tuple, list)) or len(hx) != 2:
            raise ShapeError(f"{self!r}: hx is the pair of states (h, c), each (B, {self.hidden_size}).")
        h, c = self.after(x, tuple(hx))
        return h, c
