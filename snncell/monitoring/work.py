"""Operations and memory accesses of a net's layers: event-driven, dense, and as an ANN in one pass."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from snncell.monitoring.costs import WEIGHTED, Tally, extent_of
from snncell.monitoring.operations import Operations, operations_of
from snncell.monitoring.record import Array, RecordedCall
from snncell.nn.norm.over_time import NeuNorm
from snncell.nn.norm.standard import BatchStatistics, LayerNorm


@dataclass(frozen=True)
class Counts:
    """Operations and memory accesses per sample, in operations and in words.

    Attributes:
        macs, acs: of products: multiply-accumulates, and accumulates, which spikes cause.
        updates: steps of neurons.
        multiplications, additions: of the neurons' equations, and additions of biases.
        weights_read: weights and biases.
        states_read, states_written: states of neurons, and sums that accumulates add to.
        values_read, values_written: inputs and outputs that are numbers.
        events_read, events_written: inputs and outputs that are addresses of spikes.
    """

    macs: float = 0.0
    acs: float = 0.0
    updates: float = 0.0
    multiplications: float = 0.0
    additions: float = 0.0
    weights_read: float = 0.0
    states_read: float = 0.0
    states_written: float = 0.0
    values_read: float = 0.0
    values_written: float = 0.0
    events_read: float = 0.0
    events_written: float = 0.0

    def times(self, factor: float) -> Counts:
        """Each of them times a number."""
        return replace(self, **{each.name: getattr(self, each.name) * factor for each in fields(self)})

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))


@dataclass(frozen=True)
class Work:
    """The work of a layer, per sample, in three executions of the same net.

    Attributes:
        name: of the layer, its path.
        cell: the layer.
        weights, states, inputs, outputs: how many numbers it holds in a step: they decide in which memory they lie.
        spiking: event-driven: a spike adds weights to sums, and nothing is done for an input of 0.
        dense: the same steps, each with all products.
        one_pass: an ANN of the same layers without time: each product once, and activation functions in place of
            neurons.
    """

    name: str
    cell: Any
    weights: float
    states: float
    inputs: float
    outputs: float
    spiking: Counts
    dense: Counts
    one_pass: Counts


# --- layers with weights ----------------------------------------------------------------------------------------------


def of_weights(name: str, cell: Any, tally: Tally, call: RecordedCall, reuse: bool) -> Work:
    """The work of a layer with weights."""
    samples, most = extent_of(call)
    has_bias = bool(getattr(cell, "has_bias", False))
    biases = math.prod(cell.bias.shape) if has_bias else 0
    dense = _dense(tally, tally.weights + biases, has_bias, reuse)
    # Each sample in one pass, whatever its length is: the mean pass of the products, as often as there are samples.
    passes = tally.whole / max(min(tally.steps, most), 1.0)
    return Work(
        name,
        cell,
        math.prod(cell.weight.shape) + biases,
        tally.results,
        tally.features,
        tally.results,
        _spiking(tally, has_bias).times(1 / samples),
        dense.times(1 / samples),
        dense.times(passes / max(tally.passes, 1e-30) / samples),
    )


def _spiking(tally: Tally, has_bias: bool) -> Counts:
    biases = tally.outputs if has_bias else 0.0
    sums = tally.synops + biases
    return Counts(
        macs=0.0 if tally.spikes else tally.synops,
        acs=tally.synops if tally.spikes else 0.0,
        additions=biases,
        weights_read=sums,
        states_read=sums,
        states_written=sums,
        events_read=tally.events,
        values_read=0.0 if tally.spikes else tally.events,
    )


def _dense(tally: Tally, weights: int, has_bias: bool, reuse: bool) -> Counts:
    biases = tally.outputs if has_bias else 0.0
    return Counts(
        macs=tally.macs,
        additions=biases,
        weights_read=weights * tally.passes if reuse else tally.macs + biases,
        values_read=tally.inputs if reuse else tally.macs,
        values_written=tally.outputs,
    )


# --- neurons ----------------------------------------------------------------------------------------------------------


def of_neurons(name: str, cell: Any, call: RecordedCall, spikes: Array, there: Array | None) -> tuple[Work, bool]:
    """The work of a layer of neurons, and whether its operations could be counted.

    Args:
        name: of the layer.
        cell: the neuron.
        call: in which it was called.
        spikes: its recorded outputs, (T, B, ...).
        there: where they are before their sample's end, (T, B).
    """
    samples, _ = extent_of(call)
    update, steps = call.updates[name]
    neurons = update.neurons / samples
    updates = neurons * (steps if there is None else mean_steps(call.lengths_of(name), steps))
    found = operations_of(update, WEIGHTED)
    each = found or Operations(0.0, 0.0)
    held = sum(math.prod(state) for state, _ in update.states) / max(update.neurons, 1)
    kept = spikes if there is None else spikes[there]
    fired = float(np.count_nonzero(kept)) / max(kept.size, 1)
    step = Counts(
        updates=updates,
        multiplications=updates * each.multiplications,
        additions=updates * each.additions,
        states_read=updates * held,
        states_written=updates * held,
    )
    return Work(
        name,
        cell,
        0.0,
        neurons * held,
        neurons,
        neurons,
        step + Counts(states_read=updates, events_written=updates * fired),
        step + Counts(values_read=updates, values_written=updates),
        Counts(updates=neurons, additions=neurons),
    ), found is not None


def mean_steps(lengths: Array | None, steps: int) -> float:
    """The mean number of time steps of a sample."""
    return float(steps) if lengths is None or not lengths.size else float(np.minimum(lengths, steps).mean())


def find_uncounted(net: Any, counted: list[Any]) -> tuple[str, ...]:
    """The weights that are followed neither to memory nor to spikes, by their paths; those of norms can be folded."""
    norms = [cell for _, cell in net.cells_and_names() if isinstance(cell, (BatchStatistics, LayerNorm, NeuNorm))]
    known = {id(parameter) for cell in [*counted, *norms] for parameter in cell.get_parameters()}
    found = [(name, p) for name, p in net.parameters_and_names() if len(p.shape) > 1 and id(p) not in known]
    return tuple(name for name, _ in found if not name.endswith("bias"))
