"""MindSpore's API: names that a program written for MindSpore needs, and that nothing else in snncell uses.

Model                                network, loss, optimiser and metrics in one object: train, fit, eval, predict
LossMonitor, TimeMonitor, History    callbacks that print or record losses and times
ModelCheckpoint, CheckpointConfig    callback that saves the weights to numbered files
LambdaCallback                       functions as a callback
RunContext, RunParameters            the argument of callback methods with MindSpore's names
Metric, Accuracy, Loss, MAE, MSE     metric objects; TopKCategoricalAccuracy, Top1CategoricalAccuracy,
                                     Top5CategoricalAccuracy, Precision, Recall, F1
WithLossCell, TrainOneStepCell       a training step as a Cell; WithEvalCell, WithGradCell, ForwardValueAndGrad,
                                     GradAccumulationCell, ParameterUpdate
context                              the module of settings
primitives                           the module of primitive classes, `ops.ReLU()`

You can also import them from MindSpore's places: `snncell.Model`, `snncell.train.LossMonitor`,
`snncell.nn.TrainOneStepCell`, `snncell.ops.ReLU`, `snncell.context`. Those packages import this one on first use.
"""

# ruff: noqa: F403 (each module lists its exports in `__all__`)

from snncell.base.arguments.guard import guard as _guard
from snncell.mindspore import context as context, primitives as primitives
from snncell.mindspore.callbacks import *
from snncell.mindspore.metrics import *
from snncell.mindspore.model import *
from snncell.mindspore.training_cells import *

_guard(globals())
