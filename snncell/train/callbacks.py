"""Callbacks: what `fit` tells of a training, to whom, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar

from snncell.arguments.kinds import Own
from snncell.cell import Cell
from snncell.nn.optim.optimizer import Optimizer
from snncell.tape.tensor import Tensor
from snncell.train.run_context import RunContext

Record = dict[str, Any]


@dataclass(repr=False)
class Result:
    """The result of `fit`.

    history: a record for each epoch: "epoch", "step", "learning_rate" (of the next step; of further groups of the
        optimiser "learning_rate_1", ...), "loss", then as asked for "accuracy", "firing_rate" and metrics by their
        names, and the same with "test_" before them; and what callbacks add.
    best: the record whose weights the net has in the end: the best one with `monitor` or `patience`, else the last.
    monitored: the number that decided which record is the best; "" if none did.
    stopped: why it ended before its last epoch, in words; "" if it did not.
    stopped_early: whether patience ended it.
    seconds: what this call took.
    """

    history: list[Record] = field(default_factory=list)
    best: Record = field(default_factory=dict)
    stopped: str = ""
    stopped_early: bool = False
    seconds: float = 0.0
    monitored: str = ""

    def __repr__(self) -> str:
        """In a line: the epochs, the numbers of the best one, why it ended, and the time."""
        numbers = [f"{name}={x:.4g}" for name, x in self.best.items() if isinstance(x, (int, float))]
        ended = f"; stopped: {self.stopped}" if self.stopped else ""
        return f"Result({len(self.history)} epochs; best: {', '.join(numbers) or 'none'}{ended}; {self.seconds:.1f} s)"


@dataclass
class Training:
    """A training as its callbacks see it. `fit` makes one and keeps it up to date.

    Attributes:
        net, loss, optimiser: what is trained, and how.
        data, test: the batches that it is trained on and evaluated on; test is None where there are none.
        epochs: how many `fit` was asked for.
        epoch: the number of the present epoch, from 1.
        batch: how many batches of the epoch have been trained on.
        batches: how many an epoch has, or None where the data do not tell.
        updated: whether the optimiser took a step at the last batch: with `accumulate=n` at every n-th and at the last
            one of an epoch, and not where the loss scale was too large for its gradients.
        measured: the numbers of the last batch by name, Tensors. To read one waits for the step, on a GPU too.
        record: the numbers of the epoch, once it is evaluated. A callback may add numbers, which go into the history,
            the log, and checkpoints.
        result: what `fit` will return; its history holds the records of the epochs that are done.
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
    record: Record = field(default_factory=dict)
    result: Result = field(default_factory=Result)
    writer: Callable[[Any], None] | None = field(default=None, repr=False)
    begun: int = 0  # batches of the epoch, the present one counted
    earlier: int = 0  # batches of the epochs before
    evaluating: bool = False
    evaluated: int = 0  # batches of an evaluation, the present one counted
    of_evaluation: Any = field(default=None, repr=False)  # its present batch

    @cached_property
    def run_context(self) -> RunContext:
        """The same for methods of callbacks that have MindSpore's names."""
        return RunContext(self)

    @property
    def updated(self) -> bool:
        """Whether the optimiser took a step at the last batch; with a loss scale, reading it waits for the step."""
        return self.due and (self.step_before is None or self.step != int(self.step_before.item()))

    @property
    def step(self) -> int:
        """The number of steps that the optimiser has taken, in all."""
        return int(self.optimiser.global_step.item())

    @property
    def history(self) -> list[Record]:
        """The records of the epochs that are done."""
        return self.result.history

    @property
    def stopped(self) -> str:
        """Why the training ends, or "" while it goes on."""
        return self.result.stopped

    def stop(self, why: str = "stopped by a callback") -> None:
        """End the training once the present step, or evaluation, is done. An epoch that it cuts has no record."""
        self.result.stopped = self.result.stopped or why

    def save(self, file: Any) -> None:
        """Write the training to a file, from which `fit(resume=...)` goes on to the bit, within an epoch too.

        Raises:
            CheckpointError: if the file cannot be written.
        """
        assert self.writer is not None
        self.writer(file)


class Callback:
    """Is told by `fit` how a training goes; made for subclasses, each of whose methods may be left out.

    Every method is given the `Training`. In an epoch they are called in this order:

        on_epoch_begin, (on_step_begin, on_step_end) for each batch, on_evaluation_begin, on_evaluation_end (with test
        data only), on_epoch_end

    with on_fit_begin before the first epoch and on_fit_end after the last, or on_error in its place. With
    `accumulate=n` the optimiser has taken a step at every n-th on_step_end and at the last one of an epoch
    (`training.updated`). At on_step_end the loss may still be on its way
    on a GPU: only what reads it waits. From on_evaluation_end on `training.record` has the numbers of the epoch.

    Methods by MindSpore's names are told of the same, and given a `RunContext`: on_train_begin, on_train_epoch_begin,
    on_train_step_begin, on_train_step_end, on_train_epoch_end, on_train_end, and with "eval" in the place of "train" of
    an evaluation; or, of both, the older begin, epoch_begin, step_begin, step_end, epoch_end, end. A class has the ones
    or the others: a method that is given the training is told instead of those of its event.

    Attributes:
        order: callbacks of a smaller order are told first, those of the same in the order in which they were given; of
            the end of the training in reverse, as contexts are left.
        first_rank_only: whether rank 0 alone tells it, of a training on several: for one that writes files. Random
            numbers that it draws are not those of the training then.

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
        """Before the first epoch, when a training that is resumed has been read."""
        self.on_train_begin(training.run_context)

    def on_epoch_begin(self, training: Training) -> None:
        """Before the first batch of an epoch."""
        self.on_train_epoch_begin(training.run_context)

    def on_step_begin(self, training: Training) -> None:
        """Before a batch."""
        self.on_train_step_begin(training.run_context)

    def on_step_end(self, training: Training) -> None:
        """After a batch: `training.measured` is of it."""
        self.on_train_step_end(training.run_context)

    def on_evaluation_begin(self, training: Training) -> None:
        """Before the net is evaluated on the test data."""
        self.on_eval_begin(training.run_context)
        self.on_eval_epoch_begin(training.run_context)

    def on_evaluation_end(self, training: Training) -> None:
        """After the evaluation; the net still has the weights that were evaluated."""
        self.on_eval_epoch_end(training.run_context)
        self.on_eval_end(training.run_context)

    def on_epoch_end(self, training: Training) -> None:
        """When the record of an epoch is in the history."""
        self.on_train_epoch_end(training.run_context)

    def on_fit_end(self, training: Training) -> None:
        """At the end of a training, also of one that was stopped or interrupted."""
        self.on_train_end(training.run_context)

    def on_error(self, training: Training, error: BaseException) -> None:
        """When the training ends by an error, which `fit` raises afterwards."""

    def state(self) -> dict[str, Any]:
        """The state to keep in checkpoints: NumPy arrays, and whatever JSON can say, by name; {} for none, ever."""
        return {}

    def resume(self, state: dict[str, Any], training: Training) -> None:
        """Go on from a state that was kept.

        Raises:
            ArgumentError: for one that is not as `state` gives it.
        """

    # --- by MindSpore's names -----------------------------------------------------------------------------------------

    def on_train_begin(self, run_context: RunContext) -> None:
        """At the beginning of a training."""
        self.begin(run_context)

    def on_train_epoch_begin(self, run_context: RunContext) -> None:
        """Before the first batch of an epoch."""
        self.epoch_begin(run_context)

    def on_train_step_begin(self, run_context: RunContext) -> None:
        """Before a batch of a training."""
        self.step_begin(run_context)

    def on_train_step_end(self, run_context: RunContext) -> None:
        """After a batch of a training."""
        self.step_end(run_context)

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        """After the last batch of an epoch, and its evaluation."""
        self.epoch_end(run_context)

    def on_train_end(self, run_context: RunContext) -> None:
        """At the end of a training."""
        self.end(run_context)

    def on_eval_begin(self, run_context: RunContext) -> None:
        """At the beginning of an evaluation."""
        self.begin(run_context)

    def on_eval_epoch_begin(self, run_context: RunContext) -> None:
        """Before the first batch of an evaluation."""
        self.epoch_begin(run_context)

    def on_eval_step_begin(self, run_context: RunContext) -> None:
        """Before a batch of an evaluation."""
        self.step_begin(run_context)

    def on_eval_step_end(self, run_context: RunContext) -> None:
        """After a batch of an evaluation."""
        self.step_end(run_context)

    def on_eval_epoch_end(self, run_context: RunContext) -> None:
        """After the last batch of an evaluation."""
        self.epoch_end(run_context)

    def on_eval_end(self, run_context: RunContext) -> None:
        """At the end of an evaluation."""
        self.end(run_context)

    def begin(self, run_context: RunContext) -> None:
        """At the beginning of a training, or an evaluation."""

    def epoch_begin(self, run_context: RunContext) -> None:
        """Before the first batch of an epoch, or an evaluation."""

    def step_begin(self, run_context: RunContext) -> None:
        """Before a batch."""

    def step_end(self, run_context: RunContext) -> None:
        """After a batch."""

    def epoch_end(self, run_context: RunContext) -> None:
        """After the last batch of an epoch, or an evaluation."""

    def end(self, run_context: RunContext) -> None:
        """At the end of a training, or an evaluation."""


def tell_step_of_evaluation(callbacks: Iterable[Callback], when: str, run_context: RunContext) -> None:
    """Tell those callbacks that have a method for it of a batch of an evaluation; `when` is "begin" or "end"."""
    for callback in callbacks:
        names = (f"on_eval_step_{when}", f"step_{when}")
        if any(getattr(type(callback), name) is not getattr(Callback, name) for name in names):
            getattr(callback, names[0])(run_context)
