"""Pictures of spikes, membranes, gradients, weights and trainings: functions that return the Axes they drew on.

raster, psth                              spikes over time: each one, and their rate
membrane                                  potentials over time, with the threshold and the spikes
firing_rates, dead_and_saturated          how often the neurons of each layer fire; which never or always do
spike_time_differences                    how far two spike trains are apart
animate                                   spikes on the places of their neurons, as a film
gradient_norms, gradient_flow             the gradient in each layer at each time step, as lines and as a heat map
weight_histograms, gradient_to_weight     weights; the size of their gradients beside their own
update_ratios                             the numbers that gradient_to_weight shows, of updates
surrogate, surrogate_and_membrane         a spike function with its reverse; over the potentials that it meets
share_outside                             the share of potentials that a spike function gives no gradient
training_curves, confusion_matrix         loss and accuracy by epoch; what was taken for what
energy_by_layer                           what each layer costs, with and without spikes
learning_rate_search                      what train.find_learning_rate went through
report, Report, Finding                   a page about a network, with what is wrong with it

Each takes arrays or Tensors, (T, N) or (T, B, ...), or what `snncell.monitor` has recorded, and an Axes `ax=`.
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
