"""Base class of quantisers (rounding to a grid with a straight-through gradient), and the scales of grids."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np

from snncell import dtype as dtypes, ops
from snncell.base.arguments.kinds import Within
from snncell.cell.cell import Cell
from snncell.cell.constants import Ranged
from snncell.errors import ArgumentError, DTypeError
from snncell.tape.tensor import Tensor, on_device_of, snapshot

Grid = tuple[Any, ...]
ScaleBits = Annotated[int, Within(1, 16)] | None


def round_scale(scale: Tensor, bits: int | None, *, up: bool = False) -> Any:
    """Round a positive scale to `bits` significant bits; `up` rounds away from 0. The gradient passes through.

    Multiples of a short scale and their sums are exact in float32. For example, 8 bits of a scale and 7 bits of an int8
    leave 9 of the 24 bits of float32 for a sum. One bit gives a power of two. Source: Veltkamp's splitting; Dekker, "A
    floating-point technique for extending the available precision", Numerische Mathematik 18, 1971.
    """
    if bits is None:
        return scale
    digits = 53 if scale.dtype is dtypes.float64 else 24
    value, factor = ops.stop_gradient(scale), 2.0 ** (digits - bits) + 1.0

    def nearest(x: Tensor) -> Any:
        large = x * factor
        return large - (large - x)

    near = nearest(value)
    if up:
        near = ops.select(ops.lt(near, value), nearest(near * (1.0 + 1.25 * 2.0**-bits)), near)
    return near + (scale - value)


def positive_or_one(scale: Tensor) -> Tensor:
    """The scale, or 1 if it is 0, for example for weights that are all 0. NaN stays."""
    return ops.select(ops.eq(scale, 0.0), 1.0, scale)


class Quantiser(Ranged, Cell):
    """Base class of quantisers: round x to step * levels, with integer levels and a straight-through gradient.

    To write your own grid, define these methods in a subclass. By default the derivative is 1 everywhere.

    grid(x)             the step first, then other values that the grid needs
    rounded(x, *grid)   the rounded values
    smooth(x, *grid)    the function with the derivative that the backward pass uses
    passes(x, *grid)    a mask, True where that derivative is 1 and False where it is 0; None for 1 everywhere

    `testing.check_bprop` checks the gradient; within `surrogate.smooth()`, `smooth` runs in place of `rounded`. Zeros
    stay zeros. A NaN or infinity makes all values with the same scale NaN. float16 and bfloat16 are rounded in float32.

    Inputs: x: floats of any shape.
    Returns: Values on the grid, in the shape and dtype of x.
    Raises: DTypeError for integers, because they are on a grid already.
    Source: Bengio, Leonard and Courville, "Estimating or Propagating Gradients Through Stochastic Neurons for
    Conditional Computation", 2013 (straight-through).
    Example:
        >>> class Halves(snncell.quantise.Quantiser):
        ...     def grid(self, x):
        ...         return (0.5,)
        ...
        ...     def rounded(self, x, step):
        ...         return ops.round(x / step) * step
        >>> print(Halves()(Tensor([0.3, 0.8, 1.0])))
        [0.5 1.  1. ]
    """

    def grid(self, x: Tensor) -> Grid:
        """The step, a number or a Tensor that broadcasts to x, and other values of the grid."""
        raise NotImplementedError(f"{type(self).__name__} has no method grid(self, x). It must return (step, ...).")

    def rounded(self, x: Tensor, *grid: Any) -> Any:
        """x, rounded to the grid."""
        raise NotImplementedError(
            f"{type(self).__name__} has no method rounded(self, x, *grid). It must return x rounded to the grid."
        )

    def smooth(self, x: Tensor, *grid: Any) -> Any:
        """The function with the derivative of the backward pass: x, unless a subclass clips it."""
        return snapshot(x)

    def passes(self, x: Tensor, *grid: Any) -> Any:
        """A mask of the values with a gradient; None for all."""
        return None

    def begin(self, x: Tensor) -> Quantiser:
        """Create the learned or moving scale, if there is one, from typical values x; return the quantiser."""
        return self

    def step(self, x: Tensor) -> Any:
        """The distance between neighbouring grid values: a number, or a Tensor that broadcasts to x."""
        return self.grid(at_least_float32(ops.stop_gradient(x)))[0]

    def construct(self, x: Tensor) -> Any:
        refuse_integers(x, self)
        if x.size == 0:
            return snapshot(x)
        values = at_least_float32(x)
        return self.rounded(values, *self.grid(ops.stop_gradient(values))).astype(x.dtype)

    def primitive(self, x: Tensor) -> Any:
        refuse_integers(x, self)
        values = at_least_float32(x)
        return self.smooth(values, *self.grid(ops.stop_gradient(values))).astype(x.dtype) if x.size else snapshot(x)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        if x.size == 0:
            return (dout,)
        values = at_least_float32(x)
        inside = self.passes(values, *self.grid(ops.stop_gradient(values)))
        return (dout if inside is None else ops.select(inside, dout, 0.0),)

    def integers(self, x: Tensor) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """The levels round(Q(x) / step) and the step, as NumPy arrays of int64 and float64.

        Example:
            >>> snncell.quantise.Uniform(4, scale_bits=1).integers(Tensor([0.875, -0.25]))[0].tolist()
            [7, -2]
        """
        step = self.step(x)
        unit = np.asarray(step.asnumpy() if isinstance(step, Tensor) else step, np.float64)
        return np.rint(self(x).asnumpy().astype(np.float64) / unit).astype(np.int64), unit


def at_least_float32(x: Tensor) -> Tensor:
    """Convert float16 and bfloat16 to float32."""
    return x.astype(dtypes.float32) if x.dtype.itemsize < 4 else x


def refuse_integers(x: Tensor, who: Quantiser) -> None:
    """Raise a DTypeError unless x is a float Tensor."""
    if not x.dtype.is_float:
        raise DTypeError(
            f"{type(who).__name__}: takes floats, not {x.dtype.name}, which is on a grid already. Pass "
            f"x.astype(float32)."
        )


# --- scales: from the maximum, a percentile, or the least error -------------------------------------------------------

# Shares of the maximum that `least_error` tries. Of equally good ones the first wins, because 1.0 clips nothing.
SHARES = tuple(1.0 - 0.05 * i for i in range(17))


def axes_of_scale(x: Tensor, axis: int | None) -> tuple[int, ...]:
    """The axes that share a scale: all, or all except `axis`."""
    if axis is not None and x.ndim and not -x.ndim <= axis < x.ndim:
        raise ArgumentError(f"per_channel=True: axis is {axis}, but the values have the shape {x.shape}.")
    return tuple(a for a in range(x.ndim) if axis is None or a != axis % x.ndim)


def reduce_scale(operation: Callable[..., Any], x: Tensor, axis: int | None) -> Any:
    """Reduce the values that share a scale by a mean, minimum or maximum. Reduced axes keep length 1."""
    axes = axes_of_scale(x, axis)
    return operation(x, axes, keepdims=True) if axes else x


def mean_over(x: Tensor, axis: int | None) -> Any:
    """The mean of the values that share a scale, in float64, so that the order of the sum hardly matters."""
    return reduce_scale(ops.mean, x.astype(dtypes.float64), axis).astype(x.dtype)


def largest_magnitude(x: Tensor, axis: int | None) -> Any:
    """The largest magnitude of the values that share a scale."""
    return reduce_scale(ops.max, ops.abs(x), axis)


def percentile_of(x: Tensor, axis: int | None, percent: float) -> Tensor:
    """The smallest magnitude such that at least `percent` percent of the values do not exceed it."""
    axes = axes_of_scale(x, axis)
    kept = [a for a in range(x.ndim) if a not in axes]
    rows = ops.transpose(ops.abs(x), (*kept, *axes)).reshape((-1, math.prod(x.shape[a] for a in axes)))
    count = rows.shape[1]
    place = min(max(math.ceil(percent / 100.0 * count) - 1, 0), count - 1)
    found: Tensor = ops.sort(rows, axis=1)[0][:, place]
    return found.reshape(tuple(1 if a in axes else n for a, n in enumerate(x.shape)))


def least_error(x: Tensor, axis: int | None, rounded: Callable[[Tensor, Tensor], Any]) -> Any:
    """The share of the maximum with the smallest squared error. `rounded(x, m)` rounds x to the grid that ends at m."""
    axes, top = axes_of_scale(x, axis), largest_magnitude(x, axis)
    with on_device_of(x):
        shares = Tensor(SHARES, x.dtype)
    each = top * shares.reshape((-1, *(1,) * x.ndim))  # all shares at once, on a new first axis
    errors = ops.square(rounded(x, each) - x).astype(dtypes.float64)
    errors = ops.sum(errors, tuple(a + 1 for a in axes), keepdims=True) if axes else errors
    return top * ops.gather(shares, ops.argmin(errors, 0), 0)
