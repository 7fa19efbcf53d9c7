"""Translated kernels give the results of the same text in Python, and allocate and free memory on the heap."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from snncell import dtype as dtypes
from snncell.errors import KernelMemoryError
from snncell.kernels.numba import build as builder, code
from snncell.kernels.numba.build import build
from snncell.kernels.numba.code import function_of
from snncell.kernels.numba.syntax import statements_of

HEAD = """
import math

import numpy as np

from snncell.kernels.intrinsics.elements import row, tail
from snncell.kernels.intrinsics.builtins import heap, heap_rows

SIZE = 3
TAU = 6.25


def kernel(start, stop, n, x, out):
"""
# Each body writes whole numbers to `out`, for n and the numbers of `x` from -9 to 9.
BODIES = {
    "values of names after branches and loops": """
        a = b = n
        last = -1
        for i in range(5):
            last = i
            if x[i] > 0:
                a += i
            elif x[i] < -3:
                b -= i
                continue
            else:
                a, b = b, a
            if a + b > 40:
                break
        out[0], out[1], out[2] = a, b, last
    """,
    "conditions": """
        count = 0
        for i in range(8):
            y = x[i]
            if (0 < y < 5 or y == 7) and not (y == 2 or n < 0):
                count += 1
            z = n if y > n else (y if y else SIZE)
            both = y > 0 and z > 1 or y < -5
            out[i] = z + (10 if both else 20)
        out[8] = count
    """,
    "loops with steps": """
        k = 0
        step = 2 if n > 0 else 3
        for i in range(8, -1, -2):
            for j in range(i, 8, step):
                k = k * 3 % 101 + i - j
        while k > -20 and k != 13:
            k -= 7
            if k == 6:
                k -= 1
        out[0] = k
        out[1] = step
    """,
    "division": """
        for i in range(8):
            y = x[i] - 4
            out[i] = y // 3 * 100 + y % 3 * 10 + y // 8 + y % 8 + -(y // 2) + y % (n * n + 1) + (y // (n * n + 1) << 2)
    """,
    "memory on the heap": """
        for i in range(start, stop):
            many = heap(i + 4, np.int64)
            table = heap_rows(3, 4, np.int64)
            for j in range(4):
                many[j] = x[j] * i
                row(table, j % 3)[j] = many[j] + SIZE
            out[i] = tail(many, 1)[2] + table[0, 3] + int(math.floor(TAU))
    """,
}


def sources() -> dict[str, str]:
    return {name: HEAD + "\n".join(line[4:] for line in body.splitlines()) + "\n" for name, body in BODIES.items()}


@pytest.mark.parametrize("name", BODIES)
def test_translated_kernels_give_the_results_of_python(name: str, tmp_path: Path) -> None:
    source, number = sources()[name], dtypes.int64
    compiled = build("kernel", source, (number, (number, 1, False), (number, 1, True)))
    plain = function_of(tmp_path / "plain.py", source, "kernel")
    rng = np.random.default_rng(0)
    for n in (-2, 0, 1, 6):
        x = rng.integers(-9, 10, 9)
        found, expected = np.zeros(9, np.int64), np.zeros(9, np.int64)
        compiled(5, 0, n, x, found)
        plain(0, 5, n, x, expected)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.compiled
def test_heap_without_memory_raises() -> None:
    body = "    many = heap(n, np.int64)\n    out[0] = many[0]\n"
    kernel = build("kernel", HEAD + body, (dtypes.int64, (dtypes.int64, 1, False), (dtypes.int64, 1, True)))
    x: Any = np.zeros(1, np.int64)
    kernel(1, 0, 10, x, x)
    with pytest.raises(KernelMemoryError, match="out of memory"):
        kernel(1, 0, 1 << 58, x, x)


@pytest.mark.compiled
@pytest.mark.parametrize("line", ["print(*x)", "out[0] = x[:3].sum()", "del n", "out[0] = x @ x"])
def test_other_syntax_is_refused(line: str, tmp_path: Path) -> None:
    function = function_of(tmp_path / "other.py", f"{HEAD}    {line}\n", "kernel")
    with pytest.raises(NotImplementedError, match=re.escape("Kernels cannot contain `")):
        statements_of(function)


SHARING = """
from snncell.kernels.intrinsics.broadcast import fill_broadcast
from snncell.kernels.intrinsics.elements import tail


def kernel(start, stop, n, x, out):
    fill_broadcast(tail(out, 0), tail(x, 0), 0, n, 1, n, 1, 1)
"""


@pytest.mark.compiled
def test_lost_code_of_a_shared_function_is_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNNCELL_CACHE_DIR", str(tmp_path))
    kinds = (dtypes.int64, (dtypes.float32, 1, False), (dtypes.float32, 1, True))
    names = []
    for lost, loaded in ((False, False), (False, True), (True, False)):
        monkeypatch.setattr(builder, "_built", {})
        monkeypatch.setattr(code, "_shared", {})
        for path in tmp_path.glob("snncell_*") if lost else ():
            path.unlink()
        kernel: Any = build("kernel", SHARING, kinds)
        assert kernel.loaded == loaded
        out = np.zeros(64, np.float32)
        kernel(1, 0, 5, np.float32([2.5]), out)
        np.testing.assert_array_equal(out[:5], 2.5)
        names.append({path.name for path in tmp_path.iterdir()})
    assert names[0] == names[1] == names[2] and len(names[0]) == 3
