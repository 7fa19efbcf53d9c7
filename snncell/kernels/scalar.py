"""Scalar functions of formulas, in each namespace that they are evaluated in.

A formula is a plain Python function of operators and of names such as `exp`. NumPy evaluates it on arrays (`NUMPY`),
generated loops on scalars (`LOOP`, `CUDA`): there a name is imported, spelled out as an expression where Numba has no
scalar version of NumPy's, or a function of this file where that does not vectorise.

A call of libm keeps a loop from being vectorised: one element at a time, 2 to 8 ns each. The functions here,
`<name>_f4` for float32, are plain arithmetic without branches or calls: LLVM makes selects of their conditional
expressions, and a loop around them runs on whole vector registers, in 0.2 to 0.6 ns (`benchmarks/mathematics.py`). Each
takes every float32 - denormal numbers, zeros with a sign, infinities, NaN - and is within 0.6 units in the last place
of the exact result, `exp` within 1.01: measured on every float32, and swept by the tests. `<name>_f8` for float64 is
libm's, and so are sin and cos, because reducing a large angle takes 2 / pi to 150 bits.

`exp` is computed in float32, which is fastest where the result is a product. The others are computed in float64 and
rounded once: there are half as many elements in a register, but what is rounded off on the way does not count, and no
number is denormal. Polynomials are minimax approximations of the relative error (Remez exchange; for `erf`, a quotient
by reweighted least squares), which stands at each. Even and odd powers are summed apart, so that half as many
operations wait for each other. Nothing relies on fused multiply-add: without `fastmath`, LLVM contracts nothing.

Sources: J.-M. Muller, Elementary Functions: Algorithms and Implementation (3rd edition, 2016), on additive argument
reduction and minimax approximation; S. Moshier, Cephes, expf.c, for the two parts of log 2.
"""

from __future__ import annotations

import os
from math import atan as atan_f8, erf as erf_f8  # noqa: F401 - for generated loops, as what is not used here of NumPy
from typing import Any

import numpy as np
from numpy import exp as exp_f8, expm1 as expm1_f8, log as log_f8, log1p as log1p_f8, tanh as tanh_f8  # noqa: F401

from snncell.base.signals import import_once
from snncell.kernels.intrinsics.builtins import bitcast, inline

# Constants are NumPy's scalars, for Python's would widen float32 to float64 and int32 to int64 in Numba.
_0 = np.float32(0)
_1 = np.float32(1)
_INFINITY = np.float32(np.inf)
_NAN = np.float32(np.nan)

# Adding 1.5 * 2**52 rounds a small number to an integer, which the lowest bits of the sum then hold; 1.5 * 2**23 is
# float32's.
_ROUND = 1.5 * 2.0**52
_ROUND_F4 = np.float32(1.5 * 2.0**23)
_ROUND_BITS = np.int64(0x4338000000000000)
_ROUND_BITS_F4 = np.int32(0x4B400000)
_MANTISSA = np.int64(52)  # bits of a float64's mantissa
_MANTISSA_F4 = np.int32(23)
_BIAS_F4 = np.int32(127)
_HALF = np.int32(1)  # shifted right by it, a number is halved
_ONE_BITS = np.int64(0x3FF0000000000000)  # float64's 1
_EXPONENT_BITS = np.int64(0x7FF0000000000000)


# --- float16 and bfloat16 ---------------------------------------------------------------------------------------------

_F2_ODD, _F2_BELOW_HALF, _F2_KEPT = np.int32(13), np.int32(0xFFF), np.int32(-0x2000)  # of the 13 bits that it has not
_F2_SMALLEST = np.float32(2.0**-14)  # below it, float16's numbers are 2**-24 apart
_F2_LARGEST = np.float32(65504)
_F2_PLACE = np.float32(0.75)  # around it, float32's are too


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
_EXP_HIGH = np.float32(89)  # e**89 overflows, e**-104 is less than half of the smallest denormal number
_EXP_LOW = np.float32(-104)

# (e**r - 1 - r) / r**2 for |r| <= log(2) / 2; 2**-28.3 of e**r.
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
    # 2**n in two factors: for n from -150 to 128 it need not be a float32, where the product is one.
    whole = np.int32(bitcast(rounded, np.int32) - _ROUND_BITS_F4)
    half = np.int32(whole >> _HALF)
    first = bitcast(np.int32(np.int32(half + _BIAS_F4) << _MANTISSA_F4), np.float32)
    second = bitcast(np.int32(np.int32(np.int32(whole - half) + _BIAS_F4) << _MANTISSA_F4), np.float32)
    return power * first * second


# In the functions below e**x = 2**z = 2**n 2**r with z = x / log 2, n = round(z) and r = z - n, and 2**r is
# (a + r) / (a - r) with a = r / tanh(r log(2) / 2): even in r, so that few terms are enough. Where the result is a
# quotient anyway, this division is part of it.

# a for |r| <= 1/2, in powers of r**2; 2**-29.1.
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
    """1 / (1 + e**-x), as e**x / (1 + e**x) for x < 0, whose numerator does not overflow before the result is 0."""
    e = exp_f8(-abs(x))
    return (e if x < 0.0 else 1.0) / (1.0 + e)


@inline
def _parts(t: Any, scale: Any) -> Any:
    """With y = t scale log 2, a numerator and two denominators: by the first it is e**y - 1, by the second tanh(y / 2).

    They are (s - 1) a + (s + 1) r, a - r and (s + 1) a + (s - 1) r with s = 2**n: near 0, where s is 1, the numerator
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
    return x if x == _0 else np.float32(upper / lower)  # -0 stays


_TANH_HIGH = np.float32(10)  # tanh is 1 in float32 from 9.02 on


@inline
def tanh_f4(x: Any) -> Any:
    """(e**2x - 1) / (e**2x + 1)."""
    t = _TANH_HIGH if x > _TANH_HIGH else x
    t = -_TANH_HIGH if t < -_TANH_HIGH else t
    upper, _, lower = _parts(t, 2.0 * _LOG2_E)
    return x if x == _0 else np.float32(upper / lower)  # -0 stays


# --- logarithms -------------------------------------------------------------------------------------------------------

_LN2 = 0.6931471805599453
_TO_NEXT = np.int64(0x3FF0000000000000 - 0x3FE6A09E667F3BCD)  # from sqrt(1/2) to 1, in bits
_ROUND_BIASED = _ROUND + 1023.0

# log(1 + f) / f from sqrt(1/2) - 1 to sqrt(2) - 1; 2**-27.9.
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
    """The natural logarithm; -inf at 0, NaN below."""
    edge = -_INFINITY if x == _0 else (_NAN if x < _0 else x)  # inf and NaN stay
    return np.float32(_log(np.float64(x))) if (x > _0) & (x < _INFINITY) else edge


_LOG1P_SMALL = np.float32(2.0**-26)  # below it log(1 + x) = x - x**2 / 2 is x but for an eighth of its last place


@inline
def log1p_f4(x: Any) -> Any:
    """log(1 + x); -inf at -1, NaN below. In float64, 1 + x keeps what matters of every x that is not small."""
    edge = -_INFINITY if x == -_1 else (_NAN if x < -_1 else x)  # inf, NaN and small numbers stay
    inside = (abs(x) >= _LOG1P_SMALL) & (x > -_1) & (x < _INFINITY)
    return np.float32(_log(1.0 + np.float64(x))) if inside else edge


# --- error function, arc tangent --------------------------------------------------------------------------------------

_ERF_HIGH = np.float32(3.92)  # erf is 1 in float32 from here on

# erf(x) / x = N(u) / D(u) with u = x**2 up to 15.4; 2**-28.7.
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

# atan(w) / w in u = w**2 up to 1; 2**-28.7.
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
    result = import_once("scipy.special").erf(x)  # on first use: importing it takes a tenth of a second
    return result if result.dtype == x.dtype else result.astype(x.dtype)  # it computes float16 in double


def _sigmoid(x: Any) -> Any:
    # It is 0 where exp(-x) overflows, a little before the result would be (x < -88 in float32); the form that is right
    # there takes twice as long on arrays, and in loops there is one of our own.
    return 1 / (1 + np.exp(-x))


# What a formula's names mean on NumPy arrays: NumPy's functions, most of them by the same name.
NUMPY: dict[str, Any] = {
    **{name: getattr(np, name) for name in ("exp", "expm1", "log", "log1p", "sqrt", "sin", "cos", "tanh")},
    **{name: getattr(np, name) for name in ("floor", "ceil", "round", "sign", "minimum", "maximum")},
    **{name: getattr(np, name) for name in ("where", "logical_not")},
    "abs": abs,  # of a number a number: NumPy's would be a float64, which no longer takes the precision of arrays
    "atan": np.arctan,
    "conj": np.conjugate,
    "erf": _erf,
    "sigmoid": _sigmoid,
}

# Calls that take several times as long as an addition.
SLOW = frozenset(("exp", "expm1", "log", "log1p", "sin", "cos", "tanh", "atan", "erf", "sigmoid"))

# The same names in a loop, on scalars: {0}, {1}, ... are the arguments, {cast} brings a number to their precision.
LOOP: dict[str, str] = {
    **{name: f"mathematics.{name}_{{cast}}({{0}})" for name in sorted(SLOW - {"sin", "cos"})},
    **{name: name + "({0})" for name in ("sqrt", "sin", "cos", "floor", "ceil")},
    "round": "rint({0})",
    "abs": "abs({0})",
    "where": "({1} if {0} else {2})",
    "minimum": "({0} if ({0} <= {1}) | ({0} != {0}) else {1})",  # a NaN on either side comes through
    "maximum": "({0} if ({0} >= {1}) | ({0} != {0}) else {1})",
    "sign": "({cast}(1) if {0} > {cast}(0) else (-{cast}(1) if {0} < {cast}(0) else {0} + {cast}(0)))",  # NaN stays
    "logical_not": "(not {0})",
    **{name: f"mathematics.{name}_f4({{0}})" for name in ("float16", "bfloat16")},  # rounded to one
}

# The same on CUDA, where the device's own functions are as fast as ours would be. They are cast: in the simulator they
# are NumPy's, and a Python number would be computed with in double precision.
CUDA: dict[str, str] = {
    **LOOP,
    **{name: f"{{cast}}({name}({{0}}))" for name in ("exp", "expm1", "log", "log1p", "sqrt", "sin", "cos", "tanh")},
    **{name: f"{{cast}}({name}({{0}}))" for name in ("atan", "erf")},
    "sigmoid": "({cast}(1) / ({cast}(1) + {cast}(exp(-{0}))))",
    **{name: f"{name}_{{cast}}({{0}})" for name in ("floor", "ceil", "rint")},
    "round": "rint_{cast}({0})",
    "conj": "({0}).conjugate()",
}
# How a CUDA kernel takes an element from memory (`dtype.in_memory`), and how it puts there what has a name: a number is
# rounded to the nearest bfloat16, of two to the even one, and NaN stays NaN.
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
CUDA |= {name: LOAD[name].format(STORE[name]) for name in ("float16", "bfloat16")}  # rounded to one
CUDA_IMPORTS = """\
from math import atan, cos, erf, exp, expm1, log, log1p, sin, sqrt, tanh

import numpy as np
from numba import cuda
from numba.cuda.libdevice import (
    ceil as ceil_f8, ceilf as ceil_f4, float_as_int, floor as floor_f8, floorf as floor_f4, int_as_float,
    rint as rint_f8, rintf as rint_f4,
)
"""
# In the simulator NumPy's: Python's raise where the device gives infinities.
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

# The head of every generated file: where the names above come from.
LOOP_IMPORTS = """\
import numpy as np
from numpy import ceil, cos, floor, rint, sin, sqrt

from snncell.kernels import scalar as mathematics
from snncell.kernels.intrinsics.builtins import least
from snncell.kernels.intrinsics.elements import copy, fill, lanes, prefetch, row, scalar, strip, tail
"""


# What the head of a file with products of rows imports besides.
ROW_IMPORTS = "from snncell.kernels.intrinsics import rows\n"


def is_simulated() -> bool:
    """True if CUDA kernels are run by Numba's simulator, on the CPU."""
    return os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"
