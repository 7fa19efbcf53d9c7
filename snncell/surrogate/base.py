"""The base class of surrogate gradients: it fires above 0, and its constants can be learned."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any

import numpy as np

from snncell import ops
from snncell.base.arguments.kinds import Own
from snncell.base.arguments.shown import show
from snncell.cell.cell import Cell
from snncell.cell.fields import field
from snncell.cell.held import Ranged
from snncell.cell.ranges import Derived, Range, check_constant, numbers_of, quote_value, unknown
from snncell.errors import ArgumentError
from snncell.tape.parameter import Parameter
from snncell.tape.state import RECORDING
from snncell.tape.tensor import Tensor

__all__ = ["Surrogate"]

Constant = Annotated[float | Tensor, Own()]  # checked where it is set

POSITIVE = Range(0.0, text="is positive and finite")
NOT_NEGATIVE = Range(0.0, closed="low", text="is not negative and finite")


def constant(default: float, meaning: str, range: Range = POSITIVE) -> Any:
    """A constant of a spike function, as a field of its class."""
    return field(default, range, f"{meaning} (learned if it is a Parameter)")


class Surrogate(Ranged, Cell):
    """A spike function: 1 where x > 0, else 0, in the dtype of x, with the reverse that a subclass gives.

    A subclass has two methods: `primitive(x)`, a function with a useful derivative, and `bprop(x, out, dout)`, which
    returns `(dout * derivative,)`. `testing.check_bprop` compares the two; `surrogate.smooth()` runs the primitive.

    Its constants are attributes: numbers, Tensors (of one value, or a shape that broadcasts to that of x), or
    Parameters. Parameters are learned if bprop returns `self.gradients(x, dout, dout * derivative)`, which adds the
    gradient that the primitive has with respect to each, and stay in their range, as the constants of `nn.Neuron` do.

    Args:
        constants: by name, what becomes attributes, shown by repr. Each lies above 0 and is finite, if `ranges`, an
            `nn.Range` for a name, does not say otherwise. Fields (`nn.with_fields`) declare them, too.

    Inputs, Returns: x, the potential minus the threshold; the spikes, 0 or 1, in the shape and dtype of x.

    Raises:
        ArgumentError: for a constant that is out of its range, or no number, Tensor or Parameter.

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
        """The range of a constant."""
        return self.ranges.get(name, POSITIVE)

    def check_constant(self, name: str, value: Any) -> None:
        """Refuse what is no constant, or out of its range, before it is set; the error names the default."""
        who, domain = type(self).__name__, self.range_of(name)
        default = getattr(inspect.signature(type(self)).parameters.get(name), "default", None)
        mend = f"; leave it out for {default}" if type(default) in (int, float) else ""
        if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating, Tensor)):
            raise ArgumentError(f"{who}: {name} is a number, a Tensor or a Parameter, not {quote_value(value)}{mend}.")
        if RECORDING.tape is not None and type(value) is Tensor and value._entry is not None:
            raise ArgumentError(
                f"{who}: {name} is a Tensor that is being differentiated, and no gradient would reach it; give a "
                f"Parameter, which is learned, or ops.stop_gradient({name})."
            )
        if not unknown(value) and not domain.holds(value):  # what is traced has no values yet
            every = " in every element" if isinstance(value, Tensor) else ""
            numbers = numbers_of(value).tolist() if every else value
            raise ArgumentError(f"{who}: {name} {domain.words()}{every}, not {quote_value(numbers)}{mend}.")

    def checked(self, name: str, value: Any) -> Any:
        """A constant as it is held, a number, a Tensor or a Parameter, after checking that it is in its range."""
        self.check_constant(name, value)
        if isinstance(value, Tensor):
            check_constant(value, type(self).__name__, name)
        return value.item() if isinstance(value, np.number) else value

    def take_sources(self, derived: Derived) -> None:
        """Nothing: what a neuron computes from its own Parameters is a constant here, and they are the neuron's."""

    def in_use(self, name: str, value: Any) -> Any:
        """A constant as it is used now."""
        constant = super().in_use(name, value)
        return ops.stop_gradient(constant) if isinstance(value, Derived) else constant

    def construct(self, x: Tensor) -> Tensor:
        return ops.greater(x, 0).astype(x.dtype)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no method bprop(self, x, out, dout), its reverse.")

    @property
    def internal_params(self) -> list[Parameter]:
        """The Parameters that bprop gives gradients of: what was set, or else its own that have requires_grad."""
        chosen = vars(self).get("_internal")
        return list(self._learned() if chosen is None else chosen)

    @internal_params.setter
    def internal_params(self, parameters: Sequence[Parameter]) -> None:
        vars(self)["_internal"] = tuple(parameters)

    def _learned(self) -> Iterable[Parameter]:
        """Its own Parameters that have requires_grad, each once."""
        return dict.fromkeys(p for p in vars(self).values() if isinstance(p, Parameter) and p.requires_grad)

    def gradients(self, x: Tensor, dout: Tensor, dx: Tensor) -> Any:
        """The form that bprop returns: `(dx,)`, and with Parameters the pair `((dx,), {parameter: gradient})`."""
        learned = self.internal_params
        if not learned:
            return (dx,)

        def smooth(*constants: Tensor) -> Tensor:
            return self._with(dict(zip(learned, constants, strict=True))).primitive(x)

        # A constant for each element: their gradients are summed last of all, which a loop over time does by itself.
        out, pull = ops.vjp(smooth, *[ops.broadcast_to(value, x.shape) for value in learned])
        slopes = pull(dout.astype(out.dtype))
        return (dx,), dict(zip(learned, slopes, strict=True))

    def _with(self, values: dict[Parameter, Tensor]) -> Surrogate:
        """This spike function with Tensors in the place of its Parameters."""
        other = object.__new__(type(self))
        replaced = {name: values.get(value) for name, value in vars(self).items() if isinstance(value, Parameter)}
        vars(other).update(vars(self) | {name: value for name, value in replaced.items() if value is not None})
        return other

    def extend_repr(self) -> str:
        return ", ".join(f"{name}={vars(self)[name]}" for name in self.constants)


def check_spike_function(surrogate_function: Any, who: str) -> Any:
    """Check a spike function: a Cell with a bprop, or a Cell around one, for example around a rule of two inputs."""
    below = surrogate_function.cells_and_names() if isinstance(surrogate_function, Cell) else ()
    if all(getattr(cell, "bprop", None) is None for _, cell in below):
        raise ArgumentError(
            f"{who}: surrogate_function is a spike function, a Cell with a bprop, an object such as surrogate.ATan(), "
            f"or a Cell around one, not {show(surrogate_function)}."
        )
    return surrogate_function
