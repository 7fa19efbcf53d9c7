"""The body of a loop over time: one step, traced once, and its reverse.

The reverse of a step is the sweep of its tape, traced on behind the step itself. So it holds the step once more: what
the sweep needs of the forward is computed again, from the least that has to be stored for it (`kept.py`): a state, or
what is made of it. The reverse is a body like any other, with a reverse in turn.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

from snncell.compiler.further import needed_further
from snncell.compiler.kept import Costs, what_to_keep
from snncell.compiler.program import Program, from_trace, leading_to, values_used
from snncell.errors import GradientError
from snncell.tape.body_trace import BodyTrace
from snncell.tape.parameter import Parameter
from snncell.tape.state import STATE, recording_on, tracing_to
from snncell.tape.tape import Entry, Tape, deposit, sweep, watched, zeros_of
from snncell.tape.tensor import Tensor, wrap
from snncell.tape.tracing import Step
from snncell.tape.watching import Brought, Note, beyond_taps, noting

StepFunction = Callable[[list[Tensor], list[Tensor]], tuple[list[Tensor], list[Tensor]]]


class Body:
    """One step, with the roles of what goes in and out of it.

    Attributes:
        trace: what it was traced to.
        carry, after: the state before the step, and after it.
        xs, ys: what the step takes of each sequence, and what it adds to each.
        consts: what is the same at every step.
        sums: what is added up over all steps.
        backwards: whether the steps run from the last to the first.
    """

    def __init__(self, trace: BodyTrace, carry: list[Tensor], xs: list[Tensor], backwards: bool) -> None:
        self.trace = trace
        self.carry = carry
        self.xs = xs
        self.backwards = backwards
        self.consts: list[Tensor] = []
        self.after: list[Tensor] = []
        self.ys: list[Tensor] = []
        self.sums: list[Tensor] = []
        self.ahead: list[Step] = []  # steps that the compiler has put before those of the trace
        self.added_up: list[Step] = []  # sums over time that the compiler has made part of `sums`
        self.kept: list[Tensor] | None = None  # the last of `ys`, if they are there for the reverse
        self.tried: Reverse | None = None  # the reverse for all of the outputs but `kept`
        self.captured: list[Tensor] = []  # Tensors from outside that the last of `consts` stand for

    @property
    def outs(self) -> list[Tensor]:
        """All that comes out."""
        return [*self.after, *self.ys, *self.sums]

    def with_states(self) -> Body:
        """The same body, which collects the states before each step too."""
        return self._collecting(self.carry)

    def keeping(self) -> Body:
        """The same body, which collects what its reverse takes of each step."""
        try:
            with recording_on(None):
                tried = self.reverse([out.dtype.is_float for out in self.outs])
        except Exception:  # a reverse that fails does so when it is asked for; until then, the states will do
            return self.with_states()
        other = self._collecting(self._needed_by(tried))
        other.tried = tried
        return other

    def _collecting(self, values: Sequence[Tensor]) -> Body:
        other = copy.copy(self)
        other.kept = [wrap(x._data, x._entry, x._index) for x in values]
        other.ys = [*self.ys, *other.kept]
        return other

    def _needed_by(self, reverse: Reverse) -> list[Tensor]:
        """The values that the reverse needs of each step, beside the sequences that the step takes."""
        trace = self.trace
        places = {x._data: x for x in (*self.carry, *self.xs)}
        given = [x._data for x in self.xs]
        places.update((value, x) for value, x in trace.places.items() if value not in places)
        of_entry = {(x._entry, x._index): value for value, x in places.items() if x._entry is not None}
        taped = []
        for value, x in places.items():
            if x._entry is not None:
                parents = [
                    beyond_taps(entry, index)
                    for entry, index in zip(x._entry.parents, x._entry.indices, strict=True)
                    if entry is not None
                ]
                taped += [(of_entry[parent], value) for parent in parents if parent in of_entry]
        # Where one of several outputs is given, the gradients of the others would not get beyond.
        single = {value for value, x in places.items() if x._entry is not None and len(x._entry.specs) == 1}
        asked_for = [x for x in self.ys if id(x._data) not in trace.noted]  # it is the same loop if somebody watches
        shapes = {x.shape for x in (*self.carry, *asked_for)}  # a kernel has no place for what is smaller
        dear = {out for step in trace.steps if step.op.stored for out in step.outputs}
        storable = {x for x in single if (x.shape in shapes or x in dear) and x not in trace.ambiguous}
        results = {value for value in storable if any(y._data is value for y in asked_for)}
        costs = Costs([x._data for x in self.carry], given, results, storable)
        gradients = [reverse.body.trace.lift(out) for out in reverse.body.outs]
        steps = leading_to(reverse.body.trace.steps, gradients)
        forward = {value for step in trace.steps for value in step.outputs}
        found = what_to_keep(steps, gradients, forward, taped, costs)
        return [places[value] for value in found if value not in given]

    def program(self) -> Program:
        """The step as a Program."""
        trace = self.trace
        inputs = [x._data for x in (*self.carry, *self.xs, *self.consts)]
        given = set(inputs)  # among them what the forward computed and stored
        program = from_trace(trace, [trace.lift(out) for out in self.outs], self.ahead, given)
        return program._replace(inputs=inputs)

    def reverse(self, present: Sequence[bool]) -> Reverse:
        """The reverse, for outputs of which those that are `present` have a gradient.

        A state's gradient flows from step to step, so it is there in any case. What the reverse needs of the forward it
        computes from what was kept, or if nothing was, from the states.
        """
        if self.tried is not None and STATE.tape is None and self._is_as_tried(present):
            return self._given(self.tried)
        trace, tape = self.trace.fork(), self.trace.tape
        assert tape is not None  # only bodies traced under a tape are asked
        flowing = [n for n, x in enumerate(self.carry) if x.dtype.is_float]
        arriving = [n for n in range(len(self.after), len(self.outs)) if present[n]]
        cotangents: dict[Entry, list[Tensor | None]] = {}
        with tracing_to(trace), recording_on(tape if STATE.tape is not None else None):
            seeds = {
                n: watched(trace.new_input(self.outs[n].shape, self.outs[n]._data.dtype)) for n in (*flowing, *arriving)
            }
            for n, seed in seeds.items():
                out = self.outs[n]
                if out._entry is not None:
                    deposit(cotangents, out._entry, out._index, seed)
            inputs = [*self.carry, *self.xs, *self.consts]
            notes: list[Note] = []
            with noting(notes):
                sweep(tape.live(), cotangents, {x._entry for x in inputs if x._entry is not None}, False)
            self._refuse_writes(trace)
            grads = [_arrived(x, cotangents, inputs[:n]) for n, x in enumerate(inputs)]
            first, last = len(self.carry), len(self.carry) + len(self.xs)
            body = Body(trace, [seeds[n] for n in flowing], [], not self.backwards)
            body.after = [_or_zeros(grads[n], inputs[n]) for n in flowing]
            body.ys = [grad for grad in grads[first:last] if grad is not None]
            noted = Brought(notes, body.ys)
            body.ys += noted.further
            body.sums = [grad for grad in grads[last:] if grad is not None]
            body.consts = list(self.consts)
            for n in arriving:
                (body.xs if n < len(self.after) + len(self.ys) else body.consts).append(seeds[n])
            body._take_captures(len(self.trace.captures))
        if STATE.trace is not None:
            STATE.trace.cells.update(trace.cells)
        return self._given(Reverse(body, flowing, arriving, [grad is not None for grad in grads], noted))

    def lacks_for(self, reverse: Reverse) -> bool:
        """True if a reverse takes states that were not kept for it, or if a further gradient does.

        A further gradient may do so where the reverse itself does not: a bprop may call a Cell, which has its own.
        """
        program, states = reverse.body.program(), [x._data for x in self.carry]
        if not values_used(program).difference(program.inputs).isdisjoint(states):
            return True
        body = reverse.body
        needed = needed_further(body.trace, body.outs, self.carry, [*body.xs, *body.consts])
        return not needed.isdisjoint(states)

    def _is_as_tried(self, present: Sequence[bool]) -> bool:
        """True if a reverse is the one that was traced to find out what to keep."""
        assert self.tried is not None and self.kept is not None  # they come together
        wanted = [n for n in range(len(self.after), len(self.outs)) if present[n]]
        return not self.sums and wanted == self.tried.arriving

    def _refuse_writes(self, trace: BodyTrace) -> None:
        """Raise if the reverse has an effect: what a Parameter holds is no state of the reverse's own."""
        for parameter in trace.written:
            raise GradientError(
                f"{self.trace.who}: a bprop that a step calls writes Parameter {parameter.name!r} (to draw random "
                f"numbers is to write 'random_state'), which the reverse of a loop cannot do. Do it in construct, and "
                f"return what the bprop needs as a further output; or give what is written as the gradient of an "
                f"internal Parameter."
            )

    def _given(self, reverse: Reverse) -> Reverse:
        """A copy of a reverse whose first sequences are those of this step and what it keeps."""
        body = copy.copy(reverse.body)
        arriving = body.xs[len(body.xs) - sum(n < len(self.after) + len(self.ys) for n in reverse.arriving) :]
        body.xs = [*self.xs, *(self.carry if self.kept is None else self.kept), *arriving]
        body.consts = list(body.consts)
        return Reverse(body, reverse.flowing, reverse.arriving, reverse.gives, reverse.noted)

    def _take_captures(self, known: int) -> None:
        """Whatever was captured beyond the `known` captures is constant from step to step."""
        for out in self.outs:
            self.trace.lift(out)  # what comes from outside and goes straight out
        for tensor, value in list(self.trace.captures.values())[known:]:
            self.captured.append(tensor)
            self.consts.append(wrap(value, tensor._entry, tensor._index))


class Reverse:
    """The reverse of a body.

    Attributes:
        body: the reverse itself.
        flowing: which states of the forward have a gradient: those are its own states, in this order.
        arriving: which outputs of the forward its last sequences and constants are the gradients of.
        gives: for each input of the forward, whether it gives a gradient.
        noted: what was noted in it, places among its results; what is given for that comes last of them.
    """

    def __init__(self, body: Body, flowing: list[int], arriving: list[int], gives: list[bool], noted: Brought) -> None:
        self.body = body
        self.flowing = flowing
        self.arriving = arriving
        self.gives = gives
        self.noted = noted


def trace_body(
    f: StepFunction, carry: Sequence[Tensor], xs: Sequence[Tensor], backwards: bool, who: str
) -> tuple[Body, list[Parameter]]:
    """Trace `f(carry, xs) -> (carry, ys)` for states like `carry` and steps of the sequences `xs`.

    Returns:
        The body, and the Parameters that it writes: they are its last states.
    """
    carried: list[Parameter] = []
    while True:
        body = _traced(f, carry, xs, backwards, who, carried)
        missing = [p for p in body.trace.written if all(p is not q for q in carried)]
        if not missing:
            return body, carried
        carried += missing  # a Parameter that a step writes is a state, and is traced as one


def _traced(
    f: StepFunction,
    carry: Sequence[Tensor],
    xs: Sequence[Tensor],
    backwards: bool,
    who: str,
    carried: list[Parameter],
) -> Body:
    tape = None if STATE.tape is None else Tape()
    trace = BodyTrace(who, tape, carried)
    with tracing_to(trace), recording_on(tape):
        states = [trace.new_input(x.shape, x._data.dtype) for x in carry]
        slices = [trace.new_input(x.shape[1:], x._data.dtype) for x in xs]
        if tape is not None:
            states, slices = [watched(x) for x in states], [watched(x) for x in slices]
        written = [wrap(value) for value in trace.carried.values()]
        body = Body(trace, [*states, *written], slices, backwards)
        after, body.ys = f(states, slices)
        body.after = [*after, *(wrap(trace.lift(p)) for p in carried)]  # no gradient flows through a write
        body._take_captures(0)
    outer = STATE.trace
    if outer is not None:
        outer.cells.update(trace.cells)
        outer.sought |= trace.sought
    return body


def _or_zeros(grad: Tensor | None, x: Tensor) -> Tensor:
    return zeros_of((x.shape, x._data.dtype)) if grad is None else grad


def _arrived(x: Tensor, cotangents: dict[Entry, list[Tensor | None]], before: list[Tensor]) -> Tensor | None:
    """The gradient of an input; of inputs in one place on the tape, the first gets it."""
    if x._entry is None or x._entry not in cotangents:
        return None
    if any(y._entry is x._entry and y._index == x._index for y in before):
        return None
    return cotangents[x._entry][x._index]
