"""Recording of a network while it runs: spikes, potentials, gradients, and the cost of its operations.

monitor, Monitor                   the spikes, potentials and gradients of neurons, recorded in a context
energy, synops                     joules and synaptic operations for a sample of data
Energy, LayerEnergy, Work, Counts  an estimate by layer, and the counts that it is made of
Hardware, HARDWARE, Price, PRICES  the energies that counts are multiplied by, as they were published
Cost                               the operations of a layer with weights

All but the first line are names of `snncell.energy`, which is imported when one of them is first used.
"""

import typing as _typing

from snncell.base.arguments.guard import guard as _guard
from snncell.base.arguments.names import export_lazily as _export_lazily
from snncell.base.frames import machinery as _machinery
from snncell.monitoring.monitor import Monitor as Monitor

if _typing.TYPE_CHECKING:
    from snncell.energy import (
        HARDWARE as HARDWARE,
        PRICES as PRICES,
        Cost as Cost,
        Counts as Counts,
        Energy as Energy,
        Hardware as Hardware,
        LayerEnergy as LayerEnergy,
        Price as Price,
        Work as Work,
        energy as energy,
        synops as synops,
    )

monitor = Monitor

_OF_ENERGY = (
    "HARDWARE", "PRICES", "Cost", "Counts", "Energy", "Hardware", "LayerEnergy", "Price", "Work", "energy", "synops",
)  # fmt: skip

_machinery(__file__)
_export_lazily(globals(), "snncell.energy", _OF_ENERGY)
_guard(globals())
