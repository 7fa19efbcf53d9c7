"""The recorder behind a monitor: it sees each call of a Cell, notes what is wanted, and keeps what comes out."""

from __future__ import annotations

import inspect
import math
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from snncell import ops
from snncell.cell import Cell
from snncell.errors import ArgumentError
from snncell.monitoring.costs import WEIGHTED
from snncell.monitoring.layers import Calls, Neurons, short
from snncell.monitoring.record import Call
from snncell.nn.layer import positive
from snncell.tape.state import settings
from snncell.tape.tensor import Tensor, wrap
from snncell.tape.watching import Label, note, tapped

KINDS = ("spikes", "v", "above", "grad")
_NETS: WeakKeyDictionary[Cell, object] = WeakKeyDictionary()  # what stands for a network in the keys of traces


class Recorder:
    """Who watches a network for a monitor (`tape.watching.Watch`).

    Args:
        neurons: those of the network.
        wanted: for each quantity the neurons, by id.
        inputs, every, places, samples, calls: as for the monitor.
    """

    def __init__(
        self,
        neurons: Neurons,
        wanted: dict[str, frozenset[int]],
        inputs: bool,
        every: int,
        places: Any,
        samples: int | None,
        calls: int | None,
    ) -> None:
        self.neurons = neurons
        self.wanted = wanted
        self.inputs = inputs
        self.every = positive(every, "monitor", "every")
        self._places = _places(places)
        self._samples = None if samples is None else positive(samples, "monitor", "samples")
        self.kept: deque[Call] = deque(maxlen=None if calls is None else positive(calls, "monitor", "calls"))
        self.cells: dict[str, Cell] = {}  # the neurons that were called, by the name of the layer
        self._running = Calls(neurons.paths)
        self._firing: list[Label | None] = []  # what the neuron that runs notes when it fires, which it does once
        token = _NETS.setdefault(neurons.net, object())
        chosen = tuple(wanted[kind] for kind in KINDS)
        self.key = (token, chosen, bool(inputs), self.every, self._places, self._samples)

    def around(self, cell: Any, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a Cell, and note what is wanted of it."""
        if cell is self.neurons.net:
            note(Label("call", ""))
        path = self._running.enter(cell)
        try:
            if id(cell) in self.neurons.cells:
                return self._around_neuron(cell, short(path, cell), run, args, kwargs)
            if self._firing and self._firing[-1] and getattr(cell, "bprop", None) is not None:
                label, self._firing[-1] = self._firing[-1], None
                note(label, args[0])
            elif self.inputs and isinstance(cell, WEIGHTED):
                note(Label("inputs", path), args[0])
            return run(args, kwargs)
        finally:
            self._running.leave()

    def _around_neuron(self, cell: Any, name: str, run: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        wanted = {kind: id(cell) in self.wanted[kind] for kind in KINDS}
        if not any(wanted.values()):
            return run(args, kwargs)
        runs = int(getattr(cell, "whole_sequences", False))
        note(Label("visit", name))
        if wanted["grad"]:
            args = (tapped(args[0], Label("grad", name, runs)), *args[1:])
        self._firing.append(Label("above", name, runs) if wanted["above"] else None)
        try:
            result = run(args, kwargs)
        finally:
            self._firing.pop()
        if wanted["spikes"]:
            note(Label("spikes", name, runs), result[0] if isinstance(result, tuple) else result)
        if wanted["v"] and isinstance(result, tuple) and len(result) > 1:
            note(Label("v", name, runs), result[_place_of_v(cell)])
        return result

    def chosen(self, label: Label, x: Tensor) -> Tensor:
        """What is wanted of a Tensor (T, B, ...): every k-th step, the first samples, some neurons."""
        if self.every > 1 and label.runs:
            x = x[:: self.every]
        if label.kind == "inputs":
            return x
        if self._samples is not None and x.ndim > 1:
            x = x[:, : self._samples]
        if self._places is not None and x.ndim > 2:
            places = self._in_layer(math.prod(x.shape[2:]))
            x = ops.gather(x.reshape((*x.shape[:2], -1)), Tensor(places), 2)
        return x

    def _in_layer(self, count: int) -> Any:
        if isinstance(self._places, int):
            return np.unique(np.linspace(0, count - 1, min(self._places, count)).round().astype(np.int64))
        assert self._places is not None  # the caller's choice
        if max(self._places) >= count or min(self._places) < -count:
            raise ArgumentError(
                f"monitor: neurons={list(self._places)!r:.60}, but a layer has {count}. Give their number, and so many "
                f"are taken from each layer."
            )
        return np.array(self._places, np.int64) % count

    def take(self, label: Label, x: Tensor | None) -> None:
        """Keep what has been noted."""
        if label.kind == "call" or not self.kept:
            self.kept.append(Call())
        call = self.kept[-1]
        if label.kind == "visit":
            self.cells.setdefault(label.name, self.neurons.named[label.name])
            call.visits[label.name] = call.visits.get(label.name, 0) + 1
        elif x is not None:
            with settings(trace=None, tape=None, notes=None):
                self._keep(call, label, x)

    def _keep(self, call: Call, label: Label, x: Tensor) -> None:
        if label.kind == "inputs":  # of a layer that is called for all steps at once, or for one: it does not tell
            call.inputs.setdefault(label.name, []).append((self.every if label.runs else 1, x))
            return
        if label.kind == "grad":
            call = self._call_of_gradient(label.name)
        if label.runs == 0:
            x = self.chosen(label, x.reshape((1, *x.shape)))
        for _ in range(label.runs - 1):  # a loop within a loop
            x = x.reshape((-1, *x.shape[2:]))
        key = (label.kind, label.name)
        begun = call.counts.get(key, 0)
        call.counts[key] = begun + (self.every * x.shape[0] if label.runs else 1)
        if label.runs or begun % self.every == 0:
            call.add(*key, begun + self.every * np.arange(x.shape[0]), _alone(x))

    def _call_of_gradient(self, name: str) -> Call:
        """The call that a piece of a gradient is of: the sweep goes backwards, so the latest one that has none yet."""
        for call in reversed(self.kept):
            if call.room_for_gradient(name):
                return call
        for call in self.kept:  # a gradient that is taken again takes the place of the one before
            call.series.get("grad", {}).pop(name, None)
            call.counts.pop(("grad", name), None)
        return self.kept[-1]


def _alone(x: Tensor) -> Tensor:
    """A part of a larger array as an array of its own, so that the rest of it is not kept."""
    part = x._data
    whole = part.base if isinstance(part, np.ndarray) else None
    return wrap(part.copy()) if isinstance(whole, np.ndarray) and whole.nbytes > part.nbytes else x


def _places(neurons: Any) -> int | tuple[int, ...] | None:
    if neurons is None:
        return None
    if isinstance(neurons, Iterable):
        found = tuple(int(n) for n in neurons)
        if found:
            return found
    elif not isinstance(neurons, bool) and isinstance(neurons, int) and neurons > 0:
        return neurons
    raise ArgumentError(f"monitor: neurons is a number of them from each layer, or a list of indices, not {neurons!r}.")


def _place_of_v(cell: Cell) -> int:
    """Where a neuron's result has its potential: the state called v, or else the first."""
    names = list(inspect.signature(cell.construct).parameters)
    return names.index("v") if "v" in names else 1
