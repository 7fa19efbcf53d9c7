"""Findings about how large potentials are, how they grow over the steps, and constants that let them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from snncell.plot.reporting.facts import Array, Constant, Facts, Layer, finite
from snncell.plot.reporting.findings import Finding, counted, number, percent
from snncell.plot.reporting.worst import beyond, flat

# Potentials reach some twenty thresholds in nets that learn, and sums without a leak more. How far, at the late steps
# of the worst sample, and by how many of the neurons: any of these is a warning, or an alarm. Upwards a spike takes the
# potential back, so what goes on rising outruns the reset. Downwards nothing does: a neuron without a leak that is
# inhibited sinks by its input, step after step, and is silent, as it is meant to be. So the limits there are further.
LARGE_WARNING = ((30.0, 0.5), (50.0, 0.1), (-100.0, 0.25))
LARGE_ALARM = ((100.0, 0.5), (1000.0, 0.1), (-300.0, 0.5), (-3000.0, 0.1))
# What a step keeps of a change of the potential, measured in float32: one part in two hundred is no rounding.
KEEPS_TOO_MUCH = 1.005
# Where there is no threshold: float32 then resolves no input of the size of one.
HUGE = 1e6
# A sum over T steps grows linearly, from the second quarter to the last by 2.3; what grows tenfold does so at a rate.
RUNAWAY_GROWTH, RUNAWAY_LEVEL, RUNAWAY_STEPS = 10.0, 10.0, 8


# --- size -------------------------------------------------------------------------------------------------------------


def large(facts: Facts) -> Iterator[Finding]:
    """Potentials that are many thresholds away from where they began."""
    for layer in facts.layers:
        if layer.heights is None:
            yield from _huge(layer)
        elif any(_reached(layer, *each) for each in (*LARGE_WARNING, *LARGE_ALARM)):
            yield _large(layer)


def _reached(layer: Layer, thresholds: float, share: float) -> bool:
    found = beyond(layer, thresholds)
    return found is not None and found.share > share


def _large(layer: Layer) -> Finding:
    found = [(limit, share) for limit, share in (*LARGE_ALARM, *LARGE_WARNING) if _reached(layer, limit, share)]
    severity = "alarm" if found[0] in LARGE_ALARM else "warning"
    reached = max((limit for limit, _ in found), key=abs)
    worst, unseen = beyond(layer, reached), flat(layer)
    assert worst is not None and layer.heights is not None  # it was reached
    largest = float(np.abs(layer.heights[:, worst.sample]).max())
    text = (
        f"in sample {worst.sample} the potentials of {percent(worst.share)} of the neurons are more than "
        f"{number(abs(reached))} thresholds {'above' if reached > 0 else 'below'} where they began, in the last "
        f"{worst.steps} of {layer.shape[0]} steps (root mean square); the largest there is {number(largest)} "
        f"thresholds away."
    )
    if unseen is not None:
        text += f" The surrogate is flat at {percent(float(unseen.shares[worst.sample]))} of these steps."
    mend = (
        "Scale the inputs or the weights before it down (inputs of 0 to 255 by 1 / 255), normalise the current "
        "(nn.BatchNorm1d before the neurons), and look at the neuron's leak, reset and feedback."
    )
    return Finding("large potentials", layer.name, severity, text, mend)


def _huge(layer: Layer) -> Iterator[Finding]:
    """Where nothing is known of thresholds."""
    if layer.v is None or not layer.v.size or not finite(layer.v):
        return
    largest = float(np.abs(layer.v).max())
    if largest > HUGE:
        step, sample = np.argwhere(np.abs(layer.v) == np.abs(layer.v).max())[0][:2]
        text = f"potentials reach {number(largest)}, in sample {sample} at step {step}, and are finite by luck."
        mend = "Scale its input down, and look at its leak and at the weights before it."
        yield Finding("large potentials", layer.name, "alarm", text, mend)


# --- growth over the steps --------------------------------------------------------------------------------------------


def runaway(facts: Facts) -> Iterator[Finding]:
    """Potentials that grow at a rate, beyond what a threshold or a sum explains."""
    for layer in facts.layers:
        if layer.v is None or len(layer.v) < RUNAWAY_STEPS or not finite(layer.v):
            continue
        threshold = layer.threshold or layer.reach
        early, late = _quarters(layer.v)
        grown = (late > RUNAWAY_GROWTH * early) & (late > RUNAWAY_LEVEL * (threshold or 1.0))
        if threshold is None:  # a readout of few outputs may wait for its input
            grown &= bool(late.mean() > RUNAWAY_GROWTH * early.mean())
        if grown.any():
            worst = int(np.argmax(np.where(grown, late, 0.0)))
            yield _runaway(layer, worst, float(early[worst]), float(late[worst]), int(grown.sum()))


def _quarters(v: Array) -> tuple[Array, Array]:
    """Mean |v| of each sample in the second quarter of the steps, and in the last, (B,)."""
    samples = v.shape[1] if v.ndim > 1 else 1
    size = np.abs(v.astype(np.float64).reshape(len(v), samples, -1)).mean(2)
    quarter = len(size) // 4
    return size[quarter : 2 * quarter].mean(0), size[-quarter:].mean(0)


def _runaway(layer: Layer, sample: int, early: float, late: float, many: int) -> Finding:
    why = "" if layer.radius is None else f" The spectral radius of its feedback is {number(layer.radius)}."
    text = (
        f"in sample {sample}, mean |v| grows from {number(early)} in the second quarter of the steps to {number(late)} "
        f"in the last one{f', at a threshold of {number(layer.threshold)}' if layer.threshold else ''}; it grows "
        f"tenfold or more in {counted(many, 'sample')}.{why}"
    )
    mend = (
        "Scale the feedback weights down (spectral radius about 1), or give the neuron a reset and a leak."
        if layer.recurrent
        else "Give the neuron a reset or a leak, or lower its input."
    )
    return Finding("exploding recurrence", layer.name, "alarm", text, mend)


# --- constants --------------------------------------------------------------------------------------------------------


def out_of_range(facts: Facts) -> Iterator[Finding]:
    """Constants that a neuron's equations are not made for, such as a decay above 1, and potentials that grow alone."""
    for layer in facts.layers:
        found = [_outside(layer, constant) for constant in layer.constants if constant.outside.any()]
        yield from found or _keeps_too_much(layer)


def _outside(layer: Layer, constant: Constant) -> Finding:
    count, size = int(constant.outside.sum()), constant.value.size
    many = f" ({count} of its {size} entries are outside, and this one furthest)" if size > 1 else ""
    text = f"{constant.name} of the {layer.neuron} is {constant.furthest:.5g}{many}; {constant.name} {constant.text}."
    mend = (
        "It is learned: put it back, and lower its learning rate, or learn it in a form that stays in its range, as "
        "nn.ParametricLIFNode does."
        if constant.learned
        else "Give a value of that range when the neuron is made."
    )
    return Finding("constant out of range", layer.name, "warning", text, mend)


def _keeps_too_much(layer: Layer) -> Iterator[Finding]:
    """A neuron, of one's own perhaps, that names no constant for it: it shows in what a step does."""
    if layer.leak is not None and layer.leak > KEEPS_TOO_MUCH:
        text = (
            f"a step of the {layer.neuron} multiplies a small change of the potential by {layer.leak:.5g}, measured at "
            f"rest without input: potentials grow by themselves, {number(layer.leak ** max(layer.shape[0], 1))} times "
            f"in {counted(layer.shape[0], 'step')}."
        )
        mend = "Keep the factor of the potential at 1 or below, of learned ones too: ops.sigmoid of a Parameter."
        yield Finding("constant out of range", layer.name, "warning", text, mend)


RULES = (large, runaway, out_of_range)
