"""Results of a check, as rows of a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class Row(NamedTuple):
    """One comparison: of what, in which part of the check, and the worst relative difference.

    `step` and `entry` say where that is, if single entries were compared; a random direction has all of them at once.
    What could not be compared has no difference, NaN, and a note that says why.
    """

    part: str
    name: str
    difference: float
    step: int | None = None
    entry: tuple[int, ...] | None = None
    note: str = ""

    def noted(self, note: str) -> Row:
        """The row with a further note."""
        return self._replace(note="; ".join(text for text in (self.note, note) if text))

    @property
    def checked(self) -> bool:
        """True if there was something to compare with."""
        return not math.isnan(self.difference)

    def cells(self) -> tuple[str, ...]:
        """The row as text."""
        if not self.checked:
            return self.part, self.name, "-", "", "", self.note
        step = "" if self.step is None else str(self.step)
        entry = "all at once" if self.entry is None else str(self.entry)
        return self.part, self.name, f"{self.difference:.1e}", step, entry, self.note


class Checked:
    """The comparison of a check that passed: `print` it for a table, or look at `rows`.

    Args:
        who: the check.
        rows: one for each comparison.
    """

    def __init__(self, who: str, rows: Sequence[Row]) -> None:
        self.who = who
        self.rows = tuple(rows)

    @property
    def worst(self) -> float:
        """The largest relative difference."""
        return max((row.difference for row in self.rows if row.checked), default=0.0)

    @property
    def verdict(self) -> str:
        """That it passed, and how much could not be checked."""
        left = sum(not row.checked for row in self.rows)
        return "passed" + (f", but for {left} that could not be checked" if left else "")

    def __str__(self) -> str:
        head = ("part", "of", "worst relative difference", "step", "entry", "")
        table = [head, *(row.cells() for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in table]
        return "\n".join([f"{self.who}: {self.verdict}", *(line.rstrip() for line in lines)])

    def __repr__(self) -> str:
        return (
            f"<{self.who}: {self.verdict}, {len(self.rows)} comparison(s), worst relative difference {self.worst:.1e}>"
        )
