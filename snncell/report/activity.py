"""Measures of neurons: silence, saturation, surrogates too narrow or too wide, potentials too large."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from snncell.report.facts import PASSES_NOTHING, Array, Facts, LayerFacts, all_finite
from snncell.report.findings import Measurement, count_noun, make_measurement
from snncell.report.training import at_chance, is_trained, same_outputs

LATE_STEPS = 8  # the minimum, because a neuron that fires at a few steps in a row may stop again
SATURATED_RATE = 0.95  # a neuron that fires at 95 of 100 steps carries almost no information
SATURATED = 0.25  # a larger share of saturated neurons is a fault, over all steps or over the late steps of all samples
# Limits for the share of neurons that fire at nearly every step in the last third of the worst sample. Two fifths of a
# layer may do so for a strong input, and be silent for another input. Neurons with very high potentials (HELD) do not
# stop firing, so their limits are lower.
STUCK, MOST_STUCK = 0.25, 0.5
HELD = ((50.0, 0.2), (10.0, 0.4))  # pairs (potential in thresholds, share of the neurons)
# A layer is asleep if no potential exceeds a tenth of the distance to the threshold, or if the derivative of the
# surrogate is below a hundredth of its peak at all potentials.
FAR, WAKES = 0.9, 0.01
# A surrogate is too narrow under two conditions: it has no gradient at more than this share of the steps of firing
# neurons, and their potentials spread over more than this multiple of the surrogate's width. With a smaller spread, the
# potentials are only far from the threshold.
NARROW, NARROW_SPREAD = 0.9, 4.0
WIDE_SPREAD = 10.0  # thresholds; beyond this the potentials are too wide, not the surrogate too narrow
NEAR_PEAK = 0.95  # a derivative above this part of its peak at nearly all potentials does not distinguish them
# Pairs (thresholds, share of the neurons) for the late steps of the worst sample; one pair is enough for a finding.
# Potentials reach about twenty thresholds in networks that learn, and more in neurons without a leak. Each spike lowers
# a high potential, so if it still rises, the input is larger than the reset. But nothing raises a low potential. For
# example, an inhibited neuron without a leak falls at every step, and this is no fault. Therefore the limits below rest
# are wider.
LARGE = ((30.0, 0.5), (50.0, 0.1), (-100.0, 0.25))
FAR_TOO_LARGE = ((100.0, 0.5), (1000.0, 0.1), (-300.0, 0.5), (-3000.0, 0.1))
# A sum over T steps grows linearly, by a factor of 2.3 from the second to the last quarter. A factor of ten means
# exponential growth.
RUNAWAY_GROWTH, RUNAWAY_LEVEL, RUNAWAY_STEPS = 10.0, 10.0, 8


# --- Late steps of the worst sample -----------------------------------------------------------------------------------


class LateShare(NamedTuple):
    """The share of neurons with a property at the last `steps` steps, for each sample."""

    shares: Array
    steps: int

    @property
    def sample(self) -> int:
        """The sample with the largest share."""
        return int(np.argmax(self.shares))

    @property
    def share(self) -> float:
        """The largest share."""
        return float(self.shares.max())


def _last(layer: LayerFacts, array: Array | None) -> Array | None:
    """The last third of the steps of each sample, at least `LATE_STEPS`: (steps, B, units, positions), or None."""
    steps = layer.shape[0] if len(layer.shape) > 1 else 0
    if array is None or steps < LATE_STEPS:
        return None
    steps = max(LATE_STEPS, steps // 3)
    last = layer.late(array, steps)
    return last.reshape(steps, last.shape[1], last.shape[2] if last.ndim > 2 else 1, -1)


def share_staying_on(layer: LayerFacts, thresholds: float = 0.0) -> LateShare | None:
    """The share of neurons that fire at nearly all late steps; unless `thresholds` is 0, with potentials above it."""
    spikes = _last(layer, layer.spikes)
    if spikes is None or not layer.spiking:
        return None
    on = (spikes != 0).mean((0, 3)) > SATURATED_RATE
    if thresholds:
        heights = _late_heights(layer, 1.0)
        if heights is None:
            return None
        on &= heights > thresholds
    return LateShare(on.mean(1), len(spikes))


def _late_heights(layer: LayerFacts, side: float) -> Array | None:
    """Root mean squares, (B, units), of the late potentials above (side 1) or below (-1) rest, in thresholds."""
    late = _last(layer, layer.heights)
    if late is None or not all_finite(layer.heights):
        return None
    return np.asarray(np.sqrt((np.maximum(side * late, 0.0) ** 2).mean((0, 3))))


def share_far_away(layer: LayerFacts, thresholds: float) -> LateShare | None:
    """The share of neurons with potentials beyond `thresholds` at the late steps; a negative value means below rest."""
    heights = _late_heights(layer, float(np.sign(thresholds)))
    if heights is None:
        return None
    return LateShare((heights > abs(thresholds)).mean(1), max(LATE_STEPS, layer.shape[0] // 3))


# --- Silence ----------------------------------------------------------------------------------------------------------


def dead_neurons(facts: Facts) -> Iterator[Measurement]:
    """Measure neurons that never fired. An output layer without spikes is measured by `silent_output`."""
    for layer in facts.layers:
        if layer.rates is None or (layer.silent and layer is facts.layers[-1] and len(facts.layers) > 1):
            continue
        never, reach = layer.rates == 0, _reach(layer)
        if not never.any():
            continue
        lost = float((never & (reach < PASSES_NOTHING)).mean()) if reach is not None else 0.0
        cause = _silent_before(facts, layer) if layer.silent else None
        rule = "dead: out of reach" if lost else "dead"
        if cause is not None:
            rule = "dead: after a silent layer"
        elif narrowness(layer) is not None:
            rule = "dead: under a narrow surrogate"
        numbers: dict[str, Any] = {"share": float(never.mean()), "lost": lost, "cause": cause}
        numbers |= {"asleep": layer.silent and bool(_asleep_in(layer).all())}  # no sample comes close to a first spike
        numbers |= {"stuck": _stuck(facts, layer)} if cause is None else {}
        numbers |= _largest_slope_words(reach, never)
        yield make_measurement(rule, layer, where=_where(layer), nothing=PASSES_NOTHING, **numbers)


def _largest_slope_words(reach: Array | None, never: Array) -> dict[str, float | str]:
    """The largest surrogate derivative of silent neurons, under the name that selects a phrase of `_NEVER_FIRED`."""
    if reach is None:
        return {}
    best = float(reach[never].max())
    lost = float((reach[never] < PASSES_NOTHING).mean())
    if not np.isfinite(best):
        return {"broken": "not finite"}
    if lost == 1.0:
        return {"faint": best} if best else {"zero": 0}
    return {"lost_of_them": lost} if lost else {"reaches": best}


def _where(layer: LayerFacts) -> str:
    if len(layer.shape) < 2:
        return "over the batch"
    return f"in {count_noun(layer.shape[1], 'sample')} of {count_noun(layer.shape[0], 'step')}"


def _silent_before(facts: Facts, layer: LayerFacts) -> LayerFacts | None:
    position = list(facts.layers).index(layer)
    before = facts.layers[position - 1] if position else None
    return before if before is not None and before.silent else None


def _reach(layer: LayerFacts) -> Array | None:
    """The largest surrogate derivative of each unit over all steps, relative to the peak."""
    return None if layer.relative_slopes is None else layer.relative_slopes.max(0)


def _asleep_in(layer: LayerFacts) -> Array:
    """Mask (B,) of samples in which all neurons are far from a spike; False if that is unknown."""
    samples = layer.shape[1] if len(layer.shape) > 1 else 1
    if layer.above is None or not layer.above.size or not all_finite(layer.above):
        return np.zeros(samples, bool)
    highest = layer.above.reshape(len(layer.above), samples, -1).max((0, 2))
    far = np.zeros(samples, bool) if layer.threshold is None else highest < -FAR * abs(layer.threshold)
    if layer.slope is None:
        return far
    slopes = layer.slope.relative(layer.above).reshape(len(layer.above), samples, -1)
    return np.asarray(far | (slopes.max((0, 2)) < WAKES))


def _stuck(facts: Facts, layer: LayerFacts) -> str:
    """The evidence that a silent layer prevents a trained network from learning, or ""."""
    if not layer.silent or not is_trained(facts) or not all_finite(layer.above):
        return ""
    return same_outputs(facts) or at_chance(facts)


def silent_output(facts: Facts) -> Iterator[Measurement]:
    """Measure an output layer of spiking neurons without a spike."""
    layer = facts.layers[-1] if facts.layers else None
    if layer is None or len(facts.layers) < 2 or not layer.silent:
        return
    cause, reach = _silent_before(facts, layer), _reach(layer)
    best = None if reach is None or not np.isfinite(reach.max()) else float(reach.max())
    numbers: dict[str, Any] = {"where": _where(layer), "reaches": best, "cause": cause}
    if cause is None:
        lost = all_finite(layer.above) and (best is None or best < PASSES_NOTHING)
        numbers |= {"stuck": _stuck(facts, layer), "lost": lost, "asleep": bool(_asleep_in(layer).all())}
    yield make_measurement(f"silent output{'' if cause is None else ': after a silent layer'}", layer, **numbers)


def silent_samples(facts: Facts) -> Iterator[Measurement]:
    """Measure layers without spikes for some samples. Later layers cannot distinguish these samples."""
    for layer in facts.layers:
        if layer.spikes is None or not layer.spiking or len(layer.shape) < 2 or layer.silent:
            continue
        silent = ~(layer.spikes != 0).any(axis=(0, *range(2, layer.spikes.ndim)))
        if silent.any():
            asleep = float((silent & _asleep_in(layer)).mean()) if is_trained(facts) else None
            numbers = {"share": float(silent.mean()), "first": silent.argmax(), "asleep": asleep}
            yield make_measurement("silent samples", layer, silent=silent.sum(), **numbers)


def equal_outputs(facts: Facts) -> Iterator[Measurement]:
    """Measure outputs that are equal for all samples although the inputs differ."""
    same = same_outputs(facts)
    silent = next((layer.name for layer in facts.layers if layer.silent), None)
    if same and silent is None:
        yield make_measurement("equal outputs", same=same)
    elif same:
        yield make_measurement("equal outputs: because of silence", same=same, silent=silent, trained=is_trained(facts))


# --- Saturation -------------------------------------------------------------------------------------------------------


def saturated_neurons(facts: Facts) -> Iterator[Measurement]:
    """Measure neurons that fire at nearly every step, except those with graded spikes (the size is information)."""
    for layer in facts.layers:
        if layer.rates is None or _has_graded_spikes(layer) or layer.shape[0] < 2:
            continue
        share = float((layer.rates > SATURATED_RATE).mean())
        # An output neuron may fire at every late step if the sample belongs to its class.
        late = {} if layer is facts.layers[-1] and len(facts.layers) > 1 else _stays_on(layer, share)
        rule = "saturated: late" if late.get("stuck") and share <= SATURATED else "saturated"
        yield make_measurement(rule, layer, share=share, rate=SATURATED_RATE, mean=float(layer.rates.mean()), **late)


def _stays_on(layer: LayerFacts, share: float) -> dict[str, Any]:
    """Numbers about neurons that fire at nearly all late steps, over all samples and in the worst sample."""
    spikes, worst = _last(layer, layer.spikes), share_staying_on(layer)
    if spikes is None or worst is None:
        return {}
    shares = [(far, limit, share_staying_on(layer, far)) for far, limit in HELD]
    passed: list[Any] = [(far, limit, on) for far, limit, on in shares if on is not None and on.share > limit]
    everywhere = float(((spikes != 0).mean((0, 1, 3)) > SATURATED_RATE).mean())
    stuck = worst.share > MOST_STUCK or bool(passed) or everywhere > SATURATED
    numbers = {"stuck": stuck, "late": worst.share}
    far, limit, on = (passed or [(None, MOST_STUCK, worst)])[0]
    if on.share <= share:
        return numbers
    if not passed and everywhere > SATURATED:
        return numbers | {"everywhere": everywhere, "worst": on}
    return numbers | {"sample": on, "far": far, "limit": limit, "beyond": (on.shares > limit).sum()}


def _has_graded_spikes(layer: LayerFacts) -> bool:
    assert layer.spikes is not None  # the caller has checked `rates`
    fired = layer.spikes[layer.spikes != 0]
    return bool(fired.size and fired.min() != fired.max() and len(layer.by_unit(layer.spikes)) > 1)


def narrow_surrogates(facts: Facts) -> Iterator[Measurement]:
    """Measure surrogates much narrower than the spread of firing neurons' potentials (silent ones: `dead_neurons`)."""
    for layer in facts.layers:
        if (narrowed := narrowness(layer)) is not None:
            share, spread = narrowed
            far = spread > WIDE_SPREAD * abs(layer.threshold or np.inf)
            rule = "narrow surrogate: wide potentials" if far else "narrow surrogate"
            yield make_measurement(rule, layer, nothing=PASSES_NOTHING, share=share, spread=spread)


def narrowness(layer: LayerFacts) -> tuple[float, float] | None:
    """If the surrogate is too narrow: the share of steps without a gradient, and the spread of the potentials."""
    if layer.rates is None or layer.relative_slopes is None or layer.above is None or layer.slope is None:
        return None
    alive = layer.rates > 0
    if not alive.any() or not all_finite(layer.above):
        return None
    share = float((layer.relative_slopes[:, alive] < PASSES_NOTHING).mean())
    if share <= NARROW:
        return None
    low, high = np.percentile(layer.by_unit(layer.above)[:, alive], (5, 95))
    spread = float(high - low) / 2
    return (share, spread) if spread > NARROW_SPREAD * layer.slope.width else None


def wide_surrogates(facts: Facts) -> Iterator[Measurement]:
    """Measure surrogates whose derivative is nearly constant, except straight-through ones, which are by design."""
    for layer in facts.layers:
        slope, slopes = layer.slope, layer.relative_slopes
        if slope is not None and slopes is not None and slopes.size and not slope.constant:
            share = float((slopes > NEAR_PEAK).mean())
            yield make_measurement("wide surrogate", layer, near_peak=NEAR_PEAK, share=share)


# --- Potentials -------------------------------------------------------------------------------------------------------


def large_potentials(facts: Facts) -> Iterator[Measurement]:
    """Measure potentials many thresholds away from their initial value, or large ones if no threshold is known."""
    for layer in facts.layers:
        if layer.heights is not None:
            yield from _in_thresholds(layer, layer.heights)
        elif layer.v is not None and layer.v.size and all_finite(layer.v):
            size = np.abs(layer.v)
            step, sample = np.argwhere(size == size.max())[0][:2]
            numbers = {"largest": float(size.max()), "sample": sample, "step": step}
            yield make_measurement("large potentials: without a threshold", layer, **numbers)


def _in_thresholds(layer: LayerFacts, heights: Array) -> Iterator[Measurement]:
    limits = [(limit, share_far_away(layer, limit[0])) for limit in (*FAR_TOO_LARGE, *LARGE)]
    reached = [(limit, far) for limit, far in limits if far is not None and far.share > limit[1]]
    if not reached:
        return
    (thresholds, _), worst = max(reached, key=lambda each: abs(each[0][0]))
    slopes = None if layer.slope is None or layer.above is None else layer.slope.relative(layer.above)
    late = _last(layer, slopes)
    numbers = {
        "far_too_large": reached[0][0] in FAR_TOO_LARGE,
        "thresholds": abs(thresholds),
        "side": "above" if thresholds > 0 else "below",
        "largest": float(np.abs(heights[:, worst.sample]).max()),
        "flat": None if late is None else float((late[:, worst.sample] < PASSES_NOTHING).mean()),
    }
    yield make_measurement("large potentials", layer, worst=worst, **numbers)


def runaway_potentials(facts: Facts) -> Iterator[Measurement]:
    """Measure potentials that grow faster than a sum over time, and so exponentially."""
    for layer in facts.layers:
        if layer.v is None or len(layer.v) < RUNAWAY_STEPS or not all_finite(layer.v):
            continue
        threshold = layer.threshold or layer.reach
        samples = layer.v.shape[1] if layer.v.ndim > 1 else 1
        size = np.abs(layer.v.astype(np.float64).reshape(len(layer.v), samples, -1)).mean(2)  # (T, B)
        quarter = len(size) // 4
        early, late = size[quarter : 2 * quarter].mean(0), size[-quarter:].mean(0)
        grown = (late > RUNAWAY_GROWTH * early) & (late > RUNAWAY_LEVEL * (threshold or 1.0))
        if threshold is None:  # a readout may be near 0 until its input arrives
            grown &= bool(late.mean() > RUNAWAY_GROWTH * early.mean())
        if grown.any():
            sample = int(np.argmax(np.where(grown, late, 0.0)))
            rule = f"exploding recurrence: potentials{', by feedback' if layer.recurrent else ''}"
            numbers = {"early": early[sample], "late": late[sample], "threshold": layer.threshold or None}
            yield make_measurement(rule, layer, sample=sample, many=grown.sum(), radius=layer.radius, **numbers)


def constants_out_of_range(facts: Facts) -> Iterator[Measurement]:
    """Measure constants out of range, and the leak factor of a step, which should be at most 1."""
    for layer in facts.layers:
        outside = [constant for constant in layer.constants if constant.outside.any()]
        for constant in outside:
            rule = "constant out of range: learned" if constant.learned else "constant out of range"
            size = constant.value.size
            numbers = {"constant": constant, "outside": constant.outside.sum(), "several": size if size > 1 else None}
            yield make_measurement(rule, layer, **numbers)
        if not outside and layer.leak is not None:
            steps = layer.shape[0] if layer.shape else 0
            with np.errstate(over="ignore"):
                growth = np.float64(layer.leak) ** max(steps, 1)
            numbers = {"leak": layer.leak, "growth": growth, "steps": steps}
            yield make_measurement("constant out of range: a step keeps too much", layer, **numbers)


MEASURES = (
    dead_neurons, silent_output, silent_samples, equal_outputs, saturated_neurons, narrow_surrogates, wide_surrogates,
    large_potentials, runaway_potentials, constants_out_of_range,
)  # fmt: skip
