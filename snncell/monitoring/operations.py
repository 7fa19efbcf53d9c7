"""Arithmetic in a step of a neuron: its multiplications and additions, counted in the Program that it is traced to."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from snncell.compiler.ir.formula import Elementwise, Reduction
from snncell.compiler.ir.product import Dot, Product
from snncell.compiler.passes.canonicalise import from_trace
from snncell.errors import SnncellError
from snncell.monitoring.record import Update
from snncell.tape import structure
from snncell.tape.state import settings
from snncell.tape.tracing import Instruction, Trace
from snncell.tape.value import Value

FREE = frozenset({"cast", "neg", "logical_not", "isnan", "isfinite"})  # bits that are read in another way
ADDITIONS = frozenset(
    {"add", "sub", "abs", "sign", "maximum", "minimum", "floor", "ceil", "round", "relu", "relu6", "leaky_relu"}
    | {"equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "where"}
    | {"logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor"}
)
_NEUTRAL = {"mul": 1.0, "div": 1.0, "add": 0.0, "sub": 0.0}


class Operations(NamedTuple):
    """The operations of a neuron's step, per update of one neuron.

    Attributes:
        multiplications: with divisions; a root, an exponential or the like counts as one.
        additions: with comparisons, absolute values, and choices between two values.
    """

    multiplications: float
    additions: float


def operations_of(update: Update, weighted: tuple[type, ...] = ()) -> Operations | None:
    """The operations of a step, its products too; None where it cannot be traced, as it branches on values.

    Where a neuron holds layers of the kinds `weighted`, products are counted with those.
    """
    apart = any(isinstance(below, weighted) for _, below in update.cell.cells_and_names())
    trace = Trace(taped=False)
    quiet: dict[str, Any] = {"watch": None, "tape": None, "smooth": False, "notes": []}
    try:
        with settings(trace=trace, **quiet):
            stand_ins = [trace.new_input(shape, dtype) for shape, dtype in update.inputs]
            results = structure.flatten(update.cell(*stand_ins))[0]
            outputs = [trace.lift(result) for result in results]
    except SnncellError:
        return None
    multiplications, additions = 0.0, 0.0
    for step in from_trace(trace, outputs).instructions:
        if apart and isinstance(step.op, (Dot, Product)):
            continue
        of_step = _in_step(step)
        multiplications += of_step[0]
        additions += of_step[1]
    elements = max(update.neurons * update.steps, 1)
    return Operations(multiplications / elements, additions / elements)


def _in_step(step: Instruction) -> tuple[float, float]:
    """Multiplications and additions of one step of a Program."""
    size = math.prod(step.outputs[0].shape)
    name = step.op.name
    if isinstance(step.op, (Dot, Product)):  # dense: a neuron's own weights are not looked through for spikes
        terms = size * step.inputs[0].shape[-1]
        return terms, terms
    if isinstance(step.op, Reduction):
        read = next(x for x in step.inputs if isinstance(x, Value))
        return 0.0, math.prod(read.shape)
    if not isinstance(step.op, Elementwise) or name in FREE or _neutral(step):
        return 0.0, 0.0
    return (0.0, size) if name in ADDITIONS else (size, 0.0)


def _neutral(step: Instruction) -> bool:
    """True for x * 1, x / 1, x + 0 and x - 0."""
    others = [x for x in step.inputs[1:] if not isinstance(x, Value)]
    return step.op.name in _NEUTRAL and any(x == _NEUTRAL[step.op.name] for x in others)
