"""Run Cells in float64 during a check, and restore them to the bit afterwards."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from snncell.dtype import float64, is_float
from snncell.tape.parameter import Parameter
from snncell.tape.state import Entry, recording_on, settings
from snncell.tape.structure import is_array
from snncell.tape.tensor import Tensor

_VERSIONS = itertools.count(-(10**15), 10**9)  # of Cells that are checked: no other state of theirs has such a number
_TRANSIENT = {"version", "_loop", "_graph", "_hooks", "_pre_hooks", "_checked_counts", "_naming"}


def is_real(x: Any) -> bool:
    """True if it is a Tensor of floats, which finite differences can move; complex ones are held fixed."""
    return isinstance(x, Tensor) and is_float(x.dtype.dtype)


def to_float64(x: Any) -> Any:
    """A float Tensor or array as a Tensor of float64; anything else as it is."""
    x = Tensor(x) if is_array(x) else x
    return x.astype(float64) if is_real(x) else x


class InFloat64:
    """Has the Parameters of Cells in float64 within a `with`, and puts them back.

    What is asked for as float32 within, by `astype("float32")` or `ops.zeros(shape)`, is float64 too. What the Cells
    have compiled is put aside: it is for Parameters of another dtype. States that a Cell keeps between calls (`aside`)
    begin at rest in each evaluation, and what an evaluation writes is undone by the next one.

    Args:
        cells: Cells, with all below them.
        parameters: further ones.
    """

    def __init__(self, cells: Iterable[Any], parameters: Iterable[Parameter] = ()) -> None:
        below = [cell for owner in cells for _, cell in owner.cells_and_names()]
        self.cells: list[Any] = list(dict.fromkeys(below))
        own = [p for cell in self.cells for p in cell.get_parameters(False)]
        listed = [p for cell in self.cells for p in getattr(cell, "internal_params", ())]
        self.parameters: list[Parameter] = list(dict.fromkeys([*own, *listed, *parameters]))
        self.before: list[Callable[[], None]] = []
        self.values: list[tuple[Parameter, Any]] = []
        self.wide = ExitStack()

    def __enter__(self) -> InFloat64:
        self.before = [*map(_keeping_cell, self.cells), *map(_keeping_parameter, self.parameters)]
        with recording_on(None):  # the conversion is no part of what a gradient may be taken through
            for parameter in self.parameters:
                if is_real(parameter) and parameter.dtype is not float64:
                    parameter._data = parameter.value().astype(float64)._data
                    if parameter._entry is not None:  # which says the dtype of the gradient that is to arrive
                        parameter._entry = Entry.source(parameter._data)
        self.wide.enter_context(settings(wide=True))
        self.values = [(parameter, parameter._data) for parameter in self.parameters]
        for cell in self.cells:
            cell.__dict__.update(version=next(_VERSIONS), _loop=None, _graph=None)
        return self

    def __exit__(self, *_: Any) -> None:
        self.wide.close()
        for put_back in self.before:
            put_back()

    @contextmanager
    def evaluation(self, moved: Sequence[tuple[Parameter, Any]] = ()) -> Iterator[None]:
        """Run the Cells from their Parameters as they were at first, but for those `moved` to other arrays."""
        for parameter, array in (*self.values, *moved):
            parameter._data = array
        with ExitStack() as stack:
            for cell in self.cells:
                if hasattr(cell, "aside"):
                    stack.enter_context(cell.aside())
                    cell.reset()
            yield


def _keeping_parameter(parameter: Parameter) -> Callable[[], None]:
    data, entry = parameter._data, parameter._entry

    def put_back() -> None:
        parameter._data, parameter._entry = data, entry

    return put_back


def _keeping_cell(cell: Any) -> Callable[[], None]:
    state = cell.__dict__
    before = dict(state)

    def put_back() -> None:
        same = all(state.get(name) is value for name, value in before.items() if name not in _TRANSIENT)
        same = same and before.keys() | _TRANSIENT >= state.keys()
        # What construct has changed of its Cell stays changed, and what was compiled of it before is out of date.
        state["version"] = before["version"] + (0 if same else 2)
        for name in ("_loop", "_graph"):
            state.pop(name, None)
            if name in before:
                state[name] = before[name]

    return put_back
