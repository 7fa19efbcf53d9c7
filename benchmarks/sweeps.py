"""Sweeps of the linear layer with LIF neurons over density, steps, neurons, batch and threads: time, memory, plots."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.child import Child, ChildError, call
from benchmarks.environment import ROOT
from benchmarks.load import Quiet
from benchmarks.machine import cores
from benchmarks.measure import Timing, measure_peak_memory, time_row
from benchmarks.peers import peer_of
from benchmarks.results import Points
from benchmarks.rows.linear import ROWS, Sizes
from benchmarks.tables import megabytes, milliseconds

ROW = ROWS[0]
BASE = Sizes(100, 16, 512, 512)

# By name: the points, the sizes at a point, and the label of the axis.
SWEEPS: dict[str, tuple[list[float], Any, str]] = {
    "density": ([0.01, 0.05, 0.2, 0.5], lambda x: {"density": x}, "density of the input"),
    "steps": ([10, 100, 1000], lambda x: {"steps": int(x)}, "time steps T"),
    "neurons": ([128, 512, 2048], lambda x: {"inputs": int(x), "neurons": int(x)}, "inputs and neurons n"),
    "batch": ([1, 16, 128], lambda x: {"batch": int(x)}, "batch"),
}
QUICK = {"density": [0.05, 0.2], "steps": [10, 20], "neurons": [32, 64], "batch": [1, 4], "threads": [1]}
MEASURE_MEMORY = ("snncell", "PyTorch", "JAX")  # without the others, because they run PyTorch's loop
LIMIT = 600.0  # seconds of a child


def sweep(name: str, peers: list[str], rounds: int, quick: bool, memory: bool, quiet: Quiet) -> Points:
    """Time all contestants at each point of a sweep."""
    if name == "threads":
        points = QUICK[name] if quick else _threads()
        return {x: quiet.measure(lambda x=x: _with_threads(int(x), peers, rounds, quick)) for x in points}
    values, sizes_at, _ = SWEEPS[name]
    timings: Points = {}
    for value in QUICK[name] if quick else values:
        changes = {**vars(ROW.small_sizes if quick else BASE), **sizes_at(value)}
        child = Child(time_row, ROW.name, changes, peers, [], rounds)
        try:
            child.next(LIMIT)
            timings[value] = quiet.measure(lambda child=child: child.next(LIMIT))
        finally:
            child.end()
        for timing in timings[value]:
            if memory and name != "density" and timing.contestant in MEASURE_MEMORY:
                timing.memory = call(measure_peak_memory, ROW.name, timing.contestant, changes, limit=LIMIT)
        text = ", ".join(f"{t.contestant} {milliseconds(t.median)}" for t in timings[value])
        print(f"  {name} {value:g}: {text}", flush=True)
    return timings


def _threads() -> list[float]:
    return [2**k for k in range(int(math.log2(cores())) + 1)]


def _with_threads(threads: int, peers: list[str], rounds: int, quick: bool) -> list[Timing]:
    """Time the row in a process with this number of cores and threads for each contestant."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "timings.json"
        command = [sys.executable, "-m", "benchmarks", "--here", "--rows", ROW.name, "--threads", str(threads)]
        command += ["--compile-limit", "0", "--no-memory", "--force", "--rounds", str(rounds), "--json", str(file)]
        command += ["--peers", *(peers or ["none"])]
        done = subprocess.run(command + ["--quick"] * quick, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise ChildError(f"A process with {threads} threads failed:\n{done.stderr[-2000:]}")
        timings = json.loads(file.read_text(encoding="utf-8"))["rows"][ROW.name]
    print(f"  threads {threads}: {milliseconds(timings[0]['median'])}", flush=True)
    return [Timing(**each) for each in timings]


# --- tables and plots -------------------------------------------------------------------------------------------------


def contestants_of(points: Points) -> list[str]:
    return list(dict.fromkeys(timing.contestant for timings in points.values() for timing in timings))


def growth(points: Points, contestant: str) -> float | None:
    """Return the exponent k of time ~ x^k, from the middle of the sweep to its end, where constant costs are small."""
    known = [(x, t.median) for x, timings in points.items() for t in timings if t.contestant == contestant]
    if len(known) < 2:
        return None
    (x0, t0), (x1, t1) = known[len(known) // 2 - (len(known) == 2)], known[-1]
    return math.log(t1 / t0) / math.log(x1 / x0)


def table(name: str, points: Points) -> str:
    """Return a table of time and memory with a line per point and a column per contestant. The last line is growth."""
    names = contestants_of(points)
    lines = [f"| {name} | {' | '.join(names)} |", "| --- |" + " --- |" * len(names)]
    for x, timings in points.items():
        by_name = {t.contestant: t for t in timings}
        cells = []
        for each in names:
            t = by_name.get(each)
            memory = "" if t is None or t.memory is None else f", {megabytes(t.memory)}"
            cells.append("" if t is None else milliseconds(t.median) + memory)
        lines.append(f"| {x:g} | {' | '.join(cells)} |")
    exponents = [growth(points, each) for each in names]
    shown = ["" if k is None else f"x^{k:.2f}" for k in exponents]
    return "\n".join([*lines, f"| growth at the end | {' | '.join(shown)} |"])


def draw(sweeps: dict[str, Points], quantity: str, file: Path) -> bool:
    """Draw the "median" time or the "memory" over each axis, both logarithmic. Return False without such points."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import NullFormatter

    shown = {
        name: points
        for name, points in sweeps.items()
        if len(points) > 1 and any(getattr(t, quantity) is not None for each in points.values() for t in each)
    }
    if not shown:
        return False
    figure, panels = plt.subplots(1, len(shown), figsize=(3.1 * len(shown), 3.0), squeeze=False, layout="constrained")
    colours = {name: f"C{n}" for n, name in enumerate(ROW.contestants)}
    for axes, (name, points) in zip(panels[0], shown.items(), strict=True):
        for contestant in contestants_of(points):
            known = [
                (x, getattr(t, quantity)) for x, each in points.items() for t in each if t.contestant == contestant
            ]
            known = [(x, y) for x, y in known if y is not None]
            style = {"color": colours[peer_of(contestant)], "ls": "--" if "," in contestant else "-"}
            scale = 1e3 if quantity == "median" else 1e-6
            axes.plot([x for x, _ in known], [y * scale for _, y in known], marker=".", label=contestant, **style)
        axes.set(xscale="log", yscale="log", xlabel=SWEEPS[name][2] if name in SWEEPS else "threads")
        axes.set_xticks(list(points)[:: 2 if len(points) > 5 else 1], minor=False)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
    panels[0][0].set_ylabel("forward + backward, ms" if quantity == "median" else "peak memory, MB")
    panels[0][-1].legend(fontsize=7)
    figure.savefig(file, dpi=120)
    plt.close(figure)
    return True
