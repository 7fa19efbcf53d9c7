"""Event binning kernels: count the events of a batch of recordings in time bins."""

from __future__ import annotations

from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.kernels.arrays import empty
from snncell.kernels.intrinsics.builtins import call_once, inline
from snncell.kernels.intrinsics.elements import clear, row, tail, words_at
from snncell.kernels.intrinsics.panels import lowest, others
from snncell.kernels.numba.build import kernel_for, parts_of

# --- Kernels: a unit is a recording -----------------------------------------------------------------------------------

# An event has two 64-bit words. The first is the time; the second has x in its lowest 16 bits, then y and p. `owners`
# holds the address of each recording's array, so that the recordings of a batch need not be concatenated.

ROWS, SIGNS = 1, 1  # build options, 1 or 0: whether events have y, and whether each polarity has its own frame


def span_events_kernel(start: Any, stop: Any, owners: Any, lengths: Any, spans: Any) -> None:
    """Write the first and the last time of each non-empty recording to `spans` (B, 2)."""
    for unit in range(start, stop):
        words = words_at(owners[unit])
        if lengths[unit] > 0:
            first, last = words[0], words[0]
            for k in range(1, lengths[unit]):
                at = words[2 * k]
                first = at if at < first else first
                last = at if at > last else last
            spans[unit, 0] = first
            spans[unit, 1] = last


# Inline only this function, which runs once per event. Inlining more would spill registers in the loop over events.
@inline
def cell_of(place: Any, polarities: Any, height: Any, width: Any) -> Any:
    """The frame element that an event increments, or -1 if the event lies outside of the sensor."""
    cell = place & 0xFFFF
    inside = cell < width
    if ROWS != 0:
        y = (place >> 16) & 0xFFFF
        inside = inside and y < height
        cell += y * width
    if SIGNS != 0:
        p = (place >> 32) & 0xFFFF
        inside = inside and p < polarities
        cell += p * height * width
    return cell if inside else -1


@call_once
def first_after(end: Any, bins: Any, at: Any) -> Any:
    """The first bin that ends after `at`, or `bins` if no bin does."""
    low, high = 0, bins
    while low < high:
        middle = (low + high) // 2
        if end[middle] <= at:
            low = middle + 1
        else:
            high = middle
    return low


@call_once
def interval(begin: Any, end: Any, low: Any, high: Any, bins: Any) -> Any:
    """The half-open interval of the times that lie in all bins from `low` to `high - 1`, and in no other bin."""
    since, until = begin[high - 1], end[low]
    if low > 0 and end[low - 1] > since:
        since = end[low - 1]
    if high < bins and begin[high] < until:
        until = begin[high]
    return since, until


def count_events_kernel(
    start: Any, stop: Any, owners: Any, lengths: Any, begins: Any, ends: Any, counts: Any, wrong: Any, geometry: Any
) -> None:
    """Write the number of events per pixel and bin to `counts`, flat (T, B, P, H, W), and limit it to `most`.

    Bin b of a recording holds the events with times (or indices) in [`begins[b]`, `ends[b]`); both arrays ascend. If an
    event lies outside of the sensor, `wrong` gets the index of the first one.
    """
    polarities, height, width, by_number, most = geometry[0], geometry[1], geometry[2], geometry[3], geometry[4]
    bins = geometry[5]
    size = polarities * height * width
    pitch = len(lengths) * size
    for unit in range(start, stop):
        words, total = words_at(owners[unit]), lengths[unit]
        begin, end = row(begins, unit), row(ends, unit)
        k, low, cleared = 0, 0, 0
        while k < total:
            at = k if by_number != 0 else words[2 * k]
            if low < bins and end[low] <= at:
                low += 1
            # Events are mostly in order, so the current bin or the next one usually fits. Otherwise search.
            if (low < bins and end[low] <= at) or (low > 0 and at < end[low - 1]):
                low = first_after(end, bins, at)
            high = low
            while high < bins and begin[high] <= at:
                high += 1
            # Clear a frame just before filling it, so that its lines are still in the cache.
            while cleared < high:
                clear(tail(counts, cleared * pitch + unit * size), size)
                cleared += 1
            since, until = interval(begin, end, low, high, bins) if high > low else (at, at + 1)
            after = k + 1
            for b in range(low, high):
                frame, event = tail(counts, b * pitch + unit * size), k
                while event < total:
                    at = event if by_number != 0 else words[2 * event]
                    if at < since or at >= until:
                        break
                    cell = cell_of(words[2 * event + 1], polarities, height, width)
                    if cell >= 0:
                        held = frame[cell]
                        frame[cell] = held + 1 if held < most else held
                    elif wrong[unit] < 0 or wrong[unit] > event:
                        wrong[unit] = event
                    event += 1
                after = event
            k = after
        while cleared < bins:
            clear(tail(counts, cleared * pitch + unit * size), size)
            cleared += 1


def number_bins_kernel(
    start: Any, stop: Any, owners: Any, lengths: Any, begins: Any, ends: Any, firsts: Any, lasts: Any, ordered: Any
) -> None:
    """Write the results of `number_bins`, for bins as in `count_events_kernel`."""
    bins = begins.shape[1]
    for unit in range(start, stop):
        words, total = words_at(owners[unit]), lengths[unit]
        of_first, of_last, begin, end = row(firsts, unit), row(lasts, unit), row(begins, unit), row(ends, unit)
        in_order, low, high = 1, 0, 0
        for k in range(1, total):
            in_order &= words[2 * k - 2] <= words[2 * k]
        for b in range(bins):
            if b > 0 and begin[b] >= end[b - 1]:
                low = high  # the bins do not overlap, so each event is visited once
            while low < total and words[2 * low] < begin[b]:
                low += 1
            while high < total and words[2 * high] < end[b]:
                high += 1
            of_first[b], of_last[b] = low, high
        ordered[unit] = in_order


def list_events_kernel(
    start: Any, stop: Any, grain: Any, owners: Any, firsts: Any, lasts: Any, begins: Any, places: Any, values: Any,
    counts: Any, wrong: Any, frames: Any, words_of: Any, geometry: Any,
) -> None:  # fmt: skip
    """List the pixels with events in each bin, in ascending order, with their counts, for `list_events`.

    A unit is one bin of one recording. `wrong` is (B, T). `frames` and `words_of` are scratch memory: one element and
    one bit per pixel, for each part of `grain` units. They must be zero, and the kernel leaves them zero.
    """
    polarities, height, width, most, bins = geometry[0], geometry[1], geometry[2], geometry[3], geometry[4]
    size = polarities * height * width
    frame, touched = row(frames, start // grain), row(words_of, start // grain)
    for unit in range(start, stop):
        recording, b = unit // bins, unit % bins
        words, begin = words_at(owners[recording]), begins[b, recording]
        outside = -1
        for event in range(firsts[recording, b], lasts[recording, b]):
            cell = cell_of(words[2 * event + 1], polarities, height, width)
            if cell >= 0:
                held = frame[cell]
                if held == 0:
                    touched[cell >> 5] |= 1 << (cell & 31)
                frame[cell] = held + 1 if held < most else held
            elif outside < 0:
                outside = event
        wrong[recording, b] = outside
        found = begin
        for word in range((size + 31) // 32):
            bits = touched[word]
            if bits != 0:
                touched[word] = 0
                while bits != 0:
                    cell = word * 32 + lowest(bits)
                    places[found], values[found] = cell, frame[cell]
                    frame[cell] = 0
                    found += 1
                    bits = others(bits)
        counts[b, recording] = found - begin


PARALLEL_EVENTS = 1 << 16  # fewer events take less than 0.1 ms, and starting threads takes longer
EVENT_WORK = 16  # cost of listing an event, relative to a multiplication

# Memory layout of an event, two words of eight bytes: RECORD with y, LINE without y (a sensor with one row).
RECORD = np.dtype(
    {"names": ["t", "x", "y", "p"], "formats": ["<i8", "<u2", "<u2", "<u2"], "offsets": [0, 8, 10, 12], "itemsize": 16}
)
LINE = np.dtype({"names": ["t", "x", "p"], "formats": ["<i8", "<u2", "<u2"], "offsets": [0, 8, 12], "itemsize": 16})
BITS = 0xFFFF  # largest x, y and p


def span_events(recordings: list[Any]) -> Any:
    """The first and the last time of each recording, int64 (B, 2); (0, -1) for an empty recording."""
    owners, lengths, kept = _addresses(recordings)
    spans = np.zeros((len(kept), 2), np.int64)
    spans[:, 1] = -1
    kernel = kernel_for(span_events_kernel, "int64[1] int64[1] int64[2]*")
    kernel(len(kept), _grain(lengths), owners, lengths, spans)
    return spans


def count_events(
    recordings: list[Any], begins: Any, ends: Any, sensor: tuple[int, int, int], by_number: bool, dtype: Any
) -> tuple[Any, Any]:
    """Counts (T, B, P, H, W), and for each recording the index of its first event outside of the sensor, or -1.

    Recordings are contiguous arrays, all of dtype RECORD or all of dtype LINE. `begins` and `ends` (B, T) bound the
    bins by time, or by event index if `by_number`. Counts saturate at `MOST[dtype]`: for example, at 255 for uint8, and
    at 2048 for float16, which cannot represent 2049.
    """
    owners, lengths, kept = _addresses(recordings)
    (batch, bins), (width, height, polarities) = begins.shape, sensor
    counted = np.dtype(_COUNTED.get(dtype, dtype))
    counts = empty((bins, batch, polarities, height, width), counted)
    wrong = np.full(batch, -1, np.int64)
    geometry = np.array([polarities, height, width, by_number, MOST[dtype], bins], np.int64)
    options = {"ROWS": int("y" in kept[0].dtype.names), "SIGNS": int(polarities > 1)}
    kinds = "int64[1] int64[1] int64[2] int64[2] T[1]* int64[1]* int64[1]"
    kernel = kernel_for(count_events_kernel, kinds, counted, **options)
    kernel(batch, _grain(lengths), owners, lengths, begins, ends, counts.reshape(-1), wrong, geometry)
    if counted == dtype:
        return counts, wrong
    return counts.view(dtype) if dtype == np.bool_ else counts.astype(dtype), wrong


def number_bins(recordings: list[Any], begins: Any, ends: Any) -> tuple[Any, Any, Any]:
    """Index ranges `firsts, lasts` (B, T) of the events in time bins. They are valid where `ordered` (B,) is 1."""
    owners, lengths, kept = _addresses(recordings)
    firsts, lasts, ordered = np.empty_like(begins), np.empty_like(begins), np.empty(len(kept), np.int64)
    kernel = kernel_for(number_bins_kernel, "int64[1] int64[1] int64[2] int64[2] int64[2]* int64[2]* int64[1]*")
    kernel(len(kept), _grain(lengths), owners, lengths, begins, ends, firsts, lasts, ordered)
    return firsts, lasts, ordered


def list_events(
    recordings: list[Any], firsts: Any, lasts: Any, sensor: tuple[int, int, int], dtype: Any
) -> tuple[Any, Any, Any, Any, Any]:
    """Pixels with events in bins [`firsts[n, b]`, `lasts[n, b]`), in lists in the order (T, B) with gaps between them.

    Returns `places, values, begins, counts, wrong`: the pixels and their counts; the start and the length of each list
    in these arrays, int64 (T B,); and for each recording the index of its first event outside of the sensor, or -1.
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
    options = {"ROWS": int("y" in kept[0].dtype.names), "SIGNS": int(polarities > 1)}
    words = -(-size // 32)
    kinds = "int64 int64[1] int64[2] int64[2] int64[2] int32[1]* T[1]* int64[2]* int64[2]* int32[2]* int64[2]* int64[1]"
    kernel_for(list_events_kernel, kinds, counted, **options)(
        units, grain if parts > 1 else 0, grain, owners, firsts, lasts, begins.reshape(bins, batch), places,
        values, counts, wrong, np.zeros((parts, size), np.int32), np.zeros((parts, words), np.int64),
        np.array([polarities, height, width, MOST[dtype], bins], np.int64),
    )  # fmt: skip
    none = np.iinfo(np.int64).max
    first = np.where(wrong >= 0, wrong, none).min(1, initial=none)
    if counted != dtype:
        values = values.astype(dtype)
    return places, values, begins, counts.reshape(-1), np.where(first < none, first, -1)


# The largest count of each dtype: it represents this integer and all smaller ones.
MOST = {kind.dtype: int(np.iinfo(kind.dtype).max) for kind in dtypes.ALL if kind.dtype.kind in "iu"}
MOST |= {dtypes.bool_.dtype: 1, dtypes.bfloat16.dtype: 1 << 8, dtypes.float16.dtype: 1 << 11}
MOST |= {dtypes.float32.dtype: 1 << 24, dtypes.float64.dtype: 1 << 53}
# Kernels cannot add numbers of these dtypes, so they count in an integer dtype, and the result is converted.
_COUNTED = {dtypes.bool_.dtype: np.uint8, dtypes.float16.dtype: np.int16, dtypes.bfloat16.dtype: np.int16}


def _addresses(recordings: list[Any]) -> tuple[Any, Any, list[Any]]:
    """Addresses and lengths of the recordings' arrays, and the arrays, which the caller must keep alive."""
    kept = [np.ascontiguousarray(each) for each in recordings]
    return np.array(list(map(id, kept)), np.int64), np.array(list(map(len, kept)), np.int64), kept


def _grain(lengths: Any) -> int:
    return int(int(lengths.sum()) >= PARALLEL_EVENTS)
