"""Scalar functions of formulas, for NumPy, generated loops and CUDA.

A formula is a plain Python function of operators and of names such as `exp`. NumPy evaluates it on arrays (`NUMPY`),
generated loops on scalars (`LOOP`, `CUDA`). In a loop, a name is an imported function or an expression. If Numba's
version of it does not vectorise, the name is a function of this file.

A call of libm prevents vectorisation: it takes 2 to 8 ns per element. The functions here, `<name>_f4` for float32, are
plain arithmetic without branches or calls. LLVM turns their conditional expressions into selects and vectorises loops
around them, which then take 0.2 to 0.6 ns (`benchmarks/mathematics.py`). Each accepts every float32 (denormal numbers,
signed zeros, infinities, NaN) and is within 0.6 units in the last place of the exact result, `exp` within 1.01. This
was measured on every float32, and the tests sweep over them. `<name>_f8` for float64 is libm's, and so are sin and cos,
because reducing a large angle needs 2 / pi to 150 bits. Loops over many neurons in float64 use `vector_exp_f8`.

`exp` is computed in float32, which is fastest because its result is a product. The other functions are computed in
float64 and rounded once. A register then has half as many elements, but intermediate rounding errors do not matter, and
no number is denormal. Polynomials are minimax approximations (Remez exchange; for `erf`, a quotient by reweighted least
squares). The comment at each gives its relative error. Even and odd powers are summed separately, which halves the
dependency chain. Nothing relies on fused multiply-add, because LLVM does not form it without `fastmath`.

Sources: J.-M. Muller, Elementary Functions: Algorithms and Implementation (3rd edition, 2016), on additive argument
reduction and minimax approximation; S. Moshier, Cephes, expf.c, for the two parts of log 2.
"""

from __future__ import annotations

import os
from math import atan as atan_f8, erf as erf_f8  # noqa: F401 - used by generated loops
from typing import Any

import numpy as np
from numpy import exp as exp_f8, expm1 as expm1_f8, log as log_f8, log1p as log1p_f8, tanh as tanh_f8  # noqa: F401

from snncell.base.signals import import_once
from snncell.kernels.intrinsics.builtins import bitcast, inline

# Constants are NumPy scalars, because in Numba Python numbers would widen float32 to float64 and int32 to int64.
_0 = np.float32(0)
_1 = np.float32(1)
_INFINITY = np.float32(np.inf)
_NAN = np.float32(np.nan)

# Adding 1.5 * 2**52 rounds a small number to an integer, and leaves it in the lowest bits of the sum; for float32, the
# constant is 1.5 * 2**23.
_ROUND = 1.5 * 2.0**52
_ROUND_F4 = np.float32(1.5 * 2.0**23)
_ROUND_BITS = np.int64(0x4338000000000000)
_ROUND_BITS_F4 = np.int32(0x4B400000)
_MANTISSA = np.int64(52)  # bits of a float64's mantissa
_MANTISSA_F4 = np.int32(23)
_BIAS_F4 = np.int32(127)
_HALF = np.int32(1)  # a shift that halves a number
_ONE_BITS = np.int64(0x3FF0000000000000)  # float64's 1
_EXPONENT_BITS = np.int64(0x7FF0000000000000)


# --- float16 and bfloat16 ---------------------------------------------------------------------------------------------

_F2_ODD, _F2_BELOW_HALF, _F2_KEPT = np.int32(13), np.int32(0xFFF), np.int32(-0x2000)  # for the 13 bits that are dropped
_F2_SMALLEST = np.float32(2.0**-14)  # smaller float16 numbers are denormal, 2**-24 apart
_F2_LARGEST = np.float32(65504)
_F2_PLACE = np.float32(0.75)  # near this number, float32 has the same spacing of 2**-24


@inline
def float16_f4(x: Any) -> Any:
    """x rounded to float16, ties to even, as a float32."""
    x = np.float32(x)
    bits = bitcast(x, np.int32)
    odd = np.int32(np.int32(bits >> _F2_ODD) & np.int32(1))
    rounded = bitcast(np.int32(np.int32(np.int32(bits + _F2_BELOW_HALF) + odd) & _F2_KEPT), np.float32)
    size = abs(rounded)
    rounded = rounded * _INFINITY if size > _F2_LARGEST else rounded
    small = (abs(x) + _F2_PLACE) - _F2_PLACE
    rounded = rounded if abs(x) >= _F2_SMALLEST else (small if x > _0 else (-small if x < _0 else x))
    return rounded if x == x else x


_B2_ODD, _B2_BELOW_HALF, _B2_KEPT = np.int32(16), np.int32(0x7FFF), np.int32(-0x10000)


@inline
def bfloat16_f4(x: Any) -> Any:
    """x rounded to bfloat16, ties to even, as a float32."""
    x = np.float32(x)
    bits = bitcast(x, np.int32)
    odd = np.int32(np.int32(bits >> _B2_ODD) & np.int32(1))
    rounded = bitcast(np.int32(np.int32(np.int32(bits + _B2_BELOW_HALF) + odd) & _B2_KEPT), np.float32)
    return rounded if x == x else x


# --- exponentials -----------------------------------------------------------------------------------------------------

_LOG2_E = 1.4426950408889634
_LOG2_E_F4 = np.float32(_LOG2_E)
_LN2_HIGH = np.float32(0.693359375)  # 10 bits, so that n * _LN2_HIGH is exact
_LN2_LOW = np.float32(-2.1219444e-4)  # log 2 - _LN2_HIGH
_EXP_HIGH = np.float32(89)  # e**89 overflows; e**-104 is less than half of the smallest denormal number
_EXP_LOW = np.float32(-104)

# Coefficients of (e**r - 1 - r) / r**2 for |r| <= log(2) / 2; the error is 2**-28.3 relative to e**r.
_E2 = np.float32(0.49999993)
_E3 = np.float32(0.1666652)
_E4 = np.float32(0.04166839)
_E5 = np.float32(0.008368733)
_E6 = np.float32(0.001381451)


@inline
def exp_f4(x: Any) -> Any:
    """e**x = 2**n e**r with n = round(x / log 2) and r = x - n log 2, in float32."""
    x = np.float32(x)
    t = _EXP_HIGH if x > _EXP_HIGH else x
    t = _EXP_LOW if t < _EXP_LOW else t
    rounded = np.float32(t * _LOG2_E_F4 + _ROUND_F4)
    n = rounded - _ROUND_F4
    r = (t - n * _LN2_HIGH) - n * _LN2_LOW
    q = r * r
    power = _1 + (r + q * ((_E2 + r * _E3) + q * ((_E4 + r * _E5) + q * _E6)))
    # 2**n in two factors, because for n from -150 to 128 it may not be a float32 although the result is.
    whole = np.int32(bitcast(rounded, np.int32) - _ROUND_BITS_F4)
    half = np.int32(whole >> _HALF)
    first = bitcast(np.int32(np.int32(half + _BIAS_F4) << _MANTISSA_F4), np.float32)
    second = bitcast(np.int32(np.int32(np.int32(whole - half) + _BIAS_F4) << _MANTISSA_F4), np.float32)
    return power * first * second


_LN2_HIGH_F8 = 0.6931471803691238  # 32 bits, so that its product with n is exact
_LN2_LOW_F8 = 1.9082149292705877e-10
_SMALLEST_F8 = -708.0  # below, e**x is denormal, and the result is 0


@inline
def vector_exp_f8(x: Any) -> Any:
    """e**x in float64 for x up to 709, in plain arithmetic; in loops, libm's `exp_f8` takes ten times as long.

    e**x = 2**n e**r with n = round(x / log 2) and |r| <= log(2) / 2. The polynomial is the Taylor series up to r**13,
    with a next term below 2**-57. The result is within two units in the last place.
    """
    rounded = np.float64(x * _LOG2_E + _ROUND)
    n = rounded - _ROUND
    r = (x - n * _LN2_HIGH_F8) - n * _LN2_LOW_F8
    q = r * r
    even = 1 / 24 + q * (1 / 720 + q * (1 / 40320 + q * (1 / 3628800 + q * (1 / 479001600))))
    odd = 1 / 6 + q * (1 / 120 + q * (1 / 5040 + q * (1 / 362880 + q * (1 / 39916800 + q * (1 / 6227020800)))))
    power = 1.0 + (r + q * (0.5 + (q * even + r * odd)))
    scale = bitcast(np.int64(np.int64(bitcast(rounded, np.int64) << _MANTISSA) + _ONE_BITS), np.float64)
    return 0.0 if x < _SMALLEST_F8 else power * scale


# In the following functions, e**x = 2**z = 2**n 2**r with z = x / log 2, n = round(z) and r = z - n. Here 2**r is
# (a + r) / (a - r) with a = r / tanh(r log(2) / 2). Because a is even in r, few terms are enough. If the result is
# itself a quotient, for example in sigmoid, one division computes both.

# Coefficients of a for |r| <= 1/2, in powers of r**2; the relative error is 2**-29.1.
_A0 = 2.8853900868940303
_A1 = 0.11552416045768515
_A2 = -0.0009211162491424734


@inline
def sigmoid_f4(x: Any) -> Any:
    """1 / (1 + e**-x) = (a - r) / (a - r + 2**n (a + r)) for -x."""
    t = -_EXP_LOW if x > -_EXP_LOW else x
    t = _EXP_LOW if t < _EXP_LOW else t
    z = np.float64(t) * -_LOG2_E
    rounded = np.float64(z + _ROUND)
    r = z - (rounded - _ROUND)
    q = r * r
    a = _A0 + q * (_A1 + q * _A2)
    below = a - r
    n = bitcast(rounded, np.int64) << _MANTISSA  # to be added to the exponent
    above = bitcast(np.float64(a + r), np.int64) + n
    return np.float32(below / (below + bitcast(np.int64(above), np.float64)))


@inline
def sigmoid_f8(x: Any) -> Any:
    """1 / (1 + e**-x). For x < 0 it is e**x / (1 + e**x), because e**-x would overflow before the result is 0."""
    e = exp_f8(-abs(x))
    return (e if x < 0.0 else 1.0) / (1.0 + e)


@inline
def _parts(t: Any, scale: Any) -> Any:
    """Three numbers p, c, d with e**y - 1 = p / c and tanh(y / 2) = p / d, for y = t scale log 2.

    They are p = (s - 1) a + (s + 1) r, c = a - r and d = (s + 1) a + (s - 1) r with s = 2**n. Near 0, where s is 1, p
    is 2 r to the last place.
    """
    z = np.float64(t) * scale
    rounded = np.float64(z + _ROUND)
    r = z - (rounded - _ROUND)
    q = r * r
    a = _A0 + q * (_A1 + q * _A2)
    s = bitcast(np.int64((bitcast(rounded, np.int64) << _MANTISSA) + _ONE_BITS), np.float64)
    return (s - 1.0) * a + (s + 1.0) * r, a - r, (s + 1.0) * a + (s - 1.0) * r


@inline
def expm1_f4(x: Any) -> Any:
    """e**x - 1."""
    t = _EXP_HIGH if x > _EXP_HIGH else x
    t = _EXP_LOW if t < _EXP_LOW else t
    upper, lower, _ = _parts(t, _LOG2_E)
    return x if x == _0 else np.float32(upper / lower)  # keeps -0


_TANH_HIGH = np.float32(10)  # tanh is 1 in float32 from 9.02 on


@inline
def tanh_f4(x: Any) -> Any:
    """(e**2x - 1) / (e**2x + 1)."""
    t = _TANH_HIGH if x > _TANH_HIGH else x
    t = -_TANH_HIGH if t < -_TANH_HIGH else t
    upper, _, lower = _parts(t, 2.0 * _LOG2_E)
    return x if x == _0 else np.float32(upper / lower)  # keeps -0


# --- logarithms -------------------------------------------------------------------------------------------------------

_LN2 = 0.6931471805599453
_TO_NEXT = np.int64(0x3FF0000000000000 - 0x3FE6A09E667F3BCD)  # from sqrt(1/2) to 1, in bits
_ROUND_BIASED = _ROUND + 1023.0

# Coefficients of log(1 + f) / f from sqrt(1/2) - 1 to sqrt(2) - 1; the relative error is 2**-27.9.
_L0 = 0.9999999999592609
_L1 = -0.49999988291314573
_L2 = 0.33333325986760254
_L3 = -0.25001586442207113
_L4 = 0.20001968831131137
_L5 = -0.16609015055227955
_L6 = 0.1418183005335055
_L7 = -0.13243441307487472
_L8 = 0.1290468671804169
_L9 = -0.07621193254607804


@inline
def _log(u: Any) -> Any:
    """log(u) of a positive normal float64: n log 2 + log(1 + f) with u = 2**n (1 + f), f from sqrt(1/2) - 1."""
    bits = bitcast(np.float64(u), np.int64)
    exponent = np.int64(np.int64(bits + _TO_NEXT) & _EXPONENT_BITS)  # of n, biased, in its place
    n = bitcast(np.int64((exponent >> _MANTISSA) + _ROUND_BITS), np.float64) - _ROUND_BIASED
    f = bitcast(np.int64(np.int64(bits - exponent) + _ONE_BITS), np.float64) - 1.0
    q = f * f
    even = _L0 + q * (_L2 + q * (_L4 + q * (_L6 + q * _L8)))
    odd = _L1 + q * (_L3 + q * (_L5 + q * (_L7 + q * _L9)))
    return n * _LN2 + f * (even + f * odd)


@inline
def log_f4(x: Any) -> Any:
    """The natural logarithm; -inf at 0, NaN for negative numbers."""
    edge = -_INFINITY if x == _0 else (_NAN if x < _0 else x)  # keeps inf and NaN
    return np.float32(_log(np.float64(x))) if (x > _0) & (x < _INFINITY) else edge


# For smaller x, log(1 + x) = x - x**2 / 2 differs from x by 1/8 unit in the last place.
_LOG1P_SMALL = np.float32(2.0**-26)


@inline
def log1p_f4(x: Any) -> Any:
    """log(1 + x); -inf at -1, NaN below. In float64, 1 + x is accurate enough for every x that is not small."""
    edge = -_INFINITY if x == -_1 else (_NAN if x < -_1 else x)  # keeps inf, NaN and small numbers
    inside = (abs(x) >= _LOG1P_SMALL) & (x > -_1) & (x < _INFINITY)
    return np.float32(_log(1.0 + np.float64(x))) if inside else edge


# --- error function, arc tangent --------------------------------------------------------------------------------------

_ERF_HIGH = np.float32(3.92)  # erf is 1 in float32 from here on

# Coefficients of erf(x) / x = N(u) / D(u) with u = x**2 up to 15.4; the relative error is 2**-28.7.
_N0 = 1.1283791695195373
_N1 = 0.1924561612127175
_N2 = 0.05557614001166921
_N3 = 0.004193642365371679
_N4 = 0.0004054656020177027
_N5 = 6.57807975080692e-06
_D1 = 0.5038932513039669
_D2 = 0.11721692552350813
_D3 = 0.016210476224989244
_D4 = 0.0014069956598418546
_D5 = 7.103499434564728e-05
_D6 = 2.4841794235286603e-07


@inline
def erf_f4(x: Any) -> Any:
    """2 / sqrt(pi) times the integral of e**-t**2 from 0 to x."""
    c = _ERF_HIGH if x > _ERF_HIGH else x
    c = -_ERF_HIGH if c < -_ERF_HIGH else c
    t = np.float64(c)
    u = t * t
    q = u * u
    upper = (_N0 + q * (_N2 + q * _N4)) + u * (_N1 + q * (_N3 + q * _N5))
    lower = (1.0 + q * (_D2 + q * (_D4 + q * _D6))) + u * (_D1 + q * (_D3 + q * _D5))
    return np.float32(t * upper / lower)


_HALF_PI = 1.5707963267948966

# Coefficients of atan(w) / w in u = w**2 up to 1; the relative error is 2**-28.7.
_T0 = 0.9999999976311054
_T1 = -0.3333328364887596
_T2 = 0.19998266205758736
_T3 = -0.1426193454084047
_T4 = 0.10942037056051249
_T5 = -0.08377331698379185
_T6 = 0.057552347814664104
_T7 = -0.030804815900501725
_T8 = 0.010727049834174055
_T9 = -0.0017539515796626698


@inline
def atan_f4(x: Any) -> Any:
    """The arc tangent; for |x| > 1 it is pi / 2 - atan(1 / x) with the sign of x."""
    t = np.float64(x)
    beyond = abs(t) > 1.0
    w = 1.0 / t if beyond else t
    u = w * w
    q = u * u
    even = _T0 + q * (_T2 + q * (_T4 + q * (_T6 + q * _T8)))
    odd = _T1 + q * (_T3 + q * (_T5 + q * (_T7 + q * _T9)))
    p = w * (even + u * odd)
    quarter = _HALF_PI if t > 0.0 else -_HALF_PI
    return np.float32(quarter - p if beyond else p)


def _erf(x: Any) -> Any:
    result = import_once("scipy.special").erf(x)  # imported on first use, because this takes a tenth of a second
    return result if result.dtype == x.dtype else result.astype(x.dtype)  # SciPy returns another dtype for float16


def _sigmoid(x: Any) -> Any:
    # If exp(-x) overflows (x < -88 in float32), this is 0 although the exact result is a denormal number. The accurate
    # form takes twice as long on arrays; loops use `sigmoid_f4`.
    return 1 / (1 + np.exp(-x))


# The names of formulas on NumPy arrays: mostly NumPy's functions of the same name.
NUMPY: dict[str, Any] = {
    **{name: getattr(np, name) for name in ("exp", "expm1", "log", "log1p", "sqrt", "sin", "cos", "tanh")},
    **{name: getattr(np, name) for name in ("floor", "ceil", "round", "sign", "minimum", "maximum")},
    **{name: getattr(np, name) for name in ("where", "logical_not")},
    "abs": abs,  # keeps a Python number; np.abs would return a float64, which would widen float32 arrays
    "atan": np.arctan,
    "conj": np.conjugate,
    "erf": _erf,
    "sigmoid": _sigmoid,
}

# Calls that take several times as long as an addition.
SLOW = frozenset(("exp", "expm1", "log", "log1p", "sin", "cos", "tanh", "atan", "erf", "sigmoid"))

# The same names in a loop, on scalars: {0}, {1}, ... are the arguments, and {cast} casts a number to their dtype.
LOOP: dict[str, str] = {
    **{name: f"mathematics.{name}_{{cast}}({{0}})" for name in sorted(SLOW - {"sin", "cos"})},
    **{name: name + "({0})" for name in ("sqrt", "sin", "cos", "floor", "ceil")},
    "round": "rint({0})",
    "abs": "abs({0})",
    "where": "({1} if {0} else {2})",
    "minimum": "({0} if ({0} <= {1}) | ({0} != {0}) else {1})",  # propagates a NaN of either operand
    "maximum": "({0} if ({0} >= {1}) | ({0} != {0}) else {1})",
    "sign": "({cast}(1) if {0} > {cast}(0) else (-{cast}(1) if {0} < {cast}(0) else {0} + {cast}(0)))",  # keeps NaN
    "logical_not": "(not {0})",
    **{name: f"mathematics.{name}_f4({{0}})" for name in ("float16", "bfloat16")},  # round to this dtype
}

# The same on CUDA, where the device's own functions are fast enough. Their results are cast because the simulator uses
# NumPy's functions, which compute in double precision for Python numbers.
CUDA: dict[str, str] = {
    **LOOP,
    **{name: f"{{cast}}({name}({{0}}))" for name in ("exp", "expm1", "log", "log1p", "sqrt", "sin", "cos", "tanh")},
    **{name: f"{{cast}}({name}({{0}}))" for name in ("atan", "erf")},
    "sigmoid": "({cast}(1) / ({cast}(1) + {cast}(exp(-{0}))))",
    **{name: f"{name}_{{cast}}({{0}})" for name in ("floor", "ceil", "rint")},
    "round": "rint_{cast}({0})",
    "conj": "({0}).conjugate()",
}
# How a CUDA kernel loads an element from memory (`dtype.in_memory`) and stores a variable. bfloat16 is rounded to
# nearest, ties to even, and NaN stays NaN.
LOAD = {
    "bool": "{0} != 0",
    "float16": "np.float32({0})",
    "bfloat16": "int_as_float(np.int32({0}) << np.int32(16))",
}
STORE = {
    "bool": "np.uint8({0})",
    "float16": "np.float16({0})",
    "bfloat16": (
        "np.uint16((float_as_int({0}) + 32767 + (float_as_int({0}) >> 16 & 1)) >> 16 if {0} == {0} else 32704)"
    ),
}
CUDA |= {name: LOAD[name].format(STORE[name]) for name in ("float16", "bfloat16")}  # round to this dtype
CUDA_IMPORTS = """\
from math import atan, cos, erf, exp, expm1, log, log1p, sin, sqrt, tanh

import numpy as np
from numba import cuda
from numba.cuda.libdevice import (
    ceil as ceil_f8, ceilf as ceil_f4, float_as_int, floor as floor_f8, floorf as floor_f4, int_as_float,
    rint as rint_f8, rintf as rint_f4,
)
"""
# The simulator uses NumPy's functions, because those of `math` raise where the device returns infinities.
SIMULATOR_IMPORTS = """\
import numpy as np
from numba import cuda
from numpy import arctan as atan, cos, exp, expm1, log, log1p, sin, sqrt, tanh
from numpy import ceil as ceil_f4, floor as floor_f4, rint as rint_f4
from numpy import ceil as ceil_f8, floor as floor_f8, rint as rint_f8
from scipy.special import erf


def int_as_float(bits):
    return np.int32(bits).view(np.float32)


def float_as_int(number):
    return np.float32(number).view(np.int32)
"""

# The imports at the head of every generated file, for the names above.
LOOP_IMPORTS = """\
import numpy as np
from numpy import ceil, cos, floor, rint, sin, sqrt

from snncell.kernels import scalar as mathematics
from snncell.kernels.intrinsics.broadcast import fill_broadcast, sum_broadcast
from snncell.kernels.intrinsics.builtins import heap, heap_rows, independent, least
from snncell.kernels.intrinsics.elements import copy, fill, lanes, prefetch, row, strip, tail
"""


# Additional imports for a file with products of rows.
ROW_IMPORTS = "from snncell.kernels.intrinsics import rows\n"


def is_simulated() -> bool:
    """True if Numba's simulator runs CUDA kernels on the CPU."""
    return os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"
