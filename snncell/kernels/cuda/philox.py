"""Random numbers on a GPU: Philox 4x64 with ten rounds, the same numbers as on the CPU.

Each thread computes one block of four 64-bit words, as in NumPy's generator; the counter of the first block is 1. On
the CPU, `ops/random.py` makes numbers from the words in the same way.

Reference: J. K. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.kernels.cuda.arrays import DeviceArray, contiguous, empty
from snncell.kernels.cuda.build import run
from snncell.kernels.cuda.indexing import argsort_keys

_ROUNDS = 10
_MULTIPLIERS = 0xD2E7470EE14C6C93, 0xCA5A826395121157
_KEY_STEPS = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B


def _high(target: str, x: str) -> list[str]:
    """Statements for the upper 64 bits of `x` times `y`, two words with 32-bit halves `xh`, `xl`, `yh` and `yl`."""
    return [
        f"m = {x}l * yh + (({x}l * yl) >> s32)",
        f"{target} = {x}h * yh + (m >> s32) + (({x}h * yl + (m & low)) >> s32)",
    ]


def _halves(name: str, word: str) -> list[str]:
    return [f"{name}h = {word} >> s32", f"{name}l = {word} & low"]


def _words() -> str:
    """Statements for the words w0, ..., w3 of block `i`."""
    lines = ["s32 = u8(32)", f"low = u8({0xFFFFFFFF})", "k0 = u8(key[0])", "k1 = u8(key[1])"]
    for n, number in enumerate(_MULTIPLIERS):
        lines += [f"x{n} = u8({number})", *_halves(f"x{n}", f"x{n}")]
    lines += ["w0 = u8(i + 1)", "w1 = u8(0)", "w2 = u8(0)", "w3 = u8(0)", f"for turn in range({_ROUNDS}):"]
    inner = [*_halves("y", "w0"), *_high("high0", "x0"), *_halves("y", "w2"), *_high("high1", "x1")]
    inner += ["w0, w1, w2, w3 = high1 ^ w1 ^ k0, x1 * w2, high0 ^ w3 ^ k1, x0 * w0"]
    inner += [f"k{n} = k{n} + u8({step})" for n, step in enumerate(_KEY_STEPS)]
    return "\n".join([*lines, *(f"    {line}" for line in inner)]) + "\n"


def _fill_statements(numbers: Sequence[str], before: str = "") -> str:
    """Statements that store the numbers of one block, as far as they are within `size`."""
    lines = []
    for n, number in enumerate(numbers):
        place = f"i * {len(numbers)} + {n}"
        lines += [f"if {place} < size:", f"    out[{place}] = {number}"]
    return _words() + before + "\n".join(lines) + "\n"


_WORDS = ("w0", "w1", "w2", "w3")
_UNIT = f"f8({{}} >> u8(11)) * f8({2.0**-53})"  # a word as a number in [0, 1)
_UNIFORM = {
    "f4": [f"f4(({word} >> u8({shift})) & u8({0xFFFFFF})) * f4({2.0**-24})" for word in _WORDS for shift in (8, 40)],
    "f8": [_UNIT.format(word) for word in _WORDS],
}
# Box-Muller with log(1 - u), because u may be 0 but is never 1.
_NORMAL = "".join(
    f"r{n} = sqrt(f8(-2) * log(f8(1) - {_UNIT.format(first)}))\nt{n} = f8({2 * math.pi}) * ({_UNIT.format(second)})\n"
    for n, (first, second) in enumerate((_WORDS[:2], _WORDS[2:]))
)
_POLAR = ("r0 * cos(t0)", "r0 * sin(t0)", "r1 * cos(t1)", "r1 * sin(t1)")
_SPAN = "xh = u8(span_high)\nxl = u8(span_low)\n" + "".join(
    "\n".join([*_halves("y", word), *_high(f"h{n}", "x")]) + "\n" for n, word in enumerate(_WORDS)
)


def next_key(key: DeviceArray) -> DeviceArray:
    """The key of the next draw."""
    out = empty(key.shape, key.dtype)
    run("next_key", "out[i] = key[i] + i", key.size, {}, {"key": contiguous(key)}, {"out": out})
    return out


def uniform(key: DeviceArray, shape: Sequence[int], dtype: Any) -> DeviceArray:
    """Uniform numbers in [0, 1): 24 bits of half a word for float32, 53 bits of a word for float64."""
    code = dtypes.BY_NUMPY[dtype].code
    return _draw_on_device("uniform", key, shape, dtype, _fill_statements(_UNIFORM[code]), 32 // dtype.itemsize)


def normal(key: DeviceArray, shape: Sequence[int], dtype: Any) -> DeviceArray:
    """Normally distributed numbers, two from each two words, computed in float64."""
    code = dtypes.BY_NUMPY[dtype].code
    return _draw_on_device("normal", key, shape, dtype, _fill_statements([f"{code}({z})" for z in _POLAR], _NORMAL), 4)


def integers(key: DeviceArray, shape: Sequence[int], low: int, high: int) -> DeviceArray:
    """Integers in [low, high): the upper half of the product of a word and the size of the range."""
    body = _fill_statements([f"first + i8(h{n})" for n in range(4)], _SPAN)
    span = high - low
    numbers = {"first": low, "span_high": span >> 32, "span_low": span & 0xFFFFFFFF}
    return _draw_on_device("integers", key, shape, np.dtype(np.int64), body, 4, **numbers)


def permutation(key: DeviceArray, n: int) -> DeviceArray:
    """A random permutation: the order of `n` words without their last bit."""
    words = _fill_statements([f"i8({word} >> u8(1))" for word in _WORDS])
    return argsort_keys(_draw_on_device("words", key, (n,), np.dtype(np.int64), words, 4))


def _draw_on_device(
    name: str, key: DeviceArray, shape: Sequence[int], dtype: Any, body: str, per: int, **numbers: int
) -> DeviceArray:
    out = empty(shape, dtype)
    run(name, body, -(-out.size // per), {"size": out.size, **numbers}, {"key": contiguous(key)}, {"out": out})
    return out


def drop_elements(x: DeviceArray, key: DeviceArray, keep: float) -> DeviceArray:
    """Dropout: `x / keep` if the element's random number is below `keep`, else 0. The numbers are not stored."""
    out = empty(x.shape, x.dtype)
    chosen = "x[{{place}}] / keep if {number} < f4(limit) else {code}(0)"
    numbers = [chosen.format(code=dtypes.BY_NUMPY[x.dtype].code, number=number) for number in _UNIFORM["f4"]]
    per = len(numbers)
    body = _fill_statements([number.format(place=f"i * {per} + {n}") for n, number in enumerate(numbers)])
    scalars = {"size": out.size, "keep": x.dtype.type(keep), "limit": np.float32(keep)}
    arrays = {"x": contiguous(x), "key": contiguous(key)}
    run("dropout", body, -(-out.size // per), scalars, arrays, {"out": out})
    return out
