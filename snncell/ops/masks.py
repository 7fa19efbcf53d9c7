"""Masks: of sequences of different lengths, and what is put where a mask is true."""

from __future__ import annotations

from typing import Any

import numpy as np

from snncell.base.arguments.kinds import Numbers
from snncell.errors import ArgumentError, DTypeError, ShapeError
from snncell.ops import elementwise as el, logic as lg, shape as sh
from snncell.ops.base import as_axis, as_int, as_tensor
from snncell.ops.indexing import gather
from snncell.ops.rearrange import ravel
from snncell.ops.reduce import cumsum
from snncell.tape.tensor import Tensor, beside, snapshot


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
    tensor, taken = as_tensor(x, "masked_scatter"), ravel(as_tensor(source, "masked_scatter", "source"))
    chosen = sh.broadcast_to(_mask(mask, "masked_scatter"), tensor.shape)
    wanted = int(chosen._data.sum()) if isinstance(chosen._data, np.ndarray) else 0
    if wanted > taken.size:
        raise ShapeError(f"masked_scatter: source has {taken.size} element(s), the mask {wanted} true ones.")
    if not taken.size:
        return snapshot(tensor)
    numbers = sh.reshape(cumsum(ravel(chosen), 0) - 1, tensor.shape)
    result: Tensor = lg.where(chosen, gather(taken, el.clip(numbers, 0, taken.size - 1)), tensor)
    return result


def _mask(mask: Any, name: str) -> Tensor:
    tensor = as_tensor(mask, name, "mask")
    if tensor.dtype.category:
        raise DTypeError(f"{name}: mask is of booleans, not {tensor.dtype}; compare first: mask > 0.")
    return tensor
