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
    """Memory of a graph, lent to whoever holds a result; a stand-in for `Memory` (see the top of this file)."""

    __slots__ = ("__weakref__", "block", "own")

    def __init__(self, block: Any) -> None:
        self.block = block
        self.own: Memory | None = None

    def part(self) -> None:
        """Replace the graph's memory by a copy, for all arrays that refer to this."""
        if self.own is not None:
            return
        self.own = Memory(self.block.size)
        runtime().copy(self.block, 0, self.own.block, 0, self.block.size)
        self.block = self.own.block


class RecordedPlan:
    """A plan as a graph: its first run launches as any plan does, its second records, and plays what it has recorded.

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
        self._inputs: list[DeviceArray] = []  # the graph's own arrays: of the arguments,
        self._values: dict[Parameter, DeviceArray] = {}  # of the Parameters,
        self._results: list[DeviceArray] = []  # and of the results
        self._lent: list[Lent] = []

    def replay(self, arrays: Sequence[Any]) -> list[Any]:
        """Run the plan: write the Parameters, and give the results."""
        self.runs += 1
        if self.reason is None and self._graph is None and self.runs > 1:
            try:
                self._record(arrays)
            except DeviceError as error:
                self._drop(str(error))
        if self._graph is not None and runtime().shared:
            # Another thread may be about to read memory that is lent: without a graph, arrays never change.
            self._drop("several threads use the device")
        if self._graph is None:
            results, values = self._run(arrays, [p.value_in(DEVICE) for p in self.read])
            commit([parameter.put(value) for parameter, value in zip(self.written, values, strict=True)])
            return list(results)
        return self._play(arrays)

    def _drop(self, reason: str) -> None:
        """Launch one by one from now on."""
        self.reason, self._graph = reason, None
        self._inputs, self._values, self._results = [], {}, []

    def _record(self, arrays: Sequence[Any]) -> None:
        """Run once in an arena of its own, so that it has enough memory, and once more to be recorded."""
        device = runtime()
        arguments = [_argument(n, x) for n, x in enumerate(arrays)]
        read = [_value(p) for p in self.read]
        arena = device.new_arena()
        with device.allocating_from(arena):
            self._inputs = [x.copy() for x in arguments]
            self._values = {p: x.copy() for p, x in zip(self.read, read, strict=True)}
            for parameter in self.written:
                if parameter not in self._values:
                    self._values[parameter] = _value(parameter).copy()
            # Where the present contents of the graph's arrays come from: what is the same object is not copied again.
            self._copied_from: list[Any] = list(arguments)
            self._copied_value: dict[Parameter, Any] = dict.fromkeys(self._values)

            def run() -> None:
                self._results, values = self._run(self._inputs, [self._values[p] for p in self.read])
                # A result may be the old value of a Parameter, and so may be the new value of another Parameter, as
                # in a, b = b, a: those are copied before the old values are overwritten.
                overwritten = {id(self._values[parameter].memory) for parameter in self.written}
                self._results, values = (
                    [x.copy() if id(x.memory) in overwritten else DEVICE.contiguous(x) for x in outputs]
                    for outputs in (self._results, values)
                )
                for parameter, value in zip(self.written, values, strict=True):
                    self._values[parameter][...] = value

            # This run overwrites the Parameters' arrays. They are filled again before the graph is played, for
            # `_copied_value` holds None for each.
            run()
            self._results = []
            self._graph = device.record(run)
        self._copied_from = [None] * len(arguments)

    def _play(self, arrays: Sequence[Any]) -> list[Any]:
        # Arguments that are refused are so before anything is changed. Arrays of Tensors do not change, so the same
        # object has the same elements.
        arguments = {n: _argument(n, x) for n, x in enumerate(arrays) if x is not self._copied_from[n]}
        values = {p: _value(p) for p in self._values if p._data is not self._copied_value[p]}
        self._part()
        for n, array in arguments.items():
            self._inputs[n][...] = array
            self._copied_from[n] = arrays[n]
        for parameter, value in values.items():
            self._values[parameter][...] = value
            self._copied_value[parameter] = parameter._data
        # The Parameters are given the graph's arrays before it is played, which hold the values that they have: so the
        # graph alone changes any of them, and all at once, wherever an interruption comes.
        lent: dict[int, Lent] = {}
        results = [self._hand_out(x, lent) for x in self._results]
        handed_out = {parameter: self._hand_out(self._values[parameter], lent) for parameter in self.written}
        self._lent = [*self._lent, *lent.values()]
        commit([parameter.write_of(array) for parameter, array in handed_out.items()])
        self._copied_value.update(handed_out)
        runtime().play(self._graph)
        self._lent = list(lent.values())
        return results

    def _hand_out(self, array: DeviceArray, lent: dict[int, Lent]) -> DeviceArray:
        key = id(array.memory)
        if key not in lent:
            lent[key] = Lent(array.memory.block)
        return DeviceArray(lent[key], array.offset, array.shape, array.strides, array.dtype)

    def _part(self) -> None:
        """Give copies to those who hold memory that the graph is about to overwrite, as reference counts tell."""
        unchanged = {id(p._data): p for p in self.written if p._data is self._copied_value[p]}
        private: dict[int, int] = {}  # for memory, the number of arrays on it that only Parameters and the graph hold
        for parameter in unchanged.values():
            # 3 references: the Parameter's, `_copied_value`'s, and the argument of this call.
            if sys.getrefcount(parameter._data) <= 3:
                key = id(parameter._data.memory)
                private[key] = private.get(key, 0) + 1
        for lent in list(self._lent):
            # 4 references: the list, its copy, the loop, and this call; and one from each private array.
            if sys.getrefcount(lent) > 4 + private.get(id(lent), 0):
                lent.part()


def _argument(n: int, array: Any) -> Any:
    return DEVICE.taken(array, f"argument {n + 1}")


def _value(parameter: Parameter) -> Any:
    return DEVICE.taken(parameter.value_in(DEVICE), f"Parameter {parameter.name!r}")


def graph_pays(launches: int, copied: int) -> bool:
    """True if one request for so many launches saves more time than copying the inputs takes."""
    return launches * LAUNCH > 2 * copied / COPIED + LAUNCH
