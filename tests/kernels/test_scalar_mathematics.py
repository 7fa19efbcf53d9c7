"""Fast scalar functions: their error over all of float32, and their special values."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import special

import snncell as ms
from snncell import Tensor, dtype as dtypes, ops
from snncell.kernels import scalar as mathematics
from snncell.kernels.numba import policy
from snncell.kernels.numba.build import build
from snncell.kernels.numba.code import function_of, library_digest, of_slots, share
from snncell.kernels.scalar import LOOP

COMPILED = os.environ.get("NUMBA_DISABLE_JIT") != "1"
STEP = 1999 if COMPILED else 4_000_037  # from one float32 to the next, in bit patterns
AROUND = 500 if COMPILED else 3

# The exact function in float64, and the largest error in units in the last place, measured on every float32.
FUNCTIONS: dict[str, tuple[Any, float]] = {
    "exp": (np.exp, 1.01),
    "expm1": (np.expm1, 0.54),
    "log": (np.log, 0.57),
    "log1p": (np.log1p, 0.57),
    "tanh": (np.tanh, 0.54),
    "sigmoid": (special.expit, 0.51),
    "erf": (special.erf, 0.54),
    "atan": (np.arctan, 0.54),
}

# Places where a formula or the result changes: limits of arguments, powers of two, the ends of a reduced range.
CRITICAL = [
    *(0.0, 2.0**-149, 2.0**-126, 2.0**-26, 2.0**-24, 2.0**-12, 0.5, 1.0, 2.0, 3.92, 9.01, 10.0, 104.0, 3.4028235e38),
    *(math.sqrt(0.5), math.sqrt(2.0), *(n * math.log(2) / 2 for n in (1, 3, 5, 251, 255, 299))),
    *(87.336544, 88.722839, 89.0, 103.97208, 103.27893, math.inf),
]


SOURCE = """
import numpy as np

from snncell.kernels import scalar as mathematics


def applied(start, stop, x, out):
    for i in range(len(x)):
        out[i] = mathematics.{}(x[i])
"""


def applied(name: str, x: Any) -> Any:
    """Apply a scalar function to an array, in a loop like those of generated files."""

    kind, out = dtypes.BY_NUMPY[x.dtype], np.empty_like(x)
    with np.errstate(all="ignore"):  # without the compiler, scalars warn
        build("applied", SOURCE.format(name), ((kind, 1, False), (kind, 1, True)))(1, 0, x, out)
    return out


def float32_samples() -> Any:
    """Float32 values over the whole range, and all values around critical points."""
    patterns = [np.arange(0, 2**32, STEP, np.uint64).astype(np.uint32)]
    for point in CRITICAL:
        for bits in np.array([point, -point], np.float32).view(np.uint32):
            patterns.append((int(bits) + np.arange(-AROUND, AROUND + 1)).astype(np.uint32))  # wraps around at 0
    return np.concatenate(patterns).view(np.float32)


def errors(found: Any, exact: Any) -> Any:
    """Return the distances of float32 values from finite exact results, in units in the last place."""
    exponent = np.frexp(exact)[1] - 1
    return np.abs(found - exact) / np.ldexp(1.0, np.maximum(exponent, -126) - 23)


@pytest.fixture(scope="module")
def numbers() -> Any:
    return float32_samples()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_within_two_ulps_over_all_of_float32(name: str, numbers: Any) -> None:
    function, largest = FUNCTIONS[name]
    found = applied(f"{name}_f4", numbers)
    assert found.dtype == np.float32
    with np.errstate(all="ignore"):
        exact = function(numbers.astype(np.float64))
        rounded = exact.astype(np.float32)
    given = ~np.isfinite(rounded) | (exact == 0.0)  # these have no unit in the last place
    np.testing.assert_array_equal(found[given], rounded[given])
    zeros = exact == 0.0
    np.testing.assert_array_equal(np.signbit(found[zeros]), np.signbit(rounded[zeros]))
    assert errors(found[~given].astype(np.float64), exact[~given]).max() <= largest <= 2


NONE = math.nan
SPECIAL: dict[str, list[float]] = {
    #          0     -0    inf       -inf          NaN   1e30         -1e30         1e-45   -1e-45
    "exp": [1.0, 1.0, math.inf, 0.0, NONE, math.inf, 0.0, 1.0, 1.0],
    "expm1": [0.0, -0.0, math.inf, -1.0, NONE, math.inf, -1.0, 1e-45, -1e-45],
    "log": [-math.inf, -math.inf, math.inf, NONE, NONE, 69.07755, NONE, -103.27893, NONE],
    "log1p": [0.0, -0.0, math.inf, NONE, NONE, 69.07755, NONE, 1e-45, -1e-45],
    "tanh": [0.0, -0.0, 1.0, -1.0, NONE, 1.0, -1.0, 1e-45, -1e-45],
    "sigmoid": [0.5, 0.5, 1.0, 0.0, NONE, 1.0, 0.0, 0.5, 0.5],
    "erf": [0.0, -0.0, 1.0, -1.0, NONE, 1.0, -1.0, 1e-45, -1e-45],
    "atan": [0.0, -0.0, math.pi / 2, -math.pi / 2, NONE, math.pi / 2, -math.pi / 2, 1e-45, -1e-45],
}


@pytest.mark.parametrize("name", SPECIAL)
def test_special_arguments_give_exact_results(name: str) -> None:
    x = np.array([0.0, -0.0, math.inf, -math.inf, math.nan, 1e30, -1e30, 1e-45, -1e-45], np.float32)
    found, expected = applied(f"{name}_f4", x), np.array(SPECIAL[name], np.float32)
    np.testing.assert_array_equal(found, expected)
    known = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found[known]), np.signbit(expected[known]))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiled_and_python_functions_give_equal_bits(name: str, numbers: Any) -> None:
    """Equal bits show that nothing is contracted to a fused multiply-add or reordered."""
    x = numbers[:: numbers.size // 300]
    plain = getattr(mathematics, f"{name}_f4")
    with np.errstate(all="ignore"):
        expected = np.array([plain(value) for value in x], np.float32)
    np.testing.assert_array_equal(applied(f"{name}_f4", np.ascontiguousarray(x)), expected)


@pytest.mark.compiled
@pytest.mark.parametrize("name", FUNCTIONS)
def test_loops_of_scalar_functions_are_vectorised(name: str, tmp_path: Path) -> None:
    kind = dtypes.float32
    source = of_slots("applied", SOURCE.format(f"{name}_f4"), ((kind, 1, False), (kind, 1, True)))
    _, linked = policy.compile_kernel(function_of(tmp_path / "applied.py", source, "applied"), share=share)
    text = linked.owner.get_llvm_str()
    assert re.search(r"fmul <\d+ x (float|double)>", text)


@pytest.mark.compiled
@pytest.mark.parametrize("arrays", [2, 24])
@pytest.mark.parametrize("count", ["independent", "range"])
def test_loop_with_many_arrays_is_vectorised(arrays: int, count: str, tmp_path: Path) -> None:
    """Without `independent`, LLVM gives up if it must compare many arrays. A long body also has an extended jump."""
    pairs = [f"x{n}, y{n}" for n in range(arrays)]
    lines = ["from snncell.kernels.intrinsics.builtins import independent", "", ""]
    lines += [f"def many(start, stop, {', '.join(pairs)}):", "    n = len(x0)", f"    for i in {count}(n):"]
    lines += [f"        y{n}[i] = y{n}[i] * x{(n + 1) % arrays}[i] * x{n}[i]" for n in range(arrays)]
    source = of_slots("many", "\n".join(lines) + "\n", ((dtypes.float32, 1, False), (dtypes.float32, 1, True)) * arrays)
    _, linked = policy.compile_kernel(function_of(tmp_path / "many.py", source, "many"), share=share)
    text = linked.owner.get_llvm_str()
    assert bool(re.search(r"fmul <\d+ x float>", text)) == (count == "independent" or arrays == 2)


# --- in operations ----------------------------------------------------------------------------------------------------


def all_of_them(x: Tensor) -> list[Tensor]:
    return [getattr(ops, name)(x) for name in [*FUNCTIONS, "softplus"]]


@pytest.mark.compiled
def test_compiled_float32_operations_agree_with_eager_mode() -> None:
    drawn = np.random.default_rng(0)
    x = np.concatenate(
        [drawn.uniform(1e-3, 8, 3000), drawn.uniform(-0.99, 1, 3000), 10.0 ** drawn.uniform(-30, 1, 3000)]
    )
    given = Tensor(x.astype(np.float32))
    for name, a, b in zip([*FUNCTIONS, "softplus"], all_of_them(given), ms.jit(all_of_them)(given), strict=True):
        a, b = a.asnumpy(), b.asnumpy()
        np.testing.assert_array_equal(np.isnan(a), np.isnan(b), err_msg=name)
        known = ~np.isnan(a)
        assert (np.abs(a - b) / np.spacing(np.abs(a)))[known].max() <= 3, name  # our error of 2 and NumPy's of 1


@pytest.mark.compiled
def test_float64_functions_use_libm() -> None:
    x = np.concatenate([np.linspace(0.01, 20, 2000), -np.linspace(0.01, 0.99, 500), [-750.0, 750.0, 1e-300]])
    for name, a, b in zip(
        [*FUNCTIONS, "softplus"], all_of_them(Tensor(x)), ms.jit(all_of_them)(Tensor(x)), strict=True
    ):
        assert b.asnumpy().dtype == np.float64
        np.testing.assert_allclose(b.asnumpy(), a.asnumpy(), rtol=1e-15, err_msg=name)


def test_sigmoid_in_float64_is_accurate() -> None:
    x = np.concatenate([np.linspace(-40, 40, 99), [-700.0, -1000.0, 1000.0, -np.inf, np.inf, np.nan]])
    np.testing.assert_allclose(applied("sigmoid_f8", x), special.expit(x), rtol=1e-15)


def test_names_used_in_loops_exist_in_both_precisions() -> None:
    for text in LOOP.values():
        for name in re.findall(r"mathematics\.(\w+)_\{cast\}", text):
            assert {f"{name}_f4", f"{name}_f8"} <= vars(mathematics).keys()


def test_digest_covers_every_file_that_affects_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """One additional byte in any of these files changes the digest."""
    assert mathematics.__file__ is not None
    kernels = Path(mathematics.__file__).parent
    names = (
        *(f"numba/{name}.py" for name in ("lowering", "passes", "syntax")),
        "loops.py",
        "scalar.py",
        "conv/transforms.py",
        "conv/taps.py",
    )
    files = [kernels / name for name in names]
    files += kernels.glob("intrinsics/*.py")
    assert {"rows.py", "panels.py", "elements.py"} <= {file.name for file in files}
    read, digests = Path.read_bytes, {library_digest()}
    for changed in files:
        monkeypatch.setattr(Path, "read_bytes", lambda file, one=changed: read(file) + b"#" * (file == one))
        digests.add(library_digest.__wrapped__())
    assert len(digests) == 1 + len(files)


@pytest.mark.parametrize("kind", [ms.float16, ms.bfloat16], ids=str)
def test_storage_formats_are_rounded_bit_for_bit_as_by_numpy(kind: Any, numbers: Any) -> None:
    halves = np.arange(65536, dtype=np.uint16).view(kind.dtype).astype(np.float32)
    with np.errstate(all="ignore"):
        unit = np.float32(2.0**-11 if kind == "float16" else 2.0**-8)
        middles = halves + unit * np.abs(halves)  # halfway to the next value, or next to the halfway point
        beside = np.nextafter(middles, np.float32(np.inf))
        tiny = np.arange(-4000, 4000, dtype=np.float32) * np.float32(2.0**-26)
        x = np.concatenate([halves, middles, beside, tiny, numbers])
        expected = x.astype(kind.dtype).astype(np.float32)
    found = applied(f"{kind.name}_f4", x)
    np.testing.assert_array_equal(found, expected)
    number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found[number]), np.signbit(expected[number]))
