"""Neurons of NIR, which are equations in seconds, as this library's neurons, which go by steps, and back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from snncell import nn
from snncell.cell.cell import Cell
from snncell.cell.ranges import numbers_of
from snncell.errors import NirError, SnncellError
from snncell.nir.graph import DEFAULTS, FIRING, Node
from snncell.nn.dataflow import kind_of
from snncell.surrogate import ATan
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor

METHODS = ("euler", "exponential")
RESETS = {"value": "value", "zero": "value", "subtract": "subtract"}
COMPARISONS = (">", ">=")
DELAYS = ("reset", "reset+input", "spike")
HELD = {"tau": "tau", "r": "input_gain", "v_leak": "v_rest", "v_threshold": "v_threshold", "v_reset": "v_reset"}


@dataclass(frozen=True)
class Choices:
    """All that NIR leaves to who runs a graph.

    Attributes:
        dt: seconds of a step.
        method: how an equation becomes a step: "euler" or "exponential".
        reset: "value" or "subtract", of neurons whose metadata do not say.
        surrogate: the spike function.
        learnable: the names of the parameters that are learned.
        dtype: of Parameters.
    """

    dt: float
    method: str = "euler"
    reset: str = "value"
    surrogate: Any = None
    learnable: tuple[str, ...] = ()
    dtype: Any = None

    def function(self) -> Any:
        """The spike function, the one that `like("nir")` has if none is given."""
        return ATan() if self.surrogate is None else self.surrogate

    def constant(self, node: Node, name: str, value: Any = None) -> Any:
        """A parameter as a neuron takes it: learned, or an array, or one number where all are equal."""
        array = node.values.get(name) if value is None else value
        if array is None:
            return DEFAULTS[name]
        if name in self.learnable:
            return Parameter(Tensor(array, self.dtype), name=name)
        if (array == array.flat[0]).all():
            return float(array.flat[0])
        return array

    def steps(self, node: Node, name: str) -> Any:
        """A time constant in steps, of which a step keeps 1 - 1 / steps.

        With the exponential method these are the steps of Euler's method that keeps exp(-dt / tau).
        """
        tau = np.asarray(node.values[name], np.float64)
        if not (tau > 0.0).all():
            raise NirError(f"{node}: {name} is a positive number of seconds, not {tau.min():g}.")
        if self.method == "euler" and not (tau > self.dt).all():
            raise NirError(
                f"{node}: {name} is {tau.min():g} s, not above dt={self.dt:g} s, so a step of Euler's overshoots. "
                f'Take a shorter dt, and more steps; or method="exponential".'
            )
        steps = tau / self.dt if self.method == "euler" else -1.0 / np.expm1(-self.dt / tau)
        return self.constant(node, name, steps)


def neuron_of(node: Node, choices: Choices) -> Cell:
    """The neuron of a node, a Cell of one step.

    Raises:
        NirError: for parameters that make no neuron.
    """
    try:
        held = {} if "Cuba" in node.kind else HELD  # of currents, constants are computed from several parameters
        cell: Any = _make_neuron(node, replace(choices, learnable=()) if held else choices)
        for name, constant in held.items():
            if name in choices.learnable and (name in node.values or (name == "v_reset" and node.kind in FIRING)):
                values = np.broadcast_to(numbers_of(getattr(cell, constant)), _shape_of(node))
                setattr(cell, constant, Parameter(Tensor(values, choices.dtype), name=constant))
        if node.kind in FIRING:
            cell.reset = RESETS[_read_choice(node, "reset", RESETS, choices.reset)]
            cell.compare = _read_choice(node, "compare", COMPARISONS, ">")
            if "delay" in node.metadata:
                cell.delay = _read_choice(node, "delay", DELAYS, "")
            if node.metadata.get("start") == "v_reset":
                cell.starting_at("v_reset")
        made: Cell = cell
        return made
    except NirError:
        raise
    except SnncellError as error:
        raise NirError(f"{node}: {error}") from None


def _shape_of(node: Node) -> tuple[int, ...]:
    shape: tuple[int, ...] = np.broadcast_shapes(*(value.shape for value in node.values.values()))
    return shape


def _read_choice(node: Node, name: str, known: Any, otherwise: str) -> str:
    value = node.metadata.get(name, otherwise)
    value = value.decode("utf8", "replace") if isinstance(value, bytes) else value
    if not isinstance(value, str) or value not in known:
        raise NirError(f"{node}: its metadata say {name}={value!r}; known are {', '.join(map(repr, known))}.")
    return value


def _make_neuron(node: Node, choices: Choices) -> Any:
    """The neuron by this library's settings for NIR, with dt as the unit of time."""

    def constant(name: str) -> Any:
        return choices.constant(node, name)

    if node.kind == "I":
        return nn.IFNode(fire=False, input_gain=_times(constant("r"), choices.dt))
    if node.kind == "LI":
        return nn.LINode.like("nir", tau=choices.steps(node, "tau"), r=constant("r"), v_leak=constant("v_leak"), dt=1.0)
    if node.kind == "CubaLI":
        syn, jump = choices.steps(node, "tau_syn"), _times(constant("r"), constant("w_in"))
        if {"tau_syn", "r", "w_in"} & set(choices.learnable):
            raise NirError(f"{node}: of CubaLI, tau_mem and v_leak can be learned alone.")
        membrane = nn.LINode.like(
            "nir", tau=choices.steps(node, "tau_mem"), r=jump / syn, v_leak=constant("v_leak"), dt=1.0
        )
        return nn.WithSynapse(membrane, 1.0 - 1.0 / syn)
    given = {name: constant(name) for name in ("v_threshold", "v_reset")}
    given |= {"surrogate_function": choices.function(), "dt": 1.0}
    if node.kind == "IF":
        return nn.IFNode.like("nir", r=_times(constant("r"), choices.dt), **given)
    given |= {name: constant(name) for name in ("r", "v_leak")}
    if node.kind == "LIF":
        return nn.LIFNode.like("nir", tau=choices.steps(node, "tau"), **given)
    taus = {name: choices.steps(node, name) for name in ("tau_mem", "tau_syn")}
    return nn.CubaLIFNode.like("nir", **taus, w_in=constant("w_in"), **given)


def _times(value: Any, factor: Any) -> Any:
    """A product; of a Parameter, which is to be learned as it is, one that begins there."""
    if isinstance(value, Parameter):
        return Parameter(value.value() * factor, name=value.name)
    return value * factor


# --- back -------------------------------------------------------------------------------------------------------------


@dataclass
class Equation:
    """A neuron as NIR would have it, time constants in steps: a step keeps 1 - 1 / steps.

    Attributes:
        tau: of the membrane; infinite where nothing leaks.
        r: what is integrated for each unit of input, times tau; without a leak, for each step.
        rest: the resting potential.
        tau_syn, w_in: of the current; None without one.
        fires: whether it has a threshold.
        late: whether the membrane reads what the current was a step before.
    """

    tau: Any
    r: Any
    rest: Any = 0.0
    tau_syn: Any = None
    w_in: Any = None
    fires: bool = True
    late: bool = False


def constants_of(cell: Any) -> dict[str, Any]:
    """The constants of a neuron at present, as arrays of float64."""
    return {one.name: np.asarray(one.value, np.float64) for one in cell.constants_and_ranges}


def equation_of(cell: Any) -> Equation | None:
    """The equation of a neuron, None if NIR has none for it."""
    kind = kind_of(cell)
    if kind is nn.WithSynapse:
        return _behind_synapse(cell)
    if kind in (nn.LIFNode, nn.ParametricLIFNode, nn.LINode):
        now, decays = constants_of(cell), cell.decay_input
        r = now["input_gain"] if decays else now["input_gain"] * now["tau"]
        return Equation(now["tau"], r, now["v_rest"], fires=kind is not nn.LINode)
    if kind is nn.LeakyNode:
        now = constants_of(cell)
        return _of_decay(now["beta"], now["input_gain"])
    if kind is nn.IFNode:
        now = constants_of(cell)
        return Equation(np.array(np.inf), now["input_gain"], fires=cell.fire)
    if kind is nn.CubaLIFNode:
        now = constants_of(cell)
        membrane = _of_decay(now["beta"], now["current_gain"], now["v_rest"])
        return _with_current(membrane, now["alpha"], now["input_gain"], cell.order)
    return None


def _of_decay(beta: Any, gain: Any, rest: Any = 0.0) -> Equation:
    if (beta == 1.0).all():
        return Equation(np.array(np.inf), gain, rest)
    with np.errstate(divide="ignore"):
        tau = 1.0 / (1.0 - beta)
    return Equation(tau, gain * tau, rest)


def _behind_synapse(cell: Any) -> Equation | None:
    inner = equation_of(cell.cell)
    if inner is None or inner.tau_syn is not None:
        return None
    return _with_current(inner, constants_of(cell)["alpha"], np.array(1.0), cell.order)


def _with_current(membrane: Equation, alpha: Any, gain: Any, order: str) -> Equation:
    """The equation of a membrane that reads a current, in whichever order that decays, jumps and is read.

    What is read is alpha times what was read before, and the jump: of itself, or decayed once.
    """
    with np.errstate(divide="ignore"):
        tau_syn = 1.0 / (1.0 - alpha)
    membrane.tau_syn, membrane.late = tau_syn, order == "read decay jump"
    membrane.w_in = (gain * alpha if order == "jump decay read" else gain) * tau_syn
    return membrane
