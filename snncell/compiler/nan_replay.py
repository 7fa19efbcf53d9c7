"""Replay of a loop over time whose results are not finite, step by step, to find the step where that starts.

`set_context(check_finite=True)` checks the results of a loop, which is one kernel. So the function of one time step is
called again for each step as if it had never been traced: the results of every operation in it are checked, and an
error gets the number of the step. A fault in the backward pass is found in the same way: the steps once more forward,
then one after the other backwards, each on a tape of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, NamedTuple

from snncell.base.signals import Restoring, undoing
from snncell.errors import NotFiniteError
from snncell.tape.backward import pullback, watch_input, zeros_of
from snncell.tape.finite import Fault, SourceLine, Spot, at_home, is_paused, pause_watch, spot_in
from snncell.tape.parameter import Parameter
from snncell.tape.state import EFFECTS_LOCK, Tape, record_on, recording_on, settings
from snncell.tape.tensor import Tensor, beside, wrap


class ReplayedSteps(NamedTuple):
    """The steps of a loop over time."""

    f: Callable[[list[Tensor], list[Tensor]], tuple[list[Tensor], list[Tensor]]]  # one step
    written: list[Parameter]  # those that a step writes: they are further states
    backwards: bool  # whether the steps run from the last to the first
    who: str  # the loop's name in errors
    names: Sequence[str]  # of the states, as far as they have any
    smooth: bool  # whether spikes were smooth
    place: SourceLine  # in the user's code, where the loop was called

    def turns(self, count: int) -> list[int]:
        """The numbers of the time steps, in the order in which they run."""
        return list(range(count))[:: -1 if self.backwards else 1]

    def state(self, number: int) -> str:
        """The name of a state."""
        return f"state {self.names[number] if number < len(self.names) else number}"

    def sequence(self, number: int, count: int) -> str:
        """The name of one of `count` sequences."""
        return "its input" if count == 1 else f"its input {number}"

    def result(self, number: int, states: int) -> str:
        """The name of a result, the first of which are the states."""
        own = states - len(self.written)
        if number >= states:
            return "its output"
        return self.state(number) if number < own else f"Parameter {self.written[number - own].name!r}"

    def input(self, number: int, states: int, sequences: int, captured: Sequence[Tensor] = ()) -> str:
        """The name of an input: a state, a sequence, or a captured Tensor."""
        if number < states:
            return self.result(number, states)
        if number < states + sequences:
            return self.sequence(number - states, sequences)
        fixed = captured[number - states - sequences]
        return f"Parameter {fixed.name!r}" if isinstance(fixed, Parameter) else "what is the same at every step"


def join_names(names: Sequence[str]) -> str:
    """Names in a sentence, each once."""
    names = list(dict.fromkeys(names))
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


_ARRIVING = "the gradient of its output"


def look_at_results(
    loop: ReplayedSteps, states: Sequence[Tensor], xs: Sequence[Tensor], results: Sequence[Tensor]
) -> None:
    """Raise a NotFiniteError if results of a loop are not finite, and name the step where that starts.

    The results are the states after the last step, Parameters that the steps write last, and the collected results.
    """
    faults = _faults(results, (*states, *xs))
    if not faults:
        return
    _forward(loop, states, xs)
    number, spot = faults[0]
    if spot.kind == "NaN":  # inf that none of the steps has made came in from outside, or is meant
        raise _fault_without_place(loop, "", loop.result(number, len(states)), spot, number >= len(states)).error()


def look_at_gradients(
    loop: ReplayedSteps,
    inputs: Sequence[Tensor],
    states: int,
    sequences: int,
    captured: Sequence[Tensor],
    douts: Sequence[Any],
    grads: Sequence[Any],
) -> None:
    """Raise a NotFiniteError if the gradients of a loop's inputs are not finite, and name the step where that starts.

    Args:
        inputs: so many states before the first step, so many sequences, and the constants.
        captured: the last inputs, as the step found them: Parameters have names.
        douts: the gradients, or None, of the last states and of the collected results.
    """
    faults = _faults(grads, (*inputs, *douts))
    if not faults:
        return
    xs, fixed = inputs[states : states + sequences], inputs[states + sequences :]
    with pause_watch():  # inf on the way that reaches no result may be meant, or harmless
        before = _forward(loop, inputs[:states], xs)
    try:
        _backward(loop, before, xs, fixed, douts)
    except NotFiniteError as error:
        if getattr(error.fault, "source", "") not in ("", _ARRIVING):
            _forward(loop, inputs[:states], xs)  # an operand of the backward pass is NaN: the forward has made it
        raise
    number, spot = faults[0]
    over_time = states <= number < states + sequences
    name = loop.input(number, states, sequences, captured)
    raise _fault_without_place(loop, "backward of ", f"the gradient of {name}", spot, over_time).error()


@contextmanager
def in_step(who: str, turn: int) -> Iterator[None]:
    """Add the step of a loop to errors of operations in the body."""
    try:
        with settings(step=turn):
            yield
    except NotFiniteError as error:
        fault = error.fault
        if not isinstance(fault, Fault):
            raise
        raise fault.within(f"{who}, time step {turn}: ", step=turn).error() from None


def _faults(results: Sequence[Any], operands: Sequence[Any]) -> list[tuple[int, Spot]]:
    """The results with NaN; if there are none, and all operands were finite, those with inf."""
    if is_paused():
        return []
    spots = [(n, spot) for n, x in enumerate(results) if x is not None and (spot := spot_in(x)) is not None]
    nans = [(n, spot) for n, spot in spots if spot.kind == "NaN"]
    if nans or not spots or any(spot_in(x) is not None for x in operands if x is not None):
        return nans
    return spots


def _fault_without_place(loop: ReplayedSteps, direction: str, what: str, spot: Spot, over_time: bool) -> Fault:
    """The fault for steps that give no NaN when they are replayed: they round otherwise, or a sum over time is inf."""
    step = spot.entry[0] if over_time and spot.entry else None
    head = f"{direction}{loop.who}" + ("" if step is None else f", time step {step}")
    spot = spot if step is None else spot._replace(entry=spot.entry[1:], shape=spot.shape[1:])
    cause = "but no operation does in a step by itself: a sum over time is too large, or rounding decides"
    return Fault(what, spot, cause, loop.place, loop=f"{head}: ", step=step)


# --- forward ----------------------------------------------------------------------------------------------------------


def _restore(loop: ReplayedSteps) -> AbstractContextManager[Any]:
    """Put back the present values of the Parameters that a step writes, after the body."""
    return Restoring(dict, undoing([p.write_of(p._data) for p in loop.written]))


def _forward(loop: ReplayedSteps, states: Sequence[Tensor], xs: Sequence[Tensor]) -> list[list[Any]]:
    """The states before each step, in the order of the steps, each operation looked at."""
    arrays = [x._data for x in states]
    before = []
    eager = {"trace": None, "tape": None, "smooth": loop.smooth}
    with EFFECTS_LOCK, beside(*states, *xs), settings(**eager), _restore(loop), at_home(loop.place, sys._getframe()):
        for turn in loop.turns(xs[0].shape[0]):
            before.append(arrays)
            carry, slices = _inputs_of_turn(loop, arrays, xs, turn)
            try:
                after = loop.f(carry, slices)[0]
            except NotFiniteError as error:
                raise _in_step(loop, error, arrays, xs, turn) from None
            arrays = [x._data for x in (*after, *loop.written)]
    return before


def _inputs_of_turn(
    loop: ReplayedSteps, arrays: Sequence[Any], xs: Sequence[Tensor], turn: int
) -> tuple[list[Tensor], list[Tensor]]:
    """The inputs of a step; the Parameters that it writes have the values that they had before it."""
    own = len(arrays) - len(loop.written)
    for parameter, array in zip(loop.written, arrays[own:], strict=True):
        parameter._data = array
    return [wrap(array) for array in arrays[:own]], [wrap(x._data[turn, ...]) for x in xs]


def _in_step(
    loop: ReplayedSteps, error: NotFiniteError, arrays: list[Any], xs: Sequence[Tensor], turn: int
) -> NotFiniteError:
    """The error of an operation in a step, with the step, the origin of its operand, and the results it reaches."""
    fault = error.fault
    if not isinstance(fault, Fault):
        return error
    first = turn == loop.turns(xs[0].shape[0])[0]
    sources = [(f"its {loop.state(n)} before the first step", x) for n, x in enumerate(arrays) if first]
    sources += [(loop.sequence(n, len(xs)), x._data[turn, ...]) for n, x in enumerate(xs)]
    names = [name for name, array in sources if _same(array, fault.operand)]
    with pause_watch():
        after, ys = loop.f(*_inputs_of_turn(loop, arrays, xs, turn))
    results = [*after, *(wrap(p._data) for p in loop.written), *ys]
    wrong = [loop.result(n, len(arrays)) for n, x in enumerate(results) if spot_in(x) is not None]
    return _located(fault, loop.who, turn, (names or [fault.source])[0], "", wrong)


def _located(fault: Fault, who: str, turn: int, source: str, what: str, reached: Sequence[str]) -> NotFiniteError:
    """The error of a fault in a step, with its source and the names that it reaches."""
    words = f" It reaches {what}{join_names(reached)} of that step." if reached else ""
    return fault.within(f"{who}, time step {turn}: ", step=turn, source=source, reached=words).error()


def _same(array: Any, operand: Tensor | None) -> bool:
    """True if they are the same elements, which views of one array are."""
    if operand is None or array.shape != operand._data.shape:
        return False
    other = operand._data
    if hasattr(array, "__array_interface__") and hasattr(other, "__array_interface__"):
        return bool(array.__array_interface__["data"] == other.__array_interface__["data"])
    return True  # on the GPU, where equal shapes have to do


# --- backward -------------------------------------------------------------------------------------------------------


def _backward(
    loop: ReplayedSteps, before: list[list[Any]], xs: Sequence[Tensor], fixed: Sequence[Tensor], douts: Sequence[Any]
) -> None:
    """Run the steps of the backward pass, each operation looked at."""
    own = len(before[0]) - len(loop.written)
    of_states = [_or_zeros(dout, array) for dout, array in zip(douts[:own], before[0][:own], strict=True)]
    seeds = douts[len(before[0]) :]
    others = {x._entry for x in fixed if x._entry is not None}
    eager = {"trace": None, "tape": None, "smooth": loop.smooth}
    with EFFECTS_LOCK, beside(*xs), settings(**eager), _restore(loop), at_home(loop.place, sys._getframe()):
        for turn, arrays in zip(loop.turns(xs[0].shape[0])[::-1], before[::-1], strict=True):
            arriving = [*of_states, *(None if x is None else wrap(x._data[turn, ...]) for x in seeds)]
            tape = Tape()
            with recording_on(None), record_on(tape):
                inputs = [[watch_input(x) for x in part] for part in _inputs_of_turn(loop, arrays, xs, turn)]
                with pause_watch():
                    after, ys = loop.f(*inputs)
            outs = [*after, *ys][: len(arriving)]  # those after them are recorded for monitors, and have no gradient
            pull = partial(pullback, outs=outs, douts=arriving, inputs=[*inputs[0], *inputs[1]], beside=others)
            try:
                grads = pull(tape.live())
            except NotFiniteError as error:
                with pause_watch():  # once more, to tell which gradients it reaches
                    grads = pull(tape.live())
                raise _in_reverse(loop, error, grads, arriving, turn, own, len(xs)) from None
            of_states = [_or_zeros(grad, array) for grad, array in zip(grads[:own], arrays[:own], strict=True)]


def _or_zeros(grad: Tensor | None, array: Any) -> Tensor:
    """The gradient, or zeros, which the loop computes with too: zero times inf is NaN."""
    return zeros_of((array.shape, array.dtype)) if grad is None else grad


def _in_reverse(
    loop: ReplayedSteps,
    error: NotFiniteError,
    grads: Sequence[Any],
    arriving: Sequence[Any],
    turn: int,
    own: int,
    count: int,
) -> NotFiniteError:
    """The error of an operation in the reverse of a step, with the step, and whose gradient it reaches."""
    fault = error.fault
    if not isinstance(fault, Fault):
        return error
    arrives = any(x is not None and _same(x._data, fault.operand) for x in arriving[own:])
    source = _ARRIVING if arrives else fault.source
    wrong = [loop.input(n, own, count) for n, x in enumerate(grads) if x is not None and spot_in(x) is not None]
    return _located(fault, f"backward of {loop.who}", turn, source, "the gradient of ", wrong)
