"""The page for those who come from MindSpore: its tables are those of `docs/hooks/mindspore.py`; each row is true."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "docs" / "hooks" / "mindspore.py"
_spec = importlib.util.spec_from_file_location("coming_from_mindspore", SOURCE)
assert _spec is not None and _spec.loader is not None
tables = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = tables
_spec.loader.exec_module(tables)

ROWS = [(name, row) for name, rows in tables.TABLES.items() for row in rows]


@pytest.mark.parametrize(("name", "row"), ROWS, ids=[f"{name}: {row.cells[0][:40]}" for name, row in ROWS])
def test_a_row_is_true(name, row):
    row.check()


def test_the_page_has_the_tables():
    page = tables.PAGE.read_text(encoding="utf-8")
    assert tables.filled(page) == page, "python docs/hooks/mindspore.py"
    assert all(f"<!-- table: {name} -->" in page for name in tables.HEADS)


@pytest.mark.parametrize("name", tables.HEADS)
def test_a_table_has_rows_of_one_length_and_none_twice(name):
    rows = tables.TABLES[name]
    assert rows and {len(row.cells) for row in rows} == {len(tables.HEADS[name])}
    assert len({row.cells[0] for row in rows}) == len(rows)
    assert not any("|" in cell for row in rows for cell in row.cells)


def test_a_row_that_is_not_true_fails():
    with pytest.raises(AssertionError, match="no BpropError"):
        tables.refused(tables.errors.BpropError, "", lambda: None)
    with pytest.raises(AssertionError, match="is not in"):
        tables.refused(ValueError, "mend", lambda: int("a"))
