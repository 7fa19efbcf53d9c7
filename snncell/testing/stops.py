"""Rules for `ops.stop_gradient` during a check: let gradients through, or replay its values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from snncell.errors import GradientCheckError
from snncell.tape import structure
from snncell.tape.finite import SourceLine, place_at


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
        place = place_at(None, SourceLine(""), arguments=False)
        paths = (self.paths.get(id(cell)) for cell, _ in place.cells)
        site = Site(next((path for path in paths if path is not None), None), str(place))
        self.seen[site] = None
        return stopped if site in self.shut else x


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
