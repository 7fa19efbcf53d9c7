"""Differentiable operations on Tensors. Importing this package also attaches Tensor's operators and methods."""

# ruff: noqa: F403 (each module lists in `__all__` what it shows)

import typing as _typing

from snncell.base.arguments.guard import guard as _guard
from snncell.base.arguments.names import export_lazily as _export_lazily
from snncell.base.frames import machinery as _machinery
from snncell.ops import methods as methods
from snncell.ops.activation import *
from snncell.ops.arithmetic import *
from snncell.ops.base import *
from snncell.ops.control import *
from snncell.ops.conv import *
from snncell.ops.fft import *
from snncell.ops.gathering import *
from snncell.ops.indexing import *
from snncell.ops.jacobians import *
from snncell.ops.linalg import *
from snncell.ops.loss import *
from snncell.ops.norms import *
from snncell.ops.padding import *
from snncell.ops.pool import *
from snncell.ops.random import *
from snncell.ops.reduce import *
from snncell.ops.shape import *
from snncell.ops.sorting import *
from snncell.ops.transcendental import *
from snncell.tape.hooks import HookBackward as HookBackward
from snncell.tape.recompute import recompute as recompute
from snncell.tape.transforms import (
    GradOperation as GradOperation,
    get_grad as get_grad,
    grad as grad,
    stop_gradient as stop_gradient,
    value_and_grad as value_and_grad,
    vjp as vjp,
)

if _typing.TYPE_CHECKING:
    from snncell.mindspore.primitives import *

_PRIMITIVE_CLASSES = (
    "Abs", "Add", "Argmax", "Assign", "BatchMatMul", "Cast", "Ceil", "Concat", "Conv2D", "Cos", "CumSum", "Div",
    "Dropout", "Dropout2D", "Equal", "Erf", "Exp", "ExpandDims", "Expm1", "Fill", "Floor", "Gather", "GeLU", "Greater",
    "GreaterEqual", "Less", "LessEqual", "Log", "Log1p", "LogSoftmax", "LogicalAnd", "LogicalNot", "LogicalOr",
    "MatMul", "Maximum", "Minimum", "Mul", "Neg", "NotEqual", "OneHot", "OnesLike", "Pow", "ReLU", "ReLU6", "RealDiv",
    "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "Reshape", "Round", "Rsqrt", "Select", "Sigmoid",
    "Sign", "Sin", "Softmax", "Softplus", "Split", "Sqrt", "Square", "Squeeze", "Stack", "Sub", "Tanh", "Transpose",
    "ZerosLike",
)  # fmt: skip

_machinery(__file__)
_export_lazily(globals(), "snncell.mindspore.primitives", _PRIMITIVE_CLASSES)
_guard(globals())
