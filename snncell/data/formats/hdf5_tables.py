"""Run as a program: the tables of an HDF5 file of spikes, by h5py, written to standard output.

HDF5's library loops for ever over some damaged files, and ends the process over others, so that it runs in a process of
its own, which `hdf5.py` gives up after a while. It imports nothing of snncell.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import zlib
from typing import Any

READY = b"ready\n"
ADDRESS_SPACE = 4 << 30  # bytes
REFERENCE = 16  # bytes of what an entry of variable length has in its table: a length, an address, a number
DEFLATE, SHUFFLE = 1, 2  # numbers of filters


class UnexpectedError(Exception):
    """A place in a file, and what is wrong there."""


def tables(file: Any, room: int) -> tuple[dict[str, Any], list[Any]]:
    """Facts of a file, and arrays: where the spikes of its samples are, their labels, their speakers."""
    import h5py

    if file.id.get_create_plist().get_sizes() != (8, 8):
        raise UnexpectedError("/", "addresses of 8 bytes are expected")
    spikes: list[Any] = [
        _references(h5py, file, f"/spikes/{name}", kinds, room) for name, kinds in (("times", "f"), ("units", "iu"))
    ]
    labels = _integers(h5py, file, "/labels", room)
    arrays = [spikes[0][1], spikes[1][1], labels]
    if len({len(each) for each in arrays}) != 1:
        found = f"{len(arrays[0])} in /spikes/times, {len(arrays[1])} in /spikes/units, {len(labels)} in /labels"
        raise UnexpectedError("/labels", f"as many samples are expected in each of them, not {found}")
    facts: dict[str, Any] = {"dtypes": [dtype for dtype, _ in spikes], "base": file.userblock_size, "keys": None}
    if "/extra/keys" in file:
        keys = _small(h5py, file, "/extra/keys", room)
        facts["keys"] = [key.decode() if isinstance(key, bytes) else str(key) for key in keys[()].reshape(-1).tolist()]
    if "/extra/speaker" in file:
        arrays.append(_integers(h5py, file, "/extra/speaker", room))
    return facts, arrays


def _small(h5py: Any, file: Any, name: str, room: int) -> Any:
    """A dataset whose numbers fit into `room` bytes."""
    dataset = file.get(name)
    if not isinstance(dataset, h5py.Dataset):
        raise UnexpectedError(name, "a dataset is expected, and there is none")
    if dataset.shape is None or dataset.size * max(dataset.dtype.itemsize, 1) > room:
        raise UnexpectedError(name, f"shape {dataset.shape} of {dataset.dtype} is more than such a file can have")
    if dataset.external or dataset.is_virtual:
        raise UnexpectedError(name, "its numbers are expected in this file")
    return dataset


def _integers(h5py: Any, file: Any, name: str, room: int) -> Any:
    dataset = _small(h5py, file, name, room)
    if dataset.dtype.kind not in "iu" or dataset.ndim != 1:
        raise UnexpectedError(name, f"one integer a sample is expected, not {dataset.dtype} of shape {dataset.shape}")
    return dataset[()].astype("<i8")


def _references(h5py: Any, file: Any, name: str, kinds: str, room: int) -> tuple[str, Any]:
    """The type of the numbers, and the table (samples, 16 bytes) of where those of each sample are."""
    import numpy as np

    dataset = _small(h5py, file, name, room // 2)
    base = h5py.check_vlen_dtype(dataset.dtype)
    if base is None or np.dtype(base).kind not in kinds or dataset.ndim != 1:
        kind = {"f": "floats, in seconds,", "iu": "integers"}[kinds]
        raise UnexpectedError(name, f"a list of {kind} of any length a sample is expected, not {dataset.dtype}")
    (samples,) = dataset.shape
    table = np.zeros((samples, REFERENCE), np.uint8)
    if dataset.chunks is not None:
        (step,) = dataset.chunks
        if step * REFERENCE > room:
            raise UnexpectedError(name, f"chunks of {step} samples are more than such a file can have")
        for number in range(dataset.id.get_num_chunks()):
            start = dataset.id.get_chunk_info(number).chunk_offset[0]
            mask, packed = dataset.id.read_direct_chunk((start,))
            entries = np.frombuffer(_unpacked(name, dataset, packed, mask, step * REFERENCE), np.uint8)
            table[start : start + step] = entries.reshape(step, REFERENCE)[: max(samples - start, 0)]
    elif dataset.id.get_offset() is not None:
        with open(file.filename, "rb") as raw:
            raw.seek(dataset.id.get_offset())
            chunk = raw.read(samples * REFERENCE)
        if len(chunk) != samples * REFERENCE:
            raise UnexpectedError(name, f"{samples} entries of {REFERENCE} bytes are expected, and the file ends")
        table[:] = np.frombuffer(chunk, np.uint8).reshape(samples, REFERENCE)
    elif dataset.id.get_create_plist().get_layout() == h5py.h5d.COMPACT and samples:
        raise UnexpectedError(name, "a contiguous or chunked dataset is expected, not a compact one")
    return np.dtype(base).str, table


def _unpacked(name: str, dataset: Any, chunk: bytes, mask: int, size: int) -> bytes:
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
            raise UnexpectedError(name, f"it is packed by filter {code}: repack it by h5repack -f GZIP=1, or -f NONE")
    if len(chunk) != size:
        raise UnexpectedError(name, f"chunks of {size} bytes are expected, not of {len(chunk)}")
    return chunk


def main(path: str, room: int) -> None:
    """Write facts as a line of JSON, and arrays of NumPy behind it."""
    import h5py
    import numpy as np

    out = sys.stdout.buffer
    out.write(READY)
    out.flush()
    with contextlib.suppress(ImportError, ValueError, OSError):  # not everywhere
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    arrays: list[Any] = []
    try:
        with h5py.File(path, "r") as file:
            facts, arrays = tables(file, room)
    except UnexpectedError as error:
        facts = {"error": error.args}
    except Exception as error:
        facts = {"error": ("", f"HDF5 cannot read it: {type(error).__name__}: {error}"[:500])}
    stream = io.BytesIO()
    for array in arrays:
        np.save(stream, array, allow_pickle=False)
    out.write(json.dumps(facts).encode() + b"\n" + stream.getvalue())
    out.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
