"""Time of first calls in fresh processes, with an empty and with a filled kernel cache:
`python benchmarks/first_calls.py [--rounds N] [--only NAME ...] [--against CHECKOUT] [--markdown FILE] [--kernels]`.

- neuron: a custom neuron, forward and gradient.
- dense: a jitted training step of 700-256-256-20 LIF neurons with Adam, on input spikes.
- recurrent: the same for 700-256-20 with a recurrent hidden layer.
- convolutional: the same for two convolutions with pooling on images of 28 x 28.
- shd: the same for 700-256-256-20 adaptive neurons with recurrent hidden layers.
- demo: the whole process of `python -m snncell demo`.
- launch: the time of a small kernel, and the bandwidth of a large one.

The time includes the imports and compilation of the first call, but not `import snncell`. Tables have CPU and wall
seconds. `--against` measures another checkout in turns with this one. JAX, if it is installed, also runs `neuron` and
`dense`. `--kernels` lists the compiled kernels and their compile times in the file of `--markdown`.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import importlib.util
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from timing import command

import snncell

HERE = Path(__file__).resolve().parents[1]

COUNT = """
import sys, time
import numpy as np
import snncell
from snncell import Tensor, nn, ops
from snncell.kernels.numba import policy

kernels = []
if {kernels} and hasattr(policy, "compile_kernel"):
    compile_kernel = policy.compile_kernel
    def timed(function, *rest, **named):
        begin = time.process_time()
        result = compile_kernel(function, *rest, **named)
        kernels.append((function.__name__, time.process_time() - begin))
        return result
    policy.compile_kernel = timed

rng = np.random.default_rng(0)
def spikes(*shape):
    return Tensor((rng.random(shape) < 0.05).astype(np.float32))
def training(net, x, classes):
    labels = Tensor(rng.integers(0, classes, x.shape[1]))
    loss_fn, optimizer = nn.CrossEntropyLoss(), nn.Adam(net.trainable_params(), 1e-3)
    gradient = snncell.value_and_grad(lambda x: loss_fn(net(x).mean(0), labels), None, net.trainable_params())
    @snncell.jit
    def step(x):
        loss, grads = gradient(x)
        optimizer(grads)
        return loss
    return lambda: step(x).item()
begin, wall = time.process_time(), time.perf_counter()
{code}
run()
print(*(f"# {{name}} {{seconds:.3f}}" for name, seconds in kernels), sep="\\n")
print(time.process_time() - begin, time.perf_counter() - wall)
"""
CASES = {
    "neuron": """
class Spike(nn.Cell):
    def construct(self, x):
        return (x > 0).astype(x.dtype)
    def bprop(self, x, out, dout):
        return (dout / ops.square(1.0 + 10.0 * ops.abs(x)),)
class Own(nn.Cell):
    def __init__(self):
        super().__init__()
        self.spike = Spike()
    def construct(self, x, v):
        h = 0.9 * v + x
        s = self.spike(h - 1.0)
        return s, h - s
x = Tensor(np.ones((50, 32, 100), np.float32))
def run():
    out, pull = ops.vjp(nn.MultiStep(Own()), x)
    pull(out)
""",
    "dense": """
net = nn.SequentialCell(
    nn.Dense(700, 256), nn.MultiStep(nn.LIFNode()), nn.Dense(256, 256), nn.MultiStep(nn.LIFNode()), nn.Dense(256, 20),
    nn.MultiStep(nn.LIFNode()))
run = training(net, spikes(100, 32, 700), 20)
""",
    "recurrent": """
net = nn.SequentialCell(
    nn.Dense(700, 256), nn.MultiStep(nn.Recurrent(nn.LIFNode(), nn.Dense(256, 256))), nn.Dense(256, 20),
    nn.MultiStep(nn.LIFNode()))
run = training(net, spikes(100, 32, 700), 20)
""",
    "convolutional": """
def over_time(*cells):
    return nn.TimeDistributed(nn.SequentialCell(*cells))
net = nn.SequentialCell(
    over_time(nn.Conv2d(1, 8, 3)), nn.MultiStep(nn.LIFNode()), over_time(nn.AvgPool2d(2, 2), nn.Conv2d(8, 16, 3)),
    nn.MultiStep(nn.LIFNode()), over_time(nn.AvgPool2d(2, 2), nn.Flatten(), nn.Dense(784, 10)))
run = training(net, spikes(8, 16, 1, 28, 28), 10)
""",
    "shd": """
net = nn.SequentialCell(
    nn.Dense(700, 256), nn.MultiStep(nn.Recurrent(nn.ALIFNode(), nn.Dense(256, 256))),
    nn.Dense(256, 256), nn.MultiStep(nn.Recurrent(nn.ALIFNode(), nn.Dense(256, 256))),
    nn.Dense(256, 20), nn.MultiStep(nn.LINode()))
run = training(net, spikes(100, 32, 700), 20)
""",
}
JAX = """
import time
import numpy as np
import jax, jax.numpy as jnp
begin, wall = time.process_time(), time.perf_counter()
@jax.custom_vjp
def spike(x):
    return (x > 0).astype(x.dtype)
spike.defvjp(lambda x: (spike(x), x), lambda x, d: (d / (1 + 10 * jnp.abs(x)) ** 2,))
"""
IN_JAX = {
    "neuron": """
def step(v, x):
    h = 0.9 * v + x
    s = spike(h - 1.0)
    return h - s, s
x = jnp.ones((50, 32, 100), jnp.float32)
loss = lambda x: jax.lax.scan(step, jnp.zeros_like(x[0]), x)[1].sum()
jax.jit(jax.value_and_grad(loss))(x)[1].block_until_ready()
print(time.process_time() - begin, time.perf_counter() - wall)
""",
    "dense": """
def lif(v, x):
    h = v + (x - v) / 2.0
    s = spike(h - 1.0)
    return h * (1 - s), s
rng = np.random.default_rng(0)
sizes = 700, 256, 256, 20
weights = [jnp.asarray(rng.normal(size=pair).astype(np.float32) * 0.05) for pair in zip(sizes, sizes[1:])]
x = jnp.asarray((rng.random((100, 32, 700)) < 0.05).astype(np.float32))
labels = jnp.asarray(rng.integers(0, 20, 32))
def loss(weights, x):
    for w in weights:
        x = x @ w
        x = jax.lax.scan(lif, jnp.zeros_like(x[0]), x)[1]
    return -jnp.take_along_axis(jax.nn.log_softmax(x.mean(0)), labels[:, None], 1).mean()
def update(weights, m, v, x):
    grads = jax.grad(loss)(weights, x)
    m = [0.9 * a + 0.1 * g for a, g in zip(m, grads)]
    v = [0.999 * a + 0.001 * g * g for a, g in zip(v, grads)]
    return [w - 1e-3 * a / (jnp.sqrt(b) + 1e-8) for w, a, b in zip(weights, m, v)], m, v
zeros = [jnp.zeros_like(w) for w in weights]
jax.block_until_ready(jax.jit(update)(weights, zeros, zeros, x))
print(time.process_time() - begin, time.perf_counter() - wall)
""",
}
LAUNCH = """
import time
import numpy as np
import snncell
from snncell import Tensor, ops
f = snncell.jit(lambda x, y: x * y + 1.0)
def median(size, calls, rounds=30):
    x, y = Tensor(np.ones(size, np.float32)), Tensor(np.ones(size, np.float32))
    f(x, y)
    (plan,) = [p for p in __import__("gc").get_objects() if type(p).__name__ == "Launch" and p.sizes == (size,)]
    slots = [x._data, y._data, None, None]
    seconds = []
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(calls):
            plan.run(slots, {})
            slots[:2] = x._data, y._data
        seconds.append((time.perf_counter() - begin) / calls)
    return sorted(seconds)[len(seconds) // 2]
small, large = median(100, 3000), median(20_000_000, 1)
print(small * 1e6, 20_000_000 * 12 / large / 1e9)
"""


def run_code(code: str, root: Path, folder: str) -> list[str]:
    """Run code in a fresh process with the package of a checkout, and return its printed lines."""
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        "PYTHONPATH": str(root),
        "SNNCELL_CACHE_DIR": folder,
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout.splitlines()


def first_call(name: str, root: Path, kernels: bool) -> list[tuple[float, float, list[str]]]:
    """Return CPU seconds, wall seconds and compiled kernels of a first call, with an empty and with a filled cache."""
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            *lines, last = run_code(COUNT.format(code=CASES[name], kernels=kernels), root, folder)
            cpu, wall = map(float, last.split())
            results.append((cpu, wall, [line[2:] for line in lines if line.startswith("# ")]))
    return results


def demo(root: Path) -> list[tuple[float, float, list[str]]]:
    """Return the same as `first_call` for the process of the demo, without names of kernels."""
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            before, begin = os.times(), time.perf_counter()
            run_code(
                f"import sys; sys.argv[1:] = ['demo', '--folder', {folder!r}]; import runpy; "
                "runpy.run_module('snncell', run_name='__main__')",
                root,
                folder,
            )
            after = os.times()
            cpu = after.children_user + after.children_system - before.children_user - before.children_system
            results.append((cpu, time.perf_counter() - begin, []))
    return results


def _head(rounds: int) -> list[str]:
    """Return the first lines of the page."""
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("numpy", "numba", "llvmlite")]
    return [
        "# First calls",
        "",
        f"- command: {command()}",
        f"- date: {datetime.date.today()}, {rounds} round(s), medians",
        f"- processor: {platform.processor() or platform.machine()}, {os.cpu_count()} cores",
        f"- versions: Python {platform.python_version()}, snncell {snncell.__version__}, {', '.join(versions)}",
        "",
        "The time includes the imports and compilation of the first call, but not `import snncell`. The cache is empty",
        "(cold) or filled by an earlier process (warm). For the demo it is the time of the whole process. `here` is",
        "this version, and `before` is another checkout that takes turns with it.",
        "",
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print a table, and write it to the file of `--markdown`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=[*CASES, "demo", "launch"])
    parser.add_argument("--against", type=Path, help="the root of another checkout")
    parser.add_argument("--markdown", type=Path, help="also write the page to this file")
    parser.add_argument("--kernels", action="store_true", help="list the compiled kernels")
    options = parser.parse_args(arguments)
    roots = {"here": HERE} | ({"before": options.against.resolve()} if options.against else {})
    jax = importlib.util.find_spec("jax") is not None
    kernels: dict[str, list[str]] = {}
    lines = ["| first call | of | cold, CPU s | cold, wall s | warm, CPU s | warm, wall s |", "| --- " * 6 + "|"]
    for name in [name for name in options.only if name != "launch"]:
        rows: dict[str, list[tuple[float, ...]]] = {}
        for turn in range(options.rounds):
            for who, root in roots.items():
                results = demo(root) if name == "demo" else first_call(name, root, options.kernels and turn == 0)
                rows.setdefault(who, []).append(tuple(number for cpu, wall, _ in results for number in (cpu, wall)))
                if who == "here":
                    kernels[name] = kernels.get(name) or results[0][2]
            if jax and name in IN_JAX:
                with tempfile.TemporaryDirectory() as folder:
                    rows.setdefault("JAX", []).append(
                        tuple(map(float, run_code(JAX + IN_JAX[name], HERE, folder)[-1].split()))
                    )
        for who, values in rows.items():
            medians = [f"{statistics.median(column):.2f}" for column in zip(*values, strict=True)]
            lines.append(f"| {name} | {who} | {' | '.join([*medians, '', ''][:4])} |")
            print(lines[-1], flush=True)
    for name, compiled in kernels.items():
        if compiled:
            lines += ["", f"Kernels of `{name}`, in the order of compilation:", ""]
            lines += ["| kernel | CPU s |", "| --- | --- |"]
            lines += [f"| {' | '.join(kernel.split())} |" for kernel in compiled]
    if "launch" in options.only:
        lines += ["", "| of | launch of a small kernel, us | bandwidth of a large one, GB/s |", "| --- | --- | --- |"]
        with tempfile.TemporaryDirectory() as folder:
            launches = {who: [] for who in roots}
            for _ in range(options.rounds):
                for who, root in roots.items():
                    launches[who].append(tuple(map(float, run_code(LAUNCH, root, folder)[-1].split())))
        for who, values in launches.items():
            lines.append(
                f"| {who} | " + " | ".join(f"{statistics.median(c):.1f}" for c in zip(*values, strict=True)) + " |"
            )
            print(lines[-1], flush=True)
    if options.markdown:
        options.markdown.write_text("\n".join([*_head(options.rounds), *lines]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
