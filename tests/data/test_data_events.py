"""Events in NumPy functions and error messages: concatenation and repr."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from snncell import Tensor, data, nn
from snncell.data import Events
from snncell.errors import ArgumentError, SnncellError


def random_events(rng: np.random.Generator, sensor: tuple[int, int, int], flat: bool) -> Any:
    number = int(rng.integers(0, 9))
    x, y, p = (rng.integers(0, limit, number) for limit in sensor)
    return Events(rng.integers(-9, 9, number), x, None if flat else y, p, sensor_size=sensor)


JOINED = {
    "concatenate": np.concatenate,
    "a tuple, by axis": lambda parts: np.concatenate(tuple(parts), axis=0),
    "hstack": np.hstack,
    "append": lambda parts: np.append(parts[0], np.concatenate(parts[1:])),
}


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("way", JOINED)
def test_concatenation_keeps_the_sensor(way: str, flat: bool) -> None:
    rng = np.random.default_rng([list(JOINED).index(way), flat])
    for _ in range(20):
        sensor = (int(rng.integers(1, 9)), 1 if flat else int(rng.integers(1, 9)), 2)
        parts = [random_events(rng, sensor, flat) for _ in range(rng.integers(2, 5))]
        joined = JOINED[way](parts)
        assert type(joined) is Events
        assert joined.sensor_size == sensor
        assert joined.dtype == parts[0].dtype  # the layout that kernels read
        assert [event.item() for event in joined] == [event.item() for part in parts for event in part]
        np.testing.assert_array_equal(
            data.to_frames(joined, n_bins=1), sum(data.to_frames(part, n_bins=1) for part in parts)
        )


def test_concatenation_of_different_sensors_is_a_plain_array() -> None:
    one, other = Events([1], [0], sensor_size=(3, 1, 1)), Events([1], [0], sensor_size=(4, 1, 1))
    with pytest.raises(ArgumentError, match=r"the events have several sensor sizes, \[\(3, 1, 1\), \(4, 1, 1\)\]"):
        np.concatenate([one, other])
    assert type(np.concatenate([one, np.asarray(other)])) is np.ndarray
    assert np.concatenate([one["t"], other["t"]]).tolist() == [1, 1]


@pytest.mark.parametrize(
    ("events", "text"),
    [
        (Events([5, 0, 9], [0, 1, 0], sensor_size=(700, 1, 1)), "Events(n=3, t=0..9 us, sensor_size=(700, 1, 1))"),
        (Events([-7], [0], [1], [1], sensor_size=(2, 2, 2)), "Events(n=1, t=-7..-7 us, sensor_size=(2, 2, 2))"),
        (Events([], [], sensor_size=(2, 2, 2)), "Events(n=0, sensor_size=(2, 2, 2))"),
    ],
)
def test_repr_is_one_line(events: Any, text: str) -> None:
    assert repr(events) == text
    assert repr([events, 1]) == f"[{text}, 1]"
    assert "n=" not in repr(events[["x"]]) and "n=" not in repr(np.stack([events, events]))


@pytest.mark.parametrize("t", [np.inf, -1e300, np.uint64(2**63)])
def test_times_beyond_int64_raise(t: Any) -> None:
    with pytest.raises(ArgumentError, match=r"Events: t must be below 2\^63 microseconds, but reaches"):
        Events(np.array([0, t], np.asarray(t).dtype), [0, 0], sensor_size=(1, 1, 1))


@pytest.mark.parametrize("t", [-(2.0**63), np.uint64(2**63 - 1)])
def test_first_and_last_time_of_int64(t: Any) -> None:
    events = Events(np.array([0, t], np.asarray(t).dtype), [0, 0], sensor_size=(1, 1, 1))
    assert events["t"].tolist() == [0, int(t)]


def test_errors_show_events_in_one_line() -> None:
    events = Events(np.arange(8000) * 125, np.arange(8000) % 700, sensor_size=(700, 1, 1))
    for call in (lambda: nn.Dense(events, 3), lambda: Tensor(events), lambda: data.SHDLike(events)):
        with pytest.raises(SnncellError) as caught:
            call()
        assert len(str(caught.value)) < 250 and "\n" not in str(caught.value)
    with pytest.raises(SnncellError, match=r"Events\(n=8000, t=0..999875 us, sensor_size=\(700, 1, 1\)\)"):
        nn.CrossEntropyLoss(reduction=events)
    plain = np.zeros(3, [("a", "i4"), ("b", "f4")])
    with pytest.raises(ArgumentError, match=r"not an array of shape \(3,\) with the fields a, b"):
        data.to_frames(plain, n_bins=1)
