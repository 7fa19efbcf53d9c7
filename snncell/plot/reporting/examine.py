"""From a net and a batch to facts: one call, one gradient, one update on trial, and everything put back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from snncell import ops
from snncell.cell import Cell
from snncell.errors import ArgumentError, DTypeError, ShapeError, SnncellError
from snncell.monitoring import Monitor
from snncell.nn.optim import Optimizer
from snncell.nn.stateful import Stateful
from snncell.ops.random import present_key, replaying
from snncell.plot.reporting.facts import Array, Facts, Weight, batch_axis
from snncell.plot.reporting.neurons import layer_of
from snncell.plot.training import records_of
from snncell.tape import structure
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor

Loss = Callable[..., Any]


def examine(
    net: Cell, batch: Any, loss_fn: Loss | None = None, optimizer: Optimizer | None = None, log: Any = None
) -> tuple[Facts, Monitor]:
    """What is known of `net` over `batch`, and the monitor that watched; afterwards all is as it was, to the bit.

    Args:
        net, batch, loss_fn, optimizer, log: as for `report`.

    Raises:
        ArgumentError, ShapeError, DTypeError: as `report` says.
    """
    _fit_together(net, loss_fn, optimizer)
    history = _history(log)
    inputs, target = parts(batch)
    with untouched(net, loss_fn, optimizer):
        trial = _Trial(net, inputs, target, loss_fn, optimizer)
        trial.run()
        halves = trial.halves()
        trial.update()
        layers = [layer_of(trial.monitor, name, net) for name in trial.monitor.layers]
        costs = _costs(trial.monitor)
    facts = Facts(
        layers=layers,
        weights=trial.weights(),
        inputs=[x.asnumpy() for x in inputs],
        output=trial.output,
        target=None if target is None else target.asnumpy(),
        loss=trial.loss,
        halves=halves,
        differentiated=loss_fn is not None,
        updates=None if optimizer is None or loss_fn is None else int(optimizer.global_step.item()),
        history=history,
        costs=costs,
    )
    return facts, trial.monitor


# --- what was given ---------------------------------------------------------------------------------------------------


def _fit_together(net: Any, loss_fn: Any, optimizer: Any) -> None:
    """Raise an ArgumentError for what is no net, no loss, or no optimiser of that net."""
    if not isinstance(net, Cell):
        raise ArgumentError(f"report: takes a network, a Cell, not a {type(net).__name__}.")
    if loss_fn is not None and not callable(loss_fn):
        raise ArgumentError(
            f"report: loss_fn is a function of what the net gives and the target, such as nn.CrossEntropyLoss(), not "
            f"{loss_fn!r:.60}."
        )
    if optimizer is None:
        return
    if not isinstance(optimizer, Optimizer):
        raise ArgumentError(
            f"report: optimizer is one of nn's, such as nn.Adam(net.trainable_params()), not a "
            f"{type(optimizer).__name__}."
        )
    if loss_fn is None:
        raise ArgumentError("report: an update is tried by the gradient of a loss; give loss_fn beside optimizer.")
    known = {id(p) for cell in (net, loss_fn) if isinstance(cell, Cell) for p in cell.get_parameters()}
    strange = [p for p in optimizer.parameters if id(p) not in known]
    if strange:
        raise ArgumentError(
            f"report: the optimizer trains Parameter {strange[0].name!r} of shape {strange[0].shape}, which is not in "
            f"the {type(net).__name__}. Make it from this one: net.trainable_params()."
        )


def parts(batch: Any) -> tuple[list[Tensor], Tensor | None]:
    """Inputs and target of a batch, as `train.fit` takes them, as Tensors; no target if it is x alone.

    Raises:
        ArgumentError: for an empty batch, or what is no array.
    """
    several = isinstance(batch, (tuple, list)) and all(isinstance(x, (Tensor, np.ndarray)) for x in batch)
    given = list(batch) if several or isinstance(batch, tuple) else [batch]
    try:
        found = [x if isinstance(x, Tensor) else Tensor(np.asarray(x)) for x in given]
    except (SnncellError, TypeError, ValueError) as error:
        raise ArgumentError(f"report: the batch is x or (x, y), arrays or Tensors, not {batch!r:.60}.") from error
    if not found or any(x.size == 0 for x in found):
        shapes = ", ".join(str(x.shape) for x in found) or "nothing"
        raise ArgumentError(f"report: the batch is empty: {shapes}. Give (x, y) with at least one sample.")
    return (found[:-1], found[-1]) if len(found) > 1 else (found, None)


def _history(log: Any) -> Sequence[Mapping[str, Any]]:
    """The records of a training: what `train.fit` gave back, its history, or the path of its log.

    Raises:
        ArgumentError: for anything else.
    """
    records = records_of(log)
    if records is None:
        return ()
    if not isinstance(records, (list, tuple)) or not all(isinstance(record, Mapping) for record in records):
        raise ArgumentError(
            f"report: log is what train.fit gives back, the path of its log, or a list of dicts such as "
            f"{{'loss': 0.5}}, one for each epoch, not {log!r:.60}."
        )
    return records


# --- all is put back --------------------------------------------------------------------------------------------------


@contextmanager
def untouched(*cells: Any) -> Iterator[None]:
    """Whatever is done within: Parameters, kept states and random numbers are afterwards what they were."""
    parts = [cell for cell in cells if isinstance(cell, Cell)]
    before = [(p, p._data) for cell in parts for p in cell.get_parameters()]
    with ExitStack() as stack:
        stack.enter_context(replaying(present_key()))
        for stateful in _statefuls(parts):
            stack.enter_context(stateful.aside())
        try:
            yield
        finally:
            for parameter, data in before:  # a write puts another array in its place, and never reaches into this one
                parameter._data = data


def _statefuls(cells: Sequence[Cell]) -> list[Stateful]:
    found = [below for cell in cells for _, below in cell.cells_and_names() if isinstance(below, Stateful)]
    return list(dict.fromkeys(found))


# --- one call, one gradient, one update -------------------------------------------------------------------------------


class _Trial:
    """A call of the net on a batch, and what follows from it."""

    def __init__(
        self, net: Cell, inputs: list[Tensor], target: Tensor | None, loss_fn: Loss | None, optimizer: Any
    ) -> None:
        self.net, self.inputs, self.target, self.loss_fn, self.optimizer = net, inputs, target, loss_fn, optimizer
        self.monitor = Monitor(net, spikes=True, v=True, above=True, grad=loss_fn is not None, inputs=True)
        trained = net.trainable_params() + ([] if optimizer is None else list(optimizer.parameters))
        self.parameters: list[Parameter] = list({id(p): p for p in trained}.values())
        self.before = {id(p): p.asnumpy() for p in self.parameters}
        self.gradients: dict[int, Tensor] = {}
        self.updates: dict[int, Array] = {}
        self.output: Array | None = None
        self.loss: float | None = None

    def run(self) -> None:
        """Call the net within the monitor, and differentiate, if there is a loss."""
        self._at_rest()
        try:
            with self.monitor:
                out = self.net(*self.inputs) if self.loss_fn is None else self._differentiated()
        except (ShapeError, DTypeError, ArgumentError) as error:
            raise self._does_not_fit(error) from error
        if not self.monitor.layers:
            raise ArgumentError(
                f"report: no neuron of {type(self.net).__name__} ran when it was called. Run its neurons over time by "
                f"nn.MultiStep in construct, or call the Cell that does."
            )
        found = structure.flatten(out)[0]
        self.output = found[0].asnumpy() if found else None

    def _does_not_fit(self, error: Exception) -> Exception:
        shapes = ", ".join(f"{x.dtype}{list(x.shape)}" for x in self.inputs)
        target = "" if self.target is None else f" and target {self.target.dtype}{list(self.target.shape)}"
        kind = next(kind for kind in (ShapeError, DTypeError, ArgumentError) if isinstance(error, kind))
        return kind(
            f"report: the batch with inputs {shapes}{target} does not fit the {type(self.net).__name__}"
            f"{'' if self.loss_fn is None else ' or the loss'}: {error} Give a batch as in training, x or (x, y)."
        )

    def _at_rest(self) -> None:
        for stateful in _statefuls([self.net, *([self.loss_fn] if isinstance(self.loss_fn, Cell) else [])]):
            stateful.reset()

    def _differentiated(self) -> Any:
        position = None if self.parameters else 0
        gradient = ops.value_and_grad(self._objective, position, self.parameters or None, has_aux=True)
        (loss, out), found = gradient(*self.inputs)
        if self.parameters:
            self.gradients = {id(p): g for p, g in zip(self.parameters, found, strict=True)}
        self.loss = float(loss)
        return out

    def _objective(self, *inputs: Tensor) -> Any:
        out = self.net(*inputs)
        return self._loss(out, self.target), out

    def _loss(self, out: Any, target: Tensor | None) -> Tensor:
        assert self.loss_fn is not None  # the caller has looked
        loss = self.loss_fn(out) if target is None else self.loss_fn(out, target)
        if not isinstance(loss, Tensor) or loss.size != 1:
            got = f"of shape {loss.shape}" if isinstance(loss, Tensor) else f"a {type(loss).__name__}"
            raise ShapeError(f'The loss is one number, not {got}: reduction="mean", or its .mean().')
        return loss.reshape(())

    def halves(self) -> float | None:
        """The mean of the losses of the two halves of the batch, each by its samples; None where it has no halves."""
        shapes = [self.monitor.spikes[name].shape for name in self.monitor.layers if name in self.monitor.spikes]
        samples = shapes[0][1] if shapes and len(shapes[0]) > 1 else 0
        cut = samples // 2
        everything = [*self.inputs, *([] if self.target is None else [self.target])]
        axes = [batch_axis(x.shape, samples) for x in everything]
        if self.loss_fn is None or cut < 1 or None in axes:
            return None
        try:
            first = self._of_samples(everything, axes, slice(0, cut))
            second = self._of_samples(everything, axes, slice(cut, None))
        except SnncellError:  # a net that takes this batch size alone, or axes that were not those of the samples
            return None
        return (cut * first + (samples - cut) * second) / samples

    def _of_samples(self, everything: list[Tensor], axes: Sequence[int | None], some: slice) -> float:
        self._at_rest()
        found = [x[some] if axis == 0 else x[:, some] for x, axis in zip(everything, axes, strict=True)]
        inputs, target = (found, None) if self.target is None else (found[:-1], found[-1])
        return float(self._loss(self.net(*inputs), target))

    def update(self) -> None:
        """Try one update; whoever holds the net `untouched` puts it back."""
        if self.optimizer is None:
            return
        steps = self.optimizer.global_step._data
        self.optimizer([self.gradients[id(p)] for p in self.optimizer.parameters])
        self.optimizer.global_step._data = steps
        for parameter in self.optimizer.parameters:
            self.updates[id(parameter)] = parameter.asnumpy() - self.before[id(parameter)]

    def weights(self) -> list[Weight]:
        """The trained Parameters of the net, and of the loss."""
        cells = [cell for cell in (self.net, self.loss_fn) if isinstance(cell, Cell)]
        names = {id(p): path for cell in reversed(cells) for path, p in cell.parameters_and_names()}
        return [
            Weight(
                names.get(id(p), str(p.name)),
                self.before[id(p)],
                self.gradients[id(p)].asnumpy() if id(p) in self.gradients else None,
                self.updates.get(id(p)),
            )
            for p in self.parameters
        ]


def _costs(monitor: Monitor) -> dict[str, Any]:
    """What the layers with weights cost; nothing where there are none."""
    try:
        return dict(monitor.costs())
    except ArgumentError:
        return {}
