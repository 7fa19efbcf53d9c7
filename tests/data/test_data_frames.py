"""Events as frames: `data.to_frames` against its definition in Python, on random events."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from random_cases import random_cases
from thread_counts import on_threads

from snncell import bfloat16, data
from snncell.data.events import Events
from snncell.errors import ArgumentError, DTypeError

Array = np.ndarray[Any, Any]

MOST = {"bool": 1, "uint8": 255, "int8": 127, "float16": 2048, "bfloat16": 256}


def random_events(
    rng: np.random.Generator, number: int, sensor: tuple[int, int, int], flat: bool, *, ordered: bool = True
) -> Any:
    """A number of random events of a sensor. Times have ties and gaps."""
    width, height, polarities = sensor
    t = rng.integers(-50, 200, number) * int(rng.integers(1, 40))
    x, y, p = (rng.integers(0, limit, number) for limit in (width, height, polarities))
    return Events(np.sort(t) if ordered else t, x, None if flat else y, p, sensor_size=sensor)


def bins_of(t: Array, way: str, size: int, overlap: int, last: str) -> tuple[int, list[list[int]]]:
    """The number of bins of a recording, and the bins of each event, by the definition of `to_frames`."""
    start, length = (int(t.min()), int(t.max() - t.min()) + 1) if len(t) else (0, 0)
    if way == "n_bins":
        return size, [[(int(at) - start) * size // length] for at in t]
    places = range(len(t)) if way == "count" else [int(at) - start for at in t]
    length, step = len(t) if way == "count" else length, size - overlap
    bins = 0
    while bins * step + size <= length:
        bins += 1
    covered = (bins - 1) * step + size if bins else 0
    if last == "keep" and covered < length:
        bins += 1
    return bins, [[b for b in range(bins) if b * step <= at < b * step + size] for at in places]


def naive(recordings: list[Any], way: str, size: int, overlap: int, last: str, merged: bool = False) -> Array:
    """Counts (T, B, P, H, W), event by event."""
    width, height, polarities = recordings[0].sensor_size
    height = height if "y" in recordings[0].dtype.names else 1
    found = [bins_of(each["t"], way, size, overlap, last) for each in recordings]
    bins = max(own for own, _ in found)
    counts = np.zeros((bins, len(recordings), 1 if merged else polarities, height, width), np.int64)
    for n, each in enumerate(recordings):
        for event, own in zip(each, found[n][1], strict=True):
            for b in own:
                y = event["y"] if "y" in each.dtype.names else 0
                counts[b, n, 0 if merged else event["p"], y, event["x"]] += 1
    return counts


WAYS = [
    *[("n_bins", size, 0) for size in (1, 2, 7, 30)],
    *[("window", size, overlap) for size, overlap in ((1000, 0), (1000, 300), (777, 776 // 2), (90_000, 0))],
    *[("count", size, overlap) for size, overlap in ((1, 0), (10, 0), (10, 7), (500, 3))],
]


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("way", "size", "overlap"), WAYS)
@pytest.mark.parametrize("flat", [True, False])
def test_frames_equal_the_definition(way: str, size: int, overlap: int, flat: bool) -> None:
    rng = np.random.default_rng([size, overlap, flat])
    for last, several, ordered in itertools.product(("keep", "drop"), (False, True), (False, True)):
        sensor = (int(rng.integers(1, 9)), 1 if flat else int(rng.integers(1, 6)), int(rng.integers(1, 4)))
        numbers = rng.integers(0, 90, 4) if several else rng.integers(1, 90, 1)
        recordings = [random_events(rng, int(n), sensor, flat, ordered=ordered) for n in numbers]
        found = data.to_frames(
            recordings if several else recordings[0], **{way: size}, overlap=overlap, last=last, dtype=np.int64
        )
        expected = naive(recordings, way, size, overlap, last)
        expected = expected[:, :, :, 0] if flat else expected
        np.testing.assert_array_equal(found, expected if several else expected[:, 0])


@random_cases(60)
def test_frames_from_start_to_end_equal_the_definition(seed: int) -> None:
    """`start` and `end` replace the time of the first event and the time just after the last event."""
    rng = np.random.default_rng(seed)
    sensor, several = (3, 2, 2), bool(rng.integers(2))
    ordered = bool(rng.integers(2))
    recordings = [
        random_events(rng, int(rng.integers(0, 60)), sensor, False, ordered=ordered) for _ in range(1 + 2 * several)
    ]
    start = int(rng.integers(-2500, 8000)) if rng.random() < 0.7 else None
    end = (start or 0) + int(rng.integers(1, 6000)) if start is None or rng.random() < 0.7 else None
    way, size = [("n_bins", int(rng.integers(1, 40))), ("window", int(rng.integers(1, 3000)))][int(rng.integers(2))]
    overlap = int(rng.integers(0, min(size, size - size // 20))) if way == "window" else 0
    last = ("keep", "drop")[int(rng.integers(2))]

    limits, own = [], []
    for events in recordings:
        t = events["t"]
        none = not len(t) and (start is None or end is None)
        first = start if start is not None else 0 if none else int(t.min())
        stop = end if end is not None else first if none else int(t.max()) + 1
        length = 0 if none else max(stop - first, 0)
        whole = max((length - size) // (size - overlap) + 1, 0)
        rest = last == "keep" and length > (whole and (whole - 1) * (size - overlap) + size)
        limits.append((first, length))
        own.append(size if way == "n_bins" else whole + rest)
    expected = np.zeros((max(own), len(recordings), 2, 2, 3), np.int64)
    for n, (events, (first, length)) in enumerate(zip(recordings, limits, strict=True)):
        for event in events:
            at = int(event["t"]) - first
            if 0 <= at < length:
                for b in range(own[n]):
                    begin = b * (size - overlap)
                    inside = at * size // length == b if way == "n_bins" else begin <= at < begin + size
                    expected[b, n, event["p"], event["y"], event["x"]] += inside
    if start is not None and end is not None:
        assert len(set(own)) == 1  # empty bins are kept

    options = {way: size, "overlap": overlap, "last": last, "dtype": "int32", "start": start, "end": end}
    given = recordings if several else recordings[0]
    expected = expected if several else expected[:, 0]
    np.testing.assert_array_equal(data.to_frames(given, **options), expected)
    np.testing.assert_array_equal(data.ToFrame(**options)(given), expected)
    for lists in (data.to_event_lists(given, **options), data.ToEventLists(**options)(given)):
        assert lists.shape == expected.shape
        np.testing.assert_array_equal(lists.to_dense().asnumpy(), expected)
    if several:
        frames, lengths = data.ToFrame(**options).batch(recordings)
        np.testing.assert_array_equal(frames, expected)
        assert lengths.tolist() == own


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "int8", "int16", "int32", "float16", "bfloat16", "float32", "float64"]
)
def test_counts_saturate_at_the_maximum_of_their_dtype(dtype: str) -> None:
    rng = np.random.default_rng(1)
    number = 5000
    events = Events(np.arange(number), rng.integers(0, 2, number), p=np.zeros(number, int), sensor_size=(2, 1, 1))
    kind = bfloat16.dtype if dtype == "bfloat16" else np.dtype(dtype)
    frames = data.to_frames(events, n_bins=1, dtype=kind)
    expected = np.minimum(np.bincount(events["x"]), MOST.get(dtype, number))
    assert frames.dtype == kind
    np.testing.assert_array_equal(frames[0, 0].astype(np.float64), expected)


def test_single_polarity_counts_all_events() -> None:
    rng = np.random.default_rng(2)
    for flat in (True, False):
        events = random_events(rng, 80, (5, 4, 2), flat)
        found = data.to_frames(events, (5, 4, 1), n_bins=6)
        expected = naive([events], "n_bins", 6, 0, "keep", merged=True)[:, 0]
        np.testing.assert_array_equal(found, expected[:, :, 0] if flat else expected)
        plain = np.asarray(events).astype([(name, "i8") for name in events.dtype.names])
        np.testing.assert_array_equal(data.to_frames(plain, (5, 4, 1), n_bins=6), found)


def test_plain_arrays_slices_and_empty_events() -> None:
    rng = np.random.default_rng(3)
    events = random_events(rng, 70, (6, 3, 2), False)
    elsewhere = np.zeros(70, [("x", "i2"), ("y", "i2"), ("t", "i8"), ("p", "?")])
    for name in "xytp":
        elsewhere[name] = events[name]
    frames = data.to_frames(events, window=500)
    np.testing.assert_array_equal(data.to_frames(elsewhere, (6, 3, 2), window=500), frames)
    np.testing.assert_array_equal(data.to_frames(events[::3], count=5), data.to_frames(events[::3].copy(), count=5))
    assert data.to_frames(events[:0], n_bins=4).shape == (4, 2, 3, 6)
    assert data.to_frames(events[:0], window=4).shape == (0, 2, 3, 6)
    assert not data.to_frames([events[:0], events[:0]], n_bins=4).any()
    both = data.to_frames([events[:0], events], n_bins=4)
    assert not both[:, 0].any()
    assert both.sum() == 70


def test_record_padding_is_not_read_as_coordinates() -> None:
    events = Events([0, 1], [0, 1], sensor_size=(2, 1, 1))
    events.view(np.uint16).reshape(2, 8)[:, 5] = 7  # at the position of y
    assert data.to_frames(events, n_bins=1).sum() == 2


def test_packed_records_are_converted() -> None:
    events = random_events(np.random.default_rng(4), 60, (6, 3, 2), False)
    packed = np.concatenate([np.asarray(events)] * 2).view(Events)
    packed.sensor_size = events.sensor_size
    assert packed.dtype.itemsize == 14
    np.testing.assert_array_equal(data.to_frames(packed, n_bins=3), 2 * data.to_frames(events, n_bins=3))
    np.testing.assert_array_equal(
        data.to_frames(packed, (7, 3, 2), n_bins=3)[..., :6], data.to_frames(packed, n_bins=3)
    )


def test_large_times_do_not_overflow() -> None:
    far = 2**61
    events = Events([far, far + 10, far + 2**60], [0, 0, 0], sensor_size=(1, 1, 1))
    assert data.to_frames(events, n_bins=1000)[[0, -1], 0, 0].tolist() == [2, 1]
    assert data.to_frames(events[:2], window=8)[:, 0, 0].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "give one of n_bins, window .* and count .*; you gave none"),
        ({"n_bins": 3, "window": 4}, "you gave n_bins and window"),
        ({"window": 3, "overlap": 3}, "overlap is 3, but it must be at least 0 and below window = 3"),
        ({"count": 3, "overlap": -1}, "overlap is -1, but it must be at least 0 and below count = 3"),
        ({"n_bins": 3, "overlap": 1}, "overlap is 1, but it must be 0 with n_bins"),
        ({"n_bins": 3, "start": 5, "end": 5}, "end=5 is not after start=5"),
        ({"count": 3, "end": 5}, r"start and end are times, but count=3 .* crop the events first, data.CropTime"),
        ({"n_bins": 3, "start": 2**63}, f"start is an integer, not {2**63}"),
        ({"window": 2**30, "start": -(2**62), "end": 2**62}, r"span 2\*\*63 microseconds or more"),
        ({"n_bins": 3, "sensor_size": (2, 4, 2)}, r"event 1 \(x=5, y=0, p=0\) lies outside of sensor_size \(2, 4, 2\)"),
    ],
)
def test_invalid_arguments_raise(arguments: dict[str, Any], words: str) -> None:
    events = Events([0, 1], [0, 5], [0, 0], [0, 0], sensor_size=(6, 4, 2))
    with pytest.raises(ArgumentError, match=words):
        data.to_frames(events, **arguments)


@pytest.mark.parametrize("axis", ["x", "y", "p"])
def test_events_one_past_the_last_pixel_raise(axis: str) -> None:
    last = {"x": 5, "y": 3, "p": 1}

    def frames(place: dict[str, int]) -> Any:
        return data.to_frames(
            Events([0], *([place[name]] for name in "xyp"), sensor_size=(9, 9, 3)), n_bins=1, sensor_size=(6, 4, 2)
        )

    assert frames(last)[0, 1, 3, 5] == 1
    with pytest.raises(ArgumentError, match=f"{axis}={last[axis] + 1}.* outside of"):
        frames(last | {axis: last[axis] + 1})


def test_batches_must_have_one_sensor() -> None:
    wide, narrow = (Events([0], [0], [0], [0], sensor_size=(width, 4, 2)) for width in (6, 5))
    with pytest.raises(ArgumentError, match="several sensor sizes"):
        data.to_frames([wide, narrow], n_bins=1)
    assert data.to_frames([wide, narrow], (7, 4, 2), n_bins=1).shape == (1, 2, 2, 4, 7)
    with pytest.raises(ArgumentError, match="and others do not"):
        data.to_frames([wide, Events([0], [0], sensor_size=(6, 4, 2))], n_bins=1)
    with pytest.raises(ArgumentError, match="the list of recordings is empty"):
        data.to_frames([], n_bins=1)
    with pytest.raises(DTypeError, match="a real floating dtype, not complex64"):
        data.to_frames(wide, n_bins=1, dtype="complex64")


@pytest.mark.compiled
def test_frames_do_not_depend_on_the_number_of_threads() -> None:
    rng = np.random.default_rng(0)
    batch = []
    for n in range(24):
        number = int(rng.integers(0, 9000))
        t, x = rng.integers(0, 10**6, number), rng.integers(0, 700, number)
        batch.append(data.Events(t if n % 3 else np.sort(t), x, sensor_size=(700, 1, 1)))
    found = []
    for number in (1, 2):
        with on_threads(number):
            found.append((data.to_frames(batch, n_bins=50), data.to_frames(batch, window=30_000, overlap=7000)))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.any()


@pytest.mark.parametrize("make", [data.to_frames, data.to_event_lists])
@pytest.mark.parametrize("way", [{"n_bins": 2}, {"window": 1000}])
@pytest.mark.parametrize("first", [-1, -(2**62), -(2**63)])
def test_time_span_beyond_int64_raises(make, way, first):
    events = data.Events([first, 2**63 - 1], x=[0, 0], p=[0, 1], sensor_size=(1, 1, 2))
    with pytest.raises(ArgumentError, match="span"):
        make(events, **way)
