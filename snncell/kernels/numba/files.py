"""The cache folder: where it is, and how its files are read and written safely; environment variables of snncell.

Writes are atomic: other processes see a whole file or none. Reads do not trust the path, because another user may have
put a link or a named pipe there. They open it without following links and without blocking, and check the type and the
owner of the open file.
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
    """The folder of generated files: `SNNCELL_CACHE_DIR`, or `snncell` in the user's cache folder; None if neither."""
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
    """Make a path absolute once, because the program may change its working directory later."""
    try:
        return Path(folder).absolute()
    except OSError:  # the path is relative to a folder that was removed
        return None


def _folder_from_variable(variable: str) -> Path | None:
    """The absolute path in an environment variable; a relative one is ignored, as the XDG specification requires."""
    path = Path(os.environ.get(variable, ""))
    return path if path.is_absolute() else None


def _at_home(*names: str) -> Path | None:
    try:
        home = Path.home()
    except RuntimeError:  # HOME is unset and the user is unknown, which happens in containers
        return None
    return home.joinpath(*names) if home.is_absolute() else None


def prepare(folder: Path) -> None:
    """Create the folder with access for its owner only; refuse one that other users can write."""
    if not folder.is_dir():
        for parent in reversed(folder.parents):
            if not parent.exists():
                parent.mkdir(mode=0o700, exist_ok=True)  # `parents=True` would ignore the mode
        folder.mkdir(mode=0o700, exist_ok=True)
    refuse(folder)


def refuse(folder: Path) -> None:
    """Raise CacheError if other users can write the folder, or if it is a link that another user made."""
    link = folder.lstat()
    reason = doubt(link) if stat.S_ISLNK(link.st_mode) else None
    reason = f"it is a link, and {reason}" if reason else doubt(folder.stat())
    if reason:
        raise CacheError(
            f"{folder}: snncell executes the compiled kernels that it finds in the cache folder, so only you may be "
            f"able to write it, but {reason}. If it is yours, run chmod go-w {folder}; otherwise set SNNCELL_CACHE_DIR "
            f"to a folder of your own."
        )


def doubt(status: os.stat_result) -> str | None:
    """The reason not to trust a folder, file or link, because another user may have written it; None if it is safe."""
    if sys.platform == "win32":  # Windows has no owner and mode; an access list protects %LOCALAPPDATA%
        return None
    # Trust root too: it can run code as any user anyway, and a system image may ship compiled kernels.
    if status.st_uid not in (os.geteuid(), 0):
        return f"it belongs to another user (number {status.st_uid})"
    if status.st_mode & 0o022 and not stat.S_ISLNK(status.st_mode):  # the mode of a link has no meaning
        return f"other users than its owner can write it (mode {status.st_mode & 0o777:o})"
    return None


def warn_without_cache(folder: Path | None, error: OSError | None = None) -> None:
    """Warn, once per process, that compiled kernels are not cached."""
    global _warned
    if _warned:
        return
    _warned = True
    cause = f"the cache folder {folder} cannot be written ({error})"
    if folder is None:
        user = f"number {os.getuid()}" if hasattr(os, "getuid") else "of this process"
        cause = f"user {user} has no home folder and therefore no cache folder"
    warnings.warn(
        f"snncell: {cause}, so compiled kernels of this process are not kept and the next process must compile them "
        f"again. Set SNNCELL_CACHE_DIR to a writable folder.",
        RuntimeWarning,
        stacklevel=2,
    )


# --- Environment variables --------------------------------------------------------------------------------------------

_KNOWN = ("SNNCELL_CACHE_DIR", "SNNCELL_CACHE_MB", "SNNCELL_DEBUG")
_LIKENESS = 0.8  # a name at least this similar counts as misspelt


def debugging() -> bool:
    """True if `SNNCELL_DEBUG=1`, which prints the path of each generated file."""
    value = os.environ.get("SNNCELL_DEBUG", "")
    if value not in ("", "0", "1"):
        raise ArgumentError(
            f"SNNCELL_DEBUG must be 1, to print the path of every generated file, or 0, not {value[:200]!r}."
        )
    return value == "1"


@functools.cache
def warn_of_misspelt() -> None:
    """Warn, once per process, of environment variables with names similar to the variables of snncell."""
    for name in os.environ:
        near = difflib.get_close_matches(name, _KNOWN, 1, _LIKENESS) if name.startswith("SNNCELL") else []
        if near and name not in _KNOWN:
            message = f"{name} is not an environment variable of snncell. Do you mean {near[0]}?"
            warnings.warn(message, RuntimeWarning, stacklevel=2)


# --- Files ------------------------------------------------------------------------------------------------------------

OWNER = "[0-9a-f]{8}-[0-9]{1,20}"  # the format of `owner()`
LONGEST_WRITE = 24 * 3600.0  # seconds after which any temporary file counts as abandoned
_WRITING = re.compile(rf"\.snncell-({OWNER})-\w+\.tmp")
_OPENING = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
_HEAD = 40  # bytes before the code: the seal, and the length
USED = 3600.0  # seconds between updates of a file's time of last use; long, so that loads rarely write


def open_own_file(path: Path) -> tuple[BinaryIO, os.stat_result] | None:
    """Open a file and return it with its status; None if it is missing, not a regular file, or another user's."""
    try:
        handle = os.open(path, os.O_RDONLY | _OPENING)
    except OSError:
        return None
    try:
        status = os.fstat(handle)  # checks the open file, because the path may lead to another file by now
        if stat.S_ISREG(status.st_mode) and doubt(status) is None:
            return os.fdopen(handle, "rb"), status
    except OSError:
        pass
    os.close(handle)
    return None


def holds(path: Path, content: bytes) -> bool:
    """True if a file has exactly this content."""
    found = _use(path, lambda file, size: content if size == len(content) and file.read() == content else None)
    return found is not None


def read_sealed(path: Path, key: bytes) -> bytes | None:
    """The code in a file; None if the file is missing, damaged, sealed with another key, or owned by another user."""

    def code(file: BinaryIO, size: int) -> bytes | None:
        head = file.read(_HEAD)
        length = int.from_bytes(head[32:], "little")
        if len(head) < _HEAD or length != size - _HEAD:  # checked first, so that a huge file is never read
            return None
        found = file.read(length)
        return found if head[:32] == _seal(key, found) else None

    return _use(path, code)


def _use(path: Path, find: Callable[[BinaryIO, int], bytes | None]) -> bytes | None:
    """Call `find` with an open file and its size; if it finds something, set the time of the file's last use."""
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
        with contextlib.suppress(OSError):  # the folder may be read-only
            os.utime(path, follow_symlinks=os.utime not in os.supports_follow_symlinks)
    return found


def seal(key: bytes, code: bytes) -> bytes:
    """The content of a file that `read_sealed` accepts: the seal, the length of the code, the code."""
    return _seal(key, code) + len(code).to_bytes(_HEAD - 32, "little") + code


def _seal(key: bytes, code: bytes) -> bytes:
    return hashlib.sha256(key + code).digest()


def write(path: Path, content: bytes, shared: bool = False) -> None:
    """Write a file atomically: other processes see the whole file or none. After an error, no temporary file is left.

    A cache file is private to its owner. `shared` is for a user's file, such as a checkpoint, which gets the default
    permissions of a new file. Its content is flushed to disk before it gets its name, so that a crash of the machine
    cannot leave it empty.
    """
    # The temporary file is in the same folder, because replacing is atomic only within one file system.
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
        # Windows cannot replace a file while another process reads it. Keep that file: it has the same content.
        if shared or sys.platform != "win32" or not path.exists():
            raise
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def remove_abandoned(folder: Path) -> None:
    """Remove temporary files that `write` left in a folder when its process was killed."""
    for entry, status in entries(folder):
        if (writing := _WRITING.fullmatch(entry.name)) and (
            lives(writing[1]) is False or time.time() - status.st_mtime > LONGEST_WRITE
        ):
            with contextlib.suppress(OSError):
                os.unlink(folder / entry.name)


def entries(folder: Path) -> Iterator[tuple[os.DirEntry[str], os.stat_result]]:
    """The entries of a folder that are not folders; nothing if it cannot be read."""
    try:
        listed = list(os.scandir(folder))
    except OSError:
        return
    for entry in listed:
        with contextlib.suppress(OSError):  # removed by another process in the meantime
            status = entry.stat(follow_symlinks=False)
            if not stat.S_ISDIR(status.st_mode):
                yield entry, status


# --- The owner of a file ----------------------------------------------------------------------------------------------


def owner() -> str:
    """Identify this process by its number, preceded by a digest of the machine and container that assigned it."""
    return f"{_numbering()}-{os.getpid()}"


@functools.cache
def _numbering() -> str:
    """A digest of this machine, its last boot and this container, because process numbers are unique only there."""
    known: list[object] = [platform.node()]
    with contextlib.suppress(OSError):
        known.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii"))
        known.append(os.stat("/proc/self/ns/pid").st_ino)
    return hashlib.sha256(repr(known).encode()).hexdigest()[:8]


def lives(written: str) -> bool | None:
    """True if the process with this `owner` text is alive and not a zombie; None if this is unknown."""
    where, _, number = written.partition("-")
    if where != _numbering() or not number.isdecimal() or int(number) < 1 or sys.platform == "win32":
        return None
    try:
        os.kill(int(number), 0)
        state = Path(f"/proc/{int(number)}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except (ProcessLookupError, OverflowError):
        return False
    except (OSError, IndexError):
        return True  # another user's process, or a system without /proc
    return state not in (b"Z", b"X")  # a zombie has ended, but its parent has not collected its exit status yet
