"""The cache of generated files and their machine code: claims of processes, and the size of the folder.

`files.py` finds the folder and reads and writes it. Here, claims make sure that only one of several processes compiles
a kernel. When the folder exceeds its size limit, the least recently used files are removed; the remains of dead
processes are removed too. The folder may contain other files, so only names in the cache's format are removed. A
removed file does not disturb other processes: a process that has opened it can continue to read, and a process that
does not find it compiles the kernel again.
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
    """The path of a cache file, and whether it can be stored; if not, the path is only a name for tracebacks."""
    files.warn_of_misspelt()
    size_limit()  # raises for an invalid setting now, not only when the folder is cleaned up
    folder = files.cache_folder()
    if folder is None:
        files.warn_without_cache(None)
        return Path(name), False
    return folder / name, _try_in(folder, lambda: files.prepare(folder))


def write_source(path: Path, source: str) -> bool:
    """Write a generated file if it is not there already; return False if that is impossible."""
    content = source.encode()
    return files.holds(path, content) or _write_content(path, content)


def write_sealed(path: Path, key: bytes, code: bytes) -> None:
    """Store code in a file, if possible, so that `read_sealed` finds it with the same key."""
    _write_content(path, files.seal(key, code))


def _write_content(path: Path, content: bytes) -> bool:
    def write() -> None:
        files.prepare(path.parent)  # the cache may have been removed in the meantime
        files.write(path, content)

    written = _try_in(path.parent, write)
    if written:
        note_written(path.parent, len(content))
    return written


def _try_in(folder: Path, act: Callable[[], None]) -> bool:
    """Call `act`; return False with a warning if the folder cannot be written. An unsafe folder raises CacheError."""
    try:
        act()
    except CacheError:
        raise
    except OSError as error:
        files.warn_without_cache(folder, error)
        return False
    return True


# --- Claims: one process compiles a kernel, and others that want the same wait for its file ---------------------------

# A claim is a file next to the code file. It contains the process that owns it, as text (`files.owner`). Claims only
# save time: if a process cannot create one, or has waited for too long, it compiles without a claim. A claim is invalid
# if its owner has died or if it is older than `LONGEST`. A process replaces invalid claims. It also replaces its own
# claims, and those of a parent that forked it, because the parent may be waiting for this process. Claims are made in
# the order in which kernels call each other, so that two processes never wait for each other.

LONGEST = 120.0  # seconds: the lifetime of a claim, and the longest wait
UNSIGNED = 5.0  # seconds after which a claim without an owner is invalid; owners sign as soon as they have made it
PAUSES = (0.01, 0.1)  # seconds between two checks: the first and the longest pause

_related = {os.getpid()}  # this process and its ancestors by fork
after_fork(lambda: _related.add(os.getpid()))


class _ThreadClaims(threading.local):
    def __init__(self) -> None:
        self.claims: dict[Path, int] = {}  # the number of the process that made each claim


_thread = _ThreadClaims()


def claim(path: Path, told: Callable[[], None] = lambda: None) -> None:
    """Claim a file; if another process is compiling it, call `told` and wait. The caller must then try to load it."""
    place, end, pause = _place(path), time.monotonic() + LONGEST, PAUSES[0]
    while not _make_claim(place):
        if not is_foreign_claim(place):
            _remove_file(place)
            if _make_claim(place):
                break
            return  # compile without a claim: a folder has this name, the disk is full, or another process was faster
        if time.monotonic() > end or signal_waits():  # Ctrl-C takes effect after this kernel: do not wait longer
            return
        if pause == PAUSES[0]:
            told()
        time.sleep(pause)
        pause = min(2 * pause, PAUSES[1])
    _thread.claims[place] = os.getpid()


def release(path: Path) -> None:
    """Release the claim on a file, if this process made it."""
    _release(_place(path))


@contextlib.contextmanager
def release_claims() -> Iterator[None]:
    """A context that releases the claims made in it, even after an exception."""
    before = set(_thread.claims)
    try:
        yield
    finally:
        for place in set(_thread.claims) - before:
            _release(place)


def is_foreign_claim(place: Path) -> bool:
    """True if another process has a valid claim in this file and may be compiling."""
    here = files.owner().partition("-")[0]
    return is_valid_claim(place) and _signature(place) not in {f"{here}-{number}" for number in _related}


def is_valid_claim(place: Path) -> bool:
    """True if the file is a valid claim whose owner may be alive."""
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
    if _thread.claims.pop(place, None) != os.getpid():
        return  # this process has no claim, or it was made before a fork
    if _signature(place) == files.owner():  # another process may have taken over an old claim
        _remove_file(place)


def _signature(place: Path) -> str | None:
    """The owner of a claim, "" if it is not signed yet, None if there is no claim file."""
    opened = files.open_own_file(place)
    if opened is None:
        return None
    with opened[0] as file, contextlib.suppress(OSError):
        return file.read(64).decode("ascii", errors="replace")
    return None


# --- The size of the folder -------------------------------------------------------------------------------------------

MEGABYTE = 1 << 20
DEFAULT = 512  # megabytes
LEFT = 0.9  # clean up to this part of the limit, so that not each new file causes another cleanup
PART = 16  # a process checks the folder at its first write, and after each 16th part of the limit that it writes

_CODE = re.compile(r"\w+_[0-9a-f]{16}(\.py|\.[0-9a-f]{16}\.(nbc|cubin))")
_CLAIM = re.compile(_CODE.pattern + r"\.claim")

_written: dict[Path, int] = {}  # bytes written since the folder was last checked


class _File(NamedTuple):
    path: Path
    size: int
    used: float


def size_limit() -> float:
    """The size limit of the folder in bytes: `SNNCELL_CACHE_MB` megabytes, by default 512."""
    text = os.environ.get("SNNCELL_CACHE_MB") or str(DEFAULT)
    try:
        megabytes = float(text)
    except ValueError:
        megabytes = math.nan
    if not megabytes >= 0:
        raise ArgumentError(
            f"SNNCELL_CACHE_MB is the size limit of the cache folder and must be a number of megabytes of at least 0 "
            f"(inf for no limit), not {text[:200]!r}."
        )
    return megabytes * MEGABYTE


def note_written(folder: Path, size: int) -> None:
    """Count bytes written to the folder, and clean it up if that is due."""
    most = size_limit()
    total = _written.get(folder)
    if total is not None and total + size <= most / PART:
        _written[folder] = total + size
        return
    _written[folder] = 0
    tidy(folder, most)


def tidy(folder: Path, most: float) -> None:
    """Remove the remains of dead processes, then the least recently used files if the folder exceeds `most` bytes."""
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
    """The number of cache files, and their bytes."""
    own = list(_files(folder))
    return len(own), sum(file.size for file in own)


def compiled_names() -> set[str]:
    """The names, without endings, of generated files whose machine code is in the cache."""
    folder = files.cache_folder()
    own = () if folder is None else _files(folder)
    return {file.path.name.partition(".")[0] for file in own if file.path.suffix != ".py"}


def clear(folder: Path) -> tuple[int, int]:
    """Remove all cache files except those being written now; return their number and bytes."""
    _remove_abandoned(folder)
    gone = [file for file in _files(folder) if _remove_file(file.path)]
    _written.pop(folder, None)
    return len(gone), sum(file.size for file in gone)


def _remove_abandoned(folder: Path) -> None:
    files.remove_abandoned(folder)
    for entry, _ in files.entries(folder):
        if _CLAIM.fullmatch(entry.name) and not is_valid_claim(folder / entry.name):
            _remove_file(folder / entry.name)


def _files(folder: Path) -> Iterator[_File]:
    for entry, status in files.entries(folder):
        if _CODE.fullmatch(entry.name):
            yield _File(folder / entry.name, status.st_size, status.st_mtime)


def _remove_file(path: Path) -> bool:
    """True if a file is gone: removed now, or earlier by another process."""
    try:
        path.unlink(missing_ok=True)
    except OSError:  # Windows cannot remove an open file
        return False
    return True
