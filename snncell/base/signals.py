"""Safe handling of Ctrl-C and forks: contexts that always restore, atomic writes, deferred signals, and fork locks.

Ctrl-C raises KeyboardInterrupt from a signal handler on the main thread. Python runs the handler at the start of a
Python function, after a call of a C function, or at a backward jump, but never inside a C function. If it runs before
the first statement of an `__exit__` in Python, this `__exit__` restores nothing. Therefore the contexts here consist
only of C functions. Other code that must not be interrupted is called by `deferring`.
"""

from __future__ import annotations

# concurrent.futures and logging take locks before a fork, and a thread that our fork handler waits for may need such a
# lock. The handler that is registered last runs first, so these imports must come before our registration.
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
from types import FrameType, SimpleNamespace
from typing import Any

from snncell.errors import ForkError

Write = tuple[Any, str, Any]  # the write of an attribute: owner, name, value
IMPORTING: Any = threading.RLock()  # held while another package is imported


class Restoring(io.IOBase):
    """A context that calls `enter` at the beginning and each of `leave`, in order, at the end. `io.IOBase` has C
    methods for that: `__enter__` reads `closed`, and `__exit__` calls `close`. All functions must be C functions, or
    partials of them, and return a false value: a true `closed` raises, and `any` stops at a true value.
    """

    __slots__ = ("close", "enter")
    closed: Any = property(methodcaller("enter"))
    __del__: Any = dict  # a C function that does nothing, because IOBase would close the object here
    close: Any

    def __init__(self, enter: Callable[[], Any], *leave: Callable[[], Any]) -> None:
        self.enter = enter
        self.close = leave[0] if len(leave) == 1 else partial(any, map(call, leave))


def hold_attributes(target: dict[str, Any], values: dict[str, Any], before: dict[str, Any], *leave: Any) -> Restoring:
    """Context manager: set attributes to `values`, and at the end to `before`; then call `leave`."""
    return Restoring(partial(target.update, values), partial(target.update, before), *leave)


def hold_together(changes: Sequence[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]) -> Restoring:
    """`hold_attributes` for several (attributes, values, values from before)."""
    enter = [partial(target.update, values) for target, values, _ in changes]
    return Restoring(partial(any, map(call, enter)), *(partial(target.update, before) for target, _, before in changes))


def write(writes: Iterable[Write]) -> None:
    """Set all attributes or none, if their owners set attributes by C functions. Keep references to the old values
    until this returns, because freeing them may run Python code.
    """
    any(starmap(setattr, writes))  # a loop in C, which never stops early because setattr returns None


def undoing(writes: list[Write]) -> Callable[[], Any]:
    """Return a C function that performs the writes in the list at the time of its call."""
    return partial(any, starmap(setattr, writes))


# --- deferred signals -------------------------------------------------------------------------------------------------


class _Gate:
    """A signal handler that replaces another one and calls it later."""

    def __init__(self, deferral: SimpleNamespace, number: int, handler: Any) -> None:
        self.deferral, self.number, self.handler = deferral, number, handler  # `active` is shared by all gates
        self.waiting: list[FrameType | None] = []

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.deferral.active:
            self.waiting.append(frame)
        else:  # an interruption prevented `restore`
            self.handler(number, frame)

    def restore(self) -> None:
        """Restore the old handler, unless a third one has been installed."""
        in_place = signal.getsignal(self.number) is self  # in an `if`, mypy would narrow the type of self
        if in_place:
            signal.signal(self.number, self.handler)


_active_gates: list[_Gate] = []  # the gates that defer signals at present


def signal_waits() -> bool:
    """True if a signal is waiting for a function called by `deferring`, which should then not wait itself."""
    return any(gate.waiting for gate in _active_gates)


def deferring(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function that must not be interrupted: Python signal handlers run after it has returned. Use it for code
    of other packages that an exception would leave in a broken state, such as imports and Numba's compiler. On threads
    other than the main thread, which signals never interrupt, it only calls the function.
    """
    if threading.current_thread() is not threading.main_thread():
        return function(*args)
    deferral = SimpleNamespace(active=True)
    handlers = {int(number): signal.getsignal(number) for number in signal.valid_signals()}
    # A C handler does not interrupt Python code, and an active gate defers its signal already.
    gates = [
        _Gate(deferral, number, handler)
        for number, handler in handlers.items()
        if callable(handler) and not (isinstance(handler, _Gate) and handler.deferral.active)
    ]
    try:
        _active_gates.extend(gates)
        for gate in gates:
            signal.signal(gate.number, gate)
        return function(*args)
    finally:
        deferral.active = False
        del _active_gates[len(_active_gates) - len(gates) :]
        for gate in gates:
            gate.restore()
        _deliver(gates)


def _deliver(gates: list[_Gate]) -> None:
    """Call the handler of each deferred signal once, even if another handler raises."""
    if gates:
        gate, *others = gates
        try:
            if gate.waiting:
                gate.handler(gate.number, gate.waiting.pop())
        finally:
            _deliver(others)


def take_from(queue: SimpleQueue[Any]) -> Any:
    """Wait for the next item of a queue, and wake up each second, because a signal may come just before the wait."""
    while True:
        try:
            return queue.get(timeout=1.0)
        except Empty:
            continue


def import_once(name: str) -> Any:
    """Import a module on first use, without interruption by signals. After an interrupted import, the next one would
    take submodules from `sys.modules` without setting them as attributes of their package.
    """
    module = sys.modules.get(name)
    if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
        return module
    return deferring(_import_module, name)


def _import_module(name: str) -> Any:
    with IMPORTING:
        return importlib.import_module(name)


# --- forks ------------------------------------------------------------------------------------------------------------

# A child process has only the thread that forked. In the child, locks of other threads stay locked, and the threads
# that a parallel kernel waits for are missing. Therefore a fork waits until no thread runs a product or a parallel
# kernel (`RUNNING`), compiles (`BUILDING`, and Numba's lock) or imports (`IMPORTING`). If a thread does not finish in
# time, the child raises a ForkError.

PATIENCE = 30.0  # seconds that a fork waits for other threads, longer than a kernel takes to compile


class _Running(threading.local):
    """A lock for each thread, held while it runs code that shares threads or locks with other threads."""

    def __init__(self) -> None:
        self.lock: Any = threading.RLock()
        _threads.append(weakref.ref(self.lock, _threads.remove))


_threads: list[Any] = []
RUNNING = _Running()
BUILDING: Any = threading.RLock()  # held while a kernel is compiled or loaded

_gate: Any = threading.RLock()  # held by a thread that is about to fork
_coming = False  # whether a thread is about to fork

_stdout: int | None = None  # the C stdout stream, while it is diverted
_taken: list[Any] = []
_left: list[Any] = []  # locks that other threads held for longer than the fork waited
_unfinished = ""  # what a thread of the parent was doing at the fork, as a verb


def refuse_unfinished() -> None:
    """Raise a ForkError in a child if another thread of the parent was compiling or running a kernel at the fork."""
    if _unfinished:
        raise ForkError(
            f"this process was forked while another thread of its parent {_unfinished}, which did not end within "
            f"{PATIENCE:.0f} s, so the locks of that thread stay locked here for ever. Fork before such threads start, "
            f'or start new processes by multiprocessing.get_context("spawn").'
        )


def let_fork() -> None:
    """Wait for a coming fork. Call this before taking `RUNNING.lock` or `BUILDING`, so that the fork gets them."""
    if _coming and not (RUNNING.lock._is_owned() or BUILDING._is_owned()):
        with _gate:
            pass


def after_fork(function: Callable[[], Any]) -> None:
    """Call a function in each child process that is forked from now on."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


def in_child(*locks: Any) -> None:
    """Free locks in a child, except those that the forking thread holds."""
    for lock in locks:
        if not lock._is_owned():
            lock._at_fork_reinit()


def _all() -> Iterator[Any]:
    """The locks in the order in which threads acquire them; Numba's lock is the last."""
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
    """Send C output to stderr during the fork, because TBB prints a warning about unjoined threads to stdout. It does
    not matter: all TBB threads are idle, and a child starts new ones.
    """
    if _stdout is None and "numba.np.ufunc.tbbpool" in sys.modules:
        with contextlib.suppress(ValueError):  # only glibc has such variables
            _set_stdout(ctypes.c_void_p.in_dll(ctypes.CDLL(None), "stderr").value)


def _set_stdout(stream: int | None) -> None:
    global _stdout
    place = ctypes.c_void_p.in_dll(ctypes.CDLL(None), "stdout")
    _stdout, place.value = (None if _stdout is not None else place.value), stream


def _take_all() -> None:
    global _coming
    limit = time.monotonic() + PATIENCE  # for all locks together
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
        _unfinished = "was compiling or running a kernel"
        in_child(*_left)
    _after()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after_in_child)
