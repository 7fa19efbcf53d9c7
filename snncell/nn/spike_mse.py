"""Squared errors of spike counts, rates and membrane potentials over time, (T, B, C)."""

from __future__ import annotations

from typing import Any

from snncell import ops
from snncell.base.arguments.kinds import Reduction
from snncell.errors import ArgumentError, ShapeError
from snncell.nn.sequences import mean_over_time, steps_in, sum_over_time, until_end
from snncell.nn.spike_loss import ClassLoss
from snncell.ops.base import as_tensor
from snncell.tape.tensor import Tensor


class _ToRates(ClassLoss):
    """The class's neurons are to fire at correct_rate, the others at incorrect_rate, in spikes per step."""

    def __init__(
        self,
        correct_rate: float = 1.0,
        incorrect_rate: float = 0.0,
        num_classes: int | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(num_classes, reduction)
        for name, rate in (("correct_rate", correct_rate), ("incorrect_rate", incorrect_rate)):
            if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0.0 <= rate <= 1.0:
                raise ArgumentError(f"{type(self).__name__}: {name} lies in [0, 1] spikes per step, not {rate!r}.")
        self.correct_rate, self.incorrect_rate = correct_rate, incorrect_rate

    def extend_repr(self) -> str:
        return f"correct_rate={self.correct_rate}, incorrect_rate={self.incorrect_rate}, {super().extend_repr()}"


class MSECountLoss(_ToRates):
    """Squared error of spike counts: MSE(sum_t s[t], n) / T, n = floor(T correct_rate) for the label's neuron,
    floor(T incorrect_rate) for the others.

    Args:
        correct_rate, incorrect_rate: in [0, 1] spikes per step.
        num_classes: how many classes the neurons stand for; those of a class count together, and n is that of all.
        reduction: "mean", "sum" or "none", which gives (B, C).

    Inputs:
        outputs: spikes (T, B, C).
        labels: integers (B,) in [0, C).
        lengths: integers (B,), how many steps each sample has; left out, all T.

    Raises:
        ShapeError, DTypeError, ArgumentError: for labels that do not fit the outputs, or rates out of range.

    Source: Shrestha and Orchard, "SLAYER", NeurIPS 2018; mse_count_loss of snnTorch.

    Example:
        >>> nn.MSECountLoss(0.75, 0.25)(ops.ones((4, 1, 2)), Tensor([1])).item()  # ((4 - 1)^2 + (4 - 3)^2) / 2 / 4
        1.25
    """

    def construct(self, outputs: Tensor, labels: Tensor, lengths: Any = None) -> Tensor:
        count = sum_over_time(self.outputs(outputs, lengths))
        steps = None if lengths is None else steps_in(outputs, lengths).reshape((-1, 1))
        on, off = (self._wanted(outputs, steps, rate) for rate in (self.correct_rate, self.incorrect_rate))
        far = ops.square(count - (self.one_hot(labels, count) * (on - off) + off))
        return self.reduced(far) / outputs.shape[0] if steps is None else self.reduced(far / steps)

    def _wanted(self, outputs: Tensor, steps: Tensor | None, rate: float) -> Any:
        """The number of spikes that a class is to give: one for all samples, or for each, (B, 1)."""
        # The small number makes 29 of 100 * 0.29, which is 28.999999999999996.
        if steps is None:
            return float(int(outputs.shape[0] * self.share(outputs) * rate + 1e-9))
        counts = [float(int(length * self.share(outputs) * rate + 1e-9)) for length in range(outputs.shape[0] + 1)]
        return ops.gather(Tensor(counts, outputs.dtype), steps.astype("int64"))


class MSERateLoss(_ToRates):
    """Squared error of rates: MSE(mean_t s[t], r), r = correct_rate for the label's neuron, incorrect_rate otherwise.

    Args:
        correct_rate, incorrect_rate: in [0, 1] spikes per step.
        num_classes: how many classes the neurons stand for; the rate of a class is the mean of its neurons'.
        reduction: "mean", "sum" or "none", which gives (B, C).

    Inputs, Raises: as for `MSECountLoss`.

    Source: SpikeRate of lava-dl, with true_rate and false_rate. mse_spikerate of Spyx compares the rate with a count,
    sparsity T, which no rate reaches for T > 1 / sparsity; here it is correct_rate = sparsity.

    Example:
        >>> nn.MSERateLoss(0.5, 0.0)(ops.ones((4, 1, 2)), Tensor([1])).item()  # (1^2 + 0.5^2) / 2
        0.625
    """

    def construct(self, outputs: Tensor, labels: Tensor, lengths: Any = None) -> Tensor:
        rate = mean_over_time(self.outputs(outputs, lengths), lengths, "MSERateLoss") / float(self.share(outputs))
        on, off = float(self.correct_rate), float(self.incorrect_rate)
        return self.reduced(ops.square(rate - (self.one_hot(labels, rate) * (on - off) + off)))


class MSEMembraneLoss(ClassLoss):
    """Squared error of membrane potentials at each step, then the mean over time: (1 / T) sum_t MSE(u[t], target).

    Args:
        on_target, off_target: for class numbers: the potential of the label's neuron, and of the others.
        reduction: "mean", "sum" or "none", which gives (B, C).

    Inputs:
        outputs: membrane potentials (T, B, C).
        targets: integers (B,), class numbers; or potentials (B, C), or (T, B, C) if they vary over time.
        lengths: integers (B,), how many steps each sample has; left out, all T.

    Raises:
        ShapeError, DTypeError, ArgumentError: for targets that do not fit the outputs.

    Source: mse_membrane_loss of snnTorch.

    Example:
        >>> nn.MSEMembraneLoss()(ops.ones((4, 1, 2)), Tensor([1])).item()
        0.5
        >>> nn.MSEMembraneLoss()(ops.ones((4, 1, 2)), ops.ones((4, 1, 2))).item()
        0.0
    """

    def __init__(self, on_target: float = 1.0, off_target: float = 0.0, reduction: Reduction = "mean") -> None:
        super().__init__(None, reduction)
        self.on_target, self.off_target = float(on_target), float(off_target)

    def construct(self, outputs: Tensor, targets: Tensor, lengths: Any = None) -> Tensor:
        v = self.outputs(outputs, lengths)
        apart = until_end(v - self._potentials(as_tensor(targets, "MSEMembraneLoss"), v), lengths, "MSEMembraneLoss")
        return self.reduced(mean_over_time(ops.square(apart), lengths, "MSEMembraneLoss"))

    def _potentials(self, targets: Tensor, v: Tensor) -> Tensor:
        if targets.ndim < 2:
            return self.one_hot(targets, v[0]) * (self.on_target - self.off_target) + self.off_target
        if targets.shape not in (v.shape, v.shape[1:]):
            raise ShapeError(
                f"MSEMembraneLoss: outputs of shape {v.shape} need class numbers {v.shape[1:2]}, or potentials "
                f"{v.shape[1:]} or {v.shape}; these targets have shape {targets.shape}."
            )
        return targets.astype(v.dtype)
