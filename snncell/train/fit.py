"""`fit`: checks its arguments, and makes a run and its callbacks of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any

from snncell.amp import LossScaler
from snncell.base.arguments.kinds import Count, Own, Positive, Size
from snncell.base.arguments.shown import came, show
from snncell.cell.cell import Cell
from snncell.cell.modes import phases
from snncell.errors import ArgumentError
from snncell.io import path_to_write
from snncell.nn.optim.optimizer import Optimizer
from snncell.tape.tensor import Tensor
from snncell.train.batches import as_batches
from snncell.train.callbacks import Callback, Result, Training, sort_callbacks
from snncell.train.checkpoints import Checkpoint
from snncell.train.log import Log, Progress
from snncell.train.loss_scale import ScaledLoss, as_scaler
from snncell.train.measures import Spikes, spiking_cells
from snncell.train.metrics import accuracy as share_right, name_metrics, watch_metrics
from snncell.train.run import Run
from snncell.train.state import File
from snncell.train.steps import choose_processes
from snncell.train.stopping import EarlyStopping

__all__ = ["fit"]


def fit(
    net: Cell,
    loss: Callable[..., Tensor],
    optimiser: Annotated[Optimizer, Own()],
    data: Any,
    epochs: Size,
    *,
    test: Any = None,
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
        test_every: evaluate after every so many epochs instead; or after those of a list of numbers of epochs.
        batch_size: of arrays.
        accuracy: a function of what `net` gives and the target whose mean is shown as accuracy; None for none.
        metrics: more of them: a list of names ("top5", "confusion", ...; see `train.metric`) and functions, which are
            shown by their names, or a dict of either by the name to show. "spikes", "synops", "energy" and other
            `Monitored` are measured on `test` alone.
        firing_rate: Cells whose output is spikes (`MultiStep`, not the neuron inside): the share of elements that are
            not 0 is shown, without the steps behind `lengths`. Without any it costs nothing.
        accumulate: the optimiser takes a step for so many batches, by the mean of their gradients over all samples, and
            at the end of an epoch one for those that are left: for batches that do not fit into memory at once.
        clip_norm, clip_value: limits of the gradients, see `clip_by_value`, and after it `clip_by_global_norm`.
        loss_scale: an `amp.DynamicLossScaler`, for gradients of float16 that would vanish; or a number, for a scale
            that does not change. A step whose gradients are not all finite is not taken, see `training_step`. Records
            then have "loss_scale", of the next step, and "skipped", the number of such steps in the epoch.
        monitor: a number of the records; in the end the net gets the weights of the epoch in which it was best.
        patience: stop when `monitor` has not become better for so many epochs; without one, of "test_loss", or without
            `test` of "loss".
        callbacks: are told of the training, in this order: see `train.Callback`.
        checkpoint: a file that is written, whole, after each epoch; for more see `train.Checkpoint`. With one, Ctrl-C
            ends the training after the step, writes the file and returns, and so does SIGTERM, which goes on then; a
            second one acts at once. Without, Ctrl-C raises KeyboardInterrupt as ever.
        resume: go on from that file, or from another one that is given. It continues to the bit, within an epoch too:
            weights, moments, step, order of the samples, log.
        log: a file, .csv or .jsonl, with a line for each epoch.
        progress: whether a bar is shown.
        prefetch: whether a thread makes the next batch of `data` and `test` while a step runs: one ahead, so that one
            more is in memory. By default it does for arrays and `train.Batches`, where that pays; True says that other
            data too depend on nothing that a step changes (weights, an optimiser's step, a monitor). They are gone
            through on that thread from beginning to end, and what they raise comes out of `fit`. Random numbers of
            snncell's are those drawn without it, to the bit: where data draw some, they wait for the step. Without a
            GPU alone, whose steps run beside the host anyway.
        distributed: train on all ranks of the job that `snncell.distributed.init()` has joined, which all call this in
            the same way, with all of the data. Each batch is cut into shards, of which each rank computes its own;
            gradients, numbers and BatchNorm's statistics are means over the samples of all of them, in one order, so
            that the same bits come out on any number of ranks. A mean that loss or a metric takes is one of a shard.
            Rank 0 writes checkpoint, log and bar; a stop, and an interruption, of one rank ends the training on all.

    Returns:
        A `Result`, with the history.

    Raises:
        ArgumentError: for settings that make no sense, or data without a batch.
        TrainingError: if the loss of an epoch is not finite, its test loss (or what `monitor` names) is NaN, or after
            it a Parameter that is trained is not finite, which is named: a spike of NaN is 0, so the loss need not
            tell. With loss_scale also if a step with the smallest scale there is, or every step of an epoch with the
            same one, has gradients that are not finite. It says where the data hold NaN. The checkpoint of the epoch
            before stays.

        CheckpointError: for a resume from a file that is not there, or was written with another net, optimiser or loss,
            other data or other settings, naming what differs.
        RankError: with distributed, if no job was joined, if ranks call it with other nets, data or settings, or if one
            has ended.

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
    if resume is True and checkpoint is None:
        raise ArgumentError("fit: resume=True goes on from the file that checkpoint names; give checkpoint too.")
    if checkpoint is not None:
        path_to_write(checkpoint, "fit")  # said now, not after an epoch
    check_optimiser(net, loss, optimiser, "fit")
    ranks = choose_processes(distributed)
    own, monitor, scaler = sort_callbacks(callbacks), _monitor(monitor, patience, test), as_scaler(loss_scale, "fit")
    made = [
        *([] if scaler is None else [ScaledLoss(scaler, checkpoint)]),
        *own,
        Progress(progress and ranks.first),
        *([] if log is None else [Log(log)]),
    ]
    made += [] if monitor is None else [EarlyStopping(patience, monitor)]
    made += [] if checkpoint is None else [Checkpoint(checkpoint)]
    batches = as_batches(data, batch_size, True, "fit: data"), as_batches(test, batch_size, False, "fit: test")
    run = Run(Training(net, loss, optimiser, *batches, epochs), prefetch, ranks)
    run.checkpoint, run.test_every = checkpoint, _epochs_to_evaluate(test_every, log)
    with ranks.together(), Spikes(spiking_cells(firing_rate, "fit: firing_rate")) as spikes, phases(net, loss):
        spikes.refuse_inner(net)
        limits = {"clip_norm": clip_norm, "clip_value": clip_value}
        functions, heard = name_metrics(metrics, "fit")
        if heard and test is None:
            raise ArgumentError(f"fit: the metric {min(heard)!r} is measured on test data; give test=(inputs, target).")
        with watch_metrics(net, heard):  # what cannot be watched is said now, not after an epoch
            pass
        run.compile(accuracy, functions, heard, spikes if spikes.cells else None, limits, accumulate, scaler)
        return run(made, checkpoint if resume is True else resume or None, monitor)


def _monitor(monitor: str | None, patience: int | None, test: Any) -> str | None:
    """The number that tells which weights are the best, if they are to be kept."""
    if monitor is not None and monitor.startswith("test_") and test is None:
        raise ArgumentError(f"fit: monitor={monitor!r} is measured on test data; give test=(inputs, target) too.")
    if monitor is None and patience is not None:
        return "loss" if test is None else "test_loss"
    return monitor


def _epochs_to_evaluate(test_every: Any, log: Any) -> int | list[int]:
    """The number of epochs to the next evaluation, or the list of those with one after them."""
    several = isinstance(test_every, (list, tuple, set, frozenset))
    counts = [*test_every] if several else [test_every]
    if not counts or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in counts):
        raise ArgumentError(
            f"fit: test_every is a number of epochs of at least 1, or a list of such numbers, not {show(test_every)}."
        )
    if log is not None and test_every != 1 and os.fspath(log).endswith(".csv"):
        raise ArgumentError(
            "fit: with test_every records differ, and a .csv has one set of columns; log into a .jsonl."
        )
    return sorted(counts) if several else counts[0]


def check_optimiser(net: Any, loss: Any, optimiser: Any, who: str) -> None:
    """Raise an ArgumentError for an optimiser that is none, or that trains something else."""
    if isinstance(loss, Optimizer) and not isinstance(optimiser, Optimizer):
        raise ArgumentError(f"{who}: loss and optimiser are swapped: {who}(net, loss, optimiser, data, ...).")
    if not isinstance(net, Cell) or not isinstance(optimiser, Optimizer):
        raise ArgumentError(
            f"{who}: takes a Cell, a loss and an optimiser, such as nn.Adam(net.trainable_params()), not "
            f"{came(net)} and {came(optimiser)}."
        )
    known = {id(p) for cell in (net, loss) if isinstance(cell, Cell) for p in cell.get_parameters()}
    for parameter in optimiser.parameters:
        if id(parameter) not in known:
            raise ArgumentError(
                f"{who}: the optimiser trains Parameter {parameter.name!r} of shape {parameter.shape}, which is not in "
                f"the {type(net).__name__}. Make the optimiser from this one: net.trainable_params()."
            )
