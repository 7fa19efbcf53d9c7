"""Membrane, the base class of one-step Cells with constants: numbers, Tensors or Parameters, one or one per neuron."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Self

from snncell import ops
from snncell.cell.cell import Cell
from snncell.cell.constants import Ranged, constants_in, precision_of
from snncell.cell.fields import shown_fields
from snncell.cell.ranges import Derived
from snncell.dtype import bfloat16, float16, float32
from snncell.errors import ArgumentError, ShapeError
from snncell.nn.neurons.convert import make_like
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor

__all__ = ["Membrane"]


def from_rest(v: Any, rest: Any) -> Any:
    """v - rest. For the number 0, return v: a compiled loop would not optimise the subtraction away."""
    return v if not isinstance(rest, Tensor) and rest == 0.0 else v - rest


def add_rest(v: Any, rest: Any) -> Any:
    """v + rest, or v if rest is the number 0."""
    return v if not isinstance(rest, Tensor) and rest == 0.0 else v + rest


class Membrane(Ranged, Cell):
    """Base class of one-step Cells with named constants: `construct(x, *states) -> (output, *states)`.

    Subclass `Neuron` for a spiking neuron, and `Membrane` for a unit without a threshold, as `LINode` does.

    A constant is a number, which compiled kernels take as an argument, so that a change needs no compilation. It can
    also be a Tensor or Parameter that broadcasts to the neurons: one value for the layer, or one per neuron. A call
    converts constants to the precision of its input, float32 or float64. `constants_and_ranges` lists all constants.

    Declare the range of a constant in its field (`nn.with_fields`), or without fields in an attribute `ranges`, for
    example `ranges = {"rho": nn.Range(0.0, 1.0, "both")}`. By default a constant is any finite number. The Cell checks
    a constant at construction and at each assignment, for example `neuron.rho = 1.2`.

    A learned constant stays in its range (projected gradients): after an update that leaves the range, the Parameter
    gets the nearest value inside. From an open end it keeps at least a thousandth of the initial distance.

    Args:
        constants: the constants by name.
        learnable: the constants to learn, as Parameters: numbers and arrays in float32, a float64 Tensor in float64.
    """

    def __init__(self, constants: dict[str, Any], learnable: str | Sequence[str] = ()) -> None:
        super().__init__()
        who = type(self).__name__
        learned = (learnable,) if isinstance(learnable, str) else tuple(learnable)
        if unknown := [name for name in learned if name not in constants]:
            raise ArgumentError(
                f"{who}: cannot learn {unknown[0]!r}, because there is no such constant. The constants are "
                f"{', '.join(constants)}."
            )
        self.declare(*constants)
        for name, value in constants.items():
            setattr(self, name, self.to_learn(name, value) if name in learned else value)

    def having(self, **constants: Any) -> Self:
        """Add constants and return the Cell itself. Presets use it; a constant that is None is not added."""
        for name, value in constants.items():
            if value is not None:
                self.declare(name)
                setattr(self, name, value)
        return self

    def to_learn(self, name: str, value: Any) -> Any:
        """Convert a constant to a Parameter, unless it is one already."""
        if isinstance(value, (Parameter, Derived)):
            return value
        is_float = isinstance(value, Tensor) and value.dtype.is_float
        return Parameter(Tensor(self.checked(name, value), None if is_float else float32), name=name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        shapes = [shape for arg in args if isinstance(shape := getattr(arg, "shape", None), tuple)]
        if len(shapes) == len(args) > 1 and any(shape != shapes[0] for shape in shapes[1:]):
            self._refuse_shapes(shapes[0], shapes[1:])
        with constants_in(precision_of(args)):
            return self._in_half(args, super().__call__(*args, **kwargs))

    def _in_half(self, args: tuple[Any, ...], results: Any) -> Any:
        """Cast results to the inputs' dtype if that is float16 or bfloat16, because float32 constants widen results."""
        dtypes = {arg.dtype for arg in args if isinstance(arg, Tensor)}
        if len(dtypes) != 1 or not dtypes <= {float16, bfloat16}:
            return results
        (dtype,) = dtypes
        return tuple([r.astype(dtype) for r in results]) if isinstance(results, tuple) else results.astype(dtype)

    def _refuse_shapes(self, x: tuple[int, ...], states: list[tuple[int, ...]]) -> None:
        """Raise for the first state that does not broadcast to the input."""
        names = list(inspect.signature(self.construct).parameters)[1:]
        for name, shape in zip(names, states, strict=False):
            if len(shape) > len(x) or any(n not in (1, m) for n, m in zip(shape[::-1], x[::-1], strict=False)):
                raise ShapeError(
                    f"{type(self).__name__}: the state {name} has shape {shape}, but the input has shape {x}. Each "
                    f"element of the input needs its own state. For a new batch, create states by init_state(x)."
                )

    def on_grid(self, value: Any) -> Any:
        """Round a state to its grid if `snncell.quantise` quantises this Cell."""
        return value if self.quantisers is None else self.quantisers.states(value)

    def gained(self, x: Any) -> Any:
        """The input times its gain, or the input itself if the gain is the number 1."""
        return x if not isinstance(self.input_gain, Tensor) and self.input_gain == 1.0 else x * self.input_gain

    def filled(self, x: Tensor, value: Any) -> Tensor:
        """A state for the input `x`, filled with one value, or one value per neuron."""
        dtype = x.dtype if x.dtype.is_float else float32
        if isinstance(value, Tensor):
            return ops.zeros(x.shape, dtype) + value.astype(dtype)
        return ops.full(x.shape, value, dtype)

    @classmethod
    def like(cls, framework: str, **settings: Any) -> Membrane:
        """Create a neuron that reproduces another framework's: the same spikes, states and gradients.

        Use it to port a network, for example `nn.LIFNode.like("snntorch", beta=0.9)` for snnTorch's `Leaky(beta=0.9)`.
        The states are described in `snncell/nn/neurons/presets`.

        Args:
            framework: "SpikingJelly", "snnTorch", "Norse", "sinabs", "Spyx" or "NIR", in upper or lower case.
            settings: the parameters of that framework's neuron by name, with its defaults; surrogates as objects of
                `snncell.surrogate`. Training learns a Parameter that you pass, unless its requires_grad is False.
        Returns:
            a neuron, maybe of another class. Unless you pass as_shipped=True, it corrects these defects:

            - snnTorch: Leaky and Synaptic with reset_delay=False and "subtract" lose a spike if the remaining potential
              is above the threshold. Alpha's "subtract" does not lower the potential by the threshold.
            - sinabs: MembraneReset adds its value to all potentials at each step. ALIF applies the membrane's gain to
              its current at each step.
        Example:
            >>> node = nn.LIFNode.like("snntorch", beta=0.5, threshold=0.8)
            >>> spikes = nn.MultiStep(node)(Tensor([[0.6], [0.6], [0.6], [0.0]]))
            >>> print(spikes[:, 0])
            [0. 1. 0. 0.]
        """
        node: Membrane = make_like(cls.__name__, framework, settings)
        return node

    def extend_repr(self) -> str:
        values = {name: self.__dict__[name] for name in self._constants}
        shown = {n: f"Parameter{v.shape}" if isinstance(v, Parameter) else str(v) for n, v in values.items()}
        return ", ".join(f"{name}={text}" for name, text in (shown | shown_fields(self) | shown).items())

    _constants: tuple[str, ...]
    input_gain: Any
