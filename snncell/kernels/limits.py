"""Measured limits of the machine: the bandwidth of a copy, and the rate of large matrix products.

A kernel takes at least its bytes divided by this bandwidth, and its operations divided by this rate
(`docs/cost-model.md`).
"""

from __future__ import annotations

import functools
import timeit
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from snncell.kernels.cuda.runtime import is_simulated, runtime
from snncell.kernels.numba.policy import number_of_threads
from snncell.kernels.products.matmul import matmul
from snncell.kernels.space import DEVICE, HOST, Space

ROUNDS = 5
COPIED = 64_000_000  # bytes
SIDE = 1024  # of the matrices


def fastest_seconds(run: Callable[[], Any]) -> float:
    """The time of the fastest of ROUNDS calls, after a first call that does not count."""
    run()
    return min(timeit.repeat(run, number=1, repeat=ROUNDS))


@functools.cache
def copy_bandwidth(space: Space = HOST) -> float:
    """Bytes per second, read plus written, of a copy by all threads, or on the device; measured once."""
    if space is DEVICE:
        device, size = runtime(), 1 << 16 if is_simulated() else COPIED
        one, other = device.allocate(size), device.allocate(size)

        def copy() -> None:
            device.copy(one, 0, other, 0, size)
            device.synchronize()

        rate = 2 * size / fastest_seconds(copy)
        device.release(one)
        device.release(other)
        return rate
    threads = number_of_threads()
    source, target = (np.ones(COPIED, np.uint8) for _ in range(2))
    parts = list(zip(np.array_split(target, threads), np.array_split(source, threads), strict=True))
    with ThreadPoolExecutor(threads) as pool:
        return 2 * COPIED / fastest_seconds(lambda: list(pool.map(lambda part: np.copyto(*part), parts)))


@functools.cache
def product_rate(space: Space = HOST, dtype: Any = np.dtype(np.float32)) -> float:  # noqa: B008 (immutable)
    """Floating-point operations per second of a product of large matrices of `dtype`; measured once."""
    side = 16 if space is DEVICE and is_simulated() else SIDE
    a = space.constant(np.random.default_rng(0).standard_normal((side, side)).astype(dtype))

    def multiply() -> None:
        matmul(a, a)
        if space is DEVICE:
            runtime().synchronize()

    return 2 * side**3 / fastest_seconds(multiply)
