"""Data sets of event recordings, such as N-MNIST, DVS128 Gesture and SHD; event folders; random splits."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path as File
from typing import Annotated, Any, NamedTuple

import numpy as np

from snncell.base.arguments.kinds import Own, Path
from snncell.base.arguments.shown import brief
from snncell.data.events import Events, Sensor, sensor_of
from snncell.data.formats import aedat, binary, hdf5, read_events, tables
from snncell.data.formats.reading import Array, TableLayout, contents, fault, layout_of
from snncell.data.samples import View, check_dataset, position_of, seed_or_draw
from snncell.errors import ArgumentError
from snncell.ops.base import as_int

__all__ = [
    "ASLDVS", "CIFAR10DVS", "NMNIST", "SHD", "DVSGesture", "EventFolder", "NCaltech101", "Subset", "random_split",
]  # fmt: skip

Transform = Callable[[Events], Any]


class Samples:
    """Base class of data sets: `len`, `[i]`, labels, classes, sensor size and transform."""

    sensor_size: Sensor
    classes: tuple[str, ...]

    def __init__(self, labels: Any, transform: Transform | None) -> None:
        self.labels = np.asarray(labels, np.int64)
        self.transform = transform

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        """The events of sample `index`, transformed, and its label."""
        number = position_of(self, index)
        events = self._events(number)
        return events if self.transform is None else self.transform(events), int(self.labels[number])

    def _events(self, number: int) -> Events:
        raise NotImplementedError

    def __repr__(self) -> str:
        size = vars(self).get("sensor_size", getattr(type(self), "sensor_size", None))
        known = f", sensor_size {size}" if isinstance(size, tuple) else ""  # else an EventFolder would read all files
        return f"{type(self).__name__}: {len(self)} samples of {len(self.classes)} classes{known}"


class Recordings(Samples):
    """Base class of data sets with one file per sample, in one folder per class."""

    suffixes: tuple[str, ...] = ()  # the file extensions of samples; empty for every file
    known: tuple[str, ...] | None = None  # the classes; None if the folders define them

    def __init__(self, folder: Path, *, transform: Transform | None = None) -> None:
        own, suffixes = _folders(folder), self.suffixes
        self.classes = self.known or tuple(own)
        unknown = next((name for name in own if name not in self.classes), None)
        if unknown is not None:
            raise fault(folder, "", f"a folder for each of {', '.join(self.classes)} is expected, not {unknown!r}")
        found = [
            (str(file), self.classes.index(name))
            for name in own
            for file in _files(own[name])
            if not suffixes or file.suffix.lower() in suffixes
        ]
        if not found:
            kind = " or ".join(suffixes) or "event"
            raise fault(folder, "", f"folders of classes with {kind} files are expected, but none was found")
        super().__init__([label for _, label in found], transform)
        self.paths = tuple(path for path, _ in found)

    def _events(self, number: int) -> Events:
        path = self.paths[number]
        if self.suffixes == (".bin",):
            return binary.read_bin(path, contents(path), self.sensor_size)
        return read_events(path, self.sensor_size)


def _folders(folder: Path) -> dict[str, File]:
    try:
        entries = sorted(File(folder).iterdir())
    except (OSError, ValueError) as error:
        raise fault(folder, "", f"a folder is expected: {getattr(error, 'strerror', None) or error}") from None
    return {each.name: each for each in entries if each.is_dir() and not each.name.startswith(".")}


def _files(folder: Path) -> list[File]:
    return sorted(File(root, name) for root, _, names in os.walk(folder) for name in names if name[0] != ".")


def _part_of(folder: Path, training: tuple[str, ...], testing: tuple[str, ...], train: bool | None) -> Path:
    """The subfolder with the training or the test part, or the folder itself if it has no such parts."""
    own = _folders(folder)
    parts = {True: training, False: testing}
    there = {which: own[name] for which, names in parts.items() for name in names if name in own}
    if not there:
        return folder
    if train is None:
        return there.get(True, there.get(False, folder))
    if train not in there:
        raise fault(folder, "", f"a folder {parts[train][0]} is expected, but there is only {there[not train].name}")
    return there[train]


# --- Data sets --------------------------------------------------------------------------------------------------------


class EventFolder(Recordings):
    """Data set from a folder of event recordings with one subfolder per class.

    You can use it for your own recordings in any format that `read_events` reads. Labels number the classes in
    alphabetical order. Hidden files are ignored. A missing or damaged file raises FileError.

    Args:
        folder: contains one subfolder per class.
        sensor_size: (W, H, P). By default it is the smallest size that holds all recordings. To find it, all recordings
            are read when it is first needed, so you should pass it if you know it.
        columns, time_unit: the layout of recordings that are tables, as for `read_events`.
        transform: a function of the events; `[i]` returns its result.
    Attributes:
        classes: the names of the subfolders.
        labels: the labels of all samples, int64.
        paths: the files of all samples.
    """

    def __init__(
        self,
        folder: Path,
        sensor_size: Sequence[int] | None = None,
        *,
        columns: Annotated[dict[str, str | int] | None, Own()] = None,
        time_unit: Annotated[str | None, Own()] = None,
        transform: Transform | None = None,
    ) -> None:
        self._layout = layout_of("EventFolder", columns, time_unit)
        super().__init__(folder, transform=transform)
        if sensor_size is not None:
            self.sensor_size = sensor_of("EventFolder", sensor_size)

    @cached_property
    def sensor_size(self) -> Sensor:  # type: ignore[override]
        """The smallest sensor that contains all recordings."""
        sizes = [read_events(path, **self._layout._asdict()).sensor_size for path in self.paths]
        return sensor_of("EventFolder", [max(each) for each in zip(*sizes, strict=True)])

    def _events(self, number: int) -> Events:
        return read_events(self.paths[number], self.sensor_size, **self._layout._asdict())


class NMNIST(Recordings):
    """N-MNIST: 70,000 handwritten digits, shown in three saccades to an event camera of 34 x 34 pixels.

    The training part has 60,000 samples, the test part 10,000. It has the attributes, errors and `transform` of
    `EventFolder`; `sensor_size` is (34, 34, 2), and `classes` are "0" to "9".

    Args:
        folder: contains the folders Train and Test, as you unpack the archives, or the folders 0 to 9 of one part.
        train: True for the training part, False for the test part. The default prefers the training part.
    Source: Orchard et al., Converting static image datasets to spiking neuromorphic datasets using saccades, 2015.
    """

    sensor_size = binary.NMNIST
    suffixes = (".bin",)
    known = tuple("0123456789")

    def __init__(self, folder: Path, train: bool | None = None, *, transform: Transform | None = None) -> None:
        super().__init__(_part_of(folder, ("Train", "train"), ("Test", "test"), train), transform=transform)


class NCaltech101(Recordings):
    """N-Caltech101: 8,709 images of objects in 101 classes, shown in three saccades to an event camera.

    Recordings have different sizes, at most 240 x 180 pixels, and events keep their pixel coordinates. Arguments,
    attributes and errors are those of `EventFolder`; `sensor_size` is (240, 180, 2).

    Source: Orchard et al., Converting static image datasets to spiking neuromorphic datasets using saccades, 2015.
    """

    sensor_size = (240, 180, 2)
    suffixes = (".bin",)


class CIFAR10DVS(Recordings):
    """CIFAR10-DVS: 10,000 images of CIFAR-10, moved in front of a DVS128, from the original AEDAT 2.0 files.

    Coordinates follow the addresses in the file: x = address >> 1 & 127, y = address >> 8 & 127, and p is the lowest
    bit. Note that SpikingJelly mirrors them: its x, y and p are 127 - y, 127 - x and 1 - p. Arguments, attributes and
    errors are those of `EventFolder`, with folders from airplane to truck. `sensor_size` is (128, 128, 2), and
    `classes` are always the ten of CIFAR-10, even if some folders are missing.

    Source: Li et al., CIFAR10-DVS: an event-stream dataset for object classification, 2017.
    """

    sensor_size = aedat.DVS128
    known = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


class ASLDVS(Recordings):
    """ASL-DVS: 100,800 recordings of 24 letters of American Sign Language by a DAVIS240, in `.mat` files.

    Arguments, attributes and errors are those of `EventFolder`, with folders from a to y without j. `sensor_size` is
    (240, 180, 2), and `classes` are always the 24 letters, even if some folders are missing.

    Source: Bi et al., Graph-based object classification for neuromorphic vision sensing, 2019.
    """

    sensor_size = (240, 180, 2)
    suffixes = (".mat",)
    known = tuple("abcdefghiklmnopqrstuvwxy")


class SHD(Samples):
    """Spiking Heidelberg Digits (SHD) and Spiking Speech Commands (SSC): spoken words as spikes of 700 channels.

    A cochlea model produced the channels. Files store times as float16 seconds, events as int64 microseconds. So the
    resolution is 122 microseconds from 0.125 s on, 488 from 0.5 s on, and 977 from 1 s on. Events have no y, and p = 0.

    The file stays open from the first `[i]` on. You can pickle a data set, fork the process, and use it in threads.

    Args:
        path: the unpacked file, for example `shd_train.h5` or `ssc_valid.h5`.
        transform: a function of the events; `[i]` returns its result.
    Attributes:
        sensor_size: (700, 1, 1).
        classes: the names in `/extra/keys`. If the file has none, the label numbers as strings.
        labels: the labels of all samples, int64, below 65,536.
        speakers: the speakers of all samples, int64, or None if the file has none.
    Raises: FileError if h5py or the file is missing, and for a damaged file, with the HDF5 dataset and the index in it.
    Source: Cramer et al., The Heidelberg spiking data sets for the systematic evaluation of spiking neural networks,
    2022.
    """

    sensor_size = hdf5.CHANNELS

    def __init__(self, path: Path, *, transform: Transform | None = None) -> None:
        self._spikes = hdf5.SpikeFile(path)
        super().__init__(self._spikes.labels, transform)
        numbers = tuple(str(each) for each in range(int(self.labels.max(initial=-1)) + 1))
        self.classes = numbers if self._spikes.keys is None else self._spikes.keys
        self.speakers: Array | None = self._spikes.speakers

    def _events(self, number: int) -> Events:
        return self._spikes.sample(number)


# --- DVS128 Gesture: samples are time ranges of recordings, or whole files --------------------------------------------

GESTURES = (
    "hand_clapping", "right_hand_wave", "left_hand_wave", "right_arm_clockwise", "right_arm_counter_clockwise",
    "left_arm_clockwise", "left_arm_counter_clockwise", "arm_roll", "air_drums", "air_guitar", "other_gestures",
)  # fmt: skip
GESTURE_LABELS = "_labels.csv"


class GestureSample(NamedTuple):
    """A sample of DVS128 Gesture: its file, its label, and its time range [begin, end) in the file."""

    path: str
    label: int
    begin: int = -1
    end: int = 1 << 62


class DVSGesture(Samples):
    """DVS128 Gesture: 11 hand gestures of 29 people under three lighting conditions, recorded by a DVS128.

    You can pass the original data or one of two mirrors:

    - The original AEDAT 3.1 recordings with `_labels.csv` files. Each line of a label file is a sample: the events with
      startTime <= t < endTime. The samples keep the times of the recording.
    - tonic's mirror: one file `userNN_lighting/<label>.npy` per sample, with columns x, y, p and t in milliseconds.
    - SpikingJelly's mirror: one `.npz` file per sample, in one folder per label.

    Args:
        folder: contains the recordings, or folders of people or labels; or one folder each for training and testing.
        train: True for the training part, False for the test part. The default prefers the training part. The parts are
            the folders train and test, or ibmGestureTrain and ibmGestureTest, or the recordings that
            trials_to_train.txt and trials_to_test.txt list.
        transform: a function of the events; `[i]` returns its result.
    Attributes:
        sensor_size: (128, 128, 2).
        classes: the 11 gestures. Label 0 is class 1 of the label files.
        labels: the labels of all samples, int64.
    Raises: FileError for missing recordings or invalid labels, and from `[i]` for a damaged file.
    Source: Amir et al., A low power, fully event-based gesture recognition system, 2017.
    """

    sensor_size = aedat.DVS128
    classes = GESTURES

    def __init__(self, folder: Path, train: bool | None = None, *, transform: Transform | None = None) -> None:
        part = _part_of(folder, ("train", "ibmGestureTrain"), ("test", "ibmGestureTest"), train)
        self.samples = tuple(_gesture_samples(part, train))
        if not self.samples:
            found = "recordings .aedat with _labels.csv, or .npy or .npz by label, are expected, but none was found"
            raise fault(folder, "", found)
        super().__init__([each.label for each in self.samples], transform)

    def _events(self, number: int) -> Events:
        path, _, begin, end = self.samples[number]
        data = contents(path)
        if path.endswith(".aedat"):
            if not data.startswith(b"#!AER-DAT3.1"):
                raise fault(path, "byte 0", "AEDAT 3.1 is expected, which begins with #!AER-DAT3.1")
            return aedat.read_3(path, data, self.sensor_size, begin, end)
        if path.endswith(".npz"):
            return tables.read_npz(path, data, self.sensor_size)
        return tables.read_npy(path, data, self.sensor_size, TableLayout(time_unit="ms"), order="xypt")


def _gesture_samples(folder: Any, train: bool | None) -> Iterator[GestureSample]:
    """All samples in a folder and its subfolders, sorted by name; only listed recordings if there is a trials file."""
    files = _files(folder)
    trials = "trials_to_test.txt" if train is False else "trials_to_train.txt"
    list_file = next((file for file in files if file.name == trials), None)
    listed = None if list_file is None else contents(list_file).decode("utf-8", "replace").split()
    for file in files:
        if file.suffix == ".aedat" and (listed is None or file.name in listed):
            yield from _cuts(file)
        elif file.suffix in (".npy", ".npz"):
            name = file.stem if file.stem.isdigit() else file.parent.name
            if not name.isdigit() or int(name) >= len(GESTURES):
                raise fault(file, "", "the name of the file or of its folder must be a label from 0 to 10")
            yield GestureSample(str(file), int(name))


def _cuts(file: File) -> Iterator[GestureSample]:
    """The samples of a recording, from lines "class,startTime_usec,endTime_usec" after a header. They may overlap."""
    labels = file.with_name(file.stem + GESTURE_LABELS)
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
        if not 1 <= label <= len(GESTURES) or not 0 <= begin <= end:
            raise fault(
                labels, place, f"a class from 1 to 11, and a start before the end, are expected, not {row[:80]}"
            )
        yield GestureSample(str(file), label - 1, begin, end)


# --- Parts of data sets -----------------------------------------------------------------------------------------------


class Subset(View):
    """The samples of a data set (anything with `len` and `[i]`) at the positions `indices`, in this order.

    Example:
        >>> [*snncell.data.Subset(["a", "b", "c"], [2, 0])]
        ['c', 'a']
    """

    def __init__(
        self, dataset: Annotated[Any, Own()], indices: Annotated[Sequence[int] | np.ndarray[Any, Any], Own()]
    ) -> None:
        check_dataset("Subset", dataset)
        try:
            places = np.asarray(indices if isinstance(indices, (list, tuple, range, np.ndarray)) else None)
        except ValueError:  # nested lists of different lengths
            places = np.asarray(None)
        if places.ndim != 1 or (places.size and places.dtype.kind not in "iu"):
            raise ArgumentError(f"Subset: indices must be a list of positions in the data set, not {brief(indices)}.")
        count = len(dataset)
        if places.size and not (-count <= places.min() and places.max() < count):
            raise ArgumentError(
                f"Subset: indices must lie in [0, {count}), because the data set has {count} samples; they go from "
                f"{places.min()} to {places.max()}."
            )
        self.dataset, self.indices = dataset, places.astype(np.int64)

    def __repr__(self) -> str:
        return f"Subset of a {type(self.dataset).__name__}: {len(self)} of {len(self.dataset)} samples"

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[int(self.indices[position_of(self, index)])]


def random_split(
    dataset: Annotated[Any, Own()],
    lengths: Annotated[Sequence[float], Own()],
    seed: Annotated[int | None, Own()] = None,
) -> list[Any]:
    """Split a data set at random, for example into training and validation data.

    Each sample goes to exactly one part. With the same seed, a data set of the same length is split in the same way.

    Args:
        dataset: anything with `len` and `[i]`, or a tuple of arrays (inputs, ..., target) of equal length.
        lengths: the numbers of samples of the parts, which must add up to the length of the data set; or fractions
            that add up to 1. If fractions do not give whole numbers, the first parts get one more sample each.
        seed: the seed of the random order. Without it you can control the order by `snncell.set_seed`.
    Returns:
        A list with a part for each length. A part is a `Subset`, or a tuple of arrays if you passed one. `fit` takes
        both.
    Example:
        >>> x, y = ops.uniform((10, 3)), ops.arange(10)
        >>> training, validation = snncell.data.random_split((x, y), [0.8, 0.2], seed=0)
        >>> training[0].shape, validation[1].shape
        ((8, 3), (2,))
    """
    if hasattr(seed, "__len__"):
        raise ArgumentError(
            f"random_split: seed is an integer, not {brief(seed)}. To split several arrays together, pass them as one "
            f"tuple: random_split((x, y), [0.8, 0.2])."
        )
    if seed is not None and as_int(seed, "random_split", "seed") < 0:
        raise ArgumentError(f"random_split: seed is an integer of at least 0, not {seed!r}.")
    arrays = isinstance(dataset, tuple) and bool(dataset) and all(hasattr(part, "shape") for part in dataset)
    if not arrays:
        check_dataset("random_split", dataset)
    counts = {len(part) for part in dataset} if arrays else {len(dataset)}
    if len(counts) > 1:
        raise ArgumentError(
            f"random_split: the arrays have different lengths: {', '.join(map(str, sorted(counts)))}. Their first axis "
            "must be the samples, so transpose arrays with time first."
        )
    (count,) = counts
    ends = np.cumsum(_part_sizes(lengths, count))
    order = np.random.Generator(np.random.Philox(seed_or_draw(seed))).permutation(count)
    parts = np.split(order, ends[:-1])
    if arrays:
        return [tuple(array[indices] for array in dataset) for indices in parts]
    return [Subset(dataset, indices) for indices in parts]


def _part_sizes(lengths: Any, count: int) -> list[int]:
    sizes = list(lengths) if isinstance(lengths, (list, tuple, np.ndarray)) else []
    numbers = all(isinstance(size, (int, float, np.number)) and not isinstance(size, bool) for size in sizes)
    if not sizes or not numbers or not all(size >= 0 for size in sizes):
        raise ArgumentError(
            f"random_split: lengths must be a list of numbers of samples, such as "
            f"[{max(count - 10, 0)}, {min(count, 10)}], or of fractions, such as [0.8, 0.2], not {brief(lengths)}."
        )
    total = sum(sizes)
    if any(isinstance(size, (float, np.floating)) for size in sizes) and abs(total - 1.0) < 1e-6:
        whole = [math.floor(size * count + 1e-9) for size in sizes]
        for n in range(count - sum(whole)):
            whole[n % len(whole)] += 1
        return whole
    if total == count and any(size != int(size) for size in sizes):
        raise ArgumentError(
            f"random_split: lengths={brief(lengths)} are numbers of samples, because they add up to {count}; each must "
            f"be a whole number."
        )
    if total != count:
        raise ArgumentError(
            f"random_split: lengths add up to {total:g}; they must add up to the {count} samples of the data set, or "
            f"to 1 as fractions."
        )
    return [int(size) for size in sizes]
