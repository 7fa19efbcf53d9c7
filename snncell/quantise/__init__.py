"""Quantisation-aware training, export of networks as integers, and ANN-to-SNN conversion.

    net = quantise.fold(net)                        # trained in float32, with BatchNorm
    quantise.prepare(net, quantise.Uniform(4), quantise.FixedPoint(12, 8))
    train.fit(net, ...)                             # as before, with a smaller learning rate
    whole = quantise.export(net)                    # int8 and int32, with the same spikes to the bit
    whole.save("net.safetensors")
    quantise.export_c(whole, "net.c")               # C99 for a microcontroller

`restore` undoes `prepare`. To add your own grid, subclass `Quantiser`. `to_spiking` converts an ANN, best one trained
with the activation `QCFS`.
"""

from snncell.base.arguments.guard import guard as _guard
from snncell.quantise.export import CMemory as CMemory, export as export, export_c as export_c
from snncell.quantise.grids import (
    Binary as Binary,
    FixedPoint as FixedPoint,
    PowerOfTwo as PowerOfTwo,
    Ternary as Ternary,
    Uniform as Uniform,
)
from snncell.quantise.integer import IntegerNet as IntegerNet
from snncell.quantise.prepare import fold as fold, prepare as prepare, restore as restore
from snncell.quantise.quantiser import Quantiser as Quantiser
from snncell.quantise.spiking import QCFS as QCFS, to_spiking as to_spiking

_guard(globals())
