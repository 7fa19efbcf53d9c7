"""Linear algebra on a GPU: products by cuBLAS, einsum, complex arrays, and Fourier transforms by cuFFT."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from snncell.kernels.cuda.arrays import DeviceArray, contiguous, dense, empty, refusal, zeros
from snncell.kernels.cuda.base import Matrix
from snncell.kernels.cuda.libraries import KINDS
from snncell.kernels.cuda.runtime import runtime
from snncell.kernels.space import DEVICE


def matmul(x: DeviceArray, y: DeviceArray, out: DeviceArray | None = None) -> DeviceArray:
    """`x @ y` over the last two axes with broadcast leading axes; the result is stored in `out`, if given."""
    if x.dtype.name not in KINDS:
        raise refusal(f"matmul of {x.dtype}")
    (m, k), n = x.shape[-2:], y.shape[-1]
    batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    target = empty((*batch, m, n), x.dtype) if out is None or not out.contiguous else out
    if not k:
        target = zeros(target.shape, x.dtype)
    elif target.size:
        spread = [array.broadcast_to((*batch, *array.shape[-2:])) for array in (x, y)]
        # Keep references to both operands until the launch: the pool could otherwise reuse one copy for the other.
        (a, _own), (b, _held) = map(_matrix, spread)
        product = Matrix(target.memory.block, target.offset * x.dtype.itemsize, n, m * n)
        runtime().matmul(product, a, b, (m, n, k), dtype=x.dtype, batch=math.prod(batch))
    if out is not None and target is not out:
        out[...] = target
    return target if out is None else out


def _matrix(array: DeviceArray) -> tuple[Matrix, DeviceArray]:
    """A batch of matrices as a cuBLAS operand; a copy if a leading dimension and a stride cannot describe it."""
    rows, columns = array.shape[-2:]
    flat = array.view((math.prod(array.shape[:-2]), rows, columns), (0, *array.strides[-2:]))
    if array.ndim > 2:
        flat = array.reshape(-1, rows, columns)
    stride, down, across = flat.strides
    size = array.dtype.itemsize
    if stride < 0:
        return _matrix(flat.copy())  # cuBLAS has no negative strides
    if (across == 1 or columns == 1) and (down >= columns or rows == 1):
        leading = max(down, columns) if rows > 1 else columns
        return Matrix(flat.memory.block, flat.offset * size, leading, stride), flat
    if (down == 1 or rows == 1) and (across >= rows or columns == 1):
        leading = max(across, rows) if columns > 1 else rows
        return Matrix(flat.memory.block, flat.offset * size, leading, stride, turned=True), flat
    return _matrix(flat.copy())


# --- einsum by sums, transposes and products of two operands ----------------------------------------------------------

# No operand has a letter twice, because `ops/linalg.py` turns a diagonal into a product with the identity.


def einsum(equation: str, arrays: Sequence[DeviceArray]) -> DeviceArray:
    """`np.einsum(equation, *arrays)`, with the contraction order that NumPy would choose."""
    left, out = equation.split("->")
    operands = list(zip(left.split(","), arrays, strict=True))
    while len(operands) > 1:
        for pair in _path(operands, out):
            taken = [operands.pop(place) for place in sorted(pair, reverse=True)]
            result = taken.pop()
            while taken:
                other = taken.pop()
                later = out + "".join(term for term, _ in (*operands, *taken))
                result = _product(result, other, later)
            operands.append(result)
    term, array = _sum_unneeded(operands[0], out)
    return array.transpose([term.index(letter) for letter in out]) if out else array


def _path(operands: list[tuple[str, DeviceArray]], out: str) -> list[tuple[int, ...]]:
    """The contraction order: positions of operands to multiply; each result is appended to the list."""
    if len(operands) == 2:
        return [(0, 1)]
    terms = ",".join(term for term, _ in operands)
    shapes = [np.broadcast_to(0.0, array.shape) for _, array in operands]
    path, _ = np.einsum_path(f"{terms}->{out}", *shapes, optimize="greedy")
    return list(path[1:])


def _sum_unneeded(operand: tuple[str, DeviceArray], later: str) -> tuple[str, DeviceArray]:
    """Sum an operand over the axes whose letters occur nowhere else."""
    term, array = operand
    axes = tuple(axis for axis, letter in enumerate(term) if letter not in later)
    return ("".join(letter for letter in term if letter in later), DEVICE.sum(array, axes)) if axes else operand


def _product(first: tuple[str, DeviceArray], second: tuple[str, DeviceArray], later: str) -> tuple[str, DeviceArray]:
    """Multiply two operands, and sum over the letters that only they have."""
    (a, x), (b, y) = _sum_unneeded(first, second[0] + later), _sum_unneeded(second, first[0] + later)
    lengths = dict(zip(a + b, x.shape + y.shape, strict=True))
    batch = [letter for letter in a if letter in b and letter in later]
    inner = [letter for letter in a if letter in b and letter not in later]
    rows = [letter for letter in a if letter not in b]
    columns = [letter for letter in b if letter not in a]
    count, n, k, m = (math.prod(lengths[letter] for letter in part) for part in (batch, rows, inner, columns))
    left = x.transpose([a.index(letter) for letter in (*batch, *rows, *inner)]).reshape((count, n, k))
    right = y.transpose([b.index(letter) for letter in (*batch, *inner, *columns)]).reshape((count, k, m))
    letters = [*batch, *rows, *columns]
    product = matmul(left, right).reshape(tuple(lengths[letter] for letter in letters))
    return "".join(letters), product


# --- Complex arrays, with views of their parts, and Fourier transforms ------------------------------------------------

_REAL = {"complex64": np.dtype(np.float32), "complex128": np.dtype(np.float64)}
_COMPLEX = {"float32": np.dtype(np.complex64), "float64": np.dtype(np.complex128)}


def real(x: DeviceArray, part: int = 0) -> DeviceArray:
    """A view of the real part, or with `part` 1 of the imaginary part."""
    strides = tuple(2 * step for step in x.strides)
    return DeviceArray(x.memory, 2 * x.offset + part, x.shape, strides, _REAL[x.dtype.name])


def imag(x: DeviceArray) -> DeviceArray:
    """A view of the imaginary part."""
    return real(x, 1)


def fft(x: DeviceArray, inverse: bool = False) -> DeviceArray:
    """The complex Fourier transform of the last axis, or its inverse."""
    out = _transform("c2c", x, x.shape[-1], x.shape[-1], x.dtype, inverse)
    return _divide_by_length(out, x.shape[-1]) if inverse else out


def rfft(x: DeviceArray) -> DeviceArray:
    """The Fourier transform of real numbers, without its redundant half."""
    length = x.shape[-1]
    return _transform("r2c", x, length, length // 2 + 1, _COMPLEX[x.dtype.name])


def irfft(x: DeviceArray, n: int) -> DeviceArray:
    """The inverse of `rfft`. As on the CPU, it ignores imaginary parts that would make the result complex."""
    source = x.copy()
    for place in {0, n // 2} if n % 2 == 0 else {0}:
        imag(source)[..., place] = zeros((), _REAL[x.dtype.name])
    return _divide_by_length(_transform("c2r", source, n, n, _REAL[x.dtype.name]), n)


def _transform(kind: str, x: DeviceArray, length: int, last: int, dtype: Any, inverse: bool = False) -> DeviceArray:
    source = contiguous(x)
    out = empty((*x.shape[:-1], last), dtype)
    first, target = ((a.memory.block, a.offset * a.dtype.itemsize) for a in (source, out))
    double = dtype.name in ("float64", "complex128")
    runtime().fft(kind, first, target, length, math.prod(x.shape[:-1]), double=double, inverse=inverse)
    return out


def _divide_by_length(x: DeviceArray, n: int) -> DeviceArray:
    """`x / n`, computed as on the CPU by a product with 1 / n."""
    if x.dtype.kind != "c":
        return DEVICE.times(x, 1 / n)  # type: ignore[no-any-return]
    parts = DeviceArray(x.memory, 2 * x.offset, (2 * x.size,), (1,), _REAL[x.dtype.name])
    times = DEVICE.times(parts, 1 / n)
    return DeviceArray(times.memory, times.offset // 2, x.shape, dense(x.shape), x.dtype)
