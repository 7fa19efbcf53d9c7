"""Measures of potentials: how large they are, how they grow over the steps, and constants that let them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from snncell.report.facts import Facts, LayerFacts, finite
from snncell.report.findings import Measurement, measure
from snncell.report.late import far_away, late_flat
from snncell.report.slopes import Array

# Potentials reach some twenty thresholds in nets that learn, and sums without a leak more. How far, at the late steps
# of the worst sample, and by how many of the neurons: any of these is a warning, or an alarm. Upwards a spike takes the
# potential back, so what goes on rising outruns the reset. Downwards nothing does: a neuron without a leak that is
# inhibited sinks by its input, step after step, and is silent, as it is meant to be. So the limits there are further.
LARGE = ((30.0, 0.5), (50.0, 0.1), (-100.0, 0.25))
FAR_TOO_LARGE = ((100.0, 0.5), (1000.0, 0.1), (-300.0, 0.5), (-3000.0, 0.1))
# A sum over T steps grows linearly, from the second quarter to the last by 2.3; what grows tenfold does so at a rate.
RUNAWAY_GROWTH, RUNAWAY_LEVEL, RUNAWAY_STEPS = 10.0, 10.0, 8


def large(facts: Facts) -> Iterator[Measurement]:
    """Potentials that are many thresholds away from where they began; large ones where no threshold is known."""
    for layer in facts.layers:
        if layer.heights is not None:
            yield from _in_thresholds(layer, layer.heights)
        elif layer.v is not None and layer.v.size and finite(layer.v):
            size = np.abs(layer.v)
            step, sample = np.argwhere(size == size.max())[0][:2]
            numbers = {"largest": float(size.max()), "sample": sample, "step": step}
            yield measure("large potentials: without a threshold", layer, **numbers)


def _in_thresholds(layer: LayerFacts, heights: Array) -> Iterator[Measurement]:
    reached = [limit for limit in (*FAR_TOO_LARGE, *LARGE) if _reaches(layer, *limit)]
    if not reached:
        return
    thresholds = max((limit for limit, _ in reached), key=abs)
    worst, flat = far_away(layer, thresholds), late_flat(layer)
    assert worst is not None  # it was reached
    yield measure(
        "large potentials",
        layer,
        far_too_large=reached[0] in FAR_TOO_LARGE,
        worst=worst,
        thresholds=abs(thresholds),
        side="above" if thresholds > 0 else "below",
        largest=float(np.abs(heights[:, worst.sample]).max()),
        flat=None if flat is None else float(flat[worst.sample]),
    )


def _reaches(layer: LayerFacts, thresholds: float, share: float) -> bool:
    worst = far_away(layer, thresholds)
    return worst is not None and worst.share > share


def runaway(facts: Facts) -> Iterator[Measurement]:
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
            sample = int(np.argmax(np.where(grown, late, 0.0)))
            rule = f"exploding recurrence: potentials{', by feedback' if layer.recurrent else ''}"
            numbers = {"early": early[sample], "late": late[sample], "threshold": layer.threshold or None}
            yield measure(rule, layer, sample=sample, many=grown.sum(), radius=layer.radius, **numbers)


def _quarters(v: Array) -> tuple[Array, Array]:
    """Mean |v| of each sample in the second quarter of the steps, and in the last, (B,)."""
    samples = v.shape[1] if v.ndim > 1 else 1
    size = np.abs(v.astype(np.float64).reshape(len(v), samples, -1)).mean(2)
    quarter = len(size) // 4
    return size[quarter : 2 * quarter].mean(0), size[-quarter:].mean(0)


def out_of_range(facts: Facts) -> Iterator[Measurement]:
    """Constants that a neuron's equations are not made for, such as a decay above 1; else potentials that grow alone.

    The last is of neurons of one's own, which name no constant for it: it shows in what a step does.
    """
    for layer in facts.layers:
        outside = [constant for constant in layer.constants if constant.outside.any()]
        for constant in outside:
            rule = "constant out of range: learned" if constant.learned else "constant out of range"
            size = constant.value.size
            numbers = {"constant": constant, "outside": constant.outside.sum(), "several": size if size > 1 else None}
            yield measure(rule, layer, **numbers)
        if not outside and layer.leak is not None:
            steps = layer.shape[0] if layer.shape else 0
            with np.errstate(over="ignore"):
                growth = np.float64(layer.leak) ** max(steps, 1)
            numbers = {"leak": layer.leak, "growth": growth, "steps": steps}
            yield measure("constant out of range: a step keeps too much", layer, **numbers)


MEASURES = (large, runaway, out_of_range)
