"""Source and machine code of kernels: compile, cache on disk, load and link.

A kernel has two files in the cache folder, named after digests of what they depend on. `NAME_DIGEST.py` is for people,
for example in a debugger or a traceback, and is never executed. `NAME_DIGEST.KEY.nbc` is the compiled code. Loading it
means executing it, so the file is sealed with a checksum, and the folder must not be writable by other users (`files`).
`SNNCELL_DEBUG=1` prints the path of each generated file; `SNNCELL_CACHE_DIR` moves the folder.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import hashlib
import importlib.metadata
import inspect
import math
import os
import re
import sys
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from snncell.base.signals import import_once
from snncell.kernels.intrinsics import builtins
from snncell.kernels.numba import files, policy, store
from snncell.kernels.numba.native import SHARED, Code, Linked, link

# The modules from which kernels import functions; `library_digest` covers these modules.
LIBRARY = tuple(f"snncell.kernels.{name}" for name in ("intrinsics.", "scalar", "conv.transforms", "conv.taps"))
# Numba settings that change the generated code, in addition to Numba's version and the processor.
_SETTINGS = (
    *("OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "DISABLE_INTEL_SVML"),
    *("BOUNDSCHECK", "DEBUGINFO", "CPU_NAME", "CPU_FEATURES"),
)


def code_of(name: str, source: str, digested: str) -> tuple[Linked, bool]:
    """Compile or load `name(start, stop, slots)` of `source`; return it linked, and whether it was on disk.
    Cache files are named after a digest of `digested`, the part of the source that affects the kernel.
    """
    path, writable = keep(name, source, digested)

    def make() -> tuple[bytes | None, Linked]:
        code, linked = policy.compile_kernel(function_of(path, source, name), share=share)
        return None if code is None else code.pack(), linked

    return load_or_make(path, writable, "nbc", (path.stem, _machine()), _load, make)


def _load(data: bytes) -> Linked | None:
    """Link the code in a file, and the functions that it calls; return None if one of them is missing."""
    code = Code.unpack(data)
    if not all(share(name) for name in code.needs if name.startswith(SHARED)):
        return None
    return link(code, policy.provide_runtime)


_shared: dict[str, Linked] = {}


def share(symbol: str, make: Callable[[], tuple[Code | None, Linked]] | None = None) -> bool:
    """Load or compile a function that kernels call by its symbol; False if it is not on disk and there is no `make`."""
    if symbol in _shared:
        return True
    path, writable = store.place_of(f"{symbol[:40]}_{digest_of(symbol)}")
    key = _key((path.name, _machine()))
    file = path.with_name(f"{path.name}.{key.hex()[:16]}.nbc")
    data = store.read_sealed(file, key) if writable else None
    linked = None if data is None else _load(data)
    if linked is None and make is not None:
        code, linked = make()
        if writable and code is not None:
            store.write_sealed(file, key, code.pack())
    if linked is None:
        return False
    import_once("llvmlite.binding").add_symbol(symbol, linked.address)
    _shared[symbol] = linked
    return True


def load_or_make(
    path: Path,
    writable: bool,
    suffix: str,
    facts: tuple[Any, ...],
    load: Callable[[bytes], Any],
    make: Callable[[], tuple[bytes | None, Any]],
) -> tuple[Any, bool]:
    """Load the code of a generated file from the cache, or compile and store it; also return whether it was loaded.

    Args:
        path: the generated file, placed by `keep`; `writable` is False if the folder cannot be used.
        suffix: the ending of the code file.
        facts: everything that the code depends on: the digest of the source, the machine, the compiler.
        load: makes a kernel from the content of the code file, or returns None if the code cannot run here.
        make: compiles; returns a pair: the content of the code file (None if it must not be stored) and the kernel.
    """
    key = _key(facts)
    file = path.with_suffix(f".{key.hex()[:16]}.{suffix}")
    report_build()
    with store.release_claims():
        for again in range(2 if writable else 0):
            if again:  # wait for another process that compiles it now, then look again
                store.claim(file, lambda: report_compilation(path.stem, elsewhere=True))
            # The seal is a checksum over the code and the key. A file that is truncated, damaged, or made for another
            # kernel, processor or compiler fails the check; it is compiled again and replaced.
            data = store.read_sealed(file, key)
            loaded = None if data is None else load(data)
            if loaded is not None:
                return loaded, True
        report_compilation(path.stem)
        content, result = make()
        if writable and content is not None:
            store.write_sealed(file, key, content)
        return result, False


def of_slots(name: str, source: str, signature: Sequence[Any]) -> str:
    """Rewrite the signature of a kernel's source to `(start, stop, slots)`, and add a line that unpacks the arguments
    from `slots`: 64-bit words, each with a number or the address of an array object.
    """
    head = re.search(rf"^def {name}\(([^)]*)\):$", source, re.M)
    assert head is not None  # the source is generated, or comes from `source_of`
    kinds = []
    for kind in signature:
        dtype = (kind[0] if isinstance(kind, tuple) else kind).dtype.type.__name__
        kinds.append(f"{dtype}[{kind[1]}]" if isinstance(kind, tuple) else dtype)
    names = ", ".join(re.findall(r"\w+", head[1])[2:])
    lines = [
        "from snncell.kernels.intrinsics.elements import arguments",
        "",
        "arguments_of = arguments(" + repr(" ".join(kinds)) + ")",
        "",
        "",
        f"def {name}(start, stop, slots):",
        f"    [{names}] = arguments_of(slots)",
    ]
    return source[: head.start()] + "\n".join(lines) + source[head.end() :]


def source_of(kernel: Callable[..., Any], **given: Any) -> str:
    """Collect the source of a kernel function, together with the functions and constants that it reads from its module.

    A number becomes an assignment, and a function of `LIBRARY` an import. Any other function is copied into the source,
    so that the digest of the kernel covers it. `given` replaces values of names, for example `LANES` for another dtype.
    A `functools.partial` becomes a line that calls its function with its arguments. The result of this call is a
    function that the kernel calls. For example, `add_taps=partial(contraction, taps)` in `given` becomes the line
    `add_taps = contraction(Taps(...))`.
    """
    text = _Source(given)
    text.add(kernel)
    return text.join()


class _Source:
    def __init__(self, given: dict[str, Any]) -> None:
        self.given, self.imports = given, set[str]()
        self.constants: dict[str, str] = {}
        self.functions: dict[str, str] = {}
        self.aliases: dict[str, str] = {}

    def add(self, function: Any) -> None:
        """Add the text of a function, and before it everything that it reads from its module."""
        known = function.__globals__ | self.given
        read = {each.argval for each in dis.get_instructions(function) if each.opname == "LOAD_GLOBAL"}
        for name in sorted(read & known.keys()):
            if known[name] is not None:  # None: the caller of `source_of` defines it
                self._define(name, known[name])
        source = inspect.getsource(function)
        for annotation in (": Any", " -> None", " -> Any", "  # fmt: skip"):
            source = source.replace(annotation, "")
        if source.startswith("@"):  # inline or call_once
            self._import(getattr(builtins, source[1 : source.index("\n")]))
        self.functions[function.__name__] = source

    def _import(self, value: Any, name: str | None = None) -> None:
        # NumPy's functions need no digest, because Numba replaces them by its own, and KEY covers Numba's version.
        assert value.__module__.startswith((*LIBRARY, "numpy")), value
        renamed = "" if name in (None, value.__name__) else f" as {name}"
        self.imports.add(f"from {value.__module__} import {value.__name__}{renamed}")

    def _define(self, name: str, value: Any) -> None:
        if isinstance(value, (int, float)):
            line = f"{name} = {value!r}" if math.isfinite(value) else f"{name} = float('{value}')"
            # The assertion fails if two modules define the name differently.
            assert self.constants.setdefault(name, line) == line, name
        elif isinstance(value, functools.partial):
            for each in (value.func, *map(type, value.args)):
                self._import(each)
            arguments = ", ".join(map(repr, value.args))
            self.constants[name] = f"{name} = {value.func.__name__}({arguments})"
        elif isinstance(value, FunctionType) and not value.__module__.startswith(LIBRARY):
            if value.__name__ not in self.functions:
                self.add(value)
            if name != value.__name__:
                self.aliases[name] = f"{name} = {value.__name__}"
        else:
            self._import(value, name)

    def join(self) -> str:
        """Return the complete text."""
        head = [*sorted(self.imports), *([""] if self.imports and self.constants else []), *self.constants.values()]
        functions = [each.strip("\n") for each in self.functions.values()]
        parts = ["\n".join(head), *functions, "\n".join(self.aliases.values())]
        return "\n\n\n".join(part for part in parts if part) + "\n"


def digest_of(code: str) -> str:
    """The digest in a kernel's file names. The machine and Numba are in the key of the code file instead."""
    version = sys.modules["snncell"].__version__  # imports go down only, so this module must not import the package
    return hashlib.sha256(repr((code, version, library_digest())).encode()).hexdigest()[:16]


@functools.cache
def library_digest() -> str:
    """A hash of the modules that affect the code of a generated file, besides the file itself."""
    # The modules that a generated file may import, the templates of loops, and the compilation pipeline.
    folder = Path(__file__).parents[1]
    files = (
        *(f"numba/{name}.py" for name in ("lowering", "passes", "syntax")),
        "loops.py",
        "scalar.py",
        "conv/transforms.py",
        "conv/taps.py",
    )
    modules = [folder / name for name in files]
    modules += sorted((folder / "intrinsics").glob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in modules)).hexdigest()


def without_comments(source: str) -> str:
    """The source without comment lines. Comments contain the user's line numbers, which change with every edit."""
    return "\n".join(line for line in source.splitlines() if not line.lstrip().startswith("#"))


def keep(name: str, source: str, code: str) -> tuple[Path, bool]:
    """Write a generated file to the cache folder; return its path, and whether that worked."""
    tell = files.debugging()
    path, writable = store.place_of(f"{name}_{digest_of(code)}.py")
    writable = writable and store.write_source(path, source)
    if writable and tell:
        sys.stderr.write(f"snncell: {path}\n")
    return path, writable


def function_of(path: Path, source: str, name: str) -> Callable[..., Any]:
    """Execute a generated source and return its function `name`, uncompiled."""
    # The module is made from `source`, because the file on disk may be missing or replaced. Numba's code refers to the
    # module by name. So its name must be the same in every process, and it must be in `sys.modules`.
    module = ModuleType(f"_snncell_generated_{path.stem}")
    module.__file__ = str(path)
    module.__dict__["__source__"] = source  # for `syntax`
    sys.modules[module.__name__] = module
    exec(compile(source, str(path), "exec"), module.__dict__)
    function: Callable[..., Any] = getattr(module, name)
    return function


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


# --- Progress of compilation: the kernel that is being compiled, and how many are left --------------------------------

# If the compiler knows kernels in advance, it announces them by `expect_kernels`. A kernel that was not announced is
# added when its compilation begins. For example, the kernel of a sparse product depends on the number of spikes, which
# is known only at run time.

# A callback (number of the kernel from 1 on, number of all kernels, True if another process compiles it).
Report = Callable[[int, int, bool], None]


class Listener:
    """Counts the kernels of one thread, and calls `report` when the compilation of one begins."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.expected: dict[Hashable, None] = {}
        self.begun: dict[Hashable, int] = {}
        self.seen = False  # whether a kernel was compiled or loaded since the last `take`

    def take(self) -> bool:
        """True if a kernel was built since the last call; the count then restarts from 1."""
        seen, self.seen = self.seen, False
        if seen:
            self.expected, self.begun = {}, {}
        return seen


class _ThreadListener(threading.local):
    listener: Listener | None = None


_here = _ThreadListener()


@contextlib.contextmanager
def report_to(listener: Listener | None) -> Iterator[None]:
    """Context manager: report the kernels that this thread builds to a listener."""
    before, _here.listener = _here.listener, listener
    try:
        yield
    finally:
        _here.listener = before


def listening() -> bool:
    """True if this thread has a listener."""
    return _here.listener is not None


def expect_kernels(kernels: Iterable[Hashable]) -> None:
    """Announce kernels that will be compiled."""
    if _here.listener is not None:
        _here.listener.expected.update(dict.fromkeys(kernels))


def report_build() -> None:
    """Report that a kernel is built: loaded or compiled."""
    if _here.listener is not None:
        _here.listener.seen = True


def report_compilation(kernel: Hashable, elsewhere: bool = False) -> None:
    """Report that the compilation of a kernel begins, here or in another process."""
    listener = _here.listener
    if listener is not None:
        listener.expected[kernel] = None
        number = listener.begun.setdefault(kernel, len(listener.begun) + 1)
        listener.report(number, len(listener.expected), elsewhere)
