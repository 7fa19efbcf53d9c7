"""Quantisation-aware training, and networks of whole numbers.

prepare, restore            which layers and neurons compute with rounded weights, states and inputs
fold                        batch normalisation as part of the weights before it
Uniform, FixedPoint         grids of whole multiples of a step, by scale: from the maximum, the error, moving, learned
Ternary, Binary, PowerOfTwo grids of few levels
Quantiser                   their base: a grid of one's own
export, IntegerNet          the network in int8 and int32, with the same spikes to the bit; run, save, load

    net = quantise.fold(net)                        # trained in float32, with BatchNorm
    quantise.prepare(net, quantise.Uniform(4), quantise.FixedPoint(12, 8))
    train.fit(net, ...)                             # as before, with a smaller learning rate
    whole = quantise.export(net)
    whole.save("net.safetensors")
"""

from snncell.base.arguments.guard import guard as _guard
from snncell.quantise.export import export as export
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

_guard(globals())
