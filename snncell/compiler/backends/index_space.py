"""The index space of a kernel: its axes, joined, and the place that each operand has for an element of it.

    x (8, 16, 32) + b (32,)   ->   sizes (128, 32); x at p0 * n1 + p1, b at p1

The one indexer of all backends. Axes that every operand treats alike are joined first, so that most kernels run over
one or two axes whatever the shapes were: fewer kernels are compiled, and the inner loop is long.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any, Literal, NamedTuple

from snncell.compiler.ir.formula import Reduction
from snncell.compiler.schedule.fuse import FusionGroup
from snncell.tape.value import Value


class Operand(NamedTuple):
    """A Value as it enters a kernel: reshaped to `shape`, whose axes of length 1 are broadcast."""

    value: Value
    shape: tuple[int, ...]


class IndexSpace:
    """The joined axes of a shape, and which of them each operand has in full; along the others it is broadcast.

    Args:
        shape: of all elements.
        operands: the Values that are read.
        reduced: the axes that are reduced.
        uniform: the operands whose elements are all the same.

    Attributes:
        sizes: the joined lengths.
        kept: which of them are not reduced.
        present: for each operand, which of them it has.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        operands: Sequence[Value],
        reduced: tuple[int, ...] = (),
        uniform: Collection[Value] = (),
    ) -> None:
        patterns = {value: _axes_in_full(value, shape, value in uniform) for value in operands}
        self.sizes, self.kept, runs = join_axes(shape, reduced, list(patterns.values()))
        self.present = {
            value: [all(pattern[axis] for axis in run) for run in runs] for value, pattern in patterns.items()
        }

    def shape_of(self, value: Value) -> tuple[int, ...]:
        """The joined lengths that an operand has; 1 along the axes that it has not."""
        return tuple(n if has else 1 for n, has in zip(self.sizes, self.present[value], strict=True))

    def coverage(self, value: Value) -> Literal["all", "some", "one"]:
        """Tell whether "all" elements of the space have one of their own in it, "some" share, or there is "one"."""
        axes = [has or size == 1 for has, size in zip(self.present[value], self.sizes, strict=True)]
        return "all" if all(axes) and value.shape else "some" if any(self.present[value]) else "one"

    def place(self, value: Value, coordinates: Sequence[str], lengths: Sequence[str]) -> str:
        """The place of an element in an operand, which is flat."""
        return flat_index(coordinates, lengths, self.present[value])


def operands_of(group: FusionGroup, uniform: Collection[Value]) -> tuple[IndexSpace, list[Operand], list[Operand]]:
    """The index space of a fused group, its inputs and its outputs."""
    assert group.shape is not None  # only loops are emitted
    space = IndexSpace(group.shape, group.reads, group.axes or (), uniform)
    reduced = {instruction.outputs[0] for instruction in group.instructions if isinstance(instruction.op, Reduction)}
    left = tuple(n if keep else 1 for n, keep in zip(space.sizes, space.kept, strict=True))
    arrays = [Operand(value, space.shape_of(value)) for value in group.reads]
    return space, arrays, [Operand(value, left if value in reduced else space.sizes) for value in group.writes]


def join_axes(
    shape: tuple[int, ...], axes: tuple[int, ...], patterns: Sequence[tuple[bool, ...]]
) -> tuple[tuple[int, ...], tuple[bool, ...], list[list[int]]]:
    """Join neighbouring axes that all operands treat alike.

    Args:
        shape: the index space.
        axes: the reduced axes.
        patterns: for each operand, which axes it really has (the others are broadcast).

    Returns:
        The joined lengths, which of them are kept (not reduced), and the axes that each stands for.
    """
    runs: list[list[int]] = []
    previous: Any = None
    for axis, length in enumerate(shape):
        treatment = (axis in axes, *(pattern[axis] for pattern in patterns))
        if length == 1 and axis not in axes and len(shape) > 1:
            continue  # an axis of length 1 joins anything
        if treatment == previous:
            runs[-1].append(axis)
        else:
            runs.append([axis])
        previous = treatment
    if not runs:
        return (1,), (True,), [[]]
    sizes = tuple(math.prod(shape[axis] for axis in run) for run in runs)
    return sizes, tuple(run[0] not in axes for run in runs), runs


def _axes_in_full(value: Value, shape: tuple[int, ...], uniform: bool) -> tuple[bool, ...]:
    own = (1,) * (len(shape) - len(value.shape)) + value.shape
    return tuple(not uniform and have == want for have, want in zip(own, shape, strict=True))


def flat_index(coordinates: Sequence[str], lengths: Sequence[str], present: Sequence[bool]) -> str:
    """The place in a flat array, row by row, of the element at some coordinates, on the axes that the array has.

    For p0, p1, p2 of n0, n1, n2, and an array without the second axis: "p0 * n2 + p2".
    """
    terms: list[str] = []
    inner: list[str] = []  # lengths of the axes further in
    for coordinate, length, has in reversed(list(zip(coordinates, lengths, present, strict=True))):
        if has:
            terms.append(" * ".join([coordinate, *inner]))
            inner.append(length)
    return " + ".join(reversed(terms)) or "0"
