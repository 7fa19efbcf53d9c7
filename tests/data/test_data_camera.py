"""The event camera, against Python loops and the distributions of its noise; moving digits in front of it."""

import hashlib
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

import snncell
from snncell.data import EventCamera, Events, MovingDigits, digits
from snncell.data.made import camera as made_camera
from snncell.data.samples import generator
from snncell.errors import ArgumentError, ArgumentTypeError, CallError, ShapeError, TensorIndexError


def random_film(seed):
    """A random film, its times, and a camera without noise."""
    rng = np.random.default_rng(seed)
    steps, height, width = rng.integers(2, 12), rng.integers(1, 5), rng.integers(1, 5)
    film = rng.choice([rng.random((steps, height, width)), rng.integers(0, 2, (steps, height, width)) * 1.0])
    times = np.cumsum(rng.integers(1, 5000, steps)) - 2500
    settings = {"threshold": tuple(rng.uniform(0.05, 1.0, 2)), "leak": float(rng.choice([0.0, 200.0]))}
    return film.astype(np.float32), times, settings


def naive(film, times, on, off, leak, dark, seed):
    """Pixel by pixel and step by step, by the roots of a line; (t, x, y, p) with times that are not rounded."""
    log = np.log(film + np.float32(dark)).astype(float)
    _, height, width = film.shape
    start = generator(seed).random(height * width).reshape(height, width)
    found = []
    for y, x in np.ndindex(height, width):
        # Rising light replaces a falling level.
        light = log[:, y, x] + leak * on * 1e-6 * (times - times[0])
        level = light[0] - on + (on + off) * start[y, x]
        for k in range(1, len(times)):
            while not level - off < light[k] < level + on:
                p = int(light[k] > level)
                level += on if p else -off
                found.append((np.interp(level, *line(light, times, k)), x, y, p))
    return sorted(found)


def line(light, times, k):
    """Light and times at both ends of a step, with the smaller light first, because `np.interp` needs that order."""
    order = [k - 1, k] if light[k] > light[k - 1] else [k, k - 1]
    return light[order], times[order]


@pytest.mark.parametrize("seed", range(40))
def test_events_equal_python_loops(seed):
    film, times, settings = random_film(seed)
    events = EventCamera(**settings)(film, times, seed=seed)
    expected = naive(film, times, *settings["threshold"], settings["leak"], 0.01, seed)
    assert events.sensor_size == (film.shape[2], film.shape[1], 2)
    assert len(events) == len(expected) and (np.diff(events["t"]) >= 0).all()
    for pixel in np.ndindex(film.shape[1:]):
        own = events[(events["y"] == pixel[0]) & (events["x"] == pixel[1])]
        theirs = [each for each in expected if each[2:0:-1] == pixel]
        assert own["p"].tolist() == [each[3] for each in theirs]
        np.testing.assert_allclose(own["t"] + 0.5, [each[0] for each in theirs], atol=0.51 + 1e-3)


@pytest.mark.parametrize("seed", range(10))
def test_refractory_pixel_is_silent_but_tracks_the_light(seed):
    film, times, settings = random_film(seed + 100)
    settings["noise"] = 500.0
    everything = EventCamera(**settings)(film, times, seed=seed)
    found = EventCamera(**settings, refractory=700)(film, times, seed=seed)
    kept, last = [], {}
    for event in everything:
        place = (int(event["x"]), int(event["y"]))
        if event["t"] - last.get(place, -(10**9)) >= 700:
            last[place] = event["t"]
            kept.append(event)
    assert found.tolist() == [tuple(event) for event in kept]


STILL = np.full((2, 20, 30), 0.5)
SECOND = 1_000_000


def test_noise_is_a_poisson_process_per_pixel():
    rate, seconds, pixels = 20.0, 5, 600
    events = EventCamera(noise=rate)(STILL, seconds * SECOND, seed=1)
    mean = rate * seconds * pixels
    assert abs(len(events) - mean) < 6 * np.sqrt(mean)
    assert abs((events["p"] == 1).sum() - len(events) / 2) < 6 * np.sqrt(len(events) / 4)
    counts = np.bincount(events["y"] * 30 + events["x"], minlength=pixels)
    # The sum of 600 squared deviations divided by the expected count has mean 599 and variance 2 * 599.
    assert abs(((counts - len(events) / pixels) ** 2).sum() * pixels / len(events) - 599) < 6 * np.sqrt(2 * 599)
    quarters = np.bincount(events["t"] * 4 // (seconds * SECOND), minlength=4)
    assert np.abs(quarters - mean / 4).max() < 6 * np.sqrt(mean / 4)


def test_leaking_pixels_fire_at_their_rate_with_independent_phases():
    events = EventCamera(leak=3.0)(STILL, 2 * SECOND, seed=2)
    assert (events["p"] == 1).all()
    firsts = np.sort([events["t"][(events["x"] == x) & (events["y"] == y)][0] for x in range(30) for y in range(20)])
    # The phases are uniform over two periods. The Kolmogorov-Smirnov distance of 600 numbers is below
    # 2.5 / sqrt(600), except with probability 1e-5.
    assert np.abs(firsts / (2 * SECOND / 3) - (np.arange(600) + 0.5) / 600).max() < 2.5 / np.sqrt(600)
    one = events["t"][(events["x"] == 7) & (events["y"] == 3)]
    assert np.abs(np.diff(one) - SECOND / 3).max() <= 1


def test_step_of_several_thresholds_gives_that_many_events():
    film = np.array([0.1, 0.9, 0.1])[:, None, None] * np.ones((8, 9))
    events = EventCamera((0.25, 0.4), dark=0.02)(film, [0, 1000, 5000], seed=3)
    change = np.log(0.92 / 0.12)
    pixel = events["y"] * 9 + events["x"]
    up, down = (np.bincount(pixel[events["p"] == p], minlength=72) for p in (1, 0))
    assert np.abs(up - change / 0.25).max() < 1 + 0.4 / 0.25 and abs(up.mean() - change / 0.25) < 1.5
    assert np.abs(down - change / 0.4).max() < 1 + 0.25 / 0.4
    assert (events["t"][events["p"] == 1] <= 1000).all() and (events["t"][events["p"] == 0] >= 1000).all()


def test_events_do_not_depend_on_the_number_of_threads(monkeypatch):
    film = np.random.default_rng(0).random((20, 40, 50))
    camera = EventCamera(0.3, noise=50.0, leak=5.0, refractory=300)
    monkeypatch.setattr(made_camera, "PARALLEL_SIZE", 1)
    shared = camera(film, 1000, seed=5)
    monkeypatch.setattr(made_camera, "PARALLEL_SIZE", 1 << 40)
    assert camera(film, 1000, seed=5).tobytes() == shared.tobytes()


def test_film_larger_than_memory_gives_the_same_events(monkeypatch):
    film = np.random.default_rng(0).random((9, 7, 6))
    shown = EventCamera(0.3, noise=300.0, leak=5.0, refractory=300), MovingDigits(1, seed=1, **SMALL)
    whole = shown[0](film, 1000, seed=5), shown[1][0][0]
    monkeypatch.setattr(made_camera, "ROOM", 2 * 6 * 9)
    parts = shown[0](film, 1000, seed=5), shown[1][0][0]
    for one, other in zip(whole, parts, strict=True):
        assert one.tobytes() == other.tobytes() and one.sensor_size == other.sensor_size and one.dtype == other.dtype


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64", "uint8", "bool"])
def test_films_of_any_dtype_and_memory_layout(dtype):
    film = np.random.default_rng(3).integers(0, 2, (6, 5, 4)).astype(dtype)
    camera = EventCamera(0.4, noise=100.0)
    expected = camera(film.astype(np.float32), 1000, seed=1).tobytes()
    strided = np.zeros((12, 5, 8), dtype)[::2, :, ::2]
    strided[...] = film
    times = 1000 * np.arange(6)
    for given in (film, np.asfortranarray(film), strided, film.tolist(), snncell.Tensor(film)):
        assert camera(given, 1000, seed=1).tobytes() == camera(given, times, seed=1).tobytes() == expected


def test_set_seed_applies_without_an_explicit_seed():
    found = []
    for seed in (1, 1, 2):
        snncell.set_seed(seed)
        found.append(EventCamera(noise=30.0)(STILL, SECOND).tobytes())
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize(
    ("error", "text", "call"),
    [
        (
            ShapeError,
            r"film must be \(T, H, W\) with at least two frames, not \(2, 3\)",
            lambda: EventCamera()(STILL[0, :2, :3], 5),
        ),
        (ShapeError, r"with at least two frames, not \(1, 20, 30\)", lambda: EventCamera()(STILL[:1], 5)),
        (ShapeError, r"one for each of 2 frames, not \(3,\)", lambda: EventCamera()(STILL, [1, 2, 3])),
        (ArgumentError, "film is light, so it must be finite and not negative", lambda: EventCamera()(-STILL, 5)),
        (
            ArgumentError,
            "film is light, so it must be finite and not negative",
            lambda: EventCamera()(STILL * np.nan, 5),
        ),
        (ArgumentError, "times must ascend", lambda: EventCamera()(STILL, [5, 5])),
        (ArgumentError, "times must ascend", lambda: EventCamera()(STILL, 0)),
        (ArgumentError, r"whole microseconds below 2\^60", lambda: EventCamera(noise=1.0)(STILL, 2**61)),
        (ArgumentError, r"whole microseconds below 2\^60", lambda: EventCamera()(STILL[[0, 0, 0]], 2**62)),
        (ArgumentError, "sensor_size must be from 1 to 65,535", lambda: EventCamera()(np.ones((2, 1, 70_000)), 5)),
        (ArgumentError, "seed is an integer of at least 0, not -1", lambda: EventCamera()(STILL, 5, seed=-1)),
        (ArgumentError, "threshold is a finite number of at least 0.001", lambda: EventCamera(0.0)),
        (ArgumentError, "threshold", lambda: EventCamera((0.2, -0.1))),
        (ArgumentError, r"noise is a finite number in \[0, 1e\+06\], not -1", lambda: EventCamera(noise=-1.0)),
        (ArgumentError, "dark is a finite number of at least 1e-06", lambda: EventCamera(dark=0.0)),
        (ArgumentError, r"leak is a finite number in \[0, 1e\+06\], not 1e\+300", lambda: EventCamera(leak=1e300)),
        (ArgumentError, "must be finite", lambda: EventCamera()(STILL * 1e300, 5)),
        (
            ArgumentError,
            r"noise 1 Hz and leak 0 Hz of 600 pixels .* in 1e\+09 s",
            lambda: EventCamera(noise=1.0)(STILL, 10**15),
        ),
        (ArgumentError, "is at least as large, not", lambda: MovingDigits(sensor_size=(34, 10, 2))),
        (ArgumentError, "is at least as large, not", lambda: MovingDigits(sensor_size=(34, 34, 1))),
        (ArgumentError, r"sensor_size must be \(W, H, P\)", lambda: MovingDigits(sensor_size=(34, 34))),
        (ArgumentError, "digit is an integer in", lambda: MovingDigits(digit=7)),
        (ArgumentError, r"duration is an integer in \[1000, 1e\+09\]", lambda: MovingDigits(duration=3)),
        (CallError, "has no argument speed", lambda: MovingDigits(speed=3)),
        (TensorIndexError, "index 5 is out of range for 5 samples", lambda: MovingDigits(5)[5]),
        (ArgumentTypeError, r"MovingDigits: an index must be an integer, not 1\.5", lambda: MovingDigits(5)[1.5]),
    ],
)
def test_invalid_arguments_raise(error, text, call):
    with pytest.raises(error, match=text):
        call()


# --- digits -----------------------------------------------------------------------------------------------------------

SMALL = {"sensor_size": (14, 12, 2), "digit": 8, "saccades": 2}


def test_samples_depend_only_on_seed_and_index():
    recordings = MovingDigits(6, seed=3, **SMALL)
    forwards = [recordings[i] for i in range(6)]
    again = pickle.loads(pickle.dumps(MovingDigits(20, seed=3, **SMALL)))
    for i in (5, 0, 3):
        assert again[i][0].tobytes() == forwards[i][0].tobytes() and again[i][1] == forwards[i][1]
    assert recordings[-1][0].tobytes() == forwards[5][0].tobytes()
    others = MovingDigits(6, seed=4, **SMALL)[0], MovingDigits(6, train=False, seed=3, **SMALL)[0], forwards[1]
    assert all(other[0].tobytes() != forwards[0][0].tobytes() for other in others)
    assert len(list(recordings)) == len(recordings) == 6


ELSEWHERE = """
import hashlib
from snncell.data import MovingDigits
events, label = MovingDigits(9, seed=3, sensor_size=(60, 50, 2), digit=40)[7]
print(hashlib.sha256(events.tobytes()).hexdigest(), label)
"""


@pytest.mark.compiled
def test_samples_are_equal_in_another_process():
    events, label = MovingDigits(9, seed=3, sensor_size=(60, 50, 2), digit=40)[7]
    command, environment = [sys.executable, "-c", ELSEWHERE], {**os.environ, "NUMBA_NUM_THREADS": "1"}
    found = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    assert found.split() == [hashlib.sha256(events.tobytes()).hexdigest(), str(label)]


@pytest.mark.parametrize("seed", range(20))
def test_events_are_ordered_and_on_the_sensor_for_any_settings(seed):
    rng = np.random.default_rng(seed)
    digit, saccades, duration = int(rng.integers(8, 15)), int(rng.integers(1, 4)), int(rng.integers(1000, 50_000))
    size = (digit + int(rng.integers(0, 9)), digit + int(rng.integers(0, 9)), 2)
    camera = EventCamera(tuple(rng.uniform(0.1, 1.0, 2)), noise=20.0, leak=5.0, refractory=int(rng.integers(0, 500)))
    settings = {"sensor_size": size, "digit": digit, "saccades": saccades, "duration": duration, "camera": camera}
    reach = [None, 0.0, 2.5][seed % 3]
    events, _ = MovingDigits(1, seed=seed, reach=reach, **settings)[0]
    checked = Events(events["t"], events["x"], events["y"], events["p"], sensor_size=size)
    assert checked.tobytes() == events.tobytes() and events.sensor_size == size
    assert (np.diff(events["t"]) >= 0).all()
    assert len(events) == 0 or (events["t"][0] >= 0 and events["t"][-1] <= saccades * duration)


def test_zero_reach_keeps_the_digit_at_the_centre():
    events, _ = MovingDigits(1, reach=0.0, camera=EventCamera())[0]
    assert len(events) == 0 and events.sensor_size == (34, 34, 2)


def test_samples_match_their_declared_format():
    recordings = MovingDigits(4, seed=0, **SMALL, transform=lambda events: events[events["p"] == 1])
    assert recordings.sensor_size == (14, 12, 2) and recordings.classes == tuple("0123456789")
    for events, label in recordings:
        assert type(label) is int and 0 <= label < 10
        assert events.sensor_size == (14, 12, 2) and (events["p"] == 1).all() and len(events) > 20
        assert (np.diff(events["t"]) >= 0).all() and events["t"][0] >= 0 and events["t"][-1] <= 200_000


@pytest.mark.compiled
def test_labels_come_from_the_selected_part_of_digits():
    labels = [label for _, label in MovingDigits(300, train=False, seed=1, **SMALL, camera=EventCamera(3.0))]
    (_, _), (_, there) = digits()
    shares = np.bincount(there, minlength=10) / len(there)
    assert (np.abs(np.bincount(labels, minlength=10) - 300 * shares) < 6 * np.sqrt(300 * shares * (1 - shares))).all()


def test_noiseless_events_occur_only_during_saccades():
    events, _ = MovingDigits(1, seed=2, camera=EventCamera(0.3))[0]
    assert (events["t"] % 100_000 <= 50_000).all() and len(events) > 1000


def test_digit_moves_between_rests_by_at_most_half_a_pixel_per_frame():
    rests = np.array([[5.0, 9.0], [20.0, 3.0], [20.0, 3.0], [7.0, 8.0]])
    times, places = made_camera._course(rests, 10_000)
    assert (np.diff(times) > 0).all() and times[0] == 0 and times[-1] == 30_000
    assert np.abs(np.diff(places, axis=0)).max() <= 0.5
    for number, rest in enumerate(rests):
        np.testing.assert_allclose(places[times == 10_000 * number], rest[None], atol=1e-12)
    s = (times[times <= 5000] / 5000)[:, None]
    expected = rests[0] + (rests[1] - rests[0]) * (10 * s**3 - 15 * s**4 + 6 * s**5)
    np.testing.assert_allclose(places[times <= 5000], expected, atol=0.01)  # times are whole microseconds


def test_digit_at_rest_is_bilinear_interpolation_of_the_image():
    image = np.random.default_rng(0).random((8, 8)).astype(np.float32)
    film = MovingDigits(1, digit=8, sensor_size=(12, 10, 2))._film(
        image, np.array([[6.0, 5.0], [6.5, 5.0]]), slice(None)
    )
    expected = np.zeros((10, 12))
    expected[1:9, 2:10] = image
    np.testing.assert_allclose(film[:, :, 0], expected, rtol=1e-6)
    shifted = (expected + np.roll(expected, 1, 1)) / 2
    np.testing.assert_allclose(film[:, :, 1], shifted, rtol=1e-6)
    larger = MovingDigits(1, digit=16)._film(np.ones((8, 8), np.float32), np.array([[17.0, 17.0]]), slice(None))[
        :, :, 0
    ]
    assert larger.sum() == pytest.approx(16 * 16, rel=1e-6) and larger.max() == 1.0
