"""Energy estimates: count operations and memory accesses of a network, and multiply them by published energies.

For example, `snncell.energy.energy(net, x, hardware="loihi").joules`. You can also import these names from
`snncell.monitoring`, and `energy_by_layer` from `snncell.plot`.
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
from snncell.energy.hardware import HARDWARE as HARDWARE, PRICES as PRICES, Hardware as Hardware, Price as Price

_guard(globals())
