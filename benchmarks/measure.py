"""Compare, compile and time the contestants of a row, and measure their peak memory. Child processes run these."""

from __future__ import annotations

import ctypes
import gc
import math
import os
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.machine import read_memory_field
from benchmarks.peers import peer_of
from benchmarks.row import OURS, Row
from benchmarks.rows import ROWS
from benchmarks.timing import in_turns

REST = 0.12  # seconds before each turn, because threads of BLAS keep spinning for 0.1 s after their work
BUDGET = 6.0  # seconds for the turns of a row


@dataclass
class Timing:
    """The times of one contestant.

    Attributes:
        median, minimum: seconds of a turn.
        first: processor seconds of the first call, which traces and compiles.
        ratio: the median divided by snncell's.
        rounds: the number of turns.
        memory: peak memory in bytes, if measured.
        fault: the reason for missing times, for example a slow compilation; otherwise empty.
    """

    contestant: str
    median: float
    minimum: float
    first: float
    ratio: float
    rounds: int
    memory: float | None = None
    fault: str = ""


def sizes_of(name: str, changes: dict[str, Any] | None) -> Any:
    """Return the sizes of a row with some changes, or its small sizes for None."""
    return ROWS[name].small_sizes if changes is None else ROWS[name].resize(changes)


def compare_row(name: str, peers: list[str]) -> list[str]:
    """Compare the results of the contestants of a row; see `Row.compare`."""
    return ROWS[name].compare(peers)


def time_row(
    name: str, changes: dict[str, Any] | None, peers: list[str], compiled: list[str], rounds: int
) -> Iterator[list[Timing]]:
    """Create the contestants of a row and call each once. Then time them in turns, once per `next`.

    The first `next` yields an empty list. You can call it while other programs run, because it measures no wall time.
    """
    contestants, first = ROWS[name].make_all(sizes_of(name, changes), peers, compiled), {}
    for contestant, own in contestants.items():
        start = processor_time()
        own.run_once()
        first[contestant] = processor_time() - start
    yield []
    runs = {contestant: own.run for contestant, own in contestants.items()}
    prepare = {contestant: own.prepare for contestant, own in contestants.items() if own.prepare is not None}
    while True:
        times = in_turns(runs, None, rounds, REST, BUDGET, prepare)
        base = statistics.median(times[OURS])
        yield [
            Timing(contestant, middle, min(each), first[contestant], middle / base, len(each))
            for contestant, each in times.items()
            for middle in (statistics.median(each),)
        ]


def processor_time() -> float:
    """Return the processor seconds of this process and of its ended children."""
    return sum(os.times()[:4])


def fastest_peer(timings: list[Timing]) -> Timing | None:
    """Return the timing of the fastest other framework, or None without one."""
    others = [timing for timing in timings if peer_of(timing.contestant) != OURS and not timing.fault]
    return min(others, key=lambda timing: timing.median, default=None)


# --- memory -----------------------------------------------------------------------------------------------------------


def measure_peak_memory(name: str, contestant: str, changes: dict[str, Any] | None) -> float:
    """Return the peak memory of one run in bytes, minus the memory of the process after two runs at a small size.

    This counts inputs, results and intermediate values, and leaves out imports and compilers.
    """
    row = ROWS[name]
    for _ in range(2):
        row.make(contestant, row.make_arrays(row.small_sizes)).run_once()
    gc.collect()
    return _growth(row, contestant, sizes_of(name, changes), read_memory_field("VmRSS"))


def _growth(row: Row, contestant: str, sizes: Any, before: int) -> float:
    result = row.make(contestant, row.make_arrays(sizes)).run_once()
    growth = read_memory_field("VmHWM") - before
    del result
    return float(growth)


# --- compilation ------------------------------------------------------------------------------------------------------


def compile_and_measure(
    name: str, contestant: str, changes: dict[str, Any] | None, limit: int
) -> tuple[float, float, str]:
    """Compile a contestant of PyTorch. Return the processor seconds of its first call, its peak memory, and a note.

    The note describes how close its results are at the small size. Peak memory leaves out the compilers, and is NaN
    on systems without /proc/self/clear_refs. A signal ends the process after `limit` processor seconds.
    """
    import resource  # not on Windows

    used = math.ceil(processor_time())
    resource.setrlimit(resource.RLIMIT_CPU, (used + limit, used + limit + 1))
    row = ROWS[name]
    sizes = sizes_of(name, changes)
    instance, start = row.make(contestant, row.make_arrays(sizes)), processor_time()
    instance.run_once()
    seconds = processor_time() - start
    (note,) = [note for note in row.compare(["PyTorch"], [contestant]) if note.startswith(f"{name}, {contestant}:")]
    clear_refs = Path("/proc/self/clear_refs")
    if not clear_refs.exists():
        return seconds, math.nan, note
    del instance
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    clear_refs.write_text("5", encoding="ascii")  # resets VmHWM
    return seconds, _growth(row, contestant, sizes, read_memory_field("VmRSS")), note
