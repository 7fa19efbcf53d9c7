"""Arguments in the place of others: several values given as one, and two that are swapped."""

from __future__ import annotations

from typing import Any

from snncell.arguments.kinds import REFUSED, UNFIT, Kind

Place = tuple[str, Kind]


def misplaced(places: list[Place], rest: Place | None, who: str, name: str, value: Any, args: tuple[Any, ...]) -> str:
    """The mend for an argument of `args` that was refused and would fit elsewhere; "" if it would not."""
    if rest is not None and name == rest[0]:
        several = isinstance(value, (list, tuple)) and value and all(_fits(rest[1], item) for item in value)
        return f" Give them one by one: *{name}." if several else ""
    kind = dict(places).get(name)
    for (other, kind_of_other), other_value in zip(places, args, strict=False):
        if kind is None or other in (name, "self") or other_value is value:
            continue
        if _fits(kind, other_value) and _fits(kind_of_other, value):
            order = ", ".join(one for one, _ in places if one in (name, other))
            return f" They are swapped: {who}({order})."
    return ""


def _fits(kind: Kind, value: Any) -> bool:
    if type(value) in kind.types:
        return True
    taken = kind.take(value)
    return taken is not REFUSED and taken is not UNFIT
