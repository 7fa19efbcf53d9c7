"""Names that are not there: which one of a module, a Tensor or a Cell was meant."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from typing import Any

from snncell.arguments.elsewhere import CELL, MODULES, TENSOR
from snncell.errors import MissingNameError
from snncell.words import cut, nearest


def suggest_name(name: str, table: dict[str, str], own: Iterable[str], before: str) -> str:
    """The rest of the sentence: what a name is here by the table, or the nearest of `own`, with `before` in front."""
    if translation := table.get(name):
        return f". {translation}" if translation.endswith(".") else f"; here it is {translation}."
    near = nearest(name, (one for one in own if not one.startswith("_")))
    return f". Did you mean {before}{near}?" if near else "."


def _plain(name: str) -> str:
    """Without case and underscores: fast_sigmoid is FastSigmoid."""
    return name.lower().replace("_", "")


def _names_in(module: str) -> list[str]:
    """The names that a module has, and those that it imports when they are first used, always in the same order."""
    names = vars(sys.modules[module])
    return list(dict.fromkeys([*names, *names.get("__all__", ())]))


def suggest_in(module: str, name: str) -> str:
    """The rest of the sentence for a name that a module does not have."""
    table = MODULES.get(module, {})
    own = _names_in(module)
    if name not in table and _plain(name) not in map(_plain, own):  # a relu of nn is one of ops
        homes = [other for other in MODULES if other in sys.modules and name in _names_in(other)]
        if homes and not name.startswith("_"):
            return f"; it is {homes[0].rpartition('.')[2]}.{name}."
    return suggest_name(name, table, own, f"{module.rpartition('.')[2]}.")


def missing_from(module: str) -> Callable[[str], Any]:
    """The `__getattr__` of a module."""

    def __getattr__(name: str) -> Any:  # noqa: N807 (it becomes the module's)
        # Looked for when the message is read: `hasattr` and other probes throw it away.
        raise MissingNameError(f"module {module!r} has no attribute {cut(name)!r}", lambda: suggest_in(module, name))

    return __getattr__


def _say_why(owner: Any, name: str) -> None:
    """Raise what a property raised: Python asks `__getattr__` where one that is there gives an AttributeError."""
    attribute = inspect.getattr_static(type(owner), name, None)
    if isinstance(attribute, property) and attribute.fget is not None:
        attribute.fget(owner)


def missing_of_tensor(tensor: Any, name: str) -> Any:
    """The `__getattr__` of Tensors."""
    _say_why(tensor, name)
    kind = type(tensor)
    text = f"{kind.__name__} has no attribute {cut(name)!r}"
    raise MissingNameError(text, lambda: suggest_name(name, TENSOR, dir(kind), "."))


def missing_of_cell(cell: Any, name: str) -> Any:
    """The `__getattr__` of Cells."""
    _say_why(cell, name)
    kind, own = type(cell), tuple(vars(cell))
    text = f"{kind.__name__} has no attribute {cut(name)!r}"
    raise MissingNameError(text, lambda: suggest_name(name, CELL, (*own, *dir(kind)), "."))
