"""Spike functions: 1 above the threshold, with a gradient that a step has not.

Each is a Cell of three methods: `construct` fires at x > 0, `primitive` is a smooth function, and `bprop` multiplies by
its derivative. A user's own is a class with the same three.
"""

from snncell.surrogate.base import Inclusive, Surrogate
from snncell.surrogate.classic import ATan, Sigmoid, relusigmoid
from snncell.tape.state import smooth

__all__ = ["ATan", "Inclusive", "Sigmoid", "Surrogate", "relusigmoid", "smooth"]
