"""Winograd convolutions by tiles of 2x2 results: transforms, plans, and the choice of the algorithm. See also
test_conv.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from test_conv import by, compiled, random_convolution, three

from snncell import Tensor, ops
from snncell.kernels.conv import direct, im2col, transforms, winograd
from snncell.kernels.conv.planes import Axis, Shape, axes_of, sizes_of
from snncell.kernels.conv.transforms import LONGEST, Tiling, points, transforms as matrices

SLOW = pytest.mark.slow
WINDOWS = list(itertools.product(range(1, LONGEST + 1), repeat=2))


STRIDES = list(itertools.product((1, 2), repeat=2))


@pytest.mark.parametrize(("window", "stride"), [(n, s) for s in (1, 2, 3) for n in range(1, s * LONGEST + 1)])
def test_transform_matrices_compute_two_results_and_gradients(window: int, stride: int) -> None:
    rng = np.random.default_rng(window)
    a, g, b = map(np.array, matrices(window, stride))
    many = points(window, stride)
    assert a.shape == (2, many) and g.shape == (many, window) and b.shape == (many, window + stride)
    x, w, slope = rng.normal(size=window + stride), rng.normal(size=window), rng.normal(size=2)
    shifted = np.array([x[:window], x[stride:]])
    np.testing.assert_allclose(a @ ((g @ w) * (b @ x)), shifted @ w, atol=1e-12)
    np.testing.assert_allclose(g.T @ ((a.T @ slope) * (b @ x)), shifted.T @ slope, atol=1e-12)


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("stride", STRIDES, ids=str)
def test_transforms_of_one_channel_equal_its_convolution(window: tuple[int, int], stride: tuple[int, int]) -> None:
    """The transforms run as NumPy code here; kernels contain the same formulas as LLVM instructions."""
    rng = np.random.default_rng(window[0] + stride[0])
    images, weight = rng.normal(size=(3, 9, 11)), rng.normal(size=window)
    before = (window[0] // 2, window[1] // 3)
    height, width = images.shape[1:]
    count = tuple((n + 2 * p - k) // s + 1 for n, p, k, s in zip((height, width), before, window, stride, strict=True))
    options: dict[str, Any] = {"stride": stride, "before": before, "dilation": (1, 1), "groups": 1}
    down, across = axes_of(sizes_of((3, 1, height, width), window, stride, (1, 1), before, count))
    tiling, shape = Tiling(window, stride, int(rng.integers(1, 3))), Shape(3, 1, 1, 1, (down, across))
    rows, columns = (-(-n // 2) for n in count)
    line, side, pitch = 8, 4, winograd._pitch(across)  # elements of a line and of a vector of float64
    places, of_results, room = winograd._lanes(shape, rows, side)
    many, points_wide = 3 * rows * columns, points(window[1], stride[1])
    apart, lanes = many * line + 16, np.full(2 * room, np.nan)
    tiles, slopes = (np.zeros(math.prod(map(points, window, stride)) * apart) for _ in range(2))
    transforms.of_images(tiling)(
        tiles, apart, many, lanes, room, images.reshape(-1), images, places, 3, height * width, 1, line, height, width,
        -before[0], rows, columns, pitch,
    )  # fmt: skip
    at_points, eight = np.zeros(len(tiles)), np.repeat(weight.reshape(-1), side)
    transforms.of_weights(tiling)(at_points, points_wide * apart, apart, 0, eight, window[1] * side, side, 0, 1)
    products = (tiles.reshape(-1, apart) * at_points.reshape(-1, apart)[:, :1]).reshape(-1)
    # Results go to every step-th column, and nothing else is written.
    out = np.full((3, count[0], tiling.step * count[1] + 1), np.nan)
    for n in range(3):
        for i in range(rows):
            transforms.to_results(tiling)(
                lanes[4 * i * columns * side :], 2 * columns * side, side, 2 * side,
                products[(n * rows + i) * columns * line :], points_wide * apart, apart, line, columns,
            )  # fmt: skip
        for i in range(count[0]):
            line_of_results = places[of_results + i * count[1] :]
            transforms.lanes_to_channels(tiling)(out[n, i], 1, 0, lanes, line_of_results, count[1])
    expected = im2col.convolve(images[:, None], weight[None, None], count=count, **options)
    np.testing.assert_allclose(out[:, :, : -1 : tiling.step], expected[:, 0], atol=1e-11)
    assert np.isnan(out).sum() == out.size - expected.size
    # The weight gradient sums the products of the tiles of both, and transforms the sum back from the points.
    slope = rng.normal(size=(3, *count))
    transforms.of_slopes(tiling)(
        slopes, apart, many, lanes, room, slope.reshape(-1), slope, places[of_results:], 3, math.prod(count), 1, line,
        *count, 0, rows, columns, 2 * columns,
    )  # fmt: skip
    both = np.repeat((tiles * slopes).reshape(-1, apart)[:, : many * line : line].sum(1), side)
    found = np.empty(math.prod(window) * side)
    transforms.to_weights(tiling)(found, window[1] * side, side, 0, both, points_wide * side, side, 0, 1)
    expected = im2col.convolve_weight(images[:, None], slope[:, None], size=window, **options)
    np.testing.assert_allclose(found.reshape(*window, side)[..., 0], expected[0, 0], atol=1e-11)


# Seeds whose kernels test_guarded_memory needs too, and a window of 5 x 5 in float64, are quick.
QUICK = (1, 3, 8, 13)


@compiled
@pytest.mark.parametrize("seed", [seed if seed in QUICK else pytest.param(seed, marks=SLOW) for seed in range(20)])
def test_any_partition_of_images_and_channels_equals_the_reference(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    monkeypatch.setattr(winograd, "CACHED", int(rng.choice([1, 1 << 12, 1 << 17])))
    monkeypatch.setattr(winograd, "TILES", int(rng.choice([1, 16, 48])))
    monkeypatch.setattr(winograd, "UNITS", int(rng.choice([1, 8, 30])))
    monkeypatch.setattr(winograd, "NEAR", int(rng.choice([1, 1 << 12, 1 << 16])))
    monkeypatch.setattr(winograd, "LONG_SUMS", int(rng.choice([1, 16, 256])))
    monkeypatch.setattr(winograd, "LEAST_TILES", int(rng.choice([1, 64])))
    monkeypatch.setattr(winograd, "MOST_PARTIAL", int(rng.choice([1, 1 << 12, 1 << 20])))
    monkeypatch.setattr(winograd, "CHUNK", int(rng.choice([1, 8])))
    monkeypatch.setattr(winograd, "PARALLEL_WORK", int(rng.choice([0, 1 << 20])))
    monkeypatch.setattr(winograd, "_correlation", winograd._correlation.__wrapped__)
    monkeypatch.setattr(winograd, "_contraction", winograd._contraction.__wrapped__)
    x, weight, dout, options = random_convolution(rng, "tiles")
    with by("tiles"):
        values = three(direct, x, weight, dout, options)
    wide = [array.astype(np.float64) for array in (x, weight, dout)]
    for value, expected in zip(values, three(im2col, *wide, options), strict=True):
        scale = np.abs(expected).max(initial=1e-30) * (1e-5 if x.dtype == np.float32 else 1e-13)
        np.testing.assert_allclose(value, expected, rtol=0, atol=scale)


@compiled
def test_windows_of_three_are_as_precise_as_direct_sums() -> None:
    rng = np.random.default_rng(5)
    x, weight = rng.normal(size=(4, 48, 16, 16)), rng.normal(size=(32, 48, 3, 3))
    dout = rng.normal(size=(4, 32, 16, 16))
    options = {"stride": (1, 1), "before": (1, 1), "dilation": (1, 1), "groups": 1}
    narrow = [array.astype(np.float32) for array in (x, weight, dout)]
    exact = three(im2col, *(array.astype(np.float64) for array in narrow), options)
    errors = {}
    for path in ("sums", "tiles"):
        with by(path):
            pairs = zip(three(direct, *narrow, options), exact, strict=True)
            errors[path] = [float(np.sqrt(np.mean((value - expected) ** 2))) for value, expected in pairs]
    assert errors["tiles"][0] <= errors["sums"][0] and errors["tiles"][1] <= errors["sums"][1]
    assert errors["tiles"][2] <= 2 * errors["sums"][2]


@compiled
def test_nan_pixel_affects_only_tiles_that_contain_it() -> None:
    x = np.zeros((2, 3, 9, 9), np.float32)
    x[0, 1, 4, 4], x[1, 2, 0, 0] = np.nan, np.inf
    with by("tiles"):
        y = ops.conv2d(Tensor(x), Tensor(np.ones((5, 3, 3, 3), np.float32)), pad_mode="same").asnumpy()
    bad = ~np.isfinite(y)
    assert bad[0, :, 3:6, 3:6].all() and not bad[0, :, :2].any() and not bad[0, :, 6:].any()
    assert not bad[0, :, :, :2].any() and not bad[0, :, :, 6:].any()
    assert bad[1, :, :2, :2].all() and not bad[1, :, 2:].any() and not bad[1, :, :, 2:].any()


def _shape(images: int, channels: int, outputs: int, size: int, window: int, **more: Any) -> Shape:
    axis = Axis(size, 1, tuple(range(-(window // 2), window - window // 2)), size)._replace(**more)
    return Shape(images, 1, channels, outputs, (axis, axis))


def test_winograd_is_selected_where_it_is_faster() -> None:
    for channels, size in ((32, 28), (32, 14), (64, 16), (128, 8), (256, 4), (512, 8)):
        assert winograd.is_faster(_shape(16, channels, channels, size, 3))
    assert winograd.is_faster(_shape(16, 32, 64, 12, 5))
    for channels, size in ((64, 56), (128, 28), (256, 14), (64, 16)):
        assert winograd.is_faster(_shape(16, channels, 2 * channels, size, 3, stride=2, results=size // 2))
    assert not winograd.is_faster(_shape(16, 1, 32, 28, 3)), "there is nothing to share a transform"
    assert not winograd.is_faster(_shape(16, 64, 64, 16, 1)), "one multiplication is one multiplication"
    assert not winograd.is_faster(_shape(16, 8, 16, 14, 3, stride=2, results=7)), "too few channels"
    assert not winograd.is_faster(_shape(16, 64, 64, 16, 3, stride=3, results=6))
    assert not winograd.is_faster(_shape(16, 64, 64, 16, 3, places=(-2, 0, 2)))
    # For any number of images, because the result of an image does not depend on the others.
    assert len({winograd.is_faster(_shape(n, 64, 64, 4, 3)) for n in (1, 2, 100)}) == 1
