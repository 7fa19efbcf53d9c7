"""Plots of spikes, membrane potentials, gradients, weights and training; each function returns the Axes that it used.

raster, psth                              spikes over time, and their rate
membrane                                  membrane potentials over time, with threshold and spikes
firing_rates, dead_and_saturated          distribution of firing rates; dead and saturated neurons, by layer
spike_time_differences                    spike-timing errors between two recordings
animate                                   spikes on a plane, as an animation
gradient_norms, gradient_flow             gradient of each layer at each time step, as lines and as a heat map
weight_histograms, gradient_to_weight     distribution of weights; ratio of updates (or gradients) to weights
update_ratios                             the numbers that gradient_to_weight shows
surrogate, surrogate_and_membrane         surrogate gradients, alone and with the potentials of a layer
share_outside                             share of potentials without a useful surrogate gradient
training_curves, confusion_matrix         loss and accuracy by epoch; predicted against true classes
energy_by_layer                           energy of each layer, with and without spikes
learning_rate_search                      result of train.find_learning_rate
report, Report, Finding                   a page about a network, with diagnosed problems

You can pass arrays or Tensors, (T, N) or (T, B, ...), or a monitor (`snncell.monitor`), and an Axes as `ax=`.
"""

import typing as _typing

from snncell.base.arguments.guard import guard as _guard
from snncell.base.arguments.names import export_lazily as _export_lazily
from snncell.plot.gradients import (
    gradient_flow as gradient_flow,
    gradient_norms as gradient_norms,
    gradient_to_weight as gradient_to_weight,
    update_ratios as update_ratios,
    weight_histograms as weight_histograms,
)
from snncell.plot.membranes import (
    membrane as membrane,
    share_outside as share_outside,
    surrogate as surrogate,
    surrogate_and_membrane as surrogate_and_membrane,
)
from snncell.plot.rates import (
    dead_and_saturated as dead_and_saturated,
    firing_rates as firing_rates,
    spike_time_differences as spike_time_differences,
)
from snncell.plot.reports import Report as Report, report as report
from snncell.plot.spikes import animate as animate, psth as psth, raster as raster
from snncell.plot.training import (
    confusion_matrix as confusion_matrix,
    learning_rate_search as learning_rate_search,
    training_curves as training_curves,
)
from snncell.report.findings import Finding as Finding

if _typing.TYPE_CHECKING:
    from snncell.energy import energy_by_layer as energy_by_layer

_export_lazily(globals(), "snncell.energy", ("energy_by_layer",))
_guard(globals())
