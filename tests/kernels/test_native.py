"""Native kernel calls: arguments of every kind arrive unchanged, and every unit runs once."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from snncell import dtype as dtypes
from snncell.kernels import loops
from snncell.kernels.numba import policy
from snncell.kernels.numba.build import PARTS, build, grain_of
from snncell.kernels.numba.native import Code, link

HEAD = "import numpy as np\n\n\n"
NUMBERS: dict[str, list[Any]] = {
    "bool": [True, False],
    "int8": [-128, 127],
    "int16": [-(2**15), 2**15 - 1],
    "int32": [-(2**31), 2**31 - 1],
    "int64": [-(2**63), 2**63 - 1, 2**53 + 1],
    "uint8": [0, 255],
    "float32": [0.1, -0.0, float("inf"), float("-inf"), float("nan"), 1e-45],
    "float64": [0.1, -0.0, float("inf"), float("nan"), 5e-324],
    "complex64": [0.1 - 2.5j, complex("nan+1j"), complex(-0.0, float("inf"))],
    "complex128": [0.1 - 2.5j, complex("1+nanj")],
}


def build_kernel(name: str, arguments: dict[str, Any], lines: list[str]) -> Any:
    """A kernel with named arguments, and their kinds."""
    return build(name, HEAD + loops.function(name, list(arguments), lines), tuple(arguments.values()))


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_every_dtype_arrive_unchanged(name: str) -> None:
    dtype = dtypes.BY_NUMPY[np.dtype(name)]
    # An array and another number come before it, and a number after it, because a complex number takes two places.
    kinds = {
        "out": (dtype, 1, True),
        "first": dtypes.int64,
        "number": dtype,
        "last": dtypes.int64,
        "sums": (dtypes.int64, 1, True),
    }
    lines = ["out[0] = number", "sums[0] = first", "sums[1] = last"]
    kernel = build_kernel("put", kinds, lines)
    for number in NUMBERS[name]:
        given = dtype.dtype.type(number)
        out, sums = np.empty(1, dtype.dtype), np.empty(2, np.int64)
        kernel(1, 0, out, -5, given.item(), 7, sums)
        np.testing.assert_array_equal(out.view(np.uint8), np.array([given]).view(np.uint8))
        assert sums.tolist() == [-5, 7]


@pytest.mark.sampled(21)
@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 3, 4), (2, 1, 3, 2), (0,), (0, 3), (3, 0)], ids=str)
@pytest.mark.parametrize("name", ["bool", "int8", "int64", "float32", "float64", "complex64", "complex128"])
def test_arrays_of_every_dtype_and_layout_are_read_in_place(name: str, shape: tuple[int, ...]) -> None:
    dtype = dtypes.BY_NUMPY[np.dtype(name)]
    lines = [f"lengths[{axis}] = x.shape[{axis}]" for axis in range(len(shape))]
    index = ", ".join(f"p{axis}" for axis in range(len(shape)))
    body = [f"out[{index}] = x[{index}]"]
    for axis in reversed(range(len(shape))):
        body = [f"for p{axis} in range(x.shape[{axis}]):", *loops.indent(body)]
    kinds = {"x": (dtype, len(shape), False), "out": (dtype, len(shape), True), "lengths": (dtypes.int64, 1, True)}
    kernel = build_kernel(f"copy{len(shape)}", kinds, [*lines, *body])
    x = np.random.default_rng(0).integers(0, 2, shape).astype(dtype.dtype)
    out, lengths = np.zeros_like(x), np.zeros(len(shape), np.int64)
    x.flags.writeable = False
    kernel(1, 0, x, out, lengths)
    np.testing.assert_array_equal(out, x)
    assert tuple(lengths) == shape


@pytest.mark.compiled
@pytest.mark.parametrize("grain", [0, 1, 2, 7, 64, 1000])
@pytest.mark.parametrize("units", [0, 1, 2, 63, 64, 65, 999])
def test_every_unit_runs_once(units: int, grain: int) -> None:
    kinds = {"counts": (dtypes.int64, 1, True)}
    kernel = build_kernel("count", kinds, loops.units("place", ["counts[place] += place + 1"]))
    counts = np.zeros(1000, np.int64)
    kernel(units, grain, counts)
    np.testing.assert_array_equal(counts, np.where(np.arange(1000) < units, np.arange(1, 1001), 0))


@pytest.mark.parametrize("units", [1, PARTS - 1, PARTS, PARTS + 1, 10 * PARTS + 3])
def test_grain_limits_the_number_of_parts(units: int) -> None:
    parts = -(-units // grain_of(units))
    assert parts <= PARTS and parts >= min(units, PARTS // 2)


def test_code_survives_packing_to_bytes() -> None:
    code = Code("a symbol", ("one", "two"), b"\x00\xff\n{}")
    assert Code.unpack(code.pack()) == code
    assert Code.unpack(Code("", (), b"").pack()) == Code("", (), b"")


@pytest.mark.compiled
def test_code_with_an_unknown_symbol_is_not_linked() -> None:
    asked = []
    assert link(Code("kernel", ("snncell_is_not_here",), b""), lambda: asked.append(1)) is None
    assert asked == [1]  # because LLVM would end the process


def test_garbage_collector_pauses_while_compiling_and_keeps_its_settings() -> None:
    enabled, thresholds = gc.isenabled(), gc.get_threshold()
    try:
        gc.enable()
        with policy._without_collection():
            assert gc.isenabled() and gc.get_threshold()[0] == 0  # 0 means never
            gc.disable()  # as another thread might
        assert not gc.isenabled() and gc.get_threshold() == thresholds
        with policy._without_collection():
            gc.set_threshold(123, 4, 5)
        assert gc.get_threshold()[:2] == (123, 4)
    finally:
        gc.set_threshold(*thresholds)
        (gc.enable if enabled else gc.disable)()
