"""The Values that gradients of higher orders look at, where the reverse itself may not.

Where an outer tape records, a loop must not leave out an input that only a further gradient takes, nor do without the
states that only it needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import NoneType

from snncell.compiler.ir.loop import LoopOperation
from snncell.compiler.ir.program import find_used_values
from snncell.compiler.passes.canonicalise import from_trace
from snncell.tape.backward import ancestors
from snncell.tape.custom import Composite
from snncell.tape.primitive import Primitive
from snncell.tape.state import RECORDING
from snncell.tape.tensor import Tensor
from snncell.tape.tracing import BodyTrace
from snncell.tape.value import Value


def find_needed_inputs(
    trace: BodyTrace, outs: Iterable[Tensor], among: Sequence[Tensor], given: Sequence[Tensor] = ()
) -> set[Value]:
    """Find the Values of inputs that gradients of `outs` look at; none unless an outer tape records.

    Args:
        trace: of the step, or of its reverse.
        outs: its outputs.
        among: inputs of the step, or of the step that it is the reverse of.
        given: Tensors that such a gradient is given, so that it needs nothing they were computed from.
    """
    if RECORDING.tape is None:
        return set()
    ends = {x._entry for x in given if x._entry is not None}
    entries = [entry for entry in ancestors((out._entry for out in outs), ends) - ends if entry is not None]
    needed = {x._data for x in among if x._entry in entries}
    # Integers, and Parameters that the step writes, are on no tape, but the bprops on the way look at them.
    operands = [x._data for entry in entries for x in entry.inputs if isinstance(x, Tensor)]
    if any(not isinstance(entry.op, (Primitive, Composite, NoneType)) for entry in entries):  # a bprop of a user's
        operands += [value for parameter, value in trace.carried.items() if parameter.dtype.is_float]
        # It is called once more, and may look again at whatever it has found outside of the loop.
        operands += [value for _, value in trace.captures.values()]
    if any(isinstance(entry.op, LoopOperation) for entry in entries):  # its step sees them too
        operands += [x._data for x in among if x._entry is None]
    inside = [x for x in operands if isinstance(x, Value) and x.trace in trace.lineage]
    known = {x._data for x in given}
    looked_at = find_used_values(from_trace(trace, inside, known))
    return (needed | looked_at.intersection(x._data for x in among)) - known
