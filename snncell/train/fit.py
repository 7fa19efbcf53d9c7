"""The whole training: epochs, evaluation, progress, early stopping, checkpoints, a log."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any

from snncell.arguments.kinds import Count, Own, Positive, Size
from snncell.arguments.shown import came
from snncell.cell import Cell
from snncell.errors import ArgumentError
from snncell.io.checkpoint import path_to_write
from snncell.nn.optim import Optimizer
from snncell.tape.tensor import Tensor
from snncell.train.bar import Bar
from snncell.train.clipping import clip_by_global_norm, clip_by_value
from snncell.train.evaluation import Means, batches_of, means, measured, phases
from snncell.train.finite import refuse_loss, refuse_test_loss, refuse_weights, warn_of_nan
from snncell.train.log import Log
from snncell.train.pieces import Spikes, cells_of, training_step
from snncell.train.resume import places, refuse_notes, take_places, told
from snncell.train.scores import accuracy as share_right
from snncell.train.state import File, read_state, save_state
from snncell.train.stopping import EarlyStopping

Record = dict[str, Any]


@dataclass
class Result:
    """The result of `fit`.

    history: a record for each epoch: "epoch", "step", "learning_rate" (of the next step; of further groups of the
        optimiser "learning_rate_1", ...), "loss", then as asked for "accuracy", "firing_rate", and the same with
        "test_" before them.
    best: the record whose weights the net has in the end: the best one with `patience`, else the last.
    stopped_early: whether patience ended it.
    seconds: what this call took.
    """

    history: list[Record] = field(default_factory=list)
    best: Record = field(default_factory=dict)
    stopped_early: bool = False
    seconds: float = 0.0


def fit(
    net: Cell,
    loss: Callable[..., Tensor],
    optimiser: Annotated[Optimizer, Own()],
    data: Any,
    epochs: Size,
    *,
    test: Any = None,
    batch_size: Count = 64,
    accuracy: Callable[..., Tensor] | None = share_right,
    firing_rate: Annotated[Cell | Iterable[Cell], Own()] = (),
    clip_norm: Positive | None = None,
    clip_value: Positive | None = None,
    patience: Count | None = None,
    monitor: str | None = None,
    checkpoint: File | None = None,
    resume: bool = False,
    log: File | None = None,
    progress: bool = True,
    prefetch: bool | None = None,
) -> Result:
    """Train a network: jitted steps over all data, epoch after epoch.

    Args:
        net: called with the inputs of a batch; it is compiled, so an encoder in it does not see whether its input is in
            range: look at the data before, or encode them once without it. Its Cells are in training for the steps, in
            prediction for `test`, and afterwards as they were. Each `Stateful` in it is reset before the data are gone
            through. The input that its construct calls `lengths`, of padded sequences, is given to loss and accuracy
            too, if they take `lengths`.
        loss: a function (or Cell, in training and in prediction as the net is) of what `net` gives and the target: a
            number.
        optimiser: made from the Parameters to train; its learning rate may be a schedule, which counts steps.
        data: a tuple of arrays (inputs, ..., target) with one entry for each sample, which are shuffled; or anything
            that can be gone through again and again and gives such tuples, a batch each (`data.Loader`,
            `train.Batches`, PyTorch's DataLoader). Arrays are whatever `Tensor` takes; in batches also tuples, lists
            and dicts of them. Whoever makes batches draws their order from snncell's random numbers (`ops.randperm`),
            so that a resume finds the same; of such data it compares the class and the number of batches alone.
        epochs: how many in all, those of a training that is resumed included.
        test: other data, on which it is evaluated after each epoch.
        batch_size: of arrays.
        accuracy: a function of what `net` gives and the target whose mean is shown as accuracy; None for none.
        firing_rate: Cells whose output is spikes (`MultiStep`, not the neuron inside): the share of elements that are
            not 0 is shown, without the steps behind `lengths`. Without any it costs nothing.
        clip_norm, clip_value: limits of the gradients, see `clip_by_value`, and after it `clip_by_global_norm`.
        patience: stop when `monitor` has not become better for so many epochs; the best weights are put back.
        monitor: a number of the records; by default "test_loss", or without `test` "loss".
        checkpoint: a file that is written, whole, after each epoch.
        resume: go on from that file. It continues to the bit: weights, moments, step, order of the samples, log.
        log: a file, .csv or .jsonl, with a line for each epoch.
        progress: whether a bar is shown.
        prefetch: whether a thread makes the next batch of `data` and `test` while a step runs: one ahead, so that one
            more is in memory. By default it does for arrays and `train.Batches`, where that pays; True says that other
            data too depend on nothing that a step changes (weights, an optimiser's step, a monitor). They are gone
            through on that thread from beginning to end, and what they raise comes out of `fit`. Random numbers of
            snncell's are those drawn without it, to the bit: where data draw some, they wait for the step. Without a
            GPU alone, whose steps run beside the host anyway.

    Returns:
        A `Result`, with the history.

    Raises:
        ArgumentError: for settings that make no sense, or data without a batch.
        TrainingError: if the loss of an epoch is not finite, its test loss (or what `monitor` names) is NaN, or after
            it a Parameter that is trained is not finite, which is named: a spike of NaN is 0, so the loss need not
            tell. It says where the data hold NaN. The checkpoint of the epoch before stays.

        CheckpointError: for a resume from a file that is not there, or was written with another net, optimiser or loss,
            other data or other settings, naming what differs.

    Arrays and lists of batches in `test` that hold NaN are warned of at the beginning (RuntimeWarning).

    Example:
        >>> x = ops.uniform((64, 2))
        >>> net, y = nn.Dense(2, 2), (x[:, 0] > x[:, 1]).astype("int64")
        >>> adam = nn.Adam(net.trainable_params(), 0.1)
        >>> snncell.train.fit(net, nn.CrossEntropyLoss(), adam, (x, y), 20, progress=False).best["accuracy"] > 0.9
        True
    """
    if isinstance(epochs, bool) or not isinstance(epochs, int) or epochs < 0:
        raise ArgumentError(f"fit: epochs is a number of epochs, not {epochs!r}.")
    if resume and checkpoint is None:
        raise ArgumentError("fit: resume=True goes on from the file that checkpoint names; give checkpoint too.")
    if checkpoint is not None:
        path_to_write(checkpoint, "fit")  # said now, not after an epoch
    _fit_together(net, loss, optimiser)
    run = _Run(
        net,
        loss,
        optimiser,
        batches_of(data, batch_size, True, "fit: data"),
        batches_of(test, batch_size, False, "fit: test"),
    )
    run.stop_by(patience, monitor)
    run.limits = {"clip_norm": clip_norm, "clip_value": clip_value}
    run.checkpoint, run.prefetch = checkpoint, prefetch
    with Spikes(cells_of(firing_rate, "fit: firing_rate")) as spikes, phases(net, loss):
        spikes.refuse_inner(net)
        run.compile(accuracy, spikes if spikes.cells else None)
        return run(epochs, resume, log, progress)


def _fit_together(net: Any, loss: Any, optimiser: Any) -> None:
    """Raise an ArgumentError for an optimiser that is none, or that trains something else."""
    if isinstance(loss, Optimizer) and not isinstance(optimiser, Optimizer):
        raise ArgumentError("fit: loss and optimiser are swapped: fit(net, loss, optimiser, data, epochs).")
    if not isinstance(net, Cell) or not isinstance(optimiser, Optimizer):
        raise ArgumentError(
            f"fit: takes a Cell, a loss and an optimiser, such as nn.Adam(net.trainable_params()), not "
            f"{came(net)} and {came(optimiser)}."
        )
    known = {id(p) for cell in (net, loss) if isinstance(cell, Cell) for p in cell.get_parameters()}
    for parameter in optimiser.parameters:
        if id(parameter) not in known:
            raise ArgumentError(
                f"fit: the optimiser trains Parameter {parameter.name!r} of shape {parameter.shape}, which is not in "
                f"the {type(net).__name__}. Make the optimiser from this one: net.trainable_params()."
            )


class _Run:
    """One call of `fit`."""

    limits: dict[str, Any]
    checkpoint: File | None
    prefetch: bool | None
    step: Callable[..., dict[str, Tensor]]
    test_step: Callable[..., dict[str, Tensor]]

    def __init__(self, net: Cell, loss: Any, optimiser: Optimizer, data: Any, test: Any) -> None:
        if data is None:
            raise ArgumentError("fit: there are no data to train on.")
        self.net, self.loss, self.optimiser, self.data, self.test = net, loss, optimiser, data, test
        self.result = Result()

    def stop_by(self, patience: int | None, monitor: str | None) -> None:
        """Set what ends the training early."""
        if monitor is not None and patience is None:
            raise ArgumentError(f"fit: monitor={monitor!r} is what patience looks at; give patience too.")
        if monitor is not None and monitor.startswith("test_") and self.test is None:
            raise ArgumentError(f"fit: monitor={monitor!r} is measured on test data; give test=(inputs, target) too.")
        monitor = monitor or ("loss" if self.test is None else "test_loss")
        self.stopping = None if patience is None else EarlyStopping(patience, monitor)

    def compile(self, accuracy: Any, spikes: Spikes | None) -> None:
        """Make the jitted functions."""
        norm, value = self.limits["clip_norm"], self.limits["clip_value"]
        self.asked = {
            "accuracy": accuracy and getattr(accuracy, "__qualname__", ""),
            "firing_rate": 0 if spikes is None else len(spikes.cells),
        }

        def clip(gradients: Any) -> Any:
            limited = gradients if value is None else clip_by_value(gradients, value)
            return limited if norm is None else clip_by_global_norm(limited, norm)

        self.step = training_step(self.net, self.loss, self.optimiser, clip, accuracy, spikes)
        self.test_step = measured(self.net, self.loss, accuracy, spikes)

    def settings(self) -> dict[str, Any]:
        """The settings that a resume must find as they were, beside net and optimiser."""
        loss = "" if isinstance(self.loss, Cell) else getattr(self.loss, "__qualname__", "")
        monitor = self.stopping and self.stopping.monitor
        settings = {"loss": loss, "monitor": monitor, **self.asked, **self.limits}
        return {"data": told(self.data), "test data": told(self.test), "setting": settings}

    def __call__(self, epochs: Size, resume: bool, log: File | None, progress: bool) -> Result:
        begun = time.perf_counter()
        # Once, for it hashes all the data.
        self.notes = {} if self.checkpoint is None else self.settings()
        if resume:
            self.take_up()
        lines = None if log is None else Log(log, self.result.history)
        warn_of_nan(self.test)
        done = len(self.result.history)
        steps = len(self.data) if hasattr(self.data, "__len__") else None
        total = None if steps is None else epochs * steps
        with Bar(total, done * (steps or 0), progress) as bar:
            while len(self.result.history) < epochs and not (self.stopping and self.stopping.stopped):
                record = self.epoch(bar)
                if lines is not None:
                    lines.add(record)
                self.save()
        self.finish()
        self.result.seconds = time.perf_counter() - begun
        return self.result

    def epoch(self, bar: Bar) -> Record:
        """One time through the data, and through the test data."""
        number = len(self.result.history) + 1
        shown = 0.0

        def seen(batch: dict[str, Tensor]) -> None:
            nonlocal shown
            # Some times a second: to read a number, a step that a card is still busy with must be waited for.
            if bar.shown and time.perf_counter() - shown > 0.2:
                bar.show(_shown(number, {name: float(x) for name, x in batch.items()}))
                shown = time.perf_counter()
            bar.step()

        parts = (self.net, self.loss)
        averages = means("fit: data", parts, self.step, self.data, self.prefetch, True, seen)
        refuse_loss(averages["loss"], number, self.limits["clip_norm"] is not None, self.data, self.checkpoint)
        refuse_weights(self.net, self.loss, self.optimiser.parameters, number, self.data, self.checkpoint)
        if self.test is not None:
            tested = means("fit: test", parts, self.test_step, self.test, self.prefetch)
            averages |= {f"test_{name}": x for name, x in tested.items()}
            refuse_test_loss(averages["test_loss"], number, self.test, self.checkpoint)
        rates = {f"learning_rate_{n}" if n else "learning_rate": float(x) for n, x in enumerate(self.optimiser.rates())}
        record = {"epoch": number, "step": int(self.optimiser.global_step.item()), **rates, **averages}
        self.result.history.append(record)
        if self.stopping is not None:
            self.stopping.update(record, self.net, self.loss)
        bar.show(_shown(number, averages), refresh=True)
        return record

    def save(self) -> None:
        """Write the checkpoint."""
        if self.checkpoint is not None:
            notes = {**self.notes, **places(self.data, self.test), "history": self.result.history}
            notes["stopping"] = self.stopping and self.stopping.notes()
            weights = self.stopping.weights if self.stopping else {}
            save_state(self.checkpoint, self.net, self.optimiser, notes, weights, self.loss)

    def take_up(self) -> None:
        """Go on from the checkpoint."""
        assert self.checkpoint is not None
        # All of the file is looked at before any of it is taken: one that does not fit changes nothing.
        stored = read_state(self.checkpoint, self.net, self.optimiser, self.notes, self.loss)
        who = f"fit: {os.fspath(self.checkpoint)}"
        refuse_notes(stored, self.stopping is not None, self.net, self.loss, who)
        take_places(self.data, self.test, stored.notes, who)
        stored.load()
        self.result.history = stored.notes["history"]
        if self.stopping is not None:
            self.stopping.take(stored.notes["stopping"], stored.arrays)

    def finish(self) -> None:
        """Put the best weights back, if they are kept."""
        history = self.result.history
        self.result.best = history[-1] if history else {}
        if self.stopping is not None and self.stopping.weights:
            self.stopping.restore(self.net, self.loss)
            self.result.best = history[self.stopping.best_epoch - 1]
            self.result.stopped_early = self.stopping.stopped


def _shown(epoch: int, averages: Means) -> dict[str, Any]:
    return {"epoch": epoch, **{name: f"{x:.4f}" for name, x in averages.items()}}
