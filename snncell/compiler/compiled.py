"""A function compiled for one signature, and the vector-Jacobian product of a traced function.

    forward(x, w)           -> y, residuals       residuals: Values of forward that backward reads
    backward(dy, residuals) -> dx, dw

If gradients are taken through the function from outside, it is traced under a tape, and the backward pass over this
tape is traced into a second Program. The forward Program returns the Values that the backward Program reads as
residuals, so nothing is computed twice. The backward pass is traced under a tape too, for gradients of any order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

from snncell.base.config import FINITE
from snncell.compiler.ir.program import interpret, program_of_trace
from snncell.compiler.passes.simplify import canonical_program, canonicalise
from snncell.compiler.runtime.plan import Plan, Plans
from snncell.compiler.state.python_state import Dependencies, PythonState, find_cells, state_read_by
from snncell.errors import GradientError
from snncell.tape import structure
from snncell.tape.backward import or_zeros, pullback, watch_input
from snncell.tape.event_lists import EventLists, refuse_gradient
from snncell.tape.hooks import Events, Note, NotedResults, call_outside, register_hook
from snncell.tape.primitive import custom, rebuilt
from snncell.tape.state import (
    CHECKING,
    RECORDING,
    TRACING,
    TRACING_LOCK,
    Entry,
    Hook,
    Tape,
    record_on,
    recording_on,
    settings,
)
from snncell.tape.tensor import Tensor, wrap
from snncell.tape.tracing import Trace


class TracedVjp:
    """A finished trace with the entries of its tape, and the traced Tensors of a call's arguments and results."""

    def __init__(
        self,
        name: str,
        trace: Trace,
        entries: list[Entry],
        arguments: Sequence[Tensor],
        outs: Sequence[Tensor],
        up_to_date: Callable[[], bool],
    ) -> None:
        self.name, self.trace, self.entries = name, trace, entries
        self.outs = [wrap(trace.lift(out), out._entry, out._index) for out in outs]
        self.trainable = [p for p in trace.parameters if p.requires_grad and p.dtype.is_float]
        of_parameters = [wrap(trace.parameters[p], p._entry) for p in self.trainable]
        captured = [tensor for tensor, _ in trace.captures.values()]
        self.inputs = [*arguments, *captured, *of_parameters]
        # In reverse order: of several inputs with the same `_place` the first wins, as in `pullback(..., once=True)`.
        self.input_at = {_place(x): number for number, x in reversed(list(enumerate(self.inputs)))}
        self.up_to_date = up_to_date  # True if the traced Python state is unchanged
        self.smooth = CHECKING.smooth
        self._residuals: list[list[Tensor]] = []  # for gradients of order 1, 2, ...; each includes the previous ones
        self._plans: dict[int, Plans] = {}
        self._reverses: dict[tuple[int, ...], _Reversed] = {}
        self._needed: list[bool] | None = None
        self._dependencies: list[Dependencies] = []  # of backward passes, which may call other Cells than the forward

    def __call__(self, arguments: Sequence[Tensor], events: Events) -> tuple[Tensor, ...]:
        """Run the function, on a recording tape as one entry; `events` gets the events of this run for monitors."""
        if RECORDING.tape is None:
            return self._execute(arguments, orders=0)
        orders = RECORDING.tape.depth

        def forward() -> Any:
            outputs = self._execute(arguments, orders)
            return outputs[: len(self.outs)], outputs[len(self.outs) :]

        # The residuals are outputs of the entry, because in higher orders they receive gradients too.
        results: tuple[Tensor, ...] = custom(_Run(self, orders, events), forward, [*arguments, *self.trainable])[0]
        return results

    def is_current(self) -> bool:
        """True if the state that the backward passes of any order depend on is unchanged."""
        for dependencies in self._dependencies:  # a plain loop, because this runs at each call
            if not dependencies.is_current():
                return False
        return not self._reverses or all(reverse.vjp.is_current() for reverse in self._reverses.values())

    def describe_change(self) -> str:
        """Describe the change that makes a backward pass out of date."""
        changes = [state.describe_change() for state in self._dependencies if not state.is_current()]
        changes += [
            reverse.vjp.describe_change() for reverse in self._reverses.values() if not reverse.vjp.is_current()
        ]
        return f"{changes[0]}, which a bprop uses"

    def residuals(self, orders: int) -> list[Tensor]:
        """The residuals of the forward Program for gradients of up to `orders` orders."""
        with TRACING_LOCK:
            while len(self._residuals) < orders:
                known = self._residuals[-1] if self._residuals else []
                try:
                    # Append only when complete, so that a trace that raises or is interrupted is repeated.
                    self._residuals.append([*known, *self._find_captures(known)])
                except Exception:
                    if not self._residuals:
                        raise
                    # If a higher order cannot be traced, raise only when this gradient is taken, perhaps never.
                    self._residuals.append(known)
        return self._residuals[orders - 1] if orders else []

    def _find_captures(self, known: list[Tensor]) -> list[Tensor]:
        """The Values that the backward pass of all results and of the `known` residuals needs in addition."""
        reverse = self._reverse(self._all_of(known))
        available = {*self.input_at, *map(_place, known)}
        return [x for x in reverse.captured if x._data.trace is self.trace and _place(x) not in available]

    def _all_of(self, known: list[Tensor], further: Sequence[int] = ()) -> tuple[int, ...]:
        """The positions of all results and residuals that can have a gradient, and `further` positions."""
        positions = enumerate([*self.outs, *known])
        return tuple(sorted({*further, *(n for n, x in positions if x._entry is not None)}))

    def _execute(self, arguments: Sequence[Tensor], orders: int, own: bool = False) -> tuple[Tensor, ...]:
        with TRACING_LOCK:
            if orders not in self._plans:
                outputs = [*self.outs, *self.residuals(orders)]
                self._plans[orders] = Plans(canonical_program(self.trace, [x._data for x in outputs]))
        plans = self._plans[orders]
        if TRACING.trace is not None:
            return tuple(interpret(plans.program, arguments))
        arrays = [x._data for x in arguments]
        plan = plans.of(arrays)
        return tuple([wrap(array) for array in (plan.replay_unshared(arrays) if own else plan.replay(arrays))])

    def pull(self, entry: Entry, douts: list[Tensor | None], orders: int, events: Events) -> Sequence[Any]:
        """Compute the gradients of the inputs from the gradients of the results and of higher-order residuals."""
        positions = [*self.outs, *self.residuals(orders)]
        values = dict(zip(map(_place, positions), rebuilt(entry), strict=True))
        for place, number in self.input_at.items():
            values[place] = entry.inputs[number]
        return self._pull_needed(values, douts, orders, events)

    def _pull_needed(
        self, values: dict[Any, Tensor], douts: Sequence[Tensor | None], orders: int, events: Events, own: bool = False
    ) -> Sequence[Any]:
        """As `pull`, with the inputs, results and residuals that it needs in `values`, by `_place`."""
        positions = [*self.outs, *self.residuals(orders)]
        # The positions of results with a gradient; residuals have one in higher orders only.
        pairs = enumerate(zip(douts, positions, strict=True))
        present = tuple(n for n, (dout, x) in pairs if dout is not None and x._entry is not None)
        # A backward pass that uses a Value as a constant captures it without its entry on the tape.
        values = {**{(value, None, 0): wrap(x._data) for (value, _, _), x in values.items()}, **values}
        reverse = self._reverse(present)
        if not values.keys() >= set(map(_place, reverse.captured)):
            # A loop treats the gradient of an unused output as a constant, and may then hoist other instructions, which
            # read other Values. The residuals were chosen for the backward pass from all outputs. Use this one, with
            # zeros for missing gradients.
            present = self._all_of(self.residuals(orders - 1), present)
            reverse = self._reverse(present)
        seeds = [or_zeros(douts[n], positions[n]._data.spec) for n in present]
        captured = [values[_place(tensor)] for tensor in reverse.captured]
        arguments = [*seeds, *captured]
        found = reverse.vjp._execute(arguments, 0, own) if own else reverse.vjp(arguments, {})
        results = iter(reverse.noted.pass_on(found, events) if reverse.noted.positions else found)
        grads = [next(results) if has_gradient else None for has_gradient in reverse.has_gradient]
        for watch in FINITE if TRACING.trace is None else ():
            who = f"the backward of {self.name}, which ran before check_finite was on,"
            for number, grad in enumerate(grads):
                watch.gradient(who, self._describe_input(number), grad)
        return grads

    # --- for the gradients of another library, which stores the Tensors itself ----------------------------------------

    def stored(self) -> list[Tensor]:
        """The traced inputs, results and residuals. `backward` takes the Tensors of a run in this order."""
        return [*self.inputs, *self.outs, *self.residuals(1)]

    def needed(self) -> list[bool]:
        """Whether `backward` needs each of `stored`; pass None for the others."""
        if self._needed is None:
            read = {x._data for x in self._reverse(self._all_of([])).captured}
            self._needed = [x._data in read for x in self.stored()]
        return self._needed

    def forward(self, arguments: Sequence[Tensor]) -> list[Tensor]:
        """Run the function. Return results and residuals, each in memory of its own, which the caller may write."""
        return list(self._execute(arguments, 1, own=True))

    def backward(self, stored: Sequence[Tensor | None], douts: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        """The gradients of arguments and trainable Parameters from `douts`, each in memory of its own."""
        pairs = reversed([*zip(self.stored(), stored, strict=True)])  # the first of several with one `_place` wins
        values = {_place(x): known for x, known in pairs if known is not None}
        return self._pull_needed(values, [*douts, *[None] * len(self.residuals(1))], 1, {}, own=True)

    def _describe_input(self, number: int) -> str:
        first = len(self.inputs) - len(self.trainable)
        return f"operand {number}" if number < first else f"Parameter {self.trainable[number - first].name!r}"

    def _reverse(self, present: tuple[int, ...]) -> _Reversed:
        """The backward pass from the results and residuals that have a gradient, traced once."""
        with TRACING_LOCK:
            if present not in self._reverses:
                if not self.up_to_date():
                    raise GradientError(
                        f"{self.name}: a Cell that the jitted function calls was changed between its forward pass and "
                        f"this gradient. Change the Cell only after you have taken the gradient."
                    )
                with settings(smooth=self.smooth):
                    self._reverses[present] = self._trace_reverse(present)
        return self._reverses[present]

    def _trace_reverse(self, present: tuple[int, ...]) -> _Reversed:
        trace, tape = Trace(parents=(self.trace, *self.trace.parents), taped=True), Tape()
        who = f"the gradient of {self.name}"
        with state_read_by(self.trace.cells, who) as state, settings(trace=trace), recording_on(None), record_on(tape):
            positions = [*self.outs, *(self._residuals[-1] if self._residuals else ())]
            outs = [positions[number] for number in present]
            seeds = [watch_input(trace.new_input(x.shape, x._data.dtype)) for x in outs]
            notes: list[Note] = []
            with settings(notes=notes):
                # Call no hooks on inputs (own=()), because parts of their gradients may come from outside.
                grads = pullback(list(self.entries), outs, seeds, self.inputs, once=True, own=())
            results = [grad for grad in grads if grad is not None]
            noted = NotedResults(notes, results)
            results += noted.extra
            self._dependencies.append(Dependencies(trace, state))
            vjp = TracedVjp(f"backward of {self.name}", trace, tape.live(), seeds, results, self.up_to_date)
        return _Reversed(vjp, [grad is not None for grad in grads], noted)


class _Run:
    """One run of a TracedVjp as an operation of the tape, with residuals for gradients of `orders` orders."""

    def __init__(self, vjp: TracedVjp, orders: int, events: Events) -> None:
        self.name, self.vjp, self.orders, self.events = vjp.name, vjp, orders, events

    def pull(self, entry: Entry, douts: list[Tensor | None]) -> Sequence[Any]:
        return self.vjp.pull(entry, douts, self.orders, self.events)


class _Reversed(NamedTuple):
    """A traced backward pass, whether it gives a gradient for each input, and its notes."""

    vjp: TracedVjp
    has_gradient: list[bool]
    noted: NotedResults

    @property
    def captured(self) -> list[Tensor]:
        return [tensor for tensor, _ in self.vjp.trace.captures.values()]


def _place(x: Tensor) -> Any:
    """Identify a Tensor by its Value and by its output of an entry on the tape, which receives its gradient."""
    return x._data, x._entry, x._index


class Compiled:
    """A function compiled for one signature: shapes, dtypes, Python arguments, and the state of its Cells. The `leaves`
    are the Tensors in `arguments`. `entries` has the tape entry of each leaf that is a Parameter, if the function takes
    a gradient with respect to it. If `taped`, gradients are taken through the function from outside.
    """

    seconds = 0.0  # the time of tracing and compiling, for `snncell.profile`

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
        # The state context is the outermost, because it reads the state without a trace, and at the end random draws.
        with (
            state_read_by(roots, who) as state,
            settings(trace=trace, notes=notes),
            recording_on(None),
            record_on(tape) if taped else nullcontext(),
        ):
            stand_ins = [trace.new_input(leaf.shape, leaf._data.dtype) for leaf in leaves]
            self.constant = _values_of_event_lists(arguments) if taped else []
            if taped:
                stand_ins = [x if n in self.constant else watch_input(x) for n, x in enumerate(stand_ins)]
            pairs = zip(stand_ins, entries, strict=True)
            stand_ins = [x if entry is None else wrap(x._data, entry) for x, entry in pairs]
            trace.cells.update(find_cells(arguments, fn))  # fn may read attributes of Cells without calling them
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
            # If the function itself has changed Python values, the next call sees other values and is traced again.
            changes = state.changes()
            self.own_changes = {spot: change for spot, change in changes.items() if spot not in state.of_layers}
            self.dependencies = Dependencies(trace, PythonState(roots) if changes else state)
            self.gradient_targets = {p._entry for p in trace.gradient_targets}
            self.hooks = _hooks_taken_from(stand_ins, entries) if taped else []
            self.vjp = self.plans = None
            if taped:
                self.vjp = TracedVjp(f"jit({name})", trace, tape.live(), stand_ins, outs, self.dependencies.is_current)
        if not taped:
            self.traced = program_of_trace(trace, outputs)
            self.plans = Plans(canonicalise(self.traced))
            self.plans.of([leaf._data for leaf in leaves])  # compile now, so that errors are raised immediately

    def up_to_date(self) -> bool:
        """True if nothing that was traced, forward or backward, has changed since."""
        if self.own_changes or not self.dependencies.is_current():
            return False
        return self.vjp is None or self.vjp.is_current()

    def describe_change(self) -> str:
        """Describe the change that makes this trace out of date."""
        if self.own_changes:
            return next(iter(self.own_changes.values())).words
        if self.vjp is not None and self.dependencies.is_current():
            return self.vjp.describe_change()
        return self.dependencies.describe_change()

    def plan(self, arrays: Sequence[Any]) -> Plan:
        """The plan to replay for these arguments, if gradients are not taken from outside."""
        assert self.plans is not None  # the callers have checked it
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
        return structure.unflatten(tree, self.noted.pass_on(results, events) if self.noted.positions else results)


def _hooks_taken_from(stand_ins: Sequence[Tensor], entries: Sequence[Entry | None]) -> list[tuple[int, Hook]]:
    """Remove the hooks that a function registers on its arguments; return them with the arguments' numbers. Each call
    registers them on the actual arguments, because gradients are complete only outside of the function.
    """
    hooks: list[tuple[int, Hook]] = []
    for number, (x, known) in enumerate(zip(stand_ins, entries, strict=True)):
        if x._entry is not None and known is None:  # hooks on a known Parameter stay with it
            hooks += [(number, call_outside(hook)) for _, hook in (x._entry.hooks or {}).values()]
            x._entry.hooks = None
    return hooks


def _values_of_event_lists(arguments: Any) -> list[int]:
    """The numbers of the leaves that are values of event lists, which have no gradient."""
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
