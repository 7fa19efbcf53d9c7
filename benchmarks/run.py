"""One run: it measures rows, sweeps and figures, and writes a report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from benchmarks import alone, digits, sweeps
from benchmarks.machine import about
from benchmarks.measure import measured, peak_in_fresh_process
from benchmarks.row import Row
from benchmarks.rows import ROWS
from benchmarks.tables import Measured, by_group, details, milliseconds, page

TITLE = "Comparison with other frameworks"
HEAD = (
    "Medians of all contestants, which take turns within one run. A ratio is the time of the fastest peer divided by "
    "snncell's. All contestants get the same inputs and weights, and the benchmark compares their results before it "
    "measures. Spyx is missing, because your own neuron in Spyx is JAX's scan."
)


class Run:
    """A run with these peers."""

    known_rows: ClassVar = ROWS
    known_sweeps: ClassVar[dict[str, Any]] = dict.fromkeys([*sweeps.SWEEPS, "threads"])
    known_figures: ClassVar[dict[str, Any]] = {"digits": None, **alone.FIGURES}

    def __init__(self, peers: list[str], absent: dict[str, str], rounds: int, quick: bool, memory: bool) -> None:
        self.peers, self.rounds, self.quick, self.memory = peers, rounds, quick, memory
        self.about = about(peers, absent)
        self.found: Measured = {}
        self.points: dict[str, sweeps.Points] = {}
        self.parts: list[str] = []
        self.notes: list[str] = []

    def listed(self) -> list[str]:
        return [f"{row.group:10} {name:22} {row.title}" for name, row in ROWS.items()]

    def rows(self, rows: dict[str, Row]) -> None:
        """Compare the contestants of each row, and time them."""
        for name, row in rows.items():
            print(f"{name}: {row.title}", flush=True)
            self.notes += row.compare(self.peers)
            sizes = row.checked if self.quick else row.sizes
            self.found[name] = measured(row, sizes, self.peers, self.rounds)
            for timing in self.found[name]:
                if self.memory and not self.quick:
                    timing.memory = peak_in_fresh_process(row, timing.contestant, {})
                print(f"    {timing.contestant:30} {milliseconds(timing.median):>9}   {timing.ratio:.2f}", flush=True)

    def sweeps(self, names: dict[str, Any]) -> None:
        for name in names:
            print(f"sweep over {name}:", flush=True)
            self.points[name] = sweeps.sweep(name, self.peers, self.rounds, self.quick, self.memory and not self.quick)

    def figures(self, names: dict[str, Any]) -> None:
        lines: list[alone.Line] = []
        for name in names:
            print(f"{name}:", flush=True)
            if name == "digits":
                self.parts += ["## Digits end to end", digits.table(self.peers, self.quick)]
            else:
                lines += alone.FIGURES[name](self.quick)
        if lines:
            self.parts += ["## snncell alone", alone.table(lines)]

    # --- the report ---------------------------------------------------------------------------------------------------

    def page(self, pictures: Sequence[Path] = ()) -> str:
        parts = [HEAD, *(by_group(ROWS, self.found) if self.found else [])]
        if self.points:
            row, base = sweeps.ROW.title.partition(",")[0], sweeps.BASE
            parts += [
                "## Sweeps",
                f"{row} forward and backward, around T {base.steps}, batch {base.batch}, n {base.neurons}, density "
                f"{base.density:.0%}; the growth is the exponent from the middle of a sweep to its end.",
            ]
            parts += [f"![{picture.stem}]({picture.name})" for picture in pictures]
            parts += [sweeps.table(name, points) for name, points in self.points.items()]
        parts += self.parts
        if self.found:
            parts += ["## All contestants", details(ROWS, self.found)]
            parts += ["## Compared", "\n".join(f"- {note}" for note in self.notes)] if self.notes else []
        return page(TITLE, self.about, *parts)

    def write(self, folder: Path) -> None:
        """Write the report, and the plots of the sweeps."""
        folder.mkdir(parents=True, exist_ok=True)
        pictures = {folder / "sweeps-time.png": "median", folder / "sweeps-memory.png": "memory"}
        drawn = [file for file, what in pictures.items() if sweeps.picture(self.points, what, file)]
        (folder / "frameworks.md").write_text(self.page(drawn), encoding="utf-8")
