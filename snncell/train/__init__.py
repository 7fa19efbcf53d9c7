"""Training: `fit`, and the pieces that it is made of, to write one's own loop with.

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

from snncell.base.arguments.guard import guard as _guard
from snncell.train.average import EMA as EMA
from snncell.train.callbacks import Callback as Callback, Result as Result, Training as Training
from snncell.train.checkpoints import Checkpoint as Checkpoint
from snncell.train.clipping import clip_by_global_norm as clip_by_global_norm, clip_by_value as clip_by_value
from snncell.train.evaluation import evaluate as evaluate
from snncell.train.fit import fit as fit
from snncell.train.log import Log as Log
from snncell.train.metrics import confusion as confusion, metric as metric, top_k as top_k
from snncell.train.model import Model as Model
from snncell.train.model_checkpoint import CheckpointConfig as CheckpointConfig, ModelCheckpoint as ModelCheckpoint
from snncell.train.model_metrics import (
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
from snncell.train.monitored import Monitored as Monitored
from snncell.train.pieces import Batches as Batches, Spikes as Spikes, measure as measure
from snncell.train.plateau import ReduceLROnPlateau as ReduceLROnPlateau
from snncell.train.rate_finder import RateSearch as RateSearch, find_learning_rate as find_learning_rate
from snncell.train.run_context import RunContext as RunContext, RunParameters as RunParameters
from snncell.train.scores import accuracy as accuracy
from snncell.train.state import load_state as load_state, save_state as save_state
from snncell.train.steps import training_step as training_step
from snncell.train.stopping import EarlyStopping as EarlyStopping
from snncell.train.telling import (
    History as History,
    LambdaCallback as LambdaCallback,
    LossMonitor as LossMonitor,
    TimeMonitor as TimeMonitor,
)
from snncell.train.tensorboard import TensorBoard as TensorBoard

_guard(globals())
