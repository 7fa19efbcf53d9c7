"""The cache folder, and the environment variables of this library."""

from __future__ import annotations

import difflib
import functools
import os
import stat
import sys
import warnings
from pathlib import Path

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
