"""Reductions, softmax, and cumulative sums, products and extremes.

`axis` is an axis, several axes (a tuple), or None (the default) for all; `keepdims` keeps them with length 1.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.base.arguments.kinds import Dtype, Numbers
from snncell.compiler.ir.operations import CAST, Reduction, Sum
from snncell.errors import DTypeError
from snncell.kernels import sums
from snncell.kernels.cuda import functions as lines
from snncell.kernels.scalar import LOOP
from snncell.kernels.space import DEVICE
from snncell.ops import arithmetic as ar, base as new, shape as sh, transcendental as tr
from snncell.ops.base import Axis, Grads, as_axes, as_axis, as_float, as_number, as_tensor, astype, to_compute_dtype
from snncell.ops.gathering import gather_elements
from snncell.tape.primitive import Composite, Primitive, axis_after_steps, with_axis_of_steps
from snncell.tape.tensor import Tensor, on_device_of, snapshot
from snncell.tape.transforms import stop_gradient

__all__ = [
    "all", "amax", "amin", "any", "argmax", "argmax_with_value", "argmin", "argmin_with_value", "count_nonzero",
    "cummax", "cummin", "cumprod", "cumsum", "log_softmax", "logcumsumexp", "logsumexp", "max", "mean", "min",
    "nanmean", "nansum", "prod", "softmax", "std", "sum", "var",
]  # fmt: skip


def _reduction(name: str, join: str, start: Callable[[Any], str]) -> Reduction:
    function = getattr(np, name)
    return Reduction(name, lambda x, axis, keepdims: function(x, axis, keepdims=keepdims), join, start)


def _limit(dtype: Any, lowest: bool) -> str:
    """The source text of the lowest, or the highest, number of a dtype."""
    if dtypes.is_float(dtype):
        return "-np.inf" if lowest else "np.inf"
    if dtype.kind == "b":
        return str(not lowest)
    return str(np.iinfo(dtype).min if lowest else np.iinfo(dtype).max)


sum_primitive = _sum = Sum()
_sum.times = ar.mul
_max = _reduction("max", LOOP["maximum"], lambda dtype: _limit(dtype, True))
_min = _reduction("min", LOOP["minimum"], lambda dtype: _limit(dtype, False))
_any = _reduction("any", "{0} | {1}", lambda dtype: "False")
_all = _reduction("all", "{0} & {1}", lambda dtype: "True")
_any.no_gradient()
_all.no_gradient()

# Arithmetic for lower layers, which cannot import `ops`: on the device, and in plans that compute all steps at once.
DEVICE.arithmetic.update({"add": ar.add, "mul": ar.mul, "sum": _sum, "min": _min, "max": _max, "cast": CAST})


@_sum.def_bprop
def _(x: Tensor, _out: Tensor, dout: Tensor, *, axis: tuple[int, ...], keepdims: bool) -> Grads:
    return (sh.broadcast_unchecked(_with_kept_axes(dout, axis, keepdims), x.shape),)


@_max.def_bprop
@_min.def_bprop
def _(x: Tensor, out: Tensor, dout: Tensor, *, axis: tuple[int, ...], keepdims: bool) -> Grads:
    chosen = astype(ar.equal(x, _with_kept_axes(out, axis, keepdims)), dout.dtype)  # ties share equally
    return (chosen * (_with_kept_axes(dout, axis, keepdims) / sum(chosen, axis, keepdims=True)),)


def _with_kept_axes(x: Tensor, axis: tuple[int, ...], keepdims: bool) -> Tensor:
    """Restore the reduced axes of a reduction's result, with length 1."""
    if keepdims:
        return x
    lengths = iter(x.shape)
    return sh.reshape_unchecked(x, tuple([1 if a in axis else next(lengths) for a in range(x.ndim + len(axis))]))


def _reduce_axes(reduction: Reduction, x: Any, axis: Axis, keepdims: bool) -> Tensor:
    tensor = as_tensor(x, reduction.name)
    axes = as_axes(axis, tensor.ndim, reduction.name)
    if not axes:
        return snapshot(tensor)
    return reduction.bind(tensor, axis=axes, keepdims=bool(keepdims))


# --- Sums and means ---------------------------------------------------------------------------------------------------


def sum(x: Numbers, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Sum of elements along axes. Booleans and integers are added as int64.

    Long float32 sums keep their precision, because blocks of 32 terms are added in float32 and the blocks in float64.
    """
    return _reduce_axes(_sum, not_narrow(x, "sum"), axis, keepdims)


def not_narrow(x: Any, name: str) -> Tensor:
    """Convert booleans and integers to int64, so that sums and products seldom overflow."""
    tensor = as_tensor(x, name)
    return tensor if tensor.dtype.is_float else astype(tensor, dtypes.int64)


def prod(x: Numbers, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Product of elements along axes. Gradients of any order are correct, even if elements are 0."""
    tensor = not_narrow(x, "prod")
    axes = as_axes(axis, tensor.ndim, "prod")
    if not axes:
        return snapshot(tensor)
    outer = [a for a in range(tensor.ndim) if a not in axes]
    left = tuple(tensor.shape[a] for a in outer)
    rest = sh.reshape(sh.transpose(tensor, (*outer, *axes)), (*left, _count_elements(tensor.shape, axes)))
    while rest.shape[-1] > 1:
        half = rest.shape[-1] // 2
        pairs = rest[..., :half] * rest[..., half : 2 * half]
        rest = sh.concat([pairs, rest[..., 2 * half :]], -1) if rest.shape[-1] % 2 else pairs
    with on_device_of(tensor):
        product = rest[..., 0] if rest.shape[-1] else new.ones(left, tensor.dtype)
    return sh.expand_dims(product, axes) if keepdims else product


def mean(x: Numbers, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Arithmetic mean along axes. Integers give float32; float16 and bfloat16 are added in float32."""
    tensor = as_float(x, "mean")
    axes = as_axes(axis, tensor.ndim, "mean")
    total = _reduce_axes(_sum, to_compute_dtype(tensor), axes, keepdims)
    return astype(total / _count_elements(tensor.shape, axes), tensor.dtype)


def count_nonzero(x: Numbers, axis: Axis = None, keep_dims: bool = False, dtype: Dtype = dtypes.int32) -> Tensor:
    """Number of nonzero elements along axes, as int32 by default."""
    truths: Tensor = ar.not_equal(as_tensor(x, "count_nonzero"), 0)
    return astype(sum(truths, axis, keep_dims), dtype)


def nansum(x: Numbers, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Sum of elements that ignores NaN."""
    tensor = as_tensor(x, "nansum")
    return sum(_zero_nan(tensor) if tensor.dtype.is_float else tensor, axis, keepdims)


def nanmean(x: Numbers, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Mean of elements that ignores NaN; NaN where all elements are NaN."""
    tensor = as_float(x, "nanmean")
    count = sum(ar.logical_not(ar.isnan(tensor)), axis, keepdims)
    wide = to_compute_dtype(_zero_nan(tensor))
    return astype(sum(wide, axis, keepdims) / astype(count, wide.dtype), tensor.dtype)


def _zero_nan(x: Tensor) -> Tensor:
    return ar.where(ar.isnan(x), 0.0, x)


def var(x: Numbers, axis: Axis = None, ddof: float = 0, keepdims: bool = False) -> Tensor:
    """Variance: sum((x - mean)^2) / (n - ddof), or a division by 0 for n <= ddof."""
    tensor = as_float(x, "var")
    axes = as_axes(axis, tensor.ndim, "var")
    n = builtins.max(_count_elements(tensor.shape, axes) - as_number(ddof, "var", "ddof"), 0)
    if tensor.dtype.category == 3:
        raise DTypeError("var: takes real numbers. Take ops.real(x), ops.imag(x) or ops.abs(x) first.")
    squares = _squares(to_compute_dtype(tensor), axis=axes, keepdims=keepdims)
    return astype(squares / n, tensor.dtype)


@Composite
def _squares(x: Tensor, *, axis: tuple[int, ...], keepdims: bool) -> Tensor:
    # In two passes, because mean(x^2) - mean(x)^2 loses precision by cancellation.
    return _reduce_axes(_sum, tr.square(x - mean(x, axis, keepdims=True)), axis, keepdims)


# The mean itself contributes no gradient, because the distances from it add up to 0.
@_squares.def_bprop
def _(x: Tensor, _out: Tensor, dout: Tensor, *, axis: tuple[int, ...], keepdims: bool) -> Grads:
    return ((x - mean(x, axis, keepdims=True)) * (_with_kept_axes(dout, axis, keepdims) * 2.0),)


def std(x: Numbers, axis: Axis = None, ddof: float = 0, keepdims: bool = False) -> Tensor:
    """Standard deviation, the square root of `var`. Its gradient is 0 where the deviation is 0."""
    tensor = as_float(x, "std")
    return astype(tr.root(var(to_compute_dtype(tensor), axis, ddof, keepdims)), tensor.dtype)


# --- Extremes ---------------------------------------------------------------------------------------------------------


def max(x: Numbers, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Maximum along axes, NaN if there is a NaN. All largest elements share the gradient equally."""
    return _reduce_axes(_max, new.not_empty(x, axis, "max"), axis, keepdims)


def min(x: Numbers, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Minimum along axes, NaN if there is a NaN. All smallest elements share the gradient equally."""
    return _reduce_axes(_min, new.not_empty(x, axis, "min"), axis, keepdims)


def any(x: Numbers, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """True if any element along the axes is true."""
    return _reduce_axes(_any, astype(x, dtypes.bool_), axis, keepdims)


def all(x: Numbers, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """True if all elements along the axes are true."""
    return _reduce_axes(_all, astype(x, dtypes.bool_), axis, keepdims)


_argmax, _argmin = Primitive("argmax", np.argmax), Primitive("argmin", np.argmin)

for _op, _there in ((_argmax, lines.argmax), (_argmin, lines.argmin)):
    _op.def_on_gpu(_there)
    with_axis_of_steps(_op, axis_after_steps)
    _op.no_gradient()


def argmax(x: Numbers, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Position of the first largest element along `axis`, or in the flattened Tensor."""
    return _position_of_extreme(_argmax, x, axis, keepdims)


def argmin(x: Numbers, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Position of the first smallest element along `axis`, or in the flattened Tensor."""
    return _position_of_extreme(_argmin, x, axis, keepdims)


def _position_of_extreme(op: Any, x: Any, axis: int | None, keepdims: bool) -> Tensor:
    tensor = new.not_empty(x, axis, op.name)
    if axis is None:
        position: Tensor = op.bind(sh.reshape(tensor, (-1,)), axis=0)
        return sh.reshape(position, (1,) * tensor.ndim) if keepdims else position
    number = as_axis(axis, tensor.ndim, op.name)
    position = op.bind(tensor, axis=number)
    return sh.expand_dims(position, number) if keepdims else position


def _count_elements(shape: tuple[int, ...], axes: tuple[int, ...]) -> int:
    return math.prod(shape[axis] for axis in axes)


amax = max
amin = min


def argmax_with_value(x: Numbers, axis: int = 0, keep_dims: bool = False) -> tuple[Tensor, Tensor]:
    """Position and value of the first largest element along an axis."""
    return argmax(x, axis, keep_dims), max(x, axis, keep_dims)


def argmin_with_value(x: Numbers, axis: int = 0, keep_dims: bool = False) -> tuple[Tensor, Tensor]:
    """Position and value of the first smallest element along an axis."""
    return argmin(x, axis, keep_dims), min(x, axis, keep_dims)


# --- Sums of exponentials ---------------------------------------------------------------------------------------------


def logsumexp(x: Numbers, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """log(sum(exp(x))) along axes, without overflow; -inf without elements.

    The gradient is softmax(x). All elements equal to an infinite result share it evenly, as in `logaddexp`.
    """
    tensor = as_float(x, "logsumexp")
    axes = as_axes(axis, tensor.ndim, "logsumexp")
    if not _count_elements(tensor.shape, axes):
        return sum(tensor, axis, keepdims) - math.inf
    peak = stop_gradient(_reduce_axes(_max, tensor, axis, keepdims=True))
    result = tr.log(sum(tr.exp_below(tensor, peak), axis, keepdims=True)) + peak
    return result if keepdims else sh.squeeze(result, axes)


@Composite
def _softmax(x: Tensor, *, axis: int) -> Tensor:
    raised = tr.exp(x - max(x, axis, keepdims=True))
    return raised / sum(raised, axis, keepdims=True)


# The gradient uses the output only, so no exponential is computed again.
_softmax.def_bprop(lambda x, out, dout, *, axis: (out * (dout - sum(dout * out, axis, keepdims=True)),))


@Composite
def _log_softmax(x: Tensor, *, axis: int) -> Tensor:
    shifted = x - max(x, axis, keepdims=True)
    return shifted - tr.log(sum(tr.exp(shifted), axis, keepdims=True))


_log_softmax.def_bprop(lambda x, out, dout, *, axis: (dout - tr.exp(out) * sum(dout, axis, keepdims=True),))


def softmax(x: Numbers, axis: int = -1) -> Tensor:
    """Softmax: exp(x) / sum(exp(x)) along `axis`, without overflow."""
    return _along_axis(_softmax, x, axis, "softmax")


def log_softmax(x: Numbers, axis: int = -1) -> Tensor:
    """Logarithm of softmax along `axis`, exact where softmax underflows."""
    return _along_axis(_log_softmax, x, axis, "log_softmax")


def _along_axis(function: Callable[..., Tensor], x: Any, axis: int, name: str) -> Tensor:
    tensor = as_float(x, name)
    number = as_axis(axis, tensor.ndim, name)
    if not tensor.shape[number]:
        return tensor * 1.0  # an empty result of the same shape
    return astype(function(to_compute_dtype(tensor), axis=number), tensor.dtype)


# --- Cumulative sums, products and extremes ---------------------------------------------------------------------------


_cumsum = Primitive("cumsum", sums.running)
_cumsum.def_on_gpu(lines.cumsum)
with_axis_of_steps(_cumsum, axis_after_steps)
_cumsum.additive = True


# x_i is in every sum from the i-th on, so its gradient is a cumulative sum of dout from the end.
_cumsum.def_bprop(lambda _x, _out, dout, *, axis: (sh.flip(cumsum(sh.flip(dout, axis), axis), axis),))


def cumsum(x: Numbers, axis: int) -> Tensor:
    """Cumulative sum along `axis`; float32 is accumulated in float64."""
    tensor = not_narrow(x, "cumsum")
    return _cumsum.bind(tensor, axis=as_axis(axis, tensor.ndim, "cumsum"))


def _scan_by_doubling(join: Callable[..., Any], axis: int, *xs: Tensor) -> tuple[Tensor, ...]:
    """x_1, x_1 . x_2, x_1 . x_2 . x_3, ... along an axis, for one Tensor or several that `join` combines together."""
    # After k rounds, each element combines the 2^k elements up to it. So gradients of any order follow from `join`, and
    # there is no division by an element, which may be 0.
    length, reach = xs[0].shape[axis], 1
    while reach < length:
        heads, tails = zip(*(sh.split(x, [reach, length - reach], axis) for x in xs), strict=True)
        earlier = [sh.split(x, [length - reach, reach], axis)[0] for x in xs]
        joined = join(*earlier, *tails)
        joined = joined if isinstance(joined, tuple) else (joined,)
        xs = tuple(sh.concat(list(pair), axis) for pair in zip(heads, joined, strict=True))
        reach *= 2
    return xs


def cumprod(x: Numbers, dim: int) -> Tensor:
    """Cumulative product along an axis. The gradient is correct even if elements are 0."""
    tensor = not_narrow(x, "cumprod")
    return _scan_by_doubling(ar.mul, as_axis(dim, tensor.ndim, "cumprod", "dim"), snapshot(tensor))[0]


def logcumsumexp(x: Numbers, axis: int) -> Tensor:
    """Cumulative `logsumexp` along an axis: log(exp(x_1) + ... + exp(x_i)), without overflow.

    The gradient equals the gradient of `logsumexp` of the elements up to i, including at infinities.
    """
    tensor = as_float(x, "logcumsumexp")
    number = as_axis(axis, tensor.ndim, "logcumsumexp")
    return _scan_by_doubling(_log_join, number, snapshot(tensor), new.ones_like(tensor))[0]


def _log_join(x: Tensor, many: Tensor, y: Tensor, more: Tensor) -> tuple[Tensor, Tensor]:
    """Combine two partial logsumexps, and count the elements that produce an infinite one."""
    a, b = stop_gradient((x, y))
    both = many + more
    return tr.log_join(x, y, many / both), ar.where(ar.equal(a, b), both, ar.where(ar.greater(a, b), many, more))


def cummax(x: Numbers, axis: int) -> tuple[Tensor, Tensor]:
    """Cumulative maximum along an axis, and its positions (the last of equal elements); no complex numbers."""
    return _running(ar.maximum, x, axis, "cummax")


def cummin(x: Numbers, axis: int) -> tuple[Tensor, Tensor]:
    """Cumulative minimum along an axis, and its positions (the last of equal elements); no complex numbers."""
    return _running(ar.minimum, x, axis, "cummin")


def _running(better: Callable[[Tensor, Tensor], Tensor], x: Numbers, axis: int, name: str) -> tuple[Tensor, Tensor]:
    tensor = as_tensor(x, name)
    if tensor.dtype.category == 3:
        raise DTypeError(f"{name}: complex numbers have no order. Take ops.real(x), ops.imag(x) or ops.abs(x).")
    number = as_axis(axis, tensor.ndim, name)
    values = stop_gradient(tensor)
    (best,) = _scan_by_doubling(better, number, values)
    places = np.arange(tensor.shape[number]).reshape([-1 if a == number else 1 for a in range(tensor.ndim)])
    # The last position so far of the best element. From a NaN on, the NaN is the best.
    hits = ar.equal(values, best)
    if tensor.dtype.category == 2:
        hits = ar.logical_or(hits, ar.isnan(values))
    steps = new.array_beside(places, tensor)
    (found,) = _scan_by_doubling(ar.maximum, number, ar.where(hits, steps, 0))
    return gather_elements(tensor, number, found), found
