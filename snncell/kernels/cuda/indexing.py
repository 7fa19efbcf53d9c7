"""Gather and scatter by integers, without atomics: one thread adds the terms of a sum in their order.

To scatter, the positions are sorted once, by Batcher's bitonic network, whose every round is a thread for each pair;
then each result finds its terms side by side. The same terms give the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.errors import DeviceError
from snncell.kernels.cuda.arrays import DeviceArray, contiguous, empty
from snncell.kernels.cuda.build import around, as_bits, as_parts, bits_of, kernel, launch, parameters_of, parts_of

_LAST = 2**63 - 1  # a key behind all others
_KEYS = dtypes.int64
_IN, _OUT = (_KEYS, False), (_KEYS, True)

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
# Pairs `reach` apart, in runs of `run` that are sorted upwards and downwards in turn. Equal keys go by their places: a
# bitonic network by itself does not keep their order.
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


# The last value for a position is the one that counts.
_PUT = """
p = i % inner
k = i // inner
value = x[i]
if starts[k + 1] > starts[k]:
    value = values[places[starts[k + 1] - 1] * inner + p]
out[i] = value
"""


def put(x: DeviceArray, positions: DeviceArray, values: DeviceArray) -> DeviceArray:
    """A copy of x (N,) with `values` (K,) at `positions` (K,); of several values for one position the last one."""
    out = empty(x.shape, x.dtype)
    starts, places = _runs(positions, x.size)
    bits, parts = bits_of(x)
    arrays = ("starts", _IN), ("places", _IN), ("x", (bits, False)), ("values", (bits, False)), ("out", (bits, True))
    compiled = kernel("put", (*parameters_of("inner"), *arrays), _PUT)
    operands = starts, places, as_bits(contiguous(x)), as_bits(contiguous(values)), as_bits(out)
    launch(compiled, out.size * parts, parts, *operands)
    return out


def _runs(indices: DeviceArray, length: int) -> tuple[DeviceArray, DeviceArray]:
    """Where the terms for each position from 0 on begin among those of all, and the place that each term had."""
    keys, places = sort_keys(indices, length)
    starts = empty((length + 1,), np.dtype(np.int64))
    compiled = kernel("starts", (*parameters_of("many"), ("keys", _IN), ("starts", _OUT)), _STARTS)
    launch(compiled, length + 1, indices.size, keys, starts)
    return starts, places


def scatter_add(x: DeviceArray, indices: DeviceArray, axis: int, shape: Sequence[int]) -> DeviceArray:
    """Zeros of `shape` to which the slices of `x` are added at `indices` along `axis`, in their order."""
    out = empty(shape, x.dtype)
    _, length, inner = around(shape, axis)
    starts, places = _runs(indices, length)
    kind, parts = parts_of(x)
    arrays = ("starts", _IN), ("places", _IN), ("x", (kind, False)), ("out", (kind, True))
    body = _SUM.format(code=kind.code)
    compiled = kernel("scatter_add", (*parameters_of("inner many length"), *arrays), body)
    operands = starts, places, as_parts(contiguous(x)), as_parts(out)
    launch(compiled, out.size * parts, inner * parts, indices.size, length, *operands)
    return out


def sort_keys(integers: DeviceArray, length: int) -> tuple[DeviceArray, DeviceArray]:
    """Integers in order, and the place that each had; equal ones keep theirs.

    Negative ones have `length` added; what is not in [0, length) then comes last. There may be more behind.
    """
    room = 1 << max(integers.size - 1, 0).bit_length()
    keys, places = (empty((room,), np.dtype(np.int64)) for _ in range(2))
    kind = dtypes.BY_NUMPY[integers.dtype]
    arrays = ("given", (kind, False)), ("keys", _OUT), ("places", _OUT)
    compiled = kernel("list", (*parameters_of("many length"), *arrays), _LIST)
    launch(compiled, room, integers.size, length, contiguous(integers), keys, places)
    sort = kernel("sort", (*parameters_of("reach run"), *arrays[1:]), _SORT)
    run = 2
    while run <= room:
        reach = run // 2
        while reach:
            launch(sort, room // 2, reach, run, keys, places)
            reach //= 2
        run *= 2
    return keys, places


def argsort_keys(keys: DeviceArray) -> DeviceArray:
    """The order of integers from 0 on, `np.argsort(keys, kind="stable")`."""
    return sort_keys(keys, _LAST)[1][: keys.size].copy()


# --- Gather: a thread for each element of the result ------------------------------------------------------------------

# Negative positions count from the end. One out of range gives NaN (-1 for integers, False for booleans) and places
# nothing: who wants an error must look before, and wait for the answer.

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
    """One element of the last axis for each place: x (..., n), indices (...) -> (...)."""
    out = empty(indices.shape, x.dtype)
    _take_along(x, indices, x.ndim - 1, out, 1, (1, 0))
    return out


def _take_along(
    x: DeviceArray, indices: DeviceArray, axis: int, out: DeviceArray, many: int, steps: tuple[int, int]
) -> None:
    bits, parts = bits_of(x)
    _, length, inner = around(x.shape, axis)
    arrays = (*_index(indices), ("x", (bits, False)), ("out", (bits, True)))
    compiled = kernel(
        "take", (*parameters_of("inner many length by_row by_place outside"), *arrays), _TAKE.format(cast=bits.code)
    )
    sizes = (inner * parts, many, length, *steps, 0 if x.dtype == np.bool_ else -1)
    operands = contiguous(indices), as_bits(contiguous(x)), as_bits(out)
    launch(compiled, out.size * parts, *sizes, *operands)


def place(x: DeviceArray, indices: DeviceArray, length: int) -> DeviceArray:
    """Zeros with a last axis of `length`, and `x` at `indices` along it."""
    bits, parts = bits_of(x)
    out = empty((*x.shape, length), x.dtype)
    arrays = (*_index(indices), ("x", (bits, False)), ("out", (bits, True)))
    compiled = kernel("place", (*parameters_of("inner length"), *arrays), _PLACE.format(cast=bits.code))
    operands = contiguous(indices), as_bits(contiguous(x)), as_bits(out)
    launch(compiled, out.size * parts, parts, length, *operands)
    return out


def one_hot(indices: DeviceArray, depth: int, dtype: Any) -> DeviceArray:
    """Ones at `indices` along a new last axis of `depth`, zeros elsewhere."""
    out = empty((*indices.shape, depth), dtype)
    kind = dtypes.BY_NUMPY[dtype]
    compiled = kernel(
        "one_hot", (*parameters_of("depth"), *_index(indices), ("out", (kind, True))), _HOT.format(cast=kind.code)
    )
    launch(compiled, out.size, depth, contiguous(indices), out)
    return out


def _index(indices: DeviceArray) -> tuple[tuple[str, Any], ...]:
    return (("index", (dtypes.BY_NUMPY[indices.dtype], False)),)


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
        first = argsort_keys(_keys(source, length, _SMALL, None))
        launch(
            kernel("within", (*parameters_of("length"), ("first", _IN), ("out", _OUT)), _ONE),
            x.size,
            length,
            first,
            out,
        )
        return out
    first = argsort_keys(_keys(source, x.size, _LOWER, None))
    second = argsort_keys(_keys(source, length, _UPPER, first))
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
