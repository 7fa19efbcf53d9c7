"""The base class of quantisers (straight-through rounding to a grid), and the scales of grids."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np

from snncell import dtype as dtypes, ops
from snncell.base.arguments.kinds import Within
from snncell.cell.cell import Cell
from snncell.cell.held import Ranged
from snncell.errors import DTypeError
from snncell.tape.tensor import Tensor, beside, snapshot

Grid = tuple[Any, ...]
ScaleBits = Annotated[int, Within(1, 16)] | None


def round_scale(scale: Tensor, bits: int | None, *, up: bool = False) -> Any:
    """A positive scale rounded to so many significant bits; the gradient passes.

    With few of them a multiple of the scale, and a sum of multiples, are exact in float32: 8 bits of a scale and 7 of
    an int8 leave 9 for a sum. One bit is a power of two.

    Args:
        scale: positive values.
        bits: from 1 to 16; None leaves it as it is.
        up: whether to round away from 0, so that the largest value still has a place.

    Source: Veltkamp's splitting; T. J. Dekker, "A floating-point technique for extending the available precision",
    Numerische Mathematik 18, 1971.
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
    """A scale, and 1 where it is 0, as of weights that are all 0; NaN stays."""
    return ops.select(ops.eq(scale, 0.0), 1.0, scale)


class Quantiser(Ranged, Cell):
    """A function onto a grid: x -> step levels, with `levels` whole, and a straight-through backward pass.

    A subclass has four methods. `grid(x)` gives the step first, then what else the grid needs; `rounded(x, *grid)` the
    values on it; `smooth(x, *grid)` the function whose derivative the backward pass has; `passes(x, *grid)` where that
    derivative is 1, and not 0, or None for everywhere. `testing.check_bprop` compares the backward pass with the smooth
    function, and `surrogate.smooth()` runs it, as with spike functions.

    Zeros stay zeros, NaN stays NaN; NaN or infinity among values that share a scale makes all of them NaN. float16 and
    bfloat16 are rounded in float32, and the result to their own bits.

    Inputs:
        x: floats of any shape.

    Returns:
        Values on the grid, in the shape and dtype of x.

    Raises:
        DTypeError: for integers, which have their grid already.

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
        """The step of the grid, a number or a Tensor that broadcasts to x, and what else it is made of."""
        raise NotImplementedError(f"{type(self).__name__} has no method grid(self, x), which gives (step, ...).")

    def rounded(self, x: Tensor, *grid: Any) -> Any:
        """The values of x on the grid."""
        raise NotImplementedError(f"{type(self).__name__} has no method rounded(self, x, *grid), its values.")

    def smooth(self, x: Tensor, *grid: Any) -> Any:
        """The function whose derivative the reverse has; x itself, unless a subclass limits it."""
        return snapshot(x)

    def passes(self, x: Tensor, *grid: Any) -> Any:
        """A mask of the values whose gradient passes; None for all."""
        return None

    def begin(self, x: Tensor) -> Quantiser:
        """The quantiser itself, after making what is learned or followed for values such as these; by default none."""
        return self

    def step(self, x: Tensor) -> Any:
        """The distance of neighbouring values of the grid, a number or a Tensor that broadcasts to x."""
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
        """The levels of x, whole numbers, and the step: arrays of NumPy, int64 and float64.

        Example:
            >>> snncell.quantise.Uniform(4, scale_bits=1).integers(Tensor([0.875, -0.25]))[0].tolist()
            [7, -2]
        """
        step = self.step(x)
        unit = np.asarray(step.asnumpy() if isinstance(step, Tensor) else step, np.float64)
        return np.rint(self(x).asnumpy().astype(np.float64) / unit).astype(np.int64), unit


def at_least_float32(x: Tensor) -> Tensor:
    """float32 for what has half its bits."""
    return x.astype(dtypes.float32) if x.dtype.itemsize < 4 else x


def refuse_integers(x: Tensor, who: Quantiser) -> None:
    """Raise a DTypeError for what is no float."""
    if not x.dtype.is_float:
        raise DTypeError(
            f"{type(who).__name__}: takes floats, not {x.dtype.name}, which has a grid already; give x.astype(float32)."
        )


# --- scales: from the maximum, a percentile, or the least error -------------------------------------------------------

# Of the maximum, that the search for the least error tries: of equal ones the first, which clips nothing.
SHARES = tuple(1.0 - 0.05 * i for i in range(17))


def axes_of_scale(x: Tensor, axis: int | None) -> tuple[int, ...]:
    """The axes that share a scale: all, or all but one."""
    return tuple(a for a in range(x.ndim) if axis is None or a != axis % x.ndim)


def reduce_scale(operation: Callable[..., Any], x: Tensor, axis: int | None) -> Any:
    """The mean, minimum or maximum of the values that share a scale, over axes that are kept with length 1."""
    axes = axes_of_scale(x, axis)
    return operation(x, axes, keepdims=True) if axes else x


def mean_over(x: Tensor, axis: int | None) -> Any:
    """The mean of the values that share a scale; the order of a sum in float64 does not change a short scale."""
    return reduce_scale(ops.mean, x.astype(dtypes.float64), axis).astype(x.dtype)


def largest_magnitude(x: Tensor, axis: int | None) -> Any:
    """The largest magnitude of the values that share a scale."""
    return reduce_scale(ops.max, ops.abs(x), axis)


def percentile_of(x: Tensor, axis: int | None, percent: float) -> Tensor:
    """The magnitude that so many percent of the values do not exceed (the nearest of them, from above)."""
    axes = axes_of_scale(x, axis)
    kept = [a for a in range(x.ndim) if a not in axes]
    rows = ops.transpose(ops.abs(x), (*kept, *axes)).reshape((-1, math.prod(x.shape[a] for a in axes)))
    count = rows.shape[1]
    place = min(max(math.ceil(percent / 100.0 * count) - 1, 0), count - 1)
    found: Tensor = ops.sort(rows, axis=1)[0][:, place]
    return found.reshape(tuple(1 if a in axes else n for a, n in enumerate(x.shape)))


def least_error(x: Tensor, axis: int | None, rounded: Callable[[Tensor, Tensor], Any]) -> Any:
    """Of shares of the maximum the one with the least squared error: `rounded(x, magnitude)` is what x becomes."""
    axes, top = axes_of_scale(x, axis), largest_magnitude(x, axis)
    with beside(x):
        shares = Tensor(SHARES, x.dtype)
    each = top * shares.reshape((-1, *(1,) * x.ndim))  # all of them at once, on an axis in front
    errors = ops.square(rounded(x, each) - x).astype(dtypes.float64)
    errors = ops.sum(errors, tuple(a + 1 for a in axes), keepdims=True) if axes else errors
    return top * ops.gather(shares, ops.argmin(errors, 0), 0)
