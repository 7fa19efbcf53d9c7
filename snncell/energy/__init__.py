"""Energy of a network: estimates in joules, from counts of operations and memory accesses.

energy, synops                     joules and synaptic operations for a sample of data
Energy, LayerEnergy, Work, Counts  an estimate by layer, and the counts that it is made of
Hardware, HARDWARE, Price, PRICES  the energies that counts are multiplied by, as they were published
Cost                               the operations of a layer with weights
energy_by_layer                    a picture: the energy of each layer by kind

For example, `snncell.energy.energy(net, x, hardware="loihi").joules`. You can also import these names from
`snncell.monitoring`, and the picture from `snncell.plot`.
"""

from snncell.base.arguments.guard import guard as _guard
from snncell.energy.counts import Cost as Cost, Counts as Counts, Work as Work
from snncell.energy.estimate import (
    Energy as Energy,
    LayerEnergy as LayerEnergy,
    energy as energy,
    energy_by_layer as energy_by_layer,
    synops as synops,
)
from snncell.energy.hardware import (
    HARDWARE as HARDWARE,
    PRICES as PRICES,
    Hardware as Hardware,
    Price as Price,
)

_guard(globals())
