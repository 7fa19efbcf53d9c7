"""Presets: the neurons of other frameworks by their own parameters, such as `LIFNode.like("snntorch", beta=0.5)`.

Each file declares a framework's settings with their defaults. Then it registers a function for each of the framework's
classes, which creates the neuron from the settings. A preset is named after the framework, or after framework and class
if several classes fit one neuron here.

The state `v` compared with the potential that the framework records:
    spikingjelly    the same: after the reset
    snntorch        the same: `mem`, before a delayed reset, or after the reset with reset_delay=False
    norse           the same: after the reset; the current after its decay; for LSNN b - v_th
    sinabs          the same: `v_mem` after the reset; `i_syn`; `b`
    spyx            the same: before the reset, which comes with the spike of the next step
    nir             NIR defines equations without steps; here, one Euler step of length dt, after the reset
"""

from snncell.nn.neurons.presets import (
    nir as nir,
    norse as norse,
    sinabs as sinabs,
    snntorch as snntorch,
    spikingjelly as spikingjelly,
    spyx as spyx,
)
