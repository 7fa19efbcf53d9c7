"""Indexing by NumPy's rules, `x[...]`, and masks.

The number of elements that a mask chooses depends on its values, so that no Program can hold them: outside of traced
functions they are computed at once, with gradients. Inside, `ops.where` chooses element by element and keeps the shape.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from snncell.base.arguments.kinds import Numbers
from snncell.errors import ArgumentError, DTypeError, ShapeError, TensorIndexError
from snncell.kernels.space import DEVICE
from snncell.ops import arithmetic, logic as lg, shape as sh
from snncell.ops.base import as_axis, as_int, as_tensor
from snncell.ops.gathering import gather, take_points
from snncell.ops.reduce import cumsum
from snncell.tape.primitive import moving, with_axis_of_steps
from snncell.tape.tensor import Tensor, beside, snapshot

__all__ = ["argwhere", "masked_fill", "masked_scatter", "masked_select", "nonzero", "sequence_mask"]

Grads = Sequence[Any]

# --- slices, integers, positions: x[...] ------------------------------------------------------------------------------


@moving
def _getitem(x: Any, index: Any) -> Any:
    return x[index]


@_getitem.def_bprop
def _(_x: Tensor, _out: Tensor, dout: Tensor, *, index: Any) -> Grads:
    return (_put.bind(dout, index=index, shape=_x.shape),)


getitem_primitive = _getitem


@moving
def _put(x: Any, index: Any, shape: tuple[int, ...]) -> Any:
    """Zeros of `shape` with `x` at `index`."""
    # No element is named twice by basic indices, so they can be written to, not added to.
    out = np.zeros(shape, x.dtype)
    out[index] = x
    return out


@_put.def_there
def _(x: Any, index: Any, shape: tuple[int, ...]) -> Any:
    out = DEVICE.zeros(shape, x.dtype)
    out[index] = x
    return out


@_put.def_bprop
def _(_x: Tensor, _out: Tensor, dout: Tensor, *, index: Any, shape: Any) -> Grads:
    return (_getitem.bind(dout, index=index),)


put_primitive = _put


def _index_behind_steps(attrs: dict[str, Any], steps: int) -> dict[str, Any]:
    index = attrs["index"] if isinstance(attrs["index"], tuple) else (attrs["index"],)
    moved = {"index": (slice(None), *index)}
    return {**moved, "shape": (steps, *attrs["shape"])} if "shape" in attrs else moved


for _op in (_getitem, _put):
    with_axis_of_steps(_op, _index_behind_steps)
    _op.additive = True


def getitem(x: Tensor, index: Any) -> Tensor:
    """`x[index]` by NumPy's rules.

    Positions in lists, arrays or Tensors, and masks of booleans, give copies. How many elements a mask chooses depends
    on its values, so in a traced function a mask that is computed there is refused.

    Raises:
        TensorIndexError: for an index out of range, or that is none.
        TraceError: for a mask, or positions mixed with slices, that a traced function computes.
    """
    parts = index if isinstance(index, tuple) else (index,)
    if not any(_is_array_index(part) for part in parts):
        result: Tensor = getitem_primitive.bind(x, index=tuple([_as_basic_index(part) for part in parts]))
        return result
    with beside(x):
        given = [_as_index_tensor(part) if _is_array_index(part) else part for part in parts]
    if all(isinstance(part, Tensor) and part.dtype.category == 1 for part in given) and len(given) <= x.ndim:
        return gather(x, given[0], 0) if len(given) == 1 else take_points(x, given, "x[...]")
    if len(given) == 1:
        return _select_by_mask(x, given[0])
    plain = tuple(part._concrete("x[mask]") if isinstance(part, Tensor) else _as_basic_index(part) for part in given)
    try:
        places = np.arange(x.size).reshape(x.shape)[plain]
    except IndexError as error:
        raise TensorIndexError(f"A Tensor of shape {x.shape}: {error}.") from None
    with beside(x):
        return gather(sh.ravel(x), Tensor(places))


def _is_array_index(part: Any) -> bool:
    return isinstance(part, (list, np.ndarray)) or (isinstance(part, Tensor) and part.ndim > 0)


def _as_index_tensor(part: Any) -> Tensor:
    index = part if isinstance(part, Tensor) else Tensor(part, "int64" if np.size(part) == 0 else None)
    if index.dtype.category > 1:
        raise TensorIndexError(
            f"A Tensor cannot be indexed by a Tensor of dtype {index.dtype}: positions are integers, "
            f"x.astype('int64'), and masks booleans, x > 0."
        )
    return index


def _select_by_mask(x: Tensor, mask: Tensor) -> Tensor:
    """The elements, or slices, for which a mask over the first axes is true."""
    if mask.shape != x.shape[: mask.ndim]:
        raise TensorIndexError(
            f"A mask of shape {mask.shape} is none of the first axes of a Tensor of shape {x.shape}."
        )
    chosen = np.flatnonzero(mask._concrete("x[mask]"))
    slices = sh.reshape(x, (math.prod(mask.shape), *x.shape[mask.ndim :]))
    with beside(x):
        return gather(slices, Tensor(chosen), 0)


def _as_basic_index(part: Any) -> Any:
    if part is None or part is Ellipsis:
        return part
    if isinstance(part, slice):
        bounds = [None if bound is None else _as_index(bound) for bound in (part.start, part.stop, part.step)]
        if bounds[2] == 0:
            raise TensorIndexError("A slice of a Tensor has step 0.")
        return slice(*bounds)
    return _as_index(part)


def _as_index(part: Any) -> int:
    try:
        if not isinstance(part, (bool, np.bool_)):  # integers to operator.index, but masks to NumPy
            return operator.index(part)
    except TypeError:
        pass
    raise TensorIndexError(
        f"A Tensor index is made of integers, slices, None, ..., positions and masks, not {part!r}. Use "
        f"ops.gather for positions along an axis, and ops.where(mask, x, 0) to keep the shape."
    )


# --- masks ------------------------------------------------------------------------------------------------------------


def sequence_mask(lengths: Numbers, maxlen: int, axis: int = -1) -> Tensor:
    """True at the first steps of each sequence, as many as it is long: i < lengths, for i = 0, ..., maxlen - 1.

    Args:
        lengths: integers, any shape; one above maxlen counts as maxlen.
        maxlen: the length of the new axis.
        axis: where that axis stands; with axis=0, lengths (B,) give a mask (T, B) for sequences with time first.

    Raises:
        DTypeError: for lengths that are no integers.
        ArgumentError: for a maxlen that is none, or below 0.

    Source: sequence_mask of MindSpore; `axis` is new here.

    Example:
        >>> snncell.ops.sequence_mask([1, 3], 3).tolist()
        [[True, False, False], [True, True, True]]
    """
    tensor = as_tensor(lengths, "sequence_mask")
    if tensor.dtype.category != 1:
        raise DTypeError(f"sequence_mask: lengths are integers, not {tensor.dtype}: lengths.astype('int64').")
    if (count := as_int(maxlen, "sequence_mask", "maxlen")) < 0:
        raise ArgumentError(f"sequence_mask: maxlen is a length, of at least 0, not {count}.")
    number = as_axis(axis, tensor.ndim + 1, "sequence_mask")
    with beside(tensor):
        steps = Tensor(np.arange(count, dtype=np.int64))
    shape = [1] * (tensor.ndim + 1)
    shape[number] = steps.size
    mask: Tensor = lg.less(steps.reshape(shape), tensor.expand_dims(number))
    return mask


def masked_fill(x: Numbers, mask: Numbers, value: Numbers) -> Tensor:
    """`value` where the mask is true, else x.

    Raises:
        DTypeError: for a mask that is not of booleans.
    """
    tensor = as_tensor(x, "masked_fill")
    result: Tensor = lg.where(_mask(mask, "masked_fill"), value, tensor)
    return result


def masked_scatter(x: Numbers, mask: Numbers, source: Numbers) -> Tensor:
    """`x` with the elements of `source`, one after the other, where the mask, stretched to its shape, is true.

    Raises:
        DTypeError: for a mask that is not of booleans.
        ShapeError: if it does not broadcast to the shape of x, or `source` has fewer elements than it has true ones.
    """
    tensor, taken = as_tensor(x, "masked_scatter"), sh.ravel(as_tensor(source, "masked_scatter", "source"))
    chosen = sh.broadcast_to(_mask(mask, "masked_scatter"), tensor.shape)
    wanted = int(chosen._data.sum()) if isinstance(chosen._data, np.ndarray) else 0
    if wanted > taken.size:
        raise ShapeError(f"masked_scatter: source has {taken.size} element(s), the mask {wanted} true ones.")
    if not taken.size:
        return snapshot(tensor)
    numbers = sh.reshape(cumsum(sh.ravel(chosen), 0) - 1, tensor.shape)
    result: Tensor = lg.where(chosen, gather(taken, arithmetic.clip(numbers, 0, taken.size - 1)), tensor)
    return result


def masked_select(x: Numbers, mask: Numbers) -> Tensor:
    """The elements for which the mask is true, in order, as one axis; both are broadcast first.

    Raises:
        DTypeError: for a mask that is not of booleans.
        TraceError: inside of a traced function, for their number depends on values.
    """
    tensor, chosen = as_tensor(x, "masked_select"), as_tensor(mask, "masked_select", "mask")
    if chosen.dtype.category:
        raise DTypeError(f"masked_select: mask is of booleans, not {chosen.dtype}; compare first: mask > 0.")
    try:
        shape = np.broadcast_shapes(tensor.shape, chosen.shape)
    except ValueError:
        raise ShapeError(f"masked_select: shapes {tensor.shape} and {chosen.shape} do not broadcast.") from None
    found = np.flatnonzero(np.broadcast_to(chosen._concrete("masked_select()"), shape))
    with beside(tensor):
        places = Tensor(found)
    return gather(sh.ravel(sh.broadcast_to(tensor, shape)), places)


def _mask(mask: Any, name: str) -> Tensor:
    tensor = as_tensor(mask, name, "mask")
    if tensor.dtype.category:
        raise DTypeError(f"{name}: mask is of booleans, not {tensor.dtype}; compare first: mask > 0.")
    return tensor


def nonzero(x: Numbers, *, as_tuple: bool = False) -> Tensor | tuple[Tensor, ...]:
    """The positions of the elements that are not 0, in order, as int64.

    Args:
        x: any shape with n axes.
        as_tuple: give n Tensors (K,), one for each axis, instead of one (K, n).

    Raises:
        TraceError: inside of a traced function, for the number of positions depends on values.
    """
    tensor = as_tensor(x, "nonzero")
    found = np.argwhere(tensor._concrete("nonzero()"))
    with beside(tensor):
        return tuple(Tensor(places) for places in found.T) if as_tuple else Tensor(found)


def argwhere(x: Numbers) -> Tensor:
    """The positions of the elements that are not 0, (K, n), as `nonzero` gives them."""
    found = nonzero(x)
    assert isinstance(found, Tensor)
    return found
