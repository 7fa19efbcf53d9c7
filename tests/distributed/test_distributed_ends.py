"""Errors and interruptions of distributed jobs: all ranks end, with a message, and a stopped job ends cleanly.

Each job runs real processes. No test waits longer than the patience of its job (`ranks/started.py`).
"""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ranks.started import run, start_job, wait_for_job

pytestmark = pytest.mark.compiled

# The name of a job in ranks/going_wrong.py, and the message that every rank prints.
# ODD is the rank that differs, out of three; all ranks name it.
REFUSED = {
    "unseeded": r"RankError: fit: Parameter 'weight' of rank ODD differs from that of rank \d",
    "other_data": r"RankError: fit: the data of rank ODD differs from .* Pass all of the data on every rank",
    "other_settings": r"RankError: fit: the setting of rank ODD differs from that of rank \d: clip_norm is 2.0 on",
    "other_rate": r"RankError: fit: the optimiser of rank ODD differs from that of rank \d: learning_rate is 0.02 on",
    "other_epochs": r"RankError: fit: the call of rank ODD differs from that of rank \d: epochs is 3 on rank ODD and",
    "other_evaluations": r"RankError: fit: the call of rank ODD differs from that of rank \d: test_every is .2. on",
    "other_rates": r"RankError: fit: the optimiser of rank ODD differs from that of rank \d: \S*rates is .* on",
    "other_buffers": r"RankError: fit: buffer 'centre' of rank ODD differs from that of rank \d before the first step",
    "other_scale": r"RankError: fit: the setting of rank ODD differs from that of rank \d: loss_scale.first is 4.0",
    "other_net": r"RankError: fit: the net of rank ODD differs from that of rank \d: ",
    "other_order": r"RankError: fit: rank ODD has a different batch than rank \d. All ranks must get the same batches",
    "drawing": r"RankError: fit: rank ODD has drawn a different number of random numbers than rank \d",
    "shapes": r"ShapeError: distributed.mean_gradients: gradients of a shard on rank ODD are .*4.*, but those of",
    "other_shards": r"CheckpointError: load_state: .* was written with another setting: shards was 8 and is 4",
    "stateful": r"ArgumentError: fit: a Stateful keeps states from batch to batch",
    "counting": r"ArgumentError: fit: Parameter '\w+.seen', int64, is not trained, but shards of a batch give it diff",
    "too_few": r"ArgumentError: distributed.init: 1 shards leave 2 of 3 ranks without work. Use more: .*shards=3",
    "again": r"RankError: distributed.init: this process has joined its job with shards=4, fast=False, which cannot be",
    "traced": r"ArgumentError: distributed.shards: you cannot call it in a jitted function, because",
    "ambiguous": r"ArgumentError: distributed: an input of shape \(4, 4, 2\) in a batch of 4 samples may be",
    "no_samples": r"ArgumentError: distributed: an input of shape \(4, 1, 5\) has no axis for the 8 samples",
    "lists": r"ArgumentError: distributed: a batch of EventLists cannot be cut into shards",
    "infinite": r"TrainingError: fit: the loss of epoch 1 is (nan|inf)",
    "wrong_counts": r"ArgumentError: distributed.mean_gradients: samples must be a number for each of 1 gradients, not",
    "too_many": r"ArgumentError: distributed.mean_gradients: grads has 3 shards, but this rank has \d",
    "no_tensors": r"ArgumentError: distributed.mean_gradients: grads must be a tuple of Tensors, or a list of them",
    "none_at_all": r"ArgumentError: distributed.mean_gradients: no rank passed gradients with samples",
    "no_target": r"ArgumentError: distributed.shards: pass inputs, then a target with an entry for each sample, not",
}


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[str, Path]]:
    """The output and the folder of the job `refused`, for the number of the rank that differs."""

    @functools.cache
    def job(odd: str) -> tuple[str, Path]:
        folder = tmp_path_factory.mktemp("refused")
        return run(3, "-m", "ranks.going_wrong", "refused", str(folder), env={"ODD": odd}), folder

    return job


@pytest.mark.parametrize("odd", ["1", *(pytest.param(odd, marks=pytest.mark.slow) for odd in "02")])
def test_invalid_calls_raise_on_all_ranks_and_training_continues(
    odd: str, refused: Callable[[str], tuple[str, Path]]
) -> None:
    out, _ = refused(odd)
    for name, words in REFUSED.items():
        for rank in range(3):
            assert re.search(rf"{name}, rank {rank}: {words.replace('ODD', odd)}", out), (name, rank, out)
    assert all(f"rank {rank}: 2 epochs" in out for rank in range(3))


ENDED = {
    "raising": r"ValueError: the disk of rank 1 is full[\s\S]*rank 1 of 2 has ended by ValueError; this ends the job",
    "leaving": r"RankError: distributed: rank 1 has ended its program, and rank 0 waits for it",
    "leaving_fit": r"rank 1 has left fit by sys.exit\(0\)[\s\S]*rank 1 has left fit by sys.exit, and rank 0",
    "different": r"RankError: distributed.init: the ranks pass different \(shards, fast\): .*4, False.*5, False",
    "other_rate": r"RankError: fit: the optimiser of rank 1 differs from that of rank 0",
}


QUICK = ("raising", "leaving_fit")


@pytest.fixture(scope="module")
def quick_jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """For jobs that run at the same time, because they mostly wait; those that no test has ended are ended here."""
    jobs: dict[str, Any] = {}
    yield jobs
    for job in jobs.values():
        wait_for_job(job)


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in ENDED]
)
def test_uncaught_error_ends_job_with_message(name: str, quick_jobs: dict[str, Any], tmp_path: Path) -> None:
    for each in QUICK if name in QUICK and not quick_jobs else ():
        quick_jobs[each] = start_job(2, "-m", "ranks.going_wrong", each, str(tmp_path))
    job = quick_jobs.pop(name) if name in QUICK else start_job(2, "-m", "ranks.going_wrong", name, str(tmp_path))
    code, _, errors = wait_for_job(job)
    assert code != 0
    assert re.search(ENDED[name], errors), errors


@pytest.mark.slow
def test_error_caught_by_one_rank_reaches_waiting_ranks(tmp_path: Path) -> None:
    out = run(3, "-m", "ranks.going_wrong", "caught", str(tmp_path))
    for attempt in (0, 1):
        assert f"rank 1, attempt {attempt}: ValueError: the disk of rank 1 is full" in out
        for rank in (0, 2):
            # Even if another rank, which has since ended by an error itself, reported the error.
            assert f"rank {rank}, attempt {attempt}: RankError: fit: rank 1 has left fit by an error" in out
    assert all(f"rank {rank}: 2 epochs" in out for rank in range(3))


@pytest.mark.parametrize("where", ["step", pytest.param("evaluation", marks=pytest.mark.slow)])
def test_killed_rank_ends_job(where: str, tmp_path: Path) -> None:
    name = {"step": "killed_in_a_step", "evaluation": "killed_in_the_evaluation"}[where]
    code, out, errors = wait_for_job(start_job(2, "-m", "ranks.going_wrong", name, str(tmp_path)))
    assert code != 0
    assert "kill" in (out + errors).lower()  # in mpiexec's own words


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="processes cannot be stopped here")
def test_stopped_rank_is_named_by_waiting_ranks(tmp_path: Path) -> None:
    job = start_job(3, "-m", "ranks.going_wrong", "stopped_for_good", str(tmp_path))
    limit = time.monotonic() + 120.0
    while not (tmp_path / "stopped").exists():
        assert time.monotonic() < limit and job.poll() is None, wait_for_job(job, 1.0)
        time.sleep(0.05)
    time.sleep(7.0)
    os.kill(int((tmp_path / "stopped").read_text()), signal.SIGCONT)
    code, out, errors = wait_for_job(job)
    assert code == 0 and all(f"rank {rank} is done" in out for rank in range(3))
    said = re.findall(r"rank (\d) has waited (\d+) s for (ranks? [\d, ]+) in (.*), and goes on waiting", errors)
    assert said and {(who, awaited) for who, _, awaited, _ in said} == {("0", "rank 1")}, errors
    assert len(said) == 1 and said[0][-1].startswith("fit")


@pytest.mark.slow
def test_job_killed_while_writing_resumes_from_previous_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "killed").mkdir()
    (tmp_path / "whole").mkdir()
    job = start_job(2, "-m", "ranks.going_wrong", "killed_in_the_checkpoint", str(tmp_path / "killed"))
    code, _, _ = wait_for_job(job)
    assert code != 0
    assert (tmp_path / "killed" / "run.ckpt").exists()
    resumed = run(1, "-m", "ranks.going_wrong", "going_on", str(tmp_path / "killed"))
    assert resumed == run(1, "-m", "ranks.going_wrong", "going_on", str(tmp_path / "whole"))


def test_error_of_all_ranks_is_printed_once(tmp_path: Path) -> None:
    code, _, errors = wait_for_job(start_job(3, "-m", "ranks.going_wrong", "all_raising", str(tmp_path)))
    assert code != 0
    assert errors.count("ValueError: on every rank") == 1, errors
    assert "rank 0 of 3 has ended by ValueError" in errors


@pytest.mark.slow
def test_finished_rank_waits_for_others(tmp_path: Path) -> None:
    assert "rank 0 is done" in run(2, "-m", "ranks.going_wrong", "later", str(tmp_path))


def test_stop_on_one_rank_ends_training_on_all(refused: Callable[[str], tuple[str, Path]]) -> None:
    out, _ = refused("1")
    assert "rank 0: 1 epochs, stopped on another rank" in out
    assert "rank 1: 1 epochs, rank 1 has seen enough" in out
    assert "rank 2: 1 epochs, stopped on another rank" in out


def test_files_are_written_by_one_rank(refused: Callable[[str], tuple[str, Path]]) -> None:
    folder = refused("1")[1] / "files"
    assert sorted(path.name for path in folder.iterdir()) == ["best.ckpt", "last.ckpt", "log.jsonl"]
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2]


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_interruption_writes_checkpoint(number: int, tmp_path: Path) -> None:
    job = start_job(2, "-m", "ranks.going_wrong", "interrupted", str(tmp_path))
    limit = time.monotonic() + 120.0
    while not (tmp_path / "begun").exists():
        assert time.monotonic() < limit and job.poll() is None, wait_for_job(job, 1.0)
        time.sleep(0.05)
    # A terminal or a scheduler sends the signal to all processes of the job.
    os.killpg(job.pid, number)
    wait_for_job(job)
    assert (tmp_path / "run.ckpt").exists()


@pytest.mark.slow
def test_ranks_share_cores(tmp_path: Path) -> None:
    run(2, "-m", "ranks.going_wrong", "threads", str(tmp_path), env={"NUMBA_NUM_THREADS": None})
