"""What a network does, recorded while it runs: spikes, potentials, gradients, and what its products cost."""

from snncell.monitoring.costs import Cost as Cost
from snncell.monitoring.monitor import Monitor as Monitor

monitor = Monitor
