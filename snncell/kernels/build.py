"""Generated source -> a file in the cache folder -> a compiled kernel, found again by the next process.

A kernel has two files in the folder, both named by a digest of what they hold. `NAME_DIGEST.py` is for people (a
debugger, a traceback): it is written, never run. `NAME_DIGEST.KEY.nbc` is the compiled code. To load it is to run what
it says, hence it is sealed with a checksum, and the folder must be one that nobody else can write: another is refused
(`store`).
`SNNCELL_DEBUG=1` prints the path of each generated file; `SNNCELL_CACHE_DIR` moves the folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import pickle
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from snncell.forks import BUILDING, let_fork, refuse_unfinished
from snncell.interrupts import deferring, imported
from snncell.kernels import policy, progress, store
from snncell.kernels.scalar import library_digest

_built: dict[tuple[Any, ...], Callable[..., Any]] = {}

# Numba's settings that change the code it makes, and that Numba's own index leaves out. Code that calls Intel's vector
# library (SVML), for one, cannot be linked where that is missing or switched off.
_SETTINGS = ("OPT", "USING_SVML", "BOUNDSCHECK", "DEBUGINFO_DEFAULT", "LOOP_VECTORIZE", "SLP_VECTORIZE")


def build(name: str, source: str, signature: Sequence[Any], parallel: bool) -> Callable[..., Any]:
    """The kernel called `name` in `source`, compiled for `signature` (see `policy.compile_kernel`)."""
    code = without_comments(source)
    key = (name, code, tuple(signature), parallel)
    kernel = _built.get(key)
    if kernel is None:
        refuse_unfinished()
        let_fork()
        with BUILDING:
            kernel = _built.get(key)  # another thread may have built it meanwhile
            if kernel is None:
                # Numba's state would be left in pieces: an interruption waits until this kernel is done.
                kernel = _built[key] = deferring(_compiled, name, source, code, signature, parallel)
    return kernel


def _compiled(name: str, source: str, code: str, signature: Sequence[Any], parallel: bool) -> Callable[..., Any]:
    path, kept = keep(name, source, code, parallel)
    function = function_of(path, source, name)
    if kept:
        _keep_helpers(path.parent)
    progress.builds()
    if not kept:
        progress.begin(path.stem)
    with store.released():
        return policy.compile_kernel(function, signature, parallel, _CodeFile(path) if kept else None)


def expect(kernels: Iterable[tuple[str, str, Sequence[Any], bool]]) -> None:
    """Say which kernels are about to be built, as the arguments of `build`, before the first of them is compiled."""
    if not progress.listening():
        return
    kept = store.compiled()
    for name, source, signature, parallel in kernels:
        code = without_comments(source)
        file = f"{name}_{_digest(code, parallel)}"
        if (name, code, tuple(signature), parallel) not in _built and file not in kept:
            progress.expect([file])


def without_comments(source: str) -> str:
    """The text that a kernel is known by: comments name the user's lines, whose numbers change with every edit."""
    return "\n".join(line for line in source.splitlines() if not line.lstrip().startswith("#"))


def keep(name: str, source: str, code: str, parallel: bool) -> tuple[Path, bool]:
    """Put a generated file in the cache folder, and say so where that is wanted: its path, and whether that worked."""
    tell = store.debugging()
    path, kept = store.place_of(f"{name}_{_digest(code, parallel)}.py")
    kept = kept and store.write_source(path, source)
    if kept and tell:
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
            _CodeFile(folder / f"{helper.__name__}_{digest}.py", part=True).attach(helper)


def _digest(code: str, parallel: bool) -> str:
    """The name of a kernel's files. The machine, Numba and the signature are in the code file's key."""
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


# --- compiled code ----------------------------------------------------------------------------------------------------


class _CodeFile:
    """The compiled code of one kernel on disk, in the place of the cache that Numba's dispatcher asks.

    Numba's own cache unpickles whatever it finds, takes another kernel's code if it has the right name, raises where
    its index is damaged or the disk is full, and goes to `NUMBA_CACHE_DIR`, or to a folder of its own where it cannot
    write beside the source: folders that nobody has checked. Here is one file, read only if its seal fits. The seal is
    a checksum over the code and over all that it was compiled for, so a file that was cut short, damaged, or made for
    another kernel, CPU or Numba does not get as far as being unpickled; it is compiled again and replaced.
    """

    def __init__(self, source: Path, part: bool = False) -> None:
        self._part = part
        self.cache_path = str(source.parent)  # the dispatcher's `stats` show it
        self._source = source
        self._options: dict[str, Any] = {}

    def attach(self, kernel: Any) -> None:
        """Become the cache of a kernel that has compiled nothing yet."""
        self._options = kernel.targetoptions
        kernel._cache = self

    def load_overload(self, signature: Any, target: Any) -> Any:
        """The compiled code for a signature, or None if it is not there or not to be trusted."""
        compiler: Any = imported("numba.core.compiler")

        runtime: Any = imported("numba.core.runtime")

        # Compiled code needs the runtime's functions. All else that Numba's own cache sets up first, the rules by which
        # it types and compiles, is for compiling, which sets it up itself: two thirds of the time of a first call.
        runtime.rtsys.initialize(target)
        key, path = self._place(signature, target.codegen())
        code = store.read_sealed(path, key)
        if code is None:
            store.claim(path, lambda: self._tell(elsewhere=True))
            code = store.read_sealed(path, key)  # another process has compiled it meanwhile
        # Unpickling fails where it is whole and ours, but names something that has changed under it (another SciPy).
        with contextlib.suppress(Exception):
            if code is not None:
                result = compiler.CompileResult._rebuild(target, *pickle.loads(code))
                store.release(path)
                return result
        self._tell(elsewhere=False)
        policy.import_array_functions()  # Numba compiles now
        return None

    def _tell(self, elsewhere: bool) -> None:
        """Say that this is compiled now; helper functions are part of the kernel that calls them."""
        if not self._part:
            progress.begin(self._source.stem, elsewhere)

    def save_overload(self, signature: Any, result: Any) -> None:
        """Keep what was compiled for a signature, if that is possible."""
        serialize: Any = imported("numba.core.serialize")

        if result.library.has_dynamic_globals:  # addresses of this process
            return
        key, path = self._place(signature, result.codegen)
        store.write_sealed(path, key, serialize.dumps(result._reduce()))
        store.release(path)

    def _place(self, signature: Any, codegen: Any) -> tuple[bytes, Path]:
        """All that the code depends on, as a key, and the path of its file."""
        numba: Any = imported("numba")
        llvmlite: Any = imported("llvmlite")

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
