"""Looking at what `fit` has noted in a checkpoint, before anything of it is taken."""

from __future__ import annotations

from typing import Any

import numpy as np

from snncell.data import Loader
from snncell.errors import ArgumentError, CheckpointError
from snncell.train.callbacks import Callback, Training
from snncell.train.pieces import Batches
from snncell.train.state import Stored, is_count, is_number


def refuse_notes(stored: Stored, who: str) -> None:
    """Raise a CheckpointError if notes are not as `fit` writes them."""
    history, kept = stored.notes.get("history"), stored.notes.get("callbacks")
    if not isinstance(history, list) or not all(_is_record(record, n) for n, record in enumerate(history, 1)):
        raise CheckpointError(f"{who} is damaged: its history is no list with a record of numbers for each epoch.")
    named = isinstance(kept, list) and all(isinstance(one, list) and [*map(type, one)] == [str, dict] for one in kept)
    if not named:
        raise CheckpointError(f"{who} is damaged: what it says of callbacks is {str(kept)[:200]}.")


def note_callbacks(callbacks: list[Callback]) -> tuple[list[Any], dict[str, Any]]:
    """The states of callbacks, as notes and as arrays; of those that keep nothing, nothing."""
    notes: list[Any] = []
    arrays: dict[str, Any] = {}
    for name, state in [(type(callback).__name__, callback.state()) for callback in callbacks]:
        if state:
            of_this = {key: value for key, value in state.items() if isinstance(value, np.ndarray)}
            arrays |= {f"callback {len(notes)} {key}": value for key, value in of_this.items()}
            notes.append([name, {key: value for key, value in state.items() if key not in of_this}])
    return notes, arrays


def resume_callbacks(callbacks: list[Callback], training: Training, stored: Stored, who: str) -> None:
    """Give callbacks what they have kept.

    Raises:
        CheckpointError: if others have, or one does not take it.
    """
    keeping = [callback for callback in callbacks if callback.state()]
    names, before = [type(one).__name__ for one in keeping], [name for name, _ in stored.notes["callbacks"]]
    if names != before:
        raise CheckpointError(
            f"{who} was written with callbacks that keep something: {', '.join(before) or 'none'}; now there are "
            f"{', '.join(names) or 'none'}. Give the same ones, in the same order."
        )
    for n, (callback, (name, notes)) in enumerate(zip(keeping, stored.notes["callbacks"], strict=True)):
        before_name = f"callback {n} "
        arrays = {key.removeprefix(before_name): x for key, x in stored.arrays.items() if key.startswith(before_name)}
        try:
            callback.resume({**notes, **arrays}, training)
        except (ArgumentError, TypeError, ValueError, KeyError, AttributeError) as error:
            raise CheckpointError(f"{who} is damaged: the state of {name} is none that it takes: {error}") from error


def describe_data(data: Any) -> Any:
    """The description that tells data from others; of a user's own batches, their class and number alone."""
    if isinstance(data, (Batches, Loader)):
        return data.description()
    return None if data is None else [type(data).__name__, len(data) if hasattr(data, "__len__") else None]


def places(data: Any, test: Any, given: int | None) -> dict[str, Any]:
    """The places in those of the data that know where they are, as notes; `given` as for `Loader.state`."""
    return {name: loader.state(given if loader is data else None) for name, loader in _loaders(data, test)}


def take_places(data: Any, test: Any, notes: dict[str, Any], who: str) -> None:
    """Go on in the data where notes say."""
    for name, loader in _loaders(data, test):
        try:
            loader.resume(notes.get(name))  # type: ignore[arg-type]
        except ArgumentError as error:
            raise CheckpointError(f"{who} is damaged: {name}: {error}") from None


def _loaders(data: Any, test: Any) -> list[tuple[str, Loader]]:
    both = {"place in the data": data, "place in the test data": test}
    return [(name, loader) for name, loader in both.items() if isinstance(loader, Loader)]


def _is_record(record: Any, epoch: int) -> bool:
    """True if it is what `fit` writes of an epoch."""
    if not isinstance(record, dict) or not {"step", "learning_rate", "loss"} <= record.keys():
        return False
    return record.get("epoch") == epoch and is_count(record["step"]) and all(map(_are_numbers, record.values()))


def _are_numbers(value: Any) -> bool:
    """True of a number, and of a nested list of them."""
    return all(map(_are_numbers, value)) if isinstance(value, list) else is_number(value)
