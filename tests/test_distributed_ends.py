"""Jobs in which something goes wrong end on all ranks, in words; one that is stopped ends cleanly."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest
from ranks.started import begun, ended, run

pytestmark = pytest.mark.compiled

# What a job is called in ranks/going_wrong.py, and what it says. None of them takes longer than it should: `ended`.
WRONG = {
    "raising": r"ValueError: the disk of rank 1 is full[\s\S]*rank 1 of 2 has ended by ValueError; this ends the job",
    "leaving": r"RankError: distributed: rank 1 has ended its program, and rank 0 waits for it",
    "unseeded": r"RankError: fit: Parameter 'weight' differs between rank \d and rank \d before the first step. Make",
    "other_data": r"RankError: fit: rank \d and rank \d were given another data[\s\S]*Every rank is given all of the",
    "other_settings": r"RankError: fit: rank \d and rank \d were given another setting: of rank \d, clip_norm was",
    "other_rate": r"RankError: fit: rank \d and rank \d were given another optimiser: of rank \d, learning_rate was",
    "drawing": r"RankError: fit: rank \d and rank \d have drawn different numbers of random numbers",
    "stateful": r"ArgumentError: fit: a Stateful keeps states from batch to batch",
    "counting": r"ArgumentError: fit: Parameter '\w+.seen', int64, is not trained, and shards of a batch give it diff",
    "too_few": r"ArgumentError: distributed.init: 1 shards leave 1 of 2 ranks without work. Give more: .*shards=2",
    "again": r"RankError: distributed.init: this process has joined its job with shards=4, fast=False; that stays",
    "different": r"RankError: distributed.init: the ranks ask for different \(shards, fast\): .*4, 0.*5, 0",
    "traced": r"ArgumentError: distributed.mean_gradients: a jitted function exchanges nothing with other ranks",
    "shapes": r"ShapeError: distributed.mean_gradients: the gradients of one shard are .*3.*, and of another .*4",
    "ambiguous": r"ArgumentError: distributed: an input of shape \(4, 4, 2\) in a batch of 4 samples may be",
    "no_samples": r"ArgumentError: distributed: an input of shape \(4, 1, 5\) has no axis for the 8 samples",
    "lists": r"ArgumentError: distributed: a batch of EventLists is not cut into shards",
    "infinite": r"TrainingError: fit: the loss of epoch 1 is (nan|inf)",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_job_that_goes_wrong_ends_in_words(name: str, tmp_path: Path) -> None:
    code, _, errors = ended(begun(2, "-m", "ranks.going_wrong", name, str(tmp_path)), patience=60.0)
    assert code != 0
    assert re.search(WRONG[name], errors), errors


def test_a_rank_that_is_killed_ends_the_job(tmp_path: Path) -> None:
    code, out, errors = ended(begun(2, "-m", "ranks.going_wrong", "killed", str(tmp_path)), patience=60.0)
    assert code != 0
    assert "kill" in (out + errors).lower()  # in mpiexec's own words


def test_an_error_of_all_ranks_is_told_once(tmp_path: Path) -> None:
    code, _, errors = ended(begun(4, "-m", "ranks.going_wrong", "all_raising", str(tmp_path)), patience=60.0)
    assert code != 0
    assert errors.count("ValueError: on every rank") == 1, errors
    assert "rank 0 of 4 has ended by ValueError" in errors


def test_a_rank_that_is_done_waits_for_the_others(tmp_path: Path) -> None:
    assert "rank 0 is done" in run(2, "-m", "ranks.going_wrong", "later", str(tmp_path))


def test_a_stop_of_one_rank_ends_the_training_on_all(tmp_path: Path) -> None:
    out = run(3, "-m", "ranks.going_wrong", "stopping", str(tmp_path))
    assert "rank 0: 1 epochs, stopped on another rank" in out
    assert "rank 1: 1 epochs, rank 1 has seen enough" in out
    assert "rank 2: 1 epochs, stopped on another rank" in out


def test_files_are_written_once(tmp_path: Path) -> None:
    run(2, "-m", "ranks.going_wrong", "files", str(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best.ckpt", "last.ckpt", "log.jsonl"]
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_ends_with_a_checkpoint(number: int, tmp_path: Path) -> None:
    job = begun(2, "-m", "ranks.going_wrong", "interrupted", str(tmp_path))
    limit = time.monotonic() + 60.0
    while not (tmp_path / "begun").exists():
        assert time.monotonic() < limit and job.poll() is None, ended(job)
        time.sleep(0.05)
    (tmp_path / "run.ckpt").unlink(missing_ok=True)
    # As a terminal, or a scheduler, does it: to all of the job's processes.
    os.killpg(job.pid, number)
    ended(job, patience=60.0)
    assert (tmp_path / "run.ckpt").exists()


def test_ranks_share_the_cores(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_NUM_THREADS"}
    if environment == dict(os.environ):
        run(2, "-m", "ranks.going_wrong", "threads", str(tmp_path))
    else:
        pytest.skip("NUMBA_NUM_THREADS is set, which decides")
