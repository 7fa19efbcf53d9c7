"""Sharing the units of a kernel among threads: Numba's, with TBB where it is installed.

A fork waits for what runs on threads, and a child that was not waited for is told so. Numba's own layer, "workqueue",
ends the process if two Python threads are in its kernels at once: there, they take turns.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import Any

from snncell.forks import BUILDING, RUNNING, in_child, let_fork, refuse_unfinished
from snncell.interrupts import deferring, imported
from snncell.kernels import policy, store
from snncell.kernels.helpers import keep_helpers

PARTS = 256  # at least so many parts, where there are so many units: threads that are done take what is left

_TURNS: Any = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: in_child(_TURNS))
_launcher: tuple[Any, Any] | None = None  # what shares units, compiled, and what one thread at a time holds


def grain_of(units: int) -> int:
    """The number of units that a thread takes at a time, of so many that take little time each."""
    return -(-units // PARTS)


def share(address: int, slots: int, units: int, grain: int) -> int:
    """Carry out the units of the kernel at `address` on all threads, `grain` of them at a time; 0 if none raised."""
    refuse_unfinished()
    let_fork()
    launch, turns = _launcher or _made()
    with RUNNING.lock, turns:
        failed: int = launch(address, slots, units, grain)
    return failed


def _made() -> tuple[Any, Any]:
    global _launcher
    with BUILDING:
        if _launcher is None:
            _launcher = deferring(_compiled)
        return _launcher


def _compiled() -> tuple[Any, Any]:
    launch: Any = imported("snncell.kernels.cpu.launch").launch
    numba: Any = imported("numba")
    path, kept = store.place_of("launch.py")
    if kept:
        keep_helpers(path.parent)
    with store.released():
        launch.compile((numba.int64,) * 4)
    launch.disable_compile()
    policy.number_of_threads()  # starts them, and so settles which layer they are of
    return launch, _TURNS if numba.threading_layer() == "workqueue" else contextlib.nullcontext()
