"""Running results along an axis. By doubling: after k rounds each element has the 2^k elements up to it joined.

So the reverse is that of the operation that joins two, to any order, and nothing is divided by what may be 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from snncell.arguments.vocabulary import Numbers
from snncell.errors import DTypeError
from snncell.ops import elementwise as el, shape as sh
from snncell.ops.base import as_axis, as_float, as_tensor, primitive
from snncell.ops.logarithms import logaddexp
from snncell.ops.positions import gather_elements
from snncell.ops.reduce import not_narrow
from snncell.tape.tensor import Tensor, snapshot


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


@primitive
def _cummax_places(x: Any, axis: int) -> Any:
    return _places_of(np.maximum.accumulate(x, axis), x, axis)


@primitive
def _cummin_places(x: Any, axis: int) -> Any:
    return _places_of(np.minimum.accumulate(x, axis), x, axis)


_cummax_places.no_gradient()
_cummin_places.no_gradient()


def _places_of(best: Any, x: Any, axis: int) -> Any:
    """Where the best so far is, the last of equal ones; a NaN is the best from where it is."""
    numbers = np.arange(x.shape[axis]).reshape([-1 if a == axis else 1 for a in range(x.ndim)])
    return np.maximum.accumulate(np.where((x == best) | (x != x), numbers, 0), axis)


def cummax(x: Numbers, axis: int) -> tuple[Tensor, Tensor]:
    """The largest elements so far along an axis, and where they are, the last of equal ones.

    Raises:
        DTypeError: for complex numbers.
    """
    return _running(_cummax_places, x, axis, "cummax")


def cummin(x: Numbers, axis: int) -> tuple[Tensor, Tensor]:
    """The smallest elements so far along an axis, and where they are, the last of equal ones.

    Raises:
        DTypeError: for complex numbers.
    """
    return _running(_cummin_places, x, axis, "cummin")


def _running(places: Any, x: Numbers, axis: int, name: str) -> tuple[Tensor, Tensor]:
    tensor = as_tensor(x, name)
    if tensor.dtype.category == 3:
        raise DTypeError(f"{name}: complex numbers have no order. Take ops.real(x), ops.imag(x) or ops.abs(x).")
    number = as_axis(axis, tensor.ndim, name)
    found: Tensor = places.bind(tensor, axis=number)
    return gather_elements(tensor, number, found), found
