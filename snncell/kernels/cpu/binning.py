"""Counting events in bins: the source of kernels (`kernels/binning.py`). A unit of their work is a recording.

An event is two words: its time, and x, y and p in 16 bits each, from the lowest on. `owners` has the address of the
array that each recording is, so that those of a batch need not be put together.
"""

from __future__ import annotations

from typing import Any

from snncell.kernels.cpu.arguments import words_at
from snncell.kernels.cpu.builtins import call_once, inline
from snncell.kernels.cpu.copies import clear
from snncell.kernels.cpu.elements import row, tail
from snncell.kernels.cpu.panels import lowest, others

ROWS, SIGNS = 1, 1  # whether events have y, and polarities that are told apart


def span_events(start: Any, stop: Any, owners: Any, lengths: Any, spans: Any) -> None:
    """Put into `spans` (B, 2) the first and the last time of each recording that has events."""
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


# Only what each event goes through is inlined: else its loop has too few registers.
@inline
def cell_of(place: Any, polarities: Any, height: Any, width: Any) -> Any:
    """The element of a frame that an event adds to, -1 outside of the sensor.

    Without ROWS, events have no y; without SIGNS all are of polarity 0.
    """
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
    """The first bin that ends after `at`; `bins` if there is none."""
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
    """From when on, and up to when, events are in the bins from `low` up to `high` and in no other."""
    since, until = begin[high - 1], end[low]
    if low > 0 and end[low - 1] > since:
        since = end[low - 1]
    if high < bins and begin[high] < until:
        until = begin[high]
    return since, until


def count_events(
    start: Any, stop: Any, owners: Any, lengths: Any, begins: Any, ends: Any, counts: Any, wrong: Any, geometry: Any
) -> None:
    """Put into `counts`, flat (T, B, P, H, W), how many events each pixel had in each bin, at most `most`.

    Bin b of a recording has the events whose time, or whose number, is from `begins[b]` up to `ends[b]`; both ascend.
    `wrong` gets the number of the first event that lies outside of the sensor, if there is one.
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
            # Events need not be in order, but mostly are: then it is the next bin.
            if (low < bins and end[low] <= at) or (low > 0 and at < end[low - 1]):
                low = first_after(end, bins, at)
            high = low
            while high < bins and begin[high] <= at:
                high += 1
            # A frame is cleared just before it is filled: then its lines are in the cache.
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


def number_bins(
    start: Any, stop: Any, owners: Any, lengths: Any, begins: Any, ends: Any, firsts: Any, lasts: Any, ordered: Any
) -> None:
    """Find the number of the first event of each bin, and the one behind its last, of recordings in order of time.

    Bins are those of `count_events`. `ordered` gets 0 for a recording that is not in order.
    """
    bins = begins.shape[1]
    for unit in range(start, stop):
        words, total = words_at(owners[unit]), lengths[unit]
        of_first, of_last, begin, end = row(firsts, unit), row(lasts, unit), row(begins, unit), row(ends, unit)
        in_order, low, high = 1, 0, 0
        for k in range(1, total):
            in_order &= words[2 * k - 2] <= words[2 * k]
        for b in range(bins):
            if b > 0 and begin[b] >= end[b - 1]:
                low = high  # bins that do not overlap are gone through once
            while low < total and words[2 * low] < begin[b]:
                low += 1
            while high < total and words[2 * high] < end[b]:
                high += 1
            of_first[b], of_last[b] = low, high
        ordered[unit] = in_order


def list_events(
    start: Any, stop: Any, grain: Any, owners: Any, firsts: Any, lasts: Any, begins: Any, places: Any, values: Any,
    counts: Any, wrong: Any, frames: Any, words_of: Any, geometry: Any,
) -> None:  # fmt: skip
    """List the pixels that had events in each bin, in their order, with how many those were, at most `most`.

    A unit is a bin of a recording. Bin b has the events of the numbers from `firsts[n, b]` up to `lasts[n, b]`; what it
    has is listed from `begins[b, n]` on, and `counts[b, n]` gets how much that is. `wrong` (B, T) gets the number of
    the first event that lies outside of the sensor, or -1. `frames` and `words_of` have a row of zeros for each part of
    `grain` units: an element for each pixel, and a bit.
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
