"""The exponential function in float64, for loops that LLVM vectorises: libm's takes ten times as long there."""

from __future__ import annotations

from typing import Any

from numpy import float64, int64

from snncell.kernels.intrinsics.builtins import bitcast, inline

LOG2_E = 1.4426950408889634
LN2_HIGH = 0.6931471803691238  # 32 bits, so that its product with n is exact
LN2_LOW = 1.9082149292705877e-10
TO_INTEGER = 1.5 * 2.0**52  # adding it rounds to an integer, which is then in the lowest bits
ONE_IN_BITS = 0x3FF0000000000000
SMALLEST = -708.0  # the result is 0 below, where it would be denormal


@inline
def exponential(x: Any) -> Any:
    """e**x = 2**n e**r with n = round(x / log 2) and |r| <= log(2) / 2, for x up to 709; within a unit or two. The
    polynomial is the Taylor series up to r**13, whose next term is below 2**-57.
    """
    rounded = float64(x * LOG2_E + TO_INTEGER)
    n = rounded - TO_INTEGER
    r = (x - n * LN2_HIGH) - n * LN2_LOW
    q = r * r
    even = 1 / 24 + q * (1 / 720 + q * (1 / 40320 + q * (1 / 3628800 + q * (1 / 479001600))))
    odd = 1 / 6 + q * (1 / 120 + q * (1 / 5040 + q * (1 / 362880 + q * (1 / 39916800 + q * (1 / 6227020800)))))
    power = 1.0 + (r + q * (0.5 + (q * even + r * odd)))
    scale = bitcast(int64(int64(bitcast(rounded, int64) << 52) + ONE_IN_BITS), float64)
    return 0.0 if x < SMALLEST else power * scale
