"""The quantisers of one Cell: of its weights and inputs, or of its states and constants."""

from __future__ import annotations

import inspect
from typing import Any

from snncell import ops
from snncell.cell import Cell
from snncell.nn.neurons.base import Neuron
from snncell.nn.neurons.readout import LINode
from snncell.quantise.quantiser import Quantiser
from snncell.quantise.uniform import FixedPoint
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor

# Constants of neurons: of what a state is compared with or set to, and of what it is multiplied by.
POTENTIALS = ("v_threshold", "v_reset", "v_rest")
MULTIPLIERS = ("alpha", "beta", "current_gain", "input_gain")


class OnStep(Cell):
    """A bias on the grid of the sums that it is added to: round(b / step) step, straight through.

    Without limits, as an accumulator of 32 bits has none that matter to a bias.

    Inputs:
        bias: (channels,).
        step: a number for each, or one.
    """

    def construct(self, bias: Tensor, step: Any) -> Any:
        return ops.round(bias / step) * step

    def bprop(self, bias: Tensor, step: Any, out: Tensor, dout: Tensor) -> tuple[Tensor, None]:
        return dout, None

    def primitive(self, bias: Tensor, step: Any) -> Any:
        return bias * 1.0


class WeightGrids(Cell):
    """The quantisers of a layer with weights.

    Attributes:
        weight: the weights', or None.
        activation: the inputs', or None.
    """

    def __init__(self, weight: Quantiser | None, activation: Quantiser | None) -> None:
        super().__init__()
        self.weight, self.activation = weight, activation
        self.bias = OnStep()

    def in_place(self, cell: Any) -> dict[str, Any]:
        """By name, what a layer computes with in the place of its Parameters."""
        if self.weight is None:
            return {}
        weight = cell.weight
        others = {"weight": self.weight(weight)}
        if getattr(cell, "has_bias", False):
            others["bias"] = self.bias(cell.bias, self.bias_step(weight))
        return others

    def bias_step(self, weight: Tensor) -> Any:
        """The step of the sums of a layer whose inputs are whole numbers, a number or (channels,)."""
        assert self.weight is not None
        step = self.weight.step(weight)
        if not isinstance(step, Tensor):
            return step
        return step.reshape((-1,)) if step.size > 1 else step.reshape(())

    def inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The inputs of a layer, on their grid."""
        if self.activation is None or not isinstance(args[0], Tensor) or not args[0].dtype.is_float:
            return args  # spikes as bytes, and lists of events, are whole numbers
        return (self.activation(args[0]), *args[1:])

    def results(self, cell: Any, out: Any) -> Any:
        """The result of a layer, as it is."""
        return out


class StateGrids(Cell):
    """The quantisers of a neuron: of its states, and of the constants that they are multiplied by and compared with.

    Attributes:
        states: the grid of all states.
        multiplier: that of decays and gains.
    """

    def __init__(self, states: FixedPoint, multiplier: FixedPoint) -> None:
        super().__init__()
        self.states, self.multiplier = states, multiplier

    def in_place(self, cell: Any) -> dict[str, Any]:
        """By name, the constants that a neuron computes with: numbers stay numbers, which kernels take as arguments."""
        constants = cell.__dict__.get("_constants", ())
        multipliers = MULTIPLIERS if _is_ours(cell) else [name for name in constants if name != "tau"]
        grids = dict.fromkeys(multipliers, self.multiplier) | dict.fromkeys(POTENTIALS, self.states)
        return {name: _constant(grid, getattr(cell, name)) for name, grid in grids.items() if name in constants}

    def rate(self, tau: Any) -> Any:
        """1 / tau in fixed point, at least its step."""
        if not isinstance(tau, Tensor):
            return max(self.multiplier.number(1.0 / float(tau)), float(self.multiplier.scale))
        return ops.maximum(self.multiplier(1.0 / tau), float(self.multiplier.scale))

    def state(self, name: str, value: Tensor) -> Tensor:
        """A state on its grid."""
        rounded: Tensor = self.states(value)
        return rounded

    def inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The input and the states, as they are."""
        return args

    def results(self, cell: Any, out: Any) -> Any:
        """The output as it is, and the states that the step has not rounded itself on their grid."""
        if not isinstance(out, tuple):
            return out
        parameters = list(inspect.signature(cell.construct).parameters.values())[1:]
        names = [p.name for p in parameters if p.kind is not p.VAR_POSITIONAL]  # *states are those of a Cell inside
        done = _states_rounded_inside(cell)
        states = [
            self.state(name, state) if name not in done and isinstance(state, Tensor) else state
            for name, state in zip(names, out[1:], strict=False)
        ]
        return (out[0], *states, *out[1 + len(states) :])

    def first(self, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The states before the first step, on their grid."""
        return tuple(self.states(state) for state in states)


def _states_rounded_inside(cell: Any) -> tuple[str, ...]:
    """The states that a step rounds before it compares them, and leaves on the grid."""
    if isinstance(cell, LINode) or (isinstance(cell, Neuron) and cell.delay is None):
        return ("v",)
    return ()


def _is_ours(cell: Any) -> bool:
    """True if the equation of a neuron is the library's; then it is known which of its constants multiply."""
    equation = getattr(type(cell), "charge", type(cell).construct)
    return str(equation.__module__).partition(".")[0] == __name__.partition(".")[0]


def _constant(grid: FixedPoint, value: Any) -> Any:
    if isinstance(value, Tensor):
        return grid(value.value() if isinstance(value, Parameter) and not value.requires_grad else value)
    return grid.number(float(value))
