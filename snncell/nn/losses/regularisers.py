"""Activity regularisers: costs of hidden layers' spikes (T, B, N...), which you add to the loss.

The count of a neuron is its number of spikes in a sample, sum_t s; its rate is the count per step.
"""

from __future__ import annotations

from typing import Annotated, Any

from snncell import dtype as dtypes, ops
from snncell.base.arguments.kinds import NotNegative
from snncell.cell.cell import Cell
from snncell.cell.fields import as_number, field, with_fields
from snncell.errors import ShapeError
from snncell.nn.time.axis import sum_over_time, zero_after_end
from snncell.ops.base import as_float, as_tensor
from snncell.tape.tensor import Tensor

__all__ = [
    "CountBoundRegulariser", "L1RateSparsity", "SilenceRegulariser", "SparsityRegulariser", "TargetRateRegulariser",
]  # fmt: skip


STRENGTH = field(1.0, meaning="factor of the cost", convert=as_number)


class _Regulariser(Cell):
    strength: float

    def spikes(self, x: Any, lengths: Any) -> Tensor:
        """Check that `x` has time and batch, and set the padding of each sample to 0."""
        spikes = as_float(x, type(self).__name__)
        if spikes.ndim < 2 or 0 in spikes.shape:
            raise ShapeError(
                f"{type(self).__name__}: spikes must be (T, B, N...), with at least one step and sample, not "
                f"{spikes.shape}."
            )
        return zero_after_end(spikes, lengths, type(self).__name__)


@with_fields
class L1RateSparsity(_Regulariser):
    """L1 penalty of spikes: strength * sum s, so that each spike costs the same.

    Use it to reduce spikes and energy. It can silence neurons; `SparsityRegulariser` penalises only counts above a
    limit.

    Inputs: spikes: (T, B, N...); lengths: integers (B,), the number of steps of each sample, by default T.
    Raises: ArgumentError for lengths outside of [0, T]; ShapeError unless spikes are (T, B, ...) and lengths (B,).
    Source: l1_rate_sparsity of snnTorch, with its default.
    Example:
        >>> nn.L1RateSparsity(0.5)(ops.ones((4, 2, 3))).item()
        12.0
    """

    strength: NotNegative = field(1e-5, meaning="cost of one spike", convert=as_number)

    def construct(self, spikes: Tensor, lengths: Any = None) -> Tensor:
        return sum_over_time(self.spikes(spikes, lengths)).sum() * self.strength


@with_fields
class SilenceRegulariser(_Regulariser):
    """Lower bound of each neuron's spike count: strength * sum_n max(0, minimum - mean_b count)^2.

    Use it to revive silent neurons: one that fires at least `minimum` times on average over the batch costs nothing.

    Inputs, Raises: as for `L1RateSparsity`.
    Source: silence_reg of Spyx, applied to counts.
    Example:
        >>> nn.SilenceRegulariser(2.0)(Tensor([[[1.0, 0.0, 1.0]], [[1.0, 0.0, 0.0]]])).item()  # 0 + 2^2 + 1^2
        5.0
    """

    minimum: Annotated[NotNegative, field(meaning="the smallest count without cost", convert=as_number)]
    strength: NotNegative = STRENGTH

    def construct(self, spikes: Tensor, lengths: Any = None) -> Tensor:
        lacking = ops.relu(self.minimum - sum_over_time(self.spikes(spikes, lengths)).mean(0))
        return ops.square(lacking).sum() * self.strength


@with_fields
class SparsityRegulariser(_Regulariser):
    """Upper bound of the mean spike count of each sample: strength * sum_b huber(max(0, mean_n count - maximum)).

    huber(a) = a^2 / 2 up to 1, a - 1 / 2 above. A layer costs nothing up to `maximum` spikes per neuron on average.

    Inputs, Raises: as for `L1RateSparsity`. All axes after the batch count as neurons, also for a convolution.
    Source: sparsity_reg of Spyx, applied to counts.
    Example:
        >>> nn.SparsityRegulariser(1.0)(ops.ones((4, 2, 3))).item()  # huber(3) for each of two samples
        5.0
    """

    maximum: Annotated[NotNegative, field(meaning="the largest mean count without cost", convert=as_number)]
    strength: NotNegative = STRENGTH

    def construct(self, spikes: Tensor, lengths: Any = None) -> Tensor:
        counts = sum_over_time(self.spikes(spikes, lengths))
        excess = ops.relu(counts.reshape((counts.shape[0], -1)).mean(1) - self.maximum)
        square = ops.minimum(excess, 1.0)
        return (0.5 * ops.square(square) + (excess - square)).sum() * self.strength


@with_fields
class TargetRateRegulariser(_Regulariser):
    """Target firing rate of each neuron: strength * sum_n (rate - target)^2.

    The rate of a neuron is its spikes in the batch, divided by the valid steps. Use it to keep all neurons active.

    Inputs, Raises: as for `L1RateSparsity`.
    Source: Bellec et al., Nature Communications 2020, as for `EProp`, with strength = c_reg / 2.
    Example:
        >>> nn.TargetRateRegulariser(0.5)(ops.ones((4, 2, 3))).item()
        0.75
    """

    target: Annotated[NotNegative, field(meaning="target rate, in spikes per step", convert=as_number)]
    strength: NotNegative = STRENGTH

    def construct(self, spikes: Tensor, lengths: Any = None) -> Tensor:
        counted = self.spikes(spikes, lengths)
        if lengths is None:
            rate = counted.mean((0, 1))
        else:
            wide = counted.astype(dtypes.compute_dtype(counted.dtype.dtype))  # as `ops.mean` does
            steps = ops.maximum(as_tensor(lengths, "lengths").sum(), 1).astype(wide.dtype)
            rate = (sum_over_time(wide).sum(0) / steps).astype(counted.dtype)
        return ops.square(rate - self.target).sum() * self.strength


@with_fields
class CountBoundRegulariser(_Regulariser):
    """Target spike count of each neuron, with one cost above it and one below: sum_n k_n / 2 (mean_b count - target)^2.

    k_n is `upper` if the neuron fires more than the target, else `lower`.

    Inputs, Raises: as for `L1RateSparsity`.
    Source: the EventProp compiler of mlGeNN, where the arguments are reg_nu_upper, reg_lambda_upper and
    reg_lambda_lower; Nowotny, Turner and Knight, as for `Readout`.
    Example:
        >>> nn.CountBoundRegulariser(2.0, upper=1.0, lower=0.5)(ops.ones((4, 1, 3))).item()  # 3 (4 - 2)^2 / 2
        6.0
    """

    target: Annotated[NotNegative, field(meaning="target count, in spikes per sample", convert=as_number)]
    upper: NotNegative = field(1.0, meaning="cost of counts above the target; 0 for no cost", keep=False)
    lower: NotNegative = field(0.0, meaning="cost of counts below the target; 0 for no cost", convert=as_number)

    def _complete(self, given: dict[str, Any]) -> None:
        self.strength = float(given["upper"])

    def construct(self, spikes: Tensor, lengths: Any = None) -> Tensor:
        beyond = sum_over_time(self.spikes(spikes, lengths)).mean(0) - self.target
        above, below = ops.relu(beyond), ops.relu(-beyond)
        return (ops.square(above) * self.strength + ops.square(below) * self.lower).sum() * 0.5

    def extend_repr(self) -> str:
        return f"target={self.target}, upper={self.strength}, lower={self.lower}"
