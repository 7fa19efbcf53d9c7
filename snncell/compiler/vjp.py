"""A traced function linked with its reverse, for gradients that are taken through a compiled function from outside.

The function is traced under a tape. Its reverse is the sweep of that tape, traced into a Program of its own: the
Values of the forward that the sweep uses are captured, and the forward's Program gives them as residuals beside its
results. So nothing is computed twice, and the reverse sees exactly what the forward saw. A reverse is traced under a
tape too, so it has a reverse in turn, and gradients of any order come from this one class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from snncell.compiler.dependencies import Dependencies
from snncell.compiler.ir.program import interpret
from snncell.compiler.passes.canonicalise import from_trace
from snncell.compiler.runtime.plans import Plans
from snncell.config import FINITE
from snncell.errors import GradientError
from snncell.tape.custom import custom
from snncell.tape.primitive import rebuilt
from snncell.tape.state import STATE, TRACING, recording_on, smoothed, tracing_to
from snncell.tape.tape import Entry, Tape, pullback, watched, zeros_of
from snncell.tape.taps import Brought, Events, Note, noting
from snncell.tape.tensor import Tensor, wrap
from snncell.tape.tracing import Trace


class TracedVjp:
    """A trace with its tape.

    Args:
        name: for errors.
        trace: finished.
        entries: the tape's, which are kept alive here.
        arguments: Tensors of the trace that stand for what a call is given.
        outs: Tensors of the trace that a call returns.
        up_to_date: whether the Python state that was traced is still as it was.
    """

    def __init__(
        self,
        name: str,
        trace: Trace,
        entries: list[Entry],
        arguments: Sequence[Tensor],
        outs: Sequence[Tensor],
        up_to_date: Callable[[], bool],
    ) -> None:
        self.name = name
        self.trace = trace
        self.entries = entries
        self.outs = [wrap(trace.lift(out), out._entry, out._index) for out in outs]
        self.trainable = [p for p in trace.parameters if p.requires_grad and p.dtype.is_float]
        of_parameters = [wrap(trace.parameters[p], p._entry) for p in self.trainable]
        captured = [tensor for tensor, _ in trace.captures.values()]
        self.given = len(arguments) + len(captured)  # how many inputs a call passes; the rest are Parameters
        self.inputs = [*arguments, *captured, *of_parameters]
        self.places = {_place(x): number for number, x in reversed(list(enumerate(self.inputs)))}
        self.up_to_date = up_to_date
        self.smooth = STATE.smooth
        self._residuals: list[list[Tensor]] = []  # for gradients of one order, of two, ..., each with those before
        self._plans: dict[int, Plans] = {}
        self._reverses: dict[tuple[int, ...], _Reversed] = {}
        self._dependencies: list[Dependencies] = []  # of the reverses: they may call Cells that the forward does not

    def __call__(self, given: Sequence[Tensor], events: Events) -> tuple[Tensor, ...]:
        """The results; on a tape as one entry, whose reverse is this one's. `events` are to be those of this run."""
        if STATE.tape is None:
            return self._execute(given, orders=0)

        orders = STATE.tape.depth

        def forward() -> Any:
            found = self._execute(given, orders)
            return found[: len(self.outs)], found[len(self.outs) :]

        results: tuple[Tensor, ...] = custom(_Run(self, orders, events), forward, [*given, *self.trainable])[0]
        return results

    def unchanged(self) -> bool:
        """True if nothing has been changed that a reverse depends on, of any order."""
        for dependencies in self._dependencies:  # at each call, as in Dependencies
            if not dependencies.unchanged():
                return False
        return not self._reverses or all(reverse.vjp.unchanged() for reverse in self._reverses.values())

    def changed(self) -> str:
        """The change that makes a reverse out of date."""
        changes = [found.changed() for found in self._dependencies if not found.unchanged()]
        changes += [reverse.vjp.changed() for reverse in self._reverses.values() if not reverse.vjp.unchanged()]
        return f"{changes[0]}, which a bprop uses"

    def residuals(self, orders: int) -> list[Tensor]:
        """The values the forward leaves for gradients of so many orders: what its reverses capture, but for inputs.

        A second order leads on through what the first one captured, even where the first did not lead.
        """
        with TRACING:
            while len(self._residuals) < orders:
                known = self._residuals[-1] if self._residuals else []
                try:
                    # Added when it is complete: a reverse that raises, or is interrupted, is traced again.
                    self._residuals.append([*known, *self._captured(known)])
                except Exception:
                    if not self._residuals:
                        raise
                    self._residuals.append(known)  # it fails when it is asked for, which may be never
        return self._residuals[orders - 1] if orders else []

    def _captured(self, known: list[Tensor]) -> list[Tensor]:
        """The values that the reverse from all results, and from the residuals that are `known`, takes beside those."""
        reverse = self._reverse(self._all_of(known))
        captured = [tensor for tensor, _ in reverse.vjp.trace.captures.values()]
        there = {*self.places, *map(_place, known)}
        return [x for x in captured if x._data.trace is self.trace and _place(x) not in there]

    def _all_of(self, known: list[Tensor], further: Sequence[int] = ()) -> tuple[int, ...]:
        """The positions of all results and residuals that can have a gradient, and `further` ones."""
        positions = enumerate([*self.outs, *known])
        return tuple(sorted({*further, *(n for n, x in positions if x._entry is not None)}))

    def _execute(self, given: Sequence[Tensor], orders: int) -> tuple[Tensor, ...]:
        with TRACING:
            if orders not in self._plans:
                wanted = [*self.outs, *self.residuals(orders)]
                self._plans[orders] = Plans(from_trace(self.trace, [x._data for x in wanted]))
        plans = self._plans[orders]
        if STATE.trace is not None:
            return tuple(interpret(plans.program, given))
        arrays = [x._data for x in given]
        return tuple([wrap(array) for array in plans.of(arrays).replay(arrays)])

    def pull(self, entry: Entry, douts: list[Tensor | None], orders: int, events: Events) -> Sequence[Any]:
        """The gradients of the inputs from those of the results and, in higher orders, of the residuals."""
        positions = [*self.outs, *self.residuals(orders)]
        # Which results have a gradient; the residuals have one in higher orders only.
        pairs = enumerate(zip(douts, positions, strict=True))
        present = tuple(n for n, (dout, x) in pairs if dout is not None and x._entry is not None)
        found = dict(zip(map(_place, positions), rebuilt(entry), strict=True))
        for place, number in self.places.items():
            found[place] = entry.inputs[number]
        # What is a constant to a reverse may have a place elsewhere.
        found = {**{(value, None, 0): wrap(x._data) for (value, _, _), x in found.items()}, **found}
        reverse = self._reverse(present)
        if not found.keys() >= reverse.captured():
            # A gradient that is not there is a constant to a loop's reverse, which takes other things outside with it.
            # What is left is what the reverse from everything takes, so it is that one, with zeros.
            present = self._all_of(self.residuals(orders - 1), present)
            reverse = self._reverse(present)
        seeds = [zeros_of(entry.specs[n]) if (dout := douts[n]) is None else dout for n in present]
        captured = [found[_place(tensor)] for tensor, _ in reverse.vjp.trace.captures.values()]
        grads = iter(reverse.noted.pass_on(reverse.vjp([*seeds, *captured], {}), events))
        given = [next(grads) if arrives else None for arrives in reverse.arrives]
        for watch in FINITE if STATE.trace is None else ():
            who = f"the reverse of {self.name}, which ran before check_finite was on,"
            for number, grad in enumerate(given):
                watch.gradient(who, self._called(number), grad)
        return given

    def _called(self, number: int) -> str:
        """The name of an input."""
        place = number - len(self.inputs) + len(self.trainable)
        return f"operand {number}" if place < 0 else f"Parameter {self.trainable[place].name!r}"

    def _reverse(self, present: tuple[int, ...]) -> _Reversed:
        """The sweep from those results and residuals that have a gradient, traced once."""
        with TRACING:
            if present not in self._reverses:
                if not self.up_to_date():
                    raise GradientError(
                        f"{self.name}: a Cell that the jitted function calls was changed between its forward and this "
                        f"gradient. Change it after the gradient is taken."
                    )
                with smoothed(self.smooth):
                    self._reverses[present] = self._trace_reverse(present)
        return self._reverses[present]

    def _trace_reverse(self, present: tuple[int, ...]) -> _Reversed:
        trace, tape = Trace(parents=(self.trace, *self.trace.parents), taped=True), Tape()
        with tracing_to(trace), recording_on(None), tape.active():
            positions = [*self.outs, *(self._residuals[-1] if self._residuals else ())]
            outs = [positions[number] for number in present]
            seeds = [watched(trace.new_input(x.shape, x._data.dtype)) for x in outs]
            notes: list[Note] = []
            with noting(notes):
                grads = pullback(list(self.entries), outs, seeds, self.inputs, once=True)
            results = [grad for grad in grads if grad is not None]
            noted = Brought(notes, results)
            results += noted.further
            self._dependencies.append(Dependencies(trace))
            vjp = TracedVjp(f"reverse of {self.name}", trace, tape.live(), seeds, results, self.up_to_date)
        return _Reversed(vjp, [grad is not None for grad in grads], noted)


class _Run:
    """One run of what is linked, as an operation of the tape, with what gradients of so many orders need."""

    def __init__(self, vjp: TracedVjp, orders: int, events: Events) -> None:
        self.name = vjp.name
        self.vjp = vjp
        self.orders = orders
        self.events = events

    def pull(self, entry: Entry, douts: list[Tensor | None]) -> Sequence[Any]:
        """The gradients of the inputs."""
        return self.vjp.pull(entry, douts, self.orders, self.events)


class _Reversed:
    """A reverse, which inputs it gives a gradient for, and what was noted in it."""

    def __init__(self, vjp: TracedVjp, arrives: list[bool], noted: Brought) -> None:
        self.vjp = vjp
        self.arrives = arrives
        self.noted = noted

    def captured(self) -> set[Any]:
        """The places of what it takes beside the gradients."""
        return {_place(tensor) for tensor, _ in self.vjp.trace.captures.values()}


def _place(x: Tensor) -> Any:
    """A Tensor's Value and its place on the tape: what it is, and where its gradient goes."""
    return x._data, x._entry, x._index
