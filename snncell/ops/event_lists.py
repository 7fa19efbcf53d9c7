"""Matrix products and convolutions of event lists, and their gradients with respect to the matrix or weight.

    multiply   lists, matrix   -> rows     x @ y
    contract   lists, rows     -> matrix   x.T @ y, the gradient of the matrix
    convolve   lists, weight   -> results
    correlate  lists, results  -> weight   the gradient of the weight

Each gradient is an operation of this table, so gradients of any order exist. Event lists themselves get no gradient.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.base.arguments.shown import percent
from snncell.compiler.ir.product import Convolution, ConvolutionWeight
from snncell.errors import ShapeError
from snncell.kernels.conv import direct, im2col
from snncell.kernels.products import csr, matmul
from snncell.ops import shape as sh
from snncell.ops.base import Grads, as_tensor, astype
from snncell.tape.event_lists import EventLists, OfLists, refuse_gradient
from snncell.tape.tensor import Tensor

Ints = tuple[int, ...]


class _Product(OfLists):
    """Matrix product x @ y, or x.T @ y if `by_columns`. The rows of x are event lists."""

    def __init__(self, name: str, by_columns: bool) -> None:
        super().__init__(name, self._product, self._specs)
        self.by_columns = by_columns

    def _product(self, x: Any, y: Any, turned: bool = False) -> Any:
        shape = x.shape
        x = x.reshape(math.prod(shape[:-1]), shape[-1])
        y_rows = y.reshape(math.prod(y.shape[:-1]), y.shape[-1]) if self.by_columns else y
        if isinstance(x, csr.Rows):
            out = csr.product(x, y_rows, by_columns=self.by_columns, turned=turned)
        else:
            out = matmul.matmul(x.T if self.by_columns else x, y_rows, turned=turned)
        return out if self.by_columns else out.reshape(*shape[:-1], y.shape[-1])

    def _specs(self, shape: Ints, dtype: Any, y: Any, turned: bool = False) -> tuple[Ints, Any]:
        if not self.by_columns:
            return (*shape[:-1], y.shape[-1]), y.dtype
        return ((y.shape[-1], shape[-1]) if turned else (shape[-1], y.shape[-1])), y.dtype

    def operations(self, inputs: Sequence[Any], outputs: Sequence[Any], attrs: dict[str, Any], used: float) -> float:
        return float(2.0 * used * math.prod(attrs["shape"]) * inputs[-1].shape[-1])

    def event_density(self, arrays: Sequence[Any], attrs: dict[str, Any]) -> tuple[float, bool] | None:
        starts, places, values, y = arrays
        density = csr.Rows(starts, places, values, attrs["shape"]).density
        return density, density < self._limit(y, attrs)

    def _limit(self, y: Any, attrs: dict[str, Any]) -> float:
        *rows, elements = attrs["shape"]
        dtype = np.dtype(dtypes.compute_dtype(y.dtype))
        return csr.limit(math.prod(rows), elements, y.shape[-1], dtype, by_columns=self.by_columns)

    def choice(self, inputs: Sequence[Any], attrs: dict[str, Any]) -> list[str]:
        below = self._limit(inputs[-1], attrs)
        return [f"event-driven below {percent(below)} of listed elements, else by BLAS" if below > 0 else "by BLAS"]


_multiply, _contract = _Product("matmul", by_columns=False), _Product("contraction", by_columns=True)


@_multiply.def_bprop
def _(starts: Tensor, places: Tensor, values: Tensor, y: Tensor, _out: Tensor, dout: Tensor, *, shape: Ints) -> Grads:
    def of_matrix() -> Tensor:
        # Ask for the transpose of the gradient, because in a layer the matrix is the transpose of the weight.
        return sh.transpose(_contract.bind(starts, places, values, dout, shape=shape, turned=True))

    return None, None, refuse_gradient, of_matrix


@_contract.def_bprop
def _(
    starts: Tensor, places: Tensor, values: Tensor, _y: Tensor, _out: Tensor, dout: Tensor, *, shape: Ints, turned: bool
) -> Grads:
    matrix = sh.transpose(dout) if turned else dout
    return None, None, refuse_gradient, lambda: _multiply.bind(starts, places, values, matrix, shape=shape)


def multiply_lists(lists: EventLists, y: Any) -> Tensor:
    """Matrix product over the last axis of event lists; `y` is (k, m) or (k,)."""
    operands = lists.operands("matmul")
    matrix = as_tensor(y, "matmul", "y")
    if not lists.ndim or lists.rows != math.prod(lists.shape[:-1]):
        raise ShapeError(
            f"matmul: event lists of shape {lists.shape} have rows of shape {lists.row_shape}, but a product needs "
            f"rows with one axis. Flatten them first: ops.flatten(x, {lists.ndim - len(lists.row_shape)})."
        )
    if matrix.ndim not in (1, 2) or matrix.shape[0] != lists.shape[-1]:
        raise ShapeError(
            f"matmul: event lists of shape {lists.shape} are multiplied by ({lists.shape[-1]}, m), not {matrix.shape}."
        )
    matrix = astype(matrix, dtypes.promote(lists.dtype, matrix.dtype))
    if matrix.ndim == 1:
        return sh.squeeze(_multiply.bind(*operands, sh.expand_dims(matrix, 1), shape=lists.shape), -1)
    return _multiply.bind(*operands, matrix, shape=lists.shape)


class _Convolved(OfLists):
    """Convolution of images, given as event lists, with a weight, or the gradient of the weight."""

    def __init__(self, name: str, like: Convolution | ConvolutionWeight, fast: Any, general: Any) -> None:
        super().__init__(name, self._evaluate, self._specs)
        self._like, self._fast, self._general = like, fast, general

    def _evaluate(self, x: Any, y: Any, **options: Any) -> Any:
        if isinstance(x, csr.Rows) and direct.supports(x, y):
            return self._fast(x, y, **options)
        return self._general(csr.fill_rows(x, y.dtype) if isinstance(x, csr.Rows) else x, y, **options)

    def _specs(self, shape: Ints, dtype: Any, y: Any, **options: Any) -> tuple[Ints, Any]:
        return self._like.abstract((SimpleNamespace(shape=shape, dtype=y.dtype), y), options)[0]

    def operations(self, inputs: Sequence[Any], outputs: Sequence[Any], attrs: dict[str, Any], used: float) -> float:
        return self._like.operations((SimpleNamespace(shape=attrs["shape"]), inputs[-1]), outputs, attrs, used)

    def event_density(self, arrays: Sequence[Any], attrs: dict[str, Any]) -> tuple[float, bool] | None:
        starts, places, values, y = arrays
        return self._like.event_density((csr.Rows(starts, places, values, attrs["shape"]), y), attrs)

    def choice(self, inputs: Sequence[Any], attrs: dict[str, Any]) -> list[str]:
        y = inputs[-1]
        return self._like.choice((SimpleNamespace(shape=attrs["shape"], dtype=y.dtype), y), attrs)


_convolve = _Convolved("conv", Convolution(), direct.convolve, im2col.convolve)
_correlate = _Convolved("conv_weight", ConvolutionWeight(), direct.convolve_weight, im2col.convolve_weight)


@_convolve.def_bprop
def _(
    starts: Tensor, places: Tensor, values: Tensor, weight: Tensor, _out: Tensor, dout: Tensor, *, count: Ints,
    **options: Any,
) -> Grads:  # fmt: skip
    size = weight.shape[2:]
    return None, None, refuse_gradient, lambda: _correlate.bind(starts, places, values, dout, size=size, **options)


@_correlate.def_bprop
def _(
    starts: Tensor, places: Tensor, values: Tensor, y: Tensor, _out: Tensor, dout: Tensor, *, size: Ints, **options: Any
) -> Grads:
    count = y.shape[2:]
    return None, None, refuse_gradient, lambda: _convolve.bind(starts, places, values, dout, count=count, **options)


def convolve_lists(lists: EventLists, weight: Tensor, name: str, **options: Any) -> Tensor:
    """Convolution of images (N, C, *S), given as event lists with one row per image."""
    if lists.rows != lists.shape[0]:
        raise ShapeError(
            f"{name}: event lists must be images (N, C, ...) with one row each; these of shape {lists.shape} have rows "
            f"of shape {lists.row_shape}. If they have a time axis, use nn.TimeDistributed(...)."
        )
    return _convolve.bind(*lists.operands(name), weight, shape=lists.shape, **options)
