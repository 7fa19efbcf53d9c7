"""Operations along an axis: running sums, and the positions of the largest and smallest elements.

A line is cut into parts where it is long: each part is one thread's, and so is the row of what they found.
"""

from __future__ import annotations

import numpy as np

from snncell import dtype as dtypes
from snncell.kernels.cuda.arrays import DeviceArray, contiguous, empty
from snncell.kernels.cuda.elementwise import around, as_parts, kernel, launch, parameters_of, parts_of
from snncell.kernels.loops import Reduced, indent

PART = 128  # elements of a line that are one thread's
_PLACES = dtypes.int64

# Thread `i` has part `c` of `chunks` of line `o`, `p`.
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
# The first that beats all others; a NaN beats everything but another. `{place}` is where the n-th candidate stands.
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
    """`np.cumsum(x, axis, x.dtype)`, compensated; long lines are added up in parts."""
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
    numbers, sizes = parameters_of("inner length chunks part"), (inner, length, chunks, PART)
    arrays = ("x", (kind, False)), ("out", (kind, True))
    before = source
    if chunks > 1:
        totals = empty((*x.shape[:axis], chunks, *x.shape[axis + 1 :]), x.dtype)
        add = kernel("part_sums", (*numbers, *arrays), _WHERE + _TOTALS.format(**text))
        launch(add, outer * chunks * inner, *sizes, as_parts(source), as_parts(totals))
        before = cumsum(totals, axis)
    compiled = kernel("cumsum", (*numbers, ("before", (kind, False)), *arrays), _WHERE + _RUNNING.format(**text))
    launch(compiled, outer * chunks * inner, *sizes, as_parts(before), as_parts(source), as_parts(out))
    return out


def argmax(x: DeviceArray, axis: int) -> DeviceArray:
    """`np.argmax(x, axis)`."""
    return _position(x, axis, ">")


def argmin(x: DeviceArray, axis: int) -> DeviceArray:
    """`np.argmin(x, axis)`."""
    return _position(x, axis, "<")


def _position(x: DeviceArray, axis: int, beats: str) -> DeviceArray:
    outer, whole, inner = around(x.shape, axis)
    kind = dtypes.BY_NUMPY[x.dtype]
    source, length = contiguous(x), whole
    candidates: DeviceArray | None = None
    while candidates is None or length > 1:
        chunks = -(-length // PART)
        out = empty((outer, chunks, inner), np.dtype(np.int64))
        place = "n" if candidates is None else "given[(o * length + n) * inner + p]"
        body = _WHERE + _BEST.format(place=f"i8({place})", beats=beats)
        arrays = ("x", (kind, False)), ("given", (_PLACES, False)), ("out", (_PLACES, True))
        name, numbers = "argmax" if beats == ">" else "argmin", parameters_of("whole inner length chunks part")
        compiled = kernel(name, (*numbers, *arrays), body)
        earlier = out if candidates is None else candidates
        launch(compiled, out.size, whole, inner, length, chunks, PART, source, earlier, out)
        candidates, length = out, chunks
    return candidates.reshape((*x.shape[:axis], *x.shape[axis + 1 :]))
