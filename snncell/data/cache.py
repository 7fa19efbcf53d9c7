"""Samples kept on disk, so that what takes long to read or to transform is done once."""

from __future__ import annotations

import io
import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from snncell.base.arguments.kinds import Own
from snncell.data.collate import check_dataset, entries, with_entry
from snncell.data.events import Events
from snncell.data.fingerprint import fingerprint, without_padding
from snncell.errors import ArgumentError, DTypeError, TensorIndexError
from snncell.kernels.store import files
from snncell.tape.conversion import is_array, on_host
from snncell.tape.tensor import Tensor

_PER_FOLDER = 1000  # files, for the sake of file systems and of who looks into it


class Cached:
    """A data set whose samples are kept in a folder when they are first asked for, and read from there afterwards.

    They lie in a folder of their own for each digest of what they are made of: the code, settings and arrays of the
    data set and its transform, what these refer to, files that they name by size and time, and the versions of
    packages. With another transform, or another source, none of the old ones are read. What a digest does not see: a
    file that is named nowhere in the data set, or that is changed with its size and time as they were.

    A file is there whole or not at all, whoever is ended in the middle of writing it; several threads and processes may
    use a folder at once. One that is damaged is made again, with a warning (RuntimeWarning) that names it.

    A transform that draws random numbers belongs behind this, into `transform`: what is kept is drawn once.

    Args:
        dataset: anything with `len` and `[i]`. Samples are made of arrays, events, numbers, strings and None, in
            tuples, lists and dicts; arrays of other frameworks come back as NumPy's.
        folder: where; it is made if it is not there.
        key: a string, a number, or a tuple of them, in the place of the digest: for data of which it cannot be made,
            or takes long. Whoever gives one changes it whenever what the samples are made of changes.
        transform: a function of a sample's first entry after it was read; what it gives is not kept.

    Raises:
        ArgumentError: for data of which no digest can be made, or a folder that cannot be made.
        DTypeError: for samples that cannot be kept.
        OSError: from `[i]`, for a sample that cannot be written.

    Example:
        >>> import numpy as np
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> cached = snncell.data.Cached([(np.arange(3), "a"), (np.arange(5), "b")], folder.name)
        >>> cached[1], len(cached)
        ((array([0, 1, 2, 3, 4]), 'b'), 2)
        >>> folder.cleanup()
    """

    def __init__(
        self,
        dataset: Annotated[Any, Own()],
        folder: str | os.PathLike[str],
        *,
        key: Annotated[Any, Own()] = None,
        transform: Callable[..., Any] | None = None,
    ) -> None:
        check_dataset("Cached", dataset)
        if key is not None and not _is_key(key):
            raise ArgumentError(f"Cached: key is a string, a number, or a tuple of them, not a {type(key).__name__}.")
        self.dataset, self.transform = dataset, transform
        own = {"dataset": dataset} if key is None else {"key": key}
        digest = fingerprint("Cached", Path(folder), **own)
        self.folder = Path(folder) / digest[:16]
        self._digest = digest.encode()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            raise ArgumentError(f"Cached: folder {str(folder)!r:.200} cannot be made: {error!s:.200}.") from None
        for part in self.folder.glob("*"):
            files.remove_abandoned(part)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        if not -len(self) <= index < len(self):
            raise TensorIndexError(f"Cached: there are {len(self)} samples, and none of number {index}.")
        sample = self._sample(int(index) % len(self))
        if self.transform is None:
            return sample
        name, value = next(iter(entries(sample).items()), (0, None))
        return with_entry(sample, name, self.transform(value))

    def __getattr__(self, name: str) -> Any:
        if name in ("sensor_size", "classes"):
            return getattr(self.dataset, name)
        raise AttributeError(f"a Cached has no attribute {name!r}")

    def _sample(self, index: int) -> Any:
        path = self.folder / str(index // _PER_FOLDER) / f"{index % _PER_FOLDER}.sample"
        key = self._digest + str(index).encode()
        there = path.exists()  # asked first: another one may write it in between
        content = files.read_sealed(path, key)
        if content is not None:
            return _unpack_sample(content)
        if there:
            warnings.warn(
                f"Cached: {path} is damaged, or another user's; sample {index} is made again.",
                RuntimeWarning,
                stacklevel=3,
            )
        sample = self.dataset[index]
        content = _pack_sample(sample, index)
        path.parent.mkdir(exist_ok=True)
        files.write(path, files.seal(key, content))
        # As it is read from now on: of arrays of other frameworks NumPy's, and nobody else has them.
        return _unpack_sample(content)


def _is_key(key: Any) -> bool:
    """True for what tells the same of itself in any process."""
    return all(map(_is_key, key)) if isinstance(key, tuple) else isinstance(key, (str, int, float))


def _pack_sample(sample: Any, index: int) -> bytes:
    """A sample as bytes: its structure as JSON, and its arrays one after another."""
    stream = io.BytesIO()
    words = json.dumps(_structure(sample, stream, index)).encode()
    return len(words).to_bytes(8, "little") + words + stream.getvalue()


def _structure(thing: Any, stream: io.BytesIO, index: int) -> Any:
    """A part of a sample as JSON can say it; arrays go into the stream."""
    if thing is None or type(thing) in (bool, int, str):
        return thing
    if type(thing) is float:
        return {"float": thing.hex()}
    if isinstance(thing, dict):
        return {"dict": [[_structure(each, stream, index) for each in item] for item in thing.items()]}
    if type(thing) in (tuple, list):
        return {type(thing).__name__: [_structure(each, stream, index) for each in thing]}
    if is_array(thing) or isinstance(thing, (Tensor, np.generic)):
        array = np.asarray(thing) if isinstance(thing, (np.ndarray, np.generic)) else on_host(thing)
        if array.dtype.kind != "O" and (array.dtype.names or np.dtype(array.dtype.str) == array.dtype):
            np.lib.format.write_array(stream, without_padding(np.asarray(array)), allow_pickle=False)
            return {"number": 0} if isinstance(thing, np.generic) else {"array": getattr(thing, "sensor_size", None)}
    raise DTypeError(
        f"Cached: sample {index} has a {type(thing).__name__}, which is not kept; samples are arrays, events, numbers, "
        f"strings and None, in tuples, lists and dicts."
    )


def _unpack_sample(content: bytes) -> Any:
    """A sample of its bytes."""
    length = int.from_bytes(content[:8], "little")
    stream = io.BytesIO(content[8 + length :])
    return _restore_entry(json.loads(content[8 : 8 + length]), stream)


def _restore_entry(words: Any, stream: io.BytesIO) -> Any:
    if not isinstance(words, dict):
        return words
    ((kind, value),) = words.items()
    if kind == "float":
        return float.fromhex(value)
    if kind == "dict":
        return {_restore_entry(name, stream): _restore_entry(each, stream) for name, each in value}
    if kind in ("tuple", "list"):
        items = [_restore_entry(each, stream) for each in value]
        return tuple(items) if kind == "tuple" else items
    array = np.lib.format.read_array(stream, allow_pickle=False)
    if kind == "number":
        return array[()]
    if value is None:
        return array
    events = array.view(Events)
    events.sensor_size = tuple(value)
    return events
