"""Samples of data sets: their entries, the slices of recordings, and batches of them (padding and collation)."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Annotated, Any, Literal

import numpy as np

from snncell.base.arguments.kinds import Count, Own, Size
from snncell.data.events import times_of
from snncell.data.frames import grid_length, join_event_lists
from snncell.errors import ArgumentError, DTypeError, ShapeError, TensorIndexError
from snncell.tape.event_lists import EventLists
from snncell.tape.structure import is_array, on_host
from snncell.tape.tensor import Tensor, to_array

__all__ = ["Sliced", "padded"]

Array = np.ndarray[Any, Any]
Numbers = (bool, int, float, complex, np.generic)


def check_dataset(who: str, dataset: Any) -> None:
    """Raise ArgumentError for what is no data set."""
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__") or isinstance(dataset, type):
        raise ArgumentError(
            f"{who}: a data set has a length and samples, len(dataset) and dataset[i]; a {type(dataset).__name__} "
            f"has not. Of what can only be gone through make a list."
        )
    if isinstance(dataset, tuple) and len(dataset) > 1 and all(hasattr(part, "shape") for part in dataset):
        raise ArgumentError(
            f"{who}: a tuple of {len(dataset)} arrays is a data set of {len(dataset)} samples. If they are all inputs "
            f"and all targets, use train.Batches(inputs, targets), or list(zip(inputs, targets))."
        )


def entries(sample: Any) -> dict[Any, Any]:
    """The entries of a sample, by number or by name; what is no tuple, list or dict has one."""
    if isinstance(sample, dict):
        return sample
    return dict(enumerate(sample)) if isinstance(sample, (tuple, list)) else {0: sample}


def first_entry(sample: Any) -> tuple[Any, Any]:
    """The name and the value of a sample's first entry."""
    return next(iter(entries(sample).items()), (0, None))


def with_entry(sample: Any, name: Any, value: Any) -> Any:
    """A sample with another value for one of its entries."""
    if isinstance(sample, dict):
        return {**sample, name: value}
    if not isinstance(sample, (tuple, list)):
        return value
    items = [value if number == name else item for number, item in enumerate(sample)]
    return type(sample)(*items) if hasattr(sample, "_fields") else type(sample)(items)


# --- slices of recordings ---------------------------------------------------------------------------------------------


class View:
    """A data set made of another one, with its sensor and its classes."""

    kind = "samples"
    dataset: Any

    def _number(self, index: int) -> int:
        length = len(self)
        if not -length <= index < length:
            who = type(self).__name__
            raise TensorIndexError(f"{who}: there are {length} {self.kind}, and none of number {index}.")
        return int(index) % length

    def __getattr__(self, name: str) -> Any:
        if name in ("sensor_size", "classes"):
            return getattr(self.dataset, name)
        raise AttributeError(f"a {type(self).__name__} has no attribute {name!r}")


class Sliced(View):
    """Slices of long recordings as a data set, each with the label of its recording.

    Of events, slice j has those with t0 + j s <= t < t0 + j s + duration, with t0 the time of the recording's first
    event; of arrays (T, ...), steps j s to below j s + steps. Here s is the length of a slice less the overlap. Times
    stay as they are, and so do the other entries of a sample.

    To count the slices, each recording is read once. A slice is cut when you ask for it: its recording is read then,
    unless the same thread read it last. So a transform of whole recordings that draws random numbers does not belong
    into `dataset`; one of slices goes into the `Loader`.

    Args:
        dataset: anything with `len` and `[i]`. A sample's first entry is the recording: events, or an array (T, ...).
        duration: of a slice of events, in microseconds.
        steps: of a slice of an array.
        overlap: of a slice with the one before it, in microseconds or steps.
        last: "keep" a last slice that the recording does not fill, or "drop" it. A recording without anything in it has
            one empty slice, or none.

    Attributes:
        recordings: the number of the recording of each slice, an array.

    Raises:
        ArgumentError: for none or both of duration and steps, or an overlap as long as a slice.
        ShapeError: for samples that are no recordings of that kind.

    Example:
        >>> import numpy as np
        >>> sliced = snncell.data.Sliced([(np.arange(5), "a"), (np.arange(2), "b")], steps=2)
        >>> [(part.tolist(), label) for part, label in sliced]
        [([0, 1], 'a'), ([2, 3], 'a'), ([4], 'a'), ([0, 1], 'b')]
    """

    kind = "slices"

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
            raise ArgumentError(f"Sliced: overlap is below the length of a slice, {size}, not {overlap}.")
        self.dataset, self.duration, self.steps, self.overlap, self.last = dataset, duration, steps, overlap, last
        self._size, self._step = size, size - overlap
        self._ends: list[int] | None = None
        self._read = threading.local()

    def __len__(self) -> int:
        return (self._counted() or [0])[-1]

    def __getitem__(self, index: int) -> Any:
        index = self._number(index)
        ends = self._counted()
        number = bisect_right(ends, index)
        sample, name, recording = self._recording(number)
        begin = (index - (ends[number - 1] if number else 0)) * self._step
        if self.duration is None:
            return with_entry(sample, name, recording[begin : begin + self._size])
        times = times_of(recording)
        begin += int(times.min(initial=np.iinfo(np.int64).max if len(times) else 0))
        return with_entry(sample, name, recording[(times >= begin) & (times < begin + self._size)])

    @property
    def recordings(self) -> np.ndarray[Any, Any]:
        """The number of the recording of each slice."""
        ends = self._counted()
        return np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))

    def __getstate__(self) -> dict[str, Any]:
        self._counted()  # now, not in each process
        return {name: value for name, value in vars(self).items() if name != "_read"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _read=threading.local())

    def _counted(self) -> list[int]:
        """The number of slices up to and with each recording."""
        if self._ends is None:
            self._ends = list(accumulate(self._slices(number) for number in range(len(self.dataset))))
        return self._ends

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
        """A sample of the other data set, and its recording with its name."""
        if getattr(self._read, "number", None) != number:
            sample = self.dataset[number]
            name, recording = first_entry(sample)
            events = times_of(recording) is not None
            if events != (self.duration is not None) or not getattr(recording, "shape", ()):
                kind = "events" if events else f"a {type(recording).__name__}"
                wanted = "events, with duration," if self.duration is not None else "an array (T, ...), with steps,"
                raise ShapeError(f"Sliced: a recording is {wanted} and that of sample {number} is {kind}.")
            self._read.number, self._read.found = number, (sample, name, recording)
        found: tuple[Any, Any, Any] = self._read.found
        return found


# --- batches ----------------------------------------------------------------------------------------------------------


def padded(sequences: Iterable[Any], steps: int | None = None, value: float = 0.0) -> tuple[Array, Array]:
    """Pad sequences of different lengths at their ends to one array, time first.

    Args:
        sequences: N arrays (T_n, ...), alike but for their lengths.
        steps: T; longer sequences are cut. By default the longest one's.
        value: of the padding.

    Returns:
        `x, lengths`: x (T, N, ...), of the arrays' dtype, and lengths int64 (N,), how many steps of each are its own.

    Raises:
        ArgumentError: for no sequences, or a number of steps below 1.
        ShapeError: for sequences that differ in more than their lengths.

    Example:
        >>> x, lengths = snncell.data.padded([[[1.0], [2.0]], [[3.0]]])
        >>> x[:, :, 0].tolist(), lengths.tolist()
        ([[1.0, 3.0], [2.0, 0.0]], [2, 1])
    """
    arrays = [on_host(sequence) for sequence in sequences]
    if not arrays:
        raise ArgumentError("padded: there are no sequences.")
    if steps is not None and (isinstance(steps, bool) or not isinstance(steps, int) or steps < 1):
        raise ArgumentError(f"padded: steps is an integer of at least 1, not {steps!r}.")
    if len({array.shape[1:] for array in arrays}) > 1 or not all(array.ndim for array in arrays):
        shapes = ", ".join(map(str, list(dict.fromkeys(array.shape for array in arrays))[:6]))
        raise ShapeError(f"padded: sequences are (T_n, ...), alike but for their lengths, not {shapes}.")
    longest = max(len(array) for array in arrays) if steps is None else steps
    lengths = np.array([min(len(array), longest) for array in arrays], np.int64)
    padded_array = np.full((longest, len(arrays), *arrays[0].shape[1:]), value, np.result_type(*arrays))
    for number, (array, length) in enumerate(zip(arrays, lengths, strict=True)):
        padded_array[:length, number] = array[:length]
    return padded_array, lengths


class Waiting:
    """The first entry of a sample, to be transformed with those of the others of its batch: `Transform.batch`."""

    shape: tuple[int, ...] = ()  # (T_n,), once the length is known

    def __init__(self, value: Any) -> None:
        self.value = value


class Collate:
    """The function by which a `Loader` makes a batch of samples by default.

    With `beyond`, sequences longer than all buckets are padded to a length of `grid_length`, not refused.
    """

    def __init__(self, sequences: Sequence[Any] | None, lengths: bool, buckets: Sequence[int], beyond: bool) -> None:
        self.sequences, self.lengths, self.buckets, self.beyond = sequences, lengths, buckets, beyond

    def __call__(self, samples: list[Any], indices: Sequence[int], batch_of: Callable[..., Any] | None = None) -> Any:
        """The batch; `indices` are those of the samples, for words, and `batch_of` transforms what is Waiting."""
        first = samples[0]
        rows = [entries(sample) for sample in samples]
        for index, row in zip(indices, rows, strict=True):
            if row.keys() != rows[0].keys():
                raise ShapeError(
                    f"Loader: samples have the same entries; sample {indices[0]} has {_names(rows[0])} and sample "
                    f"{index} has {_names(row)}."
                )
        sequences = self.sequences_of(rows[0])
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
            # Event lists of arrays, of which the Loader makes Tensors where those are wanted.
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
        """The entry of that name of all samples, made at once, with T and the numbers of steps."""
        found: list[tuple[int, Array]] = []
        who = getattr(batch_of, "__qualname__", "batch")

        def steps(lengths: Array) -> int:
            if np.shape(lengths) != (len(rows),):
                raise ShapeError(
                    f"Loader: {who} calls steps with the lengths of {len(rows)} samples, not of shape "
                    f"{np.shape(lengths)}."
                )
            for row, length in zip(rows, lengths, strict=True):
                row[name].shape = (int(length),)
            found.append(self._steps(rows, names, indices))
            return found[-1][0]

        x, _ = batch_of([row[name].value for row in rows], steps)
        if not found:
            raise ArgumentError(f"Loader: {who} calls steps(lengths) for the number of steps, and it did not.")
        return x, found[-1]

    def is_sequence(self, name: Any) -> bool:
        """True if a sample's first entry, of that name, is a sequence."""
        return self.sequences is None or name in self.sequences

    def sequences_of(self, row: dict[Any, Any]) -> list[Any]:
        """The names of the entries that are sequences: by default the first."""
        chosen = [next(iter(row), 0)] if self.sequences is None else list(self.sequences)
        for name in chosen:
            if name not in row:
                raise ArgumentError(f"Loader: sequences names {name!r}, and a sample has {_names(row)}.")
        return chosen

    def _steps(self, rows: list[dict[Any, Any]], names: list[Any], indices: Sequence[int]) -> tuple[int, Array]:
        """T of the batch, and the number of steps of each sample."""
        lengths = np.array([length_of(row, names, index) for row, index in zip(rows, indices, strict=True)], np.int64)
        longest = int(lengths.max())
        alone = len(rows) == 1 and self.lengths  # the others may be longer; without lengths padding could not be told
        if self.beyond and not self.buckets and lengths.min() == longest and not alone:
            return max(longest, 1), lengths  # as all the others may be: samples of one length are not padded
        bucket = next((each for each in self.buckets if longest <= each), grid_length(longest) if self.beyond else None)
        if bucket is None:
            raise ArgumentError(
                f"Loader: sample {indices[int(lengths.argmax())]} has {longest} steps, more than the largest of "
                f"buckets, {self.buckets[-1]}. Add a larger one, or cut the sample in transform."
            )
        return max(bucket, 1), lengths


def length_of(row: dict[Any, Any], names: Sequence[Any], index: int) -> int:
    """The number of steps that a sample's sequences have."""
    lengths = {}
    for name in names:
        shape = getattr(row[name], "shape", None)
        shape = np.shape(row[name]) if shape is None and isinstance(row[name], (list, tuple)) else shape
        if not shape:
            raise ShapeError(
                f"Loader: entry {name!r} of a sample is a sequence (T, ...), and that of sample {index} is a "
                f"{type(row[name]).__name__}. Name those that are, as sequences=(0,), or give sequences=()."
            )
        lengths[name] = int(shape[0])
    if len(set(lengths.values())) > 1:
        raise ShapeError(f"Loader: sequences of a sample have one length; those of sample {index} have {lengths}.")
    return next(iter(lengths.values()))


def stack_entries(values: list[Any], indices: Sequence[int]) -> Any:
    """Entries of samples as one array (B, ...); of strings a list, of tuples and dicts one of arrays."""
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
    """Arrays of anybody's as NumPy's, of one dtype, and alike but for the first axis."""
    arrays = []
    for value, index in zip(values, indices, strict=True):
        if getattr(getattr(value, "dtype", None), "names", None):
            raise DTypeError(
                f"Loader: sample {index} has events, which no array of a batch can hold. Give a transform that makes "
                f"frames of them, such as transform=data.ToFrame(window=10_000)."
            )
        if not (is_array(value) or isinstance(value, (Tensor, list, tuple, *Numbers))):
            raise DTypeError(
                f"Loader: sample {index} has a {type(value).__name__}, of which no array can be made. Give a "
                f"transform, or a collate of your own."
            )
        arrays.append(on_host(value))
    alike = {(array.dtype, array.shape[1:]) for array in arrays}
    if len(alike) > 1 or (array := arrays[0]).dtype.kind not in "biufcV":
        shapes = ", ".join(f"{dtype}(T, {', '.join(map(str, shape))})" for dtype, shape in list(alike)[:4])
        raise ShapeError(f"Loader: the samples of a batch are alike but for their lengths, not {shapes}.")
    return arrays if array.dtype.isnative else [each.astype(array.dtype.newbyteorder("=")) for each in arrays]


def _names(row: dict[Any, Any]) -> str:
    return ", ".join(map(repr, row)) or "none"
