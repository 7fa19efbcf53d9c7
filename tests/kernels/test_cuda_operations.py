"""Kernels of operations that are not loops, compiled without a card: properties of the PTX for each dtype."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from snncell.kernels.conv import im2col as windows
from snncell.kernels.cuda import arrays, arrays as copies, build as each, functions as lines, indexing, philox
from snncell.kernels.cuda.arrays import DeviceArray
from snncell.kernels.cuda.build import ptx_of, resources
from snncell.kernels.scalar import is_simulated

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("numba_cuda") is None,
        reason='numba-cuda is not installed: pip install "snncell[cuda]"',
    ),
    pytest.mark.skipif(is_simulated(), reason="in the simulator nothing is compiled"),
    pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="NUMBA_DISABLE_JIT=1 compiles nothing"),
]
CAPABILITIES = [(7, 5), (9, 0)]


class _Memory:
    """Memory without a card."""

    def __init__(self, size: int) -> None:
        self.block = SimpleNamespace(pointer=0, size=size)


@pytest.fixture
def requested_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Collect the requested kernels by name: source and signature. None is run."""
    found: dict[str, Any] = {}

    def build(name: str, source: str, signature: Any) -> str:
        found[name] = source, signature
        return name

    nothing = SimpleNamespace(launch=lambda *_: None, copy=lambda *_: None)
    monkeypatch.setattr(arrays, "Memory", _Memory)
    monkeypatch.setattr(each, "build", build)
    for module in (each, copies):
        monkeypatch.setattr(module, "runtime", lambda: nothing)
    caches = (each.kernel, windows._fold_statements)
    for cache in caches:
        cache.cache_clear()
    yield found
    for cache in caches:
        cache.cache_clear()


def array(dtype: str, *shape: int) -> DeviceArray:
    return arrays.empty(shape, np.dtype(dtype))


def request_all(dtype: str) -> None:
    """Request each kernel that works on elements of a dtype."""
    x, positions = array(dtype, 4, 300, 2), array("int64", 5)
    indexing.take(x, positions, 1)
    indexing.pick(x, array("int32", 4, 300))
    indexing.place(x, array("uint8", 4, 300, 2), 9)
    each.fill(x, 1)
    indexing.scatter_add(array(dtype, 4, 5, 2), positions, 1, (4, 300, 2))
    lines.cumsum(x, 1)
    for count in (1, 2, 3):
        shape = [9] * count
        view = windows.device_windows(array(dtype, 2, 3, *shape), [3] * count, [2] * count, [1] * count)
        windows.device_fold(view, (2, 3, *shape), [3] * count, [2] * count, [1] * count)
    if not dtype.startswith("complex"):
        indexing.one_hot(positions, 7, np.dtype(dtype))
        lines.argmax(x, 1)
        lines.argmin(x, 1)
    if dtype.startswith("float"):
        philox.drop_elements(x, array("int64", 2), 0.7)
    if dtype in ("float32", "float64"):
        philox.uniform(array("int64", 2), (9,), np.dtype(dtype))


@pytest.mark.parametrize("capability", CAPABILITIES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "complex64"])
def test_kernels_compile_and_keep_their_precision(
    dtype: str, capability: tuple[int, int], requested_kernels: dict[str, Any]
) -> None:
    request_all(dtype)
    assert len(requested_kernels) >= 11
    for name, (source, signature) in requested_kernels.items():
        text = ptx_of(name, source, signature, capability)
        assert not re.search(r"\bcall\b", text), f"{name} calls a function"
        assert ".local" not in text, f"{name} keeps something in memory"
        assert dtype == "float64" or ".f64" not in text, f"{name} computes in double precision"
        assert resources(text, capability)["spilled"] == 0, name


def test_other_kernels_compile(requested_kernels: dict[str, Any]) -> None:
    key = array("int64", 2)
    for dtype in ("float32", "float64"):
        philox.normal(key, (9,), np.dtype(dtype))
    philox.integers(key, (9,), -5, 2**40)
    philox.permutation(key, 9)
    philox.next_key(key)
    assert {"normal", "integers", "words", "list", "sort", "next_key"} <= set(requested_kernels)
    for name, (source, signature) in requested_kernels.items():
        assert resources(ptx_of(name, source, signature, (8, 0)), (8, 0))["spilled"] == 0, name


def test_random_words_equal_those_of_numpy(requested_kernels: dict[str, Any]) -> None:
    """Run the kernel's computation as Python on NumPy integers, one block after another."""
    philox.uniform(array("int64", 2), (9,), np.dtype(np.float64))
    source, _ = requested_kernels["uniform"]
    body = source[source.index("i = cuda.grid(1)") :].split("\n", 2)[2]
    statements = "\n".join(line[8:] for line in body.split("\n"))
    for key in ((5, 0), (2**62 - 3, 2), (123456789, 77)):
        out = np.zeros(9)
        names = {"u8": np.uint64, "f8": np.float64, "out": out, "size": 9, "key": np.array(key)}
        with np.errstate(over="ignore"):
            for i in range(3):
                exec(statements, {**names, "i": i})
        generator = np.random.Generator(np.random.Philox(key=np.array(key, np.uint64)))
        np.testing.assert_array_equal(out, generator.random(9))
