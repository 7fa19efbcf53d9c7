"""Recording of a network while it runs: spikes, potentials, gradients, and what its products cost."""

from snncell.arguments.guard import guard as _guard
from snncell.monitoring.costs import Cost as Cost
from snncell.monitoring.monitor import Monitor as Monitor

monitor = Monitor

_guard(globals())
