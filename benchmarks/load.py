"""Load of other processes: repeat disturbed measurements, and stop on a machine that stays busy.

A busy core does not slow all contestants equally. For example, threads of OpenMP wait for each other after each loop,
so that compiled PyTorch can take 5 to 40 times as long, while snncell takes twice as long.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
LIMIT = 0.1  # cores that other processes may use
SLACK = 0.05  # by which the processor times of the system and of a process may differ, as a share
HIDDEN = "a process that this system does not show, for example in another container"


@dataclass(frozen=True)
class Reading:
    """Processor seconds since the start of the system.

    Attributes:
        time: the time of the reading, in seconds.
        busy: all processes, on the cores that this process may use.
        own: this process and its descendants.
        others: each other process, by number and name.
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


def read_processor_times() -> Reading | None:
    """Return the processor times since the start of the system, or None on a system without /proc."""
    if not Path("/proc/stat").exists():
        return None
    now, tick = time.perf_counter(), 1.0 / os.sysconf("SC_CLK_TCK")
    cores, busy = {f"cpu{core}" for core in os.sched_getaffinity(0)}, 0
    for line in Path("/proc/stat").read_text(encoding="ascii").splitlines():
        name, *fields = line.split()
        if name in cores:
            user, nice, system, _, _, _, _, steal = (int(field) for field in fields[:8])
            busy += user + nice + system + steal
    processes = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            start, _, rest = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")
        except OSError:
            continue  # it has ended
        # After the name: state, parent, ...; 11 to 14 are user and system time of the process and its ended children.
        values = rest.split()
        processes[int(folder.name)] = start.partition("(")[2], int(values[1]), [int(value) for value in values[11:15]]
    tree = {os.getpid()}
    while children := {pid for pid, (_, parent, _) in processes.items() if parent in tree} - tree:
        tree |= children
    own = sum(sum(times) for pid, (_, _, times) in processes.items() if pid in tree)
    others = {(pid, name): tick * sum(times[:2]) for pid, (name, _, times) in processes.items() if pid not in tree}
    return Reading(now, tick * busy, tick * own, others)


def load_between(before: Reading, after: Reading) -> Load:
    """Return the load between two readings.

    It is the larger of two numbers: the processor time of all other visible processes, and the processor time of the
    system without that of this process, which also counts processes of other containers.
    """
    # The name is left out because Linux renames its worker threads with each task.
    earlier = {pid: seconds for (pid, _), seconds in before.others.items()}
    used = {who: seconds - earlier.get(who[0], 0.0) for who, seconds in after.others.items()}
    rest = after.busy - before.busy - (1.0 + SLACK) * (after.own - before.own)
    visible = sum(used.values())
    seconds = max(after.time - before.time, 1e-9)
    busiest = max(used, key=lambda who: used[who], default=None)
    if busiest is None or used[busiest] < LIMIT * seconds:
        name = HIDDEN if rest >= LIMIT * seconds else ""
    else:
        name = f"{busiest[1]} (process {busiest[0]}, {used[busiest] / seconds:.2f} cores)"
    return Load(max(visible, rest, 0.0) / seconds, name)


def adopt_orphans() -> None:
    """Let processes whose parent has ended become children of this one, so that they count as its own load.

    For example, a fork server ends later than the process that has started it.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


class Watch:
    """The load since the last call of `look`."""

    def __init__(self, read: Callable[[], Reading | None] = read_processor_times) -> None:
        self.read = read
        self.last = read()

    def look(self) -> Load:
        before, self.last = self.last, self.read()
        return Load() if before is None or self.last is None else load_between(before, self.last)


# --- repeat disturbed measurements ------------------------------------------------------------------------------------

LOOK = 3.0  # seconds between two readings of the load
LOOKS = 100  # a run stops if the machine is busy in each of them, which takes five minutes
TRIES = 3


class BusyError(RuntimeError):
    """Other processes use the cores, so nothing can be measured."""


class DisturbedError(RuntimeError):
    """Other processes used the cores in each try."""


class Quiet:
    """Measure while other processes use at most 0.1 cores. With `anyway`, measure at any load."""

    def __init__(self, watch: Watch, anyway: bool) -> None:
        self.watch, self.anyway = watch, anyway
        self.worst = Load()  # during the accepted measurements

    def wait(self, looks: int = LOOKS) -> None:
        """Wait until the machine is quiet.

        Raises:
            BusyError: the machine is busy in each of `looks` readings.
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
        """Return the result of `run`. Repeat it if other processes used the cores meanwhile.

        Raises:
            BusyError: the machine stays busy.
            DisturbedError: other processes used the cores in each try.
        """
        for _ in range(TRIES):
            self.watch.look()
            result = run()
            load = self.watch.look()
            if self.anyway or load.cores <= LIMIT:
                self.worst = max(self.worst, load, key=lambda each: each.cores)
                return result
            print(f"    disturbed: {load}", flush=True)
            self.wait()
        raise DisturbedError(f"disturbed {TRIES} times, the last time {load}")
