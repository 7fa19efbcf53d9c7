"""Measure a row: contestants in turns, and the compilation and the peak memory of each in a separate process."""

from __future__ import annotations

import ctypes
import gc
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.machine import resident
from benchmarks.peers import peer_of
from benchmarks.row import OURS, Row
from benchmarks.timing import in_turns

REST = 0.2  # seconds before each turn: the threads of a BLAS spin for a tenth of a second when their work is done
SHORT = 0.02  # seconds that a turn should take at least
BUDGET = 30.0  # seconds for a row, once there are three rounds
ROOT = Path(__file__).resolve().parents[1]


@dataclass
class Timing:
    """The times of one contestant, in seconds; `first` is its first call, which traces and compiles; bytes of memory.

    ratio: its median in snncell's.
    fault: why there are no times, for example a compilation that takes too long; otherwise empty.
    """

    contestant: str
    median: float
    minimum: float
    first: float
    ratio: float
    rounds: int
    memory: float | None = None
    fault: str = ""


def measured(row: Row, sizes: Any, peers: list[str], rounds: int, compiled: Iterable[str] = ()) -> list[Timing]:
    """Time the contestants of the row in turns."""
    made, first = row.made(sizes, peers, compiled), {}
    for name, contestant in made.items():
        start = time.perf_counter()
        contestant.once()
        first[name] = time.perf_counter() - start
    calls = max(1, int(SHORT / max(_seconds(made[OURS].once), 1e-6)))
    runs = {name: contestant.run for name, contestant in made.items()}
    before = {name: contestant.before for name, contestant in made.items() if contestant.before is not None}
    times = in_turns(runs, calls, rounds, REST, BUDGET, before)
    base = statistics.median(times[OURS])
    return [
        Timing(name, statistics.median(each), min(each), first[name], statistics.median(each) / base, len(each))
        for name, each in times.items()
    ]


def _seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def fastest_peer(timings: list[Timing]) -> Timing | None:
    """The fastest of those that are not ours."""
    others = [timing for timing in timings if peer_of(timing.contestant) != OURS and not timing.fault]
    return min(others, key=lambda timing: timing.median, default=None)


# --- memory -----------------------------------------------------------------------------------------------------------


def peak(row: Row, contestant: str, changes: dict[str, Any]) -> int:
    """The most bytes that a contestant adds to what this process, which has run it at a small size, holds.

    Counted are inputs, results and all in between; imports and compilers hardly are.
    """
    for _ in range(2):
        row.make(contestant, row.given(row.checked)).once()
    gc.collect()
    before = resident("VmRSS")
    result = row.make(contestant, row.given(row.resized(changes))).once()
    found = resident("VmHWM") - before
    del result
    return found


def peak_in_fresh_process(row: Row, contestant: str, changes: dict[str, Any]) -> float | None:
    """`peak`, in a process of its own; None where the system does not tell, or memory does not suffice."""
    if not Path("/proc/self/status").exists():
        return None
    done = _in_fresh_process(f"told_peak({row.name!r}, {contestant!r}, {changes!r})")
    return None if done.returncode else float(done.stdout.split()[-1])


def _in_fresh_process(call: str) -> subprocess.CompletedProcess[str]:
    code = f"from benchmarks import measure; measure.{call}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, cwd=ROOT)


def told_peak(row: str, contestant: str, changes: dict[str, Any]) -> None:
    from benchmarks.rows import ROWS

    print(peak(ROWS[row], contestant, changes))


# --- compilation ------------------------------------------------------------------------------------------------------


def compilation(row: Row, contestant: str, quick: bool, limit: int) -> Timing:
    """The first call of a compiled contestant in a fresh process, and its peak memory without that of the compiler.

    If the call takes longer than `limit` seconds, or if PyTorch cannot compile it, the timing says so.
    """
    done = _in_fresh_process(f"told_compilation({row.name!r}, {contestant!r}, {quick!r}, {limit!r})")
    timing = Timing(contestant, math.nan, math.nan, math.nan, math.nan, 0)
    if done.returncode == 0:
        first, memory = map(float, done.stdout.split()[-2:])
        timing.first, timing.memory = first, None if math.isnan(memory) else memory
    elif done.returncode == -getattr(signal, "SIGALRM", 0):
        timing.fault = f"not compiled in {limit} s"
    else:
        errors = [line for line in done.stderr.splitlines() if line and not line[0].isspace() and "Error" in line]
        timing.fault = f"not compiled: {(errors or ['no message'])[-1][:200]}"
    return timing


def told_compilation(name: str, contestant: str, quick: bool, limit: int) -> None:
    from benchmarks.rows import ROWS

    row = ROWS[name]
    given = row.given(row.checked if quick else row.sizes)
    made = row.make(contestant, given)
    signal.alarm(limit)  # its default action ends the process, wherever the compiler is
    seconds = _seconds(made.once)
    signal.alarm(0)
    start_again = Path("/proc/self/clear_refs")
    if not start_again.exists():
        print(seconds, math.nan)
        return
    del made
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    start_again.write_text("5", encoding="ascii")  # VmHWM
    before = resident("VmRSS")
    result = row.make(contestant, given).once()
    print(seconds, resident("VmHWM") - before)
    del result
