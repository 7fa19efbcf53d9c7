"""Loops over time with broadcast operands: every pattern, forward and backward, against the unfused tape."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from interpreting import interpreted

import snncell
from snncell import Tensor, jit, nn, ops, testing
from snncell.compiler.backends import cpu_loop
from snncell.kernels import loops

__all__ = ["interpreted"]  # a fixture

STEPS = 3
STEP = (2, 3, 2, 5)
# For each axis, whether an operand has it; the first axis is time.
PATTERNS = list(itertools.product((False, True), repeat=1 + len(STEP)))
DEEP = [(2, 1, 3, 1, 2), (1, 3, 1, 3, 1), (2, 1, 1, 3, 1), (1, 3, 1, 3, 2)]  # operands of steps (2, 3, 3, 3, 2)


def name_of(pattern: tuple[bool, ...]) -> str:
    return "".join(letter for letter, has in zip("TBCHW", pattern, strict=True) if has) or "scalar"


def operand(pattern: tuple[bool, ...], dtype: Any, seed: int) -> Tensor:
    shape = tuple(n if has else 1 for n, has in zip((STEPS, *STEP), pattern, strict=True))
    return made(shape if pattern[0] else shape[1:], dtype, seed)


def made(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> Tensor:
    return Tensor(np.random.default_rng(seed).uniform(0.5, 1.5, shape).astype(dtype))


def spikes(x: Tensor, factor: Tensor, offset: Tensor) -> Tensor:
    return nn.MultiStep(nn.LIFNode())(x * factor + offset)


def spikes_and_gradients(x: Tensor, factor: Tensor, offset: Tensor) -> Any:
    def loss(*xs: Tensor) -> tuple[Tensor, Tensor]:
        found = spikes(*xs)
        return (found * x).sum(), found

    (_, found), slopes = snncell.value_and_grad(loss, (0, 1, 2), has_aux=True)(x, factor, offset)
    return found, slopes


def gradients(x: Tensor, factor: Tensor, offset: Tensor) -> Any:
    return spikes_and_gradients(x, factor, offset)[1]


def check(*operands: Tensor) -> None:
    """Compare spikes, exactly, and gradients with those of the unfused tape."""
    found, slopes = jit(spikes_and_gradients)(*operands)
    with testing.unfused():
        expected, wanted = spikes_and_gradients(*operands)
    assert 0 < found.sum().item() < found.size
    np.testing.assert_array_equal(found.asnumpy(), expected.asnumpy(), strict=True)
    for a, b in zip(slopes, wanted, strict=True):
        tolerance = 1e-5 if a.asnumpy().dtype == np.float32 else 1e-12
        np.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=tolerance, atol=10 * tolerance, strict=True)


def in_blocks(monkeypatch: pytest.MonkeyPatch, length: int, work: int = 1) -> None:
    """Divide loops into blocks of `length` elements, on all threads from `work` operations on."""
    monkeypatch.setattr(loops, "block_of", lambda elements: length)
    monkeypatch.setattr(cpu_loop, "PARALLEL_SIZE", work)


@pytest.mark.sampled(24)
@pytest.mark.uncompiled
@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("length", [1, 7, 16, 60])
@pytest.mark.parametrize("pattern", PATTERNS, ids=name_of)
def test_interpreted_loops_equal_the_tape(
    pattern: tuple[bool, ...], length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_blocks(monkeypatch, length)
    operands = (
        made((STEPS, *STEP), np.float32),
        *(operand(pattern, np.float32, 1), operand(pattern[:1] + pattern[:0:-1], np.float32, 2)),
    )
    check(*operands)
    with testing.unfused():
        expected = spikes(*operands)
    np.testing.assert_array_equal(jit(spikes)(*operands).asnumpy(), expected.asnumpy())  # without the backward pass


@pytest.mark.sampled(8)
@pytest.mark.compiled
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("pattern", PATTERNS, ids=name_of)
def test_compiled_loops_equal_the_tape(pattern: tuple[bool, ...], dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for length in (7, 60):
        in_blocks(monkeypatch, length)
        check(made((STEPS, *STEP), dtype), operand(pattern, dtype, 1), operand(pattern, dtype, 2))


@pytest.mark.sampled(6)
@pytest.mark.compiled
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("pattern", PATTERNS, ids=name_of)
def test_bits_are_equal_on_one_and_all_threads(
    pattern: tuple[bool, ...], dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    operands = made((STEPS, *STEP), dtype), operand(pattern, dtype, 1), operand(pattern, dtype, 2)
    found = []
    for work in (1, 1 << 40):
        in_blocks(monkeypatch, 7, work)
        out, slopes = jit(spikes_and_gradients)(*operands)
        found.append([x.asnumpy().tobytes() for x in (out, *slopes)])
    assert found[0] == found[1]


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("shape", DEEP, ids=str)
@pytest.mark.parametrize("steps", [(), (STEPS,)], ids=["constant", "sequence"])
def test_operands_of_many_levels_equal_the_tape(
    shape: tuple[int, ...], steps: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    in_blocks(monkeypatch, 11)
    whole = np.broadcast_shapes(*DEEP)
    check(made((STEPS, *whole), np.float32), made((*steps, *shape), np.float32, 1), made(shape, np.float32, 2))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["one step", "one sample", "odd lengths"])
@pytest.mark.compiled
def test_shapes_of_every_size_equal_the_tape(name: str) -> None:
    shape = {"one step": (1, 2, 3, 4), "one sample": (4, 1, 5, 3), "odd lengths": (3, 7, 31, 33)}[name]
    for own in ((shape[2], 1), (shape[3],), (shape[1], 1, 1), (shape[1], 1, shape[3])):
        check(made(shape, np.float32), made(own, np.float32, 1), made(own, np.float32, 2))


@pytest.mark.parametrize("shape", [(3, 0, 4, 5), (3, 2, 4, 0)], ids=str)
def test_empty_arrays_have_gradients_of_zeros(shape: tuple[int, ...]) -> None:
    operands = made(shape, np.float32), made((4, 1), np.float32, 1), made((shape[3],), np.float32, 2)
    found = jit(gradients)(*operands)
    assert [x.shape for x in found] == [x.shape for x in operands]
    assert not any(np.any(x.asnumpy()) for x in found)


@pytest.mark.usefixtures("interpreted")
def test_second_order_gradients_equal_the_tape() -> None:
    layer = nn.MultiStep(nn.LIFNode())

    def total(x: Tensor, factor: Tensor, offset: Tensor) -> Tensor:
        return ops.square(
            snncell.grad(lambda *xs: (layer(x * xs[0] + xs[1]) * x).sum(), (0, 1))(factor, offset)[0]
        ).sum()

    operands = made((STEPS, *STEP), np.float64), made((3, 1, 1), np.float64, 1), made((5,), np.float64, 2)
    found = jit(snncell.grad(total, (0, 1, 2)))(*operands)
    with testing.unfused():
        expected = snncell.grad(total, (0, 1, 2))(*operands)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=1e-10)


# --- Users of results -------------------------------------------------------------------------------------------------


def merged(x: Tensor) -> Tensor:
    return x.reshape((x.shape[0] * x.shape[1], *x.shape[2:]))


def of_centred(y: Tensor, c: Tensor) -> Tensor:
    """A result in two passes over `c`, as the gradient of a normalisation."""
    return c * (y * c).sum((0, 2, 3)).reshape((1, -1, 1, 1))


def beside_exponential(y: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """A product with a sum whose operands are computed one after the other."""
    e = ops.exp(c)
    return y * (e + c), e


# Functions of a result y of a loop, of an array of one step and of a sequence, and the number of loops that are left.
# "Merged" ones reshape steps and batch into one axis, as `nn.TimeDistributed` does.
USERS: dict[str, tuple[Any, int]] = {
    "stored": (lambda y, a, c: y * a + c, 0),
    "summed": (lambda y, a, c: (y * c).sum(0), 0),
    "summed over other axes": (lambda y, a, c: (y * c).sum((0, 1, 3, 4)), 0),
    "two sums of one term": (lambda y, a, c: (y.sum((0, 1, 3, 4)), y.sum((0, 1, 2, 3)), y.sum(0)), 0),
    "two results": (lambda y, a, c: (y * a, ops.square(y) - c), 0),
    "with the result itself": (lambda y, a, c: (y, y * a), 1),
    "with the result, then a sum": (lambda y, a, c: (y, (y * a).sum(0)), 0),
    "a chain of stored results": (lambda y, a, c: (y, y * a, (y * a) * y * 2.0 + c), 1),
    "along time": (lambda y, a, c: y * a.reshape((1, *a.shape)), 1),
    "a sum first": (lambda y, a, c: y * y.sum(0), 1),
    "another loop": (lambda y, a, c: y * nn.MultiStep(nn.IFNode())(y + c), 0),
    "a wider shape": (lambda y, a, c: y * a.reshape((2, 1, 1, 3, 2, 5)), 1),
    "merged, stored": (lambda y, a, c: (merged(y) * 3.0 - 1.0) * merged(c), 0),
    "merged, summed": (lambda y, a, c: (merged(y) * merged(c)).sum((0, 2, 3)), 0),
    "merged, summed with lengths kept": (lambda y, a, c: (merged(y) * merged(c)).sum((0, 1, 2), keepdims=True), 0),
    "merged, two sums that are one": (lambda y, a, c: (merged(y).sum((0, 2)), (-merged(y) * 2.0).sum((0, 2))), 1),
    "merged, summed except the batch": (lambda y, a, c: merged(y).sum((1, 2)), 1),
    "merged in another way": (lambda y, a, c: y.reshape((3, 4, 3, 5)).sum((0, 1)), 1),
    "merged, with a cheap producer that has other users": (lambda y, a, c: of_centred(merged(y), merged(c) - 0.5), 1),
    "merged, with an operand that is a result": (lambda y, a, c: beside_exponential(merged(y), merged(c)), 2),
    "booleans": (lambda y, a, c: ops.where(y > 0.0, a, c), 0),
}


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("name", USERS)
def test_elementwise_users_of_a_loop_equal_the_tape(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    in_blocks(monkeypatch, 60)
    function, left = USERS[name]
    operands = made((STEPS, *STEP), np.float64), made(STEP, np.float64, 1), made((STEPS, *STEP), np.float64, 2)

    def whole(x: Tensor, a: Tensor, c: Tensor) -> Any:
        return function(nn.MultiStep(nn.LIFNode())(x * 1.5), a, c)

    found = jit(whole)(*operands)
    with testing.unfused():
        expected = whole(*operands)
    for a, b in zip(*(x if isinstance(x, tuple) else (x,) for x in (found, expected)), strict=True):
        np.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=1e-13, strict=True)
    assert f" {left} loop{'s' * (left != 1)}, " in snncell.explain(jit(whole), *operands, detail="launches")


@pytest.mark.usefixtures("interpreted")
def test_gradients_of_operands_are_computed_in_the_backward_loop() -> None:
    operands = made((STEPS, *STEP), np.float32), made((3, 1, 1), np.float32, 1), made((5,), np.float32, 2)
    text = snncell.explain(jit(gradients), *operands, detail="launches")
    assert text.splitlines()[0].startswith("gradients: 0 loops, 2 loops over time")
