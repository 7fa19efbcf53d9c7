"""Monitors: record spikes, potentials and gradients of a network, and count its operations.

monitor, Monitor                   record spikes, potentials and gradients of neurons in a context
energy, synops                     estimate energy in joules, and count synaptic operations, per sample
Energy, LayerEnergy, Work, Counts  an energy estimate, its layers, and their counts of operations
Hardware, HARDWARE, Price, PRICES  published energies per operation
Cost                               the operations of a layer with weights

`snncell.energy` defines all names except those of the first line. It is imported when you first use one of them.
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
