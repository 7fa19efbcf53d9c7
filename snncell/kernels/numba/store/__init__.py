"""The store on disk for the next process: generated files, and the code they were compiled to.

`folder.py` says where the folder is and whether it can be trusted, `files.py` reads and writes in it, `claims.py` has
one process compile what several want, `bound.py` keeps its size. Who builds kernels needs what stands here.
"""

from __future__ import annotations

from pathlib import Path

from snncell.errors import CacheError
from snncell.kernels.numba.store import bound, files
from snncell.kernels.numba.store.claims import claim as claim, release as release, release_claims as release_claims
from snncell.kernels.numba.store.files import read_sealed as read_sealed
from snncell.kernels.numba.store.folder import (
    cache_folder as cache_folder,
    debugging as debugging,
    prepare,
    warn_of_misspelt,
    warn_without_cache,
)


def place_of(name: str) -> tuple[Path, bool]:
    """Where a file is kept; and whether that is possible, else the path is a name for tracebacks."""
    warn_of_misspelt()
    bound.size_limit()  # said now, not only when the folder is tidied up
    folder = cache_folder()
    if folder is None:
        warn_without_cache(None)
        return Path(name), False
    try:
        prepare(folder)
    except CacheError:
        raise
    except OSError as error:
        warn_without_cache(folder, error)
        return folder / name, False
    return folder / name, True


def compiled_names() -> set[str]:
    """The names of generated files that there is code of."""
    folder = cache_folder()
    return set() if folder is None else bound.with_code(folder)


def write_source(path: Path, source: str) -> bool:
    """Put a generated file in its place, if it is not there; whether that is possible."""
    content = source.encode()
    return files.holds(path, content) or _write_text(path, content)


def write_sealed(path: Path, key: bytes, code: bytes) -> None:
    """Keep code in a file, if that is possible, so that `read_sealed` finds it with the same key."""
    _write_text(path, files.seal(key, code))


def _write_text(path: Path, content: bytes) -> bool:
    try:
        prepare(path.parent)  # somebody may have emptied the cache meanwhile
        files.write(path, content)
    except CacheError:
        raise
    except OSError as error:
        warn_without_cache(path.parent, error)
        return False
    bound.note_written(path.parent, len(content))
    return True
