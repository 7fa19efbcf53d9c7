"""Markdown tables of the measurements, and pages with the machine and the command."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.measure import Timing, fastest_peer
from benchmarks.row import OURS, Row

Measured = dict[str, list[Timing]]  # by the name of the row
GROUPS = {
    "nets": "Networks",
    "neurons": "Neurons alone",
    "layers": "Single layers",
    "onm": "The Open Neuromorphic benchmark's settings",
    "onm-large": "The same, large",
}
BEGIN, END = "<!-- benchmarks: the table of `python -m benchmarks` -->", "<!-- end of the table -->"


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1.0 else f"{seconds:.3g} s"


def megabytes(size: float | None) -> str:
    return "" if size is None else f"{size / 1e6:.0f} MB"


def by_group(rows: dict[str, Row], found: Measured) -> list[str]:
    """Return a titled table for each group, with the remarks on its rows."""
    parts = []
    for group, title in GROUPS.items():
        inside = {name: timings for name, timings in found.items() if rows[name].group == group}
        if inside:
            remarks = "\n".join(dict.fromkeys(f"- {rows[name].remark}" for name in inside if rows[name].remark))
            parts += [f"## {title}", summary(rows, inside), *([remarks] if remarks else [])]
    return parts


def summary(rows: dict[str, Row], found: Measured) -> str:
    """Return a table with our time, the fastest peer, the ratio of their times and the goal of each row."""
    lines = ["| workload | snncell | fastest peer | its time | ratio | goal |", "| --- | --- | --- | --- | --- | --- |"]
    for name, timings in found.items():
        row, ours, best = rows[name], timings[0], fastest_peer(timings)
        assert ours.contestant == OURS
        goal = "" if row.goal is None else f"{row.goal:g}"
        other = ("", "", "") if best is None else (best.contestant, milliseconds(best.median), f"**{best.ratio:.2f}**")
        lines.append(f"| {row.title} | {milliseconds(ours.median)} | {' | '.join(other)} | {goal} |")
    return "\n".join(lines)


def details(rows: dict[str, Row], found: Measured) -> str:
    """Return a table with a line for each contestant of each row."""
    head = "| workload | contestant | median | minimum | in snncell's | first call | most memory |"
    lines = [head, "| --- | --- | --- | --- | --- | --- | --- |"]
    for name, timings in found.items():
        for t in timings:
            cells = [milliseconds(t.median), milliseconds(t.minimum), f"{t.ratio:.2f}", milliseconds(t.first)]
            lines.append(f"| {rows[name].title} | {t.contestant} | {' | '.join(cells)} | {megabytes(t.memory)} |")
    return "\n".join(lines)


def page(title: str, about: dict[str, str], *parts: str) -> str:
    """Return a page that starts with the machine and the command."""
    facts = "\n".join(f"- {key}: {value}" for key, value in about.items())
    return "\n\n".join([f"# {title}", facts, *parts]) + "\n"


def put_between_markers(file: Path, table: str) -> bool:
    """Replace the table between the markers of a file. Return False if the file has no markers."""
    text = file.read_text(encoding="utf-8")
    pattern = re.compile(f"{re.escape(BEGIN)}\n.*?{re.escape(END)}", re.S)
    if not pattern.search(text):
        return False
    file.write_text(pattern.sub(lambda _: f"{BEGIN}\n{table}\n{END}", text), encoding="utf-8")
    return True
