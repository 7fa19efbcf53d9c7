"""From values to spikes over time, (B, ...) -> (T, B, ...), and back.

encoders   rate, latency, delta, phase, population (and its field_centres), current, lif
decoders   spike_count, firing_rate, first_spike_time, population_vector, last_membrane, mean_membrane, max_membrane

Encoders give 0 and 1 in the dtype of x, without a gradient, where nothing else is said. The values of x are checked
to be in its range, but under `snncell.jit`, where they cannot be looked at.

Decoders take spikes or potentials (T, B, ...), are differentiable, and refuse a sequence without steps (ShapeError).
Their `lengths` (B,) says how many steps each sample has: the rest is padding and does not count. Left out, all T.
"""

from snncell.base.arguments.guard import guard as _guard
from snncell.encode.decoders import (
    firing_rate as firing_rate,
    first_spike_time as first_spike_time,
    last_membrane as last_membrane,
    max_membrane as max_membrane,
    mean_membrane as mean_membrane,
    population_vector as population_vector,
    spike_count as spike_count,
)
from snncell.encode.encoders import (
    current as current,
    delta as delta,
    field_centres as field_centres,
    lif as lif,
    phase as phase,
    population as population,
    rate as rate,
)
from snncell.encode.timing import latency as latency

__all__ = [
    "current",
    "delta",
    "field_centres",
    "firing_rate",
    "first_spike_time",
    "last_membrane",
    "latency",
    "lif",
    "max_membrane",
    "mean_membrane",
    "phase",
    "population",
    "population_vector",
    "rate",
    "spike_count",
]

_guard(globals())
