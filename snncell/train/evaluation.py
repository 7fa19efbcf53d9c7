"""Going through data once, and what comes out on average."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Annotated, Any

import numpy as np

from snncell.arguments.kinds import Count, Own
from snncell.arguments.shown import came
from snncell.cell import Cell
from snncell.cells.modes import phases
from snncell.compiler.jit import jit
from snncell.errors import ArgumentError
from snncell.nn.time.stateful import Stateful
from snncell.tape.given import as_data
from snncell.tape.tensor import Tensor
from snncell.train.ahead import make_ahead, pays
from snncell.train.callbacks import Callback, Training, tell_step_of_evaluation
from snncell.train.metrics import name_metrics
from snncell.train.monitored import Monitored, watching
from snncell.train.pieces import Batches, Spikes, cells_of as spiking_cells, measure
from snncell.train.processes import OneProcess
from snncell.train.scores import accuracy as share_right

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
    """Means over data, in prediction: "loss", and as asked for "accuracy", "firing_rate" and metrics.

    Net and loss (if it is a Cell) are in prediction, and each `Stateful` of theirs begins at rest; afterwards they are
    in training, or not, as they were, and have the states that they had.

    Args:
        net, loss, data, batch_size, accuracy, metrics, firing_rate, prefetch: as for `fit`; arrays are not shuffled.

    Returns:
        Numbers by name, and nested lists of those that have axes. A batch counts by the length of its target.

    Raises:
        ArgumentError: for data without a batch.

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
    """`evaluate`, with somebody around its steps, as for `means`."""
    if data is None:
        raise ArgumentError("evaluate: data are a tuple of arrays, or batches; there are none.")
    with (
        Spikes(spiking_cells(firing_rate, "evaluate: firing_rate")) as spikes,
        phases(net, loss),
        ExitStack() as stack,
    ):
        for stateful in statefuls(net, loss):
            stack.enter_context(stateful.aside())
        spikes.refuse_inner(net)
        functions, heard = name_metrics(metrics, "evaluate")
        of_batch = measure_with_loss(net, loss, accuracy, spikes if spikes.cells else None, functions)
        batches = batches_of(data, batch_size, False, "evaluate: data")
        return means("evaluate: data", (net, loss), of_batch, batches, prefetch, heard, OneProcess(), around)


def tell_callbacks(step: Step, training: Training, callbacks: Sequence[Callback]) -> Step:
    """A step of an evaluation of which callbacks are told."""

    def told(batch: Any) -> dict[str, Any]:
        training.evaluated, training.of_evaluation = training.evaluated + 1, batch
        tell_step_of_evaluation(callbacks, "begin", training.run_context)
        training.measured = step(batch)
        tell_step_of_evaluation(callbacks, "end", training.run_context)
        return training.measured

    return told


def batches_of(data: Any, batch_size: int, shuffle: bool, who: str) -> Any:
    """Data that give batches each time they are gone through."""
    if isinstance(data, tuple):
        return Batches(*data, batch_size=batch_size, shuffle=shuffle)
    again = hasattr(data, "__iter__") or hasattr(data, "__getitem__")
    if isinstance(data, type) or hasattr(data, "__next__") or not (data is None or again):
        raise ArgumentError(
            f"{who} are a tuple of arrays, or batches that can be gone through again and again, not {came(data)}. Make "
            f"a list of it, or a class with a method __iter__."
        )
    return data


def parts_of(batch: Any, who: str) -> tuple[Any, ...]:
    """Inputs and target of a batch, with a Tensor for each array, number, or list of numbers in it."""
    if not isinstance(batch, (tuple, list)) or len(batch) < 2:
        several = isinstance(batch, (tuple, list, dict))
        kind = f"a {type(batch).__name__}" + (f" of {len(batch)}" if several else "")
        mend = ""
        if isinstance(batch, dict):
            names = ", ".join(f"b[{name!r:.40}]" for name in [*batch][:4])
            mend = f" Of dicts make tuples: a class whose __iter__ yields ({names}) of each b, the target last."
        raise ArgumentError(
            f"{who}: a batch is a tuple (inputs, ..., target) of Tensors or arrays, not {kind}.{mend} Arrays of all "
            f"samples are given as a tuple too."
        )
    *inputs, target = batch
    parts = (*(as_data(x) for x in inputs), as_data(target))
    if not isinstance(parts[-1], Tensor) or not parts[-1].ndim:
        raise ArgumentError(
            f"{who}: a batch ends with its target, an array with an entry for each sample, not with a "
            f"{type(target).__name__}{getattr(parts[-1], 'shape', '')}."
        )
    return parts


def cells_of(*parts: Any) -> list[Cell]:
    """All Cells of those parts, of net and loss, that are Cells."""
    return [cell for part in parts if isinstance(part, Cell) for _, cell in part.cells_and_names()]


def statefuls(*parts: Any) -> list[Stateful]:
    """Those that keep states; each once."""
    return list(dict.fromkeys(cell for cell in cells_of(*parts) if isinstance(cell, Stateful)))


def measure_with_loss(
    net: Cell, loss: Any, accuracy: Any, spikes: Spikes | None, metrics: dict[str, Any]
) -> Callable[..., dict[str, Tensor]]:
    """`measure`, jitted, with the loss among the rest."""
    of_one = measure(net, loss, accuracy, spikes, metrics)

    def of_batch(*batch: Tensor) -> dict[str, Tensor]:
        value, others = of_one(*batch)
        return {"loss": value, **others}

    jitted: Callable[..., dict[str, Tensor]] = jit(of_batch)
    return jitted


def means(
    who: str,
    parts: tuple[Any, ...],
    of_batch: Any,
    source: Any,
    prefetch: bool | None,
    heard: dict[str, Monitored],
    processes: OneProcess,
    around: Callable[[Step], Step] = lambda step: step,
) -> Means:
    """Go through the data once, in prediction; the means of what is measured, also by a monitor.

    `around` makes of a step, batch -> numbers, one around which others are told.
    """
    for cell in cells_of(*parts):
        cell.training = False
    for stateful in statefuls(*parts):
        stateful.reset()
    measurements = Measurements()
    with watching(parts[0], heard) as recorded, count_batches(source, who, processes, prefetch) as batches:
        numbers_of = around(processes.measured(lambda *batch: {**of_batch(*batch), **recorded()}))
        for samples, batch in batches:
            measurements.add(numbers_of(batch), samples)
    return measurements.means(who)


def count_batches(
    source: Any, who: str, processes: OneProcess, prefetch: bool | None
) -> AbstractContextManager[Iterable[Any]]:
    """The batches of data, each behind the number of its samples, made ahead where that is safe and pays."""
    counted = processes.counted(source, lambda batch: parts_of(batch, who))
    return make_ahead(processes.batches(source), counted, pays(source) if prefetch is None else prefetch)


class Measurements:
    """Numbers of batches, and their means, to which a batch counts by its samples."""

    def __init__(self) -> None:
        self.numbers: list[dict[str, Any]] = []
        self.counts: list[int] = []

    def add(self, numbers: dict[str, Any], count: int) -> None:
        """Note the numbers of a batch of so many samples."""
        self.numbers.append(numbers)
        self.counts.append(count)

    def names(self) -> list[str]:
        """The names of the numbers."""
        return list(self.numbers[0]) if self.numbers else []

    def arrays(self) -> dict[str, Any]:
        """All of it as arrays, float64, with an entry for each batch, and their counts."""
        columns = {name: np.array([_wide(each[name]) for each in self.numbers]) for name in self.names()}
        return {"counts": np.array(self.counts, np.int64), **{f"number {name}": x for name, x in columns.items()}}

    def take(self, names: list[Any], arrays: dict[str, Any], batches: int) -> None:
        """Have what `arrays` gave.

        Raises:
            ArgumentError: for anything else.
        """
        counts = arrays.get("counts", np.zeros(0))
        columns = {name: arrays.get(f"number {name}", counts) for name in names}
        right = len(arrays) == len(columns) + 1 and counts.dtype == np.int64 and counts.shape == (batches,)
        if not right or any(x.dtype != np.float64 or x.shape[:1] != (batches,) for x in columns.values()):
            raise ArgumentError(f"what was measured of {batches} batches is not in it.")
        self.counts = counts.tolist()
        self.numbers = [{name: columns[name][n] for name in names} for n in range(batches)]

    def means(self, who: str) -> Means:
        """The means of the numbers: a float each, or a nested list of those that are arrays.

        Raises:
            ArgumentError: if there was no batch.
        """
        if not self.numbers:
            raise ArgumentError(f"{who} give no batch. An iterator gives its batches once; give a list, or Batches.")
        shares = np.array(self.counts, np.float64) / sum(self.counts)
        columns = {name: np.array([_wide(each[name]) for each in self.numbers]) for name in self.names()}
        return {name: np.tensordot(shares, values, 1).tolist() for name, values in columns.items()}


def _wide(number: Any) -> Any:
    """A number, or an array of them, in float64."""
    return np.asarray(number.asnumpy() if isinstance(number, Tensor) else number, np.float64)
