"""Columns by the names that they have elsewhere, and tables without names."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from snncell.base.arguments.shown import show
from snncell.data.events import match_names
from snncell.data.formats.reading import LATEST, Array, fault
from snncell.errors import ArgumentError

MOST_PIXELS = (1 << 16) - 1  # along an axis
UNITS = {"s": (1_000_000, 1), "ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}  # microseconds, as a fraction
ORDERS = {4: ("txyp", "xytp", "xypt"), 3: ("txp",)}  # of tables without names
GIVE = 'columns={"t": 0, "x": 1, "y": 2, "p": 3} would say which is which'


class TableLayout(NamedTuple):
    """Words about a table for its reader: which column is which, by name or number, and the unit of times."""

    columns: dict[str, str | int] | None = None
    time_unit: str | None = None


PLAIN = TableLayout()


def layout_of(who: str, columns: Any, time_unit: Any) -> TableLayout:
    """A layout, checked.

    Raises:
        ArgumentError: for columns that are no names or numbers of t, x and perhaps y and p, and for other units.
    """
    if time_unit is not None and (not isinstance(time_unit, str) or time_unit not in UNITS):
        units = ", ".join(map(repr, UNITS))
        raise ArgumentError(f"{who}: time_unit is one of {units}, not {show(time_unit)}.")
    if columns is None:
        return TableLayout(None, time_unit)
    places = list(columns.values()) if isinstance(columns, dict) else []
    known = isinstance(columns, dict) and {"t", "x"} <= set(columns) <= set("txyp")
    if not known or not all(isinstance(place, str) or _is_number(place) for place in places):
        raise ArgumentError(
            f"{who}: columns says which column of the file is t, x, and perhaps y and p, by name or by number from 0: "
            f'columns={{"t": "time", "x": 1}}, not {show(columns)}.'
        )
    if len(set(places)) != len(places):
        raise ArgumentError(f"{who}: each of columns is another one, not {show(columns)}.")
    return TableLayout(dict(columns), time_unit)


def _is_number(place: Any) -> bool:
    return isinstance(place, int) and not isinstance(place, bool) and place >= 0


def ours(path: Any, names: Iterable[str], layout: TableLayout, place: str = "") -> dict[str, str]:
    """Which of a file's names is t, x, y and p: as the layout says, or by what they are called, in whatever case.

    Raises:
        FileError: if one is missing, but y, or p where the layout has none.
    """
    names = list(names)
    if layout.columns is not None:
        return {own: names[_find_column(path, names, wanted, place)] for own, wanted in layout.columns.items()}
    found = match_names(names)
    missing = [own for own in "txp" if own not in found]
    if missing:
        wanted = " and ".join(missing)
        raise fault(
            path,
            place,
            f"columns t, x, p and perhaps y are expected, and of {_shorten_names(names)} none is {wanted}; "
            f'columns={{"t": ..., "x": ...}} would say which is which',
        )
    return found


def _shorten_names(names: list[str]) -> str:
    """The first names of a file, in words."""
    shown = [name[:60] for name in names[:24]]
    return ", ".join([*shown, "..."] if len(names) > 24 else shown) or "none"


def _find_column(path: Any, names: list[str], wanted: str | int, place: str) -> int:
    """The number of a column."""
    if isinstance(wanted, int) and wanted < len(names):
        return wanted
    if wanted not in names:
        raise fault(
            path, place, f"there are columns {_shorten_names(names)}, and none is {wanted!r}, as columns has it"
        )
    return names.index(str(wanted))


def order_of(path: Any, table: Array, layout: TableLayout, place: str = "", order: str = "") -> dict[str, int]:
    """The numbers of the columns t, x, y and p of a table (events, N): by the layout, a known order, or its numbers.

    Four columns are `t x y p`, `x y t p` or `x y p t`: the one order in which polarities are 0 and 1 or -1 and 1 and
    times do not go back. If several are, then the one in which x and y can be pixels. Three columns are `t x p`.

    Raises:
        FileError: for tables of another width, and if no order fits, or several.
    """
    if table.dtype.kind not in "iubf" and table.ndim == 2:
        raise fault(path, place, f"numbers are expected, not {table.dtype}")
    if layout.columns is not None and table.ndim == 2:
        return {own: _find_column_by_number(path, table, wanted, place) for own, wanted in layout.columns.items()}
    if order:
        if table.ndim != 2 or table.shape[1] != len(order):
            raise fault(path, place, f"columns {' '.join(order)} are expected, not a table of shape {table.shape}")
        return {own: number for number, own in enumerate(order)}
    if table.ndim != 2 or table.shape[1] not in ORDERS:
        found = f"a table of 4 columns, or of 3, a row an event, is expected, not of {table.shape}; {GIVE}"
        raise fault(path, place, found)
    orders = ORDERS[table.shape[1]]
    fitting = [each for each in orders if _fits(dict(zip(each, table.T, strict=True)))] if len(table) else [orders[0]]
    if len(fitting) > 1:
        fitting = [each for each in fitting if _has_pixels(dict(zip(each, table.T, strict=True)))] or fitting
    if len(fitting) != 1:
        words = " or ".join(" ".join(each) for each in fitting or orders)
        may = "can be" if fitting else "are not"
        raise fault(path, place, f"by their numbers, the columns {may} {words}; {GIVE}")
    return {own: number for number, own in enumerate(fitting[0])}


def in_milliseconds(path: Any, places: dict[str, int], layout: TableLayout) -> str | None:
    """The unit of the times in a `.npy`: milliseconds for columns x y p t, because tonic keeps DVS128 Gesture so."""
    if layout != PLAIN or "".join(places) != "xypt":
        return layout.time_unit
    warnings.warn(
        f"{os.fspath(path)}: its columns are x y p t, and the times are taken for milliseconds, as tonic keeps DVS128 "
        f'Gesture. Say time_unit="ms", or "us" if they are microseconds.',
        RuntimeWarning,
        stacklevel=2,
    )
    return "ms"


def _find_column_by_number(path: Any, table: Array, wanted: str | int, place: str) -> int:
    """The number of a column, of those that have no names."""
    if isinstance(wanted, str):
        raise fault(
            path, place, f"the columns have no names, and none is {wanted!r}; columns has their numbers, from 0"
        )
    if wanted >= table.shape[1]:
        raise fault(path, place, f"there are {table.shape[1]} columns, numbered from 0, and none is {wanted}")
    return wanted


def _fits(columns: dict[str, Array]) -> bool:
    """True if polarities are polarities and times do not go back."""
    t = columns["t"]
    return is_polarity(columns["p"]) and bool((t[1:] >= t[:-1]).all())


def _has_pixels(columns: dict[str, Array]) -> bool:
    """True if x and y are whole numbers of a sensor."""
    pixels = [columns[name] for name in "xy" if name in columns]
    return all(bool(((each >= 0) & (each < MOST_PIXELS) & (each == np.floor(each))).all()) for each in pixels)


def is_polarity(column: Array) -> bool:
    """True for a column of 0 and 1, or of -1 and 1."""
    return any(bool(np.isin(column, pair).all()) for pair in ((0, 1), (-1, 1)))


def in_microseconds(columns: dict[str, Array], time_unit: str | None) -> dict[str, Array]:
    """The columns with times rounded to whole microseconds, of a unit that was told, and with polarities.

    Integers stay exact, unless they become times that no recording has.
    """
    whole = columns if "p" in columns else columns | {"p": np.zeros(len(columns["t"]), np.uint8)}
    t = columns["t"]
    if time_unit is None or t.dtype.kind not in "iubf":
        return whole
    many, parts = UNITS[time_unit]
    reached = np.abs(t.astype(np.float64)).max(initial=0.0) * many / parts
    if t.dtype.kind == "f" or not reached < LATEST:
        return whole | {"t": np.rint(t.astype(np.float64) * many / parts)}
    wide = t if t.dtype.kind == "u" and t.dtype.itemsize == 8 else t.astype(np.int64)
    # Of nanoseconds since 1970 no float has the last digits.
    return whole | {"t": (wide // parts + (wide % parts >= (parts + 1) // 2) * (parts > 1)).astype(np.int64) * many}
