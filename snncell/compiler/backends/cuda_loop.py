"""CUDA backend for loops over time: one thread per element runs all steps, with the state in registers.

i = cuda.grid(1)
w0 = c0[i]                                 the state
while turn < steps:  ...  w0 = t3          sequences are prefetched AHEAD steps before their use
last0[i] = w0
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.compiler.backends.expressions import IndexSpace, Statements, as_scalar, cuda_head, kind_of, sum_of_elements
from snncell.compiler.backends.groups import add_term, begin_sums, load_element, store_element
from snncell.compiler.ir.program import values_in
from snncell.compiler.schedule import LoopBackend, LoopResults, LoopSchedule
from snncell.kernels.cuda.build import THREADS, build
from snncell.kernels.cuda.runtime import runtime
from snncell.kernels.loops import indent
from snncell.kernels.scalar import CUDA
from snncell.kernels.space import DEVICE
from snncell.tape.state import Value
from snncell.tape.tracing import Instruction

LEGEND = """
# c0, c1, ...  the initial states, with strides m0, ...: 1, or 0 for a broadcast scalar
# n            elements; n0, n1, ...: the lengths of their axes, with indices g0, g1, ...
# x0, ...      the input sequences, with strides h0, ...: elements of a slice, or 0 if all steps read the same slice
# a0, ...      loop-invariant operands; s0, ...: numbers
# last0, ...   the final states; o0, ...: results; q0, ...: sums over time; p0, ...: checkpoints
# kept0, ...   scratch memory for the states between checkpoints
"""


AHEAD = 4  # the prefetch distance in steps


class CUDALoop(LoopBackend):
    """The kernel of an elementwise loop body."""

    def __init__(self, schedule: LoopSchedule) -> None:
        super().__init__(schedule)
        self.scalars: list[tuple[Any, Any]] = []
        self.shape = self.common_shape()
        self.name = f"cuda_scan_{self.identifier[:44]}"
        # The index of a thread's element in each operand.
        operands = [*self.input_sequences, *self.fixed]
        self.index = IndexSpace(self.shape, operands)
        axes = range(len(self.index.sizes))
        coordinates, lengths = [f"g{axis}" for axis in axes], [f"n{axis}" for axis in axes]
        self.place = {
            value: "i" if self.index.coverage(value) == "all" else self.index.place(value, coordinates, lengths)
            for value in operands
        }
        self._emit()
        self._kernel: Any = None

    def _emit(self) -> None:
        lines = ["j = i"]
        for axis in reversed(range(len(self.index.sizes))):
            lines += [f"g{axis} = j % n{axis}", f"j = j // n{axis}"]
        for n, value in enumerate(self.fixed):
            lines.append(f"d{n} = {load_element(value, f'a{n}', self.place[value])}")
        lines += [f"w{n} = {load_element(value, f'c{n}', f'i * m{n}')}" for n, value in enumerate(self.carry)]
        lines += begin_sums(list(map(sum_of_elements, self.summed)))
        lines += self._recomputing() if self.recompute else self._straight()
        lines += [store_element(value, f"last{n}", "i", f"w{n}") for n, value in enumerate(self.carry)]
        lines += [f"q{n}[i] = z{n}" for n in range(len(self.summed))]
        self._finish(["i = cuda.grid(1)", "if i < n:", *indent(lines)])

    def _straight(self) -> list[str]:
        # Software prefetching: a load takes hundreds of cycles, much longer than the instructions of a step. So the
        # loads of AHEAD steps are in flight, and y0_0, y0_1, ... are a queue in registers.
        used = self._used()
        first = []
        for d in range(AHEAD):
            first.append(f"at{d} = {self._turned(f'min({d}, steps - 1)')}")
            first += [f"y{n}_{d} = {self._row(value, f'at{d}')}" for n, value in used]
        lines = [f"t = {self._turned('turn')}", f"far = {self._turned(f'min(turn + {AHEAD}, steps - 1)')}"]
        for n, value in used:
            lines += [f"r{n} = y{n}_0", *(f"y{n}_{d} = y{n}_{d + 1}" for d in range(AHEAD - 1))]
            lines.append(f"y{n}_{AHEAD - 1} = {self._row(value, 'far')}")
        if self.storing:
            place = "(turn // every) * n + i"
            checkpoint = [store_element(x, f"p{n}", place, f"w{n}") for n, x in enumerate(self.carry)]
            lines += ["if turn % every == 0:", *indent(checkpoint)]
        variables = {value: f"w{n}" for n, value in enumerate(self.carry)} | {value: f"r{n}" for n, value in used}
        lines += self._step(self.instructions, variables, "", self._results)
        loop = [*first, "turn = 0", "while turn < steps:", *indent([*lines, "turn += 1"])]
        return ["if steps > 0:", *indent(loop)]

    def _turned(self, turn: str) -> str:
        return f"steps - 1 - {turn}" if self.backwards else turn

    def _row(self, value: Value, step: str) -> str:
        n = self.input_sequences.index(value)
        return load_element(value, f"x{n}", f"{step} * h{n} + {self.place[value]}")

    def _used(self) -> list[tuple[int, Value]]:
        """The sequences that the loop itself reads; the others are only for the rematerialised forward step."""
        used = {*values_in(*self.instructions), *self.after, *self.sequences, *self.summed}
        return [(n, value) for n, value in enumerate(self.input_sequences) if value in used]

    def _recomputing(self) -> list[str]:
        assert self.recompute is not None  # the callers have checked it
        place = f"t = {'first + turn' if self.backwards else 'steps - 1 - first - turn'}"
        variables = {value: f"k{n}" for n, value in enumerate(self.stored)}
        after = self.recompute.parts.after

        def stored(place: str) -> list[str]:
            return [store_element(x, f"kept{n}", place, f"k{n}") for n, x in enumerate(self.stored)]

        def following(names: dict[Value, str]) -> list[str]:
            # One assignment for all, because states may be swapped, as in v, u = u, v.
            assigned = ", ".join(variables.values()) + " = " + ", ".join(names[value] for value in after)
            return [assigned, *stored("(turn + 1) * n + i")]

        once = [f"k{n} = {load_element(x, f'p{n}', 'segment * n + i')}" for n, x in enumerate(self.stored)]
        once += stored("i")
        recomputed = [place, *self._step(self.recomputed, variables, "again", following), "turn += 1"]
        back = [place, *(f"k{n} = {load_element(x, f'kept{n}', 'turn * n + i')}" for n, x in enumerate(self.stored))]
        own = {**variables, **{value: f"w{n}" for n, value in enumerate(self.carry)}}
        back += [*self._step(self.instructions, own, "", self._results), "turn -= 1"]
        segment = ["first = segment * every", "length = min(every, steps - first)", *once, "turn = 0"]
        segment += ["while turn < length - 1:", *indent(recomputed)]
        segment += ["turn = length - 1", "while turn >= 0:", *indent(back)]
        return ["segment = (steps - 1) // every", "while segment >= 0:", *indent([*segment, "segment -= 1"])]

    def _results(self, names: dict[Value, str]) -> list[str]:
        """Statements that store the results, add to the sums, and update the states."""
        lines = [store_element(x, f"o{n}", "t * n + i", names[x]) for n, x in enumerate(self.sequences)]
        for n, value in enumerate(self.summed):
            lines += add_term(n, sum_of_elements(value, term=names[value]))
        if self.carry:
            targets = ", ".join(f"w{n}" for n in range(len(self.carry)))
            lines.append(f"{targets} = {', '.join(names[value] for value in self.after)}")
        return lines

    def _step(self, instructions: list[Instruction], variables: dict[Value, str], mark: str, results: Any) -> list[str]:
        """The statements of a step; `mark` is a suffix for names of the rematerialised forward step."""
        body = Statements(self.scalars, CUDA, mark)
        body.names.update(variables)
        body.names.update({value: f"d{n}" for n, value in enumerate(self.fixed)})
        recomputed = {*values_in(*instructions), *(self.recompute.parts.after if self.recompute and mark else ())}
        for value in [x for x in self.input_sequences if x in recomputed] if mark else [x for _, x in self._used()]:
            if value not in variables:
                body.load(value, self._row(value, "t"))
        for instruction in instructions:
            body.compute(instruction)
        return [*body.lines, *results(body.names)]

    def _finish(self, lines: list[str]) -> None:
        number = dtypes.int64
        segments = [f"kept{n}" for n in range(len(self.stored))]
        arguments: list[tuple[str, Any]] = [(name, number) for name in ("steps", "n", "every")]
        arguments += [(f"n{axis}", number) for axis in range(len(self.index.sizes))]
        for letter, extra, values in (("c", "m", self.carry), ("x", "h", self.input_sequences)):
            for n, value in enumerate(values):
                arguments += [(f"{letter}{n}", _array(value, False)), (f"{extra}{n}", number)]
        arguments += [(f"a{n}", _array(value, False)) for n, value in enumerate(self.fixed)]
        arguments += [(f"p{n}", _array(value, False)) for n, value in enumerate(self.stored)]
        arguments += [(name, _array(value, True)) for name, value in zip(segments, self.stored, strict=True)]
        arguments += [(f"s{n}", dtypes.BY_NUMPY[dtype]) for n, (_, dtype) in enumerate(self.scalars)]
        for letter, values in (("last", self.carry), ("o", self.sequences)):
            arguments += [(f"{letter}{n}", _array(value, True)) for n, value in enumerate(values)]
        arguments += [(f"q{n}", (kind_of(value), True)) for n, value in enumerate(self.summed)]
        if self.storing:
            arguments += [(f"p{n}", _array(value, True)) for n, value in enumerate(self.carry)]
        names = ", ".join(name for name, _ in arguments)
        others = [*self.carry, *self.stored, *self.input_sequences, *self.fixed, *self.summed]
        head = cuda_head([*self.recomputed, *self.instructions], others) + LEGEND
        self.source = f"{head}\n\ndef {self.name}({names}):\n" + "\n".join(indent(lines)) + "\n"
        self.signature = tuple(kind for _, kind in arguments)
        self.numbers = [dtype.type(as_scalar(value, dtype)) for value, dtype in self.scalars]

    def kernels(self, steps: int) -> list[tuple[Any, ...]]:
        """The kernel as arguments of `build`."""
        return [(self.name, self.source, self.signature, False)]

    def run(self, known: dict[Value, Any], varying: set[Value], steps: int) -> LoopResults:
        """Launch the kernel."""
        if self._kernel is None:
            self._kernel = build(self.name, self.source, self.signature)
        count, every = math.prod(self.shape), self.every
        last = [DEVICE.empty(value.shape, value.dtype) for value in self.carry]
        ys = {value: DEVICE.empty((steps, *value.shape), value.dtype) for value in self.sequences}
        sums = [DEVICE.empty(value.shape, kind_of(value).dtype) for value in self.summed]
        results = [*last, *ys.values(), *sums]
        segments = -(-steps // every)
        stored = [DEVICE.empty((segments, *x.shape), x.dtype) for x in self.carry if self.storing]
        arguments: list[Any] = [steps, count, every, *self.index.sizes]
        held = []  # keeps copies alive until the launch, because otherwise the pool would reuse their memory
        for value in self.carry:
            array = known[value]
            array = array.reshape(-1)[:1] if array.uniform and array.size > 1 else DEVICE.contiguous(array)
            held.append(array)
            arguments += [array.argument, int(array.size == count)]
        for value in self.input_sequences:
            array = known[value]
            one = steps > 1 and array.strides[0] == 0
            array = DEVICE.contiguous(array[:1] if one else array)
            held.append(array)
            arguments += [array.argument, 0 if one else math.prod(value.shape)]
        fixed = [DEVICE.contiguous(known[value]) for value in self.fixed]
        checkpoints = [DEVICE.contiguous(known[value]) for value in self.stored]
        room = [DEVICE.empty((every, *value.shape), value.dtype) for value in self.stored]
        arrays = [x.argument for x in (*fixed, *checkpoints, *room)]
        outs = [x.argument for x in (*results, *stored)]
        blocks = -(-count // THREADS)
        runtime().launch(self._kernel, blocks, THREADS, [*arguments, *arrays, *self.numbers, *outs])
        return last, ys, dict(zip(self.summed, sums, strict=True)), stored

    def describe(self, steps: int) -> str:
        """Describe for `explain` how the loop runs."""
        return f"one kernel on the device, a thread for each of {math.prod(self.shape)} elements, {steps} steps"


def _array(value: Value, writable: bool) -> tuple[Any, bool]:
    return dtypes.BY_NUMPY[np.dtype(value.dtype)], writable
