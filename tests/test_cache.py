"""Generated files and Numba's cache beside them: found again by the next process, left alone, written safely."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from snncell import Tensor, jit
from snncell.kernels import build as builder

SCRIPT = """
import sys
from snncell import Tensor, jit, ops
from snncell.kernels import build

f = jit(lambda x, s: (ops.exp(x) * s, (x * s).sum(axis=0)))
small = f(ops.ones((3, 5)), {number})
large = f(ops.ones((300, 100)), {number})
hits = sum(sum(kernel.stats.cache_hits.values()) for kernel in build._built.values())
misses = sum(sum(kernel.stats.cache_misses.values()) for kernel in build._built.values())
print(len(build._built), hits, misses, small[1].tolist()[0], large[1].tolist()[0])
"""


def in_a_process(folder: Path, number: float = 2.0, **environment: str) -> tuple[list[str], str]:
    """What the script prints in a process of its own: its words, and what it says on stderr."""
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
    """Files by name with the times they were written."""
    return {path.name: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.mark.compiled
def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    (kernels, hits, misses, *results), _ = in_a_process(tmp_path)
    assert int(kernels) > 0 and int(hits) == 0 and misses == kernels
    before = listing(tmp_path)
    assert sum(name.endswith(".nbc") for name in before) == int(kernels)

    (again, hits, misses, *same), _ = in_a_process(tmp_path)
    assert (again, hits, misses) == (kernels, kernels, "0")
    assert same == results == ["6.0", "600.0"]
    assert listing(tmp_path) == before


@pytest.mark.compiled
def test_another_number_compiles_nothing(tmp_path: Path) -> None:
    (kernels, *_), _ = in_a_process(tmp_path)
    (_, hits, misses, *results), _ = in_a_process(tmp_path, number=2.5)
    assert (hits, misses) == (kernels, "0")
    assert results == ["7.5", "750.0"]


@pytest.mark.compiled
def test_debug_prints_the_path_of_each_generated_file(tmp_path: Path) -> None:
    (kernels, *_), said = in_a_process(tmp_path, SNNCELL_DEBUG="1")
    paths = [Path(line.removeprefix("snncell: ")) for line in said.splitlines() if line.startswith("snncell: ")]
    assert len(paths) == int(kernels)
    assert all(path.parent == tmp_path and path.is_file() for path in paths)
    assert all(f"def {path.stem.rsplit('_', 1)[0]}(" in path.read_text(encoding="utf-8") for path in paths)
    _, quiet = in_a_process(tmp_path, SNNCELL_DEBUG="0")
    assert quiet == ""


# --- the files --------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder for this test alone."""
    chosen = tmp_path / "below" / "kernels"
    monkeypatch.setenv("SNNCELL_CACHE_DIR", str(chosen))
    monkeypatch.setattr(builder, "_fallback", None)
    monkeypatch.setattr(builder, "_built", {})
    return chosen


def test_the_folder_belongs_to_its_owner(folder: Path) -> None:
    builder._write("a.py", "x = 1\n")
    assert folder.stat().st_mode & 0o077 == 0  # what lies in it is executed


def test_an_equal_file_is_left_alone(folder: Path) -> None:
    path = builder._write("a.py", "x = 1\n")
    os.utime(path, ns=(1_000_000_000, 1_000_000_000))
    assert builder._write("a.py", "x = 1\n") == path
    assert path.stat().st_mtime_ns == 1_000_000_000  # Numba's index goes by the time


def test_a_changed_file_of_the_same_name_is_rewritten(folder: Path) -> None:
    path = builder._write("a.py", "x = 1\n")
    os.utime(path, ns=(1_000_000_000, 1_000_000_000))
    path.write_text("x = 2  # damaged\n", encoding="utf-8")
    assert builder._write("a.py", "x = 1\n") == path
    assert path.read_text(encoding="utf-8") == "x = 1\n"
    assert listing(folder).keys() == {"a.py"}  # no temporary file stays


def test_a_truncated_kernel_file_is_repaired_by_the_next_process(folder: Path) -> None:
    jit(lambda x: x * 3.5 - 0.25)(Tensor([1.0]))
    (path,) = folder.glob("loop_*.py")
    source = path.read_text(encoding="utf-8")
    path.write_text(source[: len(source) // 2], encoding="utf-8")
    builder._built.clear()
    assert jit(lambda x: x * 3.5 - 0.25)(Tensor([1.0])).item() == 3.25
    assert path.read_text(encoding="utf-8") == source


def test_equal_computations_share_one_file_and_one_kernel(folder: Path) -> None:
    first = jit(lambda x: x * 3.5 - 0.125)
    second = jit(lambda y: y * 9.5 - 0.625)  # other names, other numbers
    first(Tensor([1.0])), second(Tensor([1.0]))
    assert len(list(folder.glob("loop_*.py"))) == len(builder._built) == 1


# --- a folder that cannot be written ----------------------------------------------------------------------------------


@pytest.fixture
def blocked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder below a regular file: nobody can create it, not even root."""
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    chosen = tmp_path / "file" / "kernels"
    monkeypatch.setenv("SNNCELL_CACHE_DIR", str(chosen))
    monkeypatch.setattr(builder, "_fallback", None)
    monkeypatch.setattr(builder, "_built", {})
    return chosen


def test_an_unwritable_folder_warns_once_and_works(blocked: Path) -> None:
    x = Tensor(np.arange(3, dtype=np.float32))
    with pytest.warns(RuntimeWarning, match="cannot be written.*Set SNNCELL_CACHE_DIR") as said:
        first = jit(lambda x: x * 2.0 + 1.0)(x)
    assert str(blocked) in str(said[0].message)
    second = jit(lambda x: x - 7.0)(x)  # another kernel; a second warning would be an error
    assert len(said) == 1
    assert first.tolist() == [1.0, 3.0, 5.0]
    assert second.tolist() == [-7.0, -6.0, -5.0]


def test_a_folder_for_kernels_that_are_not_kept_does_not_stay(blocked: Path) -> None:
    script = "from snncell.kernels import build; print(build._write('a.py', 'x = 1'))"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        env={**os.environ, "SNNCELL_CACHE_DIR": str(blocked)},
        capture_output=True,
        text=True,
        check=True,
    )
    written = Path(done.stdout.strip())
    assert written.name == "a.py"
    assert not written.parent.exists()
