"""A run of the benchmarks: measure rows, sweeps, figures and pages, and write each part after its measurement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from benchmarks import alone, digits, sweeps
from benchmarks.child import Child, ChildError, call
from benchmarks.compiled import Compiled
from benchmarks.environment import ROOT
from benchmarks.load import DisturbedError, Quiet, Watch
from benchmarks.machine import collect_facts
from benchmarks.measure import Timing, compare_row, measure_peak_memory, time_row
from benchmarks.pages import PAGES, RESULTS, make_page
from benchmarks.results import Result, Results, differences
from benchmarks.row import OURS, Row
from benchmarks.rows import ROWS
from benchmarks.tables import (
    README_ROWS,
    by_group,
    details,
    list_losses,
    milliseconds,
    page,
    put_between_markers,
    readme_table,
)

TITLE, SWEEPS_TITLE = "Comparison with other frameworks", "Comparison with other frameworks: sweeps over sizes"
HEAD = (
    "Medians of all contestants, which take turns. A ratio is the time of the fastest peer divided by snncell's. All "
    "contestants get the same inputs and weights, and the benchmark compares their results before it measures. Memory "
    "is the peak of the process, without imports and compilers. The page [Run the "
    "benchmarks](../../docs/run-benchmarks.md) describes the contestants."
)
FIGURE_TITLES = {
    "digits": "Training on digits",
    "busy": "A busy machine",
    "prefetch": "Prefetching",
    "spike-times": "Exact spike times",
}
PREPARED_ROWS = 2  # rows that are prepared at the same time, before each is timed alone
LIMIT = 600.0  # seconds of a child for one step
FASTEST = 3  # contestants whose memory is measured; the first table measures that of all contestants


class Run:
    """A run of the benchmarks.

    Args:
        peers, absent: the imported peers, and the reasons for missing ones.
        rounds: the largest number of turns of a contestant.
        quick: use tiny sizes.
        memory: measure peak memory.
        compiled: the cache of compiled contestants, or None without them.
        anyway: measure although other processes use the cores.
        folder: the folder of the results, or None to print only.
        resume: keep the parts that this version has measured today on this machine.
    """

    known_rows: ClassVar = ROWS
    known_sweeps: ClassVar[dict[str, Any]] = dict.fromkeys([*sweeps.SWEEPS, "threads"])
    known_figures: ClassVar[dict[str, Any]] = {"digits": None, **alone.FIGURES}
    known_pages: ClassVar[dict[str, Any]] = dict.fromkeys(PAGES)

    def __init__(
        self,
        peers: list[str],
        absent: dict[str, str],
        rounds: int,
        quick: bool,
        memory: bool,
        compiled: Compiled | None,
        anyway: bool,
        folder: Path | None,
        resume: bool = False,
    ) -> None:
        self.peers, self.rounds, self.quick, self.memory = peers, rounds, quick, memory and not quick
        self.compiled, self.folder, self.resume = compiled, folder, resume
        self.about = collect_facts(peers, absent)
        self.quiet = Quiet(Watch(), anyway)
        self.results = Results(folder / "frameworks.json" if folder else None)
        self.comparisons: dict[Any, Future[list[str]]] = {}
        self.failed: dict[str, str] = {}

    def list_rows(self) -> list[str]:
        return [f"{row.group:10} {name:22} {row.title}" for name, row in ROWS.items()]

    @property
    def changes(self) -> dict[str, Any] | None:
        return None if self.quick else {}

    # --- rows ---------------------------------------------------------------------------------------------------------

    def rows(self, rows: dict[str, Row]) -> None:
        """Compare the contestants of each row, time them, and measure their memory.

        Two rows are prepared at the same time, while the memory of the last two rows is measured. Then each row is
        timed alone.
        """
        left, last = [name for name in rows if self._needs("rows", name)], list[str]()
        with ThreadPoolExecutor(PREPARED_ROWS) as pool:
            while left or last:
                names, left = left[:PREPARED_ROWS], left[PREPARED_ROWS:]
                prepared = {name: pool.submit(self._prepare, name) for name in names}
                peaks = {name: pool.submit(self._add_peaks, name) for name in last}
                for name in peaks:
                    self._run_part(name, peaks[name].result)
                last = [name for name in names if self._run_part(name, partial(self._time, name, prepared[name]))]

    def _prepare(self, name: str) -> tuple[Child, list[Timing], list[str]]:
        """Return a child with all contestants, the first calls of the compiled ones, and notes on their results.

        Rows with the same contestants and small sizes share one comparison.
        """
        row = ROWS[name]
        compiled = self.prepare_compiled(name)
        key = tuple(row.contestants.items()), row.small_sizes
        comparison = self.comparisons.get(key)
        if comparison is None:
            self.comparisons[key] = comparison = Future()
            try:
                comparison.set_result(call(compare_row, name, self.peers, limit=LIMIT))
            except ChildError as error:
                comparison.set_exception(error)
        notes = [f"{name}, {note.partition(', ')[2]}" for note in comparison.result()]
        notes += [note for _, note in compiled if note]
        names = [each.contestant for each, _ in compiled if not each.fault]
        child = Child(time_row, name, self.changes, self.peers, names, self.rounds)
        try:
            child.next(LIMIT)
        except ChildError:
            child.end()
            raise
        return child, [each for each, _ in compiled], notes

    def prepare(self, rows: dict[str, Row]) -> None:
        """Compile the contestants of these rows that are not compiled yet. Other programs may run meanwhile."""
        with ThreadPoolExecutor(PREPARED_ROWS) as pool:
            for name, compiled in zip(rows, pool.map(self.prepare_compiled, rows), strict=True):
                texts = [f"{each.contestant}: {each.fault or f'{each.first:.0f} CPU s'}" for each, _ in compiled]
                print(f"{name}: {'; '.join(texts)}", flush=True)

    def prepare_compiled(self, name: str) -> list[tuple[Timing, str]]:
        """Compile the contestants of a row that are not compiled yet. Return their first calls and notes."""
        contestants = ROWS[name].compiled_names(self.peers) if self.compiled else []
        return [self.compiled.get(name, each, self.changes) for each in contestants] if self.compiled else []

    def _time(self, name: str, prepared: Future[tuple[Child, list[Timing], list[str]]]) -> bool:
        child, compiled, notes = prepared.result()
        try:
            timings = self.quiet.measure(lambda: child.next(LIMIT))
        finally:
            child.end()
        known = {each.contestant: each for each in compiled}
        for timing in timings:
            if timing.contestant in known:  # here the first call has only loaded the compiled code
                timing.first, timing.memory = known[timing.contestant].first, known[timing.contestant].memory
        timings += [each for each in compiled if each.fault]
        self._store("rows", name, Result(self._facts(), timings, notes))
        print(f"{name}: {ROWS[name].title}", flush=True)
        for timing in timings:
            text = timing.fault or f"{milliseconds(timing.median):>9}   {timing.ratio:.2f}"
            print(f"    {timing.contestant:30} {text}", flush=True)
        return self.memory

    def _add_peaks(self, name: str) -> bool:
        """Measure the peak memory of the fastest contestants."""
        result = self.results.get("rows")[name]
        measurable = sorted((each for each in result.timings if not each.fault), key=lambda each: each.median)
        first_table = ROWS[name].group == "nets"
        for rank, timing in enumerate(measurable):
            if timing.memory is None and (first_table or rank < FASTEST or timing.contestant == OURS):
                timing.memory = call(measure_peak_memory, name, timing.contestant, self.changes, limit=LIMIT)
        self._store("rows", name, result)
        return True

    # --- sweeps, figures, pages ---------------------------------------------------------------------------------------

    def sweeps(self, names: dict[str, Any]) -> None:
        for name in names:
            if self._needs("sweeps", name):
                print(f"sweep over {name}:", flush=True)
                self._run_part(name, partial(self._sweep, name))

    def _sweep(self, name: str) -> bool:
        points = sweeps.sweep(name, self.peers, self.rounds, self.quick, self.memory, self.quiet)
        self._store("sweeps", name, Result(self._facts(), points=points))
        return True

    def figures(self, names: dict[str, Any]) -> None:
        for name in names:
            if self._needs("figures", name):
                print(f"{name}:", flush=True)
                self._run_part(name, partial(self._figure, name))

    def _figure(self, name: str) -> bool:
        if name == "digits":
            text = self.quiet.measure(lambda: call(digits.table, self.peers, self.quick, limit=LIMIT))
        else:
            text = alone.table(self.quiet.measure(lambda: call(alone.FIGURES[name], self.quick, limit=LIMIT)))
        self._store("figures", name, Result(self._facts(), text=text))
        print(text, flush=True)
        return True

    def pages(self, names: dict[str, Any]) -> None:
        for name in names:
            if self._needs("pages", name):
                print(f"page {name}:", flush=True)
                self._run_part(name, partial(self._page, name))

    def _page(self, name: str) -> bool:
        text = self.quiet.measure(lambda: make_page(name, self.quick))
        if name == "cost-model":
            text = page("", self._facts(), text).removeprefix("# \n\n")
        print(text, flush=True)
        if self.folder != RESULTS:  # only a run of all parts replaces published pages
            return True
        if name != "cost-model":
            (RESULTS / f"{name}.md").write_text(text, encoding="utf-8")
        elif not put_between_markers(ROOT / "docs/cost-model.md", text.strip()):
            raise ValueError("docs/cost-model.md has no markers for the table. Restore the two comments that mark it.")
        self._store("pages", name, Result(self._facts()))
        return True

    # --- the report ---------------------------------------------------------------------------------------------------

    def _needs(self, kind: str, name: str) -> bool:
        known = self.results.get(kind).get(name)
        return not (self.resume and known is not None and known.matches(self.about))

    def _run_part(self, name: str, run: Callable[[], bool]) -> bool:
        """Run a part. An error ends only this part, unless the machine stays busy (`BusyError`)."""
        try:
            return run()
        except (ChildError, DisturbedError, ValueError, OSError) as error:
            self.failed[name] = str(error).partition("\n")[0]
            print(f"{name}: {self.failed[name]}", flush=True)
            return False

    def _facts(self) -> dict[str, str]:
        return {**self.about, "load": f"at most, {self.quiet.worst}"}

    def _store(self, kind: str, name: str, result: Result) -> None:
        self.results.put(kind, name, result)
        if self.folder:
            self.write(self.folder, kind)

    def _ordered(self, kind: str, names: Sequence[str]) -> dict[str, Result]:
        """Return the results of a kind in the order of these names."""
        results = self.results.get(kind)
        return {name: results[name] for name in names if name in results}

    def page(self) -> str:
        """Return the page of rows."""
        shown = self._ordered("rows", list(ROWS))
        timings = {name: result.timings for name, result in shown.items()}
        notes = "\n".join(f"- {note}" for result in shown.values() for note in result.notes)
        parts = [HEAD, list_losses(ROWS, timings), *by_group(ROWS, timings)] if shown else [HEAD]
        parts += ["## All contestants", details(ROWS, timings)] if shown else []
        return self._add_facts(TITLE, shown, [*parts, *(["## Comparison of results", notes] if notes else [])])

    def sweeps_page(self, pictures: Sequence[Path] = ()) -> str:
        """Return the page of sweeps and figures."""
        shown, row, base = self._ordered("sweeps", list(self.known_sweeps)), sweeps.ROW, sweeps.BASE
        parts = [
            f"{row.title.partition(',')[0]}, forward and backward. Each sweep changes one of T {base.steps}, batch "
            f"{base.batch}, n {base.neurons} and density {base.density:.0%}. The growth is the exponent of time from "
            "the middle of a sweep to its end. Compiled contestants are left out. Memory is that of three contestants."
        ]
        parts += [f"![{picture.stem}]({picture.name})" for picture in pictures]
        parts += [sweeps.table(name, result.points) for name, result in shown.items()]
        figures = self._ordered("figures", list(self.known_figures))
        for name, result in figures.items():
            parts += [f"## {FIGURE_TITLES[name]}", result.text]
        return self._add_facts(SWEEPS_TITLE, {**shown, **figures}, parts)

    def _add_facts(self, title: str, shown: dict[str, Result], parts: list[str]) -> str:
        """Return a page that starts with the facts of the newest run, and names the parts of other runs."""
        newest = max((result.about for result in shown.values()), key=lambda each: each["date"], default=self.about)
        if any(result.matches(self.about) for result in shown.values()):
            newest = self._facts()
        others = differences(shown, newest)
        return page(title, newest, *([others] if others else []), *parts)

    def write(self, folder: Path, kind: str) -> None:
        """Write the page of rows and the table of the README, or the page of sweeps with its plots."""
        folder.mkdir(parents=True, exist_ok=True)
        if kind == "rows":
            (folder / "frameworks.md").write_text(self.page(), encoding="utf-8")
            rows = self.results.get("rows")
            text = readme_table({name: result.timings for name, result in rows.items()})
            if folder == RESULTS and text:
                dates = sorted({rows[name].about["date"] for name in README_ROWS})
                text += f"\n\n{rows['dense'].about['processor']}; measured on {' and '.join(dates)}."
                put_between_markers(ROOT / "README.md", text)
        if kind not in ("sweeps", "figures"):
            return
        points = {name: each.points for name, each in self._ordered("sweeps", list(self.known_sweeps)).items()}
        pictures = {folder / "sweeps-time.png": "median", folder / "sweeps-memory.png": "memory"}
        files = [file for file, quantity in pictures.items() if sweeps.draw(points, quantity, file)]
        (folder / "frameworks-sweeps.md").write_text(self.sweeps_page(files), encoding="utf-8")
