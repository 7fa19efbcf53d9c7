"""Size from which a loop is faster on all threads than on one: `python benchmarks/parallel.py`.

A serial and a parallel version of the same loop take turns. The script prints medians and their ratio for each size.
The break-even size is the base of `PARALLEL_SIZE` in `snncell/kernels/numba/policy.py`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import snncell
from snncell import Tensor, ops
from snncell.compiler.backends import groups

SIZES = (2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 256_000, 1_000_000)


def compile_loop(function: Callable[..., Any], x: Tensor, parallel: bool) -> Any:
    """Return `function` jitted for `x` with a serial or parallel loop, independent of its size."""
    groups.PARALLEL_SIZE = 1 if parallel else 10**12
    jitted = snncell.jit(function)
    jitted(x)
    return jitted


def microseconds(function: Callable[..., Any], x: Tensor, calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        function(x)
    return (time.perf_counter() - start) / calls * 1e6


def main() -> None:
    functions = {
        "exp": ops.exp,
        "map": lambda x: (x * 0.9 + 0.1) * (x - 1.0) + ops.square(x) * 0.5,
        "sum": lambda x: ops.square(x * 0.9 + 0.1).sum(),
    }
    for name, function in functions.items():
        print(f"{name:>4} {'elements':>10} {'serial, us':>11} {'parallel, us':>13} {'ratio':>6}")
        for size in SIZES:
            x = Tensor(np.random.default_rng(0).random(size, np.float32))
            serial, parallel = (compile_loop(function, x, kind) for kind in (False, True))
            rounds = [(microseconds(serial, x, 50), microseconds(parallel, x, 50)) for _ in range(9)]
            a, b = (statistics.median(times) for times in zip(*rounds, strict=True))
            print(f"{'':>4} {size:>10} {a:>11.1f} {b:>13.1f} {a / b:>6.2f}")


if __name__ == "__main__":
    main()
