"""Training on several ranks: the same bits for any number of ranks, and clear errors."""

from __future__ import annotations

import functools
import itertools
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ranks.started import run

from snncell import distributed
from snncell.distributed import job
from snncell.distributed.ranks import add_nodes, rank_nodes
from snncell.distributed.sharding import shard_slices
from snncell.errors import ArgumentError, RankError

COMPILED = pytest.mark.compiled  # each rank is a process of its own, which would interpret every kernel

# --- shards and the order of additions --------------------------------------------------------------------------------


@pytest.mark.parametrize("shards", range(1, 12))
def test_shards_cover_batch_in_order_and_none_has_one_sample(shards: int) -> None:
    for samples in range(1, 60):
        cuts = shard_slices(samples, shards)
        assert [n for cut in cuts for n in range(samples)[cut]] == list(range(samples))
        sizes = [cut.stop - cut.start for cut in cuts]
        assert len(sizes) == shards
        used = [size for size in sizes if size]
        assert max(used) - min(used) <= 1
        assert min(used) > 1 or samples == 1
        assert sizes == used + [0] * (shards - len(used))


@pytest.mark.parametrize("shards", range(1, 12))
def test_sum_of_shards_has_same_bits_for_any_number_of_ranks(shards: int) -> None:
    rng = np.random.default_rng(shards)
    values = [np.float32(10.0) ** rng.integers(-6, 6) * rng.normal(size=5).astype(np.float32) for _ in range(shards)]
    for there in itertools.islice(itertools.product((True, False), repeat=shards), 64):
        single = {(n, n + 1): values[n].copy() for n in range(shards) if there[n]}
        whole = add_nodes((0, shards), single)
        for ranks in range(1, shards + 1):
            known: dict[Any, Any] = {}
            for own in rank_nodes(shards, ranks):
                for node in own:
                    inside = {(n, n + 1): values[n].copy() for n in range(*node) if there[n]}
                    known[node] = add_nodes(node, inside)
            again = add_nodes((0, shards), known)
            assert (whole is None) == (again is None)
            assert whole is None or whole.tobytes() == again.tobytes()


# --- before `init` ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call", [distributed.rank, distributed.size, distributed.barrier, lambda: list(distributed.shards([1.0]))]
)
def test_use_before_init_raises(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "_JOB", [])  # that examples in docstrings may have joined here
    with pytest.raises(RankError, match=r"has joined no job\. Call snncell.distributed.init\(\) before"):
        call()


def test_settings_are_checked_before_mpi_is_loaded() -> None:
    with pytest.raises(ArgumentError, match=r"with fast=True each rank has one shard\. Leave shards out"):
        distributed.init(shards=4, fast=True)


# --- the same bits ----------------------------------------------------------------------------------------------------

CHOICES: dict[str, list[Any]] = {
    "data": ["arrays", "time first", "list", "loader", "workers", "buckets", "events", "own"],
    "norm": [False, True],
    "dropout": [False, True],
    "samples": [38, 50, 20],
    "batch_size": [10, 3, 16],
    "optimiser": ["adam", "momentum", "sgd", "schedule", "groups"],
    "test": [False, True],
    "metrics": [[], ["top2", "confusion"], ["spikes", "energy"]],
    "firing_rate": [False, True],
    "ema": [False, True],
    "accumulate": [1, 3],
    "clip_norm": [None, 0.5],
    "loss_scale": [None, 1024.0, "dynamic"],
    "prefetch": [False, True],
    "patience": [None, 1],
}
IN_FIT = ("accumulate", "clip_norm", "loss_scale", "prefetch", "patience")
EACH = 4  # trainings of a group, which are run by one job for each number of ranks


def draw_training(seed: int) -> dict[str, Any]:
    """A random configuration of a training."""
    rng = random.Random(seed)
    chosen = {name: rng.choice(values) for name, values in CHOICES.items()}
    more = {name: chosen.pop(name) for name in IN_FIT}
    return {**chosen, "seed": seed, "more": {name: value for name, value in more.items() if value is not None}}


def seeds_of(group: int) -> range:
    """The seeds of a group of trainings."""
    return range(group * EACH, (group + 1) * EACH)


# Without layers that depend on their batch, and by SGD, because Adam amplifies the rounding of tiny gradients. Without
# shuffling: a job's steps draw random numbers, so the next epoch would be shuffled differently than alone.
UNSHUFFLED = [
    {"data": "list", "optimiser": "sgd", "test": True, "metrics": ["confusion"], "more": {"accumulate": accumulate}}
    for accumulate in (1, 2)
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Any]:
    """The results of a group for each number of ranks; then UNSHUFFLED, alone for one rank, and as a job for three."""

    @functools.cache
    def results_of(group: int) -> Any:
        results = {}
        drawn = [draw_training(seed) for seed in seeds_of(group)]
        for ranks in (1, 2, 3, 4) if group else (1, 3):
            asked = drawn + ([] if group else [{**one, "distributed": ranks > 1} for one in UNSHUFFLED])
            file = tmp_path_factory.mktemp("trained") / "found.json"
            run(ranks, "-m", "ranks.trained", json.dumps(asked), str(file))
            results[ranks] = json.loads(file.read_text())
        return results

    return results_of


@COMPILED
@pytest.mark.parametrize("group", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 12))])
def test_training_has_same_bits_for_any_number_of_ranks(group: int, trained: Callable[[int], Any]) -> None:
    results = trained(group)
    for number, seed in enumerate(seeds_of(group)):
        first = results[1][number]
        assert first["history"]
        for ranks in results:
            again = results[ranks][number]
            assert again["history"] == first["history"], draw_training(seed)
            assert again["digest"] == first["digest"], draw_training(seed)
            assert again["drawn"] == first["drawn"], draw_training(seed)


def run_training(tmp_path: Path, ranks: int, asked: dict[str, Any], options: dict[str, Any] | None = None) -> Any:
    """Run one training on this number of ranks."""
    file = tmp_path / f"found-{ranks}.json"
    run(ranks, "-m", "ranks.trained", json.dumps([asked]), str(file), json.dumps(options or {}))
    return json.loads(file.read_text())[0]


def close(some: Any, others: Any, tolerance: float) -> bool:
    """True if the weights of two trainings are equal up to rounding."""
    return all(np.allclose(value, others[name], rtol=0, atol=tolerance) for name, value in some.items())


@COMPILED
@pytest.mark.parametrize("accumulate", [1, 2])
def test_training_on_ranks_equals_single_process_up_to_rounding(accumulate: int, trained: Callable[[int], Any]) -> None:
    alone, job = (trained(0)[ranks][EACH + accumulate - 1] for ranks in (1, 3))
    assert close(job["weights"], alone["weights"], 1e-6)
    for mine, other in zip(job["history"], alone["history"], strict=True):
        assert mine.keys() == other.keys()
        assert all(np.allclose(mine[name], other[name], atol=1e-6) for name in mine)


@pytest.mark.slow
@COMPILED
def test_fast_sums_agree_on_all_ranks_and_are_close_to_exact_sums(tmp_path: Path) -> None:
    asked = {"optimiser": "sgd", "norm": False, "samples": 40}
    fast, slow = run_training(tmp_path, 4, asked, {"fast": True}), run_training(tmp_path, 1, asked)
    assert close(fast["weights"], slow["weights"], 1e-6)


@pytest.mark.slow
@COMPILED
@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["arrays", "loader"])
@pytest.mark.parametrize("steps", [None, 3])
def test_training_resumes_with_another_number_of_ranks(tmp_path: Path, kind: str, steps: int | None) -> None:
    asked: dict[str, Any] = {"data": kind, "norm": True, "dropout": True, "test": True, "epochs": 3}
    whole = run_training(tmp_path, 2, asked)
    file = str(tmp_path / "run.ckpt")
    more = {"checkpoint": file}
    # Stopped within an epoch, or after two epochs.
    first = {**asked, "stop": steps, "epochs": 3 if steps else 2, "more": more}
    part = run_training(tmp_path, 4, first)
    assert bool(part["stopped"]) == bool(steps)
    rest = run_training(tmp_path, 1, {**asked, "more": {**more, "resume": True}})
    assert (rest["digest"], rest["history"], rest["drawn"]) == (whole["digest"], whole["history"], whole["drawn"])


@pytest.mark.slow
@COMPILED
def test_custom_loop_has_same_bits_and_gradient_of_whole_batch(tmp_path: Path) -> None:
    results = []
    for ranks in (1, 2, 4):
        file = tmp_path / f"{ranks}.json"
        run(ranks, "-m", "ranks.own_loop", str(file))
        results.append(json.loads(file.read_text()))
    assert all(result == results[0] for result in results)
    file = tmp_path / "fast.json"
    run(2, "-m", "ranks.own_loop", str(file), "fast")
    fast = json.loads(file.read_text())
    assert all(np.allclose(a, b, atol=1e-6) for a, b in zip(fast["first"], results[0]["first"], strict=True))
    pairs = zip(results[0]["first"], results[0]["whole"], strict=True)
    assert all(np.allclose(mine, whole, atol=1e-6) for mine, whole in pairs)
