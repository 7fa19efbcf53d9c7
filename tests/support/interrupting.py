"""Ctrl-C at every possible place of a function, one after the other.

Python runs a signal handler at the beginning of a Python function, after a call of a C function, and at a backward
jump. At the first two places Python also calls a profile function, which can raise KeyboardInterrupt there. Every
backward jump follows one of these places, so the test covers every possible interruption.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from snncell.kernels.numba.threads import BLAS
from snncell.tape.state import EFFECTS_LOCK, TRACING_LOCK, present_settings

_WHERE = ("call", "c_return")


def places(function: Callable[[], Any]) -> int:
    """The number of places where a call of `function` can be interrupted."""
    seen = itertools.count()

    def count(frame: FrameType, event: str, argument: Any) -> None:
        if event in _WHERE:
            next(seen)

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return next(seen) - 1  # the call that ends it


def interrupted(function: Callable[[], Any], place: int) -> str | None:
    """Call `function` and interrupt it at one place. Return the place, or None if the call ended before it."""
    left = place
    where: str | None = None

    def interrupt(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal left, where
        if event in _WHERE:
            if left == 0:
                code = frame.f_code
                where = f"{event} in {code.co_filename}:{frame.f_lineno} {code.co_qualname} {argument or ''}"
                raise KeyboardInterrupt
            left -= 1

    sys.setprofile(interrupt)
    try:
        function()
    except KeyboardInterrupt:
        sys.setprofile(None)
        return where or "?"
    finally:
        sys.setprofile(None)
    return None


def each_interruption(function: Callable[[], Any], most: int | None = None) -> Iterator[str]:
    """Interrupt `function` at each of its places, or at evenly spread ones, and yield the place.

    The caller must undo the changes of each call before the next one.
    """
    for _ in range(2):
        function()  # what is done once, at the first call, has places of its own
    number = places(function)
    step = 1 if most is None else max(1, number // most)
    for place in range(0, number, step):
        where = interrupted(function, place)
        if where is not None:
            yield where


def blas() -> list[int]:
    """The numbers of threads of the BLAS libraries."""
    return [library.number() for library in BLAS._blas_libraries()]


def left_behind(settings: dict[str, Any], threads: list[int]) -> list[str]:
    """The traces of an interruption: locks, settings of the thread, threads of BLAS."""
    now = present_settings()
    found = [f"{name} is {value}" for name, value in now.items() if value != settings[name]]
    locks = {"EFFECTS_LOCK": EFFECTS_LOCK, "TRACING_LOCK": TRACING_LOCK}
    found += [f"{name} is held" for name, lock in locks.items() if _held(lock)]
    if blas() != threads:
        found.append(f"BLAS has {blas()} threads, not {threads}")
    return found


def _held(lock: Any) -> bool:
    """True if this idle thread holds a lock, because then no other thread could ever acquire it."""
    return bool(lock._is_owned())
