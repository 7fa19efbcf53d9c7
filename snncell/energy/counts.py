"""Count the operations and memory accesses of a network: products, neuron equations, and layers."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np

from snncell import ops
from snncell.compiler.ir.operations import Elementwise, Reduction
from snncell.compiler.ir.product import Dot, Product
from snncell.compiler.passes.simplify import canonical_program
from snncell.errors import SnncellError
from snncell.monitoring.layers import WEIGHTED
from snncell.monitoring.recorder import Array, Inputs, RecordedCall, Update
from snncell.nn.attention import SpikingSelfAttention
from snncell.nn.layers.linear import Dense
from snncell.nn.layers.norm import BatchStatistics, LayerNorm
from snncell.nn.layers.norm_over_time import NeuNorm
from snncell.nn.layers.sparse import SparseDense
from snncell.tape import structure
from snncell.tape.state import Value, settings
from snncell.tape.tracing import Instruction, Trace
from snncell.tape.transforms import grad

FREE = frozenset({"cast", "neg", "logical_not", "isnan", "isfinite"})  # only reinterpret bits
ADDITIONS = frozenset(
    {"add", "sub", "abs", "sign", "maximum", "minimum", "floor", "ceil", "round", "relu", "relu6", "leaky_relu"}
    | {"equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "where"}
    | {"logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor"}
)
_NEUTRAL = {"mul": 1.0, "div": 1.0, "add": 0.0, "sub": 0.0}


# --- products: multiply-accumulates, and synaptic operations of spikes ------------------------------------------------


class Cost(NamedTuple):
    """Operations of a layer with weights in one call, summed over time steps and samples.

    Time steps after the end of a sample do not count, if lengths are known.

    Attributes:
        macs: multiply-accumulates of the dense product, without products with padding.
        synops: multiply-accumulates with an input that is not 0: the synaptic operations of an event-driven machine.
        density: the share of inputs that are not 0.
        spikes: True if all inputs that are not 0 are equal, so that a synaptic operation is an addition.
    Source: Yik et al., "The NeuroBench framework for benchmarking neuromorphic computing algorithms and systems",
    Nature Communications 2025: its Dense operations, and its Effective ACs or MACs for weights without zeros.
    """

    macs: int
    synops: int
    density: float
    spikes: bool

    @property
    def acs(self) -> int:
        """Synaptic operations that are additions: all of them if the inputs are spikes, else 0."""
        return self.synops if self.spikes else 0


@dataclass
class Tally:
    """Counts of a layer with weights over a call, up to the end of each sample; `macs` and `synops` as in `Cost`."""

    macs: float = 0.0
    synops: float = 0.0
    inputs: float = 0.0
    events: float = 0.0  # inputs that are not 0
    outputs: float = 0.0
    passes: float = 0.0  # a pass is the product of one step and sample, for all positions of an image together
    weights: int = 0  # used in a pass; a mask removes some
    steps: float = 0.0
    whole: float = 0.0  # passes if each sample were as long as the longest
    features: float = 0.0  # inputs of a pass
    results: float = 0.0  # outputs of a pass
    lowest: float = math.inf  # of the inputs that are not 0
    highest: float = -math.inf

    @property
    def spikes(self) -> bool:
        """True if all inputs that are not 0 are equal."""
        return bool(self.events) and self.lowest == self.highest

    def cost(self) -> Cost:
        """The cost that `Monitor.costs` returns."""
        density = self.events / self.inputs if self.inputs else math.nan
        return Cost(round(self.macs), round(self.synops), density, self.spikes)


class FanOut(NamedTuple):
    """The connections of a layer."""

    outputs: Array  # for each input, the number of outputs that it reaches
    results: int  # the number of outputs
    weights: int  # the number of weights in use; a mask removes some


def tally_of(cell: Any, name: str, call: RecordedCall) -> Tally:
    """Counts of a layer with weights, for all its inputs of a call."""
    tally, (samples, most) = Tally(), extent_of(call)
    lengths, begun = call.lengths_of(name), 0
    known: dict[tuple[int, ...], FanOut] = {}  # a Python loop over time has a piece for each step
    axes = 1 if isinstance(cell, (Dense, SparseDense)) else cell.weight.ndim - 1  # of the features of an input
    for piece in call.inputs[name]:
        leading, features = tuple(piece.x.shape[:-axes]), tuple(piece.x.shape[-axes:])
        known[features] = fan_out = known.get(features) or _fan_out(cell, features)
        steps, there = _step_mask(piece, leading, samples, most, begun, lengths)
        _add(tally, piece, fan_out, steps, there, samples)
        begun = (begun + steps) % max(most, 1)  # the second call of a layer starts at step 0 again
    return tally


def extent_of(call: RecordedCall) -> tuple[int, int]:
    """Samples and steps of a call, from its neurons: the fewest samples, the most steps."""
    samples = min((update.samples for update, _ in call.updates.values()), default=1)
    return samples, max((steps for _, steps in call.updates.values()), default=1)


def _step_mask(
    piece: Inputs, leading: tuple[int, ...], samples: int, most: int, begun: int, lengths: Array | None
) -> tuple[int, Array | None]:
    """Return the number of steps of a piece with `leading` axes before the features, and a mask of its valid rows."""
    loops, first = len(piece.steps), leading[0] if leading else 0
    if loops:
        steps, inside = math.prod(leading[:loops]), leading[loops : loops + 1] == (samples,)
    elif len(leading) > 1 and leading[1] == samples and first <= most:  # (T, B, ...)
        steps, inside = first, True
    elif not leading or not samples or first % samples or first // samples > most:
        steps, inside = 1, False
    else:  # (T B, ...), or (B, ...) of one step
        steps, inside = first // samples, True
    if not inside:
        return max(steps, 1), None
    ran = math.prod(piece.steps) if piece.steps else steps
    if lengths is None or len(lengths) != samples:
        return ran, None
    numbers = np.arange(ran)
    if piece.steps:
        numbers = numbers.reshape(piece.steps)[..., :: piece.every].ravel()
    there = (begun + numbers)[:, None] < lengths
    places = math.prod(leading) // max(there.size, 1)
    return ran, np.repeat(there.ravel(), places) if places else there.ravel()


def _add(tally: Tally, piece: Inputs, reached: FanOut, steps: int, there: Array | None, samples: int) -> None:
    fan_out, results, tally.weights = reached
    x = piece.x.asnumpy()
    rows = x.reshape(math.prod(x.shape[: x.ndim - fan_out.ndim]), *fan_out.shape)
    fired = np.asarray(rows != 0)
    if there is not None:
        fired &= there.reshape(-1, *(1,) * (fired.ndim - 1))
    live = len(rows) if there is None else int(there.sum())
    places = max(len(rows) * piece.share / max(steps * samples, 1), 1.0)  # positions per step and sample
    tally.macs += piece.share * live * float(fan_out.sum())
    tally.synops += piece.share * float((fired.sum(0) * fan_out).sum())
    tally.inputs += piece.share * live * fan_out.size
    tally.events += piece.share * float(fired.sum())
    tally.outputs += piece.share * live * results
    tally.passes += piece.share * live / places
    tally.whole += piece.share * len(rows) / places
    tally.steps += steps
    tally.features, tally.results = fan_out.size * places, results * places
    values = rows[fired]
    if values.size:
        tally.lowest = min(tally.lowest, float(values.min()))
        tally.highest = max(tally.highest, float(values.max()))


def _fan_out(cell: Any, features: tuple[int, ...]) -> FanOut:
    """Count connections: with all weights 1, the gradient of the sum of outputs is the fan-out of each input."""
    # The copy is made without `__init__`, which would draw random weights and so change later random numbers.
    ones: Any = object.__new__(type(cell))
    vars(ones).update(vars(cell))
    vars(ones).update(weight=ops.ones(cell.weight.shape), has_bias=False, activation=None)
    sizes = []

    def total(x: Any) -> Any:
        out = ones.construct(x)
        sizes.append(math.prod(out.shape[1:]))
        return out.sum()

    def weighted(weight: Any) -> Any:
        vars(ones)["weight"] = weight
        return total(ops.ones((1, *features)))

    with settings(watch=None, trace=None, tape=None, smooth=False):
        counts = grad(total)(ops.zeros((1, *features)))
        of_weights = grad(weighted)(ones.weight)
    return FanOut(counts.asnumpy()[0].astype(np.float64), sizes[0], int(np.count_nonzero(of_weights.asnumpy())))


# --- neuron equations: arithmetic of a time step ----------------------------------------------------------------------


class Operations(NamedTuple):
    """Operations of a neuron's time step, per update of one neuron."""

    multiplications: float  # includes divisions; a root, exponential or similar function counts as one
    additions: float  # includes comparisons, absolute values, and choices between two values


def operations_of(update: Update) -> Operations | None:
    """Operations of a neuron's time step, or None if tracing fails because the neuron branches on values."""
    # Products of layers with weights inside of the neuron are counted with these layers.
    apart = any(isinstance(below, WEIGHTED) for _, below in update.cell.cells_and_names())
    trace = Trace(taped=False)
    quiet: dict[str, Any] = {"watch": None, "tape": None, "smooth": False, "notes": []}
    try:
        with settings(trace=trace, **quiet):
            stand_ins = [trace.new_input(shape, dtype) for shape, dtype in update.inputs]
            results = structure.flatten(update.cell(*stand_ins))[0]
            outputs = [trace.lift(result) for result in results]
    except SnncellError:
        return None
    steps = canonical_program(trace, outputs).instructions
    counted = [_operations_in(step) for step in steps if not (apart and isinstance(step.op, (Dot, Product)))]
    elements = max(update.neurons * update.steps, 1)
    multiplications, additions = (sum(each) / elements for each in zip((0.0, 0.0), *counted, strict=True))
    return Operations(multiplications, additions)


def _operations_in(step: Instruction) -> Operations:
    size, name = math.prod(step.outputs[0].shape), step.op.name
    if isinstance(step.op, (Dot, Product)):  # counted as dense, because spikes inside of a neuron are not recorded
        terms = size * step.inputs[0].shape[-1]
        return Operations(terms, terms)
    if isinstance(step.op, Reduction):
        return Operations(0.0, math.prod(next(x for x in step.inputs if isinstance(x, Value)).shape))
    numbers = [x for x in step.inputs[1:] if not isinstance(x, Value)]
    neutral = name in _NEUTRAL and any(x == _NEUTRAL[name] for x in numbers)  # x * 1, x / 1, x + 0, x - 0
    if not isinstance(step.op, Elementwise) or name in FREE or neutral:
        return Operations(0.0, 0.0)
    return Operations(0.0, size) if name in ADDITIONS else Operations(size, 0.0)


# --- work: event-driven, dense, and as an ANN in one pass -------------------------------------------------------------


@dataclass(frozen=True)
class Counts:
    """Operations and memory accesses per sample, in operations and words.

    Attributes:
        macs, acs: multiply-accumulates of products, and accumulates that spikes cause.
        updates: time steps of neurons.
        multiplications, additions: operations of neuron equations; additions include those of biases.
        weights_read: reads of weights and biases.
        states_read, states_written: accesses of neuron states, and of sums to which accumulates add.
        values_read, values_written: accesses of inputs and outputs that are numbers.
        events_read, events_written: accesses of inputs and outputs that are spike addresses.
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
        """All counts times a number."""
        return replace(self, **{each.name: getattr(self, each.name) * factor for each in fields(self)})

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))


@dataclass(frozen=True)
class Work:
    """Operations and accesses of a layer, per sample.

    Attributes:
        name, cell: the path of the layer, and the layer.
        weights, states, inputs, outputs: the numbers that it holds in a step, which decide in which memory they lie.
        spiking, dense, one_pass: counts for the three ways to compute the network, as in `Energy`.
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


def work_of_weights(name: str, cell: Any, tally: Tally, call: RecordedCall, reuse: bool) -> Work:
    """Operations and accesses of a layer with weights."""
    samples, most = extent_of(call)
    has_bias = bool(getattr(cell, "has_bias", False))
    bias_size = math.prod(cell.bias.shape) if has_bias else 0
    biases = tally.outputs if has_bias else 0.0
    sums = tally.synops + biases
    spiking = Counts(
        macs=0.0 if tally.spikes else tally.synops,
        acs=tally.synops if tally.spikes else 0.0,
        additions=biases,
        weights_read=sums,
        states_read=sums,
        states_written=sums,
        events_read=tally.events,
        values_read=0.0 if tally.spikes else tally.events,
    )
    dense = Counts(
        macs=tally.macs,
        additions=biases,
        weights_read=(tally.weights + bias_size) * tally.passes if reuse else tally.macs + biases,
        values_read=tally.inputs if reuse else tally.macs,
        values_written=tally.outputs,
    )
    # One pass per sample, independent of its length: the mean pass times the number of samples.
    passes = tally.whole / max(min(tally.steps, most), 1.0)
    one_pass = dense.times(passes / max(tally.passes, 1e-30) / samples)
    sizes = math.prod(cell.weight.shape) + bias_size, tally.results, tally.features, tally.results
    return Work(name, cell, *sizes, spiking.times(1 / samples), dense.times(1 / samples), one_pass)


def work_of_neurons(name: str, cell: Any, call: RecordedCall, spikes: Array, there: Array | None) -> tuple[Work, bool]:
    """Operations and accesses of a layer of neurons, and False if its equations could not be counted."""
    samples, _ = extent_of(call)
    update, steps = call.updates[name]
    neurons = update.neurons / samples
    updates = neurons * (steps if there is None else mean_steps(call.lengths_of(name), steps))
    found = operations_of(update)
    each = found or Operations(0.0, 0.0)
    states_each = sum(math.prod(state) for state, _ in update.states) / max(update.neurons, 1)
    kept = spikes if there is None else spikes[there]
    fired = float(np.count_nonzero(kept)) / max(kept.size, 1)
    step = Counts(
        updates=updates,
        multiplications=updates * each.multiplications,
        additions=updates * each.additions,
        states_read=updates * states_each,
        states_written=updates * states_each,
    )
    spiking = step + Counts(states_read=updates, events_written=updates * fired)
    dense = step + Counts(values_read=updates, values_written=updates)
    one_pass = Counts(updates=neurons, additions=neurons)
    return Work(name, cell, 0.0, neurons * states_each, neurons, neurons, spiking, dense, one_pass), found is not None


def mean_steps(lengths: Array | None, steps: int) -> float:
    """The mean number of time steps of a sample."""
    return float(steps) if lengths is None or not lengths.size else float(np.minimum(lengths, steps).mean())


def find_uncounted(net: Any, counted: list[Any]) -> tuple[str, ...]:
    """Paths of weights and of attention products that are not counted.

    Weights of normalisations are left out, because they can be folded.
    """
    products = [f"{name} (q k^T v)" for name, cell in net.cells_and_names() if isinstance(cell, SpikingSelfAttention)]
    norms = [cell for _, cell in net.cells_and_names() if isinstance(cell, (BatchStatistics, LayerNorm, NeuNorm))]
    known = {id(parameter) for cell in [*counted, *norms] for parameter in cell.get_parameters()}
    found = [(name, p) for name, p in net.parameters_and_names() if len(p.shape) > 1 and id(p) not in known]
    return (*(name for name, _ in found if not name.endswith("bias")), *products)
