"""Cells: layers, neurons, containers, losses, optimisers."""

from snncell.cell import (
    Cell as Cell,
)
from snncell.nn.activation import (
    GELU as GELU,
)
from snncell.nn.activation import (
    LeakyReLU as LeakyReLU,
)
from snncell.nn.activation import (
    LogSoftmax as LogSoftmax,
)
from snncell.nn.activation import (
    ReLU as ReLU,
)
from snncell.nn.activation import (
    ReLU6 as ReLU6,
)
from snncell.nn.activation import (
    Sigmoid as Sigmoid,
)
from snncell.nn.activation import (
    Softmax as Softmax,
)
from snncell.nn.activation import (
    Softplus as Softplus,
)
from snncell.nn.activation import (
    Tanh as Tanh,
)
from snncell.nn.container import (
    CellList as CellList,
)
from snncell.nn.container import (
    SequentialCell as SequentialCell,
)
from snncell.nn.container import (
    TimeDistributed as TimeDistributed,
)
from snncell.nn.layer import (
    AvgPool2d as AvgPool2d,
)
from snncell.nn.layer import (
    Conv1d as Conv1d,
)
from snncell.nn.layer import (
    Conv2d as Conv2d,
)
from snncell.nn.layer import (
    Dense as Dense,
)
from snncell.nn.layer import (
    Dropout as Dropout,
)
from snncell.nn.layer import (
    Dropout2d as Dropout2d,
)
from snncell.nn.layer import (
    Embedding as Embedding,
)
from snncell.nn.layer import (
    Flatten as Flatten,
)
from snncell.nn.layer import (
    MaxPool2d as MaxPool2d,
)
from snncell.nn.layer import (
    Threshold as Threshold,
)
from snncell.nn.loss import (
    CrossEntropyLoss as CrossEntropyLoss,
)
from snncell.nn.loss import (
    L1Loss as L1Loss,
)
from snncell.nn.loss import (
    MSELoss as MSELoss,
)
from snncell.nn.neuron import (
    IFNode as IFNode,
)
from snncell.nn.neuron import (
    LIFNode as LIFNode,
)
from snncell.nn.neuron import (
    MultiStep as MultiStep,
)
from snncell.nn.neuron import (
    Recurrent as Recurrent,
)
from snncell.nn.norm import (
    BatchNorm1d as BatchNorm1d,
)
from snncell.nn.norm import (
    BatchNorm2d as BatchNorm2d,
)
from snncell.nn.norm import (
    LayerNorm as LayerNorm,
)
from snncell.nn.optim import (
    SGD as SGD,
)
from snncell.nn.optim import (
    Adam as Adam,
)
from snncell.nn.optim import (
    AdamW as AdamW,
)
from snncell.nn.optim import (
    CosineDecayLR as CosineDecayLR,
)
from snncell.nn.optim import (
    ExponentialDecayLR as ExponentialDecayLR,
)
from snncell.nn.optim import (
    LearningRateSchedule as LearningRateSchedule,
)
from snncell.nn.optim import (
    Momentum as Momentum,
)
from snncell.nn.optim import (
    Optimizer as Optimizer,
)
from snncell.nn.optim import (
    RMSProp as RMSProp,
)
from snncell.surrogate import (
    relusigmoid as relusigmoid,
)
