"""NumPy's functions that work on device arrays too: an operation written with them needs no rule of its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from snncell.kernels.cuda.arrays import DeviceArray, empty
from snncell.kernels.cuda.elementwise import fill


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
