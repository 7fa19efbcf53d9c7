"""Sequences (T, B, ...): those of different lengths, and those that layers over time are called with."""

from __future__ import annotations

import inspect
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np

from snncell import dtype as dtypes, ops
from snncell.errors import ArgumentError, ShapeError
from snncell.ops.base import as_tensor
from snncell.tape.tensor import Tensor

_SWAP = "Layers run over the first axis, (T, B, ...): begin the net with x = x.swapaxes(0, 1)."
_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

# --- lengths ----------------------------------------------------------------------------------------------------------


def within_lengths(tensor: Tensor, lengths: Any, who: str) -> Tensor:
    """Where a sequence (T, B, ...) has not ended: (T, B, 1, ...), for lengths (B,).

    Lengths that a trace, or the device, has yet to give are not looked at; one above T then counts as T.
    """
    counts = as_tensor(lengths, who, "lengths")
    if counts.shape != tensor.shape[1:2] or not counts.ndim:
        raise ShapeError(
            f"{who}: lengths are one number of steps for each sample; a sequence (T, B, ...) of shape {tensor.shape} "
            f"needs {tensor.shape[1:2] or 'a batch'}, not {counts.shape}."
        )
    _refuse_lengths(counts, tensor.shape, who)
    return before_step(tensor, counts)


def before_step(tensor: Tensor, counts: Tensor) -> Tensor:
    """Where a sequence (T, B, ...) is in its first steps, as many as `counts` (B,) say: (T, B, 1, ...)."""
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


def steps_in(tensor: Tensor, lengths: Any) -> Tensor:
    """The number of steps of each sample, from 1 to T: (B, 1, ...), in the dtype of the sequence (T, B, ...)."""
    count = ops.clip(as_tensor(lengths, "lengths"), 1, tensor.shape[0]).astype(tensor.dtype)
    return count.reshape((*count.shape, *(1,) * (tensor.ndim - 2)))


def highest(tensor: Tensor, lengths: Any, who: str) -> Tensor:
    """The largest of a sequence (T, B, ...) until it ends, (B, ...); 0 where it has no steps."""
    if lengths is None:
        return ops.max(tensor, 0)
    there = within_lengths(tensor, lengths, who)
    return ops.select(ops.any(there, 0), ops.max(ops.select(there, tensor, -math.inf), 0), 0.0)


def mean_over_time(tensor: Tensor, lengths: Any, who: str) -> Tensor:
    """The mean of a sequence (T, B, ...) over the steps until it ends, (B, ...)."""
    if lengths is None:
        return tensor.mean(0)
    # As `ops.mean` does: float16 and bfloat16 are added up in float32.
    wide = until_end(tensor, lengths, who).astype(dtypes.compute_dtype(tensor.dtype.dtype))
    mean: Tensor = (sum_over_time(wide) / steps_in(wide, lengths)).astype(tensor.dtype)
    return mean


def sum_over_time(tensor: Tensor) -> Tensor:
    """The sum of a sequence (T, B, ...) over time, one step after the other, so that zeros behind it change no bit."""
    # NumPy adds up a single column in parts that depend on its length; several columns it adds row by row.
    alone = math.prod(tensor.shape[1:]) == 1
    total: Tensor = ops.cumsum(tensor, 0)[-1] if alone and tensor.shape[0] else ops.sum(tensor, 0)
    return total


def until_end(tensor: Tensor, lengths: Any, who: str) -> Tensor:
    """A sequence (T, B, ...) with 0 after its end, whatever the padding is."""
    return tensor if lengths is None else ops.select(within_lengths(tensor, lengths, who), tensor, 0.0)


def find_lengths(cell: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The argument of a call that a Cell's construct knows as `lengths`; None if it has none."""
    place = _place_of_lengths(type(cell).construct)
    return args[place] if place is not None and place < len(args) else kwargs.get("lengths")


@lru_cache(1024)
def _place_of_lengths(construct: Any) -> int | None:
    """The position behind self of the argument `lengths`."""
    named = [p.name for p in inspect.signature(construct).parameters.values() if p.kind in _BY_POSITION]
    return named.index("lengths") - 1 if "lengths" in named else None


def takes_lengths(fn: Any) -> bool:
    """True if a function, or what a Cell's construct is, has an argument called `lengths`."""
    try:
        parameters = inspect.signature(getattr(fn, "construct", fn)).parameters
    except (TypeError, ValueError):  # a built-in function
        return False
    return "lengths" in parameters


# --- which axis is time -----------------------------------------------------------------------------------------------


class _Heard(threading.local):
    shapes: list[tuple[int, ...]] | None = None
    rows: int | None = None  # T B of the TimeDistributed that is running


_HEARD = _Heard()


def runs_over(x: Tensor, who: str) -> None:
    """Note that a layer runs over the first axis of x, (T, B, ...).

    Raises:
        ArgumentError: within a TimeDistributed, for its T B rows: they are no steps.
    """
    if _HEARD.shapes is not None:
        _HEARD.shapes.append(tuple(x.shape))
    refuse_rows(x, who)


def refuse_rows(x: Tensor, who: str) -> None:
    """Raise an ArgumentError for the T B rows of a TimeDistributed, where a layer over time takes steps."""
    if _HEARD.rows is not None and x.shape[0] == _HEARD.rows and x.shape[1:2] != (_HEARD.rows,):
        raise joined_axes_error(who)


def joined_axes_error(who: str) -> ArgumentError:
    """The error for a layer over time within a TimeDistributed."""
    return ArgumentError(
        f"TimeDistributed: {who} runs over time, and in a TimeDistributed time and batch are one axis, so it would run "
        f"T B steps of no batch. Put it after the TimeDistributed: nn.SequentialCell(nn.TimeDistributed(layer), {who})."
    )


@contextmanager
def rows(count: int | None) -> Iterator[None]:
    """Say that time and batch are one axis in the body, of this length; None: they are two."""
    before, _HEARD.rows = _HEARD.rows, count
    try:
        yield
    finally:
        _HEARD.rows = before


@contextmanager
def sequences() -> Iterator[list[tuple[int, ...]]]:
    """Collect the shapes of the sequences that layers of this thread run over in the body."""
    before, _HEARD.shapes = _HEARD.shapes, []
    try:
        yield _HEARD.shapes
    finally:
        _HEARD.shapes = before


def refuse_batch_first(shapes: list[tuple[int, ...]], target: Tensor) -> None:
    """Refuse sequences whose first axis, which was taken for time, is as long as the batch, while the second is not.

    It is known of sequences of three axes or more, and a target (B,) or (B, C). A second axis that is a multiple of the
    batch may be samples beside something else, as many positions of each.
    """
    samples = target.shape[0] if target.ndim in (1, 2) else 0
    for shape in shapes:
        if len(shape) < 3 or shape[0] != samples:
            continue
        if shape[1] > 1 and shape[1] % samples and shape[1] not in target.shape:
            raise ShapeError(
                f"the data are batch first: a layer over time got {shape}, and the target has shape {target.shape}, so "
                f"its first axis is the {shape[0]} samples and not time. {_SWAP}"
            )


def refuse_samples_as_steps(shapes: list[tuple[int, ...]], grown: list[tuple[int, ...]], samples: int) -> None:
    """Refuse sequences (B, N) of a net whose data (B, F) have no time axis, so that samples become time steps.

    Args:
        shapes: the shapes of the sequences that layers over time run over.
        grown: the shapes for one sample more.
        samples: B.
    """
    for shape, other in zip(shapes, grown, strict=False):
        if len(shape) == 2 and shape[0] == samples and other[0] == samples + 1:
            raise ShapeError(
                f"the data have no time axis: a layer over time got {shape}, so it takes the {samples} samples for "
                f"steps. Give the net (T, B, ...), for example x = ops.stack([x] * 20), or spikes, encode.rate(x, 20)."
            )


def refuse_time_as_batch(
    shapes: list[tuple[int, ...]], grown: list[tuple[int, ...]], target: Tensor, time_first: bool
) -> None:
    """Refuse sequences (B, B, ...) whose first axis is longer for a batch of one sample more, while the second is not.

    Args:
        shapes: the shapes of the sequences that layers over time run over.
        grown: the shapes for one sample more.
        target: of the batch. A target (B, B) may have an entry for each step, and its batch is not refused.
        time_first: whether the data are (T, B, ...), so that it is the net that swaps the axes.
    """
    samples = target.shape[0] if target.ndim in (1, 2) and target.shape[1:] != target.shape[:1] else 0
    for shape, other in zip(shapes, grown, strict=False):
        if len(shape) < 3 or shape[:2] != (samples, samples) or other[:2] != (samples + 1, samples):
            continue
        order = "the net swaps time and batch" if time_first else "the data are batch first"
        fix = "The data are time first, (T, B, ...), already: leave out x.swapaxes(0, 1) in the net."
        raise ShapeError(
            f"{order}: a layer over time got {shape}, and with one sample more it gets {other}, so its first axis is "
            f"the {samples} samples and not time. "
            + (
                fix
                if time_first
                else f"{_SWAP} Of arrays (T, N, ...), time first: train.Batches(..., time_first=True)."
            )
        )
