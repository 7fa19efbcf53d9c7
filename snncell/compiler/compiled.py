"""A function that is compiled for one signature."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from snncell.compiler.dependencies import Dependencies, cells_in, state_read_by
from snncell.compiler.passes.canonicalise import from_trace
from snncell.compiler.python_state import PythonState
from snncell.compiler.runtime.plan import Plan
from snncell.compiler.runtime.plans import Plans
from snncell.compiler.vjp import TracedVjp
from snncell.tape import structure
from snncell.tape.backward import watch_input
from snncell.tape.event_lists import EventLists, refuse_gradient
from snncell.tape.hooks import call_outside, register_hook
from snncell.tape.state import record_on, recording_on, tracing_to
from snncell.tape.tape import Entry, Hook, Tape
from snncell.tape.taps import Events, Note, NotedResults, noting
from snncell.tape.tensor import Tensor, wrap
from snncell.tape.tracing import Trace


class Compiled:
    """A function compiled for one signature: shapes, dtypes, Python arguments, and the state of the Cells in it.

    Args:
        name: for errors.
        fn: the function.
        leaves: the Tensors among the arguments.
        arguments: the structure of (args, kwargs).
        taped: whether gradients are to be taken through it from outside.
        entries: for each of `leaves` the tape entry of the Parameter that it is, if that is to be told apart.
    """

    def __init__(
        self,
        name: str,
        fn: Callable[..., Any],
        leaves: Sequence[Tensor],
        arguments: Any,
        taped: bool,
        entries: Sequence[Entry | None],
    ) -> None:
        trace, tape, notes = Trace(taped=taped), Tape(), list[Note]()
        who, roots = f"jit({name})", [fn, *structure.statics(arguments), *structure.classes_in(arguments)]
        # First the state: to read it needs no trace, and what is drawn at random is known when all else has ended.
        with (
            state_read_by(roots, who) as state,
            tracing_to(trace),
            recording_on(None),
            record_on(tape) if taped else nullcontext(),
            noting(notes),
        ):
            stand_ins = [trace.new_input(leaf.shape, leaf._data.dtype) for leaf in leaves]
            self.constant = _values_of_event_lists(arguments) if taped else []
            if taped:
                stand_ins = [x if n in self.constant else watch_input(x) for n, x in enumerate(stand_ins)]
            pairs = zip(stand_ins, entries, strict=True)
            stand_ins = [x if entry is None else wrap(x._data, entry) for x, entry in pairs]
            trace.cells.update(cells_in(arguments, fn))  # fn may read attributes of Cells without calling them
            args, kwargs = structure.unflatten(arguments, stand_ins)
            outs, self.structure_of_out = structure.flatten(fn(*args, **kwargs))
            structure.refuse_results(self.structure_of_out, who)
            self.copies = structure.has_mutable(self.structure_of_out)
            self.noted = NotedResults(notes, outs)
            outs += self.noted.extra
            outputs = [trace.lift(out) for out in outs]
            state.include(trace.cells)
            state.refuse_leaks(None, who)
            state.warn_of_steps(who)
            state.warn_of_arrays(who)
            # Values that the function itself has changed: the next call finds others, and is traced again.
            changes = state.changes()
            self.own_changes = {spot: change for spot, change in changes.items() if spot not in state.of_layers}
            self.dependencies = Dependencies(trace, PythonState(roots) if changes else state)
            self.gradient_targets = {p._entry for p in trace.gradient_targets}
            self.hooks = _hooks_taken_from(stand_ins, entries) if taped else []
            self.vjp = self.plans = None
            if taped:
                self.vjp = TracedVjp(f"jit({name})", trace, tape.live(), stand_ins, outs, self.dependencies.unchanged)
        if not taped:
            self.plans = Plans(from_trace(trace, outputs))
            self.plans.of([leaf._data for leaf in leaves])  # so that errors of compilation come at once

    def up_to_date(self) -> bool:
        """True if nothing that was traced, forward or reverse, has been changed since."""
        if self.own_changes or not self.dependencies.unchanged():
            return False
        return self.vjp is None or self.vjp.unchanged()

    def changed(self) -> str:
        """The change that makes this trace out of date."""
        if self.own_changes:
            return next(iter(self.own_changes.values())).words
        if self.vjp is not None and self.dependencies.unchanged():
            return self.vjp.changed()
        return self.dependencies.changed()

    def plan(self, arrays: Sequence[Any]) -> Plan:
        """The plan to replay for these arguments; on a tape there is none."""
        assert self.plans is not None  # the caller's choice
        return self.plans.of(arrays)

    def __call__(self, leaves: Sequence[Tensor]) -> Any:
        events: Events = {}
        if any(leaves[number]._entry is not None for number in self.constant):
            refuse_gradient()
        for number, hook in self.hooks:
            register_hook(leaves[number], hook)
        if self.vjp is not None:
            results = self.vjp(leaves, events)
        else:
            arrays = [leaf._data for leaf in leaves]
            results = tuple([wrap(array) for array in self.plan(arrays).replay(arrays)])
        tree = structure.with_copies(self.structure_of_out) if self.copies else self.structure_of_out
        return structure.unflatten(tree, self.noted.pass_on(results, events))


def _hooks_taken_from(stand_ins: Sequence[Tensor], entries: Sequence[Entry | None]) -> list[tuple[int, Hook]]:
    """The hooks that a function puts on its own arguments, with their numbers, taken off the Tensors of the trace.

    Each call puts them on the arguments themselves, whose gradients are whole outside of the function alone.
    """
    hooks: list[tuple[int, Hook]] = []
    for number, (x, known) in enumerate(zip(stand_ins, entries, strict=True)):
        if x._entry is not None and known is None:  # hooks on a known Parameter stay with it
            hooks += [(number, call_outside(hook)) for _, hook in (x._entry.hooks or {}).values()]
            x._entry.hooks = None
    return hooks


def _values_of_event_lists(arguments: Any) -> list[int]:
    """The numbers of the leaves that are values of event lists, into which no gradient flows."""
    numbers = itertools.count()

    def walk(tree: Any) -> list[int]:
        if isinstance(tree, structure.Leaf):
            next(numbers)
            return []
        if not isinstance(tree, structure.Branch):
            return []
        if tree.kind is EventLists:
            return [next(numbers) for child in tree.children if isinstance(child, structure.Leaf)]
        return [number for child in tree.children for number in walk(child)]

    return walk(arguments)
