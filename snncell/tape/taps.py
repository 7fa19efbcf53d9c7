"""Taps: Tensors that monitors record, brought out of compiled functions and loops as extra results.

A monitor (`CHECKING.watch`) sees each call of a Cell, and notes Tensors. A Tensor that is noted while a function is
traced has no elements yet. It becomes an extra result of the Program or loop, and is noted again outside when that
runs. So a loop over time stays one kernel and a jitted step one Program, and they compute nothing else than without.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from snncell.tape.state import CHECKING, RECORDING, TRACING, add_entry, settings
from snncell.tape.tape import Entry
from snncell.tape.tensor import Tensor, in_trace, wrap


class Event:
    """A call of a layer that notes belong to: those of its forward, and those of its gradient, which come later.

    A traced call is one event; for each run of it `NotedResults.pass_on` makes another.

    Args:
        subject: what was called.
    """

    def __init__(self, subject: Any) -> None:
        self.subject = subject
        self.record: Any = None  # the monitor's


class Label(NamedTuple):
    """The subject of a note.

    Attributes:
        kind: the quantity, such as "spikes".
        name: of the layer.
        wishes: the monitor's selection of it when it was first noted.
        event: the call that it is of.
        steps: the number of steps of each loop over time that it came out of, outermost first: so many of its first
            axes are time.
        chosen: whether it has been reduced to that selection.
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
        # Only the monitor that it was noted for selects: a trace, and with it the selection in it, outlives a monitor,
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
    """Notes of a traced function as extra results of it.

    Args:
        notes: the notes.
        results: the function's own results; one of them that is noted too is not given twice.
    """

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
            events: those of this run: its forward adds them, and its reverse notes gradients of them.
            steps: the number of steps, of a loop over time.
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
