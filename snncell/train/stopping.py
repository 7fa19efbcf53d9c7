"""Callbacks for weights and learning rates: early stopping, ReduceLROnPlateau, moving average of the weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, cast

import numpy as np

from snncell.base.arguments.kinds import AtLeastOne, NotNegative, Size, Within
from snncell.cell.cell import Cell
from snncell.compiler.jit import jit
from snncell.errors import ArgumentError, TrainingError
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor
from snncell.train.callbacks import Callback, Training
from snncell.train.state import (
    assign_values,
    buffers_of,
    is_count,
    refuse_misfit,
    restore_values,
    saved_numbers,
    values_to_keep,
    weights_of,
)

__all__ = ["EMA", "EarlyStopping", "ReduceLROnPlateau"]


class EarlyStopping(Callback):
    """Early stopping: keep the best weights, and stop when the monitored number no longer improves.

    Untrained Parameters and persistent buffers are kept and restored with the weights. `fit(monitor=..., patience=...)`
    adds this callback. In your own training loop, call `update` after each epoch and `restore` at the end.

    Args:
        patience: the number of epochs without improvement before it stops; None to never stop.
        monitor: a number of the records. For accuracy, "top5" and similar numbers, larger is better; for others,
            smaller. You can write MindSpore's "eval_" instead of "test_".
        min_delta: the smallest change that counts as an improvement.
        higher_is_better: whether a larger number is better, if the rule of `monitor` is wrong for your number.
        mode: the same setting as in MindSpore: "min" or "max", or "auto" for the rule of `monitor`.
        restore_best_weights: whether to load the best weights into the net at the end.
        verbose: whether to print when it stops.
    Raises: ArgumentError for a record without the number; TrainingError if the number is NaN.
    Source: Prechelt, "Early Stopping - But When?", 1998.
    Example:
        >>> net, stopping = nn.Dense(1, 1), snncell.train.EarlyStopping(patience=2)
        >>> [stopping.update({"epoch": n, "test_loss": x}, net) for n, x in enumerate((0.5, 0.3, 0.4, 0.35))]
        [False, False, False, True]
        >>> stopping.best_epoch
        1
    """

    order: ClassVar[int] = 1  # after callbacks that add to the record; at the end, it restores weights after EMA

    def __init__(
        self,
        patience: AtLeastOne | None,
        monitor: str = "test_loss",
        min_delta: float = 0.0,
        higher_is_better: bool | None = None,
        mode: Literal["auto", "min", "max"] = "auto",
        restore_best_weights: bool = True,
        verbose: bool = False,
    ) -> None:
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
        if not training.history:  # forget an earlier training
            self._begin()
        if self.stopped:
            self._stop(training)

    def on_evaluation_end(self, training: Training) -> None:
        if self.update(training.record, training.net, training.loss):
            self._stop(training)

    def on_epoch_end(self, training: Training) -> None:
        if training.test is None:
            self.on_evaluation_end(training)

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
        """Check the record of an epoch; returns whether to stop. Pass a loss that is a Cell, to keep its weights."""
        if self.monitor not in record:
            raise ArgumentError(f"monitor must be one of {', '.join(record)}, not {self.monitor!r}.")
        if math.isnan(record[self.monitor]):
            raise TrainingError(
                f"EarlyStopping: {self.monitor} of epoch {record['epoch']} is nan, which is neither better nor worse "
                f"than another value. Check the data that it is measured on, or monitor another number."
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
        """True if its patience has run out."""
        return self.patience is not None and self.waited >= self.patience

    def restore(self, net: Cell, loss: Any = None) -> None:
        """Restore the best weights, in the objects that `update` got."""
        restore_values(net, loss, self.weights, "EarlyStopping.restore")

    def state(self) -> dict[str, Any]:
        notes = {"best": self.best, "best_epoch": self.best_epoch, "waited": self.waited}
        return notes | {f"weights/{path}": value for path, value in self.weights.items()}

    def resume(self, state: dict[str, Any], training: Training) -> None:
        notes = {name: value for name, value in state.items() if not isinstance(value, np.ndarray)}
        weights = {name.removeprefix("weights/"): value for name, value in state.items() if name not in notes}
        best, *counts = saved_numbers(notes, ("best", "best_epoch", "waited"), "EarlyStopping")
        if not all(is_count(n) and n <= len(training.history) for n in counts):
            raise ArgumentError(f"EarlyStopping: the saved state {str(notes)[:200]} is not valid.")
        own = values_to_keep(training.net, training.loss) if counts[0] else {}
        refuse_misfit(own, weights, "EarlyStopping: the state", ArgumentError)
        self.best, (self.best_epoch, self.waited), self.weights = best, counts, weights


def monitored_number(training: Training, monitor: str, who: str) -> float | None:
    """The monitored number of an epoch; None if it belongs to an evaluation that did not follow this epoch."""
    name = name_in_records(monitor)
    if name in training.record:
        return float(training.record[name])
    if name.startswith("test_") and training.test is not None and "test_loss" not in training.record:
        return None
    raise ArgumentError(f"{who} must be one of {', '.join(training.record)}, not {monitor!r}.")


def is_better_higher(monitor: str) -> bool:
    """True if larger is better for a number with this name: accuracy, "top5" and similar numbers."""
    return "accuracy" in monitor or name_in_records(monitor).removeprefix("test_").startswith("top")


def name_in_records(monitor: str) -> str:
    """The name of a number in records: "test_" for MindSpore's "eval_"; an ArgumentError for Keras' "val_"."""
    if monitor.startswith(("val_", "validation_")):
        name = "test_" + {"acc": "accuracy"}.get(measured := monitor.partition("_")[2], measured)
        raise ArgumentError(f"no record has {monitor!r}; fit(validation=(inputs, target)) measures {name!r}.")
    return "test_" + monitor.removeprefix("eval_") if monitor.startswith("eval_") else monitor


class ReduceLROnPlateau(Callback):
    """Reduce the learning rate when a number of the records stops improving: multiply it by `factor`.

    Args:
        monitor, patience, mode, min_delta: as for `EarlyStopping`.
        factor: the factor, in (0, 1).
        verbose: whether to print each new rate.
        cooldown: the number of epochs after a reduction that do not count.
        min_lr: the smallest rate.
    Raises: ArgumentError for a record without the number, or a scheduled rate; TrainingError if the number is NaN.
    Example:
        >>> net = nn.Dense(1, 1)
        >>> sgd, data = nn.SGD(net.trainable_params(), 1e-30), (ops.ones((4, 1)), ops.ones((4, 1)))
        >>> slower = snncell.train.ReduceLROnPlateau("loss", factor=0.5, patience=1)
        >>> _ = snncell.train.fit(net, nn.MSELoss(), sgd, data, 3, accuracy=None, progress=False, callbacks=[slower])
        >>> float(sgd.learning_rate.item()) < 1e-30
        True
    """

    order: ClassVar[int] = 1  # after callbacks that add to the record

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
        if any(group.schedule is not None for group in groups):
            raise ArgumentError(
                f"ReduceLROnPlateau: the learning rate of the {type(training.optimiser).__name__} follows a schedule; "
                f"create the optimiser with a number."
            )
        if not training.history:  # forget an earlier training
            self.best, self.waited, self.cooling = math.inf, 0, 0

    def on_epoch_end(self, training: Training) -> None:
        number = monitored_number(training, self.monitor, "ReduceLROnPlateau: monitor")
        if number is None:
            return
        if math.isnan(number):
            raise TrainingError(
                f"ReduceLROnPlateau: {self.monitor} of epoch {training.epoch} is nan. Check the data that it is "
                f"measured on, or monitor another number."
            )
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
            if old <= self.min_lr:
                continue
            new = max(old * self.factor, self.min_lr)
            training.optimiser.set_learning_rate(new, group)
            if self.verbose:
                print(f"Epoch {training.epoch:05d}: ReduceLROnPlateau reducing learning rate to {new:g}.", flush=True)

    def state(self) -> dict[str, Any]:
        return {"best": self.best, "waited": self.waited, "cooling": self.cooling}

    def resume(self, state: dict[str, Any], training: Training) -> None:
        names = "best", "waited", "cooling"
        self.best, self.waited, self.cooling = saved_numbers(state, names, "ReduceLROnPlateau")


class EMA(Callback):
    """Exponential moving average (EMA) of the weights, for evaluations and for the net after the training.

    a <- d a + (1 - d) w   after each step of the optimiser,   a = w before the first

    It averages the Parameters that the optimiser trains. Training steps continue from w. The Parameters hold the
    average only during an evaluation, so `EarlyStopping` and `fit(monitor=...)` keep the average as the best weights.
    Checkpoints contain both: `load_state` loads w, and `fit(resume=file)` without further epochs loads the average.

    Args:
        decay: d, in [0, 1). It averages over about the last 1 / (1 - d) steps.
        use_buffers: whether to average untrained floats, too: other Parameters and persistent buffers of net and loss.
    Source: Polyak and Juditsky, "Acceleration of stochastic approximation by averaging", SIAM J. Control Optim. 1992;
        with d as Tarvainen and Valpola, "Mean teachers are better role models", NIPS 2017.
    Example:
        >>> net = nn.Dense(2, 1)
        >>> sgd, data = nn.SGD(net.trainable_params(), 0.1), (ops.ones((8, 2)), ops.zeros((8, 1)))
        >>> options = {"test": data, "accuracy": None, "progress": False}
        >>> result = snncell.train.fit(net, nn.MSELoss(), sgd, data, 3, callbacks=[snncell.train.EMA(0.9)], **options)
        >>> snncell.train.evaluate(net, nn.MSELoss(), data, accuracy=None)["loss"] == result.history[-1]["test_loss"]
        True
    """

    order: ClassVar[int] = 2  # other callbacks see the average before this one restores the weights

    def __init__(self, decay: Annotated[float, Within(0.0, 1.0, open_high=True)], use_buffers: bool = False) -> None:
        self.decay, self.use_buffers = float(decay), use_buffers
        self.weights: list[Parameter] = []
        self.averages: list[Parameter] = []
        self.buffers: dict[str, Tensor] = {}  # averages of buffers, by path
        self.in_place = False

    def on_fit_begin(self, training: Training) -> None:
        self._take(training, None)

    def _take(self, training: Training, values: dict[str, Any] | None) -> None:
        """Start from the present weights, or continue from averages; also for a second training."""
        self.weights, buffers = self._averaged(training)
        if self.averages and values is None:
            return
        begin = {str(n): p.asnumpy() for n, p in enumerate(self.weights)} if values is None else values
        self.averages = [Parameter(np.array(begin[str(n)]), requires_grad=False) for n in range(len(self.weights))]
        self.buffers = {path: x if values is None else Tensor(values[path]) for path, (_, _, x) in buffers.items()}
        self.__dict__.pop("_update", None)  # compile again, because the averages are new Parameters

    def _forget(self) -> None:
        self.averages, self.in_place = [], False
        self.__dict__.pop("_update", None)

    @cached_property
    def _update(self) -> Callable[[], None]:
        pairs = [*zip(self.averages, self.weights, strict=True)]

        def update() -> None:
            for average, weight in pairs:
                average.assign(self._between(average.value(), weight.value()))

        return cast(Callable[[], None], jit(update))

    def __getstate__(self) -> dict[str, Any]:  # copies and pickles compile their own step
        return {name: value for name, value in self.__dict__.items() if name != "_update"}

    def _averaged(self, training: Training) -> tuple[list[Parameter], dict[str, tuple[Cell, str, Tensor]]]:
        trained = list(training.optimiser.parameters)
        if not self.use_buffers:
            return trained, {}
        known = {id(parameter) for parameter in trained}
        weights = weights_of(training.net, training.loss).values()
        buffers = buffers_of(training.net, training.loss).items()
        others = [p for p in weights if id(p) not in known and p.dtype.is_float]
        return trained + others, {f"buffer/{path}": place for path, place in buffers if place[2].dtype.is_float}

    def _between(self, a: Tensor, w: Tensor) -> Tensor:
        # This form keeps a value that never changes, such as a frozen weight, bitwise equal.
        return (w + self.decay * (a - w)).astype(a.dtype)

    def on_step_end(self, training: Training) -> None:
        if training.updated:
            self._update()
            for path, (_, _, buffer) in self._averaged(training)[1].items():
                average = self.buffers.get(path, buffer)
                self.buffers[path] = buffer if average is buffer else self._between(average, buffer)

    def on_fit_end(self, training: Training) -> None:
        self._exchange(training)
        self._forget()  # so that another `fit` starts again

    def on_error(self, training: Training, error: BaseException) -> None:
        if self.in_place:
            self._exchange(training)
        self._forget()

    def _exchange(self, training: Training) -> None:
        both = [*zip(self.weights, self.averages, strict=True)]
        pairs = [(a, Tensor(np.array(b.asnumpy()))) for one, other in both for a, b in ((one, other), (other, one))]
        places = self._averaged(training)[1]
        # Skip buffers that never change, because setting one makes traced functions trace again.
        changed = {path: place for path, place in places.items() if self.buffers.get(path, place[2]) is not place[2]}
        assign_values(pairs, [(cell, name, self.buffers[path]) for path, (cell, name, _) in changed.items()], "EMA")
        self.buffers |= {path: buffer for path, (_, _, buffer) in changed.items()}
        self.in_place = not self.in_place

    on_evaluation_begin = on_evaluation_end = _exchange

    def state(self) -> dict[str, Any]:
        averages = {str(n): average for n, average in enumerate(self.averages)} | self.buffers
        settings = {"decay": self.decay, "use_buffers": self.use_buffers}
        return settings | {path: np.array(x.asnumpy()) for path, x in averages.items()}

    def resume(self, state: dict[str, Any], training: Training) -> None:
        averages = dict(state)
        for name in ("decay", "use_buffers"):
            before, setting = averages.pop(name, False), getattr(self, name)
            if before != setting:
                raise ArgumentError(f"{name} was {before} and is {setting}. Resume with the same {name}.")
        weights, buffers = self._averaged(training)
        own: dict[str, Tensor] = {str(n): parameter for n, parameter in enumerate(weights)}
        own |= {path: buffer for path, (_, _, buffer) in buffers.items()}
        refuse_misfit(own, averages, "EMA: the state", ArgumentError)
        self._take(training, averages)
