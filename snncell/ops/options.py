"""Options of operations as they are used: axes, integers, numbers, shapes."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.base.arguments.shown import show
from snncell.errors import ArgumentError, ShapeError


def _memory() -> int:
    """Bytes of memory that the machine has; where it does not say, a terabyte."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 2**40


MEMORY = _memory()


def as_axes(axis: Any, ndim: int, name: str) -> tuple[int, ...]:
    """`axis` (None for all, an int, or several) as sorted axes from 0 on.

    Raises:
        ShapeError: for an axis that is not there, or named twice.
    """
    if axis is None or (isinstance(axis, (tuple, list)) and not axis):
        return tuple(range(ndim))
    named = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    axes = tuple(sorted(as_axis(one, ndim, name) for one in named))
    if len(set(axes)) != len(axes):
        raise ShapeError(f"{name}: axis {axis} names an axis twice.")
    return axes


def as_axis(axis: Any, ndim: int, name: str, argument: str = "axis") -> int:
    """One axis, counted from 0.

    Raises:
        ShapeError: for an axis that is not there.
    """
    number = as_int(axis, name, argument)
    if not ndim:
        raise ShapeError(f"{name}: axis {number} of a Tensor with 0 axes; it has none to name.")
    if not -ndim <= number < ndim:
        raise ShapeError(f"{name}: axis {number} of a Tensor with {ndim} axes; it must lie in [{-ndim}, {ndim - 1}].")
    return number % ndim


def as_int(x: Any, name: str, argument: str) -> int:
    """`x` as a Python integer.

    Raises:
        ArgumentError: for anything that is none.
    """
    if isinstance(x, bool) or not isinstance(x, (int, np.integer)):
        raise ArgumentError(f"{name}: {argument} is an integer, not {show(x)}.")
    if abs(int(x)) >= 2**80:  # what 64 bits do not hold is refused further on, with the reason; this is hardly meant
        raise ArgumentError(f"{name}: {argument} is an integer, not {show(x)}.")
    return int(x)


def as_ints(value: Any, name: str, argument: str) -> tuple[int, ...]:
    """An integer, or a tuple or list of them, as a tuple.

    Raises:
        ArgumentError: for anything else.
    """
    numbers = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    return tuple(as_int(n, name, argument) for n in numbers)


def as_number(value: Any, name: str, argument: str) -> int | float:
    """`value` as it is, if it is a Python or NumPy number.

    Raises:
        ArgumentError: for anything else.
    """
    # The last of NUMBERS is bfloat16's, which is no np.floating.
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating, dtypes.NUMBERS[-1])):
        raise ArgumentError(f"{name}: {argument} is a number, not {show(value)}.")
    return value if isinstance(value, (int, float)) else value.item()


def as_shape(shape: Any, name: str) -> tuple[int, ...]:
    """A shape from an int, or a tuple or list of ints, none negative."""
    sizes = as_ints(shape, name, "shape")
    if any(n < 0 for n in sizes):
        raise ShapeError(f"{name}: shape {sizes} has a negative length.")
    refuse_size(sizes, name)
    return sizes


def refuse_size(sizes: tuple[int, ...], name: str) -> None:
    """Raise an ArgumentError for an array that the machine has no memory for, before it is asked for it."""
    least = math.prod(sizes) * 4  # bytes, in float32
    if least > MEMORY:
        size = f"{least / 2**30:,.0f}" if least < 2**80 else "more than 2^50"
        raise ArgumentError(
            f"{name}: an array of shape {show(sizes)} takes {size} GiB, and this machine has {MEMORY / 2**30:,.0f}."
        )


def probability(p: Any, name: str, argument: str) -> float:
    """`p` as it is, if it is a number in [0, 1].

    Raises:
        ArgumentError: for anything else.
    """
    if isinstance(p, bool) or not isinstance(p, (int, float)) or not 0.0 <= p <= 1.0:
        raise ArgumentError(f"{name}: {argument} is a number in [0, 1], not {show(p)}.")
    return float(p)
