"""Facts about the machine for the head of a report: processor, memory, versions, threads and command."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.environment import ROOT
from benchmarks.peers import versions


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def collect_facts(peers: list[str], absent: dict[str, str]) -> dict[str, str]:
    """Return the facts at the head of a report."""
    installed = {name: importlib.metadata.version(name) for name in ("numpy", "numba", "scipy")} | versions(peers)
    import snncell

    facts = {
        "command": shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]]),
        "date": datetime.date.today().isoformat(),
        "processor": _processor_and_cores(),
        "memory": f"{_memory() / 2**30:.0f} GiB" if _memory() else "unknown",
        "load at the beginning": ", ".join(f"{x:.1f}" for x in os.getloadavg()) if hasattr(os, "getloadavg") else "?",
        "system": platform.system(),
        "versions": ", ".join(
            [
                f"Python {platform.python_version()}",
                f"snncell {snncell.__version__}{_commit()}",
                *(f"{name} {version}" for name, version in installed.items()),
            ]
        ),
        "threads": _threads(peers),
    }
    if absent:
        facts["not installed"] = "; ".join(f"{peer} ({why})" for peer, why in absent.items())
    return facts


def _commit() -> str:
    """Return the commit of the checkout, with a plus sign if the package has changed since, or "" without Git."""

    def git(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)

    try:
        commit = git("rev-parse", "--short", "HEAD")
        changed = git("diff", "--quiet", "HEAD", "--", "snncell").returncode
    except OSError:
        return ""
    return "" if commit.returncode else f" ({commit.stdout.strip()}{'+' if changed else ''})"


def _threads(peers: list[str]) -> str:
    import numba

    threads = [f"snncell {numba.get_num_threads()}"]
    if "PyTorch" in peers:
        import torch

        threads.append(f"PyTorch {torch.get_num_threads()}")
    if "JAX" in peers:
        threads.append(f"JAX one for each core, {cores()}")
    return ", ".join(threads)


def _processor_and_cores() -> str:
    """Return the processor, its number of cores, and how many of them this process may use."""
    used, there = cores(), os.cpu_count() or 1
    return f"{_processor()} with {there} cores, {'all' if used == there else used} used"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def _memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 0


def median_seconds(run: Callable[[], Any], rounds: int = 9) -> float:
    """Return the median time of a call, after one warm-up call."""
    run()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def read_memory_field(field: str) -> int:
    """Return VmRSS (resident memory) or VmHWM (its peak) of this process, in bytes."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}")
