"""Source text for a block of elements or rows in one time step: operands, arrays and statements.

    for i in range(count0):
        v1 = r0_0[i]                           # x
        # mul, net.py:12: v = v * self.decay + x
        t2 = f4(v0 * s0)
        ...
        w0[i] = t3

Each shape of a kernel's Values has a number; the code calls it a space. For a Value of space k, an array of the
block has the `count<k>` elements from `low<k>` to `high<k>`. The name of an array is a letter and a number, but never
the name of a cast in generated files (b1, f4, i8, ...).

Operands from outside are slices of sequences (their part for one time step) and constants:

    all    the shape of the kernel                   r0_0[i]    the array or slice, from the block's first element on
    some   broadcast, as one number per neuron       r0_0[i]    an array of the block, filled by `fill_broadcast`
    one    a scalar                                  r0_0       a number

An index of a broadcast operand would take divisions at each element, and LLVM would not vectorise the loop over the
elements. Therefore the kernel copies such an operand to an array with one number for each element of the block: a
constant once for all steps, and the slice of a sequence once per step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from snncell.compiler.backends.expressions import IndexSpace, Statements, comment_on, kind_of
from snncell.compiler.schedule import Phase, Shape, Stores
from snncell.dtype import DType
from snncell.kernels import loops
from snncell.tape.state import Value
from snncell.tape.tracing import Instruction


class Scratch:
    """Allocations of a block's arrays, as text: on the stack while there is room, otherwise on the heap."""

    def __init__(self, stack: int) -> None:
        self._left = stack  # bytes; on some systems a thread's stack has only 512 kB

    def array(self, count: str, dtype: np.dtype[Any]) -> str:
        """The expression that allocates an array of `count` elements."""
        self._left -= (loops.BLOCK + loops.SLACK) * dtype.itemsize
        if self._left >= 0:
            return f"strip({count}, np.{dtype.type.__name__})"
        return f"heap({count} + {loops.SLACK}, np.{dtype.type.__name__})"


class PhaseOperands:
    """The operands from outside of the kernel for phases over one shape. `sequences` and `fixed` map input sequences
    and loop-invariant operands to their argument numbers. `used` are the operands that the phases use.
    """

    def __init__(
        self,
        space: int,
        shape: tuple[int, ...],
        sequences: dict[Value, int],
        fixed: dict[Value, int],
        used: list[Value],
        scratch: Scratch,
    ) -> None:
        self.space, self.sequences, self._scratch = space, sequences, scratch  # `space` is the number of the shape
        self.index = IndexSpace(shape, [value for value in used if value in sequences or value in fixed], nested=True)
        self.prepare: list[str] = []
        self.elements: dict[Value, str] = {}
        for value in self.index.present:
            if value in fixed:
                self._constant(fixed[value], value)
            elif self.index.coverage(value) == "some":
                self.prepare.append(self._room(f"r{space}_{sequences[value]}", value))

    def _constant(self, n: int, value: Value) -> None:
        kind, name = self.index.coverage(value), f"d{self.space}_{n}"
        self.elements[value] = name if kind == "one" else f"{name}[i]"
        if kind == "some":
            self.prepare += [self._room(name, value), self._fill(name, value, f"tail(a{n}, 0)")]
        else:
            self.prepare.append(f"{name} = a{n}[0]" if kind == "one" else f"{name} = tail(a{n}, low{self.space})")

    def _room(self, name: str, value: Value) -> str:
        """The statement that allocates the block's elements of a broadcast operand."""
        return f"{name} = {self._scratch.array(f'count{self.space}', kind_of(value).dtype)}"

    def _fill(self, name: str, value: Value, source: str) -> str:
        """The statement that lays out a broadcast operand, a constant or a slice, for the block's elements."""
        lengths = (" * ".join(f"n{self.space}_{axis}" for axis in axes) for axes in self.index.repeats(value))
        arguments = ", ".join(length or "1" for length in lengths)
        return f"fill_broadcast(tail({name}, 0), {source}, low{self.space}, count{self.space}, {arguments})"

    def load(self, statements: Statements, values: list[Value]) -> list[str]:
        """Load `values` in the body, and return the statements for them at the start of a step."""
        lines = []
        for value in values:  # h is 0 if all steps read the same slice; t * h is then always 0
            if value in self.elements:
                statements.load(value, self.elements[value])
            elif value in self.index.present:
                n, kind = self.sequences[value], self.index.coverage(value)
                row = f"r{self.space}_{n}"
                whole = f"row(x{n}, t * h{n})"
                if kind == "some":
                    lines.append(self._fill(row, value, whole))
                elif kind == "one":
                    lines.append(f"{row} = x{n}[t * h{n}, 0]")
                else:
                    lines.append(f"{row} = tail({whole}, low{self.space})")
                statements.load(value, row if kind == "one" else f"{row}[i]")
        return lines


class KernelBlock:
    """The spaces of a kernel, one per shape, and the operands of its phases."""

    def __init__(
        self,
        shapes: list[Shape],
        sequences: list[Value],
        fixed: list[Value],
        needs: Sequence[tuple[Phase, list[Value]]],
        scratch: Scratch,
    ) -> None:
        self.spaces = {shape: k for k, shape in enumerate(shapes)}
        self.sequences = {value: n for n, value in enumerate(sequences)}
        self.fixed = {value: n for n, value in enumerate(fixed)}
        self.scalars: list[tuple[Any, Any]] = []  # numbers passed as arguments, and the NumPy dtype of each
        self.prepare: list[str] = []  # the statements at the start of each block
        self.operands: list[PhaseOperands] = []
        self._scratch = scratch
        self._buffers = self._bodies = 0
        for shape, k in self.spaces.items():
            used = [x for phase, values in needs if phase.shape == shape and not phase.product for x in values]
            used = list(dict.fromkeys(used))
            self.operands.append(PhaseOperands(k, shape, self.sequences, self.fixed, used, scratch))
            self.prepare += [f"low{k}, high{k} = low * per{k}, high * per{k}", f"count{k} = high{k} - low{k}"]
            self.prepare += self.operands[k].prepare
        self.sizes = [operands.index.sizes for operands in self.operands]
        self.expanded = {x: shape for operands in self.operands for x, shape in operands.index.expanded.items()}

    def of(self, value: Value) -> int:
        """The number of a Value's space."""
        return self.spaces[value.shape]

    def part(self, array: str, value: Value) -> str:
        """The block's elements of an array, or of a slice of a sequence."""
        return f"tail({array}, low{self.of(value)})"

    def count(self, value: Value) -> str:
        """The number of these elements."""
        return f"count{self.of(value)}"

    def new(self, value: Value, kind: DType | None = None, slices: str = "") -> str:
        """Allocate an array of the block, or one for each of `slices` steps, in the Value's dtype or another one."""
        dtype = (kind or kind_of(value)).dtype
        if slices:
            return f"heap_rows({slices}, {self.count(value)}, np.{dtype.type.__name__})"
        return self._scratch.array(self.count(value), dtype)

    def step(
        self,
        stores: Stores,
        array_of: dict[Value, str],
        targets: list[str],
        sequences: list[Value],
        summed: list[Value],
        near: dict[Value, list[str]] | None = None,
    ) -> list[str]:
        """The lines of one step. `array_of` names the arrays of the states before the step, and `targets` those after
        it. `sequences` are stored in `o0[t]`, ..., and `summed` are added to `z0`, ... `near` has the statements that
        choose another place for a sequence.
        """
        array_of = array_of | {value: targets[n] for value, n in stores.direct.items()}
        lines: list[str] = []
        for n, value in enumerate(sequences):
            lines += (near or {}).get(value) or [f"g{n} = {self.part(f'row(o{n}, t)', value)}"]
        for n, value in enumerate(sequences):  # a state already has an array, and is copied
            array_of.setdefault(value, f"g{n}")
        for value in stores.shared:
            array_of[value] = f"e{self._buffers}"
            self.prepare.append(f"{array_of[value]} = {self.new(value)}")
            self._buffers += 1
        for number, (phase, needed) in enumerate(stores.needs):
            if phase.product:
                lines += self._product(phase.instructions[0], array_of)
                continue
            space, body = self.spaces[phase.shape], self._new_body()
            lines += self.operands[space].load(body, [x for x in needed if x not in array_of])
            for value in needed:
                if value in array_of:
                    body.load(value, f"{array_of[value]}[i]")
            for instruction in phase.instructions:
                body.compute(instruction)
            names = body.names
            # All stores of an element come after its loads, so states can be updated in place.
            body.lines += [f"{array_of[x]}[i] = {names[x]}" for x in stores.shared if x in names and x not in needed]
            body.lines += [f"g{sequences.index(x)}[i] = {names[x]}" for x in stores.sequences[number]]
            body.lines += [f"z{summed.index(x)}[i] += {names[x]}" for x in stores.summed[number]]
            body.lines += [f"{targets[n]}[i] = {names[stores.targets[n]]}" for n in stores.after[number]]
            if body.lines:
                lines += [f"for i in independent(count{space}):", *loops.indent(body.lines)]
        return lines

    def _new_body(self) -> Statements:
        """Statements with names of their own, because a variable of a kernel must have one type."""
        mark = f"_{self._bodies}" if self._bodies else ""
        self._bodies += 1
        return Statements(self.scalars, mark=mark)

    def _product(self, instruction: Instruction, array_of: dict[Value, str]) -> list[str]:
        (x, y), (out,) = instruction.inputs, instruction.outputs
        inner, width, dtype = f"per{self.of(x)}", f"per{self.of(out)}", kind_of(out).dtype
        # Pass only pointers, because the function is compiled once per combination of argument types.
        operands = ", ".join(f"tail({array}, 0)" for array in (array_of[x], f"a{self.fixed[y]}", array_of[out]))
        arguments = f"{operands}, high - low, {inner}, {width}"
        if dtype.kind != "f":
            return [comment_on(instruction), f"rows.multiply_plainly({arguments})"]
        # Scratch arrays for the events of a row, shared by all products of one shape and dtype.
        name = dtype.type.__name__
        suffix = f"{self.of(x)}_{name}"
        room = [f"places{suffix} = heap({inner}, np.int32)", f"values{suffix} = heap({inner}, np.{name})"]
        self.prepare += [line for line in room if line not in self.prepare]
        call = f"rows.multiply_rows({arguments}, tail(places{suffix}, 0), tail(values{suffix}, 0))"
        rounding = Statements().rounding(out, f"{array_of[out]}[i]")
        if rounding:
            rounding = [f"for i in independent(count{self.of(out)}):", *loops.indent(rounding)]
        return [comment_on(instruction), call, *rounding]
