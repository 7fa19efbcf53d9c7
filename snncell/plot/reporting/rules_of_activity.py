"""Findings about what neurons do: never fire, always fire, sit where their surrogate is flat, run away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from snncell.plot.reporting.facts import PASSES_NOTHING, Array, Facts, Layer, batch_axis, finite, norm
from snncell.plot.reporting.findings import Finding, number, percent

# Some neurons are silent over a batch in every net that computes with few spikes, and at initialisation whole layers
# are: below a tenth nothing is said, beyond it is a note, as long as the gradient can wake them. A layer sleeps fast if
# no potential comes within nine tenths of the threshold, or none is where the surrogate is a hundredth of its peak.
DEAD_NOTE, WAKES, FAR = 0.1, 0.01, 0.9
# Neurons that no gradient can wake stay as they are: a quarter of a layer is a loss, half of it a fault.
LOST_WARNING, LOST_ALARM = 0.25, 0.5
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
# Outputs that differ by less than float32 resolves are the same.
SAME = 1e-6


def _seen(layer: Layer) -> str:
    return f"in {layer.shape[1]} samples of {layer.shape[0]} steps" if len(layer.shape) > 1 else "over the batch"


def _silent_before(facts: Facts, layer: Layer) -> Layer | None:
    """The layer before this one, if it sends nothing."""
    position = list(facts.layers).index(layer)
    before = facts.layers[position - 1] if position else None
    return before if before is not None and before.silent else None


# --- silence ----------------------------------------------------------------------------------------------------------


def dead(facts: Facts) -> Iterator[Finding]:
    """Neurons that never fired; a last layer without any spike is `silent_output`."""
    for layer in facts.layers:
        if layer.rates is None or (layer.silent and layer is facts.layers[-1] and len(facts.layers) > 1):
            continue
        never = layer.rates == 0
        share = float(never.mean())
        reach = _reach(layer)
        lost = float((never & (reach < PASSES_NOTHING)).mean()) if reach is not None else 0.0
        severity = _how_dead(share, lost, _asleep(layer))
        if severity is None:
            continue
        cause = _silent_before(facts, layer) if layer.silent else None
        too_narrow = _is_narrow(layer) is not None
        words = f"{percent(share)} of {never.size} {layer.unit} never fired {_seen(layer)}{_slope_words(layer, never)}"
        if cause is not None:
            severity, words = "note", f"{words} It gets no spikes: {cause.name} before it is silent."
        if too_narrow:
            severity = "note"
        yield Finding("dead", layer.name, severity, words, _mend_of_silence(cause, too_narrow, lost > 0))


def _mend_of_silence(cause: Layer | None, too_narrow: bool, lost: bool) -> str:
    if cause is not None or too_narrow:
        return "Take a wider surrogate first, see there." if cause is None else f"Mend {cause.name} first."
    mend = "Raise the input or the weights before it, lower v_threshold, or take a longer tau"
    if lost:
        return f"{mend}; a wider surrogate reaches neurons further from the threshold."
    return f"{mend}; a regulariser of rates (nn.SilenceRegulariser) has the gradient wake them."


def _reach(layer: Layer) -> Array | None:
    """The largest derivative, in parts of its peak, that each unit's surrogate had at any step."""
    return None if layer.relative_slopes is None else layer.relative_slopes.max(0)


def _asleep(layer: Layer) -> bool:
    """Whether a silent layer is far from its first spike."""
    if not layer.silent or layer.above is None or not finite(layer.above):
        return False
    reach = _reach(layer)
    far = layer.threshold is not None and float(layer.above.max()) < -FAR * abs(layer.threshold)
    return far or (reach is not None and float(reach.max()) < WAKES)


def _how_dead(share: float, lost: float, asleep: bool) -> str | None:
    if lost > LOST_ALARM:
        return "alarm"
    if lost > LOST_WARNING or asleep:
        return "warning"
    return "note" if share > DEAD_NOTE else None


def _slope_words(layer: Layer, never: Array) -> str:
    reach = _reach(layer)
    if reach is None:
        return "."
    best = float(reach[never].max())
    lost = float((reach[never] < PASSES_NOTHING).mean())
    if lost == 1.0:
        return (
            f"; their surrogate is below {number(PASSES_NOTHING)} of its peak at every potential they had (at most "
            f"{number(best)}), so no gradient can wake them."
        )
    if lost:
        return (
            f"; the surrogate of {percent(lost)} of these is below {number(PASSES_NOTHING)} of its peak at every step, "
            f"so no gradient can wake them."
        )
    return f"; their surrogate reaches {number(best)} of its peak, so a gradient can still wake them."


def silent_output(facts: Facts) -> Iterator[Finding]:
    """A last layer of spiking neurons that gave no spike."""
    layer = facts.layers[-1] if facts.layers else None
    if layer is None or len(facts.layers) < 2 or not layer.silent:
        return
    cause = _silent_before(facts, layer)
    reach = _reach(layer)
    best = None if reach is None else float(reach.max())
    text = f"the output layer gave no spike {_seen(layer)}" + (
        "." if best is None else f"; its surrogate reaches {number(best)} of its peak."
    )
    if cause is not None:
        yield Finding("silent output", layer.name, "note", text, f"Mend {cause.name} first, which sends it no spikes.")
        return
    mend = "Lower its v_threshold, raise its weights, or read potentials instead of spikes: nn.LINode, fire=False."
    severity = "alarm" if best is None or best < PASSES_NOTHING else "warning" if _asleep(layer) else "note"
    yield Finding("silent output", layer.name, severity, text, mend)


def equal_outputs(facts: Facts) -> Iterator[Finding]:
    """Outputs that do not depend on the sample, while the inputs do."""
    out = facts.output
    if out is None or any(layer.silent for layer in facts.layers) or not finite(out) or not facts.layers:
        return
    samples = facts.layers[0].shape[1] if len(facts.layers[0].shape) > 1 else 0
    axis = batch_axis(out.shape, samples)
    if axis is None or samples < 2 or not any(_differ(x, batch_axis(x.shape, samples)) for x in facts.inputs):
        return
    if not _differ(out, axis):
        text = f"the output is the same for all {samples} samples, though the inputs differ."
        mend = "Look at the layers for a part that is silent or saturated; the loss cannot tell the samples apart."
        yield Finding("equal outputs", "", "alarm", text, mend)


def _differ(x: Array, axis: int | None) -> bool:
    if axis is None:
        return False
    rows = np.moveaxis(x, axis, 0).astype(np.float64)
    return norm(rows - rows[:1]) > SAME * max(norm(rows), 1e-30)


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
            f"{percent(share)} of {layer.rates.size} {layer.unit} fired at more than {percent(SATURATED_RATE)} of the "
            f"steps; the layer's mean rate is {number(float(layer.rates.mean()))} spikes per step."
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
        found = _is_narrow(layer)
        if found is not None and layer.slope is not None:
            yield _narrow(layer, layer.slope, *found)


def _is_narrow(layer: Layer) -> tuple[float, float] | None:
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


RULES = (dead, silent_output, equal_outputs, saturated, runaway, narrow)
