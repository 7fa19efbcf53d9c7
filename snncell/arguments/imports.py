"""Imports by MindSpore's module paths, and errors that name the equivalent of a missing module.

If `snncell.nn` has no name `Module`, `from snncell.nn import Module` makes Python search for a module of that name.
Python's own error would not mention the equivalent here.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from snncell.arguments.elsewhere import MODULES, PATHS
from snncell.arguments.names import suggest_in
from snncell.errors import MissingImportError
from snncell.words import cut


class Elsewhere(MetaPathFinder, Loader):
    """Python asks it for a module of snncell when nobody else has found it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a module that has another path here; an error with the mend for a name that has another one."""
        parent, _, name = fullname.rpartition(".")
        if fullname in PATHS:
            return ModuleSpec(fullname, self)
        if parent in MODULES and parent in sys.modules and not name.startswith("_"):
            mend = suggest_in(parent, name)
            if mend != ".":
                raise MissingImportError(f"cannot import {cut(name)!r} from {parent!r}{mend}")
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module that has the names, with its own spec kept in this one."""
        module = importlib.import_module(PATHS[spec.name])
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is run: the module is there, and is again what it was before Python took it for a new one."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


def install() -> None:
    """Have Python ask it, after all others."""
    if not any(isinstance(finder, Elsewhere) for finder in sys.meta_path):
        sys.meta_path.append(Elsewhere())
