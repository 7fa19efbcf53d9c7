"""The cache folder and its files, and the environment variables of this library.

Files are read only if they are what they should be, and written so that others see all or nothing. Nothing is believed
about what lies under a name: it is opened without following a link and without waiting for a writer (a named pipe has
none), and looked at before it is read.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import hashlib
import os
import platform
import re
import secrets
import stat
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from snncell.errors import ArgumentError, CacheError

_warned = False


def cache_folder() -> Path | None:
    """The folder of generated files: `SNNCELL_CACHE_DIR`, or `snncell` in the user's cache folder, or None."""
    chosen = os.environ.get("SNNCELL_CACHE_DIR")
    if chosen:
        return _absolute(chosen)
    if sys.platform == "win32":
        base, name = _folder_from_variable("LOCALAPPDATA") or _at_home("AppData", "Local"), ("snncell", "Cache")
    elif sys.platform == "darwin":
        base, name = _at_home("Library", "Caches"), ("snncell",)
    else:
        base, name = _folder_from_variable("XDG_CACHE_HOME") or _at_home(".cache"), ("snncell",)
    return None if base is None else base.joinpath(*name)


@functools.cache
def _absolute(folder: str) -> Path | None:
    """A folder as it was when it was first asked for: the program may change its directory."""
    try:
        return Path(folder).absolute()
    except OSError:  # relative to a folder that has been removed
        return None


def _folder_from_variable(variable: str) -> Path | None:
    """The folder that a variable of the system names; not a relative one, as XDG's specification asks."""
    path = Path(os.environ.get(variable, ""))
    return path if path.is_absolute() else None


def _at_home(*names: str) -> Path | None:
    try:
        home = Path.home()
    except RuntimeError:  # without HOME, for a user who is not in the list of users, as a container may run one
        return None
    return home.joinpath(*names) if home.is_absolute() else None


def prepare(folder: Path) -> None:
    """Make the folder where it is missing, for its owner alone, and refuse one that others can write."""
    if not folder.is_dir():
        for parent in reversed(folder.parents):
            if not parent.exists():
                parent.mkdir(mode=0o700, exist_ok=True)  # `parents=True` would give it what the umask leaves
        folder.mkdir(mode=0o700, exist_ok=True)
    refuse(folder)


def refuse(folder: Path) -> None:
    """Raise a CacheError for a folder that others can write, or another user's link to one."""
    link = folder.lstat()
    reason = doubt(link) if stat.S_ISLNK(link.st_mode) else None
    reason = f"it is a link, and {reason}" if reason else doubt(folder.stat())
    if reason:
        raise CacheError(
            f"{folder}: the cache folder holds compiled kernels, which are run as they are found there, and {reason}. "
            f"If it is yours, chmod go-w {folder}; otherwise set SNNCELL_CACHE_DIR to a folder of your own."
        )


def doubt(status: os.stat_result) -> str | None:
    """Who else may have written a folder or a file, or made a link, in words, or None."""
    if sys.platform == "win32":  # owner and mode say nothing there; %LOCALAPPDATA% is the user's by its access list
        return None
    # Root can run code as anybody anyway, and a system may come with its kernels already compiled.
    if status.st_uid not in (os.geteuid(), 0):
        return f"it belongs to another user (number {status.st_uid})"
    if status.st_mode & 0o022 and not stat.S_ISLNK(status.st_mode):  # a link's own mode says nothing
        return f"others than its owner can write it (mode {status.st_mode & 0o777:o})"
    return None


def warn_without_cache(folder: Path | None, error: OSError | None = None) -> None:
    """Warn, once in a process, that it works without a cache."""
    global _warned
    if _warned:
        return
    _warned = True
    cause = f"the cache folder {folder} cannot be written ({error})"
    if folder is None:
        user = f"number {os.getuid()}" if hasattr(os, "getuid") else "of this process"
        cause = f"user {user} has no home folder, and so no cache folder"
    warnings.warn(
        f"snncell: {cause}; compiled kernels of this process are not kept. Set SNNCELL_CACHE_DIR to a writable folder.",
        RuntimeWarning,
        stacklevel=2,
    )


# --- Environment variables --------------------------------------------------------------------------------------------

_KNOWN = ("SNNCELL_CACHE_DIR", "SNNCELL_CACHE_MB", "SNNCELL_DEBUG")
_LIKENESS = 0.8  # from which on a name is meant to be one of these


def debugging() -> bool:
    """True if the path of each generated file is to be printed: `SNNCELL_DEBUG=1`."""
    value = os.environ.get("SNNCELL_DEBUG", "")
    if value not in ("", "0", "1"):
        raise ArgumentError(
            f"SNNCELL_DEBUG is 1, to print the path of every generated file, or 0, not {value[:200]!r}."
        )
    return value == "1"


@functools.cache
def warn_of_misspelt() -> None:
    """Warn, once in a process, of variables whose names are nearly those of this library."""
    for name in os.environ:
        near = difflib.get_close_matches(name, _KNOWN, 1, _LIKENESS) if name.startswith("SNNCELL") else []
        if near and name not in _KNOWN:
            warnings.warn(f"{name} is no variable of snncell; is {near[0]} meant?", RuntimeWarning, stacklevel=2)


# --- Files ------------------------------------------------------------------------------------------------------------

OWNER = "[0-9a-f]{8}-[0-9]{1,20}"  # a process, see `owner`
LONGEST_WRITE = 24 * 3600.0  # seconds after which a temporary file is abandoned, whoever wrote it
_WRITING = re.compile(rf"\.snncell-({OWNER})-\w+\.tmp")
_OPENING = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
_HEAD = 40  # bytes before the code: the seal, and the length
USED = 3600.0  # seconds: the time of a file's last use is exact to these, so that loading writes next to nothing


def open_own_file(path: Path) -> tuple[BinaryIO, os.stat_result] | None:
    """A file, and what it is; None if it is not there, no regular file, or another user's."""
    try:
        handle = os.open(path, os.O_RDONLY | _OPENING)
    except OSError:
        return None
    try:
        status = os.fstat(handle)  # of the file itself: the folder may be another one since it was checked
        if stat.S_ISREG(status.st_mode) and doubt(status) is None:
            return os.fdopen(handle, "rb"), status
    except OSError:
        pass
    os.close(handle)
    return None


def holds(path: Path, content: bytes) -> bool:
    """True if a file has just this content."""
    return (
        _use(path, lambda file, size: content if size == len(content) and file.read() == content else None) is not None
    )


def read_sealed(path: Path, key: bytes) -> bytes | None:
    """The code in a file, or None if it is not there, not whole, not for this key, or another user's."""

    def code(file: BinaryIO, size: int) -> bytes | None:
        head = file.read(_HEAD)
        length = int.from_bytes(head[32:], "little")
        if len(head) < _HEAD or length != size - _HEAD:  # before a huge file is read
            return None
        found = file.read(length)
        return found if head[:32] == _seal(key, found) else None

    return _use(path, code)


def _use(path: Path, find: Callable[[BinaryIO, int], bytes | None]) -> bytes | None:
    """What is found in a file of some size, which is in use then, by the time that it says it was written at."""
    opened = open_own_file(path)
    if opened is None:
        return None
    file, status = opened
    with file:
        try:
            found = find(file, status.st_size)
        except OSError:
            return None
    if found is not None and time.time() - status.st_mtime > USED:
        with contextlib.suppress(OSError):  # a folder that can only be read
            os.utime(path, follow_symlinks=os.utime not in os.supports_follow_symlinks)
    return found


def seal(key: bytes, code: bytes) -> bytes:
    """The content of a file in which `read_sealed` finds `code` with the same key."""
    return _seal(key, code) + len(code).to_bytes(_HEAD - 32, "little") + code


def _seal(key: bytes, code: bytes) -> bytes:
    return hashlib.sha256(key + code).digest()


def write(path: Path, content: bytes, shared: bool = False) -> None:
    """Write a file atomically: other processes see the whole file or none, and a failure leaves no temporary file.

    Args:
        path: the file, in a folder that exists.
        content: its bytes.
        shared: for a file of the user's, such as a checkpoint: it gets the permissions of any new file, and its content
            is on the disk before its name is, so that a crash of the machine cannot leave an empty file.
    """
    # In the same folder, because a file is replaced atomically within one file system only.
    temporary = path.with_name(f".snncell-{owner()}-{secrets.token_hex(8)}.tmp")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPENING
        with os.fdopen(os.open(temporary, flags, 0o666 if shared else 0o600), "wb") as file:
            file.write(content)
            if shared:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except PermissionError:
        # Windows replaces no file that another process reads: it has just been written there, with the same content.
        if shared or sys.platform != "win32" or not path.exists():
            raise
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def remove_abandoned(folder: Path) -> None:
    """Remove the temporary files that `write` left in a folder when its process was killed."""
    for entry, status in entries(folder):
        if (writing := _WRITING.fullmatch(entry.name)) and (
            lives(writing[1]) is False or time.time() - status.st_mtime > LONGEST_WRITE
        ):
            with contextlib.suppress(OSError):
                os.unlink(folder / entry.name)


def entries(folder: Path) -> Iterator[tuple[os.DirEntry[str], os.stat_result]]:
    """The entries of a folder that are no folders; nothing if it cannot be read."""
    try:
        listed = list(os.scandir(folder))
    except OSError:
        return
    for entry in listed:
        with contextlib.suppress(OSError):  # gone meanwhile
            status = entry.stat(follow_symlinks=False)
            if not stat.S_ISDIR(status.st_mode):
                yield entry, status


# --- whose a file is --------------------------------------------------------------------------------------------------


def owner() -> str:
    """This process, by a digest of where its number is known, and the number."""
    return f"{_numbering()}-{os.getpid()}"


@functools.cache
def _numbering() -> str:
    """Where process numbers mean what they mean here: this machine, since it was started, in this container."""
    known: list[object] = [platform.node()]
    with contextlib.suppress(OSError):
        known.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii"))
        known.append(os.stat("/proc/self/ns/pid").st_ino)
    return hashlib.sha256(repr(known).encode()).hexdigest()[:8]


def lives(written: str) -> bool | None:
    """True if the process that called itself so lives; None if that cannot be known here.

    A process that was killed and that its parent has not waited for yet (a zombie) is dead. Only Linux tells.
    """
    where, _, number = written.partition("-")
    if where != _numbering() or not number.isdecimal() or int(number) < 1 or sys.platform == "win32":
        return None
    try:
        os.kill(int(number), 0)
        state = Path(f"/proc/{int(number)}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except (ProcessLookupError, OverflowError):
        return False
    except (OSError, IndexError):
        return True  # another user's, or a system without /proc
    return state not in (b"Z", b"X")
