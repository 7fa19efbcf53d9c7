"""The cost of a network's products: multiply-accumulates, and the synaptic operations that spikes leave of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from snncell import ops
from snncell.monitoring.record import Array, Inputs, RecordedCall
from snncell.nn.layers.conv import Conv1d, Conv2d, Conv2dTranspose
from snncell.nn.layers.linear import Dense
from snncell.tape.state import settings
from snncell.tape.transforms import grad

WEIGHTED = (Dense, Conv1d, Conv2d, Conv2dTranspose)


class Cost(NamedTuple):
    """The work of a layer with weights in a call, summed over its steps and samples.

    Steps behind the end of a sample, where lengths are known, are no steps.

    Attributes:
        macs: multiply-accumulates of its dense product, those with padding left out.
        synops: those of them whose input is not 0: the synaptic operations of an event-driven machine.
        density: the share of inputs that are not 0.
        spikes: whether all inputs that are not 0 are equal, so that a synaptic operation is an addition.

    Source: Yik et al., "The NeuroBench framework for benchmarking neuromorphic computing algorithms and systems",
    Nature Communications 2025, whose Dense, and Effective ACs or MACs for weights without zeros, these are.
    """

    macs: int
    synops: int
    density: float
    spikes: bool

    @property
    def acs(self) -> int:
        """Synaptic operations that are additions: all of them behind spikes, else none."""
        return self.synops if self.spikes else 0


@dataclass
class Tally:
    """The counts of a layer with weights over a call, from which its costs are made.

    Attributes:
        macs, synops, inputs, events, outputs: multiply-accumulates; those whose input is not 0; inputs; those that are
            not 0; results. All of them until each sample's end.
        passes: the products, one for each step of each sample; several places in one product are one pass.
        steps: over how many steps the layer ran.
        weights: how many weights are used in a pass; a mask takes some out.
        whole: the passes when each sample is as long as the longest.
        features, results: the inputs and the results of one pass.
        lowest, highest: of the inputs that are not 0.
    """

    macs: float = 0.0
    synops: float = 0.0
    inputs: float = 0.0
    events: float = 0.0
    outputs: float = 0.0
    passes: float = 0.0
    weights: int = 0
    steps: float = 0.0
    whole: float = 0.0
    features: float = 0.0
    results: float = 0.0
    lowest: float = math.inf
    highest: float = -math.inf

    @property
    def spikes(self) -> bool:
        """True if all inputs that are not 0 are equal."""
        return bool(self.events) and self.lowest == self.highest

    def cost(self) -> Cost:
        """The cost that `Monitor.costs` gives."""
        density = self.events / self.inputs if self.inputs else math.nan
        return Cost(round(self.macs), round(self.synops), density, self.spikes)


class FanOut(NamedTuple):
    """The connections of a layer.

    Attributes:
        outputs: the number of outputs that each input goes to.
        results: how many outputs there are.
        weights: how many weights are used: those that a mask takes out are not.
    """

    outputs: Array
    results: int
    weights: int


def tally_of(cell: Any, name: str, call: RecordedCall) -> Tally:
    """The counts of a layer for all the inputs that it got in a call."""
    tally, (samples, most) = Tally(), extent_of(call)
    lengths, begun = call.lengths_of(name), 0
    known: dict[tuple[int, ...], FanOut] = {}  # a loop of Python has a piece for each step
    for piece in call.inputs[name]:
        leading = _leading(cell, piece)
        features = tuple(piece.x.shape[len(leading) :])
        known[features] = fan_out = known.get(features) or _fan_out(cell, features)
        steps, there = _there(piece, leading, samples, most, begun, lengths)
        _add(tally, piece, fan_out, steps, there, samples)
        begun = (begun + steps) % max(most, 1)  # a layer that is called twice begins again
    return tally


def extent_of(call: RecordedCall) -> tuple[int, int]:
    """Samples and steps of a call, by its neurons: the fewest samples, and the most steps."""
    samples = min((update.samples for update, _ in call.updates.values()), default=1)
    return samples, max((steps for _, steps in call.updates.values()), default=1)


def _leading(cell: Any, piece: Inputs) -> tuple[int, ...]:
    """The axes of a layer's inputs before those of its features."""
    axes = 1 if isinstance(cell, Dense) else cell.weight.ndim - 1
    return tuple(piece.x.shape[: piece.x.ndim - axes])


def _there(
    piece: Inputs, leading: tuple[int, ...], samples: int, most: int, begun: int, lengths: Array | None
) -> tuple[int, Array | None]:
    """The number of steps of a piece, and which of its rows are before their sample's end; None where all are."""
    steps, inside = _as_steps(leading, len(piece.steps), samples, most)
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


def _as_steps(leading: tuple[int, ...], loops: int, samples: int, most: int) -> tuple[int, bool]:
    """The number of steps that the leading axes of inputs hold, and whether steps and samples come first in them."""
    if loops:
        return math.prod(leading[:loops]), leading[loops : loops + 1] == (samples,)
    if len(leading) > 1 and leading[1] == samples and leading[0] <= most:  # (T, B, ...)
        return leading[0], True
    if not leading or not samples or leading[0] % samples or leading[0] // samples > most:
        return 1, False
    return leading[0] // samples, True  # (T B, ...), or (B, ...) of one step


def _add(tally: Tally, piece: Inputs, reached: FanOut, steps: int, there: Array | None, samples: int) -> None:
    """Add the counts of one call of a layer, whose inputs go to so many outputs each."""
    fan_out, results, tally.weights = reached
    x = piece.x.asnumpy()
    rows = x.reshape(math.prod(x.shape[: x.ndim - fan_out.ndim]), *fan_out.shape)
    fired = np.asarray(rows != 0)
    if there is not None:
        fired &= there.reshape(-1, *(1,) * (fired.ndim - 1))
    live = len(rows) if there is None else int(there.sum())
    places = max(len(rows) * piece.share / max(steps * samples, 1), 1.0)  # in a product of one step and sample
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
    """The connections of a layer: of each input the gradient of the sum of all outputs, where all weights are 1."""
    # A layer like it, not made by `__init__`, which would draw new weights and so move the random numbers on.
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
