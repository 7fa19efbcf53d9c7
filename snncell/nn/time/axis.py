"""The time axis: TimeDistributed, which joins it with the batch, and checks that layers do not run over the batch."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from snncell.cell.cell import Cell
from snncell.errors import ArgumentError, ShapeError
from snncell.nn.container import SequentialCell
from snncell.tape import structure
from snncell.tape.event_lists import EventLists
from snncell.tape.tensor import Tensor

__all__ = ["TimeDistributed"]

_SWAP = "Layers run over the first axis, (T, B, ...): begin the net with x = x.swapaxes(0, 1)."


class _LayerCalls(threading.local):
    """Calls of layers over time on this thread."""

    shapes: list[tuple[int, ...]] | None = None  # of their sequences, where they are recorded
    rows: int | None = None  # T B of the TimeDistributed that is running


_CALLS = _LayerCalls()


# --- time and batch as one axis ---------------------------------------------------------------------------------------


def check_time_axis(x: Tensor, who: str) -> None:
    """Refuse the rows of a TimeDistributed, and record the sequence x, (T, B, ...), for `record_sequences`.

    A layer calls it before it runs over the first axis of x.

    Raises:
        ArgumentError: within a TimeDistributed, because its T B rows are no steps.
    """
    if _CALLS.shapes is not None:
        _CALLS.shapes.append(tuple(x.shape))
    refuse_joined_axes(x, who)


def refuse_joined_axes(x: Tensor, who: str) -> None:
    """Raise an ArgumentError for the T B rows of a TimeDistributed, where a layer over time takes steps."""
    if _CALLS.rows is not None and x.shape[0] == _CALLS.rows and x.shape[1:2] != (_CALLS.rows,):
        raise joined_axes_error(who)


def joined_axes_error(who: str) -> ArgumentError:
    """The error for a layer over time within a TimeDistributed."""
    return ArgumentError(
        f"TimeDistributed: {who} runs over time, and in a TimeDistributed time and batch are one axis, so it would run "
        f"T B steps of no batch. Put it after the TimeDistributed: nn.SequentialCell(nn.TimeDistributed(layer), {who})."
    )


@contextmanager
def joined_axes(count: int | None) -> Iterator[None]:
    """Declare that time and batch are one axis of this length in the body; None: they are two."""
    before, _CALLS.rows = _CALLS.rows, count
    try:
        yield
    finally:
        _CALLS.rows = before


class TimeDistributed(Cell):
    """Runs a Cell without memory on all time steps at once: (T, B, ...) goes in as (T B, ...) and comes out again.

    One large product instead of T small ones; BatchNorm inside sees the statistics over time and batch.

    Args:
        cell: any Cell whose outputs keep the first axis, and that has no layer over time, such as `MultiStep`.

    Raises:
        ArgumentError: for a layer over time in `cell`: it would take the T B rows for steps.
        ShapeError: for an input without time and batch axes, or a Cell that does not keep the first axis.
    """

    def __init__(self, cell: Cell) -> None:
        super().__init__()
        refuse_over_time(cell)
        self.cell = cell

    def construct(self, x: Tensor | EventLists) -> Any:
        if x.ndim < 2:
            raise ShapeError(f"TimeDistributed: takes (T, B, ...), the shape is {x.shape}.")
        steps, batch = x.shape[:2]
        with joined_axes(steps * batch):
            out = self.cell(x.reshape((steps * batch, *x.shape[2:])))
        if isinstance(out, EventLists) and out.shape[:1] == (steps * batch,):
            return out.reshape(steps, batch, *out.shape[1:])
        leaves, tree = structure.flatten(out)
        for leaf in leaves:
            if leaf.shape[:1] != (steps * batch,):
                raise ShapeError(
                    f"TimeDistributed: {type(self.cell).__name__} gave shape {leaf.shape} for {steps} steps of a batch "
                    f"of {batch}; its first axis must stay {steps * batch}."
                )
        return structure.unflatten(tree, [leaf.reshape((steps, batch, *leaf.shape[1:])) for leaf in leaves])


def refuse_over_time(cell: Any) -> None:
    """Raise for a Cell over time, also in a SequentialCell, where the TimeDistributed is made."""
    if getattr(cell, "_over_time", False):
        raise joined_axes_error(type(cell).__name__)
    if isinstance(cell, SequentialCell):
        for child in cell:
            refuse_over_time(child)


# --- data whose first axis is the batch -------------------------------------------------------------------------------


@contextmanager
def record_sequences() -> Iterator[list[tuple[int, ...]]]:
    """Collect the shapes of the sequences that layers of this thread run over in the body."""
    before, _CALLS.shapes = _CALLS.shapes, []
    try:
        yield _CALLS.shapes
    finally:
        _CALLS.shapes = before


def refuse_batch_first(shapes: list[tuple[int, ...]], target: Tensor) -> None:
    """Refuse sequences whose first axis, which was taken for time, is as long as the batch, while the second is not.

    It is known of sequences of three axes or more, and a target (B,) or (B, C). A second axis that is a multiple of the
    batch may be samples joined with another axis, for example positions.
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
