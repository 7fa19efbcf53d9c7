"""Linear expressions in a neuron's input and states, with exact coefficients: they stand in for values in a step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from snncell.tape.tensor import Tensor

Array = np.ndarray[Any, Any]
MOST_BITS = 80  # behind the point; a coefficient that needs more is no short one


class Unit(NamedTuple):
    """A variable that is a whole number times 2^exponent, and no larger than `bound`."""

    exponent: int
    bound: float


def bits_behind_point(values: Any) -> int:
    """The least number of bits behind the point with which all of some numbers are exact; MOST_BITS if more."""
    numbers = np.asarray(values, np.float64)
    for bits in range(MOST_BITS):
        scaled = np.ldexp(numbers, bits)
        if np.all(scaled == np.rint(scaled)):
            return bits
    return MOST_BITS


class LinearForm:
    """A sum of variables times numbers. Each operation tells `checked` what it gives.

    Neurons compute with it as with Tensors, as far as their equations are linear.
    """

    __array_ufunc__ = None  # arrays leave their operators to it

    def __init__(
        self, terms: Mapping[str, Any], units: Mapping[str, Unit], checked: Callable[[LinearForm], None]
    ) -> None:
        self.terms, self.units, self.checked = dict(terms), units, checked
        checked(self)

    # --- what is known of it ------------------------------------------------------------------------------------------

    @property
    def bits(self) -> int:
        """Bits behind the point with which every value of it is exact."""
        found = [bits_behind_point(c) - self.units[name].exponent for name, c in self.terms.items() if np.any(c)]
        return max([0, *found])

    @property
    def bound(self) -> float:
        """The largest magnitude that it can have."""
        return float(np.max(sum(np.abs(c) * self.units[name].bound for name, c in self.terms.items())))

    def coefficient(self, name: str) -> Array:
        """The number that a variable is multiplied by."""
        return np.asarray(self.terms.get(name, 0.0), np.float64)

    # --- operations ---------------------------------------------------------------------------------------------------

    def _made(self, terms: Mapping[str, Any]) -> LinearForm:
        return LinearForm(terms, self.units, self.checked)

    def _joined(self, other: Any, sign: float) -> LinearForm:
        terms = other.terms if isinstance(other, LinearForm) else {"1": _numbers(other)}
        names = self.terms.keys() | terms.keys()
        return self._made({name: self.terms.get(name, 0.0) + sign * terms.get(name, 0.0) for name in names})

    def __add__(self, other: Any) -> LinearForm:
        return self._joined(other, 1.0)

    __radd__ = __add__

    def __sub__(self, other: Any) -> LinearForm:
        return self._joined(other, -1.0)

    def __rsub__(self, other: Any) -> LinearForm:
        return (self * -1.0)._joined(other, 1.0)

    def __mul__(self, other: Any) -> LinearForm:
        if isinstance(other, LinearForm):
            return NotImplemented
        factor = _numbers(other)
        return self._made({name: c * factor for name, c in self.terms.items()})

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> LinearForm:
        numbers = _numbers(other)
        if np.any(np.frexp(numbers)[0] != 0.5):
            return NotImplemented  # only powers of two divide exactly
        return self * (1.0 / numbers)


def _numbers(value: Any) -> Array:
    return np.asarray(value.asnumpy() if isinstance(value, Tensor) else value, np.float64)


def scale_to_int32(coefficient: Array, bits: int) -> Array:
    """A coefficient in units of 2^-bits, as int32."""
    scaled = np.ldexp(np.asarray(coefficient, np.float64), bits)
    assert np.all(scaled == np.rint(scaled)) and np.all(np.abs(scaled) < math.ldexp(1.0, 31))
    return np.asarray(scaled, np.int32)
