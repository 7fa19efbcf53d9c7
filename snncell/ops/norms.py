"""Lengths of vectors, and gradients brought to a length."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, Literal

from snncell import dtype as dtypes
from snncell.base.arguments.kinds import Extended, Numbers, Positive
from snncell.errors import ArgumentError, ShapeError
from snncell.ops import arithmetic as ar, joining, reduce, shape as sh, transcendental as tr
from snncell.ops.base import Axis, as_axes, as_float, as_tensor, astype, to_compute_dtype
from snncell.tape.tensor import Tensor, snapshot
from snncell.tape.transforms import stop_gradient

__all__ = ["clip_by_global_norm", "clip_by_norm", "clip_by_value", "norm"]


def norm(
    A: Numbers,  # noqa: N803 (MindSpore's name)
    ord: Extended | Literal["fro", "nuc"] | None = None,
    dim: Axis = None,
    keepdim: bool = False,
) -> Tensor:
    """The length of vectors, (sum |x|^p)^(1/p), or with two axes and an `ord` a norm of matrices.

    Args:
        A: any shape; integers count as float32.
        ord: p; None for 2, of all the elements along `dim`. Infinities give the largest and the smallest |x|, 0 the
            number of elements that are not 0. Of matrices, along two axes: "fro" (the root of the sum of squares), 1
            and infinity (the largest sum along columns, along rows; negative: the smallest).
        dim: the axis, or axes; without it all.
        keepdim: leave them with length 1.

    Raises:
        ArgumentError: for norms of matrices that need their singular values (2, -2, "nuc").
        ShapeError: for three axes and an `ord`.

    Note:
        Where all elements are 0, the gradient is 0, one of the subgradients, as that of `abs` at 0.
    """
    given = as_float(A, "norm")
    tensor = to_compute_dtype(given)
    if tensor.dtype is not given.dtype:  # squares of float16 would overflow
        return astype(norm(tensor, ord, dim, keepdim), given.dtype)
    axes = as_axes(dim, tensor.ndim, "norm")
    if isinstance(ord, str) and (ord != "fro" or len(axes) > 2):
        raise ArgumentError(f'norm: ord is a number or "fro", of one axis or two, not {ord!r}; ' + _SINGULAR)
    if ord is None or ord == "fro" or (ord == 2 and len(axes) < 2):
        # Of real numbers without abs, whose slope of 0 at 0 would be taken for that of the square to the second order.
        squares = tr.square(ar.abs(tensor) if tensor.dtype.category == 3 else tensor)
        return tr.root(reduce.sum(squares, axes or None, keepdim)) if axes else ar.abs(tensor)
    if (dim is None or (isinstance(dim, Sequence) and not dim)) and tensor.ndim > 1:
        raise ShapeError(f"norm: ord={ord} of a Tensor of shape {tensor.shape}; name the axis by dim, or flatten it.")
    if len(axes) == 2:
        return _of_matrices(tensor, ord, dim, keepdim)
    if len(axes) > 2:
        raise ShapeError(f"norm: ord={ord} along one axis or two, not along {len(axes)}.")
    return _of_vectors(tensor, ord, axes, keepdim)


_SINGULAR = "norms by singular values are NumPy's: np.linalg.norm(x.asnumpy(), ord)."


def _of_matrices(x: Tensor, ord: Any, dim: Any, keepdim: bool) -> Tensor:
    rows, columns = (axis % x.ndim for axis in dim)
    if ord not in (1, -1, math.inf, -math.inf):
        raise ArgumentError(f'norm: of matrices, ord is "fro", 1, -1 or an infinity, not {ord}; {_SINGULAR}')
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
    # In units of the one that counts most, nothing overflows. The norm does not depend on it, nor does its gradient.
    some_left = p < 0 or all(x.shape[axis] for axis in axes)  # the sum of nothing is 0
    unit: Any = stop_gradient((reduce.max if p > 0 else reduce.min)(sizes, axes, keepdims=True)) if some_left else 1.0
    unit = ar.where(ar.logical_or(ar.equal(unit, 0.0), ar.equal(unit, math.inf)), 1.0, unit)
    nothing = ar.equal(sizes, 0.0)
    total = reduce.sum(
        ar.where(nothing, 0.0 if p > 0 else math.inf, tr.pow(ar.where(nothing, 1.0, sizes / unit), p)), axes, True
    )
    none = ar.equal(total, 0.0 if p > 0 else math.inf)
    result = ar.where(none, 0.0, tr.pow(ar.where(none, 1.0, total), 1.0 / p) * unit)
    return result if keepdim else sh.squeeze(result, axes)


# --- limits -----------------------------------------------------------------------------------------------------------


def clip_by_value(x: Any, clip_value_min: Numbers | None = None, clip_value_max: Numbers | None = None) -> Any:
    """Every Tensor of `x`, one or several in a tuple or list, limited to [clip_value_min, clip_value_max].
    No bound, or a lower one that is above, raises an ArgumentError.
    """
    if not isinstance(x, (tuple, list)):
        return ar.clip(x, clip_value_min, clip_value_max)
    return tuple(clip_by_value(part, clip_value_min, clip_value_max) for part in x)


def clip_by_norm(x: Numbers, max_norm: Positive, norm_type: Extended = 2.0) -> Tensor:
    """`x`, or if it is longer than `max_norm`, scaled down to that length."""
    return clip_by_global_norm([as_tensor(x, "clip_by_norm")], max_norm, norm_type=norm_type)[0]


def clip_by_global_norm(
    x: Any, clip_norm: Positive = 1.0, use_norm: Numbers | None = None, *, norm_type: Extended = 2.0
) -> tuple[Tensor, ...]:
    """Several Tensors, as the gradients of a network, scaled down together if they are longer than `clip_norm`.

    x_i min(1, clip_norm / n)  with n = (sum of |x|^p over all elements of all Tensors)^(1/p)

    n is computed of x / max |x|, in float32 at least, so that no power overflows or vanishes. Of a Tensor with an
    infinity or a NaN, all become NaN.

    Args:
        x: a tuple or list of Tensors.
        clip_norm: the length.
        use_norm: n, if it is known.
        norm_type: p.

    Source: Pascanu, Mikolov and Bengio, "On the difficulty of training recurrent neural networks", ICML 2013.

    Example:
        >>> (clipped,) = ops.clip_by_global_norm([Tensor([3.0, 4.0])], 1.0)
        >>> clipped
        Tensor(shape=[2], dtype=Float32, value= [ 6.00000024e-01,  8.00000012e-01])
    """
    if not isinstance(x, (tuple, list)) or not x:
        raise ArgumentError("clip_by_global_norm: x is a tuple or list of at least one Tensor.")
    originals = tuple(as_float(part, "clip_by_global_norm") for part in x)
    wide = [astype(g, dtypes.float32) if g.dtype.itemsize < 4 else g for g in originals]
    # The result is the same for any peak, so no gradient goes through it.
    peaks = [stop_gradient(reduce.max(ar.abs(g))) for g in wide if g.size]
    if not peaks:
        return tuple(snapshot(g) for g in originals)
    peak = functools.reduce(ar.maximum, peaks)
    peak = ar.where(ar.equal(peak, 0.0), 1.0, peak)
    units = [g / peak for g in wide]
    length = (
        _common_length(units, norm_type)
        if use_norm is None
        else as_tensor(use_norm, "clip_by_global_norm", "use_norm") / peak
    )
    short = ar.less_equal(length, clip_norm / peak)  # not so for a NaN
    scale = clip_norm / ar.where(ar.equal(length, 0.0), 1.0, length)
    pairs = zip(originals, units, strict=True)
    return tuple(ar.where(short, g, astype(unit * scale, g.dtype)) for g, unit in pairs)


def _common_length(tensors: list[Tensor], p: float) -> Tensor:
    if p == 2:
        squares = (reduce.sum(tr.square(part)) for part in tensors)
        return tr.root(functools.reduce(ar.add, squares))
    return norm(joining.stack([norm(sh.ravel(part), p, 0) for part in tensors if part.size]), p, 0)
