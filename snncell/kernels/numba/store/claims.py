"""One process compiles a kernel, and others that want the same wait for its file.

A claim is a file beside the one that is to be made, with its owner's number in it. Nothing depends on claims but time:
who cannot make one, or has waited for long enough, compiles. A claim counts for nothing if its owner has died, is this
process or one that it was forked from (which may be waiting for this one), or if it is older than `LONGEST`. Claims
are made in the order in which kernels call each other, so two processes never wait for each other.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from snncell.base.signals import after_fork, signal_waits
from snncell.kernels.numba.store import files

LONGEST = 120.0  # seconds that a claim is respected for, and that anybody waits
UNSIGNED = 5.0  # seconds until a claim without an owner counts for nothing: it is signed as soon as it is made
PAUSES = (0.01, 0.1)  # seconds between two looks, the first and the longest

_related = {os.getpid()}  # this process, and those that it was forked from


class _Held(threading.local):
    def __init__(self) -> None:
        self.claims: dict[Path, int] = {}  # each with the number of the process that made it


_held = _Held()
after_fork(lambda: _related.add(os.getpid()))


def claim(path: Path, told: Callable[[], None] = lambda: None) -> None:
    """Claim the file that is about to be made, after whoever makes it now (`told` is called): look for it again."""
    place, end, pause = _place(path), time.monotonic() + LONGEST, PAUSES[0]
    while not _make_claim(place):
        if not counts(place):
            with contextlib.suppress(OSError):
                place.unlink(missing_ok=True)
            if _make_claim(place):
                break
            return  # a folder is in its place, or the disk is full; or somebody else was faster, and compiles too
        if time.monotonic() > end or signal_waits():  # Ctrl-C waits for this: rather compile than wait for another
            return
        if pause == PAUSES[0]:
            told()
        time.sleep(pause)
        pause = min(2 * pause, PAUSES[1])
    _held.claims[place] = os.getpid()


def release(path: Path) -> None:
    """Let others have the file, if it was claimed here."""
    _release(_place(path))


@contextlib.contextmanager
def release_claims() -> Iterator[None]:
    """A context that lets go of what was claimed in it, however it ends."""
    before = set(_held.claims)
    try:
        yield
    finally:
        for place in set(_held.claims) - before:
            _release(place)


def counts(place: Path) -> bool:
    """True if the claim in a file is somebody else's, who may be at work."""
    here = files.owner().partition("-")[0]
    return stands(place) and _signature(place) not in {f"{here}-{number}" for number in _related}


def stands(place: Path) -> bool:
    """True if the file is a claim, whose owner may live."""
    signed = _signature(place)
    try:
        age = time.time() - place.lstat().st_mtime
    except OSError:
        return False
    if not signed:
        return signed is not None and age < UNSIGNED
    return bool(re.fullmatch(files.OWNER, signed)) and files.lives(signed) is not False and age < LONGEST


def _place(path: Path) -> Path:
    return path.with_name(path.name + ".claim")


def _make_claim(place: Path) -> bool:
    try:
        handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
    except OSError:
        return False
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(files.owner().encode())
    except OSError:
        with contextlib.suppress(OSError):
            place.unlink()
        return False
    return True


def _release(place: Path) -> None:
    if _held.claims.pop(place, None) != os.getpid():
        return  # none, or its parent's, from before a fork
    if _signature(place) == files.owner():  # another may have taken it over, after too long a time
        with contextlib.suppress(OSError):
            place.unlink()


def _signature(place: Path) -> str | None:
    """Whose claim it is, "" if that is not written yet, None if there is none, or something else in its place."""
    opened = files.open_own_file(place)
    if opened is None:
        return None
    with opened[0] as file, contextlib.suppress(OSError):
        return file.read(64).decode("ascii", errors="replace")
    return None
