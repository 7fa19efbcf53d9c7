"""NumPy functions for device arrays (`concatenate`, `pad` and others), and cumsum, argmax, argmin, erfc and erfinv.

An operation that calls only such NumPy functions needs no separate code for a GPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.kernels.cuda.arrays import DeviceArray, contiguous, empty
from snncell.kernels.cuda.build import around, as_parts, fill, parts_of, run
from snncell.kernels.loops import Reduced, indent


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


def moveaxis(array: Any, source: int, destination: int) -> Any:
    """`np.moveaxis` of one axis: a view."""
    order = [axis for axis in range(array.ndim) if axis != source % array.ndim]
    order.insert(destination % array.ndim, source % array.ndim)
    return array.transpose(*order)


def concatenate(parts: Any, axis: int = 0) -> Any:
    """`np.concatenate`, by a copy of each part."""
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
    """`np.pad` with a constant: copy the elements into a filled array."""
    out = empty([n + before + after for n, (before, after) in zip(array.shape, widths, strict=True)], array.dtype)
    fill(out, constant_values)  # the constant is a kernel argument, so this can be recorded and never waits
    out[tuple(slice(before, before + n) for n, (before, _) in zip(array.shape, widths, strict=True))] = array
    return out


DeviceArray.rules |= {
    np.broadcast_to: lambda array, shape: array.broadcast_to((shape,) if isinstance(shape, int) else tuple(shape)),
    np.flip: flip,
    np.transpose: lambda array, axes=None: array.transpose(*(axes or ())),
    np.reshape: lambda array, shape: array.reshape(shape),
    np.swapaxes: swapaxes,
    np.moveaxis: moveaxis,
    np.shape: lambda array: array.shape,
    np.ndim: lambda array: array.ndim,
    np.concatenate: concatenate,
    np.pad: pad,
}


# --- The complement and the inverse of the error function -------------------------------------------------------------

_ERFC = "out[i] = {code}(erfc(f8(x[i])))"
# Winitzki's approximation, then three steps of Halley's method, each of which cubes the error. They solve erf(y) = a,
# or erfc(y) = 1 - a for a close to 1.
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
    out = empty(x.shape, x.dtype)
    run(name, body.format(code=dtypes.BY_NUMPY[x.dtype].code), x.size, {}, {"x": contiguous(x)}, {"out": out})
    return out


# --- Scans and reductions along an axis: cumsum, argmax, argmin -------------------------------------------------------

# A long line is cut into parts, with one thread per part; the results of the parts are combined in the same way.

PART = 128  # elements of a line per thread

# Thread `i` processes part `c` of `chunks` of line (`o`, `p`).
_WHERE = """
p = i % inner
c = (i // inner) % chunks
o = i // (inner * chunks)
n = c * part
end = min(n + part, length)
"""
_TOTALS = """
total, lost = {code}(0), {code}(0)
while n < end:
{add}
    n += 1
out[i] = total
"""
_RUNNING = """
total, lost = {code}(0), {code}(0)
if c > 0:
    total = before[i - inner]
while n < end:
{add}
    out[(o * length + n) * inner + p] = total
    n += 1
"""
# The first of the best elements. A NaN beats every number. `{place}` is the position of the n-th candidate.
_BEST = """
found = {place}
best = x[(o * whole + found) * inner + p]
n += 1
while n < end:
    other = {place}
    value = x[(o * whole + other) * inner + p]
    if (value {beats} best or value != value) and best == best:
        best = value
        found = other
    n += 1
out[i] = found
"""


def cumsum(x: DeviceArray, axis: int) -> DeviceArray:
    """`np.cumsum(x, axis, x.dtype)` with compensated summation; long lines are summed in parts."""
    kind, parts = parts_of(x)
    far = dtypes.far(kind.dtype)
    outer, length, inner = around(x.shape, axis)
    out = empty(x.shape, x.dtype)
    if not out.size:
        return out
    source = contiguous(x)
    chunks = -(-length // PART)
    inner *= parts
    term = Reduced("", "x[(o * length + n) * inner + p]", "{0} + {1}", "", kind.code, dtypes.BY_NUMPY[far].code)
    adding = term.compensated("total", "lost") if term.two_levels else [f"total += {term.term}"]
    text = {"code": kind.code, "add": "\n".join(indent(adding))}
    numbers = {"inner": inner, "length": length, "chunks": chunks, "part": PART}
    arrays = {"x": as_parts(source)}
    before = source
    if chunks > 1:
        totals = empty((*x.shape[:axis], chunks, *x.shape[axis + 1 :]), x.dtype)
        body = _WHERE + _TOTALS.format(**text)
        run("part_sums", body, outer * chunks * inner, numbers, arrays, {"out": as_parts(totals)})
        before = cumsum(totals, axis)
    arrays = {"before": as_parts(before), **arrays}
    body = _WHERE + _RUNNING.format(**text)
    run("cumsum", body, outer * chunks * inner, numbers, arrays, {"out": as_parts(out)})
    return out


def argmax(x: DeviceArray, axis: int) -> DeviceArray:
    """`np.argmax(x, axis)`."""
    return _position(x, axis, ">")


def argmin(x: DeviceArray, axis: int) -> DeviceArray:
    """`np.argmin(x, axis)`."""
    return _position(x, axis, "<")


def _position(x: DeviceArray, axis: int, beats: str) -> DeviceArray:
    outer, whole, inner = around(x.shape, axis)
    source, length = contiguous(x), whole
    candidates: DeviceArray | None = None
    while candidates is None or length > 1:
        chunks = -(-length // PART)
        out = empty((outer, chunks, inner), np.dtype(np.int64))
        place = "n" if candidates is None else "given[(o * length + n) * inner + p]"
        body = _WHERE + _BEST.format(place=f"i8({place})", beats=beats)
        numbers = {"whole": whole, "inner": inner, "length": length, "chunks": chunks, "part": PART}
        arrays = {"x": source, "given": out if candidates is None else candidates}
        run("argmax" if beats == ">" else "argmin", body, out.size, numbers, arrays, {"out": out})
        candidates, length = out, chunks
    return candidates.reshape((*x.shape[:axis], *x.shape[axis + 1 :]))
