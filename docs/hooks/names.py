"""Write the reference for readers of the repository: every name, its first sentence, and where it is written.

The pages of docs/reference hold directives, of which `mkdocs` makes text. `python docs/hooks/names.py` writes
docs/reference/README.md, which is no part of the site, from the same directives and docstrings.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
PAGE = REFERENCE / "README.md"
LINE = re.compile(r"^(?:#{1,3} (?P<title>.+)|::: (?P<path>\S+))$", re.M)
HEAD = """\
# Every name, in one sentence

Written by `python docs/hooks/names.py`, from the docstrings. A name leads to the file that it is written in; the whole
text is `python -c "import snncell; help(snncell.nn.Dense)"`, or the site: `pip install -e ".[docs]" && mkdocs serve`.
"""


def shown(path: str) -> Any:
    """The object that `::: path` shows: of a module and a function of one name the module, as the builder has it."""
    if path in sys.modules:
        return sys.modules[path]
    above, _, name = path.rpartition(".")
    return getattr(shown(above), name)


def sentence(thing: Any) -> str:
    """The first sentence of a docstring; of a docstring that begins with a formula, that."""
    text = " ".join((inspect.getdoc(thing) or "").partition("\n\n")[0].split())
    first = re.split(r"(?<=\.)\s+(?=[A-Z])", text)[0]
    parts = first.split("`")  # every second one is code
    return "`".join(part if n % 2 else re.sub(r"([*_<>\[\]])", r"\\\1", part) for n, part in enumerate(parts)).replace(
        "|", r"\|"
    )


def source(thing: Any) -> str | None:
    """The file that it is written in, from docs/reference."""
    owner = inspect.unwrap(thing) if callable(thing) else type(thing)
    module = sys.modules.get(getattr(owner, "__module__", None) or type(thing).__module__)
    file = Path(str(getattr(module, "__file__", "")))
    package = Path(importlib.import_module("snncell").__file__ or "")
    above = package.parents[1]  # the repository, or where the package is installed
    return f"../../{file.relative_to(above).as_posix()}" if file.is_relative_to(above) else None


def row(path: str) -> str:
    """A line of a table."""
    thing = shown(path)
    above, _, name = path.rpartition(".")
    short = ".".join([*path.split(".")[:2], name])  # of what is written in a module further down
    public = short if above.count(".") > 1 and getattr(shown(short.rpartition(".")[0]), name, None) is thing else path
    place = source(thing)
    return f"| {f'[`{public}`]({place})' if place else f'`{public}`'} | {sentence(thing)} |"


def table(page: Path) -> str:
    """The names of a page, under its headings."""
    lines: list[str] = []
    title = ""
    for found in LINE.finditer(page.read_text(encoding="utf-8")):
        if found["title"] and not lines:
            lines += ["", f"## {found['title']}", "", "| | |", "| --- | --- |"]
        elif found["title"]:
            title = f"| **{found['title']}** | |"
        else:
            lines += [title, row(found["path"])] if title else [row(found["path"])]
            title = ""
    return "\n".join(lines)


def pages() -> list[Path]:
    """The pages with directives, in the order in which the site has them."""
    order = re.findall(r"reference/(\w+\.md)", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    return [REFERENCE / name for name in dict.fromkeys(order) if name not in ("index.md", "README.md")]


def text() -> str:
    """The whole page."""
    face = importlib.import_module("snncell")
    for name in face._LAZY:
        importlib.import_module(f"snncell.{name}")
    return "\n".join([HEAD, *map(table, pages())]).replace("\n\n\n", "\n\n").rstrip() + "\n"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """A page of the site, without the line that leads readers of the repository from directives to text."""
    return re.sub(r"^\*This page is text once it is built\..*\n\n?", "", markdown, flags=re.M)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    PAGE.write_text(text(), encoding="utf-8")
