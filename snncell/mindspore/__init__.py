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

You can also import them from where MindSpore has them: `snncell.Model`, `snncell.train.LossMonitor`,
`snncell.nn.TrainOneStepCell`, `snncell.context`. These packages import this one when such a name is first used.
"""

from snncell.arguments.guard import guard as _guard
from snncell.mindspore import context as context
from snncell.mindspore.callbacks import (
    CheckpointConfig as CheckpointConfig,
    History as History,
    LambdaCallback as LambdaCallback,
    LossMonitor as LossMonitor,
    ModelCheckpoint as ModelCheckpoint,
    TimeMonitor as TimeMonitor,
)
from snncell.mindspore.metrics import (
    F1 as F1,
    MAE as MAE,
    MSE as MSE,
    Accuracy as Accuracy,
    Loss as Loss,
    Metric as Metric,
    Precision as Precision,
    Recall as Recall,
    Top1CategoricalAccuracy as Top1CategoricalAccuracy,
    Top5CategoricalAccuracy as Top5CategoricalAccuracy,
    TopKCategoricalAccuracy as TopKCategoricalAccuracy,
)
from snncell.mindspore.model import Model as Model
from snncell.mindspore.run_context import RunContext as RunContext, RunParameters as RunParameters
from snncell.mindspore.training_cells import (
    ForwardValueAndGrad as ForwardValueAndGrad,
    GradAccumulationCell as GradAccumulationCell,
    ParameterUpdate as ParameterUpdate,
    TrainOneStepCell as TrainOneStepCell,
    WithEvalCell as WithEvalCell,
    WithGradCell as WithGradCell,
    WithLossCell as WithLossCell,
)

_guard(globals())
