"""Spike functions: 1 above the threshold, with a gradient that a step has not.

Each is a Cell of three methods: `construct` fires at x > 0, `primitive` is a smooth function, and `bprop` multiplies by
its derivative. A user's own is a class with the same three, which `Surrogate` makes shorter. Constants that are
Parameters are learned. `surrogate.smooth()` is a context in which every one of them runs its primitive.

relusigmoid Sigmoid ATan Tanh                           sigmoids and their relatives
Erf Gaussian MultiGaussian                              bells
FastSigmoid SparseFastSigmoid SuperSpike SoftSign       long tails: powers of the distance
NonzeroSignLogAbs QPseudoSpike Algebraic
PiecewiseExp SpikeRateEscape EscapeRate                 exponential tails
Triangle PiecewiseQuadratic Rect Boxcar                 straight pieces that end
StraightThrough LeakyReLU PiecewiseLeakyReLU            derivatives that do not vanish on both sides
LogTailedReLU S2NN
Inclusive Scaled StochasticSpike                        of another one: fires at x >= 0, has a larger or smaller
                                                        gradient, fires at random
"""

from snncell.arguments.guard import guard as _guard
from snncell.surrogate.base import Surrogate
from snncell.surrogate.exponential import EscapeRate, PiecewiseExp, SpikeRateEscape
from snncell.surrogate.gaussian import Erf, Gaussian, MultiGaussian
from snncell.surrogate.piecewise import Boxcar, PiecewiseQuadratic, Rect, Triangle
from snncell.surrogate.rational import (
    Algebraic,
    FastSigmoid,
    NonzeroSignLogAbs,
    QPseudoSpike,
    SoftSign,
    SparseFastSigmoid,
    SuperSpike,
)
from snncell.surrogate.sigmoidal import ATan, Sigmoid, Tanh, relusigmoid
from snncell.surrogate.stochastic import StochasticSpike
from snncell.surrogate.unbounded import S2NN, LeakyReLU, LogTailedReLU, PiecewiseLeakyReLU, StraightThrough
from snncell.surrogate.wrappers import Inclusive, Scaled
from snncell.tape.state import smooth

__all__ = [
    "S2NN",
    "ATan",
    "Algebraic",
    "Boxcar",
    "Erf",
    "EscapeRate",
    "FastSigmoid",
    "Gaussian",
    "Inclusive",
    "LeakyReLU",
    "LogTailedReLU",
    "MultiGaussian",
    "NonzeroSignLogAbs",
    "PiecewiseExp",
    "PiecewiseLeakyReLU",
    "PiecewiseQuadratic",
    "QPseudoSpike",
    "Rect",
    "Scaled",
    "Sigmoid",
    "SoftSign",
    "SparseFastSigmoid",
    "SpikeRateEscape",
    "StochasticSpike",
    "StraightThrough",
    "SuperSpike",
    "Surrogate",
    "Tanh",
    "Triangle",
    "relusigmoid",
    "smooth",
]

_guard(globals())
