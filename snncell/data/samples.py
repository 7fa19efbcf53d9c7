"""Ground of the data sets of event files: samples by index, and recordings in the folders of their classes."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable
from pathlib import Path as File
from typing import Any

import numpy as np

from snncell.base.arguments.kinds import Path
from snncell.data.events import Events, Sensor
from snncell.data.formats import read_events
from snncell.data.formats.reading import fault
from snncell.errors import ArgumentTypeError, TensorIndexError

Transform = Callable[[Events], Any]


class Samples:
    """A data set: `len`, `[i]`, the labels and their classes, the sensor, a transform."""

    sensor_size: Sensor
    classes: tuple[str, ...]

    def __init__(self, labels: Any, transform: Transform | None) -> None:
        self.labels = np.asarray(labels, np.int64)
        self.transform = transform

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        """The events of a sample, transformed, and its label.

        Raises:
            TensorIndexError: for an index that the data set does not have.
            ArgumentTypeError: for what is no index; a slice is a list, [ds[i] for i in range(10)].
            FileError: for a damaged file.
        """
        try:
            number = operator.index(index)
        except TypeError:
            raise ArgumentTypeError(
                f"{type(self).__name__}: an index is an integer, not {index!r:.100}; of a part make a list, "
                f"[ds[i] for i in range(10)]."
            ) from None
        if not -len(self) <= number < len(self):
            raise TensorIndexError(f"{type(self).__name__}: it has {len(self)} samples, and none has index {number}.")
        number %= len(self)
        events = self._events(number)
        return events if self.transform is None else self.transform(events), int(self.labels[number])

    def _events(self, number: int) -> Events:
        raise NotImplementedError

    def __repr__(self) -> str:
        size = "" if not isinstance(vars(self).get("sensor_size", ()), tuple) else f", sensor_size {self.sensor_size}"
        return f"{type(self).__name__}: {len(self)} samples of {len(self.classes)} classes{size}"


class Recordings(Samples):
    """Samples that are files of their own, in folders that are named after their classes."""

    def __init__(self, folder: Path, suffixes: tuple[str, ...], classes: Any, transform: Transform | None) -> None:
        own = folders(folder)
        self.classes = tuple(own) if classes is None else classes
        unknown = next((name for name in own if name not in self.classes), None)
        if unknown is not None:
            raise fault(folder, "", f"a folder for each of {', '.join(self.classes)} is expected, not {unknown!r}")
        found = [(file, self.classes.index(name)) for name in own for file in files(own[name], suffixes)]
        if not found:
            kind = " or ".join(suffixes) or "event"
            raise fault(folder, "", f"folders of classes, with {kind} files in them, are expected, and there are none")
        super().__init__([label for _, label in found], transform)
        self.paths = tuple(str(file) for file, _ in found)

    def _events(self, number: int) -> Events:
        return read_events(self.paths[number], self.sensor_size)


def folders(folder: Path) -> dict[str, File]:
    """The folders in a folder, by name, in order.

    Raises:
        FileError: if it is none, or cannot be read.
    """
    try:
        entries = sorted(File(folder).iterdir())
    except (OSError, ValueError) as error:
        raise fault(folder, "", f"a folder is expected: {getattr(error, 'strerror', None) or error}") from None
    return {each.name: each for each in entries if each.is_dir() and not each.name.startswith(".")}


def files(folder: File, suffixes: tuple[str, ...]) -> list[File]:
    """The files in a folder and below, in order; all but hidden ones if there are no suffixes."""
    found = [File(root, name) for root, _, names in os.walk(folder) for name in names if not name.startswith(".")]
    return sorted(each for each in found if not suffixes or each.suffix.lower() in suffixes)


def part_of(folder: Path, training: tuple[str, ...], testing: tuple[str, ...], train: bool | None) -> Path:
    """The folder of the part that is wanted, or the folder itself if it has no parts."""
    own = folders(folder)
    parts = {True: training, False: testing}
    there = {which: own[name] for which, names in parts.items() for name in names if name in own}
    if not there:
        return folder
    if train is None:
        return there.get(True, there.get(False, folder))
    if train not in there:
        raise fault(folder, "", f"a folder {parts[train][0]} is expected, and there is {there[not train].name} only")
    return there[train]
