"""Cost of `vmap` compared with a batched function, and of a Jacobian compared with one backward pass for each row.

    python benchmarks/batching.py [--markdown FILE]

Each pair is measured in turns; the results are checked to be equal, to rounding.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from timing import in_turns, medians, tell

import snncell
from snncell import Tensor, grad, jacfwd, jacrev, jit, ops, vmap

BATCH = 256
SIZES = (2, 4, 8, 16, 32, 64, 256)
UNROLLED = 64  # rows of a jitted function, at most: each is a copy of the reverse, which is compiled
RANDOM = np.random.default_rng(0)


def drawn(*shape: int) -> Tensor:
    """Normal numbers, small enough for several layers."""
    return Tensor((RANDOM.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32))


# --- vmap -------------------------------------------------------------------------------------------------------------


def of_slices() -> dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]]:
    """Functions of one slice, and of all slices as a first axis. The first argument has the slices."""
    weights = (drawn(784, 128), drawn(128), drawn(128, 10), drawn(10))

    def mlp(x: Tensor, w: Tensor, b: Tensor, v: Tensor, c: Tensor) -> Tensor:
        return ops.relu(x @ w + b) @ v + c

    def normalised(x: Tensor) -> Tensor:
        apart = x - x.mean(-1, keepdims=True)
        return apart * ops.rsqrt((apart * apart).mean(-1, keepdims=True) + 1e-5)

    return {
        "784-128-10 network": (mlp, (drawn(BATCH, 784), *weights)),
        "the same, log_softmax": (lambda *xs: ops.log_softmax(mlp(*xs), -1), (drawn(BATCH, 784), *weights)),
        "the same, one class": (lambda *xs: ops.log_softmax(mlp(*xs), -1)[..., 3], (drawn(BATCH, 784), *weights)),
        "normalised, 512": (normalised, (drawn(BATCH, 512),)),
        "softmax, 512": (lambda x: ops.softmax(x, -1), (drawn(BATCH, 512),)),
        "sorted, 64": (lambda x: ops.sort(x, -1)[0], (drawn(BATCH, 64),)),
        "running sums, 64": (lambda x: ops.cumsum(x, -1), (drawn(BATCH, 64),)),
    }


def squared(fn: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The sum of squares of the result of a function."""
    return lambda *xs: ops.square(fn(*xs)).sum()


def vmap_rows() -> list[str]:
    """A row for each function: values, and gradients outside and inside of `vmap`."""
    lines = []
    for name, (fn, given) in of_slices().items():
        axes = (0, *(None for _ in given[1:]))
        slices_of, total = vmap(fn, axes), squared(fn)
        kinds = {
            "values": (fn, slices_of),
            "gradient outside": (grad(total), grad(squared(slices_of))),
            "gradient inside": (grad(total), vmap(grad(total), axes)),
        }
        for kind, pair in kinds.items():
            batched, slices = (jit(one) for one in pair)
            np.testing.assert_allclose(batched(*given).asnumpy(), slices(*given).asnumpy(), rtol=1e-3, atol=1e-5)
            calls = {"batched": lambda f=batched, a=given: f(*a), "vmap": lambda f=slices, a=given: f(*a)}
            times = medians(in_turns(calls, calls=10, rounds=25))
            ratio = times["vmap"] / times["batched"]
            lines.append(
                f"| {name} | {kind} | {1e3 * times['batched']:.3f} | {1e3 * times['vmap']:.3f} | {ratio:.2f} |"
            )
    return lines


# --- Jacobians --------------------------------------------------------------------------------------------------------


def row_by_row(fn: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """The Jacobian by one backward pass for each output element, in a Python loop."""

    def jacobian(x: Tensor) -> Tensor:
        out, pull = snncell.vjp(fn, x)
        return ops.stack([pull(Tensor(row))[0] for row in np.eye(out.size, dtype=np.float32)])

    return jacobian


def of_vectors(size: int) -> dict[str, Callable[[Tensor], Tensor]]:
    """Functions from a vector to a vector of the same length."""
    w = drawn(size, size)
    return {
        "tanh": ops.tanh,
        "two layers": lambda x: ops.tanh(ops.tanh(x @ w) @ w),
        "log_softmax of a product": lambda x: ops.log_softmax(x @ w),
        "8 steps of a loop": lambda x: ops.scan(lambda v, i: (0.9 * v + ops.tanh(i), ()), x, ops.stack([x] * 8))[0],
    }


def jacobian_rows() -> list[str]:
    """A row for each function and size, eager and jitted."""
    lines = []
    for size in SIZES:
        x = drawn(size)
        for name, fn in of_vectors(size).items():
            for kind in ("eager", "jitted"):
                if kind == "jitted" and size > UNROLLED:
                    continue
                each = {"row by row": row_by_row(fn), "jacrev": jacrev(fn), "jacfwd": jacfwd(fn)}
                made = {key: jit(one) if kind == "jitted" else one for key, one in each.items()}
                expected = made["row by row"](x).asnumpy()
                for one in made.values():
                    np.testing.assert_allclose(one(x).asnumpy(), expected, rtol=1e-3, atol=1e-5)
                calls: dict[str, Callable[[], Any]] = {key: partial(one, x) for key, one in made.items()}
                times = medians(in_turns(calls, calls=3, rounds=9, budget=10.0))
                ratios = [times["row by row"] / times[key] for key in ("jacrev", "jacfwd")]
                shown = " | ".join(f"{ratio:.1f}" for ratio in ratios)
                lines.append(f"| {size} | {name} | {kind} | {1e3 * times['row by row']:.3f} | {shown} |")
    return lines


def main() -> None:
    """Measure, then print or write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    lines = [
        "# Cost of vmap and Jacobians",
        "",
        "- command: python benchmarks/batching.py --markdown FILE",
        f"- Python {platform.python_version()}, snncell {snncell.__version__}, numpy {np.__version__}",
        "- medians of calls that take turns, on two shared cores; results are equal to rounding",
        "",
        f"## vmap over {BATCH} slices, and the same function given the batch, both jitted",
        "",
        "| function | | batched, ms | vmap, ms | ratio |",
        "| --- | --- | --- | --- | --- |",
        *vmap_rows(),
        "",
        "## Jacobians of n outputs by n inputs, compared with one backward pass for each row",
        "",
        "The ratios say how many times faster than row by row. `jit` unrolls the rows of a loop of Python, here up to "
        f"{UNROLLED}.",
        "",
        "| n | function | | row by row, ms | jacrev | jacfwd |",
        "| --- | --- | --- | --- | --- | --- |",
        *jacobian_rows(),
    ]
    tell(lines, options.markdown)


if __name__ == "__main__":
    main()
