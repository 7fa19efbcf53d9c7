"""Convolutions: every algorithm equals the definition in random settings, and threads do not change the bits."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import snncell
from snncell import Tensor, nn, ops, testing
from snncell.kernels.conv import depthwise, direct, events, im2col, pointwise, winograd
from snncell.kernels.conv.planes import Axis, Shape
from snncell.kernels.numba import build
from snncell.kernels.numba.policy import number_of_threads
from snncell.kernels.products import blas

COMPILED = os.environ.get("NUMBA_DISABLE_JIT") != "1"
compiled = pytest.mark.skipif(not COMPILED, reason="without the compiler there is one path, by windows")


PATHS = ("sums", "tiles", "taps", "planes", "products", "pixels", "events")
DEPTHWISE = ("taps", "planes")  # for large images, and for small ones
POINTWISE = ("products", "pixels")  # by BLAS, and without copies


def random_convolution(rng: Any, path: str = "sums") -> tuple[Any, Any, Any, dict[str, Any]]:
    """Images, a weight, a gradient of the results, and options, of random sizes.

    All paths but "sums" and "events" get sizes that they support.
    """
    axes, groups = int(rng.integers(1, 3)), int(rng.choice([1, 1, 1, 2, 3]))
    channels, outputs = (groups * int(n) for n in rng.integers(1, 20, 2))
    if rng.random() < 0.15:  # depthwise
        groups, outputs = channels, channels * int(rng.integers(1, 3))
    size, dilation, stride, before = (
        tuple(map(int, rng.integers(low, high, axes))) for low, high in ((1, 6), (1, 3), (1, 5), (0, 4))
    )
    dtype = rng.choice(["float32", "float64"])
    if path == "tiles":
        size = ((2, 3), (5, 5), (3, 3))[int(rng.choice([0, 1, 2, 2, 2]))]
        stride, dilation = ((1, 2) if size == (2, 3) else (1, 1), (2, 2))[int(rng.choice([0, 0, 1]))], (1, 1)
        dtype = "float32" if size == (2, 3) or stride == (2, 2) else dtype
        before = (*before, 1)[:2]
    if path in DEPTHWISE:
        groups, outputs = channels, channels
        size = ((2, 5), (3, 3))[int(rng.choice([0, 1, 1]))]
        stride, dilation, before = (
            (int(rng.integers(1, 4)), int(rng.integers(1, 3))),
            (*dilation, 2)[:2],
            (*before, 1)[:2],
        )
    if path in POINTWISE:
        groups, (size, stride, dilation) = 1, [(1,) * axes] * 3
        before = (0,) * axes
    most = 9 if path == "planes" else 20
    reach = [(k - 1) * d + 1 for k, d in zip(size, dilation, strict=True)]
    lengths = [max(1, r - 2 * p) + int(rng.integers(0, most)) for r, p in zip(reach, before, strict=True)]
    if path == "pixels":
        channels, outputs, lengths[-1] = 16 * channels, 4 * outputs, int(rng.choice([16, 48, 64, 144]))
        lengths[:-1] = [1 if lengths[-1] > 16 else lengths[0]] * (axes - 1)
    count = tuple((n + 2 * p - r) // s + 1 for n, p, r, s in zip(lengths, before, reach, stride, strict=True))
    images = int(rng.integers(1, 20))
    density = rng.choice([0.0, 0.03, 0.5, 1.0])
    shape = (images, channels, *lengths)
    x = (rng.normal(size=shape) * (rng.random(shape) < density)).astype(dtype)
    weight = rng.normal(size=(outputs, channels // groups, *size)).astype(dtype)
    dout = rng.normal(size=(images, outputs, *count)).astype(dtype)
    return x, weight, dout, {"stride": stride, "before": before, "dilation": dilation, "groups": groups}


def three(module: Any, x: Any, weight: Any, dout: Any, options: dict[str, Any]) -> list[Any]:
    """A convolution and its two gradients."""
    return [
        module.convolve(x, weight, count=dout.shape[2:], **options),
        module.convolve_back(dout, weight, lengths=x.shape[2:], **options),
        module.convolve_weight(x, dout, size=weight.shape[2:], **options),
    ]


@contextmanager
def by(path: str) -> Iterator[None]:
    """Compute all convolutions with one algorithm, if it supports them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(events, "is_faster", lambda *_, **__: path == "events")
        patch.setattr(winograd, "is_faster", lambda shape: path == "tiles" and winograd.supports(shape))
        if path not in DEPTHWISE:
            patch.setattr(depthwise, "supports", lambda shape: False)
        if path == "taps":
            patch.setattr(depthwise, "SMALL", 0)
        if path in POINTWISE:
            patch.setattr(pointwise, "in_place", lambda shape, may=pointwise.in_place: path == "pixels" and may(shape))
            for name, value in (("LEAST_CHANNELS", 1), ("LEAST_SIDE", 4), ("LEAST_PIXELS", 60), ("CHUNK", 100)):
                patch.setattr(pointwise, name, value)
            patch.setattr(blas, "PART_WORK", (1 << 8, 1 << 9))
        else:
            patch.setattr(pointwise, "supports", lambda shape: False)
        yield


def assert_equal_windows(seed: int, path: str) -> None:
    x, weight, dout, options = random_convolution(np.random.default_rng(seed), path)
    with by(path):
        values = three(direct, x, weight, dout, options)
    wide = [array.astype(np.float64) for array in (x, weight, dout)]
    for value, expected in zip(values, three(im2col, *wide, options), strict=True):
        scale = np.abs(expected).max(initial=1e-30)
        assert value.dtype == x.dtype and value.shape == expected.shape
        assert np.abs(value - expected).max(initial=0.0) <= scale * (1e-5 if x.dtype == np.float32 else 1e-13)


@compiled
@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("path", ["sums", "products", "pixels", "events"])
@pytest.mark.sampled(44)
def test_kernels_equal_windows_in_random_settings(seed: int, path: str) -> None:
    assert_equal_windows(seed, path)


@compiled
@pytest.mark.parametrize("seed", range(60))
@pytest.mark.sampled(1)  # each window has its own kernels
def test_tiles_equal_windows_in_random_settings(seed: int) -> None:
    assert_equal_windows(seed, "tiles")


def test_convolution_and_its_gradients_are_adjoint() -> None:
    """sum(y conv(x, w)) = sum(x back(y, w)) = sum(w weight(x, y)), by windows, the reference algorithm."""
    rng = np.random.default_rng(1)
    for _ in range(40):
        x, weight, dout, options = random_convolution(rng)
        x, weight, dout = (array.astype(np.float64) for array in (x, weight, dout))
        values = three(im2col, x, weight, dout, options)
        sums = [float((a * b).sum()) for a, b in zip(values, (dout, x, weight), strict=True)]
        np.testing.assert_allclose(sums, sums[0], rtol=1e-9, atol=1e-9)


@pytest.mark.sampled(2)
@compiled
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("work", [0, 1 << 60])
def test_bits_do_not_depend_on_threads_or_batch(path: str, work: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On one thread or all, and for an image alone or in a batch."""
    import numba

    rng = np.random.default_rng(2)
    for _ in range(2 if path == "tiles" else 8):  # each window has its own kernels
        x, weight, dout, options = random_convolution(rng, path)
        with by(path):
            first = three(direct, x, weight, dout, options)
            threads = number_of_threads()
            with monkeypatch.context() as patch:
                patch.setattr(build, "PARALLEL_WORK", work)
                numba.set_num_threads(1)
                try:
                    again = three(direct, x, weight, dout, options)
                finally:
                    numba.set_num_threads(threads)
            alone = three(direct, x[:1], weight, dout[:1], options)
        for a, b in zip(first, again, strict=True):
            np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(first[0][:1], alone[0])
        np.testing.assert_array_equal(first[1][:1], alone[1])


@compiled
@pytest.mark.parametrize("path", [path for path in PATHS if path not in POINTWISE])
def test_images_one_row_or_pixel_past_a_vector_or_tile(path: str) -> None:
    """Every algorithm computes the last pixels apart if they do not fill a vector, a tile of rows or a band."""
    rng = np.random.default_rng(5)
    for size in ((1, 16), (1, 17), (7, 7), (3, 11), (43, 5), (45, 34)):
        x = (rng.random((2, 16, *size)) < 0.2).astype(np.float32)
        weight = rng.normal(size=(16, 16, 3, 3)).astype(np.float32)
        dout = rng.normal(size=(2, 16, *size)).astype(np.float32)
        options = {"stride": (1, 1), "before": (1, 1), "dilation": (1, 1), "groups": 1}
        if path in DEPTHWISE:
            weight, options["groups"] = weight[:, :1], 16
        with by(path):
            values = three(direct, x, weight, dout, options)
        for value, expected in zip(values, three(im2col, x, weight, dout, options), strict=True):
            np.testing.assert_allclose(value, expected, atol=1e-5 * np.abs(expected).max(), rtol=0)


@compiled
@pytest.mark.parametrize("outputs", [1, 3, 4, 8, 12])
def test_results_that_fill_whole_vectors_are_computed_in_place(outputs: int) -> None:
    """The sums go to the output itself, and the gradient is read from its own memory, without copies."""
    rng = np.random.default_rng(outputs)
    for size, window in ((16, 1), (16, 3), (28, 3)):
        x = rng.normal(size=(3, 5, size, size)).astype(np.float32)
        weight = rng.normal(size=(outputs, 5, window, window)).astype(np.float32)
        dout = rng.normal(size=(3, outputs, size, size)).astype(np.float32)
        options = {"stride": (1, 1), "before": (window // 2,) * 2, "dilation": (1, 1), "groups": 1}
        with by("sums"):
            values = three(direct, x, weight, dout, options)
        for value, expected in zip(values, three(im2col, x, weight, dout, options), strict=True):
            np.testing.assert_allclose(value, expected, atol=1e-5 * np.abs(expected).max(), rtol=0)


@compiled
def test_large_layers_in_chunks_bands_and_splits() -> None:
    """Sizes at which planes exceed the cache, or with few images for many channels."""
    rng = np.random.default_rng(3)
    for shape, outputs, size in (((1, 300, 9, 9), 70, 3), ((2, 3, 200, 300), 9, 5), ((1, 40, 90, 90), 11, 3)):
        x = rng.normal(size=shape).astype(np.float32)
        weight = rng.normal(size=(outputs, shape[1], size, size)).astype(np.float32)
        dout = rng.normal(size=(shape[0], outputs, *shape[2:])).astype(np.float32)
        options = {"stride": (1, 1), "before": (size // 2,) * 2, "dilation": (1, 1), "groups": 1}
        pairs = zip(three(direct, x, weight, dout, options), three(im2col, x, weight, dout, options), strict=True)
        for value, expected in pairs:
            assert np.abs(value - expected).max() <= 2e-5 * np.abs(expected).max()


@pytest.mark.parametrize("path", ["sums", "events"])
def test_nan_and_inf_affect_only_windows_that_contain_them(path: str) -> None:
    x = np.zeros((2, 3, 9, 9), np.float32)
    x[0, 1, 4, 4], x[1, 2, 0, 0] = np.nan, np.inf
    weight = np.ones((5, 3, 3, 3), np.float32)
    with by(path):
        y = ops.conv2d(Tensor(x), Tensor(weight), pad_mode="same").asnumpy()
    bad = ~np.isfinite(y)
    assert bad[0, :, 3:6, 3:6].all() and bad[0].sum() == 5 * 9
    assert bad[1, :, :2, :2].all() and bad[1].sum() == 5 * 4


@compiled
def test_nan_and_inf_of_depthwise_images_affect_only_their_windows() -> None:
    x = np.zeros((2, 3, 9, 9), np.float32)
    x[0, 1, 4, 4], x[1, 2, 0, 0] = np.nan, np.inf
    y = ops.conv2d(Tensor(x), Tensor(np.ones((3, 1, 3, 3), np.float32)), pad_mode="same", groups=3).asnumpy()
    bad = ~np.isfinite(y)
    assert bad[0, 1, 3:6, 3:6].all() and bad[0].sum() == 9
    assert bad[1, 2, :2, :2].all() and bad[1].sum() == 4
    x = np.ones((2, 3, 9, 40), np.float32)
    x[:, :, 1::2], x[..., 1::2], x[..., 30:] = np.inf, np.inf, np.nan
    options = {"stride": (2, 2), "before": (0, 0), "dilation": (1, 1), "groups": 3}
    slope = direct.convolve_weight(x, np.ones((2, 3, 5, 15), np.float32), size=(1, 1), **options)
    np.testing.assert_array_equal(slope, np.full((3, 1, 1, 1), 2 * 5 * 15), "pixels outside of all windows")


@compiled
def test_depthwise_convolutions_of_one_axis_equal_windows() -> None:
    rng = np.random.default_rng(5)
    x, weight, dout = (rng.normal(size=shape) for shape in ((2, 4, 8), (4, 1, 3), (2, 4, 4)))
    options = {"stride": (2,), "before": (1,), "dilation": (1,), "groups": 4}
    pairs = zip(three(direct, x, weight, dout, options), three(im2col, x, weight, dout, options), strict=True)
    for value, expected in pairs:
        np.testing.assert_allclose(value, expected, atol=1e-13)


def test_second_order_gradients_with_strides_and_groups() -> None:
    rng = np.random.default_rng(4)
    x, w = Tensor(rng.normal(size=(2, 4, 7))), Tensor(rng.normal(size=(6, 2, 3)))

    def slope(x: Tensor, w: Tensor) -> Tensor:
        gradients = snncell.grad(
            lambda x, w: (ops.conv1d(x, w, stride=2, pad_mode="same", groups=2) ** 3).sum(), (0, 1)
        )(x, w)
        return (gradients[0] ** 2).sum() + (gradients[1] ** 2).sum()

    testing.check_grads(slope, x, w)


def test_convolution_in_a_loop_is_batched_over_time() -> None:
    """The loop computes one convolution for all steps, also in the gradient."""
    rng = np.random.default_rng(5)
    snncell.set_seed(0)

    class Step(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.neuron = nn.Conv2d(2, 3, 3), nn.LIFNode()

        def construct(self, x: Tensor, v: Tensor) -> Any:
            return self.neuron(self.conv(x), v)

        def init_state(self, x: Tensor) -> Tensor:
            return ops.zeros((x.shape[0], 3, *x.shape[2:]))

    step = Step()
    loop = nn.MultiStep(step)
    x = Tensor((rng.random((6, 4, 2, 5, 5)) * 3).astype(np.float32))
    weights = step.conv.trainable_params()
    gradient = snncell.grad(lambda x: (loop(x) ** 2).sum(), 0, weights=weights)
    text = " ".join(snncell.explain(gradient, x, detail="launches").split())
    for place in (
        "together, before the loop: conv ",
        "after the loop: conv_back ",
        "sums over time, after the loop: conv_weight ",
    ):
        assert place in text

    def by_hand(x: Tensor) -> Tensor:
        v, total = step.init_state(x[0]), 0.0
        for t in range(6):
            y, v = step(x[t], v)
            total = total + (y**2).sum()
        return total

    for a, b in zip(_leaves(gradient(x)), _leaves(snncell.grad(by_hand, 0, weights=weights)(x)), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


def _leaves(tree: Any) -> list[Any]:
    return [tree.asnumpy()] if isinstance(tree, Tensor) else [leaf for part in tree for leaf in _leaves(part)]


@compiled
def test_only_sparse_images_use_the_event_algorithm() -> None:
    rng = np.random.default_rng(6)
    shape = (8, 32, 14, 14)
    axis = Axis(14, 1, (-1, 0, 1), 14)
    for density, expected in ((0.02, True), (0.6, False)):
        x = (rng.random(shape) < density).astype(np.float32)
        assert events.is_faster(x, Shape(8, 1, 32, 32, (axis, axis))) is expected
    assert not events.is_faster(
        np.zeros(shape, np.float32), Shape(8, 32, 1, 1, (axis, axis))
    )  # depthwise: too few products


def test_density_limit_does_not_depend_on_the_number_of_images() -> None:
    axis = Axis(16, 1, (-1, 0, 1), 16)
    for itemsize in (4, 8):
        limits = {events.limit(Shape(images, 1, 32, 64, (axis, axis)), itemsize) for images in (1, 2, 100)}
        assert len(limits) == 1 and 0.1 < limits.pop() < 0.5


@pytest.mark.parametrize(("place", "stride"), [((-1, 0, 1), 1), ((0,), 1), ((-4, -2, 0), 2), ((9, 10), 3), ((-9,), 1)])
def test_elements_of_windows_inside_of_the_image_are_counted(place: tuple[int, ...], stride: int) -> None:
    for results in (1, 4, 20):
        inside = sum(0 <= q * stride + p < 8 for p in place for q in range(results))
        assert events._inside(Axis(8, stride, place, results)) == inside


@pytest.mark.parametrize("mean", [False, True])
def test_constant_images_are_convolved_once_for_all_steps(mean: bool) -> None:
    """The gradient of the weight also needs one convolution, of the gradients summed over steps."""
    rng = np.random.default_rng(7)
    snncell.set_seed(0)
    layers = [
        nn.TimeDistributed(nn.Conv2d(2, 4, 3, stride=2)),
        nn.MultiStep(nn.LIFNode()),
        nn.TimeDistributed(nn.Conv2d(4, 3, 3)),
    ]
    net = nn.SequentialCell(layers)
    x = Tensor((rng.random((3, 2, 8, 8)) * 3).astype(np.float32))
    target = Tensor(rng.normal(size=(3, 3, 4, 4)).astype(np.float32))

    def loss(x: Tensor) -> Tensor:
        y = net(ops.broadcast_to(x, (5, *x.shape)))
        return (y.mean(0) * target).sum() if mean else (y * y).sum()

    gradient = snncell.grad(loss, 0, weights=net.trainable_params())
    eager, jitted = _leaves(gradient(x)), _leaves(snncell.jit(gradient)(x))
    for a, b in zip(eager, jitted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5 * np.abs(a).max())
    text = snncell.explain(snncell.jit(gradient), x, detail="program")
    assert "conv(%0, " in text.replace("%0:float32[3,2,8,8]", "%0") and "= conv_weight(%0, " in text


def test_constant_empty_batch_stays_empty() -> None:
    net, x = nn.TimeDistributed(nn.Conv2d(2, 4, 3)), ops.zeros((0, 2, 8, 8))

    def total(x: Tensor) -> Tensor:
        return net(ops.broadcast_to(x, (5, *x.shape))).sum()

    gradient = snncell.grad(total, 0, weights=net.trainable_params())
    for a, b in zip(_leaves(gradient(x)), _leaves(snncell.jit(gradient)(x)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_explain_names_the_algorithm_for_these_sizes() -> None:
    def said(shape: tuple[int, ...], dtype: Any, outputs: int, **options: Any) -> list[str]:
        groups, size = options.get("groups", 1), (3,) * (len(shape) - 2)
        x, weight = ops.ones(shape, dtype), ops.ones((outputs, shape[1] // groups, *size), dtype)
        conv = ops.conv1d if len(size) == 1 else ops.conv2d
        lines = snncell.explain(
            lambda x: conv(x, weight, pad_mode="same", **options), x, detail="launches"
        ).splitlines()
        first = next(n for n, line in enumerate(lines) if " call conv" in line)
        return [line.strip() for line in lines[first + 1 : first + 2]]

    tiles, sums = "else by Winograd's tiles of 2x2 results", "else as sums over shifted images, in tiles that stay"
    for dtype in (snncell.float16, snncell.float32, snncell.float64):
        assert re.match(rf"event-driven below \d+ % of .* {tiles}$", said((4, 32, 14, 14), dtype, 32)[0])
        assert re.match(rf"event-driven below \d+ % of .* {sums}", said((4, 32, 14, 14), dtype, 32, stride=2)[0])
    assert said((0, 32, 14, 14), snncell.float32, 32)[0].endswith(tiles)
    assert said((4, 32, 14, 14), snncell.float32, 32, groups=32)[0].startswith(
        "as sums over the window, channel by channel"
    )
    assert re.match(rf"event-driven .* {sums}", said((4, 32, 60), snncell.float32, 32)[0])
    assert said((2, 8, 5, 5), snncell.complex64, 8) == ["a product of the images' windows"]
