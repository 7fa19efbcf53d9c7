"""What every spike function has: firing above 0, a gradient of its own, and constants that may be learned."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from snncell import ops
from snncell.cell import Cell
from snncell.errors import ArgumentError
from snncell.tape.parameter import Parameter
from snncell.tape.state import STATE
from snncell.tape.tensor import Tensor


class Surrogate(Cell):
    """A spike function: 1 where x > 0, else 0, in the dtype of x, with the reverse that a subclass gives.

    A subclass has two methods: `primitive(x)`, a function with a useful derivative, and `bprop(x, out, dout)`, which
    returns `(dout * derivative,)`. `testing.check_bprop` compares the two; `surrogate.smooth()` runs the primitive.

    Attributes that are Parameters are learned if bprop returns `self.gradients(x, dout, dout * derivative)`, which
    adds the gradient that the primitive has with respect to each.

    Example:
        >>> class Cosine(snncell.surrogate.Surrogate):
        ...     def bprop(self, x, out, dout):
        ...         return (dout * ops.cos(x),)
        ...
        ...     def primitive(self, x):
        ...         return ops.sin(x) + 0.5
        >>> print(grad(Cosine())(Tensor([0.0])))
        [1.]
    """

    def construct(self, x: Tensor) -> Tensor:
        return ops.greater(x, 0).astype(x.dtype)

    def primitive(self, x: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no method primitive(self, x).")

    @property
    def internal_params(self) -> list[Parameter]:
        """The constants that are learned: its Parameters that have requires_grad."""
        return [value for value in vars(self).values() if isinstance(value, Parameter) and value.requires_grad]

    def gradients(self, x: Tensor, dout: Tensor, dx: Tensor) -> Any:
        """What bprop returns: `(dx,)`, and with Parameters the pair `((dx,), {parameter: gradient})`."""
        names = [name for name, value in vars(self).items() if any(value is p for p in self.internal_params)]
        if not names:
            return (dx,)
        learned = [getattr(self, name) for name in names]

        def smooth(*constants: Tensor) -> Tensor:
            return self._with(dict(zip(names, constants, strict=True))).primitive(x)

        # One constant for each element: their gradients are summed last of all, which a loop over time does itself.
        out, pull = ops.vjp(smooth, *[ops.broadcast_to(value, x.shape) for value in learned])
        found = pull(dout.astype(out.dtype))
        return (dx,), dict(zip(learned, found if isinstance(found, tuple) else (found,), strict=True))

    def _with(self, constants: dict[str, Tensor]) -> Surrogate:
        """This spike function with Tensors in the place of its Parameters."""
        other = object.__new__(type(self))
        vars(other).update(vars(self) | constants)
        return other


class Inclusive(Surrogate):
    """A spike function that fires at x >= 0, with the reverse and the primitive of another one.

    SpikingJelly, sinabs, lava-dl, mlGeNN, rockpool and BindsNET fire at the threshold; snnTorch, Norse, Spyx, the NIR
    document and snncell's spike functions fire above it.

    Args:
        surrogate_function: a spike function that fires where x > 0.

    Inputs:
        x: potential minus threshold, any shape.

    Returns:
        1 where x >= 0, else 0, in the shape and dtype of x.

    Raises:
        ArgumentError: if `surrogate_function` is no such object.

    Example:
        >>> fires = snncell.surrogate.Inclusive(snncell.surrogate.ATan())
        >>> print(fires(Tensor([-1.0, 0.0, 1.0])))
        [0. 1. 1.]
    """

    def __init__(self, surrogate_function: Any) -> None:
        super().__init__()
        given = surrogate_function
        if not isinstance(given, Cell) or None in (getattr(given, "bprop", None), getattr(given, "primitive", None)):
            raise ArgumentError(
                f"Inclusive: surrogate_function is a spike function with bprop and primitive, such as "
                f"surrogate.ATan(), not {surrogate_function!r}."
            )
        self.surrogate_function = given

    @property
    def internal_params(self) -> list[Parameter]:
        """Those of the other one."""
        return list(getattr(self.surrogate_function, "internal_params", ()))

    def construct(self, x: Tensor) -> Tensor:
        return ops.greater_equal(x, 0).astype(x.dtype)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return self.surrogate_function.bprop(x, out, dout)

    def primitive(self, x: Tensor) -> Tensor:
        smooth: Tensor = self.surrogate_function.primitive(x)
        return smooth


def positive(value: Any, who: str, name: str) -> Any:
    """A constant of a spike function as it is: a positive, finite number, or a Tensor or Parameter of such.

    Raises:
        ArgumentError: for anything else.
    """
    return _checked(value, who, name, 0.0, "positive and finite")


def not_negative(value: Any, who: str, name: str) -> Any:
    """A constant of a spike function as it is: a finite number from 0 on, or a Tensor or Parameter of such.

    Raises:
        ArgumentError: for anything else.
    """
    return _checked(value, who, name, -math.ulp(0.0), "not negative and finite")


def _checked(value: Any, who: str, name: str, above: float, wanted: str) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number, Tensor)):
        raise ArgumentError(f"{who}: {name} is a number, a Tensor or a Parameter, not {value!r}.")
    if isinstance(value, Tensor):
        numbers = np.ones(()) if STATE.trace is not None else value.asnumpy()
        if not (np.all(numbers > above) and np.all(np.isfinite(numbers))):
            raise ArgumentError(f"{who}: {name} is {wanted} in every element, not {value!r}.")
    elif not above < value < math.inf:
        raise ArgumentError(f"{who}: {name} is {wanted}, not {value!r}.")
    return value.item() if isinstance(value, np.number) else value
