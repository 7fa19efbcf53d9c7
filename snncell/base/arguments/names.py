"""Missing names: if a module, a Tensor or a Cell does not have a name, the error suggests another one.

Some modules have another path in MindSpore. For example, the import of `snncell.common.tensor` gives our module
`snncell.tape.tensor`. If a name is missing, as in `from snncell.nn import Module`, Python searches for a module of that
name. Our finder then raises an error that names the equivalent in snncell.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from snncell.base.arguments.elsewhere import CELL, MODULES, PATHS, TENSOR
from snncell.base.arguments.shown import nearest, plain_name
from snncell.base.signals import import_once
from snncell.errors import MissingImportError, MissingNameError, cut


def suggest_name(name: str, table: dict[str, str], own: Iterable[str], before: str) -> str:
    """The end of an error about a missing name: the equivalent in `table`, or else the most similar of the `own` names.
    `before` is the text that precedes this name, such as "nn.".
    """
    if translation := table.get(name):
        return f". {translation}" if translation.endswith(".") else f"; use {translation}."
    near = nearest(name, (one for one in own if not one.startswith("_")))
    return f". Did you mean {before}{near}?" if near else "."


def _names_in(module: str) -> list[str]:
    """The names of a module, including those that it imports on first use."""
    names = vars(sys.modules[module])
    return [*names.get("__all__", names)]


def suggest_in(module: str, name: str) -> str:
    """The end of the error message for a name that a module does not have."""
    table = MODULES.get(module, {})
    own = _names_in(module)
    if name not in table and plain_name(name) not in map(plain_name, own):  # for example nn.where: `where` is in ops
        homes = [other for other in MODULES if other in sys.modules and name in _names_in(other)]
        if homes and not name.startswith("_"):
            return f"; it is {homes[0].rpartition('.')[2]}.{name}."
    return suggest_name(name, table, own, f"{module.rpartition('.')[2]}.")


def missing_from(module: str) -> Callable[[str], Any]:
    """Make the `__getattr__` of a module."""

    def __getattr__(name: str) -> Any:  # noqa: N807 (it becomes the module's)
        # Search for suggestions only when the message is read, because `hasattr` discards it.
        raise MissingNameError(f"module {module!r} has no attribute {cut(name)!r}", lambda: suggest_in(module, name))

    return __getattr__


def missing_of_tensor(tensor: Any, name: str) -> Any:
    """The `__getattr__` of Tensors."""
    _refuse_attribute(type(tensor), tensor, name, TENSOR, ())


def missing_of_cell(cell: Any, name: str) -> Any:
    """The `__getattr__` of Cells."""
    _refuse_attribute(type(cell), cell, name, CELL, tuple(vars(cell)))


def _refuse_attribute(kind: type, owner: Any, name: str, table: dict[str, str], own: Sequence[str]) -> None:
    attribute = inspect.getattr_static(kind, name, None)
    if isinstance(attribute, property) and attribute.fget is not None:
        attribute.fget(owner)  # Python calls `__getattr__` if a property raises AttributeError; this raises it again
    text = f"{kind.__name__} has no attribute {cut(name)!r}"
    raise MissingNameError(text, lambda: suggest_name(name, table, (*own, *dir(kind)), "."))


class Elsewhere(MetaPathFinder, Loader):
    """The last import finder that Python asks for a module."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec for a path of MindSpore. For a missing name, raise an error if there is a name to suggest."""
        parent, _, name = fullname.rpartition(".")
        if fullname in PATHS:
            return ModuleSpec(fullname, self)
        if parent in MODULES and parent in sys.modules and not name.startswith("_"):
            hint = suggest_in(parent, name)
            if hint != ".":
                raise MissingImportError(f"cannot import {cut(name)!r} from {parent!r}{hint}")
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Import our module for the path in `spec`. Python then sets its `__spec__` to `spec`, so save the old one."""
        module = importlib.import_module(PATHS[spec.name])
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's old `__spec__`. There is nothing to execute, because the module is already imported."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


def install() -> None:
    """Append the finder to `sys.meta_path`."""
    if not any(isinstance(finder, Elsewhere) for finder in sys.meta_path):
        sys.meta_path.append(Elsewhere())


def export(namespace: dict[str, Any]) -> None:
    """Set a package's `__all__`, and append its names to its docstring, one per line, grouped by the modules' titles.

    `help` shows the docstring first. The list gives an overview. The rest of the output is too long for this, because
    it repeats all methods of `Cell` for each class. `namespace` is the package's globals(). Call this before `guard`,
    which changes the functions' `__module__`.
    """
    names = [name for name, one in namespace.items() if not name.startswith("_") and not isinstance(one, ModuleType)]
    namespace["__all__"] = sorted(names)
    if namespace["__doc__"] is None:  # python -OO
        return
    families: dict[str, list[str]] = {}
    for name in names:
        home = namespace[name].__module__
        inside = home.startswith(f"{namespace['__name__']}.")
        heading = (sys.modules[home].__doc__ or home).splitlines()[0] if inside else "From other parts of snncell."
        families.setdefault(heading, []).append(name)

    def line(name: str) -> str:
        first = (namespace[name].__doc__ or "").strip().partition("\n")[0]
        text = f"    {name:<26} {first}".rstrip()
        return text if len(text) <= 118 else f"{text[:114].rpartition(' ')[0]} ..."

    lists = ["\n".join([heading, *map(line, family)]) for heading, family in families.items()]
    namespace["__doc__"] = "\n\n".join([namespace["__doc__"].rstrip(), *lists])


def export_lazily(namespace: dict[str, Any], home: str, names: Sequence[str]) -> None:
    """Let a package export names of the module `home`, which is imported when one of them is first used. For example,
    `nn.TrainOneStepCell` is defined in `snncell.mindspore`, which `nn` must not import. `namespace` is the package's
    globals(). Call this after `export`, if the package uses it, and before `guard`.
    """
    own = [name for name, one in namespace.items() if not name.startswith("_") and not isinstance(one, ModuleType)]
    namespace["__all__"] = sorted([*namespace.get("__all__", own), *names])
    missing = missing_from(namespace["__name__"])

    def __getattr__(name: str) -> Any:  # noqa: N807 (it becomes the module's)
        if name not in names:
            return missing(name)
        namespace[name] = getattr(importlib.import_module(home), name)
        return namespace[name]

    namespace["__getattr__"] = __getattr__


def list_public(namespace: dict[str, Any]) -> None:
    """Let `dir()`, completion and `import *` list only the public names of a module, which are those in `__all__`. If
    there is no `__all__`, a package's public names are those that it imports from snncell. For a module that is not a
    package, they are the names that it defines.
    """
    is_package = "__path__" in namespace
    root = __name__.partition(".")[0] if is_package else namespace["__name__"]

    def is_public(name: str, one: Any) -> bool:
        home = getattr(one, "__module__", None) or (root if is_package else "")  # a constant has none
        return not name.startswith("_") and not isinstance(one, ModuleType) and f"{home}.".startswith(f"{root}.")

    if "__all__" not in namespace:
        namespace["__all__"] = sorted(name for name, one in namespace.items() if is_public(name, one))
    namespace["__dir__"] = lambda: sorted(
        {*namespace["__all__"], *(name for name in namespace if name.startswith("__"))}
    )


_HOMES: dict[str, str] = {}


def register(key: str, home: str) -> None:
    """Register an attribute of a module, "module:name", for `plugin(key)`, which imports the module."""
    _HOMES[key] = home


def plugin(key: str) -> Any:
    """The class or function that is registered under a key."""
    module, _, name = _HOMES[key].partition(":")
    return getattr(import_once(module), name)
