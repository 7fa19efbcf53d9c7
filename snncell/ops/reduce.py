"""Reductions: along an axis, several (a tuple), or all (None, the default); `keepdims` leaves them with length 1."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.base.arguments.kinds import Numbers
from snncell.compiler.ir.formula import Reduction, Sum
from snncell.errors import DTypeError, ShapeError
from snncell.kernels import sums
from snncell.kernels.cuda import scan as lines
from snncell.kernels.scalar import LOOP
from snncell.kernels.space import DEVICE
from snncell.ops import creation as new, elementwise as el, logic as lg, shape as sh
from snncell.ops.base import (
    as_axes,
    as_axis,
    as_float,
    as_number,
    as_tensor,
    astype,
    cast_primitive,
    primitive,
)
from snncell.tape.custom import Composite
from snncell.tape.primitive import axis_behind_steps, with_axis_of_steps
from snncell.tape.tensor import Tensor, beside, snapshot
from snncell.tape.transforms import stop_gradient

Axis = int | tuple[int, ...] | None
Grads = Sequence[Any]


def _lowest(dtype: Any) -> str:
    if dtypes.is_float(dtype):
        return "-np.inf"
    return "False" if dtype.kind == "b" else str(np.iinfo(dtype).min)


def _highest(dtype: Any) -> str:
    if dtypes.is_float(dtype):
        return "np.inf"
    return "True" if dtype.kind == "b" else str(np.iinfo(dtype).max)


sum_primitive = _sum = Sum()
_max = Reduction("max", lambda x, axis, keepdims: np.max(x, axis, keepdims=keepdims), LOOP["maximum"], _lowest)
_min = Reduction("min", lambda x, axis, keepdims: np.min(x, axis, keepdims=keepdims), LOOP["minimum"], _highest)
_any = Reduction(
    "any", lambda x, axis, keepdims: np.any(x, axis, keepdims=keepdims), "{0} | {1}", lambda dtype: "False"
)
_all = Reduction("all", lambda x, axis, keepdims: np.all(x, axis, keepdims=keepdims), "{0} & {1}", lambda dtype: "True")
_sum.times = el.mul
# What the floors below need of arithmetic: on the device, where NumPy's functions are not, and in plans of all steps.
DEVICE.arithmetic.update({"add": el.add, "mul": el.mul, "sum": _sum, "min": _min, "max": _max, "cast": cast_primitive})
_any.no_gradient()
_all.no_gradient()


@_sum.def_bprop
def _(x: Tensor, _out: Tensor, dout: Tensor, *, axis: tuple[int, ...], keepdims: bool) -> Grads:
    return (sh.broadcast_unchecked(_with_kept_axes(dout, axis, keepdims), x.shape),)


@_max.def_bprop
@_min.def_bprop
def _(x: Tensor, out: Tensor, dout: Tensor, *, axis: tuple[int, ...], keepdims: bool) -> Grads:
    chosen = astype(lg.equal(x, _with_kept_axes(out, axis, keepdims)), dout.dtype)  # ties share equally
    return (chosen * (_with_kept_axes(dout, axis, keepdims) / sum(chosen, axis, keepdims=True)),)


def _with_kept_axes(x: Tensor, axis: tuple[int, ...], keepdims: bool) -> Tensor:
    """`x`, the result of a reduction, with the reduced axes as axes of length 1."""
    if keepdims:
        return x
    lengths = iter(x.shape)
    return sh.reshape_unchecked(x, tuple([1 if a in axis else next(lengths) for a in range(x.ndim + len(axis))]))


def _reduce(reduction: Reduction, x: Any, axis: Axis, keepdims: bool) -> Tensor:
    tensor = as_tensor(x, reduction.name)
    axes = as_axes(axis, tensor.ndim, reduction.name)
    if not axes:
        return snapshot(tensor)
    result: Tensor = reduction.bind(tensor, axis=axes, keepdims=bool(keepdims))
    return result


def sum(x: Numbers, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The sum. Booleans and narrow integers are added as int64.

    Long sums of float32 keep their precision: blocks of 32 terms are added up in float32, and the blocks in float64.
    """
    return _reduce(_sum, not_narrow(x, "sum"), axis, keepdims)


def not_narrow(x: Any, name: str) -> Tensor:
    """`x` as a Tensor, booleans and integers as int64, in which sums and products of them seldom overflow."""
    tensor = as_tensor(x, name)
    return tensor if tensor.dtype.is_float else astype(tensor, dtypes.int64)


def max(x: Numbers, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The largest element, NaN if one is; the gradient is shared equally by all that are largest."""
    return _reduce(_max, _not_empty(x, axis, "max"), axis, keepdims)


def min(x: Numbers, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The smallest element, NaN if one is; the gradient is shared equally by all that are smallest."""
    return _reduce(_min, _not_empty(x, axis, "min"), axis, keepdims)


def any(x: Numbers, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """True if an element is true."""
    return _reduce(_any, astype(x, dtypes.bool_), axis, keepdims)


def all(x: Numbers, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """True if every element is true."""
    return _reduce(_all, astype(x, dtypes.bool_), axis, keepdims)


def prod(x: Numbers, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The product, by halves: its gradient is exact to every order, where elements are zero too."""
    tensor = not_narrow(x, "prod")
    axes = as_axes(axis, tensor.ndim, "prod")
    if not axes:
        return snapshot(tensor)
    outer = [a for a in range(tensor.ndim) if a not in axes]
    left = tuple(tensor.shape[a] for a in outer)
    rest = sh.reshape(sh.transpose(tensor, (*outer, *axes)), (*left, _count(tensor.shape, axes)))
    while rest.shape[-1] > 1:
        half = rest.shape[-1] // 2
        pairs = rest[..., :half] * rest[..., half : 2 * half]
        rest = sh.concat([pairs, rest[..., 2 * half :]], -1) if rest.shape[-1] % 2 else pairs
    with beside(tensor):
        product = rest[..., 0] if rest.shape[-1] else new.ones(left, tensor.dtype)
    return sh.expand_dims(product, axes) if keepdims else product


def mean(x: Numbers, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The arithmetic mean; of integers a float32. float16 and bfloat16 are added up in float32."""
    tensor = as_float(x, "mean")
    axes = as_axes(axis, tensor.ndim, "mean")
    total = _reduce(_sum, wide(tensor), axes, keepdims)
    return astype(total / _count(tensor.shape, axes), tensor.dtype)


def wide(x: Tensor) -> Tensor:
    """`x`, or what is only stored as what it is computed in, where sums of it do not overflow."""
    return astype(x, dtypes.compute_dtype(x.dtype.dtype))


def var(x: Numbers, axis: Axis = None, ddof: float = 0, keepdims: bool = False) -> Tensor:
    """The variance, sum((x - mean)^2) / (n - ddof); of no more than `ddof` elements that of a division by 0."""
    tensor = as_float(x, "var")
    axes = as_axes(axis, tensor.ndim, "var")
    n = builtins.max(_count(tensor.shape, axes) - as_number(ddof, "var", "ddof"), 0)  # no variance is negative
    if tensor.dtype.category == 3:
        raise DTypeError("var: takes real numbers. Take ops.real(x), ops.imag(x) or ops.abs(x) first.")
    squares = _squares(wide(tensor), axis=axes, keepdims=keepdims)
    return astype(squares / n, tensor.dtype)


@Composite
def _squares(x: Tensor, *, axis: tuple[int, ...], keepdims: bool) -> Tensor:
    """The sum of squared distances from the mean."""
    # In two passes: the difference of mean(x^2) and mean(x)^2 would cancel.
    return _reduce(_sum, el.square(x - mean(x, axis, keepdims=True)), axis, keepdims)


# Nothing comes from the mean: the distances from it add up to 0.
@_squares.def_bprop
def _(x: Tensor, _out: Tensor, dout: Tensor, *, axis: tuple[int, ...], keepdims: bool) -> Grads:
    return ((x - mean(x, axis, keepdims=True)) * (_with_kept_axes(dout, axis, keepdims) * 2.0),)


def std(x: Numbers, axis: Axis = None, ddof: float = 0, keepdims: bool = False) -> Tensor:
    """The standard deviation, the root of `var`; where that is 0, the gradient is 0."""
    tensor = as_float(x, "std")
    return astype(el.root(var(wide(tensor), axis, ddof, keepdims)), tensor.dtype)


def logsumexp(x: Numbers, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """log(sum(exp(x))), without overflow; of no elements -inf, the logarithm of their sum.

    The gradient is softmax(x). Where the result is infinite, the elements equal to it share the gradient evenly, as in
    `logaddexp` and `logcumsumexp`.
    """
    tensor = as_float(x, "logsumexp")
    if not _count(tensor.shape, as_axes(axis, tensor.ndim, "logsumexp")):
        return sum(tensor, axis, keepdims) - math.inf
    peak = stop_gradient(_reduce(_max, tensor, axis, keepdims=True))
    result = el.log(sum(el.exp_below(tensor, peak), axis, keepdims=True)) + peak
    return result if keepdims else sh.squeeze(result, as_axes(axis, tensor.ndim, "logsumexp"))


@Composite
def _softmax(x: Tensor, *, axis: int) -> Tensor:
    raised = el.exp(x - max(x, axis, keepdims=True))
    return raised / sum(raised, axis, keepdims=True)


# From the output alone: nothing is exponentiated again.
@_softmax.def_bprop
def _(x: Tensor, out: Tensor, dout: Tensor, *, axis: int) -> Grads:
    return (out * (dout - sum(dout * out, axis, keepdims=True)),)


@Composite
def _log_softmax(x: Tensor, *, axis: int) -> Tensor:
    shifted = x - max(x, axis, keepdims=True)
    return shifted - el.log(sum(el.exp(shifted), axis, keepdims=True))


@_log_softmax.def_bprop
def _(x: Tensor, out: Tensor, dout: Tensor, *, axis: int) -> Grads:
    return (dout - el.exp(out) * sum(dout, axis, keepdims=True),)


def softmax(x: Numbers, axis: int = -1) -> Tensor:
    """exp(x) / sum(exp(x)) along `axis`, without overflow."""
    return _along(_softmax, x, axis, "softmax")


def log_softmax(x: Numbers, axis: int = -1) -> Tensor:
    """log(softmax(x)) along `axis`, exact where softmax underflows."""
    return _along(_log_softmax, x, axis, "log_softmax")


def _along(function: Callable[..., Tensor], x: Any, axis: int, name: str) -> Tensor:
    tensor = as_float(x, name)
    number = as_axis(axis, tensor.ndim, name)
    if not tensor.shape[number]:
        return tensor * 1.0  # as empty as it was
    return astype(function(wide(tensor), axis=number), tensor.dtype)


@primitive
def _cumsum(x: Any, axis: int) -> Any:
    return sums.running(x, axis)


with_axis_of_steps(_cumsum, axis_behind_steps)
_cumsum.additive = True


@_cumsum.def_there
def _(x: Any, axis: int) -> Any:
    return lines.cumsum(x, axis)


# x_i is in every sum from the i-th on: the sums of dout from behind.
@_cumsum.def_bprop
def _(_x: Tensor, _out: Tensor, dout: Tensor, *, axis: int) -> Grads:
    return (sh.flip(cumsum(sh.flip(dout, axis), axis), axis),)


def cumsum(x: Numbers, axis: int) -> Tensor:
    """Running sums along `axis`; those of float32 are carried on in float64."""
    tensor = not_narrow(x, "cumsum")
    result: Tensor = _cumsum.bind(tensor, axis=as_axis(axis, tensor.ndim, "cumsum"))
    return result


@primitive
def _argmax(x: Any, axis: int) -> Any:
    return np.argmax(x, axis)


@primitive
def _argmin(x: Any, axis: int) -> Any:
    return np.argmin(x, axis)


@_argmax.def_there
def _(x: Any, axis: int) -> Any:
    return lines.argmax(x, axis)


@_argmin.def_there
def _(x: Any, axis: int) -> Any:
    return lines.argmin(x, axis)


for _op in (_argmax, _argmin):
    with_axis_of_steps(_op, axis_behind_steps)
    _op.no_gradient()


def argmax(x: Numbers, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The position of the first largest element along `axis`, or in the flattened Tensor."""
    return _position(_argmax, x, axis, keepdims)


def argmin(x: Numbers, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The position of the first smallest element along `axis`, or in the flattened Tensor."""
    return _position(_argmin, x, axis, keepdims)


def _position(op: Any, x: Any, axis: int | None, keepdims: bool) -> Tensor:
    tensor = _not_empty(x, axis, op.name)
    if axis is None:
        position: Tensor = op.bind(sh.reshape(tensor, (-1,)), axis=0)
        return sh.reshape(position, (1,) * tensor.ndim) if keepdims else position
    number = as_axis(axis, tensor.ndim, op.name)
    position = op.bind(tensor, axis=number)
    return sh.expand_dims(position, number) if keepdims else position


def _not_empty(x: Any, axis: Axis, name: str) -> Tensor:
    tensor = as_tensor(x, name)
    if _count(tensor.shape, as_axes(axis, tensor.ndim, name)) == 0:
        raise ShapeError(f"{name}: there is nothing along axis {axis} of a Tensor of shape {tensor.shape}.")
    return tensor


def _count(shape: tuple[int, ...], axes: tuple[int, ...]) -> int:
    return math.prod(shape[axis] for axis in axes)
