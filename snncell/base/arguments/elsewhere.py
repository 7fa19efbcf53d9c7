"""Names of other frameworks and their equivalents in snncell: code, or a sentence that contains code.

There is a table for each module, and for Tensors, Cells and arguments. A name that differs from ours only in case and
underscores needs no entry, because errors suggest the nearest name.
"""

from __future__ import annotations

import re


def _read_table(text: str) -> dict[str, str]:
    """Parse a table of "name name: answer" entries; ".*" at the end of an answer stands for the name."""
    entries = re.sub(r"\n    +", " ", text.strip()).split("\n")
    pairs = [entry.split(": ", 1) for entry in entries]
    return {name: re.sub(r"\.\*$", f".{name}", answer) for names, answer in pairs for name in names.split()}


NN = _read_table("""
LossBase: Write a loss as an nn.Cell of (logits, labels), such as nn.MSELoss, or as a function with ops.mean.
Module GraphCell: nn.Cell
Sequential: nn.SequentialCell
ModuleList: nn.CellList
Buffer UninitializedParameter: snncell.Parameter
ParameterList ParameterDict: An nn.Cell registers a list or tuple of Parameters that is its attribute.
functional: snncell.ops
init: snncell.common.initializer
utils: snncell.train
BatchNorm: nn.BatchNorm1d
SyncBatchNorm: nn.BatchNorm2d
RMSNorm LocalResponseNorm LRN: nn.LayerNorm
ConvTranspose2d: nn.Conv2dTranspose
Conv1dTranspose ConvTranspose1d: nn.Conv2dTranspose over images of height 1
Conv3d Conv3dTranspose ConvTranspose3d MaxPool3d AvgPool3d AdaptiveAvgPool3d AdaptiveMaxPool3d BatchNorm3d
    InstanceNorm3d Dropout3d ReflectionPad3d ReplicationPad3d ConstantPad3d ZeroPad3d CircularPad3d LPPool3d
    FractionalMaxPool3d MaxUnpool3d Conv3D: Layers have one or two spatial axes, such as nn.Conv2d, nn.MaxPool2d; use
    nn.TimeDistributed if the third axis is time.
LazyLinear LazyConv1d LazyConv2d LazyConv3d LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d LazyInstanceNorm1d
    LazyInstanceNorm2d LazyConvTranspose2d: Layers need their sizes, nn.Dense(in_channels, out_channels),
    nn.Conv2d(in_channels, ...).
MultiheadAttention MultiHeadAttention Transformer TransformerEncoder TransformerDecoder TransformerEncoderLayer
    TransformerDecoderLayer FeedForward: Build attention from nn.Dense and ops.softmax(q @ k.swapaxes(-1, -2) /
    d**0.5) @ v; with spikes, use nn.SpikingSelfAttention.
CobaLIF CobaLIFCell ConductanceLIF: nn.CobaLIFNode
TwoCompartmentLIF TCLIF MultiCompartmentLIF LIFMC: nn.TCLIFNode
STP TsodyksMarkram TsodyksMakram ShortTermPlasticityCell: nn.ShortTermPlasticity
S4D S4 S5 SSM: nn.LRU(in_channels, out_channels, state_size, eigenvalue_init="s4d-lin")
RAFNode RFNode: nn.ResonateNode
BRF BRFNode BRFCell: nn.BalancedResonateNode
MaskedPSN: nn.PSN(steps, order)
SSA: nn.SpikingSelfAttention
Spikformer SpikingTransformer: nn.SpikformerBlock
LPPool1d LPPool2d FractionalMaxPool2d MaxUnpool1d MaxUnpool2d: nn.AvgPool2d, nn.MaxPool2d
ZeroPad1d: nn.ConstantPad1d(padding, 0.0)
CircularPad1d CircularPad2d: ops.pad(x, padding, "circular")
UpsamplingNearest2d ResizeNearestNeighbor: nn.Upsample
UpsamplingBilinear2d ResizeBilinear: nn.Upsample(size, mode="bilinear")
ChannelShuffle: x.reshape((n, groups, -1, h, w)).swapaxes(1, 2), and ops.reshape back.
Unfold Fold: ops.conv2d applies a weight to all windows.
EmbeddingBag EmbeddingLookup MultiFieldEmbeddingLookup: nn.Embedding
AlphaDropout FeatureAlphaDropout DropBlock: nn.Dropout(p=...), nn.Dropout2d
DropPath: ops.dropout
RNNBase RNNCellBase: nn.RNN, nn.RNNCell
ConvLSTM ConvLSTM2D Conv2dLSTM SConv2dLSTM: nn.MultiStep(nn.ConvLSTMCell(in_channels, out_channels, kernel_size))
SLSTM: nn.LSTM, followed by nn.MultiStep(nn.LIFNode())
Swish: nn.SiLU
QCFS: snncell.quantise.QCFS
Hardsigmoid HardSigmoid: nn.HSigmoid
Hardswish HardSwish: nn.HSwish
Hardshrink HardShrink: nn.HShrink
RReLU: nn.LeakyReLU
Softmax2d: nn.Softmax(1)
FastGelu: nn.GELU
QuickGELU: x * ops.sigmoid(1.702 * x)
get_activation: Layers accept the name of an activation: nn.Dense(3, 4, activation="relu").
MAELoss: nn.L1Loss
RMSELoss: ops.sqrt(ops.mse_loss(x, y))
NLLLoss2d: nn.NLLLoss
CTCLoss: snncell does not have it. Losses of outputs over time are nn.CERateLoss, nn.CECountLoss and others.
FocalLoss DiceLoss MultiClassDiceLoss: snncell does not have it. Build it from ops.sum, ops.mean and
    ops.log_softmax.
MultiMarginLoss MultiLabelMarginLoss MultilabelMarginLoss MultiLabelSoftMarginLoss TripletMarginWithDistanceLoss:
    snncell has nn.HingeEmbeddingLoss, nn.MarginRankingLoss and nn.TripletMarginLoss. Build others from ops.relu.
SampledSoftmaxLoss AdaptiveLogSoftmaxWithLoss: nn.CrossEntropyLoss
CosineSimilarity: nn.CosineEmbeddingLoss computes it.
PairwiseDistance: ops.sqrt(ops.sum(ops.square(x - y), -1))
SSIM MSSSIM PSNR ImageGradients CentralCrop: snncell does not have it. Build it from ops.conv2d and ops.mean.
mse_loss: ops.mse_loss
Adagrad Adadelta ASGD Rprop Ftrl FTRL Lamb LARS LazyAdam ProximalAdagrad AdaFactor NAdam RAdam LBFGS thor
    AdamOffload Lion: Optimisers are nn.SGD, nn.Momentum, nn.RMSProp, nn.Adam, nn.AdamW, nn.AdaMax; others derive
    from nn.Optimizer.
AdamWeightDecay: nn.AdamW
StepDecayLR StepLR MultiStepLR ConstantLR: nn.PiecewiseConstantLR
CosineAnnealingLR CosineAnnealingWarmRestarts: nn.CosineDecayLR
ExponentialLR NaturalExpDecayLR natural_exp_decay_lr: nn.ExponentialDecayLR
PolynomialLR InverseDecayLR inverse_decay_lr: nn.PolynomialDecayLR
LinearLR LinearWarmup: nn.WarmUpLR
ReduceLROnPlateau Accuracy Precision Recall F1 MAE MSE Loss Metric Top1CategoricalAccuracy Top5CategoricalAccuracy
    TopKCategoricalAccuracy: train.*
Fbeta ConfusionMatrix ROC: train.evaluate returns the loss and scores; you can also call train.accuracy,
    train.confusion and train.top_k.
TrainOneStepWithLossScaleCell: train.fit(loss_scale=...)
DynamicLossScaleUpdateCell: amp.DynamicLossScaler
FixedLossScaleUpdateCell: amp.StaticLossScaler
DistributedGradReducer DataParallel PipelineCell PipelineGradReducer MicroBatchInterleaved: train.fit(...,
    distributed=True) trains on several processes; snncell.distributed has its building blocks.
ClipByNorm: train.clip_by_global_norm
clip_grad_norm_ clip_grad_value_: train.clip_by_global_norm, train.clip_by_value
Norm: ops.sqrt(ops.sum(ops.square(x)))
OneHot: ops.one_hot
MatMul: ops.matmul
Moments: ops.mean, ops.var
L1Regularizer: nn.L1RateSparsity, of spikes
weight_norm spectral_norm: snncell does not have it. Write an nn.Cell that computes the weight from a Parameter.
Leaky: nn.LIFNode.like("snntorch", beta=...)
RLeaky: nn.Recurrent(nn.LeakyNode(), feedback)
Synaptic: nn.CubaLIFNode.like("snntorch", alpha=..., beta=...)
RSynaptic: nn.Recurrent(nn.CubaLIFNode(), feedback)
Alpha: nn.AlphaNode
Lapicque: nn.LIFNode.like("snntorch.lapicque", ...)
IF IAF IAFSqueeze: nn.IFNode
LIF MultiStepLIFNode LIFLayer LIFRefrac: nn.LIFNode
LIFCell: nn.CubaLIFNode.like("norse", ...)
LIFBoxCell: nn.LIFNode.like("norse", ...)
LIFRecurrent LIFRecurrentCell LIFRecurrentSqueeze ALIFRecurrent: nn.Recurrent(nn.LIFNode(), feedback)
ALIF: nn.ALIFNode
LI ExpLeak LICell LILinearCell: nn.LINode
CuBaLIF: nn.CubaLIFNode
SeqToANNContainer StepModeContainer Lift: nn.TimeDistributed
SequentialState: nn.SequentialCell of nn.MultiStep(nn.LIFNode()) and layers
reset_net: Layers keep no states between calls. Only nn.Stateful needs a reset: call its reset().
DelayLayer Delay: nn.AxonalDelay
ElementWiseRecurrentContainer LinearRecurrentContainer: nn.Recurrent(cell, feedback)
VotingLayer Repeat: nn.CECountLoss(num_classes=...) sums the neurons of each class.
STDPLearner: nn.STDP, nn.PlasticDense
OTTTLIFNode SLTTLIFNode: nn.Online(cell, "OTTT") or nn.Online(cell, "SLTT"), for a cell with weights and a neuron.
""")
OPS = _read_table("""
BiasAdd AddN AccumulateNV2 addn: ops.add
Rank: x.dim()
Size size numel: x.size
t: x.T
DType: x.dtype
Range: ops.arange
ReduceAll: ops.all
ReduceAny: ops.any
L2Normalize: x / ops.norm(x)
InsertGradientOf: ops.HookBackward
TensorScatterUpdate: x.index_put(indices, values)
Partial: functools.partial, which accepts functions such as ops.add.
MultitypeFuncGraph: Write a Python function with isinstance, which ops.HyperMap maps over nested structures.
absolute Absolute: ops.abs
constexpr _constexpr: Call a Python function in the traced one; snncell.jit runs it once, at trace time.
power: ops.pow
linear: ops.matmul(x, weight.T) + bias, or nn.Dense
tensordot: ops.einsum
no_grad: Gradients are functions: call snncell.grad(fn, None, parameters)(x). Other calls record no gradient.
detach stop_grad: ops.stop_gradient
reduce_sum: ops.sum
reduce_mean: ops.mean
reduce_max: ops.max
reduce_min: ops.min
swish: ops.silu
HSwish hswish: ops.hardswish
HSigmoid hsigmoid: ops.hardsigmoid
HShrink: ops.hardshrink
rrelu: ops.leaky_relu
fast_gelu FastGeLU: ops.gelu
threshold: ops.select(x > threshold, x, value), or nn.Threshold
BCEWithLogitsLoss: ops.binary_cross_entropy_with_logits
KLDivLoss: ops.kl_div
SoftmaxCrossEntropyWithLogits SparseSoftmaxCrossEntropyWithLogits: ops.cross_entropy
ctc_loss: snncell does not have it; for classes use ops.cross_entropy.
cosine_similarity: ops.cosine_embedding_loss computes it.
view: ops.reshape
upsample ResizeBilinear ResizeNearestNeighbor resize: ops.interpolate
PadV3: ops.pad
MaxPool: ops.max_pool2d
AvgPool: ops.avg_pool2d
conv3d Conv3D max_pool3d avg_pool3d: Operations have one or two spatial axes: ops.conv2d, ops.max_pool2d.
conv_transpose1d conv2d_transpose Conv2DTranspose: ops.conv_transpose2d
concatenate Concatenate: ops.concat
unsorted_segment_sum: ops.one_hot(ids, n).T @ x
BatchNorm batch_norm: nn.BatchNorm2d
layer_norm: nn.LayerNorm
group_norm: nn.GroupNorm
instance_norm: nn.InstanceNorm2d
embedding: ops.gather, or nn.Embedding
Print print_: print shows a Tensor, and snncell.explain(fn, x) how a function is compiled.
StandardNormal standard_normal: ops.normal
UniformReal UniformInt: ops.uniform, ops.randint
rsub: ops.sub(y, x)
map while_loop fori_loop WhileLoop ForiLoop: ops.scan
cond: ops.where(condition, a, b)
AllReduce all_reduce AllGather Broadcast: snncell.distributed.mean_gradients
ApplyMomentum ApplyAdam Adam: nn.Momentum, nn.Adam
Dropout3D dropout3d dropout1d alpha_dropout: ops.dropout, ops.dropout2d
Custom custom_op Function: Write an nn.Cell with construct and bprop, its custom gradient.
""")
SNNCELL = _read_table("""
mutable: Pass a tuple, list or dict of Tensors directly: snncell.jit(fn)((x, y)).
lazy_inline: You do not need it, because snncell.jit traces a Cell with all its children.
dtype_to_nptype dtype_to_pytype: snncell.float32.dtype
issubclass_: snncell.float32.is_float
grad_no_sens: ops.GradOperation(get_by_list=True)
set_auto_parallel_context communication reset_auto_parallel_context: train.fit(..., distributed=True) trains on several
    processes; snncell.distributed has its building blocks.
run_check: python -m snncell info prints the settings of snncell.get_context and the machine.
is_tensor: isinstance(x, snncell.Tensor)
FixedLossScaleManager: amp.StaticLossScaler
DynamicLossScaleManager: amp.DynamicLossScaler
hal device cuda: snncell.set_context(device_target="GPU")
from_numpy as_tensor array asarray: snncell.Tensor
Module: nn.Cell
manual_seed Generator default_generator: snncell.set_seed
compile ms_function jit_class: snncell.jit
no_grad: Gradients are functions: call snncell.grad(fn, None, parameters)(x). Other calls record no gradient.
cat: ops.concat
optim: The optimisers are nn.SGD, nn.Adam, nn.AdamW, nn.AdaMax, nn.RMSProp, nn.Momentum.
functional numpy mint: snncell.ops
save: snncell.save_checkpoint
load: snncell.load_checkpoint
utils: snncell.data, snncell.train
dataset: snncell.data
export load_mindir: snncell.nir.to_nir writes a graph for other frameworks, snncell.save_checkpoint the weights.
half: snncell.float16
double: snncell.float64
int_ long: snncell.int64
float_: snncell.float32
string uint16 uint32 uint64: snncell has snncell.uint8 and the signed integers up to snncell.int64.
SummaryRecord: snncell.train.TensorBoard
Profiler profiler: snncell.profile
rand: ops.uniform
randn: ops.normal
autograd: snncell.grad, snncell.value_and_grad
CSRTensor COOTensor RowTensor SparseTensor: ops.matmul uses the sparsity of spikes if that is faster; see
    data.ToEventLists.
ann2snn FXConverter RateCodingRecipe: snncell.quantise.to_spiking
spikegen snngen: snncell.encode
spikeplot: snncell.plot
functional_ neuron layer activation_based: snncell.nn
""")
SURROGATE = _read_table("""
straight_through_estimator: surrogate.StraightThrough
SingleExponential: surrogate.PiecewiseExp
SigmoidGrad: surrogate.Sigmoid
""")
ENCODE = _read_table("""
poisson PoissonEncoder rate_conv: encode.rate
LatencyEncoder: encode.latency
spikegen: The encoders are functions of snncell.encode, such as rate, latency, delta.
repeat: encode.current
""")
TRAIN = _read_table("""
DataLoader: train.Batches
Trainer: train.fit
clip_grad_norm_ clip_grad_norm: train.clip_by_global_norm
clip_grad_value_: train.clip_by_value
SummaryWriter SummaryCollector: train.TensorBoard
CSVLogger: train.Log
LearningRateScheduler: Pass a schedule to the optimiser, such as nn.CosineDecayLR, or call
    training.optimiser.set_learning_rate(rate) in a train.Callback.
OnRequestExit: train.fit(checkpoint=...) saves the checkpoint and stops after a SIGTERM or Ctrl-C.
callback: Import callbacks from snncell.train: from snncell.train import LossMonitor.
ExponentialMovingAverage AveragedModel: train.EMA
LearningRateFinder lr_find: train.find_learning_rate
confusion_matrix: train.confusion
""")
AMP = _read_table("""
GradScaler DynamicLossScaleManager LossScaleManager: amp.DynamicLossScaler
autocast: amp.auto_mixed_precision(net, "O1")
FixedLossScaleManager: amp.StaticLossScaler
custom_mixed_precision get_white_list get_black_list: amp.auto_mixed_precision(net, "O1", white_list=[...])
build_train_network: amp.auto_mixed_precision, train.fit
""")
DATA = _read_table("""
DataLoader PadTensors: data.Loader
Dataset: A data set is any object with len(dataset) and dataset[i]; pass it to snncell.data.Loader.
SSC: data.SHD
CachedDataset DiskCachedDataset: data.Cached
SlicedDataset: data.Sliced
ToSparseTensor: data.ToFrame returns bytes, in which nn.Dense and nn.Conv2d find the events.
EventDrop: Choose at random among data.DropEvent, data.DropEventByTime and data.DropEventByArea.
NumpyAsType: Pass a function to data.Compose: lambda frames: frames.astype(...).
""")
PLOT = _read_table("""
traces: plot.membrane
spike_raster: plot.raster
spike_count: plot.firing_rates
loss: plot.training_curves
""")
TENSOR = _read_table("""
detach: ops.stop_gradient(x)
clone: A Tensor never changes, so you need no copy; snncell.Tensor(x) makes a new one.
cpu: x.to("cpu")
cuda npu: x.to("gpu")
data: x.asnumpy() returns the values; p.set_data(value) sets those of a Parameter.
t: x.T
backward grad grad_fn is_leaf retain_grad: Gradients are functions: call snncell.grad(fn, None,
    parameters)(x). Other calls record no gradient.
requires_grad_: p.requires_grad = True, of a snncell.Parameter
requires_grad: Only Parameters have it. Take the gradient of a Tensor as an input: snncell.grad(fn)(x).
itemset zero_ copy_ fill_ add_ sub_ mul_ div_ clamp_ relu_ exp_ normal_ uniform_ random_ masked_fill_ scatter_
    index_fill_ squeeze_ unsqueeze_ transpose_ sigmoid_ tanh_ sqrt_ neg_ abs_ zero_grad: A Tensor never changes;
    write to a Parameter by p.set_data(value) or p[...] = value.
is_cuda: x.device == "gpu"
element_size: x.dtype
concat: ops.concat([x, y])
gelu silu: ops.gelu(x), ops.silu(x)
pin_memory share_memory_: x.device
unflatten: x.reshape(...)
einsum: ops.einsum
apply_ map_: Use operations on the whole Tensor, such as ops.where.
""")
CELL = _read_table("""
parameters: cell.trainable_params(), cell.get_parameters()
named_parameters: cell.parameters_and_names()
forward: cell(x): you call an nn.Cell directly, and it runs construct
train: cell.set_train()
eval: cell.set_train(False)
modules named_modules: cell.cells_and_names()
children named_children: cell.cells(), cell.name_cells()
cuda npu: cell.to("gpu")
cpu: cell.to("cpu")
cell_prefix: cell.param_prefix
half bfloat16: cell.to_float(snncell.float16), cell.to_float(snncell.bfloat16)
float double type: cell.to_float(dtype) sets the dtype of computations; cell.to moves a Cell between devices.
zero_grad: Gradients are functions: call snncell.grad(fn, None, parameters)(x). Other calls record no gradient.
requires_grad_: cell.set_grad()
register_parameter: cell.insert_param_to_cell(name, parameter)
register_module add_module: cell.insert_child_to_cell(name, child)
register_full_backward_hook: cell.register_backward_hook(hook)
register_full_backward_pre_hook: cell.register_backward_pre_hook(hook)
extra_repr: cell.extend_repr
step: Call an nn.Optimizer with gradients: optimiser(gradients).
init_leaky init_synaptic init_alpha reset_mem reset reset_states reset_hidden zero_states: Layers keep no states between
    calls. Only nn.Stateful needs a reset: call its reset().
save: snncell.save_checkpoint(cell, file)
get_submodule get_parameter: cell.get_sub_cell(path), cell.parameters_dict()
summary: snncell.explain(cell, x)
grad_reducer: snncell.distributed.mean_gradients averages gradients over several processes.
set_dynamic_inputs: cell.set_inputs; each new input shape is compiled.
set_mixed_precision_type cast_inputs cast_param: cell.to_float(snncell.float16)
cell_type: cell.cls_name
cell_init_args: cell.extend_repr()
compile_and_run: cell.compile(*inputs), and a call.
flatten_weights: You do not need it: cell.trainable_params() keeps the weights, and the compiler optimises.
jit_config_dict: cell.set_jit_config accepts MindSpore's settings; snncell.jit has those with an effect.
share_memory shard set_comm_fusion set_boost set_data_parallel offload pipeline_stage set_acc set_broadcast_flag
    set_param_ps set_param_fl infer_param_pipeline_stage: train.fit(..., distributed=True) trains on several processes;
    snncell.distributed has its building blocks.
param_groups: groups of an nn.Optimizer
init_params weight_init: weight_init of nn.Dense and nn.Conv2d
""")

MODULES = {
    "snncell": SNNCELL, "snncell.nn": NN, "snncell.ops": OPS, "snncell.surrogate": SURROGATE, "snncell.encode": ENCODE,
    "snncell.train": TRAIN, "snncell.amp": AMP, "snncell.data": DATA, "snncell.plot": PLOT,
}  # fmt: skip

# MindSpore's modules, and the modules of snncell with the same names.
PATHS = {
    "snncell.common.api": "snncell", "snncell.common.dtype": "snncell.dtype",
    "snncell.common.parameter": "snncell.tape.parameter", "snncell.common.tensor": "snncell.tape.tensor",
    "snncell.context": "snncell.mindspore.context", "snncell.nn.cell": "snncell.cell.cell",
    "snncell.nn.learning_rate_schedule": "snncell.nn", "snncell.nn.metrics": "snncell.train",
    "snncell.nn.wrap": "snncell.nn", "snncell.ops.composite": "snncell.ops", "snncell.ops.functional": "snncell.ops",
    "snncell.ops.operations": "snncell.ops", "snncell.train.callback": "snncell.train",
    "snncell.train.serialization": "snncell",
}  # fmt: skip


# Other frameworks' argument names, and snncell's, the most likely first.
_ARGUMENTS = """
dim: axis, axes, dims; dims: axis, axes; axis: axes, dims, axis0; dim0: axis0; dim1: axis1
keepdim: keepdims, keep_dims; keepdims: keep_dims; keep_dims: keepdims; size: shape; lengths: seq_length
input: x, inputs; other: y; logits: x; labels: target; target: labels; init: w
a_min: min; a_max: max; min_value: min_val; max_value: max_val; negative_slope: alpha
bias: has_bias; in_features: in_channels; out_features: out_channels; kernel: kernel_size; groups: group
num_embeddings: vocab_size; embedding_dim: embedding_size; hidden_channels: hidden_size; num_parameters: channel
elementwise_affine: affine; threshold v_th: v_threshold; spike_grad surrogate: surrogate_function
lr: learning_rate; betas: beta1 and beta2; loss_fn: loss; criterion: loss, loss_fn; model: net, cell
optimizer: optimiser; opt: optimiser, optimizer; epoch num_epochs n_epochs max_epochs nb_epoch: epochs
train_data train_loader trainloader dataloader: data; validation_freq: test_every; early_stopping: patience
val validation_data valid_data val_data test_data eval_set val_loader test_loader: validation, test
accumulate_grad_batches gradient_accumulation_steps: accumulate; clipvalue: clip_value
max_grad_norm gradient_clip_val clipnorm: clip_norm; device: device_target; verbose: progress
time_window: window; event_count n_event_bins: count; n_time_bins: n_bins; include_incomplete: last
"""
ARGUMENTS = {name: tuple(ours.split(", ")) for name, ours in _read_table(_ARGUMENTS.replace("; ", "\n")).items()}
