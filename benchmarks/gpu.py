"""Test and measure the CUDA backend on the GPU of this machine:
`python -m benchmarks.gpu [--out FOLDER] [--small] [--no-tests] [--assembler]`.

It runs the tests of `tests/device` on the GPU, then measures, and writes `gpu-<name>.json` and `.md` to
`benchmarks/results`. It also measures PyTorch and SpikingJelly if they are installed for CUDA. Without a GPU it exits
with 1. You can check that it runs by `--small` in Numba's simulator (NUMBA_ENABLE_CUDASIM=1), where it writes nothing,
because times of the simulator mean nothing. `--assembler` needs no GPU: it writes `cuda-kernels.md`, the registers of
the kernels of loops over time.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import snncell
from benchmarks import frameworks
from benchmarks.frameworks import SuperSpike
from benchmarks.rows.neurons import Adaptive, snncell_lif, torch_lif
from benchmarks.rows.spiking_nets import Sizes, snncell_recurrent
from benchmarks.timing import seconds_in_process
from snncell import Tensor, nn, ops, value_and_grad
from snncell.compiler.explain import kernels_on_device
from snncell.compiler.jit import Jitted
from snncell.errors import DeviceError
from snncell.kernels.cuda.build import ptx_of, resources
from snncell.kernels.cuda.runtime import is_simulated, runtime

HERE = Path(__file__).resolve().parent
ROUNDS = 20
STEPS = 50
MAX_DIFFERENCE = 1e-4  # of the losses on GPU and CPU, relative

FIRST_CALL = """
import time
import numpy as np, snncell
from snncell import Tensor, nn
x = Tensor(np.ones((8, 64, 128), np.float32)).to("gpu")
start = time.perf_counter()
snncell.grad(lambda x: nn.MultiStep(nn.LIFNode())(x).sum())(x).asnumpy()
print(time.perf_counter() - start)
"""


def median_seconds(f: Callable[[], Any], rounds: int = ROUNDS, calls: int = 1) -> float:
    """Return the median time of a call, synchronised with the GPU."""
    device = runtime()
    f()
    seconds = []
    for _ in range(rounds):
        device.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            f()
        device.synchronize()
        seconds.append((time.perf_counter() - start) / calls)
    return statistics.median(seconds)


def copy_bandwidth(size: int) -> float:
    """Return the bytes per second, read and written, of copies on the GPU."""
    device = runtime()
    one, other = device.allocate(size), device.allocate(size)
    seconds = median_seconds(lambda: device.copy(one, 0, other, 0, size))
    device.release(one)
    device.release(other)
    return 2 * size / seconds


def launches() -> dict[str, float]:
    """Return the host time of a kernel launch, from Programs with few and many kernels, and of an eager operation."""
    x = ops.ones(256)
    w = ops.ones((256, 2))

    def chain(count: int) -> Callable[[Tensor], Tensor]:
        def f(x: Tensor) -> Tensor:
            for _ in range(count):
                x = (ops.expand_dims(x, 1) * w).sum(1) / 2.0  # a sum ends a kernel
            return x

        return f

    few, many = snncell.jit(chain(1)), snncell.jit(chain(41))
    slope = (median_seconds(lambda: many(x), calls=10) - median_seconds(lambda: few(x), calls=10)) / 40
    eager = median_seconds(lambda: x * 2.0, calls=50)
    return {"us per launch, jitted": slope * 1e6, "us per operation, eager": eager * 1e6}


def lif(steps: int, neurons: int, bandwidth: float) -> tuple[dict[str, Any], dict[str, Callable[[], Any]]]:
    """Time an LIF layer, compared with its memory traffic at the copy bandwidth. Also return the peers' factories."""
    rng = np.random.default_rng(0)
    x, dout = (rng.standard_normal((steps, neurons), dtype=np.float32) for _ in range(2))
    layer = nn.MultiStep(nn.LIFNode(tau=2.0, surrogate_function=SuperSpike()))
    inputs = Tensor(x)
    forward = median_seconds(lambda: layer(inputs))
    run = snncell_lif(x, dout).run
    both = median_seconds(run)
    row = steps * neurons * 4
    return {
        "forward ms": forward * 1e3,
        "forward, part of copy bandwidth": 2 * row / bandwidth / forward,  # reads currents, writes spikes
        "forward + backward ms": both * 1e3,
        # also writes potentials; the backward pass reads them and dout, and writes dx
        "forward + backward, part of copy bandwidth": 6 * row / bandwidth / both,
    }, {
        "PyTorch": lambda: torch_lif("PyTorch", x, dout).run,
        "SpikingJelly": lambda: torch_lif("SpikingJelly", x, dout).run,
    }


def peer_times(factories: dict[str, Callable[[], Any]], ours: float) -> dict[str, float]:
    """Return the milliseconds of peers that are installed for CUDA, and their ratio to snncell's."""
    try:
        import torch
    except ImportError:
        return {}
    if not torch.cuda.is_available():
        return {}
    frameworks.torch_device = "cuda"
    figures: dict[str, float] = {}
    for name, factory in factories.items():
        try:
            run = factory()
        except ImportError:
            continue
        times = []
        for turn in range(ROUNDS + 1):
            torch.cuda.synchronize()
            start = time.perf_counter()
            run()
            torch.cuda.synchronize()
            times += [time.perf_counter() - start] * (turn > 0)
        figures[f"{name} ms"] = statistics.median(times) * 1e3
        figures[f"{name} / snncell"] = figures[f"{name} ms"] / ours
    return figures


def run_steps(step: Callable[[], Any], steps: int) -> tuple[list[float], float]:
    """Return the losses of training steps, and the median seconds of a step."""
    losses, seconds = [], []
    for _ in range(steps):
        start = time.perf_counter()
        losses.append(float(step()))
        seconds.append(time.perf_counter() - start)
    return losses, statistics.median(seconds)


def train_recurrent(device: str, sizes: tuple[int, int, int, int, int], steps: int) -> tuple[list[float], float]:
    """Train a recurrent network on one device; see `run_steps`."""
    times, batch, *widths = sizes
    arrays = Sizes(times, batch, tuple(widths), recurrent=True, density=0.05).arrays()
    snncell.set_context(device_target="GPU" if device == "gpu" else "CPU")
    return run_steps(snncell_recurrent(*arrays).run, steps)


def train_feedforward(device: str, sizes: tuple[int, int, int, int], steps: int) -> tuple[list[float], float]:
    """Train a network of two layers on one device; see `run_steps`."""
    snncell.set_context(device_target="GPU" if device == "gpu" else "CPU")
    times, batch, inputs, hidden = sizes
    snncell.set_seed(0)
    rng = np.random.default_rng(0)
    scale = 1.0 / np.sqrt(inputs)
    w1, w2 = (Tensor((rng.standard_normal(s) * scale).astype(np.float32)) for s in ((hidden, inputs), (10, hidden)))
    net = nn.SequentialCell(
        nn.Dense(inputs, hidden, w1),
        nn.MultiStep(nn.LIFNode(surrogate_function=SuperSpike())),
        nn.Dense(hidden, 10, w2),
    )
    x = Tensor((rng.random((times, batch, inputs)) < 0.3).astype(np.float32))
    y = Tensor(rng.integers(0, 10, batch))
    optimiser, loss_fn = nn.Adam(net.trainable_params(), 1e-3), nn.CrossEntropyLoss()
    gradients = value_and_grad(lambda x, y: loss_fn(net(x).mean(0), y), None, net.trainable_params())

    @snncell.jit
    def step(x: Tensor, y: Tensor) -> Tensor:
        loss, grads = gradients(x, y)
        optimiser(grads)
        return loss  # type: ignore[no-any-return]

    return run_steps(lambda: step(x, y), steps)


def compare_devices(train: Any, sizes: Any, steps: int) -> dict[str, Any]:
    """Return the largest difference of the losses on GPU and CPU, and the time of a step on both."""
    (losses, seconds), (expected, cpu_seconds) = train("gpu", sizes, steps), train("cpu", sizes, steps)
    snncell.set_context(device_target="GPU")
    difference = max(abs(a - b) / max(abs(b), 1e-12) for a, b in zip(losses, expected, strict=True))
    return {
        "largest difference of losses": difference,
        "agrees": bool(difference <= MAX_DIFFERENCE),
        "ms per step": seconds * 1e3,
        "ms per step, CPU": cpu_seconds * 1e3,
    }


def run_tests() -> str:
    """Run the tests of `tests/device` on the GPU, and return the last line of pytest."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/device"]
    done = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True)
    if done.returncode:
        print(done.stdout[-6000:])
    return done.stdout.strip().splitlines()[-1]


def run_sanitizer() -> str:
    """Run compute-sanitizer on forward and backward pass of a layer, if it is installed, and return its result."""
    tool = shutil.which("compute-sanitizer")
    if tool is None:
        return "compute-sanitizer is not installed"
    results = []
    for check in ("memcheck", "racecheck"):
        command = [tool, "--tool", check, "--error-exitcode", "9", sys.executable, "-c", FIRST_CALL]
        done = subprocess.run(command, capture_output=True, text=True)
        results.append(f"{check}: {'clean' if done.returncode == 0 else done.stdout[-400:]}")
    return "; ".join(results)


def register_page() -> str:
    """Return a page with registers and spilled bytes of the kernels of loops over time."""
    lines = [
        "# Registers of CUDA kernels of loops over time",
        "",
        "`python -m benchmarks.gpu --assembler`: registers per thread, and bytes that a thread spills to memory if",
        "the registers are too few. The assembler needs no GPU. There was no GPU, so there are no times.",
        "",
        "| loop | dtype | compute capability | registers | spilled bytes |",
        "| --- | --- | --- | --- | --- |",
    ]
    lif, adaptive = nn.LIFNode(tau=2.0, surrogate_function=SuperSpike()), Adaptive(np.full(8, 0.5, np.float32))
    loops: dict[str, Any] = {
        "LIF": nn.MultiStep(lif),
        "LIF, every 8th state stored": nn.MultiStep(lif, checkpoint_every=8),
        "adaptive, a time constant per neuron": nn.MultiStep(adaptive),
    }
    x = Tensor(np.ones((16, 4, 8), np.float32))
    for name, net in loops.items():
        weights = net.trainable_params() or None
        both = value_and_grad(lambda x, net=net: ops.square(net(x)).sum(), 0, weights)
        compiled, _ = Jitted(both).lookup((x,), {})
        for kernel, source, signature in kernels_on_device(compiled.plans.program):
            if not kernel.startswith("cuda_scan"):
                continue
            way = "backward" if "backward" in kernel else "forward"
            for capability in ((7, 5), (8, 0), (9, 0)):
                usage = resources(ptx_of(kernel, source, signature, capability), capability)
                version = ".".join(map(str, capability))
                lines.append(f"| {name}, {way} | float32 | {version} | {usage['registers']} | {usage['spilled']} |")
    return "\n".join(lines) + "\n"


def markdown(report: dict[str, Any]) -> str:
    """Return the report as a page."""
    lines = [f"# CUDA: {report['card']}", ""]
    lines += [f"- {key}: {value}" for key, value in report.items() if not isinstance(value, dict)]
    for title, rows in report.items():
        if isinstance(rows, dict):
            lines += ["", f"## {title}", "", "| figure | value |", "| --- | --- |"]
            lines += [
                f"| {key} | {value:.4g} |" if isinstance(value, float) else f"| {key} | {value} |"
                for key, value in rows.items()
            ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--small", action="store_true", help="small sizes, to check that everything runs")
    parser.add_argument("--no-tests", action="store_true", help="measure only")
    parser.add_argument("--assembler", action="store_true", help="only write the registers of the kernels")
    options = parser.parse_args()
    if options.assembler:
        (options.out / "cuda-kernels.md").write_text(register_page(), encoding="utf-8")
        return 0
    try:
        snncell.set_context(device_target="GPU")
    except DeviceError as error:
        print(f"Nothing is measured: {error}", file=sys.stderr)
        return 1
    device = runtime()
    report: dict[str, Any] = {
        "card": device.name,
        "compute capability": ".".join(map(str, device.capability)),
        "date": datetime.date.today().isoformat(),
        "versions": f"Python {platform.python_version()}, snncell {snncell.__version__}, numpy {np.__version__}",
        "tests": "not run" if options.no_tests else run_tests(),
        "checks": "not run" if options.no_tests or is_simulated() else run_sanitizer(),
    }
    small = options.small
    bandwidth = copy_bandwidth(1 << 12 if small else 1 << 28)
    report["copies, GB/s read and written"] = f"{bandwidth / 1e9:.1f}"
    report["launches"] = launches()
    steps, neurons = (4, 64) if small else (64, 1 << 22)
    report[f"LIF, T {steps}, {neurons} neurons"], factories = lif(steps, neurons, bandwidth)
    row = report[f"LIF, T {steps}, {neurons} neurons"]
    row.update(peer_times(factories, row["forward + backward ms"]))
    count = 3 if small else STEPS
    report[f"{count} training steps, two layers"] = compare_devices(
        train_feedforward, (4, 2, 8, 6) if small else (50, 128, 784, 512), count
    )
    report[f"{count} training steps, recurrent"] = compare_devices(
        train_recurrent, (4, 2, 8, 6, 3) if small else (100, 64, 700, 256, 20), count
    )
    if not is_simulated():
        seconds_in_process(FIRST_CALL)  # fills the cache
        report["first call in a new process, from the disk cache"] = f"{seconds_in_process(FIRST_CALL):.2f} s"
    print(json.dumps(report, indent=2))
    if not is_simulated():
        name = "-".join(device.name.lower().split())
        (options.out / f"gpu-{name}.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        (options.out / f"gpu-{name}.md").write_text(markdown(report), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
