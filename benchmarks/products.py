"""Products of spikes by events and by BLAS: `python benchmarks/products.py [--threads N] [--rates]`.

For sizes and densities, forward (x @ w.T, as in a layer) and the gradient of w: the time of events over that of BLAS,
measured in turns, and by how much the way that snncell takes is slower than the better of the two. `--rates` prints
what the constants of `snncell/kernels/products/matmul.py` are fitted to: nanoseconds of each part.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from snncell.kernels.numba.threads import BLAS
from snncell.kernels.products import matmul

NEURONS = (128, 512, 2048, 4096, 8192)
ROWS = (1, 16, 100, 1600, 8000, 25600)  # steps times batch
MOST_WORK = 3e10  # multiplications: larger products take seconds
DENSITIES = (0.005, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)
LEAST_TIME = 0.1  # seconds for the repetitions of one figure


def in_turns(*functions: Callable[[], Any]) -> list[float]:
    """The minimum seconds of each. On one thread it is processor time, which excludes other programs."""
    clock = time.process_time if os.environ.get("NUMBA_NUM_THREADS") == "1" else time.perf_counter
    times: list[list[float]] = [[] for _ in functions]
    begun = time.perf_counter()
    while len(times[0]) < 3 or (time.perf_counter() - begun < LEAST_TIME * len(functions) and len(times[0]) < 100):
        for kept, function in zip(times, functions, strict=True):
            for _ in range(5):  # the first of them after BLAS, which leaves other things in the caches
                start = clock()
                function()
                kept.append(clock() - start)
    return [min(kept[1:]) for kept in times]


def spikes(rng: Any, shape: tuple[int, int], density: float) -> Any:
    """Ones and zeros."""
    return (rng.random(shape) < density).astype(np.float32)


def ways(x: Any, w: Any, dout: Any) -> dict[str, tuple[Callable[[], Any], ...]]:
    """The product and its weight gradient by events, by BLAS, and by the choice of snncell."""
    out, gradient = np.empty_like(dout), np.empty_like(w)

    def three(target: Any, a: Any, b: Any, sparse: Any, by_columns: bool) -> tuple[Callable[[], Any], ...]:
        return (
            lambda: matmul._add_up(target, matmul._all_events(sparse, sparse.dtype), b, by_columns),
            lambda: BLAS.run(matmul._dense, target, a, b),
            lambda: matmul.matmul_into(target, a, b),
        )

    return {
        "forward": three(out, x, w.T, x, False),
        "gradient": three(gradient.T, x.T, dout, x, True),
    }


def sweep() -> None:
    """The choice compared with both ways."""
    rng = np.random.default_rng(0)
    cells = " | ".join(f"{100 * density:g} %" for density in DENSITIES)
    print(f"events / BLAS (chosen / better)\n\n| rows, n | product | limit | {cells} |")
    print("| --- " * (3 + len(DENSITIES)) + "|")
    worst = 0.0
    for n in NEURONS:
        w = rng.standard_normal((n, n)).astype(np.float32)
        for m in ROWS:
            if m * n * n > MOST_WORK:
                continue
            dout = rng.standard_normal((m, n)).astype(np.float32)
            found: dict[str, list[str]] = {"forward": [], "gradient": []}
            for density in DENSITIES:
                for which, functions in ways(spikes(rng, (m, n), density), w, dout).items():
                    events, dense, chosen = in_turns(*functions)
                    # What is chosen is one of the two, measured once more: the better measurement of that counts.
                    behind = chosen / min(events, dense)
                    worst = max(worst, behind)
                    found[which].append(f"{events / dense:.2f} ({behind:.2f})")
            for which, figures in found.items():
                sizes = (m, n, n, np.dtype(np.float32), False)
                limit = matmul.limit(*(sizes if which == "forward" else (n, m, n, *sizes[3:4], True)))
                print(f"| {m}, {n} | {which} | {100 * limit:.0f} % | {' | '.join(figures)} |", flush=True)
    print(f"\nat most {worst:.2f} times the better of the two")


def rates() -> None:
    """The costs of the parts of an event product and of BLAS, in nanoseconds per unit of work."""
    rng = np.random.default_rng(0)
    print("| rows, k, n | density | search: element | sort: event | forward, gradient, BLAS: multiplication |")
    print("| --- " * 5 + "|")
    for m, k, n in ((100, 128, 128), (1600, 512, 512), (6400, 700, 256), (6400, 256, 20), (1600, 4096, 4096)):
        w, dout = (rng.standard_normal(shape).astype(np.float32) for shape in ((n, k), (m, n)))
        for density in (0.01, 0.05, 0.2, 0.5):
            x = spikes(rng, (m, k), density)
            found, out, gradient = matmul._all_events(x, x.dtype), np.empty_like(dout), np.empty_like(w)
            events = int(found.counts.sum())
            search, sort, forward, reverse, dense = in_turns(
                lambda x=x: matmul._all_events(x, x.dtype),
                lambda found=found, k=k, events=events: matmul._sort_by_columns(found, k, events),
                lambda found=found, out=out, w=w: matmul._add_up(out, found, w.T, False),
                lambda found=found, gradient=gradient, dout=dout: matmul._add_up(gradient.T, found, dout, True),
                lambda x=x, w=w, out=out: BLAS.run(matmul._dense, out, x, w.T),
            )
            parts = [search / x.size, sort / events, forward / events / n, reverse / events / n, dense / x.size / n]
            search, sort, *others = (1e9 * part for part in parts)
            print(f"| {m}, {k}, {n} | {density} | {search:.2f} | {sort:.1f} | {' '.join(f'{x:.4f}' for x in others)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rates", action="store_true")
    arguments = parser.parse_args()
    os.environ["NUMBA_NUM_THREADS"] = str(arguments.threads)  # Numba is imported when the first kernel is compiled
    if arguments.rates:
        rates()
    else:
        sweep()


if __name__ == "__main__":
    main()
