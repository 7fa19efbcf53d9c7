"""Samples of data sets: entries, random numbers, slices of long recordings, padding and collation of batches."""

from __future__ import annotations

import inspect
import operator
import random
import sys
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import accumulate
from typing import Annotated, Any, Literal

import numpy as np

from snncell.base.arguments.kinds import AtLeastOne, Count, Own, Size, Within
from snncell.data.events import times_of
from snncell.data.frames import grid_length, join_event_lists
from snncell.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError, TensorIndexError
from snncell.kernels.space import HOST
from snncell.ops.random import randint, replaying
from snncell.tape.event_lists import EventLists
from snncell.tape.state import settings
from snncell.tape.structure import is_array, on_host
from snncell.tape.tensor import Tensor, to_array

__all__ = ["Sliced", "padded"]

Array = np.ndarray[Any, Any]
Numbers = (bool, int, float, complex, np.generic)
Seed = Annotated[int, Within(0)]


def check_dataset(who: str, dataset: Any) -> None:
    """Raise ArgumentError for an object without length or indexing, and for a tuple of arrays."""
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__") or isinstance(dataset, type):
        raise ArgumentError(
            f"{who}: a data set must support len(dataset) and dataset[i], and a {type(dataset).__name__} does not. "
            f"If you can iterate over it, pass list(dataset)."
        )
    if isinstance(dataset, tuple) and len(dataset) > 1 and all(hasattr(part, "shape") for part in dataset):
        raise ArgumentError(
            f"{who}: a tuple of {len(dataset)} arrays would be a data set of {len(dataset)} samples. If these arrays "
            f"hold all inputs and all targets, use train.Batches(inputs, targets), or list(zip(inputs, targets))."
        )


def entries(sample: Any) -> dict[Any, Any]:
    """The entries of a sample, by number or by name. A sample that is not a tuple, list or dict is one entry."""
    if isinstance(sample, dict):
        return sample
    return dict(enumerate(sample)) if isinstance(sample, (tuple, list)) else {0: sample}


def first_entry(sample: Any) -> tuple[Any, Any]:
    """The name and the value of a sample's first entry."""
    return next(iter(entries(sample).items()), (0, None))


def with_entry(sample: Any, name: Any, value: Any) -> Any:
    """A copy of a sample with one entry replaced."""
    if isinstance(sample, dict):
        return {**sample, name: value}
    if not isinstance(sample, (tuple, list)):
        return value
    items = [value if number == name else item for number, item in enumerate(sample)]
    return type(sample)(*items) if hasattr(sample, "_fields") else type(sample)(items)


def position_of(dataset: Any, index: Any, what: str = "samples") -> int:
    """Check an index of a data set, and count a negative one from the end."""
    length, who = len(dataset), type(dataset).__name__
    try:
        number = None if isinstance(index, bool) or getattr(index, "ndim", 0) > 0 else operator.index(index)
    except TypeError:  # such as np.array(1.5), which has a method __index__
        number = None
    if number is None:
        raise ArgumentTypeError(
            f"{who}: an index must be an integer, not {index!r:.80}. For several samples, use "
            f"snncell.data.Subset(dataset, [0, 1, 2])."
        )
    if not -length <= number < length:
        raise TensorIndexError(f"{who}: index {number} is out of range for {length} {what}.")
    return number % length


# --- Random numbers: one generator per sample -------------------------------------------------------------------------


def takes_rng(transform: Callable[..., Any]) -> bool:
    """True for a callable with an argument `rng`."""
    try:
        return "rng" in inspect.signature(transform).parameters
    except (TypeError, ValueError):  # C functions have no signature
        return False


@contextmanager
def sample_of(
    seed: int, epoch: int, index: int, global_generators: bool = False
) -> Iterator[Callable[[], np.random.Generator]]:
    """Context in which this thread draws from a sample's random numbers; yields a function that makes its generator."""
    mixed = np.random.SeedSequence((seed, epoch, index))
    if global_generators:  # processes start with the same state, and would all draw the same numbers
        words = mixed.spawn(1)[0].generate_state(8)
        np.random.seed(words)
        random.seed(words.tobytes())
        if (torch := sys.modules.get("torch")) is not None:
            torch.manual_seed(int(words[0]))
    key = int(mixed.generate_state(1, np.uint64)[0]) >> 2
    # Prefetching threads do not wait for the reader's turn, because they do not draw from the reader's numbers.
    with settings(turn=None, space=HOST), replaying(Tensor(np.array([key, 0]))):
        yield lambda: np.random.default_rng(mixed)


def draw_seed() -> int:
    """Draw a seed from snncell's random numbers, which `set_seed` makes repeatable."""
    with settings(space=HOST):
        return int(randint(0, 2**62, ()).item())


def seed_or_draw(seed: int | None) -> int:
    """Return the seed, or draw one if it is None."""
    return draw_seed() if seed is None else seed


def generator(seed: int | None, *key: int) -> np.random.Generator:
    """A generator that depends only on the seed and the key; different keys give independent numbers."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed_or_draw(seed), spawn_key=key)))


# --- Slices of recordings ---------------------------------------------------------------------------------------------


class View:
    """Base class of a data set that wraps another one, with the same sensor size and classes."""

    dataset: Any

    def __getattr__(self, name: str) -> Any:
        if name in ("sensor_size", "classes"):
            return getattr(self.dataset, name)
        raise AttributeError(f"a {type(self).__name__} has no attribute {name!r}")


class Sliced(View):
    """Cut long recordings into slices. Each slice is a sample with the label of its recording.

    For events, slice j holds t0 + j s <= t < t0 + j s + duration, where t0 is the time of the recording's first event.
    For arrays (T, ...), it holds the steps from j s to j s + steps - 1. Here s is the length of a slice minus
    `overlap`. Times and the other entries of a sample are unchanged.

    `Sliced` reads each recording once to count its slices, and again for each slice that does not follow a slice of the
    same recording. A random transform in `dataset` would give other slices in each read, so pass it to the `Loader`.

    Args:
        dataset: any object with `len` and `[i]`. The first entry of a sample is the recording, events or an array.
        duration, steps: the length of a slice, in microseconds for events, or in steps for arrays. Pass one of them.
        overlap: how much of a slice the next one repeats, in microseconds or steps; less than a slice.
        last: "keep" or "drop" a last slice that is not full, and the empty slice of an empty recording.
    Attributes: recordings: for each slice, the index of its recording; an array.
    Example:
        >>> import numpy as np
        >>> sliced = snncell.data.Sliced([(np.arange(5), "a"), (np.arange(2), "b")], steps=2)
        >>> [(part.tolist(), label) for part, label in sliced]
        [([0, 1], 'a'), ([2, 3], 'a'), ([4], 'a'), ([0, 1], 'b')]
    """

    def __init__(
        self,
        dataset: Annotated[Any, Own()],
        *,
        duration: Count | None = None,
        steps: Count | None = None,
        overlap: Size = 0,
        last: Literal["keep", "drop"] = "keep",
    ) -> None:
        check_dataset("Sliced", dataset)
        size = duration if steps is None else steps
        if size is None or (duration is not None and steps is not None):
            raise ArgumentError("Sliced: give one of duration (microseconds, of events) and steps (of arrays).")
        if overlap >= size:
            raise ArgumentError(f"Sliced: overlap must be below the length of a slice, {size}, not {overlap}.")
        self.dataset, self.duration, self.steps, self.overlap, self.last = dataset, duration, steps, overlap, last
        self._size, self._step = size, size - overlap
        self._read = threading.local()

    def __len__(self) -> int:
        return (self._ends or [0])[-1]

    def __getitem__(self, index: int) -> Any:
        index = position_of(self, index, "slices")
        number = bisect_right(self._ends, index)
        sample, name, recording = self._recording(number)
        begin = (index - (self._ends[number - 1] if number else 0)) * self._step
        if self.duration is None:
            return with_entry(sample, name, recording[begin : begin + self._size])
        times = times_of(recording)
        begin += int(times.min(initial=np.iinfo(np.int64).max if len(times) else 0))
        return with_entry(sample, name, recording[(times >= begin) & (times < begin + self._size)])

    @property
    def recordings(self) -> np.ndarray[Any, Any]:
        """The index of the recording of each slice."""
        return np.repeat(np.arange(len(self._ends)), np.diff(self._ends, prepend=0))

    def __getstate__(self) -> dict[str, Any]:
        return {"_ends": self._ends} | {name: value for name, value in vars(self).items() if name != "_read"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _read=threading.local())

    @cached_property
    def _ends(self) -> list[int]:
        """Cumulative numbers of slices, up to and including each recording; pickled, so that processes do not count."""
        return list(accumulate(self._slices(number) for number in range(len(self.dataset))))

    def _slices(self, number: int) -> int:
        _, _, recording = self._recording(number)
        length = len(recording)
        if self.duration is not None and length:
            times = times_of(recording)
            length = int(times.max()) - int(times.min()) + 1
        whole = max((length - self._size) // self._step + 1, 0)
        covered = (whole - 1) * self._step + self._size if whole else 0
        return whole + ((length > covered or not length) and self.last == "keep")

    def _recording(self, number: int) -> tuple[Any, Any, Any]:
        """A sample of the wrapped data set, the name of its first entry, and its recording."""
        if getattr(self._read, "number", None) != number:
            sample = self.dataset[number]
            name, recording = first_entry(sample)
            events = times_of(recording) is not None
            if events != (self.duration is not None) or not getattr(recording, "shape", ()):
                kind = "events" if events else f"a {type(recording).__name__}"
                wanted = "events, with duration," if self.duration is not None else "an array (T, ...), with steps,"
                raise ShapeError(f"Sliced: a recording must be {wanted} but sample {number} has {kind}.")
            self._read.number, self._read.found = number, (sample, name, recording)
        found: tuple[Any, Any, Any] = self._read.found
        return found


# --- Batches ----------------------------------------------------------------------------------------------------------


def padded(sequences: Iterable[Any], steps: AtLeastOne | None = None, value: float = 0.0) -> tuple[Array, Array]:
    """Pad sequences of different lengths to one array, time first, as a `Loader` does itself.

    Args:
        sequences: at least one array (T_n, ...); the N arrays may differ only in length.
        steps: T. Longer sequences are cut. By default it is the length of the longest sequence.
        value: the number that fills the padding.
    Returns:
        `x, lengths`: (T, N, ...) in the arrays' common dtype, and each sequence's number of valid steps, int64 (N,).
    Example:
        >>> x, lengths = snncell.data.padded([[[1.0], [2.0]], [[3.0]]])
        >>> x[:, :, 0].tolist(), lengths.tolist()
        ([[1.0, 3.0], [2.0, 0.0]], [2, 1])
    """
    arrays = [on_host(sequence) for sequence in sequences]
    if not arrays:
        raise ArgumentError("padded: needs at least one sequence.")
    if len({array.shape[1:] for array in arrays}) > 1 or not all(array.ndim for array in arrays):
        shapes = ", ".join(map(str, list(dict.fromkeys(array.shape for array in arrays))[:6]))
        raise ShapeError(f"padded: sequences must be (T_n, ...) and may differ only in length, not {shapes}.")
    longest = max(len(array) for array in arrays) if steps is None else steps
    lengths = np.array([min(len(array), longest) for array in arrays], np.int64)
    padded_array = np.full((longest, len(arrays), *arrays[0].shape[1:]), value, np.result_type(*arrays))
    for number, (array, length) in enumerate(zip(arrays, lengths, strict=True)):
        padded_array[:length, number] = array[:length]
    return padded_array, lengths


class Waiting:
    """The first entry of a sample, before `Transform.batch` transforms it together with the rest of the batch."""

    shape: tuple[int, ...] = ()  # (T_n,), once the length is known

    def __init__(self, value: Any) -> None:
        self.value = value


class Collate:
    """Default collate function of a `Loader`: pad sequences and stack the other entries."""

    def __init__(self, sequences: Sequence[Any] | None, lengths: bool, buckets: Sequence[int], beyond: bool) -> None:
        self.sequences, self.lengths, self.buckets = sequences, lengths, buckets
        self.beyond = beyond  # pad sequences longer than all buckets to a `grid_length` instead of refusing them

    def __call__(self, samples: list[Any], indices: Sequence[int], batch_of: Callable[..., Any] | None = None) -> Any:
        """Make a batch of samples with these indices; `batch_of` transforms entries that are Waiting."""
        first = samples[0]
        rows = [entries(sample) for sample in samples]
        for index, row in zip(indices, rows, strict=True):
            if row.keys() != rows[0].keys():
                raise ShapeError(
                    f"Loader: all samples must have the same entries, but sample {indices[0]} has {_names(rows[0])} "
                    f"and sample {index} has {_names(row)}."
                )
        sequences = self.sequences_of(rows[0])
        if self.lengths and sequences and "lengths" in rows[0]:
            raise ArgumentError(
                'Loader: an entry of the samples has the name "lengths", which the Loader gives to the lengths that it '
                "adds. Rename this entry, or pass lengths=False."
            )
        batch: dict[Any, Any] = {}
        x, steps = None, (0, np.zeros(0, np.int64))
        waiting = next((name for name, value in rows[0].items() if isinstance(value, Waiting)), None)
        if waiting is not None and batch_of is not None:
            x, steps = self._transformed(rows, waiting, sequences, indices, batch_of)
        elif sequences:
            steps = self._steps(rows, sequences, indices)
        for name in rows[0]:
            values = [row[name] for row in rows]
            if name not in sequences:
                batch[name] = stack_entries(values, indices)
                continue
            if name != waiting:
                lists = all(isinstance(value, EventLists) for value in values)
                x = join_event_lists(values, steps[0]) if lists else padded(_arrays(values, indices), steps[0])[0]
            # Keep event lists as NumPy arrays here, because the reading thread places them on the device.
            batch[name] = EventLists(*map(on_host, x[:3]), x.shape) if isinstance(x, EventLists) else x  # type: ignore[arg-type, call-arg]
            if self.lengths and name == sequences[0]:
                batch["lengths"] = steps[1]
        if isinstance(first, dict):
            return batch
        several = len(batch) > 1 or isinstance(first, (tuple, list))
        return tuple(batch.values()) if several else next(iter(batch.values()))

    def _transformed(
        self, rows: list[dict[Any, Any]], name: Any, names: list[Any], indices: Sequence[int], batch_of: Any
    ) -> tuple[Any, tuple[int, Array]]:
        """Transform the entry `name` of all samples at once; also return T and the numbers of steps."""
        found: list[tuple[int, Array]] = []
        who = getattr(batch_of, "__qualname__", "batch")

        def steps(lengths: Array) -> int:
            if np.shape(lengths) != (len(rows),):
                raise ShapeError(
                    f"Loader: {who} must call steps with the lengths of {len(rows)} samples, not with shape "
                    f"{np.shape(lengths)}."
                )
            for row, length in zip(rows, lengths, strict=True):
                row[name].shape = (int(length),)
            found.append(self._steps(rows, names, indices))
            return found[-1][0]

        x, _ = batch_of([row[name].value for row in rows], steps)
        if not found:
            raise ArgumentError(f"Loader: {who} must call steps(lengths) to get the number of steps, but did not.")
        return x, found[-1]

    def is_sequence(self, name: Any) -> bool:
        """True if the first entry of a sample, named `name`, is a sequence."""
        return self.sequences is None or name in self.sequences

    def sequences_of(self, row: dict[Any, Any]) -> list[Any]:
        """The names of the entries that are sequences, by default the first."""
        chosen = [next(iter(row), 0)] if self.sequences is None else list(self.sequences)
        for name in chosen:
            if name not in row:
                raise ArgumentError(f"Loader: sequences contains {name!r}, but a sample has only {_names(row)}.")
        return chosen

    def _steps(self, rows: list[dict[Any, Any]], names: list[Any], indices: Sequence[int]) -> tuple[int, Array]:
        lengths = np.array([length_of(row, names, index) for row, index in zip(rows, indices, strict=True)], np.int64)
        longest = int(lengths.max())
        # One sample says nothing about the others' lengths. Pad it, but only if the batch reports lengths.
        alone = len(rows) == 1 and self.lengths
        if self.beyond and not self.buckets and lengths.min() == longest and not alone:
            return max(longest, 1), lengths  # equal lengths need no padding, because T is probably the same everywhere
        bucket = next((each for each in self.buckets if longest <= each), grid_length(longest) if self.beyond else None)
        if bucket is None:
            raise ArgumentError(
                f"Loader: sample {indices[int(lengths.argmax())]} has {longest} steps, more than the largest of "
                f"buckets, {self.buckets[-1]}. Add a larger bucket, or shorten the samples by a transform."
            )
        return max(bucket, 1), lengths


def length_of(row: dict[Any, Any], names: Sequence[Any], index: int) -> int:
    """The common number of steps of a sample's sequences."""
    lengths = {}
    for name in names:
        shape = getattr(row[name], "shape", None)
        shape = np.shape(row[name]) if shape is None and isinstance(row[name], (list, tuple)) else shape
        if not shape:
            raise ShapeError(
                f"Loader: entry {name!r} of a sample must be a sequence (T, ...), but sample {index} has a "
                f"{type(row[name]).__name__}. List the entries that are sequences, for example sequences=(0,), or pass "
                f"sequences=() if there are none."
            )
        lengths[name] = int(shape[0])
    if len(set(lengths.values())) > 1:
        raise ShapeError(f"Loader: the sequences of a sample must have equal lengths; sample {index} has {lengths}.")
    return next(iter(lengths.values()))


def stack_entries(values: list[Any], indices: Sequence[int]) -> Any:
    """Stack entries of samples: arrays to (B, ...), strings to a list, and tuples and dicts entry by entry."""
    first = values[0]
    if isinstance(first, str):
        return values
    if isinstance(first, dict):
        return {name: stack_entries([value[name] for value in values], indices) for name in first}
    if isinstance(first, (tuple, list)) and not all(isinstance(item, Numbers) for item in first):
        columns = [stack_entries(list(column), indices) for column in zip(*values, strict=True)]
        return type(first)(*columns) if hasattr(first, "_fields") else type(first)(columns)
    if isinstance(first, (bool, int, float, complex, tuple, list)):
        return to_array(values)
    return np.stack(_arrays(values, indices))


def _arrays(values: list[Any], indices: Sequence[int]) -> list[Array]:
    """Convert entries of any framework to NumPy arrays with equal dtypes and equal shapes after the first axis."""
    arrays = []
    for value, index in zip(values, indices, strict=True):
        if getattr(getattr(value, "dtype", None), "names", None):
            raise DTypeError(
                f"Loader: sample {index} has events, which cannot be stacked to an array. Pass a transform that "
                f"converts them to frames, for example transform=data.ToFrame(window=10_000)."
            )
        if not (is_array(value) or isinstance(value, (Tensor, list, tuple, *Numbers))):
            raise DTypeError(
                f"Loader: sample {index} has a {type(value).__name__}, which cannot be converted to an array. Pass a "
                f"transform that converts it, or your own collate."
            )
        arrays.append(on_host(value))
    alike = {(array.dtype, array.shape[1:]) for array in arrays}
    if len(alike) > 1 or (array := arrays[0]).dtype.kind not in "biufcV":
        shapes = ", ".join(f"{dtype}(T, {', '.join(map(str, shape))})" for dtype, shape in list(alike)[:4])
        raise ShapeError(f"Loader: the samples of a batch may differ only in their lengths, not {shapes}.")
    return arrays if array.dtype.isnative else [each.astype(array.dtype.newbyteorder("=")) for each in arrays]


def _names(row: dict[Any, Any]) -> str:
    return ", ".join(map(repr, row)) or "none"
