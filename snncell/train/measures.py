"""Measurements on a batch: loss, accuracy, metrics and firing rate, with the lengths of padded sequences."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import Annotated, Any, NamedTuple

from snncell import ops
from snncell.base.arguments.kinds import Numbers, Own, misfit
from snncell.base.arguments.shown import came, show, suggest_instance
from snncell.cell.cell import Cell, HookHandle
from snncell.errors import ArgumentError, CallError, ShapeError
from snncell.nn.time.axis import find_lengths, length_mask, record_sequences, refuse_batch_first, takes_lengths
from snncell.nn.time.multistep import MultiStep
from snncell.ops.base import as_tensor
from snncell.tape import structure
from snncell.tape.event_lists import EventLists
from snncell.tape.structure import as_data
from snncell.tape.tensor import Tensor
from snncell.train.metrics import accuracy as share_right, over_time

__all__ = ["Spikes", "measure"]

# --- lengths of padded sequences --------------------------------------------------------------------------------------


class Lengths(NamedTuple):
    """The lengths of the samples, (B,), and the possible numbers of steps of their padded sequences."""

    counts: Tensor
    steps: tuple[int, ...]

    def are_of(self, x: Tensor) -> bool:
        """True if x is a sequence (T, B, ...) of this batch."""
        return x.ndim > 1 and x.shape[0] in self.steps and x.shape[1:2] == self.counts.shape


def find_batch_lengths(net: Any, inputs: Sequence[Any]) -> Lengths | None:
    """The input named `lengths` of `net.construct`; None if there is none."""
    counts = find_lengths(net, inputs, {})
    if counts is None:
        return None
    leaves = [[x] if isinstance(x, EventLists) else structure.flatten(x)[0] for x in inputs if x is not counts]
    shapes = [tuple(leaf.shape) for each in leaves for leaf in each if leaf.ndim > 1]
    # Both of the first two axes may be time, because some nets take the samples first and swap the axes.
    return Lengths(as_tensor(counts, "lengths"), shapes[0][:2] if shapes else ())


def refuse_lengths(net: Any, inputs: Sequence[Any]) -> None:
    """Raise a CallError if the net does not take the lengths that a `data.Loader` passes as the second input."""
    counts = inputs[1] if len(inputs) > 1 else None
    if not isinstance(counts, Tensor) or counts.ndim != 1 or counts.dtype.is_float or takes_lengths(net):
        return
    if misfit(net.construct, inputs) and not misfit(net.construct, [inputs[0], *inputs[2:]]):
        raise CallError(
            f"{type(net).__name__} has no argument for the lengths of padded sequences, which a Loader passes after "
            f"the first input. Define construct(self, x, lengths), or leave the lengths out: "
            f"data.Loader(..., lengths=False)."
        )


def score_output(fn: Callable[..., Any], output: Any, target: Tensor, lengths: Lengths | None) -> Any:
    """A loss or score of the net's output; it gets the lengths if it takes them."""
    score = hasattr(getattr(fn, "func", fn), "of_classes")  # unwraps functools.partial
    if lengths is None or not takes_lengths(fn) or (score and not over_time(output, target)):
        return fn(output, target)
    first = next(iter(structure.flatten(output)[0]), None)
    if first is not None and lengths.steps and first.shape[:1] and first.shape[0] not in lengths.steps:
        raise ShapeError(
            f"lengths: the net's input has {' or '.join(map(str, lengths.steps))} steps, but its output, of shape "
            f"{first.shape}, has not, so a loss or accuracy needs other lengths. Return them from the net, too, as "
            f"(output, lengths), and use them in your own loss: def loss(out, y)."
        )
    return fn(output, target, lengths=lengths.counts)


# --- firing rate ------------------------------------------------------------------------------------------------------


def spiking_cells(chosen: Any, who: str) -> list[Cell]:
    """A list of the chosen Cells."""
    several = isinstance(chosen, Iterable) and not isinstance(chosen, (Cell, str, bytes, dict, Tensor))
    cells = list(chosen) if several else [chosen]
    for cell in cells:
        if not isinstance(cell, Cell):
            words = f"{show(cell)}{suggest_instance(cell)}"
            raise ArgumentError(f"{who} takes Cells that return spikes, such as a MultiStep, not {words}.")
    return cells


class Spikes:
    """Firing rate of Cells: the share of nonzero elements in their spikes.

    Use it as a context manager. It counts every call of these Cells in its body, also while a function is traced.

    Args: cells: one or several Cells over time, such as a `MultiStep`. Of a returned tuple, the first Tensor counts.
    Example:
        >>> layer = nn.MultiStep(nn.IFNode())
        >>> with snncell.train.Spikes(layer) as spikes:
        ...     out = layer(ops.full((4, 1, 3), 0.75))
        ...     print(spikes.rate().item())
        0.5
    """

    def __init__(self, cells: Annotated[Cell | Iterable[Cell], Own()]) -> None:
        self.cells = spiking_cells(cells, "Spikes: cells")
        self.heard: list[Tensor] = []
        self._handles: list[HookHandle] = []

    def __enter__(self) -> Spikes:
        self._handles = [cell.register_forward_hook(self._hear) for cell in self.cells]
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for handle in self._handles:
            handle.remove()
        self.heard.clear()

    def _hear(self, cell: Cell, inputs: Any, out: Any) -> None:
        self.heard += structure.flatten(out)[0][:1]

    def refuse_inner(self, net: Cell) -> None:
        """Raise an ArgumentError for a Cell inside of a `MultiStep`, because calls in a kernel cannot be observed."""
        for path, outer in net.cells_and_names():
            inner = {id(cell) for _, cell in outer.cell.cells_and_names()} if isinstance(outer, MultiStep) else set()
            for cell in self.cells:
                if id(cell) in inner:
                    raise ArgumentError(
                        f"firing_rate: {type(cell).__name__} is one step of the MultiStep {path or 'net'!r}, so its "
                        f"calls inside the kernel cannot be observed. Pass the MultiStep."
                    )

    def rate(self, lengths: Numbers | None = None) -> Tensor:
        """The firing rate of all calls since the last `rate`. If `lengths` (B,) are given, a sample's steps from its
        length on do not count; in calls with another batch size, all steps count.
        """
        if lengths is None:
            return self.rate_of(None)
        return self.rate_of(Lengths(as_tensor(lengths, "Spikes", "lengths"), tuple(len(x) for x in self.heard)))

    def rate_of(self, lengths: Lengths | None) -> Tensor:
        """`rate`; lengths apply to sequences with one of their numbers of steps."""
        heard, self.heard = self.heard, []
        if not heard:
            raise ArgumentError("firing_rate: none of its Cells was called. Pass Cells that the network calls.")
        # Count in integers, because large sums of floats depend on the order.
        fired: Any = 0
        count: Any = 0
        for spikes in map(ops.stop_gradient, heard):
            if lengths is None or not lengths.are_of(spikes):
                fired, count = fired + ops.not_equal(spikes, 0).sum(), count + spikes.size
            else:
                there = length_mask(spikes, lengths.counts, "firing_rate")
                fired = fired + ops.logical_and(there, ops.not_equal(spikes, 0)).sum()
                count = count + there.sum() * math.prod(spikes.shape[2:])
        total = float(count) if isinstance(count, int) else ops.maximum(count, 1).astype("float32")
        rate: Tensor = fired.astype("float32") / total
        return rate


# --- all measures of a batch ------------------------------------------------------------------------------------------

Measured = tuple[Tensor, dict[str, Tensor]]


def measure(
    net: Cell,
    loss: Callable[..., Tensor],
    accuracy: Callable[..., Tensor] | None = share_right,
    spikes: Spikes | None = None,
    metrics: dict[str, Callable[..., Tensor]] | None = None,
) -> Callable[..., Measured]:
    """A function (*inputs, target) -> (loss, {"accuracy": ..., "firing_rate": ...}) of a batch.

    Args:
        net: called with the inputs: anything that `Tensor` takes, and tuples, lists and dicts of that. If loss and
            accuracy take `lengths`, they get the input of that name, and the firing rate ignores later steps.
        loss: a function of the net's output and the target that returns a number.
        accuracy: another such function, or None.
        spikes: the `Spikes` for the firing rate, or None.
        metrics: more functions like accuracy, by name. An array is averaged over its first axis.
    """
    score = accuracy
    # The accuracy ignores the labels that the loss ignores. `__wrapped__`: `train.accuracy` is `share_right` with
    # argument checks.
    if getattr(accuracy, "__wrapped__", accuracy) is share_right and hasattr(loss, "ignore_index"):
        score = partial(share_right, ignore_index=loss.ignore_index)

    def measured(*batch: Tensor) -> Measured:
        *inputs, target = (as_data(x) for x in batch)
        if spikes is not None:
            spikes.heard.clear()
        refuse_lengths(net, inputs)
        with record_sequences() as shapes:
            output = net(*inputs)
        refuse_batch_first(shapes, target)
        lengths = find_batch_lengths(net, inputs)
        others = {}
        if score is not None:
            others["accuracy"] = _result_of("accuracy", score_output(score, output, target, lengths)).mean()
        for name, metric in (metrics or {}).items():
            found = _result_of(name, score_output(metric, output, target, lengths))
            others[name] = found.mean(0) if found.ndim else found
        if spikes is not None:
            others["firing_rate"] = spikes.rate_of(lengths)
        value = _result_of("loss", score_output(loss, output, target, lengths))
        if value.size != 1:
            raise ShapeError(
                f'The loss must be one number, not of shape {value.shape}. Use reduction="mean", or loss.mean().'
            )
        return value, others

    return measured


def _result_of(name: str, value: Any) -> Tensor:
    """Check that a user's function returned a Tensor."""
    if not isinstance(value, Tensor):
        raise ArgumentError(f"{name} is a function of (output, target) that returns a Tensor, not {came(value)}.")
    return value
