"""Slices of recordings, and samples cached on disk: keys, damage, and processes killed while they write."""

from __future__ import annotations

import functools
import os
import pickle
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from snncell import Tensor, data, ops
from snncell.data.events import Events
from snncell.errors import ArgumentError, DTypeError, ShapeError
from snncell.kernels.numba import files

RNG = np.random.default_rng(0)


def recording(times: Any) -> Events:
    return Events(times, x=np.arange(len(times)) % 4, sensor_size=(4, 1, 1), p=np.zeros(len(times), int))


# --- slices -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("last", ["keep", "drop"])
@pytest.mark.parametrize(("size", "overlap"), [(1, 0), (5, 0), (5, 2), (5, 4), (40, 7), (1000, 1)])
def test_slices_of_arrays_and_events_equal_a_loop(size, overlap, last):
    lengths = [*RNG.integers(1, 60, 7), 0, 1]
    arrays = [(np.arange(length), number) for number, length in enumerate(lengths)]
    times = [np.unique(RNG.integers(0, length + 1, 9)) + 1000 for length in lengths]
    events = [
        (recording(t[: 0 if not n else None]), str(number))
        for number, (t, n) in enumerate(zip(times, lengths, strict=True))
    ]
    found = {
        "arrays": data.Sliced(arrays, steps=size, overlap=overlap, last=last),
        "events": data.Sliced(events, duration=size, overlap=overlap, last=last),
    }
    for kind, samples in (("arrays", arrays), ("events", events)):
        expected = []
        for whole, label in samples:
            at = whole - whole[0] if kind == "arrays" and len(whole) else whole
            at = at if kind == "arrays" else whole["t"] - whole["t"].min(initial=1 << 40)
            begin, reached = 0, 0
            length = int(at.max()) + 1 if len(at) else 0
            while begin + size <= length or (last == "keep" and (reached < length or (not length and not begin))):
                expected.append((whole[(at >= begin) & (at < begin + size)], label))
                reached, begin = begin + size, begin + size - overlap
        assert len(found[kind]) == len(expected)
        for (part, label), (other, own) in zip(found[kind], expected, strict=True):
            np.testing.assert_array_equal(part, other)
            assert label == own and type(part) is type(other)
        assert [samples[n][1] for n in found[kind].recordings] == [label for _, label in expected]
        copy = pickle.loads(pickle.dumps(found[kind]))
        order = RNG.permutation(len(expected))
        assert all(np.array_equal(copy[int(n)][0], expected[n][0]) for n in order)


def test_slices_read_each_recording_once_and_know_the_sensor():
    read: list[int] = []

    class Set:
        sensor_size, classes = (4, 1, 1), ("a",)

        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> Any:
            read.append(index)
            return recording(np.arange(10)), 0

    sliced = data.Sliced(Set(), duration=3)
    assert not read and len(sliced) == 12
    read.clear()
    assert len(list(sliced)) == 12 and read == [0, 1, 2]
    assert sliced.sensor_size == (4, 1, 1) and sliced.classes == ("a",) and sliced[-1][0].sensor_size == (4, 1, 1)
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        _ = sliced.other


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: data.Sliced([]), ArgumentError, "give one of duration"),
        (lambda: data.Sliced([], duration=3, steps=2), ArgumentError, "give one of duration"),
        (lambda: data.Sliced([], steps=2, overlap=2), ArgumentError, "below the length of a slice, 2, not 2"),
        (lambda: len(data.Sliced([np.ones(3)], duration=2)), ShapeError, "sample 0 has a ndarray"),
        (lambda: len(data.Sliced([recording([1])], steps=2)), ShapeError, "sample 0 has events"),
        (lambda: len(data.Sliced([3], steps=2)), ShapeError, "sample 0 has a int"),
        (lambda: data.Sliced([np.ones(3)], steps=2)[2], IndexError, "index 2 is out of range for 2 slices"),
    ],
)
def test_invalid_slices_raise(call, error, words):
    with pytest.raises(error, match=words):
        call()


# --- samples on disk --------------------------------------------------------------------------------------------------


def note(index: int) -> None:
    os.environ["ASKED"] = f"{os.environ.get('ASKED', '')} {index}"


class Counting:
    """A data set that records each access where no digest sees it."""

    def __init__(self, samples: Any, transform: Any = None) -> None:
        self.samples, self.transform = samples, transform

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        note(index)
        sample = self.samples[index]
        return sample if self.transform is None else self.transform(sample)


def requested_samples(cached: Any) -> list[int]:
    """The samples that the cache requests from the data set in one pass over all samples."""
    os.environ["ASKED"] = ""
    list(cached)
    return list(map(int, os.environ["ASKED"].split()))


def equal(a: Any, b: Any) -> bool:
    if isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(a[name], b[name]) for name in b)
    if isinstance(b, (tuple, list)):
        return type(a) is type(b) and len(a) == len(b) and all(map(equal, a, b))
    same = type(a) is type(b) and np.array_equal(a, b, equal_nan=np.asarray(b).dtype.kind in "fc")
    return same and getattr(a, "dtype", None) == getattr(b, "dtype", None)


SAMPLES = [
    (np.arange(6, dtype=np.uint8).reshape(2, 3), 4),
    (recording([3, 1, 9]), "two words"),
    {"x": np.zeros((0, 3), np.float16), "y": [1.5, float("nan"), -0.0, True, None], 3: np.float32(2.5)},
    np.asfortranarray(RNG.normal(size=(3, 4)) + 1j),
    ("", (), [], {}, 2**80, float("inf")),
    np.array(["a", "bcd"]),
]


def test_cached_samples_are_unchanged_and_computed_once(tmp_path):
    cached = data.Cached(Counting(SAMPLES), tmp_path)
    for _ in range(2):
        assert all(equal(one, other) for one, other in zip(cached, SAMPLES, strict=True))
    assert cached[1][0].sensor_size == (4, 1, 1) and equal(cached[-1], SAMPLES[-1])
    assert requested_samples(cached) == [] == requested_samples(data.Cached(Counting(SAMPLES), tmp_path))
    cached[0][0][:] = 77  # the caller owns the arrays that it reads
    assert equal(cached[0], SAMPLES[0])
    with pytest.raises(IndexError, match="index 6 is out of range for 6 samples"):
        _ = cached[6]


def test_tensors_are_cached_as_arrays_and_other_objects_raise(tmp_path):
    found = data.Cached([Tensor([1.0, 2.0])], tmp_path)[0]
    assert type(found) is np.ndarray and found.tolist() == [1.0, 2.0]
    for wrong in (object(), np.array([object()]), {1, 2}):
        with pytest.raises(DTypeError, match=r"sample 0 contains a \w+, which cannot be saved"):
            _ = data.Cached(Counting([wrong]), tmp_path, key="wrong")[0]


FACTOR = 2.0


def times(x: Any, factor: float = 3.0) -> Any:
    return x * factor


def helped(x: Any) -> Any:
    return times(x) * FACTOR


class Scale:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, x: Any) -> Any:
        return x * self.factor


class Shifted(Scale):
    def __call__(self, x: Any) -> Any:
        return x + self.factor


def closing(factor: float) -> Any:
    return lambda x: x * factor


TRANSFORMS: dict[str, Any] = {
    "none": lambda: None,
    "a function": lambda: times,
    "partial": lambda: functools.partial(times, factor=4.0),
    "partial of another": lambda: functools.partial(times, factor=5.0),
    "with help": lambda: helped,
    "an object": lambda: Scale(2.0),
    "an object of another": lambda: Scale(3.0),
    "an object of another class": lambda: Shifted(2.0),
    "closed over": lambda: closing(2.0),
    "closed over another": lambda: closing(3.0),
    "lambda": lambda: lambda x: x + 1,
    "another lambda": lambda: lambda x: x + 2,
    "with a lambda inside": lambda: lambda x: (lambda z: z + 1)(x),
    "with another inside": lambda: lambda x: (lambda z: z + 2)(x),
    "of a set": lambda: lambda x: x + ("a" in {"a", "b", "c"}),
    "of C": lambda: abs,
    "NumPy's": lambda: np.sqrt,
    "snncell's": lambda: ops.sqrt,
    "a method": lambda: Scale(2.0).__call__,
    "an array's": lambda: np.arange(4.0).__mul__,
}


def test_cache_entries_depend_on_the_transform(tmp_path):
    samples = [np.ones(4), np.ones(4) * 2]
    for make in TRANSFORMS.values():
        assert requested_samples(data.Cached(Counting(samples, make()), tmp_path)) == [0, 1]
    for make in TRANSFORMS.values():
        assert requested_samples(data.Cached(Counting(samples, make()), tmp_path)) == []
    assert requested_samples(data.Cached(Counting([*samples, samples[0]]), tmp_path)) == [0, 1, 2]
    assert requested_samples(data.Cached(Counting([samples[0], samples[1] + 1e-9]), tmp_path)) == [0, 1]


def test_digest_includes_functions_and_globals_of_a_transform(tmp_path, monkeypatch):
    samples = [np.ones(3)]
    assert requested_samples(data.Cached(Counting(samples, helped), tmp_path)) == [0]
    module = sys.modules[__name__]
    monkeypatch.setattr(module, "FACTOR", 5.0)
    assert requested_samples(data.Cached(Counting(samples, helped), tmp_path)) == [0]
    monkeypatch.setattr(module, "times", lambda x: x)
    assert requested_samples(data.Cached(Counting(samples, helped), tmp_path)) == [0]
    monkeypatch.undo()
    assert requested_samples(data.Cached(Counting(samples, helped), tmp_path)) == []


def fill_padding(events: Events, rng: Any) -> Events:
    """The same events with random bytes in the padding of their records, which NumPy leaves uninitialised."""
    other = events.copy()
    inside = np.ones(events.dtype.itemsize, bool)
    for field, offset in events.dtype.fields.values():
        inside[offset : offset + field.itemsize] = False
    raw = other.view(np.ndarray).view(np.uint8).reshape(len(events), -1)
    raw[:, inside] = rng.integers(1, 256, (len(events), int(inside.sum())))
    return other


EQUAL_EVENTS: dict[str, Any] = {
    "other padding": lambda events, rng: fill_padding(events, rng),
    "joined": lambda events, rng: np.concatenate([events[:3], events[3:]]),
    "masked": lambda events, rng: np.concatenate([events, events])[np.arange(2 * len(events)) < len(events)],
    "jittered": lambda events, rng: data.TimeJitter(1e-9)(events),
    "restored": lambda events, rng: pickle.loads(pickle.dumps(events)),
}


@pytest.mark.parametrize("rows", [True, False])
@pytest.mark.parametrize("way", EQUAL_EVENTS)
def test_padding_bytes_of_events_do_not_affect_the_digest(tmp_path, way, rows):
    rng = np.random.default_rng(rows)
    sensor = (9, 9 if rows else 1, 2)
    columns = {name: rng.integers(0, size, 20) for name, size in zip("xyp", sensor, strict=True)}
    events = Events(np.arange(20), columns["x"], columns["y"] if rows else None, columns["p"], sensor_size=sensor)
    stored = set()
    for number in range(3):
        same = EQUAL_EVENTS[way](fill_padding(events, rng), rng)
        np.testing.assert_array_equal(same, events)
        cached = data.Cached(Counting([same]), tmp_path)
        assert requested_samples(cached) == ([] if number else [0])
        (file,) = cached.folder.rglob("*.sample")
        file.unlink()
        assert requested_samples(cached) == [0]
        stored.add(file.read_bytes())
    assert len(stored) == 1


def test_nested_records_are_stored_without_padding(tmp_path):
    inner = np.dtype({"names": ["a", "b"], "formats": ["u1", "<f8"], "offsets": [0, 8], "itemsize": 24})
    outer = np.dtype([("several", inner, (2,)), ("c", "u1")], align=True)
    for seed in range(2):
        array = np.random.default_rng(seed).integers(0, 256, 5 * outer.itemsize, np.uint8).view(outer)
        array["several"]["a"], array["several"]["b"], array["c"] = 1, 2.0, 3
        assert requested_samples(data.Cached(Counting([array]), tmp_path)) == ([] if seed else [0])


class Files:
    """Samples in files. The data set holds the path of each file, or of their folder."""

    def __init__(self, place: Any) -> None:
        self.place = place

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Any:
        note(index)
        return Path(self.place).stat().st_size


@pytest.mark.parametrize("kind", [str, Path])
@pytest.mark.parametrize("folder", [False, True])
def test_changed_source_file_is_read_again(tmp_path, kind, folder):
    (tmp_path / "in" / "deep").mkdir(parents=True)
    file = tmp_path / "in" / "deep" / "file"
    file.write_bytes(b"1")
    source = Files(kind(tmp_path / "in" if folder else file))
    kept = tmp_path / "in" / "kept" if folder else tmp_path / "kept"
    assert [requested_samples(data.Cached(source, kept)) for _ in range(3)] == [[0], [], []]
    os.utime(file, ns=(1, 1))
    assert [requested_samples(data.Cached(source, kept)) for _ in range(2)] == [[0], []]
    if folder:
        (tmp_path / "in" / "more").write_bytes(b"")
        assert [requested_samples(data.Cached(source, kept)) for _ in range(2)] == [[0], []]


def test_key_replaces_the_digest(tmp_path):
    with open(__file__, "rb") as stream:
        source = Files(stream)
        with pytest.raises(ArgumentError, match=r"cannot include a BufferedReader.*Pass key="):
            data.Cached(source, tmp_path)
    samples = [[1], [2]]
    for key, expected in (("one", [0, 1]), (("two", 3), [0, 1]), ("one", [])):
        assert requested_samples(data.Cached(Counting(samples, lambda x: x), tmp_path, key=key)) == expected


@pytest.mark.slow
def test_digest_is_equal_in_another_process(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import numpy as np, functools\nfrom snncell import data\n"
        "def f(x, names=frozenset('abc')):\n    return x if 'k' in {'q', 'k', 'z'} else names\n"
        "class Set(list):\n    def __init__(self, items):\n        super().__init__(items)\n"
        "        self.f = functools.partial(f)\n"
        "    def __getitem__(self, i):\n        return self.f(super().__getitem__(i))\n"
        "def digest(folder):\n    return data.Cached(Set([np.arange(3)]), folder).folder.name\n"
        "if __name__ == '__main__':\n    import mine\n    print(mine.digest('kept'))\n"
    )
    found = set()
    for seed in ("0", "1", "2"):
        run = subprocess.run(
            [sys.executable, "mine.py"], cwd=tmp_path, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True,
            text=True, check=True,
        )  # fmt: skip
        found.add(run.stdout)
    assert len(found) == 1


# --- damage -----------------------------------------------------------------------------------------------------------


def damages(content: bytes) -> list[bytes]:
    flipped = [bytearray(content) for _ in range(12)]
    for number, one in enumerate(flipped):
        one[number * (len(content) - 1) // 11] ^= 1 << number % 8
    return [
        b"",
        content[:1],
        content[:39],
        content[: len(content) // 2],
        content[:-1],
        content + b"0",
        *map(bytes, flipped),
    ]


def test_damaged_cache_file_is_rebuilt_with_a_warning(tmp_path):
    samples = [np.arange(5), np.arange(5) + 1]
    cached = data.Cached(Counting(samples), tmp_path)
    assert requested_samples(cached) == [0, 1]
    first, second = sorted(cached.folder.rglob("*.sample"))
    for wrong in [*damages(first.read_bytes()), second.read_bytes()]:  # the last file belongs to another sample
        first.write_bytes(wrong)
        with pytest.warns(RuntimeWarning, match=r"0\.sample is damaged.*Sample 0 is computed again"):
            assert cached[0].tolist() == [0, 1, 2, 3, 4]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert cached[0].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
@pytest.mark.parametrize("place", ["fdopen", "replace", "after"])
def test_process_killed_while_writing_leaves_no_readable_file(tmp_path, monkeypatch, place):
    cached = data.Cached(Counting([np.arange(50)]), tmp_path)
    child = os.fork()
    if not child:
        try:
            end = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # noqa: E731
            if place != "after":
                setattr(files.os, place, end)
            _ = cached[0]
            end()
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert len(list(cached.folder.rglob(".*.tmp"))) == (place != "after")
    again = data.Cached(Counting([np.arange(50)]), tmp_path)
    assert not list(cached.folder.rglob(".*.tmp"))
    assert requested_samples(again) == ([] if place == "after" else [0]) and again[0].tolist() == list(range(50))


def test_threads_and_processes_can_fill_a_cache_concurrently(tmp_path):
    samples = [np.full(200, number) for number in range(40)]
    dataset = Counting(samples)
    cached = data.Cached(dataset, tmp_path)
    wrong: list[Any] = []

    def read() -> None:
        own = data.Cached(dataset, tmp_path)
        wrong.extend(number for number in range(40) if (own[number] != number).any())

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for workers, processes in ((3, False), (2, True)):
        loader = data.Loader(cached, 4, False, workers=workers, processes=processes)
        assert [x.asnumpy()[0].tolist() for x, _ in loader] == [list(range(n, n + 4)) for n in range(0, 40, 4)]
    for thread in threads:
        thread.join()
    assert not wrong and requested_samples(cached) == []
    assert len(list(cached.folder.rglob("*.sample"))) == 40 and not list(cached.folder.rglob(".*"))


def test_transform_after_the_cache_runs_on_each_access(tmp_path):
    cached = data.Cached([(np.zeros(3), 1)], tmp_path, transform=lambda x: x + ops.uniform((3,)).asnumpy())
    assert (cached[0][0] != cached[0][0]).all() and cached[0][1] == 1
    for workers in (0, 2):
        first, second = (
            [x.asnumpy() for x, *_ in data.Loader(cached, 1, seed=2, workers=workers)] for _ in range(2)
        )  # fmt: skip
        np.testing.assert_array_equal(first, second)
