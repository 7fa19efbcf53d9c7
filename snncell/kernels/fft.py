"""Complex arrays and Fourier transforms on the device. The parts of a complex array are views of its memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from snncell.kernels.cuda.arrays import DeviceArray, contiguous, dense, empty, zeros
from snncell.kernels.cuda.runtime import runtime
from snncell.kernels.space import DEVICE

_REAL = {"complex64": np.dtype(np.float32), "complex128": np.dtype(np.float64)}
_COMPLEX = {"float32": np.dtype(np.complex64), "float64": np.dtype(np.complex128)}


def real(x: DeviceArray, part: int = 0) -> DeviceArray:
    """The real part, or with `part` 1 the imaginary one: a view."""
    strides = tuple(2 * step for step in x.strides)
    return DeviceArray(x.memory, 2 * x.offset + part, x.shape, strides, _REAL[x.dtype.name])


def imag(x: DeviceArray) -> DeviceArray:
    """The imaginary part: a view."""
    return real(x, 1)


def fft(x: DeviceArray, inverse: bool = False) -> DeviceArray:
    """The complex transform of the last axis, or its inverse."""
    out = _transform("c2c", x, x.shape[-1], x.shape[-1], x.dtype, inverse)
    return _divide_by_length(out, x.shape[-1]) if inverse else out


def rfft(x: DeviceArray) -> DeviceArray:
    """The spectrum of real numbers, without its mirrored half."""
    length = x.shape[-1]
    return _transform("r2c", x, length, length // 2 + 1, _COMPLEX[x.dtype.name])


def irfft(x: DeviceArray, n: int) -> DeviceArray:
    """The real numbers of half a spectrum. What would make them complex is left out, as on the CPU."""
    source = x.copy()
    for place in {0, n // 2} if n % 2 == 0 else {0}:
        imag(source)[..., place] = zeros((), _REAL[x.dtype.name])
    return _divide_by_length(_transform("c2r", source, n, n, _REAL[x.dtype.name]), n)


def _transform(kind: str, x: DeviceArray, length: int, last: int, dtype: Any, inverse: bool = False) -> DeviceArray:
    source = contiguous(x)
    out = empty((*x.shape[:-1], last), dtype)
    first, target = ((a.memory.block, a.offset * a.dtype.itemsize) for a in (source, out))
    double = dtype.name in ("float64", "complex128")
    runtime().fft(kind, first, target, length, math.prod(x.shape[:-1]), double=double, inverse=inverse)
    return out


def _divide_by_length(x: DeviceArray, n: int) -> DeviceArray:
    """`x / n`; as on the CPU, by a product with 1 / n."""
    if x.dtype.kind != "c":
        return DEVICE.times(x, 1 / n)  # type: ignore[no-any-return]
    parts = DeviceArray(x.memory, 2 * x.offset, (2 * x.size,), (1,), _REAL[x.dtype.name])
    times = DEVICE.times(parts, 1 / n)
    return DeviceArray(times.memory, times.offset // 2, x.shape, dense(x.shape), x.dtype)
