"""Presets: the neurons of other frameworks by their own parameters, such as `LIFNode.like("snntorch", beta=0.5)`.

Each file declares a framework's settings with their defaults, and registers for each of its classes a function that
creates our neuron from them. A preset has the name of the framework, for example "snntorch". If several classes of a
framework fit one of our neurons, the class follows: "snntorch.Synaptic".

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
)
