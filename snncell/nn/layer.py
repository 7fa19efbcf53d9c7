"""Layers with weights, and the small ones around them. Names and defaults are MindSpore's."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from snncell import dtype as dtypes, ops
from snncell.base.arguments.kinds import Count, Extended, FloatDtype
from snncell.cell.cell import Cell
from snncell.common.initializer import HeUniform, Init, Initializer, Uniform, initializer
from snncell.errors import ArgumentError, ShapeError
from snncell.nn.activation_names import activation_of
from snncell.ops.gathering import lookup
from snncell.tape.event_lists import EventLists
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor


def positive(value: Any, who: str, name: str) -> int:
    """A count of channels or features."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ArgumentError(f"{who}: {name} is an integer of at least 1, not {value!r}.")
    return value


def positive_number(value: Any, who: str, name: str) -> float:
    """A number above 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 < value < math.inf:
        raise ArgumentError(f"{who}: {name} is a number above 0, not {value!r}.")
    return float(value)


EVEN = HeUniform(math.sqrt(5))  # within 1 / sqrt of a weight's inputs


def weights(init: Any, default: Initializer, shape: tuple[int, ...], dtype: Any) -> Parameter:
    """A Parameter, begun by `default` if `init` is None."""
    return Parameter(initializer(default if init is None else init, shape, dtype))


class Dense(Cell):
    """y = activation(x W^T + b), over the last axis.

    Args:
        in_channels: length of the last axis of x.
        out_channels: length of the last axis of y.
        weight_init: of W, (out_channels, in_channels); by default even within 1 / sqrt(in_channels).
        bias_init: of b, (out_channels,); the same default.
        has_bias: whether there is b.
        activation: a name ("relu", ...) or a Cell.
        dtype: of the Parameters.

    Raises:
        ShapeError: naming this Cell, if the last axis of x is not in_channels.

    Example:
        >>> nn.Dense(3, 4)(Tensor([[1.0, 2.0, 3.0]])).shape
        (1, 4)
    """

    bias: Parameter | None = None  # without a bias, as in MindSpore

    def __init__(
        self,
        in_channels: Count,
        out_channels: Count,
        weight_init: Init | None = None,
        bias_init: Init | None = None,
        has_bias: bool = True,
        activation: str | Callable[..., Any] | None = None,
        dtype: FloatDtype = dtypes.float32,
    ) -> None:
        super().__init__()
        self.in_channels = positive(in_channels, type(self).__name__, "in_channels")
        self.out_channels = positive(out_channels, type(self).__name__, "out_channels")
        self.has_bias = has_bias
        self.weight = weights(weight_init, EVEN, (out_channels, in_channels), dtype)
        if has_bias:
            self.bias = weights(bias_init, Uniform(1 / math.sqrt(in_channels)), (out_channels,), dtype)
        self.activation = activation_of(activation, "Dense")

    def construct(self, x: Tensor | EventLists) -> Tensor:
        if x.shape[-1:] != (self.in_channels,):
            raise ShapeError(
                f"{self!r}: the input has shape {x.shape}; its last axis must have length in_channels = "
                f"{self.in_channels}."
            )
        out = ops.matmul(x, self.weight.T)
        if self.has_bias:
            out = out + self.bias
        return out if self.activation is None else self.activation(out)

    def extend_repr(self) -> str:
        activation = f", activation={self.activation}" if isinstance(self.activation, Cell) else ""
        return (
            f"input_channels={self.in_channels}, output_channels={self.out_channels}"
            + ", has_bias=True" * self.has_bias
            + activation
        )


class Flatten(Cell):
    """The axes from `start_dim` to `end_dim` as one; by default all but the batch."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def construct(self, x: Tensor | EventLists) -> Tensor | EventLists:
        return ops.flatten(x, self.start_dim, self.end_dim)


class Threshold(Cell):
    """x where x > threshold, else value; where it is replaced, the gradient is 0."""

    def __init__(self, threshold: Extended, value: float) -> None:
        super().__init__()
        self.threshold, self.value = threshold, value

    def construct(self, x: Tensor) -> Tensor:
        return ops.select(ops.gt(x, self.threshold), x, self.value)

    def extend_repr(self) -> str:
        return f"threshold={self.threshold}, value={self.value}"


class Embedding(Cell):
    """Rows of a table, looked up by integers: (...) -> (..., embedding_size).

    Args:
        vocab_size: the number of rows.
        embedding_size: their length.
        use_one_hot: kept for MindSpore's signature; a lookup is a gather either way.
        embedding_table: how the table begins.
        dtype: of the table.
        padding_idx: a row that begins at zero and whose gradient is zero.
    """

    def __init__(
        self,
        vocab_size: Count,
        embedding_size: Count,
        use_one_hot: bool = False,
        embedding_table: Init = "normal",
        dtype: FloatDtype = dtypes.float32,
        padding_idx: int | None = None,
    ) -> None:
        super().__init__()
        self.vocab_size = positive(vocab_size, "Embedding", "vocab_size")
        self.embedding_size = positive(embedding_size, "Embedding", "embedding_size")
        if padding_idx is not None and not 0 <= padding_idx < vocab_size:
            raise ArgumentError(f"Embedding: padding_idx={padding_idx} is no row of a table of {vocab_size}.")
        self.padding_idx = padding_idx
        table = Parameter(initializer(embedding_table, (vocab_size, embedding_size), dtype))
        if padding_idx is not None:
            table[padding_idx] = 0.0
        self.embedding_table = table

    def construct(self, indices: Tensor) -> Tensor:
        table: Tensor = self.embedding_table
        if self.padding_idx is not None:
            is_padding = ops.equal(ops.arange(self.vocab_size), self.padding_idx).reshape((-1, 1))
            table = ops.select(is_padding, ops.stop_gradient(table), table)
        return lookup(table, indices, "Embedding: index")

    def extend_repr(self) -> str:
        return f"vocab_size={self.vocab_size}, embedding_size={self.embedding_size}"
