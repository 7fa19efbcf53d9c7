"""The tree of Cells: Parameters and child Cells among attributes, their names, and iteration over them.

A Parameter is named after its path. It gets this name when the Parameter or its Cell becomes an attribute of a Cell:

    net.fc1 = nn.Dense(2, 3)        net.fc1.weight is called "fc1.weight"
    outer.net = net                 and now "net.fc1.weight"

- A child knows the beginning of its path, so Parameters that you set in it later also get the whole path.
- If several attributes hold one Parameter, its name comes from the first of them. If you delete this attribute, the
  name comes from the next one.
- A Parameter that has left its Cell keeps its name until another Cell takes it.
- In a Cell without a parent, a Parameter keeps the name that you gave it.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from snncell.base.arguments.guard import warn_of
from snncell.base.arguments.names import missing_of_cell
from snncell.base.arguments.shown import came
from snncell.errors import ArgumentTypeError, AssignError, MissingNameError, NameClashError, SnncellError
from snncell.tape.parameter import Home, Owner, Parameter, refuse_same_names
from snncell.tape.tensor import Tensor

# --- names of Parameters ----------------------------------------------------------------------------------------------


class TreePlace(Home):
    """The position of a Cell in the tree of Cells. `prefix` is the beginning of its Parameters' names. With
    `names_children` False (auto_prefix=False), the Cell does not rename the Parameters of its children.
    """

    __slots__ = ("names_children", "prefix")

    def __init__(self, names_children: bool = True, prefix: str = "") -> None:
        super().__init__()
        self.names_children, self.prefix = names_children, prefix

    def __reduce__(self) -> Any:
        return TreePlace, (self.names_children, self.prefix)  # a copy has no holders yet


def take(cell: Any, key: str, member: Any) -> None:
    """Name a Parameter, or a Cell and its descendants, that has become the attribute `key` of `cell`."""
    if cell._naming.names_children:
        _hold(cell, key, member)
        _choose_name(member)
    elif isinstance(member, Parameter) and member.anonymous and "." not in key:
        member.name = key  # not in a list, as an optimiser has it, because the network names these Parameters


def let_go(cell: Any, members: list[Any]) -> None:
    """Rename members that have left an attribute, after another attribute that still holds them, if any."""
    for member in members if cell._naming.names_children else ():
        _choose_name(member)
        if isinstance(member, Parameter) or _home(member).owner is not None:
            continue
        # No attribute holds the Cell any more, so prefer names of its members that do not lead through it. For example,
        # after net.a = Wrapper(inner); net.a = inner, the Parameter w of inner is named "a.w".
        for _, below in member._members():
            _home(below).holders.sort(key=lambda owner: owner.cell() is member)
            _choose_name(below)


def rearrange(cell: Any, before: list[Any], now: dict[str, Any]) -> None:
    """Rename the children of a container that has moved them to other positions."""
    for key, member in now.items():
        home = _home(member)
        moved = Owner(weakref.ref(cell), f"{type(cell).__name__}.{key}", key)
        home.holders = [moved if o.cell() is cell and not _holds(o, member) else o for o in home.holders]
        take(cell, key, member)
    let_go(cell, before)


def link(root: Any) -> None:
    """Make copied Cells the holders of their members; the names stay."""
    # In a reference cycle, a Cell that is still being copied has no attributes yet. It links all members later.
    cells = {cell: None for _, cell in root.cells_and_names() if "_naming" in vars(cell)}
    members = [(cell, key, member) for cell in cells for key, member in cell._members()]
    ours = [(cell, key, member) for cell, key, member in members if _is_of(member, cells)]
    for _, _, member in ours:
        _home(member).clear()
    for cell, key, member in ours:
        if cell._naming.names_children:
            _hold(cell, key, member)
            _choose_name(member, rename=False)


def _is_of(member: Any, cells: dict[Any, None]) -> bool:
    """True for a member of these Cells only. In a shallow copy, the original keeps its members."""
    if not isinstance(member, Parameter) and member not in cells:
        return False
    home = _home(member).owner
    return home is None or home.cell() is None or home.cell() in cells


def _home(member: Any) -> Home:
    return member.home if isinstance(member, Parameter) else member._naming


def _hold(cell: Any, key: str, member: Any) -> None:
    home = _home(member)
    if not any(owner.cell() is cell and owner.key == key for owner in home.holders):
        home.holders.append(Owner(weakref.ref(cell), f"{type(cell).__name__}.{key}", key))


def _choose_name(member: Any, rename: bool = True) -> None:
    """Name a member after the first attribute that still holds it."""
    home, before = _home(member), _home(member).owner
    home.owner = None
    home.holders = [owner for owner in home.holders if _holds(owner, member)]
    home.owner = next((owner for owner in home.holders if not _is_above(member, owner.cell())), None)
    if home.owner is None or home.owner is before or not rename:
        return
    cell, key = home.owner.cell(), home.owner.key
    assert cell is not None  # `_holds` has just checked it
    if not isinstance(member, Parameter):
        name_below(member, f"{cell._naming.prefix}{key}.")
    elif member.anonymous or cell._naming.prefix:
        member.name = cell._naming.prefix + key


def name_below(cell: Any, prefix: str) -> None:
    """Set the prefix of a Cell, and rename all Parameters in it and its descendants."""
    cell._naming.prefix = prefix
    for key, member in cell._members():
        _hold(cell, key, member)
        owner = _home(member).owner
        if owner is None or owner.cell() is not cell or owner.key != key:
            _choose_name(member)
        elif isinstance(member, Parameter):
            member.name = prefix + key
        else:
            name_below(member, f"{prefix}{key}.")


def _holds(owner: Owner, member: Any) -> bool:
    """True if the owner still has the member, in the same attribute or at the same position of a list."""
    name, _, position = owner.key.rpartition(".")
    cell = owner.cell()
    attributes: dict[str, Any] = {} if cell is None else vars(cell)
    several = attributes.get(name)
    if owner.key in attributes or not isinstance(several, (list, tuple)):
        return attributes.get(owner.key) is member
    return int(position) < len(several) and several[int(position)] is member


def _is_above(member: Any, cell: Any) -> bool:
    """True if `member` is `cell` or one of its ancestors, so that `cell` cannot name it."""
    while cell is not None and cell is not member:
        cell = None if cell._naming.owner is None else cell._naming.owner.cell()
    return cell is not None


_SIMPLE = (bool, int, float, str, bytes, type(None))
_OWN = ("internal_params", "_kept")  # internal attributes: Parameters of a `bprop`, and the states of Stateful
_COMPILED = ("_graph", "_loop")  # compiled functions of a Cell; a copy compiles its own


class Tree:
    """The part of Cell that registers Parameters and child Cells, and finds them by name."""

    version: int
    _naming: TreePlace
    _buffers: Any = MappingProxyType({})  # names of buffers, and whether they are persistent

    # --- attributes ---------------------------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        state = self.__dict__
        if "version" not in state:
            raise self._not_begun()
        old = state.get(name, _SIMPLE)
        # Compare by repr, because 0.0 and -0.0 are equal but compute differently, and NaN differs from itself.
        if old is value or (type(old) is type(value) and isinstance(value, _SIMPLE) and repr(old) == repr(value)):
            return
        if isinstance(old, Parameter) and not isinstance(value, Parameter):
            if isinstance(value, Tensor):
                old.assign(value, f"{type(self).__name__}.{name} = tensor")
                return
            _refuse_for_parameter(self, name, value)
        if name in self._buffers and not (value is None or isinstance(value, Tensor)):
            raise ArgumentTypeError(f"{type(self).__name__}.{name} is a buffer: a Tensor or None, not {came(value)}.")
        object.__setattr__(self, name, value)
        # Switching `training` back restores the old version, so that traces of that mode are valid again.
        state["version"] += bool(value) - bool(old) if name == "training" else 2
        for key, member in _members_in(name, value):
            take(self, key, member)
        let_go(self, [member for _, member in _members_in(name, old)])

    def _not_begun(self) -> SnncellError:
        return SnncellError(f"{type(self).__name__}.__init__ must call super().__init__() before anything else.")

    def __delattr__(self, name: str) -> None:
        old = self.__dict__.get(name)
        object.__delattr__(self, name)
        let_go(self, [member for _, member in _members_in(name, old)])
        if name in self._buffers:  # replace the dict, because a shallow copy shares it
            self.__dict__["_buffers"] = {other: kept for other, kept in self._buffers.items() if other != name}
        self.__dict__["version"] += 2

    def __getstate__(self) -> dict[str, Any]:
        """The state for a copy or a pickle, without compiled code."""
        state = {name: value for name, value in self.__dict__.items() if name not in _COMPILED}
        place = state["_naming"]
        return state | {"_naming": TreePlace(place.names_children, place.prefix)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a copy: its Cells and Parameters belong to it and keep their names."""
        self.__dict__.update({"_naming": TreePlace()} | state)
        link(self)

    def _members(self) -> Iterator[tuple[str, Any]]:
        """The Cell's own Parameters and children with their attribute names, in the order they were set."""
        for name, value in self.__dict__.items():
            if isinstance(value, (Parameter, Tree, list, tuple)):
                yield from _members_in(name, value)

    if not TYPE_CHECKING:
        __getattr__ = missing_of_cell

    def insert_param_to_cell(self, param_name: str, param: Parameter, check_name_contain_dot: bool = True) -> None:
        """Set a Parameter as an attribute. Its name must be free, or that of a Parameter, which it then replaces."""
        self._insert("insert_param_to_cell", "param", param_name, param, Parameter, check_name_contain_dot)

    def insert_child_to_cell(self, child_name: str, child_cell: Any) -> None:
        """Set a Cell as an attribute, with the same rules and errors as `insert_param_to_cell`."""
        self._insert("insert_child_to_cell", "child", child_name, child_cell, Tree)

    def _insert(self, who: str, what: str, name: str, member: Any, kind: type, dots: bool = True) -> None:
        if not isinstance(member, kind):
            words = "child_cell is a Cell" if kind is Tree else "param is a Parameter"
            raise ArgumentTypeError(f"{who}: {words}, not {came(member)}.")
        self._refuse_name(name, kind, who, f"{what}_name", dots)
        setattr(self, name, member)

    def _refuse_name(self, name: Any, kind: type, who: str, argument: str, dots: bool = True) -> None:
        if not isinstance(name, str):
            raise ArgumentTypeError(f"{who}: {argument} is a str, not {came(name)}.")
        if not name or (dots and "." in name):
            raise NameClashError(f"{who}: {argument} is the name of an attribute, without dots, not {name!r}.")
        present = self.__dict__.get(name)
        if (present is not None and not isinstance(present, kind)) or getattr(type(self), name, None) is not None:
            raise NameClashError(
                f"{who}: {type(self).__name__} already has an attribute {name!r}, which is not a "
                f"{_WORDS[kind]}; choose another name, or delete it first."
            )

    # --- iteration ----------------------------------------------------------------------------------------------------

    def cells_and_names(self, cells: set[Any] | None = None, name_prefix: str = "") -> Iterator[tuple[str, Self]]:
        """Iterate over this Cell and all descendants with their attribute paths, depth first; a shared Cell comes once.

        Args:
            cells: Cells to skip, with the Cells that only they contain. All visited Cells are added to this set.
            name_prefix: the beginning of each path.
        """
        yield from self._walk(name_prefix, set() if cells is None else cells)

    def _walk(self, path: str, seen: set[Any]) -> Iterator[tuple[str, Any]]:
        if self in seen:
            return
        seen.add(self)
        yield path, self
        for name, child in self._members():
            if isinstance(child, Tree):
                yield from child._walk(f"{path}.{name}" if path else name, seen)

    def cells(self) -> list[Any]:
        """The direct children of this Cell."""
        return list(self.name_cells().values())

    def name_cells(self) -> OrderedDict[str, Any]:
        """The direct children by attribute name; each comes once, under its first name."""
        named: OrderedDict[str, Any] = OrderedDict()
        for name, child in self._members():
            if isinstance(child, Tree) and child not in named.values():
                named[name] = child
        return named

    def get_sub_cell(self, target: str) -> Any:
        """The descendant at a path such as "mid.first", or this Cell for "". A wrong path is a MissingNameError."""
        cell = self
        for path, found in self.cells_and_names():
            if path == target:
                return found
        for name in target.split("."):  # another path to a shared Cell
            child = dict(cell._members()).get(name)
            if not isinstance(child, Tree):
                raise MissingNameError(f"get_sub_cell: {type(self).__name__} has no Cell {target!r}.")
            cell = child
        return cell

    def apply(self, fn: Callable[[Any], Any]) -> Self:
        """Call `fn(cell)` for all descendants, children before parents, then for this Cell, e.g. to set weights."""

        def visit(cell: Any, done: set[Any]) -> None:
            done.add(cell)
            for child in cell.cells():
                if child not in done:
                    visit(child, done)
            fn(cell)

        visit(self, set())
        return self

    def parameters_and_names(self, name_prefix: str = "", expand: bool = True) -> Iterator[tuple[str, Parameter]]:
        """Iterate over all Parameters with their attribute paths, own ones first; a shared one comes once."""
        seen: set[int] = set()
        for path, cell in self.cells_and_names(name_prefix=name_prefix) if expand else [(name_prefix, self)]:
            for name, parameter in cell._members():
                if isinstance(parameter, Parameter) and id(parameter) not in seen:
                    seen.add(id(parameter))
                    yield (f"{path}.{name}" if path else name), parameter

    def get_parameters(self, expand: bool = True) -> Iterator[Parameter]:
        """Iterate over all Parameters in the order of `parameters_and_names`."""
        for _, parameter in self.parameters_and_names(expand=expand):
            yield parameter

    def trainable_params(self, recurse: bool = True) -> list[Parameter]:
        """The Parameters with requires_grad=True, for example to pass to an optimiser.

        Cells and Parameters in a dict or a nested list are not registered, so they are missing. A warning names them.
        """
        if recurse:
            self._warn_of_unregistered()
        return [parameter for parameter in self.get_parameters(recurse) if parameter.requires_grad]

    def _warn_of_unregistered(self) -> None:
        """Warn about Cells and Parameters in dicts and nested lists, unless they are registered elsewhere."""
        cells = [cell for _, cell in self.cells_and_names()]
        known = {id(x) for x in (*cells, *self.get_parameters())}
        known |= {id(x) for cell in cells for x in cell.__dict__.get("internal_params", ())}
        for cell in cells:
            for name, value in cell.__dict__.items():
                several = isinstance(value, (dict, list, tuple)) and name not in _OWN
                if not several or all(id(x) in known for x in _find_in_containers(value)):
                    continue
                kind, use = type(value).__name__, "an nn.CellDict"
                if not isinstance(value, dict):
                    kind, use = f"nested {kind}", "an nn.CellList in an nn.CellList"
                warn_of(
                    f"{type(cell).__name__}.{name} is a {kind} with Cells or Parameters in it, which are not "
                    f"registered: they will not be trained, saved or moved with the net. Use {use}, or "
                    f"insert_param_to_cell for Parameters.",
                    RuntimeWarning,
                )

    def untrainable_params(self, recurse: bool = True) -> list[Parameter]:
        """The Parameters with requires_grad=False: statistics and frozen weights."""
        return [parameter for parameter in self.get_parameters(recurse) if not parameter.requires_grad]

    def parameters_dict(self, recurse: bool = True) -> OrderedDict[str, Parameter]:
        """All Parameters by attribute path."""
        return OrderedDict(self.parameters_and_names(expand=recurse))

    def init_parameters_data(self) -> dict[Parameter, Parameter]:
        """Each Parameter mapped to itself, because Parameters always have values here."""
        return {parameter: parameter for parameter in self.get_parameters()}

    # --- names --------------------------------------------------------------------------------------------------------

    @property
    def param_prefix(self) -> str:
        """The path of the Cell, with which its Parameters' names begin, such as "mid.first"; "" without a parent."""
        return self._naming.prefix.removesuffix(".")

    def update_cell_prefix(self) -> None:
        """Set `param_prefix` of this Cell and its descendants to their paths from here; Parameters keep their names."""
        for path, cell in self.cells_and_names():
            cell._naming.prefix = f"{path}." if path else ""

    def update_parameters_name(self, prefix: str = "", recurse: bool = True) -> None:
        """Rename every Parameter to `prefix` plus its path from this Cell.

        Args:
            prefix: the beginning of all names; it should end with a dot.
            recurse: False to rename only the Cell's own Parameters.
        """
        if recurse:
            for path, cell in self.cells_and_names():
                cell._naming.prefix = f"{prefix}{path}." if path else prefix
        for path, parameter in self.parameters_and_names(expand=recurse):
            parameter.name = prefix + path

    def check_names(self) -> None:
        """Raise a ParameterError with both paths if two Parameters share a name."""
        refuse_same_names(self.parameters_and_names(), "check_names")

    def check_names_and_refresh_name(self) -> None:
        """Rename all Parameters after their paths if two of them share a name."""
        names = [parameter.name for parameter in self.get_parameters()]
        if len(set(names)) < len(names):
            self.update_parameters_name()


_WORDS: dict[type, str] = {Tree: "Cell", Parameter: "Parameter", type(None): "buffer"}


def _members_in(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The Cells and Parameters in the value of an attribute, with their names."""
    if isinstance(value, (Parameter, Tree)):
        yield name, value
    elif isinstance(value, (list, tuple)) and name != "internal_params":  # these are attributes already
        for position, item in enumerate(value):
            if isinstance(item, (Parameter, Tree)):
                yield f"{name}.{position}", item


def _find_in_containers(value: Any, depth: int = 3) -> Iterator[Any]:
    for x in value.values() if isinstance(value, dict) else value:
        if isinstance(x, (Parameter, Tree)):
            yield x
        elif depth and isinstance(x, (dict, list, tuple)):
            yield from _find_in_containers(x, depth - 1)


def _refuse_for_parameter(cell: Any, name: str, value: Any) -> None:
    """Raise an AssignError for replacing a Parameter by another object."""
    kind = "None" if value is None else f"a {type(value).__name__}"
    hint = f"Write to it by self.{name}.set_data(value), or delete it first."
    if value is None and hasattr(cell, f"has_{name}"):
        hint = f"Create a layer without it by {type(cell).__name__}(..., has_{name}=False)."
    elif value is None:
        hint = f"To remove it, delete it first: del self.{name}."
    raise AssignError(f"{type(cell).__name__}.{name} is a Parameter; {kind} in its place would not be trained. {hint}")
