"""A constant that is computed from Parameters wherever it is used, so that they are learned through it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any, Never

import numpy as np

from snncell.base.arguments.kinds import CONSTANT
from snncell.common.ranges import FINITE, Range
from snncell.errors import ArgumentError
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor


class Derived:
    """A function of Parameters and numbers that is evaluated anew, with operations, each time it is used.

    Arithmetic with one gives one, so conversions of time constants take a Parameter as they take a number:
    `1.0 - decay_from_tau(tau)` is learned as `tau` is. What needs a number now, as a comparison does, refuses it.

    Args:
        function: of the present values of `parts`; of a module, so that it can be pickled.
        parts: what it is computed from: others of these, Parameters, numbers.
        name: for errors, what the user has called it.
    """

    __array_ufunc__ = None  # NumPy's arrays leave arithmetic to it

    def __init__(self, function: Callable[..., Any], *parts: Any, name: str) -> None:
        self.function = function
        self.parts = tuple(Tensor(part) if isinstance(part, np.ndarray) else part for part in parts)
        self.name = name
        self.domain = FINITE  # of a Parameter itself: where the function of it makes sense

    @classmethod
    def of(cls, parameter: Parameter, name: str) -> Derived:
        """A Parameter itself."""
        return cls(operator.pos, parameter, name=name)

    @property
    def itself(self) -> Parameter | None:
        """The Parameter, if it is nothing else."""
        (only, *others) = self.parts
        return only if not others and isinstance(only, Parameter) else None

    def value(self) -> Tensor:
        """Its present value, by operations on the Parameters."""
        if self.itself is not None:
            return self.itself
        result: Tensor = self.function(*[part.value() if type(part) is Derived else part for part in self.parts])
        return result

    def sources(self) -> Iterator[Derived]:
        """The Parameters that it is computed from, each as one of these."""
        if self.itself is not None:
            yield self
        for part in self.parts:
            if type(part) is Derived:
                yield from part.sources()

    def staying(self, domain: Range) -> Derived:
        """Itself; if it is a Parameter, that is to stay where the function of it makes sense."""
        if self.itself is not None:
            self.domain = domain
        return self

    def through(self, function: Callable[..., Any], *others: Any) -> Derived:
        """A function of it, and of further parts."""
        return Derived(function, self, *others, name=self.name)

    def __add__(self, other: Any) -> Derived:
        return self.through(operator.add, other)

    def __sub__(self, other: Any) -> Derived:
        return self.through(operator.sub, other)

    def __rsub__(self, other: Any) -> Derived:
        return self.through(_less, other)

    def __mul__(self, other: Any) -> Derived:
        return self.through(operator.mul, other)

    def __truediv__(self, other: Any) -> Derived:
        return self.through(operator.truediv, other)

    def __rtruediv__(self, other: Any) -> Derived:
        return self.through(_over, other)

    def __neg__(self) -> Derived:
        return self.through(operator.neg)

    __radd__, __rmul__ = __add__, __mul__

    def _refuse(self, *_: Any) -> Never:
        raise ArgumentError(f"{self.name} is a Parameter, but cannot be learned here; give its value.")

    __bool__ = __float__ = __int__ = __index__ = __len__ = __iter__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __pow__ = __rpow__ = __array__ = _refuse

    def __repr__(self) -> str:
        return f"<of Parameter {self.name}>"


def _less(subtrahend: Any, minuend: Any) -> Any:
    return minuend - subtrahend


def _over(divisor: Any, dividend: Any) -> Any:
    return dividend / divisor


CONSTANT.types.add(Derived)  # what takes a constant takes it
