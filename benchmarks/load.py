"""Load of other processes: repeat measurements that others disturbed, and stop on a machine that stays busy.

A busy core does not slow all contestants equally. For example, threads of OpenMP wait for each other after each loop,
so that compiled PyTorch can take 5 to 40 times as long, while snncell takes twice as long.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
LIMIT = 0.1  # cores that other processes may use
SLACK = 0.05  # the share of the own processor time by which the clocks of the system may differ
HIDDEN = "a process that this system does not show, for example in another container"


@dataclass(frozen=True)
class Reading:
    """Processor times in seconds.

    Attributes:
        time: when they were read.
        busy: of all processes, on the cores that this process may use.
        own: of this process and its descendants.
        others: of each other process, by its number and name.
    """

    time: float
    busy: float
    own: float
    others: dict[tuple[int, str], float]


@dataclass(frozen=True)
class Load:
    """The number of cores that other processes use, and the busiest of these."""

    cores: float = 0.0
    busiest: str = ""

    def __str__(self) -> str:
        return f"other processes used {self.cores:.2f} cores" + (f", most of it {self.busiest}" if self.busiest else "")


def reading() -> Reading | None:
    """The processor times since the start of the system, or None where there is no /proc."""
    if not Path("/proc/stat").exists():
        return None
    now, tick = time.perf_counter(), 1.0 / os.sysconf("SC_CLK_TCK")
    cores, busy = {f"cpu{core}" for core in os.sched_getaffinity(0)}, 0
    for line in Path("/proc/stat").read_text(encoding="ascii").splitlines():
        name, *fields = line.split()
        if name in cores:
            user, nice, system, _, _, _, _, steal = (int(field) for field in fields[:8])
            busy += user + nice + system + steal
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            start, _, rest = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")
        except OSError:
            continue  # it has ended
        # After the name: state, parent, ...; 11 to 14 are user and system time, its own and of its ended children.
        values = rest.split()
        found[int(folder.name)] = start.partition("(")[2], int(values[1]), [int(value) for value in values[11:15]]
    tree = {os.getpid()}
    while more := {pid for pid, (_, parent, _) in found.items() if parent in tree} - tree:
        tree |= more
    own = sum(sum(times) for pid, (_, _, times) in found.items() if pid in tree)
    others = {(pid, name): tick * sum(times[:2]) for pid, (name, _, times) in found.items() if pid not in tree}
    return Reading(now, tick * busy, tick * own, others)


def load(before: Reading, after: Reading) -> Load:
    """The load between two readings: processes that are shown, or the processor time that is not this process's own."""
    # By number alone, because Linux renames its worker threads with each task.
    earlier = {pid: seconds for (pid, _), seconds in before.others.items()}
    used = {who: seconds - earlier.get(who[0], 0.0) for who, seconds in after.others.items()}
    rest = after.busy - before.busy - (1.0 + SLACK) * (after.own - before.own)
    shown = sum(used.values())
    seconds = max(after.time - before.time, 1e-9)
    busiest = max(used, key=lambda who: used[who], default=None)
    if busiest is None or used[busiest] < LIMIT * seconds:
        name = HIDDEN if rest >= LIMIT * seconds else ""
    else:
        name = f"{busiest[1]} (process {busiest[0]}, {used[busiest] / seconds:.2f} cores)"
    return Load(max(shown, rest, 0.0) / seconds, name)


class Watch:
    """The load between two looks."""

    def __init__(self, read: Callable[[], Reading | None] = reading) -> None:
        self.read = read
        self.last = read()

    def look(self) -> Load:
        """The load since the last look."""
        before, self.last = self.last, self.read()
        return Load() if before is None or self.last is None else load(before, self.last)


# --- Repeat what was disturbed ----------------------------------------------------------------------------------------

LOOK = 3.0  # seconds in which other processes are observed
LOOKS = 100  # after so many busy looks, five minutes, a run stops
TRIES = 3


class BusyError(RuntimeError):
    """Other processes use the cores, so nothing can be measured."""


class DisturbedError(RuntimeError):
    """Other processes used the cores in each try."""


class Quiet:
    """Measurements while other processes use at most 0.1 cores, or, if `anyway`, at any load."""

    def __init__(self, watch: Watch, anyway: bool) -> None:
        self.watch, self.anyway = watch, anyway
        self.worst = Load()  # of the measurements that count

    def wait(self, looks: int = LOOKS) -> None:
        """Wait until the machine is quiet.

        Raises:
            BusyError: it is not, after so many looks.
        """
        for _ in range(looks):
            self.watch.look()
            time.sleep(LOOK)
            load = self.watch.look()
            if load.cores <= LIMIT:
                return
        raise BusyError(
            f"No more results are written: {load}, more than {LIMIT}. Compiled contestants become up to 40 times "
            "slower then. End that process or wait for its end, and run the command again with `--resume`. `--force` "
            "measures and prints, but writes nothing."
        )

    def measure(self, run: Callable[[], T]) -> T:
        """The result of `run`, which is repeated after other processes disturbed it.

        Raises:
            BusyError, DisturbedError: other processes used the cores all the time, or in each try.
        """
        for _ in range(TRIES):
            self.watch.look()
            found = run()
            load = self.watch.look()
            if self.anyway or load.cores <= LIMIT:
                self.worst = max(self.worst, load, key=lambda each: each.cores)
                return found
            print(f"    disturbed: {load}", flush=True)
            self.wait()
        raise DisturbedError(f"disturbed {TRIES} times, the last time {load}")
