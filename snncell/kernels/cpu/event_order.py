"""Events in the order of time: part of the kernels of `spike_times.py`, and compiled with them."""

from __future__ import annotations

from typing import Any

from numpy import float64, int64

from snncell.kernels.cpu.builtins import bitcast, call_once
from snncell.kernels.cpu.elements import copy, strip

FEW = 24  # events that are sorted by comparing them
MAGNITUDE = 0x7FFFFFFFFFFFFFFF  # the bits of a float64 but for its sign


@call_once
def put_in_order(time: Any, ordered: Any, events: Any, end: Any, keys: Any, spare: Any, moved: Any) -> Any:
    """The events before `end` in the order of time, equal ones in theirs, then the others; how many come before it.

    `keys`, `spare` and `moved` have room for the events, and are overwritten.
    """
    count, last = 0, events
    for event in range(events):
        if time[event] < end:
            ordered[count] = event
            count += 1
        else:
            last -= 1
            ordered[last] = event
    if count > FEW:
        sort_by_digits(time, ordered, count, keys, spare, moved)
        return count
    for first in range(1, count):
        event, place = ordered[first], first
        while place > 0 and time[ordered[place - 1]] > time[event]:
            ordered[place] = ordered[place - 1]
            place -= 1
        ordered[place] = event
    return count


@call_once
def sort_by_digits(time: Any, ordered: Any, count: Any, keys: Any, spare: Any, moved: Any) -> None:
    """Sort events by the bits of their times, eight at a time from the last on: work in proportion to their number."""
    firsts, differ = strip(256, int64), int64(0)
    for place in range(count):
        bits = bitcast(float64(float64(time[ordered[place]]) + 0.0), int64)  # -0 is 0
        keys[place] = bits if bits >= 0 else bits ^ MAGNITUDE  # those of negative numbers go the other way
        differ |= keys[place] ^ keys[0]
    own, other, now, later, turned = keys, spare, ordered, moved, False
    for shift in range(0, 64, 8):
        if (differ >> shift) & 255 != 0:
            flip = 128 if shift == 56 else 0  # the sign: a set bit comes first
            for digit in range(256):
                firsts[digit] = 0
            for place in range(count):
                firsts[((own[place] >> shift) & 255) ^ flip] += 1
            total = 0
            for digit in range(256):
                many = firsts[digit]
                firsts[digit] = total
                total += many
            for place in range(count):
                digit = ((own[place] >> shift) & 255) ^ flip
                to = firsts[digit]
                firsts[digit] = to + 1
                other[to] = own[place]
                later[to] = now[place]
            own, other, now, later, turned = other, own, later, now, not turned
    if turned:
        copy(ordered, now, count)
