"""Sums on the CPU with a rounding error that does not grow with the number of terms.

A running float32 sum loses up to half a unit in the last place with every term. For example, the sum of a million
times 0.1 is wrong by 1 %, and a count stops at 2**24. NumPy uses pairwise summation only along the last axis. Therefore
a sum along other axes has two levels here: NEAR terms are added in the dtype of the elements, then these partial sums
in float64. The relative error of a float32 sum of terms with one sign stays below 1e-6, without a float64 copy of a
large array.

Terms keep their order and blocks their positions, so that zeros after the last term do not change the bits. For
example, a padded sequence has the same sum as the sequence. Generated loops do the same (`kernels/loops.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import reduce
from typing import Any

import numpy as np

from snncell.dtype import far
from snncell.kernels.arrays import empty

NEAR = 32  # terms that are added in the dtype of the elements before they are added in float64
LONG = 64  # up to this number of terms, NumPy's einsum is used directly
CHUNK = 1 << 15  # elements that are converted to float64 at a time
WIDE = 256  # from this row length on, a NumPy call per row is worth its overhead

add: Any = np.add.reduce  # Any, because NumPy's stubs do not allow a bool variable as `keepdims`


def total(x: Any, axis: Iterable[int] | None = None, keepdims: bool = False) -> Any:
    """`np.sum(x, axis, x.dtype, keepdims=keepdims)` with a bounded rounding error."""
    kind, shape, contiguous = x.dtype, x.shape, x.flags.c_contiguous
    axes = tuple(range(x.ndim)) if axis is None else tuple(axis)
    first = min(axes, default=0)
    in_pairs = contiguous and first >= x.ndim - len(axes)
    if kind == far(kind) or in_pairs or (terms := math.prod([shape[a] for a in axes])) <= NEAR:
        return add(x, axes, kind, keepdims=keepdims)
    if contiguous and not keepdims and max(axes) < len(axes):  # leading axes, for example the gradient of a bias
        return _middle(x.reshape(1, terms, -1)).astype(kind).reshape(shape[len(axes) :])
    order = range(x.ndim) if contiguous else sorted(range(x.ndim), key=lambda a: -abs(x.strides[a]))
    out = _by_runs(x.transpose(order), [a in axes for a in order]).astype(kind, copy=False)
    left = [a for a in order if a not in axes]
    if left != sorted(left):
        out = out.transpose(np.argsort(left))
    return np.expand_dims(out, axes) if keepdims else out


def _by_runs(x: Any, summed: list[bool]) -> Any:
    """Sum along the `summed` axes in float64, one run of neighbouring axes at a time, the innermost first."""
    if not x.flags.c_contiguous:
        return add(x, tuple(a for a, own in enumerate(summed) if own), far(x.dtype))
    shape, end = x.shape, x.ndim
    kept: tuple[int, ...] = ()
    while end:  # find the run of axes before `end` that are all summed or all kept
        first = end
        while first and summed[first - 1] == summed[end - 1]:
            first -= 1
        run = shape[first:end]
        if summed[end - 1]:
            lead, n, inner = math.prod(shape[:first]), math.prod(run), math.prod(kept)
            x = _middle(x.reshape(lead, n, inner)) if kept else add(x.reshape(lead, n), 1, x.dtype)
        else:
            kept = (*run, *kept)
        end = first
    return x.reshape(kept)


def _middle(x: Any) -> Any:
    lead, n, inner = x.shape
    whole = n - n % NEAR
    terms = (x if whole == n else x[:, :whole]).reshape(lead, whole // NEAR, NEAR, inner)
    out = add(add(terms, 2), 1, far(x.dtype))
    return out if whole == n else out + add(x[:, whole:], 1)


def running(x: Any, axis: int) -> Any:
    """`np.cumsum(x, axis, x.dtype)` with a float64 carry."""
    kind, wide = x.dtype, far(x.dtype)
    if kind == wide or x.size <= CHUNK:
        return np.cumsum(x, axis, wide).astype(kind, copy=False)
    lead, n, inner = math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :])
    out = empty(x.shape, kind)
    x, result = x.reshape(lead, n, inner), out.reshape(lead, n, inner)
    if inner >= WIDE:
        total = np.zeros((lead, inner), wide)
        for place in range(n):
            total += x[:, place]
            result[:, place] = total
        return out
    rows = min(n, CHUNK // inner)
    lines = max(1, CHUNK // (n * inner))
    for first in range(0, lead, lines):
        carry: Any = 0
        for top in range(0, n, rows):
            part = slice(first, first + lines), slice(top, top + rows)
            terms = x[part].astype(wide)
            terms[:, 0] += carry
            result[part] = np.cumsum(terms, 1, out=terms)
            carry = terms[:, -1].copy()
    return out


def einsum(equation: str, *arrays: Any) -> Any:
    """`np.einsum(equation, *arrays)` with blocked sums, except where it is a matrix product."""
    kind, (left, out) = arrays[0].dtype, equation.split("->")
    terms = left.split(",")
    axes_of = [zip(term, x.shape, strict=True) for term, x in zip(terms, arrays, strict=True)]
    lengths = {letter: n for axes in axes_of for letter, n in axes}
    summed = [letter for letter in lengths if letter not in out]
    if kind == far(kind) or math.prod([lengths[letter] for letter in summed]) <= LONG:
        return np.einsum(equation, *arrays, optimize=len(arrays) > 1)
    operands = []
    for term, x in zip(terms, arrays, strict=True):
        own = [axis for axis, letter in enumerate(term) if letter in summed and left.count(letter) == 1]
        operands.append(total(x, own) if own else x)
    terms = ["".join(c for c in term if c in out or left.count(c) > 1) for term in terms]
    shared = [letter for letter in summed if any(letter in term for term in terms)]
    size = math.prod([lengths[letter] for letter in (*shared, *out)])
    if not shared or size > 2 * max([np.size(x) for x in operands]):  # a matrix product, which BLAS computes
        return np.einsum(f"{','.join(terms)}->{out}", *operands, optimize=len(operands) > 1)
    # Multiply elementwise, a part at a time, with the axes in the order of the largest operand.
    largest = max(zip(terms, operands, strict=True), key=lambda pair: np.size(pair[1]))[0]
    order = "".join(dict.fromkeys(largest + "".join(terms)))
    aligned = []
    for term, x in zip(terms, operands, strict=True):
        turned = np.transpose(x, [term.index(letter) for letter in order if letter in term])
        aligned.append(np.expand_dims(turned, [axis for axis, letter in enumerate(order) if letter not in term]))
    axes = [axis for axis, letter in enumerate(order) if letter in shared]
    along = min(axes, key=lambda axis: (-lengths[order[axis]], axis))
    n = lengths[order[along]]
    step = max(1, 8 * CHUNK * n // max(size, 1))
    result: Any = 0
    for first in range(0, n, step):
        part = (*(slice(None),) * along, slice(first, first + step))
        cut = [x[part] if x.shape[along] > 1 else x for x in aligned]
        result = result + total(reduce(np.multiply, cut), axes).astype(far(kind))
    left_over = "".join(letter for letter in order if letter in out)
    return np.einsum(f"{left_over}->{out}", result.astype(kind))
