"""Jobs with a fault or an interruption: python -m ranks.going_wrong NAME FOLDER runs one rank.

Each function is a job, except for those in `REFUSED`, which the job `refused` calls in turn. test_distributed_ends.py
checks the printed lines.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import snncell
from snncell import Tensor, distributed, nn, ops, train

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(24, 5)).astype(np.float32), RNG.integers(0, 3, 24)


class Counting(nn.Cell):
    """A layer with an integer that depends on its input."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = snncell.Parameter(Tensor(0), requires_grad=False)

    def construct(self, x: Tensor) -> Tensor:
        self.seen.assign(ops.argmax(x.sum(0), -1).astype("int64"))
        return x


def fit(net: Any = None, data: Any = (X, Y), epochs: int = 2, **options: Any) -> Any:
    """Train a small network."""
    net = nn.Dense(5, 3) if net is None else net
    adam = nn.Adam(net.trainable_params(), options.pop("rate", 0.01))
    options = {"batch_size": 8, "progress": False, "distributed": True, **options}
    return train.fit(net, nn.CrossEntropyLoss(), adam, data, epochs, **options)


class At(train.Callback):
    """Call an action on one rank after a number of steps."""

    def __init__(self, step: int, rank: int, action: Any) -> None:
        self.step, self.rank, self.action = step, rank, action

    def on_step_end(self, training: Any) -> None:
        if training.step == self.step and distributed.rank() == self.rank:
            self.action(training)


def rank() -> int:
    """Return the number of this rank."""
    return distributed.rank()


def odd() -> int:
    """Return 1 on the rank that differs from the others, else 0. It is rank 1, or the environment variable ODD."""
    return int(rank() == int(os.environ.get("ODD", "1")))


# --- the jobs ---------------------------------------------------------------------------------------------------------


def kill(_: Any = None) -> None:
    """End this process by a signal that it cannot handle."""
    os.kill(os.getpid(), signal.SIGKILL)


def killed_in_a_step(folder: Path) -> None:
    """One rank is killed in the middle of an epoch."""
    fit(callbacks=[At(4, 1, kill)])


def killed_in_the_evaluation(folder: Path) -> None:
    """One rank is killed during the evaluation."""

    class Killed(train.Callback):
        def on_evaluation_begin(self, training: Any) -> None:
            if rank() == 1:
                kill()

    fit(validation=(X, Y), callbacks=[Killed()])


def killed_in_the_checkpoint(folder: Path) -> None:
    """The first rank is killed while it replaces its first checkpoint by the second one."""
    if distributed.size() > 1:
        replace = os.replace
        times: list[Any] = []

        def killing(*paths: Any) -> None:
            times.extend(path for path in paths[1:] if str(path).endswith("run.ckpt"))
            if len(times) == 2:
                kill()
            replace(*paths)

        os.replace = killing
    going_on(folder)


def going_on(folder: Path) -> None:
    """Train, from the checkpoint if there is one, and print the results."""
    file = folder / "run.ckpt"
    snncell.set_seed(5)
    net = nn.SequentialCell(nn.Dense(5, 6), nn.BatchNorm1d(6), nn.Dropout(keep_prob=0.8), nn.Dense(6, 3))
    result = fit(net, epochs=4, checkpoint=file, resume=file.exists())
    if rank() == 0:
        print(result.history, [p.asnumpy().tolist() for p in net.get_parameters()], flush=True)


def leaving_fit(folder: Path) -> None:
    """One rank leaves `fit` by sys.exit."""
    fit(callbacks=[At(2, 1, lambda _: sys.exit(0))])


def stopped_for_good(folder: Path) -> None:
    """One rank is stopped by a signal, until the test continues it."""
    snncell.distributed.ranks.SILENT = 4.0

    def stop(_: Any) -> None:
        (folder / "stopped").write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGSTOP)

    fit(callbacks=[At(2, 1, stop)])
    print(f"rank {rank()} is done", flush=True)


def raising(folder: Path) -> None:
    """A callback raises an error on one rank."""

    def fail(_: Any) -> None:
        raise ValueError("the disk of rank 1 is full")

    fit(callbacks=[At(4, 1, fail)])


def caught(folder: Path) -> None:
    """One rank leaves `fit` by an error that its program catches. The others get an error, too. All train again."""

    def fail(_: Any) -> None:
        raise ValueError("the disk of rank 1 is full")

    for attempt in range(2):
        try:
            fit(callbacks=[At(2, 1, fail)])
        except (ValueError, snncell.errors.RankError) as error:
            print(f"rank {rank()}, attempt {attempt}: {type(error).__name__}: {error}", flush=True)
        distributed.mean_gradients((ops.ones(1),))
    snncell.set_seed(0)
    print(f"rank {rank()}: {len(fit().history)} epochs", flush=True)


def refused(folder: Path) -> None:
    """Make each call of `REFUSED`, which must raise on all ranks. Then train, also to a stop and with files."""
    for name in REFUSED:
        snncell.set_seed(0)
        try:
            globals()[name](folder)
        except snncell.errors.SnncellError as error:
            print(f"{name}, rank {rank()}: {type(error).__name__}: {error}", flush=True)
    snncell.set_seed(0)
    print(f"rank {rank()}: {len(fit().history)} epochs", flush=True)
    for job in (stopping, files):
        snncell.set_seed(0)
        (folder / job.__name__).mkdir(exist_ok=True)
        job(folder / job.__name__)


def all_raising(folder: Path) -> None:
    """All ranks raise the same error."""
    raise ValueError("on every rank")


def leaving(folder: Path) -> None:
    """One rank ends its program, and the others train."""
    if rank() == 1:
        sys.exit(0)
    fit()


def later(folder: Path) -> None:
    """One rank still works after the others have ended."""
    fit()
    if rank() == 0:
        time.sleep(2.5)
        print("rank 0 is done")


def unseeded(folder: Path) -> None:
    """The networks have different seeds."""
    snncell.set_seed(odd())
    fit()


def other_data(folder: Path) -> None:
    """The ranks pass different data."""
    fit(data=(X[odd() :: 2], Y[odd() :: 2]))


def other_settings(folder: Path) -> None:
    """The ranks clip gradients differently."""
    fit(clip_norm=1.0 + odd())


def other_epochs(folder: Path) -> None:
    """The ranks train for different numbers of epochs."""
    fit(epochs=2 + odd())


def other_evaluations(folder: Path) -> None:
    """The ranks evaluate after different epochs."""
    fit(validation=(X, Y), test_every=[1 + odd()])


def other_rates(folder: Path) -> None:
    """A learning rate in a list differs."""
    fit(rate=[0.01, 0.01 * (1 + odd())])


def other_buffers(folder: Path) -> None:
    """A persistent buffer differs."""
    net = nn.SequentialCell(nn.Dense(5, 3))
    net.register_buffer("centre", Tensor([float(odd())]))
    fit(net=net)


def other_scale(folder: Path) -> None:
    """The loss scales differ."""
    fit(loss_scale=2.0 ** (1 + odd()))


def other_rate(folder: Path) -> None:
    """The learning rates differ."""
    fit(rate=0.01 * (1 + odd()))


def drawing(folder: Path) -> None:
    """A callback draws random numbers on one rank."""
    fit(callbacks=[At(2, int(os.environ.get("ODD", "1")), lambda _: ops.uniform((3,)))])


def other_net(folder: Path) -> None:
    """The networks differ."""
    fit(net=nn.SequentialCell(nn.Dense(5, 4), *[nn.ReLU()] * odd(), nn.Dense(4, 3)))


def other_order(folder: Path) -> None:
    """Each rank shuffles its batches differently, like PyTorch's DataLoader."""
    order = np.random.default_rng(odd()).permutation(24)
    fit(data=[(X[order[n : n + 8]], Y[order[n : n + 8]]) for n in range(0, 24, 8)])


def other_shards(folder: Path) -> None:
    """Resume a training that started with another number of shards."""
    file = folder / "other.ckpt"
    fit(epochs=1, checkpoint=file)
    if rank() == 0:
        content = file.read_bytes()
        assert content.count(b'shards\\": 4') == 1
        file.write_bytes(content.replace(b'shards\\": 4', b'shards\\": 8'))
    distributed.mean_gradients((ops.ones(1),))  # after it, the file exists for all ranks
    fit(epochs=2, checkpoint=file, resume=True)


def wrong_counts(folder: Path) -> None:
    """The number of samples differs from the number of gradients."""
    distributed.mean_gradients((ops.ones(3),), [1, 2])


def too_many(folder: Path) -> None:
    """A rank passes gradients of more shards than it has."""
    distributed.mean_gradients([(ops.ones(3),)] * 3)


def no_tensors(folder: Path) -> None:
    """The gradients are no Tensors."""
    distributed.mean_gradients([1.0, 2.0])


def none_at_all(folder: Path) -> None:
    """No rank passes gradients."""
    distributed.mean_gradients([], [])


def no_target(folder: Path) -> None:
    """The batch has no target."""
    list(distributed.shards(1.0))


def stateful(folder: Path) -> None:
    """The network keeps states between batches."""
    fit(net=nn.SequentialCell(nn.Dense(5, 3), nn.Stateful(nn.IFNode())))


def counting(folder: Path) -> None:
    """Shards write different values to an integer Parameter."""
    fit(net=nn.SequentialCell(Counting(), nn.Dense(5, 3)))


def too_few(folder: Path) -> None:
    """There are fewer shards than ranks."""
    distributed.init(shards=1)


def again(folder: Path) -> None:
    """`init` is called again with another argument."""
    distributed.init(shards=8)


def different(folder: Path) -> None:
    """The ranks pass different `shards` to their first `init`."""
    distributed.init(shards=4 + int(os.environ.get("PMI_RANK", os.environ.get("OMPI_COMM_WORLD_RANK", "0"))))


def traced(folder: Path) -> None:
    """A jitted function calls `shards`."""
    snncell.jit(lambda x: next(distributed.shards(x, x))[0])(ops.ones(8))


def shapes(folder: Path) -> None:
    """Gradients have different shapes."""
    distributed.mean_gradients((ops.ones(3 + odd()),))


def ambiguous(folder: Path) -> None:
    """An input has as many steps as samples."""
    list(distributed.shards(ops.ones((4, 4, 2)), ops.ones(4)))


def no_samples(folder: Path) -> None:
    """An input has no axis of samples."""
    fit(data=[(X[:8].reshape(4, 2, 5)[:, :1], Y[:8])])


def lists(folder: Path) -> None:
    """The batch has event lists."""
    events = snncell.data.EventLists(
        Tensor(np.arange(17)), Tensor(np.zeros(16, np.int32)), Tensor(np.ones(16, np.float32)), (2, 8, 5)
    )
    fit(data=[(events, Y[:8])])


def infinite(folder: Path) -> None:
    """The loss is not finite on all ranks."""
    fit(data=(np.where(X > 2, np.inf, X), Y))


def stopping(folder: Path) -> None:
    """One rank stops the training."""
    result = fit(epochs=5, callbacks=[At(4, 1, lambda training: training.stop("rank 1 has seen enough"))])
    print(f"rank {rank()}: {len(result.history)} epochs, {result.stopped}", flush=True)


def files(folder: Path) -> None:
    """One rank writes files."""
    writer = train.Checkpoint(folder / "best.ckpt", best="loss")
    fit(checkpoint=folder / "last.ckpt", log=folder / "log.jsonl", callbacks=[writer])
    assert (folder / "last.ckpt").exists()  # for every rank, after `fit`


def interrupted(folder: Path) -> None:
    """Train one long epoch, so that there is a checkpoint only after an interruption."""

    class MarkStart(train.Callback):
        def on_step_end(self, training: Any) -> None:
            if training.step == 20 and rank() == 0:
                (folder / "begun").touch()
            time.sleep(0.01)

    data = [(X[:8], Y[:8])] * 5000
    result = fit(data=data, epochs=1, checkpoint=folder / "run.ckpt", callbacks=[MarkStart()])
    print(f"rank {rank()}: {result.stopped}", flush=True)


def threads(folder: Path) -> None:
    """The ranks share the cores."""
    import numba

    cores = len(os.sched_getaffinity(0))
    assert numba.get_num_threads() == max(1, cores // distributed.size()), numba.get_num_threads()
    distributed.init(threads=1)
    assert numba.get_num_threads() == 1


REFUSED = (
    *("unseeded", "other_data", "other_settings", "other_rate", "other_net", "other_order", "other_shards", "drawing"),
    *("stateful", "counting", "too_few", "again", "traced", "shapes", "ambiguous", "no_samples", "lists", "infinite"),
    *("other_epochs", "other_evaluations", "other_rates", "other_buffers", "other_scale"),
    *("wrong_counts", "too_many", "no_tensors", "none_at_all", "no_target"),
)

if __name__ == "__main__":
    name = sys.argv[1]
    if name not in ("too_few", "different"):
        distributed.init()
    globals()[name](Path(sys.argv[2]))
