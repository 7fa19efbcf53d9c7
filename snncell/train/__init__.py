"""Training: `fit`, and the pieces that it is made of, to write one's own loop with.

fit, Result                          the whole training
evaluate                             loss, accuracy and firing rate on data
training_step, measure               a jitted step; what is measured of a batch
accuracy, Spikes                     the share of right answers; the firing rate of some Cells
clip_by_global_norm, clip_by_value   of gradients
Batches                              arrays, a batch at a time, as often as they are gone through
EarlyStopping                        patience, and the best weights
save_state, load_state               a training as a file, to be continued to the bit
Log                                  CSV or JSON lines
"""

from snncell.arguments.guard import guard as _guard
from snncell.train.clipping import clip_by_global_norm as clip_by_global_norm, clip_by_value as clip_by_value
from snncell.train.evaluation import evaluate as evaluate
from snncell.train.fit import Result as Result, fit as fit
from snncell.train.log import Log as Log
from snncell.train.pieces import (
    Batches as Batches,
    Spikes as Spikes,
    measure as measure,
    training_step as training_step,
)
from snncell.train.scores import accuracy as accuracy
from snncell.train.state import load_state as load_state, save_state as save_state
from snncell.train.stopping import EarlyStopping as EarlyStopping

_guard(globals())
