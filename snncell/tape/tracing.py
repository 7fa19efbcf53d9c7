"""Tracing: running a function on Values that have a shape and a dtype but no elements, to learn what it computes.

Gradients inside a traced function need nothing more: the tape records Tensors whose data are Values as it records
others, and the operations of its sweep land in the trace like any others.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from snncell.errors import OutsideTensorError, TraceError
from snncell.tape.frames import user_line
from snncell.tape.state import settings
from snncell.tape.tensor import Tensor, stale, wrap

if TYPE_CHECKING:
    from snncell.tape.parameter import Parameter
    from snncell.tape.primitive import Primitive

_MENDS = {
    "if/while/bool() on a Tensor": "Choose element by element with ops.select(condition, a, b) instead of if (with "
    "ops.stop_gradient where none is to flow); make what is fixed a static argument, a Python number or bool; or "
    "take this part out of the traced function.",
    **dict.fromkeys(
        ("x[mask]", "masked_select()", "nonzero()", "unique_consecutive()"),
        "How many elements it gives depends on their values, and a Program has fixed shapes. Keep the shape: "
        "ops.where(mask, x, 0) chooses, (mask * x).sum() adds up what is chosen. Or take this part out of the traced "
        "function.",
    ),
    "": "Compute with Tensors: ops.select(condition, a, b) chooses, ops.stop_gradient makes a constant. To look at a "
    "value, return it (a neuron may return ((spike, v), *states)). Make what is fixed a static argument, a Python "
    "number; or take this part out of the traced function.",
}


class Value:
    """A variable of a Program: the shape and dtype of an array that there will be when the Program runs."""

    __slots__ = ("dtype", "number", "shape", "trace")
    __array_ufunc__ = None  # NumPy is to refuse it, not to make an array of one object

    def __init__(self, trace: Trace, shape: tuple[int, ...], dtype: Any) -> None:
        self.trace = trace
        self.shape = shape
        self.dtype = dtype
        self.number = trace.count
        trace.count += 1

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise stale()

    @property
    def spec(self) -> tuple[tuple[int, ...], Any]:
        """Shape and dtype."""
        return self.shape, self.dtype

    def __repr__(self) -> str:
        return f"%{self.number}:{self.dtype}[{','.join(map(str, self.shape))}]"


class Instruction:
    """One operation of a Program. Inputs are Values or Python scalars."""

    __slots__ = ("attrs", "inputs", "line", "op", "outputs")

    def __init__(self, op: Primitive, inputs: tuple[Any, ...], attrs: dict[str, Any], line: str) -> None:
        self.op = op
        self.inputs = inputs
        self.attrs = attrs
        self.line = line  # "file.py:12: v = v + x", where the user asked for it
        self.outputs: tuple[Value, ...] = ()


class Trace:
    """Collects the steps of a function, the arrays and Parameters it reads, and the Parameters it writes.

    Args:
        parents: finished traces whose Values may be used here: they become inputs, `captures`.
        taped: whether gradients are going to be taken through the traced function.
        who: what traces, for errors.
    """

    def __init__(self, parents: tuple[Trace, ...] = (), taped: bool = False, who: str = "snncell.jit") -> None:
        self.who = who
        self.parents = parents
        self.taped = taped
        self.captures: dict[Any, tuple[Tensor, Value]] = {}  # by Value and place on the tape: outside, and inside
        self.count = 0  # of Values, for their numbers
        self.line = ""  # of the last step
        self.inputs: list[Value] = []
        self.instructions: list[Instruction] = []
        self.constants: dict[int, tuple[Any, Value]] = {}  # by id of the array, which is kept so that ids stay unique
        self.parameters: dict[Parameter, Value] = {}
        self.gradient_targets: dict[Parameter, None] = {}  # Parameters that inner gradients are of
        self.written: dict[Parameter, Value] = {}
        self.cells: dict[Any, None] = {}  # Cells that were called: if an attribute changes, the trace is out of date

    eager = False  # whether the loop that it traces the body of is run at once (`BodyTrace`)

    def new_input(self, shape: tuple[int, ...], dtype: Any) -> Tensor:
        """A Tensor that stands for an argument."""
        value = Value(self, shape, dtype)
        self.inputs.append(value)
        return wrap(value)

    def lift(self, x: Any) -> Any:
        """The Value that stands for `x` in this trace; Python scalars stay what they are."""
        if not isinstance(x, Tensor):
            return x
        data = x._data
        if isinstance(data, Value):
            return data if data.trace is self else self._capture(x, data)
        if type(x) is not Tensor:
            if x.born_in is self:
                raise self.made_inside(f"Parameter {x.name!r}")
            parameter: Any = x  # a Parameter is read anew at each run; any other array is a constant
            if parameter in self.written:
                return self.written[parameter]
            if parameter not in self.parameters:
                self.parameters[parameter] = Value(self, data.shape, data.dtype)
            return self.parameters[parameter]
        if self.taped and x._entry is not None and not x._entry.released:
            raise OutsideTensorError(
                f"A jitted function uses a Tensor from outside of it that a gradient is being taken through; it would "
                f"count as a constant. Pass it as an argument.\n  at {user_line()}"
            )
        if id(data) not in self.constants:
            self.constants[id(data)] = (data, Value(self, data.shape, data.dtype))
        return self.constants[id(data)][1]

    def _capture(self, x: Tensor, data: Value) -> Value:
        """A Value of a parent trace, as an input of this one."""
        if data.trace not in self.parents:
            raise stale()
        # One Value in two places on the tape (x and alias(x)) is two inputs: each has its own gradient.
        key = (data, x._entry, x._index)
        if key not in self.captures:
            self.captures[key] = (wrap(*key), Value(self, data.shape, data.dtype))
        return self.captures[key][1]

    def present(self, parameter: Parameter) -> Tensor:
        """The value that a Parameter has at this point of the function, in the Parameter's place on the tape."""
        return wrap(self.lift(parameter), parameter._entry, parameter._index)

    def note(self, x: Tensor) -> None:
        """Note a result with its place on the tape; a BodyTrace keeps it."""

    def write(self, parameter: Parameter, value: Tensor) -> None:
        """Note that `parameter` is to get `value`; reads that follow see it."""
        self.lift(parameter)
        self.written[parameter] = self.lift(value.astype(parameter.dtype))

    def record(self, op: Primitive, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
        """Append a step; its Value, or a tuple of them."""
        self.line = user_line(within=True)
        instruction = Instruction(op, tuple(self.lift(x) for x in inputs), attrs, self.line)
        specs = op.abstract(instruction.inputs, attrs)
        instruction.outputs = tuple(Value(self, shape, dtype) for shape, dtype in specs)
        self.instructions.append(instruction)
        return instruction.outputs if op.multiple else instruction.outputs[0]

    def needs_value(self, what: str) -> TraceError:
        """The error for Python code that looks at a traced value."""
        return TraceError(
            f"{what} needs a value while {self.who} traces the function, and there is none yet.\n  at {user_line()}\n"
            f"{_MENDS.get(what, _MENDS[''])}"
        )

    def made_inside(self, what: str) -> TraceError:
        """The error for a Parameter, or a layer with one, that the traced function makes."""
        return TraceError(
            f"{what} is made inside a function that {self.who} traces; it would keep its value from call to call. Make "
            f"it outside.\n  at {user_line()}"
        )

    def outside(self, inputs: Any) -> bool:
        """True if an operation on `inputs` is to be carried out outside of this trace; see `BodyTrace`."""
        return False

    def stepping_out(self) -> AbstractContextManager[Any]:
        """Be outside of this trace in the body of this context."""
        return settings(trace=None)


def evaluate_specs(op: Primitive, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> list[tuple[Any, Any]]:
    """Shapes and dtypes of an operation's outputs, found by evaluating it on zeros that take no memory.

    So that no operation states its shape rule twice.
    """
    zeros = [np.broadcast_to(np.zeros((), x.dtype), x.shape) if isinstance(x, Value) else x for x in inputs]
    outs = op.run(zeros, inputs, attrs)
    return [(np.shape(out), np.asarray(out).dtype) for out in (outs if op.multiple else (outs,))]
