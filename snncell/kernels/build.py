"""Generated source -> a file in the cache folder -> a compiled kernel.

The file is named by a hash of what is in it, so that the same computation finds the same file, and Numba's disk cache
beside it, in the next process. `SNNCELL_DEBUG=1` prints the path of each file; `SNNCELL_CACHE_DIR` moves the folder.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib.util
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from snncell.kernels import policy

_built: dict[tuple[Any, ...], Callable[..., Any]] = {}
_fallback: Path | None = None


def cache_folder() -> Path:
    """The folder of generated files: `SNNCELL_CACHE_DIR`, or `snncell` in the user's cache folder."""
    chosen = os.environ.get("SNNCELL_CACHE_DIR")
    if chosen:
        return Path(chosen)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "snncell" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "snncell"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "snncell"


def build(name: str, source: str, signature: Sequence[Any], parallel: bool) -> Callable[..., Any]:
    """The kernel called `name` in `source`, compiled for `signature` (see `policy.compile_kernel`)."""
    key = (name, source, tuple(signature), parallel)
    kernel = _built.get(key)
    if kernel is None:
        digest = hashlib.sha256(repr((source, parallel)).encode()).hexdigest()[:16]
        path = _write(f"{name}_{digest}.py", source)
        if os.environ.get("SNNCELL_DEBUG") == "1":
            sys.stderr.write(f"snncell: {path}\n")
        function = getattr(_load(path), name)
        try:
            kernel = policy.compile_kernel(function, signature, parallel)
        except Exception:
            if not _forget(path):
                raise
            kernel = policy.compile_kernel(function, signature, parallel)  # without what was damaged
        _built[key] = kernel
    return kernel


def _write(filename: str, source: str) -> Path:
    """Put `source` in the cache folder, atomically; an equal file is left alone, for Numba goes by its time stamp."""
    global _fallback
    folder = _fallback or cache_folder()
    path = folder / filename
    try:
        if path.is_file() and path.read_text(encoding="utf-8") == source:
            return path
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, temporary = tempfile.mkstemp(dir=folder, suffix=".tmp")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(source)
        os.replace(temporary, path)
    except OSError as error:
        if _fallback is not None:
            raise
        _fallback = Path(tempfile.mkdtemp(prefix="snncell-"))
        atexit.register(shutil.rmtree, _fallback, ignore_errors=True)
        warnings.warn(
            f"snncell: the cache folder {folder} cannot be written ({error}); compiled kernels of this process are "
            f"not kept. Set SNNCELL_CACHE_DIR to a writable folder.",
            RuntimeWarning,
            stacklevel=2,
        )
        return _write(filename, source)
    return path


def _forget(path: Path) -> bool:
    """Remove what Numba has stored for a generated file; whether there was anything."""
    stored = [*path.parent.glob(f"__pycache__/{path.stem}.*.nb[ic]")]
    for file in stored:
        file.unlink(missing_ok=True)
    return bool(stored)


def _load(path: Path) -> Any:
    """Import a generated file under a name that stays the same from process to process.

    Numba's cached code refers to its module by name, and finds it among the loaded ones.
    """
    name = f"_snncell_generated_{path.stem}"
    specification = importlib.util.spec_from_file_location(name, path)
    assert specification is not None and specification.loader is not None  # a path that ends in .py has a loader
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    specification.loader.exec_module(module)
    return module
