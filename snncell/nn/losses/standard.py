"""Losses of values, classes, probabilities and embeddings, most of them operations of `ops`.

Each has `reduction`: "mean" (the default), "sum" or "none".
"""

from __future__ import annotations

from typing import Any, Literal

from snncell import ops
from snncell.base.arguments.kinds import NotNegative, Numbers, Positive, Reduction, Share
from snncell.cell.cell import Cell
from snncell.cell.fields import field, fields_defined_with, with_fields
from snncell.errors import DTypeError, ShapeError
from snncell.nn.layers.activations import OperationCell
from snncell.ops.base import as_tensor
from snncell.ops.loss import class_losses, reduce_losses, refuse_shapes
from snncell.tape.tensor import Tensor

__all__ = [
    "BCELoss", "BCEWithLogitsLoss", "CosineEmbeddingLoss", "CrossEntropyLoss", "GaussianNLLLoss",
    "HingeEmbeddingLoss", "HuberLoss", "KLDivLoss", "L1Loss", "MSELoss", "MarginRankingLoss", "NLLLoss",
    "PoissonNLLLoss", "SmoothL1Loss", "SoftMarginLoss", "SoftmaxCrossEntropyWithLogits", "TripletMarginLoss",
]  # fmt: skip


MEAN = field("mean", meaning='"mean", "sum" or "none" over the elements')
NONE = field("none", meaning='"none" as in MindSpore, "mean" or "sum" over the elements')
CLASS_WEIGHT = field(None, meaning="weight of each class, (C,); the mean then divides by the sum of weights")
IGNORED = field(-100, meaning="a label whose samples do not count")
ELEMENT_WEIGHT = field(None, meaning="weight of each element, which broadcasts to the inputs")
SMOOTHING = field(0.0, meaning="label smoothing e in [0, 1): a label becomes 1 - e, plus e / C for every class")


class ReducibleLoss(Cell):
    """Base of losses with `reduction`: the mean or sum over all elements, or no reduction."""

    reduction: Reduction

    def extend_repr(self) -> str:
        return ""

    def reduced(self, each: Tensor) -> Tensor:
        """Reduce the losses of the elements."""
        return reduce_losses(each, self.reduction)


def _tensors(cell: Cell, logits: Any, labels: Any) -> tuple[Tensor, Tensor]:
    return as_tensor(logits, type(cell).__name__), as_tensor(labels, type(cell).__name__)


class _OperationLoss(OperationCell):
    """Base of losses that call an operation with the fields of the class by name."""

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        options = {name: getattr(self, name) for name in fields_defined_with(type(self), "operation")}
        return self.operation(logits, labels, **options)

    def extend_repr(self) -> str:
        return ""


# --- differences ------------------------------------------------------------------------------------------------------


class _Difference(_OperationLoss):
    """Base of losses of a difference, whose errors name the arguments of the Cell."""

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        logits, labels = _tensors(self, logits, labels)
        if logits.shape != labels.shape:
            raise ShapeError(
                f"{type(self).__name__}: logits and labels must have the same shape, but have {logits.shape} and "
                f"{labels.shape}."
            )
        return super().construct(logits, labels)


@with_fields
class MSELoss(_Difference, operation=ops.mse_loss):
    """Mean squared error (MSE): (logits - labels)^2."""

    reduction: Reduction = MEAN


@with_fields
class L1Loss(_Difference, operation=ops.l1_loss):
    """Mean absolute error (L1): |logits - labels|."""

    reduction: Reduction = MEAN


@with_fields
class HuberLoss(_OperationLoss, operation=ops.huber_loss):
    """Huber loss, for outliers: d^2 / 2 if d = |logits - labels| is at most delta, else delta (d - delta / 2)."""

    reduction: Reduction = MEAN
    delta: Positive = field(1.0, meaning="the distance at which the loss changes from quadratic to linear")


@with_fields
class SmoothL1Loss(_OperationLoss, operation=ops.smooth_l1_loss):
    """Smooth L1 loss: d^2 / (2 beta) if d = |logits - labels| is at most beta, else d - beta / 2."""

    beta: NotNegative = field(1.0, meaning="the distance at which the loss becomes linear; 0 is the L1 loss")
    reduction: Reduction = NONE


@with_fields(kw_only=True)
class GaussianNLLLoss(ReducibleLoss):
    """Gaussian negative log-likelihood: (log v + (logits - labels)^2 / v) / 2 with v = max(var, eps).

    Use it if the network also predicts its uncertainty, var.
    Inputs: logits, labels, var: of the same shape.
    """

    full: bool = field(False, meaning="whether to add the constant log(2 pi) / 2")
    eps: Positive = field(1e-6, meaning="lower limit of the variance")
    reduction: Reduction = MEAN

    def construct(self, logits: Tensor, labels: Tensor, var: Tensor) -> Tensor:
        return ops.gaussian_nll_loss(logits, labels, var, self.full, self.eps, self.reduction)


# --- classes ----------------------------------------------------------------------------------------------------------


@with_fields
class CrossEntropyLoss(ReducibleLoss):
    """Cross entropy of classes: -log softmax(logits)[label], weighted by class.

    This is the usual loss of a classifier. For outputs over time, (T, B, C), use `CERateLoss` or `CECountLoss`.
    Inputs:
        logits: (N, C) or (N, C, ...).
        labels: integers in [0, C), (N,) or (N, ...); or probabilities in the shape of the logits.
    Example:
        >>> round(nn.CrossEntropyLoss()(ops.zeros((2, 4)), Tensor([0, 3])).item(), 4)  # log 4
        1.3863
    """

    weight: Numbers | None = CLASS_WEIGHT
    ignore_index: int = IGNORED
    reduction: Reduction = MEAN
    label_smoothing: Share = SMOOTHING

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        logits, labels = _tensors(self, logits, labels)
        refuse_shapes("CrossEntropyLoss", logits, labels)
        options = self.weight, self.ignore_index, self.reduction, self.label_smoothing
        return class_losses("CrossEntropyLoss", ops.log_softmax(logits, 1), labels, *options)


@with_fields
class NLLLoss(_OperationLoss, operation=ops.nll_loss):
    """Negative log-likelihood of log-probabilities: -logits[label], weighted by class; see `ops.nll_loss`.
    Inputs:
        logits: log-probabilities, (N, C) or (N, C, ...), for example from `LogSoftmax(1)`.
        labels: integers in [0, C), (N,) or (N, ...).
    """

    weight: Numbers | None = CLASS_WEIGHT
    ignore_index: int = IGNORED
    reduction: Reduction = MEAN


@with_fields
class SoftmaxCrossEntropyWithLogits(ReducibleLoss):
    """Cross entropy: -sum over classes of y log softmax(logits), by default without reduction, as in MindSpore.
    Inputs: logits: (N, C); labels: (N,) or (N, C), see sparse.
    Example:
        >>> nn.SoftmaxCrossEntropyWithLogits(sparse=True)(ops.zeros((2, 4)), Tensor([0, 3])).shape
        (2,)
    """

    sparse: bool = field(False, meaning="True for class numbers, integers (N,); False for probabilities (N, C)")
    reduction: Reduction = NONE

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        logits, labels = _tensors(self, logits, labels)
        if logits.ndim != 2 or labels.shape != (logits.shape if not self.sparse else logits.shape[:1]):
            raise ShapeError(
                f"SoftmaxCrossEntropyWithLogits: with sparse={self.sparse}, logits must be (N, C) and labels "
                f"{'(N,)' if self.sparse else '(N, C)'}, but they have shapes {logits.shape} and {labels.shape}. Write "
                f"sparse={not self.sparse} for labels {'(N, C)' if self.sparse else '(N,)'}."
            )
        if self.sparse and labels.dtype.is_float:
            raise DTypeError(
                "SoftmaxCrossEntropyWithLogits: with sparse=True, labels must be integers: labels.astype('int64')."
            )
        wanted = labels if self.sparse else labels.astype(logits.dtype)
        log_p = ops.log_softmax(logits, 1)
        return class_losses("SoftmaxCrossEntropyWithLogits", log_p, wanted, None, -100, self.reduction, 0.0)


# --- probabilities ----------------------------------------------------------------------------------------------------


@with_fields
class BCELoss(_OperationLoss, operation=ops.binary_cross_entropy):
    """Binary cross entropy of probabilities p: -(y log p + (1 - y) log(1 - p)); see `ops.binary_cross_entropy`.

    Prefer `BCEWithLogitsLoss`, which is more accurate for p near 0 and 1.
    Inputs: logits: p in [0, 1]; labels: y in [0, 1], in the same shape.
    """

    weight: Numbers | None = ELEMENT_WEIGHT
    reduction: Reduction = MEAN


@with_fields
class BCEWithLogitsLoss(_OperationLoss, operation=ops.binary_cross_entropy_with_logits):
    """Binary cross entropy of logits: -(w y log p + (1 - y) log(1 - p)) with p = sigmoid(logits).

    Use it for binary or multi-label classification. It does not overflow for large logits.
    Inputs: logits: any shape; labels: y in [0, 1], in the same shape.
    Example:
        >>> round(nn.BCEWithLogitsLoss()(Tensor([0.0, 100.0]), Tensor([1.0, 1.0])).item(), 4)
        0.3466
    """

    reduction: Reduction = MEAN
    weight: Numbers | None = ELEMENT_WEIGHT
    pos_weight: Numbers | None = field(None, meaning="w, which broadcasts to the inputs; above 1 for rare positives")


@with_fields
class KLDivLoss(_OperationLoss, operation=ops.kl_div):
    """Kullback-Leibler divergence: labels (log labels - logits), for log-probabilities; see `ops.kl_div`."""

    reduction: Literal["mean", "sum", "none", "batchmean"] = field(
        "mean", meaning='"mean" over all elements, "batchmean" (the sum divided by the batch size), "sum" or "none"'
    )


@with_fields
class PoissonNLLLoss(_OperationLoss, operation=ops.poisson_nll_loss):
    """Poisson negative log-likelihood: exp(logits) - labels logits; see `ops.poisson_nll_loss`."""

    log_input: bool = field(True, meaning="whether logits are the logarithm of the rate; False for the rate itself")
    full: bool = field(False, meaning="whether to add log(labels!), by Stirling's formula")
    eps: Positive = field(1e-8, meaning="added to the rate before its logarithm, if log_input is False")
    reduction: Reduction = MEAN


# --- margins ----------------------------------------------------------------------------------------------------------


@with_fields
class SoftMarginLoss(_OperationLoss, operation=ops.soft_margin_loss):
    """Soft margin loss: log(1 + exp(-labels logits)), for labels of 1 and -1."""

    reduction: Reduction = MEAN


@with_fields
class HingeEmbeddingLoss(_OperationLoss, operation=ops.hinge_embedding_loss):
    """Hinge embedding loss: logits if the label is 1, max(0, margin - logits) if it is -1."""

    margin: float = field(1.0, meaning="logits of the label -1 cost nothing above this")
    reduction: Reduction = MEAN


@with_fields
class MarginRankingLoss(ReducibleLoss):
    """Margin ranking loss: max(0, -target (input1 - input2) + margin), for targets of 1 and -1."""

    margin: float = field(0.0, meaning="the difference of the inputs above which the loss is 0")
    reduction: Reduction = MEAN

    def construct(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return ops.margin_ranking_loss(input1, input2, target, self.margin, self.reduction)


@with_fields
class CosineEmbeddingLoss(ReducibleLoss):
    """Cosine embedding loss: 1 - cos if the target is 1, else max(0, cos - margin); see `ops.cosine_embedding_loss`.
    Inputs: input1, input2: (N, D); target: 1 or -1, (N,).
    """

    margin: float = field(0.0, meaning="the cosine below which vectors with target -1 cost nothing")
    reduction: Reduction = MEAN

    def construct(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return ops.cosine_embedding_loss(input1, input2, target, self.margin, self.reduction)


@with_fields
class TripletMarginLoss(ReducibleLoss):
    """Triplet margin loss: max(0, d(anchor, positive) - d(anchor, negative) + margin); see `ops.triplet_margin_loss`.
    Inputs: anchor, positive, negative: vectors (..., D) of the same shape.
    """

    p: Positive = field(2.0, meaning="the order of the distance d")
    swap: bool = field(False, meaning="whether to use d(positive, negative) if it is less than d(anchor, negative)")
    eps: NotNegative = field(1e-6, meaning="keeps the distance of equal vectors above 0, for its gradient")
    reduction: Reduction = MEAN
    margin: float = field(1.0, meaning="how much nearer than the negative the positive must be for a loss of 0")

    def construct(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        options = self.margin, self.p, self.eps, self.swap, self.reduction
        return ops.triplet_margin_loss(anchor, positive, negative, *options)
