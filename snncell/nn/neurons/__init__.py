"""Spiking neurons: Cells of one time step, `construct(x, *states) -> (output, *states)`, one file per family."""

# ruff: noqa: F403 (each module lists its exports in `__all__`)

from snncell.base.arguments.names import export as _export
from snncell.nn.neurons import presets as presets
from snncell.nn.neurons.base import *
from snncell.nn.neurons.constants import *
from snncell.nn.neurons.convert import *
from snncell.nn.neurons.current import *
from snncell.nn.neurons.event_dense import *
from snncell.nn.neurons.event_driven import *
from snncell.nn.neurons.integrate import *
from snncell.nn.neurons.nonlinear import *
from snncell.nn.neurons.sequences import *
from snncell.nn.neurons.variants import *

_export(globals())
