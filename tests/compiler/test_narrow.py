"""Spikes in bytes: the dtype of what a loop stores, and the same results as in floats, whatever reads them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from random_cases import random_cases

from snncell import Tensor, explain_passes, grad, jit, nn, ops, surrogate, vmap
from snncell.testing import unfused

T, B, C, H = 4, 2, 8, 6

# --- Neurons: a step (v, current) -> (v, spikes) ----------------------------------------------------------------------


def fires(h: Tensor) -> Tensor:
    return (h > 1.0).astype(h.dtype)


def with_surrogate(h: Tensor) -> Tensor:
    return surrogate.ATan()(h - 1.0)


def selected(h: Tensor) -> Tensor:
    return ops.where(h > 1.0, ops.ones_like(h), 0.0)


def counted(h: Tensor) -> Tensor:
    """Up to two spikes in a step."""
    return fires(h) + fires(h - 1.0)


def graded(h: Tensor) -> Tensor:
    return fires(h) * h


def halved(h: Tensor) -> Tensor:
    return fires(h) * 0.5


def signed(h: Tensor) -> Tensor:
    return fires(h) - fires(-h)


def many(h: Tensor) -> Tensor:
    """Up to 256 spikes, one more than a byte can count."""
    spikes = fires(h)
    for _ in range(8):
        spikes = spikes + spikes
    return spikes


def overflowing(h: Tensor) -> Tensor:
    """0 or -128, which 128 is as a signed byte."""
    spikes = fires(h)
    for _ in range(7):
        spikes = spikes + spikes
    return spikes.astype("int8").astype(h.dtype)


def loop(x: Tensor, fire: Callable[[Tensor], Tensor] = with_surrogate) -> Tensor:
    """Spikes of neurons that leak; each step is one kernel."""

    def step(v: Tensor, now: Tensor) -> tuple[Tensor, Tensor]:
        h = v * 0.5 + now
        spikes = fire(h)
        return h - spikes, spikes

    return ops.scan(step, ops.zeros_like(x[0]), x)[1]


def with_slices(x: Tensor, fire: Callable[[Tensor], Tensor] = with_surrogate) -> Tensor:
    """The same, step by step, because a step has a slice."""

    def step(v: Tensor, now: Tensor) -> tuple[Tensor, Tensor]:
        h = ops.concat([v[:, ::2], v[:, 1::2]], 1) * 0.5 + now
        spikes = fire(h)
        return h - spikes, spikes

    return ops.scan(step, ops.zeros_like(x[0]), x)[1]


# --- Users of spikes (T, B, C, H, H) ----------------------------------------------------------------------------------


def conv(s: Tensor, w: Tensor, **options: Any) -> Tensor:
    return ops.conv2d(s.reshape(-1, *s.shape[2:]), w, pad_mode="same", **options)


def pool(s: Tensor, *size: int, **options: Any) -> Tensor:
    out = ops.max_pool2d(s.reshape(-1, *s.shape[2:]), *size, **options)
    return out.reshape(*s.shape[:2], *out.shape[1:])


def residual(s: Tensor, w: Tensor) -> Tensor:
    """A SEW block: the next neurons' spikes are added to those of the previous ones, in the loop of the next."""
    now = conv(s, w)
    return conv(s + loop(now.reshape(*s.shape[:2], *now.shape[1:])), w)


Net = Callable[[Tensor, Tensor], Any]  # of spikes and weights (C, C, 3, 3)
BYTES: dict[str, Net] = {
    "convolution": conv,
    "strides": lambda s, w: conv(s, w, stride=2),
    "wide strides": lambda s, w: conv(s, w, stride=3),
    "transposed convolution": lambda s, w: ops.conv_transpose2d(s.reshape(-1, *s.shape[2:]), w),
    "over one axis": lambda s, w: ops.conv1d(s.reshape(-1, C, H * H), w[:, :, 0], pad_mode="same"),
    "two convolutions": lambda s, w: conv(s, w) + conv(s, w * 0.5),
    "max pooling": lambda s, w: conv(pool(s, 2), w),
    "padded pooling": lambda s, w: conv(pool(s, 3, 2, pad_mode="pad", padding=1), w),
    "two poolings": lambda s, w: conv(pool(pool(s, 2), 3), w),
    "slices": lambda s, w: conv(ops.concat([ops.flip(s, 2)[1:, :, 1:], s[1:, :, :1]], 2), w),
    "transposed": lambda s, w: conv(s.transpose((1, 0, 2, 4, 3)), w),
    "sum over channels": lambda s, w: conv(s, w) * s.sum(2, keepdims=True).reshape(T * B, 1, H, H),
    "sum over time": lambda s, w: (conv(s, w), s.sum(0)),
    "factor": lambda s, w: conv(s, w) * (s * 0.5).reshape(T * B, C, H, H),
    "residual sum": residual,
    "residual sum of pooled spikes": lambda s, w: residual(pool(s, 2), w),
}  # fmt: skip
FLOATS: dict[str, Net] = {
    "a result": lambda s, w: (conv(s, w), s),
    "a result by a view": lambda s, w: (conv(s, w), s.reshape(-1)),
    "pooled to a result": lambda s, w: (conv(pool(s, 2), w), pool(s, 2)),
    "average pooling": lambda s, w: ops.conv2d(ops.avg_pool2d(s.reshape(-1, C, H, H), 2), w),
    "as a weight": lambda s, w: (conv(s, w), ops.conv2d(w, s[0, :, :, :2, :2].transpose((1, 0, 2, 3)), groups=4)),
    "padding by ones": lambda s, w: ops.conv2d(ops.pad(s.reshape(-1, C, H, H), (1, 1), value=0.5), w),
}  # fmt: skip


def drive(density: float, dtype: str = "float32", seed: int = 0) -> tuple[Tensor, Tensor]:
    """Currents for which about this share of neurons fires, and weights."""
    rng = np.random.default_rng(seed)
    x = rng.normal(-0.5, 0.2, (T, B, C, H, H)) + 3.0 * (rng.random((T, B, C, H, H)) < density)
    return Tensor(x.astype(dtype)), Tensor((rng.normal(size=(C, C, 3, 3)) * 0.3).astype(dtype))


def stored(function: Callable[..., Any], *inputs: Any) -> list[str]:
    """The dtypes of the sequences that loops return in the final Program."""
    parts = explain_passes(function, *inputs).split("\n--- ")[0].split("\n\n")
    last = [part for part in parts if not part.rstrip().endswith("no change")][-1]
    loops = re.findall(r"^  (%\S.*) = scan\(", last, re.MULTILINE)
    return [
        dtype for each in loops for dtype, shape in re.findall(r":(\w+)\[([\d,]*)\]", each) if shape.count(",") == 4
    ]


def net_of(user: Net, neurons: Callable[..., Tensor] = loop, fire: Any = with_surrogate) -> Callable[..., Any]:
    return lambda x, w: user(neurons(x, fire), w)


# --- The dtype that loops store ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("user", BYTES)
def test_spikes_leave_their_loop_as_bytes(user: str) -> None:
    assert set(stored(net_of(BYTES[user]), *drive(0.2))) in ({"bool"}, {"bool", "uint8"})
    kinds = stored(grad(lambda x, w: sums(net_of(BYTES[user])(x, w)), (0, 1)), *drive(0.2))
    # The loop also stores the potentials for the gradient. The second operand of a weight gradient must be floats.
    assert set(kinds) >= ({"float32"} if user == "transposed convolution" else {"bool", "float32"})


@pytest.mark.parametrize("user", FLOATS)
def test_spikes_that_are_needed_as_floats_stay_floats(user: str) -> None:
    assert set(stored(net_of(FLOATS[user]), *drive(0.2))) == {"float32"}


@pytest.mark.parametrize(
    ("fire", "expected"),
    [
        (fires, "bool"), (with_surrogate, "bool"), (selected, "uint8"), (counted, "uint8"), (graded, "float32"),
        (halved, "float32"), (signed, "float32"), (many, "float32"), (overflowing, "float32"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("neurons", [loop, with_slices])
def test_only_small_whole_numbers_become_bytes(neurons: Any, fire: Any, expected: str) -> None:
    assert stored(net_of(conv, neurons, fire), *drive(0.2)) == [expected]


def test_neurons_of_the_package_and_residual_sums_store_bytes() -> None:
    block = nn.SequentialCell(
        nn.TimeDistributed(nn.SequentialCell(nn.Conv2d(C, C, 3), nn.BatchNorm2d(C))), nn.MultiStep(nn.LIFNode())
    )
    first, readout = nn.MultiStep(nn.LIFNode()), nn.Dense(C, 3)

    def net(x: Tensor) -> Tensor:
        s = first(x)
        for _ in range(3):
            s = s + block(s)
        return readout(s.sum((0, 3, 4)))

    assert set(stored(net, drive(0.2)[0])) == {"bool", "uint8"}


def test_spikes_of_products_and_convolutions_are_bytes() -> None:
    x = Tensor(np.random.default_rng(0).normal(size=(16, 32, C, H, H)).astype(np.float32))
    w, dense = drive(0.2)[1], ops.ones((C * H * H, 64))

    def net(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        s = loop(x)
        return s.reshape(16, 32, -1) @ dense, s.reshape(16, 32, -1) @ ops.cos(dense), conv(s, w)

    assert stored(net, x, w) == ["bool"]

    def readout(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        s = loop(x)
        return s.reshape(16, 32, -1) @ dense[:, :1], conv(s, w)

    assert stored(readout, x, w) == ["float32"]


def test_numbers_too_large_for_a_byte_stay_floats() -> None:
    def doubled(s: Tensor, w: Tensor) -> Tensor:
        for _ in range(3):
            s = s + s * s  # at most 1, 2, 6 and 42
        return conv(s + s * s, w)

    assert "float32" in stored(net_of(doubled), *drive(0.2))


def test_pooled_bytes_above_127_stay_floats() -> None:
    """Pooling compares signed bytes."""
    x = (np.random.default_rng(0).random((B, C, H, H)) * 256).astype(np.uint8)
    w = drive(0.2)[1]

    def net(x: Tensor, w: Tensor) -> Tensor:
        return ops.conv2d(ops.max_pool2d(x.astype("float32"), 2), w)

    with unfused():
        expected = net(Tensor(x), w).asnumpy()
    np.testing.assert_allclose(jit(net)(Tensor(x), w).asnumpy(), expected, rtol=1e-4, atol=1e-3)


# --- The same results -------------------------------------------------------------------------------------------------


def sums(results: Any) -> Tensor:
    """A loss of one result or several."""
    each = results if isinstance(results, tuple) else (results,)
    return sum((ops.square(x).sum() for x in each), Tensor(np.zeros((), each[0].dtype.dtype)))


def assert_equals_unfused(net: Callable[..., Any], x: Tensor, w: Tensor, rtol: float = 2e-5) -> None:
    """Compare the loss and gradients of a compiled net with eager mode."""

    def trained(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        return sums(net(x, w)), *grad(lambda x, w: sums(net(x, w)), (0, 1))(x, w)

    with unfused():
        expected = trained(x, w)
    for found, other in zip(jit(trained)(x, w), expected, strict=True):
        assert found.dtype == other.dtype
        numbers = other.asnumpy().astype(np.float64)
        scale = max(1.0, float(np.nanmax(np.abs(numbers), initial=0.0)))
        np.testing.assert_allclose(found.asnumpy().astype(np.float64), numbers, rtol=rtol, atol=rtol * scale)


@pytest.mark.compiled
@pytest.mark.sampled(4)
@pytest.mark.parametrize("density", [0.0, 0.05, 0.6])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("fire", [with_surrogate, selected, counted, graded])
@pytest.mark.parametrize("neurons", [loop, with_slices])
@pytest.mark.parametrize("user", [*BYTES, *FLOATS])
def test_nets_equal_eager_mode(user: str, neurons: Any, fire: Any, dtype: str, density: float) -> None:
    x, w = drive(density, dtype)
    assert_equals_unfused(net_of({**BYTES, **FLOATS}[user], neurons, fire), x, w, 2e-2 if dtype == "float16" else 2e-5)


@pytest.mark.compiled
@random_cases(4)
def test_random_nets_equal_eager_mode(seed: int) -> None:
    rng = np.random.default_rng(seed)
    layers = {
        "pool": lambda s, w: pool(s, 2, 1),
        "flip": lambda s, w: ops.flip(s, 3),
        "spike": lambda s, w: loop(s - 0.5, [with_surrogate, selected, counted][int(seed) % 3]),
        "conv": lambda s, w: loop(conv(s, w).reshape(*s.shape[:2], C, *s.shape[3:])),
        "residual": lambda s, w: s + loop(conv(s, w).reshape(*s.shape[:2], C, *s.shape[3:])),
        "product": lambda s, w: s * loop(s + 0.2),
        "maximum": lambda s, w: ops.maximum(s, ops.flip(s, 4)),
        "selection": lambda s, w: ops.where(s > 0.0, s, ops.flip(s, 2)),
        "halved": lambda s, w: s * 0.5,
    }
    names = [str(name) for name in rng.choice(list(layers), rng.integers(2, 7))]

    def net(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        s = loop(x)
        for name in names:
            s = layers[name](s, w)
        return conv(s, w), *([s] if seed % 4 == 0 else [])

    assert_equals_unfused(net, *drive(float(rng.uniform(0.0, 0.5)), seed=seed))


@pytest.mark.compiled
def test_spikes_of_a_python_loop_over_time_equal_eager_mode() -> None:
    def net(x: Tensor, w: Tensor) -> Tensor:
        v, every = ops.zeros_like(x[0]), []
        for step in range(T):
            v = v * 0.5 + x[step]
            every.append(with_surrogate(v))
            v = v - every[-1]
        return conv(pool(ops.stack(every), 2), w)

    assert_equals_unfused(net, *drive(0.2))


@pytest.mark.compiled
@pytest.mark.parametrize("user", ["convolution", "padded pooling", "residual sum"])
def test_nan_currents_give_no_spikes(user: str) -> None:
    x, w = drive(0.2)
    numbers = x.asnumpy().copy()
    numbers[:, 0, 0, 0, 0] = np.nan
    net = net_of(BYTES[user])
    with unfused():
        expected = net(Tensor(numbers), w).asnumpy()
    found = jit(net)(Tensor(numbers), w).asnumpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert not np.isnan(found).any() or user == "residual sum"


@pytest.mark.compiled
@pytest.mark.parametrize("user", ["convolution", "max pooling", "residual sum"])
def test_second_order_gradients_equal_eager_mode(user: str) -> None:
    net = net_of(BYTES[user])

    def penalty(x: Tensor, w: Tensor) -> Tensor:
        return ops.square(grad(lambda x: ops.sin(net(x, w)).sum())(x)).sum()

    x, w = drive(0.2, "float64")
    second = grad(penalty, (0, 1))
    with unfused():
        expected = second(x, w)
    for found, other in zip(jit(second)(x, w), expected, strict=True):
        np.testing.assert_allclose(found.asnumpy(), other.asnumpy(), rtol=1e-8, atol=1e-8)


@pytest.mark.compiled
@pytest.mark.parametrize("user", ["convolution", "max pooling", "residual sum"])
def test_vmapped_nets_equal_single_nets(user: str) -> None:
    net, w = net_of(BYTES[user]), drive(0.2)[1]
    xs = [drive(0.2, seed=seed)[0] for seed in range(3)]
    found = jit(vmap(lambda x: net(x, w)))(ops.stack(xs)).asnumpy()
    for one, x in zip(found, xs, strict=True):
        np.testing.assert_allclose(one, net(x, w).asnumpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.compiled
def test_checkpoints_and_bytes_equal_eager_mode() -> None:
    cell = nn.MultiStep(nn.LIFNode(), checkpoint_every=2)
    assert_equals_unfused(lambda x, w: conv(pool(cell(x), 2), w), *drive(0.3))
