"""Cells that take whole sequences (T, B, ...): parallel spiking neurons, and readouts."""

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
from snncell.tape.tensor import Tensor, beside

_COUNT = Range(1, 2**15, "both", "is a whole number from 1 on", whole=True)  # squared, it is that of the weights


def _or_atan(value: Any, who: str, name: str) -> Any:
    return ATan() if value is None else value


SPIKES = field(
    None, None, "the spike function, a Cell; ATan, the paper's, if it is left out", convert=_or_atan, keep=False
)
COMPARE = field(">", None, '">" fires above 0, ">=" at it too', keep=False)


class _Parallel(Cell):
    """A neuron without a reset, all steps of which are computed at once."""

    whole_sequences = True

    def fires(self, weight: Tensor, x: Tensor) -> Tensor:
        """The spikes where weight (T, T) times x, plus the bias, is above 0."""
        h = ops.matmul(weight, x.reshape((x.shape[0], -1))) + self.bias
        spike: Tensor = self.surrogate_function(h.reshape(x.shape)).astype(h.dtype)
        return spike

    bias: Parameter
    surrogate_function: Any


@with_fields
class PSN(_Parallel):
    """Parallel spiking neuron: every step sees all others, by learned weights, and nothing is reset.

    h[t] = sum over t' of weight[t, t'] x[t'] + bias[t];  s = surrogate(h), so -bias is the threshold

    With `order` k it is masked to the last k steps, and so causal: weight[t, t'] counts where t - k < t' <= t.
    It is a layer over whole sequences, not a neuron of one step: it is called directly, without MultiStep.

    Inputs, Returns: x, (T, B, ...); spikes, (T, B, ...).

    Raises:
        ShapeError: for an input of another number of steps.

    Source: Fang et al., "Parallel Spiking Neurons with High Efficiency and Ability to Learn Long-term Dependencies",
    NeurIPS 2023. The weights begin as Linear's do (He, uniform), the bias as -1.

    Example:
        >>> nn.PSN(steps=4)(ops.ones((4, 2, 3))).shape
        (4, 2, 3)
    """

    steps: Annotated[int, field(range=_COUNT, meaning="T")]
    order: int | None = field(None, _COUNT, "how many steps back it sees; None sees all, also those to come")
    surrogate_function: Any = SPIKES
    compare: Literal[">", ">="] = COMPARE

    def _complete(self, given: dict[str, Any]) -> None:
        """Draw the weights, and make the mask."""
        steps, order = self.steps, self.order
        self.weight = Parameter(initializer(HeUniform(5**0.5), (steps, steps)), name="weight")
        self.bias = Parameter(ops.full((steps, 1), -1.0), name="bias")
        self.mask = (
            None if order is None else np.tri(steps, dtype=np.float32) - np.tri(steps, k=-order, dtype=np.float32)
        )
        self.surrogate_function = spike_function(given["surrogate_function"], given["compare"], 1, "PSN")

    def construct(self, x: Tensor) -> Tensor:
        check_time_axis(x, type(self).__name__)  # before the check of T, so that `fit` can see that T is the batch size
        if x.ndim == 0 or x.shape[0] != self.steps:
            raise ShapeError(f"PSN: x is ({self.steps}, B, ...) as steps={self.steps}, but its shape is {x.shape}.")
        weight = self.weight if self.mask is None else self.weight * Tensor(self.mask)
        return self.fires(weight, x)


@with_fields
class SlidingPSN(_Parallel):
    """Sliding parallel spiking neuron: a step sees the last k inputs, by weights that are the same at every step.

    h[t] = sum over j < k of weight[k - 1 - j] x[t - j] + bias;  s = surrogate(h), so -bias is the threshold

    Inputs before the first are 0. It is a layer over whole sequences of any length, called directly, without MultiStep.

    Inputs, Returns: x, (T, B, ...); spikes, (T, B, ...).

    Raises:
        ShapeError: for an input without steps.

    Source: as for `PSN`; SpikingJelly, SlidingPSN. The bias begins as -1.

    Example:
        >>> print(nn.SlidingPSN(order=2)(Tensor([0.6, 0.6, 1.2, 0.0])))  # h = 0.6, 0.9, 1.5, 0.6, less 1
        [0. 0. 1. 0.]
    """

    order: Annotated[int, field(range=_COUNT, meaning="k, how many steps it sees, the present one among them")]
    exp_init: bool = field(
        True,
        None,
        "whether the weights begin as 1, 1/2, 1/4, ... into the past, or else as Linear's do (He, uniform)",
        keep=False,
    )
    surrogate_function: Any = SPIKES
    compare: Literal[">", ">="] = COMPARE

    def _complete(self, given: dict[str, Any]) -> None:
        """Draw the weights."""
        order = self.order
        halved = Tensor(0.5 ** np.arange(order - 1, -1, -1), float32)
        drawn = initializer(HeUniform(5**0.5), (1, order))
        self.weight = Parameter(halved if given["exp_init"] else drawn.reshape((order,)), name="weight")
        self.bias = Parameter(Tensor(-1.0, float32), name="bias")
        self.surrogate_function = spike_function(given["surrogate_function"], given["compare"], 1, "SlidingPSN")

    def construct(self, x: Tensor) -> Tensor:
        if x.ndim == 0 or x.shape[0] == 0:
            raise ShapeError(f"SlidingPSN: x is (T, B, ...) with at least one step, its shape is {x.shape}.")
        check_time_axis(x, type(self).__name__)
        return self.fires(self.banded(x.shape[0], x), x)

    def banded(self, steps: int, x: Tensor) -> Tensor:
        """The weights as a matrix (T, T): the weight of the step that lies t - t' back, 0 for others."""
        back = np.arange(steps)[:, None] - np.arange(steps)
        seen = (back >= 0) & (back < self.order)
        with beside(x):
            places, mask = Tensor(np.where(seen, self.order - 1 - back, 0)), Tensor(seen.astype(np.float32))
        return ops.gather(self.weight, places) * mask


DECODERS = ("last", "max", "mean", "sum", "exp", "first")
STEPS = Range(0.0, text="is a positive number of steps")


@with_fields
class Readout(Cell):
    """One number for each output, from its recording over time: (T, B, ...) -> (B, ...).

    "last"    v[T - 1]
    "max"     max over t of v[t]
    "mean"    1 / T sum over t of v[t]
    "sum"     sum over t of v[t]; of spikes: their count
    "exp"     1 / T sum over t of exp(-t / tau) v[t]: what comes early counts more
    "first"   the step of the first spike, T - 1 if there is none; by its gradient one unit more makes it a step earlier

    Inputs, Returns: x, (T, B, ...), potentials, or spikes for "first"; (B, ...).

    Raises:
        ShapeError: for an input without steps.

    Source: SpikingJelly's decoders of non-spiking neurons; "exp": Nowotny, Turner, Knight, "Loss shaping enhances exact
    gradient learning with EventProp in spiking neural networks", 2025; "first": snnTorch's temporal losses.

    Example:
        >>> print(nn.Readout("first")(Tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0]])))
        [1. 2.]
    """

    how: str = field("last", DECODERS, "which of them")
    tau: float | None = field(None, STEPS, 'time constant of "exp"; the number of steps if it is left out', quiet=True)

    def _complete(self, given: dict[str, Any]) -> None:
        """Make the decoder of first spikes."""
        self.first = FirstSpikeTime()

    def construct(self, x: Tensor) -> Any:
        if x.ndim == 0 or x.shape[0] == 0:
            raise ShapeError(f"Readout: x is (T, B, ...) with at least one step, its shape is {x.shape}.")
        check_time_axis(x, type(self).__name__)
        if self.how == "last":
            return x[-1]
        if self.how == "first":
            return self.first(x)
        if self.how == "exp":
            factors = np.exp(-np.arange(len(x)) / (self.tau or len(x)))
            with beside(x):
                return ops.mean(x * Tensor(factors.reshape(-1, *(1,) * (x.ndim - 1)), x.dtype), 0)
        return getattr(ops, self.how)(x, 0)
