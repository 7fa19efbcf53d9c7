"""The share of right answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Any, TypeVar

from snncell import ops
from snncell.arguments.shown import came
from snncell.arguments.vocabulary import Numbers
from snncell.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError
from snncell.nn.time.lengths import zero_after_end
from snncell.ops.base import as_tensor
from snncell.ops.indexing import hot, label_words
from snncell.tape.tensor import Tensor

Score = TypeVar("Score", bound=Callable[..., Tensor])


def of_classes(score: Score) -> Score:
    """Mark a score of (output, labels, lengths), whose lengths are of outputs (T, B, C) and not of (B, C)."""
    vars(score)["of_classes"] = True
    return score


@of_classes
def accuracy(output: Any, labels: Any, ignore_index: int = -100, lengths: Numbers | None = None) -> Tensor:
    """The share of samples whose largest output is at their label; NaN if an output is, as a loss would be.

    Args:
        output: (B, C), or (T, B, C), which is summed over time first; of a tuple, the first.
        labels: class numbers, integers (B,); or a probability for each class, (B, C), of which the largest counts, as
            in one-hot labels.
        ignore_index: a class number that does not count, as for `nn.CrossEntropyLoss`, whose own `train.fit` takes.
            Where no label counts the accuracy is NaN, as that loss is.
        lengths: integers (B,), how many steps of outputs (T, B, C) each sample has; left out, all T. The steps behind
            them change nothing, whatever they hold.

    Raises:
        DTypeError: for labels that are neither.
        ArgumentError: for a class number that the outputs have no place for; for labels (B, C) that are no
            probabilities: one is below 0, or a sample's do not add up to 1 (to 1 %). On the GPU under `jit`, which does
            not wait for a check, the accuracy of either is 0.
        ShapeError: for shapes that do not fit.

    Example:
        >>> snncell.train.accuracy(Tensor([[0.1, 0.9], [0.8, 0.2]]), Tensor([1, 1])).item()
        0.5
        >>> snncell.train.accuracy(Tensor([[0.1, 0.9], [0.8, 0.2]]), Tensor([[0.0, 1.0], [0.3, 0.7]])).item()
        0.5
        >>> snncell.train.accuracy(Tensor([[0.1, 0.9], [0.8, 0.2]]), Tensor([1, -100])).item()
        1.0
    """
    scores, target = _scores(output), as_tensor(labels, "accuracy", "labels")
    by_number = _by_number(scores, target)
    summed = scores
    if over_time(scores, target):
        summed = zero_after_end(scores, lengths, "accuracy").sum(0)
    elif lengths is not None:
        raise ShapeError(f"accuracy: lengths are of outputs (T, B, C), and these have shape {scores.shape}.")
    if by_number and summed.ndim > 1 and summed.shape[:-1] == target.shape:
        counts = ops.not_equal(target, ignore_index)
        right = _at_largest(summed, _at_number(ops.select(counts, target, 0), summed.shape[-1]))
        return ops.select(counts, right, 0.0).sum() / counts.astype("float32").sum()
    if summed.ndim < 2 or summed.shape[-1] < 2 or summed.shape != target.shape:
        raise _unfit(scores, target)
    return (_at_largest(summed, hot(ops.argmax(target, -1), summed.shape[-1], -1, "")) * _of_classes(target)).mean()


def over_time(output: Any, target: Tensor) -> bool:
    """True of an output that is (T, B, C), by its labels (B,) or (B, C)."""
    scores = _scores(output)
    return scores.ndim == target.ndim + (2 if _by_number(scores, target) else 1)


def _scores(output: Any) -> Tensor:
    """The output, or the first of several."""
    if isinstance(output, (tuple, list)) and not output:
        raise ArgumentError(f"accuracy: output is a Tensor, or a tuple whose first is one, not {output!r}.")
    output = output[0] if isinstance(output, (tuple, list)) else output
    if isinstance(output, dict) or is_dataclass(output):
        raise ArgumentTypeError(
            f"accuracy: output is a Tensor, or a tuple whose first is one; the net gives {came(output)}. Pass "
            f"accuracy=None, or a function of (output, target) that takes the scores out of it."
        )
    return as_tensor(output, "accuracy", "output")


def _by_number(scores: Tensor, target: Tensor) -> bool:
    """True of labels that are class numbers, not probabilities."""
    return target.dtype.category <= 1 and target.shape in (scores.shape[:-1], scores.shape[1:-1])


def _at_largest(scores: Tensor, label: Tensor) -> Tensor:
    """1 for each sample whose largest score is at its label, one-hot (B, C), else 0; NaN if a score of it is."""
    largest = hot(ops.argmax(scores, -1), scores.shape[-1], -1, "")
    return ops.select(ops.any(ops.isnan(scores), -1), float("nan"), (largest * label).sum(-1))


def _at_number(labels: Tensor, classes: int) -> Tensor:
    """Class numbers as one-hot labels, (B, C); refused where the outputs have no such class."""
    return hot(labels, classes, -1, label_words("accuracy", classes, True))


def _unfit(scores: Tensor, target: Tensor) -> Exception:
    """The error for labels that do not fit the outputs."""
    if target.dtype.is_float:
        return DTypeError(
            f"accuracy: labels are integers (B,), or probabilities of the outputs' shape (B, C), not {target.dtype} of "
            f"shape {target.shape} with outputs of shape {scores.shape}. Convert them, y.astype('int64'), or measure "
            f"something else: accuracy=None, or a function of (output, target)."
        )
    return ShapeError(
        f"accuracy: outputs of shape {scores.shape} do not fit labels of shape {target.shape}; they are (B, C) or "
        f"(T, B, C) and (B,), or (B, C) of probabilities."
    )


def _of_classes(target: Tensor) -> Tensor:
    """1 for each sample whose labels (B, C) are probabilities; refused where they are not."""
    wide = target.astype("float32")
    fits = ops.logical_and(ops.greater_equal(ops.min(wide, -1), 0.0), ops.less_equal(ops.abs(wide.sum(-1) - 1.0), 0.01))
    who = (
        "accuracy: labels of the outputs' shape are probabilities, which add up to 1 for each sample; to measure "
        "something else give accuracy=None, or a function of (output, target). The class of a sample that has none,"
    )
    return hot(ops.select(fits, 0, -1), 1, -1, who).sum(-1)
