"""Constant folding."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from snncell.compiler.ir.program import Program
from snncell.compiler.passes.dce import eliminate_dead_code
from snncell.tape.tracing import Value

FOLDED_BYTES = 1 << 20  # a constant that is larger is computed again rather than kept


def fold_constants(program: Program) -> Program:
    """Evaluate what depends on constants alone, unless it makes much of little."""
    known = {value: array for array, value in program.constants}
    steps, constants = [], list(program.constants)
    for step in program.steps:
        inputs = [known.get(x) if isinstance(x, Value) else x for x in step.inputs]
        size = sum(math.prod(value.shape) * value.dtype.itemsize for value in step.outputs)
        foldable = all(_is_array(x) or not hasattr(x, "shape") for x in inputs)  # not what is on the device
        if not known or size > FOLDED_BYTES or any(x is None for x in inputs) or not any(map(_is_array, inputs)):
            foldable = False
        if not foldable:
            steps.append(step)
            continue
        out = step.op.run(inputs, inputs, step.attrs)
        for value, array in zip(step.outputs, out if step.op.multiple else (out,), strict=True):
            known[value] = array
            constants.append((array, value))
    return eliminate_dead_code(program._replace(steps=steps, constants=constants))


def _is_array(x: Any) -> bool:
    return isinstance(x, np.ndarray)
