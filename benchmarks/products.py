"""Where event-driven products begin to pay: `python benchmarks/products.py`.

Prints, for sizes and densities, the time of BLAS (one thread; large products in parts for all threads, as snncell calls
it) over that of the event-driven kernels, with the search for the events, forward (x @ y) and reverse (x.T @ y),
measured in turns. The limits in `snncell/kernels/products.py` come from this table.
"""

from __future__ import annotations

import statistics
import time
from functools import partial
from typing import Any

import numpy as np

from snncell.kernels import products
from snncell.kernels.threads import BLAS

SIZES = [(64, 256, 256), (1024, 64, 128), (6400, 256, 256), (6400, 700, 256), (2048, 2048, 512)]
DENSITIES = [0.01, 0.03, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4]


def in_turns(first: Any, second: Any) -> tuple[float, float]:
    """Median seconds of each."""
    times: tuple[list[float], list[float]] = ([], [])
    first()
    second()
    for _ in range(9):
        for kept, function in zip(times, (first, second), strict=True):
            start = time.perf_counter()
            function()
            kept.append(time.perf_counter() - start)
    return statistics.median(times[0]), statistics.median(times[1])


def by_events(out: Any, x: Any, y: Any, turned: bool) -> None:
    """`x @ y`, or if `turned`, `x.T @ y`, whatever the density."""
    products._add_up(out, *products._all_events(x, x.dtype), y, turned)


def main() -> None:
    rng = np.random.default_rng(0)
    print("| m, k, n | density | forward: BLAS us, events us, ratio | reverse: BLAS us, events us, ratio |")
    print("| --- | --- | --- | --- |")
    for m, k, n in SIZES:
        y, d = (rng.standard_normal(shape).astype(np.float32) for shape in ((k, n), (m, n)))
        forward, reverse = (np.empty(shape, np.float32) for shape in ((m, n), (k, n)))
        for density in DENSITIES:
            x = (rng.random((m, k)) < density).astype(np.float32)
            with BLAS:
                a = in_turns(partial(products._dense, forward, x, y), partial(by_events, forward, x, y, False))
                b = in_turns(partial(products._dense, reverse, x.T, d), partial(by_events, reverse, x, d, True))
            cells = [f"{p * 1e6:.0f}, {q * 1e6:.0f}, {p / q:.2f}" for p, q in (a, b)]
            print(f"| {m}, {k}, {n} | {density:.2f} | {cells[0]} | {cells[1]} |")


if __name__ == "__main__":
    main()
