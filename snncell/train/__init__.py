"""Training: `fit`, and its building blocks for your own training loop.

MindSpore's names, which `snncell.mindspore` defines:
    Model, RunContext, RunParameters; callbacks LossMonitor, TimeMonitor, History, ModelCheckpoint, CheckpointConfig,
    LambdaCallback; metrics Metric, Accuracy, Loss, MAE, MSE, F1, Precision, Recall, TopKCategoricalAccuracy
"""

# ruff: noqa: F403 (each module lists its exports in `__all__`)

import typing as _typing

from snncell.base.arguments.guard import guard as _guard
from snncell.base.arguments.names import export as _export, export_lazily as _export_lazily
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

_export(globals())
_export_lazily(globals(), "snncell.mindspore", _OF_MINDSPORE)
_guard(globals())
