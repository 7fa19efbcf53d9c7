"""Replay of a loop over time with NaN or inf in its results, to find the first step with a fault.

`set_context(check_finite=True)` checks the results of a loop, which runs as one kernel. If the check fails, the
function of one time step is called eagerly for each step, with checks of every operation. For a fault in the backward
pass, each step is called again on its own tape, from the last to the first, followed by the backward pass of this tape.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, NamedTuple

from snncell.base.arguments.kinds import join_words
from snncell.base.signals import Restoring, undoing
from snncell.errors import NotFiniteError
from snncell.tape.backward import or_zeros, pullback, watch_input
from snncell.tape.finite import Fault, SourceLine, Spot, find_nonfinite, is_paused, pause_watch, report_at
from snncell.tape.parameter import Parameter
from snncell.tape.state import EFFECTS_LOCK, Tape, record_on, recording_on, settings
from snncell.tape.tensor import Tensor, on_device_of, wrap


class ReplayedSteps(NamedTuple):
    """The steps of a loop over time."""

    f: Callable[[list[Tensor], list[Tensor]], tuple[list[Tensor], list[Tensor]]]  # one step
    written: list[Parameter]  # the Parameters that a step writes, which are additional states
    backwards: bool  # True if the steps run from the last to the first
    who: str  # the loop's name in errors
    names: Sequence[str]  # the names of the states that have one
    smooth: bool  # True if spikes were smooth
    place: SourceLine  # the user's line that called the loop

    def turns(self, count: int) -> list[int]:
        """The numbers of the time steps, in the order of execution."""
        return list(range(count))[:: -1 if self.backwards else 1]

    def state(self, number: int) -> str:
        """The name of a state."""
        return f"state {self.names[number] if number < len(self.names) else number}"

    def sequence(self, number: int, count: int) -> str:
        """The name of one of `count` sequences."""
        return "its input" if count == 1 else f"its input {number}"

    def result(self, number: int, states: int) -> str:
        """The name of a result; the states come first."""
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
        return f"Parameter {fixed.name!r}" if isinstance(fixed, Parameter) else "a constant of the loop"


_ARRIVING = "the gradient of its output"


def check_results(
    loop: ReplayedSteps, states: Sequence[Tensor], xs: Sequence[Tensor], results: Sequence[Tensor]
) -> None:
    """Raise NotFiniteError, naming the first faulty step, if states, written Parameters or results are not finite."""
    faults = _faults(results, (*states, *xs))
    if not faults:
        return
    _forward(loop, states, xs)
    number, spot = faults[0]
    if spot.kind == "NaN":  # if no step creates the inf, it came from outside or is intended
        raise _fault_without_place(loop, "", loop.result(number, len(states)), spot, number >= len(states)).error()


def check_gradients(
    loop: ReplayedSteps,
    inputs: Sequence[Tensor],
    states: int,
    sequences: int,
    captured: Sequence[Tensor],
    douts: Sequence[Any],
    grads: Sequence[Any],
) -> None:
    """Raise NotFiniteError, naming the first faulty step, if `grads` of a loop's inputs are not finite. `states` and
    `sequences` are the numbers of such inputs; constants follow. `captured` has the outer Tensors of the constants, so
    that errors can name Parameters. `douts` has a gradient or None for each last state and result.
    """
    faults = _faults(grads, (*inputs, *douts))
    if not faults:
        return
    xs, fixed = inputs[states : states + sequences], inputs[states + sequences :]
    with pause_watch():  # an intermediate inf that reaches no result may be intended or harmless
        before = _forward(loop, inputs[:states], xs)
    try:
        _backward(loop, before, xs, fixed, douts)
    except NotFiniteError as error:
        if getattr(error.fault, "source", "") not in ("", _ARRIVING):
            _forward(loop, inputs[:states], xs)  # an operand of the backward pass is NaN, so the forward created it
        raise
    number, spot = faults[0]
    over_time = states <= number < states + sequences
    name = loop.input(number, states, sequences, captured)
    raise _fault_without_place(loop, "backward of ", f"the gradient of {name}", spot, over_time).error()


@contextmanager
def in_step(who: str, turn: int) -> Iterator[None]:
    """Add the number of the time step to errors of operations in the body."""
    try:
        with settings(step=turn):
            yield
    except NotFiniteError as error:
        fault = error.fault
        if not isinstance(fault, Fault):
            raise
        raise fault.within(f"{who}, time step {turn}: ", step=turn).error() from None


def _faults(results: Sequence[Any], operands: Sequence[Any]) -> list[tuple[int, Spot]]:
    """The results with NaN; if there are none, and all operands are finite, the results with inf."""
    if is_paused():
        return []
    spots = [(n, spot) for n, x in enumerate(results) if x is not None and (spot := find_nonfinite(x)) is not None]
    nans = [(n, spot) for n, spot in spots if spot.kind == "NaN"]
    if nans or not spots or any(find_nonfinite(x) is not None for x in operands if x is not None):
        return nans
    return spots


def _fault_without_place(loop: ReplayedSteps, direction: str, what: str, spot: Spot, over_time: bool) -> Fault:
    """The fault for a loop with NaN or inf in a result, although no replayed step gives any."""
    step = spot.entry[0] if over_time and spot.entry else None
    head = f"{direction}{loop.who}" + ("" if step is None else f", time step {step}")
    spot = spot if step is None else spot._replace(entry=spot.entry[1:], shape=spot.shape[1:])
    cause = "but no operation of a single step does: a sum over time overflows, or the result depends on rounding"
    return Fault(what, spot, cause, loop.place, loop=f"{head}: ", step=step)


# --- Forward ----------------------------------------------------------------------------------------------------------


def _eager(loop: ReplayedSteps) -> AbstractContextManager[Any]:
    return settings(trace=None, tape=None, smooth=loop.smooth)


def _restore(loop: ReplayedSteps) -> AbstractContextManager[Any]:
    return Restoring(dict, undoing([p.write_of(p._data) for p in loop.written]))


def _forward(loop: ReplayedSteps, states: Sequence[Tensor], xs: Sequence[Tensor]) -> list[list[Any]]:
    """Run the steps with checks; return the states before each step, in the order of execution."""
    arrays = [x._data for x in states]
    before = []
    with EFFECTS_LOCK, on_device_of(*states, *xs), _eager(loop), _restore(loop), report_at(loop.place, sys._getframe()):
        for turn in loop.turns(xs[0].shape[0]):
            before.append(arrays)
            carry, slices = _inputs_of_step(loop, arrays, xs, turn)
            try:
                after = loop.f(carry, slices)[0]
            except NotFiniteError as error:
                raise _error_in_step(loop, error, arrays, xs, turn) from None
            arrays = [x._data for x in (*after, *loop.written)]
    return before


def _inputs_of_step(
    loop: ReplayedSteps, arrays: Sequence[Any], xs: Sequence[Tensor], turn: int
) -> tuple[list[Tensor], list[Tensor]]:
    """The inputs of a step. The Parameters that the step writes get their values before the step."""
    own = len(arrays) - len(loop.written)
    for parameter, array in zip(loop.written, arrays[own:], strict=True):
        parameter._data = array
    return [wrap(array) for array in arrays[:own]], [wrap(x._data[turn, ...]) for x in xs]


def _error_in_step(
    loop: ReplayedSteps, error: NotFiniteError, arrays: list[Any], xs: Sequence[Tensor], turn: int
) -> NotFiniteError:
    """The error of an operation in a step, with the step, the operand's source, and the results that it affects."""
    fault = error.fault
    if not isinstance(fault, Fault):
        return error
    first = turn == loop.turns(xs[0].shape[0])[0]
    sources = [(f"its {loop.state(n)} before the first step", x) for n, x in enumerate(arrays) if first]
    sources += [(loop.sequence(n, len(xs)), x._data[turn, ...]) for n, x in enumerate(xs)]
    names = [name for name, array in sources if _same_elements(array, fault.operand)]
    with pause_watch():
        after, ys = loop.f(*_inputs_of_step(loop, arrays, xs, turn))
    results = [*after, *(wrap(p._data) for p in loop.written), *ys]
    wrong = [loop.result(n, len(arrays)) for n, x in enumerate(results) if find_nonfinite(x) is not None]
    return _locate(fault, loop.who, turn, (names or [fault.source])[0], "", wrong)


def _locate(fault: Fault, who: str, turn: int, source: str, what: str, reached: Sequence[str]) -> NotFiniteError:
    """Return the error of a fault, with its step, its source, and the names of the affected results."""
    names = join_words(list(dict.fromkeys(reached)), "and") if reached else ""
    words = f" It reaches {what}{names} of that step." if reached else ""
    return fault.within(f"{who}, time step {turn}: ", step=turn, source=source, reached=words).error()


def _same_elements(array: Any, operand: Tensor | None) -> bool:
    """True if both are the same elements, as views of one array are."""
    if operand is None or array.shape != operand._data.shape:
        return False
    other = operand._data
    if hasattr(array, "__array_interface__") and hasattr(other, "__array_interface__"):
        return bool(array.__array_interface__["data"] == other.__array_interface__["data"])
    return True  # on the GPU, compare only the shapes


# --- Backward ---------------------------------------------------------------------------------------------------------


def _backward(
    loop: ReplayedSteps, before: list[list[Any]], xs: Sequence[Tensor], fixed: Sequence[Tensor], douts: Sequence[Any]
) -> None:
    own = len(before[0]) - len(loop.written)
    specs = [(array.shape, array.dtype) for array in before[0][:own]]
    # Use zeros for a missing gradient, as the loop does, because 0 times inf is NaN.
    of_states = list(map(or_zeros, douts[:own], specs))
    seeds = douts[len(before[0]) :]
    others = {x._entry for x in fixed if x._entry is not None}
    with EFFECTS_LOCK, on_device_of(*xs), _eager(loop), _restore(loop), report_at(loop.place, sys._getframe()):
        for turn, arrays in zip(loop.turns(xs[0].shape[0])[::-1], before[::-1], strict=True):
            arriving = [*of_states, *(None if x is None else wrap(x._data[turn, ...]) for x in seeds)]
            tape = Tape()
            with recording_on(None), record_on(tape):
                inputs = [[watch_input(x) for x in part] for part in _inputs_of_step(loop, arrays, xs, turn)]
                with pause_watch():
                    after, ys = loop.f(*inputs)
            outs = [*after, *ys][: len(arriving)]  # later results are records of monitors, without gradients
            pull = partial(pullback, outs=outs, douts=arriving, inputs=[*inputs[0], *inputs[1]], ends=others)
            try:
                grads = pull(tape.live())
            except NotFiniteError as error:
                with pause_watch():  # run again without checks, to find the affected gradients
                    grads = pull(tape.live())
                raise _error_in_backward_step(loop, error, grads, arriving, turn, own, len(xs)) from None
            of_states = list(map(or_zeros, grads[:own], specs))


def _error_in_backward_step(
    loop: ReplayedSteps,
    error: NotFiniteError,
    grads: Sequence[Any],
    arriving: Sequence[Any],
    turn: int,
    own: int,
    count: int,
) -> NotFiniteError:
    """The error of an operation in the backward pass of a step, with the step and the affected gradients."""
    fault = error.fault
    if not isinstance(fault, Fault):
        return error
    arrives = any(x is not None and _same_elements(x._data, fault.operand) for x in arriving[own:])
    source = _ARRIVING if arrives else fault.source
    wrong = [loop.input(n, own, count) for n, x in enumerate(grads) if x is not None and find_nonfinite(x) is not None]
    return _locate(fault, f"backward of {loop.who}", turn, source, "the gradient of ", wrong)
