"""The recorder of a monitor: observe each call of a Cell, and keep the arrays of the selected quantities."""

from __future__ import annotations

import inspect
import math
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from snncell import ops
from snncell.base.arguments.shown import show
from snncell.cell.cell import Cell
from snncell.errors import ArgumentError, ShapeError
from snncell.monitoring.layers import WEIGHTED, CellStack, Neurons, index_of_potential
from snncell.nn.time.axis import find_lengths
from snncell.ops.base import as_tensor
from snncell.tape import structure
from snncell.tape.event_lists import EventLists
from snncell.tape.hooks import Event, Label, note, tap
from snncell.tape.state import settings
from snncell.tape.tensor import Tensor, wrap

Array = np.ndarray[Any, Any]
Spec = tuple[tuple[int, ...], Any]  # shape and dtype
KINDS = ("spikes", "v", "above", "grad")
# For each network, a key object per set of names of its Cells; traces are cached by it.
_NETS: WeakKeyDictionary[Cell, dict[Any, object]] = WeakKeyDictionary()


# --- the recording of one call of a network, layer by layer -----------------------------------------------------------


class Series:
    """The record of one quantity of a layer, in pieces: whole loops over time, or single steps."""

    def __init__(self) -> None:
        self.pieces: dict[int, tuple[Array, Tensor]] = {}  # by first step: step numbers, and the recording (steps, ...)
        self._lowest: int | None = None

    def add(self, begun: int, steps: Array, x: Tensor, backwards: bool) -> None:
        """Add a piece. Pieces of a gradient arrive backwards, and a new gradient replaces the old one."""
        if backwards:
            if self._lowest is not None and begun >= self._lowest:
                self.pieces.clear()
            self._lowest = begun
        self.pieces[begun] = steps, x

    def _in_order(self) -> list[tuple[Array, Tensor]]:
        return [self.pieces[begun] for begun in sorted(self.pieces)]

    def array(self, name: str) -> Array:
        """The joined pieces, (T, ...)."""
        arrays = [x.asnumpy() for _, x in self._in_order()]
        if len({array.shape[1:] for array in arrays}) > 1:
            raise ShapeError(
                f"monitor: {name!r} was called with steps of shapes {', '.join(str(a.shape[1:]) for a in arrays[:3])} "
                f"in one call of the network, so they do not fit into one record. Use a separate neuron for each layer."
            )
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)

    def steps(self) -> Array:
        """The numbers of the steps."""
        return np.concatenate([steps for steps, _ in self._in_order()])


class Inputs(NamedTuple):
    """The inputs of one call of a layer with weights."""

    share: float  # the number of rows that a recorded row represents: 1, or about `every`
    x: Tensor  # (*steps, ..., *features)
    steps: tuple[int, ...]  # the lengths of the loops over time around the call
    every: int = 1  # only each `every`-th step of the innermost loop is recorded


class Update(NamedTuple):
    """Shapes and dtypes of a neuron's step."""

    cell: Any
    steps: int  # per call: 1, or the length of the sequence
    sequence: bool  # True if a call gets a whole sequence, with time on the first axis
    inputs: tuple[Spec, ...]  # of the arguments: the current, (B, ...), and the states
    output: tuple[Spec, ...]
    states: tuple[Spec, ...]  # of the returned states

    @property
    def samples(self) -> int:
        """The samples of a step."""
        shape = self.inputs[0][0][self.sequence :]
        return shape[0] if shape else 1

    @property
    def neurons(self) -> int:
        """The number of neurons that a step updates, over all samples: its outputs, or else its inputs."""
        shape_in = self.inputs[0][0][self.sequence :]
        shape_out = self.output[0][0][self.sequence :] if self.output else shape_in
        return math.prod(shape_out if shape_out[:1] == shape_in[:1] else shape_in)


class RecordedCall:
    """The record of one call of the network: kind -> layer -> series."""

    def __init__(self) -> None:
        self.series: dict[str, dict[str, Series]] = {}
        self.inputs: dict[str, list[Inputs]] = {}  # of layers with weights
        self.updates: dict[str, tuple[Update, int]] = {}  # of neurons: their last call, and the total number of steps
        self.order: dict[str, None] = {}  # the names of both, in the order of their calls
        self.lengths: dict[str, Tensor] = {}  # of Cells that received lengths, by path
        self.counts: dict[str, int] = {}  # the number of steps that each layer has run

    def visit(self, name: str, steps: int) -> int:
        """Count steps of a layer, and return the number of earlier ones."""
        begun = self.counts.get(name, 0)
        self.counts[name] = begun + steps
        return begun

    def add(self, kind: str, name: str, begun: int, steps: Array, x: Tensor) -> None:
        """Add a piece of a run that begins at step `begun`."""
        self.series.setdefault(kind, {}).setdefault(name, Series()).add(begun, steps, x, kind == "grad")

    def lengths_of(self, name: str) -> Array | None:
        """The number of steps of each sample, (B,), from the innermost Cell with lengths around the layer."""
        around = [path for path in self.lengths if not path or f"{name}.".startswith(f"{path}.")]
        if not around:
            return None
        counts = self.lengths[max(around, key=len)].asnumpy()
        return counts if counts.ndim == 1 and counts.dtype.kind in "iu" else None

    def forget(self) -> None:
        """Free the record, because a tape may still refer to this call."""
        self.series, self.inputs, self.lengths, self.updates, self.order = {}, {}, {}, {}, {}


def missing(kind: str, name: Any) -> str:
    """Begin an error: a quantity of a layer was not recorded."""
    return f"no {kind} of {name!r:.60} {'were' if kind == 'spikes' else 'was'} recorded."


class Recorder:
    """The watcher of a network for a monitor (`tape.state.Watch`), with the monitor's arguments."""

    def __init__(
        self,
        neurons: Neurons,
        requests: dict[str, Any],
        inputs: bool,
        every: int,
        places: Any,
        samples: int | None,
        calls: int | None,
    ) -> None:
        self.inputs = inputs
        self._requests = requests
        self.every = every
        self._places = _places(places)
        self._samples = samples
        self.calls: deque[RecordedCall] = deque(maxlen=calls)
        self.cells: dict[str, Cell] = {}  # the neurons that were called, by layer name
        self.fires_by: dict[str, Any] = {}  # the Cells whose input is `above`
        self._sizes: dict[str, Any] = {}  # the number of neurons of a layer, if only some are recorded
        # For each running neuron, the label under which to note the input of its spike function; None once noted.
        self._firing: list[Label | None] = []
        self.selection = (self.every, self._places, self._samples)
        self._look(neurons)

    def _look(self, neurons: Neurons) -> None:
        self.neurons = neurons
        self.chosen_ids = {kind: neurons.select(one, kind) for kind, one in self._requests.items()}
        self._running = CellStack(neurons.paths)
        self._updates = neurons.map_updating_cells() if self.inputs else {}
        token = _NETS.setdefault(neurons.net, {}).setdefault(neurons.structure, object())
        self._key = (token, tuple(self.chosen_ids[kind] for kind in KINDS), bool(self.inputs), self.selection)

    def look_again(self) -> None:
        """Update the list of neurons after a change of the network."""
        if self.neurons.have_changed():
            self._look(Neurons(self.neurons.net))

    @property
    def key(self) -> Hashable:
        """Part of the key of traces: the selected quantities, and the path, because a shared Cell has several names."""
        return (*self._key, self._running.path)

    def around(self, cell: Any, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a Cell, and note its selected quantities: `tape.hooks.note` returns them from loops and traces."""
        # Before the outermost call, check whether Cells were added or replaced since the last call.
        if cell is self.neurons.net and self._running.path is None:
            self.look_again()
        if cell not in self._running and not self._firing:
            return run(args, kwargs)
        if cell is self.neurons.net:
            note(Label("call", ""))
        path = self._running.enter(cell)
        lengths = find_lengths(cell, args, kwargs)
        if isinstance(lengths, (Tensor, np.ndarray, list, tuple)):
            note(Label("lengths", path, self.selection), as_tensor(lengths, "monitor", "lengths"))
        if self.inputs and id(cell) in self._updates:
            run = self._counting(cell, path, run)
        try:
            if id(cell) in self.neurons.cells:
                return self._around_neuron(cell, self.neurons.layer_name(path, cell), run, args, kwargs)
            label = self._firing[-1] if self._firing else None
            neuron = label.event.subject if label and label.event else None
            # A neuron's `surrogate_function` may have no bprop itself, but contain a Cell that has one.
            if label and (
                getattr(cell, "bprop", None) is not None or cell is getattr(neuron, "surrogate_function", None)
            ):
                # Note only the outermost spike function, not the Cells inside of it.
                self._firing[-1] = None
                note(label._replace(kind="fires by", selection=cell))
                note(label, _first(cell, args, kwargs))
            elif self.inputs and isinstance(cell, WEIGHTED) and cell in self._running:
                note(Label("inputs", path, self.selection), _first(cell, args, kwargs))
            return run(args, kwargs)
        finally:
            self._running.leave()

    def _around_neuron(self, cell: Any, name: str, run: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        records = {kind: id(cell) in self.chosen_ids[kind] for kind in KINDS}
        if getattr(cell, "weights_inside", False):  # such a Cell receives spikes instead of the current of its neurons
            records |= {"grad": False, "above": False}
        if not any(records.values()):
            return run(args, kwargs)
        current = _first(cell, args, kwargs)
        steps = (len(current),) if getattr(cell, "whole_sequences", False) else ()
        visit = Label("visit", name, self.selection, Event(cell), steps)
        note(visit)
        if records["grad"]:
            x = tap(current, visit._replace(kind="grad"))
            args, kwargs = ((x, *args[1:]), kwargs) if args else (args, {**kwargs, _name_of_first(cell): x})
        self._firing.append(visit._replace(kind="above") if records["above"] else None)
        try:
            result = run(args, kwargs)
        finally:
            self._firing.pop()
        outputs = structure.flatten(result)[0][:1]
        if self._places is not None and outputs:
            note(visit._replace(kind="size", selection=math.prod(outputs[0].shape[1 + len(steps) :])))
        if records["spikes"]:
            for output in outputs:
                note(visit._replace(kind="spikes"), output)
        if records["v"] and isinstance(result, tuple) and len(result) > 1:
            for state in structure.flatten(result[1 + index_of_potential(cell, len(result) - 1)])[0][:1]:
                note(visit._replace(kind="v"), state)
        return result

    def _counting(self, cell: Any, path: str, run: Any) -> Any:
        """Wrap the call of a neuron, so that the shapes of its step are noted."""
        neuron = self._updates[id(cell)]
        inner = next(name for name, below in cell.cells_and_names() if below is neuron)
        name = self.neurons.layer_name(f"{path}.{inner}" if path and inner else path or inner, neuron)

        def counted(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            result = run(args, kwargs)
            arguments = inspect.signature(cell.construct).bind(*args, **kwargs).arguments.values()
            out, after = (result[:1], result[1:]) if isinstance(result, tuple) else ((result,), ())
            sequence = bool(getattr(cell, "whole_sequences", False))
            steps = len(next(iter(arguments))) if sequence else 1
            shapes = _specs(tuple(arguments)), _specs(out)[:1], _specs(after)
            note(Label("update", name, Update(cell, steps, sequence, *shapes)))
            return result

        return counted

    def chosen(self, label: Label, x: Tensor) -> Tensor:
        """The selected part of a Tensor (T, B, ...): each `every`-th step, the first samples, some neurons."""
        batch = len(label.steps)  # its axis
        whole = (slice(None),) * (batch - 1)
        if self.every > 1:
            x = x[(*whole, slice(None, None, self.every))]
        if label.kind == "inputs":
            return x
        if self._samples is not None and x.ndim > batch:
            x = x[(*whole, slice(None), slice(self._samples))]
        if self._places is not None and x.ndim > batch + 1:
            places = self._in_layer(math.prod(x.shape[batch + 1 :]), label)
            x = ops.gather(x.reshape((*x.shape[: batch + 1], -1)), Tensor(places), batch + 1)
        return x

    def step_mask(self, call: RecordedCall, name: str) -> Array | None:
        """Return a mask (T, B) of the steps before the end of each sample; None without lengths for this batch."""
        counts, series = call.lengths_of(name), call.series["spikes"][name]
        if counts is None:
            return None
        counts = counts[: self._samples]
        if series.array(name).shape[1:2] != counts.shape:
            return None
        return series.steps()[:, None] < counts

    def numbers(self, name: str, count: int) -> Array:
        """The indices of the `count` recorded neurons in their layer."""
        return self._in_layer(self._sizes[name]) if name in self._sizes else np.arange(count)

    def _in_layer(self, count: int, label: Label | None = None) -> Any:
        if isinstance(self._places, int):
            return np.unique(np.linspace(0, count - 1, min(self._places, count)).round().astype(np.int64))
        assert self._places is not None  # the callers have checked it
        if max(self._places) >= count or min(self._places) < -count:
            name, kind = (label.name, label.kind) if label else ("", "spikes")
            other = next((one for one in self.neurons.names() if one != name), name)
            raise ArgumentError(
                f"monitor: neurons={list(self._places)!r:.60}, but the layer {name!r} has {count}. Record only "
                f"layers that have these neurons, such as monitor(net, {kind}={other!r}). Or pass a number of neurons, "
                f"which are then selected in each layer."
            )
        return np.array(self._places, np.int64) % count

    def take(self, label: Label, x: Tensor | None) -> None:
        """Store a noted Tensor."""
        if label.kind in ("size", "fires by"):
            (self._sizes if label.kind == "size" else self.fires_by)[label.name] = label.selection
            return
        if label.kind == "call" or not self.calls:
            if len(self.calls) == self.calls.maxlen:
                self.calls[0].forget()
            self.calls.append(RecordedCall())
        if label.kind == "update":
            call, update = self.calls[-1], label.selection
            assert isinstance(update, Update)
            before = call.updates.get(label.name, (update, 0))[1]
            call.updates[label.name] = update, before + math.prod(label.steps) * update.steps
            call.order[label.name] = None
            return
        if label.kind == "visit":
            assert label.event is not None  # a visit always has an event
            self.cells[label.name] = label.event.subject
            label.event.record = self.calls[-1], self.calls[-1].visit(label.name, math.prod(label.steps))
        elif x is not None:
            with settings(trace=None, tape=None, notes=None):
                self._keep(label, x)

    def _keep(self, label: Label, x: Tensor) -> None:
        if label.kind == "lengths":
            if not label.steps:  # in a loop over time, each step notes its own lengths, which are not kept
                self.calls[-1].lengths[label.name] = x
            return
        if label.event is None:  # inputs of a layer with weights; it may be called for one step or for all at once
            share = label.steps[-1] / -(-label.steps[-1] // self.every) if label.steps else 1
            inputs = Inputs(share, x, label.steps, self.every if label.steps else 1)
            self.calls[-1].inputs.setdefault(label.name, []).append(inputs)
            self.calls[-1].order[label.name] = None
            return
        call, begun = label.event.record or (None, 0)
        if call is None or not any(call is known for known in self.calls):
            return  # the call was dropped, or belongs to another monitor
        if not label.steps:
            if begun % self.every:
                return
            label = label._replace(steps=(1,))
            x = self.chosen(label, x.reshape((1, *x.shape)))
        numbers = np.arange(math.prod(label.steps)).reshape(label.steps)[..., :: self.every].ravel()
        x = x.reshape((len(numbers), *x.shape[len(label.steps) :]))
        call.add(label.kind, label.name, begun, begun + numbers, _alone(x))


def _alone(x: Tensor) -> Tensor:
    """The Tensor, copied if it is a part of a larger array, so that the rest can be freed."""
    part = x._data
    whole = part.base if isinstance(part, np.ndarray) else None
    return wrap(part.copy()) if isinstance(whole, np.ndarray) and whole.nbytes > part.nbytes else x


def _places(neurons: Any) -> int | tuple[int, ...] | None:
    if neurons is None:
        return None
    if isinstance(neurons, (list, tuple, range, np.ndarray)):
        indices = tuple(n.item() if isinstance(n, np.integer) else n for n in neurons)
        if indices and all(type(n) is int for n in indices):
            return indices
    elif not isinstance(neurons, bool) and isinstance(neurons, int) and neurons > 0:
        return neurons
    raise ArgumentError(
        f"monitor: neurons must be a number of neurons for each layer, or a list of indices, not {show(neurons)}."
    )


def _first(cell: Cell, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The first input of a Cell, by position or by name; for event lists, their array of elements."""
    x = args[0] if args else kwargs.get(_name_of_first(cell))
    return x.to_dense() if isinstance(x, EventLists) else x


def _specs(values: tuple[Any, ...]) -> tuple[Spec, ...]:
    return tuple((tuple(x.shape), x._data.dtype) for x in structure.flatten(values)[0])


def _name_of_first(cell: Cell) -> str:
    return next(iter(inspect.signature(cell.construct).parameters), "")
