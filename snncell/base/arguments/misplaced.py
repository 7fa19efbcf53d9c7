"""Arguments in the place of others: several values given as one, two that are swapped, and those that may be meant for
another argument."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from snncell.base.arguments.kinds import REFUSED, UNFIT, Kind
from snncell.errors import ArgumentWarning

Place = tuple[str, Kind]
_PACKAGE = __name__.partition(".")[0]


def suggest_place(
    places: list[Place], rest: Place | None, who: str, name: str, value: Any, args: tuple[Any, ...]
) -> str:
    """The mend for an argument of `args` that was refused and would fit elsewhere; "" if it would not."""
    if rest is not None and name == rest[0]:
        several = isinstance(value, (list, tuple)) and value and all(_fits(rest[1], item) for item in value)
        return f" Give them one by one: *{name}." if several else ""
    kind = dict(places).get(name)
    for (other, kind_of_other), other_value in zip(places, args, strict=False):
        if kind is None or other in (name, "self") or other_value is value:
            continue
        if kind.words == "anything" or kind_of_other.words == "anything":
            continue  # a place where anything fits says nothing of what was meant
        if _fits(kind, other_value) and _fits(kind_of_other, value):
            order = ", ".join(one for one, _ in places if one in (name, other))
            return f" They are swapped: {who}({order})."
    return ""


def _fits(kind: Kind, value: Any) -> bool:
    if type(value) in kind.types:
        return True
    taken = kind.take(value)
    return taken is not REFUSED and taken is not UNFIT


@dataclass(frozen=True)
class ByName:
    """For `Annotated[float, ByName(warning)]`: by place it may be meant for another argument, of which `warning`, given
    the value, has the words; none for a value that means the same either way.
    """

    warning: Callable[[Any], str]


@dataclass(frozen=True)
class Unlike:
    """For `Annotated[float, Unlike(warning)]`: PyTorch has another default or convention.

    `warning`, given the name of the class and the arguments of the call by name, returns the text, "" for no warning.
    """

    warning: Callable[[str, Mapping[str, Any]], str]


def marks_of(hints: Mapping[str, Any]) -> dict[str, ByName | Unlike]:
    """The arguments whose annotations ask for a warning."""
    marks = [(name, mark) for name, hint in hints.items() for mark in getattr(hint, "__metadata__", ())]
    return {name: mark for name, mark in marks if isinstance(mark, (ByName, Unlike))}


def warn_of_arguments(
    who: str,
    places: list[Place],
    marks: Mapping[str, Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> None:
    """Warn of arguments that a user of PyTorch may mean otherwise."""
    placed = {name: value for (name, _), value in zip(places, args, strict=False)}
    given = {**placed, **kwargs}
    for name, mark in marks.items():
        if isinstance(mark, Unlike):
            words = mark.warning(who, given) if name in given else ""
        else:
            words = mark.warning(placed[name]) if name in placed else ""
        if words:
            warn_of(words)


def warn_of(words: str, category: type[Warning] = ArgumentWarning) -> None:
    """Warn at the innermost line outside of the package."""
    frame, depth = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        frame, depth = frame.f_back, depth + 1
    warnings.warn(words, category, stacklevel=depth)
