"""The names that a package shows: its imports are the list of them, `__all__` and its docstring are made of that."""

from __future__ import annotations

import sys
import textwrap
from types import ModuleType
from typing import Any


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
