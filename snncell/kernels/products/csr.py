"""Compressed sparse rows (CSR): arrays that store only their nonzero elements, the events.

They save the search for events if they are the first operand of a product. `starts` (rows + 1) has the index in
`places` and `values` at which each row begins. The elements of a row are in ascending order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.errors import TensorIndexError
from snncell.kernels.arrays import empty
from snncell.kernels.cuda.arrays import DeviceArray, contiguous, empty as empty_on_device
from snncell.kernels.cuda.build import as_bits, bits_of, run
from snncell.kernels.intrinsics.builtins import least
from snncell.kernels.intrinsics.elements import row
from snncell.kernels.intrinsics.panels import DEPTH
from snncell.kernels.numba.build import kernel_for
from snncell.kernels.products import matmul

# --- Kernels: a unit is ROWS rows -------------------------------------------------------------------------------------

ROWS = 64  # rows per unit


def check_rows(start: Any, stop: Any, starts: Any, places: Any, elements: Any, wrong: Any) -> None:
    """Store in `wrong`, for each unit, the first row without ascending places below `elements`, or -1."""
    rows, room = len(starts) - 1, len(places)
    for unit in range(start, stop):
        found = -1
        for number in range(unit * ROWS, least(rows, unit * ROWS + ROWS)):
            begin, end = starts[number], starts[number + 1]
            fault, before = begin < 0 or end < begin or end > room, -1
            if not fault:
                for event in range(begin, end):
                    place = places[event]
                    fault = fault or place <= before
                    before = place
            if (fault or before >= elements) and found < 0:
                found = number
        wrong[unit] = found


def split_rows(
    start: Any, stop: Any, starts: Any, places: Any, values: Any, own: Any, own_values: Any, firsts: Any, counts: Any,
    graded: Any,
) -> None:  # fmt: skip
    """Split the events of each row into blocks of DEPTH places, in the form of `matmul.find_all_events`. Places are
    counted from the start of their block. `graded` is set to 1 for units with a value other than 1.
    """
    blocks, rows = counts.shape
    for unit in range(start, stop):
        graded[unit] = 0
        for number in range(unit * ROWS, least(rows, unit * ROWS + ROWS)):
            event, end = starts[number], starts[number + 1]
            for block in range(blocks):
                before, limit = event, block * DEPTH + DEPTH
                while event < end and places[event] < limit:
                    own[event] = places[event] - block * DEPTH
                    own_values[event] = values[event]
                    graded[unit] |= own_values[event] != 1
                    event += 1
                firsts[block, number] = before
                counts[block, number] = event - before


def fill_rows_kernel(start: Any, stop: Any, starts: Any, places: Any, values: Any, out: Any) -> None:
    """Fill the rows of the dense array `out`."""
    rows, elements = out.shape
    for unit in range(start, stop):
        for number in range(unit * ROWS, least(rows, unit * ROWS + ROWS)):
            of_row = row(out, number)
            for place in range(elements):
                of_row[place] = 0
            for event in range(starts[number], starts[number + 1]):
                of_row[places[event]] = values[event]


def move_rows_kernel(
    start: Any, stop: Any, firsts: Any, starts: Any, places: Any, values: Any, to_places: Any, to_values: Any
) -> None:
    """Move the elements of each row from index `firsts` to index `starts`."""
    for unit in range(start, stop):
        for number in range(unit * ROWS, least(len(starts) - 1, unit * ROWS + ROWS)):
            first, begin = firsts[number], starts[number]
            for event in range(starts[number + 1] - begin):
                to_places[begin + event] = places[first + event]
                to_values[begin + event] = values[first + event]


PARALLEL_EVENTS = 1 << 16  # from this number of events on, threads save time


@dataclass(frozen=True, slots=True)
class Rows:
    """A sparse array (rows..., elements...), stored by its nonzero elements.
    For example, the rows [0, 5, 0] and [7, 0, 8] have starts (0, 1, 3), places (1, 0, 2) and values (5, 7, 8).
    """

    starts: Any  # int64 (R + 1,), the index of the first element of each row
    places: Any  # int32 (E,), the position of each element in its row, ascending within a row
    values: Any  # (E,), of any dtype
    shape: tuple[int, ...]  # of the dense array: its first axes are the R rows, the others the elements of a row

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def ndim(self) -> int:
        """The number of axes of the array."""
        return len(self.shape)

    @property
    def dtype(self) -> Any:
        """The dtype of the elements."""
        return self.values.dtype

    @property
    def size(self) -> int:
        """The number of elements of the dense array."""
        return math.prod(self.shape)

    @property
    def count(self) -> int:
        """The number of rows, R."""
        return len(self.starts) - 1

    @property
    def elements(self) -> int:
        """The number of elements of a dense row."""
        return self.size // self.count if self.count else 0

    @property
    def density(self) -> float:
        """The fraction of elements that are stored."""
        return float(self.starts[-1] - self.starts[0]) / max(1, self.size)

    def reshape(self, *shape: int) -> Rows:
        """The same rows with another dense shape."""
        return replace(self, shape=shape)

    def astype(self, dtype: Any) -> Rows:
        """The same elements in another dtype."""
        return self if self.dtype == dtype else replace(self, values=self.values.astype(dtype))


def check(rows: Rows, who: str) -> None:
    """Raise TensorIndexError for inconsistent rows, because kernels do not check bounds."""
    starts, places, elements = rows.starts, rows.places, rows.elements
    units = -(-rows.count // ROWS)
    wrong = np.empty(units, np.int64)
    kernel = kernel_for(check_rows, "int64[1] int32[1] int64 int64[1]*")
    kernel(units, _grain(rows), starts, places, elements, wrong)
    if (found := np.flatnonzero(wrong >= 0)).size:
        number = int(wrong[found[0]])
        raise TensorIndexError(
            f"{who}: row {number} of the event lists is invalid. Its events are listed from {starts[number]} up to "
            f"{starts[number + 1]} of {len(places)}; their indices must ascend and be from 0 to {elements - 1}."
        )


def fill_rows(rows: Rows, dtype: Any) -> Any:
    """The dense array."""
    kept = dtypes.compute_dtype(dtype)
    out = empty((rows.count, rows.elements), kept)
    source = rows.astype(kept) if kept.kind == "c" or dtypes.is_storage_only(rows.dtype) else rows
    units = -(-rows.count // ROWS)
    kernel = kernel_for(fill_rows_kernel, "int64[1] int32[1] S[1] T[2]*", kept, source.dtype)
    kernel(units, int(out.size >= PARALLEL_EVENTS), source.starts, source.places, source.values, out)
    return out.reshape(rows.shape).astype(dtype, copy=False)


def limit(rows: int, elements: int, n: int, dtype: Any, *, by_columns: bool) -> float:
    """The density of rows below which their product is event-driven; 0 if it never is."""
    m, k = (elements, rows) if by_columns else (rows, elements)
    return matmul.limit(m, k, n, np.dtype(dtype), by_columns)


def product(rows: Rows, y: Any, *, by_columns: bool = False, turned: bool = False) -> Any:
    """`x @ y` for sparse rows x, or `x.T @ y` if `by_columns`; the transpose of the result if `turned`."""
    count, elements = rows.shape
    if rows.density >= limit(count, elements, y.shape[1], y.dtype, by_columns=by_columns):
        x = fill_rows(rows, y.dtype)
        return matmul.matmul(x.T if by_columns else x, y, turned=turned)
    sizes = (elements, count) if by_columns else (count, elements)
    return matmul.product_by_events(split(rows, y.dtype), sizes, y, by_columns=by_columns, turned=turned)


def split(rows: Rows, dtype: Any) -> matmul.MatrixEvents:
    """The elements in blocks of DEPTH places, as events of a matrix of this dtype."""
    count, room, units = rows.count, len(rows.places), -(-rows.count // ROWS)
    blocks = -(-rows.elements // DEPTH)
    lists = empty((room,), np.dtype(np.int16)), empty((room,), dtype)
    found = matmul.MatrixEvents(*lists, np.empty((blocks, count), np.int64), np.empty((blocks, count), np.int32))
    graded = np.empty(units, np.int32)
    source = rows.astype(dtype) if dtypes.is_storage_only(rows.dtype) else rows
    kinds = "int64[1] int32[1] S[1] int16[1]* T[1]* int64[2]* int32[2]* int32[1]*"
    kernel = kernel_for(split_rows, kinds, dtype, source.dtype)
    kernel(units, _grain(rows), source.starts, source.places, source.values, *found, graded)
    return found if graded.any() else found._replace(values=np.ones((1,), dtype))


def move_rows(firsts: Any, starts: Any, places: Any, values: Any, room: int) -> tuple[Any, Any]:
    """Copy rows from index `firsts` to index `starts`, into new places and values with `room` elements."""
    bits = values.view(np.dtype(f"i{values.dtype.itemsize}"))  # one kernel for all dtypes of this size
    to_places, to_values = empty((room,), np.dtype(np.int32)), empty((room,), bits.dtype)
    to_places[starts[-1] :], to_values[starts[-1] :] = 0, 0
    units = -(-len(firsts) // ROWS)
    kernel = kernel_for(move_rows_kernel, "int64[1] int64[1] int32[1] T[1] int32[1]* T[1]*", bits.dtype)
    kernel(units, int(room >= PARALLEL_EVENTS), firsts, starts, places, bits, to_places, to_values)
    return to_places, to_values.view(values.dtype)


def _grain(rows: Rows) -> int:
    return int(len(rows.places) >= PARALLEL_EVENTS)


# --- On the device: one thread per element of the dense array ---------------------------------------------------------

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
    """The dense array of a shape; elements that are out of range are dropped."""
    bits, parts = bits_of(values)
    out = empty_on_device(shape, values.dtype)
    size = math.prod(shape)
    if size:
        numbers = {"elements": size // (starts.size - 1), "room": places.size, "parts": parts}
        given = {"starts": contiguous(starts), "places": contiguous(places), "values": as_bits(contiguous(values))}
        run("fill_rows", _FILL.format(cast=bits.code), size * parts, numbers, given, {"out": as_bits(out)})
    return out
