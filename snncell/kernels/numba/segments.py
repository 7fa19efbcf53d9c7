"""Batched kernel launches: one call from Python, and one sharing of all units among threads.

Everything that is the same at each call is written once: the slots of all kernels, and instead of each array a record
that a kernel takes for it, with a shape and a place for the address of its elements. A call writes those addresses.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from snncell import dtype as dtypes
from snncell.errors import KernelMemoryError
from snncell.kernels.intrinsics.elements import call, word_at
from snncell.kernels.numba.build import build
from snncell.kernels.numba.code import source_of

# --- Kernels: compiled once, for they call the others by addresses in a table -----------------------------------------


def find_elements(start: Any, stop: Any, objects: Any, words: Any, places: Any) -> None:
    """Put where the elements of arrays begin into `words` at `places`; `objects` are the addresses to look at."""
    for n in range(start, stop):
        words[places[n]] = word_at(objects[n])


def run_segments(start: Any, stop: Any, table: Any, failed: Any) -> None:
    """Carry out the units from `start` to `stop` of all kernels, counted one kernel after the other.

    `table` (kernels, 3) has the address of each, that of its slots, and the number of its units; `failed` gets 1 for an
    error.
    """
    kernels, _ = table.shape
    first = 0
    for segment in range(kernels):
        end = first + table[segment, 2]
        low = start if start > first else first
        high = stop if stop < end else end
        if low < high and call(table[segment, 0], low - first, high - first, table[segment, 1]) != 0:
            failed[0] = 1
        first = end


_HEAD = object.__basicsize__  # of every Python object; behind it NumPy's have what `intrinsics/elements.py` says
_WORD = 8
_ELEMENTS, _AXES = _HEAD // _WORD, _HEAD // _WORD + 2  # the words of a record that kernels read
_RECORD = _AXES + 1


class Segment(NamedTuple):
    """A kernel and its arguments: numbers, with their dtypes, and of arrays the shapes."""

    kernel: Any
    units: int
    arguments: Sequence[tuple[Any, dtypes.DType] | tuple[int, ...]]


class KernelBatch:
    """Kernels that are called together, always with the same numbers and shapes."""

    def __init__(self, kernels: Sequence[Segment]) -> None:
        self.kernels = kernels
        self.units = sum(kernel.units for kernel in kernels)
        self._free: list[_Call] = []

    def __call__(self, arrays: Sequence[Any], grain: int) -> None:
        """Carry out all: in their order on this thread, or if `grain` is not 0, in any order on all threads.

        `arrays` are those of all kernels, C-contiguous, of any shape with as many elements.
        """
        call = self._free.pop() if self._free else _Call(self.kernels)  # another thread may be in a call, too
        call.objects[:] = list(map(id, arrays))
        call.objects += _HEAD
        find_elements, run_segments = _kernels
        find_elements(len(arrays), 0, call.objects, call.words, call.places)
        run_segments(self.units, grain, call.table, call.failed)
        if call.failed[0]:
            raise KernelMemoryError("There is no memory for what the loops of a compiled function compute with.")
        self._free.append(call)


class _Call:
    """Memory that kernels read during one call: it belongs to one thread at a time."""

    def __init__(self, kernels: Sequence[Segment]) -> None:
        layout: list[Any] = []  # words, or for a record its number
        records: list[tuple[int, ...]] = []
        firsts = []
        for kernel in kernels:
            firsts.append(len(layout))
            for argument in kernel.arguments:
                if len(argument) == 2 and isinstance(argument[1], dtypes.DType):
                    layout += _words(*argument)
                else:
                    layout.append(_Record(len(records)))
                    records.append(argument)
        behind = len(layout)
        starts = [behind + n * _RECORD for n in range(len(records))]
        shapes = np.cumsum([behind + len(records) * _RECORD, *map(len, records)])
        self.words = np.zeros(max(int(shapes[-1]), 1), np.int64)
        base = self.words.ctypes.data
        for place, word in enumerate(layout):
            self.words[place] = base + _WORD * starts[word.number] if isinstance(word, _Record) else word
        for start, first, shape in zip(starts, shapes[:-1], records, strict=True):
            self.words[start + _AXES] = base + _WORD * int(first)
            self.words[first : first + len(shape)] = shape
        self.places = np.array(starts, np.int64) + _ELEMENTS
        self.objects = np.zeros(len(records), np.int64)
        self.failed = np.zeros(1, np.int64)
        rows = [(k.kernel.linked.address, base + _WORD * n, k.units) for k, n in zip(kernels, firsts, strict=True)]
        self.table = np.array(rows, np.int64)


class _Record(NamedTuple):
    number: int


def _words(number: Any, dtype: dtypes.DType) -> list[int]:
    """The slots of a number, as `native.kernel_of` packs it."""
    if dtype.dtype.kind == "c":
        return [*struct.unpack("=qq", struct.pack("=dd", number.real, number.imag))]
    if dtype.dtype.kind == "f":
        return [*struct.unpack("=q", struct.pack("=d", number))]
    return [int(number)]


def sources() -> list[tuple[str, str, tuple[Any, ...]]]:
    """The kernels that call the others, as arguments for `build`."""
    given, filled, table = (dtypes.int64, 1, False), (dtypes.int64, 1, True), (dtypes.int64, 2, False)
    return [
        ("find_elements", source_of(find_elements), (given, filled, given)),
        ("run_segments", source_of(run_segments), (table, filled)),
    ]


def prepare() -> None:
    """Compile them, or load what was compiled."""
    _kernels[:] = [build(*source) for source in sources()]


_kernels: list[Any] = []
