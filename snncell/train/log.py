"""A log of a training: one line for each epoch."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import ClassVar

from snncell.errors import ArgumentError
from snncell.train.callbacks import Callback, Record, Training


class Log(Callback):
    """Writes records as lines of a file, as CSV with a header (.csv), or as JSON (.jsonl).

    Numbers are written so that they are read back to the bit. A log that is begun anew replaces the file; that of a
    training that is resumed begins with the lines of its history. `fit(log=file)` has one.

    Args:
        file: the path.
        records: lines that it begins with: those of the training that is continued.

    Raises:
        ArgumentError: for another ending, or a folder that is not there.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp(), "run.csv")
        >>> snncell.train.Log(path).add({"epoch": 1, "loss": 0.5})
        >>> path.read_text().split()
        ['epoch,loss', '1,0.5']
    """

    order: ClassVar[int] = 3  # it writes what other callbacks have added
    first_rank_only: ClassVar[bool] = True

    def __init__(self, file: str | os.PathLike[str], records: list[Record] | None = None) -> None:
        self.path = Path(file)
        if self.path.suffix not in (".csv", ".jsonl"):
            raise ArgumentError(f"Log: the file log is named *.csv or *.jsonl, not {self.path.name!r}.")
        if not self.path.parent.is_dir():
            raise ArgumentError(f"Log: there is no folder {self.path.parent} to write {self.path.name} into.")
        if records is not None:
            self._begin(records)

    def _begin(self, records: list[Record]) -> None:
        self.path.write_text("", encoding="utf-8")
        for record in records:
            self.add(record)

    def on_fit_begin(self, training: Training) -> None:
        self._begin(training.history)

    def on_epoch_end(self, training: Training) -> None:
        self.add(training.record)

    def add(self, record: Record) -> None:
        """Write a line."""
        with self.path.open("a", encoding="utf-8", newline="") as file:
            if self.path.suffix == ".jsonl":
                file.write(json.dumps(record) + "\n")
                return
            writer = csv.DictWriter(file, list(record), lineterminator="\n")
            if file.tell() == 0:
                writer.writeheader()
            writer.writerow(record)
