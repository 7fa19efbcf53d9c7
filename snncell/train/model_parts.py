"""The parts that a Model makes of what it is given, for `train.fit` and `train.evaluate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from snncell.base.arguments.shown import came
from snncell.errors import ArgumentError
from snncell.nn.training import TrainOneStepCell
from snncell.train.callbacks import Callback, Training
from snncell.train.model_metrics import Loss, Metric
from snncell.train.run_context import RunContext


def itself(output: Any, _target: Any) -> Any:
    """The loss, of a network that gives it."""
    return output


class LossPart:
    """A loss that is part of what the network gives."""

    def __init__(self, place: int) -> None:
        self.place = place

    def __call__(self, outs: Any, _target: Any) -> Any:
        if not isinstance(outs, (tuple, list)) or not -len(outs) <= self.place < len(outs):
            raise ArgumentError(
                f"Model.eval: eval_network gives a tuple, its loss at {self.place} (eval_indexes), not {came(outs)}."
            )
        return outs[self.place]


def refuse_own_step(cell: TrainOneStepCell) -> None:
    """Raise an ArgumentError for a step that does something else than `train.fit`, which takes its parts."""
    if type(cell).construct is not TrainOneStepCell.construct or cell.is_hooked:
        has = "hooks" if cell.is_hooked else "a construct"
        raise ArgumentError(
            f"Model: the {type(cell).__name__} has {has} of its own, and Model takes loss and optimiser alone out of a "
            f"nn.TrainOneStepCell. Call it in a loop, jit(cell), or clip and scale by train.fit(clip_norm=...)."
        )
    if cell.sens != 1.0:
        raise ArgumentError(
            f"Model: the TrainOneStepCell has sens={cell.sens:g}, a factor of its gradients, and Model takes those of "
            f"the loss. Leave it out, or call the step in a loop, jit(cell)."
        )


def metrics_to_compile(metrics: dict[str, Any]) -> dict[str, Any]:
    """The metrics that are part of the compiled step, as `train.fit` takes them."""
    apart = {name for name, one in metrics.items() if isinstance(one, Loss) or getattr(one, "collects", False)}
    own = {name: one for name, one in metrics.items() if name not in apart}
    return {name: one.measured if isinstance(one, Metric) else one for name, one in own.items()}


class First(Callback):
    """Is told before the others: gives the run context what the model knows, and a record the metrics."""

    order = -1_000_000

    def __init__(self, model: Any, given: Sequence[Callback], initial: int) -> None:
        self.model, self.given, self.initial = model, given, initial

    def on_fit_begin(self, training: Training) -> None:
        args = training.run_context.original_args()
        args.network, args.loss_fn, args.metrics = self.model.network, self.model.loss_fn, self.model.metrics or None
        args.list_callback, args.initial_epoch = list(self.given), self.initial

    def on_evaluation_begin(self, training: Training) -> None:
        for metric in self.model.collecting().values():
            metric.clear()

    def on_eval_step_end(self, run_context: RunContext) -> None:
        if metrics := self.model.collecting():
            *inputs, target = run_context.original_args().batch
            output = self.model.predict(*inputs)
            for metric in metrics.values():
                metric.update(output, target)

    def on_evaluation_end(self, training: Training) -> None:
        self.model.finish(training.record)
        for name, metric in self.model.collecting().items():
            training.record[f"test_{name}"] = np.asarray(metric.eval()).tolist()

    def on_epoch_end(self, training: Training) -> None:
        if "test_loss" not in training.record:
            self.model.finish(training.record)
