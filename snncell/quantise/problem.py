"""Refusals of an export: which layer, why, and the mend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from snncell.errors import ArgumentError


@dataclass(frozen=True)
class ExportedCell:
    """A Cell of the network that is exported.

    Attributes:
        path: as `cells_and_names` gives it.
        cell: the Cell itself.
        over_time: whether it stands in a TimeDistributed.
    """

    path: str
    cell: Any
    over_time: bool = False

    fewer = "take fewer bits, of weights (Uniform(4)), of their scales (scale_bits=4, or 1) or of states"


def refusal(place: ExportedCell, why: str, mend: str) -> ArgumentError:
    """The ArgumentError of a layer that has no integer form with the same results."""
    name = type(place.cell).__name__
    where = f"{place.path} ({name})" if place.path else name
    return ArgumentError(f"export: {where}: {why}. To mend it: {mend}.")


def refuse(place: ExportedCell, why: str, mend: str) -> NoReturn:
    """Raise the `refusal`."""
    raise refusal(place, why, mend)
