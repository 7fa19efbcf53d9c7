"""A step and its reverse: both are traced, and both are bodies of loops.

The reverse of a step is the sweep of its tape, traced on behind the step itself. So it holds the step once more: what
the sweep needs of the forward is computed again, from the least that has to be saved for it
(`passes/rematerialise.py`): a state, or what is made of it. The reverse is a body like any other, with a reverse in
turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from snncell.compiler.higher_orders import needed_further
from snncell.compiler.ir.body import Body
from snncell.compiler.ir.program import values_used
from snncell.compiler.passes.canonicalise import program_of
from snncell.compiler.passes.rematerialise import values_to_save
from snncell.errors import GradientError
from snncell.tape.body_trace import BodyTrace
from snncell.tape.parameter import Parameter
from snncell.tape.state import STATE, recording_on, tracing_to
from snncell.tape.tape import Tape, pullback, watched, zeros_of
from snncell.tape.taps import Brought, Note, noting
from snncell.tape.tensor import Tensor, wrap

StepFunction = Callable[[list[Tensor], list[Tensor]], tuple[list[Tensor], list[Tensor]]]


@dataclass(frozen=True, eq=False)
class Reverse:
    """The reverse of a body.

    Attributes:
        body: the reverse itself.
        flowing: which states of the forward have a gradient: those are its own states, in this order.
        arriving: which outputs of the forward its last sequences and constants are the gradients of.
        gives: for each input of the forward, whether it gives a gradient.
        noted: what was noted in it, places among its results; what is given for that comes last of them.
    """

    body: Body
    flowing: list[int]
    arriving: list[int]
    gives: list[bool]
    noted: Brought


# --- the step ---------------------------------------------------------------------------------------------------------


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
        after, ys = f(states, slices)
        after = [*after, *(wrap(trace.lift(p)) for p in carried)]  # no gradient flows through a write
        captured, consts = _captures(trace, [*after, *ys], 0)
    outer = STATE.trace
    if outer is not None:
        outer.cells.update(trace.cells)
        outer.sought |= trace.sought
    return Body(trace, [*states, *written], after, slices, ys, consts, backwards, captured=captured)


def _captures(trace: BodyTrace, outs: Sequence[Tensor], known: int) -> tuple[list[Tensor], list[Tensor]]:
    """The captures beyond the `known` ones, outside and inside: they are constant from step to step."""
    for out in outs:
        trace.lift(out)  # what comes from outside and goes straight out
    new = list(trace.captures.values())[known:]
    return [tensor for tensor, _ in new], [wrap(value, tensor._entry, tensor._index) for tensor, value in new]


# --- its reverse ------------------------------------------------------------------------------------------------------


def saving(body: Body) -> Body:
    """The same body, which collects what its reverse takes of each step."""
    try:
        with recording_on(None):
            reverse = linearise(body, [out.dtype.is_float for out in body.outs])
    except Exception:  # a reverse that fails does so when it is asked for; until then, the states will do
        return body.saving_states()
    return replace(body.saving(values_to_save(body, reverse.body)), reverse=reverse)


def linearise(body: Body, present: Sequence[bool]) -> Reverse:
    """Trace the reverse, for outputs of which those that are `present` have a gradient.

    A state's gradient flows from step to step, so it is there in any case. What the reverse needs of the forward it
    computes from what was saved, or if nothing was, from the states.
    """
    if body.reverse is not None and STATE.tape is None and _is_as_saved_for(body, present):
        return _from_saved(body, body.reverse)
    trace, tape = body.trace.fork(), body.trace.tape
    assert tape is not None  # only bodies traced under a tape are asked
    flowing = [n for n, x in enumerate(body.carry) if x.dtype.is_float]
    arriving = [n for n in range(len(body.after), len(body.outs)) if present[n]]
    with tracing_to(trace), recording_on(tape if STATE.tape is not None else None):
        seeds = {
            n: watched(trace.new_input(body.outs[n].shape, body.outs[n]._data.dtype)) for n in (*flowing, *arriving)
        }
        inputs = [*body.carry, *body.xs, *body.consts]
        notes: list[Note] = []
        with noting(notes):
            grads = pullback(tape.live(), [body.outs[n] for n in seeds], list(seeds.values()), inputs, once=True)
        _refuse_writes(body, trace)
        first, last = len(body.carry), len(body.carry) + len(body.xs)
        after = [_or_zeros(grads[n], inputs[n]) for n in flowing]
        ys = [grad for grad in grads[first:last] if grad is not None]
        noted = Brought(notes, ys)
        ys += noted.further
        sums = [grad for grad in grads[last:] if grad is not None]
        results = len(body.after) + len(body.ys)
        captured, consts = _captures(trace, [*after, *ys, *sums], len(body.trace.captures))
        own = Body(
            trace,
            carry=[seeds[n] for n in flowing],
            after=after,
            xs=[seeds[n] for n in arriving if n < results],
            ys=ys,
            consts=[*body.consts, *(seeds[n] for n in arriving if n >= results), *consts],
            backwards=not body.backwards,
            sums=sums,
            captured=captured,
        )
    if STATE.trace is not None:
        STATE.trace.cells.update(trace.cells)
    return _from_saved(body, Reverse(own, flowing, arriving, [grad is not None for grad in grads], noted))


def lacks_states(body: Body, reverse: Reverse) -> bool:
    """True if a reverse takes states that were not saved for it, or if a further gradient does.

    A further gradient may do so where the reverse itself does not: a bprop may call a Cell, which has its own.
    """
    own = reverse.body
    program, states = program_of(own), [x._data for x in body.carry]
    if not values_used(program).difference(program.inputs).isdisjoint(states):
        return True
    needed = needed_further(own.trace, own.outs, body.carry, [*own.xs, *own.consts])
    return not needed.isdisjoint(states)


def _is_as_saved_for(body: Body, present: Sequence[bool]) -> bool:
    """True if a reverse is the one that was traced to find out what to save."""
    wanted = [n for n in range(len(body.after), len(body.outs)) if present[n]]
    return not body.sums and wanted == body.reverse.arriving


def _from_saved(body: Body, reverse: Reverse) -> Reverse:
    """A copy of a reverse whose first sequences are those of the step and what it saves."""
    own = reverse.body
    arriving = own.xs[len(own.xs) - sum(n < len(body.after) + len(body.ys) for n in reverse.arriving) :]
    xs = [*body.xs, *(body.carry if body.saved is None else body.saved), *arriving]
    return replace(reverse, body=replace(own, xs=xs))


def _refuse_writes(body: Body, trace: BodyTrace) -> None:
    """Raise if the reverse has an effect: what a Parameter holds is no state of the reverse's own."""
    for parameter in trace.written:
        raise GradientError(
            f"{body.trace.who}: a bprop that a step calls writes Parameter {parameter.name!r} (to draw random "
            f"numbers is to write 'random_state'), which the reverse of a loop cannot do. Do it in construct, and "
            f"return what the bprop needs as a further output; or give what is written as the gradient of an "
            f"internal Parameter."
        )


def _or_zeros(grad: Tensor | None, x: Tensor) -> Tensor:
    return zeros_of((x.shape, x._data.dtype)) if grad is None else grad
