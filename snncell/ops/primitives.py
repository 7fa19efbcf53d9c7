"""MindSpore's primitive classes: an operation as an object that is made first and called later, `ops.Sigmoid()(x)`."""

from __future__ import annotations

from collections.abc import Callable
from inspect import isfunction
from typing import Any, ClassVar

from snncell.base.arguments.guard import plan_of
from snncell.base.arguments.kinds import Count, Lengths, Numbers, PadMode, Probability
from snncell.errors import ArgumentError
from snncell.ops import (
    activation as act,
    creation as new,
    elementwise as el,
    indexing,
    linalg,
    logic as lg,
    random,
    reduce,
    shape as sh,
)
from snncell.ops.base import as_axis, as_int, as_tensor, astype
from snncell.ops.control import assign
from snncell.ops.conv import conv2d
from snncell.ops.options import probability
from snncell.tape.tensor import Tensor


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


Abs = _without_options("Abs", el.abs)
Add = _without_options("Add", el.add)
Ceil = _without_options("Ceil", el.ceil)
Cos = _without_options("Cos", el.cos)
Div = _without_options("Div", el.div)
Equal = _without_options("Equal", lg.equal)
Erf = _without_options("Erf", el.erf)
Exp = _without_options("Exp", el.exp)
Expm1 = _without_options("Expm1", el.expm1)
ExpandDims = _without_options("ExpandDims", sh.expand_dims)
Fill = _without_options("Fill", new.fill)
Floor = _without_options("Floor", el.floor)
Gather = _without_options("Gather", indexing.gather)
Greater = _without_options("Greater", lg.greater)
GreaterEqual = _without_options("GreaterEqual", lg.greater_equal)
Less = _without_options("Less", lg.less)
LessEqual = _without_options("LessEqual", lg.less_equal)
Log = _without_options("Log", el.log)
Log1p = _without_options("Log1p", el.log1p)
LogicalAnd = _without_options("LogicalAnd", lg.logical_and)
LogicalNot = _without_options("LogicalNot", lg.logical_not)
LogicalOr = _without_options("LogicalOr", lg.logical_or)
Maximum = _without_options("Maximum", el.maximum)
Minimum = _without_options("Minimum", el.minimum)
Mul = _without_options("Mul", el.mul)
Neg = _without_options("Neg", el.neg)
NotEqual = _without_options("NotEqual", lg.not_equal)
OnesLike = _without_options("OnesLike", new.ones_like)
Pow = _without_options("Pow", el.pow)
ReLU = _without_options("ReLU", act.relu)
ReLU6 = _without_options("ReLU6", act.relu6)
RealDiv = _without_options("RealDiv", el.div)
Reshape = _without_options("Reshape", sh.reshape)
Round = _without_options("Round", el.round)
Rsqrt = _without_options("Rsqrt", el.rsqrt)
Select = _without_options("Select", lg.where)
Sigmoid = _without_options("Sigmoid", act.sigmoid)
Sign = _without_options("Sign", el.sign)
Sin = _without_options("Sin", el.sin)
Softplus = _without_options("Softplus", act.softplus)
Sqrt = _without_options("Sqrt", el.sqrt)
Square = _without_options("Square", el.square)
Sub = _without_options("Sub", el.sub)
Tanh = _without_options("Tanh", el.tanh)
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

    function = staticmethod(sh.concat)


class Stack(_Axis):
    """`ops.stack`."""

    function = staticmethod(sh.stack)


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
        return act.gelu(x, "tanh")


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

    function = staticmethod(indexing.one_hot)


class Split(PrimitiveClass):
    """`ops.split` into `output_num` equal pieces."""

    def __init__(self, axis: int = 0, output_num: Count = 1) -> None:
        if as_int(output_num, "Split", "output_num") < 1:
            raise ArgumentError(f"Split: output_num is at least 1, not {output_num}.")
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
