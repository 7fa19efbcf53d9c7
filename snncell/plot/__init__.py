"""Pictures of spikes, membranes, gradients, weights and trainings: functions that return the Axes they drew on."""

from snncell.plot.animation import animate as animate
from snncell.plot.gradients import gradient_flow as gradient_flow, gradient_norms as gradient_norms
from snncell.plot.rates import dead_and_saturated as dead_and_saturated, firing_rates as firing_rates, psth as psth
from snncell.plot.reporting.findings import Finding as Finding
from snncell.plot.reporting.report import Report as Report, report as report
from snncell.plot.spikes import membrane as membrane, raster as raster
from snncell.plot.surrogates import (
    share_outside as share_outside,
    surrogate as surrogate,
    surrogate_and_membrane as surrogate_and_membrane,
)
from snncell.plot.timing import spike_time_differences as spike_time_differences
from snncell.plot.training import confusion_matrix as confusion_matrix, training_curves as training_curves
from snncell.plot.weights import (
    gradient_to_weight as gradient_to_weight,
    update_ratios as update_ratios,
    weight_histograms as weight_histograms,
)
