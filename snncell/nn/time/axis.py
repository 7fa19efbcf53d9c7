"""The time axis of sequences (T, B, ...): TimeDistributed, checks against swapped axes, and padding by lengths."""

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
from snncell.cell.cell import Cell
from snncell.errors import ArgumentError, ShapeError
from snncell.nn.container import SequentialCell
from snncell.ops.base import as_tensor
from snncell.tape import structure
from snncell.tape.event_lists import EventLists
from snncell.tape.tensor import Tensor, on_device_of

__all__ = ["TimeDistributed"]

_SWAP = "Layers over time expect (T, B, ...): begin the network with x = x.swapaxes(0, 1)."
_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class _LayerCalls(threading.local):
    """Facts about calls of layers over time on this thread."""

    shapes: list[tuple[int, ...]] | None = None  # shapes of their inputs; None unless `record_sequences` is active
    rows: int | None = None  # T B of the enclosing TimeDistributed


_CALLS = _LayerCalls()


# --- time and batch as one axis ---------------------------------------------------------------------------------------


def check_time_axis(x: Tensor, who: str) -> None:
    """Check the input (T, B, ...) of a layer over time, and record its shape."""
    if _CALLS.shapes is not None:
        _CALLS.shapes.append(tuple(x.shape))
    refuse_joined_axes(x, who)


def refuse_joined_axes(x: Tensor, who: str) -> None:
    """Raise an ArgumentError if a layer over time would take the T B rows of a TimeDistributed for steps."""
    if _CALLS.rows is not None and x.shape[0] == _CALLS.rows and x.shape[1:2] != (_CALLS.rows,):
        raise joined_axes_error(who)


def joined_axes_error(who: str) -> ArgumentError:
    """The error for a layer over time inside of a TimeDistributed."""
    return ArgumentError(
        f"TimeDistributed: {who} runs over time, but a TimeDistributed joins time and batch to one axis, so {who} "
        f"would run T B steps. Put it after the TimeDistributed: nn.SequentialCell(nn.TimeDistributed(layer), {who})."
    )


class TimeDistributed(Cell):
    """Apply a stateless Cell to all time steps at once: (T, B, ...) becomes (T B, ...) and back.

    Use it for layers over (B, ...), such as `Conv2d`: one large product is faster than T small ones. A BatchNorm takes
    its statistics over all steps and samples.

    Args:
        cell: a Cell whose outputs keep the first axis. It must not contain a layer over time, such as `MultiStep`.
    Example:
        >>> nn.TimeDistributed(nn.Conv2d(1, 4, 3))(ops.ones((10, 2, 1, 8, 8))).shape  # (T, B, C, H, W)
        (10, 2, 4, 8, 8)
    """

    def __init__(self, cell: Cell) -> None:
        super().__init__()
        refuse_over_time(cell)
        self.cell = cell

    def construct(self, x: Tensor | EventLists) -> Any:
        if x.ndim < 2:
            raise ShapeError(f"TimeDistributed: x must be (T, B, ...), but has shape {x.shape}.")
        steps, batch = x.shape[:2]
        before, _CALLS.rows = _CALLS.rows, steps * batch
        try:
            out = self.cell(x.reshape((steps * batch, *x.shape[2:])))
        finally:
            _CALLS.rows = before
        if isinstance(out, EventLists) and out.shape[:1] == (steps * batch,):
            return out.reshape(steps, batch, *out.shape[1:])
        leaves, tree = structure.flatten(out)
        for leaf in leaves:
            if leaf.shape[:1] != (steps * batch,):
                raise ShapeError(
                    f"TimeDistributed: {type(self.cell).__name__} returned shape {leaf.shape} for {steps} steps of a "
                    f"batch of {batch}; the first axis must stay {steps * batch}."
                )
        return structure.unflatten(tree, [leaf.reshape((steps, batch, *leaf.shape[1:])) for leaf in leaves])


def refuse_over_time(cell: Any) -> None:
    """Raise for a Cell over time, also inside of a SequentialCell."""
    if getattr(cell, "_over_time", False):
        raise joined_axes_error(type(cell).__name__)
    if isinstance(cell, SequentialCell):
        for child in cell:
            refuse_over_time(child)


# --- data whose first axis is the batch -------------------------------------------------------------------------------


@contextmanager
def record_sequences() -> Iterator[list[tuple[int, ...]]]:
    """Record the shapes of all inputs of layers over time on this thread."""
    before, _CALLS.shapes = _CALLS.shapes, []
    try:
        yield _CALLS.shapes
    finally:
        _CALLS.shapes = before


def refuse_batch_first(shapes: list[tuple[int, ...]], target: Tensor) -> None:
    """Raise if the first axis of a sequence has the length B of the target (B,) or (B, C), and the second has not.

    A second axis whose length is a multiple of B is accepted: it can join samples and another axis, such as positions.
    """
    samples = target.shape[0] if target.ndim in (1, 2) else 0
    for shape in shapes:
        if len(shape) < 3 or shape[0] != samples:
            continue
        if shape[1] > 1 and shape[1] % samples and shape[1] not in target.shape:
            raise ShapeError(
                f"the data are batch first: a layer over time got {shape}, and the target has shape {target.shape}, so "
                f"the first axis is the {shape[0]} samples, not time. {_SWAP}"
            )


def refuse_samples_as_steps(shapes: list[tuple[int, ...]], grown: list[tuple[int, ...]], samples: int) -> None:
    """Raise if data without a time axis reach a layer over time as (B, N); `grown` has the shapes for B + 1 samples."""
    for shape, other in zip(shapes, grown, strict=False):
        if len(shape) == 2 and shape[0] == samples and other[0] == samples + 1:
            raise ShapeError(
                f"the data have no time axis: a layer over time got {shape}, so it treats the {samples} samples as "
                f"time steps. Pass (T, B, ...), for example x = ops.stack([x] * 20), or spikes, encode.rate(x, 20)."
            )


def refuse_time_as_batch(
    shapes: list[tuple[int, ...]], grown: list[tuple[int, ...]], target: Tensor, time_first: bool
) -> None:
    """Raise for sequences (B, B, ...) whose first axis grows with the batch while the second does not.

    `grown` has the shapes for B + 1 samples. A target (B, B) is accepted, because it may have an entry for each step.
    With `time_first` the data are (T, B, ...), so the network swaps the axes.
    """
    samples = target.shape[0] if target.ndim in (1, 2) and target.shape[1:] != target.shape[:1] else 0
    for shape, other in zip(shapes, grown, strict=False):
        if len(shape) < 3 or shape[:2] != (samples, samples) or other[:2] != (samples + 1, samples):
            continue
        order = "the net swaps time and batch" if time_first else "the data are batch first"
        fix = f"{_SWAP} For arrays (T, N, ...), use train.Batches(..., time_first=True)."
        if time_first:
            fix = "The data are already time first, (T, B, ...): leave out x.swapaxes(0, 1) in the network."
        raise ShapeError(
            f"{order}: a layer over time got {shape}, and with one sample more it gets {other}, so the first axis is "
            f"the {samples} samples, not time. {fix}"
        )


# --- padding: `lengths` (B,) has the number of steps of each sample ---------------------------------------------------


def length_mask(tensor: Tensor, lengths: Any, who: str) -> Tensor:
    """The mask (T, B, 1, ...) of the valid steps; traced lengths and those on a GPU are clipped to T, not checked."""
    counts = as_tensor(lengths, who, "lengths")
    if counts.shape != tensor.shape[1:2] or not counts.ndim:
        raise ShapeError(
            f"{who}: lengths must have one number of steps per sample; a sequence (T, B, ...) of shape {tensor.shape} "
            f"needs {tensor.shape[1:2] or 'a batch'}, not {counts.shape}."
        )
    _refuse_lengths(counts, tensor.shape, who)
    return step_mask(tensor, counts)


def step_mask(tensor: Tensor, counts: Tensor) -> Tensor:
    """The mask (T, B, 1, ...) of the first `counts` (B,) steps of a sequence (T, B, ...)."""
    mask = ops.sequence_mask(counts, tensor.shape[0], axis=0)
    return mask.reshape((*mask.shape, *(1,) * (tensor.ndim - 2)))


def _refuse_lengths(lengths: Tensor, shape: tuple[int, ...], who: str) -> None:
    counts = lengths._data
    if not isinstance(counts, np.ndarray) or counts.dtype.kind not in "iu":
        return
    wrong = np.flatnonzero((counts < 0) | (counts > shape[0]))
    if wrong.size:
        sample = int(wrong[0])
        more = f", and {wrong.size - 1} more" if wrong.size > 1 else ""
        raise ArgumentError(
            f"{who}: lengths must be numbers of steps from 0 to T={shape[0]}, not {counts[sample]} (sample {sample}"
            f"{more}). The sequence (T, B, ...) has shape {shape}; if you shortened it, pass "
            f"np.minimum(lengths, {shape[0]})."
        )


def step_numbers(like: Tensor, steps: int | None = None, ndim: int | None = None) -> Tensor:
    """The step numbers 0, 1, ..., T - 1 along the first axis, by default for the shape (T, ...) of `like`."""
    count = len(like) if steps is None else steps
    with on_device_of(like):
        numbers = ops.arange(count, dtype=like.dtype)
    return numbers.reshape((count, *(1,) * ((like.ndim if ndim is None else ndim) - 1)))


def steps_per_sample(tensor: Tensor, lengths: Any) -> Tensor:
    """The number of steps of each sample, clipped to [1, T]: (B, 1, ...), in the dtype of the sequence."""
    count = ops.clip(as_tensor(lengths, "lengths"), 1, tensor.shape[0]).astype(tensor.dtype)
    return count.reshape((*count.shape, *(1,) * (tensor.ndim - 2)))


def max_over_time(tensor: Tensor, lengths: Any, who: str) -> Tensor:
    """The maximum of a sequence (T, B, ...) over the valid steps, (B, ...); 0 for samples without steps."""
    if lengths is None:
        return ops.max(tensor, 0)
    valid = length_mask(tensor, lengths, who)
    return ops.select(ops.any(valid, 0), ops.max(ops.select(valid, tensor, -math.inf), 0), 0.0)


def mean_over_time(tensor: Tensor, lengths: Any, who: str) -> Tensor:
    """The mean of a sequence (T, B, ...) over the valid steps, (B, ...)."""
    if lengths is None:
        return tensor.mean(0)
    # Like `ops.mean`, add up float16 and bfloat16 in float32.
    wide = zero_after_end(tensor, lengths, who).astype(dtypes.compute_dtype(tensor.dtype.dtype))
    return (sum_over_time(wide) / steps_per_sample(wide, lengths)).astype(tensor.dtype)


def sum_over_time(tensor: Tensor) -> Tensor:
    """The sum of a sequence (T, B, ...) over time, step by step, so that padding with 0 changes no bit."""
    # NumPy adds up several columns row by row, but a single column in parts that depend on its length.
    one_column = math.prod(tensor.shape[1:]) == 1
    return ops.cumsum(tensor, 0)[-1] if one_column and tensor.shape[0] else ops.sum(tensor, 0)


def zero_after_end(tensor: Tensor, lengths: Any, who: str) -> Tensor:
    """A sequence (T, B, ...) with its padding set to 0."""
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
