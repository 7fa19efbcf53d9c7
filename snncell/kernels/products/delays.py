"""Products with delays: y[t] = sum_d x[t - d] @ taps[d], over sequences (T, B, N); see `nn/layers/delays.py`.

A row of the *window matrix* has x[t], x[t - 1], ..., x[t - D] of a sample, one after the other. The product is this
matrix times the taps, as a matrix of (D + 1) N_in rows. For spikes, the events of the window matrix are listed without
the matrix itself, and `matmul.py` adds them. With many spikes, a list takes too long. Then each delay is a block of
columns with the events of x, moved down by some rows. Dense operands are multiplied delay by delay without copies,
because a shift in time is a shift by B rows.

Gradients with many delays are computed in the frequency domain, with about (D + 1) / 3 times fewer multiplications.
Time is cut into blocks of C steps. A discrete Fourier transform of C + D steps turns a sum over delays into one complex
product per frequency. The transforms are products with a matrix of cosines and sines, so BLAS does all the work. In the
result, the rounding errors of the steps of a block depend on each other, and a NaN fills its block. Therefore the
forward pass does not use transforms.

On a GPU, each delay is one product by cuBLAS.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from snncell.kernels.arrays import empty
from snncell.kernels.cuda.arrays import DeviceArray, contiguous, empty as device_empty, zeros
from snncell.kernels.cuda.build import run
from snncell.kernels.intrinsics.builtins import least
from snncell.kernels.intrinsics.elements import copy, row, tail
from snncell.kernels.intrinsics.panels import DEPTH
from snncell.kernels.numba.build import kernel_for, run_in_parts
from snncell.kernels.numba.policy import PARALLEL_SIZE
from snncell.kernels.numba.threads import BLAS, WORKERS
from snncell.kernels.products import matmul
from snncell.kernels.products.device import matmul as device_matmul
from snncell.kernels.space import DEVICE

# --- Kernel -----------------------------------------------------------------------------------------------------------


def list_windows(
    start: Any, stop: Any, places: Any, values: Any, starts: Any, counts: Any, batch: Any, inputs: Any, firsts: Any,
    own: Any, own_values: Any, own_starts: Any, own_counts: Any, delays: Any,
) -> None:  # fmt: skip
    """List the events of the window matrix, from the events of x (T B, N_in); both as in `matmul.find_all_events`. A
    unit is a time step. `delays` is D + 1, and `firsts` has the index of each row's first event in `own`.
    """
    of_x, _ = counts.shape
    blocks, _ = own_counts.shape
    graded = len(values) > 1
    for t in range(start, stop):
        for number in range(t * batch, t * batch + batch):
            at, block = firsts[number], 0
            own_starts[0, number] = at
            for d in range(least(delays, t + 1)):
                for low in range(of_x):
                    source, shift = number - d * batch, d * inputs + low * DEPTH
                    for event in range(starts[low, source], starts[low, source] + counts[low, source]):
                        place = shift + places[event]
                        while place >= block * DEPTH + DEPTH:
                            own_counts[block, number] = at - own_starts[block, number]
                            block += 1
                            own_starts[block, number] = at
                        own[at] = place - block * DEPTH
                        if graded:
                            own_values[at] = values[event]
                        at += 1
            own_counts[block, number] = at - own_starts[block, number]
            for later in range(block + 1, blocks):
                own_starts[later, number] = at
                own_counts[later, number] = 0


def add_late(
    start: Any, stop: Any, grain: Any, places: Any, values: Any, starts: Any, counts: Any, late: Any, weights: Any,
    out: Any, memory: Any, geometry: Any,
) -> None:  # fmt: skip
    """Add the weights of each event to later rows of `out` (T B, N_out): y[t + delay[i, j], j] += w[i, j] x[t, i]. A
    unit is a sample. `late` (N_in, N_out) has delay[i, j] N_out + j, and `geometry` is (D, B). `memory` is overwritten.
    """
    of_x, rows = counts.shape
    _, outputs = weights.shape
    longest, batch = geometry[0], geometry[1]
    steps = rows // batch
    graded = 0 if len(values) == 1 else 1
    sums = row(memory, start // grain)
    for sample in range(start, stop):
        for n in range((steps + longest) * outputs):
            sums[n] = 0
        for t in range(steps):
            now = tail(sums, t * outputs)
            for low in range(of_x):
                first = starts[low, t * batch + sample]
                for event in range(first, first + counts[low, t * batch + sample]):
                    source = low * DEPTH + places[event]
                    own, place, value = row(weights, source), row(late, source), values[event * graded]
                    for j in range(outputs):
                        now[place[j]] += own[j] * value
        for t in range(steps):
            copy(row(out, t * batch + sample), tail(sums, t * outputs), outputs)


_KINDS = "int16[1] T[1] int64[2] int32[2] int64 int64 int64[1] int16[1]* T[1]* int64[2]* int32[2]* int64"


def _windows(found: matmul.MatrixEvents, steps: int, inputs: int, delays: int) -> matmul.MatrixEvents:
    rows = found.counts.shape[1]
    sums = np.zeros((steps + 1, rows // steps), np.int64)
    np.cumsum(found.counts.sum(0).reshape(steps, -1), 0, out=sums[1:])
    of_windows = (sums[1:] - sums[np.maximum(np.arange(1, steps + 1) - delays, 0)]).reshape(-1)
    ends = np.cumsum(of_windows)
    total, kind = int(ends[-1]), found.values.dtype
    values = found.values.reshape(-1)
    own_values = empty((total,), kind) if values.size > 1 else values
    shape = -(-delays * inputs // DEPTH), rows
    own = matmul.MatrixEvents(
        empty((total,), np.dtype(np.int16)), own_values, np.empty(shape, np.int64), np.empty(shape, np.int32)
    )
    kernel_for(list_windows, _KINDS, kind)(
        *(steps, int(4 * total >= PARALLEL_SIZE), found.places.reshape(-1), values, found.starts, found.counts),
        *(rows // steps, inputs, ends - of_windows, *own, delays),
    )
    return own


# --- Products ---------------------------------------------------------------------------------------------------------

OFTEN = 12  # spikes of a sample per step; from this number on, a block for each delay is faster than a list
CHUNK = 256  # rows of a part of a dense product


def limit(x: Any, taps: Any) -> float:
    """The density of x below which `product` is event-driven."""
    (steps, batch, inputs), (delays, _, outputs) = x.shape, taps.shape
    return matmul.limit(steps * batch, delays * inputs, outputs, np.dtype(taps.dtype), False)


def weight_gradient_limit(x: Any, y: Any, delays: int) -> float:
    """The density of x below which `weight_gradient` is event-driven: lower if Fourier transforms are possible."""
    (steps, batch, inputs), outputs = x.shape, y.shape[2]
    share = min(transform_share(y.shape, (delays, inputs, outputs)), 1.0)
    return share * matmul.limit(delays * inputs, steps * batch, outputs, np.dtype(y.dtype), True)


def product(x: Any, taps: Any) -> Any:
    """y[t] = sum_d x[t - d] @ taps[d]: (T, B, N_in), (D + 1, N_in, N_out) -> (T, B, N_out)."""
    (steps, batch, inputs), (delays, _, outputs) = x.shape, taps.shape
    found = _events(x, taps.dtype, limit(x, taps))
    if not found.counts.size:
        return _shifted(x, taps, 1)
    sizes, flat = (steps * batch, delays * inputs), np.ascontiguousarray(taps).reshape(-1, outputs)
    options: dict[str, Any] = {"by_columns": False, "turned": False}
    if inputs <= DEPTH and found.counts.sum() >= OFTEN * steps * batch:
        found, options["reach"] = _late(found, batch, delays), inputs
    else:
        found = _windows(found, steps, inputs, delays)
    return matmul.product_by_events(found, sizes, flat, **options).reshape(steps, batch, outputs)


def _late(found: matmul.MatrixEvents, batch: int, delays: int) -> matmul.MatrixEvents:
    """The events of the window matrix in blocks of N_in columns: block d has the events of x[t - d]."""
    starts, counts = (np.zeros((delays, of_x.shape[1]), of_x.dtype) for of_x in (found.starts, found.counts))
    for late, of_x in ((starts, found.starts), (counts, found.counts)):
        for d in range(min(delays, -(-late.shape[1] // batch))):
            late[d, d * batch :] = of_x[0, : late.shape[1] - d * batch]
    return found._replace(starts=starts, counts=counts)


def product_per_synapse(x: Any, weights: Any, delays: Any, longest: int) -> Any:
    """y[t, b, j] = sum_i w[i, j] x[t - delay[i, j], b, i], with one integer delay for each synapse, up to `longest`."""
    (steps, batch, _), outputs = x.shape, weights.shape[1]
    found = _events(x, weights.dtype, math.inf)
    out = empty((steps * batch, outputs), weights.dtype)
    if not found.counts.size:
        out[...] = 0
        return out.reshape(steps, batch, outputs)
    late = np.ascontiguousarray(delays * outputs + np.arange(outputs), np.int32)
    kinds = "int64 int16[1] T[1] int64[2] int32[2] int32[2] T[2] T[2]* T[2]* int64[1]"
    lists = found.places.reshape(-1), found.values.reshape(-1), found.starts, found.counts
    work, scratch = float(found.counts.sum()) * outputs, [((steps + longest) * outputs, weights.dtype)]
    operands = *lists, late, np.ascontiguousarray(weights), out
    kernel = kernel_for(add_late, kinds, weights.dtype)
    run_in_parts(kernel, batch, work, operands, scratch, np.array([longest, batch]))
    return out.reshape(steps, batch, outputs)


def transposed_product(y: Any, taps: Any) -> Any:
    """The transposed product, x[t] = sum_d y[t + d] @ taps[d].T: (T, B, N_out) -> (T, B, N_in)."""
    if transform_share(y.shape, taps.shape) < 1.0:
        return BLAS.run(_transposed_by_transforms, np.ascontiguousarray(y), np.ascontiguousarray(taps))
    return _shifted(y, taps.transpose(0, 2, 1), -1)


def weight_gradient(x: Any, y: Any, delays: int) -> Any:
    """The gradient of the taps, sum_{t, b} x[t - d, b, i] y[t, b, j]: (delays, N_in, N_out)."""
    (steps, batch, inputs), outputs = x.shape, y.shape[2]
    found = _events(x, y.dtype, weight_gradient_limit(x, y, delays))
    if found.counts.size:
        windows, flat = _windows(found, steps, inputs, delays), np.ascontiguousarray(y).reshape(-1, outputs)
        sizes = delays * inputs, steps * batch
        out = matmul.product_by_events(windows, sizes, flat, by_columns=True, turned=False)
        return out.reshape(delays, inputs, outputs)
    if transform_share(y.shape, (delays, inputs, outputs)) < 1.0:
        return BLAS.run(_gradient_by_transforms, np.ascontiguousarray(x), np.ascontiguousarray(y), delays)
    x, y = (np.ascontiguousarray(z).reshape(steps * batch, z.shape[2]) for z in (x, y))
    out = empty((delays, inputs, outputs), y.dtype)

    def multiply(d: int) -> None:
        np.matmul(x[: max(steps - d, 0) * batch].T, y[min(d, steps) * batch :], out=out[d])

    BLAS.run(WORKERS.run, multiply, range(delays))
    return out


def _events(x: Any, dtype: Any, below: float) -> matmul.MatrixEvents:
    rows = np.ascontiguousarray(x).reshape(-1, x.shape[2])
    return matmul.events_of(rows, dtype=dtype, below=below if below > 0 else -1.0)


def _shifted(x: Any, taps: Any, sign: int) -> Any:
    """y[t] = sum_d x[t - sign d] @ taps[d] by BLAS, in parts that depend only on the sizes."""
    steps, batch, inputs = x.shape
    delays, _, outputs = taps.shape
    rows, flat = steps * batch, np.ascontiguousarray(x).reshape(steps * batch, inputs)
    out = empty((rows, outputs), taps.dtype)

    def multiply(first: int) -> None:
        own = out[first : first + CHUNK]
        own[...] = 0
        space = np.empty_like(own)
        for d in range(delays):
            low, high = first - sign * d * batch, first + len(own) - sign * d * batch
            start, stop = max(low, 0), min(high, rows)
            if start < stop:
                part = space[: stop - start]
                np.matmul(flat[start:stop], taps[d], out=part)
                own[start - low : stop - low] += part

    BLAS.run(WORKERS.run, multiply, range(0, rows, CHUNK))
    return out.reshape(steps, batch, outputs)


# --- Gradients by Fourier transforms of time --------------------------------------------------------------------------

# `_transposed_by_transforms` and `_gradient_by_transforms` compute `transposed_product` and `weight_gradient`.

GROUP = 8  # frequencies whose transformed taps are in memory at the same time
MARGIN = 1.5  # products of these shapes run slower than large ones
COLUMNS = 2048  # columns of a part of a transform


@functools.lru_cache(64)
def _waves(length: int, steps: int, dtype: Any) -> tuple[Any, Any]:
    """The transform of `steps` of a period of `length` to pairs (real, imaginary), (2 F, steps), and its inverse."""
    frequencies = length // 2 + 1
    turns = np.outer(np.arange(frequencies), np.arange(steps)) % length * (2 * np.pi / length)
    waves = np.stack([np.cos(turns), -np.sin(turns)], 1)
    weight = np.full((frequencies, 1, 1), 2.0 / length)
    weight[0] = 1.0 / length
    if length % 2 == 0:
        weight[-1] = 1.0 / length
    return waves.reshape(-1, steps).astype(dtype), (waves * weight).reshape(-1, steps).T.astype(dtype)


def _multiply(matrix: Any, x: Any, out: Any) -> None:
    """`matrix @ x` for an `x` with many columns."""
    columns = x.shape[1]

    def multiply(first: int) -> None:
        own = slice(first, first + COLUMNS)
        np.matmul(matrix, x[:, own], out=out[:, own])

    WORKERS.run(multiply, range(0, columns, COLUMNS))


def _count_multiplications(blocks: int, steps: int, batch: int, delays: int, inputs: int, outputs: int) -> float:
    """The number of multiplications. Those that transform the taps count twice, because they take twice as long."""
    length, rows = -(-steps // blocks) + delays - 1, blocks * batch
    transforms = length * length * rows * (inputs + outputs) + 2 * length * delays * inputs * outputs
    return transforms + 2.0 * length * rows * inputs * outputs


@functools.lru_cache(1024)
def _blocks(*sizes: int) -> tuple[int, int, float]:
    """The number of blocks, the steps of each, and the multiplications, for the sizes of `_count_multiplications`."""
    steps, _, delays, *_ = sizes
    lengths = {min(steps, half * delays // 2) for half in range(2, 17)}
    work, blocks = min((_count_multiplications(n, *sizes), n) for n in {-(-steps // own) for own in lengths})
    return blocks, -(-steps // blocks), work


def _transform(x: Any, blocks: int, own: int, reach: int, length: int) -> Any:
    """Transform blocks of `reach` steps, `own` after the previous one: (T, B, N) -> (F, 2, blocks, B, N)."""
    _, batch, channels = x.shape
    waves, _ = _waves(length, reach, x.dtype)
    out = empty((len(waves), blocks, batch * channels), x.dtype)
    for block in range(blocks):
        part = x[block * own : block * own + reach].reshape(-1, batch * channels)
        _multiply(waves[:, : len(part)], part, out[:, block])
    return out.reshape(-1, 2, blocks * batch, channels)


def transform_share(y: tuple[int, ...], taps: tuple[int, ...]) -> float:
    """The estimated time of a gradient by transforms divided by its direct time, from the multiplications."""
    (steps, batch, outputs), (delays, inputs, _) = y, taps
    if min(steps, delays, batch * inputs * outputs) <= 1:
        return 1.0
    *_, work = _blocks(steps, batch, delays, inputs, outputs)
    return MARGIN * work / (delays * steps * batch * inputs * outputs)


def _transposed_by_transforms(y: Any, taps: Any) -> Any:
    (steps, batch, outputs), (delays, inputs, _) = y.shape, taps.shape
    blocks, own, _ = _blocks(steps, batch, delays, inputs, outputs)
    length = own + delays - 1
    transformed = _transform(y, blocks, own, length, length)
    frequencies, _, rows, _ = transformed.shape
    products = empty((frequencies, 2, rows, inputs), y.dtype)
    waves, _ = _waves(length, delays, y.dtype)
    flat = taps.reshape(delays, -1)

    def multiply(first: int) -> None:
        last = min(first + GROUP, frequencies)
        of_taps = (waves[2 * first : 2 * last] @ flat).reshape(last - first, 2 * inputs, outputs)
        for n in range(first, last):
            both = transformed[n].reshape(2 * rows, outputs) @ of_taps[n - first].T
            both = both.reshape(2, rows, 2, inputs)
            np.add(both[0, :, 0], both[1, :, 1], out=products[n, 0])
            np.subtract(both[1, :, 0], both[0, :, 1], out=products[n, 1])

    WORKERS.run(multiply, range(0, frequencies, GROUP))
    _, inverse = _waves(length, own, y.dtype)
    out = empty((blocks, own, batch * inputs), y.dtype)
    products = products.reshape(2 * frequencies, blocks, -1)
    for block in range(blocks):
        _multiply(inverse, products[:, block], out[block])
    return out.reshape(-1, batch, inputs)[:steps]


def _gradient_by_transforms(x: Any, y: Any, delays: int) -> Any:
    (steps, batch, inputs), outputs = x.shape, y.shape[2]
    blocks, own, _ = _blocks(steps, batch, delays, inputs, outputs)
    length = own + delays - 1
    of_x, of_y = _transform(x, blocks, own, own, length), _transform(y, blocks, own, length, length)
    frequencies, _, rows, _ = of_y.shape
    _, inverse = _waves(length, delays, y.dtype)
    products = empty((2 * frequencies, inputs, outputs), y.dtype)

    def multiply(n: int) -> None:
        left = of_x[n].reshape(2 * rows, inputs).T
        turned = np.concatenate([of_y[n, 1], -of_y[n, 0]])
        np.matmul(left, of_y[n].reshape(2 * rows, outputs), out=products[2 * n])
        np.matmul(left, turned, out=products[2 * n + 1])

    WORKERS.run(multiply, range(frequencies))
    out = empty((delays, inputs * outputs), y.dtype)
    _multiply(inverse, products.reshape(2 * frequencies, -1), out)
    return out.reshape(delays, inputs, outputs)


# --- On a GPU ---------------------------------------------------------------------------------------------------------


def device_product(x: DeviceArray, taps: DeviceArray, back: bool) -> DeviceArray:
    """y[t] = sum_d x[t - d] @ taps[d]; with `back`, y[t] = sum_d x[t + d] @ taps[d].T."""
    steps, batch, inputs = x.shape
    outputs = taps.shape[1 if back else 2]
    out = zeros((steps, batch, outputs), taps.dtype)
    for d in range(min(len(taps), steps)):
        source, target = slice(d, None), slice(None, steps - d)
        if not back:
            source, target = target, source
        part = device_matmul(x[source].reshape(-1, inputs), taps[d].T if back else taps[d])
        out[target] = DEVICE.add(out[target], part.reshape(steps - d, batch, outputs))
    return out


def device_weight_gradient(x: DeviceArray, y: DeviceArray, delays: int) -> DeviceArray:
    """The gradient of the taps, sum_{t, b} x[t - d, b, i] y[t, b, j]: (delays, N_in, N_out)."""
    steps, (_, batch, outputs) = len(x), y.shape
    out = zeros((delays, x.shape[2], outputs), y.dtype)
    for d in range(min(delays, steps)):
        out[d] = device_matmul(x[: steps - d].reshape((steps - d) * batch, -1).T, y[d:].reshape(-1, outputs))
    return out


_OF_ONE = """
j = i % outputs
now = i // outputs
total = {cast}(0)
for source in range(inputs):
    before = now - i8(delays[source * outputs + j]) * batch
    if before >= 0:
        total += weights[source * outputs + j] * x[before * inputs + source]
out[i] = total
"""


def device_product_per_synapse(x: DeviceArray, weights: DeviceArray, delays: DeviceArray, longest: int) -> DeviceArray:
    """y[t, b, j] = sum_i w[i, j] x[t - delay[i, j], b, i], with one thread per element of y."""
    steps, batch, inputs = x.shape
    out = device_empty((steps, batch, weights.shape[1]), weights.dtype)
    if out.size:
        numbers = {"batch": batch, "inputs": inputs, "outputs": weights.shape[1]}
        given = {"x": contiguous(x), "weights": contiguous(weights), "delays": contiguous(delays)}
        body = _OF_ONE.format(cast={4: "f4", 8: "f8"}[weights.dtype.itemsize])
        run("product_per_synapse", body, out.size, numbers, given, {"out": out})
    return out
