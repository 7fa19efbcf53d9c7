"""One time through the training data, which can be left after a step and gone on with from a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from snncell.data import Loader
from snncell.errors import ArgumentError, CheckpointError
from snncell.ops.seeds import go_on_from, own_key, present_key
from snncell.train.evaluation import Means, Measurements, cells_of, count_batches, statefuls
from snncell.train.processes import OneProcess
from snncell.train.state import is_count
from snncell.train.steps import TrainStep


class DataPass:
    """A pass over the data for training.

    A checkpoint within it holds what was measured, what `Stateful`s keep, and the place in the data: of a `Loader` its
    own; of other data how many batches were given, and the random numbers from which their order was drawn, so that
    they are gone through once more up to there.
    """

    def __init__(self, parts: tuple[Any, ...], data: Any, processes: OneProcess) -> None:
        self.parts, self.data, self.processes = parts, data, processes
        self.measurements = Measurements()
        self.key: Any = None  # of the random numbers at its beginning
        self.states: list[Any] = []  # of Statefuls, to begin with
        self.over = False  # whether all its batches had been trained on when a checkpoint was written
        self.first: int | None = None  # the batch that this process began with, once it has

    @property
    def batch(self) -> int:
        """The number of batches that have been trained on."""
        return len(self.measurements.counts)

    @property
    def given(self) -> int | None:
        """The number of batches that the data have given in this process; None if they stand where they are to go on.

        A `Loader` counts from where it was resumed.
        """
        return None if self.first is None or self.over else self.batch - self.first

    def run(
        self, step: TrainStep, prefetch: bool | None, begin: Callable[[Any], None], end: Callable[..., bool]
    ) -> bool:
        """Train on the batches that are left; whether it came to the end. `end` is given numbers, and may stop it."""
        for cell in cells_of(*self.parts):
            cell.training = True
        for stateful in statefuls(*self.parts):
            stateful.reset()
        key, skipped = own_key(), 0 if isinstance(self.data, Loader) else self.batch
        if self.key is None:
            self.key = [int(x) for x in present_key().asnumpy()]
        if skipped:
            go_on_from(np.array(self.key))
        source = () if self.over else self.data
        with count_batches(source, "fit: data", self.processes, prefetch) as batches:
            left = iter(batches)
            self.first = self.batch
            self._skip(left, skipped)
            if skipped:
                go_on_from(key)
            for stateful, kept in zip(statefuls(*self.parts), self.states, strict=False):
                stateful.put(kept)
            item = next(left, None)
            while item is not None:
                samples, batch = item
                begin(batch)
                numbers = step(batch)
                # Gradients that wait are either joined by the next batch, or it was the last one, and they make a step,
                # of which callbacks must be told. Between two steps nothing is read ahead: a checkpoint may be written.
                waiting = not step.updated
                item = next(left, None) if waiting else None
                if waiting and item is None:
                    step.finish()
                self.measurements.add(numbers, samples)
                if end(numbers):
                    return False
                item = item if waiting else next(left, None)
        return True

    def _skip(self, batches: Iterator[Any], count: int) -> None:
        """Go past batches that were trained on before."""
        for number in range(count):
            if next(batches, None) is None:
                raise CheckpointError(
                    f"fit: {count} batches of the epoch were trained on before, and the data give {number}. Resume "
                    f"with the data as they were."
                )

    def means(self) -> Means:
        """The means of what was measured."""
        return self.measurements.means("fit: data")

    # --- in a checkpoint ----------------------------------------------------------------------------------------------

    def notes(self) -> dict[str, Any]:
        """The notes that a checkpoint within it keeps, beside arrays."""
        kept = [stateful.kept() for stateful in statefuls(*self.parts)]
        inputs = [one and [list(one.shape), one.dtype] for one in kept]
        # A Loader whose pass is over stands at the next one; other data are gone through, and give no more.
        over = self.over or (self.given and isinstance(self.data, Loader) and not self.data.state(self.given)["batch"])
        numbers = self.measurements.names()
        return {"batch": self.batch, "over": bool(over), "key": self.key, "numbers": numbers, "inputs": inputs}

    def arrays(self) -> dict[str, Any]:
        """The arrays that it keeps."""
        found = self.measurements.arrays()
        for n, stateful in enumerate(statefuls(*self.parts)):
            kept = stateful.kept()
            found |= {f"state {n} {i}": x for i, x in enumerate(kept.states if kept else ())}
        return found

    def take(self, notes: Any, arrays: dict[str, Any], who: str) -> None:
        """Begin where a checkpoint was written.

        Raises:
            CheckpointError: for notes and arrays that this does not write.
        """
        arrays = dict(arrays)
        try:
            if not _are_notes(notes):
                raise ArgumentError(f"its place in the epoch is {str(notes)[:200]}")
            self.states = self._states(notes["inputs"], arrays)
            self.measurements.take(notes["numbers"], arrays, notes["batch"])
        except ArgumentError as error:
            raise CheckpointError(f"{who} is damaged: {error}") from None
        self.key, self.over = notes["key"], notes["over"]

    def _states(self, inputs: list[Any], arrays: dict[str, Any]) -> list[Any]:
        """The states of each `Stateful`, taken out of the arrays."""
        own = statefuls(*self.parts)
        if len(inputs) != len(own):
            raise ArgumentError(f"it has states of {len(inputs)} Statefuls, and there are {len(own)}")
        found: list[Any] = []
        for n, (stateful, given) in enumerate(zip(own, inputs, strict=True)):
            names = sorted(
                (name for name in arrays if name.startswith(f"state {n} ")), key=lambda name: (len(name), name)
            )
            states = [arrays.pop(name) for name in names]
            found.append(None if given is None else stateful.fitting(given, states))
        return found


def _are_notes(notes: Any) -> bool:
    """True if notes are of the form that `Pass.notes` gives them."""
    if not isinstance(notes, dict) or notes.keys() != {"batch", "over", "key", "numbers", "inputs"}:
        return False
    key, numbers = notes["key"], notes["numbers"]
    counts = isinstance(key, list) and len(key) == 2 and all(map(is_count, [*key, notes["batch"]]))
    return (
        counts and isinstance(notes["over"], bool) and isinstance(notes["inputs"], list) and isinstance(numbers, list)
    )
