"""Lookups by integers: a thread for each element of the result.

Negative positions count from the end. One out of range gives NaN (-1 for integers, False for booleans) and places
nothing: who wants an error must look before, and wait for the answer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.kernels.cuda.arrays import DeviceArray, contiguous, empty
from snncell.kernels.cuda.elementwise import around, as_bits, bits_of, kernel, launch, parameters_of

_TAKE = """
p = i % inner
k = (i // inner) % many
o = i // (inner * many)
j = i8(index[o * by_row + k * by_place])
if j < 0:
    j += length
value = {cast}(outside)
if j >= 0 and j < length:
    value = x[(o * length + j) * inner + p]
out[i] = value
"""
_PLACE = """
p = i % inner
k = (i // inner) % length
o = i // (inner * length)
j = i8(index[o])
if j < 0:
    j += length
value = {cast}(0)
if j == k:
    value = x[o * inner + p]
out[i] = value
"""
_HOT = """
value = {cast}(0)
if i8(index[i // depth]) == i % depth:
    value = {cast}(1)
out[i] = value
"""


def take(x: DeviceArray, indices: DeviceArray, axis: int) -> DeviceArray:
    """`np.take(x, indices, axis)`."""
    out = empty((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), x.dtype)
    _take_along(x, indices, axis, out, indices.size, (0, 1))
    return out


def pick(x: DeviceArray, indices: DeviceArray) -> DeviceArray:
    """One element of the last axis for each place: x (..., n), indices (...) -> (...)."""
    out = empty(indices.shape, x.dtype)
    _take_along(x, indices, x.ndim - 1, out, 1, (1, 0))
    return out


def _take_along(
    x: DeviceArray, indices: DeviceArray, axis: int, out: DeviceArray, many: int, steps: tuple[int, int]
) -> None:
    bits, parts = bits_of(x)
    _, length, inner = around(x.shape, axis)
    arrays = (*_index(indices), ("x", (bits, False)), ("out", (bits, True)))
    compiled = kernel(
        "take", (*parameters_of("inner many length by_row by_place outside"), *arrays), _TAKE.format(cast=bits.code)
    )
    sizes = (inner * parts, many, length, *steps, 0 if x.dtype == np.bool_ else -1)
    operands = contiguous(indices), as_bits(contiguous(x)), as_bits(out)
    launch(compiled, out.size * parts, *sizes, *operands)


def place(x: DeviceArray, indices: DeviceArray, length: int) -> DeviceArray:
    """Zeros with a last axis of `length`, and `x` at `indices` along it."""
    bits, parts = bits_of(x)
    out = empty((*x.shape, length), x.dtype)
    arrays = (*_index(indices), ("x", (bits, False)), ("out", (bits, True)))
    compiled = kernel("place", (*parameters_of("inner length"), *arrays), _PLACE.format(cast=bits.code))
    operands = contiguous(indices), as_bits(contiguous(x)), as_bits(out)
    launch(compiled, out.size * parts, parts, length, *operands)
    return out


def one_hot(indices: DeviceArray, depth: int, dtype: Any) -> DeviceArray:
    """Ones at `indices` along a new last axis of `depth`, zeros elsewhere."""
    out = empty((*indices.shape, depth), dtype)
    kind = dtypes.BY_NUMPY[dtype]
    compiled = kernel(
        "one_hot", (*parameters_of("depth"), *_index(indices), ("out", (kind, True))), _HOT.format(cast=kind.code)
    )
    launch(compiled, out.size, depth, contiguous(indices), out)
    return out


def _index(indices: DeviceArray) -> tuple[tuple[str, Any], ...]:
    return (("index", (dtypes.BY_NUMPY[indices.dtype], False)),)
