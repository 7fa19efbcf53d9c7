"""The lengths among the inputs of a batch, and who is told of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from snncell.errors import CallError, ShapeError
from snncell.nn.time.lengths import find_lengths, takes_lengths
from snncell.ops.base import as_tensor
from snncell.tape import structure
from snncell.tape.event_lists import EventLists
from snncell.tape.tensor import Tensor
from snncell.train.scores import over_time


class Lengths(NamedTuple):
    """The numbers of steps that samples have, (B,), and the numbers that their padded sequences may have."""

    counts: Tensor
    steps: tuple[int, ...]

    def are_of(self, x: Tensor) -> bool:
        """True of a sequence (T, B, ...) of this batch."""
        return x.ndim > 1 and x.shape[0] in self.steps and x.shape[1:2] == self.counts.shape


def lengths_among(net: Any, inputs: Sequence[Any]) -> Lengths | None:
    """The input that `net.construct` calls `lengths`; None if it has none."""
    counts = find_lengths(net, inputs, {})
    if counts is None:
        return None
    shapes = [shape for x in inputs if x is not counts for shape in _shapes(x) if len(shape) > 1]
    # Of both first axes, for there are nets that are given the samples first, and swap the axes.
    return Lengths(as_tensor(counts, "lengths"), shapes[0][:2] if shapes else ())


def _shapes(x: Any) -> list[tuple[int, ...]]:
    """The shapes of what an input has in it."""
    return [tuple(x.shape)] if isinstance(x, EventLists) else [leaf.shape for leaf in structure.flatten(x)[0]]


def refuse_lengths(net: Any, inputs: Sequence[Any]) -> None:
    """Raise a CallError where the lengths of a `data.Loader`, the second input, are one more than the net takes."""
    counts = inputs[1] if len(inputs) > 1 else None
    if not isinstance(counts, Tensor) or counts.ndim != 1 or counts.dtype.is_float or takes_lengths(net):
        return
    fits = inspect.signature(net.construct).bind
    try:
        fits(*inputs)
    except TypeError:
        name = type(net).__name__
        try:
            fits(inputs[0], *inputs[2:])
        except TypeError:
            return
        raise CallError(
            f"{name} has no argument for the lengths of padded sequences, which a Loader gives after the first input. "
            f"Take them, def construct(self, x, lengths), or leave them out: data.Loader(..., lengths=False)."
        ) from None


def of_output(fn: Callable[..., Any], output: Any, target: Tensor, lengths: Lengths | None) -> Any:
    """A loss or score of the net's output, told of the lengths if it takes them.

    Raises:
        ShapeError: if it does, and the output has another number of steps than the input.
    """
    score = hasattr(getattr(fn, "func", fn), "of_classes")  # of a partial, too
    if lengths is None or not takes_lengths(fn) or (score and not over_time(output, target)):
        return fn(output, target)
    first = next(iter(structure.flatten(output)[0]), None)
    if first is not None and lengths.steps and first.shape[:1] and first.shape[0] not in lengths.steps:
        raise ShapeError(
            f"lengths: the net's input is of {' or '.join(map(str, lengths.steps))} steps, and its output, of shape "
            f"{first.shape}, is not, so a loss or accuracy that takes lengths needs others. Let the net give them too, "
            f"(output, lengths), and give a function of both: def loss(out, y)."
        )
    return fn(output, target, lengths=lengths.counts)
