"""Looking at what `fit` has noted in a checkpoint, before anything of it is taken."""

from __future__ import annotations

import math
from typing import Any

from snncell.cell import Cell
from snncell.data import Loader
from snncell.errors import ArgumentError, CheckpointError
from snncell.train.pieces import Batches
from snncell.train.state import Stored, refuse_misfit, weights_of


def refuse_notes(stored: Stored, stopping: bool, net: Cell, loss: Any, who: str) -> None:
    """Raise a CheckpointError if notes are not as `fit` writes them; `stopping` is whether there are some of it."""
    history, notes = stored.notes.get("history"), stored.notes.get("stopping")
    if not isinstance(history, list) or not all(_is_record(record, n) for n, record in enumerate(history, 1)):
        raise CheckpointError(f"{who} is damaged: its history is no list with a record of numbers for each epoch.")
    if not stopping:
        return
    if not _is_of_stopping(notes, len(history)):
        raise CheckpointError(f"{who} is damaged: what it says of early stopping is {str(notes)[:200]}.")
    own = weights_of(net, loss) if stored.notes["stopping"]["best_epoch"] else {}
    refuse_misfit(own, stored.arrays, who)


def told(data: Any) -> Any:
    """The description that tells data from others; of a user's own batches, their class and number alone."""
    if isinstance(data, (Batches, Loader)):
        return data.description()
    return None if data is None else [type(data).__name__, len(data) if hasattr(data, "__len__") else None]


def places(data: Any, test: Any) -> dict[str, Any]:
    """The places in those of the data that know where they are, as notes."""
    return {name: loader.state() for name, loader in _loaders(data, test)}


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
    return record.get("epoch") == epoch and _is_count(record["step"]) and all(map(_is_number, record.values()))


def _is_of_stopping(notes: Any, epochs: int) -> bool:
    """True if it is what `EarlyStopping.notes` gives after so many epochs."""
    if not isinstance(notes, dict) or notes.keys() != {"best", "best_epoch", "waited"}:
        return False
    best, epoch, waited = notes["best"], notes["best_epoch"], notes["waited"]
    counts = _is_count(epoch) and _is_count(waited) and epoch <= epochs and waited <= epochs
    return counts and _is_number(best) and not math.isnan(best)


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and _is_number(value) and value >= 0
