"""Write docs/reference/README.md: every public name with its first sentence and its source file.

The other pages of docs/reference hold directives, and `mkdocs` replaces them by docstrings. This page is for readers of
the repository and is no part of the site. Run it by `python docs/hooks/names.py`.
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

`python docs/hooks/names.py` writes this page from the docstrings. Each name is a link to its source file. To read a
whole docstring, run `python -c "import snncell; help(snncell.nn.Dense)"`, or build the site:
`pip install -e ".[docs]" && mkdocs serve`.
"""


def shown(path: str) -> Any:
    """Return the object of `::: path`. If a module and a function share a name, mkdocs shows the module."""
    if path in sys.modules:
        return sys.modules[path]
    above, _, name = path.rpartition(".")
    return getattr(shown(above), name)


def sentence(thing: Any) -> str:
    """Return the first sentence of a docstring, or its formula if it starts with one."""
    text = " ".join((inspect.getdoc(thing) or "").partition("\n\n")[0].split())
    first = re.split(r"(?<=\.)\s+(?=[A-Z])", text)[0]
    parts = first.split("`")  # every second one is code
    return "`".join(part if n % 2 else re.sub(r"([*_<>\[\]])", r"\\\1", part) for n, part in enumerate(parts)).replace(
        "|", r"\|"
    )


def source(thing: Any) -> str | None:
    """Return the path of the source file, relative to docs/reference."""
    owner = inspect.unwrap(thing) if callable(thing) else type(thing)
    module = sys.modules.get(getattr(owner, "__module__", None) or type(thing).__module__)
    # The `__module__` of a function is the package that users import it from.
    file = Path(owner.__code__.co_filename if inspect.isfunction(owner) else str(getattr(module, "__file__", "")))
    package = Path(importlib.import_module("snncell").__file__ or "")
    above = package.parents[1]  # the repository, or site-packages
    return f"../../{file.relative_to(above).as_posix()}" if file.is_relative_to(above) else None


def row(path: str) -> str:
    """Return one row of a table."""
    thing = shown(path)
    above, _, name = path.rpartition(".")
    short = ".".join([*path.split(".")[:2], name])  # without the inner modules
    public = short if above.count(".") > 1 and getattr(shown(short.rpartition(".")[0]), name, None) is thing else path
    place = source(thing)
    return f"| {f'[`{public}`]({place})' if place else f'`{public}`'} | {sentence(thing)} |"


def table(page: Path) -> str:
    """Return the table of a page, with its headings."""
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
    """Return the pages with directives, in the order of the site."""
    order = re.findall(r"reference/(\w+\.md)", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    return [REFERENCE / name for name in dict.fromkeys(order) if name not in ("index.md", "README.md")]


def text() -> str:
    """Return the text of docs/reference/README.md."""
    face = importlib.import_module("snncell")
    for name in face._LAZY:
        importlib.import_module(f"snncell.{name}")
    return "\n".join([HEAD, *map(table, pages())]).replace("\n\n\n", "\n\n").rstrip() + "\n"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Remove the line for readers of the repository from a page of the site."""
    return re.sub(r"^\*The site shows docstrings here\..*\n\n?", "", markdown, flags=re.M)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    PAGE.write_text(text(), encoding="utf-8")
