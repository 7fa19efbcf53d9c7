"""MindSpore's primitive classes: an operation as an object that is made first and called later, `ops.Sigmoid()(x)`."""

from __future__ import annotations

from collections.abc import Callable
from inspect import isfunction
from typing import Any, ClassVar

from snncell.base.arguments.guard import plan_of
from snncell.base.arguments.kinds import Count, Lengths, Numbers, PadMode, Probability
from snncell.errors import ArgumentError
from snncell.ops import (
    activation,
    arithmetic,
    creation as new,
    exponentials,
    gathering,
    joining,
    linalg,
    logic as lg,
    random,
    reduce,
    shape as sh,
    trigonometry,
)
from snncell.ops.base import as_axis, as_int, as_tensor, astype, probability
from snncell.ops.control import assign
from snncell.ops.conv import conv2d
from snncell.tape.tensor import Tensor

__all__ = [
    "Abs", "Add", "Argmax", "Assign", "BatchMatMul", "Cast", "Ceil", "Concat", "Conv2D", "Cos", "CumSum", "Div",
    "Dropout", "Dropout2D", "Equal", "Erf", "Exp", "ExpandDims", "Expm1", "Fill", "Floor", "Gather", "GeLU", "Greater",
    "GreaterEqual", "Less", "LessEqual", "Log", "Log1p", "LogSoftmax", "LogicalAnd", "LogicalNot", "LogicalOr",
    "MatMul", "Maximum", "Minimum", "Mul", "Neg", "NotEqual", "OneHot", "OnesLike", "Pow", "ReLU", "ReLU6", "RealDiv",
    "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "Reshape", "Round", "Rsqrt", "Select", "Sigmoid",
    "Sign", "Sin", "Softmax", "Softplus", "Split", "Sqrt", "Square", "Squeeze", "Stack", "Sub", "Tanh", "Transpose",
    "ZerosLike",
]  # fmt: skip


class PrimitiveClass:
    """An operation whose options are given when it is made and whose operands when it is called."""

    function: ClassVar[Callable[..., Any]]

    def __init__(self, **options: Any) -> None:
        self.options = options

    def __call__(self, *operands: Any, **named: Any) -> Any:
        function, who = type(self).function, type(self).__name__
        if not isfunction(function):  # elementwise operations check their operands themselves
            return function(*operands, **named, **self.options)
        plan = plan_of(function)
        operands = plan.taken(who, operands, named)
        try:
            return function(*operands, **named, **self.options)
        except Exception as error:
            plan.tell(error, who, operands, named | self.options)
            raise

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.options.items())})"


def _without_options(name: str, function: Callable[..., Any]) -> type[PrimitiveClass]:
    doc = f"The operation `ops.{getattr(function, '__name__', name)}` as an object."
    return type(name, (_Plain,), {"function": staticmethod(function), "__doc__": doc, "__module__": __name__})


class _Plain(PrimitiveClass):
    def __init__(self) -> None:
        super().__init__()


Abs = _without_options("Abs", arithmetic.abs)
Add = _without_options("Add", arithmetic.add)
Ceil = _without_options("Ceil", arithmetic.ceil)
Cos = _without_options("Cos", trigonometry.cos)
Div = _without_options("Div", arithmetic.div)
Equal = _without_options("Equal", lg.equal)
Erf = _without_options("Erf", exponentials.erf)
Exp = _without_options("Exp", exponentials.exp)
Expm1 = _without_options("Expm1", exponentials.expm1)
ExpandDims = _without_options("ExpandDims", sh.expand_dims)
Fill = _without_options("Fill", new.fill)
Floor = _without_options("Floor", arithmetic.floor)
Gather = _without_options("Gather", gathering.gather)
Greater = _without_options("Greater", lg.greater)
GreaterEqual = _without_options("GreaterEqual", lg.greater_equal)
Less = _without_options("Less", lg.less)
LessEqual = _without_options("LessEqual", lg.less_equal)
Log = _without_options("Log", exponentials.log)
Log1p = _without_options("Log1p", exponentials.log1p)
LogicalAnd = _without_options("LogicalAnd", lg.logical_and)
LogicalNot = _without_options("LogicalNot", lg.logical_not)
LogicalOr = _without_options("LogicalOr", lg.logical_or)
Maximum = _without_options("Maximum", arithmetic.maximum)
Minimum = _without_options("Minimum", arithmetic.minimum)
Mul = _without_options("Mul", arithmetic.mul)
Neg = _without_options("Neg", arithmetic.neg)
NotEqual = _without_options("NotEqual", lg.not_equal)
OnesLike = _without_options("OnesLike", new.ones_like)
Pow = _without_options("Pow", exponentials.pow)
ReLU = _without_options("ReLU", activation.relu)
ReLU6 = _without_options("ReLU6", activation.relu6)
RealDiv = _without_options("RealDiv", arithmetic.div)
Reshape = _without_options("Reshape", sh.reshape)
Round = _without_options("Round", arithmetic.round)
Rsqrt = _without_options("Rsqrt", exponentials.rsqrt)
Select = _without_options("Select", lg.where)
Sigmoid = _without_options("Sigmoid", exponentials.sigmoid)
Sign = _without_options("Sign", arithmetic.sign)
Sin = _without_options("Sin", trigonometry.sin)
Softplus = _without_options("Softplus", activation.softplus)
Sqrt = _without_options("Sqrt", exponentials.sqrt)
Square = _without_options("Square", exponentials.square)
Sub = _without_options("Sub", arithmetic.sub)
Tanh = _without_options("Tanh", trigonometry.tanh)
Transpose = _without_options("Transpose", sh.transpose)
ZerosLike = _without_options("ZerosLike", new.zeros_like)
Cast = _without_options("Cast", astype)


class MatMul(PrimitiveClass):
    """`ops.matmul`, with either operand transposed first."""

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
    """`MatMul` of batches of matrices."""


class _Reduce(PrimitiveClass):
    def __init__(self, keep_dims: bool = False) -> None:
        super().__init__(keepdims=keep_dims)

    def __call__(self, x: Numbers, axis: Lengths = ()) -> Any:  # () for all axes, as in MindSpore
        return type(self).function(x, axis, **self.options)


class ReduceSum(_Reduce):
    """`ops.sum`."""

    function = staticmethod(reduce.sum)


class ReduceMean(_Reduce):
    """`ops.mean`."""

    function = staticmethod(reduce.mean)


class ReduceMax(_Reduce):
    """`ops.max`."""

    function = staticmethod(reduce.max)


class ReduceMin(_Reduce):
    """`ops.min`."""

    function = staticmethod(reduce.min)


class ReduceProd(_Reduce):
    """`ops.prod`."""

    function = staticmethod(reduce.prod)


class _Axis(PrimitiveClass):
    def __init__(self, axis: int = 0) -> None:
        super().__init__(axis=axis)


class Concat(_Axis):
    """`ops.concat`."""

    function = staticmethod(joining.concat)


class Stack(_Axis):
    """`ops.stack`."""

    function = staticmethod(joining.stack)


class CumSum(PrimitiveClass):
    """`ops.cumsum`, with the axis given at the call."""

    function = staticmethod(reduce.cumsum)


class Squeeze(PrimitiveClass):
    """`ops.squeeze`."""

    function = staticmethod(sh.squeeze)

    def __init__(self, axis: Lengths = ()) -> None:
        super().__init__(axis=None if axis == () else axis)  # MindSpore's () stands for all axes


class _LastAxis(PrimitiveClass):
    def __init__(self, axis: int = -1) -> None:
        super().__init__(axis=axis)


class GeLU(_Plain):
    """`ops.gelu` by tanh, as MindSpore's primitive has it."""

    @staticmethod
    def function(x: Numbers) -> Tensor:
        """The operation."""
        return activation.gelu(x, "tanh")


class Softmax(_LastAxis):
    """`ops.softmax`."""

    function = staticmethod(reduce.softmax)


class LogSoftmax(Softmax):
    """`ops.log_softmax`."""

    function = staticmethod(reduce.log_softmax)


class Argmax(_LastAxis):
    """`ops.argmax`."""

    function = staticmethod(reduce.argmax)


class OneHot(_LastAxis):
    """`ops.one_hot`, with the values given at the call."""

    function = staticmethod(gathering.one_hot)


class Split(PrimitiveClass):
    """`ops.split` into `output_num` equal pieces."""

    def __init__(self, axis: int = 0, output_num: Count = 1) -> None:
        if as_int(output_num, "Split", "output_num") < 1:
            raise ArgumentError(f"Split: output_num is at least 1, not {output_num}.")
        super().__init__(axis=axis, output_num=output_num)

    def __call__(self, x: Any) -> tuple[Tensor, ...]:
        tensor, count = as_tensor(x, "Split"), self.options["output_num"]
        axis = as_axis(self.options["axis"], tensor.ndim, "Split")
        return joining.split(tensor, [tensor.shape[axis] // count] * count, axis)


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


class Dropout(PrimitiveClass):
    """`ops.dropout`, always on, with the probability of keeping an element. Returns the result alone."""

    def __init__(self, keep_prob: Probability = 0.5) -> None:
        super().__init__(keep_prob=probability(keep_prob, "Dropout", "keep_prob"))

    def __call__(self, x: Any) -> Tensor:
        return random.dropout(x, 1.0 - self.options["keep_prob"])


class Dropout2D(PrimitiveClass):
    """Sets whole channels to 0 with probability 1 - keep_prob, at every call; returns (result, mask).

    See `ops.dropout2d`.
    """

    function = staticmethod(random.dropout2d)

    def __init__(self, keep_prob: Probability = 0.5) -> None:
        super().__init__(keep_prob=probability(keep_prob, "Dropout2D", "keep_prob"))


class Assign(PrimitiveClass):
    """`ops.assign`."""

    function = staticmethod(assign)
