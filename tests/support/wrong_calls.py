"""Invalid calls of the whole API: each argument of every public callable, replaced in turn by invalid values.

`python tests/support/wrong_calls.py` makes all of these calls in separate processes and prints a table of outcomes.
`--write` saves the table as `benchmarks/results/wrong-calls.md`, `--show foreign` lists the calls with one outcome, and
you can select callables by name. `test_wrong_calls.py` makes a sample of the calls.

Outcomes:
named     an error of snncell that names the callable and the argument
unnamed   an error of snncell that does not
foreign   an error of a lower-level library
taken     no error, because the value is valid for such an argument
nonsense  no error, although the value is invalid
crash     the process died; hang: no answer within the time limit
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import importlib
import inspect
import io
import json
import multiprocessing
import os
import random
import re
import signal
import sys
import tempfile
import traceback
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import event_files
import numpy as np

import snncell
from snncell import Parameter, Tensor, nn, ops, surrogate, train
from snncell.errors import SnncellError

FACES = (
    "snncell", "snncell.nn", "snncell.ops", "snncell.surrogate", "snncell.encode", "snncell.data", "snncell.train",
    "snncell.plot", "snncell.io", "snncell.testing", "snncell.monitoring", "snncell.common.initializer", "snncell.amp",
)  # fmt: skip
OWN_FACES = ("snncell.data", "snncell.common.initializer")  # what they have from elsewhere is for themselves
SECONDS = 20  # for one call
ROOM = 6 * 2**30  # bytes of address space that a call may take beyond those the process has

# --- replacement values -----------------------------------------------------------------------------------------------


class _Class:
    """A class in place of an object."""


WRONG: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "str": lambda: "a",
    "empty str": lambda: "",
    "numeral": lambda: "3",
    "long str": lambda: "x" * 100_000,
    "bytes": lambda: b"a",
    "object": object,
    "class": lambda: _Class,
    "np.ndarray": lambda: np.ndarray,
    "Cell class": lambda: nn.LIFNode,
    "function": lambda: lambda *args, **options: None,
    "module": lambda: types,
    "Ellipsis": lambda: ...,
    "True": lambda: True,
    "nan": lambda: float("nan"),
    "inf": lambda: float("inf"),
    "-inf": lambda: float("-inf"),
    "-1": lambda: -1,
    "0": lambda: 0,
    "1.5": lambda: 1.5,
    "2**40": lambda: 2**40,
    "-2**40": lambda: -(2**40),
    "2**70": lambda: 2**70,
    "-2**70": lambda: -(2**70),
    "10**400": lambda: 10**400,
    "10**5000": lambda: 10**5000,
    "complex": lambda: 1 + 2j,
    "[]": list,
    "()": tuple,
    "[1, 'a']": lambda: [1, "a"],
    "[None]": lambda: [None],
    "(0, 2**70)": lambda: (0, 2**70),
    "[1.5, nan]": lambda: [1.5, float("nan")],
    "ragged": lambda: [[1.0], [1.0, 2.0]],
    "{}": dict,
    "{'a': 1}": lambda: {"a": 1},
    "set": lambda: {1, 2},
    "generator": lambda: (i for i in (1, 2)),
    "Tensor of another shape": lambda: Tensor(np.ones((7, 5, 3), np.float32)),
    "empty Tensor": lambda: Tensor(np.ones((0,), np.float32)),
    "Tensor of no steps": lambda: Tensor(np.ones((0, 2, 3), np.float32)),
    "empty array": lambda: np.ones((0, 3)),
    "Tensor of integers": lambda: Tensor(np.ones((2, 3), np.int64)),
    "complex Tensor": lambda: Tensor(np.ones((2, 3), np.complex64)),
    "Tensor of booleans": lambda: Tensor(np.ones((2, 3), bool)),
    "Tensor of NaN": lambda: Tensor(np.full((2, 3), np.nan, np.float32)),
    "array of complex128": lambda: np.ones((2, 3), np.complex128),
    "array of str": lambda: np.array(["a", "b"]),
    "array of objects": lambda: np.array([None, 1], object),
    "Cell": lambda: nn.ReLU(),
}

JUNK = {
    "np.ndarray", "Cell class",
    "bytes", "object", "class", "module", "Ellipsis", "[1, 'a']", "[None]", "ragged", "set", "array of str",
    "array of objects",
}  # fmt: skip
TENSORS = {name for name in WRONG if "Tensor" in name}
REAL_TENSORS = TENSORS - {"Tensor of NaN", "empty Tensor", "complex Tensor"}
TEXT = {"str", "empty str", "numeral", "long str"}
WHOLE = {"-1", "0", "2**40", "-2**40"}
PAIR = {"(0, 2**70)"}
LARGE = {"2**70", "-2**70"}  # more than 64 bits have, and a float
ARRAYS = {"empty array", "array of complex128"}
HUGE = {"10**400", "10**5000"}
REAL = WHOLE | {"1.5", "nan", "inf", "-inf"}
LISTS = {"(0, 2**70)", "[]", "()", "[1, 'a']", "[None]", "[1.5, nan]", "ragged"}

# Valid replacement values by kind of argument; None is valid if it is the default.
SENSE: dict[str, set[str]] = {
    "number": WHOLE | {"1.5"} | LARGE,
    "whole": WHOLE,
    "flag": {"True"},
    "text": TEXT,
    "dtype": set(),
    "cell": {"Cell"},
    "function": {"function", "Cell"},
    "neuron maker": {"Cell class"},
    "loss": {"function", "Cell"},
    "numbers": REAL | LARGE | {"True", "complex", "[]", "()", "[1.5, nan]"} | TENSORS | ARRAYS,
    "constant": REAL_TENSORS - {"Tensor of booleans"} | WHOLE | LARGE | PAIR | {"1.5"},
    "reach": REAL_TENSORS | WHOLE | LARGE | PAIR | {"1.5", "inf", "-inf"},
    "axes": WHOLE | {"[]", "()"},
    "shape": WHOLE | {"[]", "()"},
    "range": PAIR,
    "init": WHOLE | LARGE | {"1.5", "function"} | TENSORS | ARRAYS,
    "indices": WHOLE | {"True", "[]", "()"} | TENSORS,
    "structure": set(WRONG),
    "path": TEXT | {"bytes"},
    "parameters": {"[]", "()"},
    "cells": {"Cell", "[]", "()"},
    "layers": {"Cell", "[]", "()", "{}"},
    "names": TEXT | {"[]", "()"},
    "mapping": {"{}", "{'a': 1}"},
    "operands": {"[]", "()", "[1.5, nan]", "ragged"} | TENSORS | ARRAYS,
    "choice": set(),
    "recording": set(),
    "generator": {"0"},
    "key": TEXT | REAL | LARGE | HUGE | {"True", "()"},
}

# --- valid values -----------------------------------------------------------------------------------------------------


def x23() -> Tensor:
    """A Tensor (2, 3)."""
    return Tensor(np.linspace(0.1, 0.9, 6, dtype=np.float32).reshape(2, 3))


def train43() -> Tensor:
    """Spikes (4, 2, 3)."""
    return Tensor((np.arange(24).reshape(4, 2, 3) % 3 == 0).astype(np.float32))


def images() -> Tensor:
    """Images (1, 2, 4, 4)."""
    return Tensor(np.linspace(0, 1, 32, dtype=np.float32).reshape(1, 2, 4, 4))


def parameters() -> list[Parameter]:
    """One Parameter."""
    return [Parameter(np.ones(3, np.float32), name="w")]


def recording() -> Any:
    """Three events."""
    return snncell.data.Events([0, 5, 9], [1, 0, 1], [0, 0, 2], [1, 0, 1], sensor_size=(2, 3, 2))


def labelled() -> tuple[Any, Any]:
    """Inputs and labels."""
    return np.ones((4, 3), np.float32), np.zeros(4, np.int64)


def optimiser(net: Any) -> nn.Optimizer:
    """An optimiser for a net."""
    return nn.SGD(net.trainable_params())


NET = nn.Dense(3, 2)
LOSS = nn.SequentialCell(NET, nn.Flatten(0))
SUMMED = nn.SequentialCell(nn.Dense(3, 2), nn.Flatten(0))


def spiking() -> nn.Cell:
    """A spiking network for sequences (T, B, 3)."""
    return nn.SequentialCell(nn.Dense(3, 2), nn.MultiStep(nn.IFNode()))


def steps() -> Tensor:
    """Two steps of two samples."""
    return ops.ones((2, 2, 3))


def saved(kind: str) -> str:
    """A saved file."""
    path = os.path.join(tempfile.mkdtemp(), kind)
    if kind == "state":
        train.save_state(path, NET, optimiser(NET))
    else:
        snncell.save_checkpoint(NET, path)
    return path


def recorded(name: str) -> str:
    """A file with one event in the folder layout of a dataset of this name; returns the folder, or the file for SHD."""
    folder = Path(tempfile.mkdtemp())
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".h5":
        event_files.write_shd(path, np.random.default_rng(0), [1])
        return str(path)
    columns = event_files.drawn(np.random.default_rng(0), 1)
    if path.suffix == ".aedat":
        event_files.write_aedat_2(path, columns)
    elif path.suffix == ".npz":
        np.savez(path, **columns)
    else:
        event_files.write_bin(path, columns)
    return str(folder if name != "a.bin" else path)


def searched() -> train.RateSearch:
    """A finished learning-rate search."""
    losses = np.array([2.0, 1.0, 3.0])
    return train.RateSearch(np.array([0.1, 1.0, 10.0]), losses, losses, 0.5, False)


# By argument name, or by callable and argument: the kind, and a valid value if the argument has no default.
ARGUMENTS: dict[str, tuple[str, Callable[[], Any]]] = {}


def entries(kind: str, value: Callable[[], Any], names: str) -> None:
    """Register arguments of one kind."""
    for name in names.split():
        ARGUMENTS[name] = (kind, value)


entries("number", lambda: 0.5, """
    a_minus a_plus adaptation adaptation_decay atol below beta1 beta2 clip_norm clip_value correct_rate dampening dead
    decay decay_rate dt end_learning_rate eps epsilon fade fps fraction gain incorrect_rate keep_prob
    label_smoothing limit lower max_lr max_norm maximum mean min_delta min_lr minimum momentum mse_target mse_weight
    negative_slope off_target offset on_target power refractory rtol saturated scale stddev strength
    target tau_mem tau_minus tau_plus tau_syn tolerance upper value w_max w_min weight_decay alpha silent threshold
    within width p sigma high low t_max """)  # fmt: skip
entries("whole", lambda: 2, """
    axis axis0 axis1 batch_size begin_norm_axis begin_params_axis bins calls checkpoint_every classes count ddof
    decay_steps depth dim embedding_size end_dim epochs every first_spike_time group groups ignore_index in_channels
    k m max_delay max_spikes most n neuron num_classes num_features order out_channel out_channels
    output_num padding_idx patience period pool_limit psth sample samples seed start_dim steps substeps units
    vocab_size warmup_steps neurons spikes """)  # fmt: skip
entries("flag", lambda: True, """
    affine bypass centered check_finite count_include_pad decay_input detach_reset detached drop_last fire get_all
    descending equal_nan largest replacement return_counts return_inverse as_tuple accumulate sorted
    get_by_list has_aux has_beta has_bias is_stair keep_dims keepdims linear nesterov normalise normalize off_spike
    progress requires_grad resume return_states reverse scale_input scale_reset sens_param shuffle straight_through
    strict_load time_first trained transpose_a transpose_b use_batch_statistics use_nesterov use_one_hot clip
    approximate """)  # fmt: skip
entries("choice", lambda: "mean", """
    bounds compare connect convention delay device_target how inverse mode match nonlinearity pad_mode pairing reduction
    reset subtracts best activation """)  # fmt: skip
entries("text", lambda: "a", "colour name title layer monitor equation key framework")
entries("dtype", lambda: snncell.float32, "dtype type")
entries("cell", lambda: nn.LIFNode(), "cell branch feedback shortcut net save_obj optimiser surrogate_function")
entries("function", lambda: lambda x: x, "f fn")
entries("loss", lambda: nn.CrossEntropyLoss(), "loss accuracy")
entries("numbers", x23, """
    x y v spikes_ data_ condition bias weight predicted labels images above above_ min max on_value off_value start
    stop step low_ high_ value_ indices logits outputs targets gradients default_input x_trace y_trace pre post
    count_ out rho s a c e i m u w ratios centres arrays dx input z g t """)  # fmt: skip
entries("constant", lambda: 0.5, """
    a0 b beta d bound c_ conduct current_gain delta_t gamma h height input_gain jump leak linear_decay omega rate slope
    tau tau_inv tau_w theta_rh v_c v_rest v_reset v_subreset v_threshold """)  # fmt: skip
entries("axes", lambda: 0, "axes dims shared_axes grad_position")
entries("shape", lambda: (2, 3), "shape normalized_shape kernel_size stride padding dilation output_padding pad reps")
entries("init", lambda: "zeros", """
    weight_init bias_init beta_init gamma_init delay_init embedding_table feedback_init init moving_mean_init
    moving_var_init recurrent_init """)  # fmt: skip
entries("structure", x23, "init_ xs inputs kwargs flags values states constants notes weights_ ax log records")
entries("path", lambda: os.path.join(tempfile.mkdtemp(), "file"), "file path ckpt_file_name checkpoint")
entries("parameters", parameters, "params parameters weights")
entries("cells", lambda: [nn.ReLU()], "cells firing_rate")
entries("mapping", dict, "parameter_dict expected")
entries("operands", lambda: [x23(), x23()], "tensors operands")
entries("numbers", x23, "A exponent end mat mat1 other source tensor1 tensor2 value_ values weight_ x2")
entries("numbers", lambda: None, "sorter")
entries("names", lambda: ["a", "b"], "names")
entries("names", lambda: (), "learnable")
entries("number", lambda: 8.0, "loss_scale")
entries("structure", labelled, "data test batch")
entries("recording", recording, "events")
entries("generator", lambda: np.random.default_rng(0), "rng")
entries("shape", lambda: 2, "target_size")

# Exceptions for single callables: `callable.argument`, or `callable()` for the arguments of a call of its instance.
OWN: dict[str, tuple[str, Callable[[], Any]]] = {
    "Identity().x": ("structure", x23),
    "SequentialCell.cells": ("layers", lambda: nn.ReLU()),
    "IzhikevichNode.dt": ("constant", lambda: 0.5),
    "IzhikevichNode.scale": ("constant", lambda: 1.0),
    "ResonateNode.dt": ("constant", lambda: 0.5),
    "RefractoryLIFNode.refractory": ("constant", lambda: 2.0),
    "WithSynapse.alpha": ("constant", lambda: 0.5),
    "Dense.activation": ("function", lambda: nn.ReLU()),
    "stop_gradient.x": ("structure", x23),
    "delta.padding": ("flag", lambda: True),
    "std.ddof": ("number", lambda: 0),
    "var.ddof": ("number", lambda: 0),
    "Fill().value": ("numbers", lambda: 0.5),
    "CellList.cells": ("cells", lambda: [nn.ReLU()]),
    "ParameterTuple.parameters": ("parameters", parameters),
    "Momentum.momentum": ("number", lambda: 0.5),
    "Threshold.value": ("number", lambda: 0.5),
    "Constant.value": ("number", lambda: 0.5),
    "full.value": ("numbers", lambda: 0.5),
    "fill.value": ("numbers", lambda: 0.5),
    "CosineDecayLR.min_lr": ("number", lambda: 0.1),
    "PiecewiseConstantLR.milestones": ("axes", lambda: [2, 4]),
    "PiecewiseConstantLR.learning_rates": ("axes", lambda: [0.1, 0.2, 0.3]),
    "Recurrent.feedback": ("cell", lambda: nn.Dense(3, 3)),
    "DelayedConv1d.kernel_size": ("whole", lambda: 3),
    "RecurrentDelay.feedback": ("cell", lambda: nn.DelayedDense(3, 3, 2)),
    "SEWBlock.branch": ("cell", lambda: nn.ReLU()),
    "SpikingSelfAttention.dim": ("whole", lambda: 8),
    "SpikformerBlock.dim": ("whole", lambda: 8),
    "SpikingSelfAttention.neuron": ("neuron maker", lambda: nn.LIFNode),
    "SpikformerBlock.neuron": ("neuron maker", lambda: nn.LIFNode),
    "SpikingSelfAttention().x": ("numbers", lambda: ops.ones((2, 1, 3, 8))),
    "SpikformerBlock().x": ("numbers", lambda: ops.ones((2, 1, 3, 8))),
    "TimeDistributed.cell": ("cell", lambda: nn.ReLU()),
    "PlasticDense.cell": ("cell", lambda: nn.LIFNode()),
    "PlasticDense.rule": ("cell", lambda: nn.STDP()),
    "Membrane.constants": ("mapping", lambda: {"k": 1.0}),
    "EventNeuron.constants": ("mapping", lambda: {"k": 1.0}),
    "Neuron.constants": ("mapping", lambda: {"k": 1.0}),
    "FeedbackDense.has_bias": ("flag", lambda: True),
    "scan.f": ("function", lambda: lambda c, x: (c, x)),
    "scan.init": ("structure", lambda: ops.zeros((3,))),
    "scan.xs": ("structure", x23),
    "associative_scan.fn": ("function", lambda: ops.add),
    "associative_scan.elements": ("structure", x23),
    "assign.variable": ("parameters", lambda: parameters()[0]),
    "assign_add.variable": ("parameters", lambda: parameters()[0]),
    "assign.value": ("numbers", lambda: ops.ones((3,))),
    "assign_add.value": ("numbers", lambda: ops.ones((3,))),
    "broadcast_to.shape": ("shape", lambda: (2, 3)),
    # Indices, masks and matrices for the operations of these names.
    "addmm.x": ("numbers", lambda: ops.ones((2, 2))),
    "addmm.mat2": ("numbers", lambda: ops.ones((3, 2))),
    "addmv.x": ("numbers", lambda: ops.ones((2,))),
    "addmv.vec": ("numbers", lambda: ops.ones((3,))),
    "mv.vec": ("numbers", lambda: ops.ones((3,))),
    "mm.mat2": ("numbers", lambda: ops.ones((3, 2))),
    "dot.other": ("numbers", lambda: ops.ones((3, 2))),
    "matrix_power.x": ("numbers", lambda: ops.ones((2, 2))),
    "matrix_power.n": ("whole", lambda: 2),
    "diff.n": ("whole", lambda: 1),
    "cummax.axis": ("whole", lambda: 0),
    "cummin.axis": ("whole", lambda: 0),
    "logcumsumexp.axis": ("whole", lambda: 0),
    "bitwise_not.x": ("numbers", lambda: Tensor([1, 2])),
    "cumprod.dim": ("whole", lambda: 0),
    "outer.x": ("numbers", lambda: ops.ones((2,))),
    "outer.vec2": ("numbers", lambda: ops.ones((3,))),
    "unfold.x": ("numbers", images),
    "fold.x": ("numbers", lambda: ops.ones((1, 8, 9))),
    "fold.output_size": ("shape", lambda: (4, 4)),
    "fold.kernel_size": ("shape", lambda: 2),
    "unfold.kernel_size": ("shape", lambda: 2),
    "diagonal.axis1": ("whole", lambda: 0),
    "diagonal.axis2": ("whole", lambda: 1),
    "diagonal.offset": ("whole", lambda: 0),
    "permute.axis": ("axes", lambda: (1, 0)),
    "narrow.axis": ("whole", lambda: 0),
    "narrow.start": ("whole", lambda: 0),
    "narrow.length": ("whole", lambda: 1),
    "moveaxis.source": ("axes", lambda: 0),
    "moveaxis.destination": ("axes", lambda: 1),
    "roll.shifts": ("axes", lambda: 1),
    "repeat_interleave.repeats": ("whole", lambda: 2),
    "chunk.chunks": ("whole", lambda: 2),
    "full_like.fill_value": ("numbers", lambda: 0.5),
    "depend.value": ("numbers", x23),
    "linspace.start": ("number", lambda: 0.0),
    "linspace.end": ("number", lambda: 1.0),
    "linspace.steps": ("whole", lambda: 3),
    "quantile.q": ("numbers", lambda: 0.5),
    "quantile.axis": ("whole", lambda: 0),
    "median.axis": ("whole", lambda: 0),
    "topk.k": ("whole", lambda: 1),
    "top_k.k": ("whole", lambda: 1),
    "argmax_with_value.axis": ("whole", lambda: 0),
    "rand.size": ("axes", lambda: (2, 3)),
    "randn.size": ("axes", lambda: (2, 3)),
    "expand.size": ("axes", lambda: (2, 3)),
    "multinomial.num_samples": ("whole", lambda: 2),
    "gather_elements.dim": ("whole", lambda: 0),
    "gather_elements.index": ("indices", lambda: Tensor([[0, 1, 0]])),
    "gather_nd.indices": ("indices", lambda: Tensor([[0, 1]])),
    "index_select.index": ("indices", lambda: Tensor([0, 1])),
    "index_fill.index": ("indices", lambda: Tensor([0, 1])),
    "scatter.index": ("indices", lambda: Tensor([[0, 1, 0]])),
    "scatter_add.index": ("indices", lambda: Tensor([[0, 1, 0]])),
    "scatter.src": ("numbers", lambda: 0.5),
    "scatter_add.src": ("numbers", lambda: 0.5),
    "scatter.axis": ("whole", lambda: 0),
    "scatter_add.axis": ("whole", lambda: 0),
    "index_select.axis": ("whole", lambda: 0),
    "index_fill.axis": ("whole", lambda: 0),
    "tensor_scatter_elements.indices": ("indices", lambda: Tensor([[0, 1, 0]])),
    "tensor_scatter_elements.updates": ("numbers", lambda: 0.5),
    "tensor_scatter_add.indices": ("indices", lambda: Tensor([[0, 1]])),
    "tensor_scatter_add.updates": ("numbers", lambda: 0.5),
    "tensor_scatter_elements.reduction": ("choice", lambda: "none"),
    "index_put.indices": ("operands", lambda: (Tensor([0]), Tensor([1]))),
    "index_put.values": ("numbers", lambda: 0.5),
    "masked_fill.mask": ("numbers", lambda: x23() > 0),
    "masked_scatter.mask": ("numbers", lambda: x23() > 0.5),
    "masked_select.mask": ("numbers", lambda: x23() > 0),
    "searchsorted.x": ("numbers", lambda: Tensor([0.0, 1.0])),
    "searchsorted.v": ("numbers", x23),
    "searchsorted.side": ("choice", lambda: "left"),
    "norm.ord": ("reach", lambda: 2.0),
    "clip_by_norm.norm_type": ("reach", lambda: 2.0),
    "clip_by_global_norm.norm_type": ("reach", lambda: 2.0),
    "masked_fill.value": ("numbers", lambda: 0.5),
    "index_fill.value": ("numbers", lambda: 0.5),
    "addcmul.value": ("numbers", lambda: 0.5),
    "addcdiv.value": ("numbers", lambda: 0.5),
    "norm.A": ("numbers", lambda: ops.ones((3,))),
    "norm.dim": ("axes", lambda: 0),
    "clip_by_value.x": ("structure", x23),
    "clip_by_value.clip_value_min": ("numbers", lambda: 0.0),
    "clip_by_value.clip_value_max": ("numbers", lambda: 1.0),
    "clip_by_norm.max_norm": ("number", lambda: 1.0),
    "clip_by_global_norm.x": ("operands", lambda: [x23(), x23()]),
    "clip_by_global_norm.use_norm": ("numbers", lambda: 1.0),
    "baddbmm.x": ("numbers", lambda: ops.ones((1, 2, 2))),
    "addbmm.x": ("numbers", lambda: ops.ones((2, 2))),
    "assign_sub.variable": ("parameters", lambda: parameters()[0]),
    "assign_sub.value": ("numbers", lambda: ops.ones((3,))),
    "meshgrid.inputs": ("numbers", lambda: ops.ones((3,))),
    "meshgrid.indexing": ("choice", lambda: "xy"),
    "logit.eps": ("number", lambda: 0.1),
    "sgn.x": ("numbers", x23),
    "tril.diagonal": ("whole", lambda: 0),
    "triu.diagonal": ("whole", lambda: 0),
    "diag.diagonal": ("whole", lambda: 0),
    "Dirac.groups": ("whole", lambda: 1),
    "addmm.beta": ("numbers", lambda: 1.0),
    "addmm.alpha": ("numbers", lambda: 1.0),
    "baddbmm.beta": ("numbers", lambda: 1.0),
    "baddbmm.alpha": ("numbers", lambda: 1.0),
    "addbmm.beta": ("numbers", lambda: 1.0),
    "addbmm.alpha": ("numbers", lambda: 1.0),
    "addmv.beta": ("numbers", lambda: 1.0),
    "addmv.alpha": ("numbers", lambda: 1.0),
    "baddbmm.batch1": ("numbers", lambda: ops.ones((1, 2, 3))),
    "baddbmm.batch2": ("numbers", lambda: ops.ones((1, 3, 2))),
    "addbmm.batch1": ("numbers", lambda: ops.ones((1, 2, 3))),
    "addbmm.batch2": ("numbers", lambda: ops.ones((1, 3, 2))),
    "bmm.x": ("numbers", lambda: ops.ones((1, 2, 3))),
    "bmm.y": ("numbers", lambda: ops.ones((1, 3, 2))),
    "matmul.y": ("numbers", lambda: ops.ones((3, 2))),
    "einsum.equation": ("text", lambda: "ij->j"),
    "einsum.operands": ("numbers", x23),
    "gather.indices": ("indices", lambda: Tensor([0, 1])),
    "one_hot.indices": ("indices", lambda: Tensor([0, 1])),
    "one_hot.depth": ("whole", lambda: 3),
    "expand_dims.axis": ("axes", lambda: 0),
    "squeeze.axis": ("axes", lambda: None),
    "Squeeze.axis": ("axes", lambda: ()),
    "gelu.approximate": ("choice", lambda: "tanh"),
    "reshape.shape": ("axes", lambda: (3, 2)),
    "transpose.axes": ("axes", lambda: (1, 0)),
    "split.split_size_or_sections": ("axes", lambda: 1),
    "pad.padding": ("axes", lambda: (1, 1)),
    "pad.value": ("numbers", lambda: 0.0),
    "swapaxes.axis1": ("whole", lambda: 1),
    "swapaxes.axis0": ("whole", lambda: 0),
    "cumsum.axis": ("whole", lambda: 0),
    "tile.reps": ("shape", lambda: (2, 1)),
    "arange.start": ("number", lambda: 3),
    "arange.stop": ("number", lambda: 3),
    "arange.step": ("number", lambda: 1),
    "randint.low": ("whole", lambda: 0),
    "randint.high": ("whole", lambda: 3),
    "uniform.low": ("numbers", lambda: 0.0),
    "uniform.high": ("numbers", lambda: 1.0),
    "normal.mean": ("numbers", lambda: 0.0),
    "normal.stddev": ("numbers", lambda: 1.0),
    "bernoulli.p": ("numbers", lambda: 0.5),
    "leaky_relu.alpha": ("numbers", lambda: 0.2),
    "clip.min": ("numbers", lambda: 0.0),
    "clamp.min": ("numbers", lambda: 0.0),
    "clip.max": ("numbers", lambda: 1.0),
    "select.condition": ("numbers", lambda: x23() > 0),
    "irfft.x": ("numbers", lambda: ops.rfft(x23())),
    "grad.fn": ("function", lambda: lambda x: x.sum()),
    "value_and_grad.fn": ("function", lambda: lambda x: x.sum()),
    "vjp.inputs": ("structure", x23),
    "jvp.inputs": ("structure", x23),
    "jvp.v": ("structure", x23),
    "get_grad.gradients": ("structure", lambda: (0, x23())),
    "get_grad.identifier": ("whole", lambda: 0),
    "recompute.block": ("function", lambda: ops.tanh),
    "recompute.args": ("structure", x23),
    "HookBackward.hook_fn": ("function", lambda: lambda gradients: None),
    "HookBackward().inputs": ("structure", x23),
    "HyperMap.ops": ("function", lambda: lambda x: x),
    "Map.ops": ("function", lambda: lambda x: x),
    "HyperMap().args": ("structure", lambda: [1, 2]),
    "Map().args": ("structure", lambda: [1, 2]),
    "set_device.device_target": ("choice", lambda: "CPU"),
    "set_device.device_id": ("whole", lambda: 0),
    "set_context.device_id": ("whole", lambda: 0),
    "set_context.pynative_synchronize": ("flag", lambda: True),
    "set_context.deterministic": ("choice", lambda: "ON"),
    "set_context.save_graphs": ("whole", lambda: 0),
    "set_deterministic.deterministic": ("flag", lambda: True),
    "ForwardValueAndGrad.network": ("function", lambda: lambda x: (x * x).sum()),
    "ForwardValueAndGrad().inputs": ("structure", x23),
    "GradAccumulationCell.network": ("cell", lambda: NET),
    "GradAccumulationCell.micro_size": ("whole", lambda: 2),
    "GradAccumulationCell().inputs": ("structure", x23),
    "ParameterUpdate.param": ("parameters", lambda: parameters()[0]),
    "ParameterUpdate().x": ("numbers", lambda: ops.ones((3,))),
    "TrainOneStepCell.network": ("cell", lambda: LOSS),
    "TrainOneStepCell.optimizer": ("cell", lambda: optimiser(NET)),
    "TrainOneStepCell().inputs": ("structure", lambda: x23()),
    "WithGradCell.network": ("cell", lambda: SUMMED),
    "WithGradCell().inputs": ("structure", x23),
    "WithLossCell.backbone": ("cell", lambda: NET),
    "WithLossCell.loss_fn": ("loss", lambda: nn.MSELoss()),
    "WithLossCell().data": ("numbers", x23),
    "WithLossCell().label": ("numbers", lambda: ops.ones((2, 2))),
    "WithEvalCell.network": ("cell", lambda: NET),
    "WithEvalCell.loss_fn": ("loss", lambda: nn.MSELoss()),
    "WithEvalCell().data": ("numbers", x23),
    "WithEvalCell().label": ("numbers", lambda: ops.ones((2, 2))),
    "Model.network": ("cell", lambda: NET),
    "Model.loss_fn": ("loss", lambda: nn.MSELoss()),
    "Model.optimizer": ("cell", lambda: optimiser(NET)),
    "explain.fn": ("function", lambda: lambda x: x),
    "explain.inputs": ("structure", x23),
    "profile.step": ("function", lambda: ops.exp),
    "profile.inputs": ("structure", x23),
    "profile.repeat": ("whole", lambda: 1),
    "jit.fn": ("function", lambda: lambda x: x),
    "get_context.key": ("choice", lambda: "mode"),
    "set_context.mode": ("whole", lambda: 1),
    "Range.low": ("constant", lambda: 0.0),
    "Range.high": ("constant", lambda: 1.0),
    "Range.text": ("text", lambda: "is so"),
    "decay_from_tau.tau": ("reach", lambda: 2.0),
    "decay_from_euler.tau": ("reach", lambda: 2.0),
    "FirstSpikeTime.silent": ("reach", lambda: 9.0),
    "first_spike_time.silent": ("reach", lambda: 9.0),
    "Threshold.threshold": ("reach", lambda: 0.5),
    "set_context.pool_limit": ("whole", lambda: 2**30),
    "set_context.check_finite": ("flag", lambda: False),
    "save_checkpoint.save_obj": ("cell", lambda: NET),
    "load_checkpoint.ckpt_file_name": ("path", lambda: saved("checkpoint")),
    "load_checkpoint.net": ("cell", lambda: NET),
    "load_param_into_net.net": ("cell", lambda: NET),
    "Cached.folder": ("path", tempfile.mkdtemp),
    "Cached.key": ("key", lambda: "a"),
    "read_events.path": ("path", lambda: recorded("a.bin")),
    "SHD.path": ("path", lambda: recorded("shd.h5")),
    "NMNIST.folder": ("path", lambda: recorded("3/a.bin")),
    "NCaltech101.folder": ("path", lambda: recorded("crab/a.bin")),
    "EventFolder.folder": ("path", lambda: recorded("crab/a.bin")),
    "CIFAR10DVS.folder": ("path", lambda: recorded("cat/a.aedat")),
    "ASLDVS.folder": ("path", lambda: recorded("a/a.mat")),
    "DVSGesture.folder": ("path", lambda: recorded("3/a.npz")),
    "find_learning_rate.net": ("cell", lambda: NET),
    "find_learning_rate.loss": ("loss", lambda: lambda y, target: (y * y).mean()),
    "find_learning_rate.optimiser": ("cell", lambda: optimiser(NET)),
    "find_learning_rate.lowest": ("number", lambda: 1e-6),
    "find_learning_rate.highest": ("number", lambda: 1.0),
    "find_learning_rate.steps": ("whole", lambda: 4),
    "find_learning_rate.smoothing": ("number", lambda: 0.5),
    "learning_rate_search.search": ("structure", searched),
    "RateSearch.rates": ("numbers", lambda: np.ones(3)),
    "RateSearch.losses": ("numbers", lambda: np.ones(3)),
    "RateSearch.smoothed": ("numbers", lambda: np.ones(3)),
    "RateSearch.suggestion": ("number", lambda: 0.5),
    "RateSearch.diverged": ("flag", lambda: True),
    "auto_mixed_precision.net": ("cell", lambda: nn.Dense(3, 2)),
    "auto_mixed_precision.amp_level": ("choice", lambda: "O1"),
    "auto_mixed_precision.dtype": ("dtype", lambda: snncell.float16),
    "StaticLossScaler.scale_value": ("number", lambda: 8.0),
    "DynamicLossScaler.scale_value": ("number", lambda: 8.0),
    "LossScaler.scale_value": ("number", lambda: 8.0),
    "DynamicLossScaler.scale_factor": ("number", lambda: 2.0),
    "DynamicLossScaler.scale_window": ("whole", lambda: 2),
    "all_finite.inputs": ("numbers", x23),
    "step_if.finite": ("numbers", lambda: Tensor(True)),
    "step_if.optimiser": ("cell", lambda: optimiser(NET)),
    "step_if.gradients": ("numbers", lambda: [ops.zeros_like(p) for p in NET.trainable_params()]),
    "check_bprop.cell": ("cell", lambda: surrogate.ATan()),
    "check_bprop.inputs": ("numbers", x23),
    "check_grads.fn": ("function", lambda: lambda x: (x * x).sum()),
    "check_grads.inputs": ("numbers", x23),
    "check_grads.order": ("whole", lambda: 1),
    "check_through_time.net": ("function", lambda: nn.MultiStep(nn.LIFNode(surrogate_function=surrogate.ATan()))),
    "check_through_time.inputs": ("numbers", lambda: train43() * 0.5),
    "Scaled.surrogate_function": ("cell", lambda: surrogate.ATan()),
    "Inclusive.surrogate_function": ("cell", lambda: surrogate.ATan()),
    "Scaled.scale": ("constant", lambda: 1.0),
    "delayed_match.delay": ("whole", lambda: 2),
    "cue_accumulation.delay": ("whole", lambda: 2),
    "EventCamera().film": ("numbers", lambda: np.ones((2, 2, 3))),
    "EventCamera().times": ("whole", lambda: 1000),
    "randman.steps": ("whole", lambda: 10),
    "randman.samples": ("whole", lambda: 2),
    "randman.classes": ("whole", lambda: 2),
    "randman.units": ("whole", lambda: 3),
    "batches.arrays": ("numbers", lambda: np.ones((4, 3), np.float32)),
    "Batches.arrays": ("numbers", lambda: np.ones((4, 3), np.float32)),
    "phase.steps": ("whole", lambda: 8),
    "latency.steps": ("whole", lambda: 8),
    "population.neurons": ("whole", lambda: 3),
    "population.width": ("number", lambda: 0.5),
    "delta.x": ("numbers", train43),
    "firing_rate.spikes": ("numbers", train43),
    "spike_count.spikes": ("numbers", train43),
    "first_spike_time.spikes": ("numbers", train43),
    "population_vector.spikes": ("numbers", train43),
    "population_vector.centres": ("numbers", lambda: [0.0, 0.5, 1.0]),
    "last_membrane.v": ("numbers", train43),
    "mean_membrane.v": ("numbers", train43),
    "max_membrane.v": ("numbers", train43),
    "lif.tau": ("number", lambda: 10.0),
    "lif.v_threshold": ("number", lambda: 1.0),
    "latency.tau": ("number", lambda: 1.0),
    "EProp.v_threshold": ("number", lambda: 1.0),
    "OTTTDense.v_threshold": ("number", lambda: 1.0),
    "EventPropLIF.v_threshold": ("number", lambda: 1.0),
    "ThresholdBatchNorm.v_threshold": ("number", lambda: 1.0),
    "Readout.tau": ("number", lambda: 2.0),
    "VanRossumLoss.tau": ("number", lambda: 2.0),
    "EMA.decay": ("number", lambda: 0.5),
    "metric.name": ("choice", lambda: "top5"),
    "Checkpoint.file": ("path", lambda: "a.ckpt"),
    "Checkpoint.best": ("text", lambda: "loss"),
    "TensorBoard.folder": ("path", lambda: "runs"),
    "Monitored.of": ("function", lambda: lambda monitor: 0.5),
    "confusion.output": ("numbers", x23),
    "confusion.labels": ("indices", lambda: Tensor([0, 1])),
    "fit.resume": ("path", lambda: False),
    "fit.net": ("cell", lambda: NET),
    "fit.epochs": ("whole", lambda: 1),
    "fit.optimiser": ("cell", lambda: optimiser(NET)),
    "evaluate.net": ("cell", lambda: NET),
    "measure.net": ("cell", lambda: NET),
    "training_step.net": ("cell", lambda: NET),
    "training_step.clip": ("function", lambda: lambda gradients: gradients),
    "training_step.optimiser": ("cell", lambda: optimiser(NET)),
    "save_state.net": ("cell", lambda: NET),
    "save_state.optimiser": ("cell", lambda: optimiser(NET)),
    "save_state.arrays": ("mapping", dict),
    "save_state.notes": ("mapping", dict),
    "load_state.file": ("path", lambda: saved("state")),
    "load_state.net": ("cell", lambda: NET),
    "load_state.optimiser": ("cell", lambda: optimiser(NET)),
    "accuracy.output": ("numbers", x23),
    "accuracy.labels": ("numbers", lambda: Tensor([0, 1])),
    "clip_by_global_norm.gradients": ("operands", lambda: [x23()]),
    "clip_by_value.gradients": ("operands", lambda: [x23()]),
    "bump_weights.layer": ("cell", lambda: nn.EventPropLIF(3, 2)),
    "bump_weights.found": ("numbers", lambda: ops.ones((1, 2, 1))),
    "bump_weights.amount": ("number", lambda: 0.5),
    "Spikes.cells": ("cells", lambda: [nn.LIFNode()]),
    "HeNormal.mode": ("choice", lambda: "fan_in"),
    "HeUniform.mode": ("choice", lambda: "fan_in"),
    "initializer.init": ("init", lambda: "ones"),
    "Cell.flags": ("structure", lambda: 1),
    "conv1d.x": ("numbers", lambda: ops.ones((1, 2, 4))),
    "conv1d.weight": ("numbers", lambda: ops.ones((3, 2, 2))),
    "conv2d.weight": ("numbers", lambda: ops.ones((3, 2, 2, 2))),
    "conv.weight": ("numbers", lambda: ops.ones((3, 2, 2, 2))),
    "conv_transpose2d.weight": ("numbers", lambda: ops.ones((2, 3, 2, 2))),
    "animate.spikes": ("numbers", train43),
    "animate.shape": ("shape", lambda: (1, 3)),
    "raster.spikes": ("numbers", train43),
    "raster.classes": ("numbers", lambda: None),
    "psth.spikes": ("numbers", train43),
    "psth.classes": ("numbers", lambda: None),
    "psth.width": ("whole", lambda: 1),
    "membrane.v": ("numbers", train43),
    "membrane.spikes": ("numbers", lambda: None),
    "membrane.labels": ("names", lambda: None),
    "membrane.neurons": ("axes", lambda: None),
    "firing_rates.spikes": ("numbers", train43),
    "dead_and_saturated.spikes": ("numbers", train43),
    "gradient_flow.gradients": ("numbers", lambda: {"a": np.ones(4), "b": np.ones(4)}),
    "gradient_norms.gradients": ("numbers", lambda: {"a": np.ones(4), "b": np.ones(4)}),
    "gradient_to_weight.ratios": ("mapping", lambda: {"a": 0.1}),
    "gradient_to_weight.band": ("axes", lambda: (1e-4, 1e-2)),
    "weight_histograms.net": ("cell", lambda: NET),
    "weight_histograms.before": ("structure", lambda: None),
    "update_ratios.before": ("mapping", lambda: {"w": np.ones(3)}),
    "update_ratios.after": ("mapping", lambda: {"w": np.ones(3) * 2}),
    "surrogate.surrogates": ("cells", lambda: [surrogate.ATan()]),
    "surrogate.range": ("range", lambda: (-2.0, 2.0)),
    "surrogate_and_membrane.above": ("numbers", train43),
    "share_outside.above": ("numbers", train43),
    "share_outside.surrogate_function": ("cell", lambda: surrogate.ATan()),
    "spike_time_differences.a": ("numbers", train43),
    "spike_time_differences.b": ("numbers", train43),
    "spike_time_differences.labels": ("names", lambda: ("a", "b")),
    "training_curves.log": ("structure", lambda: [{"epoch": 1, "loss": 1.0}, {"epoch": 2, "loss": 0.5}]),
    "confusion_matrix.predicted": ("numbers", lambda: [0, 1]),
    "confusion_matrix.labels": ("numbers", lambda: [0, 1]),
    "report.net": ("cell", lambda: nn.SequentialCell(nn.Dense(3, 2), nn.MultiStep(nn.LIFNode()))),
    "report.batch": ("structure", lambda: (train43(), Tensor([0, 1]))),
    "steps_from_seconds.tau": ("constant", lambda: 0.02),
    "steps_from_seconds.dt": ("number", lambda: 1e-3),
    "decay_from_rate.tau_inv": ("constant", lambda: 100.0),
    "decay_from_rate.dt": ("number", lambda: 1e-3),
    "decay_from_lava.decay": ("constant", lambda: 100),
    "euler_from_decay.decay": ("constant", lambda: 0.5),
    "tau_from_decay.decay": ("constant", lambda: 0.5),
    "Embedding().indices": ("indices", lambda: Tensor([0, 1])),
    "Conv1d().x": ("numbers", lambda: ops.ones((1, 2, 4))),
    "MSETemporalLoss().targets": ("numbers", lambda: Tensor([0, 1])),
    "MSEMembraneLoss().targets": ("numbers", lambda: Tensor([0, 1])),
    "VanRossumLoss().targets": ("numbers", train43),
    "VanRossumLoss().outputs": ("numbers", train43),
    "Monitor.cell": ("cell", lambda: nn.LIFNode()),
    "Monitor.neurons": ("structure", lambda: None),
    "energy_by_layer.energy": ("recording", lambda: snncell.monitoring.energy(spiking(), steps())),
    "energy_by_layer.beside": ("choice", lambda: "dense"),
    "Subset.dataset": ("structure", lambda: [1, 2, 3]),
    "Subset.indices": ("shape", lambda: [0]),
    "random_split.dataset": ("structure", lambda: [1, 2, 3]),
    "random_split.lengths": ("shape", lambda: [0.5, 0.5]),
    "padded.sequences": ("operands", lambda: [np.ones((3, 2), np.float32), np.ones((4, 2), np.float32)]),
    "NeuNorm.height": ("whole", lambda: 2),
    "NeuNorm.width": ("whole", lambda: 3),
    "TemporalEffectiveBatchNorm().x": ("numbers", lambda: ops.normal((2, 3, 2))),
    "NeuNorm().x": ("numbers", lambda: ops.ones((1, 2, 2, 3))),
    "TCLIFNode().d": ("numbers", x23),
    "ConvLSTMCell().x": ("numbers", lambda: ops.ones((1, 2, 4, 3))),
    "ConvLSTMCell().h": ("numbers", lambda: ops.ones((1, 2, 4, 3))),
    "ConvLSTMCell().c": ("numbers", lambda: ops.ones((1, 2, 4, 3))),
    "NeuNorm().state": ("numbers", lambda: ops.zeros((1, 1, 2, 3))),
    "sequence_mask.lengths": ("indices", lambda: [1, 2]),
    "like.framework": ("text", lambda: "snntorch"),
    "EventDense.neuron": ("cell", lambda: nn.EventLIF()),
    "EventDense.step": ("number", lambda: 0.5),
    "EventDense.t_max": ("number", lambda: 9.0),
    "WithSynapse.neuron": ("cell", lambda: nn.LIFNode()),
    "Assign().variable": ("parameters", lambda: parameters()[0]),
    "Assign().value": ("numbers", lambda: ops.ones((3,))),
    "CumSum().axis": ("whole", lambda: 0),
    "Transpose().axes": ("axes", lambda: (1, 0)),
    "Reshape().shape": ("axes", lambda: (3, 2)),
    "Gather().indices": ("indices", lambda: Tensor([0, 1])),
    "OneHot().indices": ("indices", lambda: Tensor([0, 1])),
    "OneHot().depth": ("whole", lambda: 3),
    "MatMul().y": ("numbers", lambda: ops.ones((3, 2))),
    "MatMul().x": ("numbers", lambda: ops.ones((3, 3))),
    "BatchMatMul().y": ("numbers", lambda: ops.ones((1, 3, 2))),
    "BatchMatMul().x": ("numbers", lambda: ops.ones((1, 2, 3))),
    "Conv2D().x": ("numbers", images),
    "Conv2D().weight": ("numbers", lambda: ops.ones((2, 2, 2, 2))),
    "Dropout2D().x": ("numbers", images),
    "Pow().y": ("numbers", x23),
    "EventDense().times": ("numbers", lambda: Tensor(np.full((1, 3, 1), 2.0, np.float32))),
    "EventPropLIF().times": ("numbers", lambda: Tensor(np.full((1, 3, 1), 2.0, np.float32))),
    "SmoothSpikeCount().times": ("numbers", lambda: Tensor(np.full((1, 3, 1), 2.0, np.float32))),
    "OTTTDense().x": ("numbers", x23),
    "STDP().weight": ("numbers", lambda: ops.ones((3, 3)) * 0.5),
    "PlasticDense().x": ("numbers", x23),
    "PlasticDense().states": ("structure", lambda: ops.zeros((2, 2))),
    "PlasticDense().weight": ("numbers", lambda: ops.ones((2, 3)) * 0.5),
    "PlasticDense().x_trace": ("numbers", lambda: ops.zeros((2, 3))),
    "PlasticDense().y_trace": ("numbers", lambda: ops.zeros((2, 2))),
    "Online().x": ("numbers", x23),
    "Online().states": ("structure", x23),
    "Recurrent().x": ("numbers", x23),
    "Recurrent().out": ("numbers", x23),
    "Recurrent().states": ("structure", x23),
    "DelayedConv1d().x": ("numbers", lambda: ops.ones((4, 2, 3, 5))),
    "RecurrentDelay().x": ("numbers", x23),
    "RecurrentDelay().pending": ("numbers", lambda: ops.zeros((2, 3, 3))),
    "RecurrentDelay().states": ("structure", x23),
    "RecurrentDelay.init_state().x": ("numbers", x23),
    "WithSynapse().states": ("structure", x23),
    "Truncated().x": ("numbers", x23),
    "Truncated().count": ("numbers", lambda: Tensor(0)),
    "Truncated().states": ("structure", x23),
    "latency.convention": ("choice", lambda: "snntorch"),
    "OTTTDense().a": ("numbers", lambda: ops.zeros((2, 3))),
    "OTTTDense().v": ("numbers", lambda: ops.zeros((2, 2))),
    "OTTTDense().c": ("numbers", lambda: ops.zeros((2, 2))),
}  # fmt: skip


def own(kind: str, value: Callable[[], Any], callables: str, arguments: str) -> None:
    """Register arguments that several callables have."""
    for one in callables.split():
        for argument in arguments.split():
            OWN[f"{one}.{argument}"] = (kind, value)


own("numbers", images, "conv2d conv conv_transpose2d avg_pool2d max_pool2d sum_pool2d dropout2d", "x")
own("numbers", images, "Conv2d() Conv2dTranspose() MaxPool2d() AvgPool2d() SumPool2d() BatchNorm2d() Dropout2d()", "x")
own("numbers", lambda: ops.ones((1, 2, 4)), "avg_pool1d max_pool1d sum_pool1d Conv1d()", "x")
own("shape", lambda: 2, "avg_pool1d max_pool1d sum_pool1d avg_pool2d max_pool2d sum_pool2d", "kernel_size")
own("shape", lambda: 2, "Conv1d Conv2d Conv2dTranspose Conv2D", "kernel_size")
own(
    "numbers",
    lambda: Tensor([[True, False, True]] * 2),
    "logical_and logical_or logical_xor logical_not all any",
    "x y",
)
own("numbers", lambda: Tensor([1, 2]), "bitwise_and bitwise_or bitwise_xor", "x y")
own("flag", lambda: True, "Monitor", "spikes v above grad inputs")
own("cell", lambda: spiking(), "energy synops", "net")
own("structure", lambda: steps(), "energy synops", "inputs")
own("text", lambda: "45nm", "energy", "hardware baseline")
own("flag", lambda: True, "energy", "reuse")
own("text", lambda: "mine", "Hardware", "name source")
own("number", lambda: 0.5, "Hardware", """
    mac ac multiplication addition update weight_bytes state_bytes value_bytes event_bytes""")  # fmt: skip
own("structure", lambda: ((8192, 1.25),), "Hardware", "memories")
own("constant", lambda: 2.0, "LIFNode KLIFNode CLIFNode EIFNode QIFNode AdExNode SynapseFilter", "tau")
own("constant", lambda: 0.5, """
    ALIFNode AlphaNode CubaLIFNode GLIFNode IzhikevichNode ResonateNode AdExNode AdaptiveQIFNode KLIFNode
    """, "a b c d k alpha beta gamma rho")  # fmt: skip
own(
    "number",
    lambda: 0.1,
    """
    SGD Momentum Adam AdamW AdaMax RMSProp Optimizer ExponentialDecayLR PolynomialDecayLR WarmUpLR""",
    "learning_rate",
)
own(
    "constant",
    lambda: 1.0,
    " ".join(surrogate.__all__),
    """
    alpha beta sigma width height k leak scale slope rate bound w c h s""",
)
own("numbers", lambda: ops.ones((4, 2, 2)), """
    MSERateLoss() MSECountLoss() CERateLoss() CECountLoss() CEMaxMembraneLoss() CETemporalLoss() TETLoss()
    MSEMembraneLoss() MSETemporalLoss()""", "outputs")  # fmt: skip
own("indices", lambda: Tensor([0, 1]), """
    MSERateLoss() MSECountLoss() CERateLoss() CECountLoss() CEMaxMembraneLoss() CETemporalLoss() TETLoss()
    CrossEntropyLoss() FirstSpikeLoss()""", "labels")  # fmt: skip
own("numbers", lambda: Tensor([0, 1]), "MSEMembraneLoss() MSETemporalLoss()", "targets")
own("numbers", train43, "VanRossumLoss()", "outputs targets")
own("numbers", train43, """
    MultiStep() Stateful() TimeDistributed() BatchNormThroughTime() ThresholdBatchNorm() Readout() FirstSpikeTime()
    SpikeTimes() SynapseFilter() AxonalDelay() TimeFixedDropout() PSN() EProp() SEWBlock() L1RateSparsity()
    DelayedDense() LRU() SilenceRegulariser() SparsityRegulariser() TargetRateRegulariser() CountBoundRegulariser()
    """, "x spikes outputs")  # fmt: skip
own("operands", lambda: [ops.ones((3,))], "SGD() Momentum() Adam() AdamW() AdaMax() RMSProp()", "gradients")
own(
    "numbers",
    lambda: Tensor(3.0),
    """
    CosineDecayLR() ExponentialDecayLR() PiecewiseConstantLR() PolynomialDecayLR() WarmUpLR()""",
    "step",
)

own("numbers", lambda: ops.ones((1, 4, 2, 2)), """
    AdaptiveAvgPool2d() AdaptiveMaxPool2d() ConstantPad2d() GroupNorm() InstanceNorm2d() PixelShuffle() PixelUnshuffle()
    ReflectionPad2d() ReplicationPad2d() ZeroPad2d() adaptive_avg_pool2d adaptive_max_pool2d pixel_shuffle
    pixel_unshuffle""", "x")  # fmt: skip
own("numbers", lambda: ops.ones((2, 3, 4)), """
    AvgPool1d() MaxPool1d() ConstantPad1d() InstanceNorm1d() ReflectionPad1d() ReplicationPad1d() Upsample()
    interpolate RNN() GRU() LSTM()""", "x")  # fmt: skip
own("numbers", lambda: ops.ones((2, 4)), "GLU() glu Unflatten() prelu", "x")
own("shape", lambda: 1, """
    AdaptiveAvgPool2d AdaptiveMaxPool2d adaptive_avg_pool2d adaptive_max_pool2d""", "output_size")  # fmt: skip
own("shape", lambda: 1, """
    ConstantPad1d ConstantPad2d ReflectionPad1d ReflectionPad2d ReplicationPad1d ReplicationPad2d ZeroPad2d
    """, "padding")  # fmt: skip
own("reach", lambda: 0.5, "ConstantPad1d ConstantPad2d", "value")
own("shape", lambda: ((0, 0), (1, 1)), "Pad", "paddings")
own("whole", lambda: 1, "Unflatten", "axis")
own("shape", lambda: (2, 2), "Unflatten", "unflattened_size")
own("numbers", lambda: 0.5, "prelu PReLU elu", "weight w alpha")
own("numbers", lambda: ops.ones((2, 3)) * 0.5, """
    binary_cross_entropy binary_cross_entropy_with_logits gaussian_nll_loss hinge_embedding_loss huber_loss kl_div
    l1_loss mse_loss poisson_nll_loss smooth_l1_loss soft_margin_loss margin_ranking_loss MarginRankingLoss()
    cosine_embedding_loss CosineEmbeddingLoss()""", "x target input1 input2 var")  # fmt: skip
own("numbers", lambda: ops.ones((2,)), "cosine_embedding_loss CosineEmbeddingLoss()", "target")
own("indices", lambda: Tensor([0, 1]), "cross_entropy nll_loss NLLLoss()", "target labels")
own("numbers", lambda: ops.ones((2, 3)), "RNNCell() GRUCell() LSTMCell() BiDense() Bilinear()", "x x1 x2")
own("numbers", lambda: ops.ones((2, 5)), "RNNCell() GRUCell()", "hx")
own("structure", lambda: (ops.ones((2, 5)), ops.ones((2, 5))), "LSTMCell()", "hx")

own("whole", lambda: 2, "RefractoryPeriod", "delta")
own("whole", lambda: 2, "ToTimesurface", "dt")
own("whole", lambda: 0, "CropTime", "min max")
own("number", lambda: 0.5, "TimeSkew", "coefficient offset")
own("shape", lambda: 2, "CenterCrop", "size")
own("structure", lambda: [0, 1], "Events", "t x y p")
own("structure", lambda: (2, 3, 2), "Events", "sensor_size")
own("cells", lambda: [snncell.data.TimeAlignment()], "Compose", "transforms")

# Arguments that make an instance callable where the defaults do not.
MADE: dict[str, dict[str, Any]] = {
    "Dense": {"in_channels": 3},
    "HyperMap": {"ops": abs},
    "Map": {"ops": abs},
    "Conv2dTranspose": {"in_channels": 2},
    "FeedbackDense": {"in_channels": 3},
    "EProp": {"in_channels": 3},
    "OTTTDense": {"in_channels": 3},
    "PlasticDense": {"in_channels": 3},
    "EventDense": {"in_channels": 3, "weight_init": "zeros"},
    "EventPropLIF": {"in_channels": 3},
    "BatchNorm1d": {"num_features": 3},
    "ThresholdBatchNorm": {"num_features": 3},
    "BatchNormThroughTime": {"num_features": 3, "steps": 4},
    "LayerNorm": {"normalized_shape": 3},
    "AxonalDelay": {"num_features": 3},
    "DelayedConv1d": {"in_channels": 3},
    "DelayedDense": {"in_channels": 3},
    "LRU": {"in_channels": 3},
    "SparseDense": {"in_channels": 3, "density": 0.5},
    "PSN": {"steps": 4, "order": None},
    "MaxPool2d": {},
    "SumPool2d": {},
    "Linear": {"in_features": 3},
    "BiDense": {"in1_channels": 3, "in2_channels": 3},
    "Bilinear": {"in1_features": 3, "in2_features": 3},
    **{name: {"input_size": 4} for name in ("RNN", "GRU", "LSTM")},
    **{name: {"input_size": 3, "hidden_size": 5} for name in ("RNNCell", "GRUCell", "LSTMCell")},
    "GroupNorm": {"num_groups": 2, "num_channels": 4},
    "InstanceNorm1d": {"num_features": 3},
    "InstanceNorm2d": {"num_features": 4},
    "Pad": {"paddings": ((0, 0), (1, 1))},
    "Upsample": {"size": 2},
    "ToFrame": {"n_bins": 2},
    "ToEventLists": {"n_bins": 2},
    "DropPixel": {"coordinates": [(0, 0)]},
}
# Valid values for arguments whose default alone is not sufficient.
WITH: dict[str, dict[str, Callable[[], Any]]] = {
    "Tensor": {"data": lambda: [1.0, 2.0]},
    "latency": {"steps": lambda: 8},
    **{name: {"size": lambda: 2} for name in ("Upsample", "interpolate")},
    "clip": {"min": lambda: 0.0},
    "clamp": {"min": lambda: 0.0},
    "EventDense": {"weight_init": lambda: "zeros"},
    "SparseDense": {"density": lambda: 0.5},
    "Dirac()": {"shape": lambda: (2, 2, 3)},
    "clip_by_value": {"clip_value_min": lambda: 0.0},
    "to_frames": {"n_bins": lambda: 2},
    "to_event_lists": {"n_bins": lambda: 2},
    "ToEventLists": {"n_bins": lambda: 2},
    "Sliced": {"steps": lambda: 2},
    "randman": {"classes": lambda: 2, "units": lambda: 3, "samples": lambda: 2},
    "ToFrame": {"n_bins": lambda: 2},
    "DropPixel": {"coordinates": lambda: [(0, 0)]},
    "membrane": {"sample": lambda: 0},
    "confusion_matrix": {"labels": lambda: [0, 1]},
    "raster": {"sample": lambda: 0},
    "gradient_to_weight": {"ratios": lambda: {"a": np.ones(3)}},
    "surrogate_and_membrane": {"surrogate_function": lambda: surrogate.ATan()},
}
# Objects that users receive instead of creating, and callables that report missing arguments in their own way.
LEFT_OUT = {
    "ParameterGroup", "ParameterGroup()",
    "Row", "Checked", "Cost", "Energy", "LayerEnergy", "Work", "Counts",
    "Finding", "Report", "Result", "Training", "RunContext", "RunParameters", "Facts",
    "WithLossCell()", "WithEvalCell()", "WithGradCell()", "TrainOneStepCell()", "ForwardValueAndGrad()",
    "HyperMap()", "Map()",  # these call what they are given with the arguments as they are
    "compare_reverse", "smooth", "unfused",
    "LearningRateSchedule", "CellList()", "CellDict()", "Initializer", "Log", "settings", "DType", "fans", "Array",
    "HOST", "EventNeuron()", "EventLI()", "EventLIF()", "EventALIF()", "EventQIF()",  # raise if called
}  # fmt: skip
# An error message identifies a callable by one of these words.
ALSO = {"Parameter": "Tensor", "fill": "full", "value_and_grad": "grad", "cast": "astype"}


class Subject(NamedTuple):
    """A callable under test."""

    name: str  # "Dense", "Dense()" for a call of an instance
    words: tuple[str, ...]  # one of these names it in a message
    make: Callable[[], Callable[..., Any]]
    signature: inspect.Signature
    owner: str


def public() -> dict[str, Any]:
    """The public callables by name; a name that occurs in two modules gets the module as prefix."""
    found: dict[str, Any] = {}
    seen: set[int] = set()
    modules = [importlib.import_module(face) for face in FACES]
    for module in modules:
        for name in getattr(module, "__all__", dir(module)):
            one = getattr(module, name)
            home = str(getattr(one, "__module__", None) or "snncell")
            ours = home.startswith("snncell") and not home.startswith("snncell.base.arguments")
            error = isinstance(one, type) and issubclass(one, Exception)
            record = isinstance(one, type) and issubclass(one, tuple) and hasattr(one, "_fields")  # handed out
            lent = module.__name__ in OWN_FACES and not home.startswith(module.__name__)
            if name.startswith("_") or not callable(one) or not ours or error or record or lent:
                continue
            if name in LEFT_OUT or id(one) in seen:
                continue
            seen.add(id(one))
            found[f"{module.__name__.rpartition('.')[2]}.{name}" if name in found else name] = one
    return found


def subjects() -> Iterator[Subject]:
    """All callables under test: functions, classes, and instances of classes."""
    for name, one in public().items():
        plain = name.rpartition(".")[2]
        kin = getattr(getattr(one, "function", None), "__name__", None)  # `ops.max` is what ReduceMax is
        named = (plain, getattr(one, "__name__", None), getattr(one, "name", None), ALSO.get(plain), kin)
        words = tuple(word for word in named if isinstance(word, str))
        yield Subject(name, words, lambda one=one: one, inspect.signature(one), plain)
        if inspect.isfunction(method := getattr(one, "init_state", None)):
            kept = inspect.Signature(list(inspect.signature(method).parameters.values())[1:])
            make = lambda one=one, plain=plain: made(one, plain).init_state  # noqa: E731 (it is bound as it is now)
            yield Subject(f"{name}.init_state()", words, make, kept, f"{plain}.init_state()")
        called = instance_call(one)
        if called is not None and f"{name}()" not in LEFT_OUT:
            yield Subject(f"{name}()", words, lambda one=one, plain=plain: made(one, plain), called, f"{plain}()")


def instance_call(one: Any) -> inspect.Signature | None:
    """The arguments of calling an instance, without self; None if it is not a class or not callable."""
    if not isinstance(one, type) or one.__module__.startswith("snncell.plot"):
        return None
    call = getattr(one, "construct", None) or vars(one).get("__call__") or getattr(one, "__call__", None)  # noqa: B004
    function = getattr(one, "function", None)
    if function is not None and "__call__" not in vars(one):
        given = set(inspect.signature(one).parameters) | {"keepdims"}
        kept = [p for p in inspect.signature(function).parameters.values() if p.name not in given]
        return inspect.Signature(kept)
    if not inspect.isfunction(call) or one.__name__ in ("Cell", "Neuron", "Membrane", "Surrogate", "Optimizer"):
        return None
    return inspect.Signature(list(inspect.signature(call).parameters.values())[1:])


def entry_for(owner: str, name: str, annotation: Any = None) -> tuple[str, Callable[[], Any]]:
    """The kind of an argument and a valid value for it; for unregistered arguments taken from the annotation."""
    if found := OWN.get(f"{owner}.{name}") or ARGUMENTS.get(name):
        return found
    words = str(annotation).removesuffix(" | None")
    kinds = {"int": "whole", "Count": "whole", "Size": "whole", "bool": "flag", "str": "choice", "Cell": "cell"}
    kinds |= dict.fromkeys(("float", "Positive", "NotNegative", "Probability", "ExtendedReal", "Share"), "number")
    kind = kinds.get(words, "function" if words.startswith("Callable") else "structure")
    value = ARGUMENTS.get({"whole": "axis", "flag": "affine", "cell": "cell", "number": "alpha"}.get(kind, "x"))
    return kind, value[1] if value else x23


def arguments_of(subject: Subject) -> list[inspect.Parameter]:
    """The named arguments."""
    return [p for p in subject.signature.parameters.values() if p.kind is not p.VAR_KEYWORD]


def made(one: type, plain: str) -> Any:
    """An instance of a class."""
    given = base(Subject(plain, (), lambda: one, inspect.signature(one), plain)) | MADE.get(plain, {})
    positional = given.pop("*", [])
    return one(*positional, **given)


def base(subject: Subject) -> dict[str, Any]:
    """A valid call: the arguments without default, those of *args under "*"."""
    found: dict[str, Any] = {}
    for p in arguments_of(subject):
        if p.kind is p.VAR_POSITIONAL:
            if p.name != "states" or subject.name in (
                "Online()",
                "PlasticDense()",
                "Recurrent()",
                "RecurrentDelay()",
                "Truncated()",
                "WithSynapse()",
            ):
                found["*"] = [entry_for(subject.owner, p.name, p.annotation)[1]()]
        elif p.default is p.empty:
            found[p.name] = entry_for(subject.owner, p.name, p.annotation)[1]()
    return found | {name: value() for name, value in WITH.get(subject.name, {}).items()}


AND, RIGHT = " & ", "right"  # in the names of several arguments, and in those of their values

# --- one call ---------------------------------------------------------------------------------------------------------


class TooLong(BaseException):
    """The time limit is exceeded."""


def _over(*_: Any) -> None:
    raise TooLong


def call(subject: Subject, replaced: dict[str, Any]) -> Any:
    """Call with some arguments replaced, by name."""
    given = base(subject)
    star = given.pop("*", [])
    for argument, value in replaced.items():
        p = next(p for p in arguments_of(subject) if p.name == argument)
        if p.kind is p.VAR_POSITIONAL:
            star = [value]
        else:
            given[argument] = value
    front = []
    if star:
        for p in subject.signature.parameters.values():
            if p.kind is p.VAR_POSITIONAL:
                break
            front.append(given.pop(p.name) if p.name in given else p.default)
    function = subject.make()
    result = function(*front, *star, **given)
    if inspect.isgenerator(result):
        return next(result, None)
    if isinstance(result, contextlib.AbstractContextManager) and subject.name == "Monitor":
        with result:
            pass
    return result


def outcome(subject: Subject, argument: str, wrong: str) -> tuple[str, str]:
    """The outcome of one call and its message; `argument` and `wrong` are names, or several joined by AND."""
    parameters = {p.name: p for p in arguments_of(subject)}
    kinds = {name: entry_for(subject.owner, name, parameters[name].annotation) for name in argument.split(AND)}
    values = {
        name: kinds[name][1]() if one == RIGHT else WRONG[one]()
        for name, one in zip(kinds, wrong.split(AND), strict=True)
    }
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            call(subject, values)
    except SnncellError as error:
        message = str(error)
        named = any(word in message for word in subject.words) and bool(re.search(rf"\b{argument}\b", message))
        return ("named" if named else "unnamed"), f"{type(error).__name__}: {message}"
    except TooLong:
        return "hang", ""
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        if where.filename == __file__:
            return "taken", ""  # of a function that the call was given: it is the caller's
        return "foreign", f"{type(error).__name__}: {str(error)[:300]} ({Path(where.filename).name}:{where.lineno})"
    if AND in argument:
        return "taken", ""  # whether several values make sense together is not known here
    parameter, kind, value = parameters[argument], kinds[argument][0], values[argument]
    default = parameter.default
    none = default is None or "None" in str(getattr(parameter.annotation, "__forward_arg__", parameter.annotation))
    fine = wrong in SENSE[kind] or (wrong == "None" and none)
    fine = fine or (wrong in ("[]", "()") and str(parameter.annotation) in ("Axis", "Lengths"))  # none of them, or all
    fine = fine or (default is not parameter.empty and type(default) is type(value) and default == value)
    return ("taken" if fine else "nonsense"), ""


def several(count: int, seed: int = 0) -> list[tuple[str, str, str]]:
    """Random calls with several replaced arguments: mostly valid and unusual values, sometimes invalid ones."""
    rng = random.Random(seed)
    known = [s for s in subjects() if len(arguments_of(s)) > 1]
    found = []
    for subject in rng.choices(known, k=count):
        names = [p.name for p in arguments_of(subject)]
        chosen = rng.sample(names, rng.randint(2, min(4, len(names))))
        hints = {p.name: p.annotation for p in arguments_of(subject)}
        unusual = [sorted(SENSE[entry_for(subject.owner, name, hints[name])[0]]) or [RIGHT] for name in chosen]
        wrong = [rng.choice(rng.choices([[RIGHT], values, [*WRONG]], [3, 6, 1])[0]) for values in unusual]
        found.append((subject.name, AND.join(chosen), AND.join(wrong)))
    return found


def calls(words: list[str]) -> list[tuple[str, str, str]]:
    """All calls: callable, argument, invalid value."""
    found = []
    for subject in subjects():
        if words and not any(word in subject.name for word in words):
            continue
        for p in arguments_of(subject):
            if p.kind is not p.VAR_KEYWORD:
                found += [(subject.name, p.name, wrong) for wrong in WRONG]
    return found


def most_different(times: int = 3, more: int = 4) -> list[tuple[str, str, str]]:
    """About half of all calls, without those that repeat the check of an annotation.

    It includes all values that the callable itself has to deal with: Tensors, arrays, and values that make sense. The
    check of an annotation refuses most others. Each of those is passed to `times` arguments of each annotation, and
    each argument gets at least `more` of them, in turn.
    """
    found, turn = [], 0
    seen: collections.Counter[tuple[str, str, str]] = collections.Counter()
    for subject in subjects():
        for p in arguments_of(subject):
            kind = entry_for(subject.owner, p.name, p.annotation)[0]
            refused = [wrong for wrong in WRONG if wrong not in SENSE[kind] | TENSORS | ARRAYS]
            in_turn = {refused[(turn + n) % len(refused)] for n in range(more if refused else 0)}
            turn += more
            for wrong in WRONG:
                seen[str(p.annotation), kind, wrong] += 1
                if wrong not in refused or wrong in in_turn or seen[str(p.annotation), kind, wrong] <= times:
                    found.append((subject.name, p.name, wrong))
    return found


# --- many -------------------------------------------------------------------------------------------------------------


def prepare() -> None:
    """Prepare a process for invalid calls: limited memory, no output, no figure windows."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, used + ROOM))
    signal.signal(signal.SIGALRM, _over)
    warnings.simplefilter("ignore")
    import matplotlib as mpl

    mpl.use("Agg")
    os.chdir(tempfile.mkdtemp())


def work(connection: Any, jobs: list[tuple[str, str, str]]) -> None:
    """Make calls, and send the outcome of each."""
    from matplotlib import pyplot

    prepare()
    known = {subject.name: subject for subject in subjects()}
    for number, (name, argument, wrong) in enumerate(jobs):
        connection.send(("begin", number, "", ""))
        signal.alarm(SECONDS)
        try:
            found = outcome(known[name], argument, wrong)
        except TooLong:
            found = ("hang", "")
        finally:
            signal.alarm(0)
        pyplot.close("all")
        snncell.set_context(mode=snncell.PYNATIVE_MODE, check_finite=False)
        connection.send(("end", number, *found))
    connection.send(("done", 0, "", ""))


def run(jobs: list[tuple[str, str, str]]) -> Iterator[tuple[str, str, str, str, str]]:
    """Make all calls in another process; start a new one whenever it dies or hangs."""
    context = multiprocessing.get_context("spawn")
    while jobs:
        here, there = context.Pipe()
        process = context.Process(target=work, args=(there, jobs), daemon=True)
        process.start()
        there.close()
        begun, finished, why = 0, False, "crash"
        try:
            while True:
                if not here.poll(SECONDS * 2 + 40):
                    why = "hang"
                    break
                what, number, result, message = here.recv()
                if what == "done":
                    finished = True
                    break
                begun = number
                if what == "end":
                    yield (*jobs[number], result, message)
                    if number % 1000 == 999:
                        print(f"{len(jobs) - number - 1} left", file=sys.stderr, flush=True)
        except EOFError:
            pass
        process.kill()
        process.join()
        if finished:
            return
        yield (*jobs[begun], why, "")
        jobs = jobs[begun + 1 :]


def table(outcomes: list[tuple[str, str, str, str, str]]) -> str:
    """The counts of each outcome, by module and in total."""
    kinds = ("named", "unnamed", "foreign", "taken", "nonsense", "crash", "hang")
    homes = {name: str(getattr(one, "__module__", "snncell")).split(".") for name, one in public().items()}
    rows: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for name, _, _, result, _ in outcomes:
        home = homes[name.removesuffix("()").removesuffix(".init_state")]
        for row in (home[1] if len(home) > 1 else "snncell", "all"):
            rows[row][result] += 1
    lines = ["| package | calls | " + " | ".join(kinds) + " |", "| --- " * (len(kinds) + 2) + "|"]
    for row in [*sorted(rows.keys() - {"all"}), "all"]:
        counts = rows[row]
        lines.append(f"| {row} | {sum(counts.values()):,} | " + " | ".join(f"{counts[k]:,}" for k in kinds) + " |")
    return "\n".join(lines)


def sample(count: int, seed: int = 0) -> list[tuple[str, str, str]]:
    """A sample of the calls with at least one per callable."""
    rng = random.Random(seed)
    everything = calls([])
    rng.shuffle(everything)
    first = {name: one for one in reversed(everything) for name in [one[0]]}
    rest = [one for one in everything if first[one[0]] is not one]
    return [*first.values(), *rest][:count]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Make wrong calls, and count what becomes of them.")
    parser.add_argument("words", nargs="*", help="only callables with one of these in their names")
    parser.add_argument("--show", action="append", default=[], help="list the calls of this outcome")
    parser.add_argument("--write", type=Path, help="where to write the table")
    parser.add_argument("--json", type=Path, help="where to write every outcome")
    parser.add_argument("--several", type=int, default=0, help="so many random calls with several replaced arguments")
    parser.add_argument("--seed", type=int, default=0, help="of the random calls")
    given = parser.parse_args()
    outcomes = list(run(several(given.several, given.seed) if given.several else calls(given.words)))
    for name, argument, wrong, result, message in outcomes:
        if result in given.show:
            print(f"{result}: {name}, {argument} = {wrong}: {message[:300]}")
    print(table(outcomes))
    if given.json:
        given.json.write_text(json.dumps(outcomes), encoding="utf-8")
    if given.write:
        given.write.write_text(table(outcomes) + "\n", encoding="utf-8")
    sys.exit(any(result in ("foreign", "crash", "hang") for *_, result, _ in outcomes))


if __name__ == "__main__":
    main()
