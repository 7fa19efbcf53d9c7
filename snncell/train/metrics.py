"""Metrics beside loss and accuracy, by name and as functions of (output, target)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from snncell import ops
from snncell.arguments.kinds import Count
from snncell.arguments.shown import came, show
from snncell.arguments.vocabulary import Numbers
from snncell.errors import ArgumentError, ShapeError
from snncell.nn.time.lengths import zero_after_end
from snncell.ops.base import as_tensor
from snncell.ops.indexing import hot, label_words
from snncell.tape.tensor import Tensor
from snncell.train.monitored import BY_NAME, Monitored
from snncell.train.scores import accuracy, of_classes, over_time
from snncell.words import nearest

Metric = Callable[..., Tensor]
RESERVED = ("epoch", "step", "learning_rate", "loss", "firing_rate")
_TOP = re.compile(r"top[-_ ]?(\d+)")


def top_k(k: Count) -> Metric:
    """A metric: the share of samples whose label is among the `k` classes of the largest outputs.

    Fewer than k classes have a larger output than the label's. NaN if an output is.

    Args:
        k: how many.

    Returns:
        A function (output, labels, lengths=None) -> number: outputs (B, C), or (T, B, C), which are summed over time,
        up to `lengths`, and class numbers (B,), of which those below 0 do not count.

    Example:
        >>> output, labels = Tensor([[0.1, 0.7, 0.2], [0.5, 0.2, 0.3]]), Tensor([2, 1])
        >>> snncell.train.top_k(2)(output, labels).item()
        0.5
    """

    @of_classes
    def top(output: Any, labels: Any, lengths: Numbers | None = None) -> Tensor:
        scores, label, counts = _classes(output, labels, lengths, f"top{k}")
        own = ops.select(ops.equal(label, 1.0), scores, 0.0).sum(-1, keepdims=True)
        right = ops.less(ops.greater(scores, own).astype("float32").sum(-1), k).astype("float32")
        right = ops.select(ops.any(ops.isnan(scores), -1), float("nan"), right)
        return ops.select(ops.equal(counts, 1.0), right, 0.0).sum() / counts.sum()

    return top


@of_classes
def confusion(output: Any, labels: Any, lengths: Numbers | None = None) -> Tensor:
    """The confusion matrix, as shares of the samples: at [i, j] those of class i whose largest output is j's.

    Args:
        output: (B, C), or (T, B, C), which is summed over time.
        labels: class numbers (B,), of which those below 0 do not count.
        lengths: integers (B,), how many steps of outputs (T, B, C) each sample has; left out, all T.

    Returns:
        (1, C, C), float32, whose mean over the first axis `fit` and `evaluate` give as a nested list.

    Example:
        >>> output, labels = Tensor([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]]), Tensor([0, 0, 1, 1])
        >>> snncell.train.confusion(output, labels).asnumpy()[0].tolist()
        [[0.5, 0.0], [0.25, 0.25]]
    """
    scores, label, counts = _classes(output, labels, lengths, "confusion")
    largest = hot(ops.argmax(scores, -1), scores.shape[-1], -1, "")
    found: Tensor = ops.matmul(label.swapaxes(0, 1), largest) / counts.sum()
    return found.reshape(1, *found.shape)


def _classes(output: Any, labels: Any, lengths: Any, who: str) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs (B, C), labels one-hot (B, C), zeros where one does not count, and 1 or 0 for each sample that does."""
    scores = as_tensor(output[0] if isinstance(output, (tuple, list)) and output else output, who, "output")
    target = as_tensor(labels, who, "labels")
    if target.dtype.is_float or target.ndim != 1 or scores.ndim not in (2, 3) or scores.shape[-2] != target.shape[0]:
        raise ShapeError(
            f"{who}: outputs are (B, C) or (T, B, C) and labels class numbers (B,), not {scores.shape} and "
            f"{target.dtype} {target.shape}."
        )
    if over_time(scores, target):
        scores = zero_after_end(scores, lengths, who).sum(0)
    elif lengths is not None:
        raise ShapeError(f"{who}: lengths are of outputs (T, B, C), and these have shape {scores.shape}.")
    counts, classes = ops.greater_equal(target, 0), scores.shape[-1]
    label = hot(ops.select(counts, target, 0), classes, -1, label_words(who, classes, True))
    numbers = counts.astype("float32")
    return scores.astype("float32"), label.astype("float32") * numbers.reshape(-1, 1), numbers


# --- by name ----------------------------------------------------------------------------------------------------------

NAMED: dict[str, Metric | Monitored] = {"accuracy": accuracy, "confusion": confusion, **BY_NAME}


def metric(name: str) -> Metric | Monitored:
    """The metric of a name: "accuracy", "confusion", "top5" and the like, or "spikes", "synops", "energy".

    The first ones are functions of (output, target). The last ones are `Monitored`, per sample: spikes of all layers,
    synaptic operations, and joules as `monitoring.energy` estimates them.

    Raises:
        ArgumentError: for another name, saying what there is.

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
        meant = f" {near!r} is meant?" if near else ""
        there = f"{', '.join(map(repr, NAMED))} and 'top5' (any number)"
        raise ArgumentError(
            f"{who}: there is no metric {show(name)}, but {there}.{meant} Of one's own it is a function of (output, "
            f"target) that gives a Tensor."
        )
    return NAMED[name]


def name_metrics(metrics: Any, who: str) -> tuple[dict[str, Metric], dict[str, Monitored]]:
    """Metrics by the names that records have them by: functions of (output, target), and of a monitor.

    Raises:
        ArgumentError: for what is none, and for a name that a record has already.
    """
    several = isinstance(metrics, Iterable) and not isinstance(metrics, str)
    given = dict(metrics) if isinstance(metrics, dict) else [*metrics] if several else [metrics]
    pairs = [*given.items()] if isinstance(given, dict) else [(_name_of(one, who), one) for one in given]
    found: dict[str, Metric | Monitored] = {}
    for name, one in pairs:
        if not isinstance(name, str) or name in RESERVED or name.startswith("test_"):
            raise ArgumentError(
                f"{who}: metrics: {show(name)} is no name for a metric; a record has {', '.join(RESERVED)} and "
                f"test_... already."
            )
        if name in found:
            raise ArgumentError(f"{who}: two metrics are called {name!r}; give a dict: metrics={{name: function}}.")
        if not isinstance(one, (str, Monitored)) and (isinstance(one, type) or not callable(one)):
            raise ArgumentError(f"{who}: metrics are names and functions of (output, target), not {came(one)}.")
        found[name] = _of_name(one, f"{who}: metrics") if isinstance(one, str) else one
    heard = {name: one for name, one in found.items() if isinstance(one, Monitored)}
    return {name: one for name, one in found.items() if not isinstance(one, Monitored)}, heard


def _name_of(one: Any, who: str) -> str:
    """The name of a metric that is given without one."""
    if isinstance(one, str):
        return one
    name = getattr(one, "__name__", type(one).__name__)
    if name == "<lambda>":
        raise ArgumentError(f"{who}: a lambda among metrics has no name; give a dict: metrics={{name: function}}.")
    return str(name)
