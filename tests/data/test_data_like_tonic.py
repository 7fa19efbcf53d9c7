"""Event transforms against tonic on random events: equal except for documented differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from snncell import data
from snncell.data import Events
from snncell.errors import CallError, MissingNameError

tonic = pytest.importorskip("tonic", reason="tonic is not installed: its transforms are not compared with")
theirs: Any = pytest.importorskip("tonic.transforms", reason="tonic's transforms cannot be imported")

SENSOR = (20, 13, 2)
SEEDS = range(4)


def pair(seed: int, sensor: tuple[int, int, int] = SENSOR, number: int = 400) -> tuple[Any, Events]:
    """The same events for tonic and as Events, ordered by time, late enough for tonic's initial memory."""
    rng = np.random.default_rng(seed)
    columns = {name: rng.integers(0, limit, number) for name, limit in zip("xyp", sensor, strict=True)}
    columns["t"] = np.sort(rng.integers(100_000, 200_000, number))
    structured = np.zeros(number, [("x", np.int64), ("y", np.int64), ("t", np.int64), ("p", np.int64)])
    for name, column in columns.items():
        structured[name] = column
    return structured, Events(**columns, sensor_size=sensor)


def same(found: Any, expected: Any) -> None:
    for name in ("t", "x", "y", "p"):
        assert found[name].tolist() == expected[name].astype(np.int64).tolist(), name


EVENTS: list[tuple[Any, Any]] = [
    (data.CropTime(min=120_000, max=150_000), lambda: theirs.CropTime(min=120_000, max=150_000)),
    (data.CropTime(min=150_000), lambda: theirs.CropTime(min=150_000)),
    (data.CenterCrop((7, 4)), lambda: theirs.CenterCrop(sensor_size=SENSOR, size=(7, 4))),
    (data.CenterCrop((31, 4)), lambda: theirs.CenterCrop(sensor_size=SENSOR, size=(31, 4))),
    (data.Denoise(900), lambda: theirs.Denoise(filter_time=900)),
    (data.Denoise(20_000), lambda: theirs.Denoise(filter_time=20_000)),
    (data.Decimation(3), lambda: theirs.Decimation(n=3)),
    (data.RefractoryPeriod(7000), lambda: theirs.RefractoryPeriod(delta=7000)),
    (data.Downsample(0.01, 0.25), lambda: theirs.Downsample(time_factor=0.01, spatial_factor=0.25)),
    (data.Downsample(target_size=(10, 13)), lambda: theirs.Downsample(sensor_size=SENSOR, target_size=(10, 13))),
    (data.DropPixel([(3, 4), (0, 0)]), lambda: theirs.DropPixel(coordinates=[(3, 4), (0, 0)])),
    (data.DropPixel(hot_pixel_frequency=25), lambda: theirs.DropPixel(hot_pixel_frequency=25)),
    (data.MergePolarities(), lambda: theirs.MergePolarities()),
    (data.TimeAlignment(), lambda: theirs.TimeAlignment()),
    (data.TimeSkew(1.7, 33), lambda: theirs.TimeSkew(coefficient=1.7, offset=33)),
    (data.RandomFlipLR(1.0), lambda: theirs.RandomFlipLR(sensor_size=SENSOR, p=1.0)),
    (data.RandomFlipUD(1.0), lambda: theirs.RandomFlipUD(sensor_size=SENSOR, p=1.0)),
    (data.RandomFlipPolarity(1.0), lambda: theirs.RandomFlipPolarity(p=1.0)),
    (data.RandomTimeReversal(1.0), lambda: theirs.RandomTimeReversal(p=1.0)),
    (data.RandomTimeReversal(1.0, False), lambda: theirs.RandomTimeReversal(p=1.0, flip_polarities=False)),
]


@pytest.mark.parametrize(("ours", "other"), EVENTS, ids=lambda each: type(each).__name__)
def test_deterministic_transforms_equal_tonic(ours: Any, other: Any) -> None:
    for seed in SEEDS:
        structured, events = pair(seed)
        same(ours(events), other()(structured))


@pytest.mark.parametrize("p", [0.0, 0.2, 0.77, 1.0])
def test_number_of_dropped_events_equals_tonic(p: float) -> None:
    structured, events = pair(0, number=201)
    assert len(data.DropEvent(p)(events)) == len(theirs.DropEvent(p=p)(structured))


def test_jitter_and_noise_distributions_equal_tonic() -> None:
    structured, events = pair(0, number=20_000)
    np.random.seed(0)
    rng = np.random.default_rng(0)
    moved = theirs.TimeJitter(std=500)(structured)["t"] - structured["t"]
    ours = data.TimeJitter(500)(events, rng=rng)["t"] - events["t"]
    np.testing.assert_allclose([ours.mean(), ours.std()], [moved.mean(), moved.std()], atol=12)
    added = theirs.UniformNoise(sensor_size=SENSOR, n=5000)(structured)
    noisy = data.UniformNoise(5000)(events, rng=rng)
    assert len(added) == len(noisy)
    for name, limit in zip("xyp", SENSOR, strict=True):
        counts = [np.bincount(each[name], minlength=limit) / len(each) for each in (added, noisy)]
        np.testing.assert_allclose(*counts, atol=0.02)


def test_frames_by_window_equal_tonic_except_the_last() -> None:
    for seed in SEEDS:
        structured, events = pair(seed)
        expected = theirs.ToFrame(sensor_size=SENSOR, time_window=7000)(structured.copy())
        found = data.ToFrame(window=7000, last="drop")(events)
        np.testing.assert_array_equal(found, expected)
        overlapping = theirs.ToFrame(sensor_size=SENSOR, time_window=7000, overlap=2000)(structured.copy())
        np.testing.assert_array_equal(data.ToFrame(window=7000, overlap=2000, last="drop")(events), overlapping)
        whole = theirs.ToFrame(sensor_size=SENSOR, time_window=7000, include_incomplete=True)(structured.copy())
        found = data.ToFrame(window=7000)(events)
        np.testing.assert_array_equal(found[: len(whole)], whole)
        assert found.sum() == len(events)


def test_frames_by_count_equal_tonic() -> None:
    for seed in SEEDS:
        structured, events = pair(seed)
        for overlap in (0, 30):
            expected = theirs.ToFrame(sensor_size=SENSOR, event_count=70, overlap=overlap)(structured.copy())
            np.testing.assert_array_equal(data.ToFrame(count=70, overlap=overlap, last="drop")(events), expected)
        expected = theirs.ToFrame(sensor_size=SENSOR, n_event_bins=7)(structured.copy())
        found = data.ToFrame(count=len(events) // 7, last="drop")(events)
        np.testing.assert_array_equal(found[:7], expected)


def test_tonic_drops_the_last_events_of_bins() -> None:
    short = np.array([(0, 0, 0, 0), (1, 0, 0, 0), (5, 0, 0, 0)], [("x", int), ("y", int), ("t", int), ("p", int)])
    short["t"] = [0, 5, 9]
    short["x"] = 0
    assert theirs.ToFrame(sensor_size=(1, 1, 1), n_time_bins=2)(short.copy()).sum() < 3
    assert data.ToFrame((1, 1, 1), n_bins=2)(short).sum() == 3


def test_images_voxel_grids_and_time_surfaces_equal_tonic() -> None:
    for seed in SEEDS:
        structured, events = pair(seed)
        np.testing.assert_array_equal(data.ToImage()(events), theirs.ToImage(sensor_size=SENSOR)(structured.copy()))
        expected = theirs.ToVoxelGrid(sensor_size=SENSOR, n_time_bins=6)(structured.copy())
        np.testing.assert_allclose(data.ToVoxelGrid(6, dtype=np.float64)(events), expected, atol=1e-12)
        expected = theirs.ToTimesurface(sensor_size=SENSOR, dt=9000, tau=3000.0)(structured.copy())
        found = data.ToTimesurface(9000, 3000.0, dtype=np.float64)(events)
        assert len(found) == len(expected) + 1
        np.testing.assert_allclose(found[:-1], expected, rtol=1e-12)


def test_events_are_interchangeable_with_tonic() -> None:
    structured, events = pair(1)
    found = data.Compose([data.CropTime(max=150_000, sensor_size=SENSOR), data.ToFrame(n_bins=4)])(structured)
    np.testing.assert_array_equal(found, data.to_frames(data.CropTime(max=150_000)(events), n_bins=4))
    chain = theirs.Compose([data.CropTime(max=150_000), theirs.ToFrame(sensor_size=SENSOR, time_window=5000)])
    np.testing.assert_array_equal(
        chain(events), data.to_frames(data.CropTime(max=150_000)(events), window=5000, last="drop")
    )


def test_tonic_argument_names_suggest_ours() -> None:
    with pytest.raises(MissingNameError, match=r"it is data\.ToFrame"):
        data.transforms.ToFrame(n_time_bins=3)
    for theirs_called, ours in (("time_window", "window"), ("event_count", "count"), ("n_time_bins", "n_bins")):
        with pytest.raises(CallError, match=f"has no argument {theirs_called}. Did you mean {ours}"):
            data.ToFrame(**{theirs_called: 3})
    with pytest.raises(MissingNameError, match=r"at random among .* data\.DropEventByArea"):
        data.EventDrop  # noqa: B018
