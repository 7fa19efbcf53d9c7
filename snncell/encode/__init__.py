"""Spike encoders of values, (B, ...) -> (T, B, ...), and decoders of spikes and potentials back to values.

Encoders return 0 and 1 in the dtype of x, without a gradient, unless their docstring says otherwise. They check the
range of x, except under `snncell.jit`, where values are unknown.

Decoders take spikes or potentials (T, B, ...), are differentiable, and raise a ShapeError for sequences without steps.
You can pass `lengths` (B,), the number of steps of each sample, by default T; later steps are padding and do not count.
"""

# ruff: noqa: F403 (each module lists in `__all__` what it shows)

from snncell.base.arguments.guard import guard as _guard
from snncell.base.arguments.names import export as _export
from snncell.encode.decoders import *
from snncell.encode.encoders import *

_export(globals())
_guard(globals())
