"""Pictures of spikes, membranes, gradients, weights and trainings: functions that return the Axes they drew on."""

from snncell.plot.animation import animate as animate
from snncell.plot.gradients import gradient_norms as gradient_norms
from snncell.plot.rates import dead_and_saturated as dead_and_saturated, firing_rates as firing_rates, psth as psth
from snncell.plot.spikes import membrane as membrane, raster as raster
from snncell.plot.timing import spike_time_differences as spike_time_differences
