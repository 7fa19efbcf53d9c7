"""Transforms of whole batches: equal to single samples, to the bit, on random recordings; errors and random draws."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import pytest

from snncell import Tensor, data, ops
from snncell.data.samples import takes_rng
from snncell.data.transforms import by_batches
from snncell.errors import ArgumentError, ShapeError

COUNT = 11
Named = namedtuple("Named", "events label")


class Alone:
    """A transform as a plain callable, which is applied sample by sample."""

    def __init__(self, transform: Any) -> None:
        self.transform = transform

    def __call__(self, events: Any, rng: Any) -> Any:
        return self.transform(events, rng=rng) if takes_rng(self.transform) else self.transform(events)


class Counting(data.ToFrame):
    """ToFrame that records how many samples it framed at once, and by which method."""

    def __call__(self, events: Any) -> Any:
        ONE_BY_ONE.append(1)
        return super().__call__(events)

    def batch(self, samples: Any, steps: Any = max) -> Any:
        AT_ONCE.append(len(samples))
        return super().batch(samples, steps)


ONE_BY_ONE: list[int] = []
AT_ONCE: list[int] = []


def jitter(events: Any, rng: np.random.Generator) -> Any:
    """The events that remain after each kind of random transform."""
    return events[(rng.random(len(events)) < 0.8) & (ops.uniform((len(events),)).asnumpy() < 0.9)]


def recordings(rng: np.random.Generator, flat: bool) -> list[Any]:
    """Recordings of one sensor, some of them empty."""
    found = []
    for number in rng.integers(0, 60, COUNT) * (rng.random(COUNT) < 0.9):
        t = np.sort(rng.integers(0, int(rng.integers(1, 3000)), number))
        x, y, p = (rng.integers(0, limit, number) for limit in (5, 1 if flat else 3, 2))
        found.append(data.Events(t, x, None if flat else y, p, sensor_size=(5, 1 if flat else 3, 2)))
    return found


KINDS: dict[str, Any] = {
    "alone": lambda events, n: events,
    "tuple": lambda events, n: (events, n),
    "list": lambda events, n: [events, float(n), f"file {n}"],
    "dict": lambda events, n: {"events": events, "label": n},
    "named": lambda events, n: Named(events, n),
}
WAYS: list[dict[str, Any]] = [
    {"n_bins": 7},
    {"window": 100},
    {"window": 130, "overlap": 40, "last": "drop"},
    {"count": 5},
]
FRONT: dict[str, Any] = {
    "nothing": lambda last: last,
    "Compose of one": lambda last: data.Compose([last]),
    "drawing": lambda last: data.Compose([data.DropEvent(0.3), jitter, data.CropTime(max=1500), last]),
    "nested": lambda last: data.Compose([data.RandomFlipLR(), data.Compose([jitter, data.Compose([last])])]),
}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"buckets": 2},
    {"buckets": range(1, 3001, 37)},
    {"lengths": False},
    {"workers": 0, "shuffle": False, "drop_last": True},
    {"workers": 3, "buckets": [3000]},
]


def two_passes(loader: data.Loader) -> list[Any]:
    """Two passes as arrays, with the types of their containers."""
    return [in_arrays(batch) for _ in range(2) for batch in loader]


def in_arrays(part: Any) -> Any:
    """A part of a batch in a form that can be compared, with its types."""
    if isinstance(part, Tensor):
        array = part.asnumpy()
        return str(array.dtype), array.shape, array.tobytes()
    if isinstance(part, dict):
        return {name: in_arrays(each) for name, each in part.items()}
    return [type(part), *map(in_arrays, part)] if isinstance(part, (tuple, list)) else part


@pytest.mark.sampled(3)
@pytest.mark.parametrize("front", FRONT)
@pytest.mark.parametrize("kind", KINDS)
def test_batch_transforms_equal_single_samples_bitwise(kind: str, front: str) -> None:
    rng = np.random.default_rng([list(KINDS).index(kind), list(FRONT).index(front)])
    for options in OPTIONS:
        flat, way = bool(rng.integers(2)), WAYS[rng.integers(len(WAYS))]
        dtype = str(rng.choice(["uint8", "bool", "float16", "float32"]))
        dataset = [KINDS[kind](events, n) for n, events in enumerate(recordings(rng, flat))]
        transform = FRONT[front](Counting(**way, dtype=dtype))
        settings = {"batch_size": int(rng.integers(1, 5)), "seed": int(rng.integers(100)), **options}
        expected = two_passes(data.Loader(dataset, transform=Alone(transform), **settings))
        ONE_BY_ONE.clear()
        AT_ONCE.clear()
        found = two_passes(data.Loader(dataset, transform=transform, **settings))
        assert found == expected
        assert len(AT_ONCE) == len(found), "a call for each batch"
        assert len(ONE_BY_ONE) == (COUNT if options.get("buckets") == 2 else 0), "but where lengths are looked at"


def test_batch_transforms_with_processes_slices_and_disk_caches(tmp_path: Any) -> None:
    kept = [(events, n) for n, events in enumerate(recordings(np.random.default_rng(1), True))]
    transform = data.Compose([jitter, data.ToFrame(window=100)])
    for dataset in (kept, data.Sliced(kept, duration=700), data.Cached(kept, tmp_path, key="batches")):
        expected = two_passes(data.Loader(dataset, 4, transform=Alone(transform), seed=2))
        for workers, processes in ((2, False), (2, True)):
            loader = data.Loader(dataset, 4, transform=transform, seed=2, workers=workers, processes=processes)
            assert two_passes(loader) == expected


def test_other_sequences_are_padded_to_the_frame_lengths() -> None:
    kept = recordings(np.random.default_rng(2), False)
    frames = Counting(window=100)
    steps = [len(frames(events)) for events in kept]
    dataset = [(events, np.arange(own), own) for events, own in zip(kept, steps, strict=True)]
    for sequences in ((0, 1), (1, 0), (0,), (1,), ()):
        options: Any = {"batch_size": 1 if len(sequences) < 2 and sequences != (0,) else 3, "sequences": sequences}
        if sequences == (0,):
            dataset = [(events, own) for events, own in zip(kept, steps, strict=True)]
        expected = two_passes(data.Loader(dataset, transform=Alone(frames), seed=0, **options))
        AT_ONCE.clear()
        assert two_passes(data.Loader(dataset, transform=frames, seed=0, **options)) == expected
        assert bool(AT_ONCE) == (0 in sequences)
        dataset = [(events, np.arange(own), own) for events, own in zip(kept, steps, strict=True)]
    wrong = [(events, np.arange(own + 1)) for events, own in zip(kept, steps, strict=True)]
    with pytest.raises(ShapeError, match="sample 0 has"):
        list(data.Loader(wrong, 3, False, transform=frames, sequences=(0, 1)))


class Below(data.ToFrame):
    """Overrides only `__call__`."""

    def __call__(self, events: Any) -> Any:
        return super().__call__(events)[:1]


class RandomBatch:
    def __call__(self, x: Any, rng: Any) -> Any:
        return x

    def batch(self, samples: Any, steps: Any) -> Any:
        raise AssertionError


class WithANumber:
    batch = 3

    def __call__(self, x: Any) -> Any:
        return x


def test_which_transforms_support_batches() -> None:
    frames = data.ToFrame(n_bins=2)
    first, last = by_batches(data.Compose([jitter, data.Compose([np.flip, frames])])) or (None, None)
    assert first is not None and first.transforms == (jitter, np.flip) and last is frames
    for other in (Below(n_bins=3), RandomBatch(), WithANumber(), jitter, data.Compose([]), data.Compose([frames, len])):
        assert by_batches(other) is None
    kept = recordings(np.random.default_rng(3), True)
    assert all(x.shape[0] == 1 for x, _ in data.Loader(kept, 2, transform=Below(n_bins=3)))
    options: dict[str, Any] = {"collate": lambda samples: np.stack(samples)}
    assert next(iter(data.Loader(kept, 2, transform=frames, **options))).shape == (2, 2, 2, 5)


# --- errors -----------------------------------------------------------------------------------------------------------


class Failing:
    """Raises an error for one sample, and in a batch if `batches` is set."""

    def __init__(self, batches: bool) -> None:
        self.batches = batches

    def __call__(self, x: Any) -> Any:
        if x[0] == 5:
            raise KeyError("gone")
        return x

    def batch(self, samples: Any, steps: Any) -> Any:
        if self.batches:
            raise ZeroDivisionError("of the batch")
        return data.padded([self(x) for x in samples], steps(np.array([len(x) for x in samples])))


@pytest.mark.parametrize("workers", [0, 2])
def test_batch_error_names_the_sample(workers: int) -> None:
    samples = [np.array([n, n]) for n in range(8)]
    for batches in (True, False):
        loader = data.Loader(samples[4:], 4, False, transform=Failing(batches), workers=workers)
        with pytest.raises(KeyError, match="gone") as caught:
            next(iter(loader))
        assert caught.value.__notes__ == ["Loader: this error comes from sample 1 of the list."]
    with pytest.raises(ZeroDivisionError, match="of the batch"):  # if no sample causes the error
        list(data.Loader(samples[:4], 4, transform=Failing(True), workers=workers))


class Careless:
    def __init__(self, lengths: Any) -> None:
        self.lengths = lengths

    def __call__(self, x: Any) -> Any:
        return x

    def batch(self, samples: Any, steps: Any) -> Any:
        if self.lengths is not None:
            steps(self.lengths)
        return np.stack(samples, 1), np.full(len(samples), len(samples[0]))


def test_batch_transforms_without_lengths_raise() -> None:
    samples = [np.ones(3)] * 4
    with pytest.raises(ArgumentError, match=r"Careless.batch must call steps\(lengths\) .* but did not"):
        list(data.Loader(samples, 2, transform=Careless(None)))
    for lengths in (3, np.array([3, 3, 3])):
        with pytest.raises(
            ShapeError, match=r"Careless.batch must call steps with the lengths of 2 samples, not with shape"
        ):
            list(data.Loader(samples, 2, transform=Careless(lengths)))
    assert [x.shape for x, _ in data.Loader(samples, 2, transform=Careless([3, 3]))] == [(3, 2), (3, 2)]


def test_batch_errors_equal_those_of_single_samples() -> None:
    kept = [(events, n) for n, events in enumerate(recordings(np.random.default_rng(4), True))]
    broken = data.Events([0, 1], [3, 4], p=[0, 1], sensor_size=(5, 1, 2))
    broken["x"][1] = 9
    other = data.Events([0, 1], [3, 4], p=[0, 1], sensor_size=(6, 1, 2))
    long = data.Events([0, 10**6], [3, 4], p=[0, 1], sensor_size=(5, 1, 2))
    for wrong in (broken, long, np.ones(3), None):
        dataset = [*kept[:4], (wrong, 4), *kept[5:]]
        words = []
        for transform in (data.ToFrame(window=100), Alone(data.ToFrame(window=100))):
            with pytest.raises((ArgumentError, ShapeError)) as caught:
                list(data.Loader(dataset, 3, False, transform=transform, buckets=[100]))
            words.append((type(caught.value), str(caught.value), getattr(caught.value, "__notes__", [])))
        assert words[0] == words[1]
    with pytest.raises(
        ArgumentError, match="the recordings have several sensor sizes"
    ):  # each sample alone can be framed
        list(data.Loader([*kept, (other, 0)], COUNT + 1, transform=data.ToFrame(window=100)))


def test_to_frames_of_a_list_respects_the_requested_length() -> None:
    kept = recordings(np.random.default_rng(5), False)
    for way in WAYS:
        frames = data.ToFrame(**way)
        x, lengths = frames.batch(kept)
        np.testing.assert_array_equal(x, frames(kept))
        assert lengths.tolist() == [len(frames(each)) for each in kept] and lengths.dtype == np.int64
        longer, again = frames.batch(kept, lambda own: int(own.max()) + 3)
        np.testing.assert_array_equal(longer[:-3], x)
        assert not longer[-3:].any() and again.tolist() == lengths.tolist()


def stop_at_three(x):
    return next(iter(())) if x[0] == 3 else x


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("place", ["transform", "data set", "collate"])
def test_stop_iteration_raises_an_error_that_names_the_sample(workers, place):
    """Otherwise StopIteration would end the generators around it, or become a RuntimeError without explanation."""

    class Stops(list):
        def __getitem__(self, index):
            return super().__getitem__(index) if index != 3 or place != "data set" else next(iter(()))

    options = {"transform": {"transform": stop_at_three}, "collate": {"collate": lambda _: next(iter(()))}}
    samples = Stops((np.full(2, n, np.float32), n) for n in range(8))
    loader = data.Loader(samples, 2, shuffle=False, workers=workers, **options.get(place, {}))
    sample = "0, 1" if place == "collate" else "3"
    with pytest.raises(ArgumentError, match=f"raised StopIteration for sample {sample} of the Stops") as caught:
        list(loader)
    assert isinstance(caught.value.__cause__, StopIteration)
