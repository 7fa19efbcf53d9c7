"""Surrogate gradients: spike functions with a step forward and a smooth derivative backward.

Each one is a Cell with three methods. `construct` fires if x > 0, `primitive` is a smooth function, and `bprop`
multiplies the gradient by the derivative of the primitive. You can write your own by deriving from `Surrogate`.
Constants that are Parameters are learned. Within `surrogate.smooth()`, all of them run their primitive.
"""

# ruff: noqa: F403 (each module lists its exports in `__all__`)

from snncell.base.arguments.guard import guard as _guard
from snncell.base.arguments.names import export as _export
from snncell.surrogate.base import *
from snncell.surrogate.curves import *
from snncell.surrogate.pieces import *
from snncell.tape.state import smooth as smooth

_export(globals())
_guard(globals())
