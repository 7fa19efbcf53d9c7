"""Functions of one number that formulas do not have: the error function's complement and inverse."""

from __future__ import annotations

from snncell import dtype as dtypes
from snncell.kernels.cuda.arrays import DeviceArray, contiguous, empty
from snncell.kernels.cuda.elementwise import kernel, launch

_ERFC = "out[i] = {code}(erfc(f8(x[i])))"
# Winitzki's approximation, and three steps of Halley's rule on erf(y) = a, where a is close to 1 on erfc(y) = 1 - a:
# the error of one is the cube of that before.
_ERFINV = """
number = f8(x[i])
a = abs(number)
y = a * f8(0.886226925452758)
if a >= 0.1 and a < 1.0:
    w = log1p(-a) + log1p(a)
    b = f8(4.330746750799873) + w / 2.0
    y = sqrt(sqrt(b * b - w / 0.147) - b)
if a < 1.0:
    for _ in range(3):
        error = (1.0 - a) - erfc(y)
        if a < 0.5:
            error = erf(y) - a
        step = error * exp(y * y) * f8(0.886226925452758)
        y -= step / (1.0 + y * step)
elif a == 1.0:
    y = f8(np.inf)
else:
    y = f8(np.nan)
if number < 0.0:
    y = -y
out[i] = {code}(y)
"""


def erfc(x: DeviceArray) -> DeviceArray:
    """1 - erf(x)."""
    return _each("complement_of_erf", _ERFC, x)


def erfinv(x: DeviceArray) -> DeviceArray:
    """The inverse of erf."""
    return _each("inverse_of_erf", _ERFINV, x)


def _each(name: str, body: str, x: DeviceArray) -> DeviceArray:
    kind, out = dtypes.BY_NUMPY[x.dtype], empty(x.shape, x.dtype)
    compiled = kernel(name, (("x", (kind, False)), ("out", (kind, True))), body.format(code=kind.code))
    launch(compiled, x.size, contiguous(x), out)
    return out
