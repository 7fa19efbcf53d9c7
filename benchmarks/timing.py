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
LEAST_ROUNDS, SURE = 3, 3  # the least turns of the contestants that are sure to have them: the three fastest
SLOW = 20.0  # a contestant that takes so many times as long as the fastest has at most SLOW_ROUNDS turns
SLOW_ROUNDS = 2
SHORT = 0.02  # seconds that a turn takes at least, where the number of calls is not given
LONG = 0.5  # seconds from which the first call counts as a turn, where there is a budget


def in_turns(
    contestants: dict[str, Callable[..., Any]],
    calls: int | None = 1,
    rounds: int = ROUNDS,
    rest: float = 0.0,
    budget: float = math.inf,
    before: Mapping[str, Callable[[], Any]] = MappingProxyType({}),
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds per call of each contestant in each of its turns (A B C A B C ...), after one call that does not count.

    Args:
        contestants: the functions to call.
        calls: the number of calls in a turn, whose mean counts; None for as many as take SHORT seconds.
        rounds: the largest number of turns.
        rest: seconds of sleep before each turn, for threads that spin when their work is done.
        budget: seconds for all turns, from which `turns` computes the number of each contestant's turns.
        before: functions to call, untimed, before each call of some contestants, which get the result.
        clock: the clock of a turn, for example `process_time` on a machine that other programs use, too.
    """
    first = {name: _seconds(function, 1, before.get(name)) for name, function in contestants.items()}
    often = {name: calls or max(1, int(SHORT / max(seconds, 1e-6))) for name, seconds in first.items()}
    often |= dict.fromkeys(before, 1)
    times: dict[str, list[float]] = {name: [] for name in contestants}
    if budget < math.inf:
        times = {name: [seconds] if seconds >= LONG else [] for name, seconds in first.items()}
    number_of = turns({name: often[name] * seconds + rest for name, seconds in first.items()}, rounds, budget)
    for _ in range(max(number_of.values(), default=0)):
        for name, function in contestants.items():
            if len(times[name]) < number_of[name]:
                time.sleep(rest)
                times[name].append(_seconds(function, often[name], before.get(name), clock))
    return times


def turns(seconds: dict[str, float], most: int, budget: float) -> dict[str, int]:
    """The number of turns of each contestant, from the seconds of a turn.

    All get as many as fit into the budget. The three fastest get at least three, and the others at least one. Those
    that take more than SLOW times as long as the fastest get one or two.
    """
    ordered = sorted(seconds, key=lambda name: seconds[name])
    slow = {name for name in ordered if budget < math.inf and seconds[name] > SLOW * seconds[ordered[0]]}
    shared = budget - SLOW_ROUNDS * sum(seconds[name] for name in slow)
    common = shared / max(sum(seconds[name] for name in ordered if name not in slow), 1e-9)
    found = {}
    for place, name in enumerate(ordered):
        if name in slow:
            found[name] = SLOW_ROUNDS if shared > 0.0 else 1
        else:
            found[name] = int(min(most, max(LEAST_ROUNDS if place < SURE else 1, common)))
    return found


def _seconds(
    function: Callable[..., Any],
    calls: int,
    before: Callable[[], Any] | None,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Seconds per call. With `before`, there is one call, which gets its result."""
    given = () if before is None else (before(),)
    start = clock()
    for _ in range(calls):
        function(*given)
    return (clock() - start) / calls


def medians(times: dict[str, list[float]]) -> dict[str, float]:
    """The median of each contestant."""
    return {name: statistics.median(values) for name, values in times.items()}


def command() -> str:
    """The command of this script, without the names of files that it writes."""
    words = [Path(sys.argv[0]).name, *sys.argv[1:]]
    words = ["FILE" if before == "--markdown" else word for before, word in zip(["", *words], words, strict=False)]
    return f"python benchmarks/{' '.join(words)}"


def tell(lines: Sequence[str], file: Path | None) -> None:
    """Print a page, and write it where it is wanted."""
    text = "\n".join(lines).rstrip() + "\n"
    print(text)
    if file:
        file.write_text(text, encoding="utf-8")


def printed(code: str, **environment: str) -> str:
    """The output of a fresh process for `code`, with modules compiled by Python before, as they are for users."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**inherited, **environment}, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"A fresh process failed:\n{done.stderr}")
    return done.stdout


def fresh(code: str, **environment: str) -> float:
    """The number that a fresh process prints last for `code`: seconds."""
    return float(printed(code, **environment).split()[-1])
