"""Interruptions and forks: contexts that always restore, writes made together, signals that wait, forks that wait.

Ctrl-C raises KeyboardInterrupt from a signal's handler, on the main thread, between two steps of Python's interpreter:
at the beginning of a function written in Python, after a call of one written in C, at a jump backwards; never within a
function written in C. So a context manager whose `__exit__` is a Python function may be left with nothing restored: an
interruption may come before its first statement. The contexts here consist of functions in C alone; what cannot, is
called by `deferring`.
"""

from __future__ import annotations

# Two of these take locks of theirs before a fork, which the threads that are waited for may need. What is registered
# last is done first, so they are imported before ours is registered.
import concurrent.futures.thread  # noqa: F401
import contextlib
import ctypes
import importlib
import io
import logging  # noqa: F401
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import starmap
from operator import call, methodcaller
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any

from snncell.errors import ForkError

Write = tuple[Any, str, Any]  # of an attribute: its owner, its name, the value
IMPORTING: Any = threading.RLock()  # held while a module of another package is imported


class Restoring(io.IOBase):
    """A context that calls `enter` when it is entered and each of `leave`, in their order, when it is left.

    `io.IOBase` has methods in C for that: `__enter__` asks whether it is `closed`, and `__exit__` calls `close`. These
    call functions in C too, or partials of such, which give nothing that counts as true: at that, `closed` would refuse
    and `any` would stop.
    """

    __slots__ = ("close", "enter")
    closed: Any = property(methodcaller("enter"))
    __del__: Any = dict  # nothing is to be closed when nobody refers to it any more; this one is in C too
    close: Any

    def __init__(self, enter: Callable[[], Any], *leave: Callable[[], Any]) -> None:
        self.enter = enter
        self.close = leave[0] if len(leave) == 1 else partial(any, map(call, leave))


def hold_attributes(held: dict[str, Any], values: dict[str, Any], before: dict[str, Any], *leave: Any) -> Restoring:
    """A context in which the attributes in `held` have these values, and afterwards those from before."""
    return Restoring(partial(held.update, values), partial(held.update, before), *leave)


def hold_together(changes: Sequence[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]) -> Restoring:
    """A context in which several objects have other attributes: for each (attributes, values, values from before)."""
    enter = [partial(held.update, values) for held, values, _ in changes]
    return Restoring(partial(any, map(call, enter)), *(partial(held.update, before) for held, _, before in changes))


def write(writes: Iterable[Write]) -> None:
    """Set all of the attributes, or none; owners set them by functions in C.

    Whoever calls keeps what was there before until this returns: to free it may run Python.
    """
    any(starmap(setattr, writes))  # a loop in C: setattr gives None, so it goes to the end


def undoing(writes: list[Write]) -> Callable[[], Any]:
    """A function in C that sets the attributes that the list holds when it is called."""
    return partial(any, starmap(setattr, writes))


# --- signals that wait ------------------------------------------------------------------------------------------------


class _Wall:
    """The wall that signals wait behind: one for all of them, so that they may continue at once."""

    up = True


class _Gate:
    """A signal's handler that replaces another one and calls it later."""

    def __init__(self, wall: _Wall, number: int, handler: Any) -> None:
        self.wall, self.number, self.handler = wall, number, handler
        self.waiting: list[FrameType | None] = []

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.wall.up:
            self.waiting.append(frame)
        else:  # left in place by an interruption
            self.handler(number, frame)

    def restore(self) -> None:
        """Put the other one back, unless a third has taken the place."""
        in_place = signal.getsignal(self.number) is self
        if in_place:
            signal.signal(self.number, self.handler)


_standing: list[_Gate] = []  # where signals wait at present


def signal_waits() -> bool:
    """True if a signal waits for a function that is called by `deferring`: it should wait for nobody else then."""
    return any(gate.waiting for gate in _standing)


def deferring(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function that must not end half-way: handlers of signals written in Python run when it has returned.

    For what others have written and an exception would leave in pieces: imports, Numba's compiler. Only the main thread
    is interrupted by signals; on others the function is just called.
    """
    if threading.current_thread() is not threading.main_thread():
        return function(*args)
    wall = _Wall()
    handlers = {int(number): signal.getsignal(number) for number in signal.valid_signals()}
    # A handler in C does not run between steps of the interpreter, and a gate waits already.
    gates = [
        _Gate(wall, number, handler)
        for number, handler in handlers.items()
        if callable(handler) and not (isinstance(handler, _Gate) and handler.wall.up)
    ]
    try:
        _standing.extend(gates)
        for gate in gates:
            signal.signal(gate.number, gate)
        return function(*args)
    finally:
        wall.up = False
        del _standing[len(_standing) - len(gates) :]
        for gate in gates:
            gate.restore()
        _deliver(gates)


def _deliver(gates: list[_Gate]) -> None:
    """Call the handlers of the signals that have waited, each once, whatever the others raise."""
    if gates:
        gate, *others = gates
        try:
            if gate.waiting:
                gate.handler(gate.number, gate.waiting.pop())
        finally:
            _deliver(others)


def take_from(queue: SimpleQueue[Any]) -> Any:
    """Wait for the next item of a queue; look for signals each second, because one may come just before the wait."""
    while True:
        try:
            return queue.get(timeout=1.0)
        except Empty:
            continue


def import_once(name: str) -> Any:
    """A module of another package, imported when it is first needed, by an import that no signal interrupts.

    An interrupted import leaves in `sys.modules` what was done of the package: the next one takes these modules from
    there, and does not set them as attributes of the package.
    """
    module = sys.modules.get(name)
    if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
        return module
    return deferring(_import_module, name)


def _import_module(name: str) -> Any:
    with IMPORTING:
        return importlib.import_module(name)


# --- forks ------------------------------------------------------------------------------------------------------------

# A child process has the one thread that forked. A lock that another thread holds stays locked in it, and the threads
# that a parallel kernel waits for are not there. So a fork waits, for a while, until no thread is inside of a product
# or a parallel kernel (`RUNNING`), compiles (`BUILDING`, and Numba's own lock) or imports (`IMPORTING`). Threads begin
# again when it is done. If one had to be left going, the child raises a ForkError.

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
    """Raise a ForkError in a child if a thread of the parent was compiling, or inside of a kernel, at the fork."""
    if _unfinished:
        raise ForkError(
            f"this process was forked while another thread of its parent {_unfinished}, which did not end within "
            f"{PATIENCE:.0f} s; what that thread held is locked for ever here. Fork before such threads begin, or "
            f'start processes anew: multiprocessing.get_context("spawn").'
        )


def let_fork() -> None:
    """Wait for a coming fork before you take `RUNNING.lock` or `BUILDING`, or the fork would never get the lock."""
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
