"""Event-driven and dense kernels for spikes, and snncell's choice: `python -m benchmarks.events [--only KIND ...]`.

For the shapes of the benchmark rows and several densities of spikes, the table has the time of event-driven kernels
divided by the time of dense kernels. In brackets is the time of snncell's choice divided by the better of the two.

- products: `x @ w.T` and the gradient of w, outside of loops over time.
- loops: a training step of Linear and LIF, where the loop over time computes both products, one of which is forced.
- convolutions: the forward pass and the gradient of the weights.

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
from snncell.kernels.products import blas, gathers, matmul

DENSITIES = (0.005, 0.02, 0.05, 0.1, 0.3, 0.6)
LEAST_TIME = 0.05  # seconds for the repetitions of one figure
WAYS = {"events": 2.0, "dense": 0.0, "automatic": None}  # limits of density below which products are event-driven
Run = Callable[[], Any]
# From the name of a product to a function of spikes, which returns a Run for each of `WAYS`.
Products = dict[str, Callable[[Any], tuple[Run, ...]]]


@contextmanager
def force_limit(below: float | None, by_columns: bool | None = None) -> Iterator[None]:
    """Set the density below which products and convolutions are event-driven, for one kind of product or for all."""
    original = matmul.limit, images.limit
    if below is not None:

        def limit(*sizes: Any) -> float:
            return original[0](*sizes) if by_columns is not None and sizes[-1] != by_columns else below

        matmul.limit, images.limit = limit, lambda *sizes: below  # type: ignore[assignment]
    try:
        yield
    finally:
        matmul.limit, images.limit = original


def run_forced(run: Run, below: float | None, by_columns: bool | None = None) -> Any:
    with force_limit(below, by_columns):
        return run()


def minimum_times(*functions: Run) -> list[float]:
    """Return the minimum seconds of each function; they take turns.

    On one thread it is processor time, which excludes other programs.
    """
    clock = time.process_time if os.environ.get("NUMBA_NUM_THREADS") == "1" else time.perf_counter
    times: list[list[float]] = [[] for _ in functions]
    begin = time.perf_counter()
    while (fewest := min(map(len, times))) < 3 or (
        fewest < 100 and time.perf_counter() - begin < LEAST_TIME * len(functions)
    ):
        for seconds, function in zip(times, functions, strict=True):
            for _ in range(5):  # the first call follows another kernel, which has filled the caches with other data
                start = clock()
                function()
                seconds.append(clock() - start)
                if seconds[-1] > LEAST_TIME:
                    break
    return [min(seconds[1:]) for seconds in times]


def spikes(shape: tuple[int, ...], density: float) -> Any:
    """Return random zeros and ones."""
    return (np.random.default_rng(1).random(shape) < density).astype(np.float32)


# --- shapes and products ----------------------------------------------------------------------------------------------


def linear_shapes(quick: bool) -> list[tuple[int, int, int, int]]:
    """Return steps, batch, inputs and outputs of the linear layers of all rows in the group of networks."""
    if quick:
        return [(20, 4, 64, 48)]
    shapes = []
    for row in ROWS.values():
        if isinstance(row.sizes, spiking_nets.Sizes):
            shapes += [(row.sizes.steps, row.sizes.batch, *pair) for pair in pairwise(row.sizes.widths)]
        elif isinstance(row.sizes, linear.Sizes) and row.group == "nets":
            shapes.append((row.sizes.steps, row.sizes.batch, row.sizes.inputs, row.sizes.neurons))
    return list(dict.fromkeys(shapes))


def convolution_shapes(quick: bool) -> list[tuple[int, int, int, int]]:
    """Return images, channels, outputs and side of the convolutions of all convolutional networks."""
    shapes = []
    for row in ROWS.values():
        if isinstance(row.sizes, convolution.Sizes):
            sizes = row.small_sizes if quick else row.sizes
            channels, side, _ = sizes.shape
            for layer in sizes.layers:
                side //= 2 if layer == "pool" else 1
                if layer != "pool":
                    outputs = channels if isinstance(layer, str) else layer
                    shapes.append((sizes.steps * sizes.batch, channels, outputs, side))
                    channels = outputs
    return list(dict.fromkeys(shapes))[: 2 if quick else None]


def products(quick: bool) -> Iterator[tuple[str, tuple[int, ...], Products]]:
    """Yield matrix products outside of loops."""
    for steps, batch, inputs, outputs in linear_shapes(quick):
        rng, m = np.random.default_rng(0), steps * batch
        w, dout = (rng.standard_normal(shape, np.float32) for shape in ((outputs, inputs), (m, outputs)))
        out, gradient = np.empty_like(dout), np.empty_like(w)

        def ways(target: Any, by_columns: bool, y: Any, x: Any) -> tuple[Run, ...]:
            run = functools.partial(matmul.matmul_into, target, x.T if by_columns else x, y)
            return tuple(functools.partial(run_forced, run, below) for below in WAYS.values())

        both = {
            "forward": functools.partial(ways, out, False, w.T),
            "gradient": functools.partial(ways, gradient.T, True, dout),
        }
        yield f"{m} rows, {inputs} to {outputs}", (m, inputs), both


def loops(quick: bool) -> Iterator[tuple[str, tuple[int, ...], Products]]:
    """Yield training steps of a linear layer and LIF neurons. One product is forced, and the other automatic."""
    for steps, batch, inputs, outputs in linear_shapes(quick):
        if inputs > gathers.DEEPEST:  # no product in the loop
            continue
        rng = np.random.default_rng(0)
        dense, layer = nn.Dense(inputs, outputs), snncell_lif_layer()
        seed = Tensor(rng.standard_normal((steps, batch, outputs), np.float32))

        def step(x: Tensor, seed: Tensor, dense: Any = dense, layer: Any = layer) -> Any:
            out, pull = ops.vjp(lambda: layer(dense(x)), weights=[dense.weight, dense.bias])
            return out, pull(seed)[1]

        def ways(by_columns: bool, jitted: list[Any], seed: Tensor, x: Any) -> tuple[Run, ...]:
            spikes = Tensor(x)
            return tuple(
                functools.partial(run_forced, functools.partial(own, spikes, seed), below, by_columns)
                for own, below in zip(jitted, WAYS.values(), strict=True)
            )

        both = {  # each way has its own Program, because the compiler uses the limits, too
            name: functools.partial(ways, by_columns, [snncell.jit(step) for _ in WAYS], seed)
            for name, by_columns in (("forward", False), ("gradient", True))
        }
        yield f"T {steps}, batch {batch}, {inputs} to {outputs}", (steps, batch, inputs), both


def convolutions(quick: bool) -> Iterator[tuple[str, tuple[int, ...], Products]]:
    """Yield convolutions 3x3 and the gradients of their weights."""
    for count, channels, outputs, side in convolution_shapes(quick):
        rng = np.random.default_rng(0)
        w = rng.standard_normal((outputs, channels, 3, 3), np.float32)
        dout = rng.standard_normal((count, outputs, side, side), np.float32)
        sizes: dict[str, Any] = {"stride": (1, 1), "before": (1, 1), "dilation": (1, 1), "groups": 1}

        def ways(run: Callable[..., Any], own: dict[str, Any], y: Any, x: Any) -> tuple[Run, ...]:
            whole = functools.partial(run, x, y, **own)
            return tuple(functools.partial(run_forced, whole, below) for below in WAYS.values())

        both = {
            "forward": functools.partial(ways, direct.convolve, {**sizes, "count": (side, side)}, w),
            "gradient": functools.partial(ways, direct.convolve_weight, {**sizes, "size": (3, 3)}, dout),
        }
        yield f"{count} images {side}x{side}, {channels} to {outputs}", (count, channels, side, side), both


KINDS = {"products": products, "loops": loops, "convolutions": convolutions}

# --- tables -----------------------------------------------------------------------------------------------------------


def sweep(kind: str, quick: bool) -> Iterator[str]:
    """Yield the lines of a table, events / dense (automatic / better), and a summary of the automatic choices."""
    densities = DENSITIES[::2] if quick else DENSITIES
    yield f"| {kind} | product | {' | '.join(f'{100 * density:g} %' for density in densities)} |"
    yield "| --- " * (2 + len(densities)) + "|"
    losses = {}
    for title, shape, both in KINDS[kind](quick):
        for name, ways in both.items():
            cells = []
            for density in densities:
                # The automatic choice is one of the two ways, but measured separately.
                events, dense, automatic = minimum_times(*ways(spikes(shape, density)))
                losses[f"{title}, {name}, {100 * density:g} %"] = automatic / min(events, dense)
                cells.append(f"{events / dense:.2f} ({automatic / min(events, dense):.2f})")
            yield f"| {title} | {name} | {' | '.join(cells)} |"
    ordered = sorted(losses, key=lambda cell: -losses[cell])
    mean = np.exp(np.mean(np.log(list(losses.values()))))
    worse = sum(value > 1.1 for value in losses.values())
    yield f"\nThe choice takes {mean:.2f} times the time of the better kernel in the geometric mean, and more than 1.1"
    yield f"times this time in {worse} of {len(losses)} cells. The largest ratios are:\n"
    yield from (f"- {losses[cell]:.2f}: {cell}" for cell in ordered[:5])
    yield ""


def rates() -> None:
    """Print the costs of the parts of an event product and of BLAS, in nanoseconds per unit of work."""
    rng = np.random.default_rng(0)
    print("| rows, k, n | density | search: element | sort: event | forward, gradient, BLAS: multiplication |")
    print("| --- " * 5 + "|")
    for m, k, n in ((100, 128, 128), (1600, 512, 512), (6400, 700, 256), (6400, 256, 20), (1600, 4096, 4096)):
        w, dout = (rng.standard_normal(shape).astype(np.float32) for shape in ((n, k), (m, n)))
        for density in (0.01, 0.05, 0.2, 0.5):
            x = spikes((m, k), density)
            events, out, gradient = matmul._all_events(x, x.dtype), np.empty_like(dout), np.empty_like(w)
            count = int(events.counts.sum())
            search, sort, forward, backward, dense = minimum_times(
                lambda x=x: matmul._all_events(x, x.dtype),
                lambda events=events, k=k, count=count: matmul.sort_by_columns(events, k, count),
                lambda events=events, out=out, w=w: matmul._add_up(out, events, w.T, False),
                lambda events=events, gradient=gradient, dout=dout: matmul._add_up(gradient.T, events, dout, True),
                lambda x=x, w=w, out=out: blas.multiply_into(out, x, w.T),
            )
            parts = [search / x.size, sort / count, forward / count / n, backward / count / n, dense / x.size / n]
            search, sort, *others = (1e9 * part for part in parts)
            print(f"| {m}, {k}, {n} | {density} | {search:.2f} | {sort:.1f} | {' '.join(f'{x:.4f}' for x in others)} |")


def header() -> list[str]:
    """Return the first lines of the page."""
    return [
        "# Event-driven and dense kernels",
        "",
        "Each cell has the time of event-driven kernels divided by the time of dense kernels. In brackets is the time",
        "of snncell's choice divided by the time of the better kernel. It is measured separately, so 0.95 and 1.05 can",
        "be noise. The head of a column is the share of nonzero elements, which are at random positions.",
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
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to check that everything runs")
    parser.add_argument("--rates", action="store_true")
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_args()
    os.environ["NUMBA_NUM_THREADS"] = str(arguments.threads)  # before the first kernel, which imports Numba
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
