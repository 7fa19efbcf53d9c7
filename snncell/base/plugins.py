"""Plug-ins: classes and functions of side products that the core uses without importing them.

The core imports none of `mindspore`, `nir`, `quantise`, `energy`, `distributed` and `sklearn`. If it needs a class of
one of them, it asks for it by a key, and `snncell/__init__.py` registers the module that defines it. For example,
`train.fit` asks for the "run context" because `on_train_begin(self, run_context)` takes MindSpore's RunContext.
"""

from __future__ import annotations

from typing import Any

from snncell.base.signals import import_once

_HOMES: dict[str, str] = {}


def register(key: str, home: str) -> None:
    """Let `plugin(key)` return an attribute of a module, "module:name", which is imported at that time."""
    _HOMES[key] = home


def plugin(key: str) -> Any:
    """The class or function that is registered under a key."""
    module, _, name = _HOMES[key].partition(":")
    return getattr(import_once(module), name)
