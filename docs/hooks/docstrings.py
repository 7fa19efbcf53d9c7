"""Makes Markdown of the docstrings, which are plain text: a griffe extension that mkdocstrings runs."""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import griffe

# What griffe reads itself, once "Example" is called as it calls it.
SECTION = re.compile(r"^(Args|Returns|Raises|Yields|Attributes|Example|Inputs|Elsewhere|Note|Source):(?: (.*))?$")
COLUMNS = re.compile(r"\S {2,}\S")
FORMULA = re.compile(r"^[\w.*()'|\[\]]+(?:,? [\w.*()'|/\[\]]+){0,2} (?:=|<-) \S")
WIDTH = 100  # a line of prose is longer than this with the first word of the next one
CODE = re.compile(r"(`[^`]+`)")


def paragraphs(text: str) -> Iterator[str]:
    """The parts of a text between its empty lines."""
    return (part.strip("\n") for part in re.split(r"\n\s*\n", text) if part.strip())


def escaped(text: str) -> str:
    """Text without any meaning to Markdown, but for `code`."""
    parts = CODE.split(text)
    return "".join(
        part if CODE.fullmatch(part) else re.sub(r"([*_>\[\]])", r"\\\1", part).replace("<", "&lt;") for part in parts
    )


def is_table(paragraph: str) -> bool:
    """True if a paragraph keeps its lines: it has columns, formulas, or lines that end before they must."""
    lines = paragraph.splitlines()
    broken = any(len(line) + 1 + len(after.split()[0]) <= WIDTH for line, after in pairwise(lines))
    return broken or any(COLUMNS.search(line.strip()) for line in lines) or all(map(FORMULA.match, lines))


def block(paragraph: str) -> str:
    """A paragraph of a description; several formulas in one line get a line each."""
    if not is_table(paragraph):
        return escaped(paragraph)
    lines = paragraph if "\n" in paragraph else paragraph.replace(";  ", "\n")
    return f"```text\n{lines}\n```"


def entries(body: str) -> list[tuple[str, str]]:
    """(names, text) of a section of them; a line that is indented goes on with the one above it."""
    found: list[tuple[str, str]] = []
    for line in textwrap.dedent(body).splitlines():
        names, colon, text = line.partition(": ")
        if line.startswith(" ") or not colon:
            if not found:
                return []
            found[-1] = (found[-1][0], f"{found[-1][1]} {line.strip()}")
        else:
            found.append((names, text))
    return found


def section(name: str, rest: str | None, body: str, of_class: bool) -> str:
    """A section as griffe and Markdown understand it."""
    words = " ".join([rest or "", *body.split()]).strip()
    if name in ("Source", "Note") or (name == "Returns" and of_class):  # a class says not what type its calls give
        return f"**{name}:** {escaped(words)}"
    if name == "Example":
        return f"Examples:\n{body}"
    listed = [] if rest else entries(body)
    if name in ("Inputs", "Elsewhere") and listed:
        return "\n".join([f"**{name}:**\n", *(f"- `{names}`: {escaped(text)}" for names, text in listed)])
    if name in ("Args", "Raises") and listed:
        lines = [f"    {one}: {escaped(text)}" for names, text in listed for one in re.split(", | and ", names)]
        return "\n".join([f"{name}:", *lines])
    if name in ("Inputs", "Elsewhere", "Args", "Raises"):
        return f"**{name}:** {escaped(words)}"
    return f"{name}:\n" + textwrap.indent(escaped(textwrap.dedent(body)), "    ")


def sections(text: str, of_class: bool) -> Iterator[str]:
    """The description, paragraph by paragraph, and the sections after it."""
    lines = text.splitlines()
    while lines:
        found = SECTION.match(lines[0])
        if not found:
            end = next((i for i, line in enumerate(lines) if SECTION.match(line)), len(lines))
            yield from map(block, paragraphs("\n".join(lines[:end])))
        else:
            end = next((i for i, line in enumerate(lines[1:], 1) if line and not line.startswith(" ")), len(lines))
            if found[1] == "Source":  # goes on without being indented
                end = next((i for i, line in enumerate(lines) if not line.strip()), len(lines))
            yield section(found[1], found[2], "\n".join(lines[1:end]).rstrip(), of_class)
        lines = lines[end:]


def cleaned(text: str) -> str:
    """A docstring without the indentation that it has in the file."""
    first, _, rest = text.partition("\n")
    return f"{first}\n{textwrap.dedent(rest)}"


def together(arguments: list[Any]) -> list[Any]:
    """The arguments of a section, where neighbours of one text are one entry: "path, title"."""
    found: list[Any] = []
    for one in arguments:
        if found and one.description and one.description == found[-1].description:
            found[-1] = merged(found[-1], one)
        else:
            found.append(one)
    return found


def merged(first: Any, second: Any) -> Any:
    """Two arguments of one text as one entry, with the type and the default that they share."""
    annotation = first.annotation if str(first.annotation) == str(second.annotation) else None
    value = first.value if first.value == second.value else None
    name = f"{first.name}, {second.name}"
    return griffe.DocstringParameter(name, annotation=annotation, description=first.description, value=value)


def take_fields(obj: griffe.Class) -> None:
    """Give a class with fields the docstring and the signature that they make when it is imported."""
    kind = getattr(importlib.import_module(obj.parent.path), obj.name)
    obj.docstring.value = kind.__doc__
    shown = [
        griffe.Parameter(
            p.name,
            annotation=str(p.annotation),
            kind=getattr(griffe.ParameterKind, KINDS[p.kind]),
            default=default_of(p),
        )
        for p in inspect.signature(kind.__init__).parameters.values()
    ]
    obj.set_member("__init__", griffe.Function("__init__", parameters=griffe.Parameters(*shown), parent=obj))


KINDS = {
    inspect.Parameter.POSITIONAL_OR_KEYWORD: "positional_or_keyword",
    inspect.Parameter.KEYWORD_ONLY: "keyword_only",
}


def default_of(p: inspect.Parameter) -> str | None:
    """A default as the page shows it."""
    return None if p.default is p.empty else repr(p.default)


class Docstrings(griffe.Extension):
    """Rewrites every docstring of the package before griffe parses it."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.is_class and obj.docstring and any("with_fields" in str(one.value) for one in obj.decorators):
            take_fields(obj)
        if obj.docstring:
            obj.docstring.value = "\n\n".join(sections(cleaned(obj.docstring.value), obj.is_class))
            for one in obj.docstring.parsed:  # kept: what is changed in it is what is shown
                if one.kind is griffe.DocstringSectionKind.parameters:
                    one.value = together(one.value)
