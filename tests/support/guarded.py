"""Kernels on arrays next to protected memory pages: `python guarded.py SEEDS`, started by a test as a process.

A kernel that accesses memory outside an array crashes the process. New arrays contain NaN, or -1 for integers, so
reads of uninitialised elements appear in the results.
"""

from __future__ import annotations

import ctypes
import faulthandler
import math
import mmap
import sys
from typing import Any

import numpy as np
import pytest
from test_conv import PATHS, by, random_convolution, three
from test_delayed_products import by_loop, taps_by_loop
from test_pooling import random_pool

from snncell.data import binning
from snncell.data.transforms.selection import keep_by_rule
from snncell.kernels import pooling
from snncell.kernels.conv import depthwise, direct, events, im2col, pointwise, winograd
from snncell.kernels.eventprop import spike_times
from snncell.kernels.eventprop.adjoint import send_back
from snncell.kernels.numba import build
from snncell.kernels.products import delays, gathers, matmul

NO_ACCESS = 0  # PROT_NONE
WITH_SCRATCH = (
    binning, build, delays, depthwise, direct, events, gathers, matmul, pointwise, pooling, spike_times, winograd,
)  # fmt: skip


class Guards:
    """Allocate arrays that begin or end at a protected page."""

    def __init__(self, rng: Any) -> None:
        self.rng = rng
        self.protect = ctypes.CDLL(None, use_errno=True).mprotect
        self.protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

    def empty(self, shape: Any, dtype: Any) -> Any:
        """An array whose bytes are all 255."""
        dtype = np.dtype(dtype)
        size, page = math.prod(shape) * dtype.itemsize, mmap.PAGESIZE
        inner = -(-max(size, 1) // page) * page
        block = np.frombuffer(mmap.mmap(-1, inner + 2 * page), np.uint8)
        block[...] = 255
        for guard in (0, page + inner):
            if self.protect(block.ctypes.data + guard, page, NO_ACCESS):
                raise OSError(ctypes.get_errno(), "mprotect")
        start = page if self.rng.random() < 0.25 else page + inner - size
        return block[start : start + size].view(dtype).reshape(shape)

    def copy(self, x: Any) -> Any:
        """A copy of the elements in a guarded array."""
        out = self.empty(x.shape, x.dtype)
        out[...] = x
        return out


def same(found: Any, expected: Any, scale: float = 1.0) -> None:
    """Assert that arrays agree to the rounding of float32."""
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5 * max(1.0, scale))


def convolutions(rng: Any, guards: Guards) -> None:
    """A convolution and its gradients by any algorithm, compared with the definition."""
    path = str(rng.choice(PATHS))
    x, weight, dout, options = random_convolution(rng, path)
    with by(path):
        found = three(direct, guards.copy(x), guards.copy(weight), guards.copy(dout), options)
    wide = [array.astype(np.float64) for array in (x, weight, dout)]
    for value, expected in zip(found, three(im2col, *wide, options), strict=True):
        same(value, expected, np.abs(expected).max(initial=0.0))


def pools(rng: Any, guards: Guards) -> None:
    """Maxima and sums of windows, and their backward passes, which are the adjoint functions."""
    case = random_pool(int(rng.integers(1 << 30)))
    x = guards.copy(rng.normal(size=case.shape).astype(np.float32))
    best, places = pooling.max_pool(x, case.windows)
    np.testing.assert_array_equal(best, pooling.largest(x, case.windows))
    total, slope = pooling.sum_pool(x, case.windows, 1), guards.copy(rng.normal(size=best.shape).astype(np.float32))
    back = pooling.unpool(slope, guards.copy(places), case.windows, case.shape[2:])
    picked = pooling.pick(x, guards.copy(places), case.windows)
    share = pooling.spread(slope, case.windows, 1, case.shape[2:])
    for here, there in ((picked, back), (total, share)):
        a, b = (here * slope).sum(dtype=np.float64), (there * x).sum(dtype=np.float64)
        same(a, b, 10.0 * np.abs(here * slope).sum())


def products_of_events(rng: Any, guards: Guards) -> None:
    """The product of a sparse event matrix, or its transpose, with a dense matrix in either memory order."""
    m, k, n = (int(rng.choice([1, 3, 16, 17, 63, 64, 65, 130, 200])) for _ in range(3))
    k = 2049 if rng.random() < 0.1 else k
    dtype = rng.choice(["float32", "float64"])
    x = rng.integers(1, 3, (m, k)) * (rng.random((m, k)) < rng.choice([0.0, 0.02, 0.5]))
    x = x.astype(rng.choice([dtype, "uint8", "bool"]))
    by_columns = bool(rng.random() < 0.5)
    left = x.T if by_columns else x
    y = rng.normal(size=(left.shape[1], n)).astype(dtype)
    given = guards.copy(y) if rng.random() < 0.5 else guards.copy(y.T.copy()).T
    spikes = guards.copy(x)
    found = matmul.events_of(spikes, dtype=y.dtype, below=2.0)
    turned = bool(rng.random() < 0.5)
    out = matmul.product_of_events(spikes, found, given, by_columns=by_columns, turned=turned)
    expected = left.astype(np.float64) @ y.astype(np.float64)
    same(out.T if turned else out, expected, np.abs(expected).max(initial=0.0))


def products_with_delays(rng: Any, guards: Guards) -> None:
    """Products of spikes with delays, and the gradient of the taps, by lists of windows or blocks of delays."""
    steps, batch, inputs, outputs, count = (int(rng.choice([1, 2, 5, 17])) for _ in range(5))
    inputs = 2049 if rng.random() < 0.1 else inputs
    x = (rng.random((steps, batch, inputs)) < rng.choice([0.0, 0.1, 0.6])) * rng.integers(1, 3)
    given, taps = guards.copy(x.astype(np.float32)), rng.normal(size=(count, inputs, outputs)).astype(np.float32)
    y, places = rng.normal(size=(steps, batch, outputs)).astype(np.float32), rng.integers(0, count, taps.shape[1:])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matmul, "limit", lambda *_: 2.0)
        patch.setattr(delays, "OFTEN", rng.choice([0.0, np.inf]))
        found = delays.product(given, guards.copy(taps))
        of_taps = delays.weight_gradient(given, guards.copy(y), count)
        late = delays.product_per_synapse(given, guards.copy(taps[0]), places, count - 1)
    for value, expected in (
        (found, by_loop(x, taps)),
        (of_taps, taps_by_loop(x, y, count)),
        (late, by_loop(x, np.where(np.arange(count)[:, None, None] == places, taps[0], 0.0))),
    ):
        same(value, expected, np.abs(expected).max(initial=0.0))


def spikes(rng: Any, guards: Guards) -> None:
    """Spike times and their gradients: the same bits as with zero-initialised arrays."""
    samples, inputs, each, neurons, wanted = (int(rng.integers(1, most)) for most in (70, 12, 4, 35, 4))
    times = rng.random((samples, inputs, each)) * 3.0
    times[rng.random(times.shape) < 0.1] = np.inf
    weights, constants = rng.normal(size=(inputs, neurons)) * 4.0, (1.0, 0.5, 1.0)

    def both(copy: Any) -> list[Any]:
        given = copy(times), copy(weights)
        found, order, places, currents = spike_times.find(*given, wanted, *constants, 4.0)
        known = [copy(array) for array in (order, found, places, currents, np.ones_like(found))]
        return [found, order, places, currents, *send_back(*given, *known, *constants)]

    guarded = both(guards.copy)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spike_times, "empty", lambda shape, dtype: np.zeros(shape, dtype))
        for value, expected in zip(guarded, both(np.array), strict=True):
            np.testing.assert_array_equal(value, expected)


def frames(rng: Any, guards: Guards) -> None:
    """Events in time bins, batched event frames, and events that a filter keeps."""
    width, height, polarities = (int(rng.integers(1, most)) for most in (40, 9, 4))
    batch, bins = int(rng.integers(1, 5)), int(rng.integers(1, 12))
    kind = binning.RECORD if rng.random() < 0.7 else binning.LINE
    height = height if "y" in kind.names else 1
    recordings, expected = [], np.zeros((bins, batch, polarities, height, width), np.int64)
    edges = np.sort(rng.integers(0, 1000, (batch, bins + 1)), axis=1)
    for n in range(batch):
        records = guards.empty((int(rng.integers(0, 70)),), kind)
        for name, most in (("t", 1000), ("x", width), ("y", height), ("p", polarities)):
            if name in kind.names:
                records[name] = rng.integers(0, most, len(records))
        if rng.random() < 0.6:
            records.sort(order="t")
        recordings.append(records)
        for event in records:
            y = event["y"] if "y" in kind.names else 0
            for b in np.flatnonzero((edges[n, :-1] <= event["t"]) & (event["t"] < edges[n, 1:])):
                expected[b, n, event["p"], y, event["x"]] += 1
    begins, ends = guards.copy(np.ascontiguousarray(edges[:, :-1])), guards.copy(np.ascontiguousarray(edges[:, 1:]))
    dtype = np.dtype(rng.choice(["uint8", "int16", "float32"]))
    counts, wrong = binning.count_events(recordings, begins, ends, (width, height, polarities), False, dtype)
    assert (wrong == -1).all()
    np.testing.assert_array_equal(counts, expected)
    for records, (first, last) in zip(recordings, binning.span_events(recordings), strict=True):
        assert not len(records) or (first, last) == (records["t"].min(), records["t"].max())
        for rule in ("denoise", "rest", "decimate"):
            kept = keep_by_rule(rule, records, (width, height), 2)
            assert len(kept) == len(records)


def main(seeds: int) -> None:
    """Run all checks for `SEEDS` seeds."""
    faulthandler.enable()
    with pytest.MonkeyPatch.context() as patch:
        guards = Guards(np.random.default_rng(0))
        for module in WITH_SCRATCH:
            patch.setattr(module, "empty", guards.empty)
        patch.setattr(matmul, "limit_of", lambda *_: 2.0)
        for module in (depthwise, direct, events, pointwise, winograd):
            patch.setattr(module, "flat", lambda x: guards.copy(np.ascontiguousarray(x).reshape(-1)))
        for seed in range(seeds):
            for number, kernels in enumerate(
                (convolutions, products_of_events, products_with_delays, spikes, pools, frames)
            ):
                if kernels is not pools or seed < seeds // 20:  # each is compiled anew
                    sys.stderr.write(f"{kernels.__name__} {seed}\n")
                    kernels(np.random.default_rng([seed, number]), guards)


if __name__ == "__main__":
    main(int(sys.argv[1]))
