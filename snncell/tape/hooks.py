"""Tensor hooks, and taps: Tensors that monitors record from compiled functions and loops as extra results.

A monitor (`CHECKING.watch`) sees each call of a Cell, and notes Tensors. While a function is traced, a noted Tensor has
no elements yet. It becomes an extra result of the Program or loop, and is noted again after each run. So a time loop
stays one kernel and a jitted step one Program, with unchanged results.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence
from typing import Annotated, Any, NamedTuple

from snncell.base.arguments.kinds import Own
from snncell.base.arguments.shown import came
from snncell.errors import GradientError, TraceError
from snncell.tape.backward import with_zeros
from snncell.tape.primitive import custom
from snncell.tape.state import CHECKING, RECORDING, TRACING, Entry, Hook, Hooks, add_entry
from snncell.tape.tensor import Tensor, in_trace, wrap


class Event:
    """A call of a layer, `subject`. A traced call is one event; `NotedResults.pass_on` makes one for each run."""

    def __init__(self, subject: Any) -> None:
        self.subject = subject
        self.record: Any = None  # data of the monitor


class Label(NamedTuple):
    """The subject of a note."""

    kind: str  # the quantity, such as "spikes"
    name: str  # the layer
    selection: Hashable = None  # the monitor's selection when the note was first taken
    event: Event | None = None  # the call
    steps: tuple[int, ...] = ()  # the steps of each time loop around the call, outermost first: the first axes
    chosen: bool = False  # whether it has been reduced to the selection


Note = tuple[Label, Tensor | None]
Events = dict[Event, Event]  # maps each traced event to the event of one run


def note(label: Label, x: Tensor | None = None) -> None:
    """Note a Tensor, without its tape entry, or only that something happened."""
    watch, notes = CHECKING.watch, TRACING.notes
    if x is not None:
        x = wrap(x._data if type(x) is Tensor else in_trace(x))
        # Only the monitor for which a note was taken may reduce it. Another monitor may be active by now, because a
        # trace may outlive its monitor, and a gradient may be computed later.
        if watch is not None and label.steps and not label.chosen and label.selection == watch.selection:
            label, x = label._replace(chosen=True), watch.chosen(label, x)
    if notes is not None:
        notes.append((label, x))
    elif watch is not None:
        watch.take(label, x)


class NotedResults:
    """The notes of a traced function as extra results, except Tensors that the function returns anyway."""

    def __init__(self, notes: Sequence[Note], results: Sequence[Tensor] = ()) -> None:
        self.positions: list[tuple[Label, int | None]] = []  # each label with the position of its result, if any
        self.extra: list[Tensor] = []
        known = {id(x._data): n for n, x in enumerate(results)}
        for label, x in notes:
            if x is not None and id(x._data) not in known:
                known[id(x._data)] = len(results) + len(self.extra)
                self.extra.append(x)
            self.positions.append((label, None if x is None else known[id(x._data)]))

    def pass_on(self, results: Sequence[Tensor], events: Events, steps: tuple[int, ...] = ()) -> Sequence[Tensor]:
        """Note the extra results of a run, which are the last of `results`; return the function's own results. The
        forward pass adds the events of this run to `events`, and the backward pass notes gradients for them. For a time
        loop, `steps` has the number of its steps.
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
    name = "tap"

    def __init__(self, label: Label) -> None:
        self.label = label

    def pull(self, entry: Entry, douts: list[Tensor | None]) -> Sequence[Any]:
        if douts[0] is not None:
            note(self.label, douts[0])
        return douts


def tap(x: Any, label: Label) -> Any:
    """`x` with a new tape entry that notes its gradient; it adds no instruction to a Program."""
    if not isinstance(x, Tensor) or x._entry is None or RECORDING.tape is None:
        return x
    if TRACING.trace is not None:
        TRACING.trace.lift(x)  # make an outside Tensor an input of the trace, so that its gradient is returned
    data = in_trace(x)
    entry = Entry(_Tap(label), None, [x._entry], [x._index], (), None, ((data.shape, data.dtype),))
    add_entry(RECORDING.tape, entry)
    return wrap(data, entry)


def skip_taps(entry: Entry, index: int) -> tuple[Entry, int]:
    """The entry and index that computed a Value, without the entries of taps."""
    while isinstance(entry.op, _Tap):
        (parent,), (index,) = entry.parents, entry.indices
        assert parent is not None  # `tap` leaves Tensors without an entry alone
        entry = parent
    return entry, index


_numbers = itertools.count()


class TensorHookHandle:
    """A registered hook; `remove()` unregisters it."""

    def __init__(self, hooks: Hooks, index: int, hook: Hook) -> None:
        self._hooks, self._number = hooks, next(_numbers)
        hooks[self._number] = (index, hook)

    def remove(self) -> None:
        """Unregister the hook; a second call does nothing."""
        self._hooks.pop(self._number, None)


def register_hook(x: Tensor, hook: Callable[[Tensor], Any]) -> TensorHookHandle:
    """Call `hook(gradient)` when the gradient of this Tensor is complete; a result other than None replaces it.

    You can use it, for example, to print or clip the gradient of one layer. The gradient is the sum over all uses of
    the Tensor. A Parameter keeps its hooks; any other Tensor without a gradient forgets them.

    In a compiled function or a time loop, the hook is called while tracing, and its operations become part of the
    Program. A hook on an argument of a compiled function is called outside of it, because other uses of the argument
    contribute to its gradient.

    Args:
        x: a Tensor of floats.
        hook: a function of the gradient, a Tensor with the shape of x, that returns a new gradient or None.
    Raises: GradientError for a Tensor of integers or bools; later, if the hook returns anything else.
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
    """Wrap a hook on an argument of a compiled function: its errors say that it runs outside of the function."""

    def call(gradient: Tensor) -> Any:
        try:
            return hook(gradient)
        except TraceError as error:
            raise TraceError(
                "A hook on an argument of a jitted function is called outside of it, because other uses of the "
                "argument contribute to its gradient. So it cannot use Tensors from inside the function. Put it on a "
                f"copy, (x * 1.0).register_hook(hook), whose gradient includes only the uses inside. {error}"
            ) from None

    return call


def numbers(entry: Any) -> Sequence[int]:
    """The numbers of the hooks on an entry. If they change, the function must be traced again."""
    return () if entry is None or not entry.hooks else tuple(entry.hooks)


class HookBackward:
    """The identity, with a function that sees and may replace the gradients. In a jitted function it is traced.

    Args:
        hook_fn: a function of a tuple with one gradient for each input. Its result replaces them: a tuple, or a Tensor
            for a single input; None keeps them.
        cell_id: a name that error messages contain.
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
            raise GradientError(f"{self.name}: takes at least one Tensor, but got none.")
        return custom(self, lambda: inputs[0] if len(inputs) == 1 else tuple(inputs), inputs)

    def pull(self, entry: Entry, douts: list[Tensor | None]) -> Sequence[Any]:
        """The gradients after `hook_fn`."""
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
