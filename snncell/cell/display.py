"""A Cell as it is shown: text, and for notebooks tables that can be unfolded."""

from __future__ import annotations

from typing import Any

from snncell.base.markup import Markup, element, fold_details, join_parts, table
from snncell.base.text import cut
from snncell.tape.parameter import Parameter

_HEAD = ("", "layer", "Parameters", "number")
_MOST = 60  # rows of a table
_DEEP = 40  # tables inside tables: a notebook shows no more


def as_text(cell: Any) -> str:
    """The class of a Cell, its settings, and its children in lines of their own, as MindSpore prints it."""
    settings = [line for line in cell.extend_repr().split("\n") if line]
    children = [f"({name}): {child!r}" for name, child in _children(cell)]
    if len(settings) <= 1 and not children:
        return f"{type(cell).__name__}({''.join(settings)})"
    lines = "\n".join([*settings, *children]).replace("\n", "\n  ")
    return f"{type(cell).__name__}(\n  {lines}\n)"


def as_html(cell: Any) -> Markup:
    """A table of a Cell's layers: settings, Parameters with their shapes, and how many numbers they hold.

    Layers inside layers are tables inside the table, to be unfolded. A layer in several places is a table in the first.
    """
    parameters = [*cell.get_parameters()]
    trained = sum(p.size for p in parameters if p.requires_grad)
    places = sorted({p.device.upper() for p in parameters})
    total = f"{count_words(sum(p.size for p in parameters), 'number')} in {count_words(len(parameters), 'Parameter')}"
    total += f", {trained:,} of them trained" if parameters else ""
    total += f", on the {' and the '.join(places)}" if places else ""
    own = Markup("") if not _own(cell) else element("div", _own_words(cell))
    title = join_parts([element("b", type(cell).__name__), f" {_settings(cell)}".rstrip(), f": {total}"])
    content = join_parts([own, *_table(cell, {id(cell)}, 0)])
    return element("div", fold_details(title, content, shown=True) if content else title)


def count_words(number: int, word: str) -> str:
    """ "1,200 numbers"."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _children(cell: Any) -> list[tuple[str, Any]]:
    return [(name, member) for name, member in cell._members() if not isinstance(member, Parameter)]


def _own(cell: Any) -> list[tuple[str, Parameter]]:
    return [(name, member) for name, member in cell._members() if isinstance(member, Parameter)]


def _settings(cell: Any) -> str:
    return cut(str(cell.extend_repr()))


def _own_words(cell: Any) -> str:
    """The Parameters of a Cell itself, a line each."""
    own = _own(cell)
    lines = [f"{name} {p.shape} {p.dtype.name}{'' if p.requires_grad else ', not trained'}" for name, p in own[:_MOST]]
    return "\n".join([*lines, *([f"and {len(own) - _MOST:,} more"] if len(own) > _MOST else [])])


def _table(cell: Any, seen: set[int], depth: int) -> list[Markup]:
    """The children of a Cell, if there are any."""
    children = _children(cell)
    if not children or depth > _DEEP:
        return []
    rows = [_row(name, child, seen, depth) for name, child in children[:_MOST]]
    if len(children) > _MOST:
        rest = {id(p): p.size for _, child in children[_MOST:] for p in child.get_parameters()}
        rows.append(("", f"and {len(children) - _MOST:,} more", "", f"{sum(rest.values()):,}"))
    return [table(_HEAD, rows, numbers=1, headed=not depth)]


def _row(name: str, child: Any, seen: set[int], depth: int) -> tuple[str, str, str, str]:
    """A child: its name, what it is and has in it, its own Parameters, and how many numbers all of it holds."""
    kind = join_parts([element("b", type(child).__name__), f" {_settings(child)}".rstrip()])
    if id(child) in seen:
        return name, join_parts([kind, ", the same as above"]), "", ""
    seen.add(id(child))
    inner, inside = _table(child, seen, depth + 1), _children(child)
    if len(inside) == 1 and _children(inside[0][1]):  # what runs a neuron over time: its settings need no click
        kind = join_parts([kind, f": {type(inside[0][1]).__name__} {_settings(inside[0][1])}".rstrip()])
    number = sum(p.size for p in child.get_parameters())
    return (
        name,
        fold_details(kind, join_parts(inner)) if inner else kind,
        _own_words(child),
        f"{number:,}" if number else "",
    )
