"""The run of `fit`: compilation, the order of epochs and callbacks, checkpoints, interruptions."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cached_property
from itertools import islice
from types import FrameType
from typing import Any

from snncell.amp import LossScaler, Values, values_of
from snncell.cell.cell import Cell
from snncell.errors import ArgumentError, CheckpointError
from snncell.tape.tensor import Tensor
from snncell.train.batches import refuse_swapped_axes
from snncell.train.callbacks import Callback, Record, Result, Training, sort_callbacks
from snncell.train.checkpoints import (
    describe_data,
    note_callbacks,
    note_positions,
    refuse_notes,
    restore_positions,
    resume_callbacks,
)
from snncell.train.finite import infinite_gradient, refuse_loss, refuse_test_loss, refuse_weights, warn_of_nan
from snncell.train.loss_scale import Scaling
from snncell.train.measures import Spikes, measure
from snncell.train.metrics import Monitored
from snncell.train.passes import DataPass, count_batches, measure_means, measure_with_loss, tell_callbacks
from snncell.train.state import File, describe_cell, read_state, save_state, weights_of
from snncell.train.steps import OneProcess, TrainStep, clip_by_both

_PROBED = 4  # batches that are searched for an infinite gradient
_PASS = "pass "  # of the names of what a pass keeps in a checkpoint


class Run:
    """One call of `fit`."""

    step: TrainStep
    test_step: Callable[..., dict[str, Tensor]]

    def __init__(self, training: Training, prefetch: bool | None, processes: OneProcess) -> None:
        if training.data is None:
            raise ArgumentError("fit: there are no data to train on.")
        self.training, self.prefetch, self.processes = training, prefetch, processes
        self.parts = (training.net, training.loss)
        self.callbacks: list[Callback] = []
        self.checkpoint: File | None = None  # the file that errors name
        self.pass_: DataPass | None = None  # the epoch that is under way
        self.before: Values = []  # the weights at its beginning; none if a checkpoint within it was resumed
        self.test_every: Any = 1  # number of epochs, or a list of those with an evaluation after them
        training.batches = len(training.data) if hasattr(training.data, "__len__") else None
        training.writer = self.save

    def compile(
        self,
        accuracy: Any,
        metrics: dict[str, Any],
        heard: dict[str, Monitored],
        spikes: Spikes | None,
        limits: dict[str, float | None],
        accumulate: int,
        scaler: LossScaler | None,
    ) -> None:
        """Make the jitted functions."""
        norm, value = limits["clip_norm"], limits["clip_value"]
        self.clipped, self.may_skip = norm is not None, scaler is not None
        self.asked = {
            "accuracy": accuracy and getattr(accuracy, "__qualname__", ""),
            "firing_rate": 0 if spikes is None else len(spikes.cells),
            "metrics": sorted([*metrics, *heard]),
            **limits,
            "accumulate": accumulate,
            "loss_scale": None if scaler is None else describe_cell(scaler)[""],
            **self.processes.asked(),
        }

        clip = clip_by_both(norm, value)
        net, loss, optimiser = self.training.net, self.training.loss, self.training.optimiser
        of_batch = measure(net, loss, accuracy, spikes, metrics)
        scaling = None if scaler is None else Scaling(scaler, net, loss, optimiser)
        self.step = self.processes.step(self.parts, of_batch, optimiser, clip, scaling, accumulate)
        self.heard = heard
        self.test_step = measure_with_loss(net, loss, accuracy, spikes, metrics)

    def __call__(self, callbacks: list[Callback], resume: File | None, monitor: str | None) -> Result:
        """Train to the last epoch, or until a callback or a signal stops the training."""
        begun = time.perf_counter()
        training, self.callbacks, self.monitor = self.training, sort_callbacks(callbacks), monitor
        if resume is not None:
            self.take_up(resume)
        self.processes.refuse(self.parts, training.optimiser, lambda: {**self.settings, "call": self.called})
        if self.processes.first:
            warn_of_nan(training.test)
        with nullcontext() if self.checkpoint is None else note_signals(training.stop):
            try:
                self.tell("on_fit_begin")
                while len(training.history) < training.epochs and not self.stopped():
                    self.epoch()
            except BaseException as error:
                for callback in reversed(self.told()):
                    callback.on_error(training, error)
                raise
            training.result.best = training.history[-1] if training.history else {}
            self.tell("on_fit_end", reverse=True)
            self.stopped()  # all have come here: files that one has written are there for the others
        training.result.seconds = time.perf_counter() - begun
        return training.result

    def tell(self, name: str, reverse: bool = False) -> None:
        """Call a method of each callback that is told on this process."""
        for callback in reversed(self.told()) if reverse else self.told():
            with self.processes.apart(callback.first_rank_only):
                getattr(callback, name)(self.training)
            _refuse_record(self.training.record, callback)  # before a log, or a checkpoint, has it

    def told(self) -> list[Callback]:
        """The callbacks that are told on this process."""
        return [callback for callback in self.callbacks if self.processes.first or not callback.first_rank_only]

    def stopped(self) -> bool:
        """True if the training was stopped on any process; all processes must call this together."""
        if not self.processes.any(bool(self.training.stopped)):
            return False
        self.training.stop("stopped on another rank")
        return True

    # --- an epoch -----------------------------------------------------------------------------------------------------

    def epoch(self) -> None:
        """One epoch: train on the data, evaluate on the test data, append the record."""
        training = self.training
        training.epoch, training.record = len(training.history) + 1, {}
        if self.pass_ is None:
            self.pass_ = DataPass(self.parts, training.data, self.processes)
            training.batch, training.begun, training.earlier = 0, 0, training.earlier + training.begun
            self.tell("on_epoch_begin")
            self.before = values_of(weights_of(training.net, training.loss).values())
        whole = self.pass_.run(self.step, self.prefetch, self.before_batch, self.after_batch)
        if not whole:
            return
        averages = self.pass_.means()
        self.refuse(averages)
        self.pass_, training.batch = None, 0
        optimiser = training.optimiser
        rates = {f"learning_rate_{n}" if n else "learning_rate": float(x) for n, x in enumerate(optimiser.rates())}
        training.record = {"epoch": training.epoch, "step": training.step, **rates, **averages}
        if training.test is not None and self.evaluates(training.epoch):
            self.evaluate()
        training.history.append(training.record)
        self.tell("on_epoch_end")

    def before_batch(self, batch: Any) -> None:
        """Check the axes of the first batch of the training, and call `on_step_begin`."""
        if not self.training.history and not self.training.begun:
            refuse_swapped_axes(self.training.net, self.training.data, batch)
        self.training.begun += 1
        if self.may_skip:
            self.training.step_before = self.training.optimiser.global_step.value()
        self.tell("on_step_begin")

    def after_batch(self, numbers: dict[str, Tensor]) -> bool:
        """Call `on_step_end`; returns whether to leave the epoch, possible only between two steps of the optimiser."""
        training = self.training
        assert self.pass_ is not None
        training.batch, training.measured, training.due = self.pass_.batch, numbers, self.step.updated
        self.tell("on_step_end")
        return self.step.updated and self.stopped()

    def evaluates(self, epoch: int) -> bool:
        """True if there is an evaluation after an epoch."""
        several = isinstance(self.test_every, list)
        return epoch in self.test_every if several else epoch % self.test_every == 0

    def evaluate(self) -> None:
        """Evaluate on the test data, and add the numbers to the record."""
        training = self.training
        training.evaluating, training.evaluated = True, 0
        self.tell("on_evaluation_begin")
        of_training = training.measured
        tested = measure_means(
            "fit: test",
            self.parts,
            self.test_step,
            training.test,
            self.prefetch,
            self.heard,
            self.processes,
            lambda step: tell_callbacks(step, training, self.told()),
        )
        training.measured = of_training
        refuse_test_loss(tested["loss"], training.epoch, training.test, self.checkpoint)
        training.record |= {f"test_{name}": x for name, x in tested.items()}
        self.tell("on_evaluation_end")
        training.evaluating = False

    def refuse(self, averages: Record) -> None:
        """Raise a TrainingError for an epoch after which a training cannot go on."""
        training, number = self.training, self.training.epoch
        refuse_loss(averages["loss"], number, self.clipped, training.data, self.checkpoint, self.cause)
        trained = training.optimiser.parameters
        refuse_weights(training.net, training.loss, trained, number, training.data, self.checkpoint, self.cause)

    def cause(self) -> str:
        """Search the first batches for a gradient that is infinite at the weights from before the epoch."""
        training = self.training
        trained = training.optimiser.trainable_params()
        if not self.before or not trained:
            return ""
        # Each rank looks at whole batches, so that all come to the same result without an exchange.
        with count_batches(training.data, "fit: data", OneProcess(), False) as batches:
            some = (batch for _, batch in islice(batches, _PROBED))
            return infinite_gradient(training.net, training.loss, trained, self.before, training.epoch, some)

    # --- checkpoints --------------------------------------------------------------------------------------------------

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The settings that a resume must not change, apart from net and optimiser. It hashes all the data."""
        training = self.training
        loss = "" if isinstance(training.loss, Cell) else getattr(training.loss, "__qualname__", "")
        settings = {"loss": loss, "monitor": self.monitor, **self.asked}
        return {"data": describe_data(training.data), "test data": describe_data(training.test), "setting": settings}

    @property
    def called(self) -> dict[str, Any]:
        """The settings that a resume may change, but that must be equal on all ranks."""
        training = self.training
        return {"epochs": training.epochs, "epochs that are done": len(training.history), "test_every": self.test_every}

    def save(self, file: File) -> None:
        """Write the training to a file, on the first process only."""
        if not self.processes.first:
            return
        training = self.training
        under_way = self.pass_ if self.pass_ is not None and self.pass_.key is not None else None  # one that has begun
        if under_way is not None and not self.step.updated:
            raise CheckpointError(
                "fit: a checkpoint is written between two steps of the optimiser, and gradients are being accumulated; "
                "save where training.updated is true."
            )
        kept, arrays = note_callbacks(self.callbacks)
        notes = {**self.settings, "history": training.history, "callbacks": kept}
        notes |= note_positions(training.data, training.test, None if under_way is None else under_way.given)
        if under_way is not None:
            notes["pass"] = under_way.notes()
            arrays |= {_PASS + name: value for name, value in under_way.arrays().items()}
        save_state(file, training.net, training.optimiser, notes, arrays, training.loss)

    def take_up(self, file: File) -> None:
        """Continue from a checkpoint."""
        training, who = self.training, f"fit: {os.fspath(file)}"
        if not os.path.exists(file):  # where a path that is none is not there either
            raise CheckpointError(
                f"fit: resume: there is no file {os.fspath(file)}; resume=Path(file).exists() goes on where there is "
                f"one, and begins where there is none."
            )
        # All of the file is looked at before any of it is taken: one that does not fit changes nothing.
        stored = read_state(file, training.net, training.optimiser, self.settings, training.loss)
        refuse_notes(stored, who)
        training.result.history = stored.notes["history"]
        training.epoch = len(training.history)
        resume_callbacks(self.callbacks, training, stored, who)
        training.earlier = training.epoch * (training.batches or 0)
        if "pass" in stored.notes:
            self.pass_ = DataPass(self.parts, training.data, self.processes)
            own = {name.removeprefix(_PASS): x for name, x in stored.arrays.items() if name.startswith(_PASS)}
            self.pass_.take(stored.notes["pass"], own, who)
            training.epoch, training.batch = training.epoch + 1, self.pass_.batch
            training.begun = training.batch
        restore_positions(training.data, training.test, stored.notes, who)
        stored.load()


def _refuse_record(record: Record, callback: Callback) -> None:
    """Raise an ArgumentError if a callback has put something other than numbers into a record."""
    for name, value in record.items():
        if isinstance(value, (int, float, list)):
            continue
        raise ArgumentError(
            f"fit: a record holds numbers, and the callback {type(callback).__name__} has put a {type(value).__name__} "
            f"at {name!r} into it: float(x) of a Tensor, or x.tolist() of an array."
        )


# --- interruptions ----------------------------------------------------------------------------------------------------

_USUAL: dict[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}


@contextmanager
def note_signals(stop: Callable[[str], None]) -> Iterator[None]:
    """Within this context Ctrl-C and SIGTERM call `stop`, so that the training ends after its step.

    SIGTERM, by which schedulers end a job, is raised again afterwards. A second signal acts at once. Signal handlers of
    the user stay in place. On other threads than the main one the context does nothing, because Python handles signals
    on the main thread alone.
    """
    received: list[int] = []

    def first(number: int, frame: FrameType | None) -> None:
        signal.signal(number, _USUAL[number])
        received.append(number)
        stop("interrupted")

    on_main = threading.current_thread() is threading.main_thread()
    taken = [number for number, usual in _USUAL.items() if on_main and signal.getsignal(number) is usual]
    for number in taken:
        signal.signal(number, first)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, _USUAL[number])
    if signal.SIGTERM in received:
        signal.raise_signal(signal.SIGTERM)
