"""Layers of products under other names, and of two inputs."""

from __future__ import annotations

import math

from snncell import dtype as dtypes, ops
from snncell.base.arguments.kinds import Count, FloatDtype
from snncell.cell.cell import Cell
from snncell.common.initializer import Init, Uniform
from snncell.errors import ShapeError
from snncell.nn.layer import Dense, weights
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor


class Linear(Dense):
    """y = x W^T + b, over the last axis: `Dense` with PyTorch's names, as `mindspore.mint.nn.Linear` has them.

    Args:
        in_features: length of the last axis of x.
        out_features: length of the last axis of y.
        bias: whether there is b.
        weight_init: of W, (out_features, in_features); by default even within 1 / sqrt(in_features).
        bias_init: of b, (out_features,); the same default.
        dtype: of the Parameters.

    Raises:
        ShapeError: naming this Cell, if the last axis of x is not in_features.

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


class BiDense(Cell):
    """y_o = x1^T W_o x2 + b_o, over the last axes.

    Args:
        in1_channels, in2_channels: lengths of the last axes of x1 and x2.
        out_channels: length of the last axis of y.
        weight_init: of W, (out_channels, in1_channels, in2_channels); by default even within 1 / sqrt(in1_channels).
        bias_init: of b, (out_channels,); the same default.
        has_bias: whether there is b.
        dtype: of the Parameters.

    Inputs:
        x1: (..., in1_channels).
        x2: (..., in2_channels).

    Raises:
        ShapeError: naming this Cell, for inputs of other lengths.

    Example:
        >>> nn.BiDense(3, 4, 2)(ops.ones((5, 3)), ops.ones((5, 4))).shape
        (5, 2)
    """

    bias: Parameter | None = None  # without a bias, as in MindSpore

    def __init__(
        self,
        in1_channels: Count,
        in2_channels: Count,
        out_channels: Count,
        weight_init: Init | None = None,
        bias_init: Init | None = None,
        has_bias: bool = True,
        dtype: FloatDtype = dtypes.float32,
    ) -> None:
        super().__init__()
        self.in1_channels, self.in2_channels, self.out_channels = in1_channels, in2_channels, out_channels
        self.has_bias = has_bias
        even = Uniform(1 / math.sqrt(in1_channels))
        self.weight = weights(weight_init, even, (out_channels, in1_channels, in2_channels), dtype)
        if has_bias:
            self.bias = weights(bias_init, even, (out_channels,), dtype)

    def construct(self, x1: Tensor, x2: Tensor) -> Tensor:
        if x1.shape[-1:] != (self.in1_channels,) or x2.shape[-1:] != (self.in2_channels,):
            raise ShapeError(
                f"{self!r}: the inputs have shapes {x1.shape} and {x2.shape}; their last axes must have lengths "
                f"{self.in1_channels} and {self.in2_channels}."
            )
        out = ops.einsum("...i,oij,...j->...o", x1, self.weight, x2)
        return out + self.bias if self.has_bias else out

    def extend_repr(self) -> str:
        return (
            f"in1_channels={self.in1_channels}, in2_channels={self.in2_channels}, out_channels={self.out_channels}, "
            f"has_bias={self.has_bias}"
        )


class Bilinear(BiDense):
    """`BiDense` with PyTorch's names.

    Args:
        in1_features, in2_features: lengths of the last axes of x1 and x2.
        out_features: length of the last axis of y.
        bias: whether there is b.
        dtype: of the Parameters.
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
