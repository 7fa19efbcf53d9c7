"""MindSpore's callbacks: print losses and times, record a history, call functions, save numbered checkpoints."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, ClassVar

from snncell.base.arguments.kinds import Count, NotNegative, Own, Size, misfit
from snncell.base.arguments.names import suggest_name
from snncell.base.arguments.shown import ROWS, came, titled_table
from snncell.cell.cell import Cell
from snncell.errors import ArgumentError, CheckpointError, MissingNameError, RecordError, TrainingError
from snncell.io import save_checkpoint
from snncell.train.callbacks import Callback

__all__ = [
    "CheckpointConfig", "History", "LambdaCallback", "LossMonitor", "ModelCheckpoint", "RunContext",
    "RunParameters", "TimeMonitor",
]  # fmt: skip


# --- the argument of callbacks' methods -------------------------------------------------------------------------------


class RunParameters:
    """The parts and the position of a run, by MindSpore's names: `RunContext.original_args()`.

    A callback may set further attributes, which stay for the run.

    Attributes:
        network, train_network: the network that is trained.
        optimizer, loss_fn, train_dataset, valid_dataset: the other parts.
        metrics: the metrics of a `Model`, by name, or None.
        list_callback: the callbacks.
        initial_epoch: the number of epochs before this run; the other counts include them.
        mode: "train", or "eval" during an evaluation.
        epoch_num, cur_epoch_num: the total number of epochs, and the number of the current one, from 1.
        batch_num: the number of batches of an epoch, or if unknown, the number so far.
        cur_step_num: the number of the current batch, from 1, over all epochs, or over an evaluation.
        batch: the current batch of an evaluation: inputs, then the target.
        net_outputs: the loss of the last batch, a Tensor.
        eval_results: the results of the last evaluation, by name; {} before the first one.
    """

    def __init__(self, training: Any) -> None:
        self._training = training
        self.network: Any = training.net
        self.optimizer: Any = training.optimiser
        self.loss_fn: Any = training.loss
        self.train_dataset, self.valid_dataset = training.data, training.test
        self.metrics: Any = None
        self.list_callback: Any = []
        self.initial_epoch = 0
        self.dataset_sink_mode, self.parallel_mode, self.device_number = False, "stand_alone", 1

    def __getattr__(self, name: str) -> Any:
        if name in _POSITION:
            return _POSITION[name](self, self._training)
        raise MissingNameError(f"RunContext.original_args() has no {name!r}{suggest_name(name, {}, self.keys(), '')}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _POSITION:
            raise MissingNameError(f"RunContext.original_args(): {name} can only be read.")
        super().__setattr__(name, value)

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise RecordError(f"original_args: has no {name!r}.")
        return getattr(self, name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and hasattr(self, name)

    def keys(self) -> list[str]:
        """The names of its attributes."""
        return sorted(name for name in {*_POSITION, *vars(self)} if not name.startswith("_"))

    def items(self) -> list[tuple[str, Any]]:
        """Its attributes by name."""
        return [(name, getattr(self, name)) for name in self.keys()]

    def get(self, name: str, default: Any = None) -> Any:
        """One of its attributes by name, or a default."""
        return getattr(self, name, default)


def _evaluation(record: dict[str, Any]) -> dict[str, Any]:
    """The results of the evaluation after an epoch; {} if there was none."""
    return {name.removeprefix("test_"): x for name, x in record.items() if name.startswith("test_")}


_POSITION: dict[str, Callable[[RunParameters, Any], Any]] = {  # attributes that are computed when they are read
    "train_network": lambda args, _: args.network,
    "mode": lambda _, run: "eval" if run.evaluating else "train",
    "epoch_num": lambda args, run: int(run.epochs) + args.initial_epoch,
    "cur_epoch_num": lambda args, run: int(run.epoch) + args.initial_epoch,
    "batch_num": lambda _, run: int(run.batches or run.begun),
    "cur_step_num": lambda _, run: int(run.evaluated if run.evaluating else run.earlier + run.begun),
    "batch": lambda _, run: run.of_evaluation,
    "net_outputs": lambda _, run: run.measured.get("loss"),
    "eval_results": lambda _, run: next(filter(None, map(_evaluation, [run.record, *reversed(run.history)])), {}),
}


class RunContext:
    """The argument of MindSpore's callbacks: the parts and position of a run, and a method to stop it.

    Example:
        >>> class StopAtStep(snncell.train.Callback):
        ...     def on_train_step_end(self, run_context):
        ...         if run_context.original_args().cur_step_num == 3:
        ...             run_context.request_stop()
        >>> net = nn.Dense(2, 1)
        >>> model = snncell.train.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.1))
        >>> model.train(9, [(ops.ones((8, 2)), ops.zeros((8, 1)))], StopAtStep()).history[-1]["epoch"]
        2
    """

    def __init__(self, training: Any) -> None:
        self._training = training
        self._parameters = RunParameters(training)

    def original_args(self) -> RunParameters:
        """The parts and the position of the run."""
        return self._parameters

    def request_stop(self) -> None:
        """End the training after the current step."""
        self._training.stop("stopped by a callback")

    def get_stop_requested(self) -> bool:
        """True after `request_stop`."""
        return bool(self._training.stopped)


# --- callbacks --------------------------------------------------------------------------------------------------------


class LossMonitor(Callback):
    """Print the loss of batches, "epoch: 1 step: 32, loss is 0.51", and the results of each evaluation.

    Args:
        per_print_times: the number of batches between prints; 0 for no prints. Each print waits for its batch.
    Raises: TrainingError for a loss that is not finite.
    Example:
        >>> net = nn.Dense(1, 1, weight_init="zeros", bias_init="zeros")
        >>> model = snncell.train.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.25))
        >>> _ = model.train(2, [(ops.ones((4, 1)), ops.ones((4, 1)))], snncell.train.LossMonitor())
        epoch: 1 step: 1, loss is 1.0
        epoch: 2 step: 1, loss is 0.0
    """

    def __init__(self, per_print_times: Size = 1) -> None:
        self.per_print_times, self.last = per_print_times, 0

    def on_train_begin(self, run_context: RunContext) -> None:
        self.last = 0

    def on_train_step_end(self, run_context: RunContext) -> None:
        args = run_context.original_args()
        step = args.cur_step_num
        if not self.per_print_times or step - self.last < self.per_print_times:
            return
        self.last, number = step, (step - 1) % max(args.batch_num, 1) + 1
        loss = float(args.net_outputs.item())
        if not math.isfinite(loss):
            raise TrainingError(f"LossMonitor: in epoch {args.cur_epoch_num}, step {number} the loss is {loss}.")
        print(f"epoch: {args.cur_epoch_num} step: {number}, loss is {loss}", flush=True)

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        args = run_context.original_args()
        results = _evaluation(run_context._training.record)
        if results and args.metrics:
            found = {name: results[name] for name in args.metrics if name in results}
            print(f"Eval result: epoch {args.cur_epoch_num}, metrics: {found}", flush=True)


class TimeMonitor(Callback):
    """Print the time of each epoch: "Train epoch time: 123.4 ms, per step time: 3.9 ms".

    Args:
        data_size: the number of batches of an epoch; by default the counted number.
    Example:
        >>> net = nn.Dense(1, 1)
        >>> model = snncell.train.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.25))
        >>> _ = model.train(1, [(ops.ones((4, 1)),) * 2], snncell.train.TimeMonitor())  # doctest: +ELLIPSIS
        Train epoch time: ... ms, per step time: ... ms
    """

    def __init__(self, data_size: Count | None = None) -> None:
        self.data_size, self.begun = data_size, {"train": 0.0, "eval": 0.0}  # evaluations happen within an epoch

    def epoch_begin(self, run_context: RunContext) -> None:
        """Start the clock."""
        self.begun[run_context.original_args().mode] = time.perf_counter()

    def epoch_end(self, run_context: RunContext) -> None:
        """Print the time."""
        args = run_context.original_args()
        steps = self.data_size or (args.cur_step_num if args.mode == "eval" else args.batch_num)
        milliseconds = (time.perf_counter() - self.begun[args.mode]) * 1000.0
        each = milliseconds / max(steps, 1)
        print(f"{args.mode.title()} epoch time: {milliseconds:5.3f} ms, per step time: {each:5.3f} ms", flush=True)


class History(Callback):
    """Record the loss of the last batch of each epoch, and the results of evaluations.

    Attributes:
        epoch: {"epoch": [...]}, the numbers of the epochs.
        history: {"net_output": [...], ...}, a list by name with an entry for each epoch; None without an evaluation.
    Example:
        >>> net, history = nn.Dense(1, 1, weight_init="zeros", bias_init="zeros"), snncell.train.History()
        >>> model = snncell.train.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.25))
        >>> _ = model.train(2, [(ops.ones((4, 1)), ops.ones((4, 1)))], history)
        >>> history.epoch, history.history
        ({'epoch': [1, 2]}, {'net_output': [1.0, 0.0]})
    """

    def __init__(self) -> None:
        self.history: dict[str, list[Any]] = {}
        self.epoch: dict[str, list[int]] = {"epoch": []}

    def __repr__(self) -> str:
        last = [f"{name}={values[-1]!s:.12}" for name, values in self.history.items() if values[-1] is not None]
        return f"History({len(self.epoch['epoch'])} epochs{'; last: ' if last else ''}{', '.join(last)})"

    def _repr_html_(self) -> str:
        columns = [
            ["" if value is None else str(value) for value in values]
            for values in (self.epoch["epoch"], *self.history.values())
        ]
        rows = list(zip(*columns, strict=True))[-ROWS:]
        return titled_table(repr(self), ("epoch", *self.history), rows, numbers=len(columns))

    def on_train_begin(self, run_context: RunContext) -> None:
        self.history, self.epoch = {}, {"epoch": []}

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        args = run_context.original_args()
        results = {f"eval_{name}": value for name, value in _evaluation(run_context._training.record).items()}
        entry = {"net_output": float(args.net_outputs.item()), **results}
        for name in {**self.history, **entry}:
            self.history.setdefault(name, [None] * len(self.epoch["epoch"])).append(entry.get(name))
        self.epoch["epoch"].append(args.cur_epoch_num)


EventFunction = Annotated[Callable[[RunContext], None] | None, Own()]


class LambdaCallback(Callback):
    """A callback from functions of the run context.

    Args:
        on_train_epoch_begin, on_train_epoch_end, on_train_step_begin, on_train_step_end, on_train_begin, on_train_end,
            on_eval_epoch_begin, on_eval_epoch_end, on_eval_step_begin, on_eval_step_end, on_eval_begin, on_eval_end: a
            function for that event, or None.
    Example:
        >>> epochs, net = [], nn.Dense(1, 1)
        >>> model = snncell.train.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.25))
        >>> each = snncell.train.LambdaCallback(lambda run: epochs.append(run.original_args().cur_epoch_num))
        >>> _ = model.train(3, [(ops.ones((4, 1)), ops.ones((4, 1)))], each)
        >>> epochs
        [1, 2, 3]
    """

    def __init__(
        self,
        on_train_epoch_begin: EventFunction = None,
        on_train_epoch_end: EventFunction = None,
        on_train_step_begin: EventFunction = None,
        on_train_step_end: EventFunction = None,
        on_train_begin: EventFunction = None,
        on_train_end: EventFunction = None,
        on_eval_epoch_begin: EventFunction = None,
        on_eval_epoch_end: EventFunction = None,
        on_eval_step_begin: EventFunction = None,
        on_eval_step_end: EventFunction = None,
        on_eval_begin: EventFunction = None,
        on_eval_end: EventFunction = None,
    ) -> None:
        functions = {name: value for name, value in locals().items() if name.startswith("on_") and value is not None}
        for name, function in functions.items():
            if not callable(function):
                raise ArgumentError(
                    f"LambdaCallback: {name} must be a function of the run context, not {came(function)}."
                )
            if wrong := misfit(function, ["run_context"]):
                raise ArgumentError(f"LambdaCallback: {name} is called as {name}(run_context): {wrong}.")
        vars(self).update(functions)

    def step_begin(self, run_context: RunContext) -> None:
        """Do nothing. With this method for steps, the callback is also called at the steps of an evaluation."""

    step_end = step_begin


# --- checkpoints ------------------------------------------------------------------------------------------------------


class CheckpointConfig:
    """When `ModelCheckpoint` writes, and how many files it keeps.

    Args:
        save_checkpoint_steps: the number of batches between checkpoints; 0 to use seconds.
        save_checkpoint_seconds: the time between checkpoints, which are written after a batch; 0 to use batches.
        keep_checkpoint_max: the number of files to keep; older files of this run are deleted. 0 keeps all.
        saved_network: the Cell to save instead of the trained network.
    Example:
        >>> snncell.train.CheckpointConfig(save_checkpoint_steps=32).keep_checkpoint_max
        5
    """

    def __init__(
        self,
        save_checkpoint_steps: Size = 1,
        save_checkpoint_seconds: NotNegative = 0,
        keep_checkpoint_max: Size = 5,
        saved_network: Cell | None = None,
    ) -> None:
        if not save_checkpoint_steps and not save_checkpoint_seconds:
            raise ArgumentError("CheckpointConfig: save_checkpoint_steps or save_checkpoint_seconds must be above 0.")
        self.save_checkpoint_steps, self.save_checkpoint_seconds = save_checkpoint_steps, save_checkpoint_seconds
        self.keep_checkpoint_max, self.saved_network = keep_checkpoint_max, saved_network


class ModelCheckpoint(Callback):
    """Save the network's Parameters to files "PREFIX-EPOCH_STEP.ckpt", which `load_checkpoint` reads.

    If files with this prefix exist, it becomes "PREFIX_1" and so on. To resume bit for bit, use `train.Checkpoint`.

    Args:
        prefix: the beginning of the names.
        directory: the folder, which is created if it is missing; by default the current one.
        config: when to write; by default `CheckpointConfig()`.
    Example:
        >>> import os, tempfile
        >>> net, folder = nn.Dense(1, 1), tempfile.mkdtemp()
        >>> model = snncell.train.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.25))
        >>> _ = model.train(3, [(ops.ones((4, 1)), ops.ones((4, 1)))], snncell.train.ModelCheckpoint("own", folder))
        >>> sorted(os.listdir(folder))
        ['own-1_1.ckpt', 'own-2_1.ckpt', 'own-3_1.ckpt']
    """

    order: ClassVar[int] = 5  # after all callbacks that change Parameters
    first_rank_only: ClassVar[bool] = True

    def __init__(
        self,
        prefix: str = "CKP",
        directory: str | os.PathLike[str] | None = None,
        config: CheckpointConfig | None = None,
    ) -> None:
        if not prefix or Path(prefix).name != prefix:
            raise ArgumentError(f"ModelCheckpoint: prefix must be the beginning of file names, not {prefix!r}.")
        self.prefix, self.directory = prefix, Path(directory or ".")
        self.config = config or CheckpointConfig()
        self.written: list[Path] = []
        self.last_step, self.last_time = 0, 0.0

    @property
    def latest_ckpt_file_name(self) -> str:
        """The path of the last file; "" before the first one."""
        return str(self.written[-1]) if self.written else ""

    def on_train_begin(self, run_context: RunContext) -> None:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(
                f"ModelCheckpoint: the folder {str(self.directory)!r} cannot be created: {error}."
            ) from None
        self.prefix, self.written = self._free_prefix(), []
        self.last_step, self.last_time = run_context.original_args().cur_step_num, time.monotonic()

    def _free_prefix(self) -> str:
        """The prefix, with a number if files with this prefix exist."""
        base = re.sub(r"_\d+$", "", self.prefix) if self.written else self.prefix
        names, number, prefix = os.listdir(self.directory), 0, base
        while any(re.fullmatch(rf"{re.escape(prefix)}-\d+_\d+\.ckpt", name) for name in names):
            number += 1
            prefix = f"{base}_{number}"
        return prefix

    def on_train_step_end(self, run_context: RunContext) -> None:
        if self.config.save_checkpoint_seconds:
            due = time.monotonic() - self.last_time >= self.config.save_checkpoint_seconds
        else:
            due = run_context.original_args().cur_step_num - self.last_step >= self.config.save_checkpoint_steps
        if due:
            self._write(run_context)

    def on_train_end(self, run_context: RunContext) -> None:
        if run_context.original_args().cur_step_num != self.last_step:
            self._write(run_context)

    def _write(self, run_context: RunContext) -> None:
        args: Any = run_context.original_args()
        step = (args.cur_step_num - 1) % max(args.batch_num, 1) + 1
        file = self.directory / f"{self.prefix}-{args.cur_epoch_num}_{step}.ckpt"
        save_checkpoint(self.config.saved_network or args.network, file)
        self.last_step, self.last_time = args.cur_step_num, time.monotonic()
        self.written.append(file)
        while self.config.keep_checkpoint_max and len(self.written) > self.config.keep_checkpoint_max:
            self.written.pop(0).unlink(missing_ok=True)
