"""Generated files and their compiled code: reused by the next process, verified before use, written safely."""

from __future__ import annotations

import errno
import importlib.metadata
import os
import pickle
import shutil
import stat
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llvmlite import binding

import snncell
from snncell import Tensor, jit
from snncell.errors import CacheError, SnncellError
from snncell.kernels.numba import build as builder, code as codes, files, store
from snncell.kernels.numba.code import digest_of
from snncell.kernels.numba.native import Code

SCRIPT = """
import sys
import numpy as np
import snncell
from snncell import Tensor, jit, nn, ops
from snncell.kernels.numba import build, policy

compiled, compile_kernel = [], policy.compile_kernel

def counted(function, **rest):
    compiled.append(function.__name__)
    return compile_kernel(function, **rest)

policy.compile_kernel = counted
net = nn.SequentialCell(nn.Dense(5, 4), nn.MultiStep(nn.LIFNode()))
optimizer = nn.Adam(net.trainable_params(), 1e-3)
gradient = snncell.value_and_grad(lambda x: (net(x).mean(0) ** 2).sum(), None, net.trainable_params())

@jit
def step(x):
    loss, grads = gradient(x)
    optimizer(grads)
    return loss

assert np.isfinite(step(Tensor(np.ones((6, 3, 5), np.float32))).item())
f = jit(lambda x, s: (ops.exp(x) * s, (x * s).sum(axis=0)))
small = f(ops.ones((3, 5)), {number})
numba = "numba" in sys.modules
large = f(ops.ones((300, 1000)), {number})
hits = sum(kernel.loaded for kernel in build._built.values())
misses = sum(not kernel.loaded for kernel in build._built.values())
assert (len(compiled) > misses) == ("launch" in compiled)
print(len(build._built), hits, misses, len(compiled), numba, small[1].tolist()[0], large[1].tolist()[0])
"""


def in_a_process(folder: Path, number: float = 2.0, **environment: str) -> tuple[list[str], str]:
    """Return the words that the script prints in a separate process, and its stderr."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT.format(number=number)],
        env={**os.environ, "SNNCELL_CACHE_DIR": str(folder), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split(), done.stderr


def listing(folder: Path) -> dict[str, int]:
    """Map file names to modification times."""
    return {path.name: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.mark.compiled
def test_second_process_compiles_nothing_and_imports_numba_only_for_threads(tmp_path: Path) -> None:
    (kernels, hits, misses, compiled, numba, *results), _ = in_a_process(tmp_path)
    assert int(kernels) > 0 and int(hits) == 0 and misses == kernels and numba == "True"
    assert int(compiled) == int(kernels) + 1  # and the launcher, which shares units among threads
    before = listing(tmp_path)
    assert sum(name.endswith(".py") for name in before) == int(compiled)

    (again, hits, misses, compiled, numba, *same), _ = in_a_process(tmp_path)
    assert (again, hits, misses, compiled, numba) == (kernels, kernels, "0", "0", "False")
    assert same == results == ["6.0", "600.0"]
    assert listing(tmp_path) == before


@pytest.mark.slow
@pytest.mark.compiled
def test_other_constants_compile_nothing(tmp_path: Path) -> None:
    (kernels, *_), _ = in_a_process(tmp_path)
    (_, hits, misses, *_, small, large), _ = in_a_process(tmp_path, number=2.5)
    assert (hits, misses) == (kernels, "0")
    assert (small, large) == ("7.5", "750.0")


@pytest.mark.slow
@pytest.mark.compiled
def test_debug_prints_the_path_of_each_generated_file(tmp_path: Path) -> None:
    (kernels, *_), said = in_a_process(tmp_path, SNNCELL_DEBUG="1")
    paths = [Path(line.removeprefix("snncell: ")) for line in said.splitlines() if line.startswith("snncell: ")]
    assert len(paths) == int(kernels) + 1  # and the launcher
    assert all(path.parent == tmp_path and path.is_file() for path in paths)
    assert all(f"def {path.stem.rsplit('_', 1)[0]}(" in path.read_text(encoding="utf-8") for path in paths)
    _, quiet = in_a_process(tmp_path, SNNCELL_DEBUG="0")
    assert quiet == ""


# --- the key ----------------------------------------------------------------------------------------------------------

SMALL = """
import sys
import snncell
from snncell.kernels.numba import build

if "wait" in sys.argv:
    import numba
    print("ready", flush=True)
    sys.stdin.readline()
f = snncell.jit(lambda x: snncell.ops.exp(x * 0.0) + x * 3.5)
value = f(snncell.Tensor([1.0])).item()
(kernel,) = build._built.values()
print(value, int(kernel.loaded), int(not kernel.loaded))
"""
COMPILED, LOADED = "4.5 0 1", "4.5 1 0"  # the value, and whether the cache had the code


def load_small_kernel(folder: Path, **environment: str) -> str:
    """Return whether a separate process compiles or loads a small kernel."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SMALL],
        env={**os.environ, "SNNCELL_CACHE_DIR": str(folder), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def small_kernel_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder that contains the small kernel."""
    folder = tmp_path_factory.mktemp("kept")
    assert load_small_kernel(folder) == COMPILED
    return folder


@pytest.mark.slow
@pytest.mark.compiled
@pytest.mark.parametrize("name", ["NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_OPT"])
def test_code_for_another_cpu_or_setting_is_not_loaded(small_kernel_folder: Path, name: str) -> None:
    fewer = binding.get_host_cpu_features().flatten().rpartition(",")[0]
    value = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": fewer, "NUMBA_OPT": "1"}[name]
    assert load_small_kernel(small_kernel_folder, **{name: value}) == COMPILED
    assert load_small_kernel(small_kernel_folder, **{name: value}) == LOADED
    assert load_small_kernel(small_kernel_folder) == LOADED  # the new code does not replace this one


@pytest.mark.slow
@pytest.mark.compiled
def test_numba_cache_folder_is_not_used(small_kernel_folder: Path, tmp_path: Path) -> None:
    assert load_small_kernel(small_kernel_folder, NUMBA_CACHE_DIR=str(tmp_path / "numba")) == LOADED
    assert load_small_kernel(tmp_path / "fresh", NUMBA_CACHE_DIR=str(tmp_path / "numba")) == COMPILED
    assert not (tmp_path / "numba").exists()


def test_file_name_depends_on_source_version_and_mathematics(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {digest_of("x = 1\n"), digest_of("x = 2\n")}
    with monkeypatch.context() as patch:
        patch.setattr(snncell, "__version__", "0.0.0")
        names.add(digest_of("x = 1\n"))
    with monkeypatch.context() as patch:
        patch.setattr(codes, "library_digest", lambda: "another")
        names.add(digest_of("x = 1\n"))
    assert len(names) == 4
    assert digest_of("x = 1\n") in names


@pytest.fixture
def machine() -> Iterator[None]:
    """Detect the machine anew within the test and after it."""
    codes._machine.cache_clear()
    yield
    codes._machine.cache_clear()


@pytest.mark.compiled
@pytest.mark.parametrize("package", ["numba", "llvmlite"])
def test_code_of_another_compiler_is_not_loaded(
    folder: Path, package: str, machine: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compute() == 3.25
    version = importlib.metadata.version
    codes._machine.cache_clear()
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.0" if name == package else version(name))
    builder._built.clear()
    assert compute() == 3.25
    assert counts() == (0, 1)


@pytest.mark.compiled
@pytest.mark.parametrize(
    "setting",
    [
        *("OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "DISABLE_INTEL_SVML"),
        *("BOUNDSCHECK", "DEBUGINFO", "CPU_NAME", "CPU_FEATURES"),
    ],
)
def test_code_of_another_compiler_setting_is_not_loaded(
    folder: Path, setting: str, machine: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compute() == 3.25
    codes._machine.cache_clear()
    monkeypatch.setenv(f"NUMBA_{setting}", "0")
    builder._built.clear()
    assert compute() == 3.25
    assert counts() == (0, 1)


# --- two processes at once --------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.compiled
def test_two_processes_compile_a_shared_kernel_once(tmp_path: Path) -> None:
    both = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", SMALL, "wait"],
            env={**os.environ, "SNNCELL_CACHE_DIR": str(tmp_path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for process in both:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in both:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate(timeout=60)[0].strip() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sorted(said) == sorted([COMPILED, LOADED])  # the second process waits for the file of the first
    assert load_small_kernel(tmp_path) == LOADED
    assert sorted(path.suffix for path in tmp_path.rglob("*")) == [".nbc", ".py"]


# --- the files --------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder for this test alone."""
    chosen = tmp_path / "below" / "kernels"
    monkeypatch.setenv("SNNCELL_CACHE_DIR", str(chosen))
    monkeypatch.setattr(files, "_warned", False)
    monkeypatch.setattr(builder, "_built", {})
    return chosen


def compute() -> float:
    """Return a kernel's value. Each call traces the computation anew and finds the same kernel."""
    return float(jit(lambda x: x * 3.5 - 0.25)(Tensor([1.0])).item())


def again() -> float:
    """Return the value after the kernel was dropped from memory, as in a new process."""
    builder._built.clear()
    return compute()


def counts() -> tuple[int, int]:
    """Return how often the one kernel in memory was loaded, and compiled."""
    (kernel,) = builder._built.values()
    loaded: bool = kernel.loaded  # type: ignore[attr-defined]
    return int(loaded), int(not loaded)


def test_folder_and_files_are_accessible_only_to_their_owner(folder: Path) -> None:
    assert compute() == 3.25
    paths = [folder, *folder.rglob("*")]
    assert len(paths) >= 2
    assert all(path.stat().st_mode & 0o077 == 0 for path in paths)  # because the files are executed


def test_equal_file_is_not_rewritten(folder: Path) -> None:
    folder.mkdir(parents=True, mode=0o700)
    path = folder / "a.py"
    assert store.write_source(path, "x = 1\n")
    before = path.stat()
    assert store.write_source(path, "x = 1\n")
    assert path.stat() == before


@pytest.mark.parametrize("content", [b"", b"x = 2  # another\n", b"x = ", b"\xff\x00"])
def test_changed_file_of_the_same_name_is_rewritten(folder: Path, content: bytes) -> None:
    path = folder / "a.py"
    store.write_source(path, "x = 1\n")
    path.write_bytes(content)
    assert store.write_source(path, "x = 1\n")
    assert path.read_text(encoding="utf-8") == "x = 1\n"
    assert listing(folder).keys() == {"a.py"}  # no temporary file remains


def test_damaged_generated_file_is_repaired_and_never_run(folder: Path) -> None:
    assert compute() == 3.25
    (path,) = folder.glob("loop_*.py")
    source = path.read_text(encoding="utf-8")
    for damaged in (source[: len(source) // 2], source.replace("*", "+"), "raise SystemExit"):
        assert damaged != source
        path.write_text(damaged, encoding="utf-8")
        assert again() == 3.25
        assert path.read_text(encoding="utf-8") == source


def test_folder_named_like_a_generated_file_is_tolerated(folder: Path) -> None:
    assert compute() == 3.25
    (path,) = folder.glob("loop_*.py")
    path.unlink()
    path.mkdir()
    with pytest.warns(RuntimeWarning, match="cannot be written"):
        assert again() == 3.25


def test_equal_computations_share_one_file_and_one_kernel(folder: Path) -> None:
    first = jit(lambda x: x * 3.5 - 0.125)
    second = jit(lambda y: y * 9.5 - 0.625)  # other names, other numbers
    first(Tensor([1.0])), second(Tensor([1.0]))
    assert len(list(folder.glob("loop_*.py"))) == len(builder._built) == 1


@pytest.mark.compiled
def test_changed_comments_in_generated_code_compile_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compute()
    ((name, source, signature),) = builder._built
    (path,) = folder.glob("loop_*.py")
    builder._built.clear()
    commented = source.replace("    for ", "    # user.py:7: x = 3\n    for ", 1)
    assert commented != source
    builder.build(name, commented, signature)
    assert counts() == (1, 0)
    assert path.read_text(encoding="utf-8") == codes.of_slots(name, commented, signature)  # the file is for readers
    builder.build(name, source, signature)
    assert len(builder._built) == 1


# --- damaged code -----------------------------------------------------------------------------------------------------


class Bomb:
    """An object that creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "cut within the seal": lambda content: content[:10],
    "the seal alone": lambda content: content[:32],
    "cut in the middle": lambda content: content[: len(content) // 2],
    "one byte short": lambda content: content[:-1],
    "one byte more": lambda content: content + b"\0",
    "one byte changed": lambda content: content[:400] + bytes([content[400] ^ 1]) + content[401:],
    "zeros": lambda content: bytes(len(content)),
    "text": lambda content: b"damaged",
}


@pytest.mark.compiled
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_code_is_compiled_again(folder: Path, damage: str) -> None:
    assert compute() == 3.25
    (path,) = folder.glob("*.nbc")
    content = path.read_bytes()
    assert again() == 3.25 and counts() == (1, 0)
    path.write_bytes(DAMAGES[damage](content))
    assert again() == 3.25 and counts() == (0, 1)
    assert again() == 3.25 and counts() == (1, 0)  # it was replaced
    assert len(listing(folder)) == 2


@pytest.mark.compiled
def test_foreign_pickle_is_not_loaded(folder: Path, tmp_path: Path) -> None:
    assert compute() == 3.25
    (path,) = folder.glob("*.nbc")
    bomb = pickle.dumps(Bomb(tmp_path / "exploded"))
    for content in (bomb, files.seal(b"", bomb), path.read_bytes()[:32] + bomb):
        path.write_bytes(content)
        assert again() == 3.25 and counts() == (0, 1)
    assert not (tmp_path / "exploded").exists()
    pickle.loads(bomb)
    assert (tmp_path / "exploded").exists()  # an unpickled object would leave this file


@pytest.mark.compiled
def test_code_of_another_kernel_is_not_loaded(folder: Path) -> None:
    compute()
    (path,) = folder.glob("*.nbc")
    jit(lambda x: x * 3.5 + 0.25)(Tensor([1.0]))  # with the same signature
    (other,) = set(folder.glob("*.nbc")) - {path}
    shutil.copyfile(other, path)
    assert again() == 3.25 and counts() == (0, 1)


@pytest.mark.compiled
def test_missing_source_or_code_file_is_restored(folder: Path) -> None:
    compute()
    (code,), (source,) = folder.glob("*.nbc"), folder.glob("*.py")
    source.unlink()
    assert again() == 3.25 and counts() == (1, 0) and source.exists()
    code.unlink()
    assert again() == 3.25 and counts() == (0, 1) and code.exists()


@pytest.mark.compiled
def test_valid_code_that_does_not_link_is_compiled_again(folder: Path) -> None:
    compute()
    (path,) = folder.glob("*.nbc")
    (source,) = folder.glob("*.py")
    code = Code("a_symbol", ("a_library_that_has_gone",), b"").pack()
    path.write_bytes(files.seal(codes._key((source.stem, codes._machine())), code))
    assert again() == 3.25 and counts() == (0, 1)
    assert again() == 3.25 and counts() == (1, 0)


@pytest.mark.compiled
def test_cache_emptied_by_another_process_is_refilled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load = codes.function_of

    def emptied(path: Path, source: str, name: str) -> Any:
        shutil.rmtree(folder)  # by another process, between the two files
        return load(path, source, name)

    monkeypatch.setattr(codes, "function_of", emptied)
    assert compute() == 3.25
    monkeypatch.setattr(codes, "function_of", load)
    assert again() == 3.25 and counts() == (1, 0)


# --- a folder that others can write -----------------------------------------------------------------------------------

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="Windows: mode bits do not say who may write")


@POSIX
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o720, 0o702])
def test_folder_writable_by_others_is_rejected(folder: Path, mode: int) -> None:
    folder.mkdir(parents=True)
    folder.chmod(mode)
    with pytest.raises(CacheError, match=r"other users than its owner can write it") as refused:
        compute()
    assert isinstance(refused.value, SnncellError) and isinstance(refused.value, PermissionError)
    said = str(refused.value)
    assert str(folder) in said and f"chmod go-w {folder}" in said and "SNNCELL_CACHE_DIR" in said
    assert listing(folder) == {}
    folder.chmod(0o755)  # others can read
    assert compute() == 3.25


@POSIX
@pytest.mark.compiled
def test_folder_made_writable_by_others_later_is_rejected(folder: Path) -> None:
    assert compute() == 3.25
    folder.chmod(0o777)
    with pytest.raises(CacheError, match="other users than its owner"):
        again()


@POSIX
@pytest.mark.parametrize(
    ("owner", "mode", "said"),
    [
        ("own", 0o700, None),
        ("own", 0o755, None),
        ("own", 0o775, "other users than its owner can write it (mode 775)"),
        ("root", 0o755, None),
        ("root", 0o1777, "other users than its owner can write it (mode 777)"),
        ("another", 0o700, "it belongs to another user"),
    ],
)
def test_only_own_and_root_folders_are_trusted(owner: str, mode: int, said: str | None) -> None:
    number = {"own": os.geteuid(), "root": 0, "another": os.geteuid() + 1}[owner]
    doubt = files.doubt(os.stat_result((stat.S_IFDIR | mode, 0, 0, 1, number, 0, 0, 0, 0, 0)))
    assert doubt is None if said is None else doubt is not None and said in doubt


@POSIX
def test_folder_of_another_user_is_rejected(folder: Path) -> None:
    folder.mkdir(parents=True)
    try:
        os.chown(folder, os.geteuid() + 1, -1)
    except PermissionError:
        pytest.skip("only root can give a folder away")
    with pytest.raises(CacheError, match="belongs to another user"):
        compute()


@POSIX
@pytest.mark.compiled
def test_code_file_writable_by_others_is_compiled_again(folder: Path) -> None:
    compute()
    (path,) = folder.glob("*.nbc")
    path.chmod(0o666)
    assert again() == 3.25 and counts() == (0, 1)
    assert again() == 3.25 and counts() == (1, 0)
    assert path.stat().st_mode & 0o022 == 0


# --- a folder that cannot be written ----------------------------------------------------------------------------------


@pytest.fixture
def blocked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder below a regular file, so that nobody can create it, not even root."""
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    chosen = tmp_path / "file" / "kernels"
    monkeypatch.setenv("SNNCELL_CACHE_DIR", str(chosen))
    monkeypatch.setattr(files, "_warned", False)
    monkeypatch.setattr(builder, "_built", {})
    return chosen


def test_unwritable_folder_warns_once_and_compiles_in_memory(blocked: Path) -> None:
    x = Tensor(np.arange(3, dtype=np.float32))
    with pytest.warns(RuntimeWarning, match="cannot be written.*Set SNNCELL_CACHE_DIR") as said:
        first = jit(lambda x: x * 2.0 + 1.0)(x)
    assert str(blocked) in str(said[0].message)
    second = jit(lambda x: x - 7.0)(x)  # another kernel; a second warning would be an error
    assert len(said) == 1
    assert first.tolist() == [1.0, 3.0, 5.0]
    assert second.tolist() == [-7.0, -6.0, -5.0]


def test_parallel_loops_work_without_a_folder(blocked: Path) -> None:
    x = Tensor(np.full((300, 1000), 2.0, dtype=np.float32))
    with pytest.warns(RuntimeWarning, match="cannot be written"):
        total = jit(lambda x: (x * 2.0 + 1.0).sum())(x)
    assert total.item() == 1_500_000.0


def no_new_file(number: int) -> Any:
    """An `os.open` that reads but creates no files."""
    usual = os.open

    def opened(path: Any, flags: int, *more: Any) -> int:
        if flags & os.O_CREAT:
            raise OSError(number, os.strerror(number))
        return usual(path, flags, *more)

    return opened


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("step", ["replace", "open"])
def test_full_or_read_only_disk_warns_once_and_works(
    folder: Path, number: int, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, step, no_new_file(number) if step == "open" else failing)
        with pytest.warns(RuntimeWarning, match="compiled kernels of this process are not kept") as said:
            assert (compute(), again()) == (3.25, 3.25)
        assert len(said) == 1 and os.strerror(number) in str(said[0].message)
        assert listing(folder) == {}
    assert again() == 3.25  # with free space again, the cache is used
    assert listing(folder)


@pytest.mark.compiled
def test_disk_full_while_saving_code_warns_once_and_works(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = files.write

    def full(path: Path, content: bytes) -> None:
        if path.suffix == ".nbc":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, content)

    monkeypatch.setattr(files, "write", full)
    with pytest.warns(RuntimeWarning, match="not kept") as said:
        assert (compute(), again()) == (3.25, 3.25)
    assert len(said) == 1 and counts() == (0, 1)


LIMITED = """
import resource, warnings
import snncell

resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))  # enough for source, not for code
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    f, g = snncell.jit(lambda x: x * 3.5), snncell.jit(lambda x: x + 3.5)
    print(f(snncell.Tensor([1.0])).item(), g(snncell.Tensor([1.0])).item(), len(said))
"""


@POSIX
@pytest.mark.compiled
def test_unfinished_file_is_removed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED],
        env={**os.environ, "SNNCELL_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["3.5", "4.5", "1"]
    assert {path.suffix for path in tmp_path.rglob("*")} == {".py"}


@pytest.mark.compiled
def test_full_read_only_cache_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compute()
    monkeypatch.setattr(os, "open", no_new_file(errno.EROFS))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert again() == 3.25
    assert counts() == (1, 0)
