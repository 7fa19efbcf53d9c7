"""The order of the elements of each row: their bits as integers ordered as the elements are, sorted by a network.

A key has the number of its row above 32 bits of the element, so that all rows are sorted at once; elements of 64 bits
are sorted by their lower half, then, which keeps the order of equals, by their upper half.
"""

from __future__ import annotations

import numpy as np

from snncell import dtype as dtypes
from snncell.errors import DeviceError
from snncell.kernels.cuda.arrays import DeviceArray, contiguous, empty
from snncell.kernels.cuda.elementwise import as_bits, bits_of, kernel, launch, parameters_of
from snncell.kernels.cuda.indexing import argsort as sorted_integers

_IN, _OUT = (dtypes.int64, False), (dtypes.int64, True)
_HALF = 1 << 32

# `bits` is an integer that is ordered as the element is. Those of negative floats go down where the float goes up, but
# for the sign; zero has two signs, and what is behind infinity is no number.
_OF_INTEGER = "bits = i8(x[{place}])\n"
_OF_FLOAT = """
bits = i8(x[{place}])
if (bits & i8({rest})) > i8({infinity}):
    bits = i8({rest})
elif bits < 0:
    bits = -(bits & i8({rest}))
"""
_SMALL = f"key = bits + i8({_HALF // 2})\n"
_LOWER = f"key = bits & i8({_HALF - 1})\n"
_UPPER = f"key = (bits >> 32) + i8({_HALF // 2})\n"
_KEY = f"keys[i] = ({{place}} // length) * i8({_HALF}) + key"
_ONE = "out[i] = first[i] % length"
_BOTH = "out[i] = first[second[i]] % length"
_ALONG = "out[i] = x[(i // length) * length + i8(order[i])]"
_BACK = "out[(i // length) * length + i8(order[i])] = x[i]"


def argsort(x: DeviceArray) -> DeviceArray:
    """`np.argsort(x, axis=-1, kind="stable")`, for rows shorter than 2^31 and fewer than 2^31 of them."""
    out = empty(x.shape, np.dtype(np.int64))
    if not x.size:
        return out
    source, length = contiguous(x), x.shape[-1]
    if x.dtype.itemsize < 8:
        first = sorted_integers(_keys(source, length, _SMALL, None))
        launch(
            kernel("within", (*parameters_of("length"), ("first", _IN), ("out", _OUT)), _ONE),
            x.size,
            length,
            first,
            out,
        )
        return out
    first = sorted_integers(_keys(source, x.size, _LOWER, None))
    second = sorted_integers(_keys(source, length, _UPPER, first))
    arrays = ("first", _IN), ("second", _IN), ("out", _OUT)
    launch(kernel("within_both", (*parameters_of("length"), *arrays), _BOTH), x.size, length, first, second, out)
    return out


def _keys(x: DeviceArray, length: int, part: str, order: DeviceArray | None) -> DeviceArray:
    """The keys of the elements, in an order."""
    place = "i" if order is None else "order[i]"
    kind = dtypes.BY_NUMPY[x.dtype]
    body = _OF_INTEGER
    if kind.is_float:
        kind = bits_of(x)[0]
        info = np.iinfo(kind.dtype)
        body = _OF_FLOAT.replace("{rest}", str(info.max))
        body = body.replace("{infinity}", str(int(np.array(np.inf, x.dtype).view(kind.dtype))))
    body = (body + part + _KEY).replace("{place}", place)
    keys = empty((x.size,), np.dtype(np.int64))
    arrays = (("x", (kind, False)), ("order", _IN), ("keys", _OUT))
    compiled = kernel("sort_keys", (*parameters_of("length"), *arrays), body)
    launch(compiled, x.size, length, as_bits(x) if bits_of(x)[0] is kind else x, keys if order is None else order, keys)
    return keys


def along(x: DeviceArray, order: DeviceArray) -> DeviceArray:
    """`np.take_along_axis(x, order, -1)`, for permutations of a row's positions."""
    return _move_by_order(x, order, "along", _ALONG)


def back(x: DeviceArray, order: DeviceArray) -> DeviceArray:
    """Its inverse: each element where `along` took it from."""
    return _move_by_order(x, order, "back", _BACK)


def _move_by_order(x: DeviceArray, order: DeviceArray, name: str, body: str) -> DeviceArray:
    out = empty(x.shape, x.dtype)
    if x.size:
        bits = bits_of(x)[0]
        compiled = kernel(
            name, (*parameters_of("length"), ("x", (bits, False)), ("order", _IN), ("out", (bits, True))), body
        )
        launch(compiled, x.size, x.shape[-1], as_bits(contiguous(x)), contiguous(order), as_bits(out))
    return out


# What is no number comes behind all others, and is equal to its like.
_SEARCH = """
value = v[i]
low = i8(0)
high = i8(length)
row = (i // many) * length
while low < high:
    middle = (low + high) // 2
    there = x[row + middle]
    if {before}:
        low = middle + 1
    else:
        high = middle
out[i] = low
"""
_BEFORE = {
    False: "there < value or (value != value and there == there)",
    True: "not (value < there or (there != there and value == value))",
}


def places(ordered: DeviceArray, v: DeviceArray, right: bool) -> DeviceArray:
    """`np.searchsorted` of `v` in rows that are in order: ordered (N,) and any v, or (..., N) and (..., K)."""
    out = empty(v.shape, np.dtype(np.int64))
    kind = dtypes.BY_NUMPY[ordered.dtype]
    if kind.category > 2:
        raise DeviceError('searchsorted: has no rule for complex numbers on the GPU. Move them: x.to("cpu").')
    arrays = ("x", (kind, False)), ("v", (kind, False)), ("out", _OUT)
    compiled = kernel(
        f"search_{right:d}", (*parameters_of("many length"), *arrays), _SEARCH.format(before=_BEFORE[right])
    )
    many = max(v.size, 1) if ordered.ndim == 1 else v.shape[-1]
    launch(compiled, v.size, many, ordered.shape[-1], contiguous(ordered), contiguous(v), out)
    return out
