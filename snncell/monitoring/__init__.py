"""Recording of a network while it runs: spikes, potentials, gradients, and what its products cost."""

from snncell.arguments.guard import guard as _guard
from snncell.monitoring.costs import Cost as Cost
from snncell.monitoring.estimate import Energy as Energy, LayerEnergy as LayerEnergy
from snncell.monitoring.hardware import (
    HARDWARE as HARDWARE,
    PRICES as PRICES,
    Hardware as Hardware,
    Price as Price,
)
from snncell.monitoring.measure import energy as energy, synops as synops
from snncell.monitoring.monitor import Monitor as Monitor
from snncell.monitoring.work import Counts as Counts, Work as Work
from snncell.tape.frames import machinery as _machinery

monitor = Monitor

_machinery(__file__)
_guard(globals())
