"""Quantisation-aware training: give the layers and neurons of a network their quantisers."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import numpy as np

from snncell import ops
from snncell.base.arguments.kinds import Own, Within
from snncell.base.arguments.shown import came
from snncell.cell.cell import Cell
from snncell.errors import ArgumentError
from snncell.nn import Conv1d, Conv2d, Conv2dTranspose, Dense, MultiStep, Recurrent
from snncell.nn.neurons.base import Neuron
from snncell.nn.neurons.constants import Membrane
from snncell.nn.neurons.integrate import EulerLeak, LINode
from snncell.quantise.grids import FixedPoint
from snncell.quantise.quantiser import Quantiser
from snncell.tape.parameter import Parameter, assign_all
from snncell.tape.tensor import Tensor

# --- the quantisers of one Cell: of its weights and inputs, or of its states and constants ----------------------------

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


LAYERS: tuple[type[Cell], ...] = (Dense, Conv1d, Conv2d, Conv2dTranspose)


# --- preparing a network ----------------------------------------------------------------------------------------------


def prepare(
    net: Cell,
    weights: Quantiser | None = None,
    states: FixedPoint | None = None,
    activations: Quantiser | None = None,
    *,
    decay_bits: Annotated[int, Within(1, 14)] = 8,
    skip: Annotated[Sequence[str | type[Cell]], Own()] = (),
) -> Cell:
    """Have a network compute with rounded weights, states and inputs, to be trained on; the network itself is returned.

    A layer's y = f(x, W, b) becomes y = f(Qa(x), Qw(W), Qb(b)), with the bias on the grid of the sums that it is added
    to. A neuron's potential is rounded and saturated once it is charged, before it is compared with the threshold, and
    its other states at the end of the step; decays, gains and 1 / tau are multipliers in fixed point, threshold, reset
    and rest are on the grid of the potential. A loop over time stays one kernel each way.

    Parameters stay as they are, in full precision, and the reverse goes straight through the rounding. Learned and
    moving scales become Parameters of the network, which optimisers, checkpoints and copies find under `quantisers`;
    so prepare the network before the optimiser is made.

    Args:
        net: its `Dense`, `Conv1d`, `Conv2d`, `Conv2dTranspose`, and its neurons (`nn.Neuron`, `nn.LINode`, and what is
            made from them).
        weights: the quantiser of weights, of which each layer gets a copy; None leaves them. With per_channel, an axis
            of 0 is that of the outputs.
        states: the grid of potentials and currents; None leaves them.
        activations: the quantiser of each layer's input; booleans and integers are on a grid already.
        decay_bits: bits behind the point of decays, gains and 1 / tau; 1 / tau = 2^-n is a shift.
        skip: paths of Cells, as `cells_and_names` gives them, or classes, that are left as they are, with all below.

    Raises:
        ArgumentError: for a network in which there is nothing to round, that is prepared already, or that computes in
            float16 (`snncell.amp`), for a Cell with a `bprop`, which knows its Parameters as they are, and for states
            of a Cell that is no neuron.

    Source: Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
    Inference", CVPR 2018; states: Davies et al., "Loihi", IEEE Micro 38(1), 2018.

    Example:
        >>> net = nn.SequentialCell(nn.Dense(3, 4), nn.MultiStep(nn.LeakyNode(0.9)))
        >>> net = snncell.quantise.prepare(net, snncell.quantise.Uniform(4), snncell.quantise.FixedPoint(12, 8))
        >>> net[0].quantisers.weight
        Uniform(bits=4, scale='max', scale_bits=8)
    """
    if weights is states is activations is None:
        raise ArgumentError("prepare: give weights, states or activations, such as weights=quantise.Uniform(4).")
    found = [
        (path, cell)
        for path, cell in _cells_to_prepare(net, _cells_to_skip(net, skip))
        if _wanted_grids(cell, weights, states, activations)
    ]
    if not found:
        raise ArgumentError(
            f"prepare: {type(net).__name__} has nothing to round: layers with weights ({_names(LAYERS)}) for weights "
            f"and activations, neurons (nn.Neuron, nn.LINode) for states."
        )
    for path, cell in found:
        _refuse(path, cell)
    if states is not None:
        _refuse_stepwise(net, {id(cell) for _, cell in found} | _below(net, _cells_to_skip(net, skip)))
    made = [_grids(cell, weights, states, activations, decay_bits) for _, cell in found]
    for (path, cell), grids in zip(found, made, strict=True):
        _refuse_zero_constants(path, cell, grids, decay_bits)
    for (_, cell), grids in zip(found, made, strict=True):
        cell.quantisers = grids
        cell.quantisers.set_train(cell.training)
    return net


def _refuse_zero_constants(path: str, cell: Any, grids: Any, decay_bits: int) -> None:
    """Raise an ArgumentError for a constant that is 0 as a multiplier in fixed point, and is not meant to be."""
    if not isinstance(grids, StateGrids):
        return
    for name, value in grids.in_place(cell).items():
        before = getattr(cell, name)
        if name not in POTENTIALS and np.any((_plain(before) != 0) & (_plain(value) == 0)):
            smallest = float(np.abs(_plain(before)[_plain(before) != 0]).min())
            raise ArgumentError(
                f"prepare: {path} ({type(cell).__name__}): its {name} = {smallest:g} would be 0 with {decay_bits} bits "
                f"behind the point; give more, decay_bits=12 (14 at most), or write the equation with larger constants."
            )


def _plain(value: Any) -> np.ndarray[Any, Any]:
    return np.asarray(value.asnumpy() if isinstance(value, Tensor) else value, np.float64)


def restore(net: Cell, rounded: bool = False) -> Cell:
    """Have a network that was prepared compute with its Parameters as they are; the network itself is returned.

    Args:
        net: the network.
        rounded: whether its Parameters and constants become what it computed with, the values on their grids: for other
            formats, such as NIR's, which know no quantisers. Its states are no longer rounded in either case.

    Example:
        >>> net = snncell.quantise.prepare(nn.Dense(2, 2, weight_init=0.3), snncell.quantise.Uniform(2, 0.25))
        >>> snncell.quantise.restore(net, rounded=True).weight.asnumpy().tolist()
        [[0.25, 0.25], [0.25, 0.25]]
    """
    prepared = [cell for _, cell in net.cells_and_names() if "quantisers" in cell.__dict__]
    values = [(cell, name, value) for cell in prepared if rounded for name, value in _values_computed_with(cell)]
    held = [(cell.__dict__[name], value) for cell, name, value in values]
    assign_all([(old, new) for old, new in held if isinstance(old, Parameter)], "restore")
    for cell, name, value in values:
        if not isinstance(cell.__dict__[name], Parameter):
            setattr(cell, name, value)
    for cell in prepared:
        del cell.quantisers  # as if it had never been set
    return net


def _values_computed_with(cell: Any) -> list[tuple[str, Any]]:
    """The Parameters and constants of a prepared Cell by name, with the values that it computes with."""
    values = dict(cell.quantisers.in_place(cell))
    if isinstance(cell.quantisers, StateGrids) and isinstance(cell, (EulerLeak, LINode)):
        values["tau"] = 1.0 / cell.quantisers.rate(cell.tau)
    return [(name, ops.stop_gradient(x) if isinstance(x, Tensor) else x) for name, x in values.items()]


def _grids(cell: Any, weights: Any, states: Any, activations: Any, decay_bits: int) -> Cell:
    """Quantisers of its own for a Cell."""
    if isinstance(cell, Membrane):
        return StateGrids(copy.deepcopy(states), FixedPoint(16, decay_bits))
    weight = None
    if weights is not None:
        weight = copy.deepcopy(weights)
        if isinstance(cell, Conv2dTranspose) and getattr(weight, "per_channel", False):
            raise ArgumentError(
                "prepare: Conv2dTranspose has its outputs on axis 1, divided into groups, so its scales are not per "
                "channel; leave per_channel out, or skip=[nn.Conv2dTranspose]."
            )
        weight.begin(cell.weight)
    return WeightGrids(weight, None if activations is None else _begin_quantiser(activations))


def _begin_quantiser(activations: Quantiser) -> Quantiser:
    """A quantiser of inputs, of which nothing is known yet but that they share a scale."""
    if getattr(activations, "per_channel", False) or getattr(activations, "scale", None) == "learned":
        raise ArgumentError(
            f"prepare: activations share one scale that is not learned, such as quantise.FixedPoint(8, 6) or "
            f'quantise.Uniform(8, "moving"), not {activations!r}.'
        )
    return copy.deepcopy(activations).begin(ops.zeros(()))


def _wanted_grids(cell: Cell, weights: Any, states: Any, activations: Any) -> bool:
    if isinstance(cell, Membrane):
        return states is not None
    return isinstance(cell, LAYERS) and not (weights is activations is None)


def _refuse(path: str, cell: Cell) -> None:
    """Raise for a Cell that cannot be rounded."""
    who = f"{path} ({type(cell).__name__})" if path else type(cell).__name__
    if cell.bprop is not None:
        raise ArgumentError(
            f"prepare: {who} has a bprop, which knows its Parameters as they are: round in its construct and bprop "
            f"what is to be rounded, and leave it out here: skip=[{path!r}]."
        )
    if cell.quantisers is not None:
        raise ArgumentError(f"prepare: {who} is prepared already; quantise.restore(net) undoes that.")
    if cell.compute_dtype is not None:
        raise ArgumentError(
            f"prepare: {who} computes in {cell.compute_dtype}, which has fewer bits than the sums of a grid need. "
            f'Undo that first: amp.auto_mixed_precision(net, "O0").'
        )


def _refuse_stepwise(net: Cell, known: set[int]) -> None:
    """Raise for a Cell that is run step by step, whose states would stay as they are."""
    for path, cell in net.cells_and_names():
        inner = cell.cell if isinstance(cell, (MultiStep, Recurrent)) else None
        if inner is not None and id(inner) not in known and not isinstance(inner, Recurrent):
            raise ArgumentError(
                f"prepare: {path or 'net'}.cell ({type(inner).__name__}) is no nn.Neuron, and its states would stay as "
                f"they are. Make it one, or leave it out: skip=[{type(inner).__name__}]."
            )


def _below(net: Cell, skipped: set[int]) -> set[int]:
    """The Cells that are left as they are, and all below them."""
    left = [cell for _, cell in net.cells_and_names() if id(cell) in skipped]
    return {id(below) for cell in left for _, below in cell.cells_and_names()}


def _cells_to_prepare(net: Cell, skipped: set[int]) -> Iterator[tuple[str, Cell]]:
    """The Cells of a net with their paths, without those that are left as they are, and all below them."""
    left = _below(net, skipped)
    for path, cell in net.cells_and_names():
        if id(cell) not in left:
            yield path, cell


def _cells_to_skip(net: Cell, skip: Any) -> set[int]:
    """The Cells that `skip` names."""
    several = skip if isinstance(skip, (list, tuple, set)) else [skip]
    cells, found = list(net.cells_and_names()), set()
    for one in several:
        by_class = isinstance(one, type) and issubclass(one, Cell)
        if not by_class and not isinstance(one, str):
            raise ArgumentError(f"prepare: skip is a list of paths and of classes of Cells; {came(one)} is neither.")
        named = {id(cell) for path, cell in cells if (isinstance(cell, one) if by_class else path == one)}
        if not named and not by_class:
            raise ArgumentError(f"prepare: skip={one!r}: there is no such Cell; there are {_paths(cells)}.")
        found |= named
    return found


def _paths(cells: list[tuple[str, Cell]]) -> str:
    paths = [path for path, cell in cells if path and isinstance(cell, (*LAYERS, Membrane))]
    return ", ".join(paths[:20]) or "none"


def _names(kinds: Sequence[type]) -> str:
    return ", ".join(kind.__name__ for kind in kinds)
