"""Pooling in the kernels of loops over time: the same bits as outside of them, and the reasons why it stays outside."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from random_cases import random_cases
from thread_counts import on_threads

from snncell import Tensor, explain, grad, jit, nn, ops, surrogate
from snncell.compiler import passes
from snncell.compiler.backends import cpu_loop, pools
from snncell.kernels import loops
from snncell.testing import unfused

Layer = Callable[[Tensor], Tensor]
FUSED = "in the loop, block by block"
BLOCK = 19  # elements of a block of a small loop, in tests; blocks begin anywhere in a row


def spike(h: Tensor) -> Tensor:
    return surrogate.ATan()(h - 1.0)


def leaky(x: Tensor) -> Tensor:
    """Neurons with one state."""

    def step(v: Tensor, now: Tensor) -> tuple[Tensor, Tensor]:
        h = v * 0.5 + now
        s = spike(h)
        return h - s, s

    return ops.scan(step, ops.zeros_like(x[0]), x)[1]


def adaptive(x: Tensor) -> Tensor:
    """Neurons with two states, and graded results."""

    def step(state: tuple[Tensor, Tensor], now: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
        v, a = state
        h = v * 0.5 + now - a
        s = spike(h)
        return (h * (1.0 - s), a * 0.9 + s * 0.1), s * h

    return ops.scan(step, (ops.zeros_like(x[0]), ops.zeros_like(x[0])), x)[1]


def padded(x: Tensor) -> Tensor:
    """Neurons of the package, for samples of different lengths."""
    lengths = np.arange(x.shape[1]) % x.shape[0] + 1
    out: Tensor = nn.MultiStep(nn.LIFNode(tau=2.0, v_threshold=0.6))(x, lengths=Tensor(lengths))
    return out


def normalised(x: Tensor) -> Tensor:
    """Neurons after a normalisation over time, batch and space, of each channel."""
    axes = (0, 1, *range(3, x.ndim))
    centred = x - x.mean(axes, keepdims=True)
    return leaky(centred / ops.sqrt((centred * centred).mean(axes, keepdims=True) + 0.5) + 0.4)


def over_time(layer: Layer) -> Layer:
    """A layer of images, for the images of all steps."""

    def each(x: Tensor) -> Tensor:
        out = layer(x.reshape(-1, *x.shape[2:]))
        return out.reshape(*x.shape[:2], *out.shape[1:])

    return each


def pool_of(kind: str, size: tuple[int, ...], **options: Any) -> Layer:
    return over_time(lambda x: getattr(ops, f"{kind}_pool{len(size)}d")(x, size, **options))


def loss_of(net: Layer, second: bool = False) -> Callable[..., Any]:
    """A function that returns a net's outputs, its loss, its gradients, and the gradient of a sum over gradients."""

    def loss(x: Tensor, w: Tensor) -> Tensor:
        out = net(x * w)
        return (ops.square(out) * ops.cos(ops.arange(out.size).astype(out.dtype).reshape(out.shape))).sum()

    def slope(x: Tensor, w: Tensor) -> Tensor:
        return ops.square(grad(loss, 1)(x, w)).sum()

    return lambda x, w: (net(x * w), loss(x, w), *grad(loss, (0, 1))(x, w), *([grad(slope)(x, w)] if second else []))


def drive(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> tuple[Tensor, Tensor]:
    """Currents (T, B, C, *S), and a factor for each channel."""
    rng = np.random.default_rng(seed)
    w = rng.uniform(0.5, 1.5, (shape[2], *(1,) * (len(shape) - 3)))
    return Tensor(rng.normal(0.5, 1.0, shape).astype(dtype)), Tensor(w.astype(dtype))


def assert_same_bits(function: Callable[..., Any], *inputs: Tensor) -> None:
    """Compare a compiled function with and without fused pooling, on one and two threads, and with the tape."""
    found: list[Any] = []
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(cpu_loop, "PARALLEL_SIZE", 0)
        monkeypatch.setattr(loops, "LEAST_BLOCK", BLOCK)  # many blocks
        for threads in (1, 2):
            with on_threads(threads):
                found.append(jit(function)(*inputs))
        rest = tuple(one for one in passes.PROGRAM_PASSES if one.name != "pool_in_loops")
        monkeypatch.setattr(passes, "PROGRAM_PASSES", rest)
        expected = jit(function)(*inputs)
    with unfused():
        slowly = function(*inputs)
    for one, two, three, four in zip(*found, expected, slowly, strict=True):
        np.testing.assert_array_equal(one.asnumpy(), three.asnumpy())
        np.testing.assert_array_equal(two.asnumpy(), three.asnumpy())
        scale = float(np.abs(four.asnumpy()).max(initial=1.0))
        np.testing.assert_allclose(one.asnumpy(), four.asnumpy(), rtol=1e-4, atol=1e-5 * scale)


# --- The same bits ----------------------------------------------------------------------------------------------------


def random_net(rng: np.random.Generator, axes: int, channels: int, dtype: str) -> Layer:
    """Neurons, and layers with pooling, sums and second users of spikes, as they come."""
    neurons = [leaky, adaptive, padded, normalised][int(rng.integers(4))]
    kind = str(rng.choice(["max", "max", "max", "avg", "sum"]))
    size = tuple(int(n) for n in rng.choice([2, 3], axes)) if rng.random() < 0.5 else (2,) * axes
    options = [{}, {"ceil_mode": True} if kind != "sum" else {}, {"stride": 1}][int(rng.choice(3, p=[0.8, 0.1, 0.1]))]
    pool = pool_of(kind, size, **options)
    conv_of = ops.conv2d if axes == 2 else ops.conv1d
    kernel = Tensor((rng.normal(size=(channels, channels, *(3,) * axes)) * 0.4).astype(dtype))
    conv = over_time(lambda x: conv_of(x, kernel, pad_mode="same"))
    nets: list[Layer] = [
        lambda x: conv(pool(neurons(x))),
        lambda x: pool(neurons(x)),
        lambda x: neurons(conv(pool(neurons(x)))),
        lambda x: conv(pool(neurons(x) + x)),
        lambda x: pool(x + neurons(conv(neurons(x)))),
        lambda x: (lambda s: neurons(conv(s)) + s)(pool(neurons(x))),
        lambda x: (lambda s: conv(pool(s)).sum() + conv(s))(neurons(x)),
        lambda x: (lambda s: pool(s) + pool_of("avg", size, **options)(s))(neurons(x)),
        lambda x: pool(neurons(pool(neurons(x)))) if min(x.shape[3:]) > 8 else pool(neurons(x)),
    ]
    return nets[int(rng.integers(len(nets)))]


@pytest.mark.compiled
@random_cases(6)
def test_random_nets_have_the_same_bits(seed: int) -> None:
    rng = np.random.default_rng(seed)
    axes, dtype = 1 + int(rng.random() < 0.7), str(rng.choice(["float32", "float64"], p=[0.7, 0.3]))
    lengths = [int(rng.integers(3, 15)) * (1 if axes == 2 else 4) for _ in range(axes)]
    steps, batch, channels = int(rng.choice([1, 2, 5])), int(rng.choice([1, 4])), int(rng.choice([1, 5]))
    net = random_net(rng, axes, channels, dtype)
    assert_same_bits(loss_of(net, seed % 4 == 3), *drive((steps, batch, channels, *lengths), dtype, seed))


def test_a_state_that_is_pooled_is_kept_for_the_backward_pass() -> None:
    def net(x: Tensor) -> Tensor:
        def step(v: Tensor, now: Tensor) -> tuple[Tensor, Tensor]:
            h = ops.tanh(v) * v * 0.5 + now
            return h, h  # the backward pass needs `v`, which is in the array of `h`

        return pool_of("max", (2, 2))(ops.scan(step, ops.zeros_like(x[0]), x)[1])

    assert_same_bits(loss_of(net), *drive(EVEN))


# --- What is fused, and why not ---------------------------------------------------------------------------------------


def stateless(x: Tensor) -> Tensor:
    return ops.scan(lambda states, now: (states, spike(now)), (), x)[1]


ODD, EVEN = (3, 2, 4, 7, 9), (3, 2, 4, 6, 8)
NETS: dict[str, tuple[Layer, tuple[int, ...], str]] = {
    "rows": (lambda x: pool_of("max", (2, 2))(leaky(x)), EVEN, ""),
    "images": (lambda x: pool_of("avg", (2, 3))(adaptive(x)), ODD, ""),
    "one step": (lambda x: pool_of("sum", (2,))(leaky(x)), (1, 2, 4, 7), ""),
    "two readers": (lambda x: (lambda s: pool_of("max", (2, 1))(s).sum() + s)(leaky(x)), EVEN, ""),
    "overlap": (lambda x: pool_of("max", (2, 2), stride=1)(leaky(x)), EVEN, "its windows overlap, or leave gaps"),
    "ceil_mode": (lambda x: pool_of("max", (2, 2), ceil_mode=True)(leaky(x)), ODD, "extend beyond the image"),
    "long": (lambda x: pool_of("max", (2,))(leaky(x)), (2, 1, 1, 5000), "5000 elements, and a block of a loop at most"),
    "input": (lambda x: pool_of("max", (2, 2))(x), EVEN, "not the result of a loop over time"),
    "rates": (
        lambda x: (lambda s: pool_of("max", (2, 2))(s).sum() + s.sum((0, 1, 3, 4)))(leaky(x)),
        EVEN,
        "the loop also sums over neurons",
    ),
    "no states": (lambda x: pool_of("max", (2, 2))(stateless(x)), EVEN, "the loop has no states"),
}  # fmt: skip


@pytest.mark.parametrize("name", NETS)
def test_explain_tells_whether_pooling_is_fused_and_why_not(name: str) -> None:
    net, shape, reason = NETS[name]
    text = str(explain(loss_of(net), *drive(shape), detail="launches"))
    calls = [line for line in text.splitlines() if line.strip().startswith("no loop: not part of a loop over time")]
    if not reason:
        assert not calls and text.count(FUSED) >= 2  # forward and backward
    else:
        assert any(reason in line for line in calls)
        assert text.count(" call max_pool") + text.count(" call largest") + text.count(" call unpool") == len(calls)


def test_pooling_in_the_step_of_a_loop_is_fused_too() -> None:
    def net(x: Tensor, before: bool = False) -> Tensor:
        def step(v: Tensor, now: Tensor) -> tuple[Tensor, Tensor]:
            h = v * 0.5 + (ops.max_pool2d(now, 2) if before else now)
            s = spike(h)
            return h - s, s if before else ops.max_pool2d(s, 2)

        return ops.scan(step, ops.zeros((2, 4, 3, 4) if before else x.shape[1:]), x)[1]

    text = str(explain(loss_of(net), *drive(EVEN), detail="launches"))
    assert re.search(f"{FUSED}:\n +largest", text) and re.search(f"{FUSED}:\n +unpool", text)
    assert_same_bits(loss_of(net), *drive(EVEN))
    text = str(explain(loss_of(lambda x: net(x, True)), *drive(EVEN), detail="launches"))
    assert FUSED not in text and re.search(
        "largest is not in the kernel, because .* does not compute its operand", text
    )


@pytest.mark.parametrize("inside", [False, True])
def test_a_loop_that_broadcasts_a_gradient_of_pooling_reads_it_from_memory(inside: bool) -> None:
    def net(x: Tensor, w: Tensor) -> Tensor:
        def of_pool(x: Tensor) -> Tensor:
            return ops.square(ops.max_pool2d(x.reshape(-1, *x.shape[-3:]), 2)).sum()

        def step(v: Tensor, now: Tensor) -> tuple[Tensor, Tensor]:
            h = v * 0.5 + (grad(of_pool)(now) if inside else now)
            return h, ops.tanh(h)

        return ops.scan(step, ops.zeros((2, 4, 6, 8)), x if inside else grad(of_pool)(x))[1]

    assert_same_bits(lambda x, w: [net(x, w)], *drive((3, 2, 1, 6, 8)))
    text = str(explain(net, *drive((3, 2, 1, 6, 8)), detail="launches"))
    assert "broadcasts" in text and FUSED not in text


@pytest.mark.parametrize("both", [False, True])
def test_a_loop_writes_its_spikes_only_if_something_else_needs_them(both: bool) -> None:
    kept: list[set[Any]] = []

    class Recorded(pools.Pools):
        def __init__(self, instructions: Any, sequences: Any, needed: Any) -> None:
            super().__init__(instructions, sequences, needed)
            kept.append(set(self.images) - set(self.near))

    def net(x: Tensor) -> tuple[Tensor, ...]:
        s = leaky(x)
        return pool_of("max", (2, 2))(s), *([s] if both else [])

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(cpu_loop, "Pools", Recorded)
        jit(net)(drive(EVEN)[0])
    assert [len(each) for each in kept if each or not both][-1] == int(both)
