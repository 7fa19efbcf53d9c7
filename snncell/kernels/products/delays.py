"""Products with delays: y[t] = sum_d x[t - d] @ taps[d], over sequences (T, B, N); see `nn/layers/delays.py`.

A row of the window matrix has x[t], x[t - 1], ..., x[t - D] of a sample, one after the other. The product is this
matrix times the taps, (D + 1) N_in rows. For spikes, the events of the window matrix are listed without the matrix
itself, and `matmul.py` adds them. If there are many, each delay is a block of events, which needs no list: the events
of x, some rows later. Dense operands are multiplied delay by delay, without copies, because a shift in time is a shift
by B rows.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from snncell.kernels.arrays import empty
from snncell.kernels.intrinsics.builtins import least
from snncell.kernels.intrinsics.elements import copy, row, tail
from snncell.kernels.intrinsics.panels import DEPTH
from snncell.kernels.numba.build import kernel_for, run_in_parts
from snncell.kernels.numba.policy import PARALLEL_SIZE
from snncell.kernels.numba.threads import BLAS, WORKERS
from snncell.kernels.products import matmul, spectral

# --- Kernel -----------------------------------------------------------------------------------------------------------


def list_windows(
    start: Any, stop: Any, places: Any, values: Any, starts: Any, counts: Any, batch: Any, inputs: Any, firsts: Any,
    own: Any, own_values: Any, own_starts: Any, own_counts: Any, delays: Any,
) -> None:  # fmt: skip
    """List the events of the window matrix, from the events of x (T B, N_in); both as in `matmul.find_all_events`.

    A unit is a time step. `delays` is D + 1, and `firsts` has the index of each row's first event in `own`.
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
    """Add the weights of each event to later rows of `out` (T B, N_out): y[t + delay[i, j], j] += w[i, j] x[t, i].

    A unit is a sample. `late` (N_in, N_out) has delay[i, j] N_out + j, and `geometry` is (D, B). `memory` is
    overwritten.
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
    """The events of the window matrix."""
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

OFTEN = 12  # spikes of a sample per step from which a block for each delay is faster than a list of windows
CHUNK = 256  # rows of a part of a dense product


def limit(x: Any, taps: Any) -> float:
    """The density of x below which `product` is event-driven."""
    (steps, batch, inputs), (delays, _, outputs) = x.shape, taps.shape
    return matmul.limit(steps * batch, delays * inputs, outputs, np.dtype(taps.dtype), False)


def weight_gradient_limit(x: Any, y: Any, delays: int) -> float:
    """The density of x below which `weight_gradient` is event-driven: lower if Fourier transforms are possible."""
    (steps, batch, inputs), outputs = x.shape, y.shape[2]
    share = min(spectral.share(y.shape, (delays, inputs, outputs)), 1.0)
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
    run_in_parts(
        kernel_for(add_late, kinds, weights.dtype),
        batch,
        float(found.counts.sum()) * outputs,
        (
            found.places.reshape(-1),
            found.values.reshape(-1),
            found.starts,
            found.counts,
            late,
            np.ascontiguousarray(weights),
            out,
        ),
        [((steps + longest) * outputs, weights.dtype)],
        np.array([longest, batch]),
    )
    return out.reshape(steps, batch, outputs)


def transposed_product(y: Any, taps: Any) -> Any:
    """The transposed product, x[t] = sum_d y[t + d] @ taps[d].T: (T, B, N_out) -> (T, B, N_in)."""
    if spectral.share(y.shape, taps.shape) < 1.0:
        return spectral.transposed_product(y, taps)
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
    if spectral.share(y.shape, (delays, inputs, outputs)) < 1.0:
        return spectral.weight_gradient(x, y, delays)
    x, y = (np.ascontiguousarray(z).reshape(steps * batch, z.shape[2]) for z in (x, y))
    out = empty((delays, inputs, outputs), y.dtype)

    def multiply(d: int) -> None:
        np.matmul(x[: max(steps - d, 0) * batch].T, y[min(d, steps) * batch :], out=out[d])

    BLAS.run(WORKERS.run, multiply, range(delays))
    return out


def _events(x: Any, dtype: Any, below: float) -> matmul.MatrixEvents:
    return matmul.events_of(
        np.ascontiguousarray(x).reshape(-1, x.shape[2]), dtype=dtype, below=below if below > 0 else -1.0
    )


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
