"""Losses of MindSpore and PyTorch: Cells against PyTorch, with weights and reductions, and at extreme inputs.

The formulas are rows of `gradient_table.py`. This file tests their Cells and the inputs at which a naive formula would
give infinity, NaN or 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import snncell
from snncell import Tensor, nn, ops, testing
from snncell.errors import ArgumentError, DTypeError, ShapeError

N, C = 6, 4
RNG = np.random.default_rng(4)
VALUES, OTHERS = RNG.standard_normal((N, C)), RNG.standard_normal((N, C))
SHARES, TARGETS = RNG.uniform(0.02, 0.98, (2, N, C))
WEIGHT, CLASS_WEIGHT = RNG.uniform(0.2, 2.0, (N, C)), np.array([0.5, 1.0, 2.0, 0.7])
LABELS = np.array([0, 3, 1, 3, 2, 3])
SIGNS = np.array([1.0, -1.0, 1.0, 1.0, -1.0, -1.0])
LOG_P = VALUES - np.log(np.exp(VALUES).sum(1, keepdims=True))


class Row(NamedTuple):
    """A loss with a reduction, PyTorch's loss, and the arguments of both. Floats get gradients, except `fixed`."""

    make: Callable[[str], Any]
    torchs: Callable[[Any, str], Any]
    inputs: tuple[np.ndarray, ...]
    fixed: tuple[int, ...] = ()


def of(t: Any, array: np.ndarray) -> Any:
    return t.tensor(array)


LOSSES: dict[str, Row] = {
    "L1": Row(nn.L1Loss, lambda t, r: t.nn.L1Loss(reduction=r), (VALUES, OTHERS)),
    "MSE": Row(nn.MSELoss, lambda t, r: t.nn.MSELoss(reduction=r), (VALUES, OTHERS)),
    "Huber": Row(lambda r: nn.HuberLoss(r, 0.6), lambda t, r: t.nn.HuberLoss(reduction=r, delta=0.6), (VALUES, OTHERS)),
    "SmoothL1": Row(
        lambda r: nn.SmoothL1Loss(0.6, r), lambda t, r: t.nn.SmoothL1Loss(reduction=r, beta=0.6), (VALUES, OTHERS)
    ),
    "SmoothL1 of L1": Row(
        lambda r: nn.SmoothL1Loss(0.0, r), lambda t, r: t.nn.SmoothL1Loss(reduction=r, beta=0.0), (VALUES, OTHERS)
    ),
    "BCE": Row(lambda r: nn.BCELoss(reduction=r), lambda t, r: t.nn.BCELoss(reduction=r), (SHARES, TARGETS)),
    "BCE weighted": Row(
        lambda r: nn.BCELoss(WEIGHT, r), lambda t, r: t.nn.BCELoss(of(t, WEIGHT), reduction=r), (SHARES, TARGETS)
    ),
    "BCE of logits": Row(nn.BCEWithLogitsLoss, lambda t, r: t.nn.BCEWithLogitsLoss(reduction=r), (VALUES, TARGETS)),
    "BCE of logits weighted": Row(
        lambda r: nn.BCEWithLogitsLoss(r, Tensor(WEIGHT), Tensor(CLASS_WEIGHT)),
        lambda t, r: t.nn.BCEWithLogitsLoss(of(t, WEIGHT), pos_weight=of(t, CLASS_WEIGHT), reduction=r),
        (VALUES, TARGETS),
    ),
    "NLL": Row(lambda r: nn.NLLLoss(reduction=r), lambda t, r: t.nn.NLLLoss(reduction=r), (LOG_P, LABELS)),
    "NLL weighted, ignoring": Row(
        lambda r: nn.NLLLoss(CLASS_WEIGHT, 3, r),
        lambda t, r: t.nn.NLLLoss(of(t, CLASS_WEIGHT), ignore_index=3, reduction=r),
        (LOG_P, LABELS),
    ),
    "softmax, sparse": Row(
        lambda r: nn.SoftmaxCrossEntropyWithLogits(True, r),
        lambda t, r: t.nn.CrossEntropyLoss(reduction=r),
        (VALUES, LABELS),
    ),
    "softmax, dense": Row(
        lambda r: nn.SoftmaxCrossEntropyWithLogits(False, r),
        lambda t, r: t.nn.CrossEntropyLoss(reduction=r),
        (VALUES, TARGETS),
    ),
    "KLDiv": Row(nn.KLDivLoss, lambda t, r: _mean(t, t.nn.KLDivLoss, r), (LOG_P, SHARES)),
    "Gaussian": Row(
        lambda r: nn.GaussianNLLLoss(full=True, reduction=r),
        lambda t, r: t.nn.GaussianNLLLoss(full=True, reduction=r),
        (VALUES, OTHERS, SHARES),
    ),
    "Poisson": Row(
        lambda r: nn.PoissonNLLLoss(reduction=r), lambda t, r: t.nn.PoissonNLLLoss(reduction=r), (VALUES, SHARES)
    ),
    "Poisson of rates": Row(
        lambda r: nn.PoissonNLLLoss(False, True, 1e-3, r),
        lambda t, r: t.nn.PoissonNLLLoss(False, True, eps=1e-3, reduction=r),
        (SHARES, 3 * TARGETS),
        (1,),  # PyTorch stops the gradient of Stirling's formula
    ),
    "SoftMargin": Row(
        nn.SoftMarginLoss, lambda t, r: t.nn.SoftMarginLoss(reduction=r), (VALUES, np.sign(OTHERS)), (1,)
    ),
    "HingeEmbedding": Row(
        lambda r: nn.HingeEmbeddingLoss(0.7, r),
        lambda t, r: t.nn.HingeEmbeddingLoss(0.7, reduction=r),
        (VALUES, np.sign(OTHERS)),
        (1,),
    ),
    "MarginRanking": Row(
        lambda r: nn.MarginRankingLoss(0.3, r),
        lambda t, r: t.nn.MarginRankingLoss(0.3, reduction=r),
        (VALUES[:, 0], OTHERS[:, 0], SIGNS),
        (2,),
    ),
    "CosineEmbedding": Row(
        lambda r: nn.CosineEmbeddingLoss(-0.5, r),
        lambda t, r: t.nn.CosineEmbeddingLoss(-0.5, reduction=r),
        (VALUES, OTHERS, SIGNS),
        (2,),
    ),
    "TripletMargin": Row(
        lambda r: nn.TripletMarginLoss(swap=True, reduction=r, margin=2.0),
        lambda t, r: t.nn.TripletMarginLoss(2.0, swap=True, reduction=r),
        (VALUES, OTHERS, WEIGHT),
    ),
}


def _mean(t: Any, loss: Any, reduction: str) -> Any:
    """PyTorch's loss, reduced by hand because its own mean raises a warning."""
    plain = loss(reduction="none")
    return (lambda *xs: plain(*xs).mean()) if reduction == "mean" else loss(reduction=reduction)


def differentiable(row: Row) -> list[int]:
    return [i for i, x in enumerate(row.inputs) if x.dtype.kind == "f" and i not in row.fixed]


@pytest.mark.peer
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", LOSSES)
def test_losses_equal_torch(torch, name, reduction):
    row = LOSSES[name]
    places = differentiable(row)
    theirs = [torch.tensor(x, requires_grad=i in places) for i, x in enumerate(row.inputs)]
    expected = row.torchs(torch, reduction)(*theirs)
    expected.sum().backward()
    loss = row.make(reduction)
    value, found = snncell.value_and_grad(loss, tuple(places))(*map(Tensor, row.inputs))
    np.testing.assert_allclose(value.asnumpy(), expected.detach().numpy(), rtol=1e-11, atol=1e-13)
    for place, gradient in zip(places, found if isinstance(found, tuple) else (found,), strict=True):
        np.testing.assert_allclose(gradient.asnumpy(), theirs[place].grad.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.slow
@pytest.mark.compiled
def test_jitted_losses_equal_eager():
    """One function holds all losses, so that they are compiled together."""
    arrays: dict[int, Tensor] = {id(x): Tensor(x) for row in LOSSES.values() for x in row.inputs}
    keys, losses = list(arrays), {name: row.make("mean") for name, row in LOSSES.items()}

    def everything(*given: Tensor) -> list[Any]:
        by_key = dict(zip(keys, given, strict=True))
        outs: list[Any] = []
        for name, row in LOSSES.items():
            grad_fn = snncell.value_and_grad(losses[name], tuple(differentiable(row)))
            outs.append(grad_fn(*(by_key[id(x)] for x in row.inputs)))
        return outs

    plain, jitted = everything(*arrays.values()), snncell.jit(everything)(*arrays.values())
    for name, a, b in zip(LOSSES, plain, jitted, strict=True):
        for x, y in zip(*(snncell.tape.structure.flatten(one)[0] for one in (a, b)), strict=True):
            np.testing.assert_allclose(y.asnumpy(), x.asnumpy(), rtol=1e-11, atol=1e-13, err_msg=name)


@pytest.mark.parametrize("name", LOSSES)
def test_losses_keep_float16_and_float32(name):
    row = LOSSES[name]
    for dtype in ("float16", "float32"):
        if "weighted" in name:  # the weights are float64
            continue
        given = [Tensor(x, dtype) if x.dtype.kind == "f" else Tensor(x) for x in row.inputs]
        out = row.make("mean")(*given)
        assert out.dtype.name.lower() == dtype and abs(out.item()) < 100


# --- extremes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_large_logits_give_the_exact_loss(dtype):
    x, y = Tensor([-60.0, 60.0, -9.0, 9.0], dtype), Tensor([0.0, 1.0, 1.0, 0.0], dtype)
    value, gradient = snncell.value_and_grad(nn.BCEWithLogitsLoss("none"))(x, y)
    exact = np.log1p(np.exp(np.array([-60.0, -60.0, 9.0, 9.0])))
    np.testing.assert_allclose(value.asnumpy(), exact, rtol=1e-2 if dtype == "float16" else 1e-6, atol=1e-7)
    assert np.isfinite(gradient.asnumpy()).all()
    if dtype == "float64":
        np.testing.assert_allclose(value.asnumpy(), exact, rtol=1e-14)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_probabilities_zero_and_one_give_a_finite_loss(dtype):
    p, y = Tensor([0.0, 1.0, 0.0, 1.0], dtype), Tensor([0.0, 1.0, 1.0, 0.0], dtype)
    value, gradient = snncell.value_and_grad(nn.BCELoss(reduction="none"))(p, y)
    np.testing.assert_allclose(value.asnumpy(), [0.0, 0.0, 100.0, 100.0])
    np.testing.assert_allclose(gradient.asnumpy(), [0.0, 0.0, -1e12, 1e12], rtol=1e-6)


def test_zero_target_adds_nothing_to_kl_divergence():
    value, gradient = snncell.value_and_grad(nn.KLDivLoss("none"), (0, 1))(Tensor([-1.0, -2.0]), Tensor([0.0, 0.5]))
    assert value.asnumpy()[0] == 0.0
    assert all(np.isfinite(g.asnumpy()).all() for g in gradient)


def test_zero_vectors_have_a_finite_cosine():
    zero = Tensor(np.zeros((1, 3)))
    value, gradient = snncell.value_and_grad(nn.CosineEmbeddingLoss())(zero, zero, Tensor([1.0]))
    assert value.item() == 1.0 and np.isfinite(gradient.asnumpy()).all()


def test_distance_of_equal_vectors_has_a_finite_gradient():
    x = Tensor(np.ones((1, 3)))
    gradient = snncell.grad(nn.TripletMarginLoss())(x, x, x)
    assert np.isfinite(gradient.asnumpy()).all()


def test_losses_in_a_scan_equal_a_python_loop(rng):
    """The gradients of a loss at each step are summed over steps."""
    x, y = rng.uniform(0.05, 0.95, (2, 5, 3, 2))

    def looped(x):
        return ops.scan(lambda c, xy: (c + nn.HuberLoss("sum", 0.2)(*xy), c), Tensor(0.0, "float64"), (x, Tensor(y)))[0]

    testing.check_grads(looped, Tensor(x), order=2)
    by_hand = sum(snncell.grad(nn.HuberLoss("sum", 0.2))(Tensor(x[t]), Tensor(y[t])).asnumpy().sum() for t in range(5))
    assert snncell.grad(looped)(Tensor(x)).asnumpy().sum() == pytest.approx(by_hand)


def test_nan_and_invalid_probabilities_propagate():
    for target in (np.nan, -1.0):
        assert np.isnan(ops.kl_div(Tensor([0.0]), Tensor([target]), "none").item())
    assert ops.kl_div(Tensor([-np.inf]), Tensor([0.0]), "none").item() == 0.0


def test_triplet_loss_of_equal_vectors_without_eps_equals_torch(torch):
    anchor, positive, negative = np.array([[1.0, 2.0]]), np.array([[1.0, 2.0]]), np.array([[1.0, 2.5]])
    theirs = torch.tensor(anchor, requires_grad=True)
    loss = torch.nn.functional.triplet_margin_loss(theirs, torch.tensor(positive), torch.tensor(negative), eps=0.0)
    loss.backward()
    value, grad = snncell.value_and_grad(lambda a: ops.triplet_margin_loss(a, positive, negative, eps=0.0))(
        Tensor(anchor)
    )
    assert value.item() == pytest.approx(loss.item())
    np.testing.assert_allclose(grad.asnumpy(), theirs.grad.numpy())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_more_labels_than_the_float16_maximum(dtype):
    logits, labels = ops.zeros((70_000, 2), dtype), ops.zeros((70_000,), "int64")
    for weight in (None, ops.ones((2,), dtype)):
        loss, grad = snncell.value_and_grad(lambda x, w=weight: ops.cross_entropy(x, labels, w))(logits)
        assert loss.dtype == logits.dtype
        assert loss.item() == pytest.approx(np.log(2), rel=5e-3)
        assert grad[0].tolist() == pytest.approx([-0.5 / 70_000, 0.5 / 70_000], rel=1e-2)
    assert ops.nanmean(ops.ones((70_000,), dtype)).item() == 1.0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_cosines_of_long_and_empty_vectors(dtype):
    long = ops.full((2, 3), 200.0, dtype)
    loss = ops.cosine_embedding_loss(long, long, ops.ones((2,)))
    assert (loss.dtype, loss.item()) == (long.dtype, pytest.approx(0.0, abs=1e-6))
    assert ops.cosine_embedding_loss(long * 0, long * 0, ops.ones((2,))).item() == 1.0


# --- errors -----------------------------------------------------------------------------------------------------------

X, Y = Tensor(VALUES), Tensor(LABELS)
REFUSED = [
    (
        lambda: nn.BCELoss()(X, Tensor(SIGNS)),
        ShapeError,
        r"target of shape \(6,\) must have the same",
    ),
    (lambda: nn.BCELoss(np.ones(5))(Tensor(SHARES), Tensor(TARGETS)), ShapeError, r"weight of shape \(5,\) does not"),
    (lambda: nn.NLLLoss()(X, X), DTypeError, "nll_loss: target must hold class numbers, which are integers"),
    (lambda: nn.NLLLoss()(X, Tensor(LABELS[:3])), ShapeError, r"need labels of shape \(6,\), not \(3,\)"),
    (lambda: nn.NLLLoss()(X, Tensor(LABELS + 1)), ArgumentError, "4"),
    (lambda: nn.NLLLoss([1.0, 2.0])(X, Y), ShapeError, r"weight has shape \(2,\).* have 4 classes"),
    (lambda: nn.SoftmaxCrossEntropyWithLogits()(X, Y), ShapeError, r"Write sparse=True for labels \(N,\)"),
    (lambda: nn.SoftmaxCrossEntropyWithLogits(True)(X, X), ShapeError, r"Write sparse=False for labels \(N, C\)"),
    (lambda: nn.SoftmaxCrossEntropyWithLogits(True)(X, Tensor(SIGNS)), DTypeError, "labels must be integers"),
    (lambda: nn.CosineEmbeddingLoss()(X, X, X), ShapeError, r"target \(N,\), or \(D,\) and a number"),
    (lambda: nn.HuberLoss(delta=0.0), ArgumentError, "HuberLoss: delta is a finite number above 0"),
    (lambda: nn.KLDivLoss("max"), ArgumentError, 'reduction is "mean", "sum", "none" or "batchmean"'),
]


@pytest.mark.parametrize(("call", "kind", "words"), REFUSED, ids=[words[:24] for _, _, words in REFUSED])
def test_invalid_arguments_raise(call, kind, words):
    with pytest.raises(kind, match=words):
        call()


@pytest.mark.parametrize("name", LOSSES)
def test_unknown_reductions_raise(name):
    with pytest.raises(ArgumentError, match='reduction is "mean", "sum"'):
        LOSSES[name].make("median")


def test_defaults_equal_mindspore():
    defaults = {nn.SmoothL1Loss: "none", nn.SoftmaxCrossEntropyWithLogits: "none", nn.BCELoss: "mean"}
    assert {kind: kind().reduction for kind in defaults} == defaults
