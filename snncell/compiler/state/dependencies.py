"""The Python state that a trace depends on: Cells that were called, settings of Parameters, and values that code reads.

A Cell counts the changes of its attributes (`version`), so a call compares numbers. All else is compared by
`PythonState`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from snncell.compiler.state.python_state import PythonState
from snncell.compiler.state.random_states import RandomStates, pause_loading
from snncell.compiler.state.reach import MOST
from snncell.errors import SnncellError, TraceError
from snncell.tape import structure
from snncell.tape.hooks import numbers
from snncell.tape.tracing import Trace


class Dependencies:
    """The state that a trace depends on, as it is when this is made.

    Args:
        trace: finished.
        state: the values that the traced functions read.
    """

    def __init__(self, trace: Trace, state: PythonState) -> None:
        state.include(trace.cells)
        self.state = state
        self.versions = [(cell, cell.version) for cell in {**trace.cells, **state.cells}]
        # A target may be read as an argument alone, and a setting without the value.
        parameters = {**trace.parameters, **trace.gradient_targets, **state.parameters}
        self.parameters = [(p, p.requires_grad, p.limits, numbers(p._entry)) for p in parameters]
        self._values_unchanged = state.guard(trace.cells)

    def unchanged(self) -> bool:
        """True if no Cell, no setting of a Parameter and no value that was read has been changed since."""
        for cell, version in self.versions:  # at each call of what was traced: loops, which cost less than generators
            if cell.version != version:
                return False
        for parameter, trained, limits, hooks in self.parameters:
            if parameter.requires_grad != trained or parameter.limits != limits or hooks != numbers(parameter._entry):
                return False
        return self._values_unchanged()

    def changed(self) -> str:
        """The change, for a report."""
        for cell, version in self.versions:
            if cell.version != version:
                return f"an attribute of {type(cell).__name__}"
        for parameter, trained, limits, hooks in self.parameters:
            if parameter.requires_grad != trained:
                return f"requires_grad of Parameter {parameter.name!r}"
            if hooks != numbers(parameter._entry):
                return f"a hook on Parameter {parameter.name!r}"
            if parameter.limits != limits:
                return f"the range of Parameter {parameter.name!r}"
        return next((change.words for change in self.state.changes().values()), "a value that it reads")


@contextmanager
def state_read_by(roots: Iterable[Any], who: str, every: str = "each call") -> Iterator[PythonState]:
    """The Python state that functions can read, around their trace; random numbers that are drawn in it are refused.

    Args:
        roots: the functions, and objects that they are given.
        who: the function that traces, for errors.
        every: the unit that would have the same random numbers.
    """
    state = PythonState(roots)
    state.refuse_iterators(who)
    if not state.complete:
        warnings.warn(
            f"{who}: the function can read more than {MOST:,} Python objects; changes of the others are not noticed. "
            f"Pass what it reads as an argument, or keep it in arrays or Tensors.",
            RuntimeWarning,
            stacklevel=2,
        )
    with pause_loading() as alone:
        states = RandomStates(state, alone)
        try:
            yield state
        except TraceError:
            raise
        except SnncellError:  # for example for the dtype of NumPy's noise, which is not to be drawn at all
            try:
                states.refuse_draws(who, every)
            except TraceError as draw:
                raise draw from None
            raise
        states.refuse_draws(who, every)


def find_cells(arguments: Any, fn: Any) -> dict[Any, None]:
    """The Cells among the fixed arguments, the one that `fn` is a method of, and all below them."""
    owners = [*structure.statics(arguments), getattr(fn, "__self__", None)]
    trees = [owner for owner in owners if hasattr(owner, "cells_and_names") and not isinstance(owner, type)]
    return {cell: None for tree in trees for _, cell in tree.cells_and_names()}
