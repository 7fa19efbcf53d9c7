"""The late steps of the worst sample, which averages over a batch and all of its steps would hide."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from snncell.report.facts import LayerFacts, finite
from snncell.report.slopes import PASSES_NOTHING, Array

LATE_STEPS = 8  # at least: a neuron that fires at each of three steps need not go on so
SATURATED_RATE = 0.95  # a neuron that fires at 95 of 100 steps says next to nothing


class LateShare(NamedTuple):
    """The share of the neurons, in each sample, of which something is so at the last `steps` steps."""

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


def late_steps(layer: LayerFacts) -> int:
    """The number of steps in the last third of them, `LATE_STEPS` at least; 0 where there are fewer, or no samples."""
    steps = layer.shape[0] if len(layer.shape) > 1 else 0
    return max(LATE_STEPS, steps // 3) if steps >= LATE_STEPS else 0


def _last(layer: LayerFacts, array: Array, steps: int) -> Array:
    """The last steps of each sample of (T, B, *features), as (steps, B, units, positions)."""
    last = layer.late(array, steps)
    return last.reshape(steps, last.shape[1], last.shape[2] if last.ndim > 2 else 1, -1)


def late_spikes(layer: LayerFacts) -> Array | None:
    """Where there are spikes at the last steps, (steps, B, units, positions)."""
    steps = late_steps(layer)
    return None if not steps or layer.spikes is None or not layer.spiking else _last(layer, layer.spikes, steps) != 0


def staying_on(layer: LayerFacts, thresholds: float = 0.0) -> LateShare | None:
    """The neurons that fire at nearly all late steps, with potentials so many thresholds up if that is above 0."""
    spikes = late_spikes(layer)
    if spikes is None:
        return None
    on = spikes.mean((0, 3)) > SATURATED_RATE
    if thresholds:
        heights = late_heights(layer, 1.0)
        if heights is None:
            return None
        on &= heights > thresholds
    return LateShare(on.mean(1), len(spikes))


def late_heights(layer: LayerFacts, side: float) -> Array | None:
    """The potentials on a side, 1 up or -1 down, in thresholds (root mean square over late steps and positions).

    (B, units); what is on the other side counts as 0.
    """
    steps = late_steps(layer)
    if not steps or layer.heights is None or not finite(layer.heights):
        return None
    heights = np.maximum(side * _last(layer, layer.heights, steps), 0.0)
    return np.asarray(np.sqrt((heights**2).mean((0, 3))))


def far_away(layer: LayerFacts, thresholds: float) -> LateShare | None:
    """The neurons whose potential is more than so many thresholds up (down, if negative) at the late steps."""
    heights = late_heights(layer, float(np.sign(thresholds)))
    return None if heights is None else LateShare((heights > abs(thresholds)).mean(1), late_steps(layer))


def late_flat(layer: LayerFacts) -> Array | None:
    """The share of late steps of neurons at which the surrogate is flat, by sample, (B,)."""
    steps = late_steps(layer)
    if not steps or layer.slope is None or layer.above is None:
        return None
    flat: Array = (_last(layer, layer.slope.relative(layer.above), steps) < PASSES_NOTHING).mean((0, 2, 3))
    return flat
