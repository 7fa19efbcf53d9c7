"""Prefetching of batches by a thread: same bits as without, and errors, interruptions and forks at any point."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from interrupting import blas, each_interruption, left_behind, present_settings

import snncell
from snncell import Tensor, nn, ops, train
from snncell.errors import ArgumentError, ForkError
from snncell.kernels.numba.build import build
from snncell.ops.random import present_key
from snncell.tape.state import CHECKING, TRACING
from snncell.train import batches
from snncell.train.batches import prefetch_batches, should_prefetch

PATIENCE = 60.0  # seconds, for what takes none
FEATURES, CLASSES, COUNT = 5, 3, 24
LOSS = nn.CrossEntropyLoss()


def samples(seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(COUNT, FEATURES)).astype(np.float32), rng.integers(0, CLASSES, COUNT)


def data_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "snncell data"]


def none_left() -> bool:
    """True if no thread prefetches data, possibly after garbage collection."""
    gc.collect()
    limit = time.monotonic() + PATIENCE
    while data_threads() and time.monotonic() < limit:
        time.sleep(0.001)
    return not data_threads()


# --- random numbers in data and step ----------------------------------------------------------------------------------

noise = snncell.jit(lambda x: x + 0.1 * ops.normal(x.shape))
DRAWS: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda x: x,
    "eager": lambda x: Tensor(x) + ops.uniform(x.shape),
    "jitted": lambda x: noise(Tensor(x)),
    "in a loop": lambda x: ops.scan(lambda c, row: (c, row + ops.uniform(())), ops.zeros(()), Tensor(x))[1],
    "dropout": lambda x: ops.dropout(Tensor(x), 0.3),
    "encoder": lambda x: snncell.encode.rate(ops.sigmoid(Tensor(x)), 2).mean(0),
    "of a seed of its own": lambda x: (snncell.set_seed(int(abs(x[0, 0]) * 1000)), Tensor(x) + ops.uniform(x.shape))[1],
    "evaluating": lambda x: Tensor(x) + train.evaluate(INNER, LOSS, samples(), prefetch=True)["loss"],
}
INNER = nn.SequentialCell(nn.Dense(FEATURES, CLASSES), nn.Dropout(p=0.5))


class Own:
    """Custom batches; they draw their order, and then by `draw` at `places` of each pass."""

    def __init__(self, places: str, draw: Callable[[Any], Any], kind: str = "arrays") -> None:
        self.places, self.draw, self.kind = places, draw, kind

    def __len__(self) -> int:
        return 3

    def __iter__(self) -> Iterator[Any]:
        x, y = samples()
        if "order" in self.places:
            order = ops.randperm(COUNT).asnumpy()
            x, y = x[order], y[order]
        for n in range(3):
            part = slice(8 * n, 8 * n + 8)
            inputs = self.draw(x[part]) if "batches" in self.places else x[part]
            yield inputs, y[part]
        if "end" in self.places:
            self.draw(x[:2])


class Indexed:
    """Random batches by index."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, n: int) -> Any:
        if n == 3:
            raise IndexError
        x, y = samples()
        return Tensor(x[8 * n : 8 * n + 8]) + ops.uniform((8, 1)), y[8 * n : 8 * n + 8]


DATA: dict[str, Callable[[], Any]] = {
    "arrays": samples,
    "Batches": lambda: train.Batches(*samples(), batch_size=7, drop_last=True),
    "list": lambda: [(x, y) for x, y in Own("", DRAWS["nothing"])],
    "indexed": Indexed,
    **{
        f"{places}: {how}": lambda places=places, draw=draw: Own(places, draw)
        for places in ("order batches", "batches end", "order batches end")
        for how, draw in DRAWS.items()
    },
}


def trained(data: Any, prefetch: bool | None, stop: int | None = None, **more: Any) -> tuple[Any, ...]:
    """A training by its history, weights, and the next random numbers of this thread and of a new one."""
    snncell.set_seed(3)
    net = nn.SequentialCell(nn.Dense(FEATURES, 6), nn.Dropout(p=0.4), nn.Dense(6, CLASSES))
    adam = nn.Adam(net.trainable_params(), 0.05)
    options = {"batch_size": 7, "progress": False, "test": samples(1), **more}
    found = train.fit(net, LOSS, adam, data, 3 if stop is None else stop, prefetch=prefetch, **options)
    weights = [p.asnumpy().tobytes() for p in net.get_parameters()]
    drawn: list[Any] = []
    thread = threading.Thread(target=lambda: drawn.append(ops.uniform((3,)).tolist()))
    thread.start()
    thread.join()
    return found.history, weights, present_key().tolist(), drawn


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", DATA)
def test_prefetch_keeps_bits_of_training(name: str, tmp_path: Any) -> None:
    expected = trained(DATA[name](), False)
    assert trained(DATA[name](), True) == expected
    assert none_left()
    # Stopped after an epoch, and resumed, with a thread and without.
    for n, (first, second) in enumerate(((True, True), (True, False), (False, True))):
        file = tmp_path / f"{n}.safetensors"
        trained(DATA[name](), first, stop=2, checkpoint=file)
        snncell.set_seed(77)
        again = trained(DATA[name](), second, checkpoint=file, resume=True)
        assert again[:3] == expected[:3]


def test_prefetch_keeps_bits_of_early_stopping() -> None:
    data = DATA["order batches end: eager"]
    assert trained(data(), True, stop=12, patience=1) == trained(data(), False, stop=12, patience=1)


def test_prefetch_keeps_bits_of_evaluation() -> None:
    net = nn.Dense(FEATURES, CLASSES)
    for name in ("arrays", "order batches: jitted"):
        found = []
        for prefetch in (False, True, None):
            snncell.set_seed(4)
            found.append(train.evaluate(net, LOSS, DATA[name](), prefetch=prefetch))
        assert found[0] == found[1] == found[2]


def test_thread_inherits_settings_of_caller() -> None:
    def seen() -> Iterator[Any]:
        yield CHECKING.smooth, TRACING.unfused, np.geterr()["over"], ops.ones(2).dtype

    for context in (contextlib.nullcontext(), snncell.surrogate.smooth(), snncell.testing.unfused()):
        with context, np.errstate(over="ignore"), prefetch_batches(seen(), lambda x: x, True) as found:
            assert list(found) == list(seen())


# --- one batch ahead --------------------------------------------------------------------------------------------------


class Item:
    pass


def test_only_one_batch_is_prefetched() -> None:
    living: weakref.WeakSet[Item] = weakref.WeakSet()
    begun = [threading.Event() for _ in range(7)]

    def items() -> Iterator[Item]:
        for event in begun:
            item = Item()
            living.add(item)
            event.set()
            yield item
            del item

    with prefetch_batches(items(), lambda x: x, True) as found:
        for n, _ in enumerate(found):
            if n < 6:
                assert begun[n + 1].wait(PATIENCE)  # while this one is in use
            time.sleep(0.005)
            assert n > 4 or not begun[n + 2].is_set()
            assert len(living) <= 2
    assert none_left()


def test_batches_that_draw_random_numbers_wait_for_step() -> None:
    order: list[str] = []

    def items() -> Iterator[int]:
        for n in range(3):
            order.append(f"make {n}")
            ops.uniform(())
            order.append(f"drawn {n}")
            yield n

    with prefetch_batches(items(), lambda x: x, True) as found:
        for n in found:
            time.sleep(0.02)
            order.append(f"done {n}")
    for n in range(1, 3):
        assert order.index(f"done {n - 1}") < order.index(f"drawn {n}")


def test_large_arrays_are_prefetched_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    class Subclass(train.Batches):
        pass

    class Other(train.Batches):
        def __iter__(self) -> Iterator[Any]:
            yield from super().__iter__()

    def ahead_of(data: Any, prefetch: bool | None = None) -> bool:
        chosen = should_prefetch(data) if prefetch is None else prefetch
        return isinstance(prefetch_batches(data, lambda x: x, chosen), batches._Prefetcher)

    small = {kind: kind(*samples(), batch_size=8) for kind in (train.Batches, Subclass, Other)}
    assert not any(ahead_of(data) for data in small.values())
    assert all(ahead_of(data, True) for data in (*small.values(), [], Own("", noise)))
    size = sum(array.nbytes for array in samples()) // COUNT * 8
    monkeypatch.setattr(batches, "LEAST_BYTES", size)
    assert [ahead_of(data) for data in small.values()] == [True, True, False]
    assert not ahead_of(small[train.Batches], False) and not ahead_of([samples()]) and not ahead_of(Own("", noise))
    monkeypatch.setattr(batches, "LEAST_BYTES", size + 1)
    assert not ahead_of(small[train.Batches])


def test_prefetch_is_disabled_while_gpu_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "IN_USE", ["a card"])
    assert not isinstance(prefetch_batches([1], lambda x: x, True), batches._Prefetcher)


# --- errors -----------------------------------------------------------------------------------------------------------


class FaultError(Exception):
    pass


class Failing:
    """Data that raise at a given place, and record that they were closed."""

    def __init__(self, place: str, error: BaseException) -> None:
        self.place, self.error, self.closed = place, error, 0

    def fail(self, place: str) -> None:
        if place == self.place:
            raise self.error

    def __iter__(self) -> Iterator[Any]:
        self.fail("iter")
        return self.batches()

    def batches(self) -> Iterator[Any]:
        x, y = samples()
        try:
            self.fail("begin")
            for n in range(3):
                self.fail(f"batch {n}")
                if self.place == f"drawing {n}":
                    ops.uniform((-1,))
                yield "no batch" if self.place == f"refused {n}" else (x, y)
            self.fail("end")
        finally:
            self.closed += 1


PLACES = ["iter", "begin", *(f"{kind} {n}" for kind in ("batch", "drawing", "refused") for n in range(3)), "end"]
ERRORS = [FaultError("a fault"), KeyError("a key"), SystemExit(3), KeyboardInterrupt("by hand"), GeneratorExit()]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("place", PLACES)
def test_error_in_data_is_raised_by_call(place: str, error: BaseException) -> None:
    def raised(prefetch: bool) -> tuple[Any, ...]:
        data = Failing(place, type(error)(*error.args))
        found = None
        try:
            train.evaluate(nn.Dense(FEATURES, CLASSES), LOSS, data, prefetch=prefetch)
        except BaseException as caught:
            found = type(caught), str(caught)
            frames = [frame.name for frame in traceback.extract_tb(caught.__traceback__)]
        assert found is not None and none_left()
        assert frames[0] == "raised" and ("batches" in frames or place.startswith(("iter", "refused")))
        gc.collect()
        return found, data.closed

    assert raised(True) == raised(False)


def test_error_in_step_ends_thread_and_closes_data() -> None:
    for n in range(3):
        data, seen = Failing("", FaultError()), itertools.count()

        def step(*batch: Any, n: int = n, seen: Any = seen) -> Any:
            if next(seen) == n:
                raise FaultError(str(n))
            return {}

        def steps(data: Any = data, step: Any = step) -> None:
            with prefetch_batches(data, lambda x: x, True) as found:
                for batch in found:
                    step(batch)

        with pytest.raises(FaultError, match=str(n)):
            steps()
        assert not data_threads() and data.closed == 1


def test_abandoned_pass_closes_data() -> None:
    for places in ("", "order", "batches"):
        data = Own(places, DRAWS["eager"])
        with prefetch_batches(data, lambda x: x, True) as found:
            next(iter(found))
        assert not data_threads()
    data = Failing("", FaultError())
    with prefetch_batches(data, lambda x: x, True):
        pass
    assert not data_threads() and data.closed in (0, 1)


def test_garbage_collected_pass_ends_its_thread() -> None:
    data = Failing("", FaultError())
    forgotten = prefetch_batches(data, lambda x: x, True)
    next(iter(forgotten.__enter__()))
    assert data_threads()
    del forgotten
    assert none_left() and data.closed == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("draw", ["nothing", "eager"])
def test_interruption_at_any_place_ends_thread(draw: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def waiting(function: Callable[[], Any]) -> Any:
        interrupt = sys.getprofile()
        sys.setprofile(None)
        try:
            return function()
        finally:
            sys.setprofile(interrupt)

    # Signals wait for what is deferred; the interruptions of this test would not.
    monkeypatch.setattr(batches, "deferring", waiting)
    data = Own("order batches", DRAWS[draw])

    def gone_through() -> list[Any]:
        with prefetch_batches(data, lambda batch: batch[1].tolist(), True) as found:
            return list(found)

    snncell.set_seed(6)
    expected, settings, threads, count = gone_through(), present_settings(), blas(), 0
    for where in each_interruption(gone_through, 120):
        count += 1
        assert none_left(), where
        assert not left_behind(settings, threads), where
        snncell.set_seed(6)
        assert gone_through() == expected, where
    assert count >= 30


# --- forks ------------------------------------------------------------------------------------------------------------


def exit_of(child: Callable[[], bool]) -> int:
    """The exit status of a forked child; 0 if `child()` is true."""
    process = os.fork()
    if process == 0:
        status = 2
        try:
            status = 0 if child() else 1
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


FORKS = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no forks")


@FORKS
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_prefetched_batches_raise_in_forked_child() -> None:
    def refused() -> bool:
        try:
            next(batches)
        except ForkError as error:
            return "prefetched batches" in str(error)
        return False

    with prefetch_batches(Own("batches", DRAWS["eager"]), lambda x: x, True) as found:
        batches = iter(found)
        next(batches)
        assert exit_of(refused) == 0
        assert len(list(batches)) == 2
    assert none_left()


@FORKS
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_data_can_fork_processes() -> None:
    snncell.set_seed(8)
    expected = [ops.uniform(()).item() for _ in range(2)]

    def fine() -> bool:
        drawn = [ops.uniform(()).item() for _ in range(2)]
        return drawn == expected and trained(samples(), True, stop=1)[0][0]["loss"] > 0.0

    def items() -> Iterator[int]:
        for n in range(3):
            snncell.set_seed(8)
            yield exit_of(fine) + n

    net = nn.SequentialCell(nn.Dense(64, 64), nn.Dense(64, CLASSES))
    x = ops.ones((64, 64))
    with prefetch_batches(items(), lambda x: x, True) as found:
        for n, item in enumerate(found):
            assert item == n
            for _ in range(20):
                net(x)


# --- kernels release the GIL ------------------------------------------------------------------------------------------

ADDING = """
def adding(start, stop, x):
    for unit in range(start, stop):
        for n in range(x.shape[0]):
            x[n] = x[n] * 0.999 + unit
"""


@pytest.mark.compiled
@pytest.mark.parametrize("grain", [0, 1])
def test_other_threads_run_during_kernel(grain: int) -> None:
    kernel = build("adding", ADDING, ((snncell.float32, 1, True),))
    x, count, done = np.zeros(1 << 16, np.float32), itertools.count(), threading.Event()

    def counting() -> None:
        while not done.is_set():
            next(count)
            time.sleep(1e-4)

    interval = sys.getswitchinterval()
    thread = threading.Thread(target=counting)
    thread.start()
    try:
        # No thread is made to give way: another one runs only where this one lets it.
        sys.setswitchinterval(1000.0)
        for _ in range(50):  # on a busy machine the other thread may not get a core at once
            before = next(count)
            kernel(400 if grain == 0 else 64, grain, x)
            after = next(count)
            if after > before + 1:
                break
    finally:
        sys.setswitchinterval(interval)
        done.set()
        thread.join()
    assert after > before + 1


def test_invalid_prefetch_option_raises() -> None:
    with pytest.raises(ArgumentError, match="prefetch"):
        train.evaluate(nn.Dense(FEATURES, CLASSES), LOSS, samples(), prefetch="often")  # type: ignore[arg-type]
