"""A loop over time as one kernel: blocks of elements, all steps per block, the state in the block's cache."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from snncell import dtype as dtypes
from snncell.compiler.emit import Statements, as_scalar, cost_of, file_head
from snncell.compiler.places import Places
from snncell.compiler.program import leading_to
from snncell.compiler.split import Split, is_elementwise, outside_of, values_in
from snncell.kernels.arrays import empty
from snncell.kernels.build import build
from snncell.kernels.cpu import loops
from snncell.kernels.policy import PARALLEL_SIZE
from snncell.tape.tracing import Step, Value

if TYPE_CHECKING:
    from snncell.compiler.lower import Lowered, Segments

# Elements per block. The rows of a block are read and written in long runs, and its state stays in the second-level
# cache: measured, 4096 is within 10 % of the best. Small nets get smaller blocks, so that all threads have some.
BLOCK = 4096
LEAST_BLOCK = 512
SEGMENT_BYTES = 1 << 19  # what the states of a segment that are computed again may take of the cache


LEGEND = """
# c0, c1, ...  the states before the first step, with m0, ...: 1, or 0 if one element stands for all
# x0, ...      the sequences, a row for each step, with h0, ...: 1, or 0 if one row stands for all
# a0, ...      what is the same at every step; s0, ...: numbers; n0, ...: lengths of axes
# last0, ...   the states after the last step; o0, ...: results; q0, ...: sums over time; p0, ...: stored states
"""


def space_of(parts: Split, carry: Sequence[Value]) -> tuple[int, ...]:
    """The shape that everything in the loop broadcasts to."""
    values = [*carry, *parts.after, *parts.sequences]
    values += [x for step in parts.loop for x in (*values_in(step), *step.outputs)]
    return np.broadcast_shapes(*(value.shape for value in values))


def obstacle(parts: Split, carry: Sequence[Value], segments: Segments | None) -> str | None:
    """Why a body is no single kernel, or None if it is one."""
    for step in (*parts.loop, *(segments.forward.loop if segments else ())):
        if not is_elementwise(step):
            return f"{step.op.name} is no elementwise operation: {step.line}"
    try:
        space = space_of(parts, carry)
    except ValueError:
        return "its states have different shapes"
    computed = {value for step in parts.loop for value in step.outputs}
    outgoing = [*carry, *parts.after, *parts.sequences, *(value for value in parts.summed if value in computed)]
    outgoing += [*segments.carry, *segments.forward.after] if segments else []
    small = next((value for value in outgoing if value.shape != space), None)
    if small is not None:
        made = next((step.line for step in parts.loop if small in step.outputs), "a state")
        return f"not all has one shape: {small.shape} and {space}, {made}"
    return None


class FusedLoop:
    """The kernel of a body whose loop is elementwise.

    Args:
        owner: the body's values and parts.
        every: store the states before each `every`-th step.
        segments: compute the states between the stored ones again.
    """

    def __init__(self, owner: Lowered, every: int | None, segments: Segments | None) -> None:
        parts = owner.parts
        self.who = owner.who
        self.backwards = owner.body.backwards
        self.every = segments.every if segments else every
        self.storing = every is not None
        self.segments = segments
        self.shape = space_of(parts, owner.carry)
        self.size = math.prod(self.shape)
        self.carry, self.after, self.sequences, self.steps = owner.carry, parts.after, parts.sequences, parts.loop
        self.summed = owner.summed
        self.moving = {*owner.xs, *(value for step in owner.ahead for value in step.outputs)}
        self.rows: list[Value] = []
        self.fixed: list[Value] = []
        self._emit()

    # --- the kernel ---------------------------------------------------------------------------------------------------

    def _emit(self) -> None:
        """Write the kernel, and note what its arguments are."""
        states = self.segments.carry if self.segments else []
        results = [*self.after, *self.sequences, *self.summed]
        outside = outside_of(self.steps, results, self.carry)
        again: list[Step] = []
        if self.segments:
            again = leading_to(self.segments.forward.loop, self.segments.forward.after)
            outside += outside_of(again, self.segments.forward.after, states)
        outside = list(dict.fromkeys(value for value in outside if value not in states))
        self.rows = [value for value in outside if value in self.moving]
        self.fixed = [value for value in outside if value not in self.moving]
        places = Places(self.shape, self.rows, self.fixed)
        self.sizes = places.sizes

        main = Statements()
        rows = places.load(main, outside_of(self.steps, results, self.carry))
        for n, value in enumerate(self.carry):
            main.load(value, f"w{n}[i]")
        prepare = [f"w{n} = last{n}[low:high]" for n in range(len(self.carry))]
        for n in range(len(self.carry)):
            prepare += _each(f"w{n}[i] = c{n}[(low + i) * m{n}]")
        for n in range(len(self.summed)):
            prepare += [f"z{n} = q{n}[low:high]", *_each(f"z{n}[i] = 0")]
        for n, value in enumerate(states):
            rows.append(f"k{n} = kept{n}[turn]")
            main.load(value, f"k{n}[i]")
            prepare.append(f"kept{n} = np.empty((every, count), np.{value.dtype.type.__name__})")
        if self.storing:
            for n in range(len(self.carry)):
                row = [f"u{n} = p{n}[turn // every, low:high]", *_each(f"u{n}[i] = w{n}[i]")]
                rows += ["if turn % every == 0:", *loops.indent(row)]
        for step in self.steps:
            main.compute(step)
        for n, value in enumerate(self.sequences):
            rows.append(f"g{n} = o{n}[t, low:high]")
            main.lines.append(f"g{n}[i] = {main.names[value]}")
        main.lines += [f"z{n}[i] += {main.names[value]}" for n, value in enumerate(self.summed)]
        main.lines += [f"w{n}[i] = {main.names[value]}" for n, value in enumerate(self.after)]

        self.parallel_cost = cost_of([*self.steps, *again])
        self.scalars = main.scalars
        if self.segments:
            lines = self._again(places, main, again, [*places.prepare, *prepare], rows)
        else:
            lines = partial(loops.scan_loop, [*places.prepare, *prepare], rows, main.lines, self.backwards)
        self._finish(lines, [*again, *self.steps], [*states, *self.carry])

    def _again(self, places: Places, main: Statements, again: list[Step], prepare: list[str], rows: list[str]) -> Any:
        """The loop that computes the states between the stored ones again."""
        assert self.segments is not None  # the caller's choice
        other = Statements(main.scalars)
        after = self.segments.forward.after
        more = places.load(other, outside_of(again, after, self.segments.carry))
        for n, value in enumerate(self.segments.carry):
            more += [f"k{n} = kept{n}[turn]", f"l{n} = kept{n}[turn + 1]"]
            other.load(value, f"k{n}[i]")
        for step in again:
            other.compute(step)
        other.lines += [f"l{n}[i] = {other.names[value]}" for n, value in enumerate(after)]
        start: list[str] = []
        for n in range(len(after)):
            start += [f"k{n}, u{n} = kept{n}[0], p{n}[segment, low:high]", *_each(f"k{n}[i] = u{n}[i]")]
        return partial(loops.scan_again, prepare, start, [more, other.lines], rows, main.lines, self.backwards)

    def _finish(self, lines: Any, steps: list[Step], others: list[Value]) -> None:
        """The source, the signature, and the kernels for one thread and for all."""
        counts = {"steps": 1, "n": 1, "block": 1, "every": 1}
        flat, rows, number = _array(1), _array(2), dtypes.int64
        arguments: list[tuple[str, Any]] = [(name, number) for name in counts]
        arguments += [(f"n{axis}", number) for axis in range(len(self.sizes))]
        for n, value in enumerate(self.carry):
            arguments += [(f"c{n}", flat(value, False)), (f"m{n}", number)]
        for n, value in enumerate(self.rows):
            arguments += [(f"x{n}", rows(value, False)), (f"h{n}", number)]
        arguments += [(f"a{n}", flat(value, False)) for n, value in enumerate(self.fixed)]
        if self.segments:
            arguments += [(f"p{n}", rows(value, False)) for n, value in enumerate(self.segments.carry)]
        arguments += [(f"s{n}", dtypes.BY_NUMPY[dtype]) for n, (_, dtype) in enumerate(self.scalars)]
        arguments += [(f"last{n}", flat(value, True)) for n, value in enumerate(self.carry)]
        arguments += [(f"o{n}", rows(value, True)) for n, value in enumerate(self.sequences)]
        arguments += [(f"q{n}", flat(value, True)) for n, value in enumerate(self.summed)]
        if self.storing:
            arguments += [(f"p{n}", rows(value, True)) for n, value in enumerate(self.carry)]
        self.name = "scan_" + "".join(c if c.isalnum() else "_" for c in self.who)[:48]
        names = ", ".join(name for name, _ in arguments)
        self.signature = tuple(kind for _, kind in arguments)
        head = file_head(steps, [*others, *self.rows, *self.fixed]) + LEGEND
        self._sources = {
            parallel: f"{head}\n\ndef {self.name}({names}):\n" + "\n".join(loops.indent(lines(parallel))) + "\n"
            for parallel in (False, True)
        }
        self._kernels: dict[bool, Any] = {}
        self.numbers = [as_scalar(value, dtype) for value, dtype in self.scalars]

    # --- running it ---------------------------------------------------------------------------------------------------

    def run(
        self, known: dict[Value, Any], moving: set[Value], steps: int
    ) -> tuple[list[Any], dict[Value, Any], dict[Value, Any], list[Any]]:
        """The states after the last step, the sequences, the sums, and the stored states."""
        last = [empty((self.size,), value.dtype) for value in self.carry]
        ys = [empty((steps, self.size), value.dtype) for value in self.sequences]
        sums = [empty((self.size,), value.dtype) for value in self.summed]
        stored = []
        if self.storing:
            stored = [empty((-(-steps // (self.every or 1)), self.size), value.dtype) for value in self.carry]
        arguments: list[Any] = [steps, self.size, self._block(), self.every or 1, *self.sizes]
        for value in self.carry:
            array, full = _flat(known[value])
            arguments += [array, full]
        for value in self.rows:
            arguments += _sequence(known[value], steps)
        arguments += [np.ascontiguousarray(known[value]).reshape(-1) for value in self.fixed]
        if self.segments:
            arguments += [np.ascontiguousarray(known[x]).reshape(len(known[x]), -1) for x in self.segments.carry]
        if self.size:
            self.kernel(steps)(*arguments, *self.numbers, *last, *ys, *sums, *stored)
        return (
            [x.reshape(self.shape) for x in last],
            {value: y.reshape(steps, *self.shape) for value, y in zip(self.sequences, ys, strict=True)},
            {value: x.reshape(self.shape) for value, x in zip(self.summed, sums, strict=True)},
            [x.reshape(-1, *self.shape) for x in stored],
        )

    moved = 0  # what is inside stays in the cache

    def explained(self, steps: int) -> str:
        """How it runs."""
        threads = "all threads" if self._in_parallel(steps) else "one thread"
        return f"one kernel, {threads}, {steps} steps for blocks of {self._block()} of {self.size} elements"

    def _in_parallel(self, steps: int) -> bool:
        return self.size > LEAST_BLOCK and steps * self.size * self.parallel_cost >= PARALLEL_SIZE

    def kernel(self, steps: int) -> Any:
        """The kernel for so many steps: on all threads if there is enough to do."""
        parallel = self._in_parallel(steps)
        if parallel not in self._kernels:
            self._kernels[parallel] = build(self.name, self._sources[parallel], self.signature, parallel)
        return self._kernels[parallel]

    def _block(self) -> int:
        """Elements per block: a function of the size alone."""
        block = min(BLOCK, max(LEAST_BLOCK, self.size // 64))
        if self.segments:
            rows = (self.every or 1) * sum(value.dtype.itemsize for value in self.segments.carry)
            block = min(block, max(LEAST_BLOCK // 8, SEGMENT_BYTES // max(rows, 1)))
        return block


def _each(statement: str) -> list[str]:
    """A loop over the block. Assignments to slices would double the time of compilation, with all their checks."""
    return ["for i in range(count):", f"    {statement}"]


def _array(ndim: int) -> Any:
    return lambda value, writable: (dtypes.BY_NUMPY[value.dtype], ndim, writable)


def _flat(array: Any) -> tuple[Any, int]:
    """An array in one row, or one element of it if all are one; and which."""
    if array.size > 1 and not any(array.strides):
        return np.ascontiguousarray(array[(0,) * array.ndim]).reshape(1), 0
    return np.ascontiguousarray(array).reshape(-1), 1


def _sequence(array: Any, steps: int) -> list[Any]:
    """A sequence as rows, and 1; or one row, if all are one, and 0."""
    if steps > 1 and array.strides[0] == 0:
        return [np.ascontiguousarray(array[0]).reshape(1, -1), 0]
    return [np.ascontiguousarray(array).reshape(steps, -1), 1]
