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


def test_files_can_be_read_by_their_owner_only(tmp_path: Path) -> None:
    # What lies in the folder is executed: nobody else may write to it.
    folder = tmp_path / "below" / "kernels"
    in_a_process(folder, NUMBA_DISABLE_JIT="1") if False else None
