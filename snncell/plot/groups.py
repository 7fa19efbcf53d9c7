"""Rows of a plot by the class they belong to."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from snncell.base.arguments.shown import show
from snncell.errors import ArgumentError, ShapeError
from snncell.plot.sources import Array


class ClassRows(NamedTuple):
    """A class: its name, and the numbers of the rows that belong to it."""

    name: str
    members: Array


def groups_of(classes: Any, count: int, who: str, rows: str) -> list[ClassRows]:
    """The rows by class, in the order of the classes; without classes all rows in one group, whose name is ""."""
    if classes is None:
        return [ClassRows("", np.arange(count))]
    try:
        labels = np.asarray(classes)
    except ValueError:  # ragged
        labels = np.empty(0, object)
    if labels.dtype.kind not in "biufUS":
        raise ArgumentError(
            f"{who}: classes are a label for each of the {rows}, numbers or names, not {show(classes)}."
        )
    if labels.shape != (count,):
        raise ShapeError(f"{who}: there are {count} {rows}, so classes have shape ({count},), not {labels.shape}.")
    return [ClassRows(str(name), np.nonzero(labels == name)[0]) for name in np.unique(labels)]
