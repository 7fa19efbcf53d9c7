"""Parts of matrices, and products in the words of BLAS, made of shape operations and `matmul`."""

from __future__ import annotations

import math

import numpy as np

from snncell.base.arguments.kinds import Numbers
from snncell.errors import ArgumentError, ShapeError
from snncell.ops import linalg, reduce, shape as sh
from snncell.ops.base import as_int, as_tensor, number_or_tensor, same_dtype
from snncell.ops.logic import where
from snncell.ops.padding import pad
from snncell.ops.rearrange import diagonal, moveaxis
from snncell.tape.tensor import Tensor, beside, snapshot

# --- diagonals and triangles ------------------------------------------------------------------------------------------


def trace(x: Numbers) -> Tensor:
    """The sum of the diagonal of a matrix.

    Raises:
        ShapeError: for anything but two axes.
    """
    return reduce.sum(diagonal(_matrix(x, "trace")))


def diag(x: Numbers, diagonal: int = 0) -> Tensor:
    """Of a vector the matrix with it as its diagonal, of a matrix its diagonal.

    Args:
        x: (N,) or (N, M).
        diagonal: which one; above the main one if it is positive.

    Raises:
        ShapeError: for another number of axes.
    """
    tensor, shift = as_tensor(x, "diag"), as_int(diagonal, "diag", "diagonal")
    if tensor.ndim == 2:
        return _diagonal(tensor, shift)
    if tensor.ndim != 1:
        raise ShapeError(f"diag: takes (N,) or (N, M), the shape is {tensor.shape}.")
    n = tensor.size + abs(shift)
    padded = pad(tensor, (abs(shift), 0)) if shift else tensor
    # Selected, not multiplied by 0 and 1: infinities stay where they are.
    line = sh.reshape(padded, (1, n) if shift >= 0 else (n, 1))
    result: Tensor = where(_beside(np.eye(n, k=shift, dtype=bool), tensor), line, _zero(tensor))
    return result


_diagonal = diagonal  # which an argument of `diag` hides


def tril(x: Numbers, diagonal: int = 0) -> Tensor:
    """The lower triangle of matrices (..., N, M), up to a diagonal; 0 above it."""
    return _triangle(x, diagonal, False, "tril")


def triu(x: Numbers, diagonal: int = 0) -> Tensor:
    """The upper triangle of matrices (..., N, M), from a diagonal on; 0 below it."""
    return _triangle(x, diagonal, True, "triu")


def _triangle(x: Numbers, shift: int, upper: bool, name: str) -> Tensor:
    tensor = as_tensor(x, name)
    if tensor.ndim < 2:
        raise ShapeError(f"{name}: takes matrices (..., N, M), the shape is {tensor.shape}.")
    ones = np.ones(tensor.shape[-2:], bool)
    offset = as_int(shift, name, "diagonal")
    mask = np.triu(ones, offset) if upper else np.tril(ones, offset)
    result: Tensor = where(_beside(mask, tensor), tensor, _zero(tensor))
    return result


def _zero(x: Tensor) -> bool | int:
    return False if x.dtype.category == 0 else 0


def _beside(array: np.ndarray, x: Tensor) -> Tensor:
    with beside(x):
        return Tensor(array)


def mT(x: Numbers) -> Tensor:  # noqa: N802 (NumPy's name)
    """Matrices (..., N, M) transposed."""
    tensor = as_tensor(x, "mT")
    if tensor.ndim < 2:
        raise ShapeError(f"mT: takes matrices (..., N, M), the shape is {tensor.shape}.")
    return sh.swapaxes(tensor, -1, -2)


# --- products ---------------------------------------------------------------------------------------------------------


def outer(x: Numbers, vec2: Numbers) -> Tensor:
    """The products of each element of a vector with each of another: (N,) and (M,) give (N, M).

    Raises:
        ShapeError: for anything but vectors.
    """
    a, b = as_tensor(x, "outer"), as_tensor(vec2, "outer", "vec2")
    if a.ndim != 1 or b.ndim != 1:
        raise ShapeError(f"outer: takes two vectors, not shapes {a.shape} and {b.shape}.")
    product: Tensor = sh.reshape(a, (a.size, 1)) * b
    return product


def inner(x: Numbers, other: Numbers) -> Tensor:
    """Sums of products over the last axis of both: (..., N) and (--, N) give (..., --); numbers are multiplied.

    Raises:
        ShapeError: if the last axes differ.
    """
    a, b = _operands(x, other, "inner")
    if not a.ndim or not b.ndim:
        product: Tensor = a * b
        return product
    if a.shape[-1] != b.shape[-1]:
        raise ShapeError(f"inner: the last axes of shapes {a.shape} and {b.shape} differ.")
    flat = linalg.matmul(_rows(a), sh.transpose(_rows(b)))
    return sh.reshape(flat, (*a.shape[:-1], *b.shape[:-1]))


def dot(x: Numbers, other: Numbers) -> Tensor:
    """Sums of products over the last axis of `x` and the last but one of `other`: NumPy's dot.

    Raises:
        ShapeError: if these differ.
    """
    a, b = _operands(x, other, "dot")
    if a.ndim < 2 and b.ndim < 2:
        return inner(a, b)
    return inner(a, b if b.ndim < 2 else moveaxis(b, -2, -1))


def _operands(x: Numbers, other: Numbers, name: str) -> tuple[Tensor, Tensor]:
    a, b = same_dtype([as_tensor(x, name), as_tensor(other, name, "other")], name)
    return a, b


def _rows(x: Tensor) -> Tensor:
    return sh.reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))


def mm(x: Numbers, mat2: Numbers) -> Tensor:
    """The product of two matrices, (N, K) and (K, M).

    Raises:
        ShapeError: for other numbers of axes, or inner lengths that differ.
    """
    return linalg.matmul(_matrix(x, "mm"), _matrix(mat2, "mm", "mat2"))


def mv(x: Numbers, vec: Numbers) -> Tensor:
    """The product of a matrix (N, K) and a vector (K,).

    Raises:
        ShapeError: for other numbers of axes, or lengths that differ.
    """
    vector = as_tensor(vec, "mv", "vec")
    if vector.ndim != 1:
        raise ShapeError(f"mv: vec is a vector (K,), the shape is {vector.shape}.")
    return linalg.matmul(_matrix(x, "mv"), vector)


def addmm(x: Numbers, mat1: Numbers, mat2: Numbers, *, beta: Numbers = 1, alpha: Numbers = 1) -> Tensor:
    """beta * x + alpha * (mat1 @ mat2), of matrices."""
    return _plus(x, mm(mat1, mat2), beta, alpha, "addmm")


def addmv(x: Numbers, mat: Numbers, vec: Numbers, *, beta: Numbers = 1, alpha: Numbers = 1) -> Tensor:
    """beta * x + alpha * (mat @ vec), of a matrix and a vector."""
    return _plus(x, mv(mat, vec), beta, alpha, "addmv")


def baddbmm(x: Numbers, batch1: Numbers, batch2: Numbers, *, beta: Numbers = 1, alpha: Numbers = 1) -> Tensor:
    """beta * x + alpha * (batch1 @ batch2), of batches of matrices (B, N, K) and (B, K, M)."""
    return _plus(x, linalg.bmm(batch1, batch2), beta, alpha, "baddbmm")


def addbmm(x: Numbers, batch1: Numbers, batch2: Numbers, *, beta: Numbers = 1, alpha: Numbers = 1) -> Tensor:
    """beta * x + alpha * the sum over the batch of batch1 @ batch2, (B, N, K) and (B, K, M)."""
    return _plus(x, reduce.sum(linalg.bmm(batch1, batch2), 0), beta, alpha, "addbmm")


def _plus(x: Numbers, product: Tensor, beta: Numbers, alpha: Numbers, name: str) -> Tensor:
    base = as_tensor(x, name)
    factors = [number_or_tensor(n, name, of) for n, of in ((beta, "beta"), (alpha, "alpha"))]
    # A factor of 0 leaves its side out, NaN in it too, as BLAS has it.
    left, right = (
        None if _is(n, 0) else side if _is(n, 1) else side * n for n, side in zip(factors, (base, product), strict=True)
    )
    if left is None:
        return product * 0 if right is None else snapshot(right)
    result: Tensor = left if right is None else left + right
    return snapshot(result)


def _is(number: object, value: int) -> bool:
    return type(number) in (int, float) and number == value


def _matrix(x: Numbers, name: str, argument: str = "x") -> Tensor:
    tensor = as_tensor(x, name, argument)
    if tensor.ndim != 2:
        raise ShapeError(f"{name}: takes matrices (N, M), the shape of {argument} is {tensor.shape}.")
    return tensor


def matrix_power(x: Numbers, n: int) -> Tensor:
    """Square matrices (..., N, N) multiplied by themselves n times, by repeated squaring; of n = 0 the identity.

    Raises:
        ShapeError: for matrices that are not square.
        ArgumentError: for a negative n, which asks for an inverse.
    """
    tensor, power = as_tensor(x, "matrix_power"), as_int(n, "matrix_power", "n")
    if tensor.ndim < 2 or tensor.shape[-1] != tensor.shape[-2]:
        raise ShapeError(f"matrix_power: takes square matrices (..., N, N), the shape is {tensor.shape}.")
    if power < 0:
        raise ArgumentError(f"matrix_power: n is at least 0, not {power}; invert first, with np.linalg.inv.")
    result, square = None, tensor
    while power:
        if power & 1:
            result = square if result is None else linalg.matmul(result, square)
        power >>= 1
        square = linalg.matmul(square, square) if power else square
    if result is None:
        identity = _beside(np.eye(tensor.shape[-1], dtype=tensor.dtype.dtype), tensor)
        return sh.broadcast_to(identity, tensor.shape)
    return snapshot(result)
