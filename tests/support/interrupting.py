"""Ctrl-C at every place where it can come, one after the other.

A signal's handler runs where a function written in Python begins, and after a call of one written in C. Those are the
places where Python calls a profile function, and what that raises is raised there. (The third kind of place, a jump
backwards, lies behind one of them.) So an interruption at the n-th place, for each n, is each that can happen.
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
    """The number of places that a call of `function` has."""
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
    """Call `function` and interrupt it at one of its places; where that was, or None if it was done before."""
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
    """Interrupt `function` at each of its places, or at so many that are spread over all, and say where.

    Whoever goes through them puts back what the call changed before the next.
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
    """The threads of the BLAS libraries."""
    return [library.number() for library in BLAS._blas_libraries()]


def left_behind(settings: dict[str, Any], threads: list[int]) -> list[str]:
    """The traces that an interruption has left: locks, settings of the thread, threads of BLAS."""
    now = present_settings()
    found = [f"{name} is {value}" for name, value in now.items() if value != settings[name]]
    locks = {"EFFECTS_LOCK": EFFECTS_LOCK, "TRACING_LOCK": TRACING_LOCK}
    found += [f"{name} is held" for name, lock in locks.items() if _held(lock)]
    if blas() != threads:
        found.append(f"BLAS has {blas()} threads, not {threads}")
    return found


def _held(lock: Any) -> bool:
    """True if this thread, which is inside of nothing, holds a lock: no other one would ever have it."""
    return bool(lock._is_owned())
