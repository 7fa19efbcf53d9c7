"""Scan: a loop over time as one operation, the forward of which is a body and the reverse a scan of its reverse."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import compress
from typing import Any

from snncell.compiler.body import Body, Reverse, StepFunction, trace_body
from snncell.compiler.further import needed_further
from snncell.compiler.lower import Lowered, Segments
from snncell.compiler.program import values_used
from snncell.compiler.relived import look_at_gradients, look_at_results
from snncell.compiler.steps import Steps
from snncell.config import FINITE
from snncell.kernels.space import DEVICE, HOST, Space
from snncell.tape.parameter import assign_all, commit
from snncell.tape.primitive import EVERYWHERE, Primitive, rebuilt
from snncell.tape.state import EFFECTS, STATE
from snncell.tape.tape import Entry, zeros_of
from snncell.tape.tensor import Tensor, beside
from snncell.tape.tracing import Step, Value
from snncell.tape.transforms import vjp
from snncell.tape.watching import Events


def run(
    f: StepFunction,
    carry: Sequence[Tensor],
    xs: Sequence[Tensor],
    *,
    backwards: bool,
    every: int | None,
    who: str,
    names: Sequence[str] = (),
    events: Events | None = None,
) -> tuple[list[Tensor], list[Tensor]]:
    """Trace `f`, and run it over the sequences: the last state, and the collected results.

    `names` are what the states are called, for errors; `events` are to be those of this run (`tape/watching.py`).
    """
    with beside(*carry, *xs):  # what the body makes is where its operands are
        body, written = trace_body(f, carry, xs, backwards, who)
    every = every if body.carry else None  # without states there is nothing to store
    with EFFECTS if written and STATE.trace is None else nullcontext():  # nobody else draws the same random numbers
        if STATE.trace is None:
            place = "gpu" if any(x.device == "gpu" for x in (*carry, *xs)) else "cpu"
            commit([parameter.moving(place) for parameter in written if parameter.follows])
        states = [*carry, *(p.value() for p in written)]
        scan, outs = _bound(body, [*states, *xs, *body.captured], xs[0].shape[0], every, who)
        scan.events = {} if events is None else events
        for watch in FINITE if STATE.trace is None else ():
            scan.loop = Steps(f, written, backwards, who, names, STATE.smooth, watch.place())
            pairs = zip(body.ys, outs[len(states) :], strict=False)
            asked_for = [out for y, out in pairs if id(y._data) not in body.trace.noted]
            look_at_results(scan.loop, states, xs, [*outs[: len(states)], *asked_for])
        assign_all(list(zip(written, outs[len(carry) : len(states)], strict=True)), in_range=True)
    return list(outs[: len(carry)]), list(outs[len(states) : len(states) + scan.given])


def _bound(
    body: Body, inputs: list[Tensor], steps: int, every: int | None, who: str, segments: Segments | None = None
) -> tuple[Scan, Sequence[Tensor]]:
    """The scan of a body, carried out or traced; on a tape it stores what its reverse needs."""
    given = len(body.ys)
    taped = STATE.tape is not None and body.trace.tape is not None and any(x._entry is not None for x in inputs)
    if taped and every is None and segments is None:
        body = body.keeping()
    scan = Scan(body, given, every if taped else None, who, segments)
    return scan, scan.bind(*inputs, steps=steps)


class Scan(Primitive):
    """A body, run `steps` times.

    The inputs are the states before the first step, the sequences (steps, ...), and the constants; the outputs are the
    states after the last step, the collected results (steps, ...), and sums over all steps.

    Args:
        body: one step.
        given: how many of the body's ys were asked for; those that follow are kept for the reverse.
        every: store the states only before each `every`-th step, as further outputs, and compute those between again.
        who: what runs the loop, for errors and `explain`.
        segments: for a reverse, how it has the states between those that were stored.
    """

    multiple = True
    as_stored = EVERYWHERE
    loops = True
    watched = False  # by bind: here, where it can be told which step gave what is not finite
    loop: Steps | None = None  # what it does, while `check_finite` is on

    def __init__(self, body: Body, given: int, every: int | None, who: str, segments: Segments | None = None) -> None:
        super().__init__("scan", self._run, multiple=True)
        self.body = body
        self.given = given
        self.every = every
        self.who = who
        self.segments = segments
        self.keeps = (True,) * (len(body.carry) + len(body.xs) + len(body.consts))
        self.keeps_out = True
        self.events: Events = {}  # of its run, for those who watch
        self._lowered: Lowered | None = None

    @property
    def lowered(self) -> Lowered:
        """The loops it became; made when it is first run."""
        if self._lowered is None:
            self._lowered = Lowered(self.body, self.who, self.every, self.segments)
        return self._lowered

    def _run(self, *arrays: Any, steps: int) -> tuple[Any, ...]:
        return self.lowered.run(arrays, steps)

    def inside(self) -> list[str]:
        """The body's Program."""
        return str(self.body.program()).splitlines()

    def explained(self, attrs: dict[str, Any], space: Space = HOST) -> list[str]:
        """The form the loop took, and why."""
        return self.lowered.explained(attrs["steps"], space)

    def kernels(self, attrs: dict[str, Any], space: Space = HOST) -> list[tuple[Any, ...]]:
        """Those of its loop."""
        return self.lowered.loop_in(space).kernels(attrs["steps"])

    def launches(self, attrs: dict[str, Any]) -> int:
        """Kernels that it launches on the device."""
        return self.lowered.loop_in(DEVICE).launches(attrs["steps"])

    def moved(self, attrs: dict[str, Any]) -> int:
        """Bytes that the steps move, where they go one by one."""
        return self.lowered.moved(attrs["steps"])

    def pruned(self, step: Step, needed: set[Value]) -> Step:
        """The step without the results and sums that nothing needs, and without the inputs that only those need."""
        body = copy.copy(self.body)
        first, last = len(body.after), len(body.after) + len(body.ys)
        flags = [n < first or n >= len(body.outs) or value in needed for n, value in enumerate(step.outputs)]
        if all(flags):
            return step
        body.ys = list(compress(body.ys, flags[first:last]))
        body.sums = list(compress(body.sums, flags[last:]))
        # A Program is carried out, not differentiated: what it becomes must not depend on who makes it, and when.
        inputs = _without_unused(body, step.inputs, self.segments, set())
        scan = Scan(body, len(body.ys), self.every, self.who, self.segments)
        smaller = Step(scan, tuple(inputs), step.attrs, step.line)
        smaller.outputs = tuple(compress(step.outputs, flags))
        return smaller

    def abstract(self, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> list[tuple[Any, Any]]:
        body, steps = self.body, attrs["steps"]
        specs = [(out.shape, out._data.dtype) for out in body.after]
        specs += [((steps, *out.shape), out._data.dtype) for out in body.ys]
        specs += [(out.shape, out._data.dtype) for out in body.sums]
        if self.every is not None:
            stored = -(-steps // self.every)
            specs += [((stored, *x.shape), x._data.dtype) for x in body.carry]
        return specs

    def pull(self, entry: Entry, douts: list[Tensor | None]) -> Sequence[Any]:
        """The gradients of the inputs: a scan of the body's reverse, in the other direction of time."""
        grads = self._pull(entry, douts)
        for watch in FINITE if STATE.trace is None else ():
            if self.loop is None:  # a reverse that is reversed in turn
                for n, grad in enumerate(grads):
                    watch.gradient(f"the reverse of {self.who}", f"operand {n}", grad)
            else:
                body, inputs = self.body, entry.inputs
                results = douts[: len(body.after) + self.given]
                sizes = len(body.carry), len(body.xs)
                look_at_gradients(self.loop, inputs, *sizes, body.captured, results, grads)
        return grads

    def _pull(self, entry: Entry, douts: list[Tensor | None]) -> Sequence[Any]:
        body, steps, outs = self.body, entry.attrs["steps"], rebuilt(entry)
        results = len(body.outs)
        if self.segments is not None:
            return self._pull_whole(entry, douts)
        with beside(*entry.inputs):
            reverse = body.reverse([dout is not None for dout in douts[:results]])
            if self.every is None and body.lacks_for(reverse):
                # What is kept is what the reverse from the results needs. In higher orders a gradient arrives at what
                # was kept too, and leads on to what only the states give: the loop runs again, and collects those.
                sums = len(body.after) + len(body.ys)
                body = body.with_states()
                outs = Scan(body, self.given, None, self.who).bind(*entry.inputs, steps=steps)
                douts = [*douts[:sums], *(None for _ in body.carry), *douts[sums:]]
                reverse = body.reverse([dout is not None for dout in douts])
        first, last = len(body.carry), len(body.carry) + len(body.xs)
        kept = first + len(body.ys) - len(body.kept or ())
        stored = outs[results:] if self.every else outs[kept : first + len(body.ys)]
        later = first + len(body.ys)  # from here on, outputs are sums
        inputs = [
            *(_seed(douts[n], entry.specs[n]) for n in reverse.flowing),
            *(*entry.inputs[first:last], *stored, *(douts[n] for n in reverse.arriving if n < later)),
            *(*entry.inputs[last:], *(douts[n] for n in reverse.arriving if n >= later), *reverse.body.captured),
        ]
        segments = Segments(self.every, body) if self.every else None
        operands = [*reverse.body.xs, *reverse.body.consts]
        needed = needed_further(reverse.body.trace, reverse.body.outs, operands)
        if segments is not None:
            needed |= needed_further(segments.body.trace, segments.body.outs, operands)
        inputs = _without_unused(reverse.body, inputs, segments, needed)
        scan, found = _bound(reverse.body, inputs, steps, None, f"reverse of {self.who}", segments)
        scan.events = self.events
        after, sums = len(scan.body.after), len(scan.body.after) + len(scan.body.ys)
        ys = reverse.noted.pass_on(found[after : after + scan.given], self.events, (steps,))
        grads = _spread(reverse, [*found[:after], *ys, *found[sums:]], first)
        if self.every:  # what has been stored first are the states that came in
            for n, dout in enumerate(douts[results:]):
                if dout is not None and grads[n] is not None:
                    grads[n] = grads[n] + dout[0]
        return grads

    def _pull_whole(self, entry: Entry, douts: list[Tensor | None]) -> Sequence[Any]:
        """The gradients through a reverse that computed states again: those of one that has them all."""
        assert self.segments is not None  # the caller's choice
        forward, body, steps = self.segments.body, self.body, entry.attrs["steps"]
        places = {x._data: n for n, x in enumerate((*body.carry, *body.xs, *body.consts))}
        states = [places[x._data] for x in forward.carry]
        live = [n for n, x in enumerate(entry.inputs) if x._entry is not None]

        def whole(*watched: Tensor) -> Any:
            given = list(entry.inputs)
            for n, x in zip(live, watched, strict=True):
                given[n] = x
            # What the forward takes and never uses has been left out.
            xs = [given[places[x._data]] if x._data in places else _unused(x, (steps,)) for x in forward.xs]
            consts = [given[places[x._data]] if x._data in places else _unused(x, ()) for x in forward.consts]
            again = Scan(forward.with_states(), len(forward.ys), None, self.who)
            again.events = self.events
            found = again.bind(*(given[n][0] for n in states), *xs, *consts, steps=steps)
            for n, rows in zip(states, found[len(states) + len(forward.ys) :], strict=False):
                given[n] = rows
            scan, found = _bound(body, given, steps, None, self.who)
            scan.events = self.events
            collected = len(body.after) + len(body.ys)
            return [*found[:collected], *found[len(body.after) + len(scan.body.ys) :]]

        found, pull = vjp(whole, *(entry.inputs[n] for n in live))[:2]
        grads = pull(*(_seed(dout, (out.shape, out._data.dtype)) for dout, out in zip(douts, found, strict=True)))
        spread = dict(zip(live, grads if isinstance(grads, tuple) else (grads,), strict=True))
        return [spread.get(n) for n in range(len(entry.inputs))]


def with_body(step: Step, body: Body, inputs: Sequence[Any], outputs: Sequence[Value]) -> Step:
    """A loop's step with another body, and the inputs and outputs that belong to it."""
    old: Any = step.op
    new = Step(Scan(body, len(body.ys), old.every, old.who, old.segments), tuple(inputs), step.attrs, step.line)
    new.outputs = tuple(outputs)
    return new


def _unused(x: Tensor, first: tuple[int, ...]) -> Tensor:
    return zeros_of((first + x.shape, x._data.dtype))


def _seed(dout: Tensor | None, spec: Any) -> Tensor:
    return zeros_of(spec) if dout is None else dout  # the loop takes it along


def _without_unused(body: Body, inputs: Sequence[Any], segments: Segments | None, needed: set[Value]) -> list[Any]:
    """Leave out sequences and constants that no step takes, so that nothing keeps them; the inputs that are left.

    Those stay that are `needed` all the same, by a further gradient.
    """
    used = values_used(body.program()) | needed
    if segments is not None:
        used |= values_used(segments.forward.program) | {x._data for x in segments.body.carry}
    flags = [True] * len(body.carry) + [x._data in used for x in (*body.xs, *body.consts)]
    body.xs = [x for x in body.xs if x._data in used]
    body.consts = [x for x in body.consts if x._data in used]
    return list(compress(inputs, flags))


def _spread(reverse: Reverse, found: Sequence[Tensor], states: int) -> list[Any]:
    """A gradient, or None, for each input of the forward, the first of which are `states` states."""
    grads = iter(found)
    flowing = {n: next(grads) for n in reverse.flowing}
    others = [next(grads) if gives else None for gives in reverse.gives[states:]]
    return [*(flowing.get(n) for n in range(states)), *others]
