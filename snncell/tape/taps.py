"""Watching: what somebody wants to see of a computation, brought out of it wherever it is carried out.

Whoever watches (`STATE.watch`) sees each call of a Cell, and notes Tensors. What is noted while a function is traced
has no elements yet: it becomes a further result of what the trace is made to, and is noted again, outside, when that
runs. So a loop over time stays one kernel, a jitted step one Program, and nothing else is computed than without.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from snncell.tape.state import STATE, settings
from snncell.tape.tape import Entry
from snncell.tape.tensor import Tensor, in_trace, wrap


class Event:
    """A call of a layer, which notes are of: also of its gradient, which comes later.

    What is traced is an event once; each run of it is another one, that `NotedResults.pass_on` makes of it.

    Args:
        subject: what was called.
    """

    def __init__(self, subject: Any) -> None:
        self.subject = subject
        self.record: Any = None  # of whoever watches


class Label(NamedTuple):
    """The subject of a note.

    Attributes:
        kind: the quantity, such as "spikes".
        name: of the layer.
        wishes: what is wanted of it, by whoever watched when it was first noted.
        event: the call that it is of.
        steps: of each loop over time that it came out of the number of steps, outermost first: so many of its first
            axes are time.
        chosen: whether what is not wanted of it has been left out.
    """

    kind: str
    name: str
    wishes: Hashable = None
    event: Event | None = None
    steps: tuple[int, ...] = ()
    chosen: bool = False


Note = tuple[Label, Tensor | None]
Events = dict[Event, Event]  # of what was traced, and of one run of that


class Watch(Protocol):
    """Who watches."""

    wishes: Hashable  # what is wanted of each quantity

    @property
    def key(self) -> Hashable:
        """The wishes and the names that things have here: traces are made anew for another one."""

    def around(self, cell: Any, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a Cell: `run(args, kwargs)`."""

    def chosen(self, label: Label, x: Tensor) -> Tensor:
        """The wanted part of a Tensor whose first axis is time."""

    def take(self, label: Label, x: Tensor | None) -> None:
        """Keep what has been noted."""


def note(label: Label, x: Tensor | None = None) -> None:
    """Note a Tensor, without its place on the tape, or that something happened."""
    watch, notes = STATE.watch, STATE.notes
    if x is not None:
        x = wrap(x._data if type(x) is Tensor else in_trace(x))
        # Nobody else chooses: what is traced is kept, also if the gradient of it is taken while another one watches.
        if watch is not None and label.steps and not label.chosen and label.wishes == watch.wishes:
            label, x = label._replace(chosen=True), watch.chosen(label, x)
    if notes is not None:
        notes.append((label, x))
    elif watch is not None:
        watch.take(label, x)


def noting(notes: list[Note]) -> AbstractContextManager[Any]:
    """Collect what is noted in the body, where it is traced."""
    return settings(notes=notes)


class NotedResults:
    """Notes of a traced function as further results of it.

    Args:
        notes: what was noted.
        results: what it gives in any case; one of them that is noted too is not given twice.
    """

    def __init__(self, notes: Sequence[Note], results: Sequence[Tensor] = ()) -> None:
        self.places: list[tuple[Label, int | None]] = []
        self.extra: list[Tensor] = []
        known = {id(x._data): n for n, x in enumerate(results)}
        for label, x in notes:
            if x is not None and id(x._data) not in known:
                known[id(x._data)] = len(results) + len(self.extra)
                self.extra.append(x)
            self.places.append((label, None if x is None else known[id(x._data)]))

    def pass_on(self, results: Sequence[Tensor], events: Events, steps: tuple[int, ...] = ()) -> Sequence[Tensor]:
        """Note again what came out; the results that there are in any case.

        Args:
            results: all that came out.
            events: those of this run: of a forward, which adds them, and of its reverse, which notes more of them.
            steps: of a loop over time that it came out of.
        """
        for label, place in self.places:
            event = label.event
            if event is not None and label.kind == "visit":
                events[event] = Event(event.subject)
            event = event if event is None else events.get(event, event)
            label = label._replace(event=event, steps=steps + label.steps)
            note(label, None if place is None else results[place])
        return results[: len(results) - len(self.extra)]


class _Tap:
    """The reverse of a place where a gradient is noted as it passes by."""

    name = "tap"

    def __init__(self, label: Label) -> None:
        self.label = label

    def pull(self, entry: Entry, douts: list[Tensor | None]) -> Sequence[Any]:
        """Note the gradient, and give it on as it is."""
        if douts[0] is not None:
            note(self.label, douts[0])
        return douts


def tapped(x: Any, label: Label) -> Any:
    """`x` in a new place on the tape, which notes its gradient when it is taken. It is no step of a Program."""
    if not isinstance(x, Tensor) or x._entry is None or STATE.tape is None:
        return x
    if STATE.trace is not None:
        STATE.trace.lift(x)  # an input of what is traced, so that the gradient finds its way out
    data = in_trace(x)
    entry = Entry(_Tap(label), None, [x._entry], [x._index], (), None, ((data.shape, data.dtype),))
    STATE.tape.add(entry)
    return wrap(data, entry)


def beyond_taps(entry: Entry, index: int) -> tuple[Entry, int]:
    """The place on the tape that a Value came out of, from one that it has behind taps."""
    while isinstance(entry.op, _Tap):
        (parent,), (index,) = entry.parents, entry.indices
        assert parent is not None  # only what is on the tape is tapped
        entry = parent
    return entry, index
