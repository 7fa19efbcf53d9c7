"""The size of the cache folder: what has not been used for longest goes, and what dead processes left behind.

Only files are touched that are named as ours are; the folder may be one where others lie too. Others may use it
meanwhile: a file that they have opened stays readable, and what they do not find they compile.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from snncell.errors import ArgumentError
from snncell.kernels.numba.store import claims, files

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


def with_code(folder: Path) -> set[str]:
    """The names of generated files, without their ending, that there is code of."""
    return {file.path.name.partition(".")[0] for file in _files(folder) if file.path.suffix != ".py"}


def clear(folder: Path) -> tuple[int, int]:
    """Remove all files of ours, but what others are writing now; how many they were, and their bytes."""
    _remove_abandoned(folder)
    gone = [file for file in _files(folder) if _remove_file(file.path)]
    _written.pop(folder, None)
    return len(gone), sum(file.size for file in gone)


def _remove_abandoned(folder: Path) -> None:
    files.remove_abandoned(folder)
    for entry, _ in files.entries(folder):
        if _CLAIM.fullmatch(entry.name) and not claims.stands(folder / entry.name):
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
