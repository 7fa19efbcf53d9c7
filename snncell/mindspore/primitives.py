"""MindSpore's primitive classes: operations as objects that you create first and call later, `ops.Sigmoid()(x)`.

You can find them in `snncell.ops`, which imports this module on first use.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import isfunction
from typing import Any, ClassVar

from snncell.base.arguments.guard import guard, plan_of
from snncell.base.arguments.kinds import Count, Lengths, Numbers, PadMode, Probability
from snncell.errors import ArgumentError
from snncell.ops import (
    activation,
    arithmetic as ar,
    base as new,
    gathering,
    linalg,
    random,
    reduce,
    shape as sh,
    transcendental as tr,
)
from snncell.ops.base import as_axis, as_int, as_tensor, astype, probability
from snncell.ops.control import assign
from snncell.ops.conv import conv2d
from snncell.tape.tensor import Tensor


class PrimitiveClass:
    """Base class of operations as objects: options are passed to the constructor, operands to the call."""

    function: ClassVar[Callable[..., Any]]

    def __init__(self, **options: Any) -> None:
        self.options = options

    def __call__(self, *operands: Any, **named: Any) -> Any:
        function, who = type(self).function, type(self).__name__
        if not isfunction(function):  # elementwise operations check their own operands
            return function(*operands, **named, **self.options)
        plan = plan_of(function)
        operands = plan.check_call(who, operands, named)
        try:
            return function(*operands, **named, **self.options)
        except Exception as error:
            plan.raise_with_call(error, who, operands, named | self.options)
            raise

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.options.items())})"


# --- classes of an operation and at most one option -------------------------------------------------------------------


class _Plain(PrimitiveClass):
    def __init__(self) -> None:
        super().__init__()


class _Axis(PrimitiveClass):
    def __init__(self, axis: int = 0) -> None:
        super().__init__(axis=axis)


class _LastAxis(PrimitiveClass):
    def __init__(self, axis: int = -1) -> None:
        super().__init__(axis=axis)


class _Reduce(PrimitiveClass):
    def __init__(self, keep_dims: bool = False) -> None:
        super().__init__(keepdims=keep_dims)

    def __call__(self, x: Numbers, axis: Lengths = ()) -> Any:  # () for all axes, as in MindSpore
        return type(self).function(x, axis, **self.options)


def _class_of(name: str, function: Callable[..., Any], kind: type[PrimitiveClass] = _Plain) -> type[PrimitiveClass]:
    doc = f"The operation `ops.{getattr(function, '__name__', name)}` as an object."
    return type(name, (kind,), {"function": staticmethod(function), "__doc__": doc, "__module__": __name__})


Abs = _class_of("Abs", ar.abs)
Add = _class_of("Add", ar.add)
Argmax = _class_of("Argmax", reduce.argmax, _LastAxis)
Assign = _class_of("Assign", assign, PrimitiveClass)
Cast = _class_of("Cast", astype)
Ceil = _class_of("Ceil", ar.ceil)
Concat = _class_of("Concat", sh.concat, _Axis)
Cos = _class_of("Cos", tr.cos)
CumSum = _class_of("CumSum", reduce.cumsum, PrimitiveClass)
Div = _class_of("Div", ar.div)
Equal = _class_of("Equal", ar.equal)
Erf = _class_of("Erf", tr.erf)
Exp = _class_of("Exp", tr.exp)
ExpandDims = _class_of("ExpandDims", sh.expand_dims)
Expm1 = _class_of("Expm1", tr.expm1)
Fill = _class_of("Fill", new.fill)
Floor = _class_of("Floor", ar.floor)
Gather = _class_of("Gather", gathering.gather)
Greater = _class_of("Greater", ar.greater)
GreaterEqual = _class_of("GreaterEqual", ar.greater_equal)
Less = _class_of("Less", ar.less)
LessEqual = _class_of("LessEqual", ar.less_equal)
Log = _class_of("Log", tr.log)
Log1p = _class_of("Log1p", tr.log1p)
LogSoftmax = _class_of("LogSoftmax", reduce.log_softmax, _LastAxis)
LogicalAnd = _class_of("LogicalAnd", ar.logical_and)
LogicalNot = _class_of("LogicalNot", ar.logical_not)
LogicalOr = _class_of("LogicalOr", ar.logical_or)
Maximum = _class_of("Maximum", ar.maximum)
Minimum = _class_of("Minimum", ar.minimum)
Mul = _class_of("Mul", ar.mul)
Neg = _class_of("Neg", ar.neg)
NotEqual = _class_of("NotEqual", ar.not_equal)
OneHot = _class_of("OneHot", gathering.one_hot, _LastAxis)
OnesLike = _class_of("OnesLike", new.ones_like)
Pow = _class_of("Pow", tr.pow)
ReLU = _class_of("ReLU", activation.relu)
ReLU6 = _class_of("ReLU6", activation.relu6)
RealDiv = _class_of("RealDiv", ar.div)
ReduceMax = _class_of("ReduceMax", reduce.max, _Reduce)
ReduceMean = _class_of("ReduceMean", reduce.mean, _Reduce)
ReduceMin = _class_of("ReduceMin", reduce.min, _Reduce)
ReduceProd = _class_of("ReduceProd", reduce.prod, _Reduce)
ReduceSum = _class_of("ReduceSum", reduce.sum, _Reduce)
Reshape = _class_of("Reshape", sh.reshape)
Round = _class_of("Round", ar.round)
Rsqrt = _class_of("Rsqrt", tr.rsqrt)
Select = _class_of("Select", ar.where)
Sigmoid = _class_of("Sigmoid", tr.sigmoid)
Sign = _class_of("Sign", ar.sign)
Sin = _class_of("Sin", tr.sin)
Softmax = _class_of("Softmax", reduce.softmax, _LastAxis)
Softplus = _class_of("Softplus", activation.softplus)
Sqrt = _class_of("Sqrt", tr.sqrt)
Square = _class_of("Square", tr.square)
Stack = _class_of("Stack", sh.stack, _Axis)
Sub = _class_of("Sub", ar.sub)
Tanh = _class_of("Tanh", tr.tanh)
Transpose = _class_of("Transpose", sh.transpose)
ZerosLike = _class_of("ZerosLike", new.zeros_like)


# --- classes with more options, or another form of their operation ----------------------------------------------------


class MatMul(PrimitiveClass):
    """`ops.matmul`, with options to transpose either operand."""

    def __init__(self, transpose_a: bool = False, transpose_b: bool = False) -> None:
        super().__init__(transpose_a=transpose_a, transpose_b=transpose_b)

    def __call__(self, x: Numbers, y: Numbers) -> Tensor:
        x, y = as_tensor(x, type(self).__name__), as_tensor(y, type(self).__name__, "y")
        if self.options["transpose_a"]:
            x = sh.swapaxes(x, -1, -2)
        if self.options["transpose_b"]:
            y = sh.swapaxes(y, -1, -2)
        return linalg.matmul(x, y)


class BatchMatMul(MatMul):
    """`MatMul` for batches of matrices."""


class Squeeze(PrimitiveClass):
    """`ops.squeeze`."""

    function = staticmethod(sh.squeeze)

    def __init__(self, axis: Lengths = ()) -> None:
        super().__init__(axis=None if axis == () else axis)  # MindSpore's () means all axes


class GeLU(_Plain):
    """`ops.gelu` with the tanh approximation, as in MindSpore's primitive."""

    @staticmethod
    def function(x: Numbers) -> Tensor:
        """The operation."""
        return activation.gelu(x, "tanh")


class Split(PrimitiveClass):
    """`ops.split` into `output_num` equal pieces."""

    def __init__(self, axis: int = 0, output_num: Count = 1) -> None:
        if as_int(output_num, "Split", "output_num") < 1:
            raise ArgumentError(f"Split: output_num must be at least 1, not {output_num}.")
        super().__init__(axis=axis, output_num=output_num)

    def __call__(self, x: Any) -> tuple[Tensor, ...]:
        tensor, count = as_tensor(x, "Split"), self.options["output_num"]
        axis = as_axis(self.options["axis"], tensor.ndim, "Split")
        return sh.split(tensor, [tensor.shape[axis] // count] * count, axis)


class Conv2D(PrimitiveClass):
    """`ops.conv2d` without a bias."""

    def __init__(
        self,
        out_channel: Count,
        kernel_size: Lengths,
        pad_mode: PadMode = "valid",
        pad: Lengths = 0,
        stride: Lengths = 1,
        dilation: Lengths = 1,
        group: Count = 1,
    ) -> None:
        super().__init__(pad_mode=pad_mode, padding=pad, stride=stride, dilation=dilation, groups=group)

    def __call__(self, x: Any, weight: Any) -> Tensor:
        return conv2d(x, weight, **self.options)


class Dropout2D(PrimitiveClass):
    """Set channels to 0 with probability 1 - keep_prob at every call; returns (result, mask). See `ops.dropout2d`."""

    function = staticmethod(random.dropout2d)

    def __init__(self, keep_prob: Probability = 0.5) -> None:
        super().__init__(keep_prob=probability(keep_prob, type(self).__name__, "keep_prob"))


class Dropout(Dropout2D):
    """`ops.dropout` at every call, with the probability of keeping an element; returns only the result."""

    def __call__(self, x: Any) -> Tensor:
        return random.dropout(x, 1.0 - self.options["keep_prob"])


guard(globals(), own=True)
