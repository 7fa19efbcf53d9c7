"""Callbacks: their base class, the `Training` that they get, and their order."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar

from snncell.base.arguments.kinds import Own, misfit
from snncell.base.arguments.names import plugin
from snncell.base.arguments.shown import ROWS, came, nearest, titled_table
from snncell.cell.cell import Cell
from snncell.errors import ArgumentError, ArgumentTypeError
from snncell.nn.optim.optimizer import Optimizer
from snncell.tape.tensor import Tensor

__all__ = ["Callback", "Result", "Training"]

Record = dict[str, Any]


@dataclass(repr=False)
class Result:
    """The result of `fit`.

    history: a record for each epoch, with "epoch", "step", "learning_rate" (of the next step; "learning_rate_1", ...
        for further parameter groups) and "loss". If requested, also "accuracy", "firing_rate" and metrics by their
        names. Validation data have the same names with the prefix "test_". Callbacks can add numbers.
    best: the record of the final weights: the best one with `monitor` or `patience`, else the last.
    monitored: the number that determined the best record, or "".
    stopped: the reason why the training ended before its last epoch, or "".
    stopped_early: whether patience ended it.
    seconds: the duration of this call.
    """

    history: list[Record] = field(default_factory=list)
    best: Record = field(default_factory=dict)
    stopped: str = ""
    stopped_early: bool = False
    seconds: float = 0.0
    monitored: str = ""

    def __repr__(self) -> str:
        numbers = [f"{name}={x:.4g}" for name, x in self.best.items() if isinstance(x, (int, float))]
        ended = f"; stopped: {self.stopped}" if self.stopped else ""
        return f"Result({len(self.history)} epochs; best: {', '.join(numbers) or 'none'}{ended}; {self.seconds:.1f} s)"

    def _repr_html_(self) -> str:
        shown = self.history[-ROWS:]
        # The last record may have no evaluation, because of `test_every`.
        names = list(dict.fromkeys(name for one in shown for name, x in one.items() if isinstance(x, (int, float))))
        rows = [[f"{record[name]:.4g}" if name in record else "" for name in names] for record in shown]
        return titled_table(repr(self), names, rows, numbers=len(names))


@dataclass
class Training:
    """The present state of a training, for callbacks; `fit` keeps it up to date.

    Attributes:
        net, loss, optimiser: the arguments of `fit`.
        data, test: the batches to train on and to evaluate on; test may be None.
        epochs: the number of epochs requested from `fit`.
        epoch: the number of the present epoch, from 1.
        batch: the number of finished batches of this epoch.
        batches: the number of batches of an epoch, or None if unknown.
        updated: whether the optimiser took a step after the last batch. With `accumulate=n` it does so after every n-th
            batch and after the last one of an epoch. Loss scaling may skip a step.
        measured: the numbers of the last batch by name, Tensors. Reading one waits for the step.
        present: the last batch, a tuple (inputs, ..., target); on the ranks of a job, the shards of this rank.
        record: the epoch's numbers, after its evaluation. Numbers that callbacks add go to history, log and checkpoint.
        result: the result of `fit`, with the records of the finished epochs.
    """

    net: Cell
    loss: Callable[..., Any]
    optimiser: Annotated[Optimizer, Own()]
    data: Any
    test: Any
    epochs: int
    epoch: int = 0
    batch: int = 0
    batches: int | None = None
    due: bool = field(default=False, repr=False)  # whether a step was due at the last batch
    step_before: Tensor | None = field(default=None, repr=False)  # its number before the batch, if it may be skipped
    measured: dict[str, Tensor] = field(default_factory=dict)
    present: Any = field(default=None, repr=False)
    record: Record = field(default_factory=dict)
    result: Result = field(default_factory=Result)
    writer: Callable[[Any], None] | None = field(default=None, repr=False)
    begun: int = 0  # batches of this epoch, including the present one
    earlier: int = 0  # batches of earlier epochs
    evaluating: bool = False
    evaluated: int = 0  # batches of an evaluation, including the present one
    of_evaluation: Any = field(default=None, repr=False)  # the present batch of an evaluation

    @cached_property
    def run_context(self) -> Any:
        """The `RunContext` for callbacks with MindSpore's method names."""
        return plugin("run context")(self)

    @property
    def updated(self) -> bool:
        """Whether the optimiser took a step at the last batch; with a loss scale, reading this waits for the step."""
        return self.due and (self.step_before is None or self.step != int(self.step_before.item()))

    @property
    def step(self) -> int:
        """The total number of optimiser steps."""
        return int(self.optimiser.global_step.item())

    @property
    def history(self) -> list[Record]:
        """The records of the finished epochs."""
        return self.result.history

    @property
    def stopped(self) -> str:
        """Why the training ends, or "" while it continues."""
        return self.result.stopped

    def stop(self, why: str = "stopped by a callback") -> None:
        """End the training after the present step or evaluation. An unfinished epoch gets no record."""
        self.result.stopped = self.result.stopped or why

    def save(self, file: Any) -> None:
        """Save the training to a file, from which `fit(resume=...)` continues bit for bit, also within an epoch."""
        assert self.writer is not None
        self.writer(file)


def _by_older_name(name: str, older: str, doc: str) -> Callable[[Any, Any], None]:
    """A method with MindSpore's name of an event. By default it calls the method with the older name of this event."""

    def method(self: Any, run_context: Any) -> None:
        getattr(self, older)(run_context)

    method.__doc__, method.__name__, method.__qualname__ = doc, name, f"Callback.{name}"
    return method


class Callback:
    """Base class of callbacks: `fit` calls their methods during a training. A subclass defines those that it needs.

    Every method takes the `Training`. In an epoch they are called in this order:

        on_epoch_begin, (on_step_begin, on_step_end) for each batch, on_evaluation_begin, on_evaluation_end (with test
        data only), on_epoch_end

    on_fit_begin comes before the first epoch, and on_fit_end, or on_error, after the last one. At on_step_end a GPU may
    still compute the loss; only reading it waits. `training.record` has the numbers from on_evaluation_end on.

    Methods with MindSpore's names take a `RunContext`: on_train_begin, on_train_epoch_begin, on_train_step_begin,
    on_train_step_end, on_train_epoch_end and on_train_end. For an evaluation, write "eval" instead of "train". The
    older begin, epoch_begin, step_begin, step_end, epoch_end and end are called in both. You should define one method
    for each event. If you define a method that takes the training, the other methods of that event are not called.

    Attributes:
        order: a number; `fit` calls callbacks with a smaller order first. At the end of the training it calls them in
            the opposite order. If two callbacks have the same order, their order in the list counts.
        first_rank_only: whether only rank 0 calls it in a distributed training, for example because it writes files.
            Its random numbers are then separate from the random numbers of the training.
    Example:
        >>> class Threshold(snncell.train.Callback):
        ...     def on_epoch_end(self, training):
        ...         if training.record["loss"] < 0.1:
        ...             training.stop("the loss is below 0.1")
        >>> net = nn.Dense(2, 1)
        >>> sgd, data = nn.SGD(net.trainable_params(), 0.1), (ops.ones((8, 2)), ops.zeros((8, 1)))
        >>> options = {"accuracy": None, "progress": False, "callbacks": [Threshold()]}
        >>> snncell.train.fit(net, nn.MSELoss(), sgd, data, 99, **options).stopped
        'the loss is below 0.1'
    """

    order: ClassVar[int] = 0
    first_rank_only: ClassVar[bool] = False

    def on_fit_begin(self, training: Training) -> None:
        """Called before the first epoch, after a resume has loaded the training."""
        self.on_train_begin(training.run_context)

    def on_epoch_begin(self, training: Training) -> None:
        """Called before the first batch of an epoch."""
        self.on_train_epoch_begin(training.run_context)

    def on_step_begin(self, training: Training) -> None:
        """Called before a batch."""
        self.on_train_step_begin(training.run_context)

    def on_step_end(self, training: Training) -> None:
        """Called after a batch; `training.measured` contains its numbers."""
        self.on_train_step_end(training.run_context)

    def on_evaluation_begin(self, training: Training) -> None:
        """Called before the net is evaluated on the test data."""
        self.on_eval_begin(training.run_context)
        self.on_eval_epoch_begin(training.run_context)

    def on_evaluation_end(self, training: Training) -> None:
        """Called after the evaluation; the net still has the evaluated weights."""
        self.on_eval_epoch_end(training.run_context)
        self.on_eval_end(training.run_context)

    def on_epoch_end(self, training: Training) -> None:
        """Called when the record of an epoch is in the history."""
        self.on_train_epoch_end(training.run_context)

    def on_fit_end(self, training: Training) -> None:
        """Called at the end of a training, also if it was stopped or interrupted."""
        self.on_train_end(training.run_context)

    def on_error(self, training: Training, error: BaseException) -> None:
        """Called when the training ends by an error, which `fit` raises afterwards."""

    def state(self) -> dict[str, Any]:
        """The state for checkpoints: NumPy arrays and JSON values by name; always {} for a callback without state."""
        return {}

    def resume(self, state: dict[str, Any], training: Training) -> None:
        """Restore a saved state; raise an ArgumentError for one that `state` cannot return."""

    # --- by MindSpore's names -----------------------------------------------------------------------------------------

    on_train_begin = _by_older_name("on_train_begin", "begin", "At the beginning of a training.")
    on_train_epoch_begin = _by_older_name("on_train_epoch_begin", "epoch_begin", "Before the first batch of an epoch.")
    on_train_step_begin = _by_older_name("on_train_step_begin", "step_begin", "Before a batch of a training.")
    on_train_step_end = _by_older_name("on_train_step_end", "step_end", "After a batch of a training.")
    on_train_epoch_end = _by_older_name(
        "on_train_epoch_end", "epoch_end", "After the last batch of an epoch, and its evaluation."
    )
    on_train_end = _by_older_name("on_train_end", "end", "At the end of a training.")
    on_eval_begin = _by_older_name("on_eval_begin", "begin", "At the beginning of an evaluation.")
    on_eval_epoch_begin = _by_older_name(
        "on_eval_epoch_begin", "epoch_begin", "Before the first batch of an evaluation."
    )
    on_eval_step_begin = _by_older_name("on_eval_step_begin", "step_begin", "Before a batch of an evaluation.")
    on_eval_step_end = _by_older_name("on_eval_step_end", "step_end", "After a batch of an evaluation.")
    on_eval_epoch_end = _by_older_name("on_eval_epoch_end", "epoch_end", "After the last batch of an evaluation.")
    on_eval_end = _by_older_name("on_eval_end", "end", "At the end of an evaluation.")

    def begin(self, run_context: Any) -> None:
        """At the beginning of a training, or an evaluation."""

    def epoch_begin(self, run_context: Any) -> None:
        """Before the first batch of an epoch, or an evaluation."""

    def step_begin(self, run_context: Any) -> None:
        """Before a batch."""

    def step_end(self, run_context: Any) -> None:
        """After a batch."""

    def epoch_end(self, run_context: Any) -> None:
        """After the last batch of an epoch, or an evaluation."""

    def end(self, run_context: Any) -> None:
        """At the end of a training, or an evaluation."""


def tell_step_of_evaluation(callbacks: Iterable[Callback], when: str, run_context: Any) -> None:
    """Call the callbacks with a method for steps of an evaluation; `when` is "begin" or "end"."""
    for callback in callbacks:
        names = (f"on_eval_step_{when}", f"step_{when}")
        if any(getattr(type(callback), name) is not getattr(Callback, name) for name in names):
            getattr(callback, names[0])(run_context)


# --- check and order --------------------------------------------------------------------------------------------------

# Keras' and Lightning's names of events that MindSpore names differently.
ELSEWHERE = {
    "on_batch_begin": "on_step_begin", "on_train_batch_begin": "on_train_step_begin",
    "on_batch_start": "on_step_begin", "on_train_batch_start": "on_train_step_begin",
    "on_batch_end": "on_step_end", "on_train_batch_end": "on_train_step_end",
    "on_epoch_start": "on_epoch_begin", "on_train_epoch_start": "on_train_epoch_begin",
    "on_fit_start": "on_fit_begin", "on_train_start": "on_train_begin", "on_exception": "on_error",
    "on_validation_end": "on_evaluation_end", "on_validation_epoch_end": "on_evaluation_end",
    "on_test_end": "on_evaluation_end",
}  # fmt: skip


def sort_callbacks(callbacks: Any) -> list[Callback]:
    """Check callbacks and their methods, and sort them in the order of their calls."""
    given = [callbacks] if isinstance(callbacks, Callback) else callbacks
    if not isinstance(given, (list, tuple)):
        raise ArgumentTypeError(f"fit: callbacks must be a list of train.Callback, not {came(given)}.")
    for callback in given:
        if not isinstance(callback, Callback):
            raise ArgumentTypeError(
                f"fit: callbacks must be train.Callback, but one of them is {came(callback)}. Make a function f the "
                f"method of a class: class Own(train.Callback): def on_epoch_end(self, training): f(training)."
            )
        _refuse_methods(type(callback))
    if len({id(callback) for callback in given}) < len(given):
        raise ArgumentError("fit: one of the callbacks occurs twice. Pass it once.")
    return sorted(given, key=lambda callback: callback.order)


def _refuse_methods(kind: type[Callback]) -> None:
    """Raise an ArgumentError for a method on_... that is not an event, or does not accept the event's arguments."""
    events = [name for name in dir(Callback) if name.startswith("on_")]
    for name in [name for name in dir(kind) if name.startswith("on_") and callable(getattr(kind, name))]:
        if name not in events:
            near = ELSEWHERE.get(name) or nearest(name, events)
            meant = f" Did you mean {near}?" if near else f" There are {', '.join(events)}."
            raise ArgumentError(
                f"fit: the callback {kind.__name__} has a method {name}, which fit does not call.{meant} Begin the "
                f"names of your own methods without on_."
            )
        takes = [one for one in inspect.signature(getattr(Callback, name)).parameters if one != "self"]
        if wrong := misfit(getattr(kind, name), (None, *takes)):
            raise ArgumentError(
                f"fit: the callback {kind.__name__} is called as {name}(self, {', '.join(takes)}), which its method "
                f"does not take: {wrong}."
            )
