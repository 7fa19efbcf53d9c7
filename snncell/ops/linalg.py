"""Matrix products, Einstein sums, and diagonals and triangles of matrices."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from snncell.base.arguments.kinds import Numbers
from snncell.compiler.ir.product import Contraction, Dot, Product
from snncell.dtype import BYTES
from snncell.errors import ArgumentError, ShapeError
from snncell.kernels import sums
from snncell.kernels.numba.threads import BLAS
from snncell.kernels.products import device as device_einsum
from snncell.ops import base as new, reduce, shape as sh
from snncell.ops.arithmetic import conj, where
from snncell.ops.base import Grads, as_int, as_tensor, is_number, number_or_tensor, same_dtype
from snncell.ops.event_lists import multiply_lists
from snncell.ops.padding import pad
from snncell.tape.event_lists import EventLists
from snncell.tape.primitive import Primitive
from snncell.tape.state import TRACING
from snncell.tape.tensor import Tensor, on_device_of, snapshot

__all__ = [
    "addbmm", "addmm", "addmv", "baddbmm", "bmm", "diag", "dot", "einsum", "inner", "mT", "matmul", "matrix_power",
    "mm", "mv", "outer", "trace", "tril", "triu",
]  # fmt: skip

_batched, _dot, _contraction, _turned = Product(), Dot(), Contraction(), Contraction(turned=True)
_batched.total = _dot.total = _contraction.total = _turned.total = reduce.sum_primitive
_contraction.other, _turned.other = _turned, _contraction


@_batched.def_bprop
def _(x: Tensor, y: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    # For the conjugates see `conj`. The tape sums gradients along broadcast batch axes.
    return lambda: matmul(dout, conj(sh.swapaxes(y, -1, -2))), lambda: matmul(conj(sh.swapaxes(x, -1, -2)), dout)


@_dot.def_bprop
def _(x: Tensor, y: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    def of_matrix() -> Tensor:
        # If y is column-major, such as w.T in a layer, compute the transposed product: the gradient of w then has the
        # memory layout of w. In a trace, `passes/products.py` makes this choice.
        if isinstance(y._data, np.ndarray) and y._data.flags.f_contiguous and not y._data.flags.c_contiguous:
            return sh.transpose(_turned.bind(conj(x), dout))
        return _contraction.bind(conj(x), dout)

    return lambda: _dot.bind(dout, conj(sh.transpose(y))), of_matrix


# Contraction sums over all axes but the last, `Dot` over the last, so the gradients of each use the other.
@_contraction.def_bprop
def _(x: Tensor, y: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    return lambda: _dot.bind(conj(y), sh.transpose(dout)), lambda: _dot.bind(conj(x), dout)


@_turned.def_bprop
def _(x: Tensor, y: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    return lambda: _dot.bind(conj(y), dout), lambda: _dot.bind(conj(x), sh.transpose(dout))


def matmul(x: Numbers | EventLists, y: Numbers) -> Tensor:
    """Matrix product over the last axis of `x` and the last but one of `y`; leading axes are a batch.

    Shapes are `(..., n, k) @ (..., k, m) -> (..., n, m)`, and batch axes broadcast. A vector counts as one row or
    column, and its axis is dropped from the result. `x` can be event lists whose rows are vectors, of shape (..., k);
    `y` must then have one or two axes. Other shapes raise a ShapeError.
    """
    if isinstance(x, EventLists):
        return multiply_lists(x, y)
    x, y = as_tensor(x, "matmul"), as_tensor(y, "matmul", "y")
    if not _bytes_and_floats(x, y):
        x, y = same_dtype([x, y], "matmul")
    if not x.ndim or not y.ndim:
        raise ShapeError(f"matmul: shapes {x.shape} and {y.shape}; use * to multiply by a number.")
    inner = y.shape[0] if y.ndim == 1 else y.shape[-2]
    if x.shape[-1] != inner:
        raise ShapeError(
            f"matmul: shapes {x.shape} and {y.shape} have inner lengths {x.shape[-1]} and {inner}; they must agree. "
            f"Transpose one of them?"
        )
    if x.ndim == 1:
        return sh.squeeze(matmul(sh.expand_dims(x, 0), y), -1 if y.ndim == 1 else -2)
    if y.ndim == 1:
        return sh.squeeze(matmul(x, sh.expand_dims(y, 1)), -1)
    if y.ndim == 2:
        return _dot.bind(x, y)
    try:
        np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    except ValueError:
        raise ShapeError(f"matmul: the batch axes of shapes {x.shape} and {y.shape} do not broadcast.") from None
    return _batched.bind(x, y)


def _bytes_and_floats(x: Tensor, y: Tensor) -> bool:
    """True for rows of bytes and a matrix of floats on the CPU. The kernel finds events in the bytes, and converts them
    only if there are too many. In a trace, `passes/products.py` does the same.
    """
    rows, matrix = x._data, y._data
    if TRACING.trace is not None or not isinstance(rows, np.ndarray) or not isinstance(matrix, np.ndarray):
        return False
    return rows.dtype in BYTES and rows.ndim > 1 and matrix.ndim == 2 and matrix.dtype in (np.float32, np.float64)


def bmm(x: Numbers, y: Numbers) -> Tensor:
    """Batched matrix product of `(b, n, k)` and `(b, k, m)`; other shapes raise a ShapeError."""
    x, y = as_tensor(x, "bmm"), as_tensor(y, "bmm", "y")
    if x.ndim != 3 or y.ndim != 3 or x.shape[0] != y.shape[0]:
        raise ShapeError(f"bmm: takes (b, n, k) and (b, k, m), not {x.shape} and {y.shape}.")
    return matmul(x, y)


# --- Einstein sums ----------------------------------------------------------------------------------------------------


_einsum = Primitive("einsum", lambda *arrays, equation: BLAS.run(sums.einsum, equation, *arrays))


def _einsum_of_steps(arrays: Sequence[Any], varying: Sequence[bool], attrs: dict[str, Any], *, summed: bool) -> Any:
    """The results of all time steps, or with `summed` their sum. The time axis gets a letter of its own."""
    left, out = attrs["equation"].split("->")
    letter = next(c for c in string.ascii_letters if c not in left)
    terms = [letter * varies + term for term, varies in zip(left.split(","), varying, strict=True)]
    return _einsum.run_here(arrays, arrays, {"equation": f"{','.join(terms)}->{out if summed else letter + out}"})


_einsum.over_time = partial(_einsum_of_steps, summed=False)
_einsum.summed = partial(_einsum_of_steps, summed=True)
_einsum.def_on_gpu(lambda *arrays, equation: device_einsum.einsum(equation, arrays))


@_einsum.def_bprop
def _(*args: Any, equation: str) -> Grads:
    *operands, _, dout = args
    left, out = equation.split("->")
    terms = left.split(",")

    def gradient(position: int) -> Tensor:
        others = [conj(x) for i, x in enumerate(operands) if i != position]
        other_terms = [term for i, term in enumerate(terms) if i != position]
        # If a letter occurs only in this operand, the forward pass sums over it, so the gradient is constant along it.
        for letter, length in zip(terms[position], operands[position].shape, strict=True):
            if letter not in out and not any(letter in term for term in other_terms):
                with on_device_of(dout):
                    others.append(new.ones((length,), dout.dtype))
                other_terms.append(letter)
        spread = f"{','.join([out, *other_terms])}->{terms[position]}"
        return _einsum.bind(dout, *others, equation=spread)

    return [lambda i=i: gradient(i) for i in range(len(operands))]  # `i=i`: a closure would see the last i


def einsum(equation: str, *operands: Numbers) -> Tensor:
    """Einstein summation: the sum of products that `equation` describes, for example "ij,jk->ik" for a matrix product.

    Letters that are missing on the right side are summed. A letter that occurs twice in an operand takes its diagonal,
    and `...` stands for all axes without a letter. Without "->" the result has the letters that occur once, in
    alphabetical order. Long float32 sums are accurate to 1e-6, except in products, where BLAS accumulates in float32.

    Example:
        >>> x, w = Tensor([1.0, 2.0]), ops.ones((2, 2, 3))
        >>> ops.einsum("ijk,i,j->k", w, x, x)  # y_k = sum_ij w_ijk x_i x_j
        Tensor(shape=[3], dtype=Float32, value= [ 9.00000000e+00,  9.00000000e+00,  9.00000000e+00])
    """
    tensors = same_dtype([as_tensor(x, "einsum") for x in operands], "einsum") if operands else []
    terms, out = _expand_ellipsis(equation, tensors)
    lengths: dict[str, int] = {}
    for position, (term, x) in enumerate(zip(terms, tensors, strict=True)):
        for letter, length in zip(term, x.shape, strict=True):
            if lengths.setdefault(letter, length) != length:
                raise ShapeError(
                    f"einsum({equation!r}): {letter!r} has length {length} in operand {position} of shape {x.shape}, "
                    f"but length {lengths[letter]} in an earlier axis."
                )
    for position, term in enumerate(terms):
        for letter in dict.fromkeys(term):
            while terms[position].count(letter) > 1:  # merge its first two axes to their diagonal, the last axis
                first, second = [place for place, one in enumerate(terms[position]) if one == letter][:2]
                tensors[position] = sh.diagonal(tensors[position], 0, first, second)
                terms[position] = terms[position].replace(letter, "", 2) + letter
    return _einsum.bind(*tensors, equation=f"{','.join(terms)}->{out}")


def _stretch(terms: list[str], tensors: list[Tensor], dots: list[str]) -> None:
    """Broadcast the axes under `...` that have length 1 to their length in the other operands."""
    lengths: dict[str, int] = {}
    for term, x in zip(terms, tensors, strict=True):
        for letter, n in zip(term, x.shape, strict=True):
            # A length of 1 broadcasts to any other length, including 0.
            lengths[letter] = max(n, lengths.get(letter, n)) if 0 not in (n, lengths.get(letter)) else 0
    for position, (term, x) in enumerate(zip(terms, tensors, strict=True)):
        pairs = zip(term, x.shape, strict=True)
        shape = tuple(lengths[letter] if letter in dots and n == 1 else n for letter, n in pairs)
        tensors[position] = sh.broadcast_to(x, shape)


def _expand_ellipsis(equation: str, tensors: list[Tensor]) -> tuple[list[str], str]:
    """The letters of each operand and of the result, with `...` replaced by letters."""
    if not isinstance(equation, str):
        raise ArgumentError(f"einsum: the first argument is the equation, a str, not {equation!r}.")
    left, arrow, out = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(tensors):
        raise ArgumentError(f"einsum({equation!r}): {len(terms)} operand(s) in the equation, {len(tensors)} given.")
    named = set(equation) & set(string.ascii_letters)
    spare = [c for c in string.ascii_letters if c not in named]
    hidden = [x.ndim - len(term.replace("...", "")) for term, x in zip(terms, tensors, strict=True)]
    for position, (term, x) in enumerate(zip(terms, tensors, strict=True)):
        letters = set(term.replace("...", ""))
        if not letters <= set(string.ascii_letters) or hidden[position] < 0 or (hidden[position] and "..." not in term):
            raise ArgumentError(f"einsum({equation!r}): {term!r} does not fit operand {position} of shape {x.shape}.")
    widest = max(hidden)
    for position, term in enumerate(terms):  # operands with fewer axes get the last letters
        terms[position] = term.replace("...", "".join(spare[widest - hidden[position] : widest]))
    _stretch(terms, tensors, spare[:widest])
    dots = "".join(spare[:widest])
    if not arrow:
        joined = "".join(terms)
        out = dots + "".join(sorted(c for c in named if joined.count(c) == 1))
    out = out.replace("...", dots)
    if len(set(out)) != len(out) or not set(out) <= set("".join(terms)):
        raise ArgumentError(
            f"einsum({equation!r}): the result's letters {out!r} must each occur once, and on the left."
        )
    return terms, out


# --- Diagonals and triangles ------------------------------------------------------------------------------------------


def trace(x: Numbers) -> Tensor:
    """Trace of a matrix: the sum of its diagonal. Anything but two axes raises a ShapeError."""
    return reduce.sum(sh.diagonal(_as_matrix(x, "trace")))


def diag(x: Numbers, diagonal: int = 0) -> Tensor:
    """Make a diagonal matrix from a vector (N,), or take the diagonal of a matrix (N, M). `diagonal` is its offset;
    positive numbers are above the main diagonal.
    """
    tensor, shift = as_tensor(x, "diag"), as_int(diagonal, "diag", "diagonal")
    if tensor.ndim == 2:
        return sh.diagonal(tensor, shift)
    if tensor.ndim != 1:
        raise ShapeError(f"diag: takes (N,) or (N, M), but the shape is {tensor.shape}.")
    n = tensor.size + abs(shift)
    padded = pad(tensor, (abs(shift), 0)) if shift else tensor
    # Select instead of multiplying by 0 and 1, because infinity times 0 is NaN.
    line = sh.reshape(padded, (1, n) if shift >= 0 else (n, 1))
    return where(new.array_beside(np.eye(n, k=shift, dtype=bool), tensor), line, _zero(tensor))


def tril(x: Numbers, diagonal: int = 0) -> Tensor:
    """Lower triangle of matrices (..., N, M) up to a diagonal (an offset as in `diag`), with zeros above it."""
    return _triangle(x, diagonal, np.tril)


def triu(x: Numbers, diagonal: int = 0) -> Tensor:
    """Upper triangle of matrices (..., N, M) from a diagonal (an offset as in `diag`) on, with zeros below it."""
    return _triangle(x, diagonal, np.triu)


def _triangle(x: Numbers, shift: int, part: Any) -> Tensor:
    tensor = as_tensor(x, part.__name__)
    if tensor.ndim < 2:
        raise ShapeError(f"{part.__name__}: takes matrices (..., N, M), but the shape is {tensor.shape}.")
    mask = part(np.ones(tensor.shape[-2:], bool), as_int(shift, part.__name__, "diagonal"))
    return where(new.array_beside(mask, tensor), tensor, _zero(tensor))


def _zero(x: Tensor) -> bool | int:
    return False if x.dtype.category == 0 else 0


def mT(x: Numbers) -> Tensor:  # noqa: N802 (NumPy's name)
    """Matrix transpose: swap the last two axes of (..., N, M)."""
    tensor = as_tensor(x, "mT")
    if tensor.ndim < 2:
        raise ShapeError(f"mT: takes matrices (..., N, M), but the shape is {tensor.shape}.")
    return sh.swapaxes(tensor, -1, -2)


# --- Products ---------------------------------------------------------------------------------------------------------


def outer(x: Numbers, vec2: Numbers) -> Tensor:
    """Outer product of vectors: (N,) and (M,) give (N, M). Other shapes raise a ShapeError."""
    a, b = as_tensor(x, "outer"), as_tensor(vec2, "outer", "vec2")
    if a.ndim != 1 or b.ndim != 1:
        raise ShapeError(f"outer: takes two vectors, not shapes {a.shape} and {b.shape}.")
    return sh.reshape(a, (a.size, 1)) * b


def inner(x: Numbers, other: Numbers) -> Tensor:
    """Inner product over last axes of equal length: (*A, N) and (*B, N) give (*A, *B). A number multiplies `other`."""
    a, b = _as_operands(x, other, "inner")
    if not a.ndim or not b.ndim:
        return a * b
    if a.shape[-1] != b.shape[-1]:
        raise ShapeError(f"inner: the last axes of shapes {a.shape} and {b.shape} differ; they must be equal.")
    flat = matmul(_flatten_to_rows(a), sh.transpose(_flatten_to_rows(b)))
    return sh.reshape(flat, (*a.shape[:-1], *b.shape[:-1]))


def dot(x: Numbers, other: Numbers) -> Tensor:
    """NumPy's dot product: the sum over the last axis of `x` and the last but one (or only) axis of `other`."""
    a, b = _as_operands(x, other, "dot")
    if a.ndim < 2 and b.ndim < 2:
        return inner(a, b)
    return inner(a, b if b.ndim < 2 else sh.moveaxis(b, -2, -1))


def _as_operands(x: Numbers, other: Numbers, name: str) -> tuple[Tensor, Tensor]:
    a, b = same_dtype([as_tensor(x, name), as_tensor(other, name, "other")], name)
    return a, b


def _flatten_to_rows(x: Tensor) -> Tensor:
    return sh.reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))


def mm(x: Numbers, mat2: Numbers) -> Tensor:
    """Matrix product of (N, K) and (K, M); other shapes raise a ShapeError."""
    return matmul(_as_matrix(x, "mm"), _as_matrix(mat2, "mm", "mat2"))


def mv(x: Numbers, vec: Numbers) -> Tensor:
    """Product of a matrix (N, K) and a vector (K,); other shapes raise a ShapeError."""
    vector = as_tensor(vec, "mv", "vec")
    if vector.ndim != 1:
        raise ShapeError(f"mv: vec is a vector (K,), but the shape is {vector.shape}.")
    return matmul(_as_matrix(x, "mv"), vector)


def addmm(x: Numbers, mat1: Numbers, mat2: Numbers, *, beta: Numbers = 1, alpha: Numbers = 1) -> Tensor:
    """beta * x + alpha * (mat1 @ mat2), for matrices."""
    return _plus(x, mm(mat1, mat2), beta, alpha, "addmm")


def addmv(x: Numbers, mat: Numbers, vec: Numbers, *, beta: Numbers = 1, alpha: Numbers = 1) -> Tensor:
    """beta * x + alpha * (mat @ vec), for a matrix and a vector."""
    return _plus(x, mv(mat, vec), beta, alpha, "addmv")


def baddbmm(x: Numbers, batch1: Numbers, batch2: Numbers, *, beta: Numbers = 1, alpha: Numbers = 1) -> Tensor:
    """beta * x + alpha * (batch1 @ batch2), for batches of matrices (B, N, K) and (B, K, M)."""
    return _plus(x, bmm(batch1, batch2), beta, alpha, "baddbmm")


def addbmm(x: Numbers, batch1: Numbers, batch2: Numbers, *, beta: Numbers = 1, alpha: Numbers = 1) -> Tensor:
    """beta * x + alpha * (sum over the batch of batch1 @ batch2), for (B, N, K) and (B, K, M)."""
    return _plus(x, reduce.sum(bmm(batch1, batch2), 0), beta, alpha, "addbmm")


def _plus(x: Numbers, product: Tensor, beta: Numbers, alpha: Numbers, name: str) -> Tensor:
    base = as_tensor(x, name)
    factors = [number_or_tensor(n, name, of) for n, of in ((beta, "beta"), (alpha, "alpha"))]
    # A factor of 0 drops its term even if that contains NaN, as in BLAS.
    left, right = (
        None if is_number(n, 0) else side if is_number(n, 1) else side * n
        for n, side in zip(factors, (base, product), strict=True)
    )
    if left is None:
        return product * 0 if right is None else snapshot(right)
    result: Tensor = left if right is None else left + right
    return snapshot(result)


def _as_matrix(x: Numbers, name: str, argument: str = "x") -> Tensor:
    tensor = as_tensor(x, name, argument)
    if tensor.ndim != 2:
        raise ShapeError(f"{name}: takes matrices (N, M), but the shape of {argument} is {tensor.shape}.")
    return tensor


def matrix_power(x: Numbers, n: int) -> Tensor:
    """Power of square matrices (..., N, N) by repeated squaring. n = 0 gives the identity, n < 0 an ArgumentError."""
    tensor, power = as_tensor(x, "matrix_power"), as_int(n, "matrix_power", "n")
    if tensor.ndim < 2 or tensor.shape[-1] != tensor.shape[-2]:
        raise ShapeError(f"matrix_power: takes square matrices (..., N, N), but the shape is {tensor.shape}.")
    if power < 0:
        raise ArgumentError(f"matrix_power: n must be at least 0, not {power}. Invert first, with np.linalg.inv.")
    result, square = None, tensor
    while power:
        if power & 1:
            result = square if result is None else matmul(result, square)
        power >>= 1
        square = matmul(square, square) if power else square
    if result is None:
        identity = new.array_beside(np.eye(tensor.shape[-1], dtype=tensor.dtype.dtype), tensor)
        return sh.broadcast_to(identity, tensor.shape)
    return snapshot(result)
