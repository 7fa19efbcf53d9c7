"""Cells that users have written: their `construct` is called with a signal in place of a Tensor."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

from snncell import nn
from snncell.arguments.shown import came
from snncell.cell import Cell
from snncell.errors import NirError, SnncellError

Signal = tuple[str, ...]  # the nodes whose sum it is
Through = Callable[[Cell, str, Signal, int], Signal]


class _Drawn:
    """A signal in the `construct` of a user's Cell, which can be added, and given to Cells."""

    def __init__(self, signal: Signal) -> None:
        self.signal = signal

    def __add__(self, other: Any) -> _Drawn:
        if not isinstance(other, _Drawn):
            raise NirError(f"a signal plus {came(other)}")
        return _Drawn((*self.signal, *other.signal))

    def __getattr__(self, name: str) -> Any:
        raise NirError(f"{name!r} of a signal")

    def _other(self, *_: Any) -> Any:
        raise NirError("arithmetic other than the sum of signals")

    __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __neg__ = __getitem__ = __radd__ = __matmul__ = _other


class _Stand:
    """A stand-in for a user's Cell while its `construct` is called: its Cells put nodes into the graph."""

    def __init__(self, through: Through, cell: Cell, path: str, axes: int) -> None:
        vars(self).update(_through=through, _cell=cell, _path=path, _axes=axes)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._cell, name)
        if isinstance(value, MethodType) and value.__self__ is self._cell and isinstance(value.__func__, FunctionType):
            return MethodType(value.__func__, self)
        return self._standing(value, f"{self._path}.{name}" if self._path else name)

    def __setattr__(self, name: str, value: Any) -> None:
        raise NirError(f"keeping {name!r} on self")

    def _standing(self, value: Any, path: str) -> Any:
        if isinstance(value, nn.CellList):
            return [self._call(cell, f"{path}.{name}") for name, cell in value.name_cells().items()]
        if isinstance(value, (list, tuple)):
            return type(value)(self._standing(one, f"{path}.{i}") for i, one in enumerate(value))
        return self._call(value, path) if isinstance(value, Cell) else value

    def _call(self, cell: Cell, path: str) -> Callable[..., _Drawn]:
        def call(*args: Any) -> _Drawn:
            if len(args) != 1 or not isinstance(args[0], _Drawn):
                raise NirError(f"{path} is called with something else than one signal")
            return _Drawn(self._through(cell, path, args[0].signal, self._axes))

        return call


def drawn(through: Through, cell: Cell, path: str, signal: Signal, axes: int) -> Signal:
    """Where a signal comes out of a Cell that a user has written."""
    where = f"to_nir: {path or 'the net'} ({type(cell).__name__})"
    stand: Any = _Stand(through, cell, path, axes)
    try:
        out = type(cell).construct(stand, _Drawn(signal))
    except (SnncellError, TypeError, AttributeError, ValueError) as error:
        if str(error).startswith("to_nir"):
            raise
        raise NirError(
            f"{where}: its construct does something that NIR has no word for: {error}. It may give signals to "
            f"Cells, and add them; what comes before or after the net stays outside of it."
        ) from None
    if not isinstance(out, _Drawn):
        raise NirError(f"{where}: its construct returns {came(out)}, not one signal.")
    return out.signal
