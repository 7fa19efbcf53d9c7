"""Sorting along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from snncell.base.arguments.kinds import Numbers
from snncell.errors import DTypeError
from snncell.kernels.cuda import sort as rows
from snncell.ops.base import as_axis, as_tensor, primitive
from snncell.ops.shape import flip, swapaxes
from snncell.tape.primitive import with_axis_of_steps
from snncell.tape.tensor import Tensor

Grads = Sequence[Any]


@primitive
def _argsort(x: Any) -> Any:
    return np.argsort(x, axis=-1, kind="stable")


@_argsort.def_there
def _(x: Any) -> Any:
    return rows.argsort(x)


_argsort.no_gradient()


@primitive
def _along(x: Any, order: Any) -> Any:
    """The elements of each row in an order."""
    return np.take_along_axis(x, order, -1)


@primitive
def _back(x: Any, order: Any) -> Any:
    """The inverse of `_along`."""
    # Every place is written to: an order is a permutation.
    out = np.empty_like(x)
    np.put_along_axis(out, order, x, -1)
    return out


for _op in (_argsort, _along, _back):
    with_axis_of_steps(_op)  # they go along the last axis


@_along.def_there
def _(x: Any, order: Any) -> Any:
    return rows.along(x, order)


@_back.def_there
def _(x: Any, order: Any) -> Any:
    return rows.back(x, order)


@_along.def_bprop
def _(_x: Tensor, order: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    return _back.bind(dout, order), None


@_back.def_bprop
def _(_x: Tensor, order: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    return _along.bind(dout, order), None


def _order(turned: Tensor, descending: bool) -> Tensor:
    """The positions that sort each row; equal elements keep their order, in both directions."""
    if not descending:
        ascending: Tensor = _argsort.bind(turned)
        return ascending
    # The order of the rows read backwards, itself read backwards.
    backwards: Tensor = flip(_argsort.bind(flip(turned, -1)), -1)
    return (turned.shape[-1] - 1) - backwards


def argsort(x: Numbers, axis: int = -1, descending: bool = False) -> Tensor:
    """The positions along `axis` that put the elements into ascending order, or descending, as int64.

    Equal elements keep their order, -0.0 and 0.0 are equal, NaN counts as the largest. No gradient flows through
    positions.

    Raises:
        DTypeError: for complex numbers.
    """
    tensor, number = _sortable(x, axis, "argsort")
    return swapaxes(_order(swapaxes(tensor, number, -1), descending), number, -1)


def sort(x: Numbers, axis: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    """The elements along `axis` in ascending order, or descending, and the positions that they come from.

    Equal elements keep their order, NaN counts as the largest; each element gets the gradient of the place it went to.

    Raises:
        DTypeError: for complex numbers.

    Example:
        >>> values, positions = ops.sort(Tensor([3.0, 1.0, 2.0]))
        >>> values.tolist(), positions.tolist()
        ([1.0, 2.0, 3.0], [1, 2, 0])
    """
    tensor, number = _sortable(x, axis, "sort")
    turned = swapaxes(tensor, number, -1)
    order = _order(turned, descending)
    return swapaxes(permute_rows(turned, order), number, -1), swapaxes(order, number, -1)


def permute_rows(x: Tensor, order: Tensor) -> Tensor:
    """The elements of each row of `x` in an order, such as `argsort` gives: x (..., n), order (..., n) -> (..., n)."""
    taken: Tensor = _along.bind(x, order)
    return taken


def _sortable(x: Any, axis: int, name: str) -> tuple[Tensor, int]:
    tensor = as_tensor(x, name)
    if tensor.dtype.category == 3:
        raise DTypeError(f"{name}: complex numbers have no order. Sort ops.real(x), ops.imag(x) or ops.abs(x).")
    return tensor, as_axis(axis, tensor.ndim, name)
