"""Losses of values, classes, probabilities and embeddings; most are operations of `ops`.

Each has `reduction`: "mean" (the default), "sum" or "none".
"""

from __future__ import annotations

from typing import Any, Literal

from snncell import ops
from snncell.base.arguments.kinds import NotNegative, Numbers, Positive, Reduction, Share
from snncell.cell.cell import Cell
from snncell.errors import DTypeError, ShapeError
from snncell.ops.base import as_tensor
from snncell.ops.loss import class_losses, reduce_losses, refuse_shapes
from snncell.tape.tensor import Tensor

__all__ = [
    "BCELoss",
    "BCEWithLogitsLoss",
    "CosineEmbeddingLoss",
    "CrossEntropyLoss",
    "GaussianNLLLoss",
    "HingeEmbeddingLoss",
    "HuberLoss",
    "KLDivLoss",
    "L1Loss",
    "MSELoss",
    "MarginRankingLoss",
    "NLLLoss",
    "PoissonNLLLoss",
    "SmoothL1Loss",
    "SoftMarginLoss",
    "SoftmaxCrossEntropyWithLogits",
    "TripletMarginLoss",
]


class ReducibleLoss(Cell):
    """The base of losses: the losses of all elements are reduced to their mean or sum, or stay as they are."""

    def __init__(self, reduction: Reduction = "mean") -> None:
        super().__init__()
        self.reduction = reduction

    def reduced(self, each: Tensor) -> Tensor:
        """All elements' losses as one number, or as they are."""
        return reduce_losses(each, self.reduction)

    def tensors(self, logits: Any, labels: Any) -> tuple[Tensor, Tensor]:
        """Both as Tensors."""
        return as_tensor(logits, type(self).__name__), as_tensor(labels, type(self).__name__)

    def of_one_shape(self, logits: Any, labels: Any) -> tuple[Tensor, Tensor]:
        """Both as Tensors; a ShapeError unless they have one shape."""
        logits, labels = self.tensors(logits, labels)
        if logits.shape != labels.shape:
            raise ShapeError(
                f"{type(self).__name__}: logits of shape {logits.shape} and labels of shape {labels.shape} must have "
                f"one shape."
            )
        return logits, labels


# --- differences ------------------------------------------------------------------------------------------------------


class MSELoss(ReducibleLoss):
    """Mean squared error (MSE): (logits - labels)^2."""

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        logits, labels = self.of_one_shape(logits, labels)
        return ops.mse_loss(logits, labels, self.reduction)


class L1Loss(ReducibleLoss):
    """Mean absolute error (L1): |logits - labels|."""

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        logits, labels = self.of_one_shape(logits, labels)
        return ops.l1_loss(logits, labels, self.reduction)


class HuberLoss(ReducibleLoss):
    """Huber loss: d^2 / 2 where d = |logits - labels| is at most delta, else delta (d - delta / 2)."""

    def __init__(self, reduction: Reduction = "mean", delta: Positive = 1.0) -> None:
        super().__init__(reduction)
        self.delta = delta

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        return ops.huber_loss(logits, labels, self.reduction, self.delta)


class SmoothL1Loss(ReducibleLoss):
    """Smooth L1 loss: d^2 / (2 beta) where d = |logits - labels| is at most beta, else d - beta / 2.

    Args:
        beta: where the parabola ends; 0 for the distance itself.
        reduction: "none", the default as in MindSpore, "mean" or "sum".
    """

    def __init__(self, beta: NotNegative = 1.0, reduction: Reduction = "none") -> None:
        super().__init__(reduction)
        self.beta = beta

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        return ops.smooth_l1_loss(logits, labels, self.beta, self.reduction)


class GaussianNLLLoss(ReducibleLoss):
    """Gaussian negative log-likelihood: (log v + (logits - labels)^2 / v) / 2 with v = max(var, eps).

    Args:
        full: whether log(2 pi) / 2 is added.
        eps: the least variance.
        reduction: "mean", "sum" or "none".

    Inputs:
        logits, labels, var: of one shape.
    """

    def __init__(self, *, full: bool = False, eps: Positive = 1e-6, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.full, self.eps = full, eps

    def construct(self, logits: Tensor, labels: Tensor, var: Tensor) -> Tensor:
        return ops.gaussian_nll_loss(logits, labels, var, self.full, self.eps, self.reduction)


# --- classes ----------------------------------------------------------------------------------------------------------


class CrossEntropyLoss(ReducibleLoss):
    """Cross entropy of classes: -log softmax(logits)[label], weighted by class.

    Args:
        weight: (C,), a weight for each class; the mean is then over the sum of weights.
        ignore_index: a label that does not count.
        reduction: "mean", "sum" or "none".
        label_smoothing: e in [0, 1): labels are mixed with e / C for each class.

    Inputs:
        logits: (N, C) or (N, C, ...).
        labels: integers (N,) or (N, ...) in [0, C); or probabilities of the logits' shape.

    Raises:
        ArgumentError: for a label out of range.
        ShapeError: for shapes that do not fit.
        DTypeError: for float labels that are no probabilities of the logits' shape.
    """

    def __init__(
        self,
        weight: Numbers | None = None,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: Share = 0.0,
    ) -> None:
        super().__init__(reduction)
        self.weight = weight
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        logits, labels = self.tensors(logits, labels)
        refuse_shapes("CrossEntropyLoss", logits, labels)
        return class_losses(
            "CrossEntropyLoss",
            ops.log_softmax(logits, 1),
            labels,
            self.weight,
            self.ignore_index,
            self.reduction,
            self.label_smoothing,
        )


class NLLLoss(ReducibleLoss):
    """Negative log-likelihood of classes: -logits[label], weighted by class, for log-probabilities; see `ops.nll_loss`.

    Args:
        weight: (C,), a weight for each class; the mean is then over the sum of weights.
        ignore_index: a label that does not count.
        reduction: "mean", "sum" or "none".

    Inputs:
        logits: (N, C) or (N, C, ...), as `LogSoftmax(1)` gives them.
        labels: integers (N,) or (N, ...) in [0, C).

    Raises:
        ArgumentError: for a label out of range.
        ShapeError: for shapes that do not fit.
        DTypeError: for labels that are no integers.
    """

    def __init__(self, weight: Numbers | None = None, ignore_index: int = -100, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.weight, self.ignore_index = weight, ignore_index

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        return ops.nll_loss(logits, labels, self.weight, self.ignore_index, self.reduction)


class SoftmaxCrossEntropyWithLogits(ReducibleLoss):
    """Cross entropy, -sum over classes of y log softmax(logits), not reduced by default, as in MindSpore.

    Args:
        sparse: True for class numbers, integers (N,); False for probabilities (N, C).
        reduction: "none", "mean" or "sum".

    Inputs:
        logits: (N, C).
        labels: (N,) or (N, C).

    Raises:
        ShapeError, DTypeError: for labels of the other kind.

    Example:
        >>> nn.SoftmaxCrossEntropyWithLogits(sparse=True)(ops.zeros((2, 4)), Tensor([0, 3])).shape
        (2,)
    """

    def __init__(self, sparse: bool = False, reduction: Reduction = "none") -> None:
        super().__init__(reduction)
        self.sparse = sparse

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        logits, labels = self.tensors(logits, labels)
        if logits.ndim != 2 or labels.shape != (logits.shape if not self.sparse else logits.shape[:1]):
            raise ShapeError(
                f"SoftmaxCrossEntropyWithLogits: with sparse={self.sparse} logits are (N, C) and labels "
                f"{'(N,)' if self.sparse else '(N, C)'}; they have shapes {logits.shape} and {labels.shape}. Write "
                f"sparse={not self.sparse} for labels {'(N, C)' if self.sparse else '(N,)'}."
            )
        if self.sparse and labels.dtype.is_float:
            raise DTypeError(
                "SoftmaxCrossEntropyWithLogits: with sparse=True labels are class numbers: labels.astype('int64')."
            )
        wanted = labels if self.sparse else labels.astype(logits.dtype)
        log_p = ops.log_softmax(logits, 1)
        return class_losses("SoftmaxCrossEntropyWithLogits", log_p, wanted, None, -100, self.reduction, 0.0)


# --- probabilities ----------------------------------------------------------------------------------------------------


class BCELoss(ReducibleLoss):
    """Binary cross entropy of probabilities p: -(y log p + (1 - y) log(1 - p)); see `ops.binary_cross_entropy`.

    Args:
        weight: of each element; what broadcasts to the inputs.
        reduction: "mean", "sum" or "none".

    Inputs:
        logits: p in [0, 1].
        labels: y in [0, 1], of the same shape.

    Raises:
        ShapeError: for shapes that do not fit.
    """

    def __init__(self, weight: Numbers | None = None, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.weight = weight

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        return ops.binary_cross_entropy(logits, labels, self.weight, self.reduction)


class BCEWithLogitsLoss(ReducibleLoss):
    """Binary cross entropy of logits: -(w y log p + (1 - y) log(1 - p)) with p = sigmoid(logits).

    It is exact for large logits.

    Args:
        reduction: "mean", "sum" or "none".
        weight: of each element; what broadcasts to the inputs.
        pos_weight: w, of the positive part; what broadcasts to the inputs.

    Inputs:
        logits: any shape.
        labels: y in [0, 1], of the same shape.

    Raises:
        ShapeError: for shapes that do not fit.

    Example:
        >>> round(nn.BCEWithLogitsLoss()(Tensor([0.0, 100.0]), Tensor([1.0, 1.0])).item(), 4)
        0.3466
    """

    def __init__(
        self, reduction: Reduction = "mean", weight: Numbers | None = None, pos_weight: Numbers | None = None
    ) -> None:
        super().__init__(reduction)
        self.weight, self.pos_weight = weight, pos_weight

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        return ops.binary_cross_entropy_with_logits(logits, labels, self.weight, self.pos_weight, self.reduction)


class KLDivLoss(Cell):
    """Kullback-Leibler divergence: labels (log labels - logits), where logits are log-probabilities; see `ops.kl_div`.

    Args:
        reduction: "mean" over all elements, "batchmean" for the sum over the batch's length, "sum" or "none".
    """

    def __init__(self, reduction: Literal["mean", "sum", "none", "batchmean"] = "mean") -> None:
        super().__init__()
        self.reduction = reduction

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        return ops.kl_div(logits, labels, self.reduction)


class PoissonNLLLoss(ReducibleLoss):
    """Poisson negative log-likelihood: exp(logits) - labels logits; see `ops.poisson_nll_loss`.

    Args:
        log_input: whether logits are the logarithm of the rate, or the rate itself.
        full: whether Stirling's formula for log(labels!) is added.
        eps: added to the rate, whose logarithm is taken without `log_input`.
        reduction: "mean", "sum" or "none".
    """

    def __init__(
        self, log_input: bool = True, full: bool = False, eps: Positive = 1e-8, reduction: Reduction = "mean"
    ) -> None:
        super().__init__(reduction)
        self.log_input, self.full, self.eps = log_input, full, eps

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        return ops.poisson_nll_loss(logits, labels, self.log_input, self.full, self.eps, self.reduction)


# --- margins ----------------------------------------------------------------------------------------------------------


class SoftMarginLoss(ReducibleLoss):
    """Soft margin loss: log(1 + exp(-labels logits)), for labels of 1 and -1."""

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        return ops.soft_margin_loss(logits, labels, self.reduction)


class HingeEmbeddingLoss(ReducibleLoss):
    """Hinge embedding loss: logits where labels are 1, max(0, margin - logits) where they are -1."""

    def __init__(self, margin: float = 1.0, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.margin = margin

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        return ops.hinge_embedding_loss(logits, labels, self.margin, self.reduction)


class MarginRankingLoss(ReducibleLoss):
    """Margin ranking loss: max(0, -target (input1 - input2) + margin), for targets of 1 and -1."""

    def __init__(self, margin: float = 0.0, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.margin = margin

    def construct(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return ops.margin_ranking_loss(input1, input2, target, self.margin, self.reduction)


class CosineEmbeddingLoss(ReducibleLoss):
    """Cosine embedding loss: 1 - cos where target is 1, max(0, cos - margin) where it is -1.

    See `ops.cosine_embedding_loss`.

    Args:
        margin: how similar vectors may be that should not be.
        reduction: "mean", "sum" or "none".

    Inputs:
        input1, input2: (N, D).
        target: 1 or -1, (N,).
    """

    def __init__(self, margin: float = 0.0, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.margin = margin

    def construct(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return ops.cosine_embedding_loss(input1, input2, target, self.margin, self.reduction)


class TripletMarginLoss(ReducibleLoss):
    """Triplet margin loss: max(0, d(anchor, positive) - d(anchor, negative) + margin).

    See `ops.triplet_margin_loss`.

    Args:
        p: the order of the distance d.
        swap: take d(positive, negative) where that is smaller than d(anchor, negative).
        eps: keeps the distance of equal vectors off 0.
        reduction: "mean", "sum" or "none".
        margin: how much nearer the positive is to be.

    Inputs:
        anchor, positive, negative: vectors (..., D) of one shape.
    """

    def __init__(
        self,
        p: Positive = 2.0,
        swap: bool = False,
        eps: NotNegative = 1e-6,
        reduction: Reduction = "mean",
        margin: float = 1.0,
    ) -> None:
        super().__init__(reduction)
        self.p, self.swap, self.eps, self.margin = p, swap, eps, margin

    def construct(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return ops.triplet_margin_loss(
            anchor, positive, negative, self.margin, self.p, self.eps, self.swap, self.reduction
        )
