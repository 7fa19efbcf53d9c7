"""Findings about what was asked of a training: its labels, its Parameters, and what its log says beside the loss."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from snncell.plot.reporting.baseline import values
from snncell.plot.reporting.facts import Facts, batch_axis
from snncell.plot.reporting.findings import Finding, counted, number, percent

# Spikes per step over the epochs: rates settle within a few times of what they were; a net whose rates have grown so
# far, to so much, is on its way to saturation, and one whose rates have fallen so far, to its end.
RATE_GROWS, RATE_HIGH, RATE_FALLS = 3.0, 0.4, 0.05
# Any other number of the log (norms, potentials) may change by orders of magnitude once, but not in every epoch.
OTHER_GROWS, OTHER_EPOCHS = 100.0, 3
_KNOWN = ("epoch", "step", "learning_rate", "seconds")
# Fewer samples may be of one class by chance.
FEWEST_SAMPLES = 8


# --- labels -----------------------------------------------------------------------------------------------------------


def labels(facts: Facts) -> Iterator[Finding]:
    """Labels that are no classes of the output, or all the same."""
    out, target = facts.output, facts.target
    if out is None or target is None or target.dtype.kind not in "iu" or target.ndim != 1 or not target.size:
        return
    classes = out.shape[-1]
    if out.ndim not in (2, 3) or classes < 2 or batch_axis(out.shape, len(target)) != out.ndim - 2:
        return
    wrong = (target < 0) | (target >= classes)
    if wrong.any():
        text = (
            f"{counted(int(wrong.sum()), 'label')} of {len(target)} are no class of the {classes} outputs, 0 to "
            f"{classes - 1}: labels go from {target.min()} to {target.max()}."
        )
        yield Finding("labels", "", "alarm", text, "Count classes from 0 on, or give the net an output for each.")
    elif len(target) >= FEWEST_SAMPLES and (target == target[0]).all():
        text = f"all {len(target)} labels are class {target[0]}, and the net has {classes} outputs."
        mend = "Shuffle the data before they are cut into batches; give a report a batch as in training."
        yield Finding("labels", "", "warning", text, mend)


# --- Parameters -------------------------------------------------------------------------------------------------------


def not_trained(facts: Facts) -> Iterator[Finding]:
    """Parameters that could be trained, and that the optimiser does not have."""
    if facts.differentiated and not facts.weights:
        mend = "Set requires_grad=True for those that are to learn: net.set_grad()."
        yield Finding("not trained", "", "warning", "the net has no Parameter that could be trained.", mend)
    left = [weight.name for weight in facts.weights if weight.left_out]
    if left:
        text = (
            f"the optimiser does not have {counted(len(left), 'Parameter')} of {len(facts.weights)} that could be "
            f"trained: {', '.join(left[:5])}{', ...' if len(left) > 5 else ''}."
        )
        mend = "Make it from net.trainable_params(); freeze what is not to learn (requires_grad=False)."
        yield Finding("not trained", left[0] if len(left) == 1 else "", "warning", text, mend)


# --- over the epochs --------------------------------------------------------------------------------------------------


def growth(facts: Facts) -> Iterator[Finding]:
    """Numbers of the log other than losses and accuracies that run away, or rates that die out."""
    for name in dict.fromkeys(name for record in facts.history for name in record):
        if name in _KNOWN or "loss" in name or "accuracy" in name:
            continue
        try:
            series = values(facts, name)
        except (TypeError, ValueError):  # words
            continue
        found = _rate(name, series) if "rate" in name else _other(name, series)
        if found is not None:
            yield found


def _rate(name: str, series: list[float]) -> Finding | None:
    """A firing rate that goes to where neurons say nothing any more."""
    first, last = series[0], series[-1]
    if not np.isfinite(series).all() or len(series) < 2:
        return None
    text = f"{name} goes from {number(first)} in epoch 1 to {number(last)} in epoch {len(series)}"
    if last > RATE_HIGH and last > RATE_GROWS * first:
        mend = "Regularise the rates (nn.RateRegulariser), lower the learning rate, or normalise the current."
        return Finding("growth", "", "warning", f"{text}: neurons are on their way to firing all the time.", mend)
    if 0 <= last < RATE_FALLS * first:
        mend = "Lower the learning rate, or keep neurons awake by a regulariser (nn.SilenceRegulariser)."
        left = percent(last / first)
        return Finding("growth", "", "warning", f"{text}, {left} of what it was: neurons fall silent.", mend)
    return None


def _other(name: str, series: list[float]) -> Finding | None:
    """Anything else, which should not grow in every epoch without end."""
    bad = [n for n, value in enumerate(series, 1) if not np.isfinite(value)]
    if bad:
        mend = "See where it comes from; snncell.set_context(check_finite=True) names the first operation."
        return Finding("growth", "", "alarm", f"{name} is not finite from epoch {bad[0]} on.", mend)
    sizes = np.abs(series)
    if (
        len(sizes) < OTHER_EPOCHS
        or not (np.diff(sizes) > 0).all()
        or sizes[-1] <= OTHER_GROWS * sizes[0]
        or not sizes[0]
    ):
        return None
    text = (
        f"|{name}| grows in every epoch, from {number(float(sizes[0]))} to {number(float(sizes[-1]))} in {len(sizes)} "
        f"epochs."
    )
    mend = "Lower the learning rate, clip gradients (train.fit(clip_norm=1.0)), or add weight_decay."
    return Finding("growth", "", "warning", text, mend)


RULES = (labels, not_trained, growth)
