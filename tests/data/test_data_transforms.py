"""Event transforms: common properties, and each transform against its definition, on random events."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import snncell
from snncell import data
from snncell.data import Events
from snncell.data.samples import takes_rng
from snncell.errors import ArgumentError, CallError

Array = np.ndarray[Any, Any]

# For events with and without y; True for random transforms.
EVERY: list[tuple[Any, bool]] = [
    (data.CropTime(min=-100, max=3000), False),
    (data.CenterCrop(4), False),
    (data.CenterCrop((3, 50)), False),
    (data.Denoise(700), False),
    (data.Decimation(2), False),
    (data.Downsample(0.5, 0.4), False),
    (data.Downsample(target_size=(3, 2)), False),
    (data.DropPixel(hot_pixel_frequency=200.0), False),
    (data.MergePolarities(), False),
    (data.TimeAlignment(), False),
    (data.RandomCrop(1), True),
    (data.DropEvent(0.3), True),
    (data.DropEvent((0.1, 0.9)), True),
    (data.DropEventByTime(0.3), True),
    (data.DropEventByTime((0.0, 1.0)), True),
    (data.DropEventByArea((0.2, 0.8)), True),
    (data.RandomFlipLR(), True),
    (data.RandomFlipPolarity(), True),
    (data.RandomTimeReversal(), True),
    (data.RandomTimeReversal(1.0, flip_polarities=False), True),
    (data.RefractoryPeriod((0, 2000)), True),
    (data.SpatialJitter(2.0, 1.0, 0.5), True),
    (data.SpatialJitter(clip_outliers=True), True),
    (data.TimeJitter(300.0), True),
    (data.TimeJitter(300.0, clip_negative=False, sort_timestamps=True), True),
    (data.TimeSkew((0.5, 2.0), (-10.0, 10.0)), True),
    (data.UniformNoise((5, 50)), True),
]
NAMES = [f"{number}-{type(transform).__name__}" for number, (transform, _) in enumerate(EVERY)]


def random_events(
    seed: Any, flat: bool = False, *, ordered: bool = True, number: int | None = None, polarities: int = 2
) -> Events:
    """Events of a small sensor, several of them with equal pixels or times."""
    rng = np.random.default_rng(seed)
    sensor = (int(rng.integers(1, 12)), 1 if flat else int(rng.integers(1, 9)), polarities)
    many = int(rng.integers(1, 200)) if number is None else number
    t = rng.integers(-500, 6000, many)
    x, y, p = (rng.integers(0, limit, many) for limit in sensor)
    return Events(np.sort(t) if ordered else t, x, None if flat else y, p, sensor_size=sensor)


def rows(events: Any) -> list[Any]:
    """The events as tuples."""
    return [event.item() for event in np.asarray(events)]


def same(found: Any, expected: Any) -> None:
    """Check for equal events of the same sensor, column by column, because records have padding."""
    assert found.sensor_size == expected.sensor_size
    assert rows(found) == rows(expected)


# --- common properties ------------------------------------------------------------------------------------------------


@pytest.mark.sampled(31)
@pytest.mark.parametrize(("transform", "draws"), EVERY, ids=NAMES)
@pytest.mark.parametrize("flat", [False, True])
def test_transforms_return_valid_events(transform: Any, draws: bool, flat: bool) -> None:
    assert takes_rng(transform) == draws
    for seed in range(6):
        events = random_events(seed, flat, ordered=seed % 2 == 0, number=0 if seed == 5 else None)
        before = rows(events)
        again = {"rng": np.random.default_rng(seed)} if draws else {}
        found = transform(events, **again)
        assert type(found) is Events
        assert found.dtype == events.dtype
        assert rows(events) == before
        assert not np.shares_memory(found, events)
        for name, limit in zip(("x", "y", "p"), found.sensor_size, strict=True):
            if name in found.dtype.names:
                assert (found[name] < limit).all()
        same(transform(events, **({"rng": np.random.default_rng(seed)} if draws else {})), found)
        same(
            pickle.loads(pickle.dumps(transform))(events, **({"rng": np.random.default_rng(seed)} if draws else {})),
            found,
        )
        plain = np.zeros(len(events), [(name, np.int64) for name in reversed(events.dtype.names)])
        for name in events.dtype.names:
            plain[name] = events[name]
        told = pickle.loads(pickle.dumps(transform))
        object.__setattr__(told, "sensor_size", events.sensor_size)
        same(told(plain, **({"rng": np.random.default_rng(seed)} if draws else {})), found)


@pytest.mark.parametrize(("transform", "draws"), [each for each in EVERY if each[1]], ids=lambda each: repr(each)[:30])
def test_random_transforms_follow_set_seed(transform: Any, draws: bool) -> None:
    events = random_events(7, number=150)
    snncell.set_seed(3)
    first = [transform(events) for _ in range(5)]
    snncell.set_seed(3)
    for each in first:
        same(transform(events), each)


def test_composed_transforms_share_one_generator() -> None:
    events = random_events(1, number=180)
    chain = [data.TimeJitter(100.0), lambda each: each[::2], data.DropEvent(0.5), data.CropTime(max=4000)]
    whole = data.Compose(chain)
    assert takes_rng(whole)
    rng = np.random.default_rng(0)
    expected = chain[3](chain[2](chain[0](events, rng=rng)[::2], rng=rng))
    same(whole(events, rng=np.random.default_rng(0)), expected)
    same(data.Compose([data.Compose(chain[:2]), *chain[2:]])(events, rng=np.random.default_rng(0)), expected)
    same(whole(events, rng=0), expected)
    snncell.set_seed(1)
    found = whole(events)
    snncell.set_seed(1)
    same(whole(events), found)
    assert data.Compose([np.asarray, len])(events) == 180
    assert data.Compose([data.CropTime(min=10**6), data.ToFrame(n_bins=3)])(events).shape[0] == 3


def test_repr_of_a_composition_has_one_line_per_transform() -> None:
    assert repr(data.Compose([data.Decimation(3), len])) == (
        "Compose([\n    Decimation(sensor_size=None, n=3),\n    <built-in function len>,\n])"
    )


# --- each transform against its definition ----------------------------------------------------------------------------


def denoise_by_loop(events: Any, longest: float) -> list[int]:
    last: dict[tuple[int, int], int] = {}
    kept = []
    for k, event in enumerate(events):
        x, y = int(event["x"]), int(event["y"]) if "y" in events.dtype.names else 0
        beside = ((x - 1, y), (x + 1, y), (x, y - 1), (x, y + 1))
        if any(last.get(place, -(10**9)) > event["t"] - longest for place in beside):
            kept.append(k)
        last[x, y] = int(event["t"])
    return kept


def decimate_by_loop(events: Any, n: int) -> list[int]:
    seen: dict[Any, int] = {}
    kept = []
    for k, event in enumerate(events):
        place = tuple(event[name] for name in ("x", "y") if name in events.dtype.names)
        seen[place] = seen.get(place, 0) + 1
        if seen[place] % n == 0:
            kept.append(k)
    return kept


def refractory_by_loop(events: Any, delta: int) -> list[int]:
    last: dict[Any, int] = {}
    kept = []
    for k, event in enumerate(events):
        place = tuple(event[name] for name in ("x", "y") if name in events.dtype.names)
        if place not in last or event["t"] - last[place] > delta:
            kept.append(k)
        last[place] = event["t"]
    return kept


FILTERS: list[tuple[Callable[[Any], Any], Callable[[Any, Any], list[int]], list[Any]]] = [
    (data.Denoise, denoise_by_loop, [1, 50, 333.3, 10_000]),
    (data.Decimation, decimate_by_loop, [1, 2, 5]),
    (data.RefractoryPeriod, refractory_by_loop, [0, 40, 700, 10_000]),
]


@pytest.mark.parametrize(("made", "naive", "settings"), FILTERS)
@pytest.mark.parametrize("flat", [False, True])
def test_filters_equal_their_definitions(made: Any, naive: Any, settings: list[Any], flat: bool) -> None:
    for seed in range(8):
        events = random_events([seed, flat], flat, ordered=seed % 3 > 0)
        for setting in settings:
            same(made(setting)(events), events[naive(events, setting)])


def test_filters_reject_events_outside_of_the_sensor() -> None:
    events = random_events(3)
    events["x"][2] = 500
    for transform in (data.Denoise(10), data.Decimation(2), data.RefractoryPeriod(3), data.ToVoxelGrid(3)):
        with pytest.raises(ArgumentError, match=f"{type(transform).__name__}: event 2 has x = 500, outside of"):
            transform(events)


def test_crops_equal_their_definition() -> None:
    events = Events([0, 1, 2, 3], [0, 3, 4, 7], [0, 1, 2, 3], [0, 1, 0, 1], sensor_size=(8, 4, 2))
    middle = data.CenterCrop((4, 2))(events)
    assert (middle["x"].tolist(), middle["y"].tolist(), middle.sensor_size) == ([1, 2], [0, 1], (4, 2, 2))
    padded = data.CenterCrop((9, 7))(events)
    assert (padded["x"].tolist(), padded["y"].tolist(), padded.sensor_size) == ([1, 4, 5, 8], [2, 3, 4, 5], (9, 7, 2))
    assert rows(data.CropTime(min=1, max=2)(events)) == rows(events[1:3])
    line = Events([0, 1], [0, 5], sensor_size=(8, 1, 1))
    assert (data.CenterCrop(4)(line)["x"].tolist(), data.CenterCrop(4)(line).sensor_size) == ([3], (4, 1, 1))


def test_random_crops_reach_every_position() -> None:
    grid = np.arange(6 * 3)
    events = Events(grid, grid % 6, grid // 6, sensor_size=(6, 3, 1))
    rng, firsts = np.random.default_rng(0), set()
    for _ in range(300):
        part = data.RandomCrop((4, 2))(events, rng=rng)
        assert part.sensor_size == (4, 2, 1)
        assert (part["x"] + part["y"] * 6 + part["t"][0]).tolist() == part["t"].tolist()
        firsts.add(int(part["t"][0]))
    assert firsts == {0, 1, 2, 6, 7, 8}


def test_number_of_dropped_events_equals_the_rate() -> None:
    events, rng = random_events(0, number=199), np.random.default_rng(0)
    for p in (0.0, 0.25, 0.9, 1.0):
        assert len(data.DropEvent(p)(events, rng=rng)) == 199 - int(p * 199 + 0.5)
    even = Events(np.arange(1000), np.zeros(1000, int), sensor_size=(1, 1, 1))
    for ratio in (0.0, 0.1, 1.0):
        left = data.DropEventByTime(ratio)(even, rng=rng)["t"]
        assert abs(1000 - len(left) - 1000 * ratio) <= 1
        gaps = np.diff(left)
        assert (gaps > 1).sum() <= 1  # a single interval
    grid = np.arange(20 * 10)
    full = Events(np.zeros(200, int), grid % 20, grid // 20, sensor_size=(20, 10, 1))
    places = set()
    for _ in range(200):
        left = data.ToImage()(data.DropEventByArea(0.5)(full, rng=rng))[0]
        (tops, lefts) = np.nonzero(left == 0)
        assert (len(tops), np.ptp(tops), np.ptp(lefts)) == (50, 4, 9)
        places.add((tops.min(), lefts.min()))
    assert {top for top, _ in places} == set(range(6))


def test_pixels_are_dropped_by_coordinates_and_by_rate() -> None:
    events = random_events(5, number=150)
    x, y = int(events["x"][0]), int(events["y"][0])
    expected = events[~((events["x"] == x) & (events["y"] == y))]
    same(data.DropPixel([(x, y)])(events), expected)
    same(data.DropPixel([])(events), events)
    line = random_events(5, True, number=150)
    same(data.DropPixel([int(line["x"][0])])(line), line[line["x"] != line["x"][0]])
    counts = np.bincount(events["x"].astype(int) + events["y"] * events.sensor_size[0].__int__())
    seconds = np.ptp(events["t"]) * 1e-6
    for limit in (1.5, 3.5):
        hot = counts > limit
        found = data.DropPixel(hot_pixel_frequency=limit / seconds)(events)
        same(found, events[~hot[events["x"].astype(int) + events["y"] * events.sensor_size[0]]])


def test_flips_and_time_reversal() -> None:
    events = random_events(2, number=60)
    width, height, _ = events.sensor_size
    assert data.RandomFlipLR(1.0)(events)["x"].tolist() == (width - 1 - events["x"].astype(int)).tolist()
    assert data.RandomFlipUD(1.0)(events)["y"].tolist() == (height - 1 - events["y"].astype(int)).tolist()
    assert data.RandomFlipPolarity(1.0)(events)["p"].tolist() == (1 - events["p"].astype(int)).tolist()
    backwards = data.RandomTimeReversal(1.0)(events)
    assert backwards["t"].tolist() == (events["t"].max() - events["t"])[::-1].tolist()
    assert backwards["p"].tolist() == (1 - events["p"].astype(int))[::-1].tolist()
    for made in (data.RandomFlipLR, data.RandomFlipUD, data.RandomFlipPolarity, data.RandomTimeReversal):
        same(made(0.0)(events), events)
    rng = np.random.default_rng(0)
    turned = [rows(data.RandomFlipLR(0.3)(events, rng=rng)) != rows(events) for _ in range(2000)]
    assert 0.27 < np.mean(turned) < 0.33


def test_time_transforms_equal_their_definitions() -> None:
    events = random_events(4, number=80)
    assert data.TimeSkew(1.3, 100)(events)["t"].tolist() == np.floor(events["t"] * 1.3 + 100).tolist()
    assert data.TimeAlignment()(events)["t"].tolist() == (events["t"] - events["t"].min()).tolist()
    assert data.Downsample(time_factor=0.001)(events)["t"].tolist() == np.floor(events["t"] * 0.001).tolist()
    far = Events([2**60 + 1], [0], sensor_size=(1, 1, 1))
    assert data.TimeSkew(1.0, 5)(far)["t"].tolist() == [2**60 + 6]
    with pytest.raises(ArgumentError, match=r"TimeSkew: times 100\.0 t \+ 0\.0 are too large"):
        data.TimeSkew(100.0)(far)
    rng = np.random.default_rng(0)
    many = Events(np.full(4000, 10**6), np.zeros(4000, int), sensor_size=(1, 1, 1))
    moved = data.TimeJitter(50.0)(many, rng=rng)["t"] - 10**6
    assert abs(moved.mean()) < 3
    assert abs(moved.std() - 50) < 2
    early = data.TimeJitter(50.0)(Events(np.zeros(1000, int), np.zeros(1000, int), sensor_size=(1, 1, 1)), rng=rng)
    assert 400 < len(early) < 600
    assert (np.diff(data.TimeJitter(50.0, sort_timestamps=True)(events, rng=rng)["t"]) >= 0).all()


def test_spatial_transforms_equal_their_definitions() -> None:
    events = random_events(6, number=120)
    width, height, _ = events.sensor_size
    half = data.Downsample(spatial_factor=(0.5, 0.25))(events)
    assert half["x"].tolist() == (events["x"] // 2).tolist()
    assert half["y"].tolist() == (events["y"] // 4).tolist()
    assert half.sensor_size == ((width - 1) // 2 + 1, (height - 1) // 4 + 1, 2)
    sized = data.Downsample(target_size=(3, 2))(events)
    assert sized["x"].tolist() == (events["x"].astype(int) * 3 // width).tolist()
    assert sized.sensor_size == (3, 2, 2)
    merged = data.MergePolarities()(events)
    assert (merged.sensor_size, set(merged["p"].tolist())) == ((width, height, 1), {0})
    rng = np.random.default_rng(0)
    middle = Events(np.arange(5000), np.full(5000, 50), np.full(5000, 50), sensor_size=(101, 101, 1))
    moved = data.SpatialJitter(9.0, 4.0, 3.0)(middle, rng=rng)
    covariance = np.cov(moved["x"], moved["y"])
    np.testing.assert_allclose(covariance, [[9.0, 3.0], [3.0, 4.0]], rtol=0.1)
    corner = Events(np.arange(1000), np.zeros(1000, int), np.zeros(1000, int), sensor_size=(101, 101, 1))
    assert len(data.SpatialJitter()(corner, rng=rng)) == 1000
    assert 0 < len(data.SpatialJitter(clip_outliers=True)(corner, rng=rng)) < 700


def test_noise_has_its_rate_and_distribution() -> None:
    events = random_events(8, number=40, polarities=3)
    found = data.UniformNoise(3000)(events, rng=np.random.default_rng(0))
    assert len(found) == 3040
    assert (np.diff(found["t"]) >= 0).all()
    assert {found["t"].min(), found["t"].max()} == {events["t"].min(), events["t"].max()}
    for name, limit in zip(("x", "y", "p"), events.sensor_size, strict=True):
        assert set(found[name].tolist()) == set(range(limit))
    left = rows(found)
    for event in rows(events):
        left.remove(event)


def test_array_representations_equal_their_definitions() -> None:
    for seed in range(6):
        for flat in (False, True):
            events = random_events([seed, flat], flat, ordered=seed % 2 > 0)
            width, height, _ = events.sensor_size
            np.testing.assert_array_equal(data.ToFrame(window=700)(events), data.to_frames(events, window=700))
            np.testing.assert_array_equal(data.ToImage()(events), data.to_frames(events, n_bins=1, dtype="int32")[0])
            grid, surfaces = np.zeros((4, height, width)), []
            first, last = int(events["t"].min()), int(events["t"].max())
            latest = np.full((2, height, width), -np.inf)
            for event in events:
                y = event["y"] if not flat else 0
                tau = 4 * (event["t"] - first) / max(last - first, 1)
                for b in range(4):
                    grid[b, y, event["x"]] += (2 * int(event["p"]) - 1) * max(0.0, 1 - abs(b - tau))
            for i in range((last - first) // 900 + 1):
                for event in events:
                    if event["t"] < first + (i + 1) * 900:
                        place = event["p"], event["y"] if not flat else 0, event["x"]
                        latest[place] = max(latest[place], event["t"])
                surfaces.append(np.exp((latest - first - (i + 1) * 900) / 400.0))
            shape = (4, 1, width) if flat else (4, 1, height, width)
            found = data.ToVoxelGrid(4)(events)
            assert found.dtype == np.float32
            np.testing.assert_allclose(found, grid.reshape(shape), atol=1e-6)
            expected = np.array(surfaces)[:, :, 0] if flat else np.array(surfaces)
            np.testing.assert_allclose(data.ToTimesurface(900, 400.0)(events), expected, rtol=1e-6)


def test_array_representations_of_no_events() -> None:
    none = random_events(0, number=0)
    width, height, _ = none.sensor_size
    assert data.ToVoxelGrid(3)(none).shape == (3, 1, height, width)
    assert data.ToTimesurface(10, 10.0)(none).shape == (0, 2, height, width)
    assert data.ToImage()(none).shape == (2, height, width)
    assert data.ToFrame(n_bins=2)([none, none]).shape == (2, 2, 2, height, width)


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda e: data.ToFrame(), ArgumentError, "ToFrame: give one of n_bins, window"),
        (lambda e: data.ToFrame(time_window=3), CallError, "Did you mean window"),
        (lambda e: data.RandomCrop(100)(e), ArgumentError, r"RandomCrop: \(100, 100\) does not fit into sensor_size"),
        (lambda e: data.DropEvent(1.5), ArgumentError, "DropEvent: p must be from 0.0 to 1.0"),
        (lambda e: data.DropEvent((0.5, 0.1)), ArgumentError, "with the lower one first"),
        (lambda e: data.DropPixel(), ArgumentError, "either the coordinates of pixels or a hot_pixel_frequency"),
        (lambda e: data.DropPixel([(0, 50)])(e), ArgumentError, r"DropPixel: coordinates must be \(x, y\) of pixels"),
        (lambda e: data.DropPixel([1, 2])(e), ArgumentError, r"DropPixel: coordinates must be \(x, y\) of pixels"),
        (lambda e: data.Downsample(1.0, 0.5, (2, 2)), ArgumentError, "either a spatial_factor or a target_size"),
        (lambda e: data.Downsample(1.0, 1e5)(e), ArgumentError, "larger than 65,535"),
        (lambda e: data.SpatialJitter(1.0, 1.0, 2.0), ArgumentError, "sigma_xy"),
        (lambda e: data.RandomFlipUD()(random_events(0, True)), ArgumentError, "these events have no y"),
        (
            lambda e: data.ToVoxelGrid(3)(random_events(0, polarities=3)),
            ArgumentError,
            "one or two polarities, and this one has 3",
        ),
        (lambda e: data.Compose([data.CropTime]), ArgumentError, "Compose: a transform must be a callable"),
        (
            lambda e: data.CropTime()(np.zeros(3)),
            ArgumentError,
            "CropTime: events must be a structured array with t, x, p",
        ),
        (
            lambda e: data.CropTime()(np.zeros(3, [(n, int) for n in "txp"])),
            ArgumentError,
            "these events have no sensor_size",
        ),
    ],
)
def test_invalid_arguments_raise(call: Any, kind: type, words: str) -> None:
    with pytest.raises(kind, match=words):
        call(random_events(1))


def test_transform_docstrings_document_all_arguments() -> None:
    for transform, _ in [*EVERY, (data.ToFrame(n_bins=1), False), (data.ToVoxelGrid(1), False)]:
        for name in vars(transform):
            entry = rf"^ +(?:Args: )?(?:\w+, )*{name}(?:, \w+)*: "
            assert re.search(entry, type(transform).__doc__ or "", re.MULTILINE), (type(transform), name)
