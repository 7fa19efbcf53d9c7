"""Watching: what somebody wants to see of a computation, brought out of it wherever it is carried out.

Whoever watches (`STATE.watch`) sees each call of a Cell, and notes Tensors. What is noted while a function is traced
has no elements yet: it becomes a further result of what the trace is made to, and is noted again, outside, when that
runs. So a loop over time stays one kernel, a jitted step one Program, and nothing else is computed than without.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from snncell.tape.state import STATE, settings
from snncell.tape.tape import Entry
from snncell.tape.tensor import Tensor, snapshot, wrap


class Label(NamedTuple):
    """What a note is about.

    Attributes:
        kind: the quantity, such as "spikes".
        name: of the layer.
        runs: how many loops over time it came out of: so many of its first axes are time.
        chosen: whether what is not wanted of it has been left out.
    """

    kind: str
    name: str
    runs: int = 0
    chosen: bool = False


Note = tuple[Label, Tensor | None]


class Watch(Protocol):
    """Who watches."""

    key: Hashable  # what is wanted: traces are made anew for another one

    def around(self, cell: Any, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a Cell: `run(args, kwargs)`."""

    def chosen(self, label: Label, x: Tensor) -> Tensor:
        """What is wanted of a Tensor whose first axis is time."""

    def take(self, label: Label, x: Tensor | None) -> None:
        """Keep what has been noted."""


def note(label: Label, x: Tensor | None = None) -> None:
    """Note a Tensor, without its place on the tape, or that something happened."""
    watch, notes = STATE.watch, STATE.notes
    if x is not None:
        x = wrap(x._data if type(x) is Tensor or STATE.trace is None else STATE.trace.lift(x))
        if watch is not None and label.runs and not label.chosen:
            label, x = label._replace(chosen=True), watch.chosen(label, x)
    if notes is not None:
        notes.append((label, x))
    elif watch is not None:
        watch.take(label, x)


@contextmanager
def noting() -> Iterator[list[Note]]:
    """Collect what is noted in the body, where it is traced."""
    notes: list[Note] = []
    with settings(notes=notes):
        yield notes


class Brought:
    """Notes of a traced function as further results of it.

    Args:
        notes: what was noted.
        results: what it gives in any case; one of them that is noted too is not given twice.
    """

    def __init__(self, notes: Sequence[Note], results: Sequence[Tensor] = ()) -> None:
        self.places: list[tuple[Label, int | None]] = []
        self.further: list[Tensor] = []
        known = {id(x._data): n for n, x in enumerate(results)}
        for label, x in notes:
            if x is not None and id(x._data) not in known:
                known[id(x._data)] = len(results) + len(self.further)
                self.further.append(x)
            self.places.append((label, None if x is None else known[id(x._data)]))

    def pass_on(self, results: Sequence[Tensor], runs: int = 0) -> Sequence[Tensor]:
        """Note again what came out, `runs` loops over time further out; the results that there are in any case."""
        for label, place in self.places:
            note(label._replace(runs=label.runs + runs), None if place is None else results[place])
        return results[: len(results) - len(self.further)]


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
    x = snapshot(x)
    entry = Entry(_Tap(label), None, [x._entry], [x._index], (), None, ((x.shape, x._data.dtype),))
    STATE.tape.add(entry)
    return wrap(x._data, entry)


def beyond_taps(entry: Entry, index: int) -> tuple[Entry, int]:
    """The place on the tape that a Value came out of, from one that it has behind taps."""
    while isinstance(entry.op, _Tap):
        (parent,), (index,) = entry.parents, entry.indices
        assert parent is not None  # only what is on the tape is tapped
        entry = parent
    return entry, index
