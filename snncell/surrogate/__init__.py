"""Spike functions: 1 above the threshold, with a gradient that a step has not.

Each is a Cell of three methods: `construct` fires at x > 0, `primitive` is a smooth function, and `bprop` multiplies by
its derivative. A user's own is a class with the same three, which `Surrogate` makes shorter. Constants that are
Parameters are learned. `surrogate.smooth()` is a context in which every one of them runs its primitive.
"""

from snncell.base.arguments.exports import export as _export
from snncell.base.arguments.guard import guard as _guard
from snncell.surrogate.base import Surrogate as Surrogate
from snncell.surrogate.exponential import (
    EscapeRate as EscapeRate,
    PiecewiseExp as PiecewiseExp,
    SpikeRateEscape as SpikeRateEscape,
)
from snncell.surrogate.gaussian import Erf as Erf, Gaussian as Gaussian, MultiGaussian as MultiGaussian
from snncell.surrogate.piecewise import (
    Boxcar as Boxcar,
    PiecewiseQuadratic as PiecewiseQuadratic,
    Rect as Rect,
    Triangle as Triangle,
)
from snncell.surrogate.rational import (
    Algebraic as Algebraic,
    FastSigmoid as FastSigmoid,
    NonzeroSignLogAbs as NonzeroSignLogAbs,
    QPseudoSpike as QPseudoSpike,
    SoftSign as SoftSign,
    SparseFastSigmoid as SparseFastSigmoid,
    SuperSpike as SuperSpike,
)
from snncell.surrogate.sigmoidal import ATan as ATan, Sigmoid as Sigmoid, Tanh as Tanh, relusigmoid as relusigmoid
from snncell.surrogate.stochastic import StochasticSpike as StochasticSpike
from snncell.surrogate.unbounded import (
    S2NN as S2NN,
    LeakyReLU as LeakyReLU,
    LogTailedReLU as LogTailedReLU,
    PiecewiseLeakyReLU as PiecewiseLeakyReLU,
    StraightThrough as StraightThrough,
)
from snncell.surrogate.wrappers import Inclusive as Inclusive, Scaled as Scaled
from snncell.tape.state import smooth as smooth

_export(globals())
_guard(globals())
