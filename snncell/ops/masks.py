"""Masks of sequences of different lengths."""

from __future__ import annotations

import numpy as np

from snncell.arguments.vocabulary import Numbers
from snncell.errors import ArgumentError, DTypeError
from snncell.ops.base import as_axis, as_int, as_tensor
from snncell.ops.logic import less
from snncell.tape.tensor import Tensor, beside


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
    mask: Tensor = less(steps.reshape(shape), tensor.expand_dims(number))
    return mask
