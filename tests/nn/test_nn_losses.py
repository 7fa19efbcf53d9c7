"""Losses against NumPy loops and against PyTorch, with weights, ignored labels and smoothing."""

import itertools

import naive
import numpy as np
import pytest

from snncell import Tensor, nn, ops, testing
from snncell.errors import ArgumentError, DTypeError, ShapeError

LOGITS = np.random.default_rng(0).normal(0, 3, (6, 4))
LABELS = np.array([0, 3, 1, 3, 2, 3])
WEIGHT = np.array([0.3, 1.0, 2.0, 0.7])
CASES = list(itertools.product([None, WEIGHT], [-100, 3], [0.0, 0.2]))
IDS = [f"{'weighted' if w is not None else 'plain'}-ignore={i}-smooth={s}" for w, i, s in CASES]


@pytest.mark.parametrize(("weight", "ignore", "smoothing"), CASES, ids=IDS)
def test_cross_entropy_equals_the_loop(weight, ignore, smoothing):
    given = None if weight is None else Tensor(weight)
    loss = nn.CrossEntropyLoss(given, ignore, label_smoothing=smoothing)
    found = loss(Tensor(LOGITS), Tensor(LABELS))
    assert found.shape == ()
    expected = naive.cross_entropy(LOGITS, LABELS, weight, ignore, smoothing)
    np.testing.assert_allclose(found.item(), expected, rtol=1e-12)
    testing.check_grads(lambda z: loss(z, Tensor(LABELS)), Tensor(LOGITS), order=2)


@pytest.mark.peer
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("shape", [(6, 4), (6, 4, 3), (6, 4, 2, 3)], ids=str)
@pytest.mark.parametrize(("weight", "ignore", "smoothing"), CASES, ids=IDS)
def test_cross_entropy_equals_torch(torch, weight, ignore, smoothing, shape, reduction):
    rng = np.random.default_rng(1)
    logits, labels = rng.normal(0, 2, shape), rng.integers(0, 4, (6, *shape[2:]))
    theirs_logits = torch.tensor(logits, requires_grad=True)
    theirs = torch.nn.functional.cross_entropy(
        theirs_logits,
        torch.tensor(labels),
        None if weight is None else torch.tensor(weight),
        ignore_index=ignore,
        reduction=reduction,
        label_smoothing=smoothing,
    )
    theirs.sum().backward()
    loss = nn.CrossEntropyLoss(None if weight is None else Tensor(weight), ignore, reduction, smoothing)
    mine, found = ops.value_and_grad(loss)(Tensor(logits), Tensor(labels))
    np.testing.assert_allclose(mine.asnumpy(), theirs.detach().numpy(), rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(found.asnumpy(), theirs_logits.grad.numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.peer
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
def test_cross_entropy_of_probabilities_equals_torch(torch, weight, smoothing):
    target = np.random.default_rng(2).dirichlet(np.ones(4), 6)
    theirs_logits = torch.tensor(LOGITS, requires_grad=True)
    theirs = torch.nn.functional.cross_entropy(
        theirs_logits,
        torch.tensor(target),
        None if weight is None else torch.tensor(weight),
        label_smoothing=smoothing,
    )
    theirs.backward()
    loss = nn.CrossEntropyLoss(None if weight is None else Tensor(weight), label_smoothing=smoothing)
    mine, found = ops.value_and_grad(loss)(Tensor(LOGITS), Tensor(target))
    np.testing.assert_allclose(mine.item(), theirs.item(), rtol=1e-12)
    np.testing.assert_allclose(found.asnumpy(), theirs_logits.grad.numpy(), rtol=1e-10, atol=1e-12)


def test_cross_entropy_of_huge_logits_is_finite():
    logits = Tensor(np.array([[1e4, -1e4], [0.0, 1e4]], np.float32))
    value, found = ops.value_and_grad(nn.CrossEntropyLoss(reduction="none"))(logits, Tensor([1, 1]))
    np.testing.assert_allclose(value.asnumpy(), [2e4, 0.0])
    np.testing.assert_allclose(found.asnumpy(), [[1, -1], [0, 0]], atol=1e-7)


def test_ignored_samples_have_zero_gradient():
    found = ops.grad(nn.CrossEntropyLoss(ignore_index=3))(Tensor(LOGITS), Tensor(LABELS)).asnumpy()
    assert not found[LABELS == 3].any() and found[LABELS != 3].all()


@pytest.mark.parametrize("label", [4, -1, 100])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_labels_out_of_range_raise(label, dtype):
    labels = Tensor(np.array([0, 1, label, 0, 0, 0], dtype))
    with pytest.raises(ArgumentError, match=rf"CrossEntropyLoss.*{label}"):
        nn.CrossEntropyLoss()(Tensor(LOGITS), labels)


def test_mismatched_shapes_raise():
    loss = nn.CrossEntropyLoss()
    with pytest.raises(ShapeError, match=r"logits of shape \(6, 4\) need labels of shape \(6,\), not \(5,\)"):
        loss(Tensor(LOGITS), Tensor(LABELS[:5]))
    with pytest.raises(ShapeError, match=r"logits must be \(N, C, \.\.\.\), not \(4,\)"):
        loss(Tensor(LOGITS[0]), Tensor(0))
    with pytest.raises(DTypeError, match=r"float labels are probabilities.*labels\.astype\('int64'\)"):
        loss(Tensor(LOGITS), Tensor(LABELS.astype(float)))
    with pytest.raises(ShapeError, match=r"weight"):
        nn.CrossEntropyLoss(Tensor([1.0, 2.0]))(Tensor(LOGITS), Tensor(LABELS))


@pytest.mark.parametrize("smoothing", [-0.1, 1.0, float("nan")])
def test_smoothing_must_be_between_zero_and_one(smoothing):
    with pytest.raises(ArgumentError, match=r"label_smoothing is a finite number in \[0, 1\)"):
        nn.CrossEntropyLoss(label_smoothing=smoothing)


# --- regression ------------------------------------------------------------------------------------------------------

REDUCE = {"mean": np.mean, "sum": np.sum, "none": lambda a: a}


@pytest.mark.parametrize("reduction", REDUCE)
@pytest.mark.parametrize(
    ("make", "each"),
    [(nn.MSELoss, lambda d: d**2), (nn.L1Loss, np.abs)],
    ids=["MSE", "L1"],
)
def test_regression_losses_equal_their_formulas(make, each, reduction):
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((4, 5)), rng.standard_normal((4, 5))
    loss = make(reduction)
    np.testing.assert_allclose(loss(Tensor(a), Tensor(b)).asnumpy(), REDUCE[reduction](each(a - b)), rtol=1e-13)
    testing.check_grads(loss, Tensor(a), Tensor(b))


@pytest.mark.parametrize("make", [nn.MSELoss, nn.L1Loss])
def test_regression_losses_do_not_broadcast(make):
    with pytest.raises(ShapeError, match=rf"{make.__name__}: logits and labels .* have \(4, 1\) and \(4,\)"):
        make()(ops.ones((4, 1)), ops.ones(4))


@pytest.mark.parametrize("make", [nn.MSELoss, nn.L1Loss, lambda r: nn.CrossEntropyLoss(reduction=r)])
def test_unknown_reduction_raises(make):
    with pytest.raises(ArgumentError, match='reduction is "mean", "sum" or "none", not \'median\''):
        make("median")
