"""Spawned worker processes, as on macOS and Windows, and a fork server: batches, errors, shutdown."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

METHODS = [
    method if method == "spawn" else pytest.param(method, marks=pytest.mark.slow)
    for method in multiprocessing.get_all_start_methods()
]
PATIENCE = 60.0  # seconds, for an operation that should be immediate

PROGRAM = """
import hashlib, json, multiprocessing, os, signal, sys
import numpy as np
from snncell import data, errors

def thinned(events, rng):
    return events[rng.random(len(events)) < 0.8]

def refused(events):
    if len(events) == 7:
        raise KeyError("gone")
    return np.ones((2, 2))

def words(loader):
    try:
        list(loader)
    except Exception as error:
        return [type(error).__name__, str(error), *getattr(error, "__notes__", [])]

def main(method, folder):
    multiprocessing.set_start_method(method)
    made = data.Cached(data.Sliced(data.SHDLike(9, 1, events=200), duration=400_000), folder)
    transform = data.Compose([data.RandomFlipLR(), thinned, data.ToFrame(window=50_000, dtype="float32")])
    batches = []
    for options in ({"workers": 0}, {"workers": 2, "processes": True}):
        loader = data.Loader(made, 4, transform=transform, seed=1, **options)
        batches.append([hashlib.sha256(np.array(part).tobytes()).hexdigest() for batch in loader for part in batch])
    short = [made[0][0][:number] for number in range(5, 9)]
    told = words(data.Loader(short, 2, False, transform=refused, processes=True))
    local = words(data.Loader(short, 2, transform=lambda events: events, processes=True))
    running = iter(data.Loader(made, 4, transform=transform, workers=2, processes=True))
    next(running)
    children = [child.pid for child in multiprocessing.active_children()]
    print(json.dumps([batches, told, local, children]), flush=True)
    if hasattr(signal, "SIGKILL"):
        os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    main(*sys.argv[1:])
"""


def has_ended(process: int) -> bool:
    """True if the process no longer runs. A process that its parent has not waited for counts as ended."""
    try:
        os.kill(process, 0)
    except OSError:
        return True
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return False  # the process has ended, or this system has no /proc


@pytest.mark.parametrize("method", METHODS)
def test_spawned_workers_behave_like_forked_ones(tmp_path: Any, method: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, program, method, tmp_path / "kept"], capture_output=True, text=True, timeout=2 * PATIENCE
    )
    assert done.stdout, done.stderr
    (alone, together), told, local, children = json.loads(done.stdout)
    assert alone == together and len(alone) > 6
    assert told[:2] == ["KeyError", "'gone'"] and "comes from sample 2 of the list" in told[2]
    if method == "fork":
        assert local[0] == "DTypeError"
    else:
        assert local[0] == "ArgumentError" and "<lambda>" in local[1] and "at the top level of a module" in local[1]
    assert len(children) == 2
    if hasattr(signal, "SIGKILL"):  # workers of a killed program end on their own
        limit = time.monotonic() + PATIENCE
        while not all(map(has_ended, children)):
            assert time.monotonic() < limit
            time.sleep(0.05)
