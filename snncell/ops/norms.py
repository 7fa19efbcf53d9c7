"""Norms of vectors and matrices, and clipping of values and gradients."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, Literal

from snncell.base.arguments.kinds import ExtendedReal, Numbers, Positive
from snncell.errors import ArgumentError, ShapeError
from snncell.ops import arithmetic as ar, reduce, shape as sh, transcendental as tr
from snncell.ops.base import Axis, as_axes, as_float, as_tensor, astype, to_compute_dtype
from snncell.tape.tensor import Tensor, snapshot
from snncell.tape.transforms import stop_gradient

__all__ = ["clip_by_global_norm", "clip_by_norm", "clip_by_value", "norm"]


def norm(
    A: Numbers,  # noqa: N803 (MindSpore's name)
    ord: ExtendedReal | Literal["fro", "nuc"] | None = None,
    dim: Axis = None,
    keepdim: bool = False,
) -> Tensor:
    """Norm of vectors, (sum |x|^p)^(1/p), or of matrices if there are two axes and an `ord`.

    Args:
        A: any shape; integers become float32.
        ord: p. None means 2, over all elements along `dim`. inf gives the largest |x|, -inf the smallest, and 0 the
            number of nonzero elements. For matrices: "fro" (the root of the sum of squares); the largest sum of |x|
            along a column (1) or a row (inf), or the smallest (-1, -inf).
        dim: the axis, or axes; by default all.
        keepdim: keep the axes with length 1.
    Raises: ArgumentError for matrix norms by singular values (2, -2, "nuc"); ShapeError for three axes and an `ord`.
    Note: If all elements are 0, the gradient is 0, which is one of the subgradients, as for `abs` at 0.
    """
    given = as_float(A, "norm")
    tensor = to_compute_dtype(given)
    if tensor.dtype is not given.dtype:  # because squares overflow in float16
        return astype(norm(tensor, ord, dim, keepdim), given.dtype)
    axes = as_axes(dim, tensor.ndim, "norm")
    if isinstance(ord, str) and (ord != "fro" or len(axes) > 2):
        raise ArgumentError(f'norm: ord must be a number or "fro", for one or two axes, not {ord!r}; ' + _SINGULAR)
    if ord is None or ord == "fro" or (ord == 2 and len(axes) < 2):
        return tr.root(reduce.sum(_squares(tensor), axes or None, keepdim)) if axes else ar.abs(tensor)
    if (dim is None or (isinstance(dim, Sequence) and not dim)) and tensor.ndim > 1:
        raise ShapeError(f"norm: ord={ord} of a Tensor of shape {tensor.shape}; pass the axis as dim, or flatten it.")
    if len(axes) == 2:
        return _of_matrices(tensor, ord, dim, keepdim)
    if len(axes) > 2:
        raise ShapeError(f"norm: ord={ord} needs one or two axes, not {len(axes)}.")
    return _of_vectors(tensor, ord, axes, keepdim)


_SINGULAR = "for norms by singular values use NumPy: np.linalg.norm(x.asnumpy(), ord)."


def _of_matrices(x: Tensor, ord: Any, dim: Any, keepdim: bool) -> Tensor:
    rows, columns = (axis % x.ndim for axis in dim)
    if ord not in (1, -1, math.inf, -math.inf):
        raise ArgumentError(f'norm: for matrices, ord must be "fro", 1, -1 or an infinity, not {ord}; {_SINGULAR}')
    added, kept = (rows, columns) if abs(ord) == 1 else (columns, rows)
    sums = reduce.sum(ar.abs(x), added, keepdims=True)
    result = (reduce.max if ord > 0 else reduce.min)(sums, kept, keepdims=True)
    return result if keepdim else sh.squeeze(result, tuple(sorted((rows, columns))))


def _of_vectors(x: Tensor, p: float, axes: tuple[int, ...], keepdim: bool) -> Tensor:
    sizes: Tensor = ar.abs(x)
    if p == 0:
        return reduce.count_nonzero(x, axes, keepdim, x.dtype)
    if abs(p) == math.inf:
        return (reduce.max if p > 0 else reduce.min)(sizes, axes, keepdim)
    if p == 1:
        return reduce.sum(sizes, axes, keepdim)
    # Scale by the dominant element, so that no power overflows. Norm and gradient do not depend on the scale.
    some_left = p < 0 or all(x.shape[axis] for axis in axes)  # without elements, the norm is 0 for p > 0
    unit: Any = stop_gradient((reduce.max if p > 0 else reduce.min)(sizes, axes, keepdims=True)) if some_left else 1.0
    unit = ar.where(ar.logical_or(ar.equal(unit, 0.0), ar.equal(unit, math.inf)), 1.0, unit)
    nothing = ar.equal(sizes, 0.0)
    power = 0.0 if p > 0 else math.inf  # 0 ** p
    total = reduce.sum(ar.where(nothing, power, tr.pow(ar.where(nothing, 1.0, sizes / unit), p)), axes, True)
    none = ar.equal(total, power)
    result = ar.where(none, 0.0, tr.pow(ar.where(none, 1.0, total), 1.0 / p) * unit)
    return result if keepdim else sh.squeeze(result, axes)


def clip_by_value(x: Any, clip_value_min: Numbers | None = None, clip_value_max: Numbers | None = None) -> Any:
    """Limit a Tensor, or each Tensor in a tuple or list, to [clip_value_min, clip_value_max].

    You can leave out one bound. Without bounds, or for a minimum above the maximum, an ArgumentError is raised.
    """
    if not isinstance(x, (tuple, list)):
        return ar.clip(x, clip_value_min, clip_value_max)
    return tuple(clip_by_value(part, clip_value_min, clip_value_max) for part in x)


def clip_by_norm(x: Numbers, max_norm: Positive, norm_type: ExtendedReal = 2.0) -> Tensor:
    """Scale `x` down to the norm `max_norm` if its norm is larger."""
    return clip_by_global_norm([as_tensor(x, "clip_by_norm")], max_norm, norm_type=norm_type)[0]


def clip_by_global_norm(
    x: Any, clip_norm: Positive = 1.0, use_norm: Numbers | None = None, *, norm_type: ExtendedReal = 2.0
) -> tuple[Tensor, ...]:
    """Gradient clipping: scale several Tensors down together if their common norm exceeds `clip_norm`.

    x_i min(1, clip_norm / n)  with n = (sum of |x|^p over all elements of all Tensors)^(1/p)

    You can use it against exploding gradients in recurrent networks. n is computed from x / max |x|, in float32 at
    least, so that no power overflows or underflows. If an element is infinite or NaN, all results are NaN.

    Args:
        x: a tuple or list of Tensors, for example the gradients of a network.
        clip_norm: the largest norm.
        use_norm: n, if you know it already.
        norm_type: p.
    Source: Pascanu, Mikolov and Bengio, "On the difficulty of training recurrent neural networks", ICML 2013.
    Example:
        >>> (clipped,) = ops.clip_by_global_norm([Tensor([3.0, 4.0])], 1.0)
        >>> clipped
        Tensor(shape=[2], dtype=Float32, value= [ 6.00000024e-01,  8.00000012e-01])
    """
    if not isinstance(x, (tuple, list)) or not x:
        raise ArgumentError("clip_by_global_norm: x must be a tuple or list of at least one Tensor.")
    originals = tuple(as_float(part, "clip_by_global_norm") for part in x)
    wide = [to_compute_dtype(g) for g in originals]
    # The result does not depend on the peak, so it needs no gradient.
    peaks = [stop_gradient(reduce.max(ar.abs(g))) for g in wide if g.size]
    if not peaks:
        return tuple(snapshot(g) for g in originals)
    peak = functools.reduce(ar.maximum, peaks)
    peak = ar.where(ar.equal(peak, 0.0), 1.0, peak)
    units = [g / peak for g in wide]
    if use_norm is None:
        length = _common_length(units, norm_type)
    else:
        length = as_tensor(use_norm, "clip_by_global_norm", "use_norm") / peak
    short = ar.less_equal(length, clip_norm / peak)  # False for NaN
    scale = clip_norm / ar.where(ar.equal(length, 0.0), 1.0, length)
    pairs = zip(originals, units, strict=True)
    return tuple(ar.where(short, g, astype(unit * scale, g.dtype)) for g, unit in pairs)


def _squares(x: Tensor) -> Tensor:
    """|x|^2. No abs for real numbers, because its slope of 0 at 0 would make the second derivative 0."""
    return tr.square(ar.abs(x) if x.dtype.category == 3 else x)


def _common_length(tensors: list[Tensor], p: float) -> Tensor:
    if p == 2:
        squares = (reduce.sum(_squares(part)) for part in tensors)
        return tr.root(functools.reduce(ar.add, squares))
    return norm(sh.stack([norm(sh.ravel(part), p, 0) for part in tensors if part.size]), p, 0)
