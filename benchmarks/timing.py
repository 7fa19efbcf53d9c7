"""Time contestants in turns, run code in fresh processes, and print or write the figures."""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import process_time as process_time
from types import MappingProxyType
from typing import Any

ROUNDS = 9
FASTEST, LEAST_ROUNDS = 3, 3  # the fastest contestants, and the turns that they get even without budget
SLOW = 20.0  # a contestant that takes more than SLOW times as long as the fastest gets at most SLOW_ROUNDS turns
SLOW_ROUNDS = 2
SHORT = 0.02  # shortest seconds of a turn, which determine the number of calls if the caller does not
LONG = 0.5  # with a budget, a first call of at least LONG seconds counts as a turn


def in_turns(
    contestants: dict[str, Callable[..., Any]],
    calls: int | None = 1,
    rounds: int = ROUNDS,
    rest: float = 0.0,
    budget: float = math.inf,
    prepare: Mapping[str, Callable[[], Any]] = MappingProxyType({}),
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Time contestants in turns (A B C A B C ...), and return the seconds per call of each turn.

    Each contestant first gets one warm-up call.

    Args:
        contestants: the functions to call.
        calls: the number of calls in a turn; the turn has their mean. None calls for SHORT seconds.
        rounds: the largest number of turns.
        rest: seconds of sleep before each turn, until threads of the last contestant stop spinning.
        budget: seconds for all turns, from which `count_turns` computes the number of turns.
        prepare: untimed functions that run before each call of a contestant, which gets their result.
        clock: the clock of a turn, for example `process_time` while other programs run.
    """
    first = {name: _seconds(function, 1, prepare.get(name)) for name, function in contestants.items()}
    call_counts = {name: calls or max(1, int(SHORT / max(seconds, 1e-6))) for name, seconds in first.items()}
    call_counts |= dict.fromkeys(prepare, 1)
    times: dict[str, list[float]] = {name: [] for name in contestants}
    if budget < math.inf:
        times = {name: [seconds] if seconds >= LONG else [] for name, seconds in first.items()}
    turns = count_turns({name: call_counts[name] * seconds + rest for name, seconds in first.items()}, rounds, budget)
    for _ in range(max(turns.values(), default=0)):
        for name, function in contestants.items():
            if len(times[name]) < turns[name]:
                time.sleep(rest)
                times[name].append(_seconds(function, call_counts[name], prepare.get(name), clock))
    return times


def count_turns(seconds: dict[str, float], most: int, budget: float) -> dict[str, int]:
    """Return the number of turns of each contestant, from the seconds of a turn.

    All get as many turns as fit into the budget. The three fastest get at least three, and the others at least one.
    Contestants that take more than SLOW times as long as the fastest get one or two.
    """
    ordered = sorted(seconds, key=lambda name: seconds[name])
    slow = {name for name in ordered if budget < math.inf and seconds[name] > SLOW * seconds[ordered[0]]}
    shared = budget - SLOW_ROUNDS * sum(seconds[name] for name in slow)
    common = shared / max(sum(seconds[name] for name in ordered if name not in slow), 1e-9)
    turns = {}
    for rank, name in enumerate(ordered):
        if name in slow:
            turns[name] = SLOW_ROUNDS if shared > 0.0 else 1
        else:
            turns[name] = int(min(most, max(LEAST_ROUNDS if rank < FASTEST else 1, common)))
    return turns


def _seconds(
    function: Callable[..., Any],
    calls: int,
    prepare: Callable[[], Any] | None,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    arguments = () if prepare is None else (prepare(),)
    start = clock()
    for _ in range(calls):
        function(*arguments)
    return (clock() - start) / calls


def medians(times: dict[str, list[float]]) -> dict[str, float]:
    """Return the median of each contestant."""
    return {name: statistics.median(values) for name, values in times.items()}


def command() -> str:
    """Return the command of this script, with FILE instead of the name of its output file."""
    words = [Path(sys.argv[0]).name, *sys.argv[1:]]
    words = ["FILE" if last == "--markdown" else word for last, word in zip(["", *words], words, strict=False)]
    return f"python benchmarks/{' '.join(words)}"


def publish(lines: Sequence[str], file: Path | None) -> None:
    """Print a page, and write it to `file` if there is one."""
    text = "\n".join(lines).rstrip() + "\n"
    print(text)
    if file:
        file.write_text(text, encoding="utf-8")


def output_of_process(code: str, **environment: str) -> str:
    """Run code in a fresh process, and return its output. Python may write bytecode files, as it does for users."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**inherited, **environment}, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"A fresh process failed:\n{done.stderr}")
    return done.stdout


def seconds_in_process(code: str, **environment: str) -> float:
    """Run code in a fresh process, and return the last number that it prints."""
    return float(output_of_process(code, **environment).split()[-1])
