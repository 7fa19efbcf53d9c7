"""Passes over data: an evaluation, and an epoch of training that a checkpoint can continue after any step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Annotated, Any, cast

import numpy as np

from snncell.base.arguments.kinds import Count, Own
from snncell.cell.cell import Cell
from snncell.cell.modes import phases
from snncell.compiler.jit import jit
from snncell.data import Loader
from snncell.errors import ArgumentError, CheckpointError
from snncell.nn.time.states import find_statefuls, put_aside
from snncell.ops.random import present_key, read_key, restore_key
from snncell.tape.tensor import Tensor
from snncell.train.batches import as_batch, as_batches, prefetch_batches, should_prefetch
from snncell.train.callbacks import Callback, Training, tell_step_of_evaluation
from snncell.train.measures import Spikes, measure, spiking_cells
from snncell.train.metrics import Monitored, accuracy as share_right, name_metrics, watch_metrics
from snncell.train.state import begin_pass, is_count
from snncell.train.steps import OneProcess, TrainStep

__all__ = ["evaluate"]

# --- evaluation -------------------------------------------------------------------------------------------------------

Step = Callable[[Any], dict[str, Any]]  # batch -> numbers
Means = dict[str, Any]  # numbers, and nested lists of those that have axes


def evaluate(
    net: Cell,
    loss: Callable[..., Tensor],
    data: Any,
    *,
    batch_size: Count = 64,
    accuracy: Callable[..., Tensor] | None = share_right,
    metrics: Annotated[Any, Own()] = (),
    firing_rate: Annotated[Cell | Iterable[Cell], Own()] = (),
    prefetch: bool | None = None,
) -> Means:
    """Evaluate a net: means of loss, accuracy, firing rate and metrics over data, in evaluation mode.

    Arguments are as for `fit`; data are not shuffled. The states of each `Stateful` start at rest. Afterwards these
    states and the training modes are restored.

    Returns: Numbers by name (nested lists for metrics with axes), weighted by the length of each batch's target.
    Example:
        >>> net = nn.Dense(2, 2)
        >>> sorted(snncell.train.evaluate(net, nn.CrossEntropyLoss(), (ops.ones((9, 2)), ops.zeros(9, "int64"))))
        ['accuracy', 'loss']
    """
    return evaluate_with(net, loss, data, batch_size, accuracy, metrics, firing_rate, prefetch)


def evaluate_with(
    net: Cell,
    loss: Callable[..., Tensor],
    data: Any,
    batch_size: int,
    accuracy: Any,
    metrics: Any,
    firing_rate: Any,
    prefetch: bool | None,
    around: Callable[[Step], Step] = lambda step: step,
) -> Means:
    """`evaluate` with a wrapper `around` its step, as for `measure_means`."""
    if data is None:
        raise ArgumentError("evaluate: data must be a tuple of arrays, or batches, not None.")
    counted = Spikes(spiking_cells(firing_rate, "evaluate: firing_rate"))
    with counted as spikes, phases(net, loss), put_aside(net, loss):
        spikes.refuse_inner(net)
        functions, monitored = name_metrics(metrics, "evaluate")
        of_batch = measure_with_loss(net, loss, accuracy, spikes if spikes.cells else None, functions)
        batches = as_batches(data, batch_size, False, "evaluate: data")
        return measure_means(
            "evaluate: data", (net, loss), of_batch, batches, prefetch, monitored, OneProcess(), around
        )


def tell_callbacks(step: Step, training: Training, callbacks: Sequence[Callback]) -> Step:
    """An evaluation step that calls the callbacks before and after it."""

    def told(batch: Any) -> dict[str, Any]:
        training.evaluated, training.of_evaluation = training.evaluated + 1, batch
        tell_step_of_evaluation(callbacks, "begin", training.run_context)
        training.measured = step(batch)
        tell_step_of_evaluation(callbacks, "end", training.run_context)
        return training.measured

    return told


def measure_with_loss(
    net: Cell, loss: Any, accuracy: Any, spikes: Spikes | None, metrics: dict[str, Any]
) -> Callable[..., dict[str, Tensor]]:
    """Jitted `measure` with the loss among its numbers."""
    of_one = measure(net, loss, accuracy, spikes, metrics)

    def of_batch(*batch: Tensor) -> dict[str, Tensor]:
        value, others = of_one(*batch)
        return {"loss": value, **others}

    return cast(Callable[..., dict[str, Tensor]], jit(of_batch))


def measure_means(
    who: str,
    parts: tuple[Any, ...],
    of_batch: Any,
    source: Any,
    prefetch: bool | None,
    monitored: dict[str, Monitored],
    processes: OneProcess,
    around: Callable[[Step], Step] = lambda step: step,
) -> Means:
    """The means of all numbers over one pass through the data, in evaluation mode; `around` wraps the step."""
    begin_pass(parts, training=False)
    measurements = Measurements()
    with watch_metrics(parts[0], monitored) as recorded, count_batches(source, who, processes, prefetch) as batches:
        numbers_of = around(processes.measured(lambda *batch: {**of_batch(*batch), **recorded()}))
        for samples, batch in batches:
            measurements.add(numbers_of(batch), samples)
    return measurements.means(who)


def count_batches(
    source: Any, who: str, processes: OneProcess, prefetch: bool | None
) -> AbstractContextManager[Iterable[Any]]:
    """Context manager: pairs of the number of samples and the batch, prefetched if that is safe and faster."""
    ahead = should_prefetch(source) if prefetch is None else prefetch
    return prefetch_batches(*processes.batches(source, lambda batch: as_batch(batch, who)), ahead)


class Measurements:
    """The numbers of all batches, and their means, weighted by the samples of each batch."""

    def __init__(self) -> None:
        self.numbers: list[dict[str, Any]] = []
        self.counts: list[int] = []

    def add(self, numbers: dict[str, Any], count: int) -> None:
        """Add the numbers of a batch with `count` samples."""
        self.numbers.append(numbers)
        self.counts.append(count)

    def columns(self) -> dict[str, Any]:
        """The numbers by name as float64 arrays, with an entry for each batch."""
        names = list(self.numbers[0]) if self.numbers else []
        return {name: np.array([np.asarray(each[name], np.float64) for each in self.numbers]) for name in names}

    def arrays(self) -> dict[str, Any]:
        """The content as arrays, for a checkpoint."""
        columns = {f"number {name}": x for name, x in self.columns().items()}
        return {"counts": np.array(self.counts, np.int64), **columns}

    def take(self, names: list[Any], arrays: dict[str, Any], batches: int) -> None:
        """Restore the result of `arrays`; an ArgumentError for other arrays."""
        counts = arrays.get("counts", np.zeros(0))
        columns = {name: arrays.get(f"number {name}", counts) for name in names}
        right = len(arrays) == len(columns) + 1 and counts.dtype == np.int64 and counts.shape == (batches,)
        if not right or any(x.dtype != np.float64 or x.shape[:1] != (batches,) for x in columns.values()):
            raise ArgumentError(f"the measurements of {batches} batches are missing or wrong.")
        self.counts = counts.tolist()
        self.numbers = [{name: columns[name][n] for name in names} for n in range(batches)]

    def means(self, who: str) -> Means:
        """The means of the numbers: floats, or nested lists; an ArgumentError without a batch."""
        if not self.numbers:
            raise ArgumentError(
                f"{who} give no batch. An iterator gives its batches only once; pass a list or Batches."
            )
        shares = np.array(self.counts, np.float64) / sum(self.counts)
        return {name: np.tensordot(shares, values, 1).tolist() for name, values in self.columns().items()}


# --- epoch of training ------------------------------------------------------------------------------------------------


class DataPass:
    """A pass over the training data: one epoch. A checkpoint within it contains the measurements, the states of all
    `Stateful` Cells, and the position in the data. A `Loader` knows its position. For other data, the position is the
    number of finished batches, and the random state at the beginning of the epoch, from which their order was drawn.
    """

    def __init__(self, parts: tuple[Any, ...], data: Any, processes: OneProcess) -> None:
        self.parts, self.data, self.processes = parts, data, processes
        self.measurements = Measurements()
        self.key: Any = None  # the random state at its beginning
        self.states: list[Any] = []  # the initial states of Statefuls
        self.over = False  # whether all its batches were done when a checkpoint was written
        self.first: int | None = None  # the first batch that this process trains on, after it has started

    @property
    def batch(self) -> int:
        """The number of batches that are done."""
        return len(self.measurements.counts)

    @property
    def given(self) -> int | None:
        """The number of batches taken from the data since the beginning or a resume; None if none are to be skipped."""
        return None if self.first is None or self.over else self.batch - self.first

    def run(self, step: TrainStep, prefetch: bool | None, begin: Callable[..., None], end: Callable[..., bool]) -> bool:
        """Train on the remaining batches; returns whether the pass is complete. `end(numbers)` can stop it."""
        begin_pass(self.parts, training=True)
        key, skipped = read_key(), 0 if isinstance(self.data, Loader) else self.batch
        if self.key is None:
            self.key = [int(x) for x in present_key().asnumpy()]
        if skipped:
            restore_key(np.array(self.key))
        source = () if self.over else self.data
        with count_batches(source, "fit: data", self.processes, prefetch) as batches:
            left = iter(batches)
            self.first = self.batch
            for number in range(skipped):  # batches that were done before the resume
                if next(left, None) is None:
                    raise CheckpointError(
                        f"fit: {skipped} batches of the epoch were trained on before, but the data give only {number}. "
                        f"Resume with the same data."
                    )
            if skipped:
                restore_key(key)
            for stateful, kept in zip(find_statefuls(*self.parts), self.states, strict=False):
                stateful.put(kept)
            item = next(left, None)
            while item is not None:
                samples, batch = item
                begin(batch)
                numbers = step(batch)
                # While gradients accumulate, read the next batch to see whether this was the last one, which completes
                # the step before callbacks run. Otherwise read nothing ahead, because a checkpoint may be written.
                waiting = not step.updated
                item = next(left, None) if waiting else None
                if waiting and item is None:
                    step.finish()
                self.measurements.add(numbers, samples)
                if end(numbers):
                    return False
                item = item if waiting else next(left, None)
        return True

    # --- in a checkpoint ----------------------------------------------------------------------------------------------

    def notes(self) -> dict[str, Any]:
        """The notes for a checkpoint within this pass."""
        kept = [stateful.kept() for stateful in find_statefuls(*self.parts)]
        inputs = [one and [list(one.shape), one.dtype] for one in kept]
        # At the end of a pass, a Loader is at the beginning of the next one, unlike other data.
        over = self.over or (self.given and isinstance(self.data, Loader) and not self.data.state(self.given)["batch"])
        numbers = list(self.measurements.columns())
        return {"batch": self.batch, "over": bool(over), "key": self.key, "numbers": numbers, "inputs": inputs}

    def arrays(self) -> dict[str, Any]:
        """The arrays for a checkpoint within this pass."""
        found = self.measurements.arrays()
        for n, stateful in enumerate(find_statefuls(*self.parts)):
            kept = stateful.kept()
            found |= {f"state {n} {i}": x for i, x in enumerate(kept.states if kept else ())}
        return found

    def take(self, notes: Any, arrays: dict[str, Any], who: str) -> None:
        """Continue from a checkpoint; a CheckpointError for invalid notes or arrays."""
        arrays = dict(arrays)
        try:
            if not _are_notes(notes):
                raise ArgumentError(f"its position in the epoch is {str(notes)[:200]}")
            self.states = self._states(notes["inputs"], arrays)
            self.measurements.take(notes["numbers"], arrays, notes["batch"])
        except ArgumentError as error:
            raise CheckpointError(f"{who} is damaged: {error}") from None
        self.key, self.over = notes["key"], notes["over"]

    def _states(self, inputs: list[Any], arrays: dict[str, Any]) -> list[Any]:
        """Take the states of each `Stateful` out of the arrays."""
        own = find_statefuls(*self.parts)
        if len(inputs) != len(own):
            raise ArgumentError(f"it has states of {len(inputs)} Statefuls, but the net has {len(own)}")
        found: list[Any] = []
        for n, (stateful, given) in enumerate(zip(own, inputs, strict=True)):
            names = sorted((key for key in arrays if key.startswith(f"state {n} ")), key=lambda key: (len(key), key))
            states = [arrays.pop(name) for name in names]
            found.append(None if given is None else stateful.fitting(given, states))
        return found


def _are_notes(notes: Any) -> bool:
    """True if notes have the form that `DataPass.notes` returns."""
    if not isinstance(notes, dict) or notes.keys() != {"batch", "over", "key", "numbers", "inputs"}:
        return False
    key, numbers = notes["key"], notes["numbers"]
    counts = isinstance(key, list) and len(key) == 2 and all(map(is_count, [*key, notes["batch"]]))
    kinds = (notes["over"], bool), (notes["inputs"], list), (numbers, list)
    return counts and all(isinstance(value, kind) for value, kind in kinds)
