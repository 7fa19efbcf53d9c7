"""float16 on the device: numbers are loaded and stored as such, and computed with as float32."""

from __future__ import annotations

import numpy as np

from snncell import dtype as dtypes
from snncell.kernels.cuda.arrays import DeviceArray, contiguous, empty
from snncell.kernels.cuda.each import kernel, launch

_HALF = np.dtype(np.float16)


def is_half(array: object) -> bool:
    """Whether something is an array of float16."""
    return getattr(array, "dtype", None) == _HALF


def widened(x: DeviceArray) -> DeviceArray:
    """float16 as float32."""
    return _converted(x, dtypes.float32)


def narrowed(x: DeviceArray) -> DeviceArray:
    """float32 rounded to float16."""
    return _converted(x, dtypes.float16)


def _converted(x: DeviceArray, kind: dtypes.DType) -> DeviceArray:
    if x.uniform and x.size > 1:
        return _converted(x.view((), ()), kind).broadcast_to(x.shape)
    out = empty(x.shape, kind.dtype)
    arrays = ("x", (dtypes.BY_NUMPY[x.dtype], False)), ("out", (kind, True))
    launch(kernel(f"to_{kind.name}", arrays, f"out[i] = {kind.code}(x[i])"), out.size, contiguous(x), out)
    return out
