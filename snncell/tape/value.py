"""Stand-ins for the data of a Tensor: a `Value` while a function is traced, a `Signal` while a network is read.

`TraceLike` is the part of a trace that Tensors, Parameters and the tape use. They stand below `tracing.py`, which
defines the traces themselves.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

from snncell.base.arguments.shown import came
from snncell.errors import MissingNameError, SnncellError, TraceError


def stale() -> TraceError:
    """The error for a traced Tensor that is used after its trace has ended."""
    return TraceError(
        "This Tensor belongs to a function that snncell.jit traced earlier, or to a step that MultiStep, scan or vmap "
        "traced. It has no value outside, where it was kept, for example in a list. Return it from the function."
    )


class TraceLike(Protocol):
    """A trace: the instructions of a function that runs on Values. `tracing.Trace` and its subclasses are traces."""

    count: int  # of its Values
    line: str  # of the last instruction
    eager: bool  # whether the loop whose body it traces runs at once
    cells: dict[Any, None]  # the Cells that were called
    written: dict[Any, Any]  # by Parameter: the Value that it gets
    gradient_targets: dict[Any, None]  # the Parameters that inner gradients are taken of

    def outside(self, inputs: Any) -> bool:
        """Whether an operation on these inputs belongs outside of this trace."""

    def stepping_out(self) -> AbstractContextManager[Any]:
        """A context outside of this trace."""

    def record(self, op: Any, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
        """Append an instruction, and return its Value, or a tuple of them."""

    def note(self, x: Any) -> None:
        """Note a result with its place on the tape."""

    def lift(self, x: Any) -> Any:
        """The Value that stands for a Tensor."""

    def present(self, parameter: Any) -> Any:
        """The value that a Parameter has at this point of the function."""

    def write(self, parameter: Any, value: Any) -> None:
        """Note that a Parameter gets a value."""

    def needs_value(self, what: str) -> TraceError:
        """The error for Python code that needs the elements of a traced Tensor."""

    def made_inside(self, what: str) -> TraceError:
        """The error for a Parameter that the traced function makes."""


class Value:
    """A variable of a Program: the shape and dtype of an array that there will be when the Program runs."""

    __slots__ = ("dtype", "number", "shape", "trace")
    __array_ufunc__ = None  # NumPy is to refuse it, not to make an array of one object

    def __init__(self, trace: TraceLike, shape: tuple[int, ...], dtype: Any) -> None:
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


# --- the structure of a network ---------------------------------------------------------------------------------------


class Signal:
    """The sum of the outputs of some Cells, in place of a Tensor; see `nn/dataflow.py`.

    You can add Signals and pass them to Cells. Everything else raises, because an exporter would lose it.

    Args:
        sources: the outputs, as the exporter names them.
    """

    __slots__ = ("sources",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, sources: tuple[Any, ...]) -> None:
        self.sources = sources

    def __add__(self, other: Any) -> Signal:
        if isinstance(other, Signal):
            return Signal((*self.sources, *other.sources))
        if type(other) is int and other == 0:  # where `sum` begins
            return self
        raise SnncellError(f"a signal plus {came(other)}")

    __radd__ = __iadd__ = __add__

    def __getattr__(self, name: str) -> Any:
        raise MissingNameError(f"{name!r} of a signal")

    def _refuse_arithmetic(self, *_: Any) -> Any:
        raise SnncellError("arithmetic other than the sum of signals")

    def _refuse_value(self, *_: Any) -> Any:
        raise SnncellError("a decision by the values, or the type, of a signal")

    __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __matmul__ = __rmatmul__ = _refuse_arithmetic
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = _refuse_arithmetic
    __neg__ = __pos__ = __abs__ = __getitem__ = __setitem__ = _refuse_arithmetic
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __invert__ = _refuse_arithmetic
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse_value
    __bool__ = __len__ = __iter__ = __contains__ = __float__ = __int__ = __index__ = _refuse_value
