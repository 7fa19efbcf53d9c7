"""Loader: reproducible batches for any workers, buckets, resuming at each batch, errors, clean shutdown."""

from __future__ import annotations

import functools
import gc
import itertools
import json
import multiprocessing
import os
import queue
import random
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest
from random_cases import random_cases

import snncell
from snncell import Tensor, data, nn, ops, train
from snncell.base import signals
from snncell.data import Events, to_frames, workers as pools
from snncell.data.frames import grid_length
from snncell.errors import ArgumentError, DTypeError, ForkError, ShapeError, WorkerError
from snncell.ops.random import present_key

PATIENCE = 60.0  # seconds, for an operation that should be immediate
COUNT = 23
WORKERS = [(0, False), (1, False), (2, False), (3, False), (2, True)]
RNG = np.random.default_rng(0)
LENGTHS = RNG.integers(0, 40, COUNT)
LENGTHS[3] = 0
RECORDINGS = [(RNG.normal(size=(length, 2)).astype(np.float32), int(length) % 3) for length in LENGTHS]


@pytest.fixture(autouse=True, scope="module")
def forked():
    """Fork processes where possible, because a new process would import everything, in some hundred cases.

    test_data_spawned tests processes that are not forked, the default of some Pythons and systems.
    """
    before = multiprocessing.get_start_method(allow_none=True)
    if "fork" in multiprocessing.get_all_start_methods():
        multiprocessing.set_start_method("fork", force=True)
    yield
    multiprocessing.set_start_method(before, force=True)


def jitter(x: Any, rng: np.random.Generator) -> Any:
    """A transform with a random length, and random numbers of a generator and of snncell."""
    steps = int(rng.integers(0, len(x) + 1))
    return x[:steps] + ops.uniform(x[:steps].shape).asnumpy()


def batches_of(loader: data.Loader) -> list[list[Any]]:
    return [[np.array(part) for part in batch] for batch in loader]


def assert_same(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        for a, b in zip(one, other, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)


def nothing_left() -> bool:
    """True if no worker is left, after waiting for abandoned ones to end."""
    gc.collect()
    limit = time.monotonic() + PATIENCE
    while time.monotonic() < limit:
        if not any(t.name == pools.NAME for t in [*threading.enumerate(), *multiprocessing.active_children()]):
            return True
        time.sleep(0.001)
    return False


# --- the order of samples ---------------------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize("buckets", [None, 3, [16, 64]])
@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("drop_last", [True, False])
def test_batches_are_the_same_for_any_workers_and_prefetch(shuffle, drop_last, buckets):
    expected = None
    for (workers, processes), prefetch in itertools.product(WORKERS, (1, 3)):
        loader = data.Loader(
            RECORDINGS, 4, shuffle, transform=jitter, workers=workers, processes=processes, prefetch=prefetch, seed=5,
            drop_last=drop_last, buckets=buckets,
        )  # fmt: skip
        found = batches_of(loader) + batches_of(loader)
        expected = found if expected is None else expected
        assert_same(found, expected)
        assert len(found) == 2 * len(loader) == 2 * (COUNT // 4 + (not drop_last))
    half = len(expected) // 2
    assert (len({tuple(batch[2]) for batch in expected[:half]}) > 1) and nothing_left()
    order = [np.concatenate([batch[2] for batch in part]).tolist() for part in (expected[:half], expected[half:])]
    assert (order[0] != order[1]) == shuffle
    assert any(
        (a[0].shape != b[0].shape) or (a[0] != b[0]).any() for a, b in zip(expected, expected[half:], strict=False)
    )


def test_transform_draws_do_not_depend_on_batches_or_the_caller():
    def drawn(index: Any, rng: np.random.Generator) -> Any:
        return np.array([[index, rng.random()]])

    def of_each(batch_size: int, workers: int) -> dict[int, Any]:
        loader = data.Loader(list(range(9)), batch_size, transform=drawn, seed=1, workers=workers)
        rows = [row for x, _ in loader for row in np.array(x)[0]]
        return {int(row[0]): row[1] for row in rows}

    expected = of_each(9, 0)
    assert len(set(expected.values())) == 9
    for batch_size, workers in itertools.product((1, 4), (0, 2)):
        ops.uniform(3)
        assert of_each(batch_size, workers) == expected


@pytest.mark.parametrize(("workers", "processes"), WORKERS)
def test_loading_does_not_change_the_random_state_of_the_caller(workers, processes):
    loader = data.Loader(RECORDINGS, 4, transform=jitter, seed=0, workers=workers, processes=processes)
    before = present_key().tolist()
    for _ in loader:
        assert present_key().tolist() == before


def with_global_numbers(x: Any) -> Any:
    """A transform that uses the global generators of NumPy and Python, as in the code of many users."""
    return np.array([[np.random.random(), random.random(), np.random.normal()]])


@pytest.mark.sampled(2)
@random_cases(4)
def test_global_generators_are_seeded_per_sample_in_processes(seed):
    chance = random.Random(seed)
    own = {"seed": seed} if chance.random() < 0.7 else {}

    def loader():
        return data.Loader(
            list(range(11)), chance.choice([1, 2, 5]), False, transform=with_global_numbers, processes=True,
            workers=chance.choice([1, 2, 3]), **own,
        )  # fmt: skip

    def rows(batches):
        return np.concatenate([np.array(x)[0] for x, _ in batches])

    snncell.set_seed(seed)
    before = random.getstate(), np.random.get_state()[1].tolist()
    one = loader()
    both = rows(one), rows(one)
    for column in np.concatenate(both).T:  # no number repeats across samples, workers or epochs
        assert len(set(column.tolist())) == 22
    snncell.set_seed(seed)
    two = loader()
    np.testing.assert_array_equal(rows(two), both[0])
    passed = iter(two)
    taken = [next(passed) for _ in range(2)]
    three = data.Loader(list(range(11)), two.batch_size, False, transform=with_global_numbers, processes=True, **own)
    three.resume(two.state())
    passed.close()
    np.testing.assert_array_equal(np.concatenate([rows(taken), rows(three)]), both[1])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


def test_set_seed_applies_without_an_explicit_seed():
    loader = data.Loader(RECORDINGS, 4, transform=jitter, workers=2)
    runs = []
    for seed in (1, 1, 2):
        snncell.set_seed(seed)
        runs.append(batches_of(loader) + batches_of(loader))
    assert_same(runs[0], runs[1])
    assert any(a[2].tolist() != b[2].tolist() for a, b in zip(runs[0], runs[2], strict=True))


# --- padding ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("buckets", [None, 1, 4, [7, 23, 39], range(1, 41)])
def test_samples_are_complete_and_padded_with_zeros(buckets):
    loader = data.Loader(RECORDINGS, 5, False, buckets=buckets)
    number, lengths_seen = 0, set()
    for x, lengths, y in loader:
        lengths_seen.add(x.shape[0])
        for b in range(x.shape[1]):
            own, label = RECORDINGS[number]
            np.testing.assert_array_equal(x.asnumpy()[: len(own), b], own)
            assert not x.asnumpy()[len(own) :, b].any() and lengths[b] == len(own) and y[b] == label
            number += 1
    assert number == COUNT
    if isinstance(buckets, int):
        assert len(lengths_seen) <= buckets and max(lengths_seen) == LENGTHS.max()
    elif buckets is not None:
        assert lengths_seen <= set(buckets)


def test_length_grid_adds_less_than_half_of_padding():
    for length in range(2000):
        grid = grid_length(length)
        assert grid >= max(length, 1) and (length < 3 or grid < 1.5 * length)
        assert grid_length(grid) == grid and bin(grid).count("1") <= 2


SAMPLES: dict[str, tuple[Any, dict[str, Any], list[tuple[int, ...]]]] = {
    "arrays": (lambda n: np.ones((n, 3)), {}, [(4, 2, 3), (2,)]),
    "arrays without lengths": (lambda n: np.ones((n, 3)), {"lengths": False}, [(4, 2, 3)]),
    "lists": (lambda n: ([[0.5]] * n, n), {}, [(4, 2, 1), (2,), (2,)]),
    "Tensors": (lambda n: (ops.ones((n, 2)), Tensor(n)), {}, [(4, 2, 2), (2,), (2,)]),
    "images": (lambda n: (np.ones((1, 8, 8), np.uint8), n), {"sequences": ()}, [(2, 1, 8, 8), (2,)]),
    "labels over time": (
        lambda n: (np.ones((n, 3)), np.zeros(n, int)),
        {"sequences": (0, 1)},
        [(4, 2, 3), (2,), (4, 2)],
    ),
    "the second": (lambda n: (n, np.ones((n, 3))), {"sequences": (1,)}, [(2,), (4, 2, 3), (2,)]),
    "targets of several kinds": (lambda n: (np.ones((n, 3)), (n, np.ones(2))), {}, [(4, 2, 3), (2,), (2,), (2, 2)]),
    "NumPy's numbers": (lambda n: (np.ones((n, 3)), np.float64(n)), {}, [(4, 2, 3), (2,), (2,)]),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_of_many_structures_are_collated(name):
    make, options, shapes = SAMPLES[name]
    (batch,) = data.Loader([make(3), make(4)], 2, **options)
    parts = [inner for part in (batch if isinstance(batch, tuple) else (batch,))
             for inner in (part if isinstance(part, tuple) else (part,))]  # fmt: skip
    assert [part.shape for part in parts] == shapes and all(isinstance(part, Tensor) for part in parts)


def test_dict_samples_keep_their_keys_and_strings():
    samples = [{"x": np.ones((n, 2)), "name": f"file {n}", "more": {"y": n}} for n in (2, 3)]
    (batch,) = data.Loader(samples, 2, False)
    assert batch["x"].shape == (3, 2, 2) and batch["lengths"].tolist() == [2, 3]
    assert batch["name"] == ["file 2", "file 3"] and batch["more"]["y"].tolist() == [2, 3]
    samples = [{"x": np.ones((3, 2)), "lengths": 7}]
    with pytest.raises(ArgumentError, match=r'the name "lengths".*Rename this entry, or pass lengths=False'):
        next(iter(data.Loader(samples, 1)))
    (batch,) = data.Loader(samples, 1, lengths=False)
    assert batch["lengths"].tolist() == [7]


def test_transform_frames_events():
    def events(n: int) -> Any:
        return Events(np.arange(n) * 1000, x=np.arange(n) % 5, sensor_size=(5, 1, 1), p=np.zeros(n, int))

    samples = [(events(n), n % 2) for n in (3, 9)]
    (batch,) = data.Loader(samples, 2, False, transform=lambda e: to_frames(e, window=1000))
    assert batch[0].shape == (12, 2, 1, 5) and batch[1].tolist() == [3, 9] and batch[0].dtype == snncell.uint8
    with pytest.raises(DTypeError, match=r"sample 0 has events.*transform"):
        list(data.Loader(samples, 2, False))


def test_custom_collate_gets_the_samples():
    loader = data.Loader(RECORDINGS, 4, False, collate=lambda samples: {"n": np.array([y for _, y in samples])})
    assert next(iter(loader))["n"].tolist() == [y for _, y in RECORDINGS[:4]]


# --- resuming ---------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize(("workers", "processes"), [(0, False), (2, False), (2, True)])
def test_pass_can_be_resumed_at_each_batch(workers, processes, seed):
    options = {"transform": jitter, "seed": seed, "buckets": 2}
    loader = data.Loader(RECORDINGS, 4, workers=1, **options)
    list(loader)
    states, batches = [loader.state()], []
    key = None
    for batch in loader:
        batches.append([np.array(part) for part in batch])
        states.append(json.loads(json.dumps(loader.state())))
        key = key or present_key().tolist()
    snncell.set_seed(*key)
    following = batches_of(loader)
    for number, state in enumerate(states[seed is None :], seed is None):
        other = data.Loader(RECORDINGS, 4, workers=workers, processes=processes, **options)
        other.resume(state)
        snncell.set_seed(*key)
        rest = batches_of(other) if number < len(batches) else []
        assert_same(rest, batches[number:])
        assert_same(batches_of(other), following)


def test_abandoned_pass_restarts_unless_it_is_resumed():
    loader, whole = (data.Loader(RECORDINGS, 4, seed=3) for _ in range(2))
    passes = [batches_of(whole) for _ in range(3)]
    for number, _ in enumerate(loader):
        if number == 2:
            break
    state = loader.state()
    assert_same(batches_of(loader), passes[1])
    loader.resume(state)
    assert_same(batches_of(loader), passes[0][3:])
    assert_same(batches_of(loader), passes[1])


def test_invalid_states_raise():
    loader = data.Loader(RECORDINGS, 4, seed=3)
    state = loader.state()
    for wrong, words in (
        ({"batch_size": 5}, "batch_size is 5, not 4"),
        ({"given seed": 4}, "given seed is 4, not 3"),
        ({"samples": 1}, "samples is 1, not 23"),
        ({"epoch": -1}, "damaged: epoch -1"),
        ({"batch": 99, "seed": 3}, "damaged"),
        ({"batch": 1, "seed": None}, "damaged"),
        ({"quantiles": 5}, "damaged: .* quantiles 5"),
        ({"quantiles": [0]}, "buckets must be a positive integer"),
        ({"buckets": 3}, "buckets is 3, not None"),
    ):
        with pytest.raises(ArgumentError, match=words):
            loader.resume({**state, **wrong})
    with pytest.raises(ArgumentError, match="belongs to another Loader"):
        loader.resume(3)


# --- errors and clean shutdown ----------------------------------------------------------------------------------------


class Failing:
    """Recordings, one of which raises an error."""

    def __init__(self, wrong: int, error: Any) -> None:
        self.wrong, self.error = wrong, error

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        if index == self.wrong:
            raise self.error
        return RECORDINGS[index]


# Objects for processes are defined at module level, because not every system forks.


class UnportableError(Exception):
    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a} {b}")


def unportable(samples: Any) -> Any:
    return threading.Lock()


def kill(at: int, x: Any) -> Any:
    if len(x) == LENGTHS[at] and x.tolist() == RECORDINGS[at][0].tolist():
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def slow(seconds: float, x: Any) -> Any:
    time.sleep(seconds)
    return x


@pytest.mark.parametrize(("workers", "processes"), WORKERS)
@pytest.mark.parametrize("wrong", [0, 9, COUNT - 1])
def test_error_is_raised_at_its_batch_and_names_the_sample(wrong, workers, processes):
    loader = data.Loader(Failing(wrong, KeyError("gone")), 4, False, workers=workers, processes=processes)
    batches = []
    with pytest.raises(KeyError, match="gone") as caught:
        batches.extend(loader)
    assert len(batches) == wrong // 4 and nothing_left()
    assert any(f"sample {wrong} of the Failing" in note for note in caught.value.__notes__)
    assert loader.state()["batch"] == wrong // 4


def test_error_that_cannot_be_pickled_is_described():
    loader = data.Loader(Failing(5, UnportableError(1, 2)), 4, False, workers=2, processes=True)
    with pytest.raises(
        WorkerError, match=r"UnportableError in a process that made a batch:[\s\S]*sample 5 of the Failing"
    ):
        list(loader)
    with pytest.raises(WorkerError, match="a batch cannot be sent"):
        list(data.Loader(RECORDINGS, 4, collate=unportable, processes=True))
    assert nothing_left()


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no such signal here")
@pytest.mark.parametrize("at", [0, 11, 22])
def test_killed_worker_is_named(at):
    transform = functools.partial(kill, at)
    loader = data.Loader(RECORDINGS, 4, False, transform=transform, workers=2, processes=True)
    with pytest.raises(WorkerError, match=rf"batch {at // 4} has ended, with exit code -9, killed by SIGKILL"):
        list(loader)
    assert nothing_left()


@pytest.mark.parametrize(("workers", "processes"), WORKERS)
def test_abandoned_passes_leave_no_workers(workers, processes):
    loader = data.Loader(RECORDINGS, 2, workers=workers, processes=processes, prefetch=4)
    for _ in loader:
        break
    assert nothing_left()
    running = iter(loader)
    next(running)
    running.close()
    assert nothing_left()
    running = [iter(loader), iter(loader)]
    for one in running:
        next(one)
    del running, one
    assert nothing_left()
    iter(loader)  # never started
    assert nothing_left()


@pytest.mark.parametrize("processes", [False, True])
def test_interrupt_while_waiting_leaves_no_workers(processes):
    transform = functools.partial(slow, 30.0 if processes else 0.02)
    loader = data.Loader(RECORDINGS, 10, transform=transform, workers=2, processes=processes)
    timer = threading.Timer(0.3 if processes else 0.05, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        list(itertools.chain.from_iterable(loader for _ in range(1000)))
    timer.join()
    assert nothing_left()


@pytest.mark.parametrize("late", [False, True])
def test_interrupt_at_the_start_of_a_wait_is_handled(late):
    """Simulates a signal after the interpreter's last check. Its handler runs at the next check."""
    asked = []

    class Queue:
        def get(self, timeout: float) -> Any:
            assert timeout <= 1.0
            asked.append(timeout)
            if len(asked) < 3:
                raise queue.Empty
            if late:
                raise KeyboardInterrupt
            return "a batch"

    if late:
        with pytest.raises(KeyboardInterrupt):
            signals.take_from(Queue())
    else:
        assert signals.take_from(Queue()) == "a batch"
    assert len(asked) == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_forked_process_cannot_use_the_workers_of_its_parent():
    running = iter(data.Loader(RECORDINGS, 2, workers=2))
    next(running)
    child = os.fork()
    if not child:
        code = 1
        try:
            for _ in running:
                pass
        except ForkError:
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert len(list(running)) == 11 and nothing_left()


def test_prefetch_limits_the_number_of_batches():
    made = []

    def noted(index: Any) -> Any:
        made.append(index)
        return np.ones(1)

    loader = data.Loader(list(range(20)), 1, False, transform=noted, workers=1, prefetch=3)
    for number, _ in enumerate(loader):
        time.sleep(0.005)
        assert max(made) <= number + 4


WRONG: list[tuple[Any, type[Exception], str]] = [
    (
        lambda: data.Loader(iter([1]), 2),
        ArgumentError,
        r"len\(dataset\) and dataset\[i\], and a list_iterator does not",
    ),
    (lambda: data.Loader([], 2), ArgumentError, "0 samples give no batch of 2"),
    (lambda: data.Loader([1], 2, drop_last=True), ArgumentError, r"drop_last=True\. Choose a smaller batch_size"),
    (lambda: data.Loader([1], 2, buckets=[0, 3]), ArgumentError, "buckets must be a positive integer"),
    (lambda: data.Loader([1], 2, buckets=True), ArgumentError, "buckets must be a positive integer"),
    (
        lambda: list(data.Loader([([1.0], 1)], 2, sequences=(2,))),
        ArgumentError,
        "contains 2, but a sample has only 0, 1",
    ),
    (lambda: list(data.Loader([1, 2], 2)), ShapeError, r"sample [01] has a int.*sequences=\(\)"),
    (lambda: list(data.Loader([np.ones(9)], 2, buckets=[4, 8])), ArgumentError, "sample 0 has 9 steps, more than .* 8"),
    (lambda: list(data.Loader([np.ones((2, 3)), np.ones((2, 4))], 2)), ShapeError, "may differ only in their lengths"),
    (lambda: list(data.Loader([(np.ones(2), 1), (np.ones(2),)], 2, False)), ShapeError, "sample 1 has 0[.]$"),
    (lambda: list(data.Loader([([1.0], None)], 2)), DTypeError, "sample 0 has a NoneType"),
    (lambda: list(data.Loader([(np.ones(2), np.ones(3))], 2, sequences=(0, 1))), ShapeError, "must have equal lengths"),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_invalid_arguments_raise(number):
    call, error, words = WRONG[number]
    with pytest.raises(error, match=words):
        call()
    assert nothing_left()


# --- training ---------------------------------------------------------------------------------------------------------


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.hidden = nn.SequentialCell(nn.Dense(2, 8), nn.MultiStep(nn.LIFNode(tau=2.0, v_threshold=0.3)))
        self.readout = nn.Dense(8, 3)

    def construct(self, x, lengths):
        return snncell.encode.mean_membrane(self.readout(self.hidden(x)), lengths=lengths)


def train_net(epochs: int, path: Any, resume: bool, seed: Any, workers: int) -> Any:
    snncell.set_seed(0)
    net = Net()
    loader = data.Loader(RECORDINGS, 8, transform=jitter, seed=seed, workers=workers)
    test = data.Loader(RECORDINGS, 8, False, transform=jitter, seed=seed, workers=workers)
    adam = nn.Adam(net.trainable_params(), 0.01)
    options = {"checkpoint": path, "resume": resume, "progress": False}
    train.fit(net, nn.CrossEntropyLoss(), adam, loader, epochs, validation=test, **options)
    return [p.asnumpy() for p in net.get_parameters()]


@pytest.mark.parametrize("seed", [None, 4])
def test_training_resumes_bitwise(tmp_path, seed):
    whole = train_net(3, tmp_path / "whole", False, seed, 0)
    train_net(1, tmp_path / "parts", False, seed, 2)
    for one, other in zip(train_net(3, tmp_path / "parts", True, seed, 1), whole, strict=True):
        np.testing.assert_array_equal(one, other)


# --- PyTorch ----------------------------------------------------------------------------------------------------------


def test_data_sets_are_interchangeable_with_pytorch():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    class Set(torch.utils.data.Dataset):
        def __len__(self):
            return COUNT

        def __getitem__(self, index):
            x, y = RECORDINGS[index]
            return torch.from_numpy(x), torch.tensor(y)

    for of_torch in (Set(), torch.utils.data.Subset(Set(), range(COUNT))):
        assert_same(
            batches_of(data.Loader(of_torch, 4, seed=1, workers=2)), batches_of(data.Loader(RECORDINGS, 4, seed=1))
        )
    equal = [(np.ones((5, 2), np.float32) * n, n) for n in range(6)]
    batches = list(torch.utils.data.DataLoader(equal, 3))
    assert [batch[0].shape for batch in batches] == [(3, 5, 2)] * 2


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_samples_of_one_length_are_not_padded(batch: int) -> None:
    recordings = [np.ones((steps, 3), np.float32) for steps in (100, 100, 100, 100, 100, 90, 100, 100)]
    found = [x.shape[0] for x, lengths in data.Loader([(x,) for x in recordings], batch, shuffle=False)]
    expected = [recordings[n : n + batch] for n in range(0, len(recordings), batch)]
    alike = [len({len(x) for x in own}) == 1 and len(own) > 1 for own in expected]
    assert found == [
        100 if one else max(96 if len(x) < 97 else 128 for x in own) for one, own in zip(alike, expected, strict=True)
    ]


class KeepsAGenerator:
    def __init__(self):
        self.rng = np.random.default_rng(0)

    def __call__(self, x):
        return x + self.rng.normal()


def test_transform_in_processes_must_not_keep_a_generator():
    with pytest.raises(ArgumentError, match=r"the transform keeps a random generator.*an argument rng"):
        data.Loader(RECORDINGS, 4, transform=KeepsAGenerator(), processes=True)
    assert data.Loader(RECORDINGS, 4, transform=KeepsAGenerator())


@pytest.mark.parametrize("shapes", [((8, 3), (8,)), ((8, 3), (8, 3)), ((5, 8, 2), (8,), (8,))])
def test_tuple_of_arrays_is_not_a_data_set(shapes):
    for kind in (np.ones, ops.ones):
        with pytest.raises(ArgumentError, match=rf"a tuple of {len(shapes)} arrays.*train\.Batches\(inputs, targets\)"):
            data.Loader(tuple(kind(shape) for shape in shapes), 2)
