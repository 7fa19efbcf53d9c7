"""Constant folding: evaluate instructions that depend on constants and numbers alone once, when the Program is built.

    before: c = constant; d = exp(c); y = mul(x, d)
    after:  d = constant; y = mul(x, d)

This pays at each run. A folded result is held as long as the Program, so instructions with more than FOLDED_BYTES of
results are left alone. So are:

- constants on the device, because they would be evaluated there during compilation;
- instructions without a constant among their inputs (`zeros(shape)`, a broadcast number), because they read no memory,
  and a held result would have to be read;
- operations that reach other processes, because they must run each time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from snncell.compiler.ir.program import Program
from snncell.compiler.passes.dce import eliminate_dead_code
from snncell.tape.value import Value

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
