"""Copies between views of device memory: any strides to any strides, a thread for each element."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from snncell.kernels.cuda.elementwise import bits_of, kernel, launch, parameters_of
from snncell.kernels.cuda.runtime import runtime

if TYPE_CHECKING:
    from snncell.kernels.cuda.arrays import DeviceArray


class _Whole:
    """The block that an array lies in, as an argument: the elements of the array are told by numbers."""

    def __init__(self, array: DeviceArray, dtype: Any) -> None:
        self.argument = array.memory.block, 0, np.dtype(dtype)


def copy(source: DeviceArray, target: DeviceArray) -> None:
    """Put the elements of `source` where `target` has its own; shapes and dtypes are equal."""
    if not source.size:
        return
    if source.contiguous and target.contiguous:
        size = source.dtype.itemsize
        there = target.memory.block, target.offset * size
        runtime().copy(source.memory.block, source.offset * size, *there, source.nbytes)
        return
    bits, pairs = bits_of(source)
    axes = [(n, a * pairs, b * pairs) for n, a, b in zip(source.shape, source.strides, target.strides, strict=True)]
    joined = _join_axes([*axes, *([(2, 1, 1)] if pairs == 2 else [])])
    sizes, steps, places = ([axis[k] for axis in joined] for k in range(3))
    numbers = [*sizes, source.offset * pairs, *steps, target.offset * pairs, *places]
    arrays = [_Whole(x, bits.dtype) for x in (source, target)]
    launch(_kernel(len(joined), bits), source.size * pairs, *numbers, *arrays)


def _join_axes(axes: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Axes of length 1 left out, and neighbours joined where both arrays go on in even steps."""
    joined: list[tuple[int, int, int]] = []
    for n, a, b in axes:
        if n == 1:
            continue
        if joined and joined[-1][1] == n * a and joined[-1][2] == n * b:
            joined[-1] = (joined[-1][0] * n, a, b)
        else:
            joined.append((n, a, b))
    return joined or [(1, 0, 0)]


def _kernel(ndim: int, bits: Any) -> Any:
    """The kernel for arrays of `ndim` joined axes: from `first` on by steps a0, ..., to `begin` on by b0, ..."""
    axes = range(ndim)
    names = [*(f"n{k}" for k in axes), "first", *(f"a{k}" for k in axes), "begin", *(f"b{k}" for k in axes)]
    lines: list[str] = []
    for k in reversed(axes):
        lines += [f"p{k} = i % n{k}", f"i = i // n{k}"] if k else ["p0 = i"]
    place = " + ".join(f"p{k} * b{k}" for k in axes)
    origin = " + ".join(f"p{k} * a{k}" for k in axes)
    lines.append(f"target[begin + {place}] = source[first + {origin}]")
    parameters = (*parameters_of(" ".join(names)), ("source", (bits, False)), ("target", (bits, True)))
    return kernel(f"copy_{ndim}", parameters, "\n".join(lines))
