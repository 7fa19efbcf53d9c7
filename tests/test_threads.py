"""The same bits for any number of threads, and jitted functions called from several Python threads at once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

from snncell import Parameter, Tensor, grad, jit, ops
from snncell.kernels.policy import PARALLEL_SIZE

SCRIPT = """
import hashlib
import numpy as np
import snncell
from snncell import Tensor, jit, nn, ops

def digest(*tensors):
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(np.ascontiguousarray(tensor.asnumpy()).tobytes())
    return found.hexdigest()

rng = np.random.default_rng(0)
x = Tensor(rng.normal(size=(600, 257)).astype(np.float32))
row = Tensor(rng.normal(size=(257,)).astype(np.float32))
print("map", digest(*jit(lambda x, r: (ops.tanh(x * r), x > r))(x, row)))
print("whole", digest(*jit(lambda x: (x.sum(), x.max(), ops.exp(x).mean()))(x)))
print("rows", digest(*jit(lambda x: (x.sum(axis=1), ops.square(x).sum(axis=1)))(x)))
print("columns", digest(*jit(lambda x: (x.sum(axis=0), x.min(axis=0)))(x)))
print("mixed", digest(jit(lambda x: x.sum(axis=(0, 2)))(ops.reshape(x, (60, 10, 257)))))
print("softmax", digest(jit(ops.softmax)(x)))

snncell.set_seed(3)
net = nn.SequentialCell([nn.Dense(257, 128), nn.LayerNorm((128,)), nn.Tanh(), nn.Dropout(p=0.2), nn.Dense(128, 4)])
net.set_train()
optimizer = nn.Adam(net.trainable_params(), 1e-2)
loss_fn = nn.CrossEntropyLoss()
labels = Tensor(rng.integers(0, 4, 600))
gradients = snncell.value_and_grad(lambda x: loss_fn(net(x), labels), None, weights=net.trainable_params())

@jit
def step(x):
    loss, grads = gradients(x)
    optimizer(grads)
    return loss

losses = [step(x) for _ in range(10)]
assert losses[-1].item() < losses[0].item()
print("training", digest(*losses, *net.trainable_params()))
"""


def digests(threads: int) -> dict[str, str]:
    """What the script computes with this many threads, as hashes. BLAS gets one: its bits are not ours to promise."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT],
        env={
            **os.environ,
            "NUMBA_NUM_THREADS": str(threads),
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(line.split() for line in done.stdout.splitlines())  # type: ignore[misc]


@pytest.mark.compiled
def test_one_thread_and_two_give_the_same_bits() -> None:
    alone, together = digests(1), digests(2)
    assert alone == together
    assert alone.keys() == {"map", "whole", "rows", "columns", "mixed", "softmax", "training"}
    assert digests(2) == together


def test_two_python_threads_run_one_jitted_function_at_once() -> None:
    scale = Parameter(np.float32([2.0, 3.0]), name="scale")
    f = jit(lambda x: ops.exp(x * scale).sum(axis=0) - 1.0)
    problems = together(2, lambda number: f, rounds=50, parameters=scale)
    assert problems == []


def test_two_python_threads_trace_and_compile_at_once() -> None:
    # Each thread jits functions of its own, some of which become the same kernels at the same time.
    def own(number: int) -> Any:
        return jit(lambda x: ops.tanh(x * (number + 0.5)).sum(axis=1) + number)

    assert together(4, own, rounds=5) == []


def test_a_gradient_on_one_thread_is_not_recorded_on_another() -> None:
    def own(number: int) -> Any:
        f = jit(lambda x: (x * x * (number + 1.0)).sum())
        return grad(f) if number % 2 else f

    assert together(2, own, rounds=20) == []


def together(count: int, own: Any, rounds: int, parameters: Any = None) -> list[str]:
    """Run `own(number)` on `count` threads at once, often; what went wrong on any of them."""
    expected = {}
    inputs = {n: Tensor(np.random.default_rng(n).normal(size=(8, 2)).astype(np.float32)) for n in range(count)}
    problems: list[str] = []
    start = threading.Barrier(count)

    def work(number: int) -> None:
        try:
            start.wait(timeout=60)
            f = own(number)
            results = {f(inputs[number]).asnumpy().tobytes() for _ in range(rounds)}
            expected[number] = results
        except BaseException as error:  # reported in the main thread, where the test fails
            problems.append(f"thread {number}: {type(error).__name__}: {error}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert not any(thread.is_alive() for thread in threads)
    for number, results in expected.items():
        alone = own(number)(inputs[number]).asnumpy().tobytes()
        if results != {alone}:
            problems.append(f"thread {number}: other values than alone")
    return problems


@pytest.mark.compiled
def test_two_python_threads_run_parallel_kernels_at_once() -> None:
    f = jit(lambda x: (x * 1.5).sum(axis=1))
    x = Tensor(np.random.default_rng(0).normal(size=(PARALLEL_SIZE // 64 + 1, 64)).astype(np.float32))
    alone = f(x).asnumpy().tobytes()
    found: list[bytes] = []
    threads = [threading.Thread(target=lambda: found.extend(f(x).asnumpy().tobytes() for _ in range(50))) for _ in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert len(found) == 100
    assert set(found) == {alone}
