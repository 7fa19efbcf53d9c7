"""Fold batch normalisation into the weights and bias of the layer before it."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from snncell import nn
from snncell.cell.cell import Cell
from snncell.errors import ArgumentError
from snncell.nn.dataflow import kind_of, name_of_cell, refuse_hooks, refuse_replacement
from snncell.nn.layers.norm import BatchStatistics
from snncell.quantise.prepare import LAYERS
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor


def fold(net: Cell) -> Cell:
    """A copy of a network whose batch normalisations are in the weights and biases of the layers before them.

    W' = W gamma / sqrt(var + eps),   b' = beta + (b - mean) gamma / sqrt(var + eps),   with the moving mean and var

    In prediction it gives what the network gave, to rounding. It has nothing left to normalise by a batch, so train
    with the normalisation first, fold, and go on: `prepare` it then, for weights are rounded after this product.

    Args:
        net: its `SequentialCell`s, in which a BatchNorm1d, BatchNorm2d, ThresholdBatchNorm or what is made from them
            follows a Dense, Conv1d or Conv2d directly, both in a `TimeDistributed` or not. A construct of your own
            should call such a `SequentialCell` as a whole, because the places of its Cells change.

    Raises:
        ArgumentError: for a normalisation that stands elsewhere, has statistics for each step, or always takes those of
            the batch, a layer that is used twice, a network that is prepared already, and one without any.

    Source: Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
    Inference", CVPR 2018, section 3.2.

    Example:
        >>> net = nn.SequentialCell(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4))
        >>> len(snncell.quantise.fold(net))
        1
    """
    folded = copy.deepcopy(net)
    if not any(isinstance(cell, BatchStatistics) for _, cell in folded.cells_and_names()):
        raise ArgumentError(
            f"fold: {type(net).__name__} has no batch normalisation; it needs no fold, prepare it as it is."
        )
    uses = _uses(folded)
    for path, cell in list(folded.cells_and_names()):
        if kind_of(cell) is nn.SequentialCell:
            _fold_in(cell, path, uses)
    for path, cell in folded.cells_and_names():
        if isinstance(cell, BatchStatistics):
            raise ArgumentError(
                f"fold: {name_of_cell(path, cell)} does not follow a Dense, Conv1d or Conv2d directly in a "
                f"SequentialCell, so there are no weights for it to go into. Put it there, or leave it out; a "
                f"SequentialCell with a construct of its own is none."
            )
    return folded


def _uses(net: Cell) -> dict[int, int]:
    """The number of places in the network that have each Parameter, and each Cell."""
    count: dict[int, int] = {}
    for _, cell in net.cells_and_names():
        for _, member in cell._members():
            count[id(member)] = count.get(id(member), 0) + 1
    return count


def _fold_in(container: Any, path: str, uses: dict[int, int]) -> None:
    """Fold each normalisation of a SequentialCell into the layer before it."""
    members = [(name, cell) for name, cell in container._members() if isinstance(cell, Cell)]  # with repetitions
    folded: list[int] = []
    for place, (name, cell) in enumerate(members):
        norm, before = _inside(cell), _inside(members[place - 1][1]) if place else None
        if isinstance(norm, BatchStatistics) and isinstance(before, LAYERS):
            chain = [members[place - 1], (name, cell)]
            _refuse(norm, before, [(f"{path}.{n}" if path else n, c) for n, c in chain], uses)
            _into(before, norm)
            folded.append(place)
    for place in reversed(folded):
        if all(name.isdecimal() for name, _ in members):
            del container[place]
        else:
            delattr(container, members[place][0])


def _inside(cell: Cell) -> Cell:
    return cell.cell if isinstance(cell, nn.TimeDistributed) else cell


def _refuse(norm: Any, layer: Any, members: list[tuple[str, Cell]], uses: dict[int, int]) -> None:
    """Raise for a pair that is no product with other weights."""
    who = f"fold: {name_of_cell(members[1][0], norm)}"
    for path, member in members:
        refuse_hooks(member, _error, "and cannot be folded", path)
        refuse_replacement(member, path, _error, "so its weights are not all that it computes with")
    if layer.quantisers is not None:
        raise ArgumentError(
            f"{who}: the layer before it is prepared already; fold first, and prepare what comes of it."
        )
    if isinstance(layer, nn.Conv2dTranspose) or getattr(layer, "activation", None) is not None:
        raise ArgumentError(
            f"{who} follows a {type(layer).__name__}, or an activation, with which it does not commute."
        )
    if norm.use_batch_statistics:
        raise ArgumentError(f"{who} takes the statistics of each batch: use_batch_statistics=None, and train it again.")
    if len(norm.kept) != 1 or norm.moving_mean.ndim != 1:
        raise ArgumentError(f"{who} has statistics for each step; weights are the same at all. Use ThresholdBatchNorm.")
    if norm.num_features != layer.out_channels:
        raise ArgumentError(f"{who} has {norm.num_features} channels, the layer before it {layer.out_channels}.")
    parameters = [p for p in (layer.weight, layer.bias if layer.has_bias else None) if p is not None]
    if any(uses.get(id(used), 0) > 1 for used in (layer, members[0][1], *parameters)):
        raise ArgumentError(f"{who}: the layer before it, or its weight, is used elsewhere too; make two of it.")


def _into(layer: Any, norm: Any) -> None:
    """Write the weights and the bias of both together."""
    mean, var, gamma, beta = (
        p.asnumpy().astype(np.float64) for p in (norm.moving_mean, norm.moving_variance, norm.gamma, norm.beta)
    )
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
