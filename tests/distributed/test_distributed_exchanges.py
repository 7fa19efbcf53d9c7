"""Exchanges between ranks, run as threads of one process; and jobs of one rank, also without the compiler."""

from __future__ import annotations

import atexit
import random
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from ranks import trained
from ranks.pretended import Done, Mpi, on_ranks

import snncell
from snncell import Tensor, distributed, nn, ops, train
from snncell.distributed import job, ranks as ranks_module, sharding
from snncell.distributed.ranks import Ranks
from snncell.distributed.sharding import Cutter, shard_slices
from snncell.distributed.training import Shares
from snncell.errors import ArgumentError, RankError, ShapeError

# --- sums -------------------------------------------------------------------------------------------------------------


def vectors_of(seed: int) -> tuple[int, int, Any, dict[int, Any]]:
    """Shards, the length and dtype of their vectors, and the vectors of the existing shards."""
    rng, chance = np.random.default_rng(seed), random.Random(seed)
    shards, dtype = chance.randint(1, 9), chance.choice([np.float32, np.float64])
    size = chance.choice([1, 7, 1000, 30_000])  # around where each rank adds a part of the elements
    there = [n for n in range(shards) if chance.random() < 0.8]
    return shards, size, dtype, {n: (rng.normal(size=size) * 10.0 ** rng.integers(-6, 6)).astype(dtype) for n in there}


@pytest.mark.parametrize("seed", range(24))
def test_sum_over_shards_has_same_bits_on_all_ranks_and_rank_counts(seed: int) -> None:
    shards, size, dtype, there = vectors_of(seed)
    exact = sum((vector.astype(np.longdouble) for vector in there.values()), np.zeros(size, np.longdouble))
    first = None
    for number in range(1, shards + 1):

        def of(mpi: Any) -> bytes:
            ranks = Ranks(mpi, shards, False)
            own = {n: there[n].copy() for n in ranks.own if n in there}
            return ranks.sum_shards(own, np.empty(size, dtype)).tobytes()

        found = on_ranks(number, of)
        first = first or found[0]
        assert set(found) == {first}
    scale = sum((abs(vector) for vector in there.values()), np.zeros(size))
    assert (abs(np.frombuffer(first, dtype) - exact) <= shards * np.finfo(dtype).eps * scale).all()


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("fast", [False, True])
def test_sums_contain_every_added_vector(seed: int, fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharding, "BUCKET", 64)  # bytes: several to each array, and several arrays to one
    chance = random.Random(seed)
    shapes = [tuple(chance.randint(0, 5) for _ in range(chance.randint(0, 2))) for _ in range(chance.randint(1, 9))]
    dtypes = [chance.choice([np.float16, np.float32, np.float64]) for _ in shapes]
    size, steps = chance.randint(1, 4), chance.randint(1, 3)

    def arrays(rank: int, step: int, batch: int) -> list[Any]:
        rng = np.random.default_rng([seed, rank, step, batch])
        return [np.asarray(rng.integers(-8, 8, shape), dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]

    def of(mpi: Any) -> list[list[Any]]:
        ranks = Ranks(mpi, mpi.COMM_WORLD.size, fast)
        own, found = sharding.sums_of(ranks, sharding.VectorLayout.of(arrays(0, 0, 0))), []
        for step in range(steps):
            for batch in range(2):
                if not (ranks.rank == 1 and step == 0):  # which has no shard of these batches
                    own.expect(ranks.rank, batch + 1, last=batch == 1)
                    there, order = arrays(ranks.rank, step, batch), list(range(len(shapes)))
                    random.Random(seed + ranks.rank).shuffle(order)  # each rank has them in an order of its own
                    while order:
                        few, order = order[:2], order[2:]
                        own.take(few, [there[n] for n in few])
            own.begin()
            found.append([x.copy() for x in own.end()])
        return found

    for rank_found in on_ranks(size, of):
        for step, found in enumerate(rank_found):
            for number, x in enumerate(found):
                parts = [
                    (batch + 1) * arrays(rank, step, batch)[number].astype(np.float64)
                    for rank in range(size)
                    for batch in range(2)
                    if not (rank == 1 and step == 0)
                ]
                assert x.shape == shapes[number]
                assert x.dtype == (np.float64 if dtypes[number] == np.float64 else np.float32)
                assert np.array_equal(x, sum(parts, np.zeros(shapes[number])))  # of small integers, so exact


def test_texts_of_any_length_are_exchanged() -> None:
    texts = [b"", b"one", bytes(range(256)) * 9]
    assert on_ranks(3, lambda mpi: Ranks(mpi, 3, False).texts(texts[mpi.COMM_WORLD.rank])) == [texts] * 3
    assert on_ranks(2, lambda mpi: Ranks(mpi, 2, False).texts(b"")) == [[b"", b""]] * 2


# --- ranks that have ended --------------------------------------------------------------------------------------------


class Never(Done):
    """An exchange that never completes."""

    def Test(self) -> bool:  # noqa: N802 - mpi4py's name
        return False


class Later(Done):
    """An exchange that completes at the thousandth poll."""

    asked = 0

    def Test(self) -> bool:  # noqa: N802 - mpi4py's name
        self.asked += 1
        return self.asked > 1000


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> tuple[Ranks, Ranks]:
    """Two ranks that wait without delay."""
    clock = iter(range(10**9))
    monkeypatch.setattr(ranks_module.time, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(ranks_module.time, "sleep", lambda _: None)
    first, second = on_ranks(2, lambda mpi: Ranks(mpi, 4, False))
    return first, second


def test_ended_rank_is_not_waited_for(pair: Any) -> None:
    pair[1].ending._tell(ranks_module._LEFT)
    with pytest.raises(RankError, match="rank 1 has ended its program, and rank 0 waits for it"):
        pair[0].wait([Never()])
    assert pair[0].left  # whose arrays MPI may still write to


def test_rank_can_end_after_taking_part(pair: Any) -> None:
    pair[1].wait([Done()])
    pair[1].ending._tell(ranks_module._LEFT)
    pair[0].wait([Later()])
    with pytest.raises(RankError, match="rank 1 has ended its program"):
        pair[0].wait([Never()])


def test_failed_rank_is_waited_for_only_after_new_start(pair: Any) -> None:
    with pytest.raises(ValueError, match=r"^full$"), pair[1].together():
        raise ValueError("full")
    words = "fit: rank 1 has left fit by an error, and rank 0 waits for it"
    with pytest.raises(RankError, match=words), pair[0].together():
        pair[0].wait([Never()])

    def both(mpi: Any) -> int:
        ranks = pair[mpi.COMM_WORLD.rank]
        with ranks.together():
            ranks.wait([Later()])  # what was told of the first part is not heard in the second
        return int(ranks.all_gather(np.array(ranks.rank))[1])

    assert on_ranks(2, both) == [1, 1]


@pytest.mark.parametrize(("error", "words"), [(ValueError("full"), "by an error"), (SystemExit(3), "by sys.exit")])
def test_relayed_error_names_rank_that_failed(error: Any, words: str) -> None:
    first, second, third = on_ranks(3, lambda mpi: Ranks(mpi, 3, False))
    with pytest.raises(type(error)), second.together():
        raise error
    for ranks in (first, third):  # the last one hears of the first one's error before that of the second
        with pytest.raises(RankError, match=f"rank 1 has left fit {words}, and rank {ranks.rank}"), ranks.together():
            ranks.ending.refuse_waiting()


def test_lowest_waiting_rank_names_missing_ranks_after_a_while(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    clock = iter(range(10**9))
    monkeypatch.setattr(ranks_module.time, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(ranks_module.time, "sleep", lambda _: None)
    first, _, third = on_ranks(3, lambda mpi: Ranks(mpi, 3, False))
    third.ending._tell(ranks_module._WAITS)
    later = Later()
    later.asked = -20_000  # a hundred times a second by this clock
    first.wait([later], "a test")
    assert capsys.readouterr().err.count("rank 0 has waited") == 2  # after 30 and 60 s
    later = Later()
    later.asked = -10_000
    third.ending.taken = 0
    first.ending._tell(ranks_module._WAITS)  # of the exchange after
    third.wait([later], "a test")
    assert capsys.readouterr().err == ""  # rank 0 says so for both


def test_same_error_on_all_ranks_is_raised(pair: Any) -> None:
    for ranks in pair:
        with pytest.raises(ValueError, match=r"^the loss is nan$"), ranks.together():
            raise ValueError("the loss is nan")
    assert [ranks.ending.part for ranks in pair] == [0, 0]

    def both(mpi: Any) -> int:
        pair[mpi.COMM_WORLD.rank].start_part()  # as in a loop of one's own
        pair[mpi.COMM_WORLD.rank].wait([Later()])
        return int(pair[mpi.COMM_WORLD.rank].ending.part)

    assert on_ranks(2, both) == [1, 1]


# --- splitting of batches ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_batch_is_split_along_sample_axis(seed: int) -> None:
    chance, rng = random.Random(seed), np.random.default_rng(seed)
    samples, shards = chance.randint(1, 12), chance.randint(1, 5)
    inputs: list[Any] = []
    for _ in range(chance.randint(1, 3)):
        kind = chance.choice(["number", "first", "over time", "tuple"])
        steps = chance.choice([n for n in range(1, 14) if n != samples])
        first = Tensor(rng.normal(size=(samples, steps)))
        inputs.append(
            {
                "number": Tensor(3.0),
                "first": first,
                "over time": Tensor(rng.normal(size=(steps, samples, 2))),
                "tuple": (first, {"a": Tensor(rng.normal(size=(steps, samples)))}),
            }[kind]
        )
    cutter, target = Cutter(), Tensor(np.arange(samples))
    parts = list(cutter.pieces((*inputs, target), shard_slices(samples, shards)))
    assert np.array_equal(np.concatenate([part[-1].asnumpy() for part in parts]), np.arange(samples))
    for number, whole in enumerate(inputs):
        pairs = [(whole, [part[number] for part in parts])]
        if isinstance(whole, tuple):
            pairs = [
                (whole[0], [part[number][0] for part in parts]),
                (whole[1]["a"], [part[number][1]["a"] for part in parts]),
            ]
        for x, cut in pairs:
            axis = None if not x.ndim else 0 if x.shape[0] == samples else 1
            again = cut[0].asnumpy() if axis is None else np.concatenate([one.asnumpy() for one in cut], axis)
            assert np.array_equal(again, x.asnumpy())


def test_batches_of_loader_subclass_are_split() -> None:
    class Doubled(train.Batches):
        def __iter__(self) -> Iterator[Any]:
            yield from ((2.0 * x, y) for x, y in super().__iter__())

    class Named(train.Batches):
        name = "the same batches"

    class Own(Doubled):
        def in_parts(self, cut: Any) -> Iterator[Any]:
            yield 1, {}

    ranks, arrays = Ranks(Mpi(), 4, False), (np.ones((6, 2), np.float32), np.zeros(6))
    found = {}
    for kind in (train.Batches, Doubled, Named, Own):
        shares = Shares(kind(*arrays, batch_size=6), ranks)
        found[kind] = [shares.convert(item, tuple) for item in shares]
    assert found[Own] == [(1, {}, 0)]
    for kind, value in ((train.Batches, 1.0), (Doubled, 2.0), (Named, 1.0)):
        (share,) = found[kind]
        assert share.samples == 6 and len(share.shards) == 3
        assert all((x.asnumpy() == value).all() for x, _ in share.shards.values())


# --- a job of one rank ------------------------------------------------------------------------------------------------


@pytest.fixture(params=[False, True], ids=["in order", "fast"])
def alone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job of one rank without another MPI process."""
    monkeypatch.setattr(job, "_JOB", [])
    monkeypatch.setattr(job, "_mpi", lambda: Mpi())
    monkeypatch.setattr(ranks_module.Ending, "watch", lambda _: None)
    monkeypatch.setenv("NUMBA_NUM_THREADS", "2")  # so that it stays at that
    snncell.set_seed(0)
    distributed.init(fast=request.param)


@pytest.mark.usefixtures("alone")
def test_barrier_in_traced_function_raises() -> None:
    distributed.barrier()
    with pytest.raises(ArgumentError, match=r"a jitted function cannot wait for other ranks\. Call it outside"):
        snncell.jit(distributed.barrier)()


@pytest.mark.sampled(1)
@pytest.mark.usefixtures("alone")
def test_job_of_one_rank_trains() -> None:
    assert (distributed.rank(), distributed.size()) == (0, 1)
    asked = {"norm": True, "dropout": True, "test": True, "metrics": ["confusion"], "samples": 10, "batch_size": 4}
    asked |= {"epochs": 1, "more": {"accumulate": 2, "loss_scale": 64.0}}
    once = trained.train_once(asked)
    assert once == trained.train_once(asked)
    assert len(once["history"]) == 1


class Centred(nn.Cell):
    """Keep the mean of the inputs, moved halfway towards the mean of each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = snncell.Parameter(ops.zeros(3), requires_grad=False)
        self.unused = snncell.Parameter(ops.ones(2), requires_grad=False)
        self.scale = snncell.Parameter(ops.ones(3))

    def construct(self, x: Tensor) -> Tensor:
        if self.training:
            self.mean.assign(0.5 * self.mean + 0.5 * x.mean(0))
        return x * self.scale


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("samples", [8, 7, 3])
def test_statistics_are_global_means_and_gradients_those_of_whole_batch(samples: int) -> None:
    x = np.random.default_rng(0).normal(size=(samples, 3)).astype(np.float32)
    net = Centred()
    sgd = nn.SGD(net.trainable_params(), 0.1)
    batch = [(x, np.zeros((samples, 3), np.float32))]
    options = {"accuracy": None, "progress": False, "distributed": True}
    result = train.fit(net, nn.MSELoss(), sgd, batch, 1, **options)
    assert np.allclose(net.mean.asnumpy(), 0.5 * x.mean(0), atol=1e-6)
    assert np.array_equal(net.unused.asnumpy(), np.ones(2))
    assert np.allclose(net.scale.asnumpy(), 1.0 - 0.1 * 2.0 * (x**2).mean(0) / 3.0, atol=1e-6)
    assert abs(result.history[0]["loss"] - (x**2).mean()) < 1e-6


@pytest.mark.usefixtures("alone")
def test_shard_gradients_are_weighted_by_sample_counts() -> None:
    x, y = np.random.default_rng(1).normal(size=(7, 3)).astype(np.float32), np.zeros((7, 1), np.float32)
    w = snncell.Parameter(np.ones((3, 1), np.float32))
    gradient = ops.grad(lambda a, b: ((ops.matmul(a, w) - b) ** 2).mean(), None, (w,))
    parts = list(distributed.shards(x, y))
    mean = distributed.mean_gradients([gradient(*part) for part in parts], [len(part[1]) for part in parts])
    assert np.allclose(mean[0].asnumpy(), gradient(Tensor(x), Tensor(y))[0].asnumpy(), atol=1e-6)
    single = distributed.mean_gradients(gradient(Tensor(x), Tensor(y)), 7)
    assert np.allclose(single[0].asnumpy(), mean[0].asnumpy(), atol=1e-6)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("grads", "samples", "error", "words"),
    [
        ([], None, ArgumentError, "no rank passed gradients with samples"),
        ([(ops.ones(3),)], [0], ArgumentError, "no rank passed gradients with samples"),
        ((ops.ones(3),), [1, 2], ArgumentError, r"samples must be a number for each of 1 gradients, not \[1, 2\]"),
        ((ops.ones(3),), -1, ArgumentError, "samples must be a number for each of 1 gradients, not -1"),
        ((ops.ones(3),), True, ArgumentError, "samples must be a number for each of 1 gradients, not True"),
        ([(ops.ones(3),)] * 9, None, ArgumentError, "grads has 9 shards, but this rank has"),
        (3.0, None, ArgumentError, "grads must be a tuple of Tensors, or a list of them, not"),
    ],
)
def test_invalid_gradients_raise(grads: Any, samples: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        distributed.mean_gradients(grads, samples)


@pytest.mark.usefixtures("alone")
def test_shard_gradients_with_different_shapes_raise() -> None:
    if job.join_job("a test").shards > 1:
        with pytest.raises(
            ShapeError, match=r"gradients of a shard on rank 0 are .*4.* but those of a shard on rank 0 .*3"
        ):
            distributed.mean_gradients([(ops.ones(3),), (ops.ones(4),)])


# --- joining ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ImportError("No module named 'mpi4py'", name="mpi4py"), r'pip install "snncell\[mpi\]" installs both'),
        (
            RuntimeError("cannot load MPI library"),
            r"mpi4py has found no MPI library \(cannot load MPI library\)\. Run pip install",
        ),
    ],
)
def test_missing_mpi_raises_with_install_instructions(error: Any, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: str) -> Any:
        raise error

    monkeypatch.setattr(job, "import_once", fail)
    with pytest.raises(RankError, match=words):
        job._mpi.__wrapped__()


@pytest.mark.parametrize(("size", "bound", "threads"), [(1, False, 8), (2, False, 4), (4, False, 2), (4, True, 8)])
def test_ranks_on_one_machine_share_its_cores(
    size: int, bound: bool, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[int] = []
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)
    monkeypatch.setattr(job, "set_number_of_threads", given.append)
    monkeypatch.setattr(job.os, "cpu_count", lambda: 32)
    local = threading.local()
    cores = lambda _: set(range(8 * local.rank, 8 * local.rank + 8) if bound else range(8))  # noqa: E731
    monkeypatch.setattr(job.os, "sched_getaffinity", cores, raising=False)

    def of(mpi: Any) -> None:
        local.rank = mpi.COMM_WORLD.rank
        job._share_cores(Ranks(mpi, 4, False), None)

    on_ranks(size, of)
    assert given == [threads] * size


def test_uncaught_error_is_printed_with_its_rank(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    mpi, ended, slept = Mpi(), [], []
    monkeypatch.setattr(ranks_module.time, "sleep", slept.append)
    mpi.COMM_WORLD.Abort = ended.append  # type: ignore[attr-defined]
    ranks = Ranks(mpi, 4, False)
    hook = sys.excepthook
    try:
        ranks.ending.watch()
        for rank in (0, 3):
            ranks.ending.comm.rank = rank
            error = ValueError("the disk is full")
            sys.excepthook(ValueError, error, None)
    finally:
        sys.excepthook = hook
        atexit.unregister(ranks.ending._done)
    said = capsys.readouterr().err
    assert ended == [1, 1] and slept == [0.0, ranks_module.TOLD, ranks_module.FIRST, ranks_module.TOLD]
    assert said.count("ValueError: the disk is full") == 2
    assert "rank 3 of 1 has ended by ValueError; this ends the job" in said
    ranks.ending._done()  # of one rank there is nobody to wait for
