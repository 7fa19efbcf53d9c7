"""Assignable settings: a Cell checks its attributes like the arguments of its constructor."""

from __future__ import annotations

import inspect
from typing import Any

from snncell.base.arguments.guard import ours, plan_of
from snncell.base.arguments.kinds import REFUSED, UNFIT, Kind, refusal
from snncell.cell.cell import Cell
from snncell.errors import ArgumentError, ArgumentTypeError

_SETTINGS: dict[type, dict[str, Kind]] = {}  # cache of `settings_of`


def settings_of(kind: type) -> dict[str, Kind]:
    """The settings of a class by name: the constructor arguments of the class and its bases in this package."""
    if kind not in _SETTINGS:
        classes = [one for one in kind.__mro__ if "__init__" in vars(one) and one is not Cell and ours(one)]
        plans = [plan_of(inspect.unwrap(vars(one)["__init__"])) for one in reversed(classes) if issubclass(one, Cell)]
        _SETTINGS[kind] = {name: one for plan in plans for name, one in plan.names.items() if name != "self"}
    return _SETTINGS[kind]


class Settings(Cell):
    """A Cell whose settings you can assign; they are checked by the annotations of its constructor."""

    def __setattr__(self, name: str, value: Any) -> None:
        if (kind := settings_of(type(self)).get(name)) is None:
            super().__setattr__(name, value)
            return
        checked, before = kind.take(value), vars(self).get(name)
        if checked is REFUSED or checked is UNFIT:
            error = ArgumentTypeError if checked is REFUSED else ArgumentError
            raise error(refusal(type(self).__name__, name, kind, value, ...))
        super().__setattr__(name, checked)
        try:
            self.settle()
        except ArgumentError:
            super().__setattr__(name, before)
            raise

    def settle(self) -> None:
        """Check settings against each other, and create Parameters that depend on them. It is called during
        construction and after each change. If it raises an ArgumentError, the change is undone.
        """
