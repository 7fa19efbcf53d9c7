"""Check the arguments of a report: that net, batch, loss, optimiser and log belong together."""

from __future__ import annotations

import csv
import inspect
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from snncell.base.arguments.shown import came, show
from snncell.cell.cell import Cell
from snncell.errors import ArgumentError, CallError, SnncellError, cut
from snncell.nn.optim.optimizer import Optimizer
from snncell.tape.event_lists import EventLists
from snncell.tape.structure import is_array
from snncell.tape.tensor import Tensor

Loss = Callable[..., Any]


def fit_together(net: Any, loss: Any, optimiser: Any) -> None:
    """Look whether the loss is one, and the optimiser one of this net."""
    if not isinstance(net, Cell):
        raise ArgumentError(f"report: net is a network, a Cell, not {came(net)}.")
    if loss is not None and not callable(loss):
        raise ArgumentError(
            f"report: loss is a function of what the net gives and the target, such as nn.CrossEntropyLoss(), not "
            f"{cut(show(loss), 60)}."
        )
    if optimiser is None:
        return
    if not isinstance(optimiser, Optimizer):
        raise ArgumentError(
            f"report: optimiser is one of nn's, such as nn.Adam(net.trainable_params()), not a "
            f"{type(optimiser).__name__}."
        )
    if loss is None:
        raise ArgumentError("report: an update is tried by the gradient of a loss; give loss beside optimiser.")
    known = {id(p) for cell in (net, loss) if isinstance(cell, Cell) for p in cell.get_parameters()}
    strange = [p for p in optimiser.parameters if id(p) not in known]
    if strange:
        raise ArgumentError(
            f"report: the optimiser trains Parameter {strange[0].name!r} of shape {strange[0].shape}, which is not in "
            f"the {type(net).__name__}. Make it from this one: net.trainable_params()."
        )


def parts(batch: Any) -> tuple[list[Tensor], Tensor | None]:
    """Inputs and target of a batch, as `train.fit` takes them, as Tensors; no target if it is x alone."""
    several = isinstance(batch, (tuple, list)) and all(isinstance(x, Tensor) or is_array(x) for x in batch)
    entries = list(batch) if several or isinstance(batch, tuple) else [batch]
    entries = [batch] if isinstance(batch, EventLists) else entries
    try:
        # A report looks at each element of its inputs: of event lists it takes the arrays that they stand for.
        dense = [x.to_dense() if isinstance(x, EventLists) else x for x in entries]
        tensors = [x if isinstance(x, Tensor) else Tensor(x) for x in dense]
    except (SnncellError, TypeError, ValueError) as error:
        raise ArgumentError(
            f"report: the batch is x or (x, y), arrays or Tensors, not {cut(show(batch), 60)}."
        ) from error
    if not tensors or any(x.size == 0 for x in tensors):
        shapes = ", ".join(str(x.shape) for x in tensors) or "nothing"
        raise ArgumentError(f"report: the batch is empty: {shapes}. Give (x, y) with at least one sample.")
    return (tensors[:-1], tensors[-1]) if len(tensors) > 1 else (tensors, None)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # its name is too long
        return False


def history(log: Any) -> Sequence[Mapping[str, Any]]:
    """The records of a training: what `train.fit` gave back, its history, or the path of its log."""
    if isinstance(log, (str, os.PathLike)) and not _is_file(Path(log)):
        raise ArgumentError(
            f"report: log: there is no file {str(log)!r}. Give the path of the *.csv or *.jsonl that "
            f"train.fit(log=...) wrote, or what train.fit gave back."
        )
    records = records_of(log, "report: log")
    if records is None:
        return ()
    if not isinstance(records, (list, tuple)) or not all(isinstance(record, Mapping) for record in records):
        raise ArgumentError(
            f"report: log is what train.fit gives back, the path of its log, or a list of dicts such as "
            f"{{'loss': 0.5}}, one for each epoch, not {cut(show(log), 60)}."
        )
    return records


def records_of(log: Any, who: str) -> Any:
    """The records of a log, or its columns, whichever it has."""
    return _read(Path(log), who) if isinstance(log, (str, os.PathLike)) else getattr(log, "history", log)


def _read(path: Path, who: str) -> list[dict[str, Any]]:
    if path.suffix not in (".csv", ".jsonl") or not path.is_file():
        raise ArgumentError(f"{who}: {str(path)!r} is no log, a file *.csv or *.jsonl that train.fit wrote.")
    with path.open(encoding="utf-8", newline="") as file:
        if path.suffix == ".csv":
            return list(csv.DictReader(file))
        return [_record(path, number, line, who) for number, line in enumerate(file, 1) if line.strip()]


def _record(path: Path, number: int, line: str, who: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except json.JSONDecodeError:
        record = None
    if not isinstance(record, dict):
        raise ArgumentError(f"{who}: line {number} of {str(path)!r} is no record, as train.fit writes them.")
    return record


def loss_takes(loss: Loss | None, target: Tensor | None) -> None:
    """Look whether the loss can be called with what the net gives and the target, if there is one."""
    if loss is None:
        return
    try:
        signature = inspect.signature(loss.construct if isinstance(loss, Cell) else loss)
    except (TypeError, ValueError):  # a function that does not tell
        return
    try:
        signature.bind(*([None] if target is None else [None, None]))
    except TypeError as error:
        name = getattr(loss, "__name__", type(loss).__name__)
        batch, mend = ("x alone", "(x, y)") if target is None else ("(x, y)", "x alone, an array")
        raise CallError(
            f"report: the loss {name} takes ({', '.join(signature.parameters)}), and the batch is {batch}. Give a "
            f"batch as in training, {mend}."
        ) from error
