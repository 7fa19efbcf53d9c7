"""snncell: spiking neural networks, and any other network with a custom reverse, in plain Python, compiled by Numba."""

import importlib
from typing import Any

from snncell import common as common
from snncell import dtype as dtype
from snncell import nn as nn
from snncell import ops as ops
from snncell import surrogate as surrogate
from snncell.compiler.jit import explain as explain
from snncell.compiler.jit import jit as jit
from snncell.config import GRAPH_MODE as GRAPH_MODE
from snncell.config import PYNATIVE_MODE as PYNATIVE_MODE
from snncell.config import get_context as get_context
from snncell.config import set_context as set_context
from snncell.dtype import (
    bool_ as bool_,
)
from snncell.dtype import (
    complex64 as complex64,
)
from snncell.dtype import (
    complex128 as complex128,
)
from snncell.dtype import (
    float16 as float16,
)
from snncell.dtype import (
    float32 as float32,
)
from snncell.dtype import (
    float64 as float64,
)
from snncell.dtype import (
    int8 as int8,
)
from snncell.dtype import (
    int16 as int16,
)
from snncell.dtype import (
    int32 as int32,
)
from snncell.dtype import (
    int64 as int64,
)
from snncell.dtype import (
    uint8 as uint8,
)
from snncell.io.checkpoint import load_checkpoint as load_checkpoint
from snncell.io.checkpoint import load_param_into_net as load_param_into_net
from snncell.io.checkpoint import save_checkpoint as save_checkpoint
from snncell.ops import grad as grad
from snncell.ops import set_seed as set_seed
from snncell.ops import value_and_grad as value_and_grad
from snncell.tape.parameter import Parameter as Parameter
from snncell.tape.parameter import ParameterTuple as ParameterTuple
from snncell.tape.tensor import Tensor as Tensor

__version__ = "0.1.0"

_LAZY = ("data", "io", "plot", "testing")  # imported when they are first used


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return importlib.import_module(f"snncell.{name}")
    raise AttributeError(f"module 'snncell' has no attribute {name!r}")
