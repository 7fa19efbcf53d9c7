"""One run: it measures rows, sweeps, figures and pages, and writes each part when it is measured."""

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
from benchmarks.machine import about
from benchmarks.measure import Timing, compared, peak, timed
from benchmarks.pages import PAGES, RESULTS, measured_page
from benchmarks.results import Result, Results, differences
from benchmarks.row import OURS, Row
from benchmarks.rows import ROWS
from benchmarks.tables import (
    README_ROWS,
    behind,
    by_group,
    details,
    milliseconds,
    page,
    put_between_markers,
    readme_table,
)

TITLE, SWEEPS_TITLE = "Comparison with other frameworks", "Comparison with other frameworks: sweeps over sizes"
HEAD = (
    "Medians of all contestants, which take turns. A ratio is the time of the fastest peer divided by snncell's. All "
    "contestants get the same inputs and weights, and the benchmark compares their results before it measures. Memory "
    "is the peak of the process, without imports and compilers. The page [Run the benchmarks](../run-benchmarks.md) "
    "describes the contestants."
)
FIGURE_TITLES = {
    "digits": "Digits end to end",
    "busy": "A busy machine",
    "prefetch": "Prefetching",
    "spike-times": "Exact spike times",
}
AT_ONCE = 2  # rows that are prepared at the same time; one is timed at a time
LIMIT = 600.0  # seconds of a child for one step
FASTEST = 3  # contestants whose memory is measured; in the first table, that of all


class Run:
    """A run with these peers.

    Args:
        peers, absent: the peers that can be imported, and the reasons why others cannot.
        rounds: the largest number of turns of a contestant.
        quick: True for tiny sizes.
        memory: False to measure no peak of memory.
        compiled: the compiled contestants, or None without them.
        anyway: True to measure although other processes use the cores.
        folder: the place of the results, or None to print only.
        resume: True to keep the parts that this version has measured today on this machine.
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
        self.about = about(peers, absent)
        self.quiet = Quiet(Watch(), anyway)
        self.results = Results(folder / "frameworks.json" if folder else None)
        self.compared: dict[Any, Future[list[str]]] = {}
        self.failed: dict[str, str] = {}

    def listed(self) -> list[str]:
        return [f"{row.group:10} {name:22} {row.title}" for name, row in ROWS.items()]

    @property
    def changes(self) -> dict[str, Any] | None:
        return None if self.quick else {}

    # --- rows ---------------------------------------------------------------------------------------------------------

    def rows(self, rows: dict[str, Row]) -> None:
        """Compare the contestants of each row, and time them.

        Two rows at a time are prepared, while the memory of the last two is measured; then each is timed alone.
        """
        left, timed_now = [name for name in rows if self._needs("rows", name)], list[str]()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            while left or timed_now:
                names, left = left[:AT_ONCE], left[AT_ONCE:]
                prepared = {name: pool.submit(self._prepare, name) for name in names}
                peaks = {name: pool.submit(self._add_peaks, name) for name in timed_now}
                for name in peaks:
                    self._part(name, peaks[name].result)
                timed_now = [name for name in names if self._part(name, partial(self._time, name, prepared[name]))]

    def _prepare(self, name: str) -> tuple[Child, list[Timing], list[str]]:
        """A child with all contestants, the first calls of the compiled ones, and notes on the compared results."""
        row = ROWS[name]
        tried = self.prepare_compiled(name)
        key = tuple(row.contestants.items()), row.checked
        alike = self.compared.get(key)
        if alike is None:
            self.compared[key] = alike = Future()
            try:
                alike.set_result(call(compared, name, self.peers, limit=LIMIT))
            except ChildError as error:
                alike.set_exception(error)
        notes = [f"{name}, {note.partition(', ')[2]}" for note in alike.result()] + [note for _, note in tried if note]
        fine = [each.contestant for each, _ in tried if not each.fault]
        child = Child(timed, name, self.changes, self.peers, fine, self.rounds)
        try:
            child.next(LIMIT)
        except ChildError:
            child.end()
            raise
        return child, [each for each, _ in tried], notes

    def prepare(self, rows: dict[str, Row]) -> None:
        """Compile all contestants of these rows that are not compiled yet; it needs no quiet machine."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for name, tried in zip(rows, pool.map(self.prepare_compiled, rows), strict=True):
                told = [f"{each.contestant}: {each.fault or f'{each.first:.0f} CPU s'}" for each, _ in tried]
                print(f"{name}: {'; '.join(told)}", flush=True)

    def prepare_compiled(self, name: str) -> list[tuple[Timing, str]]:
        """Compile the contestants of a row, if they are not compiled yet."""
        contestants = ROWS[name].compiled(self.peers) if self.compiled else []
        return [self.compiled.of(name, each, self.changes) for each in contestants] if self.compiled else []

    def _time(self, name: str, prepared: Future[tuple[Child, list[Timing], list[str]]]) -> bool:
        child, tried, notes = prepared.result()
        try:
            timings = self.quiet.measure(lambda: child.next(LIMIT))
        finally:
            child.end()
        known = {each.contestant: each for each in tried}
        for timing in timings:
            if timing.contestant in known:  # its first call has loaded the compiled code
                timing.first, timing.memory = known[timing.contestant].first, known[timing.contestant].memory
        timings += [each for each in tried if each.fault]
        self._put("rows", name, Result(self._facts(), timings, notes))
        print(f"{name}: {ROWS[name].title}", flush=True)
        for timing in timings:
            told = timing.fault or f"{milliseconds(timing.median):>9}   {timing.ratio:.2f}"
            print(f"    {timing.contestant:30} {told}", flush=True)
        return self.memory

    def _add_peaks(self, name: str) -> bool:
        """Measure the peak memory of the fastest contestants."""
        result = self.results.of("rows")[name]
        measurable = sorted((each for each in result.timings if not each.fault), key=lambda each: each.median)
        first_table = ROWS[name].group == "nets"
        for place, timing in enumerate(measurable):
            if timing.memory is None and (first_table or place < FASTEST or timing.contestant == OURS):
                timing.memory = call(peak, name, timing.contestant, self.changes, limit=LIMIT)
        self._put("rows", name, result)
        return True

    # --- sweeps, figures, pages ---------------------------------------------------------------------------------------

    def sweeps(self, names: dict[str, Any]) -> None:
        for name in names:
            if self._needs("sweeps", name):
                print(f"sweep over {name}:", flush=True)
                self._part(name, partial(self._sweep, name))

    def _sweep(self, name: str) -> bool:
        points = sweeps.sweep(name, self.peers, self.rounds, self.quick, self.memory, self.quiet)
        self._put("sweeps", name, Result(self._facts(), points=points))
        return True

    def figures(self, names: dict[str, Any]) -> None:
        for name in names:
            if self._needs("figures", name):
                print(f"{name}:", flush=True)
                self._part(name, partial(self._figure, name))

    def _figure(self, name: str) -> bool:
        if name == "digits":
            text = self.quiet.measure(lambda: call(digits.table, self.peers, self.quick, limit=LIMIT))
        else:
            text = alone.table(self.quiet.measure(lambda: call(alone.FIGURES[name], self.quick, limit=LIMIT)))
        self._put("figures", name, Result(self._facts(), text=text))
        print(text, flush=True)
        return True

    def pages(self, names: dict[str, Any]) -> None:
        for name in names:
            if self._needs("pages", name):
                print(f"page {name}:", flush=True)
                self._part(name, partial(self._page, name))

    def _page(self, name: str) -> bool:
        text = self.quiet.measure(lambda: measured_page(name, self.quick))
        if name == "cost-model":
            text = page("", self._facts(), text).removeprefix("# \n\n")
        print(text, flush=True)
        if self.folder != RESULTS:  # only the whole run replaces published pages
            return True
        if name != "cost-model":
            (RESULTS / f"{name}.md").write_text(text, encoding="utf-8")
        elif not put_between_markers(ROOT / "docs/cost-model.md", text.strip()):
            raise ValueError("docs/cost-model.md has no place for the table.")
        self._put("pages", name, Result(self._facts()))
        return True

    # --- the report ---------------------------------------------------------------------------------------------------

    def _needs(self, kind: str, name: str) -> bool:
        known = self.results.of(kind).get(name)
        return not (self.resume and known is not None and known.like(self.about))

    def _part(self, name: str, run: Callable[[], bool]) -> bool:
        """Run a part. An error ends this part only, except on a machine that stays busy."""
        try:
            return run()
        except (ChildError, DisturbedError, ValueError, OSError) as error:
            self.failed[name] = str(error).partition("\n")[0]
            print(f"{name}: {self.failed[name]}", flush=True)
            return False

    def _facts(self) -> dict[str, str]:
        return {**self.about, "load": f"at most, {self.quiet.worst}"}

    def _put(self, kind: str, name: str, result: Result) -> None:
        self.results.put(kind, name, result)
        if self.folder:
            self.write(self.folder, kind)

    def _shown(self, kind: str, order: Sequence[str]) -> dict[str, Result]:
        """The results of a kind, in this order."""
        found = self.results.of(kind)
        return {name: found[name] for name in order if name in found}

    def page(self) -> str:
        """The page of rows."""
        shown = self._shown("rows", list(ROWS))
        timings = {name: result.timings for name, result in shown.items()}
        notes = "\n".join(f"- {note}" for result in shown.values() for note in result.notes)
        parts = [HEAD, behind(ROWS, timings), *by_group(ROWS, timings)] if shown else [HEAD]
        parts += ["## All contestants", details(ROWS, timings)] if shown else []
        return self._page_of(TITLE, shown, [*parts, *(["## Compared", notes] if notes else [])])

    def sweeps_page(self, pictures: Sequence[Path] = ()) -> str:
        """The page of sweeps and figures."""
        shown, row, base = self._shown("sweeps", list(self.known_sweeps)), sweeps.ROW, sweeps.BASE
        parts = [
            f"{row.title.partition(',')[0]} forward and backward, around T {base.steps}, batch {base.batch}, n "
            f"{base.neurons}, density {base.density:.0%}. The growth is the exponent from the middle of a sweep to its "
            "end. Compiled contestants are left out. Memory is that of three contestants."
        ]
        parts += [f"![{picture.stem}]({picture.name})" for picture in pictures]
        parts += [sweeps.table(name, result.points) for name, result in shown.items()]
        figures = self._shown("figures", list(self.known_figures))
        for name, result in figures.items():
            parts += [f"## {FIGURE_TITLES[name]}", result.text]
        return self._page_of(SWEEPS_TITLE, {**shown, **figures}, parts)

    def _page_of(self, title: str, shown: dict[str, Result], parts: list[str]) -> str:
        """A page that begins with the facts of the newest run, and names the parts of other runs."""
        newest = max((result.about for result in shown.values()), key=lambda each: each["date"], default=self.about)
        if any(result.like(self.about) for result in shown.values()):
            newest = self._facts()
        others = differences(shown, newest)
        return page(title, newest, *([others] if others else []), *parts)

    def write(self, folder: Path, kind: str) -> None:
        """Write the page of rows and the table of the README, or the page of sweeps with its plots."""
        folder.mkdir(parents=True, exist_ok=True)
        if kind == "rows":
            (folder / "frameworks.md").write_text(self.page(), encoding="utf-8")
            rows = self.results.of("rows")
            text = readme_table({name: result.timings for name, result in rows.items()})
            if folder == RESULTS and text:
                dates = sorted({rows[name].about["date"] for name in README_ROWS})
                text += f"\n\n{rows['dense'].about['processor']}, {' and '.join(dates)}."
                put_between_markers(ROOT / "README.md", text)
        if kind not in ("sweeps", "figures"):
            return
        points = {name: each.points for name, each in self._shown("sweeps", list(self.known_sweeps)).items()}
        pictures = {folder / "sweeps-time.png": "median", folder / "sweeps-memory.png": "memory"}
        drawn = [file for file, what in pictures.items() if sweeps.picture(points, what, file)]
        (folder / "frameworks-sweeps.md").write_text(self.sweeps_page(drawn), encoding="utf-8")
