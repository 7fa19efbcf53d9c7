"""Tables whose columns and units are told: by generation, in every format; what is ambiguous; wrong words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import event_files as write
import numpy as np
import pytest
import scipy.io

from snncell.data import EventFolder, read_events
from snncell.errors import ArgumentError, FileError

Columns = dict[str, Any]
SCALE = {"s": 1e-6, "ms": 1e-3, "us": 1.0, "ns": 1e3}


def of_floats(columns: Columns) -> Any:
    return np.stack(list(columns.values()), 1).astype(np.float64)


def npy(path: Path, columns: Columns) -> None:
    with path.open("wb") as file:
        np.save(file, of_floats(columns))


def structured(path: Path, columns: Columns) -> None:
    array = np.zeros(len(next(iter(columns.values()))), [(name, column.dtype) for name, column in columns.items()])
    for name, column in columns.items():
        array[name] = column
    with path.open("wb") as file:
        np.save(file, array)


def npz(path: Path, columns: Columns) -> None:
    with path.open("wb") as file:
        np.savez(file, **columns)


def mat(path: Path, columns: Columns) -> None:
    with path.open("wb") as file:
        scipy.io.savemat(file, {name: column[:, None] for name, column in columns.items()})


def csv(path: Path, columns: Columns, header: bool = True) -> None:
    rows = [",".join(map(repr, map(float, row))) for row in of_floats(columns)]
    path.write_text("\n".join([",".join(columns)] * header + rows) + "\n", encoding="utf-8")


def plain(path: Path, columns: Columns) -> None:
    csv(path, columns, header=False)


FORMATS: dict[str, tuple[Any, bool, bool]] = {  # with names, and numbers
    "npy": (npy, False, True),
    "structured": (structured, True, True),
    "npz": (npz, True, False),
    "mat": (mat, True, False),
    "csv": (csv, True, True),
    "plain": (plain, False, True),
}


@pytest.mark.parametrize("unit", SCALE)
@pytest.mark.parametrize("kind", FORMATS)
def test_what_is_told_is_read(tmp_path: Path, kind: str, unit: str) -> None:
    put, by_name, by_number = FORMATS[kind]
    rng = np.random.default_rng([list(FORMATS).index(kind), list(SCALE).index(unit)])
    for number in range(8):
        expected = write.drawn(rng, int(rng.integers(1, 30)))
        left_out = [name for name in "yp" if rng.random() < 0.3]
        stored = {name: column for name, column in expected.items() if name not in left_out}
        stored["t"] = stored["t"] * SCALE[unit] if unit in ("s", "ms") else stored["t"] * int(SCALE[unit])
        stored |= {f"other{n}": rng.integers(0, 9, len(stored["t"])) for n in range(rng.integers(3))}
        names = {own: f"the_{own}" if own in expected else own for own in rng.permutation(list(stored)).tolist()}
        path = tmp_path / f"{number}"
        put(path, {name: stored[own] for own, name in names.items()})
        wanted = [own for own in expected if own not in left_out]
        told: list[Columns] = [{own: names[own] for own in wanted}] if by_name else []
        told += [{own: list(names).index(own) for own in wanted}] if by_number else []
        for columns in told:
            events = read_events(path, columns=columns, time_unit=unit)
            assert events.dtype.names == tuple(name for name in "txyp" if name in wanted or name == "p")
            for name in events.dtype.names:
                np.testing.assert_array_equal(events[name], expected[name] if name in wanted else 0, name)


@pytest.mark.parametrize("dtype", ["i8", "u8", "u1", "f4", "?"])
def test_units_of_integers_are_exact(tmp_path: Path, dtype: str) -> None:
    path = tmp_path / "file"
    now = 1_700_000_000_123_456_789
    t = {"i8": [-1501, -499, 0, 499, 500, now], "u8": [0, 1499, now]}.get(dtype, [0, 1])
    array = np.zeros(len(t), [("t", dtype), ("x", "i4"), ("p", "i4")])
    array["t"] = t
    with path.open("wb") as file:
        np.save(file, array)
    found = read_events(path, time_unit="ns")["t"].tolist()
    assert found == [(each + 500) // 1000 for each in t]
    if t[-1] == now:
        with pytest.raises(FileError, match=r"event \d: t has integers of microseconds, not 1.7\d*e[+]24"):
            read_events(path, time_unit="s")
    else:
        assert read_events(path, time_unit="s")["t"].tolist() == [each * 1_000_000 for each in t]


AMBIGUOUS = [
    ("3,1,0,0\n2,1,1,1\n", r"can be x y t p or x y p t; columns=\{\"t\": 0"),
    ("3,5,9,2\n1,1,2,1\n", "are not t x y p or x y t p or x y p t; columns="),
    ("5,2,1\n1,3,0\n", "are not t x p; columns="),
    ("0.5,2,3,1\n0.7,1,0,1\n", r'not 0.5, and times in another unit are read with time_unit="s"'),
    ("time,where,p\n1,2,0\n", r'of time, where, p none is x; columns=\{"t": ..., "x": ...\} would say'),
]


@pytest.mark.parametrize(("content", "words"), AMBIGUOUS)
def test_what_is_ambiguous_is_no_guess(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "file.csv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(FileError, match=words):
        read_events(path)
    width = len(content.split("\n")[0].split(","))
    order = "txyp" if width == 4 else "txp"
    columns = {name: number for number, name in enumerate(order)}
    assert len(read_events(path, columns=columns, time_unit="s")) > 0


@pytest.mark.parametrize("content", ["1,1,0,1\n2,2,1,0\n", "1,1,0,1\n", "0,3,3,0\n0,3,4,0\n"])
def test_the_usual_order_wins_where_the_numbers_allow_it(tmp_path: Path, content: str) -> None:
    path = tmp_path / "file.csv"
    path.write_text(content, encoding="utf-8")
    rows = [tuple(map(int, line.split(","))) for line in content.splitlines()]
    assert [tuple(event) for event in read_events(path)[["t", "x", "y", "p"]].tolist()] == rows


@pytest.mark.parametrize("content", ["5,2,1,3\n1,3,0,4\n", "5,2,1,0.25\n1,3,0,0.5\n"])
def test_tonics_order_is_in_milliseconds_and_says_so(tmp_path: Path, content: str) -> None:
    path = tmp_path / "file.csv"
    path.write_text(content, encoding="utf-8")
    with pytest.warns(RuntimeWarning, match=r'file\.csv: its columns are x y p t, .*Say time_unit="ms", or "us"'):
        found = read_events(path)
    assert found["t"].tolist() == [1000 * float(line.split(",")[3]) for line in content.splitlines()]
    np.testing.assert_array_equal(found, read_events(path, time_unit="ms"))


def test_no_events_are_not_ambiguous(tmp_path: Path) -> None:
    with (tmp_path / "none").open("wb") as file:
        np.save(file, np.zeros((0, 4)))
    assert read_events(tmp_path / "none").dtype.names == ("t", "x", "y", "p")


TOLD: list[tuple[Any, Any, str]] = [
    ({"t": "a", "x": "b"}, FileError, r"there are columns t, x, y, p, and none is 'a', as columns has it"),
    ({"t": 0, "x": 7}, FileError, r"there are columns t, x, y, p, and none is 7"),
    ({"t": 0}, ArgumentError, r"columns says which column of the file is t, x, .* not \{'t': 0\}"),
    ({"t": 0, "x": 1, "z": 2}, ArgumentError, "columns says which"),
    ({"t": 0, "x": True}, ArgumentError, "columns says which"),
    ({"t": 0, "x": -1}, ArgumentError, "columns says which"),
    ({"t": 0, "x": 0}, ArgumentError, r"each of columns is another one"),
    ("txyp", ArgumentError, "columns says which .* not 'txyp'"),
    (3, ArgumentError, "columns says which"),
]


@pytest.mark.parametrize(("columns", "error", "words"), TOLD)
def test_wrong_columns_are_refused_in_words(tmp_path: Path, columns: Any, error: Any, words: str) -> None:
    path = tmp_path / "a"
    csv(path, write.drawn(np.random.default_rng(0), 5))
    with pytest.raises(error, match=words):
        read_events(path, columns=columns)


def test_what_has_no_names_is_told_by_numbers(tmp_path: Path) -> None:
    npy(tmp_path / "a", write.drawn(np.random.default_rng(0), 5))
    with pytest.raises(FileError, match="the columns have no names, and none is 'a'; columns has their numbers"):
        read_events(tmp_path / "a", columns={"t": "a", "x": 1})
    with pytest.raises(FileError, match="there are 4 columns, numbered from 0, and none is 4"):
        read_events(tmp_path / "a", columns={"t": 0, "x": 4})


def test_units_that_are_none_and_files_that_are_no_tables(tmp_path: Path) -> None:
    write.write_bin(tmp_path / "a", write.drawn(np.random.default_rng(0), 5))
    for options in ({"time_unit": "s"}, {"columns": {"t": 0, "x": 1}}):
        with pytest.raises(ArgumentError, match=r"said of tables, as .npy, .npz, .mat and CSV, and .* is none"):
            read_events(tmp_path / "a", **options)
    for unit in ("minutes", 3, "S"):
        with pytest.raises(ArgumentError, match="time_unit is one of 's', 'ms', 'us', 'ns', not"):
            read_events(tmp_path / "a", time_unit=unit)


def test_a_folder_of_tables(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        csv(tmp_path / name / "0.csv", {"when": rng.random(5), "where": rng.integers(0, 9, 5)})
    folder = EventFolder(tmp_path, columns={"t": "when", "x": "where"}, time_unit="s")
    assert folder.sensor_size[0] <= 9 and max(len(events) for events, _ in folder) == 5
    with pytest.raises(FileError, match="none is t and x and p"):
        EventFolder(tmp_path)[0]
    with pytest.raises(ArgumentError, match="EventFolder: time_unit is one of"):
        EventFolder(tmp_path, time_unit="h")
