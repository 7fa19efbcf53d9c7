"""A log of a training: one line for each epoch."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path
from typing import ClassVar

from snncell.errors import ArgumentError
from snncell.train.callbacks import Callback, Record, Training


class Log(Callback):
    """Writes records as lines of a file, as CSV with a header (.csv), or as JSON (.jsonl).

    Numbers are written so that they are read back to the bit; one that only some epochs have is empty in the others. A
    log that is begun anew replaces the file; that of a training that is resumed begins with the lines of its history.
    `fit(log=file)` has one.

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
        self.columns: dict[str, None] = {}  # of the lines that this has written
        if self.path.suffix not in (".csv", ".jsonl"):
            raise ArgumentError(f"Log: the file log is named *.csv or *.jsonl, not {self.path.name!r}.")
        if not self.path.parent.is_dir():
            raise ArgumentError(f"Log: there is no folder {self.path.parent} to write {self.path.name} into.")
        if records is not None:
            self._begin(records)

    def _begin(self, records: list[Record]) -> None:
        self.path.write_text("", encoding="utf-8")
        self.columns = {}
        for record in records:
            self.add(record)

    def on_fit_begin(self, training: Training) -> None:
        self._begin(training.history)

    def on_epoch_end(self, training: Training) -> None:
        self.add(training.record)

    def add(self, record: Record) -> None:
        """Write a line."""
        as_csv = self.path.suffix == ".csv"
        if as_csv and not (self.columns and self.columns.keys() >= record.keys()):
            self._widen(record)
            return
        with self.path.open("a", encoding="utf-8", newline="") as file:
            if as_csv:
                csv.DictWriter(file, list(self.columns), lineterminator="\n").writerow(record)
            else:
                file.write(json.dumps(record) + "\n")

    def _widen(self, record: Record) -> None:
        """Write all lines anew, with the columns of this record too; those that a line has not are empty in it."""
        text = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        lines = csv.DictReader(io.StringIO(text, newline=""))
        rows: list[Record] = [*lines, record]
        self.columns = dict.fromkeys([*(lines.fieldnames or ()), *record])
        with self.path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(self.columns), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
