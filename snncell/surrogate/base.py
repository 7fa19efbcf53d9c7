"""Surrogate, the base class of spike functions, and spike functions that change another one: Inclusive, Scaled."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any

import numpy as np

from snncell import ops
from snncell.base.arguments.kinds import Own
from snncell.base.arguments.shown import show
from snncell.cell.cell import Cell
from snncell.cell.constants import Ranged
from snncell.cell.fields import field
from snncell.cell.ranges import Derived, Range, check_constant, is_traced, numbers_of, quote_value
from snncell.errors import ArgumentError
from snncell.tape.parameter import Parameter
from snncell.tape.state import RECORDING
from snncell.tape.tensor import Tensor

__all__ = ["Inclusive", "Scaled", "Surrogate"]

Constant = Annotated[float | Tensor, Own()]  # `check_constant` checks it

POSITIVE = Range(0.0, text="is positive and finite")


def constant(default: float, meaning: str, range: Range = POSITIVE) -> Any:
    """Declare a constant of a spike function as a field of its class."""
    return field(default, range, f"{meaning} (learned if it is a Parameter)")


class Surrogate(Ranged, Cell):
    """Base class of spike functions: 1 if x > 0, else 0, in the dtype of x, with a custom gradient.

    A subclass defines two methods: `primitive(x)`, a smooth function, and `bprop(x, out, dout)`, which returns
    `(dout * derivative,)`. You can compare the two by `testing.check_bprop`. `surrogate.smooth()` runs the primitive.

    Constants are attributes: numbers, Tensors that broadcast to the shape of x, or Parameters. To learn Parameters,
    return `self.gradients(x, dout, dout * derivative)` from bprop, which adds the gradient of the primitive for each of
    them. As with `nn.Neuron`, learned constants never leave their range.

    Args:
        constants: constants by name, which become attributes. Each must be positive and finite, unless `ranges` has
            another `nn.Range` for its name. You can also declare them as fields (`nn.with_fields`).
    Inputs, Returns: x, the potential minus the threshold; the spikes, 0 or 1, in the shape and dtype of x.
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

    primitive: Callable[[Tensor], Tensor]

    def __init__(self, **constants: Any) -> None:
        super().__init__()
        self.constants = tuple(constants)
        self.declare(*constants)
        for name, value in constants.items():
            setattr(self, name, value)

    def range_of(self, name: str) -> Range:
        return self.ranges.get(name, POSITIVE)

    def check_constant(self, name: str, value: Any) -> None:
        who, domain = type(self).__name__, self.range_of(name)
        default = getattr(inspect.signature(type(self)).parameters.get(name), "default", None)
        hint = f"; leave it out for {default}" if type(default) in (int, float) else ""
        if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating, Tensor)):
            raise ArgumentError(f"{who}: {name} is a number, a Tensor or a Parameter, not {quote_value(value)}{hint}.")
        if RECORDING.tape is not None and type(value) is Tensor and value._entry is not None:
            raise ArgumentError(
                f"{who}: {name} is a Tensor that is being differentiated, but no gradient would reach it. Pass a "
                f"Parameter, which is learned, or ops.stop_gradient({name})."
            )
        if not is_traced(value) and not domain.holds(value):  # a traced Tensor has no value yet
            every = " in every element" if isinstance(value, Tensor) else ""
            numbers = numbers_of(value).tolist() if every else value
            raise ArgumentError(f"{who}: {name} {domain.words()}{every}, not {quote_value(numbers)}{hint}.")

    def checked(self, name: str, value: Any) -> Any:
        """Check a constant, and return it in its stored form: a number, a Tensor or a Parameter."""
        self.check_constant(name, value)
        if isinstance(value, Tensor):
            check_constant(value, type(self).__name__, name)
        return value.item() if isinstance(value, np.number) else value

    def take_sources(self, derived: Derived) -> None:
        """Do nothing: Parameters of a derived constant belong to the neuron, so the surrogate does not learn them."""

    def in_use(self, name: str, value: Any) -> Any:
        """A constant for a computation; no gradient flows into the sources of a derived one."""
        constant = super().in_use(name, value)
        return ops.stop_gradient(constant) if isinstance(value, Derived) else constant

    def construct(self, x: Tensor) -> Tensor:
        return ops.greater(x, 0).astype(x.dtype)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no method bprop(self, x, out, dout), its gradient.")

    @property
    def internal_params(self) -> list[Parameter]:
        """The Parameters for which bprop returns gradients; by default the own Parameters with requires_grad."""
        chosen = vars(self).get("_internal")
        return list(self._learned_parameters() if chosen is None else chosen)

    @internal_params.setter
    def internal_params(self, parameters: Sequence[Parameter]) -> None:
        vars(self)["_internal"] = tuple(parameters)

    def _learned_parameters(self) -> Iterable[Parameter]:
        return dict.fromkeys(p for p in vars(self).values() if isinstance(p, Parameter) and p.requires_grad)

    def gradients(self, x: Tensor, dout: Tensor, dx: Tensor) -> Any:
        """The return value of bprop: `(dx,)`, or with Parameters the pair `((dx,), {parameter: gradient})`."""
        learned = self.internal_params
        if not learned:
            return (dx,)

        def smooth(*constants: Tensor) -> Tensor:
            return self._with(dict(zip(learned, constants, strict=True))).primitive(x)

        # Broadcast the constants, so that their gradients are summed at the end. A time loop fuses that sum.
        out, pull = ops.vjp(smooth, *[ops.broadcast_to(value, x.shape) for value in learned])
        slopes = pull(dout.astype(out.dtype))
        return (dx,), dict(zip(learned, slopes, strict=True))

    def _with(self, values: dict[Parameter, Tensor]) -> Surrogate:
        """A copy with Tensors in place of some Parameters."""
        other = object.__new__(type(self))
        replaced = {name: values.get(value) for name, value in vars(self).items() if isinstance(value, Parameter)}
        vars(other).update(vars(self) | {name: value for name, value in replaced.items() if value is not None})
        return other

    def extend_repr(self) -> str:
        return ", ".join(f"{name}={vars(self)[name]}" for name in self.constants)


def check_spike_function(surrogate_function: Any, who: str) -> Any:
    """Check that an object is a spike function: a Cell with a bprop, or a Cell that contains one."""
    neuron = isinstance(surrogate_function, Cell) and hasattr(surrogate_function, "init_state")
    if neuron and hasattr(surrogate_function, "surrogate_function"):
        raise ArgumentError(
            f"{who}: surrogate_function must be a spike function, but {type(surrogate_function).__name__} is a neuron. "
            f"Pass the spike function of the neuron: neuron.surrogate_function."
        )
    below = surrogate_function.cells_and_names() if isinstance(surrogate_function, Cell) else ()
    if all(getattr(cell, "bprop", None) is None for _, cell in below):
        raise ArgumentError(
            f"{who}: surrogate_function must be a spike function (a Cell with a bprop, or a Cell that contains one), "
            f"for example surrogate.ATan(), not {show(surrogate_function)}."
        )
    return surrogate_function


# --- spike functions around another one -------------------------------------------------------------------------------


class Wrapper(Surrogate):
    """Base class of wrappers: the gradient and the primitive of another spike function."""

    surrogate_function: Any

    def __init__(self, surrogate_function: Any, **constants: Any) -> None:
        super().__init__(**constants)
        given, who = surrogate_function, type(self).__name__
        if not isinstance(given, Cell) or None in (getattr(given, "bprop", None), getattr(given, "primitive", None)):
            raise ArgumentError(
                f"{who}: surrogate_function must be a spike function with bprop and primitive, for example "
                f"surrogate.ATan(), not {show(given)}."
            )
        self.surrogate_function = given

    def _learned_parameters(self) -> Any:
        return getattr(self.surrogate_function, "internal_params", ())

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return self.surrogate_function.bprop(x, out, dout)

    def primitive(self, x: Tensor) -> Any:
        return self.surrogate_function.primitive(x)


class Inclusive(Wrapper):
    """Fire at x >= 0 instead of x > 0, with the gradient and the primitive of another spike function.

    Args:
        surrogate_function: a spike function that fires if x > 0; only its bprop and primitive are used.
    Inputs, Returns: x, the potential minus the threshold; 1 if x >= 0, else 0, in the shape and dtype of x.
    Elsewhere:
        SpikingJelly, sinabs, lava-dl, mlGeNN, rockpool, BindsNET: x >= 0.
        snnTorch, Norse, Spyx, the NIR document, snncell's other spike functions: x > 0.
    Example:
        >>> fires = snncell.surrogate.Inclusive(snncell.surrogate.ATan())
        >>> print(fires(Tensor([-1.0, 0.0, 1.0])))
        [0. 1. 1.]
    """

    def __init__(self, surrogate_function: Any) -> None:
        super().__init__(surrogate_function)
        inner = surrogate_function
        while isinstance(inner, (Inclusive, Scaled)):
            inner = inner.surrogate_function
        if isinstance(inner, Surrogate) and type(inner).construct is not Surrogate.construct:
            raise ArgumentError(
                f"Inclusive: a {type(inner).__name__} has its own firing rule instead of a threshold. Use it directly."
            )

    def construct(self, x: Tensor) -> Tensor:
        return ops.greater_equal(x, 0).astype(x.dtype)


class Scaled(Wrapper):
    """Multiply the gradient of another spike function by a factor (gradient dampening).

    A factor below 1 keeps gradients from growing over many time steps.

    derivative: scale f'(x);  primitive: scale (f(x) - 1/2) + 1/2, with f the primitive of `surrogate_function`

    Args:
        surrogate_function: a spike function.
        scale: the factor, a positive number; it is not learned.
    Inputs, Returns: x, the potential minus the threshold; the spikes of `surrogate_function`.
    Source: Bellec et al., NeurIPS 2018, as for `nn.ALIFNode`; their dampening factor is 0.3.
    Elsewhere: the argument grad_scale of sinabs's surrogates.
    Example:
        >>> damped = snncell.surrogate.Scaled(snncell.surrogate.Triangle(), 0.3)
        >>> print(grad(damped)(Tensor([0.0, 0.5, 1.0])))
        [0.3  0.15 0.  ]
    """

    scale: float

    def __init__(self, surrogate_function: Any, scale: Any = 1.0) -> None:
        super().__init__(surrogate_function, scale=scale)
        if isinstance(scale, (Tensor, Derived)):
            raise ArgumentError(f"Scaled: scale must be a number, because it is not learned, not {scale!r}.")

    def construct(self, x: Tensor) -> Any:
        return self.surrogate_function.construct(x)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return self.surrogate_function.bprop(x, out, dout * self.scale)

    def primitive(self, x: Tensor) -> Any:
        return (self.surrogate_function.primitive(x) - 0.5) * self.scale + 0.5
