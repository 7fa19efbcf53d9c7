"""Columns by the names that they have elsewhere, and tables without names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from snncell.data.formats.reading import Array, fault

NAMES = {
    "t": ("t", "ts", "time", "times", "timestamp", "timestamps"),
    "x": ("x", "xs", "unit", "units", "channel"),
    "y": ("y", "ys"),
    "p": ("p", "ps", "pol", "polarity", "polarities"),
}
MILLISECOND = 1000  # microseconds


def ours(path: Any, names: Iterable[str], place: str = "") -> dict[str, str]:
    """Which of a file's names is t, x, y and p, whatever they are called and in whatever case.

    Raises:
        FileError: if one but y is missing.
    """
    known = {name.strip().lower(): name for name in names}
    found = {own: next((known[one] for one in others if one in known), None) for own, others in NAMES.items()}
    missing = [own for own, name in found.items() if name is None and own != "y"]
    if missing:
        wanted = " and ".join(missing)
        raise fault(
            path, place, f"columns t, x, p and perhaps y are expected, and of {', '.join(known)} none is {wanted}"
        )
    return {own: name for own, name in found.items() if name is not None}


def unnamed(path: Any, table: Array, place: str = "") -> dict[str, Array]:
    """The columns of a table (events, 4) or (events, 3), told by their numbers.

    Of four, `t x y p` and `x y t p` are in microseconds, and `x y p t` is how tonic keeps DVS128 Gesture: in
    milliseconds. Of three, it is `t x p`. Polarities are 0 and 1 or -1 and 1, and times do not go back.
    """
    if table.ndim != 2 or table.shape[1] not in (3, 4):
        raise fault(path, place, f"a table of 4 columns, or of 3, a row an event, is expected, not of {table.shape}")
    if table.dtype.kind not in "iubf":
        raise fault(path, place, f"numbers are expected, not {table.dtype}")
    if table.shape[1] == 3:
        return dict(zip("txp", table.T, strict=True))
    for order in ("txyp", "xytp", "xypt"):
        columns = dict(zip(order, table.T, strict=True))
        t = columns["t"]
        if is_polarity(columns["p"]) and bool((t[1:] >= t[:-1]).all()):
            return milliseconds(columns) if order == "xypt" else columns
    found = "the columns are neither t x y p nor x y t p nor x y p t: save a structured array, or CSV with a header"
    raise fault(path, place, found)


def is_polarity(column: Array) -> bool:
    """True for a column of 0 and 1, or of -1 and 1."""
    return any(bool(np.isin(column, pair).all()) for pair in ((0, 1), (-1, 1)))


def milliseconds(columns: dict[str, Array]) -> dict[str, Array]:
    """Columns whose times are in milliseconds, perhaps with fractions."""
    return columns | {"t": np.rint(np.asarray(columns["t"], np.float64) * MILLISECOND)}
