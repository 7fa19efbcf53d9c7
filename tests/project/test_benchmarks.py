"""`python -m benchmarks`: a row of each kind runs, is checked and appears in the table; this test measures no times."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from snncell import Tensor, data

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))  # last: the package that is tested is the installed one

import benchmarks.load  # noqa: E402
from benchmarks import (  # noqa: E402
    __main__ as command_line,
    compiled as compiled_contestants,
    cost_model,
    events,
    nir_lif,
    peers,
    published,
    run as runs,
    sweeps,
)
from benchmarks.checking import check_results  # noqa: E402
from benchmarks.child import Child, ChildError, call  # noqa: E402
from benchmarks.compiled import Compiled  # noqa: E402
from benchmarks.load import Reading, Watch, load_between, read_processor_times  # noqa: E402
from benchmarks.measure import Timing, fastest_peer  # noqa: E402
from benchmarks.results import Result, Results, differences  # noqa: E402
from benchmarks.row import UNROLLED  # noqa: E402
from benchmarks.rows import ROWS  # noqa: E402
from benchmarks.tables import BEGIN, END, README_ROWS, details, list_losses, put_between_markers, readme_table, summary  # noqa: E402
from benchmarks.timing import count_turns  # noqa: E402
from snncell.kernels.conv import events as images  # noqa: E402
from snncell.kernels.products import matmul  # noqa: E402

SLOW = pytest.mark.slow


@pytest.mark.compiled
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in ("lif", "linear-512", "max-pool") else [SLOW]) for n in ROWS]
)
def test_row_runs_at_checked_size(name: str) -> None:
    row = ROWS[name]
    variants = [each for each in row.contestants if each.startswith("snncell,")]
    assert len(row.compare([])) == len(variants)
    contestants = row.make_all(row.small_sizes, [])
    assert list(contestants) == [each for each in row.contestants if each.startswith("snncell")]
    found = contestants["snncell"].results()
    assert check_results(name, found, found)
    contestants["snncell"].run_once()


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore:::torch")  # PyTorch warns about its own accesses while it traces
@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n == "max-pool" else [SLOW]) for n in ROWS])
def test_peers_and_compiled_contestants_agree(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`torch.compile` with its quickest backend: it traces the network and its backward pass, and generates no code."""
    pytest.importorskip("torch", reason="the compiled contestants need PyTorch")
    monkeypatch.setattr(peers, "compile_backend", "aot_eager")
    row = ROWS[name]
    frameworks = [each for each in ("PyTorch", "SpikingJelly", "JAX", "Eventax") if each in row.contestants]
    found, _ = peers.import_peers(frameworks)
    compiled = row.compiled_names(found)
    expected = 1 if row.group in ("layers", "neurons") or row.steps > UNROLLED else 2
    assert len(compiled) == (expected if "PyTorch" in row.contestants else 0)
    notes = row.compare(found, compiled)
    others = [each for each in row.contestants if each == "PyTorch"] + compiled
    assert all(any(note.startswith(f"{name}, {each}:") for note in notes) for each in others)


@SLOW
@pytest.mark.compiled
def test_compilation_is_timed_once_for_all_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="the compiled contestants need PyTorch")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "")  # so that the value of the run does not stay
    late, note = Compiled(1, tmp_path).get("max-pool", "PyTorch, compiled", None)
    assert late.fault == "not compiled in 1 s" and not note
    found, note = Compiled(600, tmp_path).get("max-pool", "PyTorch, compiled", None)
    assert not found.fault and found.first > 0.0 and found.memory is not None and "max-pool, PyTorch, compiled:" in note
    monkeypatch.setattr(compiled_contestants, "call", lambda *given, **named: pytest.fail("it was compiled again"))
    assert Compiled(600, tmp_path).get("max-pool", "PyTorch, compiled", None)[0].first == found.first
    table = details(ROWS, {"max-pool": [late]})
    assert "| PyTorch, compiled | not compiled in 1 s |" in table and fastest_peer([late]) is None


def test_turns_fit_into_a_budget() -> None:
    seconds = {"snncell": 0.1, "JAX": 0.2, "PyTorch": 0.3, "Norse": 1.0, "SpikingJelly": 3.0}
    assert count_turns(seconds, 9, math.inf) == dict.fromkeys(seconds, 9)
    assert count_turns(seconds, 9, 12.0) == {"snncell": 3, "JAX": 3, "PyTorch": 3, "Norse": 3, "SpikingJelly": 2}
    assert count_turns(seconds, 9, 3.0) == {"snncell": 3, "JAX": 3, "PyTorch": 3, "Norse": 1, "SpikingJelly": 1}


# --- child processes --------------------------------------------------------------------------------------------------


def two_steps() -> Iterator[int]:
    yield 1
    yield 2


def test_child_goes_on_step_by_step() -> None:
    child = Child(two_steps)
    assert [child.next(60.0), child.next(60.0)] == [1, 2]
    child.end()
    assert not child.process.is_alive()


@pytest.mark.parametrize(
    ("function", "given", "words"),
    [
        (math.sqrt, (-1.0,), "ValueError: math domain error"),
        (os._exit, (3,), "exit code 3"),
        (time.sleep, (60.0,), r"not finished in 0.5 s"),
    ],
)
def test_child_that_fails_is_named(function: Callable[..., Any], given: tuple[Any, ...], words: str) -> None:
    with pytest.raises(ChildError, match=words):
        call(function, *given, limit=0.5 if function is time.sleep else 60.0)


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


@pytest.mark.compiled
@pytest.mark.parametrize("kind", ["products", pytest.param("loops", marks=SLOW), "convolutions"])
def test_sweep_of_events_has_cell_for_each_density(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "LEAST_TIME", 0.0)
    lines = [line for line in events.sweep(kind, True) if line.startswith("|")]
    cell = r" \d+\.\d\d \(\d+\.\d\d\) \|"
    assert len(lines) >= 4 and all(re.fullmatch(rf"\| .+ \| (forward|gradient) \|({cell}){{3}}", x) for x in lines[2:])


@pytest.mark.compiled
@pytest.mark.parametrize(("kind", "density"), [("products", 0.9), ("convolutions", 0.9), ("products", 0.001)])
def test_sweep_of_events_forces_kernels(kind: str, density: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forced events and forced dense kernels run at any density."""
    calls = []
    for place, name in ((matmul, "_add_up"), (images, "convolve"), (images, "convolve_weight")):
        original = getattr(place, name)
        monkeypatch.setattr(place, name, lambda *given, own=original: calls.append(own) or own(*given))
    for _, shape, made in events.KINDS[kind](True):
        for ways in made.values():
            taken = []
            for run in ways(events.spikes(shape, density)):
                calls.clear()
                run()
                taken.append(len(calls))
            assert taken[:2] == [1, 0]


def test_different_results_are_rejected() -> None:
    spikes = np.zeros((4, 100), np.float32)
    spikes[0] = 1.0
    mine = {"spikes": Tensor(spikes), "gradient 0": Tensor([1.0, 2.0])}
    assert "0 of 400 spikes differ" in check_results(
        "peer", mine, {"spikes": spikes, "gradient 0": np.array([1.0, 2.0])}
    )
    assert "not compared: gradient 0" in check_results("peer", mine, {"spikes": spikes})
    faults = {
        "gradient 0 differs": {"spikes": spikes, "gradient 0": np.array([1.0, 2.01])},
        "of the spikes differ": {"spikes": np.roll(spikes, 1, 0), "gradient 0": np.array([1.0, 2.0])},
        r"shape \(3,\)": {"spikes": spikes, "gradient 0": np.zeros(3)},
        "returns": {"else": spikes},
    }
    for words, theirs in faults.items():
        with pytest.raises(ValueError, match=words):
            check_results("peer", mine, theirs)
    with pytest.raises(ValueError, match="which is no test"):
        check_results("peer", {"spikes": 0 * spikes}, {"spikes": 0 * spikes})


def timing(contestant: str, seconds: float) -> Timing:
    return Timing(contestant, seconds, seconds, seconds, seconds / 0.01, 3)


def test_fastest_peer_is_another_framework(tmp_path: Path) -> None:
    timings = [timing("snncell", 0.01), timing("snncell, otherwise", 0.001), timing("JAX", 0.04), timing("Norse", 0.1)]
    best = fastest_peer(timings)
    assert best is not None and best.contestant == "JAX"
    assert fastest_peer(timings[:2]) is None
    table = summary(ROWS, {"lif": timings, "adaptive": timings[:1]})
    assert "| 10 ms |  | JAX | 40 ms |  | **4.00** | 5 |" in table
    file = tmp_path / "page.md"
    file.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    assert put_between_markers(file, table) and put_between_markers(file, table)
    text = file.read_text(encoding="utf-8")
    assert "old" not in text and text.startswith("before\n") and text.endswith("after\n") and text.count(table) == 1
    file.write_text("no markers", encoding="utf-8")
    assert not put_between_markers(file, table)


def test_report_names_rows_in_which_snncell_is_behind() -> None:
    fast, slow = [timing("snncell", 0.01), timing("JAX", 0.005)], [timing("snncell", 0.01), timing("JAX", 0.02)]
    fast[0].memory, fast[1].memory, slow[0].memory, slow[1].memory = 2e6, 1e6, 1e6, 2e6
    lines = list_losses(ROWS, {"lif": fast, "adaptive": slow}).splitlines()
    assert lines[0].endswith("slower than the fastest peer in 1 of 2 workloads.")
    title = ROWS["lif"].title
    assert lines[2:] == [f"- slower: {title} (JAX: 0.50)", f"- more memory: {title} (JAX: 0.50)"]
    assert list_losses(ROWS, {"adaptive": slow}).endswith("in 0 of 1 workloads.")


# --- load of other processes ------------------------------------------------------------------------------------------


def test_load_counts_other_processes_and_hidden_ones() -> None:
    start = Reading(0.0, 5.0, 1.0, {(7, "make"): 3.0})
    idle = load_between(
        start, Reading(10.0, 25.0, 21.0, {(7, "make"): 3.5})
    )  # both cores are busy with the benchmark itself
    assert idle.cores == pytest.approx(0.05) and idle.busiest == ""
    busy = load_between(start, Reading(10.0, 20.0, 6.0, {(7, "make"): 3.0, (8, "cc1plus"): 9.0}))
    assert busy.cores == pytest.approx(0.975) and busy.busiest == "cc1plus (process 8, 0.90 cores)"
    hidden = load_between(start, Reading(10.0, 20.0, 6.0, {(7, "make"): 3.0}))
    assert hidden.cores == pytest.approx(0.975) and "does not show" in hidden.busiest
    renamed = load_between(
        start, Reading(10.0, 5.2, 1.0, {(7, "kworker/1:2-events"): 3.2})
    )  # a worker thread of the system
    assert renamed.cores == pytest.approx(0.02)


def test_own_processes_are_not_load() -> None:
    now = read_processor_times()
    if now is None:
        pytest.skip("this system has no /proc")
    assert now.own > 0.0 and now.busy > 0.0
    assert all(pid != os.getpid() for pid, _ in now.others)


def looks(*cores: float) -> Callable[[], Reading]:
    """Readings of a machine where another process uses so many cores between two looks, and at last 0.9."""
    spent, numbers = iter(itertools.accumulate(cores)), itertools.count()

    def read() -> Reading:
        number = next(numbers)
        used = 0.0 if number == 0 else next(spent, None)
        if used is None:
            used = sum(cores) + 0.9 * (number - len(cores))
        return Reading(float(number), used, 0.0, {(8, "cc1plus"): used})

    return read


@pytest.fixture
def run_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A function that runs rows of snncell alone, whose times are made up, next to other processes."""

    def timed_in_children(name: str, *rest: Any) -> Iterator[list[Timing]]:
        yield []
        while True:
            if name == "batch-norm":
                raise ChildError("its process ended with exit code -11")
            yield [timing("snncell", 0.01)]

    def run(cores: Sequence[float], *options: str) -> None:
        class Here:
            def __init__(self, function: Any, *given: Any) -> None:
                self.steps = timed_in_children(*given)

            def next(self, limit: float) -> Any:
                return next(self.steps)

            def end(self) -> None:
                pass

        monkeypatch.setattr(runs, "Watch", lambda: Watch(looks(*cores)))
        monkeypatch.setattr(runs, "Child", Here)
        monkeypatch.setattr(runs, "call", lambda *given, **named: [])
        monkeypatch.setattr(benchmarks.load.time, "sleep", lambda seconds: None)
        command = ["benchmarks", "--here", "--peers", "none", "--no-memory", "--write", str(tmp_path)]
        monkeypatch.setattr(sys, "argv", [*command, *options])
        command_line.main()

    return run


def test_disturbed_row_is_measured_again(run_with: Callable[..., None], tmp_path: Path, capsys: Any) -> None:
    quiet = [0.0, 0.0]
    run_with([*quiet, 0.0, 0.9, *quiet, 0.0, 0.0], "--rows", "max-pool")
    assert "disturbed: other processes used 0.90 cores, most of it cc1plus" in capsys.readouterr().out
    assert "| max pooling 2x2" in (tmp_path / "frameworks.md").read_text(encoding="utf-8")


def test_run_keeps_rows_that_were_measured_before_others_compute(
    run_with: Callable[..., None], tmp_path: Path, capsys: Any
) -> None:
    quiet = [0.0, 0.0]
    with pytest.raises(SystemExit, match=r"cc1plus \(process 8, 0.90 cores\).*--resume") as stopped:
        run_with([*quiet, *quiet], "--rows", "max-pool", "average-pool")
    assert stopped.value.code != 0
    page = (tmp_path / "frameworks.md").read_text(encoding="utf-8")
    assert "| max pooling 2x2" in page and "| average pooling" not in page
    capsys.readouterr()
    run_with([0.0] * 20, "--rows", "max-pool", "average-pool", "--resume")
    assert "average-pool: average" in (printed := capsys.readouterr().out) and "max-pool: max" not in printed
    assert "| average pooling" in (tmp_path / "frameworks.md").read_text(encoding="utf-8")


def test_row_that_fails_is_named_and_the_others_are_kept(run_with: Callable[..., None], tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="batch-norm: its process ended with exit code -11"):
        run_with([0.0] * 30, "--rows", "batch-norm", "max-pool", "average-pool")
    page = (tmp_path / "frameworks.md").read_text(encoding="utf-8")
    assert "| max pooling 2x2" in page and "| average pooling" in page and "batch norm" not in page


def test_forced_run_writes_nothing(run_with: Callable[..., None], tmp_path: Path, capsys: Any) -> None:
    run_with([0.9], "--rows", "max-pool", "--force")
    assert not list(tmp_path.iterdir())
    assert "max pooling 2x2" in (printed := capsys.readouterr().out) and "0.90 cores, most of it cc1plus" in printed


def test_run_that_others_disturb_from_the_start_measures_nothing(run_with: Callable[..., None], tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"cc1plus.*run the command again"):
        run_with([0.9], "--rows", "max-pool")
    assert not list(tmp_path.iterdir())


def test_page_names_results_of_other_runs(tmp_path: Path) -> None:
    about = {"date": "2026-01-02", "processor": "x", "versions": "snncell 2", "threads": "1"}
    results = Results(tmp_path / "frameworks.json")
    results.put("rows", "lif", Result(about, [timing("snncell", 0.01)], ["note"]))
    results.put("rows", "dense", Result({**about, "date": "2026-01-01", "versions": "snncell 1"}))
    results.put("sweeps", "density", Result(about, points={0.5: [timing("JAX", 0.01)]}))
    again = Results(tmp_path / "frameworks.json")
    assert again.kinds == results.kinds
    assert differences(again.get("rows"), about) == "- from another run (2026-01-01; snncell 1): dense"


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


def test_table_of_readme_has_the_rows_of_all() -> None:
    timings = [timing(name, 0.01 * n) for n, name in enumerate(["snncell", "PyTorch", "JAX", "SpikingJelly"], 1)]
    found = {name: timings[:3] if name == "adaptive" else timings for name in README_ROWS}
    lines = readme_table(found).splitlines()
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert BEGIN in text and END in text and lines[0] in text and all(line.count("|") == 6 for line in lines)
    assert lines[2].endswith("| **10 ms** | 30 ms | 20 ms | 40 ms |")
    assert lines[-1].endswith("| **10 ms** | 30 ms | 20 ms | same code as PyTorch |")
    assert readme_table({"lif": timings}) == ""


def test_distributed_model_times_grow_with_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")  # as Python does for a script
    model = importlib.import_module("benchmarks.distributed")
    for way in (model.ordered_sum_time, model.allreduce_time, model.gather_time):
        assert way(1, 1e6, 1e-6, 1e9) == 0.0
        times = [way(ranks, 1e6, 1e-6, 1e9) for ranks in range(1, 65)]
        assert times == sorted(times)
    # Two messages of half a gradient each way, whichever algorithm.
    assert (
        model.ordered_sum_time(2, 1e6, 1e-6, 1e9)
        == model.allreduce_time(2, 1e6, 1e-6, 1e9)
        == pytest.approx(2e-6 + 1e-3)
    )
    page = (ROOT / "benchmarks" / "results" / "distributed.md").read_text(encoding="utf-8")
    step, size = (float(x) for x in re.search(r"step ([\d.]+) ms, gradient ([\d.]+) MB", page).groups())
    for ranks, *shares in re.findall(r"^\| (\d+) \|" + r" ([\d.]+) % \|" * 4 + "$", page, re.M):
        expected = [
            100 * model.efficiency(1e-3 * step, int(ranks), network, way, 1e6 * size)
            for network in model.NETWORKS
            for way in (model.ordered_sum_time, model.allreduce_time)
        ]
        assert [float(share) for share in shares] == pytest.approx(expected, abs=0.3)


# --- published results ------------------------------------------------------------------------------------------------


@pytest.mark.compiled
def test_published_table_has_spread_hash_and_missing_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHD_FOLDER", str(tmp_path))
    names, texts = ["yin-yang-linear", "shd-delays"], []
    for number in range(2):
        path = tmp_path / f"{number}.md"
        published.main(["--only", *names, "--seeds", "2", "--epochs", "1", "--write", str(path)])
        texts.append(path.read_text(encoding="utf-8"))
    rows = [
        re.findall(r"^\| yin-yang-linear \| 63.8 \+- 1.0 \| (\S+ \+- \S+) \| \S+ \| (`\w{12}`) \|$", t, re.M)
        for t in texts
    ]
    assert len(rows[0]) == 1 and rows[0] == rows[1]
    assert all("- not run: needs shd_train.h5 and shd_test.h5" in text for text in texts)


@pytest.mark.compiled
def test_published_neuron_of_nir_spikes_as_published() -> None:
    pytest.importorskip("nir")
    times, trace = nir_lif.exact(nir_lif.inputs())
    assert ", ".join(f"{1e3 * time:.3f}" for time in times) == nir_lif.EXACT_TIMES
    for method, (_, steps, distance) in zip(("euler", "exponential"), nir_lif.PUBLISHED, strict=False):
        found, v = nir_lif.simulate(method)
        assert found == steps
        assert nir_lif.distance(v) == pytest.approx(distance, abs=5e-4)
    assert nir_lif.distance(trace) == 0.0


def words_like(folder: Path, name: str, samples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write files in the layout of SHD or SSC, four classes and a quarter as many test samples."""
    monkeypatch.setenv(f"{name.upper()}_FOLDER", str(folder))
    data.write_shd_like(folder / f"{name}_train.h5", samples=samples, classes=4, seed=0)
    data.write_shd_like(folder / f"{name}_test.h5", samples=samples // 4, classes=4, seed=1)


@pytest.mark.compiled
@pytest.mark.parametrize("words", [published.SHD, published.SSC], ids=lambda words: words.name)
def test_published_words_train_from_files(tmp_path: Path, words: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    words_like(tmp_path, words.name, 24, monkeypatch)
    assert words.missing() == ""
    counts, labels = words.load("train")
    events = data.SHD(words.file("train"))[3][0]
    events = events[events["t"] < 10_000 * words.steps]
    assert counts.shape == (24, words.steps, 140) and counts[3].sum() == len(events)
    assert counts[3, events["t"][0] // 10_000, events["x"][0] // 5] > 0 and set(labels) <= set(range(4))
    small = dataclasses.replace(words, hidden=(8,) * len(words.hidden), classes=4)
    *course, parameters = small.train(0, 2)
    assert len(course) == 2 and len(parameters) == 4 * len(words.hidden) + 2


@SLOW
@pytest.mark.compiled
def test_published_delays_learn_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words_like(tmp_path, "shd", 512, monkeypatch)
    *course, _ = published.SHD.train(0, 8)
    assert course[-1] > 0.8
