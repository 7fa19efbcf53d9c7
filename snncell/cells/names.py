"""Names of Parameters: their paths, given where a Cell or a Parameter becomes part of a Cell.

    net.fc1 = nn.Dense(4, 3)        fc1.weight, fc1.bias
    outer.net = net                 net.fc1.weight, net.fc1.bias

A Cell that becomes a child has a prefix from then on, the path to it and a dot, which what is set in it later gets too.
What several attributes hold is named once: by the first of them, and when that lets go of it, by the next. What nobody
holds any more keeps its names until it is taken. A Parameter that is set on nobody's child keeps a name that it has.
"""

from __future__ import annotations

import weakref
from typing import Any

from snncell.tape.parameter import Home, Owner, Parameter


class TreePlace(Home):
    """The place of a Cell in a tree.

    Attributes:
        prefix: what the names of its Parameters begin with.
        names_children: False for a Cell that leaves the names of what it is given as they are (auto_prefix=False).
    """

    __slots__ = ("names_children", "prefix")

    def __init__(self, names_children: bool = True, prefix: str = "") -> None:
        super().__init__()
        self.names_children, self.prefix = names_children, prefix

    def __reduce__(self) -> Any:
        return TreePlace, (self.names_children, self.prefix)  # whoever holds the original does not hold the copy


def take(cell: Any, key: str, member: Any) -> None:
    """Name a Parameter, or a Cell and all below it, that has become an attribute of a Cell."""
    if cell._naming.names_children:
        _hold(cell, key, member)
        _elect(member)
    elif isinstance(member, Parameter) and member.anonymous and "." not in key:
        member.name = key  # but what is in a list of an optimiser's, a network has still to name


def let_go(cell: Any, members: list[Any]) -> None:
    """Name what has ceased to be an attribute of a Cell by another attribute that holds it, if there is any."""
    if not cell._naming.names_children:
        return
    for member in members:
        _elect(member)
        if not isinstance(member, Parameter) and _home(member).owner is None:
            _stand_back(member)


def _stand_back(cell: Any) -> None:
    """Have what is in a Cell that nobody holds any more named by others that hold it, if there are any.

    net.a = Wrapper(inner); net.a = inner        a.w, not a.cell.w
    """
    for _, member in cell._members():
        home = _home(member)
        home.holders.sort(key=lambda owner: owner.cell() is cell)  # a stable one: the others stay in their order
        _elect(member)


def rearrange(cell: Any, before: list[Any], now: dict[str, Any]) -> None:
    """Name the Cells of a container anew, which has put them into other places: they have never been let go of."""
    for key, member in now.items():
        home = _home(member)
        moved = Owner(weakref.ref(cell), f"{type(cell).__name__}.{key}", key)
        home.holders = [moved if o.cell() is cell and not _holds(o, member) else o for o in home.holders]
        take(cell, key, member)
    let_go(cell, before)


def link(root: Any) -> None:
    """Make copied Cells the homes of what came along in them, under the names that all have."""
    # One that is still being copied, as those that hold each other are, has nothing yet: it links all when it has.
    cells = {cell: None for _, cell in root.cells_and_names() if "_naming" in vars(cell)}
    members = [(cell, key, member) for cell in cells for key, member in cell._members()]
    ours = [(cell, key, member) for cell, key, member in members if _is_of(member, cells)]
    for _, _, member in ours:
        _home(member).clear()
    for cell, key, member in ours:
        if cell._naming.names_children:
            _hold(cell, key, member)
            _elect(member, rename=False)


def _is_of(member: Any, cells: dict[Any, None]) -> bool:
    """True of what nobody holds but these Cells: a shallow copy leaves it to the original."""
    if not isinstance(member, Parameter) and member not in cells:
        return False
    home = _home(member).owner
    return home is None or home.cell() is None or home.cell() in cells


def _home(member: Any) -> Home:
    home: Home = member.home if isinstance(member, Parameter) else member._naming
    return home


def _hold(cell: Any, key: str, member: Any) -> None:
    """Note that an attribute holds something, after those that did before."""
    home = _home(member)
    if not any(owner.cell() is cell and owner.key == key for owner in home.holders):
        home.holders.append(Owner(weakref.ref(cell), f"{type(cell).__name__}.{key}", key))


def _elect(member: Any, rename: bool = True) -> None:
    """Have the first attribute that still holds something name it."""
    home, before = _home(member), _home(member).owner
    home.owner = None
    home.holders = [owner for owner in home.holders if _holds(owner, member)]
    home.owner = next((owner for owner in home.holders if not _is_above(member, owner.cell())), None)
    if home.owner is None or home.owner is before or not rename:
        return
    cell, key = home.owner.cell(), home.owner.key
    assert cell is not None  # which has just been seen to hold it
    if not isinstance(member, Parameter):
        name_below(member, f"{cell._naming.prefix}{key}.")
    elif member.anonymous or cell._naming.prefix:
        member.name = cell._naming.prefix + key


def name_below(cell: Any, prefix: str) -> None:
    """Give a Cell a prefix, and what it and the Cells below it name the names that follow."""
    cell._naming.prefix = prefix
    for key, member in cell._members():
        _hold(cell, key, member)
        owner = _home(member).owner
        if owner is None or owner.cell() is not cell or owner.key != key:
            _elect(member)
        elif isinstance(member, Parameter):
            member.name = prefix + key
        else:
            name_below(member, f"{prefix}{key}.")


def _holds(owner: Owner, member: Any) -> bool:
    """True if an attribute still holds something; in a list, at its place."""
    name, _, position = owner.key.rpartition(".")
    cell = owner.cell()
    attributes: dict[str, Any] = {} if cell is None else vars(cell)
    several = attributes.get(name)
    if owner.key in attributes or not isinstance(several, (list, tuple)):
        return attributes.get(owner.key) is member
    return int(position) < len(several) and several[int(position)] is member


def _is_above(member: Any, cell: Any) -> bool:
    """True if a Cell is named by way of `member`: what holds that which it is part of does not name it."""
    while cell is not None and cell is not member:
        cell = None if cell._naming.owner is None else cell._naming.owner.cell()
    return cell is not None
