"""Gather, scatter, sort and search on a GPU, without atomics, so that results are deterministic.

Integers are sorted by Batcher's bitonic network; in each round, one thread compares one pair. Scatter sorts the
positions, so that the terms of a result are adjacent. Then one thread per result adds its terms in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.errors import DeviceError
from snncell.kernels.cuda.arrays import DeviceArray, contiguous, empty
from snncell.kernels.cuda.build import around, as_bits, as_parts, bits_of, parts_of, run

_INT64 = np.dtype(np.int64)

# --- Sort of integers -------------------------------------------------------------------------------------------------

_LAST = 2**63 - 1  # sorts after all other keys
_LIST = f"""
key = i8({_LAST})
if i < many:
    key = i8(given[i])
    if key < 0:
        key += length
    if key < 0 or key >= length:
        key = i8({_LAST})
keys[i] = key
places[i] = i
"""
# Compare pairs at distance `reach`, in runs of length `run` that ascend and descend in turn. Equal keys are ordered by
# their places, because a bitonic network is not stable.
_SORT = """
a = i + (i // reach) * reach
b = a + reach
first = keys[a]
second = keys[b]
p = places[a]
q = places[b]
behind = first > second or (first == second and p > q)
if behind == ((a // run) % 2 == 0):
    keys[a] = second
    keys[b] = first
    places[a] = q
    places[b] = p
"""
_STARTS = """
low = i8(0)
high = i8(many)
while low < high:
    middle = (low + high) // 2
    if keys[middle] < i:
        low = middle + 1
    else:
        high = middle
starts[i] = low
"""


def sort_keys(integers: DeviceArray, length: int) -> tuple[DeviceArray, DeviceArray]:
    """Stable sort of integers, padded at the end; returns the sorted keys and the original place of each.
    Negative keys have `length` added; keys outside of [0, length) then sort last.
    """
    room = 1 << max(integers.size - 1, 0).bit_length()
    sorted_ = {name: empty((room,), _INT64) for name in ("keys", "places")}
    numbers = {"many": integers.size, "length": length}
    run("list", _LIST, room, numbers, {"given": contiguous(integers)}, sorted_)
    long = 2
    while long <= room:
        reach = long // 2
        while reach:
            run("sort", _SORT, room // 2, {"reach": reach, "run": long}, {}, sorted_)
            reach //= 2
        long *= 2
    return sorted_["keys"], sorted_["places"]


def argsort_keys(keys: DeviceArray) -> DeviceArray:
    """`np.argsort(keys, kind="stable")` for integers from 0 on."""
    return sort_keys(keys, _LAST)[1][: keys.size].copy()


def _runs(indices: DeviceArray, length: int) -> dict[str, DeviceArray]:
    """For a scatter: the start of each position's terms in the sorted order, and the original place of each term."""
    keys, places = sort_keys(indices, length)
    starts = empty((length + 1,), _INT64)
    run("starts", _STARTS, length + 1, {"many": indices.size}, {"keys": keys}, {"starts": starts})
    return {"starts": starts, "places": places}


# --- Scatter ----------------------------------------------------------------------------------------------------------

_SUM = """
p = i % inner
k = (i // inner) % length
o = i // (inner * length)
total = {code}(0)
n = starts[k]
while n < starts[k + 1]:
    total += x[(o * many + places[n]) * inner + p]
    n += 1
out[i] = total
"""
# If a position has several values, the last one is stored.
_PUT = """
p = i % inner
k = i // inner
value = x[i]
if starts[k + 1] > starts[k]:
    value = values[places[starts[k + 1] - 1] * inner + p]
out[i] = value
"""


def put(x: DeviceArray, positions: DeviceArray, values: DeviceArray) -> DeviceArray:
    """A copy of x (N,) with `values` (K,) stored at `positions` (K,); for duplicate positions, the last value."""
    out = empty(x.shape, x.dtype)
    _, parts = bits_of(x)
    arrays = {**_runs(positions, x.size), "x": as_bits(contiguous(x)), "values": as_bits(contiguous(values))}
    run("put", _PUT, out.size * parts, {"inner": parts}, arrays, {"out": as_bits(out)})
    return out


def scatter_add(x: DeviceArray, indices: DeviceArray, axis: int, shape: Sequence[int]) -> DeviceArray:
    """Zeros of `shape` with the slices of `x` added at `indices` along `axis`, in a fixed order."""
    out = empty(shape, x.dtype)
    _, length, inner = around(shape, axis)
    kind, parts = parts_of(x)
    numbers = {"inner": inner * parts, "many": indices.size, "length": length}
    arrays = {**_runs(indices, length), "x": as_parts(contiguous(x))}
    run("scatter_add", _SUM.format(code=kind.code), out.size * parts, numbers, arrays, {"out": as_parts(out)})
    return out


# --- Gather: one thread per element of the result ---------------------------------------------------------------------

# Negative positions count from the end. A position out of range reads NaN (-1 for integers, False for booleans) and
# writes nothing. A caller that needs an error must check the positions first, which waits for the device.

_TAKE = """
p = i % inner
k = (i // inner) % many
o = i // (inner * many)
j = i8(index[o * by_row + k * by_place])
if j < 0:
    j += length
value = {cast}(outside)
if j >= 0 and j < length:
    value = x[(o * length + j) * inner + p]
out[i] = value
"""
_PLACE = """
p = i % inner
k = (i // inner) % length
o = i // (inner * length)
j = i8(index[o])
if j < 0:
    j += length
value = {cast}(0)
if j == k:
    value = x[o * inner + p]
out[i] = value
"""
_HOT = """
value = {cast}(0)
if i8(index[i // depth]) == i % depth:
    value = {cast}(1)
out[i] = value
"""


def take(x: DeviceArray, indices: DeviceArray, axis: int) -> DeviceArray:
    """`np.take(x, indices, axis)`."""
    out = empty((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), x.dtype)
    _take_along(x, indices, axis, out, indices.size, (0, 1))
    return out


def pick(x: DeviceArray, indices: DeviceArray) -> DeviceArray:
    """One element of the last axis per row, for example class scores at labels: x (..., n), indices (...) -> (...)."""
    out = empty(indices.shape, x.dtype)
    _take_along(x, indices, x.ndim - 1, out, 1, (1, 0))
    return out


def _take_along(
    x: DeviceArray, indices: DeviceArray, axis: int, out: DeviceArray, many: int, steps: tuple[int, int]
) -> None:
    bits, parts = bits_of(x)
    _, length, inner = around(x.shape, axis)
    numbers = {"inner": inner * parts, "many": many, "length": length, "by_row": steps[0], "by_place": steps[1]}
    numbers["outside"] = 0 if x.dtype == np.bool_ else -1
    arrays = {"index": contiguous(indices), "x": as_bits(contiguous(x))}
    run("take", _TAKE.format(cast=bits.code), out.size * parts, numbers, arrays, {"out": as_bits(out)})


def place(x: DeviceArray, indices: DeviceArray, length: int) -> DeviceArray:
    """Zeros with a last axis of `length`, and `x` stored at `indices` along it."""
    bits, parts = bits_of(x)
    out = empty((*x.shape, length), x.dtype)
    arrays = {"index": contiguous(indices), "x": as_bits(contiguous(x))}
    numbers = {"inner": parts, "length": length}
    run("place", _PLACE.format(cast=bits.code), out.size * parts, numbers, arrays, {"out": as_bits(out)})
    return out


def one_hot(indices: DeviceArray, depth: int, dtype: Any) -> DeviceArray:
    """One-hot vectors: ones at `indices` along a new last axis of `depth`."""
    out = empty((*indices.shape, depth), dtype)
    body = _HOT.format(cast=dtypes.BY_NUMPY[dtype].code)
    run("one_hot", body, out.size, {"depth": depth}, {"index": contiguous(indices)}, {"out": out})
    return out


# --- Sort of each row -------------------------------------------------------------------------------------------------

# Elements are mapped to integers with the same order, and these keys are sorted. A key has the row number above 32 bits
# of the element, so that all rows are sorted at once. Elements of 64 bits are sorted by their lower half, and then by
# their upper half in a stable sort.

_HALF = 1 << 32

# `bits` is an integer with the same order as the element. The magnitude bits of negative floats are negated, both zeros
# become 0, and every NaN becomes the largest integer.
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
    """`np.argsort(x, axis=-1, kind="stable")`, for rows shorter than 2^31 and fewer than 2^31 rows."""
    out = empty(x.shape, _INT64)
    if not x.size:
        return out
    source, numbers = contiguous(x), {"length": x.shape[-1]}
    if x.dtype.itemsize < 8:
        first = argsort_keys(_keys(source, x.shape[-1], _SMALL, None))
        run("within", _ONE, x.size, numbers, {"first": first}, {"out": out})
        return out
    first = argsort_keys(_keys(source, x.size, _LOWER, None))
    second = argsort_keys(_keys(source, x.shape[-1], _UPPER, first))
    run("within_both", _BOTH, x.size, numbers, {"first": first, "second": second}, {"out": out})
    return out


def _keys(x: DeviceArray, length: int, part: str, order: DeviceArray | None) -> DeviceArray:
    """The sort keys of the elements of `x`, or of `x[order]`."""
    elements: Any = x
    body = _OF_INTEGER
    if dtypes.BY_NUMPY[x.dtype].is_float:
        elements = as_bits(x)
        body = _OF_FLOAT.replace("{rest}", str(np.iinfo(elements.dtype).max))
        body = body.replace("{infinity}", str(int(np.array(np.inf, x.dtype).view(elements.dtype))))
    body = (body + part + _KEY).replace("{place}", "i" if order is None else "order[i]")
    keys = empty((x.size,), _INT64)
    arrays = {"x": elements, "order": keys if order is None else order}
    run("sort_keys", body, x.size, {"length": length}, arrays, {"keys": keys})
    return keys


def along(x: DeviceArray, order: DeviceArray) -> DeviceArray:
    """`np.take_along_axis(x, order, -1)`, for permutations of each row."""
    return _move_by_order(x, order, "along", _ALONG)


def back(x: DeviceArray, order: DeviceArray) -> DeviceArray:
    """The inverse of `along`, by a scatter."""
    return _move_by_order(x, order, "back", _BACK)


def _move_by_order(x: DeviceArray, order: DeviceArray, name: str, body: str) -> DeviceArray:
    out = empty(x.shape, x.dtype)
    if x.size:
        arrays = {"x": as_bits(contiguous(x)), "order": contiguous(order)}
        run(name, body, x.size, {"length": x.shape[-1]}, arrays, {"out": as_bits(out)})
    return out


# NaN sorts after all numbers, and equals NaN.
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
    """`np.searchsorted` of `v` in sorted rows: ordered (N,) and any v, or (..., N) and (..., K)."""
    out = empty(v.shape, _INT64)
    if ordered.dtype.kind == "c":
        raise DeviceError(
            'searchsorted is not implemented for complex numbers on the GPU. Move them first: x.to("cpu").'
        )
    numbers = {"many": max(v.size, 1) if ordered.ndim == 1 else v.shape[-1], "length": ordered.shape[-1]}
    arrays = {"x": contiguous(ordered), "v": contiguous(v)}
    run(f"search_{right:d}", _SEARCH.format(before=_BEFORE[right]), v.size, numbers, arrays, {"out": out})
    return out
