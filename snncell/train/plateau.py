"""A learning rate that sinks when a number does not become better."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal

from snncell.base.arguments.kinds import NotNegative, Size, Within
from snncell.errors import ArgumentError, TrainingError
from snncell.train.callbacks import Callback, Training
from snncell.train.stopping import is_better_higher, monitored_number


class ReduceLROnPlateau(Callback):
    """Multiplies the learning rates by `factor` when a number of the records has not become better for long.

    Args:
        monitor: which number, such as "test_loss" or "loss"; "eval_" may stand for "test_".
        factor: in (0, 1).
        patience: how many epochs without a better one there may be.
        verbose: whether each new rate is printed.
        mode: "min" or "max" says that smaller, or larger, numbers are better; with "auto" larger ones of accuracies.
        min_delta: by how much it must be better to count.
        cooldown: how many epochs after a change do not count.
        min_lr: below which no rate sinks.

    Raises:
        ArgumentError: for a record without the number, and an optimiser whose rate follows a schedule.
        TrainingError: if the number is NaN.

    Example:
        >>> net = nn.Dense(1, 1)
        >>> sgd = nn.SGD(net.trainable_params(), 0.0)
        >>> slower = snncell.train.ReduceLROnPlateau("loss", factor=0.5, patience=1)
        >>> model = snncell.train.Model(net, nn.MSELoss(), sgd)
        >>> sgd.set_learning_rate(1e-30)
        >>> _ = model.train(3, [(ops.ones((4, 1)), ops.ones((4, 1)))], slower)
        >>> float(sgd.learning_rate.item()) < 1e-30
        True
    """

    order: ClassVar[int] = 1  # it knows what others have added to a record

    def __init__(
        self,
        monitor: str = "test_loss",
        factor: Annotated[float, Within(0.0, 1.0, open_low=True, open_high=True)] = 0.1,
        patience: Size = 10,
        verbose: bool = False,
        mode: Literal["auto", "min", "max"] = "auto",
        min_delta: NotNegative = 1e-4,
        cooldown: Size = 0,
        min_lr: NotNegative = 0.0,
    ) -> None:
        self.monitor, self.factor, self.patience, self.verbose = monitor, factor, patience, verbose
        self.higher_is_better = is_better_higher(monitor) if mode == "auto" else mode == "max"
        self.min_delta, self.cooldown, self.min_lr = min_delta, cooldown, min_lr
        self.best, self.waited, self.cooling = math.inf, 0, 0

    def on_fit_begin(self, training: Training) -> None:
        groups: list[Any] = list(training.optimiser.groups)
        for group in groups:
            if group.schedule is not None:
                raise ArgumentError(
                    f"ReduceLROnPlateau: the learning rate of the {type(training.optimiser).__name__} follows a "
                    f"schedule; make the optimiser with a number."
                )
        if not training.history:  # what it knows is of another training
            self.best, self.waited, self.cooling = math.inf, 0, 0

    def on_epoch_end(self, training: Training) -> None:
        number = monitored_number(training, self.monitor, "ReduceLROnPlateau")
        if number is None:
            return
        if math.isnan(number):
            raise TrainingError(f"ReduceLROnPlateau: {self.monitor} of epoch {training.epoch} is nan.")
        value = -number if self.higher_is_better else number
        if self.cooling:
            self.cooling, self.waited = self.cooling - 1, 0
        if value < self.best - self.min_delta:
            self.best, self.waited = value, 0
        elif not self.cooling:
            self.waited += 1
            if self.waited >= self.patience:
                self._reduce(training)
                self.cooling, self.waited = self.cooldown, 0

    def _reduce(self, training: Training) -> None:
        for group, rate in enumerate(training.optimiser.rates()):
            old = float(rate.item())
            if old > self.min_lr:
                new = max(old * self.factor, self.min_lr)
                training.optimiser.set_learning_rate(new, group)
                if self.verbose:
                    print(
                        f"Epoch {training.epoch:05d}: ReduceLROnPlateau reducing learning rate to {new:g}.", flush=True
                    )

    def state(self) -> dict[str, Any]:
        return {"best": self.best, "waited": self.waited, "cooling": self.cooling}

    def resume(self, state: dict[str, Any], training: Training) -> None:
        numbers = [state.get(name) for name in ("best", "waited", "cooling")]
        if len(state) != 3 or not all(isinstance(x, (int, float)) and not math.isnan(x) for x in numbers):
            raise ArgumentError(f"ReduceLROnPlateau: the state is {str(state)[:200]}, which it never is.")
        self.best, self.waited, self.cooling = state["best"], state["waited"], state["cooling"]
