"""`python -m benchmarks`: a row of each kind runs, is checked and appears in the table; this test measures no times."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from snncell import Tensor

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))  # last: the package that is tested is the installed one

from benchmarks import cost_model, sweeps  # noqa: E402
from benchmarks.checking import agree  # noqa: E402
from benchmarks.measure import Timing, fastest_peer  # noqa: E402
from benchmarks.rows import ROWS  # noqa: E402
from benchmarks.tables import BEGIN, END, put_between_markers, summary  # noqa: E402

SLOW = pytest.mark.slow


@pytest.mark.compiled
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in ("lif", "linear-512", "max-pool") else [SLOW]) for n in ROWS]
)
def test_row_runs_at_checked_size(name: str) -> None:
    row = ROWS[name]
    assert row.compare([]) == []
    contestants = row.made(row.checked, [])
    assert list(contestants) == [each for each in row.contestants if each.startswith("snncell")]
    found = contestants["snncell"].results()
    assert agree(name, found, found)
    contestants["snncell"].once()


@pytest.mark.compiled
def test_command_prints_table(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "--quick", "--rows", "max-pool", "--peers", "none"]
    command += ["--write", str(tmp_path), "--json", str(tmp_path / "found.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ})
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "frameworks.md").read_text(encoding="utf-8")
    for words in ("- command: python -m benchmarks --quick", "- versions: Python", "| max pooling 2x2", "first call"):
        assert words in page and words in done.stdout


@SLOW
@pytest.mark.compiled
def test_cost_model_prints_table() -> None:
    lines = cost_model.table(True).splitlines()
    assert len(lines) > 20 and all(line.count("|") == 9 for line in lines[2:])


def test_different_results_are_rejected() -> None:
    spikes = np.zeros((4, 100), np.float32)
    spikes[0] = 1.0
    mine = {"spikes": Tensor(spikes), "gradient 0": Tensor([1.0, 2.0])}
    assert "0 of 400 spikes differ" in agree("peer", mine, {"spikes": spikes, "gradient 0": np.array([1.0, 2.0])})
    assert "not compared: gradient 0" in agree("peer", mine, {"spikes": spikes})
    faults = {
        "gradient 0 differs": {"spikes": spikes, "gradient 0": np.array([1.0, 2.01])},
        "of the spikes differ": {"spikes": np.roll(spikes, 1, 0), "gradient 0": np.array([1.0, 2.0])},
        r"is \(3,\)": {"spikes": spikes, "gradient 0": np.zeros(3)},
        "finds": {"else": spikes},
    }
    for words, theirs in faults.items():
        with pytest.raises(ValueError, match=words):
            agree("peer", mine, theirs)
    with pytest.raises(ValueError, match="compares little"):
        agree("peer", {"spikes": 0 * spikes}, {"spikes": 0 * spikes})


def timing(contestant: str, seconds: float) -> Timing:
    return Timing(contestant, seconds, seconds, seconds, seconds / 0.01, 3)


def test_fastest_peer_is_another_framework(tmp_path: Path) -> None:
    timings = [timing("snncell", 0.01), timing("snncell, otherwise", 0.001), timing("JAX", 0.04), timing("Norse", 0.1)]
    best = fastest_peer(timings)
    assert best is not None and best.contestant == "JAX"
    assert fastest_peer(timings[:2]) is None
    table = summary(ROWS, {"lif": timings, "adaptive": timings[:1]})
    assert "| 10 ms | JAX | 40 ms | **4.00** | 5 |" in table
    file = tmp_path / "page.md"
    file.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    assert put_between_markers(file, table) and put_between_markers(file, table)
    text = file.read_text(encoding="utf-8")
    assert "old" not in text and text.startswith("before\n") and text.endswith("after\n") and text.count(table) == 1
    file.write_text("no markers", encoding="utf-8")
    assert not put_between_markers(file, table)


def test_growth_is_exponent_of_fit() -> None:
    points = {float(x): [timing("snncell", 1e-3 * x**2)] for x in (1, 2, 4, 8)}
    assert sweeps.growth(points, "snncell") == pytest.approx(2.0)
    assert "x^2.00" in sweeps.table("n", points)
    assert sweeps.growth({1.0: points[1.0]}, "snncell") is None


def test_cost_model_page_has_markers_for_table() -> None:
    text = (ROOT / "docs/cost-model.md").read_text(encoding="utf-8")
    assert BEGIN in text and END in text


def test_times_in_readme_are_measured() -> None:
    page = (ROOT / "benchmarks/results/frameworks.md").read_text(encoding="utf-8")
    measured = set(re.findall(r"^\| [^|]+ \| [^|]+ \| ([\d.]+ ms) \|", page, re.M))  # all medians
    rows = re.findall(r"^\| (.*\*\*[\d.]+ ms\*\*.*) \|$", (ROOT / "README.md").read_text(encoding="utf-8"), re.M)
    times = {time for row in rows for time in re.findall(r"[\d.]+ ms", row)}
    assert len(rows) == 5 and times <= measured


def test_distributed_model_times_grow_with_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")  # as Python does for a script
    model = importlib.import_module("benchmarks.distributed")
    for way in (model.in_order, model.by_mpi, model.small):
        assert way(1, 1e6, 1e-6, 1e9) == 0.0
        times = [way(ranks, 1e6, 1e-6, 1e9) for ranks in range(1, 65)]
        assert times == sorted(times)
    # Two messages of half a gradient each way, whichever algorithm.
    assert model.in_order(2, 1e6, 1e-6, 1e9) == model.by_mpi(2, 1e6, 1e-6, 1e9) == pytest.approx(2e-6 + 1e-3)
    page = (ROOT / "benchmarks" / "results" / "distributed.md").read_text(encoding="utf-8")
    step, size = (float(x) for x in re.search(r"step ([\d.]+) ms, gradient ([\d.]+) MB", page).groups())
    for ranks, *shares in re.findall(r"^\| (\d+) \|" + r" ([\d.]+) % \|" * 4 + "$", page, re.M):
        expected = [
            100 * model.efficiency(1e-3 * step, int(ranks), network, way, 1e6 * size)
            for network in model.NETWORKS
            for way in (model.in_order, model.by_mpi)
        ]
        assert [float(share) for share in shares] == pytest.approx(expected, abs=0.3)
