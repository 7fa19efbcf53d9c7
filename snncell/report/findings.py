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
    "labels": "labels that are no classes of the output, or all the same",
    "constant out of range": "a constant of a neuron, such as a decay above 1, that its equations are not made for",
    "no gradient": "a Parameter whose gradient is exactly zero in every entry",
    "not trained": "Parameters that could be trained, and that the optimiser does not have",
    "dead": "neurons that never fired over the batch",
    "saturated": "neurons that fired at nearly every step, over the batch, or late in a sample",
    "large potentials": "potentials many thresholds away from where they began",
    "silent output": "a last layer of spiking neurons, or the neuron of a label, that gave no spike",
    "silent samples": "a layer that gives no spike for some of the samples",
    "equal outputs": "outputs that are the same for different samples",
    "narrow surrogate": "a surrogate much narrower than the potentials of neurons that do fire",
    "wide surrogate": "a surrogate so wide that it is the same at nearly all potentials",
    "exploding recurrence": "a Recurrent layer whose gradient or potential grows from step to step",
    "exploding gradient": "a gradient that grows backwards through time, or from layer to layer",
    "vanishing gradient": "a gradient that shrinks backwards through time, or from layer to layer",
    "mis-scaled loss": "a loss that grows with the batch, or gradients of no sensible size beside the weights",
    "learning rate": "updates that are large or tiny beside the weights, or a loss far above that of guessing",
    "loss curve": "a loss that rises or hardly falls while training, or is not finite",
    "growth": "a number of the training log other than the loss that runs away, or dies out, over the epochs",
    "detached reset": "neurons whose reset counts as a constant in the reverse",
    "not recorded": "a spiking layer that runs its time steps itself, so that none can be recorded",
    "accuracy": "the share of samples whose largest output is at their label",
}


@dataclass(frozen=True)
class Finding:
    """One thing that a report has to say; `print` shows its severity, its place, and its `text` with the `mend`.

    Args:
        kind: "dead", "saturated", "large potentials", "narrow surrogate", "wide surrogate", "exploding gradient",
            "vanishing gradient", "exploding recurrence", "no gradient", "not trained", "mis-scaled loss", "learning
            rate", "labels", "constant out of range", "not finite", "silent output", "silent samples", "equal outputs",
            "detached reset", "loss curve", "growth", "not recorded" or "accuracy"; `KINDS` of
            `snncell.report.findings` says what each means.
        layer: the name of the layer or Parameter, "" for the whole net.
        severity: "alarm": it will not learn like this; "warning": it may well be why it does not; "note": worth
            knowing, and no fault by itself.
        text: what was found, with numbers.
        mend: what to try, "" where there is nothing to mend.

    Raises:
        ArgumentError: for another kind or severity.

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
            raise ArgumentError(f"Finding: kind is one of {', '.join(map(repr, KINDS))}, not {self.kind!r}.")
        if self.severity not in SEVERITIES:
            raise ArgumentError(f"Finding: severity is one of {', '.join(SEVERITIES)}, not {self.severity!r}.")

    def __str__(self) -> str:
        place = f"{self.layer}: " if self.layer else ""
        return f"{self.severity}: {place}{self.text}{' ' if self.mend else ''}{self.mend}"


def by_severity(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The worst first, and among equals the order of `KINDS`: causes before their effects."""
    order = list(KINDS)
    return tuple(sorted(findings, key=lambda each: (SEVERITIES.index(each.severity), order.index(each.kind))))


# --- numbers in words -------------------------------------------------------------------------------------------------


def format_percent(share: float) -> str:
    """A share as percent: "61 %", "0.4 %", and never 0 or 100 where it is neither."""
    if 0.0 < share < 0.01 or 0.99 < share < 1.0:
        return f"{100 * share:.1f} %" if 0.0005 <= share <= 0.9995 else "< 0.1 %" if share < 0.5 else "> 99.9 %"
    return f"{100 * share:.0f} %"


def format_number(value: float) -> str:
    """A number with three digits that count, and with its zeros up to a hundred thousand."""
    return f"{value:.0f}" if 1e3 <= abs(value) < 1e5 else f"{value:.3g}"


def count_noun(count: int, name: str) -> str:
    """A count with its name, in the singular of one: "1 sample", "16 samples"."""
    return f"{count} {name}" if count == 1 else f"{count} {name}s"


class _Writer(string.Formatter):
    """Templates whose numbers are written as reports write them: {x}, {share:%}, {count:sample}, {x:.5g}."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec == "%":
            return format_percent(value)
        if format_spec and not format_spec.startswith("."):
            return count_noun(value, format_spec)
        return format_number(value) if isinstance(value, float) and not format_spec else format(value, format_spec)


Words = str | tuple[str, ...]


def fill_words(words: Words, numbers: Mapping[str, Any]) -> str:
    """Words with their numbers; of several parts without those that name something that was not measured."""
    if isinstance(words, str):
        return _Writer().vformat(words, (), numbers)
    text = ""
    for part in words:
        with suppress(KeyError):
            text += _Writer().vformat(part, (), numbers)
    return text


# --- rules ------------------------------------------------------------------------------------------------------------


class Measurement(NamedTuple):
    """The name of a rule, that of a place, and the numbers that the rule needs."""

    rule: str
    place: str
    numbers: Mapping[str, Any]


def make_measurement(rule: str, it: Any = "", /, **numbers: Any) -> Measurement:
    """A measurement of a layer or a Parameter, or at a named place; a number that is None, False or "" is left out."""
    seen = {name: x for name, x in numbers.items() if x is not None and x is not False and x != ""}
    return Measurement(rule, getattr(it, "name", it), {"it": it, **seen})


@dataclass(frozen=True)
class Limits:
    """The numbers beyond which something is a note, a warning, an alarm; nothing is beyond NaN."""

    beyond: Callable[[float, float], bool]
    note: float = math.nan
    warning: float = math.nan
    alarm: float = math.nan

    def severity(self, value: float) -> str | None:
        """The severity of that value; None if it is within all limits."""
        return next((name for name in SEVERITIES if self.beyond(value, getattr(self, name))), None)


above, below = partial(Limits, gt), partial(Limits, lt)


@dataclass(frozen=True)
class Rule:
    """A finding as data."""

    words: Words  # with measured numbers in braces, "it" the layer; parts that name one that is missing are left out
    mend: Words
    severity: str | None  # the least; None if the limits alone decide
    limits: Mapping[str, Limits | str]  # by name, the worst counts; a severity counts if the name was measured at all
    follows: bool = False  # a note where a layer that passes no gradient, there or later, explains it

    def judge(self, measurement: Measurement) -> Finding | None:
        """The finding that a measurement makes, if it is beyond a limit."""
        rule, place, numbers = measurement
        limited = [(limit, numbers[name]) for name, limit in self.limits.items() if name in numbers]
        graded = [limit if isinstance(limit, str) else limit.severity(value) for limit, value in limited]
        severity = min(filter(None, [self.severity, *graded]), key=SEVERITIES.index, default=None)
        if severity is None:
            return None
        kind = rule.partition(":")[0]
        return Finding(kind, place, severity, fill_words(self.words, numbers), fill_words(self.mend, numbers))
