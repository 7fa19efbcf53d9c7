"""Cells: layers, neurons, containers, losses, optimisers.

neurons      IFNode, LIFNode, LeakyNode, ParametricLIFNode; CubaLIFNode, AlphaNode; ALIFNode; EIFNode, AdExNode,
             QIFNode, AdaptiveQIFNode, IzhikevichNode; KLIFNode, CLIFNode, GLIFNode; ResonateNode; MultiSpikeLIFNode,
             ILIFNode, RefractoryLIFNode; LINode and Readout; PSN, SlidingPSN; WithSynapse puts a current before one;
             Neuron is what they share; LIFNode.like("snntorch", ...) is another framework's; relusigmoid
conversions  steps_from_seconds, decay_from_tau, tau_from_decay, euler_from_decay, decay_from_euler, decay_from_rate,
             decay_from_lava
through time MultiStep runs a neuron over time, Recurrent feeds its output back, Stateful keeps its state between calls
learning     Truncated cuts the gradient through time; OTTTDense, EProp (with FeedbackDense) learn online; STDP,
             PlasticDense
containers   Cell, SequentialCell, CellList, TimeDistributed
layers       Dense, Conv1d, Conv2d, Conv2dTranspose, MaxPool2d, AvgPool2d, SumPool2d, Flatten, Embedding, Dropout,
             Dropout2d, BatchNorm1d, BatchNorm2d, LayerNorm, Threshold
             of sequences: ThresholdBatchNorm (tdBN), BatchNormThroughTime (BNTT), TemporalEffectiveBatchNorm (TEBN),
             TimeFixedDropout, TimeFixedDropout2d, AxonalDelay, SynapseFilter
             of spikes: SEWBlock, WinnerTakeAll, NeuNorm
             of spike times: EventPropLIF
activations  ReLU, ReLU6, LeakyReLU, GELU, Sigmoid, Tanh, Softmax, LogSoftmax, Softplus
losses       MSELoss, L1Loss, CrossEntropyLoss
             of spikes: CERateLoss, CECountLoss, CEMaxMembraneLoss, TETLoss, MSERateLoss, MSECountLoss,
             MSEMembraneLoss, CETemporalLoss, MSETemporalLoss, VanRossumLoss; FirstSpikeTime, SpikeTimes
             of activity: L1RateSparsity, SilenceRegulariser, SparsityRegulariser, TargetRateRegulariser,
             CountBoundRegulariser
optimisers   SGD, Momentum, RMSProp, Adam, AdamW
schedules    ExponentialDecayLR, CosineDecayLR, PolynomialDecayLR, PiecewiseConstantLR, WarmUpLR
"""

from snncell.arguments.guard import guard as _guard
from snncell.cell import (
    Cell as Cell,
)
from snncell.common.held import Constant as Constant
from snncell.common.ranges import Range as Range
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
from snncell.nn.eventprop import EventPropLIF as EventPropLIF
from snncell.nn.layer import (
    AvgPool2d as AvgPool2d,
    Dense as Dense,
    Dropout as Dropout,
    Dropout2d as Dropout2d,
    Embedding as Embedding,
    Flatten as Flatten,
    MaxPool2d as MaxPool2d,
    SumPool2d as SumPool2d,
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
    SlidingPSN as SlidingPSN,
    WithSynapse as WithSynapse,
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
from snncell.nn.norm_over_time import (
    BatchNormThroughTime as BatchNormThroughTime,
    NeuNorm as NeuNorm,
    TemporalEffectiveBatchNorm as TemporalEffectiveBatchNorm,
    ThresholdBatchNorm as ThresholdBatchNorm,
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
from snncell.nn.regulariser import (
    CountBoundRegulariser as CountBoundRegulariser,
    L1RateSparsity as L1RateSparsity,
    SilenceRegulariser as SilenceRegulariser,
    SparsityRegulariser as SparsityRegulariser,
    TargetRateRegulariser as TargetRateRegulariser,
)
from snncell.nn.schedule import (
    PiecewiseConstantLR as PiecewiseConstantLR,
    PolynomialDecayLR as PolynomialDecayLR,
    WarmUpLR as WarmUpLR,
)
from snncell.nn.spike_distance import VanRossumLoss as VanRossumLoss
from snncell.nn.spike_loss import (
    CECountLoss as CECountLoss,
    CEMaxMembraneLoss as CEMaxMembraneLoss,
    CERateLoss as CERateLoss,
    TETLoss as TETLoss,
)
from snncell.nn.spike_mse import (
    MSECountLoss as MSECountLoss,
    MSEMembraneLoss as MSEMembraneLoss,
    MSERateLoss as MSERateLoss,
)
from snncell.nn.spike_time import (
    CETemporalLoss as CETemporalLoss,
    FirstSpikeTime as FirstSpikeTime,
    MSETemporalLoss as MSETemporalLoss,
    SpikeTimes as SpikeTimes,
)
from snncell.nn.spiking import (
    SEWBlock as SEWBlock,
    SynapseFilter as SynapseFilter,
    WinnerTakeAll as WinnerTakeAll,
)
from snncell.nn.stateful import Stateful as Stateful
from snncell.nn.temporal import (
    AxonalDelay as AxonalDelay,
    TimeFixedDropout as TimeFixedDropout,
    TimeFixedDropout2d as TimeFixedDropout2d,
)
from snncell.nn.time import MultiStep as MultiStep
from snncell.nn.truncated import Truncated as Truncated
from snncell.surrogate import (
    relusigmoid as relusigmoid,
)

_guard(globals())
