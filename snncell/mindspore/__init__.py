"""MindSpore's own API: names that a program written for MindSpore needs, and that nothing else in snncell uses.

Model                                network, loss, optimiser and metrics in one object: train, fit, eval, predict
LossMonitor, TimeMonitor, History    callbacks that print or keep losses and times
ModelCheckpoint, CheckpointConfig    callback that saves the weights to numbered files
LambdaCallback                       functions as a callback
RunContext, RunParameters            the argument of a callback's methods by MindSpore's names
Metric, Accuracy, Loss, MAE, MSE     metrics as objects; TopKCategoricalAccuracy, Top1CategoricalAccuracy,
                                     Top5CategoricalAccuracy, Precision, Recall, F1
WithLossCell, TrainOneStepCell       a training step as a Cell; WithEvalCell, WithGradCell, ForwardValueAndGrad,
                                     GradAccumulationCell, ParameterUpdate
context                              the module of settings
primitives                           the module of primitive classes, `ops.ReLU()`

You can also import them from where MindSpore has them: `snncell.Model`, `snncell.train.LossMonitor`,
`snncell.nn.TrainOneStepCell`, `snncell.ops.ReLU`, `snncell.context`. These packages import this one when such a name is
first used.
"""

# ruff: noqa: F403 (each module lists in `__all__` what it shows)

from snncell.base.arguments.guard import guard as _guard
from snncell.mindspore import context as context, primitives as primitives
from snncell.mindspore.callbacks import *
from snncell.mindspore.metrics import *
from snncell.mindspore.model import *
from snncell.mindspore.training_cells import *

_guard(globals())
