"""Samples as a batch: sequences padded, time first, and what else a sample has stacked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from snncell.data.frames import join_event_lists
from snncell.data.padding import bucket_of, padded
from snncell.errors import ArgumentError, DTypeError, ShapeError
from snncell.tape.event_lists import EventLists
from snncell.tape.structure import is_array, on_host
from snncell.tape.tensor import Tensor, to_array

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


def with_entry(sample: Any, name: Any, value: Any) -> Any:
    """A sample with another value for one of its entries."""
    if isinstance(sample, dict):
        return {**sample, name: value}
    if not isinstance(sample, (tuple, list)):
        return value
    items = [value if number == name else item for number, item in enumerate(sample)]
    return type(sample)(*items) if hasattr(sample, "_fields") else type(sample)(items)


class Waiting:
    """The first entry of a sample, to be transformed with those of the others of its batch: `Transform.batch`."""

    shape: tuple[int, ...] = ()  # (T_n,), once the length is known

    def __init__(self, value: Any) -> None:
        self.value = value


class Collate:
    """The function by which a `Loader` makes a batch of samples by default."""

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
            x, steps = self.transformed(rows, waiting, sequences, indices, batch_of)
            x = _as_arrays(x) if isinstance(x, EventLists) else x
        elif sequences:
            steps = self.steps(rows, sequences, indices)
        for name in rows[0]:
            values = [row[name] for row in rows]
            if name in sequences:
                batch[name] = x if name == waiting else _sequences(values, indices, steps[0])
                if self.lengths and name == sequences[0]:
                    batch["lengths"] = steps[1]
            else:
                batch[name] = stack_entries(values, indices)
        if isinstance(first, dict):
            return batch
        return (
            tuple(batch.values()) if len(batch) > 1 or isinstance(first, (tuple, list)) else next(iter(batch.values()))
        )

    def transformed(
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
            found.append(self.steps(rows, names, indices))
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

    def steps(self, rows: list[dict[Any, Any]], names: list[Any], indices: Sequence[int]) -> tuple[int, Array]:
        """T of the batch, and the number of steps of each sample."""
        lengths = np.array([length_of(row, names, index) for row, index in zip(rows, indices, strict=True)], np.int64)
        longest = int(lengths.max())
        alone = len(rows) == 1 and self.lengths  # the others may be longer; without lengths padding could not be told
        if self.beyond and not self.buckets and lengths.min() == longest and not alone:
            return max(longest, 1), lengths  # as all the others may be: samples of one length are not padded
        bucket = bucket_of(longest, self.buckets, self.beyond)
        if bucket is None:
            raise ArgumentError(
                f"Loader: sample {indices[int(lengths.argmax())]} has {longest} steps, more than the largest of "
                f"buckets, {self.buckets[-1]}. Add a larger one, or cut the sample in transform."
            )
        return max(bucket, 1), lengths


def _sequences(values: list[Any], indices: Sequence[int], steps: int) -> Any:
    """Sequences (T_n, ...) as those of a batch, (T, B, ...)."""
    if all(isinstance(value, EventLists) for value in values):
        return _as_arrays(join_event_lists(values, steps))
    return padded(_arrays(values, indices), steps)[0]


def _as_arrays(lists: EventLists) -> Any:
    """Event lists of arrays, of which the Loader makes Tensors where those are wanted."""
    return EventLists(*map(on_host, lists[:3]), lists.shape)  # type: ignore[arg-type, call-arg]


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
