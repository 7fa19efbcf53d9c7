"""Tables with explicit columns and units: random events in every format, ambiguous tables, errors."""

from __future__ import annotations

import tracemalloc
from fractions import Fraction
from pathlib import Path
from typing import Any

import event_files as write
import numpy as np
import pytest
import scipy.io
from random_cases import random_cases

from snncell.data import EventFolder, Sliced, read_events, to_frames
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


FORMATS: dict[str, tuple[Any, bool, bool]] = {  # named columns, and numbered ones
    "npy": (npy, False, True),
    "structured": (structured, True, True),
    "npz": (npz, True, False),
    "mat": (mat, True, False),
    "csv": (csv, True, True),
    "plain": (plain, False, True),
}


@pytest.mark.parametrize("unit", SCALE)
@pytest.mark.parametrize("kind", FORMATS)
def test_explicit_columns_and_units_are_read(tmp_path: Path, kind: str, unit: str) -> None:
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
        with pytest.raises(FileError, match=r"event \d: t must be integers of microseconds, not 1.7\d*e[+]24"):
            read_events(path, time_unit="s")
    else:
        assert read_events(path, time_unit="s")["t"].tolist() == [each * 1_000_000 for each in t]


AMBIGUOUS = [
    ("3,1,0,0\n2,1,1,1\n", r"can be x y t p or x y p t; pass their order, for example columns=\{\"t\": 0"),
    ("3,5,9,2\n1,1,2,1\n", "are not t x y p or x y t p or x y p t; pass their order, for example columns="),
    ("5,2,1\n1,3,0\n", "are not t x p; pass their order, for example columns="),
    ("0.5,2,3,1\n0.7,1,0,1\n", r'not 0.5; for times in another unit pass time_unit="s"'),
    ("time,where,p\n1,2,0\n", r'of time, where, p none is x; pass their names, columns=\{"t": ..., "x": ...\}'),
]


@pytest.mark.parametrize(("content", "words"), AMBIGUOUS)
def test_ambiguous_tables_raise(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "file.csv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(FileError, match=words):
        read_events(path)
    width = len(content.split("\n")[0].split(","))
    order = "txyp" if width == 4 else "txp"
    columns = {name: number for number, name in enumerate(order)}
    assert len(read_events(path, columns=columns, time_unit="s")) > 0


ORDERS = ("txyp", "xytp", "xypt")


@random_cases(60)
def test_headerless_table_is_read_only_if_one_column_order_fits(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 6))
    longest = int(rng.choice([2, 20, 2000, 200_000]))
    table = rng.integers(0, [longest, longest, 2, longest], (count, 4))[:, rng.permutation(4)]
    table = np.sort(table, axis=0) if rng.random() < 0.7 else table

    def fits(order: str) -> bool:
        t, x, y, p = (table[:, order.index(name)].tolist() for name in "txyp")
        return t == sorted(t) and (set(p) <= {0, 1} or set(p) <= {-1, 1}) and max(x + y) < 65_535

    fitting = [order for order in ORDERS if fits(order)]
    write_text(tmp_path / "a.csv", "\n".join(",".join(map(str, row)) for row in table.tolist()))
    if len(fitting) > 1:
        with pytest.raises(FileError, match=rf"the columns can be {' or '.join(' '.join(each) for each in fitting)}; "):
            read_events(tmp_path / "a.csv")
    elif fitting:
        events = read_events(tmp_path / "a.csv")
        for name in "txyp":
            np.testing.assert_array_equal(events[name], table[:, fitting[0].index(name)])
    else:
        with pytest.raises(FileError, match=r"(the columns (are not|can be)|must be at least 0 and below 65535)"):
            read_events(tmp_path / "a.csv")


def write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("content", ["5,2,1,3\n1,3,0,4\n", "35,443,1,913716224\n5,443,1,913716225\n"])
def test_xypt_units_are_microseconds_in_text_and_milliseconds_in_npy(tmp_path: Path, content: str) -> None:
    write_text(tmp_path / "file.csv", content)
    rows = [tuple(map(int, line.split(","))) for line in content.splitlines()]
    found = read_events(tmp_path / "file.csv")
    assert found[["x", "y", "p", "t"]].tolist() == rows
    np.save(tmp_path / "file.npy", np.array(rows))
    with pytest.warns(RuntimeWarning, match=r'file\.npy: the columns are x y p t, .*Pass time_unit="ms"'):
        tonics = read_events(tmp_path / "file.npy")
    np.testing.assert_array_equal(tonics["t"], found["t"] * 1000)
    np.testing.assert_array_equal(tonics, read_events(tmp_path / "file.npy", time_unit="ms"))
    np.savez(tmp_path / "file.npz", np.array(rows))
    np.testing.assert_array_equal(read_events(tmp_path / "file.npz"), found)


def test_xypt_text_with_fractions_needs_a_unit(tmp_path: Path) -> None:
    write_text(tmp_path / "file.csv", "5,2,1,0.25\n1,3,0,0.5\n")
    with pytest.raises(FileError, match=r'line 1 .*: t must be integers of microseconds, not 0\.25; .* time_unit="s"'):
        read_events(tmp_path / "file.csv")
    assert read_events(tmp_path / "file.csv", time_unit="ms")["t"].tolist() == [250, 500]


@random_cases(40)
def test_text_times_are_exact_to_the_microsecond(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    unit = str(rng.choice(["s", "ms", "us", "ns"]))
    start = Fraction(int(rng.choice([0, 10**6, 1_700_000_000 * 10**6])))
    scale = Fraction(10) ** {"s": 6, "ms": 3, "us": 0, "ns": -3}[unit]
    decimals = {"s": 9, "ms": 6, "us": 3, "ns": 0}[unit]  # nanoseconds in each unit
    nanoseconds = rng.integers(0, 10**12, 20).tolist()
    # Half microseconds are avoided, because floats and integers round them differently.
    exact = [start + Fraction(each if each % 1000 != 500 else each + 1, 1000) for each in nanoseconds]
    digits = [f"{int(each / scale * 10**decimals):0{decimals + 1}d}" for each in exact]
    times = [each[:-decimals] + "." + each[-decimals:] if decimals else each for each in digits]
    header, delimiter = bool(rng.random() < 0.5), str(rng.choice([",", " ", ";"]))
    lines = [delimiter.join("txp")] * header + [delimiter.join([each, "3", "1"]) for each in times]
    write_text(tmp_path / "file", "\n".join(lines))
    options: Any = {} if header else {"columns": {"t": 0, "x": 1, "p": 2}}
    found = read_events(tmp_path / "file", time_unit=unit, **options)["t"].tolist()
    assert found == [int(each + Fraction(1, 2)) for each in exact]


def test_nanoseconds_since_1970_stay_integers(tmp_path: Path) -> None:
    now = 1_700_000_000_123_456_789
    write_text(tmp_path / "file", f"t x p\n{now} 1 0\n{now + 1} 1 0\n{now - 290} 1 0\n")
    assert read_events(tmp_path / "file", time_unit="ns")["t"].tolist() == [
        1_700_000_000_123_457,
        1_700_000_000_123_457,
        1_700_000_000_123_456,
    ]
    assert read_events(tmp_path / "file")["t"].tolist() == [now, now + 1, now - 290]
    write_text(tmp_path / "file", f"t x p\n{now}.5 1 0\n")
    with pytest.raises(FileError, match=r"line 2 \(byte 6\): t must be integers of microseconds, not 1\.7"):
        read_events(tmp_path / "file")


def test_long_numbers_use_no_more_memory_than_their_file(tmp_path: Path) -> None:
    row = "1700000000123456789 1 0\n"
    write_text(tmp_path / "file", "t x p\n" + row * 2000 + "0" * 1_000_000 + row)
    tracemalloc.start()
    try:
        assert len(set(read_events(tmp_path / "file", time_unit="ns")["t"].tolist())) == 1
        assert tracemalloc.get_traced_memory()[1] < 1 << 26
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("blank", ["", "# of a camera\n", "\n"])
def test_first_line_with_width_and_height_sets_the_sensor(tmp_path: Path, blank: str) -> None:
    write_text(tmp_path / "events.txt", f"{blank}240 180\n{blank}0.5 3 7 1\n0.25 9 8 0\n")  # E2VID's file, out of order
    events = read_events(tmp_path / "events.txt", time_unit="s")
    assert events.sensor_size == (240, 180, 2)
    assert events.tolist() == [(500_000, 3, 7, 1), (250_000, 9, 8, 0)]
    columns = {"t": 0, "x": 2, "y": 1, "p": 3}
    assert read_events(tmp_path / "events.txt", columns=columns, time_unit="s")["x"].tolist() == [7, 8]
    write_text(tmp_path / "events.txt", f"{blank}9 180\n0.5 3 7 1\n0.25 9 8 0\n")
    with pytest.raises(
        FileError, match=r"line \d .*: x must be at least 0 and below 9 of sensor_size \(9, 180, 2\), not 9"
    ):
        read_events(tmp_path / "events.txt", time_unit="s")


def test_two_column_table_is_not_a_sensor_size(tmp_path: Path) -> None:
    write_text(tmp_path / "file", "240 180\n250 3\n")
    assert read_events(tmp_path / "file", columns={"t": 0, "x": 1})["t"].tolist() == [240, 250]


FOREIGN = [
    ("t,x@640,y@480,on", (640, 480, 2)),  # faery's file
    ("timestamp,x_pos,y_pos,polarity", None),
    ("Time, pos_x, pos_y, sign", None),
    ("ts,xs,ys,ps", None),
    ("t,x_addr,y_addr,pol", None),
    ("times,x_coordinate,y_coordinate,is_on", None),
]


@pytest.mark.parametrize(("header", "sensor"), FOREIGN)
def test_column_names_of_other_packages_are_recognised(tmp_path: Path, header: str, sensor: Any) -> None:
    write_text(tmp_path / "file", f"{header}\n10,3,7,1\n12,4,8,0\n")
    events = read_events(tmp_path / "file")
    assert events.tolist() == [(10, 3, 7, 1), (12, 4, 8, 0)]
    assert events.sensor_size == (sensor or (5, 9, 2))
    names = [name.strip() for name in header.split(",")]
    array = np.zeros(2, list(zip(names, ["<u8", "<i2", "<i2", "?"], strict=True)))
    for name, own in zip(names, "txyp", strict=True):
        array[name] = events[own]
    for frames in (to_frames(array, (5, 9, 2), n_bins=2), to_frames([array], (5, 9, 2), n_bins=2)[:, 0]):
        np.testing.assert_array_equal(frames, to_frames(events, (5, 9, 2), n_bins=2))
    (first, label), (second, _) = Sliced([(array, 3)], duration=2)
    assert (first[names[0]].tolist(), second[names[0]].tolist(), label) == ([10], [12], 3)
    with (tmp_path / "npy").open("wb") as file:
        np.save(file, array)
    np.testing.assert_array_equal(read_events(tmp_path / "npy"), events)


def test_empty_tables_are_not_ambiguous(tmp_path: Path) -> None:
    with (tmp_path / "none").open("wb") as file:
        np.save(file, np.zeros((0, 4)))
    assert read_events(tmp_path / "none").dtype.names == ("t", "x", "y", "p")


TOLD: list[tuple[Any, Any, str]] = [
    ({"t": "a", "x": "b"}, FileError, r"the file has columns t, x, y, p, but columns asks for 'a'"),
    ({"t": 0, "x": 7}, FileError, r"the file has columns t, x, y, p, but columns asks for 7"),
    ({"t": 0}, ArgumentError, r"columns must map t, x, .* not \{'t': 0\}"),
    ({"t": 0, "x": 1, "z": 2}, ArgumentError, "columns must map t, x"),
    ({"t": 0, "x": True}, ArgumentError, "columns must map t, x"),
    ({"t": 0, "x": -1}, ArgumentError, "columns must map t, x"),
    ({"t": np.array([0, 1]), "x": 1}, ArgumentError, "columns must map t, x"),
    ({"t": 0, "x": 0}, ArgumentError, r"columns must name different columns"),
    ("txyp", ArgumentError, "columns must map t, x, .* not 'txyp'"),
    (3, ArgumentError, "columns must map t, x"),
]


@pytest.mark.parametrize(("columns", "error", "words"), TOLD)
def test_invalid_columns_raise(tmp_path: Path, columns: Any, error: Any, words: str) -> None:
    path = tmp_path / "a"
    csv(path, write.drawn(np.random.default_rng(0), 5))
    with pytest.raises(error, match=words):
        read_events(path, columns=columns)


def test_columns_without_names_are_selected_by_number(tmp_path: Path) -> None:
    npy(tmp_path / "a", write.drawn(np.random.default_rng(0), 5))
    with pytest.raises(FileError, match="the columns have no names, and none is 'a'; columns must give their numbers"):
        read_events(tmp_path / "a", columns={"t": "a", "x": 1})
    with pytest.raises(FileError, match="there are 4 columns, numbered from 0, and none is 4"):
        read_events(tmp_path / "a", columns={"t": 0, "x": 4})


def test_invalid_units_and_files_without_tables_raise(tmp_path: Path) -> None:
    write.write_bin(tmp_path / "a", write.drawn(np.random.default_rng(0), 5))
    for options in ({"time_unit": "s"}, {"columns": {"t": 0, "x": 1}}):
        with pytest.raises(
            ArgumentError, match=r"apply to tables only \(.npy, .npz, .mat, HDF5 and CSV\), and .* is not a table"
        ):
            read_events(tmp_path / "a", **options)
    for unit in ("minutes", 3, "S"):
        with pytest.raises(ArgumentError, match="time_unit is one of 's', 'ms', 'us', 'ns', not"):
            read_events(tmp_path / "a", time_unit=unit)


def test_folder_of_tables_is_a_data_set(tmp_path: Path) -> None:
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
