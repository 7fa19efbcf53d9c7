"""The score of guessing, and signs that a training got further: for measures of silence and of trainings."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from snncell.report.facts import Facts, batch_axis, finite, norm
from snncell.report.findings import count_noun, number, percent
from snncell.report.slopes import Array

AT_CHANCE = 0.02  # of the loss of guessing: a loss that is not lower by this much has learned nothing that counts
GUESSED = 1.1  # times the share that guessing gets right: as much is luck
FEWEST_EPOCHS = 3  # an accuracy needs some to be believed
FLAT = 0.02  # of the first loss: what a loss of random batches wanders about without learning
FIRST_UPDATES = 10  # fewer are no training
SAME = 1e-6  # outputs that differ by less than float32 resolves are the same


def logged_numbers(facts: Facts, name: str) -> list[float]:
    """The numbers of the records by one name; a table has empty places."""
    return [float(record[name]) for record in facts.history if record.get(name) not in (None, "")]


def is_trained(facts: Facts) -> bool:
    """True if the net has been trained before: there is a log, or its optimiser has taken steps."""
    return bool(facts.history) or (facts.updates or 0) >= FIRST_UPDATES


def is_classification(shape: Sequence[int], labels: Array) -> bool:
    """True if outputs of this shape, (B, C) or (T, B, C), can be scores for labels (B,)."""
    if labels.dtype.kind not in "iu" or labels.ndim != 1 or len(shape) not in (2, 3) or shape[-1] < 2:
        return False
    return shape[-2] == len(labels) > 0 and bool(labels.min() >= 0 and labels.max() < shape[-1])


def predictions(facts: Facts) -> tuple[Array, Array, int] | None:
    """Guesses and labels (B,), and the number of classes, where outputs are scores and targets are class numbers."""
    out, labels = facts.output, facts.target
    if out is None or labels is None or not is_classification(out.shape, labels):
        return None
    if facts.unseen:  # the outputs may be spike times, of which the smallest decides
        return None
    scores = out.sum(0) if out.ndim == 3 else out
    return (scores.argmax(1), labels, scores.shape[1]) if finite(scores) else None


def at_chance(facts: Facts) -> str:
    """The sign in the log that nothing was learned: a loss, or accuracies, as guessing has them; else ""."""
    losses = logged_numbers(facts, "loss")
    if losses and facts.guessing is not None and losses[-1] >= (1 - AT_CHANCE) * facts.guessing:
        epochs, guessing = count_noun(len(losses), "epoch"), number(facts.guessing)
        return f"the loss is {number(losses[-1])} after {epochs}, and that of guessing is {guessing}"
    right = logged_numbers(facts, "accuracy") or logged_numbers(facts, "test_accuracy")
    out, labels = facts.output, facts.target
    if len(right) < FEWEST_EPOCHS or out is None or labels is None or not is_classification(out.shape, labels):
        return ""
    commonest = float(np.bincount(labels).max()) / len(labels)
    chance = max(1 / out.shape[-1], commonest)
    if max(right) > GUESSED * chance:
        return ""
    return f"at most {percent(max(right))} were read right in {len(right)} epochs, and guessing gets {percent(chance)}"


def hardly_falls(losses: Sequence[float]) -> bool:
    """True if a loss neither falls nor rises by more than it wanders."""
    if len(losses) < 2 or not all(map(math.isfinite, losses)):
        return False
    first, limit = losses[0], FLAT * abs(losses[0])
    return first - min(losses) <= limit and losses[-1] - first <= limit


def same_outputs(facts: Facts) -> str:
    """The sign that all samples have one output, though the inputs differ; else ""."""
    out = facts.output
    if out is None or not finite(out) or not facts.layers:
        return ""
    samples = facts.layers[0].shape[1] if len(facts.layers[0].shape) > 1 else 0
    axis = batch_axis(out.shape, samples)
    if axis is None or samples < 2 or not any(_differ(x, batch_axis(x.shape, samples)) for x in facts.inputs):
        return ""
    return "" if _differ(out, axis) else f"the output is the same for all {samples} samples, though the inputs differ"


def _differ(x: Array, axis: int | None) -> bool:
    if axis is None:
        return False
    rows = np.moveaxis(x, axis, 0).astype(np.float64)
    return norm(rows - rows[:1]) > SAME * max(norm(rows), 1e-30)
