"""`fit`: train a network. This module checks the arguments, and runs the epochs and callbacks."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property, partial
from itertools import islice
from types import FrameType
from typing import Annotated, Any

from snncell.amp import LossScaler, Values, values_of
from snncell.base.arguments.kinds import Count, Own, Positive, Size
from snncell.base.arguments.names import plugin
from snncell.base.arguments.shown import came, show
from snncell.cell.cell import Cell
from snncell.cell.modes import phases
from snncell.errors import ArgumentError, CheckpointError
from snncell.io import path_to_write
from snncell.nn.optim.optimizer import Optimizer
from snncell.report.probe import refuse_foreign
from snncell.tape.tensor import Tensor
from snncell.train import checkpoints, finite
from snncell.train.batches import as_batches, refuse_swapped_axes
from snncell.train.callbacks import Callback, Result, Training, sort_callbacks
from snncell.train.log import Log, Progress
from snncell.train.measures import Spikes, measure, spiking_cells
from snncell.train.metrics import Monitored, accuracy as share_right, name_metrics, watch_metrics
from snncell.train.passes import DataPass, count_batches, measure_means, measure_with_loss, tell_callbacks
from snncell.train.state import File, describe_cell, read_state, save_state, weights_of
from snncell.train.steps import OneProcess, TrainStep, clip_by_both
from snncell.train.stopping import EarlyStopping

__all__ = ["fit"]


def fit(
    net: Cell,
    loss: Callable[..., Tensor],
    optimiser: Annotated[Optimizer, Own()],
    data: Any,
    epochs: Size,
    *,
    validation: Any = None,
    test_every: Annotated[Count | Sequence[int], Own()] = 1,
    batch_size: Count = 64,
    accuracy: Callable[..., Tensor] | None = share_right,
    metrics: Annotated[Any, Own()] = (),
    firing_rate: Annotated[Cell | Iterable[Cell], Own()] = (),
    accumulate: Count = 1,
    clip_norm: Positive | None = None,
    clip_value: Positive | None = None,
    loss_scale: Annotated[LossScaler | float | None, Own()] = None,
    patience: Count | None = None,
    monitor: str | None = None,
    callbacks: Annotated[Sequence[Callback], Own()] = (),
    checkpoint: File | None = None,
    resume: bool | File = False,
    log: File | None = None,
    progress: bool = True,
    prefetch: bool | None = None,
    distributed: bool = False,
    test: Any = None,
) -> Result:
    """Train a network: jitted training steps over all data, epoch after epoch.

    Args:
        net: the network, called with the inputs of a batch. `fit` compiles it, and compiled encoders, such as
            `encode.rate`, do not check that their input is in [0, 1]. The net is in training mode in training steps
            only. At the end each Cell gets back its earlier mode. Each `Stateful` is reset before a pass over the data.
            If the loss or accuracy has an argument `lengths`, it gets the same `lengths` as the net.
        loss: a function or a Cell. It gets the net's output and the target, and returns a number.
        optimiser: an optimiser of the Parameters to train. A learning-rate schedule counts training steps.
        data: a tuple of arrays (inputs, ..., target) with one entry per sample, which `fit` shuffles and batches. Or an
            iterable of batches (inputs, ..., target) that can be iterated many times, such as `train.Batches`, a
            `data.Loader` or PyTorch's. Arrays are anything that `Tensor` takes; batches may contain tuples, lists and
            dicts. If you shuffle batches yourself, use `ops.randperm`, so that a resumed training repeats their order.
        epochs: the total number of epochs, including those before a resume.
        validation: data to evaluate after each epoch. The records give these numbers the prefix "test_".
        test_every: the number of epochs between evaluations, or a list of the epochs that end with an evaluation.
        batch_size: the batch size, if the data are arrays.
        accuracy: a function of the net's output and the target, to record its mean; None for no accuracy.
        metrics: a list of names ("top5", "confusion", ...; see `train.metric`) and of functions like `accuracy`. Or a
            dict: each value is such a metric (a name or a function), and its key is the name in the records. "spikes",
            "synops", "energy" and other `Monitored` need `validation`.
        firing_rate: one or more Cells that return spikes. You must pass the `MultiStep`, not the neuron inside. The
            records contain the share of nonzero elements, without the padding after `lengths`.
        accumulate: gradient accumulation, for large batches that do not fit into memory: the number of batches per
            optimiser step. The step uses the mean gradient over all their samples. An epoch can end with fewer batches.
        clip_norm, clip_value: gradient clipping: first `clip_by_value`, then `clip_by_global_norm`.
        loss_scale: an `amp.DynamicLossScaler`, or a constant number, so that float16 gradients do not become 0. `fit`
            skips steps without finite gradients. The record of an epoch then contains "loss_scale", the scale of the
            next step, and "skipped", the number of skipped steps.
        monitor: the name of a number in the records, such as "test_loss". At the end `fit` restores the weights of the
            best epoch. The largest value is best for accuracy, "top5" and similar numbers; the smallest for all others.
        patience: early stopping: end the training if `monitor` has not improved for this number of epochs. The default
            of `monitor` is then "test_loss", or "loss" without `validation`.
        callbacks: see `train.Callback`, also for the order of their calls.
        checkpoint: a file to write after each epoch; see `train.Checkpoint` for more options. After Ctrl-C or SIGTERM,
            `fit` finishes the current step, writes the file, and returns; after SIGTERM, the process ends. A second
            signal of the same kind interrupts `fit` at once; without a checkpoint, the first one does.
        resume: True to continue from the file `checkpoint`, or the path of another file to continue from. Weights,
            moments, step number, sample order and log are restored. The training then gives the same bits as without an
            interruption, even if it was interrupted within an epoch.
        log: a file, .csv or .jsonl, with a line for each epoch.
        progress: whether to show a progress bar.
        prefetch: whether a thread prepares the next batch during a step, which keeps one more batch in memory. By
            default it does so for arrays and `train.Batches` if this is faster. With a GPU, `fit` never uses the
            thread: while the GPU computes, the main thread already prepares the next batch. For other data, pass True
            only if batches do not depend on the previous step, for example on weights. Batches may draw snncell's
            random numbers: `prefetch` does not change these numbers.
        distributed: train on all ranks of the job that `snncell.distributed.init()` joined. All ranks must call `fit`
            with the same arguments and all data. `fit` cuts each batch into shards. Gradients, the numbers in the
            records and BatchNorm's statistics are means over all samples, added in a fixed order, so any number of
            ranks gives the same bits. A single call of a loss or metric gets one shard, not the batch, so it can only
            compute means over this shard. Rank 0 writes files. If a rank stops, all stop.
        test: an older name of `validation`.
    Returns: A `Result`, with the history. Its `best` is the record of the final weights: those of the best epoch with
        `monitor` or `patience`, else of the last epoch.
    Raises:
        ArgumentError: for invalid settings, or data without a batch.
        TrainingError: if one of these conditions holds. If the data contain NaN, the message says where. The checkpoint
            of the previous epoch stays on disk.
            - The loss of an epoch is not finite.
            - The test loss of an epoch (or `monitor`) is NaN.
            - A trained Parameter is not finite. The loss can be finite then, because NaN potentials do not spike.
            - With a `DynamicLossScaler`: gradients are not finite at its smallest scale.
            - With a constant scale: no step of an epoch has finite gradients.
        CheckpointError: if the file to resume from is missing, or of another net, optimiser, loss, data or settings.
        RankError: with distributed, if no job was joined, or if ranks differ in net, data or settings, or have ended.
    If `validation` is arrays or a list of batches, and contains NaN, `fit` gives a RuntimeWarning at the beginning.
    Example:
        >>> x = ops.uniform((64, 2))
        >>> net, y = nn.Dense(2, 2), (x[:, 0] > x[:, 1]).astype("int64")
        >>> adam = nn.Adam(net.trainable_params(), 0.1)
        >>> snncell.train.fit(net, nn.CrossEntropyLoss(), adam, (x, y), 20, progress=False).best["accuracy"] > 0.9
        True
    """
    if test is not None:
        if validation is not None:
            raise ArgumentError("fit: test is another name of validation; give one of the two.")
        validation = test
    if resume is True and checkpoint is None:
        raise ArgumentError("fit: resume=True continues from the file of checkpoint; pass checkpoint, too.")
    if checkpoint is not None:
        path_to_write(checkpoint, "fit")  # fail now, not after an epoch
    check_optimiser(net, loss, optimiser, "fit")
    ranks: OneProcess = plugin("training on ranks")() if distributed else OneProcess()
    own, scaler = sort_callbacks(callbacks), finite.as_scaler(loss_scale, "fit")
    if monitor is not None and monitor.startswith("test_") and validation is None:
        raise ArgumentError(
            f"fit: monitor={monitor!r} is measured on validation data; give validation=(inputs, target) too."
        )
    if monitor is None and patience is not None:
        monitor = "loss" if validation is None else "test_loss"
    made: list[Callback] = [] if scaler is None else [finite.ScaledLoss(scaler, checkpoint)]
    made += [*own, Progress(progress and ranks.first)]
    made += [] if log is None else [Log(log)]
    made += [] if monitor is None else [EarlyStopping(patience, monitor)]
    made += [] if checkpoint is None else [checkpoints.Checkpoint(checkpoint)]
    batches = as_batches(data, batch_size, True, "fit: data")
    tests = as_batches(validation, batch_size, False, "fit: validation data")
    run = Run(Training(net, loss, optimiser, batches, tests, epochs), prefetch, ranks)
    run.checkpoint, run.test_every = checkpoint, _epochs_to_evaluate(test_every, log)
    with ranks.together(), Spikes(spiking_cells(firing_rate, "fit: firing_rate")) as spikes, phases(net, loss):
        spikes.refuse_inner(net)
        limits = {"clip_norm": clip_norm, "clip_value": clip_value}
        functions, monitored = name_metrics(metrics, "fit")
        if monitored and validation is None:
            raise ArgumentError(
                f"fit: the metric {min(monitored)!r} is measured on validation data; give validation=(inputs, target)."
            )
        with watch_metrics(net, monitored):  # fail now, not after an epoch
            pass
        run.compile(accuracy, functions, monitored, spikes if spikes.cells else None, limits, accumulate, scaler)
        return run(made, checkpoint if resume is True else resume or None, monitor)


def _epochs_to_evaluate(test_every: Any, log: Any) -> int | list[int]:
    """Check and return `test_every`: the number of epochs between evaluations, or a list of epochs."""
    several = isinstance(test_every, (list, tuple, set, frozenset))
    counts = [*test_every] if several else [test_every]
    if not counts or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in counts):
        raise ArgumentError(
            f"fit: test_every must be a number of epochs of at least 1, or a list of such numbers, not "
            f"{show(test_every)}."
        )
    if log is not None and test_every != 1 and os.fspath(log).endswith(".csv"):
        raise ArgumentError(
            "fit: test_every gives records with different columns, which do not fit a .csv; log into a .jsonl."
        )
    return sorted(counts) if several else counts[0]


def check_optimiser(net: Any, loss: Any, optimiser: Any, who: str) -> None:
    """Raise an ArgumentError for an invalid optimiser, or one that trains another network."""
    if isinstance(loss, Optimizer) and not isinstance(optimiser, Optimizer):
        raise ArgumentError(f"{who}: loss and optimiser are swapped: {who}(net, loss, optimiser, data, ...).")
    if not isinstance(net, Cell) or not isinstance(optimiser, Optimizer):
        raise ArgumentError(
            f"{who}: takes a Cell, a loss and an optimiser, such as nn.Adam(net.trainable_params()), not "
            f"{came(net)} and {came(optimiser)}."
        )
    refuse_foreign(optimiser, who, net, loss)


_PROBED = 4  # the number of batches to search for an infinite gradient
_PASS = "pass "  # prefix of a pass's arrays in a checkpoint


class Run:
    """One call of `fit`."""

    step: TrainStep
    test_step: Callable[..., dict[str, Tensor]]

    def __init__(self, training: Training, prefetch: bool | None, processes: OneProcess) -> None:
        if training.data is None:
            raise ArgumentError("fit: there are no data to train on. Pass a tuple (inputs, target), or batches.")
        self.training, self.prefetch, self.processes = training, prefetch, processes
        self.parts = (training.net, training.loss)
        self.callbacks: list[Callback] = []
        self.checkpoint: File | None = None  # named in errors
        self.pass_: DataPass | None = None  # the present epoch
        self.before: Values = []  # the weights at its beginning; empty if training was resumed within it
        self.test_every: Any = 1  # the number of epochs between evaluations, or a list of epochs
        training.batches = len(training.data) if hasattr(training.data, "__len__") else None
        training.writer = self.save

    def compile(
        self,
        accuracy: Any,
        metrics: dict[str, Any],
        monitored: dict[str, Monitored],
        spikes: Spikes | None,
        limits: dict[str, float | None],
        accumulate: int,
        scaler: LossScaler | None,
    ) -> None:
        """Make the jitted functions."""
        norm, value = limits["clip_norm"], limits["clip_value"]
        self.clipped, self.may_skip, self.monitored = norm is not None, scaler is not None, monitored
        self.requested = {
            "accuracy": accuracy and getattr(accuracy, "__qualname__", ""),
            "firing_rate": 0 if spikes is None else len(spikes.cells),
            "metrics": sorted([*metrics, *monitored]),
            **limits,
            "accumulate": accumulate,
            "loss_scale": None if scaler is None else describe_cell(scaler)[""],
            **self.processes.settings(),
        }
        optimiser, measured = self.training.optimiser, (*self.parts, accuracy, spikes, metrics)
        scaling = None if scaler is None else finite.Scaling(scaler, *self.parts, optimiser)
        clip = clip_by_both(norm, value)
        self.step = self.processes.step(self.parts, measure(*measured), optimiser, clip, scaling, accumulate)
        self.test_step = measure_with_loss(*measured)

    def __call__(self, callbacks: list[Callback], resume: File | None, monitor: str | None) -> Result:
        """Train to the last epoch, or until a callback or a signal stops the training."""
        begun = time.perf_counter()
        training, self.callbacks, self.monitor = self.training, sort_callbacks(callbacks), monitor
        if resume is not None:
            self.resume_from(resume)
        # A resume may change these, but they must be equal on all ranks.
        epochs, done = training.epochs, len(training.history)
        called = {"epochs": epochs, "epochs that are done": done, "test_every": self.test_every}
        self.processes.refuse(self.parts, training.optimiser, lambda: {**self.settings, "call": called})
        if self.processes.first:
            finite.warn_of_nan(training.test)
        with nullcontext() if self.checkpoint is None else note_signals(training.stop):
            try:
                self.tell("on_fit_begin")
                while len(training.history) < training.epochs and not self.stopped():
                    self.epoch()
            except BaseException as error:
                for callback in reversed(self.active_callbacks()):
                    callback.on_error(training, error)
                raise
            training.result.best = training.history[-1] if training.history else {}
            self.tell("on_fit_end", reverse=True)
            self.stopped()  # wait for all ranks, so that files written by one exist for the others
        training.result.seconds = time.perf_counter() - begun
        return training.result

    def tell(self, name: str, reverse: bool = False) -> None:
        """Call a method of each callback that runs on this process."""
        for callback in self.active_callbacks()[:: -1 if reverse else 1]:
            with self.processes.apart(callback.first_rank_only):
                getattr(callback, name)(self.training)
            for key, value in self.training.record.items():  # check before it goes into a log or a checkpoint
                if not isinstance(value, (int, float, list)):
                    raise ArgumentError(
                        f"fit: a record contains numbers, but the callback {type(callback).__name__} has put a "
                        f"{type(value).__name__} at {key!r} into it. Convert it by float(x) or x.tolist()."
                    )

    def active_callbacks(self) -> list[Callback]:
        """The callbacks that run on this process."""
        return [callback for callback in self.callbacks if self.processes.first or not callback.first_rank_only]

    def stopped(self) -> bool:
        """True if the training was stopped on any process; all processes must call this together."""
        if not self.processes.any(bool(self.training.stopped)):
            return False
        self.training.stop("stopped on another rank")
        return True

    # --- an epoch -----------------------------------------------------------------------------------------------------

    def epoch(self) -> None:
        """Run one epoch: train on the data, evaluate on the validation data, append the record."""
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
        averages = self.pass_.measurements.means("fit: data")
        finite.refuse_epoch(training, averages["loss"], self.clipped, self.checkpoint, self.cause)
        self.pass_, training.batch = None, 0
        optimiser = training.optimiser
        rates = {f"learning_rate_{n}" if n else "learning_rate": float(x) for n, x in enumerate(optimiser.rates())}
        training.record = {"epoch": training.epoch, "step": training.step, **rates, **averages}
        every = self.test_every
        due = training.epoch in every if isinstance(every, list) else not training.epoch % every
        if training.test is not None and due:
            self.evaluate()
        training.history.append(training.record)
        self.tell("on_epoch_end")

    def before_batch(self, batch: Any) -> None:
        """Check the axes of the first batch of the training, and call `on_step_begin`."""
        if not self.training.history and not self.training.begun:
            refuse_swapped_axes(self.training.net, self.training.data, batch)
        self.training.begun += 1
        self.training.present = batch
        if self.may_skip:
            self.training.step_before = self.training.optimiser.global_step.value()
        self.tell("on_step_begin")

    def after_batch(self, numbers: dict[str, Tensor]) -> bool:
        """Call `on_step_end`; returns whether to leave the epoch; this is possible only between optimiser steps."""
        training = self.training
        assert self.pass_ is not None
        training.batch, training.measured, training.due = self.pass_.batch, numbers, self.step.updated
        self.tell("on_step_end")
        return self.step.updated and self.stopped()

    def evaluate(self) -> None:
        """Evaluate on the validation data, and add the numbers to the record."""
        training = self.training
        training.evaluating, training.evaluated = True, 0
        self.tell("on_evaluation_begin")
        of_training = training.measured
        own = self.parts, self.test_step, training.test, self.prefetch, self.monitored, self.processes
        tell = partial(tell_callbacks, training=training, callbacks=self.active_callbacks())
        tested = measure_means("fit: validation data", *own, tell)
        training.measured = of_training
        finite.refuse_test_loss(training, tested["loss"], self.checkpoint)
        training.record |= {f"test_{name}": x for name, x in tested.items()}
        self.tell("on_evaluation_end")
        training.evaluating = False

    def cause(self) -> str:
        """Search the first batches for an infinite gradient, with the weights from before the epoch."""
        training = self.training
        trained = training.optimiser.trainable_params()
        if not self.before or not trained:
            return ""
        # Each rank checks whole batches, so that all get the same result without communication.
        with count_batches(training.data, "fit: data", OneProcess(), False) as batches:
            some = (batch for _, batch in islice(batches, _PROBED))
            return finite.infinite_gradient(training.net, training.loss, trained, self.before, training.epoch, some)

    # --- checkpoints --------------------------------------------------------------------------------------------------

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The settings, apart from net and optimiser, that a resume must not change. This hashes all the data."""
        training = self.training
        loss = "" if isinstance(training.loss, Cell) else getattr(training.loss, "__qualname__", "")
        settings = {"loss": loss, "monitor": self.monitor, **self.requested}
        describe = checkpoints.describe_data
        return {"data": describe(training.data), "test data": describe(training.test), "setting": settings}

    def save(self, file: File) -> None:
        """Save the training to a file; only the first process does."""
        if not self.processes.first:
            return
        training = self.training
        under_way = self.pass_ if self.pass_ is not None and self.pass_.key is not None else None  # a started epoch
        if under_way is not None and not self.step.updated:
            raise CheckpointError(
                "fit: a checkpoint is written between two steps of the optimiser, but gradients are being accumulated; "
                "save only when training.updated is true."
            )
        kept, arrays = checkpoints.note_callbacks(self.callbacks)
        notes = {**self.settings, "history": training.history, "callbacks": kept}
        given = None if under_way is None else under_way.given
        notes |= checkpoints.note_positions(training.data, training.test, given)
        if under_way is not None:
            notes["pass"] = under_way.notes()
            arrays |= {_PASS + name: value for name, value in under_way.arrays().items()}
        save_state(file, training.net, training.optimiser, notes, arrays, training.loss)

    def resume_from(self, file: File) -> None:
        """Resume from a checkpoint."""
        training, who = self.training, f"fit: {os.fspath(file)}"
        if not os.path.exists(file):
            raise CheckpointError(
                f"fit: resume: there is no file {os.fspath(file)}; resume=Path(file).exists() resumes only if the file "
                f"exists."
            )
        # Check the whole file before using any of it, so that a file that does not fit changes nothing.
        stored = read_state(file, training.net, training.optimiser, self.settings, training.loss)
        checkpoints.refuse_notes(stored, who)
        training.result.history = stored.notes["history"]
        training.epoch = len(training.history)
        checkpoints.resume_callbacks(self.callbacks, training, stored, who)
        training.earlier = training.epoch * (training.batches or 0)
        if "pass" in stored.notes:
            self.pass_ = DataPass(self.parts, training.data, self.processes)
            own = {name.removeprefix(_PASS): x for name, x in stored.arrays.items() if name.startswith(_PASS)}
            self.pass_.take(stored.notes["pass"], own, who)
            training.epoch, training.batch = training.epoch + 1, self.pass_.batch
            training.begun = training.batch
        checkpoints.restore_positions(training.data, training.test, stored.notes, who)
        stored.load()


# --- interruptions ----------------------------------------------------------------------------------------------------

_USUAL: dict[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}


@contextmanager
def note_signals(stop: Callable[[str], None]) -> Iterator[None]:
    """Context manager: Ctrl-C and SIGTERM call `stop`, so that the training ends after its present step.

    SIGTERM, by which schedulers end a job, is raised again afterwards. A second signal of the same kind takes effect at
    once. The user's handlers stay in place. On other threads this does nothing, because only the main one gets signals.
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
