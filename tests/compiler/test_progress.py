"""Progress reports while kernels are compiled: which kernel, how many in total, and the estimated remaining time."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import snncell
from snncell import Tensor, nn, ops, train
from snncell.kernels.numba import build as builder, code, store
from snncell.train.log import Bar

Said = list[tuple[int, int, bool]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, and no kernels in memory."""
    monkeypatch.setenv("SNNCELL_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(builder, "_built", {})
    return tmp_path


def reports_of(function: Any, *arguments: Any) -> tuple[Said, bool]:
    """Return the reports while a function is called, and True if a kernel was built."""
    said: Said = []
    listener = code.Listener(lambda *words: said.append(words))
    with code.report_to(listener):
        function(*arguments)
    return said, listener.take()


def step_by_step(x: Tensor) -> Tensor:
    """A loop over time without a kernel: each time step runs a plan."""

    def step(v: Tensor, now: Tensor) -> tuple[Tensor, Tensor]:
        v = ops.exp(v * 0.5) + now
        v = ops.sort(v)[0] * 0.25 - 1.0
        return v, v

    return ops.scan(step, ops.zeros_like(x[0]), x)[1] * 1.5


def fused(x: Tensor) -> Tensor:
    """A loop over time as one kernel, with loops before and after it."""
    return ops.sort(nn.MultiStep(nn.LIFNode(tau=3.0))(ops.sort(x * 2.25)[0] + 0.5))[0] - 0.125


@pytest.mark.sampled(2)
@pytest.mark.compiled
@pytest.mark.parametrize("function", [fused, step_by_step, snncell.grad(lambda x: fused(x).sum())])
def test_number_of_kernels_is_known_before_the_first_compilation(folder: Path, function: Any) -> None:
    x = Tensor(np.linspace(0.0, 1.0, 24, dtype=np.float32).reshape(4, 2, 3))
    said, built = reports_of(snncell.jit(function), x)
    count = len(list(folder.glob("*.py")))
    assert built and count >= 2
    assert said == [(number + 1, count, False) for number in range(count)]
    # Kernels on disk are loaded without a report. Kernels in memory are not built at all.
    builder._built.clear()
    jitted = snncell.jit(function)
    assert reports_of(jitted, x) == ([], True)
    assert reports_of(jitted, x) == ([], False)
    assert reports_of(snncell.jit(function), x) == ([], False)


@pytest.mark.compiled
def test_only_kernels_without_stored_code_are_counted(folder: Path) -> None:
    x = Tensor(np.linspace(0.0, 1.0, 24, dtype=np.float32).reshape(4, 2, 3))
    snncell.jit(fused)(x)
    next(iter(folder.glob("scan_*.nbc"))).unlink()
    builder._built.clear()
    assert reports_of(snncell.jit(fused), x) == ([(1, 1, False)], True)


def test_compilation_by_another_process_is_reported(folder: Path) -> None:
    said: Said = []
    with code.report_to(code.Listener(lambda *words: said.append(words))):
        code.expect_kernels(["a", "b"])
        code.report_compilation("a", elsewhere=True)
        code.report_compilation("a")  # the other process gave up
        code.report_compilation("c")  # an unexpected kernel
    code.report_compilation("d")  # no listener
    assert said == [(1, 2, True), (1, 2, False), (2, 3, False)]
    assert store.compiled_names() == set()


def test_threads_receive_reports_of_their_own_kernels() -> None:
    import threading

    said: Said = []
    with code.report_to(code.Listener(lambda *words: said.append(words))):
        other = threading.Thread(target=lambda: code.report_compilation("a"))
        other.start()
        other.join()
    assert said == []


# --- the bar ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.compiled
def test_fit_reports_compilation(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def fit() -> str:
        snncell.set_seed(3)
        net = nn.SequentialCell([nn.Dense(5, 4), nn.Softplus(), nn.Dense(4, 3)])
        x, y = ops.uniform((12, 5)), ops.randint(0, 3, (12,))
        adam = nn.Adam(net.trainable_params(), 0.01)
        train.fit(net, nn.CrossEntropyLoss(), adam, (x, y), 3, validation=(x, y), batch_size=4)
        return capsys.readouterr().err

    first = re.findall(r"compiling (\d+) kernels? \((\d+) of (\d+)\)", fit())
    assert first and all(n == of for n, _, of in first)
    turns = [(int(i), int(n)) for n, i, _ in dict.fromkeys(first)]
    steps = [turn for turn in range(len(turns)) if turns[turn][0] == 1]
    for begin, end in zip(steps, [*steps[1:], len(turns)], strict=True):  # the training step, then the evaluation
        assert [i for i, _ in turns[begin:end]] == list(range(1, turns[begin][1] + 1))
        assert {n for _, n in turns[begin:end]} == {turns[begin][1]}
    builder._built.clear()
    again = fit()
    assert "compiling" not in again and "9/9" in again


def test_estimate_excludes_compilation_time(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    with Bar(100, 0, True) as bar:
        bar.bar._time = lambda: now
        bar.bar.start_t = bar.bar.last_print_t = 0.0
        for number in range(20):
            if number in (0, 12):
                code.report_build()
                code.report_compilation(f"kernel {number}")
                now += 600.0  # ten minutes
            now += 2.0
            bar.step()
            if number == 0:
                assert "?" in str(bar.bar) and "[00:00<" in str(bar.bar)
        state = bar.bar.format_dict
        assert state["n"] == 20 and state["elapsed"] == 18 * 2.0 and state["rate"] == pytest.approx(0.5)
        assert str(bar.bar).startswith(" 20%") and "20/100 [00:36<02:40" in str(bar.bar)
    assert capsys.readouterr().err.count("compiling 1 kernel (1 of 1)") == 2


def test_without_progress_bar_no_listener_is_registered() -> None:
    with Bar(3, 0, False) as bar:
        assert not code.listening()
        bar.step()
    with Bar(3, 0, True):
        assert code.listening()
    assert not code.listening()
