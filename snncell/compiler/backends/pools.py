"""Pooling in the kernel of a loop: of results at the end of a step, and of gradients at its start.

    for each block:
        for t in range(steps):
            spread0(...): spread0_near = the gradients of the block's windows, as images      `Spreads`
            for i in block: ...  pool0_near = the spikes, which are not written to memory
            pool0(...): row t of the pooled sequences = the results of pool0_near             `Pools`

A block of a loop that pools has whole units of images (`ir/windows.py`). A loop that spreads has any blocks, because
its sums must not depend on pooling. It lays out all units of which the block has elements.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.compiler.backends.expressions import kind_of
from snncell.compiler.ir.windows import WindowOperation, is_spread, unit_of
from snncell.kernels import loops
from snncell.kernels.arrays import empty
from snncell.kernels.windows import lanes_of, place_dtype
from snncell.tape.state import Value
from snncell.tape.tracing import Instruction

IMPORTS = "from snncell.kernels.intrinsics.builtins import call_once\n"


class PoolFunction:
    """The function of a kernel that pools units of images, or spreads gradients over them."""

    def __init__(self, name: str, instruction: Instruction) -> None:
        op, attrs = instruction.op, instruction.attrs
        assert isinstance(op, WindowOperation)  # the schedule has checked it
        self.name, self.instruction = name, instruction
        windows, spreads = attrs["windows"], is_spread(instruction)
        self.unit = unit_of(instruction)
        self.kind = kind_in_pools(instruction.inputs[0])
        elements = windows.size[-1] if spreads else windows.elements
        low, high, lanes = lanes_of(windows, self.unit.lengths[-1], elements, self.kind.dtype)
        declared = op.spreads if spreads else op.reduces
        assert declared is not None  # the schedule has checked it
        text = declared(name, lanes, **{key: attrs[key] for key in ("windows", "divisor") if key in attrs})
        # Functions of one file may have different dtypes, so each names its casts.
        for cast, dtype in (("value", self.kind.dtype), ("place", place_dtype(windows))):
            text = re.sub(rf"\b{cast}\(", f"np.{dtype}(", text)
        self.source = f"@call_once\n{text}"
        axes = range(len(self.unit.lengths))
        self.sizes = [f"{name}_{letter}{axis}" for letter in "nm" for axis in axes] + [f"{name}_low", f"{name}_high"]
        self.numbers = dict(zip(self.sizes, (*self.unit.lengths, *self.unit.counts, low, high), strict=True))
        self.numbers |= {f"{name}_unit": self.unit.elements, f"{name}_cells": self.unit.windows}

    def call(self, units: str, arrays: Sequence[str]) -> str:
        """The statement that processes the first `units` of the arrays."""
        return f"{self.name}(0, {units}, {', '.join((*self.sizes, *arrays))})"


class Spreads:
    """Gradients of pooling that a loop reads. In the place of the sequence of images, the kernel gets the gradient of
    the pooled images, and for max pooling the positions in the windows.
    """

    def __init__(self, instructions: Sequence[Instruction], sequences: list[Value]) -> None:
        self.functions = [PoolFunction(f"spread{n}", one) for n, one in enumerate(instructions)]
        self.rows = [sequences.index(one.outputs[0]) for one in instructions]  # the numbers of their sequences
        self.array_of = {f.instruction.outputs[0]: f"{f.name}_part" for f in self.functions}
        # Maps a sequence to the sequence that the kernel reads instead.
        self.source_of = {f.instruction.outputs[0]: f.instruction.inputs[0] for f in self.functions}

    def begin(self) -> list[str]:
        """The statements at the start of a block."""
        lines = []
        for f in self.functions:
            unit, near = f"{f.name}_unit", f"{f.name}_near"
            lines += [
                f"{f.name}_first = low0 // {unit}",
                f"{f.name}_units = (high0 + {unit} - 1) // {unit} - {f.name}_first",
                f"{near} = heap({f.name}_units * {unit} + {loops.SLACK}, np.{f.kind.dtype})",
                f"{f.name}_part = tail({near}, low0 - {f.name}_first * {unit})",
            ]
        return lines

    def step(self) -> list[str]:
        """The statements at the start of a step."""
        lines = []
        for f, n in zip(self.functions, self.rows, strict=True):
            cell = f"{f.name}_first * {f.name}_cells"
            arrays = [f"tail(row(x{n}, t * h{n}), {cell})"]
            arrays += [f"tail(row({f.name}_places, t * {f.name}_stride), {cell})"] * (len(f.instruction.inputs) - 1)
            lines.append(f.call(f"{f.name}_units", [*arrays, f"tail({f.name}_near, 0)"]))
        return lines

    def arguments(self) -> list[tuple[str, Any]]:
        """The names and types of the kernel's additional arguments."""
        arguments: list[tuple[str, Any]] = []
        for f in self.functions:
            arguments += [(name, dtypes.int64) for name in f.numbers]
            for places in f.instruction.inputs[1:]:
                arguments += [(f"{f.name}_places", (kind_of(places), 2, False)), (f"{f.name}_stride", dtypes.int64)]
        return arguments


class Pools:
    """Pooling of results of a loop. `needed` are the results that something else needs, so the kernel writes them."""

    def __init__(self, instructions: Sequence[Instruction], sequences: list[Value], needed: set[Value]) -> None:
        self.functions = [PoolFunction(f"pool{n}", one) for n, one in enumerate(instructions)]
        self.images = {f.instruction.inputs[0]: sequences.index(f.instruction.inputs[0]) for f in self.functions}
        self.near = {value: n for value, n in self.images.items() if value not in needed}  # those that are not written
        self.unit = math.lcm(*(f.unit.elements for f in self.functions)) if self.functions else 1

    def begin(self, allocate: Any) -> list[str]:
        """The statements at the start of a block; `allocate(count, dtype)` is the text of an allocation."""
        return [f"pooled{n} = {allocate('count0', kind_in_pools(value).dtype)}" for value, n in self.near.items()]

    def places(self) -> dict[Value, list[str]]:
        """The statements that choose the array for a step's results that are not written to memory."""
        return {value: [f"g{n} = pooled{n}"] for value, n in self.near.items()}

    def step(self) -> list[str]:
        """The statements at the end of a step."""
        lines = []
        for f in self.functions:
            outs = [f"{f.name}_out{n}" for n in range(len(f.instruction.outputs))]
            arrays = [f"tail(row({out}, t), low0 // {f.name}_unit * {f.name}_cells)" for out in outs]
            image = f"tail(g{self.images[f.instruction.inputs[0]]}, 0)"
            lines.append(f.call(f"count0 // {f.name}_unit", [image, f"tail({f.name}_nothing, 0)", *arrays]))
        return lines

    def arguments(self) -> list[tuple[str, Any]]:
        """The names and types of the kernel's additional arguments."""
        arguments: list[tuple[str, Any]] = []
        for f in self.functions:
            arguments += [(name, dtypes.int64) for name in f.numbers]
            arguments.append((f"{f.name}_nothing", (f.kind, 1, False)))
            for n, out in enumerate(f.instruction.outputs):
                arguments.append((f"{f.name}_out{n}", (kind_in_pools(out) if n == 0 else kind_of(out), 2, True)))
        return arguments

    def operands(self, steps: int) -> tuple[list[Any], dict[Value, Any]]:
        """The values of `arguments`, and the pooled sequences that the kernel fills."""
        operands, results = list[Any](), dict[Value, Any]()
        for f in self.functions:
            least = -1 if f.kind is dtypes.int8 else -math.inf  # less than every element
            operands += [*f.numbers.values(), np.full(1, least, f.kind.dtype)]
            for n, out in enumerate(f.instruction.outputs):
                results[out] = empty((steps, math.prod(out.shape)), kind_of(out).dtype)
                operands.append(as_pooled(results[out]) if n == 0 else results[out])
        return operands, results


def kind_in_pools(value: Value) -> dtypes.DType:
    """The dtype in which functions of pooling read and write a Value: signed for bytes (`kernels/pooling.py`)."""
    return dtypes.int8 if value.dtype in dtypes.BYTES else kind_of(value)


def as_pooled(array: Any) -> Any:
    """View an array in the dtype of `kind_in_pools`."""
    return array.view(np.int8) if array.dtype in dtypes.BYTES else array
