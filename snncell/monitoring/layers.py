"""The neurons of a network: find them, name them, and select some by name or Cell."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np

from snncell.cell.cell import Cell
from snncell.errors import ArgumentError
from snncell.nn.dataflow import is_layer, name_of_cell, overridden
from snncell.nn.layers.conv import Conv1d, Conv2d, Conv2dTranspose
from snncell.nn.layers.linear import Dense
from snncell.nn.layers.sparse import SparseDense
from snncell.nn.neurons.integrate import LINode
from snncell.nn.time.multistep import MultiStep
from snncell.testing.problem import all_paths

WEIGHTED = (Dense, SparseDense, Conv1d, Conv2d, Conv2dTranspose)  # layers with counted products
INNER = ("cell", "neuron")  # attribute names of a neuron in a container of this package


class Neurons:
    """The neurons of a network: the innermost Cells that have states or run over time."""

    def __init__(self, net: Cell) -> None:
        self.net = net
        self.paths = dict(all_paths(net))  # all paths; a Cell that is used in several places has several
        self.structure = _structure(self.paths)
        cells = list(self.paths.values())
        neurons = [c for c in cells if hasattr(c, "init_state") or getattr(c, "whole_sequences", False)]
        candidates = {id(cell): cell for cell in neurons}
        candidates |= {id(cell.cell): cell.cell for cell in cells if isinstance(cell, MultiStep)}
        self.cells = {
            number: cell
            for number, cell in candidates.items()
            if not any(id(below) in candidates for _, below in list(cell.cells_and_names())[1:])
        }
        # Spiking layers that run their time steps themselves, so that no step of them can be recorded.
        self.unseen = tuple(
            name_of_cell(path, cell) for path, cell in self.paths.items() if getattr(cell, "_steps_inside", False)
        )
        if not self.cells and not self.unseen:
            raise ArgumentError(
                f"monitor: {type(net).__name__} has no neurons. A neuron is a Cell with an init_state, or a Cell "
                f"inside of a MultiStep."
            )
        self.named = {
            self.layer_name(path, cell): cell
            for path, cell in reversed(list(self.paths.items()))
            if id(cell) in self.cells
        }

    def layer_name(self, path: str, cell: Cell) -> str:
        """The name of a layer: the path of its neuron without `.cell` of a `MultiStep` or a similar container."""
        holder, _, last = path.rpartition(".")
        while last in INNER and is_layer(overridden(self.paths[holder])[0]):
            path = holder
            holder, _, last = path.rpartition(".")
        return path or type(cell).__name__

    def map_updating_cells(self) -> dict[int, Cell]:
        """Neurons by the id of the Cell that updates each: the outermost stateful Cell around it, such as a synapse."""
        found: dict[int, Cell] = {}
        assigned: set[int] = set()
        for cell in self.paths.values():  # outer Cells come first
            inside = [below for _, below in cell.cells_and_names()]
            neurons = [below for below in inside if id(below) in self.cells]
            alone = len(neurons) == 1 and not any(isinstance(below, WEIGHTED) for below in inside)
            outer = alone and hasattr(cell, "init_state") and id(neurons[0]) not in assigned
            if outer or (id(cell) in self.cells and id(cell) not in assigned):
                found[id(cell)] = neurons[0]
                assigned.add(id(neurons[0]))
        return found

    def have_changed(self) -> bool:
        """True if Cells of the network, or their names, have changed."""
        return self.structure != _structure(dict(all_paths(self.net)))

    def select(self, choice: Any, what: str) -> frozenset[int]:
        """The neurons selected by True, a name, a Cell, or several of these."""
        if choice is None or isinstance(choice, bool):
            return frozenset(self.cells) if choice else frozenset()
        several = isinstance(choice, (list, tuple, set, frozenset))
        return frozenset(n for one in (choice if several else [choice]) for n in self._below(one, what))

    def _below(self, choice: Any, what: str) -> list[int]:
        cell = self.paths.get(choice) if isinstance(choice, str) else choice
        if not isinstance(cell, Cell) or not any(cell is other for other in self.paths.values()):
            choice_words = repr(choice) if isinstance(choice, str) else f"the {type(choice).__name__} given"
            raise ArgumentError(
                f"monitor: {what}: {choice_words} is not in {type(self.net).__name__}. Its neurons are "
                f"{self.list_names()}; or give True for all of them."
            )
        neurons = [id(below) for _, below in cell.cells_and_names() if id(below) in self.cells]
        if not neurons:
            raise ArgumentError(
                f"monitor: {what}: {choice!r:.60} contains no neuron. The network's neurons are {self.list_names()}."
            )
        return neurons

    def names(self) -> list[str]:
        """The names of the neurons in the order of the network, or of the Cells that run them over time."""
        named = {name: (cell, self.paths.get(name) is not cell) for name, cell in reversed(self.named.items())}
        run = [cell for cell, by_its_runner in named.values() if by_its_runner]
        return [name for name, (cell, ran) in named.items() if ran or not any(cell is other for other in run)]

    def list_names(self) -> str:
        """The names for messages, with layers that cannot be recorded."""
        unseen = f" (not recorded, because they run their time steps themselves: {', '.join(self.unseen)})"
        return (", ".join(self.names()) or "none") + (unseen if self.unseen else "")


def _structure(paths: dict[str, Cell]) -> tuple[tuple[str, int], ...]:
    return tuple((path, id(cell)) for path, cell in paths.items())


class CellStack:
    """The running Cells of a network, outermost first, with their paths."""

    def __init__(self, paths: dict[str, Cell]) -> None:
        self._running: list[tuple[Cell, str]] = []
        self._static = {id(cell): path for path, cell in reversed(list(paths.items()))}
        self._names: dict[tuple[int, int], str] = {}

    def __contains__(self, cell: Cell) -> bool:
        return id(cell) in self._static

    @property
    def path(self) -> str | None:
        """The path of the running Cell."""
        return self._running[-1][1] if self._running else None

    def enter(self, cell: Cell) -> str:
        """Begin a call, and return the path of the Cell, from those of the running Cells."""
        names = ((path, self._name_in(caller, cell)) for caller, path in reversed(self._running))
        paths = (f"{path}.{name}" if path else name for path, name in names if name)
        path = next(paths, self._static.get(id(cell), ""))
        self._running.append((cell, path))
        return path

    def leave(self) -> None:
        """End the innermost call."""
        self._running.pop()

    def _name_in(self, caller: Cell, cell: Cell) -> str:
        key = (id(caller), id(cell))
        if key not in self._names:
            members = caller.name_cells().items()
            self._names[key] = next((name for name, member in members if member is cell), "")
        return self._names[key]


def gives_spikes(cell: Cell, out: np.ndarray[Any, Any] | None, above: bool | None) -> bool:
    """True if a neuron fires. `above` says whether its spike function was called; None if that is unknown."""
    if above or not getattr(cell, "fire", True):
        return bool(above)
    if above is None and spike_functions(cell):
        return True
    if isinstance(cell, LINode) or out is None or not np.isfinite(out).all():
        return False
    fired = out[out != 0]  # binary spikes all have the same size
    return fired.size < out.size and (fired.size == 0 or bool(fired.min() == fired.max()))


def index_of_potential(cell: Cell, states: int) -> int:
    """The index of the potential among a neuron's states: the state called v, or else the first."""
    names = list(inspect.signature(cell.construct).parameters)[1 : 1 + states]
    return names.index("v") if "v" in names else 0


def spike_functions(cell: Cell) -> Sequence[Cell]:
    """The spike functions of a neuron: the Cells in it that have a custom gradient."""
    return [below for _, below in cell.cells_and_names() if getattr(below, "bprop", None) is not None]


def spike_function_of(cell: Cell) -> Cell | None:
    """The spike function of a neuron: its `surrogate_function`, or the first Cell in it with a bprop."""
    named = getattr(cell, "surrogate_function", None)
    return named if isinstance(named, Cell) else next((c for c in spike_functions(cell) if c is not cell), None)
