"""Metrics: accuracy, top k, confusion matrix, and spikes, synaptic operations and energy from a monitor."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from typing import Any, TypeVar

import numpy as np

from snncell import ops
from snncell.base.arguments.kinds import Count, Numbers
from snncell.base.arguments.shown import came, nearest, show
from snncell.cell.cell import Cell
from snncell.errors import ArgumentError, ArgumentTypeError, DTypeError, RecordError, ShapeError
from snncell.monitoring import Monitor
from snncell.nn.time.axis import zero_after_end
from snncell.ops.base import as_tensor
from snncell.ops.gathering import hot, label_words
from snncell.tape.tensor import Tensor

__all__ = ["Monitored", "accuracy", "confusion", "metric", "top_k"]

# --- accuracy ---------------------------------------------------------------------------------------------------------

Score = TypeVar("Score", bound=Callable[..., Tensor])


def mark_class_score(score: Score) -> Score:
    """Mark a score of classes: it gets `lengths` only if its outputs have a time axis, (T, B, C)."""
    vars(score)["of_classes"] = True
    return score


@mark_class_score
def accuracy(output: Any, labels: Any, ignore_index: int = -100, lengths: Numbers | None = None) -> Tensor:
    """Accuracy: the share of samples with the largest output at their label; NaN if an output is NaN, as for a loss.

    Args:
        output: (B, C); or (T, B, C), which is summed over time first. If it is a tuple, its first item counts.
        labels: class numbers, integers (B,); or a probability for each class, (B, C), where the largest one counts.
        ignore_index: a class number to ignore; `train.fit` takes the loss's. If all are ignored, the accuracy is NaN.
        lengths: integers (B,), the steps of each sample in outputs (T, B, C) that count. Default: all T.
    Raises: ArgumentError for a class number out of range, and for labels (B, C) that are negative or do not add up to 1
        (within 1 %). On the GPU under `jit`, which does not wait for a check, the accuracy of such a sample is 0.
    Example:
        >>> snncell.train.accuracy(Tensor([[0.1, 0.9], [0.8, 0.2]]), Tensor([1, 1])).item()
        0.5
        >>> snncell.train.accuracy(Tensor([[0.1, 0.9], [0.8, 0.2]]), Tensor([[0.0, 1.0], [0.3, 0.7]])).item()
        0.5
    """
    scores, target = _scores(output), as_tensor(labels, "accuracy", "labels")
    by_number = _by_number(scores, target)
    summed = _sum_over_time(scores, target, lengths, "accuracy")
    if by_number and summed.ndim > 1 and summed.shape[:-1] == target.shape:
        counts = ops.not_equal(target, ignore_index)
        classes = summed.shape[-1]
        label = hot(ops.select(counts, target, 0), classes, -1, label_words("accuracy", classes, True))
        right = _at_largest(summed, label)
        return ops.select(counts, right, 0.0).sum() / counts.astype("float32").sum()
    if summed.ndim < 2 or summed.shape[-1] < 2 or summed.shape != target.shape:
        raise _unfit(scores, target)
    return (_at_largest(summed, hot(ops.argmax(target, -1), summed.shape[-1], -1, "")) * _of_classes(target)).mean()


def over_time(output: Any, target: Tensor) -> bool:
    """True if the output is (T, B, C), judged by its labels (B,) or (B, C)."""
    scores = _scores(output)
    return scores.ndim == target.ndim + (2 if _by_number(scores, target) else 1)


def _sum_over_time(scores: Tensor, target: Tensor, lengths: Any, who: str) -> Tensor:
    """Outputs (B, C); those over time, (T, B, C), are summed up to the lengths of their samples."""
    if over_time(scores, target):
        return zero_after_end(scores, lengths, who).sum(0)
    if lengths is not None:
        raise ShapeError(f"{who}: lengths need outputs over time (T, B, C), but these have shape {scores.shape}.")
    return scores


def _scores(output: Any) -> Tensor:
    """The output, or the first of several."""
    if isinstance(output, (tuple, list)) and not output:
        raise ArgumentError(f"accuracy: output must be a Tensor, or a tuple that begins with a Tensor, not {output!r}.")
    output = output[0] if isinstance(output, (tuple, list)) else output
    if isinstance(output, dict) or is_dataclass(output):
        raise ArgumentTypeError(
            f"accuracy: output must be a Tensor, or a tuple that begins with a Tensor, not {came(output)}. Pass "
            f"accuracy=None, or a function of (output, target) that takes the scores out of it."
        )
    return as_tensor(output, "accuracy", "output")


def _by_number(scores: Tensor, target: Tensor) -> bool:
    return target.dtype.category <= 1 and target.shape in (scores.shape[:-1], scores.shape[1:-1])


def _at_largest(scores: Tensor, label: Tensor) -> Tensor:
    """1 for each sample with its largest score at its one-hot label (B, C), 0 for others, and NaN if a score is NaN."""
    largest = hot(ops.argmax(scores, -1), scores.shape[-1], -1, "")
    return ops.select(ops.any(ops.isnan(scores), -1), float("nan"), (largest * label).sum(-1))


def _unfit(scores: Tensor, target: Tensor) -> Exception:
    if target.dtype.is_float:
        return DTypeError(
            f"accuracy: labels must be integers (B,), or probabilities of the shape of the outputs (B, C), not "
            f"{target.dtype} of shape {target.shape} with outputs of shape {scores.shape}. Convert them, "
            f"y.astype('int64'), or measure something else: accuracy=None, or a function of (output, target)."
        )
    return ShapeError(
        f"accuracy: outputs of shape {scores.shape} do not fit labels of shape {target.shape}; they are (B, C) or "
        f"(T, B, C) and (B,), or (B, C) of probabilities."
    )


def _of_classes(target: Tensor) -> Tensor:
    """1 for each sample whose labels (B, C) are probabilities; an error for other labels."""
    wide = target.astype("float32")
    fits = ops.logical_and(ops.greater_equal(ops.min(wide, -1), 0.0), ops.less_equal(ops.abs(wide.sum(-1) - 1.0), 0.01))
    who = (
        "accuracy: labels of the outputs' shape are probabilities, which add up to 1 for each sample; to measure "
        "something else give accuracy=None, or a function of (output, target). The class of a sample that has none,"
    )
    return hot(ops.select(fits, 0, -1), 1, -1, who).sum(-1)


# --- top k, confusion matrix ------------------------------------------------------------------------------------------

Metric = Callable[..., Tensor]
RESERVED = ("epoch", "step", "learning_rate", "loss", "firing_rate")
_TOP = re.compile(r"top[-_ ]?(\d+)")


def top_k(k: Count) -> Metric:
    """Top-k accuracy: the share of samples where fewer than k classes have a larger output than the label.

    Returns: A function (output, labels, lengths=None) -> number. Outputs are (B, C); or (T, B, C), and then they are
        summed over time up to `lengths`. Labels are class numbers (B,); negative ones are ignored. The number is NaN
        if an output is NaN.
    Example:
        >>> output, labels = Tensor([[0.1, 0.7, 0.2], [0.5, 0.2, 0.3]]), Tensor([2, 1])
        >>> snncell.train.top_k(2)(output, labels).item()
        0.5
    """

    @mark_class_score
    def top(output: Any, labels: Any, lengths: Numbers | None = None) -> Tensor:
        scores, label, counts = _classes(output, labels, lengths, f"top{k}")
        own = ops.select(ops.equal(label, 1.0), scores, 0.0).sum(-1, keepdims=True)
        right = ops.less(ops.greater(scores, own).astype("float32").sum(-1), k).astype("float32")
        right = ops.select(ops.any(ops.isnan(scores), -1), float("nan"), right)
        return ops.select(ops.equal(counts, 1.0), right, 0.0).sum() / counts.sum()

    return top


@mark_class_score
def confusion(output: Any, labels: Any, lengths: Numbers | None = None) -> Tensor:
    """Confusion matrix of shares: [i, j] is the share of samples of class i with their largest output at j.

    It takes the same arguments as the function that `top_k` returns.

    Returns: (1, C, C), float32. `fit` and `evaluate` return its mean over the first axis as a nested list.
    Example:
        >>> output, labels = Tensor([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]]), Tensor([0, 0, 1, 1])
        >>> snncell.train.confusion(output, labels).asnumpy()[0].tolist()
        [[0.5, 0.0], [0.25, 0.25]]
    """
    scores, label, counts = _classes(output, labels, lengths, "confusion")
    largest = hot(ops.argmax(scores, -1), scores.shape[-1], -1, "")
    shares = ops.matmul(label.swapaxes(0, 1), largest) / counts.sum()
    return shares.reshape(1, *shares.shape)


def _classes(output: Any, labels: Any, lengths: Any, who: str) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs (B, C), one-hot labels (B, C) that are 0 if ignored, and 1 or 0 for each sample that counts or not."""
    scores = as_tensor(output[0] if isinstance(output, (tuple, list)) and output else output, who, "output")
    target = as_tensor(labels, who, "labels")
    if target.dtype.is_float or target.ndim != 1 or scores.ndim not in (2, 3) or scores.shape[-2] != target.shape[0]:
        raise ShapeError(
            f"{who}: outputs must be (B, C) or (T, B, C), and labels class numbers (B,), not {scores.shape} and "
            f"{target.dtype} {target.shape}."
        )
    scores = _sum_over_time(scores, target, lengths, who)
    counts, classes = ops.greater_equal(target, 0), scores.shape[-1]
    label = hot(ops.select(counts, target, 0), classes, -1, label_words(who, classes, True))
    numbers = counts.astype("float32")
    return scores.astype("float32"), label.astype("float32") * numbers.reshape(-1, 1), numbers


# --- from a monitor ---------------------------------------------------------------------------------------------------


class Monitored:
    """A metric that is computed from the recordings of `snncell.monitor`, such as spikes or energy, not from outputs.

    `fit(validation=..., metrics=...)` and `evaluate` measure it batch by batch. Training steps do not measure it,
    because recordings would make them slow.

    Args:
        of: a function of the `Monitor` of one batch that returns a number, a mean over the samples.
        v, above, inputs: further quantities for the monitor to record, as in `snncell.monitor`.
    Example:
        >>> net = nn.SequentialCell(nn.Dense(4, 3, weight_init=0.5), nn.MultiStep(nn.IFNode()))
        >>> on_loihi = snncell.train.Monitored(lambda m: m.energy("loihi").joules, inputs=True)
        >>> data = [(ops.ones((5, 2, 4)), ops.zeros((5, 2, 3)))]
        >>> metrics = {"spikes": "spikes", "synops": "synops", "on_loihi": on_loihi}
        >>> found = snncell.train.evaluate(net, nn.MSELoss(), data, accuracy=None, metrics=metrics)
        >>> found["spikes"], found["synops"], 1e-9 < found["on_loihi"] < 1e-8
        (15.0, 60.0, True)
    """

    def __init__(self, of: Callable[[Any], Any], v: bool = False, above: bool = False, inputs: bool = False) -> None:
        self.of, self.records = of, {"v": v, "above": above, "inputs": inputs}
        self.__name__ = getattr(of, "__name__", type(of).__name__)


def spikes(monitor: Monitor) -> float:
    """The number of spikes per sample of all spiking layers."""
    fired = [monitor.spikes[name] for name in monitor.layers if monitor.fires(name)]
    return float(sum(np.count_nonzero(array) / array.shape[1] for array in fired))


def energy(monitor: Monitor) -> float:
    """The energy per sample in J, by the default table of `monitoring.energy`."""
    return float(monitor.energy().joules)


@contextmanager
def watch_metrics(net: Cell, metrics: dict[str, Monitored]) -> Iterator[Callable[[], dict[str, float]]]:
    """Context manager: record the calls of a net; yields a function that returns the metrics of the last call."""
    if not metrics:
        yield dict
        return
    wanted = {kind: any(one.records[kind] for one in metrics.values()) for kind in ("v", "above", "inputs")}
    with Monitor(net, **wanted) as monitor:
        yield lambda: {name: _number(name, one, monitor) for name, one in metrics.items()}


def _number(name: str, metric: Monitored, monitor: Monitor) -> float:
    try:
        found = metric.of(monitor)
    except RecordError as error:
        raise RecordError(f"metric {name!r}: {error}") from None
    value = np.asarray(found)
    if value.ndim or value.dtype.kind not in "biuf":
        raise ArgumentError(f"metric {name!r} is a function of a monitor that returns a number, not {came(found)}.")
    return float(value)


# --- by name ----------------------------------------------------------------------------------------------------------

NAMED: dict[str, Metric | Monitored] = {
    "accuracy": accuracy,
    "confusion": confusion,
    "spikes": Monitored(spikes),
    "synops": Monitored(Monitor.synops, inputs=True),
    "energy": Monitored(energy, inputs=True),
}


def metric(name: str) -> Metric | Monitored:
    """The metric with a name: "accuracy", "confusion", "top5" (or another number), "spikes", "synops" or "energy".

    The last three are `Monitored`, and are means over the samples; the others are functions of (output, target).

    Example:
        >>> snncell.train.metric("top1")(Tensor([[0.1, 0.9]]), Tensor([1])).item()
        1.0
    """
    return _of_name(name, "metric: name")


def _of_name(name: str, who: str) -> Metric | Monitored:
    if found := _TOP.fullmatch(name):
        return top_k(int(found[1]))
    if name not in NAMED:
        near = nearest(name, [*NAMED, "top5"])
        meant = f" Did you mean {near!r}?" if near else ""
        there = f"{', '.join(map(repr, NAMED))} and 'top5' (any number)"
        raise ArgumentError(
            f"{who}: there is no metric {show(name)}; known metrics are {there}.{meant} You can also pass a function "
            f"of (output, target) that returns a Tensor."
        )
    return NAMED[name]


def name_metrics(metrics: Any, who: str) -> tuple[dict[str, Metric], dict[str, Monitored]]:
    """Metrics by their names in records: functions of (output, target), and functions of a monitor."""
    if not isinstance(metrics, dict):
        several = isinstance(metrics, Iterable) and not isinstance(metrics, str)
        pairs = [(_name_of(one, who), one) for one in (metrics if several else [metrics])]
    else:
        pairs = [*metrics.items()]
    found: dict[str, Metric | Monitored] = {}
    for name, one in pairs:
        if not isinstance(name, str) or name in RESERVED or name.startswith("test_"):
            raise ArgumentError(
                f"{who}: metrics: {show(name)} cannot be the name of a metric, because a record uses "
                f"{', '.join(RESERVED)} and test_... itself."
            )
        if name in found:
            raise ArgumentError(f"{who}: two metrics are called {name!r}; give a dict: metrics={{name: function}}.")
        if not isinstance(one, (str, Monitored)) and (isinstance(one, type) or not callable(one)):
            raise ArgumentError(f"{who}: metrics must be names or functions of (output, target), not {came(one)}.")
        found[name] = _of_name(one, f"{who}: metrics") if isinstance(one, str) else one
    monitored = {name: one for name, one in found.items() if isinstance(one, Monitored)}
    return {name: one for name, one in found.items() if not isinstance(one, Monitored)}, monitored


def _name_of(one: Any, who: str) -> str:
    """The name of a metric that was passed without one."""
    if isinstance(one, str):
        return one
    name = getattr(one, "__name__", type(one).__name__)
    if name == "<lambda>":
        raise ArgumentError(f"{who}: a lambda among metrics has no name; give a dict: metrics={{name: function}}.")
    return str(name)
