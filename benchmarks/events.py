"""Event-driven and dense kernels for spikes, and snncell's choice: `python -m benchmarks.events [--only KIND ...]`.

For the shapes of the benchmark's rows and for densities of spikes, the table has the time with forced events divided by
the time with forced dense kernels and, in brackets, the time of snncell's choice divided by the better of the two.

- products: `x @ w.T` and the gradient of w, outside of loops over time.
- loops: a training step of Linear and LIF, where the loop over time computes the products, one of which is forced.
- convolutions: the results and the gradient of the weights.

`--markdown FILE` writes the page. `--rates` prints the nanoseconds of each part of a matrix product.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import snncell
from benchmarks.frameworks import snncell_lif_layer
from benchmarks.load import Watch
from benchmarks.rows import ROWS, convolution, linear, spiking_nets
from snncell import Tensor, nn, ops
from snncell.kernels.conv import direct, events as images
from snncell.kernels.numba.threads import BLAS
from snncell.kernels.products import gathers, matmul

DENSITIES = (0.005, 0.02, 0.05, 0.1, 0.3, 0.6)
LEAST_TIME = 0.05  # seconds for the repetitions of one figure
WAYS = {"events": 2.0, "dense": 0.0, "automatic": None}  # the densities below which products are event-driven
Run = Callable[[], Any]
# By the name of a product: a function that gives its three ways for an array of spikes, in the order of `WAYS`.
Products = dict[str, Callable[[Any], tuple[Run, ...]]]


@contextmanager
def forced(below: float | None, by_columns: bool | None = None) -> Iterator[None]:
    """Force the density below which products and convolutions are event-driven, for a kind of product or for all."""
    kept = matmul.limit, images.limit
    if below is not None:

        def limit(*sizes: Any) -> float:
            return kept[0](*sizes) if by_columns is not None and sizes[-1] != by_columns else below

        matmul.limit, images.limit = limit, lambda *sizes: below  # type: ignore[assignment]
    try:
        yield
    finally:
        matmul.limit, images.limit = kept


def run_forced(run: Run, below: float | None, by_columns: bool | None = None) -> Any:
    with forced(below, by_columns):
        return run()


def in_turns(*functions: Run) -> list[float]:
    """The minimum seconds of each. On one thread it is processor time, which excludes other programs."""
    clock = time.process_time if os.environ.get("NUMBA_NUM_THREADS") == "1" else time.perf_counter
    times: list[list[float]] = [[] for _ in functions]
    begun = time.perf_counter()
    while (fewest := min(map(len, times))) < 3 or (
        fewest < 100 and time.perf_counter() - begun < LEAST_TIME * len(functions)
    ):
        for kept, function in zip(times, functions, strict=True):
            for _ in range(5):  # the first of them after another kernel, which leaves other things in the caches
                start = clock()
                function()
                kept.append(clock() - start)
                if kept[-1] > LEAST_TIME:
                    break
    return [min(kept[1:]) for kept in times]


def spikes(shape: tuple[int, ...], density: float) -> Any:
    """Ones and zeros."""
    return (np.random.default_rng(1).random(shape) < density).astype(np.float32)


# --- shapes and products ----------------------------------------------------------------------------------------------


def sequences(quick: bool) -> list[tuple[int, int, int, int]]:
    """Steps, batch, inputs and outputs of the linear layers of all rows in the group of networks."""
    if quick:
        return [(20, 4, 64, 48)]
    found = []
    for row in ROWS.values():
        if isinstance(row.sizes, spiking_nets.Sizes):
            found += [(row.sizes.steps, row.sizes.batch, *pair) for pair in pairwise(row.sizes.widths)]
        elif isinstance(row.sizes, linear.Sizes) and row.group == "nets":
            found.append((row.sizes.steps, row.sizes.batch, row.sizes.inputs, row.sizes.neurons))
    return list(dict.fromkeys(found))


def planes(quick: bool) -> list[tuple[int, int, int, int]]:
    """Images, channels, outputs and side of the convolutions of all convolutional nets."""
    found = []
    for row in ROWS.values():
        if isinstance(row.sizes, convolution.Sizes):
            sizes = row.checked if quick else row.sizes
            channels, side, _ = sizes.shape
            for layer in sizes.layers:
                side //= 2 if layer == "pool" else 1
                if layer != "pool":
                    outputs = channels if isinstance(layer, str) else layer
                    found.append((sizes.steps * sizes.batch, channels, outputs, side))
                    channels = outputs
    return list(dict.fromkeys(found))[: 2 if quick else None]


def products(quick: bool) -> Iterator[tuple[str, tuple[int, ...], Products]]:
    """Matrix products outside of loops."""
    for steps, batch, inputs, outputs in sequences(quick):
        rng, m = np.random.default_rng(0), steps * batch
        w, dout = (rng.standard_normal(shape, np.float32) for shape in ((outputs, inputs), (m, outputs)))
        out, gradient = np.empty_like(dout), np.empty_like(w)

        def ways(target: Any, by_columns: bool, y: Any, x: Any) -> tuple[Run, ...]:
            run = functools.partial(matmul.matmul_into, target, x.T if by_columns else x, y)
            return tuple(functools.partial(run_forced, run, below) for below in WAYS.values())

        made = {
            "forward": functools.partial(ways, out, False, w.T),
            "gradient": functools.partial(ways, gradient.T, True, dout),
        }
        yield f"{m} rows, {inputs} to {outputs}", (m, inputs), made


def loops(quick: bool) -> Iterator[tuple[str, tuple[int, ...], Products]]:
    """Training steps of a linear layer and LIF neurons; the other of both products is chosen automatically."""
    for steps, batch, inputs, outputs in sequences(quick):
        if inputs > gathers.DEEPEST:  # no product in the loop
            continue
        rng = np.random.default_rng(0)
        dense, layer = nn.Dense(inputs, outputs), snncell_lif_layer()
        seed = Tensor(rng.standard_normal((steps, batch, outputs), np.float32))

        def step(x: Tensor, seed: Tensor, dense: Any = dense, layer: Any = layer) -> Any:
            out, pull = ops.vjp(lambda: layer(dense(x)), weights=[dense.weight, dense.bias])
            return out, pull(seed)[1]

        def ways(by_columns: bool, jitted: list[Any], seed: Tensor, x: Any) -> tuple[Run, ...]:
            given = Tensor(x)
            return tuple(
                functools.partial(run_forced, functools.partial(own, given, seed), below, by_columns)
                for own, below in zip(jitted, WAYS.values(), strict=True)
            )

        made = {  # a Program for each way, because the compiler asks for the limits too
            name: functools.partial(ways, by_columns, [snncell.jit(step) for _ in WAYS], seed)
            for name, by_columns in (("forward", False), ("gradient", True))
        }
        yield f"T {steps}, batch {batch}, {inputs} to {outputs}", (steps, batch, inputs), made


def convolutions(quick: bool) -> Iterator[tuple[str, tuple[int, ...], Products]]:
    """Convolutions 3x3 and the gradients of their weights."""
    for count, channels, outputs, side in planes(quick):
        rng = np.random.default_rng(0)
        w = rng.standard_normal((outputs, channels, 3, 3), np.float32)
        dout = rng.standard_normal((count, outputs, side, side), np.float32)
        sizes: dict[str, Any] = {"stride": (1, 1), "before": (1, 1), "dilation": (1, 1), "groups": 1}

        def ways(run: Callable[..., Any], own: dict[str, Any], y: Any, x: Any) -> tuple[Run, ...]:
            whole = functools.partial(run, x, y, **own)
            return tuple(functools.partial(run_forced, whole, below) for below in WAYS.values())

        made = {
            "forward": functools.partial(ways, direct.convolve, {**sizes, "count": (side, side)}, w),
            "gradient": functools.partial(ways, direct.convolve_weight, {**sizes, "size": (3, 3)}, dout),
        }
        yield f"{count} images {side}x{side}, {channels} to {outputs}", (count, channels, side, side), made


KINDS = {"products": products, "loops": loops, "convolutions": convolutions}

# --- tables -----------------------------------------------------------------------------------------------------------


def sweep(kind: str, quick: bool) -> Iterator[str]:
    """The lines of a table: events / dense (automatic / better), and last how far the choice is from the better way."""
    densities = DENSITIES[::2] if quick else DENSITIES
    yield f"| {kind} | product | {' | '.join(f'{100 * density:g} %' for density in densities)} |"
    yield "| --- " * (2 + len(densities)) + "|"
    behind = {}
    for title, shape, made in KINDS[kind](quick):
        for name, ways in made.items():
            cells = []
            for density in densities:
                # The automatic choice is one of the two, measured once more.
                events, dense, automatic = in_turns(*ways(spikes(shape, density)))
                behind[f"{title}, {name}, {100 * density:g} %"] = automatic / min(events, dense)
                cells.append(f"{events / dense:.2f} ({automatic / min(events, dense):.2f})")
            yield f"| {title} | {name} | {' | '.join(cells)} |"
    ordered = sorted(behind, key=lambda place: -behind[place])
    mean = np.exp(np.mean(np.log(list(behind.values()))))
    worse = sum(value > 1.1 for value in behind.values())
    yield f"\nThe choice takes {mean:.2f} times the time of the better way in the geometric mean, and more than 1.1"
    yield f"times this time in {worse} of {len(behind)} cells. The largest ratios:\n"
    yield from (f"- {behind[place]:.2f}: {place}" for place in ordered[:5])
    yield ""


def rates() -> None:
    """The costs of the parts of an event product and of BLAS, in nanoseconds per unit of work."""
    rng = np.random.default_rng(0)
    print("| rows, k, n | density | search: element | sort: event | forward, gradient, BLAS: multiplication |")
    print("| --- " * 5 + "|")
    for m, k, n in ((100, 128, 128), (1600, 512, 512), (6400, 700, 256), (6400, 256, 20), (1600, 4096, 4096)):
        w, dout = (rng.standard_normal(shape).astype(np.float32) for shape in ((n, k), (m, n)))
        for density in (0.01, 0.05, 0.2, 0.5):
            x = spikes((m, k), density)
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


def header() -> list[str]:
    """The first lines of the page."""
    return [
        "# Events or dense kernels",
        "",
        "Each cell has the time with events, divided by the time with dense kernels. In brackets is the time of",
        "snncell's choice, divided by the time of the better kernel. It is measured separately, so 0.95 and 1.05 can",
        "be noise. The head of a column is the share of nonzero elements, which are at random places.",
        "",
        f"- command: python -m benchmarks.events --threads {os.environ['NUMBA_NUM_THREADS']} --markdown FILE",
        f"- Python {platform.python_version()}, snncell {snncell.__version__}, NumPy {np.__version__}, float32",
        f"- date: {datetime.date.today()}; minimum times of calls that take turns",
        "",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--only", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see whether everything runs")
    parser.add_argument("--rates", action="store_true")
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_args()
    os.environ["NUMBA_NUM_THREADS"] = str(arguments.threads)  # Numba is imported when the first kernel is compiled
    watch = Watch()
    if arguments.rates:
        rates()
    else:
        lines = header()
        for kind in arguments.only:
            for line in sweep(kind, arguments.quick):
                print(line, flush=True)
                lines.append(line)
        if arguments.markdown:
            arguments.markdown.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
    print(f"Meanwhile, {watch.look()}.")


if __name__ == "__main__":
    main()
