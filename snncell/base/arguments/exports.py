"""The names that a package shows: its imports are the list of them, `__all__` and its docstring are made of that."""

from __future__ import annotations

import importlib
import sys
import textwrap
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from snncell.base.arguments.names import missing_from


def export(face: dict[str, Any]) -> None:
    """Give a package `__all__`, and end its docstring with the same names, below the first line of each one's file.

    Args:
        face: the package's globals(), before `guard`, after which functions say that they are the package's own.
    """
    names = [name for name, one in face.items() if not name.startswith("_") and not isinstance(one, ModuleType)]
    face["__all__"] = sorted(names)
    if face["__doc__"] is None:  # python -OO
        return
    families: dict[str, list[str]] = {}
    for name in names:
        home = face[name].__module__
        inside = home.startswith(f"{face['__name__']}.")
        heading = (sys.modules[home].__doc__ or home).splitlines()[0] if inside else "From other packages."
        families.setdefault(heading, []).append(name)
    lists = [
        f"{heading}\n{textwrap.indent(textwrap.fill(', '.join(family), 116), '    ')}"
        for heading, family in families.items()
    ]
    face["__doc__"] = "\n\n".join([face["__doc__"].rstrip(), *lists])


def export_lazily(face: dict[str, Any], home: str, names: Sequence[str]) -> None:
    """Let a package show names of a module that is imported when one of them is first used.

    The core imports none of the side products, but its public packages show some of their names. For example,
    `nn.TrainOneStepCell` is defined in `snncell.mindspore`.

    Args:
        face: the package's globals(), after `export` where it has one, before `guard`.
        home: the module that defines the names.
        names: the names, which `__all__` and `dir()` list as well.
    """
    here = [name for name, one in face.items() if not name.startswith("_") and not isinstance(one, ModuleType)]
    face["__all__"] = sorted([*face.get("__all__", here), *names])
    missing = missing_from(face["__name__"])

    def __getattr__(name: str) -> Any:  # noqa: N807 (it becomes the module's)
        if name not in names:
            return missing(name)
        face[name] = getattr(importlib.import_module(home), name)
        return face[name]

    face["__getattr__"], face["__dir__"] = __getattr__, lambda: sorted({*face, *names})
