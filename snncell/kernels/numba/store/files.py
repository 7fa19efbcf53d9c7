"""Files of the cache folder: read only if they are what they should be, written so that others see all or nothing.

Nothing is believed about what lies under a name: it is opened without following a link and without waiting for a
writer (a named pipe has none), and looked at before it is read.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import re
import secrets
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from snncell.kernels.numba.store.folder import doubt

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
    opened_file = open_own_file(path)
    if opened_file is None:
        return False
    file, status = opened_file
    with file:
        try:
            same = status.st_size == len(content) and file.read() == content
        except OSError:
            return False
        if same:
            _note_use(path, status)
    return same


def read_sealed(path: Path, key: bytes) -> bytes | None:
    """The code in a file, or None if it is not there, not whole, not for this key, or another user's."""
    opened_file = open_own_file(path)
    if opened_file is None:
        return None
    file, status = opened_file
    with file:
        try:
            head = file.read(_HEAD)
            length = int.from_bytes(head[32:], "little")
            if len(head) < _HEAD or length != status.st_size - _HEAD:  # before a huge file is read
                return None
            code = file.read(length)
        except OSError:
            return None
    if head[:32] != _seal(key, code):
        return None
    _note_use(path, status)
    return code


def seal(key: bytes, code: bytes) -> bytes:
    """The content of a file in which `read_sealed` finds `code` with the same key."""
    return _seal(key, code) + len(code).to_bytes(_HEAD - 32, "little") + code


def _seal(key: bytes, code: bytes) -> bytes:
    return hashlib.sha256(key + code).digest()


def _note_use(path: Path, status: os.stat_result) -> None:
    """Note that a file is in use, by the time that it says it was written at."""
    if time.time() - status.st_mtime > USED:
        with contextlib.suppress(OSError):  # a folder that can only be read
            os.utime(path, follow_symlinks=os.utime not in os.supports_follow_symlinks)


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
