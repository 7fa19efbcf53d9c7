"""The worst sample of a batch, and the last third of its steps: what averages over all of both would hide."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from snncell.plot.reporting.facts import PASSES_NOTHING, Array, Layer, finite

LATE_STEPS = 8  # at least: a neuron that fires at each of three steps need not go on so


@dataclass(frozen=True)
class Worst:
    """In how many neurons of which sample something is so.

    shares: of the neurons, in each sample.
    steps: how many steps, the last ones, it was looked for at.
    """

    shares: Array
    steps: int

    @property
    def sample(self) -> int:
        """The sample with the largest share."""
        return int(np.argmax(self.shares))

    @property
    def share(self) -> float:
        """Its share."""
        return float(self.shares.max())

    def samples(self, limit: float) -> int:
        """The number of samples that have a share above the limit."""
        return int((self.shares > limit).sum())


def late(layer: Layer) -> int:
    """The number of steps in the last third of them, `LATE_STEPS` at least; 0 where there are fewer, or no samples."""
    steps = layer.shape[0] if len(layer.shape) > 1 else 0
    return max(LATE_STEPS, steps // 3) if steps >= LATE_STEPS else 0


def by_sample(array: Array, steps: int) -> Array:
    """(T, B, *features) as (steps, B, units, positions), the last steps alone."""
    last = array[-steps:]
    return last.reshape(steps, last.shape[1], last.shape[2] if last.ndim > 2 else 1, -1)


def firing(layer: Layer, above: float, thresholds: float = 0.0) -> Worst | None:
    """The neurons that fire at more than that share of the last steps, by sample.

    Args:
        layer: the layer.
        above: the share of the steps.
        thresholds: how far up their potentials are, at least; beyond 0, of layers of which that is known.
    """
    steps = late(layer)
    if not steps or layer.spikes is None or not layer.spiking:
        return None
    on = (by_sample(layer.spikes, steps) != 0).mean((0, 3)) > above
    if thresholds:
        heights = _heights(layer, steps, 1.0)
        if heights is None:
            return None
        on &= heights > thresholds
    return Worst(on.mean(1), steps)


def firing_in_all(layer: Layer, above: float) -> Array | None:
    """Which units fire at more than that share of the last steps of all samples together, (units,)."""
    steps = late(layer)
    if not steps or layer.spikes is None or not layer.spiking:
        return None
    on: Array = (by_sample(layer.spikes, steps) != 0).mean((0, 1, 3)) > above
    return on


def beyond(layer: Layer, thresholds: float) -> Worst | None:
    """The neurons whose potential is more than so many thresholds up (down, if negative) at the last steps, by sample.

    A potential that comes from both sides counts for each by its part there.
    """
    steps = late(layer)
    heights = _heights(layer, steps, np.sign(thresholds))
    return None if heights is None else Worst((heights > abs(thresholds)).mean(1), steps)


def _heights(layer: Layer, steps: int, side: float) -> Array | None:
    """The potentials on a side, 1 up or -1 down, in thresholds (root mean square over steps and positions), (B, units).

    What is on the other side counts as 0.
    """
    if not steps or layer.heights is None or not finite(layer.heights):
        return None
    heights = np.maximum(side * by_sample(layer.heights, steps), 0.0)
    return np.asarray(np.sqrt((heights**2).mean((0, 3))))


def flat(layer: Layer) -> Worst | None:
    """The steps of neurons, of the last ones, at which the surrogate is flat, by sample."""
    steps = late(layer)
    if not steps or layer.slope is None or layer.above is None:
        return None
    slopes = by_sample(layer.slope.relative(layer.above), steps)
    return Worst((slopes < PASSES_NOTHING).mean((0, 2, 3)), steps)


def silent_samples(layer: Layer) -> Array | None:
    """True for each sample for which the layer gives not one spike, (B,)."""
    if layer.spikes is None or not layer.spiking or len(layer.shape) < 2:
        return None
    silent: Array = ~(layer.spikes != 0).any(axis=(0, *range(2, layer.spikes.ndim)))
    return silent
