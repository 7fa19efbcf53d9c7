"""A training step and the exchange of a gradient on 1, 2 and 4 ranks of this machine, and a model of up to 1,000.

    python benchmarks/distributed.py [--markdown FILE] [--overlap "mpiexec ..."]

The step is one of `train.fit`: the net of the SHD benchmarks (700-256-256-20, LIF, 100 steps), 64 samples in all.
With `--overlap`, two ranks that are started by that command show what fast mode hides behind the reverse of a deeper
net: on one machine memory is no network, so let the command be of two machines, or of two network namespaces.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from timing import tell

import snncell
from snncell import distributed, nn, train
from snncell.distributed import sharding, training

STEPS, BATCH, ROUNDS = 100, 64, 40
FLOATS = 1 << 20  # 4 MB
NETWORKS = {  # seconds for a message of no length, bytes in a second
    "Ethernet, 25 Gb/s": (20e-6, 3.1e9),
    "InfiniBand, 100 Gb/s": (1.5e-6, 12e9),
}
MESSAGES = ("1 byte", "4 MB")  # there and back
RANKS = (1, 2, 4, 8, 16, 64, 256, 1000)
WIDTH, DEPTH, DEEP_STEPS, EACH = 512, 6, 64, 32  # of the deeper net, and its samples on each rank


# --- a model of more ranks --------------------------------------------------------------------------------------------


def in_order(ranks: int, size: float, latency: float, bandwidth: float) -> float:
    """Seconds to add gradients of `size` bytes in the order of the shards: each rank a part of them, then all to all.

        2 (p - 1) alpha + 2 n (p - 1) / (p b)

    of p ranks, n bytes, latency alpha and bandwidth b: pairwise exchange, then a ring (Thakur, Rabenseifner, Gropp,
    "Optimization of collective communication operations in MPICH", IJHPCA 2005, sections 4.1 and 4.4).
    """
    return 2 * (ranks - 1) * latency + 2 * size * (ranks - 1) / ranks / bandwidth


def by_mpi(ranks: int, size: float, latency: float, bandwidth: float) -> float:
    """Seconds of an Allreduce by Rabenseifner's algorithm (section 4.5): 2 log2(p) alpha + 2 n (p - 1) / (p b)."""
    return 2 * math.ceil(math.log2(ranks)) * latency + 2 * size * (ranks - 1) / ranks / bandwidth


def small(ranks: int, size: float, latency: float, bandwidth: float) -> float:
    """Seconds to gather a few bytes of every rank, recursive doubling (section 4.1): log2(p) alpha + n (p - 1) / b."""
    return math.ceil(math.log2(ranks)) * latency + size * (ranks - 1) / bandwidth


def efficiency(step: float, ranks: int, network: str, exchange: Callable[..., float], size: float) -> float:
    """The step of one rank over that of as many samples on each of several: 1 if exchanging took no time.

    Beside the gradients there are three small exchanges in a step: numbers (64 bytes), statistics, whether to stop.
    """
    more = exchange(ranks, size, *NETWORKS[network]) + 3 * small(ranks, 64, *NETWORKS[network])
    return step / (step + more)


# --- what is measured on a rank ---------------------------------------------------------------------------------------


class Timed(train.Callback):
    """Notes what each step takes, from its begin to its end."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_step_begin(self, training: train.Training) -> None:
        self.begun = time.perf_counter()

    def on_step_end(self, training: train.Training) -> None:
        self.seconds.append(time.perf_counter() - self.begun)


def step(together: bool) -> float:
    """The least milliseconds that a step took, without the first ones."""
    snncell.set_seed(0)
    rng = np.random.default_rng(0)
    x = (rng.random((STEPS, 4 * BATCH, 700)) < 0.02).astype(np.float32)
    layers = [[nn.Dense(a, b), nn.MultiStep(nn.LIFNode(tau=5.0))] for a, b in ((700, 256), (256, 256))]
    net = nn.SequentialCell(*layers[0], *layers[1], nn.Dense(256, 20), nn.Readout("mean"))
    batches = train.Batches(x, rng.integers(0, 20, 4 * BATCH), batch_size=BATCH, time_first=True)
    timed, adam = Timed(), nn.Adam(net.trainable_params(), 1e-3)
    more: dict[str, Any] = {"progress": False, "distributed": together, "callbacks": [timed]}
    train.fit(net, nn.CrossEntropyLoss(), adam, batches, 4 + ROUNDS // 4, **more)
    return 1e3 * min(timed.seconds[8:])


def exchanges() -> dict[str, float]:
    """The least milliseconds of the sum of a gradient of 4 MB, in both ways, and of a message of 1 byte and of 4 MB."""
    ranks = distributed.job.join_job("the benchmark")
    vector, one = np.ones(FLOATS, np.float32), np.ones(1, np.uint8)
    total, like = np.empty_like(vector), np.empty_like(vector)
    comm, peer = ranks.comm, ranks.rank ^ 1

    def there_and_back(message: Any) -> None:
        if ranks.rank % 2:
            comm.Recv(message, peer)
            comm.Send(message, peer)
        else:
            comm.Send(message, peer)
            comm.Recv(message, peer)

    ways: dict[str, Callable[[], Any]] = {
        "gathered and added": lambda: ranks.sum_shards({shard: vector.copy() for shard in ranks.own}, like),
        "Allreduce": lambda: comm.Allreduce(vector, total, ranks.mpi.SUM),
    }
    if ranks.size > 1:
        ways |= {"1 byte": lambda: there_and_back(one), "4 MB": lambda: there_and_back(vector)}  # `MESSAGES`
    found = {}
    for name, way in ways.items():
        seconds = []
        for _ in range(5 * ROUNDS):
            comm.Barrier()
            begun = time.perf_counter()
            way()
            seconds.append(time.perf_counter() - begun)
        found[name] = 1e3 * min(seconds[4:]) / (2 if name in MESSAGES else 1)
    return found


class Between(training.Sharded):
    """A step that notes how long the update waits when the reverse has ended."""

    seconds: list[float] = []  # noqa: RUF012 - of all steps

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        gradients, update = self.gradients, self.update

        def timed_gradients(*batch: Any) -> Any:
            results = gradients(*batch)
            self.ended = time.perf_counter()
            return results

        def timed_update(*sums: Any) -> None:
            self.seconds.append(time.perf_counter() - self.ended)
            update(*sums)

        self.gradients, self.update = timed_gradients, timed_update


def overlap() -> dict[str, float]:
    """The median milliseconds of steps of the deeper net, and of those the ones behind its reverse."""
    training.Sharded = Between  # type: ignore[misc]
    found = {}
    for name, bucket in (("at the end", 1 << 40), ("as they come", sharding.BUCKET)) * 2:
        sharding.BUCKET = bucket
        snncell.set_seed(0)
        rng = np.random.default_rng(0)
        layers = [nn.SequentialCell(nn.Dense(WIDTH, WIDTH), nn.MultiStep(nn.LIFNode())) for _ in range(DEPTH)]
        net = nn.SequentialCell(*layers, nn.Dense(WIDTH, 10), nn.Readout("mean"))
        x = (rng.random((DEEP_STEPS, 8 * EACH, WIDTH)) < 0.1).astype(np.float32)
        batches = train.Batches(x, rng.integers(0, 10, 8 * EACH), batch_size=2 * EACH, time_first=True)
        timed, adam = Timed(), nn.Adam(net.trainable_params(), 1e-3)
        Between.seconds.clear()
        more: dict[str, Any] = {"progress": False, "distributed": True, "callbacks": [timed]}
        train.fit(net, nn.CrossEntropyLoss(), adam, batches, 12, **more)
        found[name] = 1e3 * statistics.median(timed.seconds[8:])
        found[f"{name}, behind"] = 1e3 * statistics.median(Between.seconds[8:])
        found["bytes"] = sum(4.0 * p.size for p in net.trainable_params())
    return found


def on_rank(kind: str, file: Path) -> None:
    """Measure as one of the ranks; the first writes."""
    distributed.init(fast=kind != "in order")
    if kind == "overlap":
        found = overlap()
    else:
        found = {"threads": snncell.kernels.numba.policy.number_of_threads(), "step": step(True)}
        found |= {"alone": step(False)} if distributed.size() == 1 else {}
        found |= {} if kind == "fast" else exchanges()
    if distributed.rank() == 0:
        file.write_text(json.dumps(found), encoding="utf-8")


# --- the page ---------------------------------------------------------------------------------------------------------


def job(ranks: int, kind: str, launcher: str = "") -> dict[str, float]:
    """The figures of a job of so many ranks."""
    beside = Path(sys.executable).with_name("mpiexec")
    usual = str(beside) if beside.exists() else shutil.which("mpiexec") or sys.exit("There is no mpiexec.")
    file = Path.cwd() / f".distributed-{os.getpid()}.json"
    command = [*(shlex.split(launcher) or [usual]), "-n", str(ranks)]
    command += [sys.executable, str(Path(__file__).resolve()), "--rank", kind, str(file)]
    try:
        subprocess.run(command, check=True, timeout=900)
        found: dict[str, float] = json.loads(file.read_text(encoding="utf-8"))
    finally:
        file.unlink(missing_ok=True)
    return found


def page(launcher: str) -> list[str]:
    """Measure, and write it down."""
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    found = {(ranks, fast): job(ranks, ("in order", "fast")[fast]) for ranks in (1, 2, 4) for fast in (False, True)}
    alone = found[1, False]["alone"]
    lines = ["# Training on several processes", "", "- command: python benchmarks/distributed.py --markdown FILE"]
    lines.append(f"- {cores} cores; Python {platform.python_version()}, snncell {snncell.__version__}, MPICH's wheel")
    lines.append(f"- load average {load:.0f}; a load above the number of cores comes from other programs")
    lines.append(f"- a step of {BATCH} samples in all, 700-256-256-20, LIF, {STEPS} time steps: the least milliseconds")
    lines.append(f"- one process without distributed=True: {alone:.1f}")
    lines += ["", "| ranks | threads each | step, in order | step, fast |", "| --- | --- | --- | --- |"]
    for ranks in (1, 2, 4):
        both = [found[ranks, fast] for fast in (False, True)]
        name = f"{ranks}, more than cores" if ranks > cores else str(ranks)
        lines.append(f"| {name} | {both[0]['threads']:.0f} | {both[0]['step']:.1f} | {both[1]['step']:.1f} |")
    lines += ["", "Sum of a gradient of 4 MB over all ranks, minimum in milliseconds:", ""]
    lines += ["| ranks | gathered and added in order | Allreduce |", "| --- | --- | --- |"]
    for ranks in (1, 2, 4):
        lines.append(
            f"| {ranks} | {found[ranks, False]['gathered and added']:.1f} | {found[ranks, False]['Allreduce']:.1f} |"
        )
    if launcher:
        lines += overlapped(job(2, "overlap", launcher))
    return lines + model(found[1, False]["step"], found[2, False])


def overlapped(found: dict[str, float]) -> list[str]:
    """The section on the overlap of fast mode with the backward pass."""
    lines = ["", "## Overlap of the all-reduce with the backward pass", ""]
    lines.append(f"- fast mode, 2 ranks; {DEPTH} times Dense({WIDTH}) and LIF, {DEEP_STEPS} steps, {EACH} samples each")
    lines.append(f"- gradient {1e-6 * found['bytes']:.1f} MB; medians in milliseconds, of a second training each")
    lines += ["", "| gradients are sent | step | after the backward pass, up to the update |", "| --- | --- | --- |"]
    for name in ("at the end", "as they come"):
        lines.append(f"| {name} | {found[name]:.0f} | {found[f'{name}, behind']:.0f} |")
    return lines


def model(milliseconds: float, pair: dict[str, float]) -> list[str]:
    """The model beside what was measured on two ranks, and its table."""
    latency, bandwidth = 1e-3 * pair["1 byte"], 4 * FLOATS / (1e-3 * pair["4 MB"])
    size = 4.0 * (701 * 256 + 257 * 256 + 257 * 20)
    predicted = [1e3 * way(2, 4 * FLOATS, latency, bandwidth) for way in (in_order, by_mpi)]
    lines = ["", "## A model of more ranks", ""]
    lines.append(f"- between two ranks here: {1e6 * latency:.1f} us for a byte, {1e-9 * bandwidth:.1f} GB/s")
    lines.append(
        f"- 4 MB on two ranks, model and measured: in order {predicted[0]:.1f} and {pair['gathered and added']:.1f} "
        f"ms, Allreduce {predicted[1]:.1f} and {pair['Allreduce']:.1f} ms (the model leaves out copies and additions)"
    )
    lines.append(f"- {BATCH} samples on each rank: step {milliseconds:.1f} ms, gradient {1e-6 * size:.2f} MB")
    lines += [f"- {name}: {1e6 * a:g} us, {1e-9 * b:g} GB/s (assumed)" for name, (a, b) in NETWORKS.items()]
    lines.append("- nothing overlaps with the backward pass, because most of this gradient belongs to the first layer")
    lines += ["", "Share of each rank's time that its samples take, by the model:", ""]
    head = [f"{network}, {way}" for network in NETWORKS for way in ("in order", "fast")]
    lines += [f"| ranks | {' | '.join(head)} |", f"| --- {'| --- ' * len(head)}|"]
    for ranks in RANKS:
        shares = [
            efficiency(1e-3 * milliseconds, ranks, network, way, size)
            for network in NETWORKS
            for way in (in_order, by_mpi)
        ]
        lines.append(f"| {ranks} | {' | '.join(f'{100 * share:.1f} %' for share in shares)} |")
    return lines


def main() -> None:
    """Measure, print the page, and write it where it is wanted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--overlap", default="", metavar="LAUNCHER", help="mpiexec of two machines, without -n")
    parser.add_argument("--rank", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        on_rank(options.rank[0], Path(options.rank[1]))
        return
    tell(page(options.overlap), options.markdown)


if __name__ == "__main__":
    main()
