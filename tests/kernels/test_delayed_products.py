"""Products with delays: events, BLAS and Fourier transforms give the sums of plain loops, on any number of threads."""

from __future__ import annotations

import math

import numpy as np
import pytest
from thread_counts import on_threads

from snncell.kernels.products import delays, matmul

# (T, B, N_in, N_out, delays): more delays than steps, several blocks of columns, remainders in every direction.
SIZES = [(1, 1, 1, 1, 1), (3, 2, 5, 4, 7), (9, 3, 4, 17, 4), (70, 2, 3, 5, 3), (4, 2, 700, 6, 5), (0, 2, 3, 2, 2)]
INPUTS = {"silent": 0.0, "spikes": 0.1, "graded": 0.3, "dense": 1.0}
PATHS = ["events", "BLAS", "Fourier"]


@pytest.fixture(params=PATHS)
def path(request, monkeypatch):
    """Choose how products are computed, whatever their sizes."""
    monkeypatch.setattr(matmul, "limit", lambda *sizes: 2.0 if request.param == "events" else 0.0)
    share = delays.transform_share
    pays = request.param == "Fourier"
    monkeypatch.setattr(delays, "transform_share", lambda y, taps: 0.5 if pays and 0 not in (*y, *taps) else 1.0)
    assert share((100, 32, 256), (26, 256, 256)) < 1 < share((100, 32, 256), (2, 256, 256))
    return request.param


def drawn(rng, sizes, kind, dtype):
    steps, batch, inputs, outputs, count = sizes
    x = (rng.random((steps, batch, inputs)) < INPUTS[kind]).astype(dtype)
    if kind in ("graded", "dense"):
        x *= rng.normal(size=x.shape).astype(dtype)
    taps, y = rng.normal(size=(count, inputs, outputs)), rng.normal(size=(steps, batch, outputs))
    return x, taps.astype(dtype), y.astype(dtype)


def by_loop(x, taps):
    """y[t] = sum_d x[t - d] @ taps[d]"""
    y = np.zeros((*x.shape[:2], taps.shape[2]))
    for t in range(len(x)):
        for d in range(min(t + 1, len(taps))):
            y[t] += x[t - d].astype(np.float64) @ taps[d]
    return y


def taps_by_loop(x, y, count):
    taps = np.zeros((count, x.shape[2], y.shape[2]))
    for t in range(len(x)):
        for d in range(min(t + 1, count)):
            taps[d] += x[t - d].astype(np.float64).T @ y[t]
    return taps


@pytest.mark.sampled(40)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_all_paths_equal_loops(rng, path, sizes, kind, dtype):
    x, taps, y = drawn(rng, sizes, kind, dtype)
    scale = 40 * np.finfo(dtype).eps
    found = {
        "product": (delays.product(x, taps), by_loop(x, taps)),
        "back": (delays.transposed_product(y, taps), by_loop(y[::-1], taps.transpose(0, 2, 1))[::-1]),
        "both": (delays.weight_gradient(x, y, len(taps)), taps_by_loop(x, y, len(taps))),
    }
    for name, (mine, expected) in found.items():
        assert mine.dtype == dtype and mine.shape == expected.shape, name
        most = np.abs(expected).max(initial=1.0)
        np.testing.assert_allclose(mine, expected, atol=scale * most, rtol=0, err_msg=name)


@pytest.mark.parametrize("kind", ["spikes", "graded", "dense"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_blocks_of_delays_have_the_bits_of_windows(rng, monkeypatch, sizes, kind):
    monkeypatch.setattr(matmul, "limit", lambda *sizes: 2.0)
    x, taps, _ = drawn(rng, sizes, kind, np.float32)
    found = []
    for often in (0, math.inf):
        monkeypatch.setattr(delays, "OFTEN", often)
        found.append(delays.product(x, taps))
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_single_taps_equal_products_with_all_taps(rng, sizes, kind):
    x, taps, _ = drawn(rng, sizes, kind, np.float64)
    places = rng.integers(0, len(taps), taps.shape[1:])
    single = np.where(np.arange(len(taps))[:, None, None] == places, taps, 0.0)
    found = delays.product_per_synapse(x, single.sum(0), places, len(taps) - 1)
    np.testing.assert_allclose(found, by_loop(x, single), atol=1e-12)


def test_first_steps_do_not_depend_on_later_ones(rng, path):
    x, taps, _ = drawn(rng, (12, 2, 4, 3, 5), "graded", np.float32)
    late = x.copy()
    late[7:] = np.nan
    found = delays.product(x, taps)
    np.testing.assert_array_equal(found[:7], delays.product(np.where(np.isnan(late), 0.5, late), taps)[:7])
    if path == "BLAS":
        np.testing.assert_array_equal(found[:7], delays.product(late, taps)[:7])


def test_views_are_accepted(rng, path):
    x, taps, y = drawn(rng, (9, 3, 4, 6, 4), "graded", np.float64)
    turned = [np.asfortranarray(z) for z in (x, taps, y)]
    for function, arguments in ((delays.product, (0, 1)), (delays.transposed_product, (2, 1))):
        given, views = ([each[n] for n in arguments] for each in ((x, taps, y), turned))
        np.testing.assert_allclose(function(*views), function(*given), atol=1e-12)
    np.testing.assert_allclose(
        delays.weight_gradient(turned[0], turned[2], 4), delays.weight_gradient(x, y, 4), atol=1e-12
    )


@pytest.mark.compiled
def test_bits_do_not_depend_on_number_of_threads(rng):
    for density in (0.03, 1.0):
        x = (rng.random((60, 16, 70)) < density).astype(np.float32)
        taps, y = (rng.standard_normal(shape, np.float32) for shape in ((20, 70, 90), (60, 16, 90)))
        places = rng.integers(0, 20, (70, 90))
        results = []
        for number in (1, 2):
            with on_threads(number):
                results.append(
                    (
                        *(delays.product(x, taps), delays.transposed_product(y, taps)),
                        *(delays.weight_gradient(x, y, 20), delays.product_per_synapse(x, taps[0], places, 19)),
                    )
                )
        for one, other in zip(*results, strict=True):
            np.testing.assert_array_equal(one, other)
            assert one.any()
