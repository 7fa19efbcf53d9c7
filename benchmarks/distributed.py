"""Distributed training: time of a step and of the gradient exchange on 1, 2 and 4 ranks, and a model of up to 1,000.

    python benchmarks/distributed.py [--markdown FILE] [--overlap "mpiexec ..."]

The step is one of `train.fit`, with the network of the SHD benchmarks (700-256-256-20, LIF, 100 steps) and 64 samples
in all. `--overlap` starts two ranks by this command, and measures how much of the exchange overlaps with the backward
pass of a deeper network in fast mode. The command should use two machines or two network namespaces, because ranks on
one machine exchange messages through memory.
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
from timing import publish

import snncell
from snncell import distributed, nn, train
from snncell.distributed import sharding, training

STEPS, BATCH, ROUNDS = 100, 64, 40
FLOATS = 1 << 20  # 4 MB
NETWORKS = {  # latency in seconds, bandwidth in bytes per second
    "Ethernet, 25 Gb/s": (20e-6, 3.1e9),
    "InfiniBand, 100 Gb/s": (1.5e-6, 12e9),
}
MESSAGES = ("1 byte", "4 MB")  # sent to the other rank and back
RANKS = (1, 2, 4, 8, 16, 64, 256, 1000)
WIDTH, DEPTH, DEEP_STEPS, SAMPLES = 512, 6, 64, 32  # of the deeper network; samples on each rank


# --- model of more ranks ----------------------------------------------------------------------------------------------


def ordered_sum_time(ranks: int, size: float, latency: float, bandwidth: float) -> float:
    """Seconds to add gradients of `size` bytes in the order of the shards.

        2 (p - 1) alpha + 2 n (p - 1) / (p b)

    for p ranks, n bytes, latency alpha and bandwidth b. Each rank adds a part of the gradients (pairwise exchange) and
    sends it to all ranks (ring).

    Source: Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", IJHPCA 2005,
    sections 4.1 and 4.4.
    """
    return 2 * (ranks - 1) * latency + 2 * size * (ranks - 1) / ranks / bandwidth


def allreduce_time(ranks: int, size: float, latency: float, bandwidth: float) -> float:
    """Seconds of an Allreduce by Rabenseifner's algorithm (section 4.5): 2 log2(p) alpha + 2 n (p - 1) / (p b)."""
    return 2 * math.ceil(math.log2(ranks)) * latency + 2 * size * (ranks - 1) / ranks / bandwidth


def gather_time(ranks: int, size: float, latency: float, bandwidth: float) -> float:
    """Seconds to gather a few bytes per rank by recursive doubling (section 4.1): log2(p) alpha + n (p - 1) / b."""
    return math.ceil(math.log2(ranks)) * latency + size * (ranks - 1) / bandwidth


def efficiency(step: float, ranks: int, network: str, exchange: Callable[..., float], size: float) -> float:
    """Return the share of a step that computes, if each rank has as many samples as the step of one rank.

    A step exchanges its gradients and three small messages: numbers (64 bytes), statistics, and whether to stop.
    """
    more = exchange(ranks, size, *NETWORKS[network]) + 3 * gather_time(ranks, 64, *NETWORKS[network])
    return step / (step + more)


# --- measurements on a rank -------------------------------------------------------------------------------------------


class StepTimer(train.Callback):
    """Record the seconds of each training step."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_step_begin(self, training: train.Training) -> None:
        self.start = time.perf_counter()

    def on_step_end(self, training: train.Training) -> None:
        self.seconds.append(time.perf_counter() - self.start)


def step(together: bool) -> float:
    """Return the minimum milliseconds of a training step, without the first eight steps."""
    snncell.set_seed(0)
    rng = np.random.default_rng(0)
    x = (rng.random((STEPS, 4 * BATCH, 700)) < 0.02).astype(np.float32)
    layers = [[nn.Dense(a, b), nn.MultiStep(nn.LIFNode(tau=5.0))] for a, b in ((700, 256), (256, 256))]
    net = nn.SequentialCell(*layers[0], *layers[1], nn.Dense(256, 20), nn.Readout("mean"))
    batches = train.Batches(x, rng.integers(0, 20, 4 * BATCH), batch_size=BATCH, time_first=True)
    timer, adam = StepTimer(), nn.Adam(net.trainable_params(), 1e-3)
    options: dict[str, Any] = {"progress": False, "distributed": together, "callbacks": [timer]}
    train.fit(net, nn.CrossEntropyLoss(), adam, batches, 4 + ROUNDS // 4, **options)
    return 1e3 * min(timer.seconds[8:])


def exchanges() -> dict[str, float]:
    """Return the minimum milliseconds of both sums of a gradient of 4 MB, and of messages of 1 byte and of 4 MB."""
    ranks = distributed.job.join_job("the benchmark")
    vector, one = np.ones(FLOATS, np.float32), np.ones(1, np.uint8)
    total, like = np.empty_like(vector), np.empty_like(vector)
    comm, peer = ranks.comm, ranks.rank ^ 1

    def ping_pong(message: Any) -> None:
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
        ways |= {"1 byte": lambda: ping_pong(one), "4 MB": lambda: ping_pong(vector)}  # `MESSAGES`
    milliseconds = {}
    for name, way in ways.items():
        seconds = []
        for _ in range(5 * ROUNDS):
            comm.Barrier()
            start = time.perf_counter()
            way()
            seconds.append(time.perf_counter() - start)
        milliseconds[name] = 1e3 * min(seconds[4:]) / (2 if name in MESSAGES else 1)
    return milliseconds


class TimedSharded(training.Sharded):
    """A training step that records the time between the end of the backward pass and the update."""

    seconds: list[float] = []  # noqa: RUF012 - of all steps

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
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
    """Return the median milliseconds of a step of the deeper network, and of its part after the backward pass."""
    training.Sharded = TimedSharded  # type: ignore[misc]
    figures = {}
    for name, bucket in (("at the end", 1 << 40), ("as they come", sharding.BUCKET)) * 2:
        sharding.BUCKET = bucket
        snncell.set_seed(0)
        rng = np.random.default_rng(0)
        layers = [nn.SequentialCell(nn.Dense(WIDTH, WIDTH), nn.MultiStep(nn.LIFNode())) for _ in range(DEPTH)]
        net = nn.SequentialCell(*layers, nn.Dense(WIDTH, 10), nn.Readout("mean"))
        x = (rng.random((DEEP_STEPS, 8 * SAMPLES, WIDTH)) < 0.1).astype(np.float32)
        batches = train.Batches(x, rng.integers(0, 10, 8 * SAMPLES), batch_size=2 * SAMPLES, time_first=True)
        timer, adam = StepTimer(), nn.Adam(net.trainable_params(), 1e-3)
        TimedSharded.seconds.clear()
        options: dict[str, Any] = {"progress": False, "distributed": True, "callbacks": [timer]}
        train.fit(net, nn.CrossEntropyLoss(), adam, batches, 12, **options)
        figures[name] = 1e3 * statistics.median(timer.seconds[8:])
        figures[f"{name}, after backward"] = 1e3 * statistics.median(TimedSharded.seconds[8:])
        figures["bytes"] = sum(4.0 * p.size for p in net.trainable_params())
    return figures


def run_rank(kind: str, file: Path) -> None:
    """Measure on one of the ranks. The first rank writes the figures to the file."""
    distributed.init(fast=kind != "in order")
    if kind == "overlap":
        figures = overlap()
    else:
        figures = {"threads": snncell.kernels.numba.policy.number_of_threads(), "step": step(True)}
        figures |= {"alone": step(False)} if distributed.size() == 1 else {}
        figures |= {} if kind == "fast" else exchanges()
    if distributed.rank() == 0:
        file.write_text(json.dumps(figures), encoding="utf-8")


# --- the page ---------------------------------------------------------------------------------------------------------


def run_job(ranks: int, kind: str, launcher: str = "") -> dict[str, float]:
    """Start a job with this number of ranks, and return its figures."""
    installed = Path(sys.executable).with_name("mpiexec")
    default = str(installed) if installed.exists() else shutil.which("mpiexec") or sys.exit("mpiexec is not installed.")
    file = Path.cwd() / f".distributed-{os.getpid()}.json"
    command = [*(shlex.split(launcher) or [default]), "-n", str(ranks)]
    command += [sys.executable, str(Path(__file__).resolve()), "--rank", kind, str(file)]
    try:
        subprocess.run(command, check=True, timeout=900)
        figures: dict[str, float] = json.loads(file.read_text(encoding="utf-8"))
    finally:
        file.unlink(missing_ok=True)
    return figures


def page(launcher: str) -> list[str]:
    """Measure, and return the lines of the page."""
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    modes = {False: "in order", True: "fast"}
    figures = {(ranks, fast): run_job(ranks, mode) for ranks in (1, 2, 4) for fast, mode in modes.items()}
    alone = figures[1, False]["alone"]
    lines = ["# Training on several processes", "", "- command: python benchmarks/distributed.py --markdown FILE"]
    lines.append(f"- {cores} cores; Python {platform.python_version()}, snncell {snncell.__version__}, MPICH's wheel")
    lines.append(f"- load average {load:.0f}; a load above the number of cores comes from other programs")
    lines.append(f"- a step of {BATCH} samples in all, 700-256-256-20, LIF, {STEPS} time steps: minimum milliseconds")
    lines.append(f"- one process without distributed=True: {alone:.1f}")
    lines += ["", "| ranks | threads each | step, in order | step, fast |", "| --- | --- | --- | --- |"]
    for ranks in (1, 2, 4):
        both = [figures[ranks, fast] for fast in (False, True)]
        name = f"{ranks}, more than cores" if ranks > cores else str(ranks)
        lines.append(f"| {name} | {both[0]['threads']:.0f} | {both[0]['step']:.1f} | {both[1]['step']:.1f} |")
    lines += ["", "Sum of a gradient of 4 MB over all ranks, minimum in milliseconds:", ""]
    lines += ["| ranks | gathered and added in order | Allreduce |", "| --- | --- | --- |"]
    for ranks in (1, 2, 4):
        row = figures[ranks, False]
        lines.append(f"| {ranks} | {row['gathered and added']:.1f} | {row['Allreduce']:.1f} |")
    if launcher:
        lines += overlap_section(run_job(2, "overlap", launcher))
    return lines + model_section(figures[1, False]["step"], figures[2, False])


def overlap_section(figures: dict[str, float]) -> list[str]:
    """Return the section on the overlap of the exchange with the backward pass in fast mode."""
    lines = ["", "## Overlap of the all-reduce with the backward pass", ""]
    lines.append(
        f"- fast mode, 2 ranks; {DEPTH} x (Dense({WIDTH}), LIF), {DEEP_STEPS} steps, {SAMPLES} samples per rank"
    )
    lines.append(f"- gradient {1e-6 * figures['bytes']:.1f} MB; medians in milliseconds, of the second training")
    lines += ["", "| gradients are sent | step | after the backward pass, up to the update |", "| --- | --- | --- |"]
    for name in ("at the end", "as they come"):
        lines.append(f"| {name} | {figures[name]:.0f} | {figures[f'{name}, after backward']:.0f} |")
    return lines


def model_section(milliseconds: float, pair: dict[str, float]) -> list[str]:
    """Return the section with the model: its comparison with two measured ranks, and its table of more ranks."""
    latency, bandwidth = 1e-3 * pair["1 byte"], 4 * FLOATS / (1e-3 * pair["4 MB"])
    size = 4.0 * (701 * 256 + 257 * 256 + 257 * 20)
    predicted = [1e3 * way(2, 4 * FLOATS, latency, bandwidth) for way in (ordered_sum_time, allreduce_time)]
    lines = ["", "## A model of more ranks", ""]
    lines.append(f"- between two ranks here: {1e6 * latency:.1f} us for a byte, {1e-9 * bandwidth:.1f} GB/s")
    lines.append(
        f"- 4 MB on two ranks, model and measured: in order {predicted[0]:.1f} and {pair['gathered and added']:.1f} "
        f"ms, Allreduce {predicted[1]:.1f} and {pair['Allreduce']:.1f} ms (the model leaves out copies and additions)"
    )
    lines.append(f"- {BATCH} samples on each rank: step {milliseconds:.1f} ms, gradient {1e-6 * size:.2f} MB")
    lines += [f"- {name}: {1e6 * a:g} us, {1e-9 * b:g} GB/s (assumed)" for name, (a, b) in NETWORKS.items()]
    lines.append("- nothing overlaps with the backward pass, because most of this gradient belongs to the first layer")
    lines += ["", "Share of the time of a rank that computes, by the model:", ""]
    head = [f"{network}, {way}" for network in NETWORKS for way in ("in order", "fast")]
    lines += [f"| ranks | {' | '.join(head)} |", f"| --- {'| --- ' * len(head)}|"]
    for ranks in RANKS:
        shares = [
            efficiency(1e-3 * milliseconds, ranks, network, way, size)
            for network in NETWORKS
            for way in (ordered_sum_time, allreduce_time)
        ]
        lines.append(f"| {ranks} | {' | '.join(f'{100 * share:.1f} %' for share in shares)} |")
    return lines


def main() -> None:
    """Measure, print the page, and write it to the file of `--markdown`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--overlap", default="", metavar="LAUNCHER", help="mpiexec of two machines, without -n")
    parser.add_argument("--rank", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        run_rank(options.rank[0], Path(options.rank[1]))
        return
    publish(page(options.overlap), options.markdown)


if __name__ == "__main__":
    main()
