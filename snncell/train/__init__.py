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

import typing as _typing

from snncell.arguments.exports import export_lazily as _export_lazily
from snncell.arguments.guard import guard as _guard
from snncell.train.average import EMA as EMA
from snncell.train.batches import Batches as Batches
from snncell.train.callbacks import Callback as Callback, Result as Result, Training as Training
from snncell.train.checkpoints import Checkpoint as Checkpoint
from snncell.train.fit import fit as fit
from snncell.train.log import Log as Log, TensorBoard as TensorBoard
from snncell.train.measures import Spikes as Spikes, measure as measure
from snncell.train.metrics import (
    Monitored as Monitored,
    accuracy as accuracy,
    confusion as confusion,
    metric as metric,
    top_k as top_k,
)
from snncell.train.passes import evaluate as evaluate
from snncell.train.rate_finder import RateSearch as RateSearch, find_learning_rate as find_learning_rate
from snncell.train.state import load_state as load_state, save_state as save_state
from snncell.train.steps import (
    clip_by_global_norm as clip_by_global_norm,
    clip_by_value as clip_by_value,
    training_step as training_step,
)
from snncell.train.stopping import EarlyStopping as EarlyStopping, ReduceLROnPlateau as ReduceLROnPlateau

if _typing.TYPE_CHECKING:
    from snncell.mindspore import (
        F1 as F1,
        MAE as MAE,
        MSE as MSE,
        Accuracy as Accuracy,
        CheckpointConfig as CheckpointConfig,
        History as History,
        LambdaCallback as LambdaCallback,
        Loss as Loss,
        LossMonitor as LossMonitor,
        Metric as Metric,
        Model as Model,
        ModelCheckpoint as ModelCheckpoint,
        Precision as Precision,
        Recall as Recall,
        RunContext as RunContext,
        RunParameters as RunParameters,
        TimeMonitor as TimeMonitor,
        Top1CategoricalAccuracy as Top1CategoricalAccuracy,
        Top5CategoricalAccuracy as Top5CategoricalAccuracy,
        TopKCategoricalAccuracy as TopKCategoricalAccuracy,
    )

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
