"""Findings about gradients: through time, through depth, into Parameters, and what stands in their way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from snncell.plot.reporting.facts import Array, Facts, Layer, Weight, finite, norm
from snncell.plot.reporting.findings import Finding, number, percent
from snncell.plot.reporting.rules_of_silence import explained

# A gradient that a sum over time accumulates grows linearly, a factor near 1 in a long sequence; more than 1.1 at every
# step is growth at a rate. Resets and adaptation alone come to some hundreds over a sequence, in nets that learn; a
# thousand is a fault, and after a million float32 has forgotten what late steps say.
EXPLODING_FACTOR, EXPLODING_TOTAL, EXPLODING_ALARM = 1.1, 1e3, 1e6
# From the last to the first steps: what comes early has no say beside what comes late.
VANISHING_TOTAL = 1e-4
# A reset takes from the gradient too: shrinking at up to twice the rate of the leak is the neuron's own forgetting.
LEAK_EXPLAINS = 2.0
# A gradient is multiplied by the surrogate's slope; if that alone grows by half of it (in powers), nothing propagates.
SLOPES_EXPLAIN = 0.5
# The feedback is what amplifies if it does so by half of what is seen at least: it is estimated from means.
FEEDBACK_EXPLAINS = 0.5
# Fewer steps tell no factor.
FEWEST_STEPS = 6
# Between neighbouring layers. Surrogates pass a few hundredths of a gradient in working nets, products of default
# weights about one: a thousand either way is out of proportion.
DEPTH_GROWS, DEPTH_GROWS_ALARM, DEPTH_SHRINKS = 1e2, 1e4, 1e-3
# An earlier layer's gradient comes through the later ones: growing at nearly their rate, it has inherited it.
INHERITED = 0.7


@dataclass(frozen=True)
class Trend:
    """The change of a layer's gradient backwards through time.

    factor: per step backwards, a least-squares fit of log norm over the steps at which it is not zero.
    steps: the number of steps between first and last of them.
    """

    factor: float
    steps: int

    @property
    def total(self) -> float:
        """The factor over all steps."""
        return float(np.exp(np.clip(self.steps * np.log(self.factor), -700.0, 700.0)))


def trend(norms: Array | None) -> Trend | None:
    """The trend of norms (T,), or None where too few are finite and above 0."""
    if norms is None:
        return None
    steps = np.flatnonzero((norms > 0) & np.isfinite(norms))
    if len(steps) < FEWEST_STEPS:
        return None
    slope = np.polyfit(steps, np.log(norms[steps]), 1)[0]
    return Trend(float(np.exp(-slope)), int(steps[-1] - steps[0]))


# --- through time -----------------------------------------------------------------------------------------------------


def through_time(facts: Facts) -> Iterator[Finding]:
    """Gradients that grow or shrink backwards; the last layer in which they do is named, where it comes from."""
    later: list[Trend] = []
    for layer in reversed(facts.layers):
        found = trend(layer.norms)
        if found is None:
            continue
        grows = found.factor > EXPLODING_FACTOR and found.total > EXPLODING_TOTAL and not _of_slopes(layer, found)
        shrinks = found.total < VANISHING_TOTAL
        if (grows or shrinks) and not _inherited(found, later):
            yield _exploding(layer, found) if grows else explained(facts, _vanishing(layer, found))
        later.append(found)


def _inherited(found: Trend, later: list[Trend]) -> bool:
    rate = np.log(found.factor)
    return any(np.log(other.factor) / rate > INHERITED for other in later)


def _of_slopes(layer: Layer, found: Trend) -> bool:
    """True if a gradient is larger at early steps because the surrogate is: potentials that drift away from it."""
    if layer.relative_slopes is None:
        return False
    slopes = layer.relative_slopes.astype(np.float64).reshape(layer.shape[0], -1)
    own = trend(np.sqrt((slopes**2).mean(1)))
    return own is not None and np.log(own.total) > SLOPES_EXPLAIN * np.log(found.total)


def _exploding(layer: Layer, found: Trend) -> Finding:
    severity = "alarm" if found.total > EXPLODING_ALARM else "warning"
    text = (
        f"the gradient grows by a factor of {number(found.factor)} per step backwards through time, "
        f"{number(found.total)} over {found.steps} steps."
    )
    feedback, reset = _gain_of_feedback(layer), _gain_of_reset(layer)
    if layer.recurrent and (feedback is None or feedback > FEEDBACK_EXPLAINS * found.factor):
        if feedback is not None:
            text += (
                f" The spectral radius of its feedback is {number(layer.radius or 0.0)}; times the surrogate's "
                f"derivative (root mean square), a step multiplies by about {number(feedback)}."
            )
        mend = (
            "Scale the feedback weights down (spectral radius times mean derivative below 1), take a lower or wider "
            "surrogate, or clip the gradients (train.fit(clip_norm=1.0))."
        )
        return Finding("exploding recurrence", layer.name, severity, text, mend)
    if feedback is not None:
        text += f" Its feedback does not amplify: it multiplies by about {number(feedback)} per step."
    if reset > 1:
        text += f" Its reset multiplies the gradient of a neuron at the threshold by {number(reset)}."
    mend = (
        "Take a lower or wider surrogate, by which reset and adaptation multiply, detach the reset "
        "(detach_reset=True), cut the sequence (nn.Truncated), or clip the gradients (train.fit(clip_norm=1.0))."
    )
    return Finding("exploding gradient", layer.name, severity, text, mend)


def _gain_of_feedback(layer: Layer) -> float | None:
    """The gain of the feedback on a gradient in a step: |W' D g| is about radius(W) rms(D) |g| for random weights W."""
    if layer.radius is None or layer.slope is None or layer.above is None or not finite(layer.above):
        return None
    slopes = layer.slope.derivative(layer.above).astype(np.float64)
    return layer.radius * float(np.sqrt((slopes**2).mean()))


def _gain_of_reset(layer: Layer) -> float:
    """The gain of leak and reset in one step, at the threshold: v' = leak h - drop f(h), so leak |1 - drop f'(0)|."""
    if not layer.drop or layer.slope is None or layer.leak is None:
        return 0.0
    return layer.leak * abs(1.0 - layer.drop * float(layer.slope.peak.mean()))


def _vanishing(layer: Layer, found: Trend) -> Finding:
    text = (
        f"the gradient shrinks to {number(found.factor)} per step backwards through time: the first steps get "
        f"{number(found.total)} of what the last ones get."
    )
    explained = layer.leak is not None and 0 < layer.leak < 1
    if explained and np.log(found.factor) >= LEAK_EXPLAINS * np.log(layer.leak or 1.0):
        text += f" A step keeps {number(layer.leak or 1.0)} of the potential, which explains it: the neuron forgets."
        mend = "If early steps matter, take a longer tau, or a readout that looks at every step (its mean)."
        return Finding("vanishing gradient", layer.name, "note", text, mend)
    mend = (
        "Take a wider surrogate or detach the reset (detach_reset=True), which stands in the way at every step; a "
        "readout that looks at every step (its mean) brings gradients to early ones."
    )
    return Finding("vanishing gradient", layer.name, "warning", text, mend)


# --- through depth ----------------------------------------------------------------------------------------------------


def through_depth(facts: Facts) -> Iterator[Finding]:
    """Gradients out of proportion between neighbouring layers, but for what growth through time explains."""
    known = [layer for layer in facts.layers if layer.grad is not None and finite(layer.grad)]
    for before, after in pairwise(known):
        # At the last steps the way through time is short: what differs there is depth's.
        low, high = (_late(layer) for layer in (before, after))
        if not low or not high:
            continue
        ratio = low / high
        if ratio > DEPTH_GROWS or ratio < DEPTH_SHRINKS:
            found = _depth(before, after, ratio)
            yield explained(facts, found) if found.kind == "vanishing gradient" else found


def _late(layer: Layer) -> float:
    """The norm of the gradient in the last eighth of the steps at which it is not zero, four at least."""
    assert layer.norms is not None  # whoever asks has a gradient
    norms = layer.norms[layer.norms > 0]
    return float(np.median(norms[-max(4, len(norms) // 8) :])) if len(norms) else 0.0


def _depth(before: Layer, after: Layer, ratio: float) -> Finding:
    grows = ratio > 1
    change = f"{number(ratio)} times as large" if grows else f"{number(ratio)} of it"
    text = f"the gradient at {before.name} is {change} as at {after.name}, the layer after it."
    text = text if grows else text.replace(" as at ", " at ").replace("of it at", "of that at")
    if grows:
        mend = f"Lower the weights between {before.name} and {after.name}, or normalise the current between them."
        severity = "alarm" if ratio > DEPTH_GROWS_ALARM else "warning"
        return Finding("exploding gradient", before.name, severity, text, mend)
    mend = (
        f"Bring the potentials of {before.name} nearer to its threshold or take a wider surrogate there, raise the "
        f"weights between the two, or add a shortcut (nn.SEWBlock)."
    )
    return Finding("vanishing gradient", before.name, "warning", text, mend)


# --- Parameters -------------------------------------------------------------------------------------------------------


def no_gradient(facts: Facts) -> Iterator[Finding]:
    """Parameters whose gradient is exactly zero, those of one Cell together."""
    if not facts.differentiated:
        return
    without: dict[str, list[Weight]] = {}
    for weight in facts.weights:
        if weight.grad is None or (finite(weight.grad) and norm(weight.grad) == 0.0 and weight.grad.size):
            without.setdefault(weight.name.rpartition(".")[0], []).append(weight)
    unfed = [cell for cell in without if cell in facts.costs and facts.costs[cell].density == 0.0]
    yield from (_unfed(facts, without.pop(cell)) for cell in unfed)
    flat = [layer.name for layer in facts.layers if _passes_nothing(layer)]
    cut = sum(map(len, without.values()))
    if flat:
        yield from (_behind_flat(flat, weights) for weights in without.values())
    elif cut == len(facts.weights) and cut > 1:
        text = f"no Parameter gets a gradient: all {cut} are exactly zero."
        mend = (
            "Look at the last layer first: a loss that does not depend on the net, or ops.stop_gradient, argmax or a "
            "comparison on the way to it."
        )
        yield Finding("no gradient", "", "alarm", text, mend)
    else:
        yield from (_cut_off(weights) for weights in without.values())


def _passes_nothing(layer: Layer) -> bool:
    return layer.relative_slopes is not None and not layer.relative_slopes.any()


def _behind_flat(flat: list[str], weights: list[Weight]) -> Finding:
    """Weights before a layer that passes nothing, of which other rules say why."""
    names = ", ".join(flat)
    text = f"{_its_gradient(weights)} is exactly zero; the surrogate's derivative is 0 at every potential of {names}."
    return Finding("no gradient", weights[0].name, "note", text, f"Mend {names} first.")


def _unfed(facts: Facts, weights: list[Weight]) -> Finding:
    """Weights whose inputs are all 0, which is what the silence of a layer looks like from behind it."""
    silent = ", ".join(layer.name for layer in facts.layers if layer.silent)
    text = f"{_its_gradient(weights)} is exactly zero, as all its inputs are 0" + (
        f": no spike comes from {silent}." if silent else "."
    )
    return Finding("no gradient", weights[0].name, "note", text, "It comes with the first spikes, see there.")


def _its_gradient(weights: list[Weight]) -> str:
    if len(weights) == 1:
        return "its gradient"
    return f"the gradient of {' and '.join(weight.name for weight in weights)}"


def _cut_off(weights: list[Weight]) -> Finding:
    text = f"{_its_gradient(weights)} is exactly zero."
    mend = (
        "Look for ops.stop_gradient, a Cell that is never called, a bprop that returns zeros or forgets the Parameter "
        "(internal_params), or silent layers on its way to the loss; freeze what is not to learn (requires_grad=False)."
    )
    return Finding("no gradient", weights[0].name, "alarm", text, mend)


def detached(facts: Facts) -> Iterator[Finding]:
    """Neurons whose reset counts as a constant in the reverse."""
    found = [layer.name for layer in facts.layers if layer.detached]
    if not found:
        return
    share = percent(len(found) / len(facts.layers))
    text = (
        f"the reset of {', '.join(found)} counts as a constant in the reverse (detach_reset=True), {share} of the "
        f"layers: gradients are not those of the whole dynamics."
    )
    mend = "Nothing, if it is meant so, as in many papers; else detach_reset=False."
    yield Finding("detached reset", found[0] if len(found) == 1 else "", "note", text, mend)


RULES = (no_gradient, through_time, through_depth, detached)
