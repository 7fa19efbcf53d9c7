"""Neighbouring loops of a plan as one launch: what a call costs, and what threads cost, is spent once for all of them.

    loop 1 over (700, 256), loop 2 over (256,), loop 3 over (256, 20)   ->   one call with a table of three kernels

Each kernel stays what it is, so nothing is compiled for it, and no result changes: the table says which kernels, with
which arrays. Loops that take nothing from each other share threads if there is enough to do for all of them together;
others run one after the other on one thread.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from snncell.compiler.backends.expressions import cost_of
from snncell.compiler.runtime.launches import DeviceLaunch, Launch, OperationCall
from snncell.kernels import segments
from snncell.kernels.policy import PARALLEL_SIZE
from snncell.kernels.sharing import grain_of
from snncell.tape.value import Value

Entry = Launch | DeviceLaunch | OperationCall


class Segments:
    """Loops that are launched together.

    Args:
        launches: two or more, in an order in which they can run.
        shared: whether threads share them. Then none takes something from another.
    """

    def __init__(self, launches: Sequence[Launch], shared: bool) -> None:
        self.launches = list(launches)
        self.units = sum(launch.units for launch in launches)
        self.grain = grain_of(self.units) if shared else 0

        self.drops = [slot for launch in launches for slot in launch.drops]
        self._together: segments.KernelBatch | None = None

    def run(self, slots: list[Any], into: dict[int, Any]) -> None:
        """Fill the output slots of all."""
        if not hasattr(self.launches[0].call, "linked"):  # kernels that run as Python have no addresses
            for launch in self.launches:
                launch.run(slots, into)
            return
        arrays = [array for launch in self.launches for array in launch.arrays_of(slots, into)]
        if self._together is None:
            self._together = segments.KernelBatch([launch.segment() for launch in self.launches])
        self._together(arrays, self.grain)
        for slot in self.drops:
            slots[slot] = None


def join_loops(launches: Sequence[Entry]) -> list[Entry | Segments]:
    """The launches of a plan, neighbouring loops together."""
    runs: list[Entry | Segments] = []
    loops: list[Launch] = []
    for launch in (*launches, None):
        if isinstance(launch, Launch) and _joins(launch):
            loops.append(launch)
            continue
        shared = sum(map(_work, loops)) >= PARALLEL_SIZE
        for part in _independent(loops) if shared else [loops]:
            runs += [Segments(part, shared and sum(map(_work, part)) >= PARALLEL_SIZE)] if len(part) > 1 else part
        loops = []
        if launch is not None:
            runs.append(launch)
    return runs


def _joins(launch: Launch) -> bool:
    """True for a loop that one thread runs, whose kernel alone makes its results.

    Loops that fill what is stored in fewer bits are narrowed behind their kernel, before others may take it.
    """
    return not (launch.parallel or launch.parts or launch.narrowed)


def _work(launch: Launch) -> int:
    return math.prod(launch.group.shape or ()) * cost_of(launch.group.instructions)


def _independent(launches: Sequence[Launch]) -> list[list[Launch]]:
    """Loops in a row, cut where one takes something from the others of its part."""
    parts: list[list[Launch]] = []
    written: set[Value] = set()
    for launch in launches:
        if not parts or not written.isdisjoint(launch.group.reads):
            parts.append([])
            written = set()
        parts[-1].append(launch)
        written.update(launch.group.writes)
    return parts
