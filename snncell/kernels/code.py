"""The machine code of a generated file: from the cache folder, or compiled and put there; linked in either case.

A kernel has two files in the folder, both named by a digest of what they hold. `NAME_DIGEST.py` is for people (a
debugger, a traceback): it is written, never run. `NAME_DIGEST.KEY.nbc` is the compiled code. To load it is to run what
it says, hence it is sealed with a checksum, and the folder must be one that nobody else can write: another is refused
(`store`).
`SNNCELL_DEBUG=1` prints the path of each generated file; `SNNCELL_CACHE_DIR` moves the folder.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import inspect
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from snncell.base.signals import import_once
from snncell.kernels import policy, progress, store
from snncell.kernels.native import Code, Linked, link
from snncell.kernels.scalar import library_digest

# Settings that change the code that Numba makes, beside its version and the processor.
_SETTINGS = (
    *("OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "DISABLE_INTEL_SVML"),
    *("BOUNDSCHECK", "DEBUGINFO", "CPU_NAME", "CPU_FEATURES"),
)


def code_of(name: str, source: str, digested: str, *, threads: bool = False) -> tuple[Linked, bool]:
    """The code of the function `name(start, stop, slots)` of a file, linked, and whether it was on disk.

    Its files are named by `digested`, what of the source counts; with `threads` it has a `prange`.
    """
    path, writable = keep(name, source, digested)

    def load(data: bytes) -> Linked | None:
        return link(Code.unpacked(data), policy.provide_runtime)

    def make() -> tuple[bytes | None, Linked]:
        code, linked = policy.compile_kernel(function_of(path, source, name), threads=threads)
        return None if code is None else code.packed(), linked

    return load_or_make(path, writable, "nbc", (path.stem, _machine()), load, make)


def load_or_make(
    path: Path,
    writable: bool,
    suffix: str,
    facts: tuple[Any, ...],
    load: Callable[[bytes], Any],
    make: Callable[[], tuple[bytes | None, Any]],
) -> tuple[Any, bool]:
    """The code of a generated file that `keep` has placed, from the folder or made and put there; and if it was there.

    `facts` are all that it depends on: the source, by its digest in the name, the machine, the compiler. `load` makes
    of a file's content what is used, or None if it cannot be used here; `make` gives both, no content if it stays here.
    """
    key = _key(facts)
    file = path.with_suffix(f".{key.hex()[:16]}.{suffix}")
    progress.builds()
    with store.release_claims():
        for again in range(2 if writable else 0):
            if again:  # whoever compiles it now is waited for, and then it may be there
                store.claim(file, lambda: progress.begin(path.stem, elsewhere=True))
            # Its seal is a checksum over the code and the key: what was cut short, damaged, or made for another
            # kernel, processor or compiler is not run, but made again and replaced.
            data = store.read_sealed(file, key)
            loaded = None if data is None else load(data)
            if loaded is not None:
                return loaded, True
        progress.begin(path.stem)
        content, result = make()
        if writable and content is not None:
            store.write_sealed(file, key, content)
        return result, False


def of_slots(name: str, source: str, signature: Sequence[Any]) -> str:
    """The source with a function that takes its arguments from slots, as compiled kernels do."""
    head = re.search(rf"^def {name}\(([^)]*)\):$", source, re.M)
    assert head is not None  # it is generated, or has come from `source_of`
    kinds = []
    for kind in signature:
        dtype = (kind[0] if isinstance(kind, tuple) else kind).dtype.type.__name__
        kinds.append(f"{dtype}[{kind[1]}]" if isinstance(kind, tuple) else dtype)
    names = ", ".join(re.findall(r"\w+", head[1])[2:])
    lines = [
        "from snncell.kernels.cpu.arguments import arguments",
        "",
        "arguments_of = arguments(" + repr(" ".join(kinds)) + ")",
        "",
        "",
        f"def {name}(start, stop, slots):",
        f"    [{names}] = arguments_of(slots)",
    ]
    return source[: head.start()] + "\n".join(lines) + source[head.end() :]


def source_of(function: Callable[..., Any]) -> str:
    """The source of a function that is compiled from it, without annotations."""
    source = inspect.getsource(function)
    for annotation in (": Any", " -> None", " -> Any", "  # fmt: skip"):
        source = source.replace(annotation, "")
    return source


def digest_of(code: str) -> str:
    """The name of a kernel's files, but for the machine and Numba, which are in the code file's key."""
    version = sys.modules["snncell"].__version__  # the package stands above this module, which may not import it
    return hashlib.sha256(repr((code, version, library_digest())).encode()).hexdigest()[:16]


def without_comments(source: str) -> str:
    """The text that a kernel is known by: comments name the user's lines, whose numbers change with every edit."""
    return "\n".join(line for line in source.splitlines() if not line.lstrip().startswith("#"))


def keep(name: str, source: str, code: str) -> tuple[Path, bool]:
    """Put a generated file in the cache folder, and say so where that is wanted: its path, and whether that worked."""
    tell = store.debugging()
    path, writable = store.place_of(f"{name}_{digest_of(code)}.py")
    writable = writable and store.write_source(path, source)
    if writable and tell:
        sys.stderr.write(f"snncell: {path}\n")
    return path, writable


def function_of(path: Path, source: str, name: str) -> Callable[..., Any]:
    """The function `name` of a generated file, not compiled."""
    function: Callable[..., Any] = getattr(_load(path, source), name)
    return function


def _load(path: Path, source: str) -> ModuleType:
    """The module of a generated file, made from the source at hand: the file may be another's by now, or missing."""
    # Its name is the same in every process, and it is among the loaded ones: Numba's code refers to it by name.
    module = ModuleType(f"_snncell_generated_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    exec(compile(source, str(path), "exec"), module.__dict__)
    return module


def _key(facts: tuple[Any, ...]) -> bytes:
    return hashlib.sha256(repr(facts).encode()).digest()


@functools.cache
def _machine() -> tuple[Any, ...]:
    llvm: Any = import_once("llvmlite.binding")
    return (
        llvm.get_process_triple(),
        llvm.get_host_cpu_name(),
        llvm.get_host_cpu_features().flatten(),
        (sys.implementation.cache_tag, getattr(sys, "abiflags", ""), object.__basicsize__),
        [importlib.metadata.version(package) for package in ("numba", "llvmlite")],
        [os.environ.get(f"NUMBA_{name}") for name in _SETTINGS],
    )
