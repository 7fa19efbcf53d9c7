"""A plan's launches on the device as one recording, a CUDA graph: the host asks once for all of them.

A graph reads and writes the same memory each time it is played. So arguments and Parameters are copied into places of
its own, unless they are there already: a Parameter that the graph writes stays in its place, and is not copied. What is
handed out, results and Parameters, is that memory, lent: before it is overwritten, whoever still holds it gets a copy
of its own. So what users hold never changes, and copies are made only for those who hold on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from snncell.errors import DeviceError
from snncell.kernels.cuda.arrays import DeviceArray, Memory
from snncell.kernels.cuda.runtime import runtime
from snncell.kernels.space import DEVICE
from snncell.tape.parameter import Parameter, commit

LAUNCH = 3e-6  # seconds that a launch takes the host, about
COPIED = 5e11  # bytes per second that a copy on the card moves, about


class Lent:
    """Memory of a graph in somebody's hands; see the top of this file. It takes the place of `Memory`."""

    __slots__ = ("__weakref__", "block", "own")

    def __init__(self, block: Any) -> None:
        self.block = block
        self.own: Memory | None = None

    def part(self) -> None:
        """Have a copy from now on."""
        if self.own is not None:
            return
        self.own = Memory(self.block.size)
        runtime().copy(self.block, 0, self.own.block, 0, self.block.size)
        self.block = self.own.block


class Recorded:
    """A plan as a graph, from its third run on.

    Args:
        run: carries the plan out: (arguments, the Parameters' arrays) -> (results, the written Parameters' arrays).
        read: the Parameters that it reads, in the order of their arrays.
        written: those that it writes.
    """

    def __init__(self, run: Callable[..., Any], read: Sequence[Parameter], written: Sequence[Parameter]) -> None:
        self._run = run
        self.read = list(read)
        self.written = list(written)
        self.runs = 0
        self.reason: str | None = None  # why there is no graph
        self._graph: Any = None
        self._places: list[DeviceArray] = []
        self._homes: dict[Parameter, DeviceArray] = {}
        self._results: list[DeviceArray] = []
        self._lent: list[Lent] = []

    def replay(self, arrays: Sequence[Any]) -> list[Any]:
        """The results; Parameters are written."""
        self.runs += 1
        if self.reason is None and self._graph is None and self.runs > 1:
            try:
                self._record(arrays)
            except DeviceError as error:
                self._drop(str(error))
        if self._graph is not None and runtime().shared:
            # Another thread may be about to read what is lent: without a graph, arrays never change.
            self._drop("several threads use the device")
        if self._graph is None:
            results, values = self._run(arrays, [p.value_in(DEVICE) for p in self.read])
            commit([parameter.put(value) for parameter, value in zip(self.written, values, strict=True)])
            return list(results)
        return self._play(arrays)

    def _drop(self, reason: str) -> None:
        """Launch plainly from now on."""
        self.reason, self._graph = reason, None
        self._places, self._homes, self._results = [], {}, []

    def _record(self, arrays: Sequence[Any]) -> None:
        """Run once in memory of its own, so that there is enough of it, and once more to be recorded."""
        device = runtime()
        given = [_argument(n, x) for n, x in enumerate(arrays)]
        held = [_value(p) for p in self.read]
        arena = device.new_arena()
        with device.allocating_from(arena):
            self._places = [x.copy() for x in given]
            self._homes = {p: x.copy() for p, x in zip(self.read, held, strict=True)}
            for parameter in self.written:
                if parameter not in self._homes:
                    self._homes[parameter] = _value(parameter).copy()
            self._taken: list[Any] = list(given)
            self._known: dict[Parameter, Any] = dict.fromkeys(self._homes)

            def run() -> None:
                self._results, values = self._run(self._places, [self._homes[p] for p in self.read])
                # A result may be what a Parameter was before, and so may be what another Parameter becomes.
                homes = {id(self._homes[parameter].memory) for parameter in self.written}
                self._results, values = (
                    [x.copy() if id(x.memory) in homes else DEVICE.contiguous(x) for x in found]
                    for found in (self._results, values)
                )
                for parameter, value in zip(self.written, values, strict=True):
                    self._homes[parameter][...] = value

            # The Parameters are overwritten by it, and set again before the graph is played: `_known` says so.
            run()
            self._results = []
            self._graph = device.record(run)
        self._taken = [None] * len(given)

    def _play(self, arrays: Sequence[Any]) -> list[Any]:
        # What can be refused is, before anything is changed. The values of an array do not change.
        given = {n: _argument(n, x) for n, x in enumerate(arrays) if x is not self._taken[n]}
        values = {p: _value(p) for p in self._homes if p._data is not self._known[p]}
        self._part()
        for n, array in given.items():
            self._places[n][...] = array
            self._taken[n] = arrays[n]
        for parameter, value in values.items():
            self._homes[parameter][...] = value
            self._known[parameter] = parameter._data
        # Parameters are where the graph writes before it does, with the values that they have: so it is the graph alone
        # that changes any of them, and all at once, wherever an interruption comes.
        lent: dict[int, Lent] = {}
        results = [self._hand_out(x, lent) for x in self._results]
        homes = {parameter: self._hand_out(self._homes[parameter], lent) for parameter in self.written}
        self._lent = [*self._lent, *lent.values()]
        commit([parameter.write_of(home) for parameter, home in homes.items()])
        self._known.update(homes)
        runtime().play(self._graph)
        self._lent = list(lent.values())
        return results

    def _hand_out(self, array: DeviceArray, lent: dict[int, Lent]) -> DeviceArray:
        key = id(array.memory)
        if key not in lent:
            lent[key] = Lent(array.memory.block)
        return DeviceArray(lent[key], array.offset, array.shape, array.strides, array.dtype)

    def _part(self) -> None:
        """Give copies to those who hold what the graph is about to overwrite."""
        ours = {id(p._data): p for p in self.written if p._data is self._known[p]}
        mine: dict[int, int] = {}
        for parameter in ours.values():
            if sys.getrefcount(parameter._data) <= 3:  # the Parameter's, `_known`'s, and the argument of this call
                key = id(parameter._data.memory)
                mine[key] = mine.get(key, 0) + 1
        for lent in list(self._lent):
            # Others than the list, its copy, the loop, this call, and the arrays of Parameters that nobody else has.
            if sys.getrefcount(lent) > 4 + mine.get(id(lent), 0):
                lent.part()


def _argument(n: int, array: Any) -> Any:
    return DEVICE.taken(array, f"argument {n + 1}")


def _value(parameter: Parameter) -> Any:
    return DEVICE.taken(parameter.value_in(DEVICE), f"Parameter {parameter.name!r}")


def pays(launches: int, copied: int) -> bool:
    """True if asking once for so many launches saves more than it takes to copy what goes in."""
    return launches * LAUNCH > 2 * copied / COPIED + LAUNCH
