"""MindSpore's metric objects: `update` for each batch, and `eval` at the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from snncell import ops
from snncell.base.arguments.kinds import Count
from snncell.base.arguments.shown import came, show
from snncell.errors import ArgumentError, ShapeError
from snncell.ops.base import as_tensor
from snncell.tape.tensor import Tensor
from snncell.train.metrics import NAMED, accuracy, confusion, top_k

__all__ = [
    "F1", "MAE", "MSE", "Accuracy", "Loss", "Metric", "Precision", "Recall", "Top1CategoricalAccuracy",
    "Top5CategoricalAccuracy", "TopKCategoricalAccuracy",
]  # fmt: skip


class Metric:
    """Base class of metrics: a mean over samples, and a function of it.

    Define `measured(output, target)`, a Tensor whose mean over all samples is taken. Define also `result(mean)`, if the
    metric is a function of this mean. In `Model`, `measured` is part of the compiled step. Or define `clear`,
    `update(output, target)` and `eval`, as in MindSpore; `Model` then runs the network once more. In your own loop,
    call `clear`, then `update` for each batch, and `eval`.

    Example:
        >>> class Mean(snncell.train.Metric):
        ...     def measured(self, output, target):
        ...         return output.mean()
        >>> mean = Mean()
        >>> mean.update(Tensor([1.0, 3.0]), Tensor([0.0, 0.0]))
        >>> mean.eval()
        2.0
    """

    def __init__(self) -> None:
        self.clear()

    @property
    def collects(self) -> bool:
        """True for a metric with its own `update`, which gets the output of each batch."""
        return type(self).update is not Metric.update and not isinstance(self, Loss)

    def measured(self, output: Any, target: Any) -> Tensor:
        """The mean over a batch: a number, or an array that is averaged over its first axis."""
        raise NotImplementedError

    def result(self, mean: Any) -> Any:
        """The metric from the mean over all samples: a number, or a nested list of numbers."""
        return mean

    def clear(self) -> None:
        """Forget all batches."""
        self._total: Any = 0.0
        self._count = 0

    def update(self, *inputs: Any) -> None:
        """Measure a batch: the output of the network, and the target."""
        if len(inputs) != 2:
            raise ArgumentError(f"{type(self).__name__}: update takes output and target, not {len(inputs)} of them.")
        output, target = (as_tensor(x, type(self).__name__) for x in inputs)
        found = self.measured(output, target)
        value = np.asarray((found.mean(0) if found.ndim else found).asnumpy(), np.float64)
        self._total, self._count = self._total + value * len(target), self._count + len(target)

    def eval(self) -> Any:
        """The metric of all batches since `clear`; an ArgumentError without a batch."""
        if not self._count:
            raise ArgumentError(f"{type(self).__name__}: no batch was measured; call update(output, target) first.")
        return self.result((self._total / self._count).tolist())


class Accuracy(Metric):
    """Accuracy: the share of samples whose largest output is at their label, as in `train.accuracy`."""

    def measured(self, output: Any, target: Any) -> Tensor:
        return accuracy(output, target)


class TopKCategoricalAccuracy(Metric):
    """Top-k accuracy: the share of samples whose label is among the k classes with the largest outputs."""

    def __init__(self, k: Count) -> None:
        super().__init__()
        self.measured = top_k(k)  # type: ignore[method-assign]


class Top1CategoricalAccuracy(TopKCategoricalAccuracy):
    """`TopKCategoricalAccuracy` with k = 1."""

    def __init__(self) -> None:
        super().__init__(1)


class Top5CategoricalAccuracy(TopKCategoricalAccuracy):
    """`TopKCategoricalAccuracy` with k = 5."""

    def __init__(self) -> None:
        super().__init__(5)


class MAE(Metric):
    """The mean absolute error: mean |output - target|."""

    def measured(self, output: Any, target: Any) -> Tensor:
        return ops.abs(_difference(output, target, "MAE")).mean()


class MSE(Metric):
    """The mean squared error: mean (output - target)^2."""

    def measured(self, output: Any, target: Any) -> Tensor:
        return ops.square(_difference(output, target, "MSE")).mean()


def _difference(output: Tensor, target: Tensor, who: str) -> Tensor:
    if output.shape != target.shape:
        raise ShapeError(f"{who}: the output has shape {output.shape}, the target {target.shape}.")
    return output - target


class _OfClasses(Metric):
    """A number for each class from the confusion matrix, 0 if its denominator is 0; with `average` their mean."""

    def __init__(self, average: bool = False) -> None:
        super().__init__()
        self.average = average

    def measured(self, output: Any, target: Any) -> Tensor:
        return confusion(output, target)

    def result(self, mean: Any) -> Any:
        shares = np.asarray(mean)
        above, below = self._parts(np.diag(shares), shares.sum(1), shares.sum(0))
        each = np.divide(above, below, out=np.zeros_like(above), where=below > 0)
        return float(each.mean()) if self.average else each.tolist()

    def _parts(self, right: Any, of_class: Any, guesses: Any) -> tuple[Any, Any]:
        """Numerator and denominator, from shares: correct samples, samples of each class, predictions of each class."""
        raise NotImplementedError


class Precision(_OfClasses):
    """Precision: the correct share of the samples predicted as a class, for each class, or with `average` the mean."""

    def _parts(self, right: Any, of_class: Any, guesses: Any) -> tuple[Any, Any]:
        return right, guesses


class Recall(_OfClasses):
    """Recall: the share of a class's samples that are predicted as it, for each class, or with `average` the mean."""

    def _parts(self, right: Any, of_class: Any, guesses: Any) -> tuple[Any, Any]:
        return right, of_class


class F1(_OfClasses):
    """F1 score, 2 precision recall / (precision + recall): for each class, or with `average` the mean."""

    def _parts(self, right: Any, of_class: Any, guesses: Any) -> tuple[Any, Any]:
        return 2.0 * right, of_class + guesses


class Loss(Metric):
    """The mean loss over samples; as a metric of a `Model`, that of its loss function."""

    def measured(self, output: Any, target: Any) -> Any:
        return output

    def update(self, *inputs: Any) -> None:
        """Add the loss of a batch, which counts as one sample."""
        if len(inputs) != 1:
            raise ArgumentError(f"Loss: update takes only the loss of a batch, not {len(inputs)} arguments.")
        (loss,) = inputs
        super().update(loss, ops.zeros(1))


NAMES: dict[str, Callable[[], Metric]] = {
    "accuracy": Accuracy,
    "acc": Accuracy,
    "loss": Loss,
    "mae": MAE,
    "mse": MSE,
    "top_1_accuracy": Top1CategoricalAccuracy,
    "top_5_accuracy": Top5CategoricalAccuracy,
    "precision": Precision,
    "recall": Recall,
    "F1": F1,
    "f1": F1,
}


def as_metrics(metrics: Any) -> dict[str, Any]:
    """The metrics of a `Model` by name: `Metric` objects, or metrics of `train.fit` (function, name, `Monitored`)."""
    if metrics is None:
        return {}
    if isinstance(metrics, (set, frozenset)):
        metrics = sorted(metrics, key=str)
    if not isinstance(metrics, (dict, list, tuple)):
        raise ArgumentError(
            f"Model: metrics must be names, {{'accuracy'}}, or a dict of them by name, not {came(metrics)}."
        )
    pairs = list(metrics.items()) if isinstance(metrics, dict) else [(name, name) for name in metrics]
    found: dict[str, Any] = {}
    for name, one in pairs:
        if not isinstance(name, str):
            raise ArgumentError(f"Model: metrics: {show(name)} is not a name; pass a dict: metrics={{name: metric}}.")
        if isinstance(one, str) and one in NAMES:
            one = NAMES[one]()
        elif isinstance(one, str) and one not in NAMED and not one.startswith("top"):
            raise ArgumentError(
                f"Model: there is no metric {show(one)}; known metrics are {', '.join(map(repr, NAMES))}. You can also "
                f"pass a Metric, or a function of (output, target)."
            )
        if isinstance(one, type) or not (callable(one) or isinstance(one, (str, Metric)) or hasattr(one, "records")):
            raise ArgumentError(
                f"Model: metrics: {name!r} must be a Metric, a function of (output, target) or a name, not {came(one)}."
            )
        if isinstance(one, Metric) and getattr(one.measured, "__func__", None) is Metric.measured and not one.collects:
            raise ArgumentError(
                f"Model: metrics: {type(one).__name__} has no method measured(self, output, target), which returns the "
                f"mean over a batch; update and eval need it."
            )
        found[name] = one
    return found
