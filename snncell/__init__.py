"""snncell: train spiking neural networks, or any network with custom gradients, in plain Python compiled by Numba.

Tensor, Parameter, ParameterTuple    arrays, and arrays that you train
nn                                   Cell, layers, neurons (IFNode, LIFNode, MultiStep, Recurrent), losses, optimisers
ops                                  differentiable operations
surrogate                            spike functions with surrogate gradients, and `surrogate.smooth()`
grad, value_and_grad, vjp, jvp       gradients
amp                                  mixed precision (float16 or bfloat16) and loss scaling
quantise                             quantised weights and states: training and integer export
jit, explain, explain_passes         compilation; `empty_pool` frees cached memory
profile                              time of each layer and of each kernel of a step
testing                              gradient checks: check_grads, check_bprop, check_through_time
monitor                              records spikes, potentials, gradients and operations of a network
energy                               energy estimates in joules: `snncell.energy.energy(net, x)`
encode                               spike encodings (rate, latency, delta, phase, population, ...) and decodings
data, plot, io                       data sets and batches; figures; checkpoints
train                                `fit`, `evaluate` and their building blocks
mindspore                            MindSpore's API: Model, callbacks, metric objects, training Cells
sklearn                              SNNClassifier and SNNRegressor for scikit-learn: `import snncell.sklearn`
torch                                a Cell as a PyTorch module: `from snncell.torch import fused`
"""

import importlib as _importlib
import typing as _typing
from types import ModuleType as _ModuleType

from snncell import (
    amp as amp,
    common as common,
    dtype as dtype,
    errors as errors,
    nn as nn,
    ops as ops,
    surrogate as surrogate,
)
from snncell.base.arguments.guard import guard as _guard
from snncell.base.arguments.names import (
    install as _install,
    list_public as _list_public,
    missing_from as _missing_from,
    register as _register,
)
from snncell.base.config import (
    GRAPH_MODE as GRAPH_MODE,
    PYNATIVE_MODE as PYNATIVE_MODE,
    get_context as get_context,
    set_context as set_context,
    set_deterministic as set_deterministic,
    set_device as set_device,
)
from snncell.compiler.jit import (
    JitConfig as JitConfig,
    explain as explain,
    explain_passes as explain_passes,
    jit as jit,
)
from snncell.dtype import (
    bfloat16 as bfloat16,
    bool_ as bool_,
    complex64 as complex64,
    complex128 as complex128,
    float16 as float16,
    float32 as float32,
    float64 as float64,
    int8 as int8,
    int16 as int16,
    int32 as int32,
    int64 as int64,
    uint8 as uint8,
)
from snncell.io import (
    load_checkpoint as load_checkpoint,
    load_param_into_net as load_param_into_net,
    save_checkpoint as save_checkpoint,
)
from snncell.kernels.arrays import empty_pool as empty_pool
from snncell.ops import (
    get_grad as get_grad,
    get_seed as get_seed,
    grad as grad,
    jacfwd as jacfwd,
    jacrev as jacrev,
    jvp as jvp,
    recompute as recompute,
    set_seed as set_seed,
    value_and_grad as value_and_grad,
    vjp as vjp,
    vmap as vmap,
)
from snncell.tape.parameter import Parameter as Parameter, ParameterTuple as ParameterTuple
from snncell.tape.tensor import Tensor as Tensor

if _typing.TYPE_CHECKING:
    from snncell.compiler.profile import profile as profile

__version__ = "0.1.0"

# Packages that are imported on first use, so that `import snncell` stays fast.
_LAZY = (
    "context", "data", "distributed", "encode", "energy", "io", "mindspore", "monitoring", "nir", "plot", "quantise",
    "testing", "train",
)  # fmt: skip
_APART = ("sklearn", "torch")  # also lazy, but not in __all__: scikit-learn may be missing, and torch is PyTorch's name

# Names of `train` that MindSpore exports from its top level.
_OF_TRAIN = (
    "Callback", "CheckpointConfig", "EarlyStopping", "History", "LambdaCallback", "LossMonitor", "Model",
    "ModelCheckpoint", "ReduceLROnPlateau", "RunContext", "TimeMonitor",
)  # fmt: skip
_OWN = [name for name, one in globals().items() if not name.startswith("_") and not isinstance(one, _ModuleType)]
__all__: list[str] = []
__all__.extend(
    sorted([*_OWN, "amp", "common", "dtype", "errors", "monitor", "nn", "ops", "profile", "surrogate", *_LAZY])
)

_register("training on ranks", "snncell.distributed.training:train_on_ranks")
_register("run context", "snncell.mindspore.callbacks:RunContext")
_register("costs of layers", "snncell.energy.estimate:layer_costs")
_register("synaptic operations", "snncell.energy.estimate:synops_per_sample")
_register("plot of a profile", "snncell.plot.training:draw_profile")
_register("energy estimate", "snncell.energy.estimate:energy_estimator")

_guard(globals())
for _module in (dtype, errors):  # they are below `names.py`, so they cannot call `list_public` themselves
    _list_public(vars(_module))
_install()


def __dir__() -> list[str]:
    return [*__all__, *_OF_TRAIN, *(name for name in globals() if name.startswith("__"))]


def __getattr__(name: str) -> _typing.Any:
    if name in (*_LAZY, *_APART):
        return _importlib.import_module(f"snncell.{name}")
    if name in _OF_TRAIN:
        return getattr(_importlib.import_module("snncell.train"), name)
    if name == "profile":
        return _importlib.import_module("snncell.compiler.profile").profile
    if name == "monitor":
        return _importlib.import_module("snncell.monitoring").monitor
    return _missing_from(__name__)(name)
