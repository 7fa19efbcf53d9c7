"""Names of Parameters: their paths, given where a Cell or a Parameter first becomes part of a Cell.

    net.fc1 = nn.Dense(4, 3)        fc1.weight, fc1.bias
    outer.net = net                 net.fc1.weight, net.fc1.bias

A Cell that becomes a child has a prefix from then on, the path to it and a dot, which what is set in it later gets too.
What two Cells share is named once: by the place that it had first, as long as it is there. A Cell that is let go of
keeps its names until another one takes it. A Parameter that is set on nobody's child keeps a name that it has.
"""

from __future__ import annotations

import weakref
from typing import Any

from snncell.tape.names import Owner
from snncell.tape.parameter import Parameter


class Place:
    """The place of a Cell in a tree.

    Attributes:
        prefix: what the names of its Parameters begin with.
        names_children: False for a Cell that leaves the names of what it is given as they are (auto_prefix=False).
        home: the Cell that names it, and by which attribute; None for the root, and for a copy.
    """

    __slots__ = ("home", "names_children", "prefix")

    def __init__(self, names_children: bool = True, prefix: str = "") -> None:
        self.names_children, self.prefix = names_children, prefix
        self.home: tuple[weakref.ref[Any], str] | None = None

    def __reduce__(self) -> Any:
        return Place, (self.names_children, self.prefix)  # whoever holds the original does not hold the copy


def take(cell: Any, key: str, member: Any) -> None:
    """Name a Parameter, or a Cell and all below it, that has become an attribute of a Cell."""
    if isinstance(member, Parameter):
        _take_parameter(cell, key, member)
    elif cell._naming.names_children and _is_free(member, cell, key) and not _is_above(member, cell):
        member._naming.home = weakref.ref(cell), key
        name_below(member, f"{cell._naming.prefix}{key}.")


def link(cell: Any) -> None:
    """Make a copy the home of what came along in it, by the names that all have."""
    for key, member in cell._members():
        if isinstance(member, Parameter):
            _own(cell, key, member)
        elif cell._naming.names_children and member._naming.home is None:
            member._naming.home = weakref.ref(cell), key


def name_below(cell: Any, prefix: str) -> None:
    """Give a Cell a prefix, and what it and the Cells below it name the names that follow."""
    cell._naming.prefix = prefix
    for key, member in cell._members():
        if isinstance(member, Parameter):
            if _own(cell, key, member):
                member.name = prefix + key
        else:
            take(cell, key, member)


def _take_parameter(cell: Any, key: str, parameter: Parameter) -> None:
    if not cell._naming.names_children:
        if parameter.anonymous and "." not in key:  # what is in a list of an optimiser's, a network has still to name
            parameter.name = key
    elif _own(cell, key, parameter) and (parameter.anonymous or cell._naming.prefix):
        parameter.name = cell._naming.prefix + key


def _own(cell: Any, key: str, parameter: Parameter) -> bool:
    """True if the Cell owns a Parameter by this attribute, from now on if nobody does."""
    owner = parameter.owner
    held = None if owner is None else owner.cell()
    if owner is not None and held is not None and member_at(held, owner.key) is parameter:
        return held is cell and owner.key == key
    if cell._naming.names_children:
        parameter.owner = Owner(weakref.ref(cell), f"{type(cell).__name__}.{key}", key)
    names: bool = cell._naming.names_children
    return names


def _is_free(child: Any, cell: Any, key: str) -> bool:
    """True if no other Cell, and no other attribute of this one, holds a Cell that it has named."""
    if child._naming.home is None:
        return True
    home, known = child._naming.home[0](), child._naming.home[1]
    return home is None or (home is cell and known == key) or member_at(home, known) is not child


def _is_above(child: Any, cell: Any) -> bool:
    """True if a Cell is named by way of `child`: one that holds what it is part of has no path by that."""
    while cell is not None and cell is not child:
        cell = None if cell._naming.home is None else cell._naming.home[0]()
    return cell is not None


def member_at(cell: Any, key: str) -> Any:
    """The attribute of a Cell, or the item of a list that is one (`layers.0`), or None."""
    name, _, position = key.rpartition(".")
    value = vars(cell).get(name or position)
    if not name:
        return value
    return value[int(position)] if isinstance(value, (list, tuple)) and int(position) < len(value) else None
