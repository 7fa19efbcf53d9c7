"""TITLE."""

from __future__ import annotations

from typing import Any

from snncell.arguments.shown import came
from snncell.errors import MissingNameError, SnncellError, TraceError
from snncell.tape.tracing import Trace


def stale() -> TraceError:
    """The error for a traced Tensor that is used after its trace has ended."""
    return TraceError(
        "This Tensor belongs to a function that snncell.jit traced earlier, or to a step that MultiStep, scan or vmap "
        "traced. It has no value outside, where it was kept, for example in a list. Return it from the function."
    )


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


# --- Signals: stand-ins for Tensors that show which Cells a network calls, without shapes or elements -----------------


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
