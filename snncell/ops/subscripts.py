"""Indexing by NumPy's rules: `x[...]` with integers, slices, None, lists and Tensors of positions, and masks."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from snncell.errors import TensorIndexError
from snncell.ops import shape as sh
from snncell.ops.indexing import gather, getitem_primitive
from snncell.ops.positions import take_points
from snncell.ops.rearrange import ravel
from snncell.tape.tensor import Tensor, beside


def getitem(x: Tensor, index: Any) -> Tensor:
    """`x[index]` by NumPy's rules.

    Positions in lists, arrays or Tensors, and masks of booleans, give copies. How many elements a mask chooses depends
    on its values, so in a traced function a mask that is computed there is refused.

    Raises:
        TensorIndexError: for an index out of range, or that is none.
        TraceError: for a mask, or positions beside slices, that a traced function computes.
    """
    parts = index if isinstance(index, tuple) else (index,)
    if not any(_is_array(part) for part in parts):
        result: Tensor = getitem_primitive.bind(x, index=tuple([_basic(part) for part in parts]))
        return result
    with beside(x):
        given = [_positions(part) if _is_array(part) else part for part in parts]
    if all(isinstance(part, Tensor) and part.dtype.category == 1 for part in given) and len(given) <= x.ndim:
        return gather(x, given[0], 0) if len(given) == 1 else take_points(x, given, "x[...]")
    if len(given) == 1:
        return _rows(x, given[0])
    plain = tuple(part._concrete("x[mask]") if isinstance(part, Tensor) else _basic(part) for part in given)
    try:
        places = np.arange(x.size).reshape(x.shape)[plain]
    except IndexError as error:
        raise TensorIndexError(f"A Tensor of shape {x.shape}: {error}.") from None
    with beside(x):
        return gather(ravel(x), Tensor(places))


def _is_array(part: Any) -> bool:
    return isinstance(part, (list, np.ndarray)) or (isinstance(part, Tensor) and part.ndim > 0)


def _positions(part: Any) -> Tensor:
    index = part if isinstance(part, Tensor) else Tensor(part, "int64" if np.size(part) == 0 else None)
    if index.dtype.category > 1:
        raise TensorIndexError(
            f"A Tensor cannot be indexed by a Tensor of dtype {index.dtype}: positions are integers, "
            f"x.astype('int64'), and masks booleans, x > 0."
        )
    return index


def _rows(x: Tensor, mask: Tensor) -> Tensor:
    """The elements, or slices, for which a mask over the first axes is true."""
    if mask.shape != x.shape[: mask.ndim]:
        raise TensorIndexError(
            f"A mask of shape {mask.shape} is none of the first axes of a Tensor of shape {x.shape}."
        )
    chosen = np.flatnonzero(mask._concrete("x[mask]"))
    slices = sh.reshape(x, (math.prod(mask.shape), *x.shape[mask.ndim :]))
    with beside(x):
        return gather(slices, Tensor(chosen), 0)


def _basic(part: Any) -> Any:
    if part is None or part is Ellipsis:
        return part
    if isinstance(part, slice):
        bounds = [None if bound is None else _position(bound) for bound in (part.start, part.stop, part.step)]
        if bounds[2] == 0:
            raise TensorIndexError("A slice of a Tensor has step 0.")
        return slice(*bounds)
    return _position(part)


def _position(part: Any) -> int:
    try:
        if not isinstance(part, (bool, np.bool_)):  # integers to operator.index, but masks to NumPy
            return operator.index(part)
    except TypeError:
        pass
    raise TensorIndexError(
        f"A Tensor index is made of integers, slices, None, ..., positions and masks, not {part!r}. Use "
        f"ops.gather for positions along an axis, and ops.where(mask, x, 0) to keep the shape."
    )
