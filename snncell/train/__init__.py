"""Training: `fit`, and its parts for a training loop of your own.

fit, Result                          the whole training
evaluate                             loss, accuracy, firing rate and metrics on data
find_learning_rate, RateSearch       a learning rate to begin with, from steps with one that rises
Model                                MindSpore's words for it: train, fit, eval, predict
Callback, Training                   what `fit` tells of a training, and of what
RunContext                           the same for callbacks of MindSpore's names
Checkpoint, EarlyStopping, EMA       callbacks: files to go on from, best weights, average weights
Log, TensorBoard                     callbacks: a line of a file for each epoch; numbers and pictures for TensorBoard
LossMonitor, TimeMonitor, History    callbacks of MindSpore's: what it prints, and keeps
ModelCheckpoint, CheckpointConfig    weights in numbered files
ReduceLROnPlateau, LambdaCallback    a rate that sinks; functions as a callback
Metric, Accuracy, Loss, MAE, MSE     metrics as objects, for a Model; TopKCategoricalAccuracy, Precision, Recall, F1
training_step, measure               a jitted step; what is measured of a batch
accuracy, top_k, confusion, metric   metrics, as functions and by name
Monitored                            metrics of what a monitor records: spikes, synaptic operations, energy
Spikes                               the firing rate of some Cells
clip_by_global_norm, clip_by_value   of gradients
Batches                              arrays, a batch at a time, as often as they are gone through
save_state, load_state               a training as a file, to be continued to the bit
"""

# ruff: noqa: F403 (each module lists in `__all__` what it shows)

import typing as _typing

from snncell.base.arguments.guard import guard as _guard
from snncell.base.arguments.names import export_lazily as _export_lazily
from snncell.train.batches import *
from snncell.train.callbacks import *
from snncell.train.checkpoints import *
from snncell.train.fit import *
from snncell.train.log import *
from snncell.train.measures import *
from snncell.train.metrics import *
from snncell.train.passes import *
from snncell.train.rate_finder import *
from snncell.train.state import *
from snncell.train.steps import *
from snncell.train.stopping import *

if _typing.TYPE_CHECKING:
    from snncell.mindspore.callbacks import *
    from snncell.mindspore.metrics import *
    from snncell.mindspore.model import *

_OF_MINDSPORE = (
    "Accuracy",
    "CheckpointConfig",
    "F1",
    "History",
    "LambdaCallback",
    "Loss",
    "LossMonitor",
    "MAE",
    "MSE",
    "Metric",
    "Model",
    "ModelCheckpoint",
    "Precision",
    "Recall",
    "RunContext",
    "RunParameters",
    "TimeMonitor",
    "Top1CategoricalAccuracy",
    "Top5CategoricalAccuracy",
    "TopKCategoricalAccuracy",
)

_export_lazily(globals(), "snncell.mindspore", _OF_MINDSPORE)
_guard(globals())
