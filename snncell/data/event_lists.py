"""Events as event lists: which pixels had how many in each bin of time, and nothing of the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from snncell.base.arguments.kinds import Count, Dtype
from snncell.data.frames import Between, Steps, Ways, bins_of, dtype_of_counts
from snncell.data.padding import grid_length
from snncell.errors import ShapeError
from snncell.kernels.binning import list_events, number_bins
from snncell.kernels.csr import Rows, check, move_rows
from snncell.tape.conversion import on_host
from snncell.tape.event_lists import EventLists
from snncell.tape.tensor import place_array, wrap

Array = np.ndarray[Any, Any]


def to_event_lists(
    events: Any,
    sensor_size: Sequence[int] | None = None,
    *,
    n_bins: Count | None = None,
    window: Count | None = None,
    count: Count | None = None,
    overlap: int = 0,
    last: Literal["keep", "drop"] = "keep",
    dtype: Dtype = np.uint8,
    start: int | None = None,
    end: int | None = None,
) -> EventLists:
    """`to_frames`, as lists of the pixels that had events: what layers compute with, without an array of all pixels.

    The bins, counts and errors are those of `to_frames`, and so is `to_event_lists(...).to_dense()`. A row of the lists
    is a frame: pixel (p, y, x) is element (p H + y) W + x of its row.

    The lists of indices and values are filled up with zeros to one of a few lengths (two for each doubling), so that a
    jitted step is traced for few.

    Args:
        events: as for `to_frames`, a recording or a list of them. Fastest in order of time.
        sensor_size: (W, H, P); by default that of the events. With P = 1 the polarities are counted together.
        n_bins: the number of bins.
        window: microseconds.
        count: a number of events.
        overlap: of a window with the one before it, in microseconds, or events.
        last: "keep" or "drop": a last window or count that the recording does not fill.
        dtype: of the counts.
        start, end: the times in microseconds at which the first bin begins and the last one ends.

    Returns:
        EventLists of shape (T, P, H, W), or (T, P, W) of events without y; of a batch (T, B, ...).

    Raises:
        ArgumentError: for no or several ways to say what a bin is, an overlap that no bin is longer than, events
            outside of the sensor, and batches of several sensors.
        DTypeError: for a complex dtype, and what is none.

    Example:
        >>> events = snncell.data.Events([0, 5, 9], x=[1, 0, 1], y=[0, 0, 2], p=[1, 0, 1], sensor_size=(2, 3, 2))
        >>> lists = snncell.data.to_event_lists(events, n_bins=5)
        >>> lists.shape, lists.indptr.tolist()
        ((5, 2, 3, 2), [0, 1, 1, 2, 2, 3])
        >>> bool((lists.to_dense().asnumpy() == snncell.data.to_frames(events, n_bins=5)).all())
        True
    """
    ways = (n_bins, window, count)
    return make_event_lists("to_event_lists", events, sensor_size, ways, overlap, last, dtype, between=(start, end))


def make_event_lists(
    who: str,
    events: Any,
    sensor_size: Any,
    ways: Ways,
    overlap: int,
    last: str,
    dtype: Any,
    steps: Steps | None = None,
    between: Between = (None, None),
) -> EventLists:
    """`to_event_lists`, for a caller of any name; of a batch with T rows each, by `steps` of how many each has."""
    kind = dtype_of_counts(who, dtype)
    bins = bins_of(who, events, sensor_size, ways, overlap, last, steps, between)
    recordings, orders = list(bins.recordings), {}
    if bins.by_number:
        lengths = np.array(list(map(len, recordings)), np.int64)[:, None]
        firsts, lasts = np.minimum(bins.begins, lengths), np.minimum(bins.ends, lengths)
    else:
        firsts, lasts, ordered = number_bins(recordings, bins.begins, bins.ends)
        for n in np.flatnonzero(ordered == 0).tolist():
            orders[n] = np.argsort(recordings[n]["t"], kind="stable")
            recordings[n] = recordings[n][orders[n]]
        if orders:
            firsts, lasts, _ = number_bins(recordings, bins.begins, bins.ends)
    places, values, begins, counts, wrong = list_events(recordings, firsts, lasts, bins.sensor, kind)
    for n, order in orders.items():
        wrong[n] = order[wrong[n]] if wrong[n] >= 0 else -1
    bins.refuse(who, wrong)
    starts = np.concatenate([[0], np.cumsum(counts)])
    places, values = move_rows(begins, starts, places, values, grid_length(int(starts[-1])))
    width, height, polarities = bins.sensor
    of_row = (polarities, height, width) if bins.has_rows else (polarities, width)
    batch, bins_of_all = firsts.shape
    shape = (bins_of_all, *((batch,) if bins.several else ()), *of_row)
    return EventLists(wrap(place_array(starts)), wrap(place_array(places)), wrap(place_array(values)), shape)


def join_event_lists(lists: Sequence[EventLists], steps: int) -> EventLists:
    """Event lists (T_n, ...) as a batch (T, B, ...), with empty rows behind those that have fewer steps.

    Raises:
        ShapeError: for lists that differ in more than their first axis, or have no row for each step.
    """
    if len({(each.shape[1:], each.dtype) for each in lists}) > 1 or any(each.rows != each.shape[0] for each in lists):
        shapes = ", ".join(dict.fromkeys(f"{each.dtype}{each.shape}" for each in lists))
        raise ShapeError(
            f"Event lists of a batch are (T, ...), a row for each step, alike but for T; not {shapes:.300}."
        )
    for each in lists:
        starts, places, values = map(on_host, each.operands("Loader"))
        check(Rows(starts, places, values, each.shape), "Loader")
    counts = np.zeros((steps, len(lists)), np.int64)
    for n, each in enumerate(lists):
        counts[: each.rows, n] = np.diff(on_host(each.indptr))
    starts = np.concatenate([[0], np.cumsum(counts.reshape(-1))])
    room, begins = grid_length(int(starts[-1])), starts[:-1].reshape(steps, len(lists))
    places = np.zeros(room, np.int32)
    values = np.zeros(room, on_host(lists[0].values).dtype)
    for n, each in enumerate(lists):
        own = on_host(each.indptr)
        to = np.repeat(begins[: each.rows, n] - own[:-1], np.diff(own)) + np.arange(own[0], own[-1])
        listed_here = slice(own[0], own[-1])
        places[to], values[to] = on_host(each.indices)[listed_here], on_host(each.values)[listed_here]
    shape = (steps, len(lists), *lists[0].shape[1:])
    return EventLists(wrap(place_array(starts)), wrap(place_array(places)), wrap(place_array(values)), shape)
