"""Products with a sparse weight on its pattern: x @ M, y @ M.T, and the elements of x.T @ y that M has.

M (N_in, N_out) is stored by rows (`csr.Rows`): a row lists the synapses of one input. For x @ M, the nonzero elements
of M.T are the events of a product with a matrix that has one column per sample (`matmul.py`). So the inner loop adds
contiguous samples, in vector registers. If few elements of x are nonzero, for example spikes, the synapses of these
inputs are added one by one instead. The order of the events depends on the places alone, and is kept as long as the
array of places exists.
"""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

import numpy as np

from snncell.kernels.arrays import ALIGNMENT, empty
from snncell.kernels.cuda.arrays import DeviceArray, contiguous, empty as empty_on_device
from snncell.kernels.cuda.build import run
from snncell.kernels.intrinsics.builtins import least
from snncell.kernels.intrinsics.elements import row, strip, tail
from snncell.kernels.intrinsics.panels import DEPTH, add_products
from snncell.kernels.numba.build import PARALLEL_WORK, kernel_for
from snncell.kernels.products import csr, matmul
from snncell.kernels.products.gathers import pack_strips

# --- Kernels ----------------------------------------------------------------------------------------------------------

LANES = 16  # depends on the dtype
SAMPLES = 64  # samples of a strip: 4096 outputs of a strip fill an L2 cache
FOURS = 16  # groups of four synapses that are multiplied together
INPUTS = 256  # inputs whose synapses stay in the cache for all samples
SYNAPSES = 1 << 14


def add_synapses(start: Any, stop: Any, x: Any, starts: Any, places: Any, values: Any, out: Any) -> None:
    """`out = x @ M` from the nonzero elements of x. A unit is a row of x."""
    _, inputs = x.shape
    _, outputs = out.shape
    for number in range(start, stop):
        given, sums = row(x, number), row(out, number)
        for j in range(outputs):
            sums[j] = 0
        for i in range(inputs):
            value = given[i]
            if value != 0:
                for synapse in range(starts[i], starts[i + 1]):
                    sums[places[synapse]] += value * values[synapse]


def multiply_on_pattern(
    start: Any, stop: Any, x: Any, y: Any, starts: Any, counts: Any, places: Any, outputs: Any, samples: Any, out: Any
) -> None:  # fmt: skip
    """`out[e] = sum over n of x[n, i] y[n, place of e]` for the synapses e of input i. A unit is an input. x and y are
    in strips of SAMPLES samples: strip k begins at element k SAMPLES N, and has a row for each input or output. The
    synapses are the events of M, in blocks of DEPTH places.
    """
    blocks, inputs = counts.shape
    four, sums, offsets = 4, strip(16 * FOURS, x), strip(4 * FOURS, starts)
    for first in range(0, samples, SAMPLES):
        stride = (least(SAMPLES, samples - first) + LANES - 1) // LANES * LANES
        for block in range(blocks):
            of_x, of_y = tail(x, first * inputs), tail(y, first * outputs + block * DEPTH * stride)
            for i in range(start, stop):
                begin, end = starts[block, i], starts[block, i] + counts[block, i]
                for low in range(begin, end, 4 * FOURS):
                    count = least(4 * FOURS, end - low)
                    groups = (count + 3) // four
                    for k in range(4 * groups):
                        offsets[k] = places[low + least(k, count - 1)] * stride
                    for k in range(16 * groups):
                        sums[k] = 0
                    slope = tail(of_x, i * stride)
                    add_products(tail(sums, 0), slope, 1, 0, of_y, tail(offsets, 0), groups, stride, 1, 0, 0)
                    for k in range(count):
                        out[low + k] = sums[4 * k] if first == 0 else out[low + k] + sums[4 * k]


def multiply_events_on_pattern(
    start: Any, stop: Any, x: Any, y: Any, starts: Any, places: Any, samples: Any, out: Any
) -> None:
    """As `multiply_on_pattern`, from the nonzero elements of x, for matrices x and y instead of strips."""
    for low in range(start, stop, INPUTS):
        high = least(low + INPUTS, stop)
        for synapse in range(starts[low], starts[high]):
            out[synapse] = 0
        for number in range(samples):
            given, slope = row(x, number), row(y, number)
            for i in range(low, high):
                value = given[i]
                if value != 0:
                    for synapse in range(starts[i], starts[i + 1]):
                        out[synapse] += value * slope[places[synapse]]


def take_values(start: Any, stop: Any, values: Any, order: Any, out: Any) -> None:
    """`out[e] = values[order[e]]`. A unit has SYNAPSES elements."""
    for e in range(start * SYNAPSES, least(stop * SYNAPSES, len(order))):
        out[e] = values[order[e]]


class SynapseOrder(NamedTuple):
    """The events of M and of M.T, without their values."""

    rows: matmul.MatrixEvents
    columns: matmul.MatrixEvents
    order: Any  # the number of the synapse of each event of M.T
    pattern: tuple[Any, Any]  # copies of the arrays of M for which it was made


_orders: dict[int, SynapseOrder] = {}  # by the id of the array of places


def order_of(starts: Any, places: Any, shape: tuple[int, ...]) -> SynapseOrder:
    """The order of the synapses of a pattern, which is checked and sorted at its first use."""
    key = id(places)
    known = _orders.get(key)
    # Compare the elements, because PyTorch writes into the memory of Parameters that it shares.
    if known is not None and all(map(np.array_equal, known.pattern, (starts, places))):
        return known
    wide = np.dtype(np.float64)
    numbers = csr.Rows(starts, places, np.arange(len(places), dtype=wide), shape)
    csr.check(numbers, "SparseDense")
    found = csr.split(numbers, wide)
    columns = matmul.sort_by_columns(found, shape[1], len(places))
    order = columns.values.astype(np.int32)
    made = SynapseOrder(
        found._replace(values=None), columns._replace(values=None), order, (starts.copy(), places.copy())
    )
    weakref.finalize(places, _orders.pop, key, None).atexit = False
    _orders[key] = made
    return made


EVENTFUL = 0.07  # the density of x below which its synapses are added one by one
PARTS = 16  # of the inputs, for threads; each part reads all of y


def product(m: csr.Rows, x: Any, back: bool) -> Any:
    """`x @ m`, or `x @ m.T` if `back`, for a matrix x of the dtype of m."""
    inputs, outputs = m.shape
    sizes, known = (inputs, outputs) if back else (outputs, inputs), order_of(m.starts, m.places, m.shape)
    work = len(x) * len(m.places)
    if not work:
        return np.zeros((len(x), sizes[0]), x.dtype)
    x = np.ascontiguousarray(x)
    if not back and matmul.estimate_density(x) < EVENTFUL:
        out = empty((len(x), sizes[0]), x.dtype)
        kernel = kernel_for(add_synapses, "T[2] int64[1] int32[1] T[1] T[2]*", x.dtype)
        kernel(len(x), int(work * EVENTFUL >= PARALLEL_WORK), x, m.starts, m.places, m.values, out)
        return out
    events, values = known.rows, m.values
    if not back:
        events, values = known.columns, empty(values.shape, values.dtype)
        units = -(-len(values) // SYNAPSES)
        kernel_for(take_values, "T[1] int32[1] T[1]*", x.dtype)(units, int(units > 8), m.values, known.order, values)
    return matmul.product_by_events(events._replace(values=values), sizes, x.T, by_columns=False, turned=True)


def product_on_pattern(starts: Any, places: Any, x: Any, y: Any) -> Any:
    """The elements of `x.T @ y` on a pattern, for matrices x and y with a row for each sample."""
    samples, work, (inputs, outputs) = len(x), len(x) * len(places), (x.shape[1], y.shape[1])
    events = order_of(starts, places, (inputs, outputs)).rows
    out = empty((len(places),), y.dtype)
    if not work:
        out[...] = 0
        return out
    x, y = np.ascontiguousarray(x), np.ascontiguousarray(y)
    grain = -(-inputs // PARTS) if work >= PARALLEL_WORK else 0
    if matmul.estimate_density(x) < EVENTFUL:
        kinds = "T[2] T[2] int64[1] int32[1] int64 T[1]*"
        kernel_for(multiply_events_on_pattern, kinds, y.dtype)(inputs, grain, x, y, starts, places, samples, out)
        return out
    strips = [pack_strips(each.T, SAMPLES) for each in (x, y)]
    kinds = "T[1] T[1] int64[2] int32[2] int16[1] int64 int64 T[1]*"
    kernel = kernel_for(multiply_on_pattern, kinds, y.dtype, LANES=ALIGNMENT // y.itemsize)
    kernel(inputs, grain, *strips, events.starts, events.counts, events.places, outputs, samples, out)
    return out


# --- On the device: one thread per synapse ----------------------------------------------------------------------------

_ON_PATTERN = """
low = i8(0)
high = inputs
while low < high:
    middle = (low + high) // 2
    if i8(starts[middle + 1]) <= i:
        low = middle + 1
    else:
        high = middle
place = i8(places[i])
total = {cast}(0)
if low < inputs and place >= 0 and place < outputs:
    for sample in range(samples):
        total += x[sample * inputs + low] * y[sample * outputs + place]
out[i] = total
"""


def product_on_device(
    starts: DeviceArray, places: DeviceArray, values: DeviceArray, x: DeviceArray, shape: tuple[int, int], back: bool
) -> DeviceArray:
    """`product` for arrays on the device, with a dense matrix."""
    m = csr.fill_array(starts, places, values, shape)
    out: DeviceArray = matmul.matmul(x, m.T if back else m)
    return out


def product_on_pattern_on_device(
    starts: DeviceArray, places: DeviceArray, x: DeviceArray, y: DeviceArray
) -> DeviceArray:
    """`product_on_pattern` for arrays on the device."""
    out = empty_on_device(places.shape, y.dtype)
    if out.size:
        numbers = {"inputs": x.shape[1], "outputs": y.shape[1], "samples": len(x)}
        given = {"starts": starts, "places": places, "x": x, "y": y}
        body = _ON_PATTERN.format(cast={4: "f4", 8: "f8"}[y.dtype.itemsize])
        run("product_on_pattern", body, out.size, numbers, {k: contiguous(v) for k, v in given.items()}, {"out": out})
    return out
