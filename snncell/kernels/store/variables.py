"""The environment variables of this library: what they may be, and those that are misspelt."""

from __future__ import annotations

import difflib
import functools
import os
import warnings

from snncell.errors import ArgumentError

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
