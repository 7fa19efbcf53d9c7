"""Long recordings as many short ones."""

from __future__ import annotations

import threading
from bisect import bisect_right
from itertools import accumulate
from typing import Annotated, Any, Literal

import numpy as np

from snncell.base.arguments.kinds import Count, Own, Size
from snncell.data.collate import check_dataset, entries, with_entry
from snncell.data.events import times_of
from snncell.errors import ArgumentError, ShapeError, TensorIndexError

__all__ = ["Sliced"]


class Sliced:
    """A data set of the slices of another one's recordings, each with the label of its recording.

    Of events, slice j has those with t0 + j s <= t < t0 + j s + duration, with t0 the time of the recording's first
    event; of arrays (T, ...), steps j s to below j s + steps. Here s is the length of a slice less the overlap. Times
    stay as they are, and so do the other entries of a sample.

    To know how many slices there are, each recording is read once when that is first asked for. A slice is cut when it
    is asked for: the recording is read then, but for the one that the same thread read last. So a transform of whole
    recordings that draws random numbers does not belong into `dataset`; one of slices goes into the `Loader`.

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
        ends = self._counted()
        if not -len(self) <= index < len(self):
            raise TensorIndexError(f"Sliced: there are {len(self)} slices, and none of number {index}.")
        index %= len(self)
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

    def __getattr__(self, name: str) -> Any:
        if name in ("sensor_size", "classes"):  # what the recordings have in common
            return getattr(self.dataset, name)
        raise AttributeError(f"a Sliced has no attribute {name!r}")

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
        """The number of slices of a recording."""
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
            name, recording = next(iter(entries(sample).items()), (0, None))
            events = times_of(recording) is not None
            if events != (self.duration is not None) or not getattr(recording, "shape", ()):
                kind = "events" if events else f"a {type(recording).__name__}"
                wanted = "events, with duration," if self.duration is not None else "an array (T, ...), with steps,"
                raise ShapeError(f"Sliced: a recording is {wanted} and that of sample {number} is {kind}.")
            self._read.number, self._read.found = number, (sample, name, recording)
        found: tuple[Any, Any, Any] = self._read.found
        return found
