"""Lookups by integers that differ from row to row of what they look into, in NumPy.

Each row is (A, n, B), with positions (I) along n; A, I and B stand for any axes, and rows are the first axis of all.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def take(x: Any, indices: Any, axis: int) -> Any:
    """The elements at each row's positions along axis n: x (rows, A, n, B), indices (rows, I) -> (rows, A, I, B)."""
    inner = indices.ndim - 1
    taken = _row_first(x, axis)[_rows(indices), indices]  # (rows, I, A, B)
    return back(first(taken, 1, inner), axis + 1, inner)


def add(x: Any, indices: Any, axis: int, shape: tuple[int, ...]) -> Any:
    """Zeros (rows, *shape) with each row's elements added at its positions: x (rows, A, I, B), indices (rows, I)."""
    out = np.zeros((len(x), *shape), x.dtype)
    inner = indices.ndim - 1
    np.add.at(_row_first(out, axis), (_rows(indices), indices), back(first(x, axis + 1, inner), 1, inner))
    return out


def _row_first(x: Any, axis: int) -> Any:
    return back(first(x, axis + 1), 1)  # (rows, n, A, B)


def _rows(indices: Any) -> Any:
    return np.arange(len(indices)).reshape(len(indices), *(1,) * (indices.ndim - 1))


def first(x: Any, axis: int, count: int = 1) -> Any:
    """`x` with `count` axes from `axis` on in front, as a view."""
    moved = range(axis, axis + count)
    return x.transpose((*moved, *(a for a in range(x.ndim) if a not in moved)))


def back(x: Any, axis: int, count: int = 1) -> Any:
    """`x` with its first `count` axes at `axis`, as a view: the inverse of `first`."""
    return x.transpose((*range(count, count + axis), *range(count), *range(count + axis, x.ndim)))
