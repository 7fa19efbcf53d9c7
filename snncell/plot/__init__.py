"""Pictures of spikes, membranes and gradients: functions of arrays or Tensors that return the Axes they drew on."""

from snncell.plot.gradients import gradient_norms as gradient_norms
from snncell.plot.spikes import membrane as membrane, raster as raster
