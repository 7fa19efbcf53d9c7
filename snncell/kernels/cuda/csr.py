"""Rows of which only some elements are listed, on the device: filled with zeros, a thread for each element."""

from __future__ import annotations

import math
from typing import Any

from snncell import dtype as dtypes
from snncell.kernels.cuda.arrays import DeviceArray, contiguous, empty as empty_on_device
from snncell.kernels.cuda.elementwise import as_bits, bits_of, kernel, launch, parameters_of

_FILL = """
own = (i // parts) % elements
number = i // (parts * elements)
low = i8(starts[number])
end = i8(starts[number + 1])
if low < 0:
    low = 0
if end > room:
    end = room
high = end
while low < high:
    middle = (low + high) // 2
    if i8(places[middle]) < own:
        low = middle + 1
    else:
        high = middle
value = {cast}(0)
if low < end:
    if i8(places[low]) == own:
        value = values[low * parts + i % parts]
out[i] = value
"""


def fill_array(starts: DeviceArray, places: DeviceArray, values: DeviceArray, shape: tuple[int, ...]) -> DeviceArray:
    """The array of a shape whose elements are listed; those that are out of range are left out."""
    bits, parts = bits_of(values)
    out = empty_on_device(shape, values.dtype)
    arrays = (("starts", (dtypes.int64, False)), ("places", (dtypes.int32, False)))
    moved = (("values", (bits, False)), ("out", (bits, True)))
    compiled = kernel(
        "fill_rows", (*parameters_of("elements room parts"), *arrays, *moved), _FILL.format(cast=bits.code)
    )
    rows, size = starts.size - 1, math.prod(shape)
    if size:
        operands: tuple[Any, ...] = (contiguous(starts), contiguous(places), as_bits(contiguous(values)), as_bits(out))
        launch(compiled, size * parts, size // rows, places.size, parts, *operands)
    return out
