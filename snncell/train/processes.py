"""The processes that a training runs on: one process, or all ranks of a job."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from snncell.nn.optim import Optimizer
from snncell.plugins import plugin
from snncell.train.loss_scale import Scaling
from snncell.train.steps import Accumulated, Clip, EachBatch, Numbers, TrainStep, fused_step, step_in_two

Counted = tuple[int, Any]  # the samples of a batch, and the batch


class OneProcess:
    """A training on this process alone."""

    first = True  # whether this is the process that writes files

    def batches(self, source: Any) -> Any:
        """The batches of data, to be `counted`."""
        return source

    def counted(self, source: Any, parts_of: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], Counted]:
        """A function that makes a batch of what `batches` gives, and counts its samples."""

        def of_batch(batch: Any) -> Counted:
            parts = parts_of(batch)
            return len(parts[-1]), parts

        return of_batch

    def step(
        self,
        parts: tuple[Any, ...],
        of_batch: Callable[..., Any],
        optimiser: Optimizer,
        clip: Clip,
        scaling: Scaling | None,
        accumulate: int,
    ) -> TrainStep:
        """The step of a training, of batches that are counted."""
        if accumulate == 1:
            return EachBatch(fused_step(of_batch, optimiser, clip, scaling))
        return Accumulated(*step_in_two(of_batch, optimiser, clip, scaling), accumulate)

    def measured(self, of_batch: Callable[..., Numbers]) -> Callable[[Any], Numbers]:
        """A function of a counted batch that measures it."""
        return lambda batch: of_batch(*batch)

    def any(self, flag: bool) -> bool:
        """True if it is on any process."""
        return flag

    def apart(self, alone: bool) -> AbstractContextManager[Any]:
        """A context of what this process does alone, or all do: what one draws is not of the training."""
        return nullcontext()

    def together(self) -> AbstractContextManager[Any]:
        """A context of all that the processes do together."""
        return nullcontext()

    def asked(self) -> dict[str, Any]:
        """The settings of the processes that a resume must find as they were."""
        return {}

    def refuse(self, parts: tuple[Any, ...], optimiser: Optimizer, settings: Callable[[], dict[str, Any]]) -> None:
        """Raise an error for what does not go together."""


def processes_of(distributed: bool) -> OneProcess:
    """The processes that `fit` trains on: this one alone, or the ranks of the job that it has joined.

    Raises:
        RankError: with distributed, if this process has not joined a job.
    """
    processes: OneProcess = plugin("train.ranks")() if distributed else OneProcess()
    return processes
