"""Training checkpoints: the callback that writes them, and the notes from which `fit(resume=...)` continues."""

from __future__ import annotations

import math
import os
import string
from bisect import bisect_left
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from snncell.base.arguments.kinds import Count
from snncell.data import Loader
from snncell.errors import ArgumentError, CheckpointError
from snncell.io import path_to_write
from snncell.train.batches import Batches
from snncell.train.callbacks import Callback, Training
from snncell.train.state import File, Stored, is_count, is_number, saved_numbers
from snncell.train.stopping import is_better_higher, monitored_number, name_in_records

__all__ = ["Checkpoint"]


class Checkpoint(Callback):
    """Training checkpoints: files from which `fit(resume=file)` continues bit for bit.

    Files are replaced atomically. `fit(checkpoint=file)` adds this callback for the last epoch and interruptions.

    Args:
        file: the path. It may contain "epoch", "step", or after an epoch a number of its record in braces, for example
            "run-{epoch:03d}.ckpt" or "best-{test_loss:.3f}.ckpt".
        every: the number of epochs between checkpoints.
        steps: the number of optimiser steps between checkpoints, instead of epochs.
        best: a number of the record, such as "test_loss". A file is then written only if this number is a new best.
        keep: the number of files with changing names to keep; older ones are deleted. Default: all.
        higher_is_better: whether a larger number is better, if the rule of `EarlyStopping` is wrong for your number.
    Example:
        >>> import tempfile, pathlib
        >>> folder, net = pathlib.Path(tempfile.mkdtemp()), nn.Dense(2, 1)
        >>> sgd, data = nn.SGD(net.trainable_params(), 0.1), (ops.ones((8, 2)), ops.zeros((8, 1)))
        >>> each = snncell.train.Checkpoint(folder / "run-{epoch}.ckpt", keep=2)
        >>> options = {"accuracy": None, "progress": False, "callbacks": [each]}
        >>> _ = snncell.train.fit(net, nn.MSELoss(), sgd, data, 4, **options)
        >>> sorted(path.name for path in folder.iterdir())
        ['run-3.ckpt', 'run-4.ckpt']
    """

    order: ClassVar[int] = 5  # after all callbacks that change the record or their own state
    first_rank_only: ClassVar[bool] = True

    def __init__(
        self,
        file: File,
        every: Count | None = None,
        steps: Count | None = None,
        best: str | None = None,
        keep: Count | None = None,
        higher_is_better: bool | None = None,
    ) -> None:
        if steps is not None and (every is not None or best is not None):
            one = "every" if every is not None else "best"
            raise ArgumentError(f"Checkpoint: steps writes within epochs, {one} after epochs; make two Checkpoints.")
        path_to_write(file, "Checkpoint")  # fail now, not after an epoch
        self.file, self.every, self.steps = os.fspath(file), every or 1, steps
        self.names = {name for _, name, _, _ in string.Formatter().parse(self.file) if name is not None}
        if keep is not None and not self.names:
            raise ArgumentError(
                f"Checkpoint: keep={keep} needs files with changing names, but {self.file!r} is always the same; write "
                f'"{Path(self.file).stem}-{{epoch}}{Path(self.file).suffix}".'
            )
        if higher_is_better is not None and best is None:
            raise ArgumentError("Checkpoint: higher_is_better needs best, the number that it describes.")
        self.keep = keep
        self.best = None if best is None else name_in_records(best)
        self.higher_is_better = is_better_higher(best or "") if higher_is_better is None else higher_is_better
        self.value = math.inf  # the best number so far, negated if higher is better
        self.written: list[str] = []
        self.last: tuple[int, int] | None = None  # epochs and batches of the last written file

    def on_fit_begin(self, training: Training) -> None:
        self.last = _place(training)
        self.written = list(dict.fromkeys([*self._written_before(training), *self.written]))
        if not training.history:  # forget an earlier training
            self.value = math.inf

    def on_step_end(self, training: Training) -> None:
        if self.steps is not None and training.updated and training.step % self.steps == 0:
            self.write(training)

    def on_epoch_end(self, training: Training) -> None:
        if self.steps is None and training.epoch % self.every == 0 and self._is_best(training):
            self.write(training)

    def on_fit_end(self, training: Training) -> None:
        if training.stopped and self.best is None and _place(training) != self.last:
            self.write(training)

    def _written_before(self, training: Training) -> list[str]:
        """The existing files of the epochs or steps before a resume, oldest first."""
        if self.keep is None:
            return []
        numbers: list[dict[str, Any]] = training.history
        if self.steps is not None:
            ends = [record["step"] for record in training.history]
            steps = range(self.steps, training.step + 1, self.steps)
            numbers = [{"epoch": 1 + bisect_left(ends, step), "step": step} for step in steps]
        files = [self.file.format(**each) for each in numbers if self.names <= each.keys()]
        return [file for file in files if Path(file).exists()]

    def _is_best(self, training: Training) -> bool:
        if self.best is None:
            return True
        number = monitored_number(training, self.best, "Checkpoint: best")
        if number is None:
            return False
        value = -number if self.higher_is_better else number
        better = value < self.value
        self.value = min(self.value, value)
        return better

    def write(self, training: Training) -> None:
        """Write a file now."""
        numbers = {"epoch": training.epoch, "step": training.step}
        numbers |= {} if training.batch else training.record
        if missing := self.names - numbers.keys():
            raise ArgumentError(
                f"Checkpoint: {self.file!r} needs {missing.pop()!r}, but the record has only {', '.join(numbers)}."
            )
        file = self.file.format(**numbers) if self.names else self.file
        training.save(file)
        self.last = _place(training)
        if file not in self.written:
            self.written.append(file)
        while self.keep is not None and len(self.written) > self.keep:
            Path(self.written.pop(0)).unlink(missing_ok=True)

    def state(self) -> dict[str, Any]:
        return {} if self.best is None else {"value": self.value}

    def resume(self, state: dict[str, Any], training: Training) -> None:
        (self.value,) = saved_numbers(state, ["value"], "Checkpoint")


def _place(training: Training) -> tuple[int, int]:
    """The finished epochs and batches; not the step, because a skipped step keeps it but changes the loss scale."""
    return len(training.history), training.batch


# --- notes of `fit` in a checkpoint -----------------------------------------------------------------------------------


def refuse_notes(stored: Stored, who: str) -> None:
    """Raise a CheckpointError if notes are not as `fit` writes them."""
    history, kept = stored.notes.get("history"), stored.notes.get("callbacks")
    if not isinstance(history, list) or not all(_is_record(record, n) for n, record in enumerate(history, 1)):
        raise CheckpointError(f"{who} is damaged: its history is not a list with a record of numbers for each epoch.")
    if not isinstance(kept, list) or not all(isinstance(x, list) and [*map(type, x)] == [str, dict] for x in kept):
        raise CheckpointError(f"{who} is damaged: its notes on callbacks are {str(kept)[:200]}.")


def note_callbacks(callbacks: list[Callback]) -> tuple[list[Any], dict[str, Any]]:
    """The states of callbacks that have one, as notes and arrays."""
    notes: list[Any] = []
    arrays: dict[str, Any] = {}
    for callback in callbacks:
        if state := callback.state():
            of_this = {key: value for key, value in state.items() if isinstance(value, np.ndarray)}
            arrays |= {f"callback {len(notes)} {key}": value for key, value in of_this.items()}
            notes.append([type(callback).__name__, {key: x for key, x in state.items() if key not in of_this}])
    return notes, arrays


def resume_callbacks(callbacks: list[Callback], training: Training, stored: Stored, who: str) -> None:
    """Restore the states of callbacks; a CheckpointError for other callbacks, or a state that a callback refuses."""
    keeping = [callback for callback in callbacks if callback.state()]
    names, before = [type(one).__name__ for one in keeping], [name for name, _ in stored.notes["callbacks"]]
    if names != before:
        raise CheckpointError(
            f"{who} was written with these callbacks that have a state: {', '.join(before) or 'none'}; now there are "
            f"{', '.join(names) or 'none'}. Pass the same callbacks, in the same order."
        )
    for n, (callback, (name, notes)) in enumerate(zip(keeping, stored.notes["callbacks"], strict=True)):
        before_name = f"callback {n} "
        arrays = {key.removeprefix(before_name): x for key, x in stored.arrays.items() if key.startswith(before_name)}
        try:
            callback.resume({**notes, **arrays}, training)
        except (ArgumentError, TypeError, ValueError, KeyError, AttributeError) as error:
            raise CheckpointError(f"{who} is damaged: {name} refuses its state: {error}") from error


def describe_data(data: Any) -> Any:
    """A description of data, to refuse a resume with other data; for a user's own batches only class and number."""
    if isinstance(data, (Batches, Loader)):
        return data.description()
    return None if data is None else [type(data).__name__, len(data) if hasattr(data, "__len__") else None]


def note_positions(data: Any, test: Any, given: int | None) -> dict[str, Any]:
    """The position in each `Loader`, as notes; `given` as for `Loader.state`."""
    return {name: loader.state(given if loader is data else None) for name, loader in _loaders(data, test)}


def restore_positions(data: Any, test: Any, notes: dict[str, Any], who: str) -> None:
    """Move each `Loader` to its position in the notes."""
    for name, loader in _loaders(data, test):
        try:
            loader.resume(notes.get(name))  # type: ignore[arg-type]
        except ArgumentError as error:
            raise CheckpointError(f"{who} is damaged: {name}: {error}") from None


def _loaders(data: Any, test: Any) -> list[tuple[str, Loader]]:
    both = {"place in the data": data, "place in the test data": test}
    return [(name, loader) for name, loader in both.items() if isinstance(loader, Loader)]


def _is_record(record: Any, epoch: int) -> bool:
    whole = isinstance(record, dict) and {"epoch", "step", "learning_rate", "loss"} <= record.keys()
    return whole and record["epoch"] == epoch and is_count(record["step"]) and all(map(_are_numbers, record.values()))


def _are_numbers(value: Any) -> bool:
    return all(map(_are_numbers, value)) if isinstance(value, list) else is_number(value)
