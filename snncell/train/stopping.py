"""Early stopping and ReduceLROnPlateau: callbacks that act when a number of the records stops improving."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from snncell.base.arguments.kinds import NotNegative, Size, Within
from snncell.cell.cell import Cell
from snncell.errors import ArgumentError, CheckpointError, TrainingError
from snncell.train.callbacks import Callback, Training
from snncell.train.state import is_count, is_number, refuse_misfit, restore_values, values_to_keep

__all__ = ["EarlyStopping", "ReduceLROnPlateau"]


class EarlyStopping(Callback):
    """Early stopping: keep the best weights, and stop when the monitored number no longer improves.

    Parameters that are not trained and persistent buffers are kept and restored with the weights.

    `fit(monitor=..., patience=...)` adds this callback. In a training loop of your own, call `update` after each epoch
    and `restore` at the end.

    Args:
        patience: how many epochs without a better one there may be; with None it never stops.
        monitor: which number of a record; accuracies and "top5" and the like are better higher, by their names, any
            other one lower. MindSpore's "eval_" may stand for "test_".
        min_delta: by how much it must be better to count.
        higher_is_better: of a number that the rule of its name is wrong for.
        mode: the same in MindSpore's words: "min", "max", or "auto" for the rule.
        restore_best_weights: whether the weights of the best epoch are put back in the end.
        verbose: whether the end is printed.

    Raises:
        ArgumentError: for a patience below 1, or a record without the number.
        TrainingError: if the number is NaN, which is neither better nor worse.

    Source: Prechelt, "Early Stopping - But When?", 1998.

    Example:
        >>> net, stopping = nn.Dense(1, 1), snncell.train.EarlyStopping(patience=2)
        >>> [stopping.update({"epoch": n, "test_loss": x}, net) for n, x in enumerate((0.5, 0.3, 0.4, 0.35))]
        [False, False, False, True]
        >>> stopping.best_epoch
        1
    """

    order: ClassVar[int] = 1  # it knows what others have added to a record, and puts the best weights back after EMA

    def __init__(
        self,
        patience: int | None,
        monitor: str = "test_loss",
        min_delta: float = 0.0,
        higher_is_better: bool | None = None,
        mode: Literal["auto", "min", "max"] = "auto",
        restore_best_weights: bool = True,
        verbose: bool = False,
    ) -> None:
        counts = isinstance(patience, int) and not isinstance(patience, bool) and patience >= 1
        if patience is not None and not counts:
            raise ArgumentError(f"EarlyStopping: patience is a number of epochs of at least 1, not {patience!r}.")
        self.patience, self.min_delta = patience, min_delta
        self.monitor = name_in_records(monitor)
        if mode != "auto":
            higher_is_better = mode == "max"
        self.higher_is_better = is_better_higher(monitor) if higher_is_better is None else higher_is_better
        self.restore_best_weights, self.verbose = restore_best_weights, verbose
        self._begin()

    def _begin(self) -> None:
        self.best = math.inf
        self.best_epoch, self.waited = 0, 0
        self.weights: dict[str, Any] = {}

    def on_fit_begin(self, training: Training) -> None:
        if not training.history:  # what it knows is of another training
            self._begin()
        if self.stopped:
            self._stop(training)

    def on_evaluation_end(self, training: Training) -> None:
        self._look(training)

    def on_epoch_end(self, training: Training) -> None:
        if training.test is None:
            self._look(training)

    def _look(self, training: Training) -> None:
        if self.update(training.record, training.net, training.loss):
            self._stop(training)

    def _stop(self, training: Training) -> None:
        if self.verbose:
            print(f"Epoch {training.epoch:05d}: early stopping.", flush=True)
        training.stop(f"{self.monitor} was no better than in epoch {self.best_epoch} for {self.waited} epochs")

    def on_fit_end(self, training: Training) -> None:
        if self.weights:
            if self.restore_best_weights:
                self.restore(training.net, training.loss)
            training.result.best = training.history[self.best_epoch - 1]
            training.result.monitored = self.monitor
            training.result.stopped_early = self.stopped

    def update(self, record: dict[str, Any], net: Cell, loss: Any = None) -> bool:
        """Look at the record of an epoch; whether to stop. A loss that is a Cell has weights to keep as well."""
        if self.monitor not in record:
            raise ArgumentError(f"monitor is one of {', '.join(record)}; there is no {self.monitor!r}.")
        if math.isnan(record[self.monitor]):
            raise TrainingError(
                f"EarlyStopping: {self.monitor} of epoch {record['epoch']} is nan, which is neither better nor worse "
                f"than another; look at what it is measured on, or let monitor be another number."
            )
        value = -record[self.monitor] if self.higher_is_better else record[self.monitor]
        if value < self.best - self.min_delta:
            self.best, self.best_epoch, self.waited = value, record["epoch"], 0
            self.weights = {path: np.array(x.asnumpy()) for path, x in values_to_keep(net, loss).items()}
        else:
            self.waited += 1
        return self.stopped

    @property
    def stopped(self) -> bool:
        """True if its patience is at an end."""
        return self.patience is not None and self.waited >= self.patience

    def restore(self, net: Cell, loss: Any = None) -> None:
        """Put the best weights back, into those that `update` was given."""
        restore_values(net, loss, self.weights, "EarlyStopping.restore")

    def state(self) -> dict[str, Any]:
        notes = {"best": self.best, "best_epoch": self.best_epoch, "waited": self.waited}
        return notes | {f"weights/{path}": value for path, value in self.weights.items()}

    def resume(self, state: dict[str, Any], training: Training) -> None:
        notes = {name: value for name, value in state.items() if not isinstance(value, np.ndarray)}
        weights = {name.removeprefix("weights/"): value for name, value in state.items() if name not in notes}
        if not _is_of(notes, len(training.history)):
            raise ArgumentError(f"EarlyStopping: the state is {str(notes)[:200]}, which it never is.")
        try:
            own = values_to_keep(training.net, training.loss) if notes["best_epoch"] else {}
            refuse_misfit(own, weights, "EarlyStopping: the state")
        except CheckpointError as error:
            raise ArgumentError(str(error)) from None
        self.best, self.best_epoch, self.waited = notes["best"], notes["best_epoch"], notes["waited"]
        self.weights = weights


def monitored_number(training: Training, monitor: str, who: str) -> float | None:
    """The monitored number of an epoch; None if it belongs to an evaluation that did not follow this epoch.

    Raises:
        ArgumentError: for a name that no record has.
    """
    name = name_in_records(monitor)
    if name in training.record:
        return float(training.record[name])
    if name.startswith("test_") and training.test is not None and "test_loss" not in training.record:
        return None
    raise ArgumentError(f"{who}: monitor is one of {', '.join(training.record)}; there is no {monitor!r}.")


def is_better_higher(monitor: str) -> bool:
    """True if larger is better for the number of this name: accuracies, "top5" and the like."""
    return "accuracy" in monitor or name_in_records(monitor).removeprefix("test_").startswith("top")


def name_in_records(monitor: str) -> str:
    """The name of a number in records; MindSpore's "eval_" may stand for "test_".

    Raises:
        ArgumentError: for the names of Keras and Lightning, which begin with "val_".
    """
    if monitor.startswith("val_"):
        name = "test_" + monitor.removeprefix("val_")
        raise ArgumentError(f"no record has {monitor!r}; fit(test=(inputs, target)) measures {name!r}.")
    return "test_" + monitor.removeprefix("eval_") if monitor.startswith("eval_") else monitor


def _is_of(notes: dict[str, Any], epochs: int) -> bool:
    """True if it is what `EarlyStopping.state` says after so many epochs, beside weights."""
    if notes.keys() != {"best", "best_epoch", "waited"}:
        return False
    best, epoch, waited = notes["best"], notes["best_epoch"], notes["waited"]
    counts = is_count(epoch) and is_count(waited) and epoch <= epochs and waited <= epochs
    return counts and is_number(best) and not math.isnan(best)


# --- learning rate ----------------------------------------------------------------------------------------------------


class ReduceLROnPlateau(Callback):
    """Reduce the learning rate when a number of the records stops improving: multiply it by `factor`.

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
