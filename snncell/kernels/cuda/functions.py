"""NumPy's functions for device arrays: `concatenate`, `pad` and others; the error function's complement and inverse.

An operation written with NumPy's functions needs no rule of its own on the device.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.kernels.cuda.arrays import DeviceArray, contiguous, empty
from snncell.kernels.cuda.elementwise import fill, kernel, launch


def flip(array: Any, axis: Any = None) -> Any:
    """`np.flip`: a view."""
    axes = range(array.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    flipped = {a % array.ndim for a in axes}
    return array[tuple(slice(None, None, -1) if a in flipped else slice(None) for a in range(array.ndim))]


def swapaxes(array: Any, first: int, second: int) -> Any:
    """`np.swapaxes`: a view."""
    order = list(range(array.ndim))
    order[first], order[second] = order[second], order[first]
    return array.transpose(*order)


def concatenate(parts: Any, axis: int = 0) -> Any:
    """`np.concatenate`: each part is copied into its place."""
    axis %= parts[0].ndim
    shape = list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    out = empty(shape, parts[0].dtype)
    first = 0
    for part in parts:
        last = first + part.shape[axis]
        out[(slice(None),) * axis + (slice(first, last),)] = part
        first = last
    return out


def pad(array: Any, widths: Any, mode: str = "constant", constant_values: Any = 0) -> Any:
    """`np.pad` with a constant: the elements are copied into a filled array."""
    out = empty([n + before + after for n, (before, after) in zip(array.shape, widths, strict=True)], array.dtype)
    fill(out, constant_values)  # a kernel's argument: nothing waits for the host, and a recording may hold it
    out[tuple(slice(before, before + n) for n, (before, _) in zip(array.shape, widths, strict=True))] = array
    return out


DeviceArray.rules |= {
    np.broadcast_to: lambda array, shape: array.broadcast_to((shape,) if isinstance(shape, int) else tuple(shape)),
    np.flip: flip,
    np.transpose: lambda array, axes=None: array.transpose(*(axes or ())),
    np.reshape: lambda array, shape: array.reshape(shape),
    np.swapaxes: swapaxes,
    np.shape: lambda array: array.shape,
    np.ndim: lambda array: array.ndim,
    np.concatenate: concatenate,
    np.pad: pad,
}


# --- The complement and the inverse of the error function -------------------------------------------------------------

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
