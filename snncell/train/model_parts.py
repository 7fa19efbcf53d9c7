"""The parts that a Model makes of what it is given, for `train.fit` and `train.evaluate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from snncell.arguments.shown import came
from snncell.errors import ArgumentError
from snncell.train.callbacks import Callback, Training
from snncell.train.model_metrics import Metric


def itself(output: Any, _target: Any) -> Any:
    """The loss, of a network that gives it."""
    return output


class Part:
    """A loss that is part of what the network gives."""

    def __init__(self, place: int) -> None:
        self.place = place

    def __call__(self, outs: Any, _target: Any) -> Any:
        if not isinstance(outs, (tuple, list)) or not -len(outs) <= self.place < len(outs):
            raise ArgumentError(
                f"Model.eval: eval_network gives a tuple, its loss at {self.place} (eval_indexes), not {came(outs)}."
            )
        return outs[self.place]


def measured_by(one: Any) -> Any:
    """A metric as `train.fit` takes it."""
    return one.measured if isinstance(one, Metric) else one


class First(Callback):
    """Is told before the others: gives the run context what the model knows, and finishes the metrics of a record."""

    order = -1_000_000

    def __init__(self, model: Any, given: Sequence[Callback], initial: int) -> None:
        self.model, self.given, self.initial = model, given, initial

    def on_fit_begin(self, training: Training) -> None:
        args = training.run_context.original_args()
        args.network, args.loss_fn, args.metrics = self.model.network, self.model.loss_fn, self.model.metrics or None
        args.list_callback, args.initial_epoch = list(self.given), self.initial

    def on_evaluation_end(self, training: Training) -> None:
        self.model.finish(training.record)

    def on_epoch_end(self, training: Training) -> None:
        if "test_loss" not in training.record:
            self.model.finish(training.record)
