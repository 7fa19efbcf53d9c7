"""Forks: nothing is left to a child half-way, for the thread that would go on with it is not there.

A child process has the one thread that forked. A lock that another thread holds stays locked in it, and the threads
that a parallel kernel waits for are not there. So a fork waits, for a while, until no thread is inside of a product or
a parallel kernel (`RUNNING`), compiles (`BUILDING`, and Numba's own lock) or imports (`IMPORTING`); each begins again
when it is done. What had to be left going is refused in the child, in words.
"""

from __future__ import annotations

# Both take locks of theirs before a fork, which the threads that are waited for may need. What is registered last is
# done first, so these are imported before ours is registered.
import concurrent.futures.thread  # noqa: F401
import contextlib
import ctypes
import logging  # noqa: F401
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from snncell.base.signals import IMPORTING, deferring
from snncell.errors import ForkError

PATIENCE = 30.0  # seconds that a fork waits for other threads: longer than a kernel takes to compile


class _Running(threading.local):
    """A lock for each thread, held while it is inside of code that shares threads or locks of its own with others."""

    def __init__(self) -> None:
        self.lock: Any = threading.RLock()
        _threads.append(weakref.ref(self.lock, _threads.remove))


_threads: list[Any] = []
RUNNING = _Running()
BUILDING: Any = threading.RLock()  # held while a kernel is compiled or loaded

_gate: Any = threading.RLock()  # held by a fork that is about to be
_coming = False  # whether there is one

_stdout: int | None = None  # where C libraries print, while that is diverted
_taken: list[Any] = []
_left: list[Any] = []  # locks that another thread held for longer than the fork waited
_unfinished = ""  # what a thread that this process does not have was doing


def refuse_unfinished() -> None:
    """Raise in a child if what it inherits may hang.

    Raises:
        ForkError: if another thread of the parent was compiling, or inside of a kernel, at the fork.
    """
    if _unfinished:
        raise ForkError(
            f"this process was forked while another thread of its parent {_unfinished}, which did not end within "
            f"{PATIENCE:.0f} s; what that thread held is locked for ever here. Fork before such threads begin, or "
            f'start processes anew: multiprocessing.get_context("spawn").'
        )


def let_fork() -> None:
    """Wait for a fork that is about to be, before `RUNNING.lock` or `BUILDING` is taken.

    Otherwise a thread that takes its lock again and again would not leave it to the fork.
    """
    if _coming and not (RUNNING.lock._is_owned() or BUILDING._is_owned()):
        with _gate:
            pass


def after_fork(function: Callable[[], Any]) -> None:
    """Have a function called in each child that is forked from now on, where there are forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


def in_child(*locks: Any) -> None:
    """Free locks in a child, but for those that the thread that forked holds."""
    for lock in locks:
        if not lock._is_owned():
            lock._at_fork_reinit()


def _all() -> Iterator[Any]:
    """The locks in the order in which a thread takes them, Numba's last."""
    yield _gate
    for reference in list(_threads):
        lock = reference()
        if lock is not None:
            yield lock
    yield BUILDING
    yield IMPORTING
    numba: Any = sys.modules.get("numba.core.compiler_lock")
    if numba is not None and hasattr(numba, "global_compiler_lock"):
        yield numba.global_compiler_lock._lock


def _before() -> None:
    deferring(_take_all)
    _divert_stdout()


def _divert_stdout() -> None:
    """Let what C libraries print during the fork go to stderr: TBB says on stdout that its threads were not joined."""
    # They need not be: none of them is inside of anything, and a child starts threads of its own.
    if _stdout is None and "numba.np.ufunc.tbbpool" in sys.modules:
        with contextlib.suppress(ValueError):  # only glibc has such variables
            _set_stdout(ctypes.c_void_p.in_dll(ctypes.CDLL(None), "stderr").value)


def _set_stdout(stream: int | None) -> None:
    global _stdout
    place = ctypes.c_void_p.in_dll(ctypes.CDLL(None), "stdout")
    _stdout, place.value = (None if _stdout is not None else place.value), stream


def _take_all() -> None:
    global _coming
    # One limit for all: what the first ones wait for, the others do not.
    limit = time.monotonic() + PATIENCE
    _coming = True
    for lock in _all():
        (_taken if lock.acquire(timeout=max(0.0, limit - time.monotonic())) else _left).append(lock)


def _after() -> None:
    global _coming
    _coming = False
    if _stdout is not None:
        _set_stdout(_stdout)
    _left.clear()
    while _taken:
        _taken.pop().release()


def _after_in_child() -> None:
    global _unfinished
    if _left:
        _unfinished = "compiled, or was inside of a kernel"
        in_child(*_left)
    _after()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after_in_child)
