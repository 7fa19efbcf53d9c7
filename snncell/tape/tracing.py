"""Tracing: run a function on Values, which have a shape and a dtype but no elements, to collect its operations.

Gradients inside a traced function need no extra mechanism. The tape records Tensors of Values like any other Tensors,
and the operations of its backward pass become instructions of the trace.

A `BodyTrace` traces one time step of a loop. Operations that do not depend on the step run once, before the loop:

    def step(v, x):            traced:  v' = v * c + x       with c captured
        c = exp(-1 / tau)      outside: c = exp(-1 / tau)    once, and on the outer tape
        return v * c + x
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

from snncell.base.frames import Place, place_of_instruction, user_line
from snncell.errors import OutsideTensorError, TraceError
from snncell.tape.parameter import Parameter
from snncell.tape.primitive import Primitive
from snncell.tape.state import RECORDING, TRACING, Tape, Value, settings, stale_error
from snncell.tape.tensor import Tensor, snapshot, wrap

_FIXES = {
    "if/while/bool() on a Tensor": "Choose elementwise with ops.select(condition, a, b) instead of if (use "
    "ops.stop_gradient where no gradient should flow). Pass a fixed value as a Python number or bool, which is a "
    "static argument. Or move this part out of the traced function.",
    **dict.fromkeys(
        ("x[mask]", "masked_select()", "nonzero()", "unique_consecutive()"),
        "The number of its results depends on values, but a Program has fixed shapes. Keep the shape: "
        "ops.where(mask, x, 0) selects elements, (mask * x).sum() adds up selected elements. Or move this part out of "
        "the traced function.",
    ),
    "": "Compute with Tensors: use ops.select(condition, a, b) to choose, and ops.stop_gradient for a constant. To see "
    "a value, return it (a neuron may return ((spike, v), *states)). Pass a fixed value as a Python number, which is a "
    "static argument. Or move this part out of the traced function.",
}


class Instruction:
    """One operation of a Program. Inputs are Values or Python scalars; `line` is a Place ("net.py:12: v = v + x")."""

    __slots__ = ("attrs", "inputs", "line", "op", "outputs")

    def __init__(self, op: Primitive, inputs: tuple[Any, ...], attrs: dict[str, Any], line: Place) -> None:
        self.op, self.inputs, self.attrs, self.line = op, inputs, attrs, line
        self.outputs: tuple[Value, ...] = ()


class Trace:
    """The instructions of a function, the arrays and Parameters that it reads, and the Parameters that it writes. If
    the function uses a Value of `parents`, which are finished traces, this Value becomes an input (see `captures`).
    `taped` tells whether a gradient will be computed. Errors name `who`, the caller.
    """

    def __init__(self, parents: tuple[Trace, ...] = (), taped: bool = False, who: str = "snncell.jit") -> None:
        self.who = who
        self.parents = parents
        self.taped = taped
        # Tensors from outside, each with the input that represents it in this trace; by outer Value and tape entry.
        self.captures: dict[Any, tuple[Tensor, Value]] = {}
        self.count = 0  # the number of Values so far, which becomes the number of the next Value
        self.line = Place("")  # the place of the last instruction
        self.inputs: list[Value] = []
        self.instructions: list[Instruction] = []
        self.constants: dict[int, tuple[Any, Value]] = {}  # by id of the array; keeping the array keeps its id unique
        self.parameters: dict[Parameter, Value] = {}
        self.gradient_targets: dict[Parameter, None] = {}  # Parameters with a gradient inside the traced function
        self.written: dict[Parameter, Value] = {}
        self.cells: dict[Any, None] = {}  # Cells that were called: if an attribute changes, the trace is out of date

    eager = False  # True for a `BodyTrace` of a loop that runs eagerly, outside of any jitted function

    def new_input(self, shape: tuple[int, ...], dtype: Any) -> Tensor:
        """A Tensor that represents an argument."""
        value = Value(self, shape, dtype)
        self.inputs.append(value)
        return wrap(value)

    def lift(self, x: Any) -> Any:
        """The Value that represents `x` in this trace; Python scalars are returned unchanged."""
        if not isinstance(x, Tensor):
            return x
        data = x._data
        if isinstance(data, Value):
            if data.trace is self:
                return data
            if data.trace not in self.parents:
                raise stale_error()
            # One Value with two tape entries (x and alias(x)) becomes two inputs, because each has its own gradient.
            place = (data, x._entry, x._index)
            if place not in self.captures:
                self.captures[place] = (wrap(*place), Value(self, data.shape, data.dtype))
            return self.captures[place][1]
        if type(x) is not Tensor:
            if x.born_in is self:
                raise self.made_inside(f"Parameter {x.name!r}")
            parameter: Any = x  # Programs read a Parameter at each run; any other array is a constant
            if parameter in self.written:
                return self.written[parameter]
            if parameter not in self.parameters:
                self.parameters[parameter] = Value(self, data.shape, data.dtype)
            return self.parameters[parameter]
        if self.taped and x._entry is not None and not x._entry.released:
            raise OutsideTensorError(
                f"A jitted function uses a Tensor from outside, and you are computing a gradient that depends on this "
                f"Tensor. Its gradient would be lost, because it is a constant here. Pass it as an argument.\n"
                f"  at {user_line()}"
            )
        if id(data) not in self.constants:
            self.constants[id(data)] = (data, Value(self, data.shape, data.dtype))
        return self.constants[id(data)][1]

    def present(self, parameter: Parameter) -> Tensor:
        """The value of a Parameter at this point of the function, with the Parameter's tape entry."""
        return wrap(self.lift(parameter), parameter._entry, parameter._index)

    def note(self, x: Tensor) -> None:
        """Remember the tape entry of a result; only BodyTrace needs it."""

    def write(self, parameter: Parameter, value: Tensor) -> None:
        """Assign `value` to `parameter` when the Program runs; later reads in the function see it."""
        self.lift(parameter)
        self.written[parameter] = self.lift(value.astype(parameter.dtype))

    def record(self, op: Primitive, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
        """Append an instruction, and return its Value, or a tuple of Values."""
        self.line = place_of_instruction()
        instruction = Instruction(op, tuple(self.lift(x) for x in inputs), attrs, self.line)
        specs = op.abstract(instruction.inputs, attrs)
        instruction.outputs = tuple(Value(self, shape, dtype) for shape, dtype in specs)
        self.instructions.append(instruction)
        return instruction.outputs if op.multiple else instruction.outputs[0]

    def needs_value(self, what: str) -> TraceError:
        """The error for Python code that needs the value of a traced Tensor."""
        return TraceError(
            f"{what} needs a value, but {self.who} is tracing the function, so Tensors have no values yet.\n"
            f"  at {user_line()}\n{_FIXES.get(what, _FIXES[''])}"
        )

    def made_inside(self, what: str) -> TraceError:
        """The error for creating a Parameter, or a layer with one, in a traced function."""
        return TraceError(
            f"{what} is created inside a function that {self.who} traces, so its value would carry over from call to "
            f"call. Create it outside.\n  at {user_line()}"
        )

    def outside(self, inputs: Any) -> bool:
        """True if an operation on `inputs` should run outside of this trace; see `BodyTrace`."""
        return False

    def stepping_out(self) -> AbstractContextManager[Any]:
        """Context manager: suspend this trace."""
        return settings(trace=None)


class BodyTrace(Trace):
    """The trace of one step of a loop. A `fork` of it is the trace of this step together with its backward step.
    Tensors, Parameters and Values from outside of the step become inputs (`captures`). If all operands of an operation
    come from outside, the operation runs once, before the loop, and the outer tape records it. Parameters that the step
    writes become states: the first trace finds them, and a second trace gets them as `carried`. `tape` is None if no
    gradient is computed.
    """

    def __init__(self, who: str, tape: Tape | None, carried: Iterable[Parameter] = ()) -> None:
        super().__init__(taped=tape is not None, who=who)
        self.tape = tape
        self.lineage: tuple[Trace, ...] = (self,)  # this trace, then the trace from which it was forked, and so on
        self.around = (TRACING.trace, RECORDING.tape)
        self.eager = TRACING.trace is None or TRACING.trace.eager
        self.tensors: dict[Value, Tensor] = {}  # the Tensor of each Value, which has the tape entry
        self.ambiguous: set[Value] = set()  # Values with several tape entries
        self.noted: set[int] = set()  # ids of results that only monitors need
        self.carried = {p: self.new_input(p.shape, p._data.dtype)._data for p in carried}

    def fork(self) -> BodyTrace:
        """A new trace that starts as a copy of this one, and can use the Values of both."""
        child = BodyTrace(self.who, self.tape)
        child.lineage = (child, *self.lineage)
        child.count = self.count
        child.tensors, child.ambiguous = dict(self.tensors), set(self.ambiguous)
        child.inputs, child.instructions = list(self.inputs), list(self.instructions)
        child.captures, child.cells, child.carried = dict(self.captures), dict(self.cells), self.carried
        return child

    def lift(self, x: Any) -> Any:
        """The Value that represents `x`; Tensors from outside become inputs."""
        if not isinstance(x, Tensor):
            return x
        data = x._data
        if isinstance(data, Value) and data.trace in self.lineage:
            return data
        key: Any = (data, x._entry, x._index)
        if not isinstance(data, Value):
            if type(x) is not Tensor:
                if x.born_in is self:
                    return super().lift(x)  # raises the error
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
        """The value of a Parameter. If the step does not write it, it is read once, before the loop."""
        if self._owns(parameter):
            return super().present(parameter)
        with self.stepping_out():
            value: Tensor = snapshot(parameter)
        return value

    def note(self, x: Tensor) -> None:
        """Remember the tape entry of a result; a Value with several entries is `ambiguous`."""
        if not isinstance(x._data, Value):
            return  # computed outside
        known = self.tensors.get(x._data)
        if known is None or known._entry is None:
            self.tensors[x._data] = x
        elif x._entry is not None and (x._entry, x._index) != (known._entry, known._index):
            self.ambiguous.add(x._data)

    def outside(self, inputs: Any) -> bool:
        """True if all operands come from outside of the step, and no gradient inside the step is being recorded."""
        if RECORDING.tape is not None and RECORDING.tape is not self.tape:
            return False
        tensors = [x for x in inputs if isinstance(x, Tensor)]
        return bool(tensors) and not any(self._owns(x) for x in tensors)

    def _owns(self, x: Any) -> bool:
        if isinstance(x._data, Value):
            return x._data.trace in self.lineage
        return type(x) is not Tensor and (x in self.carried or x in self.written or x.born_in is self)

    def stepping_out(self) -> AbstractContextManager[Any]:
        """Context manager: suspend this trace, and record on the outer tape instead."""
        trace, tape = self.around
        return settings(trace=trace, tape=tape if RECORDING.tape is not None or self.tape is None else None)
