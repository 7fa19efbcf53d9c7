"""Losses of classes: the logarithm of the label's probability."""

from __future__ import annotations

from typing import Any

from snncell import dtype as dtypes
from snncell.base.arguments.kinds import Numbers, Reduction, Share
from snncell.errors import DTypeError, ShapeError
from snncell.ops.base import as_float, as_tensor, astype
from snncell.ops.indexing import gather, hot, label_words
from snncell.ops.logic import equal, not_equal, select
from snncell.ops.loss import reduce_losses
from snncell.ops.reduce import log_softmax, sum
from snncell.tape.tensor import Tensor


def of_classes(
    who: str,
    log_p: Tensor,
    labels: Tensor,
    weight: Any,
    ignore_index: int,
    reduction: Reduction,
    label_smoothing: float,
) -> Tensor:
    """-log p[label], (N, ...), weighted by class and reduced, for `log_p` of (N, C, ...).

    With the mean, the sum is divided by that of the weights of the labels that count.

    Args:
        who: what errors call it.
        log_p: (N, C, ...).
        labels: integers (N, ...), or probabilities of the shape of log_p.
        weight: (C,) or None.
        ignore_index: a label that does not count.
        reduction: "mean", "sum" or "none".
        label_smoothing: e: labels are mixed with e / C for each class.
    """
    classes = log_p.shape[1]
    weights = None if weight is None else as_tensor(weight, who, "weight")
    if weights is not None and weights.shape != (classes,):
        raise ShapeError(
            f"{who}: weight has shape {weights.shape}; logits of shape {log_p.shape} have {classes} classes."
        )
    counts = None
    if labels.dtype.is_float:
        target = labels
    else:
        counts = not_equal(labels, ignore_index)
        words = label_words(who, classes, True)
        target = astype(hot(select(counts, labels, 0), classes, 1, words), log_p.dtype)
    if label_smoothing:
        target = target * (1.0 - label_smoothing) + label_smoothing / classes
    if weights is not None:
        target = target * weights.reshape((1, -1, *(1,) * (log_p.ndim - 2)))
    if counts is not None:  # a class that is masked by -inf does not count, unless it is the label
        log_p = select(equal(target, 0.0), 0.0, log_p)
    each = -sum(log_p * target, 1)
    if counts is None:
        return reduce_losses(each, reduction)
    each = select(counts, each, 0.0)
    if reduction != "mean":
        return reduce_losses(each, reduction)
    if weights is None:
        return _mean_over(each, counts)
    return _mean_over(each, select(counts, gather(weights, select(counts, labels, 0), 0), 0.0))


def _mean_over(each: Tensor, parts: Tensor) -> Tensor:
    """The sum over that of the weights, in float32 at least: float16 ends at 65504, of losses and of labels."""
    wide = dtypes.compute_dtype(each.dtype.dtype)
    return astype(sum(astype(each, wide)) / sum(astype(parts, wide)), each.dtype)


def refuse_shapes(who: str, logits: Tensor, labels: Tensor) -> None:
    """Raise unless logits are (N, C, ...) and labels integers (N, ...), or probabilities of the logits' shape."""
    if logits.ndim < 2:
        raise ShapeError(f"{who}: logits are (N, C, ...), not {logits.shape}.")
    if labels.dtype.is_float and labels.shape != logits.shape:
        raise DTypeError(
            f"{who}: float labels are probabilities of the logits' shape {logits.shape}, these have shape "
            f"{labels.shape}. For class numbers use integers: labels.astype('int64')."
        )
    expected = (logits.shape[0], *logits.shape[2:])
    if not labels.dtype.is_float and labels.shape != expected:
        fix = ""
        if labels.shape == logits.shape:
            fix = " If they are probabilities, make them floats: labels.astype('float32')."
        elif labels.shape == (expected[0], 1, *expected[1:]):
            fix = " Drop the axis of length 1: labels.squeeze(1)."
        elif logits.ndim == 3 and labels.shape in (logits.shape[:1], logits.shape[1:2]):
            fix = " Logits with a time axis need a decoder, for example logits.mean(0) of (T, N, C)."
        raise ShapeError(
            f"{who}: logits of shape {logits.shape} need labels of shape {expected}, not {labels.shape}.{fix}"
        )


def cross_entropy(
    x: Numbers,
    target: Numbers,
    weight: Numbers | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: Share = 0.0,
) -> Tensor:
    """-log softmax(x)[target], weighted by class.

    Args:
        x: logits (N, C) or (N, C, ...).
        target: integers (N,) or (N, ...) in [0, C); or probabilities of the shape of x.
        weight: (C,), a weight for each class; the mean is then over the sum of weights.
        ignore_index: a target that does not count.
        reduction: "mean", "sum" or "none".
        label_smoothing: e in [0, 1): targets are mixed with e / C for each class.

    Raises:
        ArgumentError: for a target out of range.
        ShapeError: for shapes that do not fit.
        DTypeError: for float targets that are no probabilities of the shape of x.
    """
    logits, labels = as_float(x, "cross_entropy"), as_tensor(target, "cross_entropy", "target")
    refuse_shapes("cross_entropy", logits, labels)
    log_p = log_softmax(logits, 1)
    return of_classes("cross_entropy", log_p, labels, weight, ignore_index, reduction, label_smoothing)


def nll_loss(
    x: Numbers,
    target: Numbers,
    weight: Numbers | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: Share = 0.0,
) -> Tensor:
    """-x[target] for logarithms of probabilities `x`, weighted by class; its arguments are those of `cross_entropy`.

    Raises:
        ArgumentError: for a target out of range.
        ShapeError: for shapes that do not fit.
        DTypeError: for targets that are no integers.
    """
    log_p, labels = as_float(x, "nll_loss"), as_tensor(target, "nll_loss", "target")
    if labels.dtype.is_float:
        raise DTypeError("nll_loss: target holds class numbers, integers: target.astype('int64').")
    refuse_shapes("nll_loss", log_p, labels)
    return of_classes("nll_loss", log_p, labels, weight, ignore_index, reduction, label_smoothing)
