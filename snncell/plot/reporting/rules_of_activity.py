"""Findings about what neurons do: fire all the time, or sit where their surrogate is flat, or the same everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from snncell.plot.reporting.facts import PASSES_NOTHING, Facts, Layer, finite
from snncell.plot.reporting.findings import SEVERITIES, Finding, counted, number, percent
from snncell.plot.reporting.worst import Worst, firing, firing_in_all

# A neuron that fires at 95 of 100 steps says next to nothing; a few such are biases, half of a layer is a fault.
SATURATED_RATE = 0.95
SATURATED_NOTE, SATURATED_WARNING, SATURATED_ALARM = 0.1, 0.25, 0.5
# Of the neurons, in the worst sample and its last third of the steps. Two fifths of a layer may answer a strong input
# with a spike at every step, and rest for another; those whose potentials are many thresholds up are held there.
# Neither is an alarm by itself: when a neuron began to fire may say enough.
STUCK_NOTE, STUCK_WARNING = 0.25, 0.5
HELD_WARNING = ((50.0, 0.2), (10.0, 0.4))  # thresholds, and the share
# Of neurons that fire, potentials cross the threshold, so a surrogate that nine in ten steps do not see is narrow if
# potentials spread over several times its width; where they spread less, they are only far away.
NARROW_WARNING, NARROW_ALARM, NARROW_SPREAD = 0.9, 0.99, 4.0
# Beyond ten thresholds it is the potentials that are too wide.
WIDE_SPREAD = 10.0
# A derivative that is this part of its peak at nearly all potentials tells none of them from another.
WIDE, WIDE_SHARE = 0.95, 0.95


# --- too much ---------------------------------------------------------------------------------------------------------


def saturated(facts: Facts) -> Iterator[Finding]:
    """Neurons that fire at nearly every step; where a spike has a size, firing often is no fault."""
    for layer in facts.layers:
        if layer.rates is None or _graded(layer) or layer.shape[0] < 2:
            continue
        share, late = float((layer.rates > SATURATED_RATE).mean()), _Late.of(facts, layer)
        severity = _how_saturated(share, late)
        if severity is None:
            continue
        text = (
            f"{percent(share)} of {counted(layer.rates.size, layer.unit)} fired at more than {percent(SATURATED_RATE)} "
            f"of the steps; the layer's mean rate is {number(float(layer.rates.mean()))} spikes per step."
        )
        text += late.words(share, layer) if late is not None else ""
        mend = (
            "Lower the input or the weights before it, raise v_threshold, or normalise the current (nn.BatchNorm1d "
            "before the neurons)."
        )
        if severity == "warning" and share <= SATURATED_WARNING:
            mend += " Look at these samples for inputs out of scale; neurons that stay on need a leak or a full reset."
        yield Finding("saturated", layer.name, severity, text, mend)


@dataclass(frozen=True)
class _Late:
    """Neurons that fire at nearly all late steps, by sample.

    on: all of them.
    held: those that many thresholds above where they began, the first limit of `HELD_WARNING` that is passed.
    everywhere: the share that does so in all samples together.
    """

    on: Worst
    held: tuple[float, float, Worst] | None
    everywhere: float

    @classmethod
    def of(cls, facts: Facts, layer: Layer) -> _Late | None:
        """The late neurons of a layer; nothing of an output, which may stay on where that is its class."""
        on, always = firing(layer, SATURATED_RATE), firing_in_all(layer, SATURATED_RATE)
        if on is None or always is None or (layer is facts.layers[-1] and len(facts.layers) > 1):
            return None
        held = [(far, share, firing(layer, SATURATED_RATE, far)) for far, share in HELD_WARNING]
        passed = [(far, share, worst) for far, share, worst in held if worst is not None and worst.share > share]
        return cls(on, passed[0] if passed else None, float(always.mean()))

    def severity(self) -> str | None:
        """The severity by itself."""
        if self.on.share > STUCK_WARNING or self.held is not None or self.everywhere > SATURATED_WARNING:
            return "warning"
        return "note" if self.on.share > STUCK_NOTE else None

    def words(self, share: float, layer: Layer) -> str:
        """Which sample is worst, if it is worse than that share."""
        far, limit, worst = self.held or (0.0, STUCK_WARNING, self.on)
        if worst.share <= share:
            return ""
        if not far and self.everywhere > SATURATED_WARNING:
            return (
                f" {percent(self.everywhere)} did so in the last {worst.steps} of {layer.shape[0]} steps, in all "
                f"samples together, and {percent(worst.share)} in sample {worst.sample}."
            )
        up = f", with potentials more than {number(far)} thresholds up" if far else ""
        return (
            f" In sample {worst.sample}, {percent(worst.share)} did so in the last {worst.steps} of {layer.shape[0]} "
            f"steps{up}; more than {percent(limit)} did in {worst.samples(limit)} of "
            f"{counted(len(worst.shares), 'sample')}."
        )


def _how_saturated(share: float, late: _Late | None) -> str | None:
    over_all = [limit for limit in _SATURATED if share > _SATURATED[limit]]
    found = [each for each in (*over_all, late.severity() if late is not None else None) if each]
    return min(found, key=SEVERITIES.index, default=None)


_SATURATED = {"alarm": SATURATED_ALARM, "warning": SATURATED_WARNING, "note": SATURATED_NOTE}


def _graded(layer: Layer) -> bool:
    """True if its spikes have several sizes."""
    assert layer.spikes is not None  # whoever has rates has spikes
    fired = layer.spikes[layer.spikes != 0]
    return bool(fired.size and fired.min() != fired.max() and len(layer.by_unit(layer.spikes)) > 1)


# --- the surrogate ----------------------------------------------------------------------------------------------------


def narrow(facts: Facts) -> Iterator[Finding]:
    """A surrogate much narrower than the potentials of neurons that do fire; those that do not are `dead`'s."""
    for layer in facts.layers:
        found = is_narrow(layer)
        if found is not None and layer.slope is not None:
            yield _narrow(layer, layer.slope, *found)


def is_narrow(layer: Layer) -> tuple[float, float] | None:
    """The share of steps that the surrogate does not see, and the spread of the potentials, if it is too narrow."""
    if layer.rates is None or layer.relative_slopes is None or layer.above is None or layer.slope is None:
        return None
    alive = layer.rates > 0
    if not alive.any() or not finite(layer.above):
        return None
    share = float((layer.relative_slopes[:, alive] < PASSES_NOTHING).mean())
    low, high = np.percentile(layer.by_unit(layer.above)[:, alive], (5, 95))
    spread = float(high - low) / 2
    return (share, spread) if share > NARROW_WARNING and spread > NARROW_SPREAD * layer.slope.width else None


def _narrow(layer: Layer, slope: Any, share: float, spread: float) -> Finding:
    text = (
        f"the derivative of {slope.name} is below {number(PASSES_NOTHING)} of its peak at {percent(share)} of the "
        f"steps of neurons that fire: it reaches {number(slope.width)} from the threshold, their potentials spread "
        f"over {number(spread)} to either side."
    )
    wider = f"a lower sharpness of {slope.name}, or a surrogate with long tails such as surrogate.ATan()"
    if spread > WIDE_SPREAD * abs(layer.threshold or np.inf):
        mend = f"Scale the weights before it down, or give it a reset: potentials span many thresholds. Else {wider}."
    else:
        mend = f"Take a wider surrogate: {wider}; or scale the weights so that potentials stay near the threshold."
    severity = "alarm" if share > NARROW_ALARM else "warning"
    return Finding("narrow surrogate", layer.name, severity, text, mend)


def wide(facts: Facts) -> Iterator[Finding]:
    """A surrogate that is the same at nearly all potentials, though it is not made to be: a straight-through one is."""
    for layer in facts.layers:
        slope, slopes = layer.slope, layer.relative_slopes
        if slope is None or slopes is None or slope.constant or not slopes.size:
            continue
        share = float((slopes > WIDE).mean())
        if share > WIDE_SHARE:
            text = (
                f"the derivative of {slope.name} is above {number(WIDE)} of its peak at {percent(share)} of the steps: "
                f"gradients do not tell neurons near their threshold from others."
            )
            mend = f"Take a narrower surrogate (about one threshold wide): a higher sharpness of {slope.name}."
            yield Finding("wide surrogate", layer.name, "warning", text, mend)


RULES = (saturated, narrow, wide)
