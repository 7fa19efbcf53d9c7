"""Losses. Each has `reduction`: "mean" (the default), "sum" or "none"."""

from __future__ import annotations

from typing import Any

from snncell import ops
from snncell.base.arguments.kinds import Numbers, Reduction, Share
from snncell.cell.cell import Cell
from snncell.errors import ArgumentError, DTypeError, ShapeError
from snncell.ops.base import as_tensor
from snncell.ops.loss import class_losses, reduce_losses, refuse_shapes
from snncell.tape.tensor import Tensor


class _Loss(Cell):
    def __init__(self, reduction: Reduction = "mean") -> None:
        super().__init__()
        if reduction not in ("mean", "sum", "none"):
            raise ArgumentError(f'{type(self).__name__}: reduction is "mean", "sum" or "none", not {reduction!r}.')
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


class MSELoss(_Loss):
    """(logits - labels)^2."""

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        logits, labels = self.of_one_shape(logits, labels)
        return ops.mse_loss(logits, labels, self.reduction)


class L1Loss(_Loss):
    """|logits - labels|."""

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        logits, labels = self.of_one_shape(logits, labels)
        return ops.l1_loss(logits, labels, self.reduction)


class CrossEntropyLoss(_Loss):
    """-log softmax(logits)[label], weighted by class.

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
        if not 0.0 <= label_smoothing < 1.0:
            raise ArgumentError(f"CrossEntropyLoss: label_smoothing lies in [0, 1), not {label_smoothing!r}.")
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


class NLLLoss(_Loss):
    """-logits[label] for logarithms of probabilities, weighted by class; see `ops.nll_loss`.

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


class SoftmaxCrossEntropyWithLogits(_Loss):
    """-sum over classes of y log softmax(logits), not reduced by default, as in MindSpore.

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
