"""Running results along an axis. By doubling: after k rounds each element has the 2^k elements up to it joined.

So the reverse is that of the operation that joins two, to any order, and nothing is divided by what may be 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from snncell.base.arguments.kinds import Numbers
from snncell.errors import DTypeError
from snncell.ops import elementwise as el, logic as lg, shape as sh
from snncell.ops.base import as_axis, as_float, as_tensor
from snncell.ops.creation import ones_like
from snncell.ops.logarithms import log_join
from snncell.ops.positions import gather_elements
from snncell.ops.reduce import not_narrow
from snncell.tape.tensor import Tensor, beside, snapshot
from snncell.tape.transforms import stop_gradient


def _scan_by_doubling(join: Callable[..., Any], axis: int, *xs: Tensor) -> tuple[Tensor, ...]:
    """x_1, x_1 . x_2, x_1 . x_2 . x_3, ... along an axis, of one Tensor or of several that are joined together."""
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
    """Running products along an axis; the gradient is exact where elements are 0, too."""
    tensor = not_narrow(x, "cumprod")
    return _scan_by_doubling(el.mul, as_axis(dim, tensor.ndim, "cumprod", "dim"), snapshot(tensor))[0]


def logcumsumexp(x: Numbers, axis: int) -> Tensor:
    """log(exp(x_1) + ... + exp(x_i)) along an axis, without overflow.

    The gradient is that of `logsumexp` of the elements so far, at infinities too.
    """
    tensor = as_float(x, "logcumsumexp")
    number = as_axis(axis, tensor.ndim, "logcumsumexp")
    return _scan_by_doubling(_log_join, number, snapshot(tensor), ones_like(tensor))[0]


def _log_join(x: Tensor, many: Tensor, y: Tensor, more: Tensor) -> tuple[Tensor, Tensor]:
    """Join two running logarithms, and the numbers of elements that an infinite one consists of."""
    a, b = stop_gradient((x, y))
    both = many + more
    return log_join(x, y, many / both), lg.where(lg.equal(a, b), both, lg.where(lg.greater(a, b), many, more))


def cummax(x: Numbers, axis: int) -> tuple[Tensor, Tensor]:
    """The largest elements so far along an axis, and where they are, the last of equal ones.

    Raises:
        DTypeError: for complex numbers.
    """
    return _running(el.maximum, x, axis, "cummax")


def cummin(x: Numbers, axis: int) -> tuple[Tensor, Tensor]:
    """The smallest elements so far along an axis, and where they are, the last of equal ones.

    Raises:
        DTypeError: for complex numbers.
    """
    return _running(el.minimum, x, axis, "cummin")


def _running(better: Callable[[Tensor, Tensor], Tensor], x: Numbers, axis: int, name: str) -> tuple[Tensor, Tensor]:
    tensor = as_tensor(x, name)
    if tensor.dtype.category == 3:
        raise DTypeError(f"{name}: complex numbers have no order. Take ops.real(x), ops.imag(x) or ops.abs(x).")
    number = as_axis(axis, tensor.ndim, name)
    values = stop_gradient(tensor)
    (best,) = _scan_by_doubling(better, number, values)
    with beside(tensor):
        places = Tensor(np.arange(tensor.shape[number]).reshape([-1 if a == number else 1 for a in range(tensor.ndim)]))
    # The last place so far at which an element is the best; a NaN is, from where it is.
    hits = (
        lg.equal(values, best) if tensor.dtype.category < 2 else lg.logical_or(lg.equal(values, best), lg.isnan(values))
    )
    (found,) = _scan_by_doubling(el.maximum, number, lg.where(hits, places, 0))
    return gather_elements(tensor, number, found), found
