"""Tracing one step of a loop: what does not depend on the step is carried out around the loop, once.

def step(v, x):            traced:  v' = v * c + x       with c captured
    c = exp(-1 / tau)      outside: c = exp(-1 / tau)    once, and on the outer tape
    return v * c + x
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from snncell.tape.state import STATE, settings
from snncell.tape.tensor import Tensor, snapshot
from snncell.tape.tracing import Trace, Value

if TYPE_CHECKING:
    from snncell.tape.parameter import Parameter
    from snncell.tape.tape import Tape


class BodyTrace(Trace):
    """The trace of one step of a loop, or, as a `fork`, of a step together with its reverse.

    Whatever comes from outside of the step is an input of it, a `capture`: Tensors, Parameters, Values of the trace
    around. What does not depend on the step at all is not part of it: an operation whose operands all come from outside
    is carried out there, once, and on the tape that is active there. Parameters that the step writes are states.

    Args:
        who: what runs the loop, for errors.
        tape: where the step's own operations are recorded.
        carried: Parameters that the step writes, as far as they are known.
    """

    def __init__(self, who: str, tape: Tape | None, carried: Iterable[Parameter] = ()) -> None:
        super().__init__(taped=tape is not None, who=who)
        self.tape = tape
        self.lineage: tuple[Trace, ...] = (self,)  # the traces whose Values are this one's: forks, youngest first
        self.around = (STATE.trace, STATE.tape)
        self.eager = STATE.trace is None or STATE.trace.eager
        self.tensors: dict[Value, Tensor] = {}  # for each Value the Tensor that has its place on the tape
        self.ambiguous: set[Value] = set()  # Values with several such places
        self.noted: set[int] = set()  # ids of results that go out for monitors alone
        self.carried = {p: self.new_input(p.shape, p._data.dtype)._data for p in carried}

    def fork(self) -> BodyTrace:
        """A trace that begins with the steps of this one, and may use its Values."""
        child = BodyTrace(self.who, self.tape)
        child.lineage = (child, *self.lineage)
        child.count = self.count
        child.tensors, child.ambiguous = dict(self.tensors), set(self.ambiguous)
        child.inputs, child.instructions = list(self.inputs), list(self.instructions)
        child.captures, child.cells, child.carried = dict(self.captures), dict(self.cells), self.carried
        return child

    def lift(self, x: Any) -> Any:
        """The Value that stands for `x`; what comes from outside becomes an input."""
        if not isinstance(x, Tensor):
            return x
        data = x._data
        if isinstance(data, Value) and data.trace in self.lineage:
            return data
        key: Any = (data, x._entry, x._index)
        if not isinstance(data, Value):
            if type(x) is not Tensor:
                if x.born_in is self:
                    return super().lift(x)  # refused
                parameter: Any = x
                if parameter in self.written or parameter in self.carried:
                    return self.written.get(parameter, self.carried.get(parameter))
                key = parameter
            else:
                key = (id(data), x._entry, x._index)
        if key not in self.captures:
            self.captures[key] = (x, Value(self, data.shape, data.dtype))
        return self.captures[key][1]

    def present(self, parameter: Parameter) -> Tensor:
        """The value of a Parameter: one that no step writes is the same at each, and read outside."""
        if self._owns(parameter):
            return super().present(parameter)
        with self.stepping_out():
            value: Tensor = snapshot(parameter)
        return value

    def note(self, x: Tensor) -> None:
        """Keep a result with its place on the tape; one with several places is `ambiguous`."""
        if not isinstance(x._data, Value):
            return  # an array from outside
        known = self.tensors.get(x._data)
        if known is None or known._entry is None:
            self.tensors[x._data] = x
        elif x._entry is not None and (x._entry, x._index) != (known._entry, known._index):
            self.ambiguous.add(x._data)

    def outside(self, inputs: Any) -> bool:
        """True if all operands come from outside, and no gradient of the step's own is being recorded."""
        if STATE.tape is not None and STATE.tape is not self.tape:
            return False
        tensors = [x for x in inputs if isinstance(x, Tensor)]
        return bool(tensors) and not any(self._owns(x) for x in tensors)

    def _owns(self, x: Any) -> bool:
        if isinstance(x._data, Value):
            return x._data.trace in self.lineage
        return type(x) is not Tensor and (x in self.carried or x in self.written or x.born_in is self)

    def stepping_out(self) -> AbstractContextManager[Any]:
        """Be outside of the step in the body of this context."""
        trace, tape = self.around
        return settings(trace=trace, tape=tape if STATE.tape is not None or self.tape is None else None)
