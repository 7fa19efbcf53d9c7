"""The store on disk for the next process: generated files, and the code they were compiled to.

`files.py` says where the folder is, and reads and writes in it. Here one process compiles what several want (claims),
and the size of the folder is kept: the files that have not been used for longest go, and what dead processes left.
Only files are touched that are named as ours are; the folder may be one where others lie too. Others may use it
meanwhile: a file that they have opened stays readable, and what they do not find they compile.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from snncell.base.signals import after_fork, signal_waits
from snncell.errors import ArgumentError, CacheError
from snncell.kernels.numba import files
from snncell.kernels.numba.files import read_sealed as read_sealed


def place_of(name: str) -> tuple[Path, bool]:
    """Where a file is kept; and whether that is possible, else the path is a name for tracebacks."""
    files.warn_of_misspelt()
    size_limit()  # said now, not only when the folder is tidied up
    folder = files.cache_folder()
    if folder is None:
        files.warn_without_cache(None)
        return Path(name), False
    return folder / name, _try_in(folder, lambda: files.prepare(folder))


def write_source(path: Path, source: str) -> bool:
    """Put a generated file in its place, if it is not there; whether that is possible."""
    content = source.encode()
    return files.holds(path, content) or _write_content(path, content)


def write_sealed(path: Path, key: bytes, code: bytes) -> None:
    """Keep code in a file, if that is possible, so that `read_sealed` finds it with the same key."""
    _write_content(path, files.seal(key, code))


def _write_content(path: Path, content: bytes) -> bool:
    def write() -> None:
        files.prepare(path.parent)  # somebody may have emptied the cache meanwhile
        files.write(path, content)

    written = _try_in(path.parent, write)
    if written:
        note_written(path.parent, len(content))
    return written


def _try_in(folder: Path, act: Callable[[], None]) -> bool:
    """True if it worked; a folder that cannot be written is warned of, and one that is not safe is refused."""
    try:
        act()
    except CacheError:
        raise
    except OSError as error:
        files.warn_without_cache(folder, error)
        return False
    return True


# --- Claims: one process compiles a kernel, and others that want the same wait for its file ---------------------------

# A claim is a file beside the one that is to be made, with its owner's number in it. Nothing depends on claims but
# time: a process that cannot make one, or has waited for long enough, compiles. A claim counts for nothing if its owner
# has died, is this process or one that it was forked from (which may be waiting for this one), or if it is older than
# `LONGEST`. Claims are made in the order in which kernels call each other, so two processes never wait for each other.

LONGEST = 120.0  # seconds that a claim is respected for, and that anybody waits
UNSIGNED = 5.0  # seconds until a claim without an owner counts for nothing: it is signed as soon as it is made
PAUSES = (0.01, 0.1)  # seconds between two looks, the first and the longest

_related = {os.getpid()}  # this process, and those that it was forked from
after_fork(lambda: _related.add(os.getpid()))


class _Held(threading.local):
    def __init__(self) -> None:
        self.claims: dict[Path, int] = {}  # each with the number of the process that made it


_held = _Held()


def claim(path: Path, told: Callable[[], None] = lambda: None) -> None:
    """Claim the file that is about to be made, after whoever makes it now (`told` is called): look for it again."""
    place, end, pause = _place(path), time.monotonic() + LONGEST, PAUSES[0]
    while not _make_claim(place):
        if not counts(place):
            _remove_file(place)
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
        _remove_file(place)
        return False
    return True


def _release(place: Path) -> None:
    if _held.claims.pop(place, None) != os.getpid():
        return  # none, or its parent's, from before a fork
    if _signature(place) == files.owner():  # another may have taken it over, after too long a time
        _remove_file(place)


def _signature(place: Path) -> str | None:
    """Whose claim it is, "" if that is not written yet, None if there is none, or something else in its place."""
    opened = files.open_own_file(place)
    if opened is None:
        return None
    with opened[0] as file, contextlib.suppress(OSError):
        return file.read(64).decode("ascii", errors="replace")
    return None


# --- The size of the folder -------------------------------------------------------------------------------------------

MEGABYTE = 1 << 20
DEFAULT = 512  # megabytes
LEFT = 0.9  # the part of the bound that is left when it was exceeded, so that not each new file makes one go
PART = 16  # beside the first file that a process writes, each 16th part of the bound that it writes has it look

_CODE = re.compile(r"\w+_[0-9a-f]{16}(\.py|\.[0-9a-f]{16}\.(nbc|cubin))")
_CLAIM = re.compile(_CODE.pattern + r"\.claim")

_written: dict[Path, int] = {}  # bytes since the folder was looked at


class _File(NamedTuple):
    path: Path
    size: int
    used: float


def size_limit() -> float:
    """The size that the folder may have, in bytes: `SNNCELL_CACHE_MB` megabytes, or 512."""
    text = os.environ.get("SNNCELL_CACHE_MB") or str(DEFAULT)
    try:
        megabytes = float(text)
    except ValueError:
        megabytes = math.nan
    if not megabytes >= 0:
        raise ArgumentError(
            f"SNNCELL_CACHE_MB is the size that the cache folder may have, a number of megabytes of at least 0 (inf "
            f"for no bound), not {text[:200]!r}."
        )
    return megabytes * MEGABYTE


def note_written(folder: Path, size: int) -> None:
    """Note that so many bytes were written there, and tidy the folder up if that is due."""
    most = size_limit()
    total = _written.get(folder)
    if total is not None and total + size <= most / PART:
        _written[folder] = total + size
        return
    _written[folder] = 0
    tidy(folder, most)


def tidy(folder: Path, most: float) -> None:
    """Remove what dead processes were writing, and of the rest what has not been used for longest, down to `most`."""
    _remove_abandoned(folder)
    by_age = sorted(_files(folder), key=lambda file: file.used)
    total = sum(file.size for file in by_age)
    if total <= most:
        return
    for file in by_age:
        if total <= most * LEFT:
            break
        if _remove_file(file.path):
            total -= file.size


def size(folder: Path) -> tuple[int, int]:
    """The number of files of ours, and their bytes."""
    own = list(_files(folder))
    return len(own), sum(file.size for file in own)


def compiled_names() -> set[str]:
    """The names of generated files, without their ending, that there is code of."""
    folder = files.cache_folder()
    own = () if folder is None else _files(folder)
    return {file.path.name.partition(".")[0] for file in own if file.path.suffix != ".py"}


def clear(folder: Path) -> tuple[int, int]:
    """Remove all files of ours, but what others are writing now; how many they were, and their bytes."""
    _remove_abandoned(folder)
    gone = [file for file in _files(folder) if _remove_file(file.path)]
    _written.pop(folder, None)
    return len(gone), sum(file.size for file in gone)


def _remove_abandoned(folder: Path) -> None:
    files.remove_abandoned(folder)
    for entry, _ in files.entries(folder):
        if _CLAIM.fullmatch(entry.name) and not stands(folder / entry.name):
            _remove_file(folder / entry.name)


def _files(folder: Path) -> Iterator[_File]:
    for entry, status in files.entries(folder):
        if _CODE.fullmatch(entry.name):
            yield _File(folder / entry.name, status.st_size, status.st_mtime)


def _remove_file(path: Path) -> bool:
    """True if a file is gone: removed now, or by somebody else meanwhile."""
    try:
        path.unlink(missing_ok=True)
    except OSError:  # Windows removes no file that is open
        return False
    return True
