"""Custom gradients in loops without a state, which run for all slices at once: equal to one slice after another."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import snncell
from snncell import Parameter, Tensor, nn, ops


class Bent(nn.Cell):
    """x y, with a custom gradient that is not the derivative but linear in dout: for x dout (2 y + out), for y dout
    x**2.
    """

    def construct(self, x: Tensor, y: Tensor) -> Tensor:
        return x * y

    def bprop(self, x: Tensor, y: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor, Tensor]:
        return dout * (2.0 * y + out), dout * x * x


class Spikes(nn.Cell):
    """x > y, with a surrogate gradient for both inputs, which computes a gradient itself."""

    def construct(self, x: Tensor, y: Tensor) -> Tensor:
        return (x > y).astype(x.dtype)

    def bprop(self, x: Tensor, y: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor, Tensor]:
        slope = ops.grad(lambda v: ops.tanh(v).sum())(x - y)
        return dout * slope, -dout * slope * (1.0 + out)


class Reduced(nn.Cell):
    """The sum of x y over the elements, with a custom gradient that sums too."""

    def construct(self, x: Tensor, y: Tensor) -> Tensor:
        return (x * y).sum()

    def bprop(self, x: Tensor, y: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor, Tensor]:
        return dout * y * x.sum(), dout * (ops.exp(x) * 3.0 + out)


KINDS = {"bent": Bent, "spikes": Spikes, "reduced": Reduced}
# The kinds of x and y: a slice, or a constant: an argument, a captured Tensor, or a Parameter.
OPERANDS = ["slice", "given", "captured", "Parameter"]
PAIRS = [pair for pair in itertools.product(OPERANDS, repeat=2) if "slice" in pair]
COUNT, WIDTH = 3, 4


def one_by_one(fn: Callable[..., Any], xs: Tensor) -> Tensor:
    """Return the stacked results of all slices."""
    return ops.stack([fn(xs[n]) for n in range(len(xs))])


def scan_slices(fn: Callable[..., Any], xs: Tensor) -> Tensor:
    """Return the results of a loop without a state."""
    ys: Tensor = ops.scan(lambda carry, x: (carry, fn(x)), (), xs)[1]
    return ys


WAYS: dict[str, Callable[..., Any]] = {"vmap": lambda fn, xs: snncell.vmap(fn)(xs), "scan": scan_slices}


def nested(fn: Callable[..., Any], xs: Tensor) -> Tensor:
    """Two nested loops without a state, over slices of different slices."""
    return snncell.vmap(lambda row: snncell.vmap(lambda s: fn(s * row.sum()))(ops.stack([row, 2.0 * row])))(xs).sum(1)


def nested_one_by_one(fn: Callable[..., Any], xs: Tensor) -> Tensor:
    """The same loops, slice by slice."""
    return one_by_one(lambda row: fn(row * row.sum()) + fn(2.0 * row * row.sum()), xs)


def results(way: Any, kind: str, pair: tuple[str, str], dtype: Any, wrap: Any) -> list[Tensor]:
    """Return values; gradients of slices, arguments and the Parameter; the same from inside; and second order."""
    rng = np.random.default_rng(0)
    xs, given, captured = (Tensor(rng.normal(size=s).astype(dtype)) for s in ((COUNT, WIDTH), (WIDTH,), (WIDTH,)))
    weight = Parameter(Tensor(rng.normal(size=WIDTH).astype(dtype)), name="weight")
    cell = KINDS[kind]()

    def all_of(xs: Tensor, given: Tensor) -> Tensor:
        def one(x: Tensor) -> Tensor:
            found = {"slice": x, "given": given, "captured": captured, "Parameter": weight}
            return cell(*(found[name] for name in pair)) + 0.0 * x.sum()

        return way(one, xs)

    def loss(xs: Tensor, given: Tensor) -> Tensor:
        return (all_of(xs, given) * ops.sin(xs.sum(1))[:, None].astype(xs.dtype)).sum()

    if kind == "reduced":

        def loss(xs: Tensor, given: Tensor) -> Tensor:
            return (all_of(xs, given) * ops.sin(xs.sum(1))).sum()

    def inside(xs: Tensor, given: Tensor) -> Tensor:
        def one(x: Tensor) -> Tensor:
            found = {"given": given, "captured": captured, "Parameter": weight}
            return ops.grad(lambda x: cell(*(found.get(name, x) for name in pair)).sum())(x)

        return way(one, xs)

    def of_gradients(xs: Tensor, given: Tensor) -> Tensor:
        grads, (of_weight,) = ops.grad(loss, (0, 1), (weight,))(xs, given)
        return sum(((g * g).sum() for g in (*grads, of_weight)), Tensor(np.zeros((), dtype)))

    found = [wrap(all_of)(xs, given), wrap(inside)(xs, given)]
    for fn in (loss, of_gradients):
        grads, of_weights = wrap(ops.grad(fn, (0, 1), (weight,)))(xs, given)
        found += [*grads, *of_weights]
    return found


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("wrap", [lambda fn: fn, snncell.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["vmap", "scan", "nested"])
@pytest.mark.sampled(2)
def test_batched_slices_equal_separate_slices(way: str, kind: str, pair: Any, wrap: Any, dtype: Any) -> None:
    by_slices, at_once = (nested_one_by_one, nested) if way == "nested" else (one_by_one, WAYS[way])
    expected = results(by_slices, kind, pair, dtype, lambda fn: fn)
    found = results(at_once, kind, pair, dtype, wrap)
    for number, (mine, theirs) in enumerate(zip(found, expected, strict=True)):
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
        scale = max(1.0, float(abs(theirs.asnumpy()).max()))
        tolerance = 2e3 * np.finfo(dtype).eps * scale
        np.testing.assert_allclose(mine.asnumpy(), theirs.asnumpy(), rtol=0, atol=tolerance, err_msg=str(number))
