"""Names of Parameters: who gave them, and that no two are the same where that matters."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from snncell.errors import ParameterError

if TYPE_CHECKING:
    from snncell.tape.parameter import Parameter

next_number = itertools.count(1).__next__  # of the next Parameter that has no name when it is asked for


class Owner(NamedTuple):
    """An attribute of a Cell that holds a Parameter or a Cell."""

    cell: weakref.ref[Any]
    label: str  # for errors: Dense.weight
    key: str  # the attribute; of an item of a list, with its position behind a dot


class Home:
    """The attributes that hold a Parameter or a Cell, in the order in which they came to, and the one that names it."""

    __slots__ = ("holders", "owner")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Be held by nobody."""
        self.holders: list[Owner] = []
        self.owner: Owner | None = None


def refuse_equal_names(parameters: Iterable[Parameter], what: str) -> None:
    """Check that no two Parameters of one Cell, and no two outside of Cells, share a name.

    Raises:
        ParameterError: naming where both are.
    """
    seen: dict[Any, tuple[int, Parameter]] = {}
    for position, parameter in enumerate(parameters):
        cell = None if parameter.owner is None else id(parameter.owner.cell())
        first, other = seen.setdefault((cell, parameter.name), (position, parameter))
        if other is not parameter:
            homes = [p.owner.label if p.owner else f"element {i}" for i, p in ((first, other), (position, parameter))]
            raise ParameterError(
                f"{what}: {homes[0]} and {homes[1]} are different Parameters with one name, {parameter.name!r}. "
                f"Give each a name of its own, or none."
            )


def refuse_same_names(parameters: Iterable[tuple[str, Parameter]], what: str) -> None:
    """Check that no two Parameters, given with their paths, have one name.

    Raises:
        ParameterError: naming both paths.
    """
    seen: dict[str, str] = {}
    for path, parameter in parameters:
        if (other := seen.setdefault(parameter.name, path)) != path:
            raise ParameterError(
                f"{what}: {other} and {path} are different Parameters with one name, {parameter.name!r}. Rename one: "
                f"parameter.name = ..., or all by their paths: cell.update_parameters_name()."
            )
