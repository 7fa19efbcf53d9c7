"""Read a file by h5py or aedat in a separate process: `python library_reader.py KIND PATH ROOM WANTED`.

HDF5's library loops forever on some damaged files and aborts the process on others; aedat panics on some. So
`libraries.py` runs this file as a program, with a limit for its time and its memory. It imports nothing of snncell.
Standard output gets a line when the libraries are loaded, then a line of JSON, then arrays of NumPy.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import zlib
from collections.abc import Callable
from typing import Any

READY = b"ready\n"
ADDRESS_SPACE = 4 << 30  # bytes
PER_BYTE = 16  # bytes of address space more for each byte of the file
REFERENCE = 16  # bytes of an entry of variable length in its table: a length, an address, a number
DEFLATE, SHUFFLE, ECF = 1, 2, 36559  # numbers of filters
LISTED = 24  # datasets of a file that an error lists


class UnexpectedError(Exception):
    """A place in a file, and the fault there."""


def _check_dataset_size(name: str, dataset: Any, room: int) -> Any:
    """A dataset, if its numbers fit into `room` bytes and are in this file."""
    if dataset.shape is None or dataset.size * max(dataset.dtype.itemsize, 1) > room:
        raise UnexpectedError(name, f"shape {dataset.shape} of {dataset.dtype} is more than such a file can have")
    if dataset.external or dataset.is_virtual:
        raise UnexpectedError(name, "its numbers are expected in this file")
    return dataset


# --- spikes: SHD and SSC ----------------------------------------------------------------------------------------------


def read_spikes(path: str, room: int, wanted: Any) -> tuple[dict[str, Any], list[Any]]:
    """Where the spikes of each sample are, the labels, and the speakers."""
    import h5py

    with h5py.File(path, "r") as file:
        if file.id.get_create_plist().get_sizes() != (8, 8):
            raise UnexpectedError("dataset /", "addresses of 8 bytes are expected")
        spikes: list[Any] = [
            _references(h5py, file, f"/spikes/{name}", kinds, room) for name, kinds in (("times", "f"), ("units", "iu"))
        ]
        labels = _integers(h5py, file, "/labels", room)
        arrays = [spikes[0][1], spikes[1][1], labels]
        if len({len(each) for each in arrays}) != 1:
            found = f"{len(arrays[0])} in /spikes/times, {len(arrays[1])} in /spikes/units, {len(labels)} in /labels"
            raise UnexpectedError("dataset /labels", f"as many samples are expected in each of them, not {found}")
        facts = {"dtypes": [dtype for dtype, _ in spikes], "base": file.userblock_size, "keys": None}
        if "/extra/keys" in file:
            keys = _dataset(h5py, file, "/extra/keys", room)[()].reshape(-1).tolist()
            facts["keys"] = [key.decode() if isinstance(key, bytes) else str(key) for key in keys]
        if "/extra/speaker" in file:
            arrays.append(_integers(h5py, file, "/extra/speaker", room))
    return facts, arrays


def _dataset(h5py: Any, file: Any, name: str, room: int) -> Any:
    dataset = file.get(name)
    if not isinstance(dataset, h5py.Dataset):
        recording = file.get("/CD/events")
        if isinstance(recording, h5py.Dataset):
            _refuse_filters(h5py, "dataset /CD/events", recording)
        raise UnexpectedError(
            f"dataset {name}",
            f"a dataset is expected, as SHD has it, and there is none; read_events reads other layouts by "
            f'columns={{"t": "events/t", "x": "events/x"}}. {_contents(h5py, file)}',
        )
    return _check_dataset_size(f"dataset {name}", dataset, room)


def _integers(h5py: Any, file: Any, name: str, room: int) -> Any:
    dataset = _dataset(h5py, file, name, room)
    if dataset.dtype.kind not in "iu" or dataset.ndim != 1:
        found = f"one integer a sample is expected, not {dataset.dtype} of shape {dataset.shape}"
        raise UnexpectedError(f"dataset {name}", found)
    return dataset[()].astype("<i8")


def _references(h5py: Any, file: Any, name: str, kinds: str, room: int) -> tuple[str, Any]:
    """The type of the numbers, and the table (samples, 16 bytes) of the places of each sample's numbers."""
    import numpy as np

    dataset, place = _dataset(h5py, file, name, room // 2), f"dataset {name}"
    base = h5py.check_vlen_dtype(dataset.dtype)
    if base is None or np.dtype(base).kind not in kinds or dataset.ndim != 1:
        kind = {"f": "floats, in seconds,", "iu": "integers"}[kinds]
        raise UnexpectedError(place, f"a list of {kind} of any length a sample is expected, not {dataset.dtype}")
    (samples,) = dataset.shape
    table = np.zeros((samples, REFERENCE), np.uint8)
    if dataset.chunks is not None:
        (step,) = dataset.chunks
        if step * REFERENCE > room:
            raise UnexpectedError(place, f"chunks of {step} samples are more than such a file can have")
        starts: list[int] = []
        # Not get_chunk_info(number), which walks through all chunks before that one.
        dataset.id.chunk_iter(lambda chunk: starts.append(chunk.chunk_offset[0]))
        for start in starts:
            mask, packed = dataset.id.read_direct_chunk((start,))
            entries = np.frombuffer(_undo_filters(place, dataset, packed, mask, step * REFERENCE), np.uint8)
            table[start : start + step] = entries.reshape(step, REFERENCE)[: max(samples - start, 0)]
    elif dataset.id.get_offset() is not None:
        with open(file.filename, "rb") as raw:
            raw.seek(dataset.id.get_offset())
            chunk = raw.read(samples * REFERENCE)
        if len(chunk) != samples * REFERENCE:
            raise UnexpectedError(place, f"{samples} entries of {REFERENCE} bytes are expected, and the file ends")
        table[:] = np.frombuffer(chunk, np.uint8).reshape(samples, REFERENCE)
    elif dataset.id.get_create_plist().get_layout() == h5py.h5d.COMPACT and samples:
        raise UnexpectedError(place, "a contiguous or chunked dataset is expected, not a compact one")
    return np.dtype(base).str, table


def _undo_filters(place: str, dataset: Any, chunk: bytes, mask: int, size: int) -> bytes:
    """A chunk of a table with its filters undone, from the last that was applied to the first."""
    import numpy as np

    settings = dataset.id.get_create_plist()
    for number in reversed(range(settings.get_nfilters())):
        code = settings.get_filter(number)[0]
        if mask >> number & 1:
            continue
        if code == DEFLATE:
            chunk = zlib.decompressobj().decompress(chunk, size + 1)
        elif code == SHUFFLE:
            chunk = np.frombuffer(chunk, np.uint8).reshape(-1, len(chunk) // REFERENCE).T.tobytes()
        else:
            raise UnexpectedError(place, f"it is packed by filter {code}: repack it by h5repack -f GZIP=1, or -f NONE")
    if len(chunk) != size:
        raise UnexpectedError(place, f"chunks of {size} bytes are expected, not of {len(chunk)}")
    return chunk


# --- columns of any HDF5 file -----------------------------------------------------------------------------------------


def read_columns(path: str, room: int, wanted: Any) -> tuple[dict[str, Any], list[Any]]:
    """The columns at the paths `wanted`: a dataset, or a field or the number of a column behind a dataset's path."""
    import h5py

    with contextlib.suppress(ImportError):  # it registers filters such as Blosc, if it is installed
        importlib.import_module("hdf5plugin")
    arrays: list[Any] = []
    with h5py.File(path, "r") as file:
        for name in wanted:
            arrays.append(_column(h5py, file, name, room))
            room -= arrays[-1].nbytes
    return {}, arrays


def _column(h5py: Any, file: Any, name: str, room: int) -> Any:
    parts = [part for part in name.split("/") if part]
    for length in range(len(parts), 0, -1):
        dataset = file.get("/".join(parts[:length]))
        if isinstance(dataset, h5py.Dataset):
            break
    else:
        raise UnexpectedError("", f"there is no dataset {name!r}. {_contents(h5py, file)}")
    rest, place = parts[length:], f"dataset /{'/'.join(parts[:length])}"
    if dataset.file.filename != file.filename:
        raise UnexpectedError(place, "its numbers are expected in this file")
    _refuse_filters(h5py, place, dataset)
    if dataset.dtype.names is not None and len(rest) == 1 and rest[0] in dataset.dtype.names:
        _check_dataset_size(place, dataset, room)
        column = dataset.fields(rest[0])[()]
    elif dataset.ndim == 2 and len(rest) == 1 and rest[0].isdecimal() and int(rest[0]) < dataset.shape[1]:
        column = _check_dataset_size(place, dataset, room)[:, int(rest[0])]
    elif rest:
        raise UnexpectedError(place, f"it has no field or column {'/'.join(rest)!r}. {_contents(h5py, file)}")
    else:
        if dataset.dtype.names is None and dataset.shape is not None and dataset.size == max(dataset.shape, default=1):
            column = _check_dataset_size(place, dataset, room)[()].reshape(-1)  # MATLAB's vectors have two axes
        else:
            raise UnexpectedError(place, f"numbers along one axis are expected. {_contents(h5py, file)}")
    if column.dtype.kind not in "iubf" or column.ndim != 1:
        raise UnexpectedError(place, f"real numbers along one axis are expected, not {column.dtype}")
    return column


def _refuse_filters(h5py: Any, place: str, dataset: Any) -> None:
    """Refuse data that are packed by a filter that this HDF5 library does not have, and name the remedy."""
    settings = dataset.id.get_create_plist()
    for number in range(settings.get_nfilters()):
        code, _, _, name = settings.get_filter(number)
        if h5py.h5z.filter_avail(code):
            continue
        if code == ECF:
            raise UnexpectedError(place, _PROPHESEE)
        words = name.decode("utf-8", "replace")[:40] or "no name"
        found = f"it is packed by filter {code} ({words}), which h5py does not have: pip install hdf5plugin"
        raise UnexpectedError(place, found)


_PROPHESEE = (
    "it is packed by Prophesee's codec ECF: convert the file by metavision_file_to_csv of OpenEB, and read the CSV, or "
    "set HDF5_PLUGIN_PATH to the folder of their plugin"
)


def _contents(h5py: Any, file: Any) -> str:
    """The datasets of a file, as paths that `columns` takes."""
    found: list[str] = []

    def note(name: str, thing: Any) -> Any:
        if isinstance(thing, h5py.Dataset):
            shape = "" if thing.shape is None else "x".join(map(str, thing.shape))
            if thing.dtype.names is not None:
                found.extend(f"{name[:60]}/{field[:40]} ({shape})" for field in thing.dtype.names[:8])
            elif thing.ndim == 2 and 1 < thing.shape[1] <= 8:
                found.append(f"{name[:60]}/0 to {name[:60]}/{thing.shape[1] - 1} ({thing.dtype} {shape})")
            else:
                found.append(f"{name[:60]} ({str(thing.dtype)[:20]} {shape})")
        return True if len(found) > LISTED else None  # None goes on

    file.visititems(note)
    more = ", ..." if len(found) > LISTED else ""
    return f"The file has {', '.join(found[:LISTED]) or 'no datasets'}{more}"


# --- AEDAT 4 ----------------------------------------------------------------------------------------------------------


def read_aedat_4(path: str, room: int, wanted: Any) -> tuple[dict[str, Any], list[Any]]:
    """The sensor and the columns t, x, y, p of the one stream of events."""
    import aedat
    import numpy as np

    decoder = aedat.Decoder(path)
    streams = decoder.id_to_stream()
    events = [number for number, stream in streams.items() if stream.get("type") == "events"]
    if len(events) != 1:
        kinds = ", ".join(f"{number} of {stream.get('type')}" for number, stream in sorted(streams.items())) or "none"
        raise UnexpectedError("", f"one stream of events is expected, and its streams are {kinds}")
    packets = []
    for packet in decoder:
        if packet["stream_id"] == events[0]:
            packets.append(packet["events"])
            room -= packets[-1].nbytes
            if room < 0:
                raise UnexpectedError("", "it unpacks to more than such a file can have: it is damaged, or a bomb")
    stream = streams[events[0]]
    columns = [np.concatenate([np.zeros(0, "u1"), *(each[name] for each in packets)]) for name in ("t", "x", "y", "on")]
    return {"sensor": [stream["width"], stream["height"], 2]}, columns


READERS: dict[str, Callable[[str, int, Any], tuple[dict[str, Any], list[Any]]]] = {
    "spikes": read_spikes,
    "columns": read_columns,
    "aedat": read_aedat_4,
}
LIBRARIES = {"aedat": "aedat"}  # of the others h5py


class _Pipe:
    """A stream for `np.save`, which would look for a position in a real file."""

    def write(self, data: Any) -> int:
        return sys.stdout.buffer.write(data)


def main(kind: str, path: str, room: int, wanted: Any) -> None:
    """Write the facts as a line of JSON, and then the arrays."""
    importlib.import_module(LIBRARIES.get(kind, "h5py"))
    import numpy as np

    out = sys.stdout.buffer
    out.write(READY)
    out.flush()
    with contextlib.suppress(ImportError, ValueError, OSError):  # not on all systems
        import resource

        most = ADDRESS_SPACE + PER_BYTE * os.path.getsize(path)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    arrays: list[Any] = []
    try:
        facts, arrays = READERS[kind](path, room, wanted)
    except UnexpectedError as error:
        facts = {"error": error.args}
    except BaseException as error:  # a panic of aedat is no Exception
        facts = {"error": ("", f"cannot be read: {type(error).__name__}: {error}"[:500])}
    out.write(json.dumps(facts).encode() + b"\n")
    for array in arrays:
        np.save(_Pipe(), array, allow_pickle=False)
    out.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4]))
