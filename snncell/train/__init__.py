"""Training: `fit`, and its building blocks for your own training loop.

fit, Result                          train a network
evaluate                             loss, accuracy, firing rate and metrics on data
find_learning_rate, RateSearch       learning-rate finder
Model                                MindSpore's API: train, fit, eval, predict
Callback, Training                   base class of callbacks, and the state of a training that they get
RunContext                           the same for callbacks with MindSpore's method names
Checkpoint, EarlyStopping, EMA       callbacks: checkpoints, early stopping, moving average of the weights
DeepR, RigL                          callbacks: move the synapses of sparse layers
Log, TensorBoard                     callbacks: one line per epoch in a file; TensorBoard
LossMonitor, TimeMonitor, History    MindSpore's callbacks that print and record
ModelCheckpoint, CheckpointConfig    MindSpore's checkpoints: weights in numbered files
ReduceLROnPlateau, LambdaCallback    reduce the learning rate on a plateau; functions as a callback
Metric, Accuracy, Loss, MAE, MSE     metric objects for Model; TopKCategoricalAccuracy, Precision, Recall, F1
training_step, measure               a jitted training step; the numbers measured on a batch
accuracy, top_k, confusion, metric   metrics, as functions and by name
Monitored                            metrics of a monitor's recordings: spikes, synaptic operations, energy
Spikes                               the firing rate of chosen Cells
clip_by_global_norm, clip_by_value   gradient clipping
Batches                              shuffled batches of arrays
save_state, load_state               the whole state of a training in a file, to resume it bit for bit
"""

# ruff: noqa: F403 (each module lists its exports in `__all__`)

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
from snncell.train.rewiring import *
from snncell.train.state import *
from snncell.train.steps import *
from snncell.train.stopping import *

if _typing.TYPE_CHECKING:
    from snncell.mindspore.callbacks import *
    from snncell.mindspore.metrics import *
    from snncell.mindspore.model import *

_OF_MINDSPORE = (
    "Accuracy", "CheckpointConfig", "F1", "History", "LambdaCallback", "Loss", "LossMonitor", "MAE", "MSE",
    "Metric", "Model", "ModelCheckpoint", "Precision", "Recall", "RunContext", "RunParameters", "TimeMonitor",
    "Top1CategoricalAccuracy", "Top5CategoricalAccuracy", "TopKCategoricalAccuracy",
)  # fmt: skip

_export_lazily(globals(), "snncell.mindspore", _OF_MINDSPORE)
_guard(globals())
