"""HTML for notebooks: tables and folds, in which all text is escaped. No scripts, no styles from elsewhere.

A notebook has its own colours, light or dark: none are given here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

_LEFT, _RIGHT = "text-align: left; vertical-align: top", "text-align: right; vertical-align: top"


class Markup(str):
    """HTML, in which text is escaped already."""

    __slots__ = ()


def markup(part: str) -> Markup:
    """Text as HTML; what is HTML as it is."""
    return part if isinstance(part, Markup) else Markup(escape(part).replace("\n", "<br>"))


def join_parts(parts: Iterable[str]) -> Markup:
    """Several pieces in a row."""
    return Markup("".join(map(markup, parts)))


def element(tag: str, *parts: str, style: str = "") -> Markup:
    """An element around pieces."""
    return Markup(f"<{tag}{f' style={chr(34)}{escape(style)}{chr(34)}' if style else ''}>{join_parts(parts)}</{tag}>")


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: int = 0, headed: bool = True) -> Markup:
    """A table, whose last so many columns are of numbers; without its head inside another one of the same columns."""
    styles = [_LEFT] * (len(head) - numbers) + [_RIGHT] * numbers

    def row(tag: str, cells: Sequence[str]) -> Markup:
        return element("tr", *(element(tag, cell, style=style) for cell, style in zip(cells, styles, strict=True)))

    body = (row("td", cells) for cells in rows)
    return element("table", element("thead", row("th", head)) if headed else Markup(), element("tbody", *body))


def fold_details(summary: str, content: str, shown: bool = False) -> Markup:
    """A summary, at a click on which the content is shown, or hidden."""
    return Markup(f"<details{' open' if shown else ''}>{element('summary', summary)}{markup(content)}</details>")


def array(title: str, facts: dict[str, str], values: str) -> Markup:
    """An array: facts about it by name, and some of its values."""
    words = join_parts(
        part for name, text in facts.items() for part in (Markup(" &middot; "), f"{name} {text}".strip())
    )
    return element("div", element("b", title), words, element("pre", values, style="margin: .2em 0 0 0"))
