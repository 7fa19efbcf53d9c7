"""The cost of a network's products: multiply-accumulates, and the synaptic operations that spikes leave of them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from snncell import ops
from snncell.nn.conv import Conv1d, Conv2d, Conv2dTranspose
from snncell.nn.layer import Dense
from snncell.tape.state import settings
from snncell.tape.transforms import grad

WEIGHTED = (Dense, Conv1d, Conv2d, Conv2dTranspose)


class Cost(NamedTuple):
    """The work of a layer with weights in a call, summed over its steps and samples.

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


def cost_of(cell: Any, inputs: np.ndarray[Any, Any], scale: float = 1) -> Cost:
    """The cost of a layer for the inputs that it got, (..., *features), of which each stands for `scale`."""
    axes = 1 if isinstance(cell, Dense) else cell.weight.ndim - 1
    features = inputs.shape[inputs.ndim - axes :]
    rows = inputs.reshape(-1, *features)
    fan_out = _fan_out(cell, features)
    fired = np.asarray(rows != 0)
    synops = float((fired.sum(0) * fan_out).sum())
    values = rows[fired]
    return Cost(
        macs=round(scale * len(rows) * float(fan_out.sum())),
        synops=round(scale * synops),
        density=float(fired.mean()) if fired.size else math.nan,
        spikes=bool(values.size) and bool((values == values[0]).all()),
    )


def _fan_out(cell: Any, features: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """The number of outputs that each input goes to: the gradient of their sum where all weights are 1."""
    # A layer like it, not made by `__init__`, which would draw new weights and so move the random numbers on.
    ones: Any = object.__new__(type(cell))
    vars(ones).update(vars(cell))
    vars(ones).update(weight=ops.ones(cell.weight.shape), has_bias=False, activation=None)
    with settings(watch=None, trace=None, tape=None, smooth=False):
        counts = grad(lambda x: ones.construct(x).sum())(ops.zeros((1, *features)))
    array: np.ndarray[Any, Any] = counts.asnumpy()[0].astype(np.float64)
    return array
