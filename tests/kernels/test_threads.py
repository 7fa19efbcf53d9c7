"""Threads: equal bits for any number, concurrent Python threads, forks, the threading layer, and BLAS."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
import threading
import time
from functools import partial
from typing import Any

import numba
import numpy as np
import pytest
from thread_counts import on_threads as using_threads
from threadpoolctl import ThreadpoolController, threadpool_limits

import snncell
from snncell import Parameter, Tensor, grad, jit, nn, ops
from snncell.errors import ShapeError
from snncell.kernels.numba import build, native, policy
from snncell.kernels.numba.policy import PARALLEL_SIZE
from snncell.kernels.numba.threads import BLAS, WORKERS


def digest(*tensors: Any) -> str:
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(np.ascontiguousarray(tensor.asnumpy()).tobytes())
    return found.hexdigest()


def digests() -> dict[str, str]:
    """Hashes of the results of parallel kernels of each kind, which are traced anew, and of a training."""
    rng = np.random.default_rng(0)
    x = Tensor(rng.normal(size=(600, 257)).astype(np.float32))
    row = Tensor(rng.normal(size=(257,)).astype(np.float32))
    found = {
        "map": digest(*jit(lambda x, r: (ops.tanh(x * r), x > r))(x, row)),
        "whole": digest(*jit(lambda x: (x.sum(), x.max(), ops.exp(x).mean()))(x)),
        "rows": digest(*jit(lambda x: (x.sum(axis=1), ops.square(x).sum(axis=1)))(x)),
        "columns": digest(*jit(lambda x: (x.sum(axis=0), x.min(axis=0)))(x)),
        "mixed": digest(jit(lambda x: x.sum(axis=(0, 2)))(ops.reshape(x, (60, 10, 257)))),
        "softmax": digest(jit(ops.softmax)(x)),
    }
    snncell.set_seed(3)
    net = nn.SequentialCell([nn.Dense(257, 128), nn.LayerNorm((128,)), nn.Tanh(), nn.Dropout(p=0.2), nn.Dense(128, 4)])
    net.set_train()
    optimizer = nn.Adam(net.trainable_params(), 1e-2)
    loss_fn = nn.CrossEntropyLoss()
    labels = Tensor(rng.integers(0, 4, 600))
    gradients = snncell.value_and_grad(lambda x: loss_fn(net(x), labels), None, weights=net.trainable_params())

    @jit
    def step(x: Any) -> Any:
        loss, grads = gradients(x)
        optimizer(grads)
        return loss

    losses = [step(x) for _ in range(10)]
    assert losses[-1].item() < losses[0].item()
    return found | {"training": digest(*losses, *net.trainable_params())}


@pytest.mark.compiled
def test_one_and_two_threads_give_equal_bits() -> None:
    found = []
    for number in (1, 2):
        with using_threads(number), threadpool_limits(1):  # the bits of BLAS may depend on its threads
            found.append(digests())
    assert found[0] == found[1]


def test_two_python_threads_run_one_jitted_function_concurrently() -> None:
    scale = Parameter(np.float32([2.0, 3.0]), name="scale")
    f = jit(lambda x: ops.exp(x * scale).sum(axis=0) - 1.0)
    assert together(2, lambda number: f, rounds=50) == []


def test_two_python_threads_trace_and_compile_concurrently() -> None:
    # Each thread jits separate functions, and some of them become the same kernels at the same time.
    def own(number: int) -> Any:
        return jit(lambda x: ops.tanh(x * (number + 0.5)).sum(axis=1) + number)

    assert together(4, own, rounds=5) == []


def test_gradient_on_one_thread_does_not_record_operations_of_another() -> None:
    def own(number: int) -> Any:
        f = jit(lambda x: (x * x * (number + 1.0)).sum())
        return grad(f) if number % 2 else f

    assert together(2, own, rounds=20) == []


def together(count: int, own: Any, rounds: int) -> list[int]:
    """Run `own(number)` on `count` threads at once, many times; return the threads with other values than alone."""
    inputs = [Tensor(np.random.default_rng(n).normal(size=(8, 2)).astype(np.float32)) for n in range(count)]

    def work(number: int) -> set[bytes]:
        f = own(number)
        return {f(inputs[number]).asnumpy().tobytes() for _ in range(rounds)}

    found = on_threads(*(partial(work, number) for number in range(count)))
    return [n for n, results in enumerate(found) if results != {own(n)(inputs[n]).asnumpy().tobytes()}]


@pytest.mark.compiled
def test_two_python_threads_run_parallel_kernels_concurrently() -> None:
    f = jit(lambda x: (x * 1.5).sum(axis=1))
    x = Tensor(np.random.default_rng(0).normal(size=(PARALLEL_SIZE // 64 + 1, 64)).astype(np.float32))
    alone = f(x).asnumpy().tobytes()
    found = on_threads(*[lambda: {f(x).asnumpy().tobytes() for _ in range(50)}] * 2)
    assert found == [{alone}] * 2


@pytest.mark.compiled
def test_code_of_threads_is_compiled_before_two_threads_can_run_it(monkeypatch: Any) -> None:
    native.range_runner.cache_clear()
    monkeypatch.setattr(build, "_launcher", None)
    build._make_launcher()
    assert native.range_runner.cache_info().currsize == 1  # else each thread makes one, and frees that of another


# --- networks on several Python threads -------------------------------------------------------------------------------


def network(seed: int, recurrent: bool = False) -> Any:
    """Return a small spiking net with its training step, `step(x, labels) -> loss`, and its Parameters."""
    snncell.set_seed(seed)
    neuron = nn.Recurrent(nn.LIFNode(), nn.Dense(12, 12)) if recurrent else nn.LIFNode()
    net = nn.SequentialCell([nn.Dense(10, 12), nn.MultiStep(neuron), nn.Dense(12, 3)])
    optimizer = nn.Adam(net.trainable_params(), 1e-2)
    loss_fn = nn.CrossEntropyLoss()
    gradient = snncell.value_and_grad(lambda x, y: loss_fn(net(x).mean(0), y), None, weights=net.trainable_params())

    def step(x: Any, labels: Any) -> Any:
        loss, grads = gradient(x, labels)
        optimizer(grads)
        return loss

    return step, net


def train_net(made: Any, how: Any, seed: int, steps: int) -> bytes:
    """Return the losses and the weights after some steps."""
    step, net = made
    run = how(step)
    rng = np.random.default_rng(seed)
    x = Tensor(rng.normal(scale=2.0, size=(4, 6, 10)).astype(np.float32))
    labels = Tensor(rng.integers(0, 3, 6))
    found = [run(x, labels) for _ in range(steps)]
    return b"".join(np.array(t.asnumpy()).tobytes() for t in (*found, *net.trainable_params()))


def on_threads(*works: Any) -> list[Any]:
    """Return the results of functions that run concurrently, one thread each, or raise their error."""
    found: dict[int, Any] = {}
    start = threading.Barrier(len(works))

    def guarded(number: int) -> None:
        try:
            start.wait(timeout=60)
            found[number] = works[number]()
        except BaseException as error:  # raised in the main thread, where the test fails
            found[number] = error

    threads = [threading.Thread(target=guarded, args=(number,), daemon=True) for number in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert not any(thread.is_alive() for thread in threads)
    for value in found.values():
        if isinstance(value, BaseException):
            raise value
    return [found[number] for number in range(len(works))]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("recurrent", [False, True], ids=["fused", "step by step"])
def test_two_python_threads_train_separate_nets(run: Any, recurrent: bool) -> None:
    alone = [train_net(network(seed, recurrent), run, seed, 6) for seed in (1, 2)]
    # Created one after the other, because seeds are global to the process.
    nets = [network(seed, recurrent) for seed in (1, 2)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        found = on_threads(*(lambda n=n: train_net(nets[n], run, n + 1, 6) for n in range(2)))  # type: ignore[misc]
    finally:
        sys.setswitchinterval(interval)
    assert found == alone
    assert alone[0] != alone[1]


def test_two_python_threads_share_a_jitted_net() -> None:
    check_shared(jit(nn.SequentialCell([nn.Dense(10, 12), nn.MultiStep(nn.LIFNode())])))


def test_two_python_threads_share_a_net() -> None:
    check_shared(nn.SequentialCell([nn.Dense(10, 12), nn.MultiStep(nn.LIFNode())]))


def test_two_python_threads_share_a_jitted_recurrent_net() -> None:
    check_shared(jit(nn.MultiStep(nn.Recurrent(nn.LIFNode(), nn.Dense(10, 10)))))


def test_two_python_threads_share_a_recurrent_net() -> None:
    check_shared(nn.MultiStep(nn.Recurrent(nn.LIFNode(), nn.Dense(10, 10))))


def test_two_python_threads_share_the_gradient_of_a_recurrent_net() -> None:
    loop = nn.MultiStep(nn.Recurrent(nn.LIFNode(), nn.Dense(10, 10)))
    check_shared(jit(grad(lambda x: (loop(x) * x).sum())))


def check_shared(f: Any) -> None:
    """Check that `f` returns the same results on two concurrent threads as on one."""
    xs = [Tensor(np.random.default_rng(n).normal(scale=2.0, size=(20, 4, 10)).astype(np.float32)) for n in range(2)]
    alone = [np.array(f(x).asnumpy()) for x in xs]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        found = on_threads(*(lambda n=n: [np.array(f(xs[n]).asnumpy()) for _ in range(50)] for n in range(2)))  # type: ignore[misc]
    finally:
        sys.setswitchinterval(interval)
    assert [sum(not np.array_equal(one, alone[n]) for one in found[n]) for n in range(2)] == [0, 0]


# --- forks ------------------------------------------------------------------------------------------------------------

FORKS = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

NET = """
import hashlib, multiprocessing, os, signal, sys, threading
import numpy as np
import snncell
from snncell import Tensor, nn, ops
from snncell.kernels.numba import policy

rng = np.random.default_rng(0)
snncell.set_seed(0)
net = nn.SequentialCell([nn.Dense(300, 310), nn.MultiStep(nn.LIFNode()), nn.Dense(310, 20)])
x = Tensor(rng.normal(scale=2.0, size=(8, 60, 300)).astype(np.float32))  # parallel kernels, and products in parts
gradient = snncell.jit(snncell.grad(lambda x: ops.square(net(x)).sum(), 0, weights=net.trainable_params()))

def digest(*_):
    found = hashlib.sha256(net(x).asnumpy().tobytes())
    first, weights = gradient(x)
    for tensor in (first, *weights):
        found.update(np.ascontiguousarray(tensor.asnumpy()).tobytes())
    return found.hexdigest()
"""

FORK = (
    NET
    + """
before = digest()
reading, writing = os.pipe()
child = os.fork()
if child == 0:
    signal.alarm(60)
    os.write(writing, digest().encode())
    os._exit(0)
os.close(writing)
with os.fdopen(reading) as pipe:
    print(before, pipe.read(), digest(), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), policy.threading_layer())
"""
)

POOL = (
    NET
    + """
if __name__ == "__main__":
    before = digest()
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(before, *pool.map_async(digest, range(4)).get(timeout=90), digest())
"""
)


def in_a_process(script: str, *flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a separate process, which must exit successfully."""
    done = subprocess.run(
        [sys.executable, *(flags or ("-W", "ignore::DeprecationWarning")), "-c", script],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done


@FORKS
@pytest.mark.compiled
def test_process_forked_after_a_parallel_kernel_runs_a_net() -> None:
    before, inside, after, code, _ = in_a_process(FORK).stdout.split()
    assert code == "0"
    assert before == inside == after


@pytest.mark.slow
@FORKS
@pytest.mark.compiled
def test_forked_workers_run_a_net() -> None:
    found = in_a_process(POOL).stdout.split()
    assert len(found) == 6 and len(set(found)) == 1


FORK_AMONG_THREADS = (
    NET
    + """
import time

mode, count = sys.argv[1], int(sys.argv[2])
before, going = digest(), True

def busy():
    number = 0
    while going:
        number += 1
        if mode == "compiling":
            snncell.jit(lambda x: ops.exp(x) * (time.time_ns() % 1000003 + number))(x)
        else:
            digest()

threads = [threading.Thread(target=busy) for _ in range(2)]
for thread in threads:
    thread.start()
codes = []
for number in range(count):
    time.sleep(0.02)
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        snncell.jit(lambda x: ops.exp(x) * (number + time.time_ns() % 1000003))(x)  # compiles
        os._exit(7 if digest() == before else 1)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
going = False
for thread in threads:
    thread.join()
print(codes.count(7), policy.threading_layer())
"""
)


@pytest.mark.slow
@FORKS
@pytest.mark.compiled
@pytest.mark.parametrize("mode", ["running", "compiling"])
def test_children_forked_while_threads_run_or_compile_kernels_run_a_net(mode: str) -> None:
    count = 50 if os.environ.get("SNNCELL_TEST_SIZE") == "large" else 2
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORK_AMONG_THREADS, mode, str(count)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60 * count,
    )
    assert done.returncode == 0, done.stderr
    right, _ = done.stdout.split()  # and no other output, such as TBB's warning about threads
    assert int(right) == count


FORK_WHILE_LOCKED = """
import os, signal, threading
from snncell import jit, ops
from snncell.base import signals
from snncell.errors import ForkError
from snncell.tape.state import EFFECTS_LOCK

signals.PATIENCE = 0.2

def forked(lock, run):
    ready, done = threading.Event(), threading.Event()

    def hold():
        with lock:
            ready.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    ready.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        os._exit(run() or 0)
    done.set()
    thread.join()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def draw():
    ops.uniform((3,))
    return 7

def compile_kernel():
    try:
        jit(lambda x: ops.exp(x) + 1.0)(ops.ones(3))
    except ForkError as error:
        return 8 if "forked while another thread of its parent was compiling" in str(error) else 1

# The first lock is held as by another thread that draws or runs a jitted training step, the second as by one that
# compiles.
print(forked(EFFECTS_LOCK, draw), forked(signals.BUILDING, compile_kernel))
compile_kernel()
"""


@FORKS
@pytest.mark.compiled
def test_process_forked_while_another_thread_trains_or_compiles() -> None:
    """The child can draw after the first fork; after the second, compiling raises in it."""
    assert in_a_process(FORK_WHILE_LOCKED).stdout == "7 8\n"


WORKQUEUE = """
import threading
from snncell import jit, ops
from snncell.kernels.numba import policy

f, x = jit(lambda x: ops.exp(x) * 2.0), ops.ones((600, 1000))
f(x)
threads = [threading.Thread(target=lambda: [f(x) for _ in range(20)]) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(policy.threading_layer())
"""


@pytest.mark.compiled
def test_workqueue_layer_serialises_threads() -> None:
    assert in_a_process(WORKQUEUE, NUMBA_THREADING_LAYER="workqueue", NUMBA_NUM_THREADS="2").stdout == "workqueue\n"


# --- number of threads, and the threading layer -----------------------------------------------------------------------

LAYER = """
import os
from snncell import jit, ops
from snncell.kernels.numba import policy
from snncell.kernels.numba.threads import WORKERS

jit(lambda x: ops.exp(x) * 2.0)(ops.ones((300, 1000)))
WORKERS.run(str, range(9))
print(policy.threading_layer(), policy.number_of_threads(), WORKERS._pool is None, os.environ.get("OMP_WAIT_POLICY"))
"""

PRODUCT = """
from snncell import ops
from snncell.kernels.numba import policy

(ops.ones((1024, 300)) @ ops.ones((300, 300))).asnumpy()
print(policy.threading_layer())
"""

HAS_TBB = (
    sys.platform.startswith("linux")
    and bool(importlib.util.find_spec("numba.np.ufunc.tbbpool"))
    and any(distribution.metadata["Name"] == "tbb" for distribution in importlib.metadata.distributions())
)
TBB = pytest.mark.skipif(not HAS_TBB, reason="the tbb wheel is not installed, or Numba is built without it")


@pytest.mark.compiled
@pytest.mark.parametrize("number", [1, 2])
def test_number_of_threads_of_numba_is_respected(number: int) -> None:
    if number > numba.config.NUMBA_NUM_THREADS:
        pytest.skip("this machine has one core")
    before = policy.number_of_threads()
    numba.set_num_threads(number)
    try:
        assert policy.number_of_threads() == number
        threads: set[int] = set()
        seen: list[int] = []
        meeting = threading.Barrier(number)

        def part(which: int) -> None:
            if which < number:
                meeting.wait(timeout=60)  # this many run at once
            threads.add(threading.get_ident())
            seen.append(which)

        WORKERS.run(part, range(40))
        assert sorted(seen) == list(range(40)) and len(threads) == number
        assert threading.get_ident() in threads
    finally:
        numba.set_num_threads(before)


@pytest.mark.compiled
def test_product_that_fails_waits_for_its_other_threads() -> None:
    if numba.config.NUMBA_NUM_THREADS < 2:
        pytest.skip("this machine has one core")
    caller, begun, ended = threading.get_ident(), threading.Event(), []

    def part(which: int) -> None:
        if threading.get_ident() == caller:
            begun.wait(timeout=60)  # until another thread has a part
            raise ValueError("in the caller")
        begun.set()
        time.sleep(0.05)
        ended.append(which)

    with pytest.raises(ValueError, match="in the caller"):
        WORKERS.run(part, range(3))
    assert len(ended) == 2


@pytest.mark.sampled(1)
@pytest.mark.compiled
@pytest.mark.parametrize("layer", ["workqueue", "omp", "tbb"])
@pytest.mark.parametrize("threads", ["1", "2"])
def test_layer_and_number_of_threads_selected_by_the_user_are_kept(layer: str, threads: str) -> None:
    pool = {"workqueue": "workqueue", "omp": "omppool", "tbb": "tbbpool"}[layer]
    environment = {"NUMBA_THREADING_LAYER": layer, "NUMBA_NUM_THREADS": threads}
    loading = "from snncell.kernels.numba import policy; policy._load_tbb(); " if layer == "tbb" else ""
    script = f"{loading}import numba.np.ufunc.{pool}" if layer != "workqueue" else ""
    if (
        layer != "workqueue"
        and subprocess.run(
            [sys.executable, "-c", script], env={**os.environ, **environment}, capture_output=True, check=False
        ).returncode
    ):
        pytest.skip(f"Numba cannot load {layer} here")
    waiting = os.environ.get("OMP_WAIT_POLICY")
    found = in_a_process(LAYER, **environment).stdout.split()
    assert found == [layer, threads, str(threads == "1"), str(waiting)]  # one thread needs no pool


@pytest.mark.slow
@TBB
@pytest.mark.compiled
@pytest.mark.parametrize("script", [LAYER, PRODUCT], ids=["loop", "product"])
def test_tbb_is_selected_where_it_is_installed(script: str) -> None:
    assert in_a_process(script).stdout.split()[0] == "tbb"


AT_ONCE = """
import importlib.metadata, threading, time
from snncell import jit, ops
from snncell.kernels.numba import policy

files = importlib.metadata.files
importlib.metadata.files = lambda name: time.sleep(0.2) or files(name)  # on a slow disk
f, x = jit(lambda x: ops.exp(x) * 2.0), ops.ones((300, 1000))
threads = [threading.Thread(target=target, args=args) for target, args in ((policy.number_of_threads, ()), (f, (x,)))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(policy.threading_layer())
"""


@TBB
@pytest.mark.compiled
def test_tbb_is_selected_if_two_threads_start_concurrently() -> None:
    assert in_a_process(AT_ONCE).stdout == "tbb\n"


WITHOUT_TBB = """
import importlib.metadata

def missing(name):
    raise importlib.metadata.PackageNotFoundError(name)

importlib.metadata.files = missing
"""


@pytest.mark.slow
@pytest.mark.compiled
@pytest.mark.parametrize("chosen", [None, "active"])
def test_without_tbb_waiting_threads_sleep(chosen: str | None) -> None:
    environment = {"OMP_DISPLAY_ENV": "TRUE", **({} if chosen is None else {"OMP_WAIT_POLICY": chosen})}
    done = in_a_process(WITHOUT_TBB + LAYER, **environment)
    layer, _, _, waiting = done.stdout.split()
    if layer == "tbb":
        pytest.skip("the loader finds TBB without our help here")
    assert waiting == (chosen or "passive")
    if "OMP_WAIT_POLICY" in done.stderr:  # settings that the library has read
        assert f"OMP_WAIT_POLICY = '{(chosen or 'passive').upper()}'" in done.stderr


# --- after the main thread ends ---------------------------------------------------------------------------------------

LATE = """
import atexit, sys, threading, time
from snncell import ops
from snncell.kernels.numba import policy

x, y = ops.ones((1024, 300)), ops.ones((300, 300))
if "early" in sys.argv:
    x @ y

def late():
    if "thread" in sys.argv:
        threading.main_thread().join()
        time.sleep(0.2)
    print((x @ y).asnumpy()[0, 0], flush=True)

if "thread" in sys.argv:
    threading.Thread(target=late).start()
else:
    atexit.register(late)
"""


@pytest.mark.sampled(1)
@pytest.mark.compiled
@pytest.mark.parametrize("how", ["thread", "atexit"])
@pytest.mark.parametrize("when", ["early", "late"])
def test_products_work_after_the_main_thread_has_ended(how: str, when: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", LATE, how, when],
        env={**os.environ, "NUMBA_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.stdout, done.stderr) == ("300.0\n", "")


# --- BLAS -------------------------------------------------------------------------------------------------------------


def numbers() -> list[int]:
    """Return the number of threads of each BLAS library."""
    return [library.get_num_threads() for library in threadpool_libraries()]


def threadpool_libraries() -> list[Any]:
    # Other libraries may be loaded later, for example SciPy's.
    ours = {library.path for library in BLAS._blas_libraries()}
    found = [c for c in ThreadpoolController().select(user_api="blas").lib_controllers if c.filepath in ours]
    if not found:
        pytest.skip("NumPy's BLAS is none whose threads can be counted")
    return found


@pytest.fixture(params=[2, 3])
def several(request: pytest.FixtureRequest) -> Any:
    """Set the BLAS libraries to this many threads."""
    libraries = threadpool_libraries()
    before = numbers()
    for library in libraries:
        library.set_num_threads(request.param)
    given = numbers()
    yield given
    for library, number in zip(libraries, before, strict=True):
        library.set_num_threads(number)


def test_blas_has_one_thread_inside_and_the_previous_number_outside(several: list[int]) -> None:
    one = [1] * len(several)

    def inside() -> list[int]:
        assert numbers() == one
        assert BLAS.run(numbers) == one
        return numbers()

    assert BLAS.run(inside) == one
    assert numbers() == several
    with pytest.raises(ZeroDivisionError):
        BLAS.run(BLAS.run, lambda: 1 / 0)
    assert numbers() == several
    for library in threadpool_libraries():
        library.set_num_threads(2)  # the number is read anew each time
    changed = numbers()
    assert BLAS.run(numbers) == one
    assert numbers() == changed


def test_blas_has_one_thread_until_the_last_region_exits(several: list[int]) -> None:
    one = [1] * len(several)
    inside, leave = threading.Event(), threading.Event()

    def stay() -> None:
        inside.set()
        assert leave.wait(timeout=60)

    def meanwhile() -> threading.Thread:
        thread = threading.Thread(target=BLAS.run, args=(stay,))
        thread.start()
        assert inside.wait(timeout=60)
        return thread

    def end(thread: threading.Thread) -> list[int]:
        leave.set()
        thread.join()
        return numbers()

    thread = BLAS.run(meanwhile)
    assert numbers() == one  # the other region is still active
    assert BLAS.run(end, thread) == one
    assert numbers() == several


def test_blas_has_one_thread_inside_on_another_python_thread(several: list[int]) -> None:
    assert on_threads(lambda: BLAS.run(numbers)) == [[1] * len(several)]
    assert numbers() == several


def test_another_python_thread_can_be_the_last_to_exit(several: list[int]) -> None:
    inside, leave = threading.Event(), threading.Event()

    def stay() -> None:
        inside.set()
        assert leave.wait(timeout=60)

    def meanwhile() -> threading.Thread:
        thread = threading.Thread(target=BLAS.run, args=(stay,))
        thread.start()
        assert inside.wait(timeout=60)
        return thread

    thread = BLAS.run(meanwhile)
    leave.set()
    thread.join()
    assert numbers() == several


def test_many_threads_leave_the_blas_setting_unchanged(several: list[int]) -> None:
    def work() -> int:
        wrong = 0
        for _ in range(300):
            wrong += BLAS.run(numbers_of, libraries) != [1] * len(libraries)
        return wrong

    libraries = threadpool_libraries()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        assert on_threads(work, work, work) == [0, 0, 0]
    finally:
        sys.setswitchinterval(interval)
    assert numbers() == several


def numbers_of(libraries: list[Any]) -> list[int]:
    return [library.get_num_threads() for library in libraries]


def test_products_leave_the_blas_setting_unchanged(several: list[int], run: Any) -> None:
    w = Tensor(np.ones((20, 20), np.float32))
    run(lambda x: x @ w)(w)
    assert numbers() == several
    with pytest.raises(ShapeError):
        run(lambda x: x @ w)(Tensor(np.ones((3, 4), np.float32)))
    assert numbers() == several


BLAS_FORK = """
import os, signal, threading
import numpy as np
from threadpoolctl import ThreadpoolController
from snncell.kernels.numba.threads import BLAS

libraries = ThreadpoolController().select(user_api="blas").lib_controllers

def numbers():
    return [library.get_num_threads() for library in libraries]

before = numbers()
assert min(before) == 2, before

def child():
    signal.alarm(30)
    assert numbers() == before, f"outside: {numbers()}, not {before}"
    for _ in range(2):
        inside = BLAS.run(numbers)
        assert inside == [1] * len(libraries), f"inside: {inside}"
        assert numbers() == before, f"after: {numbers()}, not {before}"
    os._exit(7)

def ended(number):
    print(os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]))
    assert numbers() == before
"""
OUTSIDE = """
BLAS.run(numbers)
number = os.fork()
if number == 0:
    child()
ended(number)
"""
INSIDE = """
number = BLAS.run(os.fork)
if number == 0:
    child()
ended(number)
"""
ELSEWHERE = """
ready, leave = threading.Event(), threading.Event()

def stay():
    ready.set()
    leave.wait()

from snncell.base import signals
signals.PATIENCE = 0.1  # it does not leave before the fork
thread = threading.Thread(target=BLAS.run, args=(stay,))
thread.start()
ready.wait()
number = os.fork()
if number == 0:
    child()
leave.set()
thread.join()
ended(number)
"""


@pytest.mark.sampled(1)
@FORKS
@pytest.mark.parametrize(
    "script",
    [
        pytest.param(OUTSIDE, id="outside"),
        pytest.param(INSIDE, id="inside"),
        pytest.param(ELSEWHERE, id="another thread inside"),
    ],
)
def test_forked_process_has_the_correct_number_of_blas_threads(script: str) -> None:
    if os.cpu_count() == 1:
        pytest.skip("this machine has one core: BLAS has one thread everywhere")
    two = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "2")
    done = in_a_process(BLAS_FORK + script, **two)
    assert done.stdout == "7\n", done.stderr
