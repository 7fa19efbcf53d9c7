"""Events of several recordings counted in bins of time, in one kernel."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.kernels.arrays import empty
from snncell.kernels.build import build
from snncell.kernels.code import source_of
from snncell.kernels.cpu import binning
from snncell.kernels.sharing import parts_of

PARALLEL_EVENTS = 1 << 16  # from which on threads are worth it: a tenth of a millisecond
EVENT_WORK = 16  # multiplications that take the time of listing an event

# An event as the kernels read it: two words of eight bytes, with y and without.
RECORD = np.dtype(
    {"names": ["t", "x", "y", "p"], "formats": ["<i8", "<u2", "<u2", "<u2"], "offsets": [0, 8, 10, 12], "itemsize": 16}
)
LINE = np.dtype({"names": ["t", "x", "p"], "formats": ["<i8", "<u2", "<u2"], "offsets": [0, 8, 12], "itemsize": 16})
BITS = 0xFFFF  # of x, y and p each


def span_events(recordings: list[Any]) -> Any:
    """The first and the last time of each recording, int64 (B, 2); 0 and -1 of those without events."""
    owners, lengths, kept = _addresses(recordings)
    spans = np.zeros((len(kept), 2), np.int64)
    spans[:, 1] = -1
    _kernel("span_events", dtypes.int64)(len(kept), _grain(lengths), owners, lengths, spans)
    return spans


def count_events(
    recordings: list[Any], begins: Any, ends: Any, sensor: tuple[int, int, int], by_number: bool, dtype: Any
) -> tuple[Any, Any]:
    """Counts (T, B, P, H, W), and for each recording its first event outside of the sensor, or -1.

    Recordings are contiguous arrays of RECORD or LINE, all of one; `begins` and `ends` (B, T) say which times are in a
    bin, or which numbers of events. Counts stop at the largest number up to which `dtype` has all.
    """
    owners, lengths, kept = _addresses(recordings)
    (batch, bins), (width, height, polarities) = begins.shape, sensor
    counted = np.dtype(_COUNTED.get(dtype, dtype))
    counts = empty((bins, batch, polarities, height, width), counted)
    wrong = np.full(batch, -1, np.int64)
    geometry = np.array([polarities, height, width, by_number, MOST[dtype], bins], np.int64)
    rows, signs = int("y" in kept[0].dtype.names), int(polarities > 1)
    _kernel("count_events", dtypes.BY_NUMPY[counted], rows, signs)(
        batch, _grain(lengths), owners, lengths, begins, ends, counts.reshape(-1), wrong, geometry
    )
    if counted == dtype:
        return counts, wrong
    return counts.view(dtype) if dtype == np.bool_ else counts.astype(dtype), wrong


def number_bins(recordings: list[Any], begins: Any, ends: Any) -> tuple[Any, Any, Any]:
    """The numbers of the events that bins of time have, from the first up to behind the last, int64 (B, T) each.

    They are right for recordings in order of time: the third array (B,) has 0 for others.
    """
    owners, lengths, kept = _addresses(recordings)
    firsts, lasts, ordered = np.empty_like(begins), np.empty_like(begins), np.empty(len(kept), np.int64)
    _kernel("number_bins", dtypes.int64)(
        len(kept), _grain(lengths), owners, lengths, begins, ends, firsts, lasts, ordered
    )
    return firsts, lasts, ordered


def list_events(
    recordings: list[Any], firsts: Any, lasts: Any, sensor: tuple[int, int, int], dtype: Any
) -> tuple[Any, Any, Any, Any, Any]:
    """The pixels that had events in each bin, and how many, one bin (T, B) after the other, with gaps between them.

    Bin b of recording n has the events of the numbers from `firsts[n, b]` up to `lasts[n, b]`.

    Returns:
        `places, values, begins, counts, wrong`: pixels and their counts, where in them each bin begins and how many
        it has, int64 (T B,), and for each recording its first event outside of the sensor, or -1.
    """
    owners, _, kept = _addresses(recordings)
    (batch, bins), (width, height, polarities) = firsts.shape, sensor
    size = width * height * polarities
    counted = np.dtype(_COUNTED.get(dtype, dtype))
    most = np.minimum(lasts - firsts, size).T.reshape(-1)
    begins, room = np.cumsum(most) - most, int(most.sum())
    places, values = empty((room,), np.dtype(np.int32)), empty((room,), counted)
    counts, wrong = np.empty((bins, batch), np.int64), np.empty((batch, bins), np.int64)
    units = batch * bins
    grain, parts = parts_of(units, int((lasts - firsts).sum()) * EVENT_WORK + units * (size >> 5))
    rows, signs = int("y" in kept[0].dtype.names), int(polarities > 1)
    words = -(-size // 32)
    _kernel("list_events", dtypes.BY_NUMPY[counted], rows, signs)(
        units, grain if parts > 1 else 0, grain, owners, firsts, lasts, begins.reshape(bins, batch), places,
        values, counts, wrong, np.zeros((parts, size), np.int32), np.zeros((parts, words), np.int64),
        np.array([polarities, height, width, MOST[dtype], bins], np.int64),
    )  # fmt: skip
    none = np.iinfo(np.int64).max
    first = np.where(wrong >= 0, wrong, none).min(1, initial=none)
    if counted != dtype:
        values = values.astype(dtype)
    return places, values, begins, counts.reshape(-1), np.where(first < none, first, -1)


# The largest number up to which a dtype has every integer.
MOST = {kind.dtype: int(np.iinfo(kind.dtype).max) for kind in dtypes.ALL if kind.dtype.kind in "iu"}
MOST |= {dtypes.bool_.dtype: 1, dtypes.bfloat16.dtype: 1 << 8, dtypes.float16.dtype: 1 << 11}
MOST |= {dtypes.float32.dtype: 1 << 24, dtypes.float64.dtype: 1 << 53}
# What those are counted in that kernels do not add in.
_COUNTED = {dtypes.bool_.dtype: np.uint8, dtypes.float16.dtype: np.int16, dtypes.bfloat16.dtype: np.int16}


def _addresses(recordings: list[Any]) -> tuple[Any, Any, list[Any]]:
    """The addresses of arrays of words that recordings are, how many events each has, and those arrays, to be kept."""
    kept = [np.ascontiguousarray(each) for each in recordings]
    return np.array(list(map(id, kept)), np.int64), np.array(list(map(len, kept)), np.int64), kept


def _grain(lengths: Any) -> int:
    return int(int(lengths.sum()) >= PARALLEL_EVENTS)


@functools.cache
def _kernel(name: str, dtype: Any, rows: int = 1, signs: int = 1) -> Any:
    numbers, by_bin = (dtypes.int64, 1, False), (dtypes.int64, 2, False)
    to_numbers, to_spans = (dtypes.int64, 1, True), (dtypes.int64, 2, True)
    signature = {
        "span_events": (numbers, numbers, to_spans),
        "count_events": (numbers, numbers, by_bin, by_bin, (dtype, 1, True), to_numbers, numbers),
        "number_bins": (numbers, numbers, by_bin, by_bin, to_spans, to_spans, to_numbers),
        "list_events": (
            *(dtypes.int64, numbers, by_bin, by_bin, by_bin, (dtypes.int32, 1, True), (dtype, 1, True)),
            *(to_spans, to_spans, (dtypes.int32, 2, True), to_spans, numbers),
        ),
    }[name]
    return build(name, source_of(getattr(binning, name), ROWS=rows, SIGNS=signs), signature)
