"""Cells: layers, neurons, containers, losses, optimisers.

neurons      IFNode, LIFNode; MultiStep runs a neuron over time, Recurrent feeds its output back; relusigmoid
learning     Truncated cuts the gradient through time; OTTTDense, EProp (with FeedbackDense) learn online; STDP,
             PlasticDense
containers   Cell, SequentialCell, CellList, TimeDistributed
layers       Dense, Conv1d, Conv2d, Conv2dTranspose, MaxPool2d, AvgPool2d, Flatten, Embedding, Dropout, Dropout2d,
             BatchNorm1d, BatchNorm2d, LayerNorm, Threshold
activations  ReLU, ReLU6, LeakyReLU, GELU, Sigmoid, Tanh, Softmax, LogSoftmax, Softplus
losses       MSELoss, L1Loss, CrossEntropyLoss
optimisers   SGD, Momentum, RMSProp, Adam, AdamW; ExponentialDecayLR, CosineDecayLR
"""

from snncell.cell import (
    Cell as Cell,
)
from snncell.nn.activation import (
    GELU as GELU,
    LeakyReLU as LeakyReLU,
    LogSoftmax as LogSoftmax,
    ReLU as ReLU,
    ReLU6 as ReLU6,
    Sigmoid as Sigmoid,
    Softmax as Softmax,
    Softplus as Softplus,
    Tanh as Tanh,
)
from snncell.nn.container import (
    CellList as CellList,
    SequentialCell as SequentialCell,
    TimeDistributed as TimeDistributed,
)
from snncell.nn.conv import Conv1d as Conv1d, Conv2d as Conv2d, Conv2dTranspose as Conv2dTranspose
from snncell.nn.eprop import (
    EProp as EProp,
    FeedbackDense as FeedbackDense,
)
from snncell.nn.layer import (
    AvgPool2d as AvgPool2d,
    Dense as Dense,
    Dropout as Dropout,
    Dropout2d as Dropout2d,
    Embedding as Embedding,
    Flatten as Flatten,
    MaxPool2d as MaxPool2d,
    Threshold as Threshold,
)
from snncell.nn.loss import (
    CrossEntropyLoss as CrossEntropyLoss,
    L1Loss as L1Loss,
    MSELoss as MSELoss,
)
from snncell.nn.neuron import (
    IFNode as IFNode,
    LIFNode as LIFNode,
)
from snncell.nn.norm import (
    BatchNorm1d as BatchNorm1d,
    BatchNorm2d as BatchNorm2d,
    LayerNorm as LayerNorm,
)
from snncell.nn.online import OTTTDense as OTTTDense
from snncell.nn.optim import (
    SGD as SGD,
    Adam as Adam,
    AdamW as AdamW,
    CosineDecayLR as CosineDecayLR,
    ExponentialDecayLR as ExponentialDecayLR,
    LearningRateSchedule as LearningRateSchedule,
    Momentum as Momentum,
    Optimizer as Optimizer,
    RMSProp as RMSProp,
)
from snncell.nn.plasticity import (
    STDP as STDP,
    PlasticDense as PlasticDense,
)
from snncell.nn.recurrent import Recurrent as Recurrent
from snncell.nn.time import MultiStep as MultiStep
from snncell.nn.truncated import Truncated as Truncated
from snncell.surrogate import (
    relusigmoid as relusigmoid,
)
