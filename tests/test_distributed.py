"""Training on several ranks: the same bits on any number of them, and words where something is wrong."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import numpy as np
import pytest
from ranks.started import run

from snncell import distributed
from snncell.distributed.cuts import added, nodes, slices
from snncell.errors import RankError

pytestmark = pytest.mark.compiled  # each rank is a process of its own, which would interpret every kernel

# --- cuts and the order of additions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shards", range(1, 12))
def test_shards_are_all_of_a_batch_in_order_and_none_has_one_sample(shards: int) -> None:
    for samples in range(1, 60):
        cuts = slices(samples, shards)
        assert [n for cut in cuts for n in range(samples)[cut]] == list(range(samples))
        sizes = [cut.stop - cut.start for cut in cuts]
        assert len(sizes) == shards
        used = [size for size in sizes if size]
        assert max(used) - min(used) <= 1
        assert min(used) > 1 or samples == 1
        assert sizes == used + [0] * (shards - len(used))


@pytest.mark.parametrize("shards", range(1, 12))
def test_a_sum_is_the_same_bits_however_many_ranks_add_parts_of_it(shards: int) -> None:
    rng = np.random.default_rng(shards)
    values = [np.float32(10.0) ** rng.integers(-6, 6) * rng.normal(size=5).astype(np.float32) for _ in range(shards)]
    for there in itertools.islice(itertools.product((True, False), repeat=shards), 64):
        single = {(n, n + 1): values[n].copy() for n in range(shards) if there[n]}
        whole = added((0, shards), single)
        for ranks in range(1, shards + 1):
            known: dict[Any, Any] = {}
            for own in nodes(shards, ranks):
                for node in own:
                    inside = {(n, n + 1): values[n].copy() for n in range(*node) if there[n]}
                    known[node] = added(node, inside)
            again = added((0, shards), known)
            assert (whole is None) == (again is None)
            assert whole is None or whole.tobytes() == again.tobytes()


# --- before a job is joined -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [distributed.rank, distributed.size, lambda: list(distributed.shards([1.0]))])
def test_a_job_is_joined_first(call: Any) -> None:
    with pytest.raises(RankError, match=r"has joined no job: call snncell.distributed.init\(\), before"):
        call()


# --- the same bits ----------------------------------------------------------------------------------------------------

CHOICES: dict[str, list[Any]] = {
    "data": ["arrays", "time first", "list", "loader"],
    "norm": [False, True],
    "dropout": [False, True],
    "samples": [38, 50, 20],
    "batch_size": [10, 3, 16],
    "optimiser": ["adam", "momentum", "sgd"],
    "test": [False, True],
    "metrics": [[], ["top2", "confusion"]],
    "accumulate": [1, 3],
    "clip_norm": [None, 0.5],
    "loss_scale": [None, 1024.0, 1e38],  # of which the last gives gradients of inf: no step is taken
}


def drawn(seed: int) -> dict[str, Any]:
    """A training of chance."""
    rng = random.Random(seed)
    chosen = {name: rng.choice(values) for name, values in CHOICES.items()}
    more = {name: chosen.pop(name) for name in ("accumulate", "clip_norm", "loss_scale")}
    if more["loss_scale"] == 1e38:
        more["loss_scale"] = 1024.0
    return {**chosen, "seed": seed, "more": {name: value for name, value in more.items() if value is not None}}


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[dict[str, Any]]]:
    """Trainings of chance, on each number of ranks."""
    asked = json.dumps([drawn(seed) for seed in range(24)])
    found = {}
    for ranks in (1, 2, 3, 4):
        file = tmp_path_factory.mktemp("ranks") / "found.json"
        run(ranks, "-m", "ranks.trained", asked, str(file))
        found[ranks] = json.loads(file.read_text())
    return found


@pytest.mark.parametrize("seed", range(24))
def test_a_training_gives_the_same_bits_on_any_number_of_ranks(trainings: Any, seed: int) -> None:
    first = trainings[1][seed]
    assert len(first["history"]) == 2
    for ranks in (2, 3, 4):
        again = trainings[ranks][seed]
        assert again["history"] == first["history"], drawn(seed)
        assert again["digest"] == first["digest"]
        assert again["drawn"] == first["drawn"]
