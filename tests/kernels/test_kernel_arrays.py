"""Array functions in compiled kernels agree with their Python execution for each dtype and length."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from snncell import dtype as dtypes
from snncell.kernels.loops import BLOCK, LANES
from snncell.kernels.numba.build import build
from snncell.kernels.numba.code import function_of

HEAD = """import numpy as np

from snncell.kernels.intrinsics.builtins import bitcast, least
from snncell.kernels.intrinsics.elements import copy, fill, flat, lanes, row, strip, tail, words_of

LANES = 16


"""
DTYPES = [dtypes.bool_, dtypes.int8, dtypes.uint8, dtypes.int32, dtypes.int64, dtypes.float32, dtypes.float64]
COUNTS = [0, 1, 2, 3, 15, 16, 17, 100]
# Of `n` elements: x, y (n,), z (3, n), out (n,), and the numbers k and m; the result of each function is in `out`.
BODIES = {
    "getitem": "for i in range(n):\n        out[i] = x[i]",
    "getitem of rows": "for i in range(n):\n        out[i] = z[1, i]",
    "tail": "part = tail(x, k)\n    for i in range(n - k):\n        out[i] = part[i]",
    "tail of a tail": "part = tail(tail(x, k), 0)\n    for i in range(n - k):\n        out[i] = part[i]",
    "row": "part = row(z, 2)\n    for i in range(n):\n        out[i] = part[i]",
    "row backwards": (
        "for turn in range(3):\n        part = row(z, 2 - turn)\n"
        "        for i in range(n):\n            out[i] = part[i]"
    ),
    "row at an int32": "part = row(z, np.int32(1))\n    for i in range(n):\n        out[i] = part[i]",
    "tail of a row": "part = tail(row(z, 1), k)\n    for i in range(n - k):\n        out[i] = part[i]",
    "flat": "part = flat(z)\n    for i in range(n):\n        out[i] = part[n + i]",
    "copy": "copy(tail(out, k), tail(x, 0), n - k)",
    "copy of a row": "copy(tail(out, 0), row(z, 1), n)",
    "fill with all": "fill(tail(out, 0), x, 0, 1, n)",
    "fill from a place": "fill(tail(out, 0), x, k, 1, n - k)",
    "fill with one": "fill(tail(out, 0), y, 0, 0, n)",
    "strip": (
        "own = strip(n, np.{dtype})\n    for i in range(n):\n        own[i] = x[i]\n    copy(tail(out, 0), own, n)"
    ),
    "strip like": "own = strip(n, x)\n    copy(own, tail(x, 0), n)\n    for i in range(n):\n        out[i] = own[i]",
    "lanes": "own = lanes(y[0])\n    for i in range(least(n, LANES)):\n        out[i] = own[i]",
    "shape": (
        "a, b = z.shape\n    if len(x) == n and a == 3 and b == n and len(z) == 3:\n"
        "        copy(tail(out, 0), tail(x, 0), n)"
    ),
}
CASES = [(name, dtype) for name in BODIES for dtype in DTYPES]


def source_of(body: str, dtype: Any) -> str:
    text = BODIES[body].format(dtype=dtype.dtype.type.__name__)
    return f"{HEAD}def tried(start, stop, n, k, x, y, z, out):\n    {text}\n"


def make_arguments(dtype: Any, n: int) -> list[Any]:
    rng = np.random.default_rng(n)
    arrays = [rng.integers(0, 100, shape).astype(dtype.dtype) for shape in (n, max(n, 1), (3, n))]
    return [n, min(n, 2), *arrays, np.zeros(n, dtype.dtype)]


def test_constants_equal_those_of_loops() -> None:
    assert LANES == 16
    assert max(COUNTS) < BLOCK


@pytest.mark.sampled(22)
@pytest.mark.compiled
@pytest.mark.parametrize(("body", "dtype"), CASES, ids=[f"{body}-{dtype}" for body, dtype in CASES])
def test_compiled_function_equals_python(body: str, dtype: Any) -> None:
    source = source_of(body, dtype)
    array = [(dtype, ndim, False) for ndim in (1, 1, 2)]
    kernel = build("tried", source, (dtypes.int64, dtypes.int64, *array, (dtype, 1, True)))
    plain = function_of(Path("tried.py"), source, "tried")
    for n in COUNTS:
        arguments, expected = make_arguments(dtype, n), make_arguments(dtype, n)
        kernel(1, 0, *arguments)
        plain(0, 1, *expected)
        np.testing.assert_array_equal(arguments[-1], expected[-1])


@pytest.mark.compiled
def test_fill_stays_within_its_range() -> None:
    source = f"{HEAD}def tried(start, stop, n, x, out):\n    fill(tail(out, 1), x, 0, 0, n)\n"
    kernel = build("tried", source, (dtypes.int64, (dtypes.float32, 1, False), (dtypes.float32, 1, True)))
    for n in range(70):
        out = np.zeros(n + 2, np.float32)
        kernel(1, 0, n, np.float32([7.0]), out)
        assert out.tolist() == [0.0, *[7.0] * n, 0.0]


@pytest.mark.compiled
def test_random_words_and_bits_equal_python() -> None:
    source = (
        f"{HEAD}def tried(start, stop, x, bits, out, number):\n    words = words_of(tail(x, 0))\n"
        "    out[0] = words[0]\n    out[1] = words[1]\n    bits[0] = bitcast(number, np.int32)\n"
    )
    kinds = ((dtypes.uint8, 1, False), (dtypes.int32, 1, True), (dtypes.int64, 1, True), dtypes.float32)
    kernel = build("tried", source, kinds)
    x, bits, out = np.arange(16, dtype=np.uint8), np.zeros(1, np.int32), np.zeros(2, np.int64)
    kernel(1, 0, x, bits, out, 1.5)
    assert out.tolist() == x.view(np.int64).tolist()
    assert bits[0] == np.float32(1.5).view(np.int32)
