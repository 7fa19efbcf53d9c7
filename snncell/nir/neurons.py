"""Convert NIR neurons (equations in seconds) to neurons of this package (time steps), and back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from snncell import nn
from snncell.base.arguments.guard import ours
from snncell.cell.cell import Cell
from snncell.cell.ranges import numbers_of, quote_value
from snncell.errors import NirError, SnncellError
from snncell.nir.graph import DEFAULTS, FIRING, Node, Shape, as_text
from snncell.nn.dataflow import beyond_threshold, kind_of, name_of_cell
from snncell.ops.random import present_key, replaying
from snncell.surrogate import ATan
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor

Method = Literal["euler", "exponential"]
RESETS = {"value": "value", "zero": "value", "subtract": "subtract"}
COMPARISONS = (">", ">=")
DELAYS = ("reset", "reset+input", "spike")
# Node parameters that map to one constant of a neuron. Constants of currents depend on several parameters.
CONSTANT_OF = {"tau": "tau", "r": "input_gain", "v_leak": "v_rest", "v_threshold": "v_threshold", "v_reset": "v_reset"}

# --- from a node to a neuron ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Choices:
    """Settings that NIR leaves open."""

    dt: float  # seconds of a time step
    method: str = "euler"  # integration method, "euler" or "exponential"
    reset: str = "value"  # "value" or "subtract", for neurons without a reset in their metadata
    surrogate: Any = None  # the spike function; None for that of `like("nir")`
    learnable: tuple[str, ...] = ()  # names of the parameters to learn
    dtype: Any = None  # of Parameters

    def function(self) -> Any:
        """The spike function."""
        return ATan() if self.surrogate is None else self.surrogate

    def constant(self, node: Node, name: str, value: Any = None) -> Any:
        """A parameter for a neuron: a Parameter if learnable, one number if all are equal, else an array."""
        array = node.values.get(name) if value is None else value
        if array is None:
            return DEFAULTS[name]
        if name in self.learnable:
            return Parameter(Tensor(array, self.dtype), name=name)
        if (array == array.flat[0]).all():
            return float(array.flat[0])
        return array

    def steps(self, node: Node, name: str) -> Any:
        """A time constant in steps; a step keeps 1 - 1 / steps, which is exp(-dt / tau) for the exponential method."""
        tau = np.asarray(node.values[name], np.float64)
        if not (tau > 0.0).all():
            raise NirError(f"{node}: {name} must be a positive number of seconds, not {tau.min():g}.")
        if self.method == "euler" and not (tau > self.dt).all():
            raise NirError(
                f"{node}: {name} is {tau.min():g} s, not above dt={self.dt:g} s, so a step of Euler's method would "
                f'overshoot. Use a shorter dt and more steps, or method="exponential".'
            )
        steps = tau / self.dt if self.method == "euler" else -1.0 / np.expm1(-self.dt / tau)
        return self.constant(node, name, steps)


def neuron_of(node: Node, choices: Choices) -> Cell:
    """The neuron of a node, a Cell of one time step. Raises a NirError for invalid parameters."""
    try:
        names = {} if "Cuba" in node.kind else CONSTANT_OF
        cell: Any = _make_neuron(node, replace(choices, learnable=()) if names else choices)
        for name, constant in names.items():
            if name in choices.learnable and (name in node.values or (name == "v_reset" and node.kind in FIRING)):
                shape = np.broadcast_shapes(*(value.shape for value in node.values.values()))
                values = np.broadcast_to(numbers_of(getattr(cell, constant)), shape)
                setattr(cell, constant, Parameter(Tensor(values, choices.dtype), name=constant))
        if node.kind in FIRING:
            cell.reset = RESETS[_read_choice(node, "reset", RESETS, choices.reset)]
            cell.compare = _read_choice(node, "compare", COMPARISONS, ">")
            if "delay" in node.metadata:
                cell.delay = _read_choice(node, "delay", DELAYS, "")
            start = as_text(node.metadata.get("start"))
            if start is not None:
                cell.starting_at("v_reset")
            if start is not None and not isinstance(start, str):
                cell.v_reset = Tensor(start, choices.dtype) if np.ndim(start) else float(start)
        made: Cell = cell
        return made
    except NirError:
        raise
    except SnncellError as error:
        raise NirError(f"{node}: {error}") from None


def _read_choice(node: Node, name: str, known: Any, otherwise: str) -> str:
    value = as_text(node.metadata.get(name, otherwise))
    if not isinstance(value, str) or value not in known:
        raise NirError(f"{node}: its metadata has {name}={value!r}. Valid are {', '.join(map(repr, known))}.")
    return value


def _make_neuron(node: Node, choices: Choices) -> Any:
    """Make the neuron by `like("nir")`, with dt as the unit of time."""

    def constants(*names: str) -> dict[str, Any]:
        return {name: choices.constant(node, name) for name in names}

    r = choices.constant(node, "r")
    if node.kind == "I":
        return nn.IFNode(fire=False, input_gain=_times(r, choices.dt))
    if node.kind == "LI":
        return nn.LINode.like("nir", tau=choices.steps(node, "tau"), r=r, **constants("v_leak"), dt=1.0)
    if node.kind == "CubaLI":
        syn, jump = choices.steps(node, "tau_syn"), _times(r, choices.constant(node, "w_in"))
        if {"tau_syn", "r", "w_in"} & set(choices.learnable):
            raise NirError(f"{node}: of a CubaLI, only tau_mem and v_leak can be learned.")
        tau = choices.steps(node, "tau_mem")
        membrane = nn.LINode.like("nir", tau=tau, r=jump / syn, **constants("v_leak"), dt=1.0)
        return nn.WithSynapse(membrane, 1.0 - 1.0 / syn)
    options = constants("v_threshold", "v_reset") | {"surrogate_function": choices.function(), "dt": 1.0}
    if node.kind == "IF":
        return nn.IFNode.like("nir", r=_times(r, choices.dt), **options)
    options |= {"r": r} | constants("v_leak")
    if node.kind == "LIF":
        return nn.LIFNode.like("nir", tau=choices.steps(node, "tau"), **options)
    taus = {name: choices.steps(node, name) for name in ("tau_mem", "tau_syn")}
    return nn.CubaLIFNode.like("nir", **taus, **constants("w_in"), **options)


def _times(value: Any, factor: Any) -> Any:
    """A product. For a Parameter, a new Parameter with the product as its initial value."""
    if isinstance(value, Parameter):
        return Parameter(value.value() * factor, name=value.name)
    return value * factor


# --- from a neuron to its equation ------------------------------------------------------------------------------------


@dataclass
class Equation:
    """A neuron in the form of NIR, with time constants in steps: a time step keeps 1 - 1 / steps."""

    tau: Any  # membrane time constant; infinite without a leak
    r: Any  # gain of the input times tau; without a leak, gain for each step
    rest: Any = 0.0  # resting potential
    tau_syn: Any = None  # time constant of the current; None without a current
    w_in: Any = None  # input weight of the current
    fires: bool = True  # whether there is a threshold
    late: bool = False  # whether the membrane reads the current of the previous step


def constants_of(cell: Any) -> dict[str, Any]:
    """The current constants of a neuron, as float64 arrays."""
    return {one.name: np.asarray(one.value, np.float64) for one in cell.constants_and_ranges}


def equation_of(cell: Any) -> Equation | None:
    """The equation of a neuron, or None if NIR has none for it."""
    kind = kind_of(cell)
    if kind is nn.WithSynapse:
        inner = equation_of(cell.cell)
        if inner is None or inner.tau_syn is not None:
            return None
        return _with_current(inner, constants_of(cell)["alpha"], np.array(1.0), cell.order)
    if kind not in EXACT:
        return None
    now = constants_of(cell)
    if kind is nn.LeakyNode:
        return _of_decay(now["beta"], now["input_gain"])
    if kind is nn.IFNode:
        return Equation(np.array(np.inf), now["input_gain"], fires=cell.fire)
    if kind is nn.CubaLIFNode:
        membrane = _of_decay(now["beta"], now["current_gain"], now["v_rest"])
        return _with_current(membrane, now["alpha"], now["input_gain"], cell.order)
    r = now["input_gain"] if cell.decay_input else now["input_gain"] * now["tau"]
    return Equation(now["tau"], r, now["v_rest"], fires=kind is not nn.LINode)


EXACT = (nn.IFNode, nn.LIFNode, nn.LeakyNode, nn.ParametricLIFNode, nn.LINode, nn.CubaLIFNode, nn.WithSynapse)


def _of_decay(beta: Any, gain: Any, rest: Any = 0.0) -> Equation:
    if (beta == 1.0).all():
        return Equation(np.array(np.inf), gain, rest)
    with np.errstate(divide="ignore"):
        tau = 1.0 / (1.0 - beta)
    return Equation(tau, gain * tau, rest)


def _with_current(membrane: Equation, alpha: Any, gain: Any, order: str) -> Equation:
    """Add a current to the equation of a membrane, for any `order` of its decay, jump and read."""
    with np.errstate(divide="ignore"):
        tau_syn = 1.0 / (1.0 - alpha)
    membrane.tau_syn, membrane.late = tau_syn, order == "read decay jump"
    # The membrane reads alpha times the previous current plus the jump, which may have decayed once before.
    membrane.w_in = (gain * alpha if order == "jump decay read" else gain) * tau_syn
    return membrane


# --- from an equation to nodes ----------------------------------------------------------------------------------------

NEAR: dict[type, str] = {
    nn.ALIFNode: "adapts its threshold",
    nn.MultiSpikeLIFNode: "fires several spikes in a step",
    nn.ILIFNode: "fires integer numbers of spikes",
    nn.RefractoryLIFNode: "has a refractory period",
}


class Writer:
    """Settings of an export: dt, the integration method of readers, and a list of lost features with their paths."""

    def __init__(self, dt: float, method: str) -> None:
        self.dt, self.method = dt, method
        self.lost: list[str] = []

    def lose(self, path: str, cell: Cell, what: str, writes: str) -> None:
        """Note a feature that NIR cannot describe."""
        self.lost.append(f"{name_of_cell(path, cell)} {what}. {writes}")

    def neuron(self, cell: Any, shape: Shape, path: str, kept: dict[str, Any] | None = None) -> list[Node]:
        """The nodes of a neuron, in order. Features in `kept`, the metadata of an imported node, are not lost."""
        _refuse_rule(cell, path)
        plain = self._plain(cell, path)
        equation = equation_of(plain)
        if equation is None:
            raise NirError(
                f"to_nir: {path or 'the net'} is a {type(cell).__name__}, and NIR has no node for it or for a similar "
                f"neuron. Supported are {', '.join(kind.__name__ for kind in EXACT)}."
            )
        late = [Node("Delay", {"delay": np.full(shape, self.dt)})] if equation.late else []
        if not equation.fires:
            return [*late, self.membrane(equation, shape, path, cell)]
        fires: Any = plain.cell if isinstance(plain, nn.WithSynapse) else plain
        now = constants_of(fires)
        kept = kept or {}
        metadata = self._options(fires, path, kept)
        node = self.membrane(equation, shape, path, cell)
        threshold = spread(now["v_threshold"], shape, path, "v_threshold")
        nodes = [*late, node]
        if fires.reset is None:
            nodes.append(Node("Threshold", {"threshold": threshold}, {"compare": metadata["compare"]}))
        else:
            reset = now["v_reset"] if fires.reset == "value" else np.array(0.0)
            node.kind = {"I": "IF", "LI": "LIF", "CubaLI": "CubaLIF"}[node.kind]
            node.values |= {"v_threshold": threshold, "v_reset": spread(reset, shape, path, "v_reset")}
            if (now[fires.starts] != equation.rest).any() and fires.starts != "v_rest":
                # A neuron from a graph without a start of its own begins at the graph's v_reset.
                read = bool(kept) and isinstance(as_text(kept.get("start", "")), str)
                named = fires.reset == "value" or read
                metadata["start"] = fires.starts if named else self._start(fires, now, path, kept)
            node.metadata |= metadata
        if isinstance(fires, nn.IFNode) and (now["v_threshold"] != 1.0).any():  # spikes of the size of the threshold
            nodes.append(Node("Scale", {"scale": threshold.copy()}))
        return nodes

    def _start(self, cell: Any, now: dict[str, Any], path: str, kept: dict[str, Any]) -> Any:
        """The initial potential of a neuron, if its reset does not go there; with a note on the loss."""
        start = now[cell.starts]
        if "start" not in kept:
            fix = "The metadata has it for from_nir; other readers start at 0."
            self.lose(path, cell, f"starts at {cell.starts}={quote_value(getattr(cell, cell.starts))}", fix)
        return float(start.reshape(())) if start.size == 1 else start

    def _plain(self, cell: Any, path: str) -> Any:
        """The neuron itself, or a similar neuron that NIR has, with a note on the lost feature."""
        kind = kind_of(cell)
        if kind not in NEAR:
            return cell
        self.lose(path, cell, NEAR[kind], "The graph has an LIF without this.")
        now = constants_of(cell)
        options = {name: now[name] for name in ("v_threshold", "v_reset", "input_gain")}
        options |= {"reset": cell.reset, "compare": cell.compare}
        if kind in (nn.ALIFNode, nn.MultiSpikeLIFNode):
            return nn.LeakyNode(now["alpha" if kind is nn.ALIFNode else "beta"], **options)
        return nn.LIFNode(now["tau"], decay_input=cell.decay_input, v_rest=now["v_rest"], **options)

    def _options(self, cell: Any, path: str, kept: dict[str, Any]) -> dict[str, Any]:
        """Metadata of a neuron that fires, with notes on features that NIR itself lacks."""
        if cell.reset == "subtract" and kept.get("reset") != "subtract":
            fix = 'The graph has v_reset=0, and reset="subtract" in the metadata for from_nir.'
            self.lose(path, cell, "subtracts the threshold at a spike", fix)
        if cell.compare == ">=" and kept.get("compare") != ">=":
            fix = 'The metadata has compare=">=" for from_nir; other readers fire above the threshold.'
            self.lose(path, cell, "also fires at its threshold", fix)
        if cell.delay is not None and kept.get("delay") != cell.delay:
            fix = "The metadata has it for from_nir; other readers reset in the same step."
            self.lose(path, cell, f"has delay={cell.delay!r}", fix)
        if cell.max_spikes != 1 and kind_of(cell) not in NEAR:
            self.lose(path, cell, "fires several spikes in a step", "The graph has at most one.")
        options = {"reset": "subtract" if cell.reset == "subtract" else "value", "compare": cell.compare}
        return options if cell.delay is None else options | {"delay": cell.delay}

    def membrane(self, equation: Equation, shape: Shape, path: str, cell: Cell) -> Node:
        """The node of the equation without its threshold."""
        leaks = np.isfinite(equation.tau)
        current = equation.tau_syn is not None
        mixed = not leaks.all() and (leaks.any() or current)
        if mixed or (current and not np.isfinite(equation.tau_syn).all()):
            raise NirError(
                f"{where(path, cell)}: some potentials or currents decay and others do not (a decay of 1 has no time "
                f"constant). NIR has no node for this mixture."
            )
        if not leaks.any():
            return Node("I", {"r": spread(equation.r / self.dt, shape, path, "r")})
        times = {"tau_mem": equation.tau, "tau_syn": equation.tau_syn} if current else {"tau": equation.tau}
        if self.method == "euler":  # so that one step of the reader's Euler method keeps 1 - 1 / steps
            seconds = {name: steps * self.dt for name, steps in times.items()}
        else:
            with np.errstate(divide="ignore"):
                seconds = {name: -self.dt / np.log1p(-1.0 / steps) for name, steps in times.items()}
        if any((value <= 0).any() for value in seconds.values()):
            raise NirError(
                f'{where(path, cell)}: a decay of 0 has no time constant with method="exponential". Use '
                f'method="euler", which writes dt.'
            )
        values = {"r": equation.r, "v_leak": equation.rest, **seconds} | ({"w_in": equation.w_in} if current else {})
        arrays = {name: spread(value, shape, path, name) for name, value in values.items()}
        return Node("CubaLI" if current else "LI", arrays)


def where(path: str, cell: Any) -> str:
    """The beginning of an error of `to_nir` for a Cell."""
    return f"to_nir: {name_of_cell(path, cell)}"


def spread(value: Any, shape: Shape, path: str, name: str) -> Any:
    """A constant as an array with an entry for each neuron, because NIR needs this."""
    value = np.asarray(value)
    try:
        return np.broadcast_to(value, shape).copy()
    except ValueError:
        raise NirError(
            f"to_nir: {path or 'the net'}: {name} has the shape {value.shape}, which does not fit the neurons, "
            f"{quote_value(list(shape))}."
        ) from None


def _refuse_rule(cell: Any, path: str) -> None:
    """Raise for a neuron with a spike function that does not fire exactly at x > 0."""
    inner = cell.cell if kind_of(cell) is nn.WithSynapse else cell
    function = None if getattr(inner, "own_function", True) else beyond_threshold(inner.surrogate_function)
    if function is None:
        return
    size = 2.0 ** np.arange(-126, 100, dtype=np.float32)
    x = np.concatenate([np.zeros(1, np.float32), size, -size, np.linspace(-4.0, 4.0, 2001, dtype=np.float32)])
    with replaying(present_key()):  # leaves the sequence of random numbers unchanged
        refused = ours(type(function)) or (np.asarray(function(Tensor(x)).asnumpy(), np.float32) != (x > 0)).any()
    if refused:
        raise NirError(
            f"{where(path, cell)} fires by the rule of {type(function).__name__}, but NIR's neurons fire above a "
            f"threshold. Use a spike function with construct x > 0, for example snncell.surrogate.ATan()."
        )
