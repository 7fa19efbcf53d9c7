"""Surrogate gradients: a step function forward, a smooth derivative backward.

Each is a Cell of three methods: `construct` fires at x > 0, `primitive` is a smooth function, and `bprop` multiplies by
its derivative. You can write your own as a class with the same three, which `Surrogate` makes shorter. Constants that
are Parameters are learned. Within `surrogate.smooth()` every one of them runs its primitive.
"""

# ruff: noqa: F403 (each module lists in `__all__` what it shows)

from snncell.base.arguments.guard import guard as _guard
from snncell.base.arguments.names import export as _export
from snncell.surrogate.base import *
from snncell.surrogate.curves import *
from snncell.surrogate.pieces import *
from snncell.surrogate.wrappers import *
from snncell.tape.state import smooth as smooth

_export(globals())
_guard(globals())
