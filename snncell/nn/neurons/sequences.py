"""Layers over whole sequences (T, B, ...): parallel spiking neurons (PSN), and readouts."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np

from snncell import ops
from snncell.cell.cell import Cell
from snncell.cell.fields import field, with_fields
from snncell.cell.ranges import Range
from snncell.common.initializer import HeUniform, initializer
from snncell.dtype import float32
from snncell.errors import ShapeError
from snncell.nn.losses.spike_times import FirstSpikeTime
from snncell.nn.neurons.base import spike_function
from snncell.nn.time.axis import check_time_axis
from snncell.surrogate import ATan
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor, on_device_of

__all__ = ["PSN", "Readout", "SlidingPSN"]

_COUNT = Range(1, 2**15, "both", "is a whole number of at least 1", whole=True)  # PSN has steps^2 weights


SPIKES = field(
    None,
    meaning="the spike function, a Cell; None is ATan, as in the paper",
    convert=lambda value, *_: ATan() if value is None else value,
    keep=False,
)
COMPARE = field(">", None, '">" fires only if h is above 0, ">=" also if h is 0', keep=False)


_BLOCK = 64  # the smallest number of steps per block of a sliding PSN


class _Parallel(Cell):
    """Base of neurons without a reset, which compute all time steps at once."""

    whole_sequences = _all_steps = True

    def fires(self, weighted: Tensor, x: Tensor) -> Tensor:
        """The spikes, of the shape of x: 1 where its weighted sums (T, neurons), plus the bias, are above 0."""
        h = weighted + self.bias
        spike: Tensor = self.surrogate_function(h.reshape(x.shape)).astype(h.dtype)
        return spike

    bias: Parameter
    surrogate_function: Any


@with_fields
class PSN(_Parallel):
    """Parallel spiking neuron (PSN): all time steps at once, by learned weights between steps, without a reset.

        h[t] = sum over t' of weight[t, t'] x[t'] + bias[t]
        s[t] = surrogate(h[t])

    Use it for inputs of a fixed number of steps T, where it is faster than a loop over time. Call it directly, without
    `MultiStep`. Pass `order` k for a causal neuron (masked PSN), where only weight[t, t'] with t - k < t' <= t counts.
    -bias[t] acts as the threshold, and starts at 1. Weights start as in a Dense layer (He, uniform).
    Inputs: x: (T, B, ...).
    Returns: spikes, (T, B, ...).
    Source: Fang et al., "Parallel Spiking Neurons with High Efficiency and Ability to Learn Long-term Dependencies",
    NeurIPS 2023.
    Example:
        >>> nn.PSN(steps=4)(ops.ones((4, 2, 3))).shape
        (4, 2, 3)
    """

    steps: Annotated[int, field(range=_COUNT, meaning="T, the number of time steps of every input")]
    order: int | None = field(None, _COUNT, "the number of last steps that h sees (None sees all, also future ones)")
    surrogate_function: Any = SPIKES
    compare: Literal[">", ">="] = COMPARE

    def _complete(self, given: dict[str, Any]) -> None:
        steps, order = self.steps, self.order
        self.weight = Parameter(initializer(HeUniform(5**0.5), (steps, steps)), name="weight")
        self.bias = Parameter(ops.full((steps, 1), -1.0), name="bias")
        self.mask = None if order is None else np.triu(np.tri(steps, dtype=np.float32), 1 - order)
        self.surrogate_function = spike_function(given["surrogate_function"], given["compare"], 1, "PSN")

    def construct(self, x: Tensor) -> Tensor:
        check_time_axis(x, type(self).__name__)  # first, so that `fit` can report a batch axis in place of time
        if x.ndim == 0 or x.shape[0] != self.steps:
            raise ShapeError(
                f"PSN: with steps={self.steps}, x must have the shape ({self.steps}, B, ...), not {x.shape}."
            )
        weight = self.weight if self.mask is None else self.weight * Tensor(self.mask)
        return self.fires(ops.matmul(weight, flat_neurons(x)), x)


@with_fields
class SlidingPSN(_Parallel):
    """Sliding parallel spiking neuron: like `PSN`, with the same k weights at every step.

        h[t] = sum over j < k of weight[k - 1 - j] x[t - j] + bias          x is 0 before the first step
        s[t] = surrogate(h[t])

    Use it for any length, directly without `MultiStep`: its cost is linear in T. The threshold -bias starts at 1.
    Inputs: x: (T, B, ...), with at least one step.
    Returns: spikes, (T, B, ...).
    Source: as for `PSN`; SpikingJelly, SlidingPSN.
    Example:
        >>> print(nn.SlidingPSN(order=2)(Tensor([0.6, 0.6, 1.2, 0.0])))  # h = 0.6, 0.9, 1.5, 0.6, less 1
        [0. 0. 1. 0.]
    """

    order: Annotated[int, field(range=_COUNT, meaning="k, the number of steps that h sees, including the current one")]
    exp_init: bool = field(
        True, None, "whether weights begin as 1, 1/2, 1/4, ... into the past, like a leak, or as PSN's", keep=False
    )
    surrogate_function: Any = SPIKES
    compare: Literal[">", ">="] = COMPARE

    def _complete(self, given: dict[str, Any]) -> None:
        order = self.order
        halved = Tensor(0.5 ** np.arange(order - 1, -1, -1), float32)
        drawn = initializer(HeUniform(5**0.5), (1, order))
        self.weight = Parameter(halved if given["exp_init"] else drawn.reshape((order,)), name="weight")
        self.bias = Parameter(Tensor(-1.0, float32), name="bias")
        self.surrogate_function = spike_function(given["surrogate_function"], given["compare"], 1, "SlidingPSN")

    def construct(self, x: Tensor) -> Tensor:
        if x.ndim == 0 or x.shape[0] == 0:
            raise ShapeError(f"SlidingPSN: x must have the shape (T, B, ...) with at least one step, not {x.shape}.")
        check_time_axis(x, type(self).__name__)
        steps, block, flat = x.shape[0], max(self.order, _BLOCK), flat_neurons(x)
        blocks, neurons = -(-steps // block), flat.shape[1]
        if steps <= 2 * block:
            return self.fires(ops.matmul(self.banded(steps, x), flat), x)
        # A block of steps reads only itself and the block before it, so the cost is linear in T.
        with on_device_of(x):
            before, after = (ops.zeros((n, neurons), x.dtype) for n in (block, -steps % block))
        padded = ops.concat([before, flat, after]).reshape((1 + blocks, block, neurons))
        band = self.banded(2 * block, x)[block:]
        sums = ops.matmul(band[:, :block], padded[:-1]) + ops.matmul(band[:, block:], padded[1:])
        return self.fires(sums.reshape((blocks * block, neurons))[:steps], x)

    def banded(self, steps: int, x: Tensor) -> Tensor:
        """The weights as a banded matrix (T, T)."""
        back = np.arange(steps)[:, None] - np.arange(steps)
        seen = (back >= 0) & (back < self.order)
        with on_device_of(x):
            places, mask = Tensor(np.where(seen, self.order - 1 - back, 0)), Tensor(seen.astype(np.float32))
        return ops.gather(self.weight, places) * mask


def flat_neurons(x: Tensor) -> Tensor:
    """(T, ...) -> (T, neurons)."""
    return x.reshape((x.shape[0], -1))


DECODERS = ("last", "max", "mean", "sum", "exp", "first")
STEPS = Range(0.0, text="is a positive number of steps")


@with_fields
class Readout(Cell):
    """Decode a recording over time to one number per output: (T, B, ...) -> (B, ...).

        "last"    v[T - 1]
        "max"     max over t of v[t]
        "mean"    1 / T sum over t of v[t]
        "sum"     sum over t of v[t]; for spikes, their count
        "exp"     1 / T sum over t of exp(-t / tau) v[t], which gives early steps more weight
        "first"   the step of the first spike, or T - 1 if there is none

    Put it after the last layer, for example after `MultiStep(LINode())`. "max" and "mean" are common for potentials,
    "sum" for spikes. "first" has a custom gradient: a potential that is higher by 1 moves the spike one step earlier.
    Inputs: x: potentials, or spikes for "first", (T, B, ...), with at least one step.
    Returns: (B, ...).
    Source: SpikingJelly's decoders of non-spiking neurons; "exp": Nowotny, Turner, Knight, "Loss shaping enhances exact
    gradient learning with EventProp in spiking neural networks", 2025; "first": snnTorch's temporal losses.
    Example:
        >>> print(nn.Readout("first")(Tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0]])))
        [1. 2.]
    """

    how: str = field("last", DECODERS, "the reduction over time")
    tau: float | None = field(None, STEPS, 'time constant of "exp" (None is the number of steps)', quiet=True)

    def construct(self, x: Tensor) -> Any:
        if x.ndim == 0 or x.shape[0] == 0:
            raise ShapeError(f"Readout: x must have the shape (T, B, ...) with at least one step, not {x.shape}.")
        check_time_axis(x, type(self).__name__)
        if self.how == "last":
            return x[-1]
        if self.how == "first":
            return FirstSpikeTime()(x)
        if self.how == "exp":
            factors = np.exp(-np.arange(len(x)) / (self.tau or len(x)))
            with on_device_of(x):
                return ops.mean(x * Tensor(factors.reshape(-1, *(1,) * (x.ndim - 1)), x.dtype), 0)
        return getattr(ops, self.how)(x, 0)
