"""Neural-network building blocks: layers, spiking neurons, containers, losses, optimisers and learning rules.

A neuron is a Cell of one time step. `MultiStep` runs it over time, `Recurrent` feeds its output back, and `Stateful`
keeps its state between calls. `LIFNode.like("snntorch", ...)` creates another framework's neuron.

Training Cells, which `snncell.mindspore` defines:
    ForwardValueAndGrad, GradAccumulationCell, ParameterUpdate, TrainOneStepCell, WithEvalCell, WithGradCell,
    WithLossCell
"""

import typing as _typing

from snncell.base.arguments.guard import guard as _guard
from snncell.base.arguments.names import export as _export, export_lazily as _export_lazily
from snncell.cell.cell import Cell as Cell
from snncell.cell.constants import Constant as Constant
from snncell.cell.fields import field as field, with_fields as with_fields
from snncell.cell.ranges import Range as Range
from snncell.nn.attention import *
from snncell.nn.container import *
from snncell.nn.layers.activations import *
from snncell.nn.layers.conv import *
from snncell.nn.layers.delays import *
from snncell.nn.layers.linear import *
from snncell.nn.layers.norm import *
from snncell.nn.layers.norm_over_time import *
from snncell.nn.layers.reshaping import *
from snncell.nn.layers.rnn import *
from snncell.nn.layers.sparse import *
from snncell.nn.layers.spiking import *
from snncell.nn.layers.state_space import *
from snncell.nn.losses.spike_times import *
from snncell.nn.losses.spikes import *
from snncell.nn.losses.standard import *
from snncell.nn.neurons import *
from snncell.nn.optim.algorithms import *
from snncell.nn.optim.optimizer import *
from snncell.nn.optim.schedules import *
from snncell.nn.rules.eventprop import *
from snncell.nn.rules.online import *
from snncell.nn.rules.stdp import *
from snncell.nn.time.axis import *
from snncell.nn.time.multistep import *
from snncell.nn.time.states import *
from snncell.surrogate import relusigmoid as relusigmoid

if _typing.TYPE_CHECKING:
    from snncell.mindspore.training_cells import *

_TRAINING_CELLS = (
    "ForwardValueAndGrad", "GradAccumulationCell", "ParameterUpdate", "TrainOneStepCell", "WithEvalCell",
    "WithGradCell", "WithLossCell",
)  # fmt: skip

_export(globals())
_export_lazily(globals(), "snncell.mindspore", _TRAINING_CELLS)
_guard(globals())
