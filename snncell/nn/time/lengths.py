"""Padded sequences (T, B, ...): masks, sums and means over the steps that each sample has, `lengths` (B,)."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from snncell import dtype as dtypes, ops
from snncell.errors import ArgumentError, ShapeError
from snncell.ops.base import as_tensor
from snncell.tape.tensor import Tensor

_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def length_mask(tensor: Tensor, lengths: Any, who: str) -> Tensor:
    """The mask (T, B, 1, ...) of the steps that the samples of a sequence (T, B, ...) have, for lengths (B,).

    Lengths that a trace, or the device, has yet to give are not looked at; one above T then counts as T.
    """
    counts = as_tensor(lengths, who, "lengths")
    if counts.shape != tensor.shape[1:2] or not counts.ndim:
        raise ShapeError(
            f"{who}: lengths are one number of steps for each sample; a sequence (T, B, ...) of shape {tensor.shape} "
            f"needs {tensor.shape[1:2] or 'a batch'}, not {counts.shape}."
        )
    _refuse_lengths(counts, tensor.shape, who)
    return step_mask(tensor, counts)


def step_mask(tensor: Tensor, counts: Tensor) -> Tensor:
    """The mask (T, B, 1, ...) of the first `counts` (B,) steps of a sequence (T, B, ...)."""
    mask = ops.sequence_mask(counts, tensor.shape[0], axis=0)
    return mask.reshape((*mask.shape, *(1,) * (tensor.ndim - 2)))


def _refuse_lengths(lengths: Tensor, shape: tuple[int, ...], who: str) -> None:
    """Raise an ArgumentError for lengths that a sequence (T, B, ...) cannot have: it has no more than T steps."""
    counts = lengths._data
    if not isinstance(counts, np.ndarray) or counts.dtype.kind not in "iu":
        return
    wrong = np.flatnonzero((counts < 0) | (counts > shape[0]))
    if wrong.size:
        sample = int(wrong[0])
        more = f", and {wrong.size - 1} more" if wrong.size > 1 else ""
        raise ArgumentError(
            f"{who}: lengths are numbers of steps from 0 to T={shape[0]}, not {counts[sample]} (of sample {sample}"
            f"{more}). The sequence (T, B, ...) has shape {shape}; where it was cut: np.minimum(lengths, {shape[0]})."
        )


def steps_per_sample(tensor: Tensor, lengths: Any) -> Tensor:
    """The number of steps of each sample, from 1 to T: (B, 1, ...), in the dtype of the sequence (T, B, ...)."""
    count = ops.clip(as_tensor(lengths, "lengths"), 1, tensor.shape[0]).astype(tensor.dtype)
    return count.reshape((*count.shape, *(1,) * (tensor.ndim - 2)))


def max_over_time(tensor: Tensor, lengths: Any, who: str) -> Tensor:
    """The largest of a sequence (T, B, ...) until it ends, (B, ...); 0 where it has no steps."""
    if lengths is None:
        return ops.max(tensor, 0)
    there = length_mask(tensor, lengths, who)
    return ops.select(ops.any(there, 0), ops.max(ops.select(there, tensor, -math.inf), 0), 0.0)


def mean_over_time(tensor: Tensor, lengths: Any, who: str) -> Tensor:
    """The mean of a sequence (T, B, ...) over the steps until it ends, (B, ...)."""
    if lengths is None:
        return tensor.mean(0)
    # As `ops.mean` does: float16 and bfloat16 are added up in float32.
    wide = zero_after_end(tensor, lengths, who).astype(dtypes.compute_dtype(tensor.dtype.dtype))
    mean: Tensor = (sum_over_time(wide) / steps_per_sample(wide, lengths)).astype(tensor.dtype)
    return mean


def sum_over_time(tensor: Tensor) -> Tensor:
    """The sum of a sequence (T, B, ...) over time, step by step, so that zeros after its end change no bit."""
    # NumPy adds up a single column in parts that depend on its length; several columns it adds row by row.
    alone = math.prod(tensor.shape[1:]) == 1
    total: Tensor = ops.cumsum(tensor, 0)[-1] if alone and tensor.shape[0] else ops.sum(tensor, 0)
    return total


def zero_after_end(tensor: Tensor, lengths: Any, who: str) -> Tensor:
    """A sequence (T, B, ...) with 0 after its end, whatever the padding is."""
    return tensor if lengths is None else ops.select(length_mask(tensor, lengths, who), tensor, 0.0)


def find_lengths(cell: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The argument `lengths` of a call of a Cell; None if its construct has none."""
    place = _place_of_lengths(type(cell).construct)
    return args[place] if place is not None and place < len(args) else kwargs.get("lengths")


@lru_cache(1024)
def _place_of_lengths(construct: Any) -> int | None:
    """The position of the argument `lengths` after self."""
    named = [p.name for p in inspect.signature(construct).parameters.values() if p.kind in _BY_POSITION]
    return named.index("lengths") - 1 if "lengths" in named else None


def takes_lengths(fn: Any) -> bool:
    """True if a function, or the construct of a Cell, has an argument `lengths`."""
    try:
        parameters = inspect.signature(getattr(fn, "construct", fn)).parameters
    except (TypeError, ValueError):  # a built-in function
        return False
    return "lengths" in parameters
