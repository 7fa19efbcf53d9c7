"""Markdown tables of measurements, and pages with the machine and the command."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.measure import Timing, fastest_peer
from benchmarks.row import OURS, Row

Measured = dict[str, list[Timing]]  # by the name of the row
GROUPS = {
    "nets": "Networks",
    "neurons": "Neurons without other layers",
    "layers": "Single layers",
    "onm": "Settings of the Open Neuromorphic benchmark",
    "onm-large": "Settings of the Open Neuromorphic benchmark, large sizes",
    "spyx": "Sizes of Spyx's profile of neurons",
}
BEGIN, END = "<!-- benchmarks: the table of `python -m benchmarks` -->", "<!-- end of the table -->"


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1.0 else f"{seconds:.3g} s"


def megabytes(size: float | None) -> str:
    return "" if size is None else f"{size / 1e6:.0f} MB"


def list_losses(rows: dict[str, Row], measured: Measured) -> str:
    """Return a list of the rows in which snncell is slower, or needs more memory, than the fastest peer."""
    slower, larger = [], []
    for name, (ours, *others) in measured.items():
        best = fastest_peer(others)
        if best is not None and best.ratio < 1.0:
            slower.append(f"{rows[name].title} ({best.contestant}: {best.ratio:.2f})")
        if best is not None and best.memory and ours.memory and best.memory < ours.memory:
            larger.append(f"{rows[name].title} ({best.contestant}: {best.memory / ours.memory:.2f})")
    lines = [f"**Behind.** snncell is slower than the fastest peer in {len(slower)} of {len(measured)} workloads."]
    lines += [f"- slower: {each}" for each in slower]
    return "\n".join([*lines, *(f"- more memory: {each}" for each in larger)]).replace(".\n-", ".\n\n-", 1)


def by_group(rows: dict[str, Row], measured: Measured) -> list[str]:
    """Return a titled table for each group, with the remarks on its rows."""
    parts = []
    for group, title in GROUPS.items():
        members = {name: timings for name, timings in measured.items() if rows[name].group == group}
        if members:
            remarks = "\n".join(dict.fromkeys(f"- {rows[name].remark}" for name in members if rows[name].remark))
            parts += [f"## {title}", summary(rows, members), *([remarks] if remarks else [])]
    return parts


def summary(rows: dict[str, Row], measured: Measured) -> str:
    """Return a table of rows: time and memory of snncell and of the fastest peer, ratio of the times, and goal."""
    names = ("workload", "snncell", "memory", "fastest peer", "its time", "its memory", "ratio", "goal")
    lines = [f"| {' | '.join(names)} |", "| --- " * len(names) + "|"]
    for name, timings in measured.items():
        row, ours, best = rows[name], timings[0], fastest_peer(timings)
        assert ours.contestant == OURS
        goal = "" if row.goal is None else f"{row.goal:g}"
        cells = [row.title, milliseconds(ours.median), megabytes(ours.memory)]
        if best is None:
            cells += [""] * 4
        else:
            cells += [best.contestant, milliseconds(best.median), megabytes(best.memory), f"**{best.ratio:.2f}**"]
        lines.append(f"| {' | '.join([*cells, goal])} |")
    return "\n".join(lines)


def details(rows: dict[str, Row], measured: Measured) -> str:
    """Return a table with a line for each contestant of each row."""
    names = ("workload", "contestant", "median", "minimum", "turns", "ratio", "first call, CPU s", "memory")
    lines = [f"| {' | '.join(names)} |", "| --- " * len(names) + "|"]
    for name, timings in measured.items():
        for t in timings:
            cells = [milliseconds(t.median), milliseconds(t.minimum), str(t.rounds), f"{t.ratio:.2f}"]
            cells += [f"{t.first:.2f}", megabytes(t.memory)]
            cells = [t.fault, *[""] * 5] if t.fault else cells
            lines.append(f"| {rows[name].title} | {t.contestant} | {' | '.join(cells)} |")
    return "\n".join(lines)


README_ROWS = {
    "linear-512": "Linear(512) + LIF, T 500, batch 16",
    "dense": "700-256-256-20 LIF, T 100, batch 64, step with Adam",
    "recurrent": "recurrent 700-256-20 LIF, T 100, batch 64, step with Adam",
    "conv-net": "convolutional, 28x28, T 8, batch 16, step with Adam",
    "adaptive": "your own adaptive neuron, T 64, 2^18 neurons",
}


def readme_table(measured: Measured) -> str:
    """Return the table of the README, or an empty text if one of its rows is missing."""
    lines = [
        "| forward and backward, float32 | snncell | JAX | PyTorch | SpikingJelly |",
        "| --- | --- | --- | --- | --- |",
    ]
    if README_ROWS.keys() - measured.keys():
        return ""
    for name, title in README_ROWS.items():
        times = {each.contestant: milliseconds(each.median) for each in measured[name]}
        cells = [f"**{times[OURS]}**", *(times.get(peer, "") for peer in ("JAX", "PyTorch"))]
        lines.append(f"| {title} | {' | '.join(cells)} | {times.get('SpikingJelly', 'same code as PyTorch')} |")
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
