"""Findings about what neurons do: always fire, sit where their surrogate is flat, run away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from snncell.plot.reporting.facts import PASSES_NOTHING, Facts, Layer, finite
from snncell.plot.reporting.findings import Finding, counted, number, percent

# A neuron that fires at 95 of 100 steps says next to nothing; a few such are biases, half of a layer is a fault.
SATURATED_RATE = 0.95
SATURATED_NOTE, SATURATED_WARNING, SATURATED_ALARM = 0.1, 0.25, 0.5
# Of neurons that fire, potentials cross the threshold, so a surrogate that nine in ten steps do not see is narrow if
# potentials spread over several times its width; where they spread less, they are only far away.
NARROW_WARNING, NARROW_ALARM, NARROW_SPREAD = 0.9, 0.99, 4.0
# Beyond ten thresholds it is the potentials that are too wide.
WIDE_SPREAD = 10.0
# A sum over T steps grows linearly, from the second quarter to the last by 2.3; what grows tenfold does so at a rate.
RUNAWAY_GROWTH, RUNAWAY_LEVEL, RUNAWAY_STEPS = 10.0, 10.0, 8


# --- too much ---------------------------------------------------------------------------------------------------------


def saturated(facts: Facts) -> Iterator[Finding]:
    """Neurons that fire at nearly every step; where a spike has a size, firing often is no fault."""
    for layer in facts.layers:
        if layer.rates is None or _graded(layer) or layer.shape[0] < 2:
            continue
        share = float((layer.rates > SATURATED_RATE).mean())
        if share <= SATURATED_NOTE:
            continue
        severity = "alarm" if share > SATURATED_ALARM else "warning" if share > SATURATED_WARNING else "note"
        text = (
            f"{percent(share)} of {counted(layer.rates.size, layer.unit)} fired at more than {percent(SATURATED_RATE)} "
            f"of the steps; the layer's mean rate is {number(float(layer.rates.mean()))} spikes per step."
        )
        mend = (
            "Lower the input or the weights before it, raise v_threshold, or normalise the current (nn.BatchNorm1d "
            "before the neurons)."
        )
        yield Finding("saturated", layer.name, severity, text, mend)


def _graded(layer: Layer) -> bool:
    """Whether its spikes have several sizes."""
    assert layer.spikes is not None  # whoever has rates has spikes
    fired = layer.spikes[layer.spikes != 0]
    return bool(fired.size and fired.min() != fired.max() and len(layer.by_unit(layer.spikes)) > 1)


def runaway(facts: Facts) -> Iterator[Finding]:
    """Potentials that grow at a rate, beyond what a threshold or a sum explains."""
    for layer in facts.layers:
        if layer.v is None or len(layer.v) < RUNAWAY_STEPS or not finite(layer.v):
            continue
        size = np.abs(layer.v.astype(np.float64).reshape(len(layer.v), -1)).mean(1)
        quarter = len(size) // 4
        early, late = float(size[quarter : 2 * quarter].mean()), float(size[-quarter:].mean())
        if late > RUNAWAY_GROWTH * early and late > RUNAWAY_LEVEL * (layer.threshold or 1.0):
            yield _runaway(layer, early, late)


def _runaway(layer: Layer, early: float, late: float) -> Finding:
    why = "" if layer.radius is None else f" The spectral radius of its feedback is {number(layer.radius)}."
    text = (
        f"mean |v| grows from {number(early)} in the second quarter of the steps to {number(late)} in the last one"
        f"{f', at a threshold of {number(layer.threshold)}' if layer.threshold else ''}.{why}"
    )
    mend = (
        "Scale the feedback weights down (spectral radius about 1), or give the neuron a reset and a leak."
        if layer.recurrent
        else "Give the neuron a reset or a leak, or lower its input."
    )
    return Finding("exploding recurrence", layer.name, "alarm", text, mend)


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


RULES = (saturated, runaway, narrow)
