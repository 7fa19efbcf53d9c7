"""Elementwise operations: each is its formula and, right under it, its reverse.

In a formula, names such as `exp` or `where` mean scalar functions (`kernels/scalar.py`); in a reverse they are the
operations of this package. Conventions where a derivative does not exist: abs'(0) = 0, a tie of maximum or minimum
splits 0.5 / 0.5, clip's is 0 outside and 1 on its bounds. NaN passes through everything.

A reverse does not look at broadcasting: the tape sums a gradient to the shape of its input. Where a gradient costs
something and another operand may be the only one that has one, it is a function, called if it is needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from snncell.base.arguments.kinds import Dtype, Numbers
from snncell.compiler.ir.formula import Elementwise
from snncell.errors import ArgumentError
from snncell.ops.base import as_float, as_tensor, astype, elementwise
from snncell.ops.logic import equal, greater, isnan, less, logical_or, where
from snncell.tape.tensor import Tensor, snapshot

Grads = Sequence[Any]

# --- arithmetic -------------------------------------------------------------------------------------------------------


@elementwise("same", complex_numbers=True, booleans=True)
def add(x: Any, y: Any) -> Any:
    """x + y."""
    return x + y


add.additive = True


@add.def_bprop
def _(_x: Tensor, _y: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    return dout, dout


@elementwise("same", complex_numbers=True)
def sub(x: Any, y: Any) -> Any:
    """x - y."""
    return x - y


sub.additive = True


@sub.def_bprop
def _(_x: Tensor, _y: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    return dout, lambda: -dout


@elementwise("same", complex_numbers=True, booleans=True)
def mul(x: Any, y: Any) -> Any:
    """x * y."""
    return x * y


mul.proportional = lambda inputs, varying: sum(varying) == 1


@mul.def_bprop
def _(x: Tensor, y: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    return lambda: dout * conj(y), lambda: dout * conj(x)


@elementwise("float", complex_numbers=True)
def div(x: Any, y: Any) -> Any:
    """x / y; integers are divided as float32."""
    return x / y


div.proportional = lambda inputs, varying: list(varying) == [True, False]


def _quotient(x: Any, y: Any) -> Any:
    """Of complex numbers, where Numba's kernels would end at a division by 0: it gives infinities or NaN."""
    return where(y == 0, x * 1e308 * 1e308, x / y)


div.of_complex = Elementwise(_quotient, "float")
div.of_complex.name = "div"


# -x / y^2 is written with the quotient: y^2 overflows where the gradient does not, and x need not be kept.
@div.def_bprop
def _(_x: Tensor, y: Tensor, out: Tensor, dout: Tensor) -> Grads:
    return lambda: dout / conj(y), lambda: -dout * conj(out / y)


@elementwise("same")
def floor_div(x: Any, y: Any) -> Any:
    """The largest integer not above x / y."""
    return x // y


# Constant between its jumps.
@floor_div.def_bprop
def _(_x: Tensor, _y: Tensor, _out: Tensor, _dout: Tensor) -> Grads:
    return None, None


@elementwise("same")
def mod(x: Any, y: Any) -> Any:
    """x - y * floor(x / y): the remainder has the sign of y."""
    return x % y


# The derivatives between the jumps, at which there are none.
@mod.def_bprop
def _(x: Tensor, y: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    return dout, lambda: -dout * floor_div(x, y)


@elementwise("same", complex_numbers=True)
def neg(x: Any) -> Any:
    """-x."""
    return -x


neg.additive = True


@neg.def_bprop
def _(_x: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    return (-dout,)


@elementwise("same", integer_loops=False)
def power(x: Any, y: Any) -> Any:
    """x ** y."""
    return x**y


@power.def_bprop
def _(x: Any, y: Any, out: Tensor, dout: Tensor) -> Grads:
    if type(y) in (int, float) and y == 0:
        return None, None  # constant, to every order
    if not isinstance(x, Tensor):
        return None, (lambda: dout * out * math.log(x)) if x > 0 else None
    positive = greater(x, 0)
    # x ** (y - 1) rather than out / x, which is 0 / 0 at x = 0; where y is 0 it is constant, and 0 * x ** -1 NaN at 0.
    # Of x <= 0 the result may be infinite or NaN, and 0 times that is NaN.
    return (
        lambda: dout * where(equal(y, 0), 0.0, y * pow(x, y - 1)),
        lambda: dout * where(positive, out, 0.0) * log(where(positive, x, 1.0)),
    )


def pow(x: Numbers, y: Numbers) -> Tensor:
    """x ** y. Small whole exponents, 0.5 and -1 are products, a root and a quotient instead of a call of pow.

    Note:
        The gradient with respect to y is that of x ** y = exp(y log x) for x > 0, and 0 for x <= 0.
    """
    if type(y) in (int, float) and isinstance(x, Tensor):
        if y == 1:
            return snapshot(x)
        if y == 2:
            return square(x)
        if y == 3:
            return x * square(x)
        if y == 0.5:
            return sqrt(x)
        if y == -1:
            return div(1, x)
        if y < 0 and not x.dtype.is_float:
            x = as_float(x, "pow")  # an integer to a negative power is a fraction
    return power(x, y)


@elementwise("same", complex_numbers=True)
def square(x: Any) -> Any:
    """x * x."""
    return x * x


@square.def_bprop
def _(x: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    return (dout * conj(x) * 2,)


def conj(x: Numbers) -> Any:
    """The complex conjugate; a real Tensor as it is.

    Note:
        The gradient of a real loss with respect to z = a + ib is dL/da + i dL/db, so the reverse of a product with y
        is a product with the conjugate of y.
    """
    if isinstance(x, (bool, int, float, complex)):
        return x.conjugate()  # a number stays one: it takes the precision of what it meets
    tensor = as_tensor(x, "conj")
    return _conj(tensor) if tensor.dtype.category == 3 else snapshot(tensor)


@elementwise("same", complex_numbers=True)
def _conj(x: Any) -> Any:
    return conj(x)


@_conj.def_bprop
def _(_x: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    return (_conj(dout),)


@elementwise("same", complex_numbers=True)
def abs(x: Any) -> Any:
    """|x|."""
    return abs(x)


@abs.def_bprop
def _(x: Tensor, out: Tensor, dout: Tensor) -> Grads:
    if x.dtype.category == 3:
        # x / |x|; at 0 it is 0, as for real numbers, and the inner where keeps 0 / 0 out of what is computed.
        return (dout * x / where(equal(out, 0.0), 1.0, out),)
    return (dout * sign(x),)


@elementwise("same")
def sign(x: Any) -> Any:
    """-1, 0 or 1."""
    return sign(x)


@sign.def_bprop
def _(_x: Tensor, _out: Tensor, _dout: Tensor) -> Grads:
    return (None,)


@elementwise("same", booleans=True)
def maximum(x: Any, y: Any) -> Any:
    """The larger of x and y; a tie's gradient is split in halves."""
    return maximum(x, y)


@maximum.def_bprop
def _(x: Tensor, y: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    return lambda: dout * _share(greater(x, y), equal(x, y)), lambda: dout * _share(less(x, y), equal(x, y))


@elementwise("same", booleans=True)
def minimum(x: Any, y: Any) -> Any:
    """The smaller of x and y; a tie's gradient is split in halves."""
    return minimum(x, y)


@minimum.def_bprop
def _(x: Tensor, y: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    return lambda: dout * _share(less(x, y), equal(x, y)), lambda: dout * _share(greater(x, y), equal(x, y))


def _share(wins: Tensor, ties: Tensor) -> Tensor:
    """1 where an operand wins, 0.5 in a tie, else 0; beside NaN neither wins nor ties."""
    return where(wins, 1.0, where(ties, 0.5, 0.0))


def clip(x: Numbers, min: Numbers | None = None, max: Numbers | None = None) -> Tensor:
    """x limited to [min, max]; the gradient is 0 outside of it.

    Raises:
        ArgumentError: without a bound, or with min > max.
    """
    if min is None and max is None:
        raise ArgumentError("clip: give min, max, or both.")
    if isinstance(min, (int, float)) and isinstance(max, (int, float)) and min > max:
        raise ArgumentError(f"clip: min={min} is above max={max}.")
    x = as_tensor(x, "clip")
    if x.dtype.category == 1:  # a bound beyond what the integers can be is no bound
        limits = np.iinfo(x.dtype.dtype)
        min = None if type(min) is int and min <= limits.min else min
        max = None if type(max) is int and max >= limits.max else max
    # Comparisons, not maximum and minimum: on a bound x itself is taken, with its whole gradient, and NaN stays.
    low: Tensor = x if min is None else where(_past(less, x, min), min, x)
    return low if max is None else where(_past(greater, low, max), max, low)


def _past(compare: Any, x: Tensor, bound: Any) -> Tensor:
    """Where a bound takes the place of x: where x is beyond it, and where it is NaN, which compares with nothing."""
    beyond: Tensor = compare(x, bound)
    number = isinstance(bound, (int, float)) and bound == bound
    return beyond if number else logical_or(beyond, isnan(bound))


# --- rounding ---------------------------------------------------------------------------------------------------------


@elementwise("whole")
def floor(x: Any) -> Any:
    """The largest integer not above x; no gradient."""
    return floor(x)


@elementwise("whole")
def ceil(x: Any) -> Any:
    """The smallest integer not below x; no gradient."""
    return ceil(x)


@elementwise("whole")
def round(x: Any) -> Any:
    """The nearest integer, halves to even; no gradient."""
    return round(x)


for _step in (floor, ceil, round):  # constant between their jumps

    @_step.def_bprop
    def _(_x: Tensor, _out: Tensor, _dout: Tensor) -> Grads:
        return (None,)


# --- roots, exponentials, logarithms ----------------------------------------------------------------------------------


@elementwise("float")
def sqrt(x: Any) -> Any:
    """The square root."""
    return sqrt(x)


# Infinite at 0, as the derivative is; `root` is for what has a gradient there.
@sqrt.def_bprop
def _(_x: Tensor, out: Tensor, dout: Tensor) -> Grads:
    return (dout * 0.5 / out,)


@elementwise("float")
def root(x: Any) -> Any:
    """The square root of a sum of squares: where they are all 0, its gradient is 0, as that of abs is."""
    return sqrt(x)


# Both branches of a where are computed: the inner one divides by 1 where the outer one takes 0.
@root.def_bprop
def _(_x: Tensor, out: Tensor, dout: Tensor) -> Grads:
    return (where(equal(out, 0.0), 0.0, dout * 0.5 / where(equal(out, 0.0), 1.0, out)),)


@elementwise("float")
def rsqrt(x: Any) -> Any:
    """1 / sqrt(x)."""
    return 1.0 / sqrt(x)


@rsqrt.def_bprop
def _(x: Tensor, out: Tensor, dout: Tensor) -> Grads:
    return (dout * -0.5 * out / x,)


@elementwise("float")
def exp(x: Any) -> Any:
    """e ** x."""
    return exp(x)


@exp.def_bprop
def _(_x: Tensor, out: Tensor, dout: Tensor) -> Grads:
    return (dout * out,)


@elementwise("float")
def exp_below(x: Any, peak: Any) -> Any:
    """exp(x - peak), and 1 where x is the peak, of which the infinite ones have no difference."""
    return where(x == peak, 1.0, exp(x - peak))


@exp_below.def_bprop
def _(_x: Tensor, _peak: Tensor, out: Tensor, dout: Tensor) -> Grads:
    return dout * out, None  # the peak is a constant to its callers


@elementwise("float")
def expm1(x: Any) -> Any:
    """e ** x - 1, exact near 0."""
    return expm1(x)


# e ** x from what is there, to the rounding of 1: far below 0 it is 0.
@expm1.def_bprop
def _(_x: Tensor, out: Tensor, dout: Tensor) -> Grads:
    return (dout * (out + 1.0),)


@elementwise("float")
def log(x: Any) -> Any:
    """The natural logarithm."""
    return log(x)


@log.def_bprop
def _(x: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    return (dout / x,)


@elementwise("float")
def log1p(x: Any) -> Any:
    """log(1 + x), exact near 0."""
    return log1p(x)


@log1p.def_bprop
def _(x: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    return (dout / (x + 1.0),)


# --- trigonometry, error function -------------------------------------------------------------------------------------


@elementwise("float")
def sin(x: Any) -> Any:
    """The sine of an angle in radians."""
    return sin(x)


@sin.def_bprop
def _(x: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    return (dout * cos(x),)


@elementwise("float")
def cos(x: Any) -> Any:
    """The cosine of an angle in radians."""
    return cos(x)


@cos.def_bprop
def _(x: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    return (-dout * sin(x),)


@elementwise("float")
def atan(x: Any) -> Any:
    """The arc tangent in radians."""
    return atan(x)


@atan.def_bprop
def _(x: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    return (dout / (square(x) + 1.0),)


@elementwise("float")
def tanh(x: Any) -> Any:
    """The hyperbolic tangent."""
    return tanh(x)


@tanh.def_bprop
def _(_x: Tensor, out: Tensor, dout: Tensor) -> Grads:
    return (dout * (1.0 - square(out)),)


@elementwise("float")
def erf(x: Any) -> Any:
    """The error function, 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x."""
    return erf(x)


@erf.def_bprop
def _(x: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    return (dout * exp(-square(x)) * (2.0 / math.sqrt(math.pi)),)


subtract, multiply, divide = sub, mul, div
true_divide, floor_divide, remainder, negative, arctan, clamp = div, floor_div, mod, neg, atan, clip


def cast(x: Numbers, dtype: Dtype) -> Tensor:
    """x converted to `dtype`; the gradient is converted back."""
    return astype(x, dtype)
