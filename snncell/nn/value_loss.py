"""Losses of values, of probabilities, and of distances between vectors; the operations say more of each."""

from __future__ import annotations

from typing import Literal

from snncell import ops
from snncell.base.arguments.kinds import NotNegative, Numbers, Positive, Reduction
from snncell.cell.cell import Cell
from snncell.nn.loss import _Loss
from snncell.tape.tensor import Tensor

# --- differences ------------------------------------------------------------------------------------------------------


class HuberLoss(_Loss):
    """d^2 / 2 where d = |logits - labels| is at most delta, else delta (d - delta / 2)."""

    def __init__(self, reduction: Reduction = "mean", delta: Positive = 1.0) -> None:
        super().__init__(reduction)
        self.delta = delta

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        return ops.huber_loss(logits, labels, self.reduction, self.delta)


class SmoothL1Loss(_Loss):
    """d^2 / (2 beta) where d = |logits - labels| is at most beta, else d - beta / 2.

    Args:
        beta: where the parabola ends; 0 for the distance itself.
        reduction: "none", the default as in MindSpore, "mean" or "sum".
    """

    def __init__(self, beta: NotNegative = 1.0, reduction: Reduction = "none") -> None:
        super().__init__(reduction)
        self.beta = beta

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        return ops.smooth_l1_loss(logits, labels, self.beta, self.reduction)


class GaussianNLLLoss(_Loss):
    """(log v + (logits - labels)^2 / v) / 2 with v = max(var, eps): the negative logarithm of a normal density.

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


# --- probabilities ----------------------------------------------------------------------------------------------------


class BCELoss(_Loss):
    """-(y log p + (1 - y) log(1 - p)) for probabilities p; see `ops.binary_cross_entropy`.

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


class BCEWithLogitsLoss(_Loss):
    """-(w y log p + (1 - y) log(1 - p)) with p = sigmoid(logits), exact for large logits.

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
    """labels (log labels - logits), for logarithms of probabilities; see `ops.kl_div`.

    Args:
        reduction: "mean" over all elements, "batchmean" for the sum over the batch's length, "sum" or "none".
    """

    def __init__(self, reduction: Literal["mean", "sum", "none", "batchmean"] = "mean") -> None:
        super().__init__()
        self.reduction = reduction

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        return ops.kl_div(logits, labels, self.reduction)


class PoissonNLLLoss(_Loss):
    """exp(logits) - labels logits: the negative logarithm of a Poisson probability; see `ops.poisson_nll_loss`.

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


class SoftMarginLoss(_Loss):
    """log(1 + exp(-labels logits)), for labels of 1 and -1."""

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        return ops.soft_margin_loss(logits, labels, self.reduction)


class HingeEmbeddingLoss(_Loss):
    """logits where labels are 1, max(0, margin - logits) where they are -1."""

    def __init__(self, margin: float = 1.0, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.margin = margin

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        return ops.hinge_embedding_loss(logits, labels, self.margin, self.reduction)


class MarginRankingLoss(_Loss):
    """max(0, -target (input1 - input2) + margin), for targets of 1 and -1."""

    def __init__(self, margin: float = 0.0, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.margin = margin

    def construct(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return ops.margin_ranking_loss(input1, input2, target, self.margin, self.reduction)


class CosineEmbeddingLoss(_Loss):
    """1 - cos where target is 1, max(0, cos - margin) where it is -1; see `ops.cosine_embedding_loss`.

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


class TripletMarginLoss(_Loss):
    """max(0, d(anchor, positive) - d(anchor, negative) + margin); see `ops.triplet_margin_loss`.

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
