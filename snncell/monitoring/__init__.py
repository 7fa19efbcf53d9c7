"""Recording of a network while it runs: spikes, potentials, gradients, and what its products cost."""

from snncell.arguments.guard import guard as _guard
from snncell.monitoring.costs import Cost as Cost
from snncell.monitoring.monitor import Monitor as Monitor
from snncell.tape.frames import machinery as _machinery

monitor = Monitor

_machinery(__file__)
_guard(globals())
