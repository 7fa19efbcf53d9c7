"""Running results along an axis. By doubling: after k rounds each element has the 2^k elements up to it joined.

So the reverse is that of the operation that joins two, to any order, and nothing is divided by what may be 0.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from snncell.arguments.vocabulary import Numbers
from snncell.errors import DTypeError
from snncell.ops import elementwise as el, logic as lg, shape as sh
from snncell.ops.base import as_axis, as_float, as_tensor
from snncell.ops.logarithms import logaddexp
from snncell.ops.positions import gather_elements
from snncell.ops.reduce import not_narrow
from snncell.tape.tensor import Tensor, beside, snapshot
from snncell.tape.transforms import stop_gradient


def _doubled(join: Callable[[Tensor, Tensor], Tensor], x: Tensor, axis: int) -> Tensor:
    """x_1, x_1 . x_2, x_1 . x_2 . x_3, ... along an axis."""
    length, reach = x.shape[axis], 1
    while reach < length:
        head, tail = sh.split(x, [reach, length - reach], axis)
        earlier = sh.split(x, [length - reach, reach], axis)[0]
        x = sh.concat([head, join(earlier, tail)], axis)
        reach *= 2
    return x


def cumprod(x: Numbers, dim: int) -> Tensor:
    """Running products along an axis; the gradient is exact where elements are 0, too."""
    tensor = not_narrow(x, "cumprod")
    return _doubled(el.mul, snapshot(tensor), as_axis(dim, tensor.ndim, "cumprod", "dim"))


def logcumsumexp(x: Numbers, axis: int) -> Tensor:
    """log(exp(x_1) + ... + exp(x_i)) along an axis, without overflow."""
    tensor = as_float(x, "logcumsumexp")
    return _doubled(logaddexp, snapshot(tensor), as_axis(axis, tensor.ndim, "logcumsumexp"))


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
    best = _doubled(better, values, number)
    with beside(tensor):
        places = Tensor(np.arange(tensor.shape[number]).reshape([-1 if a == number else 1 for a in range(tensor.ndim)]))
    # The last place so far at which an element is the best; a NaN is, from where it is.
    hits = (
        lg.equal(values, best) if tensor.dtype.category < 2 else lg.logical_or(lg.equal(values, best), lg.isnan(values))
    )
    found = _doubled(el.maximum, lg.where(hits, places, 0), number)
    return gather_elements(tensor, number, found), found
