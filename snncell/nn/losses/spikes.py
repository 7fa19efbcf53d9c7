"""Losses of spike counts, firing rates and potentials over time, (T, B, C), and activity regularisers.

With `num_classes` (population coding), the output neurons form groups of equal size, one after the other, one per
class. The outputs of a group are summed. With `lengths`, (B,), steps after the end of a sample (padding) do not count.

Regularisers are costs of hidden layers' spikes (T, B, N...), which you add to the loss. The count of a neuron is its
number of spikes in a sample, sum_t s; its rate is the count per step.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from snncell import dtype as dtypes, ops
from snncell.base.arguments.kinds import Count, NotNegative, Numbers, Probability, Reduction, Share
from snncell.cell.cell import Cell
from snncell.cell.fields import as_number, field, with_fields
from snncell.errors import ArgumentError, DTypeError, ShapeError
from snncell.nn.losses.standard import CLASS_WEIGHT, SMOOTHING, ReducibleLoss
from snncell.nn.time.axis import max_over_time, mean_over_time, steps_per_sample, sum_over_time, zero_after_end
from snncell.ops.base import as_float, as_tensor
from snncell.ops.gathering import hot, label_words
from snncell.tape.tensor import Tensor

__all__ = [
    "CECountLoss", "CEMaxMembraneLoss", "CERateLoss", "CountBoundRegulariser", "L1RateSparsity", "MSECountLoss",
    "MSEMembraneLoss", "MSERateLoss", "SilenceRegulariser", "SparsityRegulariser", "TETLoss",
    "TargetRateRegulariser",
]  # fmt: skip


NUM_CLASSES = field(None, meaning="the number of classes that share the output neurons; None for one neuron per class")
FOR_SAMPLES = field("mean", meaning='"mean", "sum" or "none", which returns (B,)')
FOR_CLASSES = field("mean", meaning='"mean", "sum" or "none", which returns (B, C)')


class ClassLoss(ReducibleLoss):
    """Base of losses of outputs (T, B, C) and class numbers (B,)."""

    num_classes: Count | None = None

    def outputs(self, x: Tensor, lengths: Any = None) -> Tensor:
        """Sum `x`, (T, B, N), over the neurons of each class: (T, B, C), with 0 in the padding."""
        name = type(self).__name__
        if x.ndim != 3 or not x.shape[0]:
            raise ShapeError(f"{name}: outputs must be (T, B, C) with at least one step, time first, not {x.shape}.")
        steps, batch, neurons = x.shape
        x = zero_after_end(x, lengths, name)
        if self.num_classes is None:
            return x
        if neurons % self.num_classes:
            raise ShapeError(
                f"{name}: {neurons} output neurons, of shape {x.shape}, cannot be divided evenly among num_classes="
                f"{self.num_classes}. Make the width of the last layer a multiple of {self.num_classes}."
            )
        return x.reshape((steps, batch, self.num_classes, neurons // self.num_classes)).sum(3)

    def share(self, x: Tensor) -> int:
        """The number of neurons per class of `x`, (T, B, N)."""
        return 1 if self.num_classes is None else x.shape[2] // self.num_classes

    def one_hot(self, labels: Any, like: Tensor) -> Tensor:
        """Convert class numbers (B,) to one-hot rows (B, C)."""
        name, (batch, classes), classed = type(self).__name__, like.shape, as_tensor(labels, type(self).__name__)
        if classed.dtype.category != 1:
            raise DTypeError(
                f"{name}: labels must be class numbers, integers ({batch},), not {classed.dtype}. Convert them by "
                f"labels.astype('int64'), or by ops.argmax(labels, 1) if they are one-hot."
            )
        if classed.shape != (batch,):
            raise ShapeError(
                f"{name}: outputs (T, B, C) with a batch of {batch} need labels of shape ({batch},), not "
                f"{classed.shape}. Time must be the first axis of outputs; do you need x.swapaxes(0, 1)?"
            )
        return hot(classed, classes, 1, label_words(name, classes, False)).astype(like.dtype)

    def extend_repr(self) -> str:
        groups = "" if self.num_classes is None else f"num_classes={self.num_classes}, "
        return f"{groups}reduction={self.reduction!r}"


# --- cross entropies --------------------------------------------------------------------------------------------------


class CrossEntropyOverTime(ClassLoss):
    """Base of cross entropies: -log p[label], weighted by class, with label smoothing."""

    weight: Numbers | None
    label_smoothing: float

    def mean_log_softmax(self, outputs: Tensor, lengths: Any) -> Tensor:
        """The mean of log p[t] over time, (B, C)."""
        log_p = ops.log_softmax(self.outputs(outputs, lengths), 2)
        return mean_over_time(log_p, lengths, type(self).__name__)

    def likelihood(self, log_p: Tensor, labels: Any) -> Tensor:
        """The loss from log-probabilities (B, C); its mean divides by the sum of weights."""
        hard, who = self.one_hot(labels, log_p), type(self).__name__
        classes = log_p.shape[1]
        target = hard
        if self.label_smoothing:
            target = hard * (1.0 - self.label_smoothing) + self.label_smoothing / classes
        if self.weight is None:
            return self.reduced(-(log_p * target).sum(1))
        if (shape := tuple(np.shape(self.weight))) != (classes,):
            raise ShapeError(f"{who}: weight must have one number for each of {classes} classes, not shape {shape}.")
        weight = as_tensor(self.weight, who).astype(log_p.dtype)
        each = -(log_p * target * weight).sum(1)
        return each.sum() / (hard * weight).sum() if self.reduction == "mean" else self.reduced(each)


@with_fields
class CERateLoss(CrossEntropyOverTime):
    """Cross entropy at each time step, averaged over time: (1 / T) sum_t CE(s[t], y).

    Use it if the network should answer at every step, for example for early exits. `CECountLoss` counts spikes instead.
    Inputs:
        outputs: spikes (T, B, C).
        labels: integers (B,) in [0, C).
        lengths: integers (B,), the number of steps of each sample, by default T.
    Raises: ShapeError, DTypeError, ArgumentError for labels that do not fit the outputs.
    Source: ce_rate_loss of snnTorch, which ignores `population_code` and does not divide by the sum of class weights.
    Example:
        >>> round(nn.CERateLoss()(ops.zeros((5, 2, 4)), Tensor([0, 3])).item(), 4)  # log 4
        1.3863
    """

    num_classes: Count | None = NUM_CLASSES
    weight: Numbers | None = CLASS_WEIGHT
    label_smoothing: Share = SMOOTHING
    reduction: Reduction = FOR_SAMPLES

    def construct(self, outputs: Tensor, labels: Tensor, lengths: Any = None) -> Tensor:
        return self.likelihood(self.mean_log_softmax(outputs, lengths), labels)


@with_fields
class TETLoss(CrossEntropyOverTime):
    """Temporal efficient training (TET): cross entropy at each step, and squared distance from a target potential phi.

        (1 - a) (1 / T) sum_t CE(x[t], y) + a (1 / T) sum_t mean_c (x[t] - phi)^2,  a = mse_weight, phi = mse_target

    Use it to train deep networks of few steps, for which it generalises better than a loss of the mean output.
    Inputs, Raises: as for `CERateLoss`, but outputs can be potentials or currents as well as spikes.
    Source: Deng et al., "Temporal Efficient Training of Spiking Neural Network via Gradient Re-weighting", ICLR 2022;
    SpikingJelly's temporal_efficient_training_cross_entropy is this loss with mse_weight = 0.
    Example:
        >>> loss = nn.TETLoss(mse_weight=0.05)(ops.ones((5, 2, 4)), Tensor([0, 3]))  # 0.95 log 4
        >>> round(loss.item(), 4)
        1.317
    """

    mse_weight: Probability = field(0.0, meaning="a in [0, 1]; the paper uses 0.05 for most data sets")
    mse_target: float = field(1.0, meaning="phi; the paper uses the threshold, 1")
    weight: Numbers | None = CLASS_WEIGHT
    label_smoothing: Share = SMOOTHING
    reduction: Reduction = FOR_SAMPLES

    def construct(self, outputs: Tensor, labels: Tensor, lengths: Any = None) -> Tensor:
        entropy = self.likelihood(self.mean_log_softmax(outputs, lengths), labels)
        if not self.mse_weight:
            return entropy
        each = ops.square(self.outputs(outputs, lengths) - self.mse_target).mean(2)
        pull = self.reduced(mean_over_time(each, lengths, "TETLoss"))
        return entropy * (1.0 - self.mse_weight) + pull * self.mse_weight

    def extend_repr(self) -> str:
        return f"mse_weight={self.mse_weight}, mse_target={self.mse_target}, {super().extend_repr()}"


@with_fields
class CECountLoss(CrossEntropyOverTime):
    """Cross entropy of the sums over time: CE(sum_t s[t], y).

    Use it to count spikes. For potentials and with label_smoothing=0.3, Spyx calls it integral_crossentropy.
    Inputs, Raises: as for `CERateLoss`.
    Source: ce_count_loss of snnTorch, which does not divide by the sum of class weights. This loss does, as in PyTorch.
    Example:
        >>> spikes = Tensor([[[1.0, 0.0]], [[1.0, 1.0]]])  # two spikes of class 0, one of class 1
        >>> round(nn.CECountLoss()(spikes, Tensor([0])).item(), 4)  # log(1 + e^-1)
        0.3133
    """

    num_classes: Count | None = NUM_CLASSES
    weight: Numbers | None = CLASS_WEIGHT
    label_smoothing: Share = SMOOTHING
    reduction: Reduction = FOR_SAMPLES

    def construct(self, outputs: Tensor, labels: Tensor, lengths: Any = None) -> Tensor:
        return self.likelihood(ops.log_softmax(sum_over_time(self.outputs(outputs, lengths)), 1), labels)


@with_fields
class CEMaxMembraneLoss(CrossEntropyOverTime):
    """Cross entropy of the maximum potentials over time: CE(max_t u[t], y).

    Use it with a readout that does not spike, such as `LINode`. Steps with the same maximum share the gradient equally.
    Inputs, Raises: as for `CERateLoss`; the outputs are membrane potentials.
    Source: Zenke's SpyTorch; ce_max_membrane_loss of snnTorch.
    Example:
        >>> v = Tensor([[[1.0, 0.0]], [[2.0, -1.0]]])
        >>> round(nn.CEMaxMembraneLoss()(v, Tensor([0])).item(), 4)  # log(1 + e^-2)
        0.1269
    """

    weight: Numbers | None = CLASS_WEIGHT
    label_smoothing: Share = SMOOTHING
    reduction: Reduction = FOR_SAMPLES

    def construct(self, outputs: Tensor, labels: Tensor, lengths: Any = None) -> Tensor:
        most = max_over_time(self.outputs(outputs, lengths), lengths, "CEMaxMembraneLoss")
        return self.likelihood(ops.log_softmax(most, 1), labels)


# --- squared errors ---------------------------------------------------------------------------------------------------


@with_fields
class _TargetRateLoss(ClassLoss):
    """Base of losses with one target rate for the neurons of the label and one for the others, in spikes per step."""

    correct_rate: float = field(1.0, meaning="target rate of the label's neuron, in [0, 1] spikes per step")
    incorrect_rate: float = field(0.0, meaning="target rate of the other neurons; a little above 0 keeps them active")
    num_classes: Count | None = NUM_CLASSES
    reduction: Reduction = FOR_CLASSES

    def _complete(self, given: dict[str, Any]) -> None:
        for name in ("correct_rate", "incorrect_rate"):
            rate = given[name]
            if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0.0 <= rate <= 1.0:
                raise ArgumentError(f"{type(self).__name__}: {name} must be in [0, 1] spikes per step, not {rate!r}.")

    def extend_repr(self) -> str:
        return f"correct_rate={self.correct_rate}, incorrect_rate={self.incorrect_rate}, {super().extend_repr()}"


@with_fields
class MSECountLoss(_TargetRateLoss):
    """Squared error of spike counts: MSE(sum_t s[t], n) / T.

    The target n is floor(T * m * correct_rate) for the label and floor(T * m * incorrect_rate) for other classes. m is
    the number of neurons of a class, whose spikes are summed: 1 unless you pass num_classes.
    Inputs, Raises: as for `CERateLoss`.
    Source: Shrestha and Orchard, "SLAYER", NeurIPS 2018; mse_count_loss of snnTorch.
    Example:
        >>> nn.MSECountLoss(0.75, 0.25)(ops.ones((4, 1, 2)), Tensor([1])).item()  # ((4 - 1)^2 + (4 - 3)^2) / 2 / 4
        1.25
    """

    def construct(self, outputs: Tensor, labels: Tensor, lengths: Any = None) -> Tensor:
        count = sum_over_time(self.outputs(outputs, lengths))
        steps = None if lengths is None else steps_per_sample(outputs, lengths).reshape((-1, 1))
        on, off = (self._wanted(outputs, steps, rate) for rate in (self.correct_rate, self.incorrect_rate))
        far = ops.square(count - (self.one_hot(labels, count) * (on - off) + off))
        return self.reduced(far) / outputs.shape[0] if steps is None else self.reduced(far / steps)

    def _wanted(self, outputs: Tensor, steps: Tensor | None, rate: float) -> Any:
        """The target count of a class: one number, or one per sample, (B, 1)."""
        # The small addend corrects rounding: 100 * 0.29 is 28.999999999999996.
        if steps is None:
            return float(int(outputs.shape[0] * self.share(outputs) * rate + 1e-9))
        counts = [float(int(length * self.share(outputs) * rate + 1e-9)) for length in range(outputs.shape[0] + 1)]
        return ops.gather(Tensor(counts, outputs.dtype), steps.astype("int64"))


@with_fields
class MSERateLoss(_TargetRateLoss):
    """Squared error of firing rates: MSE(mean_t s[t], r).

    The target r is correct_rate for the label, else incorrect_rate. With num_classes, neurons of a class are averaged.
    Inputs, Raises: as for `CERateLoss`.
    Source: SpikeRate of lava-dl, with true_rate and false_rate. For the sparsity of Spyx's mse_spikerate, pass
    correct_rate = sparsity. Spyx compares the rate (at most 1) with the count sparsity * T instead.
    Example:
        >>> nn.MSERateLoss(0.5, 0.0)(ops.ones((4, 1, 2)), Tensor([1])).item()  # (1^2 + 0.5^2) / 2
        0.625
    """

    def construct(self, outputs: Tensor, labels: Tensor, lengths: Any = None) -> Tensor:
        rate = mean_over_time(self.outputs(outputs, lengths), lengths, "MSERateLoss") / float(self.share(outputs))
        on, off = float(self.correct_rate), float(self.incorrect_rate)
        return self.reduced(ops.square(rate - (self.one_hot(labels, rate) * (on - off) + off)))


@with_fields
class MSEMembraneLoss(ClassLoss):
    """Squared error of membrane potentials at each step, averaged over time: (1 / T) sum_t MSE(u[t], target).

    Use it for regression of a signal over time, or for classes with target potentials.
    Inputs:
        outputs: membrane potentials (T, B, C).
        targets: class numbers, integers (B,); or potentials (B, C), or (T, B, C) if they vary over time.
        lengths: as for `CERateLoss`.
    Source: mse_membrane_loss of snnTorch.
    Example:
        >>> nn.MSEMembraneLoss()(ops.ones((4, 1, 2)), Tensor([1])).item()
        0.5
        >>> nn.MSEMembraneLoss()(ops.ones((4, 1, 2)), ops.ones((4, 1, 2))).item()
        0.0
    """

    on_target: float = field(
        1.0, meaning="target potential of the label's neuron, if the targets are class numbers", convert=as_number
    )
    off_target: float = field(0.0, meaning="target potential of the other neurons", convert=as_number)
    reduction: Reduction = FOR_CLASSES

    def construct(self, outputs: Tensor, targets: Tensor, lengths: Any = None) -> Tensor:
        v = self.outputs(outputs, lengths)
        target = self._potentials(as_tensor(targets, "MSEMembraneLoss"), v)
        apart = zero_after_end(v - target, lengths, "MSEMembraneLoss")
        return self.reduced(mean_over_time(ops.square(apart), lengths, "MSEMembraneLoss"))

    def _potentials(self, targets: Tensor, v: Tensor) -> Tensor:
        if targets.ndim < 2:
            return self.one_hot(targets, v[0]) * (self.on_target - self.off_target) + self.off_target
        if targets.shape not in (v.shape, v.shape[1:]):
            raise ShapeError(
                f"MSEMembraneLoss: for outputs of shape {v.shape}, targets must be class numbers {v.shape[1:2]}, or "
                f"potentials {v.shape[1:]} or {v.shape}, not of shape {targets.shape}."
            )
        return targets.astype(v.dtype)


# --- regularisers -----------------------------------------------------------------------------------------------------

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

    Use it to reduce spikes and energy. It can silence neurons; `SparsityRegulariser` costs nothing up to a limit.
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
