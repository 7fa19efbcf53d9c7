"""Gradient measurements: growth through time and through depth, Parameters without gradient, and detached resets."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from snncell.report.facts import Array, Facts, LayerFacts, Weight, all_finite, l2_norm
from snncell.report.findings import Measurement, make_measurement

EXPLODING_FACTOR = 1.1  # per step; a gradient that only adds up over many steps has a factor near 1
# The leak is the cause of a decrease up to twice as fast as its own, because resets also reduce the gradient.
LEAK_EXPLAINS = 2.0
# The gradient is proportional to the surrogate's derivative. The derivative is the cause if the logarithm of its growth
# is at least half of the logarithm of the gradient's growth.
SLOPES_EXPLAIN = 0.5
# The feedback is the cause if its gain is at least half of the factor per step. Half is enough, because the gain is
# only an estimate from means.
FEEDBACK_EXPLAINS = 0.5
FEWEST_STEPS = 6  # with fewer steps, the factor per step is not reliable
# The gradient of a layer passes through the later layers first. If a later layer has at least this part of its rate of
# growth, that layer is the cause.
INHERITED = 0.7


class Trend(NamedTuple):
    """The change of a layer's gradient backwards through time."""

    factor: float  # per step backwards: a least-squares fit of log norm over the steps with a nonzero norm
    steps: int  # from the first to the last of these steps

    @property
    def total(self) -> float:
        """The factor over all steps."""
        return float(np.exp(np.clip(self.steps * np.log(self.factor), -700.0, 700.0)))


def trend(norms: Array | None) -> Trend | None:
    """The trend of norms (T,), or None if too few of them are finite and positive."""
    if norms is None:
        return None
    steps = np.flatnonzero((norms > 0) & np.isfinite(norms))
    if len(steps) < FEWEST_STEPS:
        return None
    slope = np.polyfit(steps, np.log(norms[steps]), 1)[0]
    return Trend(float(np.exp(-slope)), int(steps[-1] - steps[0]))


def through_time(facts: Facts) -> Iterator[Measurement]:
    """Measure gradients that grow or shrink backwards through time, in each layer that causes this."""
    later: list[Trend] = []
    for layer in reversed(facts.layers):
        own = trend(layer.norms)
        if own is None:
            continue
        if own.factor > EXPLODING_FACTOR and not _is_inherited(own, later) and not _of_slopes(layer, own):
            yield _growing(layer, own)
        elif own.factor < 1.0 and not _is_inherited(own, later):
            leak = layer.leak if layer.leak is not None and 0 < layer.leak < 1 else None
            forgets = leak is not None and np.log(own.factor) >= LEAK_EXPLAINS * np.log(leak)
            rule = "vanishing gradient: by the leak" if forgets else "vanishing gradient: through time"
            yield make_measurement(rule, layer, factor=own.factor, total=own.total)
        later.append(own)


def _is_inherited(own: Trend, later: list[Trend]) -> bool:
    rate = np.log(own.factor)
    return any(np.log(other.factor) / rate > INHERITED for other in later)


def _of_slopes(layer: LayerFacts, own: Trend) -> bool:
    """True if gradients are larger at early steps only because potentials drift away from the threshold."""
    if layer.slope is None or layer.above is None:
        return False
    slopes = layer.slope.relative(layer.above).astype(np.float64).reshape(*layer.above.shape[:2], -1)
    squares = (slopes**2).sum(2)
    of_slopes = trend(np.sqrt((squares if layer.before_end is None else squares * layer.before_end).sum(1)))
    return of_slopes is not None and np.log(of_slopes.total) > SLOPES_EXPLAIN * np.log(own.total)


def _growing(layer: LayerFacts, own: Trend) -> Measurement:
    feedback = _gain_of_feedback(layer)
    numbers = {"factor": own.factor, "total": own.total, "steps": own.steps, "feedback": feedback}
    if layer.recurrent and (feedback is None or feedback > FEEDBACK_EXPLAINS * own.factor):
        return make_measurement("exploding recurrence: a gradient", layer, radius=layer.radius, **numbers)
    reset = None  # the factor of one step at the threshold, where v' = leak h - drop f(h)
    if layer.drop and layer.slope is not None and layer.leak is not None:
        reset = layer.leak * abs(1.0 - layer.drop * float(layer.slope.peak.mean()))
    reset = reset if reset is not None and reset > 1 else None
    return make_measurement("exploding gradient: through time", layer, reset=reset, **numbers)


def _gain_of_feedback(layer: LayerFacts) -> float | None:
    """The factor that the feedback gives a gradient. For random W, |W' D g| is about radius(W) rms(D) |g|."""
    if layer.radius is None or layer.slope is None or layer.above is None or not all_finite(layer.above):
        return None
    slopes = layer.by_unit(layer.slope.derivative(layer.above)).astype(np.float64)
    return layer.radius * float(np.sqrt((slopes**2).mean()))


def through_depth(facts: Facts) -> Iterator[Measurement]:
    """Measure the ratio of the gradients of neighbouring layers at late steps."""
    known = [layer for layer in facts.layers if layer.grad is not None and all_finite(layer.grad)]
    for before, after in pairwise(known):
        # Compare the last steps. Their gradients have passed through few time steps, so the depth causes a difference.
        low, high = (_late(layer) for layer in (before, after))
        if low and high:
            rule = "exploding gradient: through depth" if low > high else "vanishing gradient: through depth"
            yield make_measurement(rule, before, after=after, ratio=low / high)


def _late(layer: LayerFacts) -> float:
    """The median norm of the last steps with a nonzero gradient: the last eighth of them, but at least four."""
    assert layer.norms is not None  # the caller has checked `grad`
    norms = layer.norms[layer.norms > 0]
    return float(np.median(norms[-max(4, len(norms) // 8) :])) if len(norms) else 0.0


def no_gradient(facts: Facts) -> Iterator[Measurement]:
    """Measure Parameters whose gradient is exactly zero, grouped by Cell."""
    if not facts.differentiated:
        return
    without: dict[str, list[Weight]] = {}
    for weight in facts.weights:
        if weight.grad is None or (all_finite(weight.grad) and l2_norm(weight.grad) == 0.0 and weight.grad.size):
            without.setdefault(weight.name.rpartition(".")[0], []).append(weight)
    silent = ", ".join(layer.name for layer in facts.layers if layer.silent)
    for cell in [cell for cell in without if cell in facts.costs and facts.costs[cell].density == 0.0]:
        yield _of_one_cell("no gradient: no input", without.pop(cell), silent=silent)
    # If a surrogate is flat everywhere, other rules explain the reason.
    slopes = {layer.name: layer.relative_slopes for layer in facts.layers}
    flat = ", ".join(name for name, of_layer in slopes.items() if of_layer is not None and not of_layer.any())
    cut = sum(map(len, without.values()))
    if not flat and cut == len(facts.weights) and cut > 1:
        yield make_measurement("no gradient: anywhere", count=cut)
        return
    for weights in without.values():
        yield _of_one_cell("no gradient: flat surrogate" if flat else "no gradient", weights, flat=flat)


def _of_one_cell(rule: str, weights: list[Weight], **numbers: str) -> Measurement:
    names = " and ".join(weight.name for weight in weights)
    its = "its gradient" if len(weights) == 1 else f"the gradient of {names}"
    return make_measurement(rule, weights[0], its=its, **numbers)


def detached_resets(facts: Facts) -> Iterator[Measurement]:
    """Measure neurons whose reset is a constant in the backward pass."""
    names = [layer.name for layer in facts.layers if layer.detached]
    if names:
        place, share = names[0] if len(names) == 1 else "", len(names) / len(facts.layers)
        yield make_measurement("detached reset", place, names=", ".join(names), share=share)


MEASURES = (no_gradient, through_time, through_depth, detached_resets)
