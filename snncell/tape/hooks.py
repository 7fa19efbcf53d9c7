"""Taps: Tensors that monitors record, brought out of compiled functions and loops as extra results.

A monitor (`CHECKING.watch`) sees each call of a Cell, and notes Tensors. A Tensor that is noted while a function is
traced has no elements yet. It becomes an extra result of the Program or loop, and is noted again outside when that
runs. So a loop over time stays one kernel and a jitted step one Program, and they compute nothing else than without.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from typing import Annotated, Any, NamedTuple

from snncell.base.arguments.kinds import Own
from snncell.base.arguments.shown import came
from snncell.errors import GradientError, TraceError
from snncell.tape.backward import with_zeros
from snncell.tape.primitive import custom
from snncell.tape.state import CHECKING, RECORDING, TRACING, Entry, Hook, Hooks, add_entry, settings
from snncell.tape.tensor import Tensor, in_trace, wrap


class Event:
    """A call of a layer, `subject`, to which notes of its forward pass and of its gradient belong.

    A traced call is one event; for each run of it `NotedResults.pass_on` makes another.
    """

    def __init__(self, subject: Any) -> None:
        self.subject = subject
        self.record: Any = None  # the monitor's


class Label(NamedTuple):
    """The subject of a note.

    Attributes:
        kind: the quantity, such as "spikes".
        name: the layer.
        wishes: the monitor's selection of it when it was first noted.
        event: the call.
        steps: the number of steps of each loop over time that it came out of, outermost first; these are its first
            axes.
        chosen: whether it has been reduced to the selection.
    """

    kind: str
    name: str
    wishes: Hashable = None
    event: Event | None = None
    steps: tuple[int, ...] = ()
    chosen: bool = False


Note = tuple[Label, Tensor | None]
Events = dict[Event, Event]  # of what was traced, and of one run of that


def note(label: Label, x: Tensor | None = None) -> None:
    """Note a Tensor, without its place on the tape, or that something happened."""
    watch, notes = CHECKING.watch, TRACING.notes
    if x is not None:
        x = wrap(x._data if type(x) is Tensor else in_trace(x))
        # Only the monitor that it was noted for selects, because a trace outlives a monitor with the selection in it,
        # and a gradient may be taken while another one watches.
        if watch is not None and label.steps and not label.chosen and label.wishes == watch.wishes:
            label, x = label._replace(chosen=True), watch.chosen(label, x)
    if notes is not None:
        notes.append((label, x))
    elif watch is not None:
        watch.take(label, x)


def noting(notes: list[Note]) -> AbstractContextManager[Any]:
    """Collect the notes taken in the body, where it is traced."""
    return settings(notes=notes)


class NotedResults:
    """The notes of a traced function as extra results of it; its own results are not given twice."""

    def __init__(self, notes: Sequence[Note], results: Sequence[Tensor] = ()) -> None:
        self.positions: list[tuple[Label, int | None]] = []  # each label with the number of its result, if it has one
        self.extra: list[Tensor] = []
        known = {id(x._data): n for n, x in enumerate(results)}
        for label, x in notes:
            if x is not None and id(x._data) not in known:
                known[id(x._data)] = len(results) + len(self.extra)
                self.extra.append(x)
            self.positions.append((label, None if x is None else known[id(x._data)]))

    def pass_on(self, results: Sequence[Tensor], events: Events, steps: tuple[int, ...] = ()) -> Sequence[Tensor]:
        """Note the extra results of a run, and return the function's own.

        Args:
            results: all results.
            events: of this run: the forward pass adds them, and the backward pass notes gradients of them.
            steps: the number of steps of a loop over time.
        """
        for label, position in self.positions:
            event = label.event
            if event is not None and label.kind == "visit":
                events[event] = Event(event.subject)
            event = event if event is None else events.get(event, event)
            label = label._replace(event=event, steps=steps + label.steps)
            note(label, None if position is None else results[position])
        return results[: len(results) - len(self.extra)]


class _Tap:
    """The reverse of the identity, which notes the gradient that passes."""

    name = "tap"

    def __init__(self, label: Label) -> None:
        self.label = label

    def pull(self, entry: Entry, douts: list[Tensor | None]) -> Sequence[Any]:
        """Note the gradient, and pass it on."""
        if douts[0] is not None:
            note(self.label, douts[0])
        return douts


def tap(x: Any, label: Label) -> Any:
    """`x` with a new entry on the tape that notes its gradient; in a Program it is no step."""
    if not isinstance(x, Tensor) or x._entry is None or RECORDING.tape is None:
        return x
    if TRACING.trace is not None:
        TRACING.trace.lift(x)  # makes a Tensor from outside an input of the trace: its gradient has to get out
    data = in_trace(x)
    entry = Entry(_Tap(label), None, [x._entry], [x._index], (), None, ((data.shape, data.dtype),))
    add_entry(RECORDING.tape, entry)
    return wrap(data, entry)


def beyond_taps(entry: Entry, index: int) -> tuple[Entry, int]:
    """The entry and index that a Value came out of, from those that taps have put behind it."""
    while isinstance(entry.op, _Tap):
        (parent,), (index,) = entry.parents, entry.indices
        assert parent is not None  # only what is on the tape is tapped
        entry = parent
    return entry, index


_numbers = itertools.count()


class TensorHookHandle:
    """A registered hook; `remove()` removes it."""

    def __init__(self, hooks: Hooks, index: int, hook: Hook) -> None:
        self._hooks, self._number = hooks, next(_numbers)
        hooks[self._number] = (index, hook)

    def remove(self) -> None:
        """Take the hook off."""
        self._hooks.pop(self._number, None)


def register_hook(x: Tensor, hook: Callable[[Tensor], Any]) -> TensorHookHandle:
    """Call `hook(gradient)` when the gradient of this Tensor is known; its result, if not None, replaces the gradient.

    The gradient is the sum over all uses of the Tensor. In a compiled function, or a loop over time, the hook is called
    while that is traced, and its operations become part of the Program. A hook on an argument of a compiled function is
    called outside of it instead, with the arrays of each gradient, because other uses of the argument have a part in
    it. A Tensor outside of a gradient forgets its hooks; a Parameter keeps them.

    Args:
        x: a Tensor of floats.
        hook: a function of the gradient, a Tensor of the shape of x, that returns another one, or None.

    Raises:
        GradientError: for a Tensor of integers or booleans; later, for a hook that returns something else.

    Example:
        >>> def double(x):
        ...     y = x * 3.0
        ...     y.register_hook(lambda gradient: gradient * 2.0)
        ...     return y * y
        >>> snncell.grad(double)(Tensor(1.0))
        Tensor(shape=[], dtype=Float32, value= 36)
    """
    if not x.dtype.is_float:
        raise GradientError(f"register_hook: a Tensor of dtype {x.dtype} has no gradient.")
    return TensorHookHandle(x._hooks_on(), x._index, hook)


def call_outside(hook: Hook) -> Hook:
    """A hook that a compiled function puts on its own argument, and that is called with the arrays of each run."""

    def call(gradient: Tensor) -> Any:
        try:
            return hook(gradient)
        except TraceError as error:
            raise TraceError(
                "A hook on an argument of a jitted function is called outside of it, because other uses of the "
                "argument have a part in its gradient; it cannot use Tensors from inside of the function. Put it on a "
                f"copy, (x * 1.0).register_hook(hook), which has the gradient of the uses inside alone. {error}"
            ) from None

    return call


def numbers(entry: Any) -> Sequence[int]:
    """The numbers of the hooks on an entry: other numbers need another trace."""
    return () if entry is None or not entry.hooks else tuple(entry.hooks)


class HookBackward:
    """The identity, whose backward pass calls a function of the gradients. In a jitted function it is traced.

    Args:
        hook_fn: a function of the tuple of gradients, one for each input. Its result replaces them: a tuple, or a
            Tensor where there is one; with None they stay as they are.
        cell_id: a name for errors.

    Raises:
        GradientError: if `hook_fn` is no function, or returns something else.

    Example:
        >>> double = ops.HookBackward(lambda gradients: gradients[0] * 2.0)
        >>> ops.grad(lambda x: double(x * x))(Tensor(3.0))
        Tensor(shape=[], dtype=Float32, value= 12)
    """

    def __init__(self, hook_fn: Annotated[Callable[[Any], Any], Own()], cell_id: str = "") -> None:
        if not callable(hook_fn) or isinstance(hook_fn, type):
            raise GradientError(f"HookBackward: hook_fn is a function of the gradients, not {came(hook_fn)}.")
        self.hook_fn, self.name = hook_fn, f"HookBackward {cell_id}".strip()

    def __call__(self, *inputs: Tensor) -> Any:
        for number, x in enumerate(inputs):
            if not isinstance(x, Tensor):
                raise GradientError(f"{self.name}: input {number} is {came(x)}; it takes Tensors.")
        if not inputs:
            raise GradientError(f"{self.name}: takes Tensors, and there are none.")
        return custom(self, lambda: inputs[0] if len(inputs) == 1 else tuple(inputs), inputs)

    def pull(self, entry: Entry, douts: list[Tensor | None]) -> Sequence[Any]:
        """The gradients that the function gives, or was given."""
        grads = with_zeros(entry, douts)
        answer = self.hook_fn(grads)
        if answer is None:
            return grads
        changed = answer if isinstance(answer, (tuple, list)) else (answer,)
        if len(changed) != len(grads) or not all(isinstance(grad, Tensor) for grad in changed):
            words = f"{len(changed)} of them" if isinstance(answer, (tuple, list)) else came(answer)
            raise GradientError(
                f"{self.name}: hook_fn returns None, or a tuple with a gradient, a Tensor, for each of {len(grads)} "
                f"input(s), not {words}."
            )
        return tuple(changed)
