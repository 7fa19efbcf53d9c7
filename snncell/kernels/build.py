"""Generated source -> a file in the cache folder -> a compiled kernel, found again by the next process.

A kernel has two files in the folder, both named by a digest of what they hold. `NAME_DIGEST.py` is for people (a
debugger, a traceback): it is written, never run. `NAME_DIGEST.KEY.nbc` is the compiled code. To load it is to run what
it says, hence it is sealed with a checksum, and the folder must be one that nobody else can write: another is refused.
`SNNCELL_DEBUG=1` prints the path of each generated file; `SNNCELL_CACHE_DIR` moves the folder.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import os
import pickle
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from snncell.errors import CacheError
from snncell.kernels import policy
from snncell.kernels.scalar import library_digest

_built: dict[tuple[Any, ...], Callable[..., Any]] = {}
_warned = False

# Numba's settings that change the code it makes, and that Numba's own index leaves out. Code that calls Intel's vector
# library (SVML), for one, cannot be linked where that is missing or switched off.
_SETTINGS = ("OPT", "USING_SVML", "BOUNDSCHECK", "DEBUGINFO_DEFAULT", "LOOP_VECTORIZE", "SLP_VECTORIZE")


def cache_folder() -> Path:
    """The folder of generated files: `SNNCELL_CACHE_DIR`, or `snncell` in the user's cache folder."""
    chosen = os.environ.get("SNNCELL_CACHE_DIR")
    if chosen:
        return _absolute(chosen)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "snncell" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "snncell"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "snncell"


@functools.cache
def _absolute(folder: str) -> Path:
    """A folder as it was when it was first asked for: the program may change its directory."""
    return Path(folder).absolute()


def build(name: str, source: str, signature: Sequence[Any], parallel: bool) -> Callable[..., Any]:
    """The kernel called `name` in `source`, compiled for `signature` (see `policy.compile_kernel`)."""
    code = without_comments(source)
    key = (name, code, tuple(signature), parallel)
    kernel = _built.get(key)
    if kernel is None:
        path, kept = keep(name, source, code, parallel)
        function = function_of(path, source, name)
        if kept:
            _keep_helpers(path.parent)
        kernel = policy.compile_kernel(function, signature, parallel, _CodeFile(path) if kept else None)
        _built[key] = kernel
    return kernel


def without_comments(source: str) -> str:
    """What a kernel is known by: comments name the user's lines, whose numbers change whenever that file is edited."""
    return "\n".join(line for line in source.splitlines() if not line.lstrip().startswith("#"))


def keep(name: str, source: str, code: str, parallel: bool) -> tuple[Path, bool]:
    """Put a generated file in the cache folder, and say so where that is wanted: its path, and whether that worked."""
    path = cache_folder() / f"{name}_{_digest(code, parallel)}.py"
    kept = _keep_source(path, source)
    if kept and os.environ.get("SNNCELL_DEBUG") == "1":
        sys.stderr.write(f"snncell: {path}\n")
    return path, kept


def function_of(path: Path, source: str, name: str) -> Callable[..., Any]:
    """The function `name` of a generated file, not compiled."""
    function: Callable[..., Any] = getattr(_load(path, source), name)
    return function


def _keep_helpers(folder: Path) -> None:
    """Let the helper functions that kernels call have files of their own: to compile them takes as long as a neuron."""
    for helper in policy.HELPERS:
        if getattr(helper._cache, "cache_path", None) != str(folder):
            digest = _digest(helper.__name__, parallel=False)  # with that of the file it stands in
            _CodeFile(folder / f"{helper.__name__}_{digest}.py").attach(helper)


def _digest(code: str, parallel: bool) -> str:
    """What a kernel's files are named by. The machine, Numba and the signature are in the code file's key."""
    version = sys.modules["snncell"].__version__  # the package stands above this module, which may not import it
    return hashlib.sha256(repr((code, parallel, version, library_digest())).encode()).hexdigest()[:16]


def _load(path: Path, source: str) -> ModuleType:
    """The module of a generated file, made from the source at hand: the file may be another's by now, or missing.

    Its name stays the same from process to process. Numba's compiled code refers to its module by name, and finds it
    among the loaded ones.
    """
    module = ModuleType(f"_snncell_generated_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    exec(compile(source, str(path), "exec"), module.__dict__)
    return module


# --- the folder and its files -----------------------------------------------------------------------------------------


def _keep_source(path: Path, source: str) -> bool:
    """Put `source` in the cache folder, if it is not there; whether the folder can be used."""
    content = source.encode()
    try:
        _prepare(path.parent)
        if not (path.is_file() and path.read_bytes() == content):
            _write(path, content)
    except CacheError:
        raise
    except OSError as error:
        _say_not_kept(path.parent, error)
        return False
    return True


def _prepare(folder: Path) -> None:
    """Make the folder where it is missing, for its owner alone, and refuse one that others can write."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    doubt = _doubt(folder.stat())
    if doubt:
        raise CacheError(
            f"{folder}: the cache folder holds compiled kernels, which are run as they are found there, and {doubt}. "
            f"If it is yours, chmod go-w {folder}; otherwise set SNNCELL_CACHE_DIR to a folder of your own."
        )


def _doubt(status: os.stat_result) -> str | None:
    """Who else may have written a folder or a file, in words, or None.

    What belongs to root is as good as the user's own: root can run code as anybody, and a system may come with its
    kernels already compiled.
    """
    if sys.platform == "win32":  # owner and mode say nothing there; %LOCALAPPDATA% is the user's by its access list
        return None
    if status.st_uid not in (os.geteuid(), 0):
        return f"it belongs to another user (number {status.st_uid})"
    if status.st_mode & 0o022:
        return f"others than its owner can write it (mode {status.st_mode & 0o777:o})"
    return None


def _write(path: Path, content: bytes) -> None:
    """Write a file so that other processes see all of it or nothing, and nothing stays behind where that fails."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        # Windows replaces no file that another process reads: it has just been written there, with the same content.
        if not (sys.platform == "win32" and isinstance(error, PermissionError) and path.exists()):
            raise


def _say_not_kept(folder: Path, error: OSError) -> None:
    """Warn, once in a process, that it works without a cache."""
    global _warned
    if _warned:
        return
    _warned = True
    warnings.warn(
        f"snncell: the cache folder {folder} cannot be written ({error}); compiled kernels of this process are not "
        f"kept. Set SNNCELL_CACHE_DIR to a writable folder.",
        RuntimeWarning,
        stacklevel=2,
    )


# --- compiled code ----------------------------------------------------------------------------------------------------


class _CodeFile:
    """The compiled code of one kernel on disk, in the place of the cache that Numba's dispatcher asks.

    Numba's own cache unpickles whatever it finds, takes another kernel's code if it has the right name, raises where
    its index is damaged or the disk is full, and goes to `NUMBA_CACHE_DIR`, or to a folder of its own where it cannot
    write beside the source: folders that nobody has checked. Here is one file, read only if its seal fits. The seal is
    a checksum over the code and over all that it was compiled for, so a file that was cut short, damaged, or made for
    another kernel, CPU or Numba does not get as far as being unpickled; it is compiled again and replaced.
    """

    def __init__(self, source: Path) -> None:
        self.cache_path = str(source.parent)  # the dispatcher's `stats` show it
        self._source = source
        self._options: dict[str, Any] = {}

    def attach(self, kernel: Any) -> None:
        """Become the cache of a kernel that has compiled nothing yet."""
        self._options = kernel.targetoptions
        kernel._cache = self

    def load_overload(self, signature: Any, target: Any) -> Any:
        """The compiled code for a signature, or None if it is not there or not to be trusted."""
        compiler: Any = importlib.import_module("numba.core.compiler")

        runtime: Any = importlib.import_module("numba.core.runtime")

        # Compiled code needs the runtime's functions. All else that Numba's own cache sets up first, the rules by which
        # it types and compiles, is for compiling, which sets it up itself: two thirds of the time of a first call.
        runtime.rtsys.initialize(target)
        key, path = self._place(signature, target.codegen())
        code = read_sealed(path, key)
        # Unpickling fails where it is whole and ours, but names something that has changed under it (another SciPy).
        with contextlib.suppress(Exception):
            if code is not None:
                return compiler.CompileResult._rebuild(target, *pickle.loads(code))
        policy.import_array_functions()  # Numba compiles now
        return None

    def save_overload(self, signature: Any, result: Any) -> None:
        """Keep what was compiled for a signature, if that is possible."""
        serialize: Any = importlib.import_module("numba.core.serialize")

        if result.library.has_dynamic_globals:  # addresses of this process
            return
        key, path = self._place(signature, result.codegen)
        write_sealed(path, key, serialize.dumps(result._reduce()))

    def _place(self, signature: Any, codegen: Any) -> tuple[bytes, Path]:
        """All that the code depends on, as a key, and the path of its file."""
        numba: Any = importlib.import_module("numba")
        llvmlite: Any = importlib.import_module("llvmlite")

        described = (
            self._source.stem,  # with the digest of code and version
            signature,
            sorted(self._options.items()),
            codegen.magic_tuple(),  # system, CPU and its features
            (sys.implementation.cache_tag, getattr(sys, "abiflags", "")),
            (numba.__version__, llvmlite.__version__),
            [getattr(numba.config, name, None) for name in _SETTINGS],
        )
        key = hashlib.sha256(repr(described).encode()).digest()
        return key, self._source.with_suffix(f".{key.hex()[:16]}.nbc")


def read_sealed(path: Path, key: bytes) -> bytes | None:
    """What a file of code holds, or None if it is not there, not whole, not for this key, or another user's."""
    try:
        with path.open("rb") as file:
            seal, code = file.read(32), file.read()
            doubt = _doubt(os.fstat(file.fileno()))  # the folder may be another one since it was checked
    except OSError:
        return None
    return None if doubt or seal != _seal(key, code) else code


def write_sealed(path: Path, key: bytes, code: bytes) -> None:
    """Keep code in a file, if that is possible, so that `read_sealed` finds it with the same key."""
    try:
        _prepare(path.parent)  # somebody may have emptied the cache meanwhile
        _write(path, _seal(key, code) + code)
    except OSError as error:
        _say_not_kept(path.parent, error)


def _seal(key: bytes, code: bytes) -> bytes:
    return hashlib.sha256(key + code).digest()
