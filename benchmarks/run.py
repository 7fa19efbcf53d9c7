"""One run: it measures rows, sweeps and figures, and writes a report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from benchmarks import alone, digits, sweeps
from benchmarks.load import Watch
from benchmarks.machine import about
from benchmarks.measure import compilation, measured, peak_in_fresh_process
from benchmarks.peers import COMPILE_LIMIT
from benchmarks.row import Row
from benchmarks.rows import ROWS
from benchmarks.tables import Measured, behind, by_group, details, milliseconds, page

TITLE = "Comparison with other frameworks"
HEAD = (
    "Medians of all contestants, which take turns within one run. A ratio is the time of the fastest peer divided by "
    "snncell's. All contestants get the same inputs and weights, and the benchmark compares their results before it "
    "measures. Memory is the peak of the process, without imports and compilers. The page [Run the "
    "benchmarks](../run-benchmarks.md) describes the contestants. The sweeps are without compiled contestants."
)


class Run:
    """A run with these peers."""

    known_rows: ClassVar = ROWS
    known_sweeps: ClassVar[dict[str, Any]] = dict.fromkeys([*sweeps.SWEEPS, "threads"])
    known_figures: ClassVar[dict[str, Any]] = {"digits": None, **alone.FIGURES}

    def __init__(
        self,
        peers: list[str],
        absent: dict[str, str],
        rounds: int,
        quick: bool,
        memory: bool,
        limit: int = COMPILE_LIMIT,
    ) -> None:
        self.peers, self.rounds, self.quick, self.memory, self.limit = peers, rounds, quick, memory, limit
        self.about = about(peers, absent)
        self.watch = Watch()
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
            compiled = row.compiled(self.peers) if self.limit else []
            tried = {each: compilation(row, each, self.quick, self.limit) for each in compiled}
            fine = [each for each in compiled if not tried[each].fault]
            self.notes += row.compare(self.peers, fine)
            sizes = row.checked if self.quick else row.sizes
            self.found[name] = measured(row, sizes, self.peers, self.rounds, fine)
            for timing in self.found[name]:
                if timing.contestant in tried:  # the first call here finds the compiled code on disk
                    timing.first, timing.memory = tried[timing.contestant].first, tried[timing.contestant].memory
                elif self.memory and not self.quick:
                    timing.memory = peak_in_fresh_process(row, timing.contestant, {})
            self.found[name] += [each for each in tried.values() if each.fault]
            for timing in self.found[name]:
                told = timing.fault or f"{milliseconds(timing.median):>9}   {timing.ratio:.2f}"
                print(f"    {timing.contestant:30} {told}", flush=True)
            self.look()

    def sweeps(self, names: dict[str, Any]) -> None:
        for name in names:
            print(f"sweep over {name}:", flush=True)
            self.points[name] = sweeps.sweep(name, self.peers, self.rounds, self.quick, self.memory and not self.quick)
            self.look()

    def figures(self, names: dict[str, Any]) -> None:
        lines: list[alone.Line] = []
        for name in names:
            print(f"{name}:", flush=True)
            if name == "digits":
                self.parts += ["## Digits end to end", digits.table(self.peers, self.quick)]
            else:
                lines += alone.FIGURES[name](self.quick)
            self.look()
        if lines:
            self.parts += ["## snncell alone", alone.table(lines)]

    def look(self) -> None:
        """Note the load of other processes since the last look."""
        self.watch.look()
        self.about["load"] = f"at most, {self.watch.worst}"

    # --- the report ---------------------------------------------------------------------------------------------------

    def page(self, pictures: Sequence[Path] = ()) -> str:
        parts = [
            HEAD,
            *([behind(ROWS, self.found)] if self.found else []),
            *(by_group(ROWS, self.found) if self.found else []),
        ]
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
