"""Dead code elimination: remove instructions, constants and Parameters whose Values reach no result.

    before: a = exp(x); b = sin(x); return a        last, ys, saved = scan(...); return last
    after:  a = exp(x); return a                    last            = scan(...); return last

A loop loses single results. For example, values saved for an unused backward pass are neither computed nor stored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from snncell.compiler.ir.loop import LoopOperation
from snncell.compiler.ir.program import Program, with_inputs
from snncell.tape.tracing import Instruction, Value


def eliminate_dead_code(program: Program) -> Program:
    """Remove the instructions, constants and Parameters that no result depends on, and such results of loops."""
    needed = set(program.results())  # writes to Parameters among them
    instructions = []
    for instruction in reversed(program.instructions):
        if not needed.isdisjoint(instruction.outputs):
            if isinstance(instruction.op, LoopOperation):
                instruction = instruction.op.pruned(instruction, needed)
            instructions.append(instruction)
            needed.update(x for x in instruction.inputs if isinstance(x, Value))
    return program._replace(
        instructions=instructions[::-1],
        constants=[(array, value) for array, value in program.constants if value in needed],
        parameters={parameter: value for parameter, value in program.parameters.items() if value in needed},
    )


def leading_to(instructions: list[Instruction], results: list[Value]) -> list[Instruction]:
    """Select the instructions that `results` depend on."""
    return eliminate_dead_code(Program([], {}, [], instructions, results, {})).instructions


# --- Common subexpression elimination: keep the first of equal instructions and use its results for the later ones ----

# before: a = exp(x); b = exp(x); c = mul(a, b)
#     after:  a = exp(x); c = mul(a, a)
#
# This pays because each `bprop` is written separately and computes again what the forward pass or another `bprop` has
# computed. One walk in order is enough, because inputs are renamed before instructions are compared. No instruction is
# exempt, because instructions have no effects: random numbers come from a state that is an input, and a write to a
# Parameter is not an instruction.


def eliminate_common_subexpressions(program: Program) -> Program:
    """Replace instructions with equal operations, inputs and attributes by the first of them."""
    replaced: dict[Value, Value] = {}
    first_of: dict[Any, Instruction] = {}
    instructions = []
    for instruction in program.instructions:
        inputs = tuple(replaced.get(x, x) if isinstance(x, Value) else x for x in instruction.inputs)
        # Numbers by their text, because 1 == 1.0 == True and 0.0 == -0.0, but results differ.
        operands = tuple(x if isinstance(x, Value) else repr(x) for x in inputs)
        key = (instruction.op, operands, repr(sorted(instruction.attrs.items())))
        first = first_of.setdefault(key, instruction)
        if first is instruction:
            instructions.append(instruction if inputs == instruction.inputs else with_inputs(instruction, inputs))
        else:
            replaced.update(zip(instruction.outputs, first.outputs, strict=True))
    return program._replace(
        instructions=instructions,
        outputs=[replaced.get(value, value) for value in program.outputs],
        written={parameter: replaced.get(value, value) for parameter, value in program.written.items()},
    )


# --- Constant folding: evaluate instructions that depend on constants and numbers alone once, when the Program is built

# before: c = constant; d = exp(c); y = mul(x, d)
#     after:  d = constant; y = mul(x, d)
#
# This pays at each run. A folded result is held as long as the Program, so instructions with more than FOLDED_BYTES of
# results are left alone. So are:
#
# - constants on the device, because they would be evaluated there during compilation;
# - instructions without a constant among their inputs (`zeros(shape)`, a broadcast number), because they read no memory,
#   and a held result would have to be read;
# - operations that reach other processes, because they must run each time.

FOLDED_BYTES = 1 << 20  # a larger result is computed at each run rather than held


def fold_constants(program: Program) -> Program:
    """Evaluate the instructions that depend on constants alone, unless their results are large."""
    known = {value: array for array, value in program.constants}
    instructions, constants = [], list(program.constants)
    for instruction in program.instructions:
        inputs = [known.get(x) if isinstance(x, Value) else x for x in instruction.inputs]
        if (
            instruction.op.outside
            or not _is_foldable(inputs)
            or sum(map(_bytes_of, instruction.outputs)) > FOLDED_BYTES
        ):
            instructions.append(instruction)
            continue
        out = instruction.op.run(inputs, inputs, instruction.attrs)
        for value, array in zip(instruction.outputs, out if instruction.op.multiple else (out,), strict=True):
            known[value] = array
            constants.append((array, value))
    return eliminate_dead_code(program._replace(instructions=instructions, constants=constants))


def _is_foldable(inputs: Sequence[Any]) -> bool:
    """True for known arrays on the host and numbers, with at least one array; None is a Value that is not known."""
    arrays = [isinstance(x, np.ndarray) for x in inputs]
    return any(arrays) and all(
        is_array or not (x is None or hasattr(x, "shape")) for x, is_array in zip(inputs, arrays, strict=True)
    )


def _bytes_of(value: Value) -> int:
    return math.prod(value.shape) * int(value.dtype.itemsize)
