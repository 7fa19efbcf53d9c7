"""Where the samples of DVS128 Gesture are: parts of recordings, or files of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path as File
from typing import Any, NamedTuple

from snncell.data.events import Events
from snncell.data.formats import aedat, numpy_files
from snncell.data.formats.columns import TableLayout
from snncell.data.formats.reading import contents, fault

CLASSES = (
    "hand_clapping", "right_hand_wave", "left_hand_wave", "right_arm_clockwise", "right_arm_counter_clockwise",
    "left_arm_clockwise", "left_arm_counter_clockwise", "arm_roll", "air_drums", "air_guitar", "other_gestures",
)  # fmt: skip
LABELS = "_labels.csv"


class GestureSample(NamedTuple):
    """A sample: its file, its label, and which times of the file are its own."""

    path: str
    label: int
    begin: int = -1
    end: int = 1 << 62


def samples(folder: Any, train: bool | None) -> Iterator[GestureSample]:
    """All samples in a folder and below, in the order of their names; of recordings those that a list names."""
    files = sorted(File(root, name) for root, _, names in os.walk(folder) for name in names if name[0] != ".")
    listed = _read_file_list(files, train)
    for file in files:
        if file.suffix == ".aedat" and (listed is None or file.name in listed):
            yield from _cuts(file)
        elif file.suffix in (".npy", ".npz"):
            yield GestureSample(str(file), _label_of(file))


def read(sample: GestureSample, sensor: tuple[int, int, int]) -> Events:
    """The events of a sample."""
    path = sample.path
    data = contents(path)
    if path.endswith(".aedat"):
        if not data.startswith(b"#!AER-DAT3.1"):
            raise fault(path, "byte 0", "AEDAT 3.1 is expected, which begins with #!AER-DAT3.1")
        return aedat.read_3(path, data, sensor, sample.begin, sample.end)
    if path.endswith(".npz"):
        return numpy_files.read_npz(path, data, sensor)
    return numpy_files.read_npy(path, data, sensor, TableLayout(time_unit="ms"), order="xypt")


def _read_file_list(files: list[File], train: bool | None) -> set[str] | None:
    """The recordings of the part that is wanted, if there is a list of them; None are all."""
    name = "trials_to_test.txt" if train is False else "trials_to_train.txt"
    found = next((file for file in files if file.name == name), None)
    if found is None:
        return None
    return set(contents(found).decode("utf-8", "replace").split())


def _cuts(file: File) -> Iterator[GestureSample]:
    """The samples of a recording: class, startTime_usec, endTime_usec, below a header; they may overlap."""
    labels = file.with_name(file.stem + LABELS)
    start = 0
    for number, line in enumerate(contents(labels).split(b"\n"), 1):
        place = f"line {number} (byte {start})"
        start += len(line) + 1
        row = line.strip().decode("utf-8", "replace")
        if not row or (number == 1 and not row[0].isdigit()):
            continue
        try:
            label, begin, end = (int(field) for field in row.split(","))
        except ValueError:
            raise fault(labels, place, f"class, startTime_usec, endTime_usec are expected, not {row[:80]!r}") from None
        if not 1 <= label <= len(CLASSES) or not 0 <= begin <= end:
            raise fault(labels, place, f"a class from 1 to 11, and an end behind a start, are expected, not {row[:80]}")
        yield GestureSample(str(file), label - 1, begin, end)


def _label_of(file: File) -> int:
    """The label that a file is named after, or the folder that it is in."""
    name = file.stem if file.stem.isdigit() else file.parent.name
    if not name.isdigit() or int(name) >= len(CLASSES):
        raise fault(file, "", "its name, or that of its folder, is expected to be a label from 0 to 10")
    return int(name)
