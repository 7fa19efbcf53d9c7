"""Encoders of values as spikes over time, (B, ...) -> (T, B, ...), and decoders back.

Encoders give 0 and 1 in the dtype of x, without a gradient, unless their docstring says otherwise. They check that the
values of x are in range, except under `snncell.jit`, where values are not known.

Decoders take spikes or potentials (T, B, ...), are differentiable, and refuse a sequence without steps (ShapeError).
Their `lengths` (B,) is the number of steps of each sample: the rest is padding and does not count. Left out, all T.
"""

# ruff: noqa: F403 (each module lists in `__all__` what it shows)

from snncell.base.arguments.guard import guard as _guard
from snncell.base.arguments.names import export as _export
from snncell.encode.decoders import *
from snncell.encode.encoders import *

_export(globals())
_guard(globals())
