"""Recording of a network while it runs: spikes, potentials, gradients, and what its operations cost.

monitor, Monitor                   what neurons do, recorded in a context
energy, synops                     joules and synaptic operations for a sample of data
Energy, LayerEnergy, Work, Counts  an estimate by layer, and the counts that it is made of
Hardware, HARDWARE, Price, PRICES  the energies that counts are multiplied by, as they were published
Cost                               the operations of a layer with weights
"""

from snncell.base.arguments.guard import guard as _guard
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
