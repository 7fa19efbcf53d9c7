"""The rule of ops.stop_gradient while gradients are checked: it lets some through, or gives what it gave before."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import FrameType
from typing import Any, NamedTuple

from snncell.errors import GradientCheckError
from snncell.tape import structure
from snncell.tape.frames import Running, is_machinery, mark_of, text_of


class Site(NamedTuple):
    """A place where the gradient is stopped: the Cell that runs there, by its path in the net, and the line."""

    path: str | None  # None outside of the net's Cells
    line: str


class Opened:
    """Lets gradients through every stop_gradient, but those at `shut`; notes where they are.

    Args:
        paths: of the net's Cells, by id.
        shut: the places where it stops all the same.
    """

    def __init__(self, paths: Mapping[int, str], shut: frozenset[Site] = frozenset()) -> None:
        self.paths = paths
        self.shut = shut
        self.seen: dict[Site, None] = {}

    def __call__(self, x: Any, stopped: Any) -> Any:
        site = self._site(sys._getframe(1))
        self.seen[site] = None
        return stopped if site in self.shut else x

    def _site(self, frame: FrameType) -> Site:
        while frame.f_back is not None and is_machinery(frame):
            frame = frame.f_back
        line = text_of(frame)
        caller: FrameType | None = frame
        while caller is not None:
            mark = mark_of(caller)
            if isinstance(mark, Running) and id(mark.cell) in self.paths:
                return Site(self.paths[id(mark.cell)], line)
            caller = caller.f_back
        return Site(None, line)


class Noted:
    """Notes what each stop_gradient gives, in order."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def __call__(self, _: Any, stopped: Any) -> Any:
        self.values.append(stopped)
        return stopped


class Replayed:
    """Gives, in order, what stop_gradient gave before: as constants, whatever the inputs are now."""

    def __init__(self, noted: Noted) -> None:
        self.values = iter(noted.values)

    def __call__(self, _: Any, stopped: Any) -> Any:
        value = next(self.values, None)
        if [x.shape for x in structure.flatten(value)[0]] != [x.shape for x in structure.flatten(stopped)[0]]:
            raise GradientCheckError(
                "detached=True: ops.stop_gradient is called in another order, or with other shapes, when the "
                "inputs are moved a little, so what it gave cannot be held constant. Take branches on values out of "
                "the function."
            )
        return value
