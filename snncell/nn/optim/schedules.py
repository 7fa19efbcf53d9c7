"""Learning-rate schedules: exponential, cosine and polynomial decay, warm-up, piecewise constant."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import numpy as np

from snncell import dtype as dtypes, ops
from snncell.base.arguments.kinds import Count, NotNegative, Own, Positive, check_interval
from snncell.base.arguments.shown import show, suggest_instance
from snncell.cell.cell import Cell
from snncell.cell.fields import field, with_fields
from snncell.errors import ArgumentError, ArgumentTypeError
from snncell.nn.settings import Settings
from snncell.tape.tensor import Tensor

__all__ = [
    "CosineDecayLR", "ExponentialDecayLR", "LearningRateSchedule", "PiecewiseConstantLR", "PolynomialDecayLR",
    "WarmUpLR",
]  # fmt: skip

_OF_EVERY_CELL = vars(Cell())


class LearningRateSchedule(Settings):
    """Base class of learning-rate schedules: `construct(step)` computes the rate; step is a float64 Tensor, shape ().

    To write a schedule, define `construct` in a subclass, and pass an object of it as learning_rate to an optimiser.
    """

    def extend_repr(self) -> str:
        own = {name: value for name, value in vars(self).items() if name not in _OF_EVERY_CELL}
        plain = (bool, int, float, str, list, tuple)
        return ", ".join(f"{name}={value!r}" for name, value in own.items() if isinstance(value, plain))


class ListedLR(LearningRateSchedule):
    """Learning rates from a list, one per step; the last one stays."""

    def __init__(self, rates: Any, who: str) -> None:
        super().__init__()
        each = [check_interval(rate, 0.0, math.inf, who, f"learning_rate[{n}]") for n, rate in enumerate(rates)]
        if not each:
            raise ArgumentError(f"{who}: learning_rate must not be an empty list.")
        self.rates = Tensor(each, dtypes.float64)

    def construct(self, step: Tensor) -> Tensor:
        place = ops.minimum(step, float(self.rates.size - 1)).astype(dtypes.int64)
        return ops.gather(self.rates, place, 0)

    def extend_repr(self) -> str:
        return f"{self.rates.size} rates"


# A number; a list, array or Tensor with one number per step; or a Cell that computes the rate from the step.
Rate = Annotated[float | Sequence[float] | Tensor | Cell, Own()]


def schedule_of(rate: Any, who: str, number_words: str = "a finite number of at least 0") -> Cell | float:
    """Convert a learning rate to a number or a schedule."""
    if isinstance(rate, Cell):
        return rate
    if isinstance(rate, (Tensor, np.ndarray)):
        rate = rate.tolist() if rate.ndim else rate.item()
    if isinstance(rate, Iterable) and not isinstance(rate, (str, bytes, dict)):
        return ListedLR(rate, who)
    number = rate.item() if isinstance(rate, np.number) else rate
    fits = isinstance(number, (int, float)) and not isinstance(number, bool)
    if not fits or not 0.0 <= number <= sys.float_info.max:
        raise (ArgumentError if fits else ArgumentTypeError)(
            f"{who}: learning_rate must be {number_words}, a LearningRateSchedule, or a list with one number per step, "
            f"not {show(rate)}{suggest_instance(rate)}."
        )
    return float(number)


@with_fields
class ExponentialDecayLR(LearningRateSchedule):
    """Exponential decay: learning_rate * decay_rate^(step / decay_steps).
    Example:
        >>> rates = nn.ExponentialDecayLR(0.5, decay_rate=0.5, decay_steps=10)
        >>> [round(rates(Tensor(float(step))).item(), 4) for step in (0, 10, 20)]
        [0.5, 0.25, 0.125]
    """

    learning_rate: Annotated[NotNegative, field(meaning="the rate at step 0")]
    decay_rate: Annotated[Positive, field(meaning="the factor of the rate per decay_steps")]
    decay_steps: Annotated[Count, field(meaning="the number of steps for one factor")]
    is_stair: bool = field(False, meaning="whether to round the exponent down, so that the rate falls in steps")

    def construct(self, step: Tensor) -> Tensor:
        p = step / self.decay_steps
        return ops.exp((ops.floor(p) if self.is_stair else p) * math.log(self.decay_rate)) * self.learning_rate


@with_fields
class CosineDecayLR(LearningRateSchedule):
    """Cosine decay: min_lr + (max_lr - min_lr) (1 + cos(pi step / decay_steps)) / 2.
    Example:
        >>> rates = nn.CosineDecayLR(0.0, 0.5, decay_steps=10)
        >>> [round(rates(Tensor(float(step))).item(), 4) for step in (0, 5, 10)]
        [0.5, 0.25, 0.0]
    """

    min_lr: Annotated[NotNegative, field(meaning="the rate from decay_steps on")]
    max_lr: Annotated[NotNegative, field(meaning="the rate at step 0")]
    decay_steps: Annotated[Count, field(meaning="the number of steps of the decay")]

    def settle(self) -> None:
        if "max_lr" in vars(self):
            check_interval(self.max_lr, self.min_lr, math.inf, "CosineDecayLR", "max_lr")

    def construct(self, step: Tensor) -> Tensor:
        p = ops.minimum(step / self.decay_steps, 1.0)
        return (ops.cos(p * math.pi) + 1.0) * ((self.max_lr - self.min_lr) / 2) + self.min_lr


@with_fields
class WarmUpLR(LearningRateSchedule):
    """Linear warm-up: rate(step) min(step / warmup_steps, 1).

    Use it at the start of training with large batches or rates, where the first steps could diverge.
    Source: Goyal et al., "Accurate, Large Minibatch SGD", 2017; the name and the formula are MindSpore's.
    Example:
        >>> rates = nn.WarmUpLR(nn.CosineDecayLR(0.0, 0.5, 100), 4)
        >>> [round(rates(Tensor(float(step))).item(), 4) for step in (0, 2, 4, 100)]
        [0.0, 0.2498, 0.498, 0.0]
    """

    learning_rate: Annotated[
        NotNegative | LearningRateSchedule,
        field(meaning="a number, or a `LearningRateSchedule`, which counts the same steps"),
    ]
    warmup_steps: Annotated[Count, field(meaning="the number of steps until the full rate")]

    def construct(self, step: Tensor) -> Tensor:
        rate = self.learning_rate
        scaled: Tensor = ops.minimum(step / self.warmup_steps, 1.0)
        scaled *= rate(step) if isinstance(rate, LearningRateSchedule) else rate
        return scaled


@with_fields
class PiecewiseConstantLR(LearningRateSchedule):
    """Piecewise constant schedule (step decay): the rate changes at given steps.

    The rate is learning_rates[i] while milestones[i-1] <= step < milestones[i], and the last one afterwards.
    Source: He et al., CVPR 2016, where the rate is divided by 10 at such steps.
    Example:
        >>> rates = nn.PiecewiseConstantLR([10, 20], [0.5, 0.25, 0.125])
        >>> [rates(Tensor(float(step))).item() for step in (0, 9, 10, 20)]
        [0.5, 0.5, 0.25, 0.125]
    """

    milestones: Annotated[
        Sequence[Count],
        field(meaning="the steps at which the rate changes, increasing", convert=lambda values, *_: list(values)),
    ]
    learning_rates: Annotated[
        Sequence[NotNegative],
        field(meaning="the rates, one more than milestones", convert=lambda values, *_: list(values)),
    ]

    def settle(self) -> None:
        if "learning_rates" not in vars(self):
            return
        who = "PiecewiseConstantLR"
        if any(a >= b for a, b in zip(self.milestones, self.milestones[1:], strict=False)):
            raise ArgumentError(f"{who}: milestones must increase, but they are {list(self.milestones)}.")
        if len(self.learning_rates) != len(self.milestones) + 1:
            raise ArgumentError(
                f"{who}: {len(self.milestones)} milestone(s) need {len(self.milestones) + 1} learning rates, one "
                f"before the first and one after each, not {len(self.learning_rates)}."
            )

    def construct(self, step: Tensor) -> Tensor:
        rate: Tensor = step * 0.0 + self.learning_rates[0]
        for milestone, after in zip(self.milestones, self.learning_rates[1:], strict=True):
            rate = ops.select(ops.greater_equal(step, milestone), after, rate)
        return rate


@with_fields
class PolynomialDecayLR(LearningRateSchedule):
    """Polynomial decay from learning_rate to end_learning_rate.

        end_learning_rate + (learning_rate - end_learning_rate) (1 - min(step / decay_steps, 1))^power
    Source: the name and the formula are MindSpore's.
    Example:
        >>> rates = nn.PolynomialDecayLR(0.5, 0.0, 10, power=1.0)
        >>> [rates(Tensor(float(step))).item() for step in (0, 5, 10, 11)]
        [0.5, 0.25, 0.0, 0.0]
    """

    learning_rate: Annotated[NotNegative, field(meaning="the rate at step 0")]
    end_learning_rate: Annotated[NotNegative, field(meaning="the rate from decay_steps on")]
    decay_steps: Annotated[Count, field(meaning="the number of steps of the decay")]
    power: NotNegative = field(1.0, meaning="the exponent; 1 decays linearly")

    def construct(self, step: Tensor) -> Tensor:
        left = 1.0 - ops.minimum(step / self.decay_steps, 1.0)
        return ops.pow(left, self.power) * (self.learning_rate - self.end_learning_rate) + self.end_learning_rate
