"""Names that users of other frameworks write, and what they are called here: code, or a sentence with the code in it.

One table for each place where a name is looked for. A name in it is not there, and each answer names something that is.
"""

from __future__ import annotations


def _all(names: str, answer: str) -> dict[str, str]:
    """Several names with one answer."""
    return dict.fromkeys(names.split(), answer)


def _of_train(names: str) -> dict[str, str]:
    """Names that `snncell.train` has."""
    return {name: f"train.{name}" for name in names.split()}


_NO_TAPE = "Gradients are taken of functions, snncell.grad(fn, None, parameters)(x); nothing is recorded outside."
_IN_PLACE = "A Tensor does not change; a Parameter takes a new value by p.set_data(value), or p[...] = value."
_NO_STATE = "States are arguments and results here: nothing is to be reset but an nn.Stateful, by its reset()."
_TWO_AXES = (
    "Layers are over one or two axes, nn.Conv2d, nn.MaxPool2d; a third that is time goes through nn.TimeDistributed."
)
_LAZY = "Layers are made with their sizes, nn.Dense(in_channels, out_channels), nn.Conv2d(in_channels, ...)."
_ATTENTION = "ops.softmax(q @ k.swapaxes(-1, -2) / d**0.5) @ v is attention; layers of it are built from nn.Dense."
_ONE_PROCESS = "train.fit(..., distributed=True) is on several processes; snncell.distributed has the pieces."
_OPTIMISERS = (
    "The optimisers are nn.SGD, nn.Momentum, nn.RMSProp, nn.Adam and nn.AdamW; others derive from nn.Optimizer."
)
_METRIC = "train.evaluate gives the loss and scores; train.accuracy, train.confusion and train.top_k are functions."
_MARGINS = (
    "nn.HingeEmbeddingLoss, nn.MarginRankingLoss and nn.TripletMarginLoss are there; others are built from ops.relu."
)
_DICE = "It is not there; ops.sum, ops.mean and ops.log_softmax are what it is built from."
_IMAGE = "It is not there; ops.conv2d and ops.mean are what it is built from."
_WEIGHT_NORM = "It is not there; the weight of nn.Dense is a Parameter, which a Cell of your own can compute."

NN = {
    "Module": "nn.Cell",
    "Sequential": "nn.SequentialCell",
    "ModuleList": "nn.CellList",
    "GraphCell": "nn.Cell",
    **_all("Parameter Buffer UninitializedParameter", "snncell.Parameter"),
    **_all(
        "ParameterList ParameterDict", "A list or tuple of Parameters that is an attribute of an nn.Cell is registered."
    ),
    "functional": "snncell.ops",
    "init": "snncell.common.initializer",
    "utils": "snncell.train",
    # layers
    "BatchNorm": "nn.BatchNorm1d",
    "SyncBatchNorm": "nn.BatchNorm2d",
    "RMSNorm": "nn.LayerNorm",
    "LocalResponseNorm": "nn.LayerNorm",
    "LRN": "nn.LayerNorm",
    **_all("ConvTranspose2d Conv2DTranspose", "nn.Conv2dTranspose"),
    **_all("Conv1dTranspose ConvTranspose1d", "nn.Conv2dTranspose over images of height 1"),
    **_all(
        "Conv3d Conv3dTranspose ConvTranspose3d MaxPool3d AvgPool3d AdaptiveAvgPool3d AdaptiveMaxPool3d BatchNorm3d "
        "InstanceNorm3d Dropout3d ReflectionPad3d ReplicationPad3d ConstantPad3d ZeroPad3d CircularPad3d LPPool3d "
        "FractionalMaxPool3d MaxUnpool3d Conv3D",
        _TWO_AXES,
    ),
    **_all(
        "LazyLinear LazyConv1d LazyConv2d LazyConv3d LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d "
        "LazyInstanceNorm1d LazyInstanceNorm2d LazyConvTranspose2d",
        _LAZY,
    ),
    **_all(
        "MultiheadAttention MultiHeadAttention Transformer TransformerEncoder TransformerDecoder "
        "TransformerEncoderLayer TransformerDecoderLayer FeedForward",
        _ATTENTION,
    ),
    **_all("LPPool1d LPPool2d FractionalMaxPool2d MaxUnpool1d MaxUnpool2d", "nn.AvgPool2d, nn.MaxPool2d"),
    "ZeroPad1d": "nn.ConstantPad1d(padding, 0.0)",
    **_all("CircularPad1d CircularPad2d", 'ops.pad(x, padding, "circular")'),
    **_all("UpsamplingNearest2d ResizeNearestNeighbor", "nn.Upsample"),
    **_all("UpsamplingBilinear2d ResizeBilinear", 'nn.Upsample(size, mode="bilinear")'),
    "ChannelShuffle": "x.reshape((n, groups, -1, h, w)).swapaxes(1, 2), and ops.reshape back.",
    **_all("Unfold Fold", "ops.conv2d has its windows inside."),
    **_all("EmbeddingBag EmbeddingLookup MultiFieldEmbeddingLookup", "nn.Embedding"),
    **_all("AlphaDropout FeatureAlphaDropout DropBlock", "nn.Dropout(p=...), nn.Dropout2d"),
    "DropPath": "ops.dropout",
    **_all("RNNBase RNNCellBase", "nn.RNN, nn.RNNCell"),
    **_all("ConvLSTM Conv2dLSTM SConv2dLSTM", "nn.Recurrent(cell, feedback) with nn.Conv2d as the feedback."),
    "SLSTM": "nn.LSTM, and nn.MultiStep(nn.LIFNode()) behind it.",
    # activations
    "SELU": "nn.SeLU",
    "Swish": "nn.SiLU",
    **_all("Hardsigmoid HardSigmoid", "nn.HSigmoid"),
    **_all("Hardswish HardSwish", "nn.HSwish"),
    **_all("Hardshrink HardShrink", "nn.HShrink"),
    "Softshrink": "nn.SoftShrink",
    "HardTanh": "nn.Hardtanh",
    "RReLU": "nn.LeakyReLU",
    "Softmax2d": "nn.Softmax(1)",
    "FastGelu": "nn.GELU",
    "QuickGELU": "x * ops.sigmoid(1.702 * x)",
    "get_activation": 'A name is taken where a Cell is: nn.Dense(3, 4, activation="relu").',
    # losses
    **_all("MAELoss", "nn.L1Loss"),
    "RMSELoss": "ops.sqrt(ops.mse_loss(x, y))",
    "NLLLoss2d": "nn.NLLLoss",
    "CTCLoss": "It is not there; of outputs over time there are nn.CERateLoss, nn.CECountLoss and others.",
    **_all("FocalLoss DiceLoss MultiClassDiceLoss", _DICE),
    **_all(
        "MultiMarginLoss MultiLabelMarginLoss MultilabelMarginLoss MultiLabelSoftMarginLoss "
        "TripletMarginWithDistanceLoss",
        _MARGINS,
    ),
    **_all("SampledSoftmaxLoss AdaptiveLogSoftmaxWithLoss", "nn.CrossEntropyLoss"),
    **_all("CosineSimilarity", "nn.CosineEmbeddingLoss has it inside."),
    "PairwiseDistance": "ops.sqrt(ops.sum(ops.square(x - y), -1))",
    **_all("SSIM MSSSIM PSNR ImageGradients CentralCrop", _IMAGE),
    "mse_loss": "ops.mse_loss",
    # optimisers and rates
    **_all(
        "Adagrad Adadelta AdaMax Adamax ASGD Rprop Ftrl FTRL Lamb LARS LazyAdam ProximalAdagrad AdaFactor NAdam RAdam "
        "LBFGS thor AdamOffload Lion",
        _OPTIMISERS,
    ),
    "AdamWeightDecay": "nn.AdamW",
    **_all("StepDecayLR StepLR MultiStepLR piecewise_constant_lr ConstantLR", "nn.PiecewiseConstantLR"),
    **_all("CosineAnnealingLR cosine_decay_lr CosineAnnealingWarmRestarts", "nn.CosineDecayLR"),
    **_all("ExponentialLR exponential_decay_lr NaturalExpDecayLR natural_exp_decay_lr", "nn.ExponentialDecayLR"),
    **_all("polynomial_decay_lr PolynomialLR InverseDecayLR inverse_decay_lr", "nn.PolynomialDecayLR"),
    **_all("warmup_lr LinearLR LinearWarmup", "nn.WarmUpLR"),
    "ReduceLROnPlateau": "train.ReduceLROnPlateau",
    # metrics, training
    **_of_train("Accuracy Precision Recall F1 MAE MSE Loss Metric"),
    **_of_train("Top1CategoricalAccuracy Top5CategoricalAccuracy TopKCategoricalAccuracy"),
    **_all("Fbeta ConfusionMatrix ROC", _METRIC),
    "TrainOneStepWithLossScaleCell": "train.fit(loss_scale=...)",
    **_all("DynamicLossScaleUpdateCell", "amp.DynamicLossScaler"),
    **_all("FixedLossScaleUpdateCell", "amp.StaticLossScaler"),
    **_all("DistributedGradReducer DataParallel PipelineCell PipelineGradReducer MicroBatchInterleaved", _ONE_PROCESS),
    **_all("ClipByNorm", "train.clip_by_global_norm"),
    **_all("clip_grad_norm_ clip_grad_value_", "train.clip_by_global_norm, train.clip_by_value"),
    "Norm": "ops.sqrt(ops.sum(ops.square(x)))",
    "OneHot": "ops.one_hot",
    "MatMul": "ops.matmul",
    "Moments": "ops.mean, ops.var",
    "L1Regularizer": "nn.L1RateSparsity, of spikes",
    **_all("weight_norm spectral_norm", _WEIGHT_NORM),
    # spiking frameworks
    "Leaky": 'nn.LIFNode.like("snntorch", beta=...)',
    "RLeaky": "nn.Recurrent(nn.LeakyNode(), feedback)",
    "Synaptic": 'nn.CubaLIFNode.like("snntorch", alpha=..., beta=...)',
    "RSynaptic": "nn.Recurrent(nn.CubaLIFNode(), feedback)",
    "Alpha": "nn.AlphaNode",
    "Lapicque": 'nn.LIFNode.like("snntorch.lapicque", ...)',
    **_all("IF IAF IAFSqueeze", "nn.IFNode"),
    **_all("LIF MultiStepLIFNode LIFLayer", "nn.LIFNode"),
    "LIFCell": 'nn.CubaLIFNode.like("norse", ...)',
    "LIFBoxCell": 'nn.LIFNode.like("norse", ...)',
    **_all("LIFRecurrent LIFRecurrentCell LIFRecurrentSqueeze ALIFRecurrent", "nn.Recurrent(nn.LIFNode(), feedback)"),
    "LIFRefrac": "nn.LIFNode",
    **_all("ALIF", "nn.ALIFNode"),
    **_all("LI ExpLeak LICell LILinearCell", "nn.LINode"),
    "CuBaLIF": "nn.CubaLIFNode",
    **_all("SeqToANNContainer StepModeContainer Lift", "nn.TimeDistributed"),
    **_all("SequentialState", "nn.SequentialCell of nn.MultiStep(nn.LIFNode()) and layers"),
    "reset_net": _NO_STATE,
    **_all("DelayLayer Delay", "nn.AxonalDelay"),
    **_all("ElementWiseRecurrentContainer LinearRecurrentContainer", "nn.Recurrent(cell, feedback)"),
    **_all("VotingLayer Repeat", "nn.CECountLoss(num_classes=...) adds up the neurons of a class."),
    **_all("STDPLearner", "nn.STDP, nn.PlasticDense"),
}
OPS = {
    **_all("absolute Absolute", "ops.abs"),
    **_all("power", "ops.pow"),
    **_all("linear", "ops.matmul(x, weight.T) + bias, or nn.Dense"),
    "tensordot": "ops.einsum",
    **_all("no_grad", _NO_TAPE),
    **_all("detach StopGradient", "ops.stop_gradient"),
    **_all("reduce_sum", "ops.sum"),
    **_all("reduce_mean", "ops.mean"),
    **_all("reduce_max", "ops.max"),
    **_all("reduce_min", "ops.min"),
    # activations
    **_all("swish SiLU", "ops.silu"),
    **_all("Elu", "ops.elu"),
    **_all("SeLU", "ops.selu"),
    **_all("HSwish hard_swish hswish", "ops.hardswish"),
    **_all("HSigmoid hard_sigmoid hsigmoid", "ops.hardsigmoid"),
    **_all("HShrink hard_shrink", "ops.hardshrink"),
    **_all("SoftShrink soft_shrink", "ops.softshrink"),
    **_all("hard_tanh Hardtanh", "ops.hardtanh"),
    **_all("Mish", "ops.mish"),
    **_all("PReLU", "ops.prelu"),
    **_all("Softsign soft_sign", "ops.softsign"),
    **_all("log_sigmoid LogSigmoid", "ops.logsigmoid"),
    **_all("rrelu", "ops.leaky_relu"),
    **_all("fast_gelu FastGeLU", "ops.gelu"),
    "threshold": "ops.select(x > threshold, x, value), or nn.Threshold",
    # losses
    **_all("BinaryCrossEntropy", "ops.binary_cross_entropy"),
    **_all("BCEWithLogitsLoss", "ops.binary_cross_entropy_with_logits"),
    **_all("NLLLoss", "ops.nll_loss"),
    **_all("SmoothL1Loss", "ops.smooth_l1_loss"),
    **_all("KLDivLoss kldiv", "ops.kl_div"),
    **_all("SoftmaxCrossEntropyWithLogits SparseSoftmaxCrossEntropyWithLogits", "ops.cross_entropy"),
    **_all("ctc_loss", "It is not there; ops.cross_entropy is of classes."),
    **_all("cosine_similarity", "ops.cosine_embedding_loss has it inside."),
    # shapes, sizes
    **_all("view", "ops.reshape"),
    **_all("upsample ResizeBilinear ResizeNearestNeighbor resize", "ops.interpolate"),
    **_all("Pad PadV3", "ops.pad"),
    **_all("MaxPool", "ops.max_pool2d"),
    **_all("AvgPool", "ops.avg_pool2d"),
    **_all("AdaptiveAvgPool2D", "ops.adaptive_avg_pool2d"),
    **_all("AdaptiveMaxPool2D", "ops.adaptive_max_pool2d"),
    **_all("conv3d Conv3D max_pool3d avg_pool3d", "It is over one or two axes: ops.conv2d, ops.max_pool2d."),
    **_all("conv_transpose1d conv2d_transpose Conv2DTranspose", "ops.conv_transpose2d"),
    **_all("BroadcastTo", "ops.broadcast_to"),
    **_all("Tile", "ops.tile"),
    **_all("Flatten", "ops.flatten"),
    **_all("concatenate Concatenate", "ops.concat"),
    **_all("unsorted_segment_sum", "ops.one_hot(ids, n).T @ x"),
    **_all("BatchNorm batch_norm", "nn.BatchNorm2d"),
    **_all("LayerNorm layer_norm", "nn.LayerNorm"),
    **_all("group_norm", "nn.GroupNorm"),
    **_all("instance_norm", "nn.InstanceNorm2d"),
    **_all("embedding", "ops.gather, or nn.Embedding"),
    **_all("LSTM", "nn.LSTM"),
    # numbers
    **_all("Print print_", "print shows a Tensor, and snncell.explain(fn, x) what became of a function."),
    **_all("stop_grad", "ops.stop_gradient"),
    **_all("StandardNormal standard_normal", "ops.normal"),
    **_all("UniformReal UniformInt", "ops.uniform, ops.randint"),
    **_all("rsub", "ops.sub(y, x)"),
    **_all("Cos_", "ops.cos"),
    **_all("where_", "ops.where"),
    **_all("map scan_ while_loop fori_loop WhileLoop ForiLoop Scan", "ops.scan"),
    **_all("cond", "ops.where(condition, a, b)"),
    **_all("AllReduce all_reduce AllGather Broadcast", "snncell.distributed.mean_gradients"),
    **_all("ApplyMomentum ApplyAdam Adam", "nn.Momentum, nn.Adam"),
    **_all("Dropout3D dropout3d dropout1d alpha_dropout", "ops.dropout, ops.dropout2d"),
    **_all("Custom custom_op Function", "An nn.Cell with construct and bprop has a reverse of its own."),
}
SNNCELL = {
    **_all("tensor from_numpy as_tensor array asarray", "snncell.Tensor"),
    **_all("Module Cell", "nn.Cell"),
    "manual_seed": "snncell.set_seed",
    **_all("compile ms_function jit_class", "snncell.jit"),
    "no_grad": _NO_TAPE,
    **_all("cat concat", "ops.concat"),
    "optim": "The optimisers are nn.SGD, nn.Adam, nn.AdamW, nn.RMSProp, nn.Momentum.",
    **_all("functional numpy mint", "snncell.ops"),
    **_all("device cuda", 'snncell.set_context(device_target="GPU")'),
    "save": "snncell.save_checkpoint",
    "load": "snncell.load_checkpoint",
    "utils": "snncell.data, snncell.train",
    **_all("dataset", "snncell.data"),
    **_all("set_auto_parallel_context communication reset_auto_parallel_context", _ONE_PROCESS),
    **_all(
        "export load_mindir",
        "snncell.nir.to_nir writes a graph that other frameworks read; snncell.save_checkpoint weights.",
    ),
    **_all("Generator default_generator", "snncell.set_seed"),
    **_all("half", "snncell.float16"),
    **_all("double", "snncell.float64"),
    **_all("int_ long", "snncell.int64"),
    **_all("float_", "snncell.float32"),
    **_all("string uint16 uint32 uint64", "There are snncell.uint8 and the integers with a sign, up to snncell.int64."),
    **_all("SummaryRecord", "snncell.train.TensorBoard"),
    **_all("Profiler profiler", "snncell.explain"),
    **_all("rand", "ops.uniform"),
    **_all("randn", "ops.normal"),
    **_all("autograd", "snncell.grad, snncell.value_and_grad"),
    **_all("GradOperation", "ops.GradOperation"),
    **_all(
        "CSRTensor COOTensor RowTensor SparseTensor",
        "Spikes are read as events where that pays, by ops.matmul; see data.ToEventLists.",
    ),
    **_all("spikegen snngen", "snncell.encode"),
    **_all("spikeplot", "snncell.plot"),
    **_all("functional_ neuron layer activation_based", "snncell.nn"),
}
SURROGATE = {
    "straight_through_estimator": "surrogate.StraightThrough",
    "spike_rate_escape": "surrogate.SpikeRateEscape",
    "SingleExponential": "surrogate.PiecewiseExp",
    "SigmoidGrad": "surrogate.Sigmoid",
}
ENCODE = {
    "poisson": "encode.rate",
    "PoissonEncoder": "encode.rate",
    "LatencyEncoder": "encode.latency",
    "rate_conv": "encode.rate",
    "spikegen": "The encoders are functions of snncell.encode: rate, latency, delta.",
    "repeat": "encode.current",
}
TRAIN = {
    "DataLoader": "train.Batches",
    **_all("Trainer", "train.fit"),
    **_all("clip_grad_norm_ clip_grad_norm", "train.clip_by_global_norm"),
    **_all("clip_grad_value_", "train.clip_by_value"),
    **_all("SummaryWriter SummaryCollector", "train.TensorBoard"),
    **_all("CSVLogger", "train.Log"),
    "LearningRateScheduler": "Give the optimiser a schedule, such as nn.CosineDecayLR, or have a train.Callback call "
    "training.optimiser.set_learning_rate(rate).",
    "OnRequestExit": "train.fit(checkpoint=...) ends after the step on SIGTERM and Ctrl-C, and writes the checkpoint.",
    "callback": "The callbacks are in snncell.train: from snncell.train import LossMonitor.",
    **_all("ExponentialMovingAverage AveragedModel", "train.EMA"),
    **_all("LearningRateFinder lr_find", "train.find_learning_rate"),
    **_all("confusion_matrix", "train.confusion"),
}
AMP = {
    "GradScaler": "amp.DynamicLossScaler",
    "autocast": 'amp.auto_mixed_precision(net, "O1")',
    **_all("FixedLossScaleManager", "amp.StaticLossScaler"),
    **_all("DynamicLossScaleManager LossScaleManager", "amp.DynamicLossScaler"),
    "custom_mixed_precision": 'amp.auto_mixed_precision(net, "O1", white_list=[...])',
    **_all("build_train_network", "amp.auto_mixed_precision, train.fit"),
    **_all("get_white_list get_black_list", 'amp.auto_mixed_precision(net, "O1", white_list=[...])'),
}
DATA = {
    "DataLoader": "data.Loader",
    "Dataset": "A data set is anything with len(dataset) and dataset[i], and snncell.data.Loader goes through it.",
    "SSC": "data.SHD",
    "CachedDataset": "data.Cached",
    "DiskCachedDataset": "data.Cached",
    "SlicedDataset": "data.Sliced",
    "PadTensors": "data.Loader",
    "ToSparseTensor": "data.ToFrame gives bytes, in which nn.Dense and nn.Conv2d find the events.",
    "EventDrop": "It is one of data.DropEvent, data.DropEventByTime and data.DropEventByArea at random.",
    "NumpyAsType": "A function goes into data.Compose as it is: lambda frames: frames.astype(...).",
}
PLOT = {
    "traces": "plot.membrane",
    "spike_raster": "plot.raster",
    "spike_count": "plot.firing_rates",
    "loss": "plot.training_curves",
}

MODULES = {
    "snncell": SNNCELL,
    "snncell.nn": NN,
    "snncell.ops": OPS,
    "snncell.surrogate": SURROGATE,
    "snncell.encode": ENCODE,
    "snncell.train": TRAIN,
    "snncell.amp": AMP,
    "snncell.data": DATA,
    "snncell.plot": PLOT,
}

TENSOR = {
    "detach": "ops.stop_gradient(x)",
    "clone": "A Tensor does not change, so there is nothing to copy; snncell.Tensor(x) is a new one.",
    "cpu": 'x.to("cpu")',
    **_all("cuda npu", 'x.to("gpu")'),
    "data": "x.asnumpy() has the values; a Parameter takes new ones by p.set_data(value).",
    **_all("t", "x.T"),
    **_all("backward grad", _NO_TAPE),
    **_all("requires_grad_", "p.requires_grad = True, of a snncell.Parameter"),
    "requires_grad": "Parameters have it; of a Tensor the gradient is that of an input: snncell.grad(fn)(x).",
    **_all(
        "zero_ copy_ fill_ add_ sub_ mul_ div_ clamp_ relu_ exp_ normal_ uniform_ random_ masked_fill_ scatter_ "
        "index_fill_ squeeze_ unsqueeze_ transpose_ sigmoid_ tanh_ sqrt_ neg_ abs_ zero_grad",
        _IN_PLACE,
    ),
    **_all("is_cuda", 'x.device == "gpu"'),
    **_all("grad_fn is_leaf retain_grad", _NO_TAPE),
    **_all("element_size", "x.dtype"),
    **_all("concat", "ops.concat([x, y])"),
    **_all("gelu silu", "ops.gelu(x), ops.silu(x)"),
    **_all("pin_memory share_memory_", "x.device"),
    **_all("unflatten", "x.reshape(...)"),
    **_all("einsum", "ops.einsum"),
    **_all("apply_ map_", "A function of operations on the whole Tensor, ops.where among them."),
    "inited_param": "A snncell.Parameter has its values from the start.",
    "param_info": "A snncell.Parameter tells its name, shape, dtype and requires_grad itself.",
    "key": "p.name, of a snncell.Parameter",
    **_all("unique sliced", "A snncell.Parameter is whole here, not a part of one on several machines."),
}
CELL = {
    **_all("parameters", "cell.trainable_params(), cell.get_parameters()"),
    **_all("named_parameters", "cell.parameters_and_names()"),
    "forward": "construct: an nn.Cell is called as it is, cell(x)",
    "train": "cell.set_train()",
    "eval": "cell.set_train(False)",
    **_all("modules named_modules", "cell.cells_and_names()"),
    **_all("children named_children", "cell.cells(), cell.name_cells()"),
    **_all("cuda npu", 'cell.to("gpu")'),
    "cpu": 'cell.to("cpu")',
    **_all("half bfloat16", "cell.to_float(snncell.float16), cell.to_float(snncell.bfloat16)"),
    **_all("float double type", "cell.to moves between devices; a Cell computes in few bits by cell.to_float(dtype)."),
    "zero_grad": _NO_TAPE,
    **_all("requires_grad_", "cell.set_grad()"),
    **_all("register_parameter", "cell.insert_param_to_cell(name, parameter)"),
    **_all("register_module add_module", "cell.insert_child_to_cell(name, child)"),
    **_all("register_full_backward_hook", "cell.register_backward_hook(hook)"),
    **_all("register_full_backward_pre_hook", "cell.register_backward_pre_hook(hook)"),
    "extra_repr": "cell.extend_repr",
    "step": "An optimiser is called with gradients: optimiser(gradients), of nn.Optimizer.",
    **_all("init_leaky init_synaptic init_alpha reset_mem reset reset_states reset_hidden zero_states", _NO_STATE),
    **_all("save", "snncell.save_checkpoint(cell, file)"),
    **_all("get_submodule get_parameter", "cell.get_sub_cell(path), cell.parameters_dict()"),
    **_all("summary", "snncell.explain(cell, x)"),
    **_all("share_memory shard set_comm_fusion set_boost set_data_parallel offload pipeline_stage", _ONE_PROCESS),
    **_all("init_params weight_init", "weight_init of nn.Dense and nn.Conv2d"),
}
# Arguments: what they are called here, in the order of likelihood.
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "lr": ("learning_rate",),
    "bias": ("has_bias",),
    "dim": ("axis", "axes", "dims"),
    "dims": ("axis", "axes"),
    "axis": ("axes", "dims", "axis0"),
    "dim0": ("axis0",),
    "dim1": ("axis1",),
    "keepdim": ("keepdims", "keep_dims"),
    "keepdims": ("keep_dims",),
    "keep_dims": ("keepdims",),
    "input": ("x", "inputs"),
    "other": ("y",),
    "logits": ("x",),
    "labels": ("target",),
    "target": ("labels",),
    "negative_slope": ("alpha",),
    "elementwise_affine": ("affine",),
    "min_value": ("min_val",),
    "max_value": ("max_val",),
    "num_parameters": ("channel",),
    "init": ("w",),
    "lengths": ("seq_length",),
    "hidden_channels": ("hidden_size",),
    "groups": ("group",),
    "a_min": ("min",),
    "a_max": ("max",),
    "size": ("shape",),
    "num_embeddings": ("vocab_size",),
    "embedding_dim": ("embedding_size",),
    "in_features": ("in_channels",),
    "out_features": ("out_channels",),
    "kernel": ("kernel_size",),
    "betas": ("beta1 and beta2",),
    "epoch": ("epochs",),
    "threshold": ("v_threshold",),
    "v_th": ("v_threshold",),
    "spike_grad": ("surrogate_function",),
    "surrogate": ("surrogate_function",),
    "loss_fn": ("loss",),
    "optimizer": ("optimiser",),
    "model": ("net", "cell"),
    "time_window": ("window",),
    "event_count": ("count",),
    "n_time_bins": ("n_bins",),
    "n_event_bins": ("count",),
    "include_incomplete": ("last",),
}
