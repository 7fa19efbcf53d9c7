"""The compiled code of helper functions on disk: what kernels call, and what shares them among threads.

They are Numba's own functions, with a dispatcher that may compile them for several signatures.
"""

from __future__ import annotations

import contextlib
import hashlib
import pickle
import sys
from pathlib import Path
from typing import Any

from snncell.interrupts import imported
from snncell.kernels import policy, store
from snncell.kernels.scalar import library_digest

# Numba's settings that change the code it makes, and that Numba's own index leaves out. Code that calls Intel's vector
# library (SVML), for one, cannot be linked where that is missing or switched off.
_SETTINGS = ("OPT", "USING_SVML", "BOUNDSCHECK", "DEBUGINFO_DEFAULT", "LOOP_VECTORIZE", "SLP_VECTORIZE")


def digest_of(code: str) -> str:
    """The name of a kernel's files, but for the machine and Numba, which are in the code file's key."""
    version = sys.modules["snncell"].__version__  # the package stands above this module, which may not import it
    return hashlib.sha256(repr((code, version, library_digest())).encode()).hexdigest()[:16]


def keep_helpers(folder: Path) -> None:
    """Let the helper functions that kernels call have files of their own: to compile them takes as long as a neuron."""
    for helper in policy.HELPERS:
        if getattr(helper._cache, "cache_path", None) != str(folder):
            digest = digest_of(helper.__name__)  # with that of the file it stands in
            _CodeFile(folder / f"{helper.__name__}_{digest}.py").attach(helper)


class _CodeFile:
    """The compiled code of one function on disk, in the place of the cache that Numba's dispatcher asks.

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
        compiler: Any = imported("numba.core.compiler")

        runtime: Any = imported("numba.core.runtime")

        # Compiled code needs the runtime's functions. All else that Numba's own cache sets up first, the rules by which
        # it types and compiles, is for compiling, which sets it up itself: two thirds of the time of a first call.
        runtime.rtsys.initialize(target)
        key, path = self._place(signature, target.codegen())
        code = store.read_sealed(path, key)
        if code is None:
            store.claim(path, lambda: None)
            code = store.read_sealed(path, key)  # another process has compiled it meanwhile
        # Unpickling fails where it is whole and ours, but names something that has changed under it (another SciPy).
        with contextlib.suppress(Exception):
            if code is not None:
                result = compiler.CompileResult._rebuild(target, *pickle.loads(code))
                store.release(path)
                return result
        policy.import_array_functions()  # Numba compiles now
        return None

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
