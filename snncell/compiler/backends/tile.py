"""The work of a kernel on a block of elements or rows in one step, as text.

    for i in range(count0):
        v1 = r0_0[i]                           # x
        # mul, net.py:12: v = v * self.decay + x
        t2 = f4(v0 * s0)
        ...
        w0[i] = t3

An array of the block holds the elements from `low<k>` to `high<k>`, `count<k>` of them, of a Value whose shape is the
k-th space of the kernel. Arrays have names of a letter and a number, but none that is a cast in generated files (b1,
f4, i8, u1, ...).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from snncell.compiler.backends.expressions import Statements, comment_on, kind_of
from snncell.compiler.backends.indexing import PhaseOperands, Scratch
from snncell.compiler.schedule.phases import Phase, Shape, Stores
from snncell.dtype import DType
from snncell.kernels.cpu import loops
from snncell.tape.tracing import Instruction
from snncell.tape.value import Value


class KernelBlock:
    """The spaces of a kernel, and the operands of its phases.

    Args:
        shapes: of all spaces.
        rows, fixed: the sequences and the constants that the kernel takes, in the order of its arguments.
        needs: the phases, each with the Values that it needs.
        scratch: for arrays of the block.

    Attributes:
        scalars: Python numbers that became arguments, and the NumPy dtype of each.
        sizes: of each space, its joined axes.
        prepare: the statements that each block begins with.
    """

    def __init__(
        self,
        shapes: list[Shape],
        rows: list[Value],
        fixed: list[Value],
        needs: Sequence[tuple[Phase, list[Value]]],
        scratch: Scratch,
    ) -> None:
        self.spaces = {shape: k for k, shape in enumerate(shapes)}
        self.rows = {value: n for n, value in enumerate(rows)}
        self.fixed = {value: n for n, value in enumerate(fixed)}
        self.scalars: list[tuple[Any, Any]] = []
        self.prepare: list[str] = []
        self.operands: list[PhaseOperands] = []
        self._scratch = scratch
        self._buffers = 0
        for shape, k in self.spaces.items():
            used = [x for phase, values in needs if phase.shape == shape and not phase.product for x in values]
            self.operands.append(PhaseOperands(k, shape, self.rows, self.fixed, list(dict.fromkeys(used)), scratch))
            self.prepare += [f"low{k}, high{k} = low * per{k}, high * per{k}", f"count{k} = high{k} - low{k}"]
            self.prepare += self.operands[k].prepare
        self.sizes = [operands.index.sizes for operands in self.operands]

    def of(self, value: Value) -> int:
        """The number of a Value's space."""
        return self.spaces[value.shape]

    def part(self, array: str, value: Value) -> str:
        """The elements of the block, of an array or of a row."""
        return f"tail({array}, low{self.of(value)})"

    def count(self, value: Value) -> str:
        """The number of these elements."""
        return f"count{self.of(value)}"

    def new(self, value: Value, kind: DType | None = None, rows: str = "") -> str:
        """A new array of the block, or `rows` of them, of the Value's dtype or another."""
        dtype = (kind or kind_of(value)).dtype
        if rows:
            return f"np.empty(({rows}, {self.count(value)}), np.{dtype.type.__name__})"
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
        """The lines of one step.

        Args:
            stores: the phases, and what each of them stores.
            array_of: the names of the arrays that the states before the step are in.
            targets: the arrays for the states after it.
            sequences: Values that go to `o0[t]`, ...
            summed: Values that are added to `z0`, ...
            near: of sequences that may be stored elsewhere, the statements that say where.
        """
        array_of = array_of | {value: targets[n] for value, n in stores.direct.items()}
        lines: list[str] = []
        for n, value in enumerate(sequences):
            lines += (near or {}).get(value) or [f"g{n} = {self.part(f'row(o{n}, t)', value)}"]
        for n, value in enumerate(sequences):  # one that is a state has an array, and is copied
            array_of.setdefault(value, f"g{n}")
        for value in stores.shared:
            array_of[value] = f"e{self._buffers}"
            self.prepare.append(f"{array_of[value]} = {self.new(value)}")
            self._buffers += 1
        for number, (phase, needed) in enumerate(stores.needs):
            if phase.product:
                lines += self._product(phase.instructions[0], array_of)
                continue
            space, body = self.spaces[phase.shape], Statements(self.scalars)
            lines += self.operands[space].load(body, [x for x in needed if x not in array_of])
            for value in needed:
                if value in array_of:
                    body.load(value, f"{array_of[value]}[i]")
            for instruction in phase.instructions:
                body.compute(instruction)
            names = body.names
            # All stores of an element come after its loads, so a state may be overwritten in place.
            body.lines += [f"{array_of[x]}[i] = {names[x]}" for x in stores.shared if x in names and x not in needed]
            body.lines += [f"g{sequences.index(x)}[i] = {names[x]}" for x in stores.sequences[number]]
            body.lines += [f"z{summed.index(x)}[i] += {names[x]}" for x in stores.summed[number]]
            body.lines += [f"{targets[n]}[i] = {names[stores.targets[n]]}" for n in stores.after[number]]
            if body.lines:
                lines += [f"for i in range(count{space}):", *loops.indent(body.lines)]
        return lines

    def _product(self, instruction: Instruction, array_of: dict[Value, str]) -> list[str]:
        x, y = instruction.inputs
        out = instruction.outputs[0]
        inner, width, dtype = f"per{self.of(x)}", f"per{self.of(out)}", kind_of(out).dtype.type.__name__
        if kind_of(out).dtype.kind != "f":
            operands = ", ".join(f"tail({array}, 0)" for array in (array_of[x], f"a{self.fixed[y]}", array_of[out]))
            return [comment_on(instruction), f"rows.multiply_plainly({operands}, high - low, {inner}, {width})"]
        suffix = f"{self.of(x)}_{dtype}"
        # Room for the events of a row, shared by the products of one shape and dtype.
        room = [
            f"places{suffix} = np.empty({inner}, np.int32)",
            f"values{suffix} = np.empty({inner}, np.{dtype})",
        ]
        self.prepare += [line for line in room if line not in self.prepare]
        # All as pointers: the function is compiled once for each combination of argument types.
        arrays = [array_of[x], f"a{self.fixed[y]}", array_of[out]]
        arrays += [f"{array}{suffix}" for array in ("places", "values")]
        rows, matrix, result, *events = (f"tail({array}, 0)" for array in arrays)
        arguments = [rows, matrix, result, "high - low", inner, width, *events]
        rounding = Statements().rounding(out, f"{array_of[out]}[i]")
        if rounding:
            rounding = [f"for i in range(count{self.of(out)}):", *loops.indent(rounding)]
        return [comment_on(instruction), f"rows.multiply_rows({', '.join(arguments)})", *rounding]
