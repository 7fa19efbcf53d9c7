"""MindSpore guides and the comparison page: scripts of the guides run unchanged, and each row of the tables holds.

A script differs from MindSpore's only in the imported package. Lines `# prints ...` contain the expected output.
"""

from __future__ import annotations

import doctest
import importlib.util
import re
import sys
from pathlib import Path

import pytest

import snncell

FOLDER = Path(__file__).parents[1] / "mindspore_guides"
SCRIPTS = sorted(FOLDER.glob("*.py"))
SAME = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
IMPORT = re.compile(r"^(import|from) mindspore\b", re.M)
PRINTS = re.compile(r"^# prints (.*)$", re.M)


@pytest.mark.sampled(3)
@pytest.mark.compiled
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_guide_runs_with_snncell_as_import(script, tmp_path, monkeypatch, capsys):
    text = script.read_text(encoding="utf-8")
    assert IMPORT.search(text) and "snncell" not in text
    monkeypatch.chdir(tmp_path)
    try:
        exec(compile(IMPORT.sub(r"\1 snncell", text), str(script), "exec"), {"__name__": "guide"})
    finally:
        snncell.set_context(mode=snncell.PYNATIVE_MODE)
    printed, said = capsys.readouterr().out, "\n".join(PRINTS.findall(text))
    assert said and doctest.OutputChecker().check_output(said, printed, SAME), f"{script.name} prints\n{printed}"


def test_guides_have_the_expected_chapters():
    chapters = {"network_construction", "automatic_differentiation", "custom_bprop", "parameter", "hooks"}
    assert chapters | {"mixed_precision", "training_loop"} <= {script.stem for script in SCRIPTS}


# --- comparison page for MindSpore users ------------------------------------------------------------------------------

SOURCE = Path(__file__).resolve().parents[2] / "docs" / "hooks" / "mindspore.py"
_spec = importlib.util.spec_from_file_location("coming_from_mindspore", SOURCE)
assert _spec is not None and _spec.loader is not None
tables = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = tables
_spec.loader.exec_module(tables)

ROWS = [(name, row) for name, rows in tables.TABLES.items() for row in rows]


@pytest.mark.sampled(44)
@pytest.mark.parametrize(("name", "row"), ROWS, ids=[f"{name}: {row.cells[0][:40]}" for name, row in ROWS])
def test_row_of_comparison_table_holds(name, row):
    row.check()


def test_comparison_page_contains_current_tables():
    page = tables.PAGE.read_text(encoding="utf-8")
    assert tables.filled(page) == page, "python docs/hooks/mindspore.py"
    assert all(f"<!-- table: {name} -->" in page for name in tables.HEADS)


@pytest.mark.parametrize("name", tables.HEADS)
def test_table_rows_have_equal_length_and_are_unique(name):
    rows = tables.TABLES[name]
    assert rows and {len(row.cells) for row in rows} == {len(tables.HEADS[name])}
    assert len({row.cells[0] for row in rows}) == len(rows)
    assert not any("|" in cell for row in rows for cell in row.cells)


def test_false_row_fails_its_check():
    with pytest.raises(AssertionError, match="no BpropError"):
        tables.refused(tables.errors.BpropError, "", lambda: None)
    with pytest.raises(AssertionError, match="is not in"):
        tables.refused(ValueError, "mend", lambda: int("a"))
