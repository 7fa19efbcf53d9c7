"""Record a network over a batch: one call, its gradient, and a trial update. Afterwards all state is restored."""

from __future__ import annotations

import csv
import inspect
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from snncell import ops
from snncell.base.arguments.kinds import misfit
from snncell.base.arguments.shown import show
from snncell.cell.cell import Cell
from snncell.errors import ArgumentError, CallError, DTypeError, ShapeError, SnncellError, cut
from snncell.monitoring import Monitor
from snncell.monitoring.layers import index_of_potential
from snncell.nn.optim.optimizer import Optimizer
from snncell.nn.time.multistep import MultiStep, initial_states
from snncell.nn.time.states import Recurrent, find_statefuls, put_aside
from snncell.ops.random import present_key, replaying
from snncell.report.facts import Array, ConstantFacts, Facts, LayerFacts, Weight, batch_axis, slope_of_surrogate
from snncell.report.training import AT_CHANCE, is_classification
from snncell.tape import structure
from snncell.tape.event_lists import EventLists
from snncell.tape.parameter import Parameter
from snncell.tape.state import settings
from snncell.tape.structure import is_array
from snncell.tape.tensor import Tensor, on_device_of

Loss = Callable[..., Any]

# --- Facts of one layer -----------------------------------------------------------------------------------------------

LARGEST_FEEDBACK = 1024  # neurons; the eigenvalues of a larger matrix would take longer than the rest of the report
NUDGE = 1e-3  # the perturbation of a potential that measures the leak


def layer_facts(monitor: Monitor, name: str, net: Cell) -> LayerFacts:
    """The facts of a recorded layer."""
    cell = monitor.cell(name)
    recorded = {kind: getattr(monitor, kind) for kind in ("spikes", "above", "v", "grad")}
    arrays = {kind: of_kind.get(name) for kind, of_kind in recorded.items()}
    shape = next((a.shape for a in arrays.values() if a is not None), (0, 0))
    grad = arrays.pop("grad")  # the gradient of the layer's input, whose width may differ
    arrays = {kind: _as_large(array, shape) for kind, array in arrays.items()}
    before_end = None if arrays["spikes"] is None else monitor.spikes.before_end(name)
    before_end = before_end if before_end is not None and before_end.any() else None  # None: all steps are padding
    arrays |= {kind: _as_at_end(arrays[kind], before_end) for kind in ("above", "v")}
    threshold = getattr(cell, "v_threshold", None)
    place = next((p.device for p in net.get_parameters()), "cpu")
    loops = [c for _, c in net.cells_and_names() if isinstance(c, Recurrent)]
    around = next((c for c in loops if any(below is cell for _, below in c.cell.cells_and_names())), None)
    return LayerFacts(
        name=name,
        neuron=type(cell).__name__,
        spiking=monitor.fires(name),
        **arrays,
        grad=grad if grad is not None and grad.shape[:1] == shape[:1] else _as_large(grad, shape),
        before_end=before_end,
        slope=slope_of_surrogate(monitor.spike_function(name), shape[2:]),
        threshold=None if threshold is None else float(np.mean(np.asarray(threshold))),
        reach=_reach(cell, shape[2:], place),
        constants=[
            ConstantFacts(
                f"{path}.{constant.name}".lstrip("."),
                np.asarray(constant.value, np.float64),
                np.asarray(constant.range.low, np.float64),
                np.asarray(constant.range.high, np.float64),
                constant.range.closed,
                constant.range.text,
                constant.learned,
            )
            for path, below in cell.cells_and_names()
            for constant in getattr(below, "constants_and_ranges", ())
        ],
        detached=bool(getattr(cell, "detach_reset", False)) and getattr(cell, "reset", None) is not None,
        leak=_leak(cell, shape[2:], place),
        drop=_drop(cell),
        recurrent=around is not None,
        radius=None if around is None else _radius(around.feedback, shape[2:], place),
    )


def _as_large(array: Array | None, shape: tuple[int, ...]) -> Array | None:
    """A recording in the shape of the layer's output, or None if it has another size."""
    return None if array is None or array.size != np.prod(shape) else array.reshape(shape)


def _as_at_end(array: Array | None, before_end: Array | None) -> Array | None:
    """A recording (T, B, ...) whose padded steps repeat the last step of their sample."""
    if array is None or before_end is None or array.shape[:2] != before_end.shape:
        return array
    last = np.maximum(before_end.sum(0) - 1, 0)
    numbers = np.minimum(np.arange(len(array))[:, None], last)
    return np.take_along_axis(array, numbers.reshape(*numbers.shape, *(1,) * (array.ndim - 2)), 0)


def _reach(cell: Cell, features: tuple[int, ...], place: str) -> float | None:
    """The distance from rest to the threshold, by the spike function's input in a step without input."""
    run = MultiStep(cell)
    try:
        with settings(unfused=True), replaying(present_key()), Monitor(run, spikes=False, above=True) as seen:
            run(ops.zeros((1, 1, *features)).to(place))
        above = next(iter(seen.above.values()), None)
    except (SnncellError, IndexError, TypeError, ValueError):
        return None  # a neuron with another interface; the report then has no potentials in thresholds
    reach = None if above is None else -float(np.mean(above))
    return reach if reach is not None and np.isfinite(reach) and reach > 0 else None


def _drop(cell: Cell) -> float:
    """The decrease of the potential by a spike at the threshold; 0 if the reset is detached."""
    reset = getattr(cell, "reset", None)
    if reset is None or getattr(cell, "detach_reset", False) or not hasattr(cell, "v_threshold"):
        return 0.0
    floor = np.asarray(getattr(cell, "v_reset", 0.0)) if reset == "value" else 0.0
    return float(np.mean(np.asarray(cell.v_threshold) - floor))


def _leak(cell: Cell, features: tuple[int, ...], place: str) -> float | None:
    """The factor by which a step without input multiplies a small change of the potential; None if unknown."""
    try:
        x = ops.zeros((1, *features)).to(place)
        with on_device_of(x):
            states = list(initial_states(cell, x))
        number = index_of_potential(cell, len(states))
        moved = [state + NUDGE if n == number else state for n, state in enumerate(states)]
        with replaying(present_key()):
            before, after = (cell(x, *each)[1 + number].asnumpy() for each in (states, moved))
    except (SnncellError, IndexError, TypeError, ValueError):
        return None  # a neuron with another interface; only an explanation is then missing
    leak = float(np.mean(after.astype(np.float64) - before) / NUDGE)
    return leak if np.isfinite(leak) else None


def _radius(feedback: Cell, features: tuple[int, ...], place: str) -> float | None:
    """The spectral radius of the feedback, taken as a matrix from the layer's outputs to its inputs."""
    count = int(np.prod(features))
    if not 0 < count <= LARGEST_FEEDBACK:
        return None
    units = np.eye(count, dtype=np.float32).reshape(count, *features)
    with replaying(present_key()):
        of_units, of_zeros = (
            feedback(Tensor(x).to(place)).asnumpy().reshape(count, -1) for x in (units, np.zeros_like(units))
        )
    matrix = of_units - of_zeros
    if matrix.shape != (count, count) or not np.isfinite(matrix).all():
        return None
    return float(np.abs(np.linalg.eigvals(matrix)).max())


def examine(
    net: Cell, batch: Any, loss: Loss | None = None, optimiser: Optimizer | None = None, log: Any = None
) -> tuple[Facts, Monitor]:
    """The facts of `net` over `batch`, and the monitor; the state of the network does not change."""
    if optimiser is not None:
        if loss is None:
            raise ArgumentError("report: optimiser needs a loss too, because its update needs gradients. Pass loss=...")
        refuse_foreign(optimiser, "report", net, loss)
    records = history(log)
    inputs, target = parts(batch)
    loss_takes(loss, target)
    with leave_untouched(net, loss, optimiser):
        trial = _Trial(net, inputs, target, loss, optimiser)
        trial.run()
        halves, guessing = trial.halves(), trial.guessing()
        layers = [layer_facts(trial.monitor, name, net) for name in trial.monitor.layers]
        try:
            costs = dict(trial.monitor.costs())
        except ArgumentError:  # no layer has weights
            costs = {}
        trial.update()  # last, because the facts above must describe the network before the update
    facts = Facts(
        layers=layers,
        weights=trial.weights(),
        inputs=[x.asnumpy() for x in inputs],
        output=trial.output,
        target=None if target is None else target.asnumpy(),
        loss=trial.value,
        halves=halves,
        guessing=guessing,
        differentiated=loss is not None,
        updates=None if optimiser is None or loss is None else int(optimiser.global_step.item()),
        history=records,
        costs=costs,
        unseen=trial.monitor.unseen,
    )
    return facts, trial.monitor


# --- Restoring the state ----------------------------------------------------------------------------------------------


@contextmanager
def leave_untouched(*cells: Any) -> Iterator[None]:
    """Context manager: restore Parameters, kept states and random numbers at the end."""
    before = [(p, p._data) for cell in cells if isinstance(cell, Cell) for p in cell.get_parameters()]
    with replaying(present_key()), put_aside(*cells):
        try:
            yield
        finally:
            for parameter, data in before:  # a write replaces the array and never changes it in place
                parameter._data = data


# --- One call, one gradient, one update -------------------------------------------------------------------------------


class _Trial:
    """A call of the network on a batch, with its gradients and a trial update."""

    def __init__(
        self, net: Cell, inputs: list[Tensor], target: Tensor | None, loss: Loss | None, optimiser: Any
    ) -> None:
        self.net, self.inputs, self.target, self.loss, self.optimiser = net, inputs, target, loss, optimiser
        try:
            self.monitor = Monitor(net, spikes=True, v=True, above=True, grad=loss is not None, inputs=True)
        except ArgumentError as error:  # the network has no neurons
            raise ArgumentError(f"report: {str(error).rpartition('monitor: ')[2]}") from error
        trained = net.trainable_params() + ([] if optimiser is None else optimiser.trainable_params())
        self.parameters: list[Parameter] = list({id(p): p for p in trained}.values())
        self.before = {id(p): p.asnumpy() for p in self.parameters}
        self.gradients: dict[int, Tensor] = {}
        self.updates: dict[int, Array] = {}
        self.output: Array | None = None
        self.scores: Tensor | None = None
        self.value: float | None = None

    def run(self) -> None:
        self._at_rest()
        monitoring = False
        try:
            with self.monitor:
                monitoring = True
                out = self.net(*self.inputs) if self.loss is None else self._differentiated()
        except (ShapeError, DTypeError, ArgumentError, CallError) as error:
            if not monitoring:  # another monitor is active
                raise ArgumentError(f"report: {str(error).rpartition('monitor: ')[2]}") from error
            shapes = ", ".join(f"{x.dtype}{list(x.shape)}" for x in self.inputs)
            target = "" if self.target is None else f" and target {self.target.dtype}{list(self.target.shape)}"
            kind = next(k for k in (ShapeError, DTypeError, ArgumentError, CallError) if isinstance(error, k))
            raise kind(
                f"report: the batch with inputs {shapes}{target} does not fit the {type(self.net).__name__}"
                f"{'' if self.loss is None else ' or the loss'}: {error} Give a batch as in training, x or (x, y)."
            ) from error
        if not self.monitor.layers and not self.monitor.unseen:
            raise ArgumentError(
                f"report: no neuron of {type(self.net).__name__} ran when it was called. Run its neurons over time by "
                f"nn.MultiStep in construct, or call the Cell that does."
            )
        outputs = structure.flatten(out)[0]
        self.output = outputs[0].asnumpy() if outputs else None
        self.scores = out if self.loss is not None and isinstance(out, Tensor) else None

    def _at_rest(self) -> None:
        for stateful in find_statefuls(self.net, self.loss):
            stateful.reset()

    def _differentiated(self) -> Any:
        def objective(*inputs: Tensor) -> Any:
            out = self.net(*inputs)
            return self._loss(out, self.target), out

        position = None if self.parameters else 0
        gradient = ops.value_and_grad(objective, position, self.parameters or None, has_aux=True)
        (value, out), gradients = gradient(*self.inputs)
        if self.parameters:
            self.gradients = {id(p): g for p, g in zip(self.parameters, gradients, strict=True)}
        self.value = float(value)
        return out

    def _loss(self, out: Any, target: Tensor | None) -> Tensor:
        assert self.loss is not None  # the caller has checked
        value = self.loss(out) if target is None else self.loss(out, target)
        if not isinstance(value, Tensor) or value.size != 1:
            got = f"of shape {value.shape}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
            raise ShapeError(f'The loss must be one number, not {got}. Use reduction="mean", or loss.mean().')
        return value.reshape(())

    def halves(self) -> float | None:
        """The mean loss of the two halves of the batch, weighted by their samples; None for a single sample."""
        shapes = [self.monitor.spikes[name].shape for name in self.monitor.layers if name in self.monitor.spikes]
        samples = shapes[0][1] if shapes and len(shapes[0]) > 1 else 0
        cut = samples // 2
        everything = [*self.inputs, *([] if self.target is None else [self.target])]
        axes = [batch_axis(x.shape, samples) for x in everything]
        if self.loss is None or cut < 1 or None in axes:
            return None
        losses = []
        try:
            for some in (slice(0, cut), slice(cut, None)):
                self._at_rest()
                half = [x[some] if axis == 0 else x[:, some] for x, axis in zip(everything, axes, strict=True)]
                inputs, target = (half, None) if self.target is None else (half[:-1], half[-1])
                losses.append(float(self._loss(self.net(*inputs), target)))
        except SnncellError:  # the network accepts only this batch size, or an axis was not the axis of the samples
            return None
        return (cut * losses[0] + (samples - cut) * losses[1]) / samples

    def guessing(self) -> float | None:
        """The loss of equal scores for all C classes if this is ln C, as for cross entropy; else None."""
        if self.scores is None or self.target is None:
            return None
        if not is_classification(self.scores.shape, self.target.asnumpy()):
            return None
        self._at_rest()
        try:
            loss = float(self._loss(ops.zeros_like(self.scores), self.target))
        except SnncellError:  # the loss does not accept such scores
            return None
        chance = math.log(self.scores.shape[-1])
        return chance if abs(loss - chance) < AT_CHANCE * chance else None

    def update(self) -> None:
        if self.optimiser is None:
            return
        steps = self.optimiser.global_step._data
        self.optimiser([self.gradients[id(p)] for p in self.optimiser.trainable_params()])
        self.optimiser.global_step._data = steps
        for parameter in self.optimiser.trainable_params():
            self.updates[id(parameter)] = parameter.asnumpy() - self.before[id(parameter)]

    def weights(self) -> list[Weight]:
        """The trainable Parameters of the network and of the loss."""
        cells = [cell for cell in (self.net, self.loss) if isinstance(cell, Cell)]
        names = {id(p): path for cell in reversed(cells) for path, p in cell.parameters_and_names()}
        groups = None if self.optimiser is None else self.optimiser.group_numbers()
        several = self.optimiser is not None and len(self.optimiser.groups) > 1
        return [
            Weight(
                names.get(id(p), str(p.name)),
                self.before[id(p)],
                self.gradients[id(p)].asnumpy() if id(p) in self.gradients else None,
                self.updates.get(id(p)),
                groups is not None and id(p) not in groups,
                groups.get(id(p)) if groups is not None and several else None,
            )
            for p in self.parameters
        ]


# --- Checks of arguments ----------------------------------------------------------------------------------------------


def refuse_foreign(optimiser: Optimizer, who: str, net: Cell, loss: Any = None) -> None:
    """Raise an ArgumentError if the optimiser trains a Parameter of another network."""
    known = {id(p) for cell in (net, loss) if isinstance(cell, Cell) for p in cell.get_parameters()}
    for parameter in optimiser.parameters:
        if id(parameter) not in known:
            raise ArgumentError(
                f"{who}: the optimiser trains Parameter {parameter.name!r} of shape {parameter.shape}, which is not in "
                f"the {type(net).__name__}. Make the optimiser from this one: net.trainable_params()."
            )


def parts(batch: Any) -> tuple[list[Tensor], Tensor | None]:
    """The inputs and the target of a batch as Tensors; the target is None if the batch is x alone."""
    several = isinstance(batch, (tuple, list)) and all(isinstance(x, Tensor) or is_array(x) for x in batch)
    entries = list(batch) if several or isinstance(batch, tuple) else [batch]
    entries = [batch] if isinstance(batch, EventLists) else entries
    try:
        # A report measures each element of its inputs, so it converts event lists to dense arrays.
        dense = [x.to_dense() if isinstance(x, EventLists) else x for x in entries]
        tensors = [x if isinstance(x, Tensor) else Tensor(x) for x in dense]
    except (SnncellError, TypeError, ValueError) as error:
        raise ArgumentError(
            f"report: the batch must be x or (x, y), arrays or Tensors, not {cut(show(batch), 60)}."
        ) from error
    if not tensors or any(x.size == 0 for x in tensors):
        shapes = ", ".join(str(x.shape) for x in tensors) or "nothing"
        raise ArgumentError(f"report: the batch is empty: {shapes}. Give (x, y) with at least one sample.")
    return (tensors[:-1], tensors[-1]) if len(tensors) > 1 else (tensors, None)


def history(log: Any) -> Sequence[Mapping[str, Any]]:
    """The records of a training, from the `Result` of `train.fit`, its history, or the path of its log."""
    records = records_of(log, "report: log")
    if records is None:
        return ()
    if not isinstance(records, (list, tuple)) or not all(isinstance(record, Mapping) for record in records):
        raise ArgumentError(
            f"report: log must be the result of train.fit, the path of its log, or a list of dicts such as "
            f"{{'loss': 0.5}}, one for each epoch, not {cut(show(log), 60)}."
        )
    return records


def records_of(log: Any, who: str) -> Any:
    """The records of a log: of a file .csv or .jsonl, or of the `history` of a result; anything else is returned."""
    if not isinstance(log, (str, os.PathLike)):
        return getattr(log, "history", log)
    path = Path(log)
    there = os.path.isfile(path)  # in Python 3.11, unlike `Path.is_file`, False for a name that is too long
    if path.suffix not in (".csv", ".jsonl") or not there:
        wrong = f"{str(path)!r} is not a log" if there else f"there is no file {str(path)!r}"
        raise ArgumentError(f"{who}: {wrong}. Pass the *.csv or *.jsonl that train.fit(log=...) wrote, or its result.")
    with path.open(encoding="utf-8", newline="") as file:
        if path.suffix == ".csv":
            return list(csv.DictReader(file))
        return [_record(path, number, line, who) for number, line in enumerate(file, 1) if line.strip()]


def _record(path: Path, number: int, line: str, who: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except json.JSONDecodeError:
        record = None
    if not isinstance(record, dict):
        raise ArgumentError(f"{who}: line {number} of {str(path)!r} is not a record of train.fit, a JSON object.")
    return record


def loss_takes(loss: Loss | None, target: Tensor | None) -> None:
    """Raise a CallError unless the loss accepts the network's output, and the target if there is one."""
    if loss is None:
        return
    function = loss.construct if isinstance(loss, Cell) else loss
    if misfit(function, [None] if target is None else [None, None]):
        name, takes = getattr(loss, "__name__", type(loss).__name__), ", ".join(inspect.signature(function).parameters)
        batch, mend = ("x alone", "(x, y)") if target is None else ("(x, y)", "x alone, an array")
        raise CallError(
            f"report: the loss {name} takes ({takes}), and the batch is {batch}. Give a batch as in training, {mend}."
        )
