"""Cells: layers, neurons, containers, losses, optimisers.

neurons      IFNode, LIFNode, LeakyNode, ParametricLIFNode; CubaLIFNode, AlphaNode; ALIFNode; EIFNode, AdExNode,
             QIFNode, AdaptiveQIFNode, IzhikevichNode; KLIFNode, CLIFNode, GLIFNode; ResonateNode; MultiSpikeLIFNode,
             ILIFNode, RefractoryLIFNode; LINode and Readout; PSN; Neuron is what they share; LIFNode.like("snntorch",
             ...) is another framework's; relusigmoid
conversions  steps_from_seconds, decay_from_tau, tau_from_decay, euler_from_decay, decay_from_euler, decay_from_rate,
             decay_from_lava
over time    MultiStep runs a neuron over time, Recurrent feeds its output back
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
from snncell.nn.neurons import (
    PSN as PSN,
    AdaptiveQIFNode as AdaptiveQIFNode,
    AdExNode as AdExNode,
    ALIFNode as ALIFNode,
    AlphaNode as AlphaNode,
    CLIFNode as CLIFNode,
    CubaLIFNode as CubaLIFNode,
    EIFNode as EIFNode,
    GLIFNode as GLIFNode,
    IFNode as IFNode,
    ILIFNode as ILIFNode,
    IzhikevichNode as IzhikevichNode,
    KLIFNode as KLIFNode,
    LeakyNode as LeakyNode,
    LIFNode as LIFNode,
    LINode as LINode,
    Membrane as Membrane,
    MultiSpikeLIFNode as MultiSpikeLIFNode,
    Neuron as Neuron,
    ParametricLIFNode as ParametricLIFNode,
    QIFNode as QIFNode,
    Readout as Readout,
    RefractoryLIFNode as RefractoryLIFNode,
    ResonateNode as ResonateNode,
    decay_from_euler as decay_from_euler,
    decay_from_lava as decay_from_lava,
    decay_from_rate as decay_from_rate,
    decay_from_tau as decay_from_tau,
    euler_from_decay as euler_from_decay,
    steps_from_seconds as steps_from_seconds,
    tau_from_decay as tau_from_decay,
)
from snncell.nn.norm import (
    BatchNorm1d as BatchNorm1d,
    BatchNorm2d as BatchNorm2d,
    LayerNorm as LayerNorm,
)
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
from snncell.nn.recurrent import Recurrent as Recurrent
from snncell.nn.time import MultiStep as MultiStep
from snncell.surrogate import (
    relusigmoid as relusigmoid,
)
