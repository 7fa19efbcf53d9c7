"""Data sets of events as they lie on the disk: `ds[i]` is (events, label)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from snncell.arguments.kinds import Own
from snncell.arguments.vocabulary import Path
from snncell.data.events import Events, sensor_of
from snncell.data.formats import aedat, bin, gesture, hdf5, read_events
from snncell.data.formats.columns import layout_of
from snncell.data.formats.reading import Array, contents, fault
from snncell.data.samples import Recordings, Samples, Transform, part_of


class EventFolder(Recordings):
    """A folder with a folder for each class, of recordings in any of the formats that `read_events` reads.

    Classes are numbered in the order of their names; hidden files are passed over.

    Args:
        folder: the folder of the classes' folders.
        sensor_size: (W, H, P). If it is not given, all recordings are read when it is first asked for, and it is the
            smallest that holds them.
        columns, time_unit: of the recordings, if they are tables, as `read_events` takes them.
        transform: a function of the events that gives what `[i]` gives in their place.

    Attributes:
        classes: the names of the folders.
        labels: of all samples, int64.
        paths: of all samples.

    Raises:
        FileError: if there is no such folder, or there are no recordings; and from `[i]` for a damaged one.
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
        super().__init__(folder, (), None, transform)
        if sensor_size is not None:
            self.sensor_size = sensor_of("EventFolder", sensor_size)

    def __getattr__(self, name: str) -> Any:
        if name != "sensor_size" or "paths" not in vars(self):
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        sizes = [read_events(path, **self._layout._asdict()).sensor_size for path in self.paths]
        self.sensor_size = sensor_of("EventFolder", [max(each) for each in zip(*sizes, strict=True)])
        return self.sensor_size

    def _events(self, number: int) -> Events:
        return read_events(self.paths[number], self.sensor_size, **self._layout._asdict())


class NMNIST(Recordings):
    """N-MNIST: 60,000 and 10,000 handwritten digits, shown in three saccades to a camera of 34 x 34 pixels.

    Args:
        folder: with the folders Train and Test, as the archives unpack to, or with the digits' folders 0 to 9.
        train: the part that is wanted; by default that for training, if there are two.
        transform: a function of the events that gives what `[i]` gives in their place.

    Attributes:
        sensor_size: (34, 34, 2).
        classes: "0" to "9".
        labels: of all samples, int64.
        paths: of all samples.

    Raises:
        FileError: if there is no such folder, or there are no recordings; and from `[i]` for a damaged one.

    Source: Orchard et al., Converting static image datasets to spiking neuromorphic datasets using saccades, 2015.
    """

    sensor_size = bin.NMNIST

    def __init__(self, folder: Path, train: bool | None = None, *, transform: Transform | None = None) -> None:
        part = part_of(folder, ("Train", "train"), ("Test", "test"), train)
        super().__init__(part, (".bin",), tuple("0123456789"), transform)

    def _events(self, number: int) -> Events:
        path = self.paths[number]
        return bin.read(path, contents(path), self.sensor_size)


class NCaltech101(Recordings):
    """N-Caltech101: 8,709 images of 101 classes of things, shown in three saccades to a camera.

    The recordings are of different sizes, none larger than 240 x 180; their events stay at the pixels where they were.

    Args:
        folder: with a folder for each class.
        transform: a function of the events that gives what `[i]` gives in their place.

    Attributes:
        sensor_size: (240, 180, 2).
        classes: the names of the folders, in order.
        labels: of all samples, int64.
        paths: of all samples.

    Raises:
        FileError: if there is no such folder, or there are no recordings; and from `[i]` for a damaged one.

    Source: Orchard et al., Converting static image datasets to spiking neuromorphic datasets using saccades, 2015.
    """

    sensor_size = (240, 180, 2)

    def __init__(self, folder: Path, *, transform: Transform | None = None) -> None:
        super().__init__(folder, (".bin",), None, transform)

    def _events(self, number: int) -> Events:
        path = self.paths[number]
        return bin.read(path, contents(path), self.sensor_size)


class CIFAR10DVS(Recordings):
    """CIFAR10-DVS: 10,000 images of CIFAR-10, moved before a DVS128, as its AEDAT 2.0 files have them.

    x and y are the addresses in the file, x = address >> 1 & 127 and y = address >> 8 & 127, and p is its lowest bit.
    SpikingJelly has x = 127 - y, y = 127 - x and p = 1 - p of these.

    Args:
        folder: with a folder for each class, from airplane to truck.
        transform: a function of the events that gives what `[i]` gives in their place.

    Attributes:
        sensor_size: (128, 128, 2).
        classes: the ten of CIFAR-10, whichever of them are there.
        labels: of all samples, int64.
        paths: of all samples.

    Raises:
        FileError: if there is no such folder, or there are no recordings; and from `[i]` for a damaged one.

    Source: Li et al., CIFAR10-DVS: an event-stream dataset for object classification, 2017.
    """

    sensor_size = aedat.DVS128

    def __init__(self, folder: Path, *, transform: Transform | None = None) -> None:
        names = "airplane automobile bird cat deer dog frog horse ship truck"
        super().__init__(folder, (), tuple(names.split()), transform)


class ASLDVS(Recordings):
    """ASL-DVS: 100,800 recordings of 24 letters of American Sign Language, `.mat` files of a DAVIS240.

    Args:
        folder: with a folder for each letter, from a to y without j.
        transform: a function of the events that gives what `[i]` gives in their place.

    Attributes:
        sensor_size: (240, 180, 2).
        classes: the 24 letters, whichever of them are there.
        labels: of all samples, int64.
        paths: of all samples.

    Raises:
        FileError: if there is no such folder, or there are no recordings; and from `[i]` for a damaged one.

    Source: Bi et al., Graph-based object classification for neuromorphic vision sensing, 2019.
    """

    sensor_size = (240, 180, 2)

    def __init__(self, folder: Path, *, transform: Transform | None = None) -> None:
        super().__init__(folder, (".mat",), tuple("abcdefghiklmnopqrstuvwxy"), transform)


class DVSGesture(Samples):
    """DVS128 Gesture: 11 gestures of 29 people under three lights, before a DVS128.

    Of the original, AEDAT 3.1, each line of a `_labels.csv` is a sample: the events of its recording from startTime up
    to below endTime, whose times stay what they are in the recording. Of tonic's mirror, a sample is a file
    `userNN_lighting/<label>.npy` with columns x, y, p and t in milliseconds; of SpikingJelly's, a file `.npz` in a
    folder for each label.

    Args:
        folder: with the recordings, or with the folders of people or labels; or one with a part for training and one
            for testing in it.
        train: the part that is wanted; by default that for training, if there are two. They are the folders train and
            test, or ibmGestureTrain and ibmGestureTest, or the recordings that trials_to_train.txt and
            trials_to_test.txt list.
        transform: a function of the events that gives what `[i]` gives in their place.

    Attributes:
        sensor_size: (128, 128, 2).
        classes: the 11 gestures; label 0 is class 1 of the files.
        labels: of all samples, int64.

    Raises:
        FileError: if there are no recordings, or labels that make no sense; and from `[i]` for a damaged one.

    Source: Amir et al., A low power, fully event-based gesture recognition system, 2017.
    """

    sensor_size = aedat.DVS128
    classes = gesture.CLASSES

    def __init__(self, folder: Path, train: bool | None = None, *, transform: Transform | None = None) -> None:
        part = part_of(folder, ("train", "ibmGestureTrain"), ("test", "ibmGestureTest"), train)
        self.samples = tuple(gesture.samples(part, train))
        if not self.samples:
            found = "recordings .aedat with _labels.csv, or .npy or .npz by label, are expected, and there are none"
            raise fault(folder, "", found)
        super().__init__([each.label for each in self.samples], transform)

    def _events(self, number: int) -> Events:
        return gesture.read(self.samples[number], self.sensor_size)


class SHD(Samples):
    """Spiking Heidelberg Digits, and Spiking Speech Commands: spoken words as spikes of 700 channels of a cochlea.

    Times are float16 seconds in the files, and int64 microseconds here: their resolution is 122 microseconds from
    0.125 s on, and doubles at each doubling of the time: 488 microseconds from 0.5 s on, 977 from 1 s on. Events have
    no y, and p = 0.

    The file is open from the first `[i]` until the data set is deleted. You can pickle a data set, fork the process,
    and use it from several threads.

    Args:
        path: the file, as `shd_train.h5` or `ssc_valid.h5`, unpacked.
        transform: a function of the events that gives what `[i]` gives in their place.

    Attributes:
        sensor_size: (700, 1, 1).
        classes: the names in `/extra/keys`, or the numbers of the labels, below 65,536, if the file has none.
        labels: of all samples, int64.
        speakers: of all samples, int64, or None if the file has none.

    Raises:
        FileError: without h5py; for a file that is missing or damaged; it says which dataset, and which index in it.

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
