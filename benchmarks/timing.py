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
from types import MappingProxyType
from typing import Any

ROUNDS = 15
LEAST_ROUNDS = 3


def in_turns(
    contestants: dict[str, Callable[..., Any]],
    calls: int = 1,
    rounds: int = ROUNDS,
    rest: float = 0.0,
    budget: float = math.inf,
    before: Mapping[str, Callable[[], Any]] = MappingProxyType({}),
) -> dict[str, list[float]]:
    """Seconds per call of each contestant in each round (A B C A B C ...), after one call that does not count.

    Args:
        contestants: what is called.
        calls: how often in each round; their mean counts.
        rounds: how many.
        rest: seconds of sleep before each turn, for threads that spin when their work is done.
        before: what is called before a call of some of them, untimed; they take what it gives.
        budget: seconds after which no further round begins, once there are three.
    """
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for name, function in contestants.items():
        function(before[name]()) if name in before else function()
    begun = time.perf_counter()
    for number in range(rounds):
        if number >= LEAST_ROUNDS and time.perf_counter() - begun > budget:
            break
        for name, function in contestants.items():
            time.sleep(rest)
            if name in before:
                times[name].append(_after(function, before[name]()))
                continue
            start = time.perf_counter()
            for _ in range(calls):
                function()
            times[name].append((time.perf_counter() - start) / calls)
    return times


def _after(function: Callable[[Any], Any], state: Any) -> float:
    start = time.perf_counter()
    function(state)
    return time.perf_counter() - start


def medians(times: dict[str, list[float]]) -> dict[str, float]:
    """The median of each contestant."""
    return {name: statistics.median(values) for name, values in times.items()}


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
