"""Convert plain-text docstrings to Markdown: a griffe extension for mkdocstrings."""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import griffe

# The sections of a docstring. griffe reads them itself after "Example" is renamed to "Examples".
SECTION = re.compile(r"^(Args|Returns|Raises|Yields|Attributes|Example|Inputs|Elsewhere|Note|Source):(?: (.*))?$")
COLUMNS = re.compile(r"\S {2,}\S")
FORMULA = re.compile(r"^[\w.*()'|\[\]]+(?:,? [\w.*()'|/\[\]]+){0,2} (?:=|<-) \S")
ERROR = re.compile(r"(?:^|; )((?:[A-Z]\w+, )*[A-Z]\w+) (?=(?:for|if|unless|in|when|as|while|at|with)\b)")
ENTRY = re.compile(r"(?:^|; )([\w*-]+(?:, [\w*-]+)*): ")
WIDTH = 100  # prose breaks a line only if the next word would exceed this
CODE = re.compile(r"(`[^`]+`)")


def paragraphs(text: str) -> Iterator[str]:
    """Split a text at its empty lines."""
    return (part.strip("\n") for part in re.split(r"\n\s*\n", text) if part.strip())


def escaped(text: str) -> str:
    """Escape the characters that Markdown interprets, except in `code`."""
    parts = CODE.split(text)
    return "".join(
        part if CODE.fullmatch(part) else re.sub(r"([*_>\[\]])", r"\\\1", part).replace("<", "&lt;") for part in parts
    )


def is_table(paragraph: str) -> bool:
    """True if a paragraph must keep its lines, because it has columns, formulas or short lines."""
    lines = paragraph.splitlines()
    broken = any(len(line) + 1 + len(after.split()[0]) <= WIDTH for line, after in pairwise(lines))
    return broken or any(COLUMNS.search(line.strip()) for line in lines) or all(map(FORMULA.match, lines))


def block(paragraph: str) -> str:
    """Convert a paragraph of a description. Several formulas in one line get one line each."""
    if all(line.startswith("    ") for line in paragraph.splitlines()):  # formulas that are set off by an indentation
        return f"```text\n{textwrap.dedent(paragraph)}\n```"
    if paragraph.startswith("- ") or not is_table(paragraph):
        return escaped(paragraph)
    lines = paragraph if "\n" in paragraph else paragraph.replace(";  ", "\n")
    return f"```text\n{lines}\n```"


def entries(body: str) -> list[tuple[str, str]]:
    """Return (names, text) of each entry of a section. An indented line continues the previous entry, as an item if
    it begins with "- ".
    """
    found: list[tuple[str, str]] = []
    for line in textwrap.dedent(body).splitlines():
        names, colon, text = line.partition(": ")
        if line.startswith(" ") or not colon:
            if not found:
                return []
            between = "\n\n        " if line.lstrip().startswith("- ") else " "
            found[-1] = (found[-1][0], f"{found[-1][1]}{between}{line.strip()}")
        else:
            found.append((names, text))
    return found


def section(name: str, rest: str | None, body: str, of_class: bool) -> str:
    """Convert a section to the form of griffe and Markdown."""
    words = " ".join([rest or "", *body.split()]).strip()
    start = ERROR if name == "Raises" else ENTRY
    listable = not rest or start.match(words) is not None
    if rest:  # in one paragraph, for example "Raises: ShapeError if x is empty; DTypeError for integers."
        body = start.sub(r"\n    \1: ", words).strip("\n") if listable else f"    {words}"
    if name in ("Source", "Note") or (name == "Returns" and of_class):  # a class says not what type its calls give
        return f"**{name}:** {escaped(words)}"
    if name == "Example":
        return f"Examples:\n{body}"
    listed = entries(body) if listable else []
    if name in ("Inputs", "Elsewhere") and listed:
        return "\n".join([f"**{name}:**\n", *(f"- `{names}`: {escaped(text)}" for names, text in listed)])
    if name in ("Args", "Raises") and listed:
        lines = [f"    {one}: {escaped(text)}" for names, text in listed for one in re.split(", | and ", names)]
        return "\n".join([f"{name}:", *lines])
    if name in ("Inputs", "Elsewhere", "Args", "Raises"):
        return f"**{name}:** {escaped(words)}"
    return f"{name}:\n" + textwrap.indent(escaped(textwrap.dedent(body)), "    ")


def sections(text: str, of_class: bool) -> Iterator[str]:
    """Yield the paragraphs of the description and the sections, as Markdown."""
    lines = text.splitlines()
    while lines:
        found = SECTION.match(lines[0])
        if not found:
            end = next((i for i, line in enumerate(lines) if SECTION.match(line)), len(lines))
            yield from map(block, paragraphs("\n".join(lines[:end])))
        else:
            end = next((i for i, line in enumerate(lines[1:], 1) if line and not line.startswith(" ")), len(lines))
            if found[1] == "Source":  # goes on without being indented
                end = next((i for i, line in enumerate(lines) if not line or (i and SECTION.match(line))), len(lines))
            yield section(found[1], found[2], "\n".join(lines[1:end]).rstrip(), of_class)
        lines = lines[end:]


def cleaned(text: str) -> str:
    """Remove the indentation of a docstring."""
    first, _, rest = text.partition("\n")
    return f"{first}\n{textwrap.dedent(rest)}"


def together(arguments: list[Any]) -> list[Any]:
    """Merge neighbouring arguments with the same text to one entry, for example "path, title"."""
    found: list[Any] = []
    for one in arguments:
        if found and one.description and one.description == found[-1].description:
            found[-1] = merged(found[-1], one)
        else:
            found.append(one)
    return found


def merged(first: Any, second: Any) -> Any:
    """Merge two arguments with the same text. Keep a common type and default."""
    annotation = first.annotation if str(first.annotation) == str(second.annotation) else None
    value = first.value if first.value == second.value else None
    name = f"{first.name}, {second.name}"
    return griffe.DocstringParameter(name, annotation=annotation, description=first.description, value=value)


def take_fields(obj: griffe.Class) -> None:
    """Set the docstring and signature of a class with fields, because they exist after its import only."""
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
    """Return the text of a default value."""
    return None if p.default is p.empty else repr(p.default)


class Docstrings(griffe.Extension):
    """Rewrite every docstring of the package before griffe parses it."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.is_class and obj.docstring and any("with_fields" in str(one.value) for one in obj.decorators):
            take_fields(obj)
        if obj.is_class and "__new__" in obj.members and "__init__" not in obj.members:
            obj.set_member("__init__", obj.members["__new__"])  # griffe reads the signature from there
        if obj.docstring:
            obj.docstring.value = "\n\n".join(sections(cleaned(obj.docstring.value), obj.is_class))
            for one in obj.docstring.parsed:  # griffe caches this list, so changes of it are shown
                if one.kind is griffe.DocstringSectionKind.parameters:
                    one.value = together(one.value)
