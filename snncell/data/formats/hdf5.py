"""HDF5 event files by h5py: SHD and SSC with many samples per file, and columns at any path.

HDF5's library trusts a file. The reader therefore checks shapes, dtypes, chunks, filters and links first, and refuses
arrays larger than a file of this length can hold.
"""

from __future__ import annotations

import contextlib
import math
import os
from typing import Any

import numpy as np

from snncell.base.signals import import_once
from snncell.data.events import Events
from snncell.data.formats import reading
from snncell.data.formats.reading import Array, TableLayout, contents, fault, foreign_errors, in_microseconds, recording

SIGNATURE = b"\x89HDF\r\n\x1a\n"
USER_BLOCKS = (0, *(512 << n for n in range(8)))  # possible positions of the superblock
CHANNELS = (700, 1, 1)
CLASSES = 1 << 16  # limit for a file without class names, because labels are uint16 and data.SHD makes the names
MICROSECONDS = 1e6  # per second
ECF = 36559  # id of Prophesee's filter
LISTED = 24  # at most this many datasets are listed in an error


def is_hdf5(data: bytes) -> bool:
    """True if there is a superblock, at the beginning or after a user block."""
    return any(data.startswith(SIGNATURE, at) for at in USER_BLOCKS)


def read(path: Any, sensor: Any, layout: TableLayout) -> Events:
    """Read the columns at the paths of `layout`, or the one sample of a file in SHD's layout."""
    if layout.columns is not None:
        with contextlib.suppress(ImportError):  # if installed, it registers filters such as Blosc
            import_once("hdf5plugin")
        columns: dict[str, Array] = {}
        with _open(path) as file, foreign_errors(path, ""):
            for own, place in layout.columns.items():
                used = sum(column.nbytes for column in columns.values())
                columns[own] = _column(path, file, str(place), used)
        return recording(path, in_microseconds(columns, layout.time_unit), sensor)
    spikes = SpikeFile(path)
    if len(spikes.labels) != 1:
        found = f"one recording is expected, but it has {len(spikes.labels)}: use snncell.data.SHD"
        raise fault(path, "dataset /labels", found)
    return spikes.sample(0, sensor)


class SpikeFile:
    """A file in SHD's layout: labels, spikes, and class names (`keys`) and `speakers`, which are None if missing.

    The file stays open after the first sample, because opening takes longer than reading one. A forked process can use
    it, because h5py forks under its lock, and HDF5 reads without a file position; a pickle leaves it out.
    """

    def __init__(self, path: Any) -> None:
        self.path = os.path.abspath(path)
        self.keys: tuple[str, ...] | None = None
        self.speakers: Array | None = None
        self._opened: tuple[Any, dict[str, Any]] | None = None
        with _open(path) as file, foreign_errors(path, ""):
            counts = [len(dataset) for dataset in _spikes_of(path, file).values()]
            self.labels = _integers(path, file, "/labels")
            if {*counts} != {len(self.labels)}:
                found = f"{counts[0]} in /spikes/times, {counts[1]} in /spikes/units, {len(self.labels)} in /labels"
                raise fault(path, "dataset /labels", f"equally many samples are expected in each of them, not {found}")
            if "/extra/keys" in file:
                self.keys = _names(path, file)
            if "/extra/speaker" in file:
                self.speakers = _integers(path, file, "/extra/speaker")
        known = CLASSES if self.keys is None else len(self.keys)
        wrong = (self.labels < 0) | (self.labels >= known)
        if wrong.any():
            number = int(wrong.argmax())
            found = f"a label from 0 to {known - 1} is expected, not {self.labels[number]}"
            raise fault(path, f"dataset /labels, index {number}", found)
        if self.speakers is not None and len(self.speakers) != len(self.labels):
            found = f"{len(self.labels)} speakers are expected, not {len(self.speakers)}"
            raise fault(path, "dataset /extra/speaker", found)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}

    def sample(self, index: int, sensor: Any = CHANNELS) -> Events:
        """The events of a sample: t rounded to microseconds, x the channel, p 0."""
        times, units = self._read("times", index), self._read("units", index)
        place = f"dataset /spikes/times, index {index}"
        if len(times) != len(units):
            raise fault(
                self.path, place, f"equally many times and units are expected, not {len(times)} and {len(units)}"
            )
        t = times.astype(np.float64)
        if not np.isfinite(t).all() or (abs(t) >= 1e9).any():
            raise fault(self.path, place, "times in seconds are expected, but some are not finite")
        t = np.rint(t * MICROSECONDS).astype(np.int64)
        columns = {"t": t, "x": units, "p": np.zeros(len(units), np.uint8)}
        place = f"dataset /spikes/units, index {index}, spike"
        return recording(self.path, columns, sensor, lambda number: f"{place} {number}", CHANNELS)

    def _read(self, name: str, index: int) -> Array:
        with foreign_errors(self.path, f"dataset /spikes/{name}, index {index}"):
            if self._opened is None:
                file = _open(self.path)
                self._opened = file, _spikes_of(self.path, file)
            numbers: Array = self._opened[1][name][index]
        return numbers


def _open(path: Any) -> Any:
    try:
        h5py = import_once("h5py")
    except ImportError:
        raise fault(path, "", "HDF5 needs h5py: pip install snncell[events]") from None
    data = contents(path, USER_BLOCKS[-1] + len(SIGNATURE))
    if not is_hdf5(data):
        gzip = ", and it is compressed by gzip: decompress it first" if data.startswith(b"\x1f\x8b") else ""
        raise fault(path, "byte 0", f"an HDF5 file is expected{gzip}")
    with foreign_errors(path, ""):
        return h5py.File(path, "r")


def _spikes_of(path: Any, file: Any) -> dict[str, Any]:
    """The two spike datasets: for each sample, a list of any length."""
    h5py, found = import_once("h5py"), {}
    for name, kinds, words in (("times", "f", "floats, in seconds,"), ("units", "iu", "integers")):
        dataset = found[name] = _dataset(path, file, f"/spikes/{name}")
        base = h5py.check_vlen_dtype(dataset.dtype)
        if base is None or np.dtype(base).kind not in kinds or dataset.ndim != 1:
            expected = f"a list of {words} of any length per sample is expected, not {dataset.dtype}"
            raise fault(path, f"dataset /spikes/{name}", expected)
    return found


def _dataset(path: Any, file: Any, name: str) -> Any:
    dataset = file.get(name)
    if not _is_dataset(dataset):
        of_camera = file.get("/CD/events")
        if _is_dataset(of_camera):
            _check(path, file, "dataset /CD/events", of_camera)
        found = (
            f"a dataset as in SHD is expected, but it is missing; to read another layout, pass its paths, for example "
            f'columns={{"t": "events/t", "x": "events/x"}}. {_contents(file)}'
        )
        raise fault(path, f"dataset {name}", found)
    return _check(path, file, f"dataset {name}", dataset)


def _integers(path: Any, file: Any, name: str) -> Array:
    dataset = _dataset(path, file, name)
    if dataset.dtype.kind not in "iu" or dataset.ndim != 1:
        found = f"one integer per sample is expected, not {dataset.dtype} of shape {dataset.shape}"
        raise fault(path, f"dataset {name}", found)
    with foreign_errors(path, f"dataset {name}"):
        whole: Array = dataset[()].astype(np.int64)
    return whole


def _names(path: Any, file: Any) -> tuple[str, ...]:
    dataset = _dataset(path, file, "/extra/keys")
    if dataset.dtype.hasobject and import_once("h5py").check_string_dtype(dataset.dtype) is None:
        raise fault(path, "dataset /extra/keys", f"text is expected, not {dataset.dtype}")
    with foreign_errors(path, "dataset /extra/keys"):
        names = dataset[()].reshape(-1).tolist()
        return tuple(name.decode() if isinstance(name, bytes) else str(name) for name in names)


# --- Columns of any HDF5 file -----------------------------------------------------------------------------------------


def _column(path: Any, file: Any, name: str, used: int) -> Array:
    parts = [part for part in name.split("/") if part]
    for length in range(len(parts), 0, -1):
        dataset = file.get("/".join(parts[:length]))
        if _is_dataset(dataset):
            break
    else:
        raise fault(path, "", f"there is no dataset {name!r}. {_contents(file)}")
    rest, place = parts[length:], f"dataset /{'/'.join(parts[:length])}"
    _check(path, file, place, dataset, used)
    with foreign_errors(path, place):
        column = _read_column(path, file, place, dataset, rest)
    if column.dtype.kind not in "iubf" or column.ndim != 1:
        raise fault(path, place, f"real numbers along one axis are expected, not {column.dtype}")
    return column


def _read_column(path: Any, file: Any, place: str, dataset: Any, rest: list[str]) -> Array:
    """The column of a dataset with the field name or index in `rest`; if `rest` is empty, the dataset itself."""
    column: Array
    if dataset.dtype.names is not None and len(rest) == 1 and rest[0] in dataset.dtype.names:
        column = dataset.fields(rest[0])[()]
    elif dataset.ndim == 2 and len(rest) == 1 and rest[0].isdecimal() and int(rest[0]) < dataset.shape[1]:
        column = dataset[:, int(rest[0])]
    elif rest:
        raise fault(path, place, f"it has no field or column {'/'.join(rest)!r}. {_contents(file)}")
    elif dataset.dtype.names is None and dataset.size == max(dataset.shape, default=1):
        column = dataset[()].reshape(-1)  # MATLAB's vectors have two axes
    else:
        raise fault(path, place, f"numbers along one axis are expected. {_contents(file)}")
    return column


# --- Checks before reading --------------------------------------------------------------------------------------------


def _is_dataset(thing: Any) -> bool:
    return isinstance(thing, import_once("h5py").Dataset)


def _check(path: Any, file: Any, place: str, dataset: Any, used: int = 0) -> Any:
    """Refuse datasets outside of this file, with unknown filters, or too large after `used` bytes of this file."""
    if dataset.file.filename != file.filename or dataset.external or dataset.is_virtual:
        raise fault(path, place, "its numbers must be stored in this file, not in another one")
    filters, settings = import_once("h5py").h5z, dataset.id.get_create_plist()
    for number in range(settings.get_nfilters()):
        code, _, _, name = settings.get_filter(number)
        if filters.filter_avail(code):
            continue
        if code == ECF:
            found = (
                "it is compressed by Prophesee's codec ECF: convert the file by metavision_file_to_csv of OpenEB and "
                "read the CSV, or set HDF5_PLUGIN_PATH to the folder of their plugin"
            )
            raise fault(path, place, found)
        words = name.decode("utf-8", "replace")[:40] or "no name"
        found = f"it is compressed by filter {code} ({words}), which h5py does not have: pip install hdf5plugin"
        raise fault(path, place, found)
    room = reading.ROOM + reading.PACKED * os.path.getsize(path) - used
    size = max(dataset.dtype.itemsize, dataset.id.get_type().get_size())  # one of them may be the size of a pointer
    if dataset.shape is None or dataset.size * size > room:
        raise fault(path, place, f"shape {dataset.shape} of {dataset.dtype} is too large for a file of this length")
    if math.prod(dataset.chunks or ()) * size > room:
        raise fault(path, place, f"chunks {dataset.chunks} of {dataset.dtype} are too large for a file of this length")
    return dataset


def _contents(file: Any) -> str:
    """List the datasets of a file, as paths for `columns`."""
    found: list[str] = []

    def note(name: str, thing: Any) -> Any:
        if _is_dataset(thing):
            shape = "" if thing.shape is None else "x".join(map(str, thing.shape))
            if thing.dtype.names is not None:
                found.extend(f"{name[:60]}/{field[:40]} ({shape})" for field in thing.dtype.names[:8])
            elif thing.ndim == 2 and 1 < thing.shape[1] <= 8:
                found.append(f"{name[:60]}/0 to {name[:60]}/{thing.shape[1] - 1} ({thing.dtype} {shape})")
            else:
                found.append(f"{name[:60]} ({str(thing.dtype)[:20]} {shape})")
        return True if len(found) > LISTED else None  # None continues the visit

    file.visititems(note)
    more = ", ..." if len(found) > LISTED else ""
    return f"The file has {', '.join(found[:LISTED]) or 'no datasets'}{more}"
