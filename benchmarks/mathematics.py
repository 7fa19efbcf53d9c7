"""Speed and error of snncell's float32 scalar functions compared with libm: `python benchmarks/mathematics.py`.

The speed is the median ns per element of a loop over 4096 numbers, which fit into the L1 cache, in turns with the same
loop that calls libm. The error is the largest one over every 997th float32, in units of the last place.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

from snncell import dtype as dtypes
from snncell.kernels.numba.build import build

SIZE = 4096
ROUNDS = 15
CALLS = 200


# By name: the expression that Numba compiles to libm, the exact function, and the range of the timed numbers.
FUNCTIONS: dict[str, tuple[str, Any, tuple[float, float]]] = {
    "exp": ("np.exp({})", np.exp, (-10, 10)),
    "expm1": ("np.expm1({})", np.expm1, (-10, 10)),
    "log": ("np.log({})", np.log, (0.01, 10)),
    "log1p": ("np.log1p({})", np.log1p, (-0.99, 10)),
    "tanh": ("np.tanh({})", np.tanh, (-4, 4)),
    "sigmoid": ("1 / (1 + np.exp(-{}))", special.expit, (-10, 10)),
    "erf": ("math.erf({})", special.erf, (-4, 4)),
    "atan": ("math.atan({})", np.arctan, (-4, 4)),
}


SOURCE = """
import math
import numpy as np

from snncell.kernels import scalar as mathematics


def apply(start, stop, x, out):
    for i in range(len(x)):
        out[i] = {}
"""


def build_loop(call: str) -> Callable[[Any, Any], None]:
    """Build a kernel of one thread that applies an expression with {} to each element."""
    kernel = build("apply", SOURCE.format(call.format("x[i]")), ((dtypes.float32, 1, False), (dtypes.float32, 1, True)))
    return lambda x, out: kernel(1, 0, x, out)


def nanoseconds(loop: Callable[[Any, Any], None], x: Any, out: Any) -> float:
    start = time.perf_counter()
    for _ in range(CALLS):
        loop(x, out)
    return (time.perf_counter() - start) / CALLS / x.size * 1e9


def largest_error(loop: Callable[[Any, Any], None], exact: Any) -> float:
    x = np.arange(0, 2**32, 997, np.uint64).astype(np.uint32).view(np.float32)
    out = np.empty_like(x)
    loop(x, out)
    with np.errstate(all="ignore"):
        expected = exact(x.astype(np.float64))
        regular = np.isfinite(expected.astype(np.float32)) & (expected != 0)
    exponent = np.frexp(expected[regular])[1] - 1
    distance = np.abs(out[regular].astype(np.float64) - expected[regular])
    return float((distance / np.ldexp(1.0, np.maximum(exponent, -126) - 23)).max())


def main() -> None:
    print(f"{'':<8} {'ns':>6} {'libm, ns':>9} {'ratio':>6} {'error, ulp':>11} {'of libm':>8}")
    for name, (libm, exact, (low, high)) in FUNCTIONS.items():
        ours, theirs = build_loop(f"mathematics.{name}_f4({{}})"), build_loop(libm)
        errors = [largest_error(loop, exact) for loop in (ours, theirs)]
        x = np.random.default_rng(0).uniform(low, high, SIZE).astype(np.float32)
        out = np.empty_like(x)
        rounds = [(nanoseconds(ours, x, out), nanoseconds(theirs, x, out)) for _ in range(ROUNDS)]
        a, b = (statistics.median(times) for times in zip(*rounds, strict=True))
        print(f"{name:<8} {a:>6.2f} {b:>9.2f} {b / a:>6.1f} {errors[0]:>11.3f} {errors[1]:>8.3f}")


if __name__ == "__main__":
    main()
