"""Quantisation-aware training: fold batch normalisation, and give layers and neurons their quantisers."""

from __future__ import annotations

import copy
import inspect
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np

from snncell import nn, ops
from snncell.base.arguments.guard import ours
from snncell.base.arguments.kinds import Own, Within
from snncell.base.arguments.shown import came
from snncell.cell.cell import Cell
from snncell.cell.ranges import numbers_of
from snncell.errors import ArgumentError
from snncell.nn import Conv1d, Conv2d, Conv2dTranspose, Dense, MultiStep, Recurrent
from snncell.nn.dataflow import kind_of, name_of_cell, refuse_hooks, refuse_replacement
from snncell.nn.layers.norm import BatchStatistics
from snncell.nn.neurons.base import Neuron
from snncell.nn.neurons.constants import Membrane
from snncell.nn.neurons.integrate import EulerLeak, LINode
from snncell.quantise.grids import FixedPoint
from snncell.quantise.quantiser import Quantiser
from snncell.tape.parameter import Parameter, assign_all
from snncell.tape.tensor import Tensor

# --- quantisers of one Cell: weights and inputs, or states and constants ----------------------------------------------

POTENTIALS = ("v_threshold", "v_reset", "v_rest")  # constants of neurons that states are compared with or set to
MULTIPLIERS = ("alpha", "beta", "current_gain", "input_gain")  # constants that states and inputs are multiplied by
LAYERS: tuple[type[Cell], ...] = (Dense, Conv1d, Conv2d, Conv2dTranspose)  # layers with weights


class OnStep(Cell):
    """Round a bias (channels,) to the grid of the sums, with a straight-through gradient. It is not clipped."""

    def construct(self, bias: Tensor, step: Any) -> Any:
        return ops.round(bias / step) * step

    def bprop(self, bias: Tensor, step: Any, out: Tensor, dout: Tensor) -> tuple[Tensor, None]:
        return dout, None

    def primitive(self, bias: Tensor, step: Any) -> Any:
        return bias * 1.0


class WeightGrids(Cell):
    """Quantisers of a layer, for its weights and its inputs; None does not round them."""

    def __init__(self, weight: Quantiser | None, activation: Quantiser | None) -> None:
        super().__init__()
        self.weight, self.activation = weight, activation
        self.bias = OnStep()

    def in_place(self, cell: Any) -> dict[str, Any]:
        """The rounded Parameters that a layer computes with, by name."""
        if self.weight is None:
            return {}
        weight = cell.weight
        others = {"weight": self.weight(weight)}
        if getattr(cell, "has_bias", False):
            step = self.weight.step(weight)  # of the sums too, if the inputs are integers
            if isinstance(step, Tensor):
                step = step.reshape((-1,) if step.size > 1 else ())
            others["bias"] = self.bias(cell.bias, step)
        return others

    def inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The inputs of a layer, rounded."""
        if self.activation is None or not isinstance(args[0], Tensor) or not args[0].dtype.is_float:
            return args  # spikes as bytes and event lists are integers already
        return (self.activation(args[0]), *args[1:])

    def results(self, cell: Any, out: Any) -> Any:
        """The result of a layer, unchanged."""
        return out


class StateGrids(Cell):
    """Quantisers of a neuron, for its states and for the factors that multiply them."""

    def __init__(self, states: FixedPoint, multiplier: FixedPoint) -> None:
        super().__init__()
        self.states, self.multiplier = states, multiplier

    def in_place(self, cell: Any) -> dict[str, Any]:
        """The rounded constants of a neuron, by name. A number stays a number, because kernels take it as argument."""
        constants = cell.__dict__.get("_constants", ())
        known = ours(getattr(type(cell), "charge", type(cell).construct))  # then we know the factors of its equation
        multipliers = MULTIPLIERS if known else [name for name in constants if name != "tau"]
        grids = dict.fromkeys(multipliers, self.multiplier) | dict.fromkeys(POTENTIALS, self.states)
        return {name: _constant(grid, getattr(cell, name)) for name, grid in grids.items() if name in constants}

    def rate(self, tau: Any) -> Any:
        """1 / tau in fixed point, at least one step."""
        if not isinstance(tau, Tensor):
            return max(self.multiplier.number(1.0 / float(tau)), float(self.multiplier.scale))
        return ops.maximum(self.multiplier(1.0 / tau), float(self.multiplier.scale))

    def inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The input and the states, unchanged."""
        return args

    def results(self, cell: Any, out: Any) -> Any:
        """Return the output unchanged and the states rounded, except states that the neuron itself has rounded."""
        if not isinstance(out, tuple):
            return out
        parameters = list(inspect.signature(cell.construct).parameters.values())[1:]
        names = [p.name for p in parameters if p.kind is not p.VAR_POSITIONAL]  # *states belong to an inner Cell
        # A neuron rounds its potential before the comparison with the threshold, and the reset stays on the grid.
        done = ("v",) if isinstance(cell, LINode) or (isinstance(cell, Neuron) and cell.delay is None) else ()
        states = [
            self.states(state) if name not in done and isinstance(state, Tensor) else state
            for name, state in zip(names, out[1:], strict=False)
        ]
        return (out[0], *states, *out[1 + len(states) :])


def _constant(grid: FixedPoint, value: Any) -> Any:
    if isinstance(value, Tensor):
        return grid(value.value() if isinstance(value, Parameter) and not value.requires_grad else value)
    return grid.number(float(value))


def prepare(
    net: Cell,
    weights: Quantiser | None = None,
    states: FixedPoint | None = None,
    activations: Quantiser | None = None,
    *,
    decay_bits: Annotated[int, Within(1, 14)] = 8,
    skip: Annotated[Sequence[str | type[Cell]], Own()] = (),
) -> Cell:
    """Prepare a network for quantisation-aware training: compute with rounded weights, states and inputs.

    Call it on a trained network, continue training with a smaller learning rate, then call `export`. A layer
    y = f(x, W, b) becomes y = f(Qa(x), Qw(W), Qb(b)), with the bias on the grid of the sums. A neuron rounds and
    saturates its potential before the comparison with the threshold, and other states at the end of the step. Decays,
    gains and 1 / tau become fixed-point factors; threshold, reset and rest lie on the potential's grid.

    Loops stay one kernel. Parameters keep full precision, because the gradient goes straight through the rounding.
    Learned and moving scales are Parameters under `quantisers`, so you should make the optimiser after this call.

    Args:
        net: changed in place: its Dense, Conv1d, Conv2d and Conv2dTranspose, and its `nn.Neuron`s and `nn.LINode`s.
        weights: quantiser of weights, copied for each layer; None leaves them. With per_channel, axis 0 is the outputs.
        states: grid of potentials and currents; None leaves them.
        activations: quantiser of each layer's input, unless this is booleans or integers; None leaves it.
        decay_bits: bits after the point of decays, gains and 1 / tau; 1 / tau = 2^-n is a shift.
        skip: Cells to leave unchanged, with all Cells inside: paths from `cells_and_names`, or classes.
    Returns: The network itself.
    Raises: ArgumentError for a network that has nothing to round, is already prepared, or computes in float16; for a
        Cell with a `bprop`, because its custom gradient would use the unrounded Parameters; and for states of a Cell
        that is not a neuron.
    Source: Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
    Inference", CVPR 2018; states: Davies et al., "Loihi", IEEE Micro 38(1), 2018.
    Example:
        >>> net = nn.SequentialCell(nn.Dense(3, 4), nn.MultiStep(nn.LeakyNode(0.9)))
        >>> net = snncell.quantise.prepare(net, snncell.quantise.Uniform(4), snncell.quantise.FixedPoint(12, 8))
        >>> net[0].quantisers.weight
        Uniform(bits=4, scale='max', scale_bits=8)
    """
    if weights is states is activations is None:
        raise ArgumentError("prepare: pass weights, states or activations, for example weights=quantise.Uniform(4).")
    kinds: tuple[type, ...] = () if weights is activations is None else LAYERS
    kinds += () if states is None else (Membrane,)
    left = _cells_to_leave(net, skip)
    found = [(path, cell) for path, cell in net.cells_and_names() if isinstance(cell, kinds) and id(cell) not in left]
    if not found:
        names = ", ".join(kind.__name__ for kind in LAYERS)
        raise ArgumentError(
            f"prepare: {type(net).__name__} has nothing to round. weights and activations need layers with "
            f"weights ({names}), states need neurons (nn.Neuron, nn.LINode)."
        )
    for path, cell in found:
        _refuse_cell(path, cell)
    if states is not None:
        _refuse_stepwise(net, left.union(id(cell) for _, cell in found))
    made = [_grids(path, cell, weights, states, activations, decay_bits) for path, cell in found]
    for (_, cell), grids in zip(found, made, strict=True):
        cell.quantisers = grids
        cell.quantisers.set_train(cell.training)
    return net


def restore(net: Cell, rounded: bool = False) -> Cell:
    """Remove all quantisers, so that a prepared network computes with its Parameters again.

    Args:
        net: changed in place.
        rounded: whether Parameters and constants, but no states, keep rounded values, for example to export to NIR.
    Returns: The network itself.
    Example:
        >>> net = snncell.quantise.prepare(nn.Dense(2, 2, weight_init=0.3), snncell.quantise.Uniform(2, 0.25))
        >>> snncell.quantise.restore(net, rounded=True).weight.asnumpy().tolist()
        [[0.25, 0.25], [0.25, 0.25]]
    """
    prepared = [cell for _, cell in net.cells_and_names() if "quantisers" in cell.__dict__]
    values = [(cell, name, value) for cell in prepared if rounded for name, value in _values_computed_with(cell)]
    pairs = [(cell.__dict__[name], value) for cell, name, value in values]
    assign_all([(old, new) for old, new in pairs if isinstance(old, Parameter)], "restore")
    for cell, name, value in values:
        if not isinstance(cell.__dict__[name], Parameter):
            setattr(cell, name, value)
    for cell in prepared:
        del cell.quantisers
    return net


def _values_computed_with(cell: Any) -> list[tuple[str, Any]]:
    values = dict(cell.quantisers.in_place(cell))
    if isinstance(cell.quantisers, StateGrids) and isinstance(cell, (EulerLeak, LINode)):
        values["tau"] = 1.0 / cell.quantisers.rate(cell.tau)
    return [(name, ops.stop_gradient(x) if isinstance(x, Tensor) else x) for name, x in values.items()]


def _grids(path: str, cell: Any, weights: Any, states: Any, activations: Any, decay_bits: int) -> Cell:
    """Make the quantisers of one Cell; raise if a constant other than 0 would become 0."""
    if isinstance(cell, Membrane):
        grids = StateGrids(copy.deepcopy(states), FixedPoint(16, decay_bits))
        for name, value in grids.in_place(cell).items():
            before = numbers_of(getattr(cell, name))
            if name not in POTENTIALS and np.any((before != 0) & (numbers_of(value) == 0)):
                smallest = float(np.abs(before[before != 0]).min())
                raise ArgumentError(
                    f"prepare: {path} ({type(cell).__name__}): its {name} = {smallest:g} would be 0 with {decay_bits} "
                    f"bits after the point. Use more, decay_bits=12 (14 at most), or write the equation with larger "
                    f"constants."
                )
        return grids
    weight = None
    if weights is not None:
        weight = copy.deepcopy(weights)
        if isinstance(cell, Conv2dTranspose) and getattr(weight, "per_channel", False):
            raise ArgumentError(
                "prepare: Conv2dTranspose has its outputs on axis 1, divided into groups, so its scales cannot be per "
                "channel. Leave per_channel out, or pass skip=[nn.Conv2dTranspose]."
            )
        weight.begin(cell.weight)
    if activations is None:
        return WeightGrids(weight, None)
    if getattr(activations, "per_channel", False) or getattr(activations, "scale", None) == "learned":
        raise ArgumentError(
            f"prepare: activations must share one scale that is not learned, for example quantise.FixedPoint(8, 6) or "
            f'quantise.Uniform(8, "moving"), not {activations!r}.'
        )
    return WeightGrids(weight, copy.deepcopy(activations).begin(ops.zeros(())))  # inputs are still unknown


def _refuse_cell(path: str, cell: Cell) -> None:
    who = f"{path} ({type(cell).__name__})" if path else type(cell).__name__
    if cell.bprop is not None:
        raise ArgumentError(
            f"prepare: {who} has a bprop, which uses its unrounded Parameters. Round them in its construct and bprop, "
            f"and leave this Cell out: skip=[{path!r}]."
        )
    if cell.quantisers is not None:
        raise ArgumentError(f"prepare: {who} is already prepared. quantise.restore(net) undoes that.")
    if cell.compute_dtype is not None:
        raise ArgumentError(
            f"prepare: {who} computes in {cell.compute_dtype}, which has fewer bits than quantised sums need. Undo "
            f'mixed precision first: amp.auto_mixed_precision(net, "O0").'
        )


def _refuse_stepwise(net: Cell, known: set[int]) -> None:
    """Raise for a Cell in a MultiStep or Recurrent that is not a neuron, because its states would not be rounded."""
    for path, cell in net.cells_and_names():
        inner = cell.cell if isinstance(cell, (MultiStep, Recurrent)) else None
        if inner is not None and id(inner) not in known and not isinstance(inner, Recurrent):
            raise ArgumentError(
                f"prepare: {path or 'net'}.cell ({type(inner).__name__}) is not an nn.Neuron, so its states would not "
                f"be rounded. Make it one, or leave it out: skip=[{type(inner).__name__}]."
            )


def _cells_to_leave(net: Cell, skip: Any) -> set[int]:
    """The ids of the Cells that `skip` names, and of all Cells inside."""
    cells, left = list(net.cells_and_names()), set()
    for one in skip if isinstance(skip, (list, tuple, set)) else [skip]:
        by_class = isinstance(one, type) and issubclass(one, Cell)
        if not by_class and not isinstance(one, str):
            raise ArgumentError(f"prepare: skip must be a list of paths and of classes of Cells, not of {came(one)}.")
        named = [cell for path, cell in cells if (isinstance(cell, one) if by_class else path == one)]
        if not named and not by_class:
            paths = [path for path, cell in cells if path and isinstance(cell, (*LAYERS, Membrane))]
            raise ArgumentError(
                f"prepare: skip={one!r} names no Cell. The Cells to round are {', '.join(paths[:20]) or 'none'}."
            )
        left |= {id(below) for cell in named for _, below in cell.cells_and_names()}
    return left


# --- folding batch normalisation --------------------------------------------------------------------------------------


def fold(net: Cell) -> Cell:
    """Fold batch normalisation: move it into the weights and biases of the layers before it, in a copy of the network.

    W' = W gamma / sqrt(var + eps),   b' = beta + (b - mean) gamma / sqrt(var + eps),   with the moving mean and var

    Call it before `prepare`, because weights must be rounded after this product. The copy gives the same predictions,
    to rounding. It cannot normalise by batches any more, so train with the normalisation first.

    Args:
        net: contains `SequentialCell`s in which a BatchNorm1d, BatchNorm2d, ThresholdBatchNorm or a subclass directly
            follows a Dense, Conv1d or Conv2d. Both may be in a `TimeDistributed`. Your own construct should call such a
            `SequentialCell` as a whole, because the positions of its Cells change.
    Raises: ArgumentError if a normalisation does not follow such a layer, is over another axis than its outputs, or
        has statistics for each step or of the batch; if a layer is used twice; if the network is prepared already, or
        has no batch normalisation. A folded Dense raises a ShapeError if its outputs have another number of axes.
    Source: Jacob et al., CVPR 2018, section 3.2 (see `prepare`).
    Example:
        >>> net = nn.SequentialCell(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4))
        >>> len(snncell.quantise.fold(net))
        1
    """
    folded = copy.deepcopy(net)
    if not any(isinstance(cell, BatchStatistics) for _, cell in folded.cells_and_names()):
        raise ArgumentError(f"fold: {type(net).__name__} has no batch normalisation, so you can call prepare directly.")
    uses = count_holders(folded)
    for path, cell in list(folded.cells_and_names()):
        if kind_of(cell) is nn.SequentialCell:
            _fold_in(cell, path, uses)
    for path, cell in folded.cells_and_names():
        if isinstance(cell, BatchStatistics):
            raise ArgumentError(
                f"fold: {name_of_cell(path, cell)} does not directly follow a Dense, Conv1d or Conv2d in a "
                f"SequentialCell, so there are no weights to fold it into. Put it there, or remove it. A subclass of "
                f"SequentialCell with its own construct does not count."
            )
    return folded


def count_holders(net: Cell) -> Counter[int]:
    """How many Cells hold each Cell and Parameter of a network, by id."""
    return Counter(id(member) for _, cell in net.cells_and_names() for _, member in cell._members())


def _fold_in(container: Any, path: str, uses: Counter[int]) -> None:
    members = [(name, cell) for name, cell in container._members() if isinstance(cell, Cell)]  # repeated Cells too
    folded: list[int] = []
    for place, (name, cell) in enumerate(members):
        norm, before = _inside(cell), _inside(members[place - 1][1]) if place else None
        if isinstance(norm, BatchStatistics) and isinstance(before, LAYERS):
            chain = [members[place - 1], (name, cell)]
            refuse_fold(norm, before, [(f"{path}.{n}" if path else n, c) for n, c in chain], uses)
            _match_axes(norm, before, chain, path)
            scale_layer(before, norm)
            folded.append(place)
    for place in reversed(folded):
        if all(name.isdecimal() for name, _ in members):
            del container[place]
        else:
            delattr(container, members[place][0])


def _inside(cell: Cell) -> Cell:
    return cell.cell if isinstance(cell, nn.TimeDistributed) else cell


def _match_axes(norm: Any, layer: Any, chain: list[tuple[str, Cell]], path: str) -> None:
    """Raise if a normalisation is not over the axis of the layer's outputs. For a Dense this axis depends on the input,
    so the number of axes is set, and the Dense raises when it is called with another number.
    """
    in_time = [isinstance(cell, nn.TimeDistributed) for _, cell in chain]
    axis = norm.kept[0] + in_time[1] - in_time[0]  # as the layer counts them
    dense = isinstance(layer, nn.Dense)
    if axis < 1 or (norm.kept[0] + 1 not in norm.dims if dense else axis > 1):
        name = name_of_cell(f"{path}.{chain[1][0]}" if path else chain[1][0], norm)
        raise _error(
            f"{name} normalises another axis than that of the outputs of the {type(layer).__name__} before it."
        )
    if dense:
        layer.axes = axis + 1


def refuse_fold(norm: Any, layer: Any, members: list[tuple[str, Cell]], uses: Counter[int]) -> None:
    """Raise unless a normalisation can be folded into a layer; `members` are both, or the Cells around them."""
    who = f"fold: {name_of_cell(members[1][0], norm)}"
    for path, member in members:
        refuse_hooks(member, _error, "and cannot be folded", path)
        refuse_replacement(member, path, _error, "so folding its weights could change its result")
    if layer.quantisers is not None:
        raise ArgumentError(
            f"{who}: the layer before it is already prepared. Call fold first, then prepare the result."
        )
    if isinstance(layer, nn.Conv2dTranspose) or getattr(layer, "activation", None) is not None:
        raise ArgumentError(
            f"{who} follows a {type(layer).__name__}, or an activation, and cannot be folded through it."
        )
    if norm.use_batch_statistics:
        raise ArgumentError(
            f"{who} uses the statistics of each batch. Set use_batch_statistics=None, and train the network again."
        )
    if len(norm.kept) != 1 or norm.moving_mean.ndim != 1:
        raise ArgumentError(
            f"{who} has statistics for each step, but weights are the same at all steps. Use ThresholdBatchNorm."
        )
    if norm.num_features != layer.out_channels:
        raise ArgumentError(f"{who} has {norm.num_features} channels, but the layer before it {layer.out_channels}.")
    parameters = [p for p in (layer.weight, layer.bias if layer.has_bias else None) if p is not None]
    if any(uses[id(used)] > 1 for used in (layer, members[0][1], *parameters)):
        raise ArgumentError(
            f"{who}: the layer before it, or its weight, is also used elsewhere. Make a separate layer for each use."
        )


def scale_layer(layer: Any, norm: Any) -> None:
    """Multiply the weights of a layer by the scale of a normalisation, and change its bias accordingly."""
    parts = norm.moving_mean, norm.moving_variance, norm.gamma, norm.beta
    mean, var, gamma, beta = (p.asnumpy().astype(np.float64) for p in parts)
    factor = gamma * norm.gain / np.sqrt(var + norm.eps)
    weight = layer.weight.asnumpy().astype(np.float64)
    bias = layer.bias.asnumpy().astype(np.float64) if layer.has_bias else 0.0
    dtype = layer.weight.dtype
    layer.weight.set_data(Tensor(weight * factor.reshape((-1, *(1,) * (weight.ndim - 1))), dtype))
    shifted = Tensor(beta + (bias - mean) * factor, dtype)
    if layer.has_bias:
        layer.bias.set_data(shifted)
    else:
        layer.bias = Parameter(shifted, name="bias")
        layer.has_bias = True


def _error(text: str) -> ArgumentError:
    return ArgumentError(f"fold: {text}")
