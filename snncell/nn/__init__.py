"""Cells: layers, neurons, containers, losses, optimisers.

A neuron is a Cell of one step: MultiStep runs it over time, Recurrent feeds its output back, Stateful keeps its state
between calls. LIFNode.like("snntorch", ...) is another framework's.
"""

from snncell.arguments.exports import export as _export
from snncell.arguments.guard import guard as _guard
from snncell.cell import (
    Cell as Cell,
)
from snncell.common.fields import field as field, with_fields as with_fields
from snncell.common.held import Constant as Constant
from snncell.common.ranges import Range as Range
from snncell.nn.accumulation import GradAccumulationCell as GradAccumulationCell, ParameterUpdate as ParameterUpdate
from snncell.nn.activation import (
    GELU as GELU,
    GLU as GLU,
    LeakyReLU as LeakyReLU,
    LogSigmoid as LogSigmoid,
    LogSoftmax as LogSoftmax,
    Mish as Mish,
    ReLU as ReLU,
    ReLU6 as ReLU6,
    Sigmoid as Sigmoid,
    SiLU as SiLU,
    Softmax as Softmax,
    Softmin as Softmin,
    Softplus as Softplus,
    Softsign as Softsign,
    Tanh as Tanh,
    Tanhshrink as Tanhshrink,
)
from snncell.nn.container import (
    CellDict as CellDict,
    CellList as CellList,
    SequentialCell as SequentialCell,
    TimeDistributed as TimeDistributed,
)
from snncell.nn.conv import Conv1d as Conv1d, Conv2d as Conv2d, Conv2dTranspose as Conv2dTranspose
from snncell.nn.dropout import Dropout as Dropout, Dropout1d as Dropout1d, Dropout2d as Dropout2d
from snncell.nn.eprop import (
    EProp as EProp,
    FeedbackDense as FeedbackDense,
)
from snncell.nn.eventprop import EventPropLIF as EventPropLIF
from snncell.nn.gates import GRUCell as GRUCell, LSTMCell as LSTMCell, RNNCell as RNNCell
from snncell.nn.groups import (
    LearningRateSchedule as LearningRateSchedule,
    ParameterGroup as ParameterGroup,
)
from snncell.nn.layer import (
    Dense as Dense,
    Embedding as Embedding,
    Flatten as Flatten,
    Threshold as Threshold,
)
from snncell.nn.linear import BiDense as BiDense, Bilinear as Bilinear, Linear as Linear
from snncell.nn.loss import (
    CrossEntropyLoss as CrossEntropyLoss,
    L1Loss as L1Loss,
    MSELoss as MSELoss,
    NLLLoss as NLLLoss,
    SoftmaxCrossEntropyWithLogits as SoftmaxCrossEntropyWithLogits,
)
from snncell.nn.neurons import *  # noqa: F403 (its imports are the list of them)
from snncell.nn.norm import (
    BatchNorm1d as BatchNorm1d,
    BatchNorm2d as BatchNorm2d,
    LayerNorm as LayerNorm,
)
from snncell.nn.norm_groups import (
    GroupNorm as GroupNorm,
    InstanceNorm1d as InstanceNorm1d,
    InstanceNorm2d as InstanceNorm2d,
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
    AdaMax as AdaMax,
    AdamW as AdamW,
    Momentum as Momentum,
    Optimizer as Optimizer,
    RMSProp as RMSProp,
)
from snncell.nn.plasticity import (
    STDP as STDP,
    PlasticDense as PlasticDense,
)
from snncell.nn.pooling import (
    AdaptiveAvgPool1d as AdaptiveAvgPool1d,
    AdaptiveAvgPool2d as AdaptiveAvgPool2d,
    AdaptiveMaxPool1d as AdaptiveMaxPool1d,
    AdaptiveMaxPool2d as AdaptiveMaxPool2d,
    AvgPool1d as AvgPool1d,
    AvgPool2d as AvgPool2d,
    MaxPool1d as MaxPool1d,
    MaxPool2d as MaxPool2d,
    SumPool2d as SumPool2d,
)
from snncell.nn.rectifiers import (
    CELU as CELU,
    ELU as ELU,
    Hardtanh as Hardtanh,
    HShrink as HShrink,
    HSigmoid as HSigmoid,
    HSwish as HSwish,
    PReLU as PReLU,
    SeLU as SeLU,
    SoftShrink as SoftShrink,
)
from snncell.nn.recurrent import Recurrent as Recurrent
from snncell.nn.regulariser import (
    CountBoundRegulariser as CountBoundRegulariser,
    L1RateSparsity as L1RateSparsity,
    SilenceRegulariser as SilenceRegulariser,
    SparsityRegulariser as SparsityRegulariser,
    TargetRateRegulariser as TargetRateRegulariser,
)
from snncell.nn.reshaping import (
    ConstantPad1d as ConstantPad1d,
    ConstantPad2d as ConstantPad2d,
    Identity as Identity,
    Pad as Pad,
    PixelShuffle as PixelShuffle,
    PixelUnshuffle as PixelUnshuffle,
    ReflectionPad1d as ReflectionPad1d,
    ReflectionPad2d as ReflectionPad2d,
    ReplicationPad1d as ReplicationPad1d,
    ReplicationPad2d as ReplicationPad2d,
    Unflatten as Unflatten,
    Upsample as Upsample,
    ZeroPad2d as ZeroPad2d,
)
from snncell.nn.rnn import GRU as GRU, LSTM as LSTM, RNN as RNN
from snncell.nn.schedule import (
    CosineDecayLR as CosineDecayLR,
    ExponentialDecayLR as ExponentialDecayLR,
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
from snncell.nn.training import (
    ForwardValueAndGrad as ForwardValueAndGrad,
    TrainOneStepCell as TrainOneStepCell,
    WithEvalCell as WithEvalCell,
    WithGradCell as WithGradCell,
    WithLossCell as WithLossCell,
)
from snncell.nn.truncated import Truncated as Truncated
from snncell.nn.value_loss import (
    BCELoss as BCELoss,
    BCEWithLogitsLoss as BCEWithLogitsLoss,
    CosineEmbeddingLoss as CosineEmbeddingLoss,
    GaussianNLLLoss as GaussianNLLLoss,
    HingeEmbeddingLoss as HingeEmbeddingLoss,
    HuberLoss as HuberLoss,
    KLDivLoss as KLDivLoss,
    MarginRankingLoss as MarginRankingLoss,
    PoissonNLLLoss as PoissonNLLLoss,
    SmoothL1Loss as SmoothL1Loss,
    SoftMarginLoss as SoftMarginLoss,
    TripletMarginLoss as TripletMarginLoss,
)
from snncell.surrogate import (
    relusigmoid as relusigmoid,
)

_export(globals())
_guard(globals())
