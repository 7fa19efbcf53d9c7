"""Cost of `vmap` compared with a batched function, and of a Jacobian compared with one backward pass for each row.

    python benchmarks/batching.py [--markdown FILE]

Both functions of a pair take turns. The script first checks that their results are equal, up to rounding.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from timing import in_turns, medians, publish

import snncell
from snncell import Tensor, grad, jacfwd, jacrev, jit, ops, vmap

BATCH = 256
SIZES = (2, 4, 8, 16, 32, 64, 256)
UNROLLED = 64  # most rows of a jitted Jacobian by a loop, because each row compiles another copy of the backward pass
RANDOM = np.random.default_rng(0)


def random_tensor(*shape: int) -> Tensor:
    """Return normal numbers divided by the root of the number of rows, so that values stay small in several layers."""
    return Tensor((RANDOM.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32))


# --- vmap -------------------------------------------------------------------------------------------------------------


def slice_functions() -> dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]]:
    """Return functions of one slice that also take a batch of slices, and their arguments: first the batch."""
    weights = (random_tensor(784, 128), random_tensor(128), random_tensor(128, 10), random_tensor(10))

    def mlp(x: Tensor, w: Tensor, b: Tensor, v: Tensor, c: Tensor) -> Tensor:
        return ops.relu(x @ w + b) @ v + c

    def normalised(x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdims=True)
        return centred * ops.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)

    return {
        "784-128-10 network": (mlp, (random_tensor(BATCH, 784), *weights)),
        "the same, log_softmax": (lambda *xs: ops.log_softmax(mlp(*xs), -1), (random_tensor(BATCH, 784), *weights)),
        "the same, one class": (
            lambda *xs: ops.log_softmax(mlp(*xs), -1)[..., 3],
            (random_tensor(BATCH, 784), *weights),
        ),
        "normalised, 512": (normalised, (random_tensor(BATCH, 512),)),
        "softmax, 512": (lambda x: ops.softmax(x, -1), (random_tensor(BATCH, 512),)),
        "sorted, 64": (lambda x: ops.sort(x, -1)[0], (random_tensor(BATCH, 64),)),
        "running sums, 64": (lambda x: ops.cumsum(x, -1), (random_tensor(BATCH, 64),)),
    }


def sum_of_squares(fn: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a function that returns the sum of squares of the result of `fn`."""
    return lambda *xs: ops.square(fn(*xs)).sum()


def vmap_rows() -> list[str]:
    """Return a row for each function: values, and gradients outside and inside of `vmap`."""
    lines = []
    for name, (fn, arguments) in slice_functions().items():
        axes = (0, *(None for _ in arguments[1:]))
        mapped, total = vmap(fn, axes), sum_of_squares(fn)
        kinds = {
            "values": (fn, mapped),
            "gradient outside": (grad(total), grad(sum_of_squares(mapped))),
            "gradient inside": (grad(total), vmap(grad(total), axes)),
        }
        for kind, pair in kinds.items():
            batched, slices = (jit(one) for one in pair)
            expected = batched(*arguments).asnumpy()
            np.testing.assert_allclose(expected, slices(*arguments).asnumpy(), rtol=1e-3, atol=1e-5)
            calls = {"batched": lambda f=batched, a=arguments: f(*a), "vmap": lambda f=slices, a=arguments: f(*a)}
            times = medians(in_turns(calls, calls=10, rounds=25))
            ratio = times["vmap"] / times["batched"]
            lines.append(
                f"| {name} | {kind} | {1e3 * times['batched']:.3f} | {1e3 * times['vmap']:.3f} | {ratio:.2f} |"
            )
    return lines


# --- Jacobians --------------------------------------------------------------------------------------------------------


def row_by_row(fn: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return the Jacobian function that runs one backward pass for each output element, in a Python loop."""

    def jacobian(x: Tensor) -> Tensor:
        out, pull = snncell.vjp(fn, x)
        return ops.stack([pull(Tensor(row))[0] for row in np.eye(out.size, dtype=np.float32)])

    return jacobian


def vector_functions(size: int) -> dict[str, Callable[[Tensor], Tensor]]:
    """Return functions from a vector to a vector of the same length."""
    w = random_tensor(size, size)
    return {
        "tanh": ops.tanh,
        "two layers": lambda x: ops.tanh(ops.tanh(x @ w) @ w),
        "log_softmax of a product": lambda x: ops.log_softmax(x @ w),
        "8 steps of a loop": lambda x: ops.scan(lambda v, i: (0.9 * v + ops.tanh(i), ()), x, ops.stack([x] * 8))[0],
    }


def jacobian_rows() -> list[str]:
    """Return a row for each function and size, eager and jitted."""
    lines = []
    for size in SIZES:
        x = random_tensor(size)
        for name, fn in vector_functions(size).items():
            for kind in ("eager", "jitted"):
                if kind == "jitted" and size > UNROLLED:
                    continue
                jacobians = {"row by row": row_by_row(fn), "jacrev": jacrev(fn), "jacfwd": jacfwd(fn)}
                if kind == "jitted":
                    jacobians = {key: jit(jacobian) for key, jacobian in jacobians.items()}
                expected = jacobians["row by row"](x).asnumpy()
                for jacobian in jacobians.values():
                    np.testing.assert_allclose(jacobian(x).asnumpy(), expected, rtol=1e-3, atol=1e-5)
                calls: dict[str, Callable[[], Any]] = {key: partial(each, x) for key, each in jacobians.items()}
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
        "- medians of calls that take turns, on two shared cores; results are equal up to rounding",
        "",
        f"## vmap over {BATCH} slices compared with a function of the batch, both jitted",
        "",
        "| function | | batched, ms | vmap, ms | ratio |",
        "| --- | --- | --- | --- | --- |",
        *vmap_rows(),
        "",
        "## Jacobians of n outputs by n inputs, compared with one backward pass for each row",
        "",
        "A ratio is the time of the Python loop (row by row) divided by that of the function. `jit` unrolls the loop, "
        f"so it is measured up to n = {UNROLLED}.",
        "",
        "| n | function | | row by row, ms | jacrev | jacfwd |",
        "| --- | --- | --- | --- | --- | --- |",
        *jacobian_rows(),
    ]
    publish(lines, options.markdown)


if __name__ == "__main__":
    main()
