"""Memory pool of large arrays: aligned, never shared by two owners, and reused after release."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import snncell
from snncell import Tensor, nn, ops
from snncell.errors import ArgumentError
from snncell.kernels import arrays
from snncell.kernels.arrays import POOL, POOLED_BYTES
from snncell.tape.tensor import wrap

FLOAT = np.dtype(np.float32)
SHAPE = (5, POOLED_BYTES // 16)  # a quarter above the pooling threshold
BYTES = 4 * SHAPE[0] * SHAPE[1]
LIMIT = 1 << 31


@pytest.fixture(autouse=True, scope="module")
def _frozen() -> Iterator[None]:
    """Freeze garbage of other tests, so that collections are fast and find only our objects."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _emptied() -> Iterator[None]:
    """An empty pool with the default limit."""
    snncell.empty_pool()
    yield
    snncell.set_context(pool_limit=LIMIT)
    gc.collect()
    snncell.empty_pool()


def filled_array(value: float = 7.0) -> Any:
    """A new array from the pool, filled with one number."""
    array = arrays.empty(SHAPE, FLOAT)
    array[:] = value
    return array


def address(array: Any) -> int:
    """Return the address of its first element."""
    return int(array.__array_interface__["data"][0])


def in_a_process(script: str, *arguments: str, flags: tuple[str, ...] = ("-W", "error")) -> tuple[str, str]:
    """Run a script in a separate process and return its stdout and stderr."""
    done = subprocess.run(
        [sys.executable, *flags, "-c", script, *arguments], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


# --- arrays.empty -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (0,), (3, 4), (0, 1 << 40), (POOLED_BYTES // 4 - 1,)])
def test_small_arrays_come_from_numpy(shape: tuple[int, ...]) -> None:
    array = arrays.empty(shape, FLOAT)
    assert array.shape == shape and array.dtype == FLOAT and array.flags.owndata and array.flags.writeable
    del array
    assert POOL.held == 0


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "float16", "float32", "int64", "float64", "complex128"])
@pytest.mark.parametrize("extra", [0, 1, 4097])
def test_large_arrays_are_aligned_contiguous_and_writable(dtype: str, extra: int) -> None:
    kind = np.dtype(dtype)
    shape = (POOLED_BYTES // kind.itemsize + extra,)
    for _ in range(2):  # new memory, then reused memory
        array = arrays.empty(shape, kind)
        assert address(array) % 64 == 0
        assert array.shape == shape and array.dtype == kind
        flags = array.flags
        assert flags.writeable and flags.c_contiguous and flags.aligned and not flags.owndata
        array[:] = 1
        assert array.sum(dtype=np.complex128) == shape[0]
        del array
    assert POOL.held > 0


@pytest.mark.parametrize("shape", [(3, 5, 8192), (8192, 1, 17), (1, 1, 70_000), (2,) * 17, (70_000,)])
def test_large_arrays_can_have_any_shape(shape: tuple[int, ...]) -> None:
    array = arrays.empty(shape, FLOAT)
    assert array.shape == shape and array.flags.c_contiguous
    array[...] = np.arange(array.size, dtype=np.float32).reshape(shape)
    np.testing.assert_array_equal(array.reshape(-1), np.arange(array.size, dtype=np.float32))


def test_array_lies_within_its_block() -> None:
    for size in (POOLED_BYTES, POOLED_BYTES + 1, (1 << 20) - 1, (1 << 20) + 12345):
        lease = arrays._Lease(POOL, size)
        array, block = np.asarray(lease), lease._block
        first, past = address(block), address(block) + block.size
        assert first <= address(array) and address(array) + array.nbytes <= past
        assert size <= block.size <= size * 9 / 8  # rounded up by at most an eighth


# --- reuse of memory --------------------------------------------------------------------------------------------------


def test_memory_of_a_freed_array_is_reused() -> None:
    array = filled_array()
    first = address(array)
    del array
    held = POOL.held
    assert BYTES <= held <= BYTES * 9 / 8
    again = filled_array()
    assert address(again) == first and POOL.held == 0
    del again
    assert POOL.held == held
    other = arrays.empty((SHAPE[1], SHAPE[0]), np.dtype(np.int32))  # as many bytes, another shape and dtype
    assert address(other) == first and POOL.held == 0


def test_nearly_equal_sizes_share_a_block() -> None:
    array = arrays.empty((1000, 1000), FLOAT)
    first = address(array)
    del array
    array = arrays.empty((1000, 999), FLOAT)
    assert address(array) == first
    del array
    held = POOL.held
    smaller = arrays.empty((1000, 500), FLOAT)  # it gets a separate block, because half would be wasted
    assert POOL.held == held
    del smaller
    assert POOL.held > held


HOLDERS: dict[str, Callable[[Any], Any]] = {
    "the array": lambda a: a,
    "reshape": lambda a: a.reshape(-1),
    "slice": lambda a: a[1:3, ::7],
    "one row": lambda a: a[2],
    "transposed": lambda a: a.T,
    "another dtype": lambda a: a.view(np.uint8),
    "broadcast": lambda a: np.broadcast_to(a, (3, *a.shape)),
    "a view of a view of a view": lambda a: a.reshape(-1)[5:].view(np.int32)[::2],
    "iterator": lambda a: a.flat,
    "Tensor": lambda a: wrap(a),
    "asarray of a Tensor": lambda a: np.asarray(wrap(a)),
    "asnumpy of a Tensor": lambda a: wrap(a).asnumpy(),
    "base of asnumpy": lambda a: wrap(a).asnumpy().base,
    "base of a base": lambda a: wrap(a).asnumpy().base.base,
    "memoryview": memoryview,
    "memoryview of an element's bytes": lambda a: memoryview(a).cast("B")[4:8],
    "frombuffer": lambda a: np.frombuffer(memoryview(a), np.float32),
    "pickle buffer": pickle.PickleBuffer,
    "DLPack": np.from_dlpack,
    "DLPack capsule": lambda a: a.__dlpack__(),
    "array interface": lambda a: np.asarray(type("Holder", (), {"__array_interface__": a.__array_interface__, "a": a})),
    "ctypes": lambda a: a.ctypes,
    "ctypes pointer": lambda a: a.ctypes.data_as(__import__("ctypes").c_void_p),
    "Tensor of a view": lambda a: ops.reshape(wrap(a), (-1,)),
    "part of a Tensor": lambda a: wrap(a)[1],
    "closure": lambda a: lambda: a,
    "cycle": lambda a: (lambda made: made.append((made, a)) or made)([]),
}


@pytest.mark.parametrize("how", HOLDERS)
def test_memory_in_use_is_not_reused(how: str) -> None:
    array = filled_array()
    first, check = address(array), array[3, 10:20].copy()
    holder = HOLDERS[how](array)
    del array
    gc.collect()
    assert POOL.held == 0
    others = [filled_array(-1.0) for _ in range(3)]
    assert all(abs(address(other) - first) >= BYTES for other in others)
    del others
    snncell.empty_pool()
    if isinstance(holder, np.ndarray) and holder.dtype == FLOAT:
        assert (holder == 7.0).all()
    del holder
    gc.collect()
    assert POOL.held >= BYTES
    again = arrays.empty(SHAPE, FLOAT)
    assert address(again) == first
    np.testing.assert_array_equal(again[3, 10:20], check)  # the memory is unchanged


def test_memory_shared_with_pytorch_is_not_reused(torch: Any) -> None:
    array = filled_array()
    held = torch.from_numpy(array)[2:]
    first = address(array)
    del array
    gc.collect()
    assert POOL.held == 0 and address(filled_array(-1.0)) != first
    assert float(held.min()) == float(held.max()) == 7.0
    del held
    gc.collect()
    assert POOL.held >= 2 * BYTES


def test_dlpack_consumer_of_a_tensor_has_a_copy() -> None:
    tensor = wrap(filled_array())
    consumer = np.from_dlpack(tensor)
    del tensor
    assert POOL.held >= BYTES  # the Tensor's memory is free
    assert (filled_array(-1.0) == -1.0).all()
    assert (consumer == 7.0).all()


def test_arrays_given_to_users_cannot_be_made_writable() -> None:
    view = wrap(filled_array()).asnumpy()
    chain = [view]
    while isinstance(chain[-1].base, np.ndarray):
        chain.append(chain[-1].base)
    for array in chain:
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True
    del view, chain, array
    assert filled_array().flags.writeable  # arrays of the next owner are writable


def test_collected_cycle_releases_its_memory() -> None:
    gc.disable()
    try:
        cycle: list[Any] = [filled_array()]
        cycle.append(cycle)
        del cycle
        assert POOL.held == 0
        gc.collect()
        assert POOL.held >= BYTES
    finally:
        gc.enable()


# --- results kept by the user -----------------------------------------------------------------------------------------


@pytest.fixture
def small_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pool arrays of a kilobyte, because large ones take too long without the compiler."""
    monkeypatch.setattr(arrays, "POOLED_BYTES", 1 << 10)


class Rounds:
    """Results of many runs, where every tenth is kept together with a copy of its values."""

    def __init__(self, compute: Callable[[Any], Any], shape: tuple[int, ...], rounds: int = 60) -> None:
        rng = np.random.default_rng(1)
        self.kept: list[tuple[Any, Any]] = []
        for number in range(rounds):
            x = Tensor(rng.normal(scale=2.0, size=shape).astype(np.float32))
            results = compute(x)
            for result in results:
                if number % 10 == 0:
                    self.kept.append((result, np.array(result.asnumpy())))
        assert len(self.kept) >= rounds // 10

    def check(self) -> None:
        for result, copied in self.kept:
            np.testing.assert_array_equal(result.asnumpy(), copied)


def test_kept_results_of_jitted_functions_do_not_change(small_too: None) -> None:
    @snncell.jit
    def f(x: Any) -> Any:
        y = ops.tanh(x) * 2.0
        return y, y.sum(axis=0) + x, ops.reshape(y, (-1, 2)), x[3:]

    Rounds(f, (16, 64)).check()


def test_kept_results_of_operations_do_not_change(small_too: None) -> None:
    w = ops.ones((64, 48)) * 0.25
    Rounds(lambda x: ((x @ w).T, ops.matmul(x.T, x), ops.exp(x)), (16, 64)).check()


@pytest.mark.parametrize("every", [None, 3])
def test_kept_results_of_loops_over_time_do_not_change(small_too: None, every: int | None) -> None:
    loop = nn.MultiStep(nn.LIFNode(), return_states=True, checkpoint_every=every)

    def both(x: Any) -> Any:
        y, states = loop(x)
        return y, *states, snncell.grad(lambda x: (loop(x)[0] * x).sum())(x)

    Rounds(both, (7, 8, 40)).check()


def test_kept_results_of_step_by_step_loops_do_not_change(small_too: None) -> None:
    loop = nn.MultiStep(nn.Recurrent(nn.LIFNode(), nn.Dense(20, 20)), return_states=True)
    weights = loop.trainable_params()

    def both(x: Any) -> Any:
        y, states = loop(x)
        _, grads = snncell.grad(lambda x: (loop(x)[0] * x).sum(), 0, weights=weights)(x)
        return y, *states, *grads

    Rounds(both, (5, 16, 20), rounds=40).check()


def test_kept_parameters_of_steps_do_not_change(small_too: None) -> None:
    net = nn.SequentialCell(nn.Dense(20, 30), nn.MultiStep(nn.LIFNode()))
    optimizer = nn.Adam(net.trainable_params(), 1e-2)
    gradient = snncell.value_and_grad(lambda x: net(x).mean(), None, weights=net.trainable_params())

    @snncell.jit
    def step(x: Any) -> Any:
        loss, grads = gradient(x)
        optimizer(grads)
        return loss, *grads, net.trainable_params()[0] * 1.0

    Rounds(step, (4, 8, 20), rounds=40).check()


# --- the limit --------------------------------------------------------------------------------------------------------


def test_limit_is_respected() -> None:
    owned = [filled_array() for _ in range(4)]
    block = arrays._round_up_size(BYTES)
    snncell.set_context(pool_limit=2 * block + block // 2)
    assert snncell.get_context("pool_limit") == 2 * block + block // 2
    held = []
    while owned:
        owned.pop()
        held.append(POOL.held)
    assert held == [block, 2 * block, 2 * block, 2 * block]
    snncell.set_context(pool_limit=3 * block)
    several = [filled_array() for _ in range(3)]
    assert POOL.held == 0
    del several
    assert POOL.held == 3 * block  # a limit that is met exactly


def test_zero_limit_pools_nothing() -> None:
    snncell.set_context(pool_limit=0)
    array = filled_array()
    del array
    assert POOL.held == 0
    assert (filled_array() == 7.0).all()


def test_lowered_limit_applies_immediately() -> None:
    several = [filled_array() for _ in range(3)]
    del several
    assert POOL.held > 0
    snncell.set_context(pool_limit=0)
    assert POOL.held == 0


@pytest.mark.parametrize("limit", [-1, True, False, 1.5, 1e9, "1", (1,), np.float64(3)])
def test_limit_that_is_not_a_byte_count_raises(limit: Any) -> None:
    with pytest.raises(ArgumentError, match="pool_limit is a number of bytes, 0 or more, not"):
        snncell.set_context(pool_limit=limit)
    assert snncell.get_context("pool_limit") == LIMIT


def test_unspecified_limit_stays() -> None:
    snncell.set_context(pool_limit=12345)
    snncell.set_context(mode=snncell.PYNATIVE_MODE)
    snncell.set_context(pool_limit=None)
    assert snncell.get_context("pool_limit") == 12345


def test_empty_releases_all_free_memory_and_nothing_else() -> None:
    kept, freed = filled_array(3.0), [filled_array() for _ in range(3)]
    del freed
    assert POOL.held == 3 * arrays._round_up_size(BYTES)
    snncell.empty_pool()
    assert POOL.held == 0 and not POOL._free
    assert (kept == 3.0).all()
    del kept
    assert POOL.held == arrays._round_up_size(BYTES)
    snncell.empty_pool()
    snncell.empty_pool()
    assert POOL.held == 0


def pool_content() -> int:
    """Sum up the content of the pool."""
    return sum(size * len(blocks) for size, blocks in POOL._free.items())


def test_held_memory_is_counted_correctly() -> None:
    rng = random.Random(0)
    owned: list[Any] = []
    for _ in range(300):
        if owned and rng.random() < 0.5:
            owned.pop(rng.randrange(len(owned)))
        else:
            owned.append(arrays.empty((rng.choice([1 << 16, 70_000, 100_000, 1 << 18]),), FLOAT))
        assert POOL.held == pool_content()
    assert all(block.size == size for size, blocks in POOL._free.items() for block in blocks)
    owned.clear()
    assert POOL.held == pool_content() > 0


# --- threads and the garbage collector --------------------------------------------------------------------------------


def run_all(*works: Callable[[], None]) -> list[str]:
    """Run functions on separate threads and return the errors of all threads."""
    problems: list[str] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # reported in the main thread, where the test fails
            problems.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=guarded, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert not any(thread.is_alive() for thread in threads)
    return problems


def hammer(number: int, shared: list[Any], rounds: int) -> None:
    """Allocate arrays, mark their owner, free some here and leave some to another thread."""
    rng = random.Random(number)
    owned: list[tuple[Any, int]] = []
    for turn in range(rounds):
        array = arrays.empty((rng.choice([1 << 16, 66_000, 90_000]),), np.dtype(np.int32))
        mark = number * rounds + turn
        array[::512] = mark  # one element per half page, because all of them would only take longer
        array[-1] = mark
        owned.append((array, mark))
        if len(owned) > 4:
            array, mark = owned.pop(rng.randrange(len(owned)))
            assert (array[::512] == mark).all() and array[-1] == mark, "two have one block"
            if rng.random() < 0.5:
                shared.append((array.reshape(1, -1)[:, ::512], mark))
        if shared and rng.random() < 0.5:
            try:
                view, mark = shared.pop()
            except IndexError:  # another thread was faster
                continue
            assert (view == mark).all(), "two have one block"
        array = view = None


def test_concurrent_threads_never_share_a_block() -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    shared: list[Any] = []
    try:
        assert run_all(*(lambda n=n: hammer(n, shared, 600) for n in range(4))) == []  # type: ignore[misc]
    finally:
        sys.setswitchinterval(interval)
    shared.clear()
    assert POOL.held == pool_content()


def test_nearly_reached_limit_is_respected_by_all_threads() -> None:
    limit = 3 * arrays._round_up_size(BYTES)
    snncell.set_context(pool_limit=limit)
    seen: list[int] = []

    def work() -> None:
        for _ in range(200):
            several = [arrays.empty(SHAPE, FLOAT) for _ in range(3)]
            del several
            seen.append(POOL.held)

    assert run_all(work, work, work) == []
    assert max(seen) <= limit and POOL.held == pool_content() <= limit


def test_garbage_collector_can_run_inside_the_pool() -> None:
    before = gc.get_threshold()

    def work() -> None:
        for _ in range(300):
            cycle: list[Any] = [arrays.empty(SHAPE, FLOAT)]
            cycle.append(cycle)

    gc.set_threshold(1)
    try:
        assert run_all(work, work) == []  # a lock acquired twice would hang
    finally:
        gc.set_threshold(*before)
    gc.collect()
    assert POOL.held == pool_content()


# --- processes --------------------------------------------------------------------------------------------------------

FORK = """
import os, signal, threading
import numpy as np
from snncell.kernels import arrays

def new(value):
    array = arrays.empty((1 << 17,), np.dtype(np.float32))
    array[:] = value
    return array

kept, freed = new(1.0), new(2.0)
del freed
ready, done = threading.Event(), threading.Event()

def hold():
    with arrays.POOL._lock:
        ready.set()
        done.wait()

thread = threading.Thread(target=hold)
thread.start()
ready.wait()
child = os.fork()  # the lock is held by a thread that the child does not have
if child == 0:
    signal.alarm(60)
    assert arrays.POOL.held == 0
    assert (kept == 1.0).all()
    kept = None
    size = arrays.POOL.held
    assert size >= 1 << 19
    array = new(3.0)
    assert arrays.POOL.held == 0 and (array == 3.0).all()
    array = None
    arrays.empty_pool()
    os._exit(7 if arrays.POOL.held == 0 else 1)
done.set()
thread.join()
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert (kept == 1.0).all() and arrays.POOL.held >= 1 << 19
assert (new(4.0) == 4.0).all() and (kept == 1.0).all()
print("fine")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_forked_process_has_a_separate_pool() -> None:
    assert in_a_process(FORK, flags=("-W", "ignore::DeprecationWarning"))[0] == "fine\n"


SHUTDOWN = """
import atexit, builtins, contextvars, gc, sys, threading
import numpy as np
from snncell import ops
from snncell.kernels import arrays

def new():
    return arrays.empty((1 << 17,), np.dtype(np.float32))

class Taking:
    def __del__(self):
        self.array = new()

where = sys.argv[1]
if where == "a global":
    kept = new()
elif where == "a Tensor":
    kept = ops.ones((1 << 17,)) * 2.0
elif where == "builtins":
    builtins.kept = new()
elif where == "sys":
    sys.kept = new()
elif where == "another module":
    np.kept = new()
elif where == "a cycle":
    gc.disable()
    kept = [new()]
    kept.append(kept)
elif where == "a finaliser that takes":
    sys.kept = [Taking(), new()]
    sys.kept.append(sys.kept)
elif where == "a context variable":
    variable = contextvars.ContextVar("kept")
    variable.set(new())
elif where == "atexit":
    atexit.register(lambda kept=new(): kept.fill(1.0))
elif where == "a daemon thread":
    running = threading.Event()
    def run():
        while True:
            kept = new()
            running.set()
    threading.Thread(target=run, daemon=True).start()
    running.wait()
elif where == "an exit":
    kept = new()
    raise SystemExit(0)
"""
PLACES = [
    "a global",
    "a Tensor",
    "builtins",
    "sys",
    "another module",
    "a cycle",
    "a finaliser that takes",
    "a context variable",
    "atexit",
    "a daemon thread",
    "an exit",
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("where", PLACES)
def test_array_freed_at_interpreter_exit_prints_nothing(where: str) -> None:
    assert in_a_process(SHUTDOWN, where) == ("", "")


# --- copies -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickled_arrays_and_tensors_are_independent(protocol: int) -> None:
    array = filled_array()
    again = pickle.loads(pickle.dumps(array, protocol))
    array[:] = 1.0
    tensor = pickle.loads(pickle.dumps(wrap(filled_array()), protocol))
    del array
    assert POOL.held >= 2 * BYTES
    filled_array(2.0)
    assert (again == 7.0).all() and again.flags.writeable
    assert (tensor.asnumpy() == 7.0).all()


def test_out_of_band_buffers_keep_their_memory() -> None:
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(filled_array(), protocol=5, buffer_callback=buffers.append)
    gc.collect()
    assert len(buffers) == 1 and POOL.held == 0
    filled_array(-1.0)
    again = pickle.loads(data, buffers=buffers)
    buffers.clear()
    filled_array(-2.0)
    assert (again == 7.0).all()


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, np.copy, np.array, lambda a: a.copy()])
def test_copies_share_no_memory(how: Callable[[Any], Any]) -> None:
    array = filled_array()
    copied = how(array)
    assert not np.shares_memory(array, copied) and copied.flags.writeable
    array[:] = 1.0
    assert (copied == 7.0).all() and copied.shape == SHAPE


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, Tensor])
def test_copied_tensors_outlive_the_original(how: Callable[[Any], Any]) -> None:
    tensor = wrap(filled_array())
    copied = how(tensor)
    del tensor
    gc.collect()
    filled_array(-1.0), filled_array(-2.0)
    assert (copied.asnumpy() == 7.0).all()
