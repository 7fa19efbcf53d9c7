"""Losses. Each has `reduction`: "mean" (the default), "sum" or "none"."""

from __future__ import annotations

from typing import Any

import numpy as np

from snncell import ops
from snncell.arguments.vocabulary import Numbers, Reduction, Share
from snncell.cell import Cell
from snncell.errors import ArgumentError, DTypeError, ShapeError
from snncell.ops.base import as_tensor
from snncell.ops.indexing import hot, label_words
from snncell.tape.tensor import Tensor


class _Loss(Cell):
    def __init__(self, reduction: Reduction = "mean") -> None:
        super().__init__()
        if reduction not in ("mean", "sum", "none"):
            raise ArgumentError(f'{type(self).__name__}: reduction is "mean", "sum" or "none", not {reduction!r}.')
        self.reduction = reduction

    def reduced(self, each: Tensor) -> Tensor:
        """All elements' losses as one number, or as they are."""
        return each if self.reduction == "none" else each.mean() if self.reduction == "mean" else each.sum()

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
        return self.reduced(ops.square(logits - labels))


class L1Loss(_Loss):
    """|logits - labels|."""

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        logits, labels = self.of_one_shape(logits, labels)
        return self.reduced(ops.abs(logits - labels))


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
        if logits.ndim < 2:
            raise ShapeError(f"CrossEntropyLoss: logits are (N, C, ...), not {logits.shape}.")
        classes = logits.shape[1]
        if self.weight is not None and tuple(np.shape(self.weight)) != (classes,):
            raise ShapeError(
                f"CrossEntropyLoss: weight has shape {tuple(np.shape(self.weight))}; logits of shape {logits.shape} "
                f"have {classes} classes."
            )
        log_p = ops.log_softmax(logits, 1)
        if labels.dtype.is_float:
            if labels.shape != logits.shape:
                raise DTypeError(
                    f"CrossEntropyLoss: float labels are probabilities of the logits' shape {logits.shape}, these have "
                    f"shape {labels.shape}. For class numbers use integers: labels.astype('int64')."
                )
            target, counts = labels, None
        else:
            if labels.shape != (logits.shape[0], *logits.shape[2:]):
                raise ShapeError(
                    f"CrossEntropyLoss: logits of shape {logits.shape} need labels of shape "
                    f"{(logits.shape[0], *logits.shape[2:])}, not {labels.shape}. Of the logits' shape they are "
                    f"probabilities: labels.astype('float32')."
                )
            counts = ops.not_equal(labels, self.ignore_index)
            who = label_words("CrossEntropyLoss", classes, True)
            target = hot(ops.select(counts, labels, 0), classes, 1, who).astype(log_p.dtype)
        if self.label_smoothing:
            target = target * (1.0 - self.label_smoothing) + self.label_smoothing / classes
        if self.weight is not None:
            shape = (1, -1, *(1,) * (logits.ndim - 2))
            target = target * (self.weight if isinstance(self.weight, Tensor) else Tensor(self.weight)).reshape(shape)
        if counts is not None:  # a class that is masked by -inf does not count, unless it is the label
            log_p = ops.select(ops.equal(target, 0.0), 0.0, log_p)
        each = -(log_p * target).sum(1)
        if counts is None:
            return self.reduced(each)
        each = ops.select(counts, each, 0.0)
        if self.reduction != "mean":
            return self.reduced(each)
        return each.sum() / self._total(counts, labels, logits)

    def _total(self, counts: Tensor, labels: Tensor, logits: Tensor) -> Tensor:
        """The total that the mean is taken over: the labels that count, by their weights."""
        if self.weight is None:
            return counts.astype(logits.dtype).sum()
        weight = self.weight if isinstance(self.weight, Tensor) else Tensor(self.weight)
        return ops.select(counts, ops.gather(weight, ops.select(counts, labels, 0), 0), 0.0).sum()
