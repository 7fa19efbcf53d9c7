"""Linearisation: trace a time step of a loop, and its backward step. Both are bodies of loops.

    step      (v; x) -> (v'; s)             h = v + (x - v) / tau; u = h - 1; s = u > 0; v' = h * (1 - stop_gradient(s))
    backward  (dv'; u, ds) -> (dv; dx)      s = u > 0; dh = ds * surrogate(u) + dv' * (1 - s); dx = dh / tau; ...

The backward step is the backward pass over the step's tape, traced after the step itself. Its states are the gradients
of the step's states, and its loop runs from the last step to the first. It rematerialises Values of the forward step
from saved Values, here u. The pass `rematerialise` chooses the cheapest Values to save. A backward step is a body like
any other, so it has a backward step too. If an outer tape records, `find_needed_inputs` finds the additional Values
that gradients of higher orders need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import NoneType

import numpy as np

from snncell.compiler.ir.program import Body, LoopOperation, find_used_values
from snncell.compiler.passes import choose_saved
from snncell.compiler.passes.simplify import canonical_program, canonical_step
from snncell.compiler.state.python_state import state_read_by
from snncell.compiler.state.values import Change, Spot
from snncell.errors import GradientError, TraceError
from snncell.tape.backward import ancestors, or_zeros, pullback, watch_input
from snncell.tape.hooks import Note, NotedResults
from snncell.tape.parameter import Parameter
from snncell.tape.primitive import Composite, Primitive
from snncell.tape.state import RECORDING, TRACING, Tape, Value, recording_on, settings
from snncell.tape.tensor import Tensor, wrap
from snncell.tape.tracing import BodyTrace

StepFunction = Callable[[list[Tensor], list[Tensor]], tuple[list[Tensor], list[Tensor]]]


@dataclass(frozen=True, eq=False)
class Reverse:
    """The backward step of a body. Its states are the gradients of the body's states. Its last input sequences are the
    gradients of the body's output sequences. The gradient of a sum over time is the same at each step, so it is one of
    the backward step's `consts`.
    """

    body: Body
    float_states: list[int]  # the numbers of the forward states that have a gradient
    seeded: list[int]  # the numbers of the forward outputs that have a gradient, except states
    has_gradient: list[bool]  # for each input of the forward step, whether its gradient is a result
    noted: NotedResults  # Tensors that monitors note in the backward step; they come last in its results


# --- The step ---------------------------------------------------------------------------------------------------------


def trace_body(
    f: StepFunction, carry: Sequence[Tensor], xs: Sequence[Tensor], backwards: bool, who: str
) -> tuple[Body, list[Parameter]]:
    """Trace `f(carry, xs) -> (carry, ys)`. Return the body, and the Parameters that it writes. In the body, they are
    additional states after those of `carry`.
    """
    carried: list[Parameter] = []
    earlier: tuple[dict[Spot, Change], Body] | None = None  # changes of Python values by the first trace
    while True:
        # A Parameter that a step writes is a state. The written Parameters are known only after a trace, but reads
        # before the write must be traced as reads of a state. Therefore the step is traced again.
        with state_read_by([f], who, "each slice" if who == "vmap" else "each step") as state:
            body = _trace_step(f, carry, xs, backwards, who, carried)
        state.include(body.trace.cells)
        state.refuse_leaks(body.trace, who)
        # A step may store a value for later steps, for example a mask. Then it is traced again, and finds the value.
        changes = state.changes()
        if earlier is not None and (changes or _differ(earlier[1], body)):
            raise _make_change_error(who, next(iter(earlier[0].values())).words)
        missing = [p for p in body.trace.written if all(p is not q for q in carried)]
        if not missing and not changes:
            if TRACING.trace is None:
                state.warn_of_steps(who)
            return body, carried
        earlier = (changes, body) if changes else None
        carried += missing


def _make_change_error(who: str, words: str) -> TraceError:
    return TraceError(
        f"{who}: {words} is read and changed by a step, but a step is traced only once, so all steps would see the "
        f"same value. Return it as a state, or make it a Parameter (requires_grad=False) and write to it by ops.assign."
    )


def _differ(one: Body, other: Body) -> bool:
    """True if two traces of a step compute different results from the same states."""
    if len(one.carry) != len(other.carry):
        return False  # the first trace did not have all states
    if str(canonical_step(one)) != str(canonical_step(other)):
        return True
    pairs = zip(one.captured, other.captured, strict=True)
    return any(a._data is not b._data and not np.array_equal(a._data, b._data, equal_nan=True) for a, b in pairs)


def _trace_step(
    f: StepFunction, carry: Sequence[Tensor], xs: Sequence[Tensor], backwards: bool, who: str, carried: list[Parameter]
) -> Body:
    tape = None if RECORDING.tape is None else Tape()
    trace = BodyTrace(who, tape, carried)
    with settings(trace=trace), recording_on(tape):
        states = [trace.new_input(x.shape, x._data.dtype) for x in carry]
        slices = [trace.new_input(x.shape[1:], x._data.dtype) for x in xs]
        if tape is not None:
            states, slices = [watch_input(x) for x in states], [watch_input(x) for x in slices]
        written = [wrap(value) for value in trace.carried.values()]
        after, ys = f(states, slices)
        after = [*after, *(wrap(trace.lift(p)) for p in carried)]  # a write has no gradient
        captured, consts = _captures(trace, [*after, *ys], 0)
    outer = TRACING.trace
    if outer is not None:
        outer.cells.update(trace.cells)
        outer.gradient_targets |= trace.gradient_targets
    return Body(trace, [*states, *written], after, slices, ys, consts, backwards, captured=captured)


def _captures(trace: BodyTrace, outs: Sequence[Tensor], known: int) -> tuple[list[Tensor], list[Tensor]]:
    """The captures (loop-invariant inputs), without the first `known` ones. The first list contains the Tensors from
    outside of the loop, the second list the Tensors that stand for them in the trace.
    """
    for out in outs:
        trace.lift(out)  # an output from outside is a capture, too
    new = list(trace.captures.values())[known:]
    return [tensor for tensor, _ in new], [wrap(value, tensor._entry, tensor._index) for tensor, value in new]


# --- The backward step ------------------------------------------------------------------------------------------------


def save_for_backward(body: Body) -> Body:
    """The same body, with the saved values for its backward step as additional results."""
    try:
        with recording_on(None):
            reverse = linearise(body, [out.dtype.is_float for out in body.outs])
    except Exception:
        # Do not raise here, because the gradient may never be taken; if it is, the backward pass raises the error
        # again. Save the states, from which any backward step can be computed.
        return body.saving_states()
    return choose_saved(replace(body, reverse=reverse))


def linearise(body: Body, has_dout: Sequence[bool]) -> Reverse:
    """Trace the backward step of a body that was traced under a tape. `has_dout` is True for each output that receives
    a gradient. States always do, because their gradient flows from step to step. The backward step rematerialises
    forward Values from the saved values or, if there are none, from the states.
    """
    seeded = [n for n in range(len(body.after), len(body.outs)) if has_dout[n]]
    as_saved_for = body.reverse is not None and not body.sums and seeded == body.reverse.seeded
    if as_saved_for and RECORDING.tape is None:
        return _read_saved(body, body.reverse)
    trace, tape = body.trace.fork(), body.trace.tape
    assert tape is not None  # the caller checks that the body was traced under a tape
    float_states = [n for n, x in enumerate(body.carry) if x.dtype.is_float]
    with (
        _refuse_effects(body, trace),
        settings(trace=trace),
        recording_on(tape if RECORDING.tape is not None else None),
    ):
        specs = {n: (body.outs[n].shape, body.outs[n]._data.dtype) for n in (*float_states, *seeded)}
        seeds = {n: watch_input(trace.new_input(*spec)) for n, spec in specs.items()}
        inputs = [*body.carry, *body.xs, *body.consts]
        notes: list[Note] = []
        with settings(notes=notes):
            own = [*body.carry, *(x for x in body.xs if x._data not in [y._data for y in body.residuals])]
            outs = [body.outs[n] for n in seeds]
            grads = pullback(tape.live(), outs, list(seeds.values()), inputs, once=True, own=own)
        first, last = len(body.carry), len(body.carry) + len(body.xs)
        after = [or_zeros(grads[n], specs[n]) for n in float_states]
        ys = [grad for grad in grads[first:last] if grad is not None]
        noted = NotedResults(notes, ys)
        ys += noted.extra
        sums = [grad for grad in grads[last:] if grad is not None]
        results = len(body.after) + len(body.ys)
        captured, consts = _captures(trace, [*after, *ys, *sums], len(body.trace.captures))
        reversed_body = Body(
            trace,
            carry=[seeds[n] for n in float_states],
            after=after,
            xs=[seeds[n] for n in seeded if n < results],
            ys=ys,
            consts=[*body.consts, *(seeds[n] for n in seeded if n >= results), *consts],
            backwards=not body.backwards,
            sums=sums,
            captured=captured,
        )
    if TRACING.trace is not None:
        TRACING.trace.cells.update(trace.cells)
    has_gradient = [grad is not None for grad in grads]
    return _read_saved(body, Reverse(reversed_body, float_states, seeded, has_gradient, noted))


@contextmanager
def _refuse_effects(body: Body, trace: BodyTrace) -> Iterator[None]:
    """Context manager: refuse writes of a bprop to Parameters and Python values: they would happen once only."""
    who = f"the gradient of {body.trace.who}"
    with state_read_by(body.trace.cells, who, "each step") as state:
        yield
        for parameter in trace.written:  # the states of a backward step are gradients, never Parameters
            raise GradientError(
                f"{body.trace.who}: a bprop that a step calls writes Parameter {parameter.name!r} (a random draw "
                f"writes 'random_state'), but the backward pass of a loop cannot write Parameters. Write it in "
                f"construct, and return the values that the bprop needs as an additional output; or return the new "
                f"value as the gradient of an internal Parameter."
            )
        state.refuse_leaks(trace, who)
        for change in state.changes().values():
            raise _make_change_error(who, change.words)


def lacks_states(body: Body, reverse: Reverse) -> bool:
    """True if a backward step, or a gradient of higher order, reads states that were not saved. For example, a
    bprop may call a Cell with its own bprop. This inner bprop runs only for a second-order gradient, and it may read a
    state.
    """
    own = reverse.body
    program, states = canonical_step(own), [x._data for x in body.carry]
    if not find_used_values(program).difference(program.inputs).isdisjoint(states):
        return True
    needed = find_needed_inputs(own.trace, own.outs, body.carry, [*own.xs, *own.consts])
    return not needed.isdisjoint(states)


def _read_saved(body: Body, reverse: Reverse) -> Reverse:
    """Copy a backward step with other input sequences: those of the forward step, the saved values (or all states), and
    the gradients of outputs, in this order.
    """
    own = reverse.body
    douts = own.xs[len(own.xs) - sum(n < len(body.after) + len(body.ys) for n in reverse.seeded) :]
    stored = body.carry if body.saved is None else body.saved
    residuals = [*body.residuals, *stored]
    return replace(reverse, body=replace(own, xs=[*body.xs, *stored, *douts], residuals=residuals))


# --- Gradients of higher orders ---------------------------------------------------------------------------------------


def find_needed_inputs(
    trace: BodyTrace, outs: Iterable[Tensor], among: Sequence[Tensor], given: Sequence[Tensor] = ()
) -> set[Value]:
    """The inputs, from `among`, that gradients of `outs` need; empty unless an outer tape records.

    The `trace` of a step or of its backward step computes `outs`. Gradients stop at the `given` Tensors.
    """
    if RECORDING.tape is None:
        return set()
    ends = {x._entry for x in given if x._entry is not None}
    entries = [entry for entry in ancestors((out._entry for out in outs), ends) - ends if entry is not None]
    needed = {x._data for x in among if x._entry in entries}
    # Integers, and Parameters that the step writes, are not on a tape, but bprops may read them.
    operands = [x._data for entry in entries for x in entry.inputs if isinstance(x, Tensor)]
    if any(not isinstance(entry.op, (Primitive, Composite, NoneType)) for entry in entries):  # a user's bprop
        operands += [value for parameter, value in trace.carried.items() if parameter.dtype.is_float]
        # The bprop is called again, and may read any Value that it has captured from outside of the loop.
        operands += [value for _, value in trace.captures.values()]
    if any(isinstance(entry.op, LoopOperation) for entry in entries):  # an inner loop may read untaped inputs
        operands += [x._data for x in among if x._entry is None]
    inside = [x for x in operands if isinstance(x, Value) and x.trace in trace.lineage]
    known = {x._data for x in given}
    looked_at = find_used_values(canonical_program(trace, inside, known))
    return (needed | looked_at.intersection(x._data for x in among)) - known
