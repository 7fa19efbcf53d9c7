"""The body of a loop over time: one step, traced once, and its reverse.

The reverse of a step is the sweep of its tape, traced on behind the step itself. So it holds the step once more: what
the sweep needs of the forward is computed again from the carried state, and nothing but that state has to be stored.
The reverse is a body like any other, with a reverse in turn.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

from snncell.compiler.program import Program, drop_dead, from_trace
from snncell.tape.parameter import Parameter
from snncell.tape.state import STATE, recording_on, tracing_to
from snncell.tape.tape import Entry, Tape, deposit, sweep, watched, zeros_of
from snncell.tape.tensor import Tensor, wrap
from snncell.tape.tracing import BodyTrace, Step

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
        self.kept: list[Tensor] = []  # the last of `ys`, which are there for the reverse: states, and products
        self.captured: list[Tensor] = []  # Tensors from outside that the last of `consts` stand for

    @property
    def outs(self) -> list[Tensor]:
        """All that comes out."""
        return [*self.after, *self.ys, *self.sums]

    def keeping(self) -> Body:
        """The same body, which collects what its reverse takes: the states before each step, and products."""
        other = copy.copy(self)
        found = {x._data: x for x in (*self.carry, *self.trace.stored)}
        other.kept = [wrap(x._data, x._entry, x._index) for x in found.values()]
        other.ys = [*self.ys, *other.kept]
        return other

    def program(self) -> Program:
        """The step as a Program."""
        trace = self.trace
        program = from_trace(trace, [trace.lift(out) for out in self.outs], self.ahead)
        inputs = [x._data for x in (*self.carry, *self.xs, *self.consts)]
        given = set(inputs)  # among them what the forward computed and stored
        steps = [step for step in program.steps if given.isdisjoint(step.outputs)]
        return drop_dead(program._replace(inputs=inputs, steps=steps))

    def reverse(self, present: Sequence[bool]) -> Reverse:
        """The reverse, for outputs of which those that are `present` have a gradient.

        A state's gradient flows from step to step, so it is there in any case.
        """
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
            sweep(tape.live(), cotangents, {x._entry for x in inputs if x._entry is not None}, False)
            grads = [_arrived(x, cotangents, inputs[:n]) for n, x in enumerate(inputs)]
            first, last = len(self.carry), len(self.carry) + len(self.xs)
            body = Body(trace, [seeds[n] for n in flowing], [*self.xs, *(self.kept or self.carry)], not self.backwards)
            body.after = [_or_zeros(grads[n], inputs[n]) for n in flowing]
            body.ys = [grad for grad in grads[first:last] if grad is not None]
            body.sums = [grad for grad in grads[last:] if grad is not None]
            body.consts = list(self.consts)
            for n in arriving:
                (body.xs if n < len(self.after) + len(self.ys) else body.consts).append(seeds[n])
            body._take_captures(len(self.trace.captures))
        return Reverse(body, flowing, arriving, [grad is not None for grad in grads])

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
    """

    def __init__(self, body: Body, flowing: list[int], arriving: list[int], gives: list[bool]) -> None:
        self.body = body
        self.flowing = flowing
        self.arriving = arriving
        self.gives = gives


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
