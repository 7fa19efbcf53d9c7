"""Overlap of gradient exchange with the backward pass: each bucket of gradients is sent as soon as it is complete."""

from __future__ import annotations

import itertools
import random
import signal
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from interrupting import each_interruption
from ranks.pretended import Mpi, on_ranks

import snncell
from snncell import Parameter, Tensor, distributed, nn, ops, train
from snncell.compiler.passes import optimise
from snncell.compiler.passes.simplify import begin_early
from snncell.distributed import job, ranks as progress_module, sharding
from snncell.distributed.gradients import hand_over
from snncell.distributed.ranks import ProgressThread, Ranks


class Notes:
    """Take gradients and record them."""

    def __init__(self, buckets: list[list[int]]) -> None:
        self.buckets = buckets
        self.taken: list[tuple[tuple[int, ...], list[Any]]] = []

    def take(self, numbers: Any, arrays: Any) -> None:
        """Record the gradients of a bucket."""
        self.taken.append((tuple(numbers), [np.array(x) for x in arrays]))


def draw_loss(seed: int) -> tuple[Callable[[Tensor], Tensor], tuple[Parameter, ...], Tensor, list[list[int]]]:
    """A random loss, its Parameters, an input, and buckets of Parameter indices."""
    chance = random.Random(seed)
    snncell.set_seed(seed)
    steps, batch, width = chance.randint(1, 4), chance.randint(1, 5), chance.randint(1, 6)
    shared, layers = nn.Dense(width, width), []
    for _ in range(chance.randint(1, 5)):
        kind = chance.choice(["dense", "bare", "spiking", "norm", "shared", "scale"])
        layers.append(
            {
                "dense": lambda: nn.SequentialCell(nn.Dense(width, width), nn.Tanh()),
                "bare": lambda: nn.Dense(width, width, has_bias=False),
                "spiking": lambda: nn.MultiStep(nn.LIFNode(tau=2.0, v_threshold=0.3)),
                "norm": lambda: nn.LayerNorm((width,)),
                "shared": lambda: shared,
                "scale": lambda: nn.SequentialCell(nn.Dense(width, width), nn.MultiStep(nn.IFNode())),
            }[kind]()
        )
    net = nn.SequentialCell(*layers)
    fixed = ops.uniform((3,))
    apart, double = Parameter(ops.ones(3), name="apart"), Parameter(Tensor(np.ones(2)), name="double")
    weights = [*net.trainable_params(), apart, double]
    chance.shuffle(weights)

    def loss(x: Tensor) -> Tensor:
        # The gradient of `apart` is a constant, and `double` is of another dtype.
        return (net(x) ** 2).mean() + (fixed * apart).sum() + (double * double).sum().astype("float32")

    order = list(range(len(weights)))
    chance.shuffle(order)
    buckets = []
    while order:
        size = chance.randint(1, 3)
        buckets.append(order[:size])
        order = order[size:]
    return loss, tuple(weights), ops.uniform((steps, batch, width)), buckets


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(30))
def test_every_run_sends_gradients_bucket_by_bucket(seed: int) -> None:
    loss, weights, x, buckets = draw_loss(seed)
    gradients = ops.value_and_grad(loss, None, weights)
    value, plain = gradients(x)

    def handing_over(x: Tensor) -> Any:
        value, grads = gradients(x)
        return value, hand_over(grads, notes)

    for function in (handing_over, snncell.jit(handing_over)):
        notes = Notes(buckets)
        for run in (1, 2):
            again, passed_on = function(x)
            assert abs(again.item() - value.item()) <= 1e-5 * abs(value.item())
            assert [numbers for numbers, _ in notes.taken] == [tuple(bucket) for bucket in buckets] * run
            for numbers, arrays in notes.taken[-len(buckets) :]:
                for number, array in zip(numbers, arrays, strict=True):
                    assert np.array_equal(array, passed_on[number].asnumpy())
                    assert array.dtype == plain[number].asnumpy().dtype
                    assert np.allclose(array, plain[number].asnumpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.sampled(10)
@pytest.mark.parametrize("seed", range(30))
def test_only_instructions_that_a_bucket_needs_precede_it(seed: int) -> None:
    loss, weights, x, buckets = draw_loss(seed)
    notes = Notes(buckets)

    def handing_over(x: Tensor) -> Any:
        value, grads = ops.value_and_grad(loss, None, weights)(x)
        return ops.exp(value), hand_over(grads, notes)

    compiled, leaves = snncell.jit(handing_over).lookup((x,), {})
    plan = compiled.plan([leaf._data for leaf in leaves])
    steps, needed = plan.program.instructions, set()
    takes = [number for number, step in enumerate(steps) if step.op.early]
    assert len(takes) == len(buckets)
    for number in takes:
        values, leading = set(steps[number].inputs), {number}
        for before in reversed(range(number)):
            if not values.isdisjoint(steps[before].outputs):
                leading.add(before)
                values |= {value for value in steps[before].inputs if hasattr(value, "shape")}
        needed |= leading
        assert set(range(number + 1)) == needed
    assert begin_early(plan.program).instructions == steps
    traced = compiled.plans.program
    assert sorted(str(step.op) for step in optimise(traced).instructions) == sorted(str(step.op) for step in steps)
    # Launches have that order too: loops are not fused across a bucket that they lead to.
    made = {value: number for number, launch in enumerate(plan.launches) for value in launch.group.writes}
    made |= {
        value: n for n, run in enumerate(plan.launches) for step in run.group.instructions for value in step.outputs
    }
    calls = [n for n, launch in enumerate(plan.launches) if launch.group.instructions[0].op.early]
    assert calls == sorted(calls)
    assert all(made[value] < n for n in calls for value in plan.launches[n].group.reads if value in made)


def test_layer_gradients_are_sent_before_backward_of_previous_layer() -> None:
    net = nn.SequentialCell(*[nn.SequentialCell(nn.Dense(8, 8), nn.MultiStep(nn.LIFNode())) for _ in range(4)])
    weights = tuple(net.trainable_params())
    notes = Notes([[2 * layer, 2 * layer + 1] for layer in reversed(range(4))])

    def handing_over(x: Tensor) -> Any:
        return hand_over(ops.grad(lambda x: net(x).mean(), None, weights)(x), notes)

    compiled, leaves = snncell.jit(handing_over).lookup((ops.ones((5, 3, 8)),), {})
    launches = compiled.plan([leaf._data for leaf in leaves]).launches
    names = [launch.group.instructions[0].op.name for launch in launches]
    takes = [number for number, name in enumerate(names) if name == "take_gradients"]
    assert len(takes) == 4
    for begin, end in itertools.pairwise(takes):
        assert "scan" in names[begin:end]  # the reverse of a layer's neurons


# --- means over ranks -------------------------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("fast", [False, True])
def test_mean_in_jitted_step_equals_mean_of_gradients(seed: int, fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharding, "BUCKET", random.Random(seed).choice([1, 40, 1 << 20]))
    loss, weights, x, _ = draw_loss(seed)
    ranks, counts = 3, [random.Random(seed).randint(1, 9) for _ in range(3)]
    inputs = [x * (1.0 + rank) for rank in range(ranks)]
    plain = [ops.grad(loss, None, weights)(one) for one in inputs]
    traced = threading.Lock()  # Cells are traced by one thread at a time

    def of(mpi: Any) -> Any:
        monkeypatch.setitem(jobs, threading.get_ident(), Ranks(mpi, ranks, fast))
        rank = mpi.COMM_WORLD.rank

        def step(x: Tensor) -> Any:
            return distributed.mean_gradients(ops.grad(loss, None, weights)(x), counts[rank])

        jitted = snncell.jit(step)
        with traced:
            jitted.explain(inputs[rank], detail="launches")
        return [[g.asnumpy() for g in jitted(inputs[rank])] for _ in range(2)]

    jobs: dict[int, Ranks] = {}
    monkeypatch.setattr("snncell.distributed.gradients.join_job", lambda _: jobs[threading.get_ident()])
    for runs in on_ranks(ranks, of):
        for means in runs:
            for number, mean in enumerate(means):
                exact = sum(n * g[number].asnumpy() for n, g in zip(counts, plain, strict=True)) / sum(counts)
                assert mean.dtype == plain[0][number].asnumpy().dtype
                assert np.allclose(mean, exact, rtol=1e-4, atol=1e-6)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Ranks:
    """A job of one rank in fast mode with small buckets."""
    monkeypatch.setattr(job, "_JOB", [])
    monkeypatch.setattr(job, "_mpi", Mpi)
    monkeypatch.setattr(progress_module.Ending, "watch", lambda _: None)
    monkeypatch.setattr(sharding, "BUCKET", 16)
    monkeypatch.setenv("NUMBA_NUM_THREADS", "2")  # so that it stays at that
    distributed.init(fast=True)
    return job.join_job("a test")


@pytest.mark.parametrize("at", [0, 1, 2])
def test_interrupted_step_leaves_no_exchange_for_next_step(
    alone: Ranks, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = nn.SequentialCell(nn.Dense(3, 4), nn.ReLU(), nn.Dense(4, 2))
    weights, x = tuple(net.trainable_params()), ops.uniform((5, 3))
    gradients = ops.grad(lambda x: (net(x) ** 2).mean(), None, weights)
    step = snncell.jit(lambda x: distributed.mean_gradients(gradients(x), 5))
    begun: list[Any] = []

    def interrupted(vector: Any) -> Any:
        begun.append(vector)
        if len(begun) == at + 1:
            raise KeyboardInterrupt
        return start_sum(vector)

    start_sum = alone.start_sum
    monkeypatch.setattr(alone, "start_sum", interrupted)
    with pytest.raises(KeyboardInterrupt):
        step(x)
    for _ in range(2):
        for mean, plain in zip(step(x), gradients(x), strict=True):
            assert np.allclose(mean.asnumpy(), plain.asnumpy(), atol=1e-6)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("accumulate", [1, 2, 3])
def test_accumulated_gradients_are_sent_with_last_batch(accumulate: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(10, 3)).astype(np.float32), rng.normal(size=(10, 1)).astype(np.float32)
    batches = [(x[n : n + 2], y[n : n + 2]) for n in range(0, 10, 2)]  # five: the last step has fewer
    kept, begin = [], sharding.InBuckets.begin
    sent: list[tuple[int, int]] = []

    def noting(self: sharding.InBuckets) -> None:
        sent.append((self.sent, len(self.buckets)))
        begin(self)

    monkeypatch.setattr(sharding.InBuckets, "begin", noting)
    for together in (False, True):
        snncell.set_seed(1)
        net = nn.SequentialCell(nn.Dense(3, 8), nn.Tanh(), nn.Dense(8, 1))
        sgd = nn.SGD(net.trainable_params(), 0.1)
        more: dict[str, Any] = {"accuracy": None, "progress": False, "accumulate": accumulate}
        train.fit(net, nn.MSELoss(), sgd, batches, 2, distributed=together, **more)
        kept.append([p.asnumpy() for p in net.get_parameters()])
    # All buckets are sent when the backward pass ends, except for an epoch's last batches if they are few.
    assert [of for one, of in sent if one == of] == [3] * (2 * (5 // accumulate))
    assert [one for one, of in sent if one != of] == [0] * (2 if 5 % accumulate else 0)
    assert all(np.allclose(one, other, atol=1e-6) for one, other in zip(*kept, strict=True))


# --- the thread -------------------------------------------------------------------------------------------------------


class Asked:
    """A communicator that counts its polls."""

    def __init__(self, size: int) -> None:
        self.size, self.rank = size, 0
        self.times = 0
        self.often = threading.Event()

    def Iprobe(self, rank: int, tag: int) -> bool:  # noqa: N802 - mpi4py's name
        self.times += 1
        if self.times % 5 == 0:
            self.often.set()
        return False


class Single(Mpi):
    """An MPI that allows calls from one thread only."""

    @staticmethod
    def Query_thread() -> int:  # noqa: N802 - mpi4py's name
        return Mpi.THREAD_MULTIPLE - 1


def test_mpi_is_polled_from_begin_to_end() -> None:
    comm = Asked(2)
    progress = ProgressThread(Mpi(), comm)
    progress.end()  # which may come first
    for _ in range(2):
        comm.often.clear()
        progress.begin()
        progress.begin()
        assert comm.often.wait(60.0)
        progress.end()
        assert not any(thread.name == "snncell exchanges" for thread in threading.enumerate())


@pytest.mark.parametrize(("mpi", "size"), [(Single(), 2), (Mpi(), 1)])
def test_single_rank_or_missing_thread_support_disables_polling(mpi: Any, size: int) -> None:
    progress = ProgressThread(mpi, Asked(size))
    progress.begin()
    assert progress.thread is None
    progress.end()


def test_polling_thread_can_be_ended_after_interruption_at_any_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its first two writes, the signal waits until both are done."""
    comm = Asked(2)
    progress = ProgressThread(Mpi(), comm)
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        if thread.name == "snncell exchanges":
            signal.raise_signal(signal.SIGINT)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        progress.begin()
    assert comm.often.wait(60.0)
    progress.end()
    assert progress.thread is None


def test_started_requests_are_kept_after_interruption_at_any_place(alone: Ranks) -> None:
    """MPI writes to the vector of a request, so the request must stay referenced."""
    given = SimpleNamespace()
    alone.mpi = SimpleNamespace(IN_PLACE=given, SUM=None)
    alone.comm = SimpleNamespace(Iallreduce=setattr)  # a function in C, as mpi4py's is, that leaves a trace

    def begin() -> None:
        vars(given).clear()
        alone.left.clear()
        alone.start_sum("vector")  # type: ignore[arg-type]

    held = [len(alone.left) >= len(vars(given)) for _ in each_interruption(begin)]
    assert len(held) > 3 and all(held)


def test_error_ends_polling_thread() -> None:
    def of(mpi: Any) -> bool:
        ranks = Ranks(mpi, 2, True)

        def failing() -> None:
            with ranks.together():
                ranks.progress.begin()
                assert ranks.progress.thread is not None
                raise ValueError("full")

        with pytest.raises(ValueError, match=r"^full$"):
            failing()
        return ranks.progress.thread is None

    assert progress_module.PAUSE < 1e-2  # a rank that computes is not kept waiting for long
    assert on_ranks(2, of) == [True, True]
