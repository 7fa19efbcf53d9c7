"""Callbacks of MindSpore's names that tell of a training: losses, times, a history; and functions as callbacks."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Annotated, Any

from snncell.base.arguments.kinds import Count, Own, Size, misfit
from snncell.base.arguments.shown import came
from snncell.errors import ArgumentError, TrainingError
from snncell.train.callbacks import Callback
from snncell.train.run_context import RunContext


class LossMonitor(Callback):
    """Prints the loss of batches: "epoch: 1 step: 32, loss is 0.51"; with a validation its numbers after each epoch.

    Each line waits for its step.

    Args:
        per_print_times: after every so many batches; 0 for none.

    Raises:
        TrainingError: for a loss that is not finite.

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
        if args.valid_dataset is not None and args.metrics:
            found = {name: args.eval_results[name] for name in args.metrics if name in args.eval_results}
            print(f"Eval result: epoch {args.cur_epoch_num}, metrics: {found}", flush=True)


class TimeMonitor(Callback):
    """Prints the time of each epoch: "Train epoch time: 123.4 ms, per step time: 3.9 ms".

    Args:
        data_size: how many batches an epoch has; left out, as many as there were.

    Example:
        >>> net = nn.Dense(1, 1)
        >>> model = snncell.train.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.25))
        >>> data = [(ops.ones((4, 1)), ops.ones((4, 1)))]
        >>> _ = model.train(1, data, snncell.train.TimeMonitor())  # doctest: +ELLIPSIS
        Train epoch time: ... ms, per step time: ... ms
    """

    def __init__(self, data_size: Count | None = None) -> None:
        self.data_size, self.begun = data_size, {"train": 0.0, "eval": 0.0}  # an evaluation is within an epoch

    def epoch_begin(self, run_context: RunContext) -> None:
        """Look at the clock."""
        self.begun[run_context.original_args().mode] = time.perf_counter()

    def epoch_end(self, run_context: RunContext) -> None:
        """Print the time since."""
        args = run_context.original_args()
        steps = self.data_size or (args.cur_step_num if args.mode == "eval" else args.batch_num)
        milliseconds = (time.perf_counter() - self.begun[args.mode]) * 1000.0
        each = milliseconds / max(steps, 1)
        print(f"{args.mode.title()} epoch time: {milliseconds:5.3f} ms, per step time: {each:5.3f} ms", flush=True)


class History(Callback):
    """Keeps the loss of the last batch of each epoch, and the results of evaluations.

    Attributes:
        epoch: {"epoch": [...]}, the numbers of the epochs.
        history: {"net_output": [...], ...}, a list by name with an entry for each epoch.

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

    def on_train_begin(self, run_context: RunContext) -> None:
        self.history, self.epoch = {}, {"epoch": []}

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        args = run_context.original_args()
        self.epoch["epoch"].append(args.cur_epoch_num)
        self.history.setdefault("net_output", []).append(float(args.net_outputs.item()))
        for name, value in args.eval_results.items():
            self.history.setdefault(f"eval_{name}", []).append(value)


Told = Annotated[Callable[[RunContext], None] | None, Own()]


class LambdaCallback(Callback):
    """A callback of functions, each of which is given the run context.

    Args:
        on_train_epoch_begin, on_train_epoch_end, on_train_step_begin, on_train_step_end, on_train_begin, on_train_end,
            on_eval_epoch_begin, on_eval_epoch_end, on_eval_step_begin, on_eval_step_end, on_eval_begin, on_eval_end: a
            function of the event of that name, or None.

    Raises:
        ArgumentError: for something that is no function.

    Example:
        >>> told = []
        >>> net = nn.Dense(1, 1)
        >>> model = snncell.train.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.25))
        >>> each = snncell.train.LambdaCallback(lambda run: told.append(run.original_args().cur_epoch_num))
        >>> _ = model.train(3, [(ops.ones((4, 1)), ops.ones((4, 1)))], each)
        >>> told
        [1, 2, 3]
    """

    def __init__(
        self,
        on_train_epoch_begin: Told = None,
        on_train_epoch_end: Told = None,
        on_train_step_begin: Told = None,
        on_train_step_end: Told = None,
        on_train_begin: Told = None,
        on_train_end: Told = None,
        on_eval_epoch_begin: Told = None,
        on_eval_epoch_end: Told = None,
        on_eval_step_begin: Told = None,
        on_eval_step_end: Told = None,
        on_eval_begin: Told = None,
        on_eval_end: Told = None,
    ) -> None:
        functions = {name: value for name, value in locals().items() if name.startswith("on_") and value is not None}
        for name, function in functions.items():
            if not callable(function):
                raise ArgumentError(f"LambdaCallback: {name} is a function of the run context, not {came(function)}.")
            if wrong := misfit(function, ["run_context"]):
                raise ArgumentError(f"LambdaCallback: {name} is called as {name}(run_context): {wrong}.")
        vars(self).update(functions)

    def step_begin(self, run_context: RunContext) -> None:
        """Nothing more: the class has methods of steps, so that it is told of those of an evaluation."""

    step_end = step_begin
