"""Pages in docs/: every code block runs and prints its stated output, and the reference has every public name."""

from __future__ import annotations

import ast
import doctest
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib as mpl
import pytest

import snncell
from snncell import errors, nn, ops, surrogate

mpl.use("Agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))  # last: pages import `benchmarks` from a clone, and the installed package
DOCS = ROOT / "docs"
NAMES = DOCS / "reference" / "README.md"  # for readers of the repository; no part of the site
REFERENCE = sorted(page for page in (DOCS / "reference").glob("*.md") if page != NAMES)
PAGES = sorted(page for page in DOCS.rglob("*.md") if page not in REFERENCE and page != NAMES)

# Pages that show what this version does not have yet. Their code is not run: take them out when it is there.
WAITS: tuple[str, ...] = ()
JOBS = ("distributed.md",)  # pages whose code joins a job, of one rank

FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.M | re.S)
PRINTS = re.compile(r"^ *# prints ?(.*)$", re.M)
SAME = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def name_of(page: Path) -> str:
    """coming-from/norse.md"""
    return page.relative_to(DOCS).as_posix()


def blocks(page: Path) -> Iterator[tuple[str, int, str]]:
    """The fenced blocks of a page: language, line of its first line, text."""
    text = page.read_text(encoding="utf-8")
    for found in FENCE.finditer(text):
        yield found[1], text.count("\n", 0, found.start(2)) + 1, found[2]


def code(page: Path) -> list[tuple[int, str]]:
    """The executable code of a page."""
    return [(line, text) for language, line, text in blocks(page) if language == "python"]


# --- code -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [*PAGES, *REFERENCE], ids=name_of)
def test_blocks_are_python_bash_or_text(page):
    text = page.read_text(encoding="utf-8")
    assert {language for language, _, _ in blocks(page)} <= {"python", "bash", "text"}
    assert text.count("```") == 2 * len(list(blocks(page))), "a fence that is indented, or does not end, is not run"
    assert "~~~" not in text


def test_shell_commands_on_pages_are_in_readme_or_contributing():
    known = "".join((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "CONTRIBUTING.md"))
    for page in PAGES:
        for language, _, text in blocks(page):
            assert language != "bash" or text in known, f"{name_of(page)}: {text}"


def run(page: Path, number: int, text: str, names: dict[str, Any], capsys: Any) -> None:
    """Run a block and compare its output with its lines `# prints ...`, in which "..." matches any text."""
    exec(compile("\n" * (number - 1) + text, str(page), "exec"), names)
    assert not re.search(r"# prints *(\.\.\.)?$", text, re.M), "a line of what is printed says something"
    printed, said = capsys.readouterr().out, "\n".join(PRINTS.findall(text))
    assert doctest.OutputChecker().check_output(said, printed, SAME), (
        f"{name_of(page)}, line {number}: it prints\n{printed}\nbut the page says\n{said}"
    )


@pytest.mark.sampled(2)
@pytest.mark.compiled
@pytest.mark.parametrize("page", [page for page in PAGES if code(page)], ids=name_of)
def test_page_code_runs_and_prints_stated_output(page, tmp_path, monkeypatch, capsys):
    if name_of(page) in WAITS:
        pytest.skip(f"{name_of(page)} is in WAITS: what it shows is not there yet")
    if name_of(page) in JOBS:
        pytest.importorskip("mpi4py", reason="the extra 'mpi' brings mpi4py, and it is not installed")
    if name_of(page) == "pytorch.md":
        pytest.importorskip("torch", reason="the extra 'torch' brings PyTorch, and it is not installed")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "page"}
    try:
        for number, text in code(page):
            run(page, number, text, names, capsys)
    finally:
        plt.close("all")
        snncell.set_context(mode=snncell.PYNATIVE_MODE, check_finite=False)


def test_wrong_stated_output_fails(capsys):
    run(DOCS / "index.md", 1, "print(1.23456)\n# prints 1.23...\n", {}, capsys)
    for text in ("print(1)\n# prints 2\n", "print(1)\n", "# prints 1\n"):
        with pytest.raises(AssertionError, match=r"index\.md, line 7: it prints"):
            run(DOCS / "index.md", 7, text, {}, capsys)


def test_waiting_pages_exist():
    assert set(WAITS) <= {name_of(page) for page in PAGES}


def test_index_and_navigation_link_to_every_page():
    first = set(re.findall(r"\]\(([\w/.-]+\.md)", (DOCS / "index.md").read_text(encoding="utf-8")))
    listed = set(re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.M))
    pages = {name_of(page) for page in PAGES} - {"index.md"}
    assert not pages - first, "link these in docs/index.md"
    assert not pages - listed, "list these under nav in mkdocs.yml"


# --- reference --------------------------------------------------------------------------------------------------------

LATER = [
    importlib.import_module(f"snncell.{name}") for name in (*snncell._LAZY, *snncell._APART)
]  # data, plot, train, ...
MODULES = [snncell, nn, nn.neurons, surrogate, ops, errors, *LATER]
DIRECTIVES = [found for page in REFERENCE for found in re.findall(r"^::: (\S+)$", page.read_text("utf-8"), re.M)]
ROWS = re.compile(r"^\| `(\w+)` \||^(`\w+`(?: ·)?(?: `\w+`(?: ·)?)*)$", re.M)  # of tables, and lines of names alone
LISTED = {
    name
    for page in REFERENCE
    for found in ROWS.finditer(page.read_text("utf-8"))
    for name in re.findall(r"\w+", found[1] or found[2])
}


def public_names(module: ModuleType) -> set[str]:
    """`__all__`, or the names defined in the file and those imported `as` themselves."""
    if hasattr(module, "__all__"):
        return set(module.__all__)
    found: set[str] = set()
    for node in ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.name for alias in node.names if alias.asname == alias.name}
        elif isinstance(node, ast.Assign) and not isinstance(node.value, ast.Subscript):  # no alias of a type
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return {name for name in found if not name.startswith("_")}


def shown(path: str) -> Any:
    """The object that `::: path` shows; for a module and a function of one name the module, as in griffe."""
    above, _, name = path.rpartition(".")
    return sys.modules[path] if path in sys.modules else getattr(shown(above), name, None)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_public_name_is_in_reference(module):
    there = [shown(path) for path in DIRECTIVES]
    missing = [
        f"::: {module.__name__}.{name}"
        for name in sorted(public_names(module))
        if not isinstance(getattr(module, name), ModuleType)
        and not any(inspect.unwrap(getattr(module, name)) is inspect.unwrap(one) for one in there)
        and name not in LISTED
    ]
    assert not missing, f"write these into a page of docs/reference: {missing}"


def test_reference_directives_exist_and_are_unique():
    for path in DIRECTIVES:
        assert shown(path) is not None, f"::: {path} is not there"
        assert path not in sys.modules, f"::: {path} is a module; what is in it is ::: {path}.{path.rpartition('.')[2]}"
    assert len(DIRECTIVES) == len(set(DIRECTIVES)) > 300


def hook(name: str) -> ModuleType:
    """A script of docs/hooks."""
    specification = importlib.util.spec_from_file_location(name, DOCS / "hooks" / f"{name}.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_reference_readme_has_a_sentence_per_name():
    names = hook("names")
    assert not re.findall(r": \|$", names.text(), re.M)  # half a sentence
    assert NAMES.read_text(encoding="utf-8") == names.text(), "write it anew: python docs/hooks/names.py"
    rows = [line for line in names.text().splitlines() if line.startswith("| [`")]
    assert len(rows) == len(DIRECTIVES)
    for line in rows:
        found = re.fullmatch(r"\| \[`[\w.]+`\]\(\.\./\.\./(snncell/[\w/]+\.py)\) \| \S.{2,} \|", line)
        assert found and (ROOT / found[1]).is_file(), f"without a file or a sentence: {line}"


@pytest.mark.sampled(11)
@pytest.mark.parametrize("page", [page for page in REFERENCE if page.stem != "index"], ids=name_of)
def test_directive_page_links_to_text_and_help(page, capsys):
    line = page.read_text(encoding="utf-8").splitlines()[2]
    asked = re.fullmatch(r"\*The site .* \[every name in one sentence\]\(README\.md\), or run `(.*)`\.\*", line)[1]
    exec(re.fullmatch(r'python -c "(.*)"', asked)[1], {})
    assert "NAME\n    snncell" in capsys.readouterr().out
    assert hook("names").on_page_markdown(f"# A\n\n{line}\n\nrest\n") == "# A\n\nrest\n"


# --- docstrings -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def docstrings():
    """The extension that converts docstrings to Markdown."""
    pytest.importorskip("griffe", reason="the documentation's tools are not installed: pip install '.[docs]'")
    specification = importlib.util.spec_from_file_location("docstrings", DOCS / "hooks" / "docstrings.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


LONG = "Of a book, " * 8 + "the"
MARKDOWN = {
    "h = v + x": "```text\nh = v + x\n```",
    "h = v + x;  s = f(h)": "```text\nh = v + x\ns = f(h)\n```",
    "a      one\nbc     two": "```text\na      one\nbc     two\n```",
    "It is:\n\n    v_rest = 0": "It is:\n\n```text\nv_rest = 0\n```",
    "- One.\n- Two_2.": "- One.\n- Two\\_2.",
    "i = 2 i\nand so on": "```text\ni = 2 i\nand so on\n```",
    "A step of size x, as in v = h - x, `a*b`.": "A step of size x, as in v = h - x, `a*b`.",
    "An a * b in [0, 1], where x < 1.": r"An a \* b in \[0, 1\], where x &lt; 1.",
    f"Source: {LONG}\nsecond edition.": f"**Source:** {LONG} second edition.",
    "Args:\n    a, b: x\n        and y.\n    c: z.": "Args:\n    a: x and y.\n    b: x and y.\n    c: z.",
    "Args:\n    a: x\n        and:\n        - one,\n          1.\n        - two.": (
        "Args:\n    a: x and:\n\n        - one, 1.\n\n        - two."
    ),
    "Inputs:\n    x: any shape.": "**Inputs:**\n\n- `x`: any shape.",
    "Inputs:\n    x of any shape.": "**Inputs:** x of any shape.",
    "Inputs: x, v: of one\n    shape.\nReturns: v.": "**Inputs:**\n\n- `x, v`: of one shape.\n\n**Returns:** v.",
    "Inputs: x: any; v,\n    w: (B,)": "**Inputs:**\n\n- `x`: any\n- `v, w`: (B,)",
    "Elsewhere: note this. Norse: f.": "**Elsewhere:** note this. Norse: f.",
    "Raises: ShapeError if x;\n    DTypeError for y.": "Raises:\n    ShapeError: if x\n    DTypeError: for y.",
    "Raises:\n    ShapeError, DTypeError: no.": "Raises:\n    ShapeError: no.\n    DTypeError: no.",
    "y = x;  z = x\n\nNote: of z.": "```text\ny = x\nz = x\n```\n\n**Note:** of z.",
    "Returns:\n    (s, v).": "**Returns:** (s, v).",
    "Source: a\nb.\nExample:\n    >>> 1": "**Source:** a b.\n\nExamples:\n    >>> 1",
    "Example:\n    >>> 1 < 2": "Examples:\n    >>> 1 < 2",
}


@pytest.mark.parametrize("plain", MARKDOWN, ids=lambda text: text.split(":")[0][:20])
def test_docstring_is_converted_to_markdown(plain, docstrings):
    assert "\n\n".join(docstrings.sections(plain, of_class=True)) == MARKDOWN[plain]


def test_arguments_with_the_same_text_share_one_entry(docstrings):
    import griffe

    def argument(name, annotation, description, value=None):
        return griffe.DocstringParameter(name, annotation=annotation, description=description, value=value)

    given = [
        argument("path", "str", "both.", "1"),
        argument("title", "int", "both.", "1"),
        argument("x", "int", "one."),
    ]
    found = [(p.name, p.annotation, p.description, p.value) for p in docstrings.together(given)]
    assert found == [("path, title", None, "both.", "1"), ("x", "int", "one.", None)]


# --- cheat sheet ------------------------------------------------------------------------------------------------------


@pytest.mark.compiled
def test_each_cheat_sheet_line_runs(tmp_path, monkeypatch, capsys):
    """The code in the last column of its tables, in order, in the namespace of the page's block."""
    pytest.importorskip("nir", reason="the extra 'nir' brings nir, and it is not installed")
    monkeypatch.chdir(tmp_path)
    page = DOCS / "cheatsheet.md"
    names: dict[str, Any] = {}
    for number, text in code(page):
        run(page, number, text, names, capsys)
    ran = 0
    try:
        for line in page.read_text(encoding="utf-8").splitlines():
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if not line.startswith("| ") or cells[-1] in ("snncell", "---") or "not needed" in cells[-1]:
                continue
            for found in re.findall(r"`([^`]+)`", cells[-1]):
                if found.endswith(")") or " = " in found:
                    exec(compile(found, f"{page.name}: {found}", "exec"), names)
                    ran += 1
    finally:
        plt.close("all")
        snncell.set_context(check_finite=False)
    assert ran > 60 and names["spikes"].shape == (25, 32, 20)
