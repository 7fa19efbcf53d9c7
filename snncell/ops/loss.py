"""Loss functions: regression, probabilities, margins and classification; `reduction` is "mean", "sum" or "none"."""

from __future__ import annotations

import math
from typing import Any, Literal

from snncell import dtype as dtypes
from snncell.base.arguments.kinds import NotNegative, Numbers, Positive, Reduction, Share
from snncell.errors import DTypeError, ShapeError
from snncell.ops.activation import _softplus, relu
from snncell.ops.arithmetic import abs, clip, equal, maximum, minimum, mul, not_equal, select, sub, where
from snncell.ops.base import Grads, as_float, as_tensor, astype, elementwise, to_compute_dtype
from snncell.ops.gathering import gather, hot, label_words
from snncell.ops.norms import norm
from snncell.ops.reduce import log_softmax, mean, sum
from snncell.ops.transcendental import exp, log, log1p, rsqrt, square
from snncell.tape.tensor import Tensor

__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_embedding_loss", "cross_entropy",
    "gaussian_nll_loss", "hinge_embedding_loss", "huber_loss", "kl_div", "l1_loss", "margin_ranking_loss", "mse_loss",
    "nll_loss", "poisson_nll_loss", "smooth_l1_loss", "soft_margin_loss", "triplet_margin_loss",
]  # fmt: skip


def reduce_losses(each: Tensor, reduction: Reduction) -> Tensor:
    """Reduce elementwise losses to their mean or sum, or return them unchanged."""
    return each if reduction == "none" else mean(each) if reduction == "mean" else sum(each)


def of_one_shape(who: str, **given: Any) -> list[Tensor]:
    """Convert to float Tensors, and raise a ShapeError unless all have the same shape."""
    tensors = [_as_real(value, who, name) for name, value in given.items()]
    if any(tensor.shape != tensors[0].shape for tensor in tensors):
        shapes = " and ".join(f"{name} of shape {tensor.shape}" for name, tensor in zip(given, tensors, strict=True))
        raise ShapeError(f"{who}: {shapes} must have the same shape.")
    return tensors


def _as_real(value: Any, who: str, name: str) -> Tensor:
    """Convert to a real floating Tensor; integers and booleans become float32."""
    tensor = as_tensor(value, who, name)
    if tensor.dtype.category == 3:
        raise DTypeError(f"{who}: {name} holds complex numbers; take ops.real, ops.imag or ops.abs of it first.")
    return as_float(tensor, who)


def _weigh_losses(each: Tensor, weight: Any, who: str) -> Tensor:
    if weight is None:
        return each
    factor = _as_real(weight, who, "weight")
    if factor.ndim > each.ndim or any(n not in (1, m) for n, m in zip(factor.shape[::-1], each.shape[::-1])):  # noqa: B905
        raise ShapeError(f"{who}: weight of shape {factor.shape} does not broadcast to the losses' shape {each.shape}.")
    return each * factor


# --- Regression -------------------------------------------------------------------------------------------------------


def mse_loss(x: Numbers, target: Numbers, reduction: Reduction = "mean") -> Tensor:
    """Mean squared error: (x - target)^2."""
    values, targets = of_one_shape("mse_loss", x=x, target=target)
    return reduce_losses(square(values - targets), reduction)


def l1_loss(x: Numbers, target: Numbers, reduction: Reduction = "mean") -> Tensor:
    """Mean absolute error: |x - target|."""
    values, targets = of_one_shape("l1_loss", x=x, target=target)
    return reduce_losses(abs(values - targets), reduction)


def _huber(x: Tensor, target: Tensor, delta: float) -> Tensor:
    distance = x - target  # not |d|, because its slope of 0 at 0 would remove the second derivative of d^2 / 2
    near = clip(distance, -delta, delta)
    return mul(near, distance - near * 0.5)


def huber_loss(x: Numbers, target: Numbers, reduction: Reduction = "mean", delta: Positive = 1.0) -> Tensor:
    """Huber loss: d^2 / 2 if d = |x - target| is at most delta, else delta (d - delta / 2).

    Source: Huber, "Robust Estimation of a Location Parameter", 1964.
    """
    values, targets = of_one_shape("huber_loss", x=x, target=target)
    return reduce_losses(_huber(values, targets, delta), reduction)


def smooth_l1_loss(x: Numbers, target: Numbers, beta: NotNegative = 1.0, reduction: Reduction = "none") -> Tensor:
    """Smooth L1 loss: d^2 / (2 beta) if d = |x - target| is at most beta, else d - beta / 2; not reduced by default.

    Source: Girshick, "Fast R-CNN", ICCV 2015.
    """
    values, targets = of_one_shape("smooth_l1_loss", x=x, target=target)
    return reduce_losses(_huber(values, targets, beta) / beta if beta else abs(values - targets), reduction)


def gaussian_nll_loss(
    x: Numbers, target: Numbers, var: Numbers, full: bool = False, eps: Positive = 1e-6, reduction: Reduction = "mean"
) -> Tensor:
    """Gaussian negative log-likelihood: (log v + (x - target)^2 / v) / 2 with v = max(var, eps). `full` adds the
    constant log(2 pi) / 2.
    """
    values, targets, spread = of_one_shape("gaussian_nll_loss", x=x, target=target, var=var)
    v = maximum(spread, eps)
    each = (log(v) + square(values - targets) / v) * 0.5
    return reduce_losses(each + 0.5 * math.log(2.0 * math.pi) if full else each, reduction)


# --- Probabilities ----------------------------------------------------------------------------------------------------


@elementwise("float")
def _binary(p: Any, y: Any) -> Any:
    return -(y * maximum(log(p), -100) + (1 - y) * maximum(log1p(-p), -100))


# p (1 - p) is limited to 1e-12, because the slope is infinite at p = 0 and 1. The gradient of y follows the formula.
@_binary.def_bprop
def _(p: Tensor, y: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    return (
        lambda: dout * ((p - y) / maximum(p * (1.0 - p), 1e-12)),
        lambda: dout * (maximum(log1p(-p), -100.0) - maximum(log(p), -100.0)),
    )


def binary_cross_entropy(
    x: Numbers, target: Numbers, weight: Numbers | None = None, reduction: Reduction = "mean"
) -> Tensor:
    """Binary cross-entropy of probabilities: -(y log p + (1 - y) log(1 - p)), with logarithms of at least -100.

    If you have logits, prefer `binary_cross_entropy_with_logits`, which is more accurate.

    Args:
        x: probabilities p in [0, 1], of any shape. Outside of this range the loss is NaN.
        target: y in [0, 1], of the same shape.
        weight: of each element, broadcast to x.
    """
    p, y = of_one_shape("binary_cross_entropy", x=x, target=target)
    return reduce_losses(_weigh_losses(_binary(p, y), weight, "binary_cross_entropy"), reduction)


def binary_cross_entropy_with_logits(
    x: Numbers,
    target: Numbers,
    weight: Numbers | None = None,
    pos_weight: Numbers | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Binary cross-entropy of logits: -(w y log p + (1 - y) log(1 - p)) with p = 1 / (1 + exp(-x)).

    It is exact even where p rounds to 0 or 1.

    Args:
        x: logits, of any shape.
        target: y in [0, 1], of the same shape.
        weight: of each element, broadcast to x.
        pos_weight: w, the weight of the positive part, broadcast to x.
    """
    who = "binary_cross_entropy_with_logits"
    logits, y = of_one_shape(who, x=x, target=target)
    positive = _weigh_losses(y * _softplus(-logits), pos_weight, who)
    return reduce_losses(_weigh_losses(positive + (1.0 - y) * _softplus(logits), weight, who), reduction)


def kl_div(x: Numbers, target: Numbers, reduction: Literal["mean", "sum", "none", "batchmean"] = "mean") -> Tensor:
    """Kullback-Leibler divergence: target (log target - x), for log-probabilities `x`.

    It is 0 where target is 0, and NaN where target is negative. If each row is a distribution, use the reduction
    "batchmean": it divides the sum by the length of the first axis. "mean" divides by the number of elements.
    """
    log_q, p = of_one_shape("kl_div", x=x, target=target)
    nothing = equal(p, 0.0)
    each = where(nothing, 0.0, p * (log(where(nothing, 1.0, p)) - log_q))
    if reduction == "batchmean":
        return sum(each) / (each.shape[0] if each.ndim else 1)
    return reduce_losses(each, reduction)


def poisson_nll_loss(
    x: Numbers,
    target: Numbers,
    log_input: bool = True,
    full: bool = False,
    eps: Positive = 1e-8,
    reduction: Reduction = "mean",
) -> Tensor:
    """Poisson negative log-likelihood: exp(x) - target x for the logarithm x of a rate.

    With log_input=False, x is the rate itself, and the loss is x - target log(x + eps). `full` adds Stirling's
    approximation of log(target!) where target is above 1.
    """
    values, counts = of_one_shape("poisson_nll_loss", x=x, target=target)
    each = exp(values) - counts * values if log_input else values - counts * log(values + eps)
    if full:
        many = counts > 1.0
        count = where(many, counts, 1.0)
        each = each + where(many, count * log(count) - count + log(count * (2.0 * math.pi)) * 0.5, 0.0)
    return reduce_losses(each, reduction)


# --- Margins ----------------------------------------------------------------------------------------------------------


def soft_margin_loss(x: Numbers, target: Numbers, reduction: Reduction = "mean") -> Tensor:
    """Soft margin loss: log(1 + exp(-target x)), for targets 1 and -1."""
    values, signs = of_one_shape("soft_margin_loss", x=x, target=target)
    return reduce_losses(_softplus(-(values * signs)), reduction)


def hinge_embedding_loss(x: Numbers, target: Numbers, margin: float = 1.0, reduction: Reduction = "mean") -> Tensor:
    """Hinge embedding loss: x where target is 1, and max(0, margin - x) where it is -1."""
    values, signs = of_one_shape("hinge_embedding_loss", x=x, target=target)
    return reduce_losses(where(equal(signs, 1.0), values, relu(sub(margin, values))), reduction)


def margin_ranking_loss(
    input1: Numbers, input2: Numbers, target: Numbers, margin: float = 0.0, reduction: Reduction = "mean"
) -> Tensor:
    """Margin ranking loss: max(0, -target (input1 - input2) + margin). input1 should be larger than input2 where target
    is 1, and smaller where it is -1.
    """
    first, second, signs = of_one_shape("margin_ranking_loss", input1=input1, input2=input2, target=target)
    return reduce_losses(relu(signs * (second - first) + margin), reduction)


def cosine_embedding_loss(
    input1: Numbers, input2: Numbers, target: Numbers, margin: float = 0.0, reduction: Reduction = "mean"
) -> Tensor:
    """Cosine embedding loss: 1 - c where target is 1, max(0, c - margin) where it is -1, with the cosine similarity c.

    Args:
        input1, input2: vectors (N, D), or one vector each, (D,).
        target: 1 or -1, (N,) or a number.
        margin: the similarity that vectors with target -1 may have.
    """
    who = "cosine_embedding_loss"
    first, second = of_one_shape(who, input1=input1, input2=input2)
    signs = _as_real(target, who, "target")
    if first.ndim not in (1, 2) or signs.shape != first.shape[:-1]:
        raise ShapeError(
            f"{who}: input1 and input2 must be (N, D) and target (N,), or (D,) and a number; not {first.shape} and "
            f"{signs.shape}."
        )
    tiny = 1e-12  # avoids 0 / 0 for zero vectors; in float32 at least, because float16 cannot represent it
    a, b = (to_compute_dtype(vectors) for vectors in (first, second))
    lengths = (sum(square(a), -1) + tiny) * (sum(square(b), -1) + tiny)
    cosine = astype(sum(a * b, -1) * rsqrt(lengths), dtypes.promote(first.dtype, second.dtype))
    return reduce_losses(where(equal(signs, 1.0), 1.0 - cosine, relu(cosine - margin)), reduction)


def triplet_margin_loss(
    anchor: Numbers,
    positive: Numbers,
    negative: Numbers,
    margin: float = 1.0,
    p: Positive = 2.0,
    eps: NotNegative = 1e-6,
    swap: bool = False,
    reduction: Reduction = "mean",
) -> Tensor:
    """Triplet margin loss: max(0, d(anchor, positive) - d(anchor, negative) + margin), with a distance d.

    Args:
        anchor, positive, negative: vectors of the same shape (..., D); d is their distance along the last axis.
        margin: how much closer to the anchor the positive should be.
        p: the order of the distance, (sum |a - b + eps|^p)^(1 / p).
        eps: keeps the distance of equal vectors above 0, because its derivative at 0 is taken as 0.
        swap: use d(positive, negative) where it is smaller than d(anchor, negative).
    """
    a, near, far = of_one_shape("triplet_margin_loss", anchor=anchor, positive=positive, negative=negative)

    def distance(x: Tensor, y: Tensor) -> Tensor:
        return norm(x - y + eps, p, -1)

    apart = distance(a, far)
    if swap:
        apart = minimum(apart, distance(near, far))
    return reduce_losses(relu(distance(a, near) - apart + margin), reduction)


# --- Classification ---------------------------------------------------------------------------------------------------


def class_losses(
    who: str, log_p: Tensor, labels: Tensor, weight: Any, ignore_index: int, reduction: Reduction, smoothing: float
) -> Tensor:
    """-log p[label], (N, ...), weighted by class and reduced, for `log_p` of (N, C, ...). The mean divides by the sum
    of the weights of all labels that are not ignored. `labels` are integers (N, ...) or probabilities like log_p.
    """
    classes = log_p.shape[1]
    weights = None if weight is None else as_tensor(weight, who, "weight")
    if weights is not None and weights.shape != (classes,):
        raise ShapeError(
            f"{who}: weight has shape {weights.shape}; logits of shape {log_p.shape} have {classes} classes."
        )
    counts, target = None, labels
    if not labels.dtype.is_float:
        counts = not_equal(labels, ignore_index)
        words = label_words(who, classes, True)
        target = astype(hot(select(counts, labels, 0), classes, 1, words), log_p.dtype)
    if smoothing:
        target = target * (1.0 - smoothing) + smoothing / classes
    if weights is not None:
        target = target * weights.reshape((1, -1, *(1,) * (log_p.ndim - 2)))
    if counts is not None:  # avoid 0 * -inf for masked classes, unless they are the label
        log_p = select(equal(target, 0.0), 0.0, log_p)
    each = -sum(log_p * target, 1)
    if counts is None:
        return reduce_losses(each, reduction)
    each = select(counts, each, 0.0)
    if reduction != "mean":
        return reduce_losses(each, reduction)
    parts = counts if weights is None else select(counts, gather(weights, select(counts, labels, 0), 0), 0.0)
    wide = dtypes.compute_dtype(each.dtype.dtype)  # because sums of losses exceed float16's maximum of 65504
    return astype(sum(astype(each, wide)) / sum(astype(parts, wide)), each.dtype)


def refuse_shapes(who: str, logits: Tensor, labels: Tensor) -> None:
    """Raise unless logits are (N, C, ...), and labels integers (N, ...) or probabilities of the logits' shape."""
    if logits.ndim < 2:
        raise ShapeError(f"{who}: logits must be (N, C, ...), not {logits.shape}.")
    if labels.dtype.is_float and labels.shape != logits.shape:
        raise DTypeError(
            f"{who}: float labels are probabilities and must have the logits' shape {logits.shape}, not "
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
        elif logits.ndim == 2 and labels.ndim == 1:
            fix = " If the decoder reduced the wrong axis: time is the first axis, (T, N, C), not (N, T, C)."
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
    """Cross-entropy loss: -log softmax(x)[target], weighted by class.

    Args:
        x: logits (N, C) or (N, C, ...).
        target: integers (N,) or (N, ...) from 0 to C - 1, else an ArgumentError; or probabilities of the shape of x.
        weight: (C,), a weight per class. The mean is then divided by the sum of the weights.
        ignore_index: a target that does not contribute, for example for padded time steps.
        label_smoothing: e in [0, 1). Targets become (1 - e) target + e / C, which discourages overconfidence.
    """
    logits, labels = as_float(x, "cross_entropy"), as_tensor(target, "cross_entropy", "target")
    refuse_shapes("cross_entropy", logits, labels)
    log_p = log_softmax(logits, 1)
    return class_losses("cross_entropy", log_p, labels, weight, ignore_index, reduction, label_smoothing)


def nll_loss(
    x: Numbers,
    target: Numbers,
    weight: Numbers | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: Share = 0.0,
) -> Tensor:
    """Negative log-likelihood: -x[target] for log-probabilities `x`; the arguments are those of `cross_entropy`."""
    log_p, labels = as_float(x, "nll_loss"), as_tensor(target, "nll_loss", "target")
    if labels.dtype.is_float:
        raise DTypeError("nll_loss: target must hold class numbers, which are integers: target.astype('int64').")
    refuse_shapes("nll_loss", log_p, labels)
    return class_losses("nll_loss", log_p, labels, weight, ignore_index, reduction, label_smoothing)
