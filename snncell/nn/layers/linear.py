"""Dense and bilinear layers, and embeddings, with MindSpore's names and defaults."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, cast

from snncell import dtype as dtypes, ops
from snncell.base.arguments.kinds import Count, FloatDtype
from snncell.cell.cell import Cell
from snncell.cell.fields import field, with_fields
from snncell.common.initializer import HeUniform, Init, Initializer, Uniform, initializer
from snncell.errors import ArgumentError, ShapeError
from snncell.nn.layers.activations import find_activation
from snncell.ops.gathering import lookup
from snncell.tape.event_lists import EventLists
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor

__all__ = ["BiDense", "Bilinear", "Dense", "Embedding", "Linear"]

FAN_IN_UNIFORM = HeUniform(math.sqrt(5))  # uniform within +-1 / sqrt(fan in)


def create_parameter(init: Any, default: Initializer, shape: tuple[int, ...], dtype: Any) -> Parameter:
    """Create a Parameter, initialised by `init`, or by `default` if that is None."""
    return Parameter(initializer(default if init is None else init, shape, dtype))


@with_fields
class Dense(Cell):
    """Dense (fully connected) layer: y = activation(x W^T + b), over the last axis.

    You can pass sequences (T, B, N) directly, and also event lists from `snncell.data`.
    Example:
        >>> nn.Dense(3, 4)(Tensor([[1.0, 2.0, 3.0]])).shape
        (1, 4)
    """

    in_channels: Annotated[Count, field(meaning="length of the last axis of x")]
    out_channels: Annotated[Count, field(meaning="length of the last axis of y")]
    weight_init: Init | None = field(
        None, meaning="initial W, (out_channels, in_channels); None is uniform, +-1 / sqrt(in_channels)", keep=False
    )
    bias_init: Init | None = field(None, meaning="initial b, (out_channels,); None as for W", keep=False)
    has_bias: bool = field(True, meaning="whether to add b")
    activation: str | Callable[..., Any] | None = field(None, meaning='a Cell, or a name such as "relu"', keep=False)
    dtype: FloatDtype = field(dtypes.float32, meaning="dtype of the Parameters", keep=False)
    bias: Parameter | None = None  # None without a bias, as in MindSpore
    axes: int | None = None  # the largest number of axes of x, if `quantise.fold` moved a BatchNorm into this layer

    def _complete(self, given: dict[str, Any]) -> None:
        shape, dtype = (self.out_channels, self.in_channels), given["dtype"]
        self.weight = create_parameter(given["weight_init"], FAN_IN_UNIFORM, shape, dtype)
        if self.has_bias:
            even = Uniform(1 / math.sqrt(self.in_channels))
            self.bias = create_parameter(given["bias_init"], even, shape[:1], dtype)
        self.activation = find_activation(given["activation"], "Dense")

    def construct(self, x: Tensor | EventLists) -> Tensor:
        if x.shape[-1:] != (self.in_channels,):
            raise ShapeError(
                f"{type(self).__name__}(in_channels={self.in_channels}, out_channels={self.out_channels}): the input "
                f"has shape {x.shape}; its last axis must have length in_channels = {self.in_channels}."
            )
        if self.axes is not None and x.ndim > self.axes:
            raise ShapeError(
                f"{self!r}: the input has shape {x.shape}, but may have at most {self.axes} axes. quantise.fold "
                f"moved a batch normalisation over axis {self.axes - 1} into this layer, so axis {self.axes - 1} must "
                f"be the last axis of the input."
            )
        out, activation = ops.matmul(x, self.weight.T), cast(Any, self.activation)
        if self.has_bias:
            out = out + self.bias
        return out if activation is None else activation(out)

    def extend_repr(self) -> str:
        activation = f", activation={self.activation}" if isinstance(self.activation, Cell) else ""
        bias = ", has_bias=True" * self.has_bias
        return f"input_channels={self.in_channels}, output_channels={self.out_channels}{bias}{activation}"


class Linear(Dense):
    """Dense layer with PyTorch's argument names, like `mindspore.mint.nn.Linear`: y = x W^T + b.

    Args:
        in_features: length of the last axis of x.
        out_features: length of the last axis of y.
        bias: whether to add b.
        weight_init, bias_init, dtype: as for `Dense`.
    Example:
        >>> nn.Linear(3, 4, bias=False)(Tensor([[1.0, 2.0, 3.0]])).shape
        (1, 4)
    """

    def __init__(
        self,
        in_features: Count,
        out_features: Count,
        bias: bool = True,
        weight_init: Init | None = None,
        bias_init: Init | None = None,
        dtype: FloatDtype = dtypes.float32,
    ) -> None:
        super().__init__(in_features, out_features, weight_init, bias_init, bias, None, dtype)


@with_fields
class BiDense(Cell):
    """Bilinear layer: y_o = x1^T W_o x2 + b_o, over the last axes.
    Inputs: x1: (..., in1_channels); x2: (..., in2_channels).
    Example:
        >>> nn.BiDense(3, 4, 2)(ops.ones((5, 3)), ops.ones((5, 4))).shape
        (5, 2)
    """

    in1_channels: Annotated[Count, field(meaning="length of the last axis of x1")]
    in2_channels: Annotated[Count, field(meaning="length of the last axis of x2")]
    out_channels: Annotated[Count, field(meaning="length of the last axis of y")]
    weight_init: Init | None = field(
        None,
        meaning="initial W, (out_channels, in1_channels, in2_channels); None is uniform, +-1 / sqrt(in1_channels)",
        keep=False,
    )
    bias_init: Init | None = field(None, meaning="initial b, (out_channels,); None as for W", keep=False)
    has_bias: bool = field(True, meaning="whether to add b")
    dtype: FloatDtype = field(dtypes.float32, meaning="dtype of the Parameters", keep=False)
    bias: Parameter | None = None  # None without a bias, as in MindSpore

    def _complete(self, given: dict[str, Any]) -> None:
        shape = self.out_channels, self.in1_channels, self.in2_channels
        even = Uniform(1 / math.sqrt(self.in1_channels))
        self.weight = create_parameter(given["weight_init"], even, shape, given["dtype"])
        if self.has_bias:
            self.bias = create_parameter(given["bias_init"], even, shape[:1], given["dtype"])

    def construct(self, x1: Tensor, x2: Tensor) -> Tensor:
        if x1.shape[-1:] != (self.in1_channels,) or x2.shape[-1:] != (self.in2_channels,):
            raise ShapeError(
                f"{self!r}: the inputs have shapes {x1.shape} and {x2.shape}; their last axes must have lengths "
                f"{self.in1_channels} and {self.in2_channels}."
            )
        out = ops.einsum("...i,oij,...j->...o", x1, self.weight, x2)
        return out + self.bias if self.has_bias else out


class Bilinear(BiDense):
    """`BiDense` with PyTorch's argument names.

    Args:
        in1_features, in2_features: lengths of the last axes of x1 and x2.
        out_features: length of the last axis of y.
        bias: whether to add b.
        dtype: dtype of the Parameters.
    """

    def __init__(
        self,
        in1_features: Count,
        in2_features: Count,
        out_features: Count,
        bias: bool = True,
        dtype: FloatDtype = dtypes.float32,
    ) -> None:
        super().__init__(in1_features, in2_features, out_features, has_bias=bias, dtype=dtype)


@with_fields
class Embedding(Cell):
    """Embedding of tokens: look up rows of a learned table by integers, (...) -> (..., embedding_size).
    Example:
        >>> nn.Embedding(100, 8)(Tensor([[1, 5, 2]])).shape
        (1, 3, 8)
    """

    vocab_size: Annotated[Count, field(meaning="the number of rows")]
    embedding_size: Annotated[Count, field(meaning="the length of a row")]
    use_one_hot: bool = field(False, meaning="unused; accepted for MindSpore's signature", keep=False)
    embedding_table: Init = field("normal", meaning="initial table", keep=False)
    dtype: FloatDtype = field(dtypes.float32, meaning="dtype of the table", keep=False)
    padding_idx: int | None = field(None, meaning="index of a row whose initial value and gradient are 0")

    def _complete(self, given: dict[str, Any]) -> None:
        row, size = self.padding_idx, self.vocab_size
        if row is not None and not 0 <= row < size:
            raise ArgumentError(f"Embedding: padding_idx={row} must be from 0 to {size - 1}, the rows of the table.")
        table = Parameter(initializer(given["embedding_table"], (size, self.embedding_size), given["dtype"]))
        if row is not None:
            table[row] = 0.0
        self.embedding_table = table

    def construct(self, indices: Tensor) -> Tensor:
        table: Tensor = self.embedding_table
        if self.padding_idx is not None:
            is_padding = ops.equal(ops.arange(self.vocab_size), self.padding_idx).reshape((-1, 1))
            table = ops.select(is_padding, ops.stop_gradient(table), table)
        return lookup(table, indices, "Embedding: index")

    def extend_repr(self) -> str:
        return f"vocab_size={self.vocab_size}, embedding_size={self.embedding_size}"
