"""Findings of a report (kind, place, severity, text, advice), and the rules that make findings from measurements."""

from __future__ import annotations

import math
import string
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from operator import gt, lt
from typing import Any, NamedTuple

from snncell.errors import ArgumentError

SEVERITIES = ("alarm", "warning", "note")  # the worst first

KINDS = {
    "not finite": "a NaN or an infinite number in inputs, potentials, gradients, weights or the loss",
    "labels": "labels outside of the classes of the output, or all equal",
    "constant out of range": "a constant of a neuron outside of its valid range, such as a decay above 1",
    "no gradient": "a Parameter whose gradient is exactly zero in every entry",
    "not trained": "trainable Parameters that the optimiser does not have",
    "dead": "neurons that never fired over the batch",
    "saturated": "neurons that fired at nearly every step, in the whole batch or late in a sample",
    "large potentials": "potentials many thresholds away from their initial value",
    "silent output": "an output layer, or the output neuron of a label, without a spike",
    "silent samples": "a layer without spikes for some of the samples",
    "equal outputs": "equal outputs for different samples",
    "narrow surrogate": "a surrogate much narrower than the potentials of firing neurons",
    "wide surrogate": "a surrogate whose derivative is nearly constant over all potentials",
    "exploding recurrence": "a Recurrent layer whose gradient or potential grows from step to step",
    "exploding gradient": "a gradient that grows backwards through time, or from layer to layer",
    "vanishing gradient": "a gradient that shrinks backwards through time, or from layer to layer",
    "mis-scaled loss": "a loss that grows with the batch, or gradients far larger or smaller than the weights",
    "learning rate": "updates that are large or tiny compared with the weights, or a loss far above chance",
    "loss curve": "a loss that rises or hardly falls during training, or is not finite",
    "growth": "a number in the training log, other than the loss, that grows without limit or vanishes",
    "detached reset": "neurons whose reset is a constant in the backward pass",
    "not recorded": "a spiking layer that runs its time steps itself, so that a monitor cannot record it",
    "accuracy": "the share of samples that are classified correctly",
}


@dataclass(frozen=True)
class Finding:
    """A finding of `report`: a problem or a fact, with its place, its severity and a fix.

    Args:
        kind: "dead", "saturated", "large potentials", "narrow surrogate", "wide surrogate", "exploding gradient",
            "vanishing gradient", "exploding recurrence", "no gradient", "not trained", "mis-scaled loss", "learning
            rate", "labels", "constant out of range", "not finite", "silent output", "silent samples", "equal outputs",
            "detached reset", "loss curve", "growth", "not recorded" or "accuracy"; see `snncell.report.findings.KINDS`.
        layer: the name of the layer or Parameter, "" for the whole network.
        severity: "alarm": the network will not learn; "warning": a likely reason if it does not; "note": a mere fact.
        text: the observation, with its numbers.
        mend: the fix to try; "" if there is nothing to fix.
    Example:
        >>> print(snncell.plot.Finding("dead", "lif1", "alarm", "90 % never fired.", "Lower v_threshold."))
        alarm: lif1: 90 % never fired. Lower v_threshold.
    """

    kind: str
    layer: str
    severity: str
    text: str
    mend: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ArgumentError(f"Finding: kind must be one of {', '.join(map(repr, KINDS))}, not {self.kind!r}.")
        if self.severity not in SEVERITIES:
            raise ArgumentError(f"Finding: severity must be one of {', '.join(SEVERITIES)}, not {self.severity!r}.")

    def __str__(self) -> str:
        place = f"{self.layer}: " if self.layer else ""
        return f"{self.severity}: {place}{self.text}{' ' if self.mend else ''}{self.mend}"


def by_severity(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort findings by severity, then in the order of `KINDS`, which lists causes before their effects."""
    order = list(KINDS)
    return tuple(sorted(findings, key=lambda each: (SEVERITIES.index(each.severity), order.index(each.kind))))


# --- Numbers in words -------------------------------------------------------------------------------------------------


def format_percent(share: float) -> str:
    """Format a share as percent: "61 %", "0.4 %"; only exact 0 and 1 give "0 %" and "100 %"."""
    if 0.0 < share < 0.01 or 0.99 < share < 1.0:
        return f"{100 * share:.1f} %" if 0.0005 <= share <= 0.9995 else "< 0.1 %" if share < 0.5 else "> 99.9 %"
    return f"{100 * share:.0f} %"


def format_number(value: float) -> str:
    """Format a number with three significant digits; from 1,000 to 100,000 as an integer."""
    return f"{value:.0f}" if 1e3 <= abs(value) < 1e5 else f"{value:.3g}"


def count_noun(count: int, name: str) -> str:
    """Format a count with its noun: "1 sample", "16 samples"."""
    return f"{count} {name}" if count == 1 else f"{count} {name}s"


class _Writer(string.Formatter):
    """Formatter for the templates of rules: {x}, {share:%}, {count:sample}, {x:.5g}."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec == "%":
            return format_percent(value)
        if format_spec and not format_spec.startswith("."):
            return count_noun(value, format_spec)
        return format_number(value) if isinstance(value, float) and not format_spec else format(value, format_spec)


Words = str | tuple[str, ...]


def fill_words(words: Words, numbers: Mapping[str, Any]) -> str:
    """Fill in the numbers of a template; parts with a number that was not measured are left out."""
    if isinstance(words, str):
        return _Writer().vformat(words, (), numbers)
    text = ""
    for part in words:
        with suppress(KeyError):
            text += _Writer().vformat(part, (), numbers)
    return text


# --- Rules ------------------------------------------------------------------------------------------------------------


class Measurement(NamedTuple):
    """Numbers for a rule, with the name of the rule and of the place."""

    rule: str
    place: str
    numbers: Mapping[str, Any]


def make_measurement(rule: str, it: Any = "", /, **numbers: Any) -> Measurement:
    """Make the measurement of a layer, a Parameter or a named place, without numbers that are None, False or ""."""
    seen = {name: x for name, x in numbers.items() if x is not None and x is not False and x != ""}
    return Measurement(rule, getattr(it, "name", it), {"it": it, **seen})


@dataclass(frozen=True)
class Limits:
    """Limits from which a number is a note, a warning or an alarm. NaN is no limit."""

    beyond: Callable[[float, float], bool]
    note: float = math.nan
    warning: float = math.nan
    alarm: float = math.nan

    def severity(self, value: float) -> str | None:
        """The severity of a value; None if it is within all limits."""
        return next((name for name in SEVERITIES if self.beyond(value, getattr(self, name))), None)


above, below = partial(Limits, gt), partial(Limits, lt)


@dataclass(frozen=True)
class Rule:
    """A rule of the report: a template for the finding, and limits for its severity."""

    words: Words  # template with numbers in braces and "it" for the layer; see `fill_words`
    mend: Words
    severity: str | None  # the lowest severity; None if the limits alone decide
    # By number: its limits, or a severity that applies if the number is present. The worst one counts.
    limits: Mapping[str, Limits | str]
    follows: bool = False  # True: the finding becomes a note if this layer or a later one passes no gradient

    def judge(self, measurement: Measurement) -> Finding | None:
        """The finding of a measurement that exceeds a limit, or None."""
        rule, place, numbers = measurement
        limited = [(limit, numbers[name]) for name, limit in self.limits.items() if name in numbers]
        graded = [limit if isinstance(limit, str) else limit.severity(value) for limit, value in limited]
        severity = min(filter(None, [self.severity, *graded]), key=SEVERITIES.index, default=None)
        if severity is None:
            return None
        kind = rule.partition(":")[0]
        return Finding(kind, place, severity, fill_words(self.words, numbers), fill_words(self.mend, numbers))
