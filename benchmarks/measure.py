"""Functions that child processes run for a row: compare, compile, time in turns, measure the peak of memory."""

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

from benchmarks.machine import resident
from benchmarks.peers import peer_of
from benchmarks.row import OURS, Row
from benchmarks.rows import ROWS
from benchmarks.timing import in_turns

REST = 0.12  # seconds before each turn: the threads of a BLAS spin for a tenth of a second when their work is done
BUDGET = 6.0  # seconds for the turns of a row


@dataclass
class Timing:
    """The times of one contestant.

    Attributes:
        median, minimum: seconds of its turns.
        first: processor seconds of its first call, which traces and compiles.
        ratio: its median divided by snncell's.
        rounds: the number of its turns.
        memory: peak in bytes, if measured.
        fault: the reason why there are no times, for example a slow compilation; otherwise empty.
    """

    contestant: str
    median: float
    minimum: float
    first: float
    ratio: float
    rounds: int
    memory: float | None = None
    fault: str = ""


def resized(name: str, changes: dict[str, Any] | None) -> Any:
    """The sizes of a row with some changes, or the small ones for None."""
    return ROWS[name].checked if changes is None else ROWS[name].resized(changes)


def compared(name: str, peers: list[str]) -> list[str]:
    """Compare the results of a row's contestants; see `Row.compare`."""
    return ROWS[name].compare(peers)


def timed(
    name: str, changes: dict[str, Any] | None, peers: list[str], compiled: list[str], rounds: int
) -> Iterator[list[Timing]]:
    """Make the contestants of a row and call each once; each time that it is continued, time them in turns.

    The first part needs no quiet machine. It yields nothing but an empty list.
    """
    made, first = ROWS[name].made(resized(name, changes), peers, compiled), {}
    for contestant, own in made.items():
        begun = processor_time()
        own.once()
        first[contestant] = processor_time() - begun
    yield []
    runs = {contestant: own.run for contestant, own in made.items()}
    before = {contestant: own.before for contestant, own in made.items() if own.before is not None}
    while True:
        times = in_turns(runs, None, rounds, REST, BUDGET, before)
        base = statistics.median(times[OURS])
        yield [
            Timing(contestant, middle, min(each), first[contestant], middle / base, len(each))
            for contestant, each in times.items()
            for middle in (statistics.median(each),)
        ]


def processor_time() -> float:
    """Seconds that this process and its ended children have computed."""
    return sum(os.times()[:4])


def fastest_peer(timings: list[Timing]) -> Timing | None:
    """The fastest of those that are not ours."""
    others = [timing for timing in timings if peer_of(timing.contestant) != OURS and not timing.fault]
    return min(others, key=lambda timing: timing.median, default=None)


# --- memory -----------------------------------------------------------------------------------------------------------


def peak(name: str, contestant: str, changes: dict[str, Any] | None) -> float:
    """The bytes that a contestant adds at most to those that its process holds after two runs at a small size.

    These are inputs, results and all values in between, and hardly any imports and compilers.
    """
    row = ROWS[name]
    for _ in range(2):
        row.make(contestant, row.given(row.checked)).once()
    gc.collect()
    return _growth(row, contestant, resized(name, changes), resident("VmRSS"))


def _growth(row: Row, contestant: str, sizes: Any, before: int) -> float:
    result = row.make(contestant, row.given(sizes)).once()
    found = resident("VmHWM") - before
    del result
    return float(found)


# --- compilation ------------------------------------------------------------------------------------------------------


def compiled_once(name: str, contestant: str, changes: dict[str, Any] | None, limit: int) -> tuple[float, float, str]:
    """Compile a contestant of PyTorch: processor seconds of its first call, peak memory without compilers, a note.

    The note is on its results, compared at the small size. Peak memory is NaN where the system does not tell it. The
    process ends by a signal when it has computed for `limit` seconds.
    """
    import resource  # not on Windows

    used = math.ceil(processor_time())
    resource.setrlimit(resource.RLIMIT_CPU, (used + limit, used + limit + 1))
    row = ROWS[name]
    sizes = resized(name, changes)
    made, begun = row.make(contestant, row.given(sizes)), processor_time()
    made.once()
    seconds = processor_time() - begun
    (note,) = [note for note in row.compare(["PyTorch"], [contestant]) if note.startswith(f"{name}, {contestant}:")]
    start_again = Path("/proc/self/clear_refs")
    if not start_again.exists():
        return seconds, math.nan, note
    del made
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    start_again.write_text("5", encoding="ascii")  # VmHWM
    return seconds, _growth(row, contestant, sizes, resident("VmRSS")), note
