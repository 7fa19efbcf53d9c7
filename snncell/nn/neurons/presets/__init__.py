"""Neurons as other frameworks have them: `LIFNode.like("snntorch", beta=0.5)`.

A file is a table of a framework's settings with their defaults, and a row for each of its classes: which neuron here
it is, what settings it has, defaults of its own, and a function of them that makes the neuron. A preset is named after
the framework, or after framework and class where the framework has several that fit one neuron here.

What the state `v` is, compared with what the framework records:
    spikingjelly    the same: after the reset
    snntorch        the same: `mem`, before the reset, as long as the reset is delayed; after it with reset_delay=False
    norse           the same: after the reset; the current after its decay; of LSNN b - v_th
    sinabs          the same: `v_mem` after the reset; `i_syn`; `b`
    spyx            the same: before the reset, which comes with the spike of the next step
    nir             NIR has equations and no steps; here, one Euler step of length dt, after the reset
"""

from snncell.nn.neurons.presets import (
    nir as nir,
    norse as norse,
    sinabs as sinabs,
    snntorch as snntorch,
    spikingjelly as spikingjelly,
    spyx as spyx,
)
