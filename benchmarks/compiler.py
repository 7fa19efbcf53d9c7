"""The compiler's figures, side by side with PyTorch, SpikingJelly and JAX where they are installed:
`python benchmarks/compiler.py [--json FILE] [--markdown FILE] [--only NAME ...] [--small]`.

Contestants are measured in turns (A B C A B C ...), all in one run, after their outputs and gradients have been
compared with snncell's at a smaller size: all compute the same.

- lif: LIF neurons with a surrogate of the user's own, forward and backward; what of it is memory traffic.
- adaptive: a neuron of the user's own with two states and a time constant for each neuron that is learnt.
- recurrent: a training step of a recurrent network, 700-256-20.
- first: the first call of a new neuron in a fresh process, with an empty and with a filled disk cache.
- demo: `python -m snncell demo`, from an empty and from a filled disk cache.
- memory: the most memory that forward and backward of a long sequence take, each contestant in a fresh process.
- busy: a training step while two other processes compute.

PyTorch's contestant is the loop that one writes, over the slices of `unbind`; SpikingJelly's is its LIFNode, which runs
a loop of PyTorch's operations on a CPU; JAX's is a jitted `lax.scan`. All use the threads that they choose themselves.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import gc
import importlib.metadata
import importlib.util
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from timing import fresh, in_turns, printed

import snncell
from snncell import Parameter, Tensor, nn, ops

MODULES = {"PyTorch": "torch", "SpikingJelly": "spikingjelly", "JAX": "jax"}
REST = 0.2  # seconds before each turn: the threads of a BLAS spin for a tenth of a second when their work is done

Run = Callable[[], Any]


@dataclass(frozen=True)
class Sizes:
    """The size of everything."""

    rounds: int
    loop: tuple[int, int, int]  # of lif and adaptive: (steps, batch, neurons)
    recurrent: tuple[int, int, int, int, int]  # steps, batch, inputs, hidden, classes
    first: dict[str, tuple[int, int, int]]
    fresh: int  # how many fresh processes a median is of
    epochs: int
    memory: tuple[int, int]  # steps, neurons
    busy: tuple[int, int]  # rounds, calls in each


FULL = Sizes(
    rounds=15,
    loop=(64, 64, 4096),
    recurrent=(100, 64, 700, 256, 20),
    first={"small, serial kernels": (16, 4, 64), "large, parallel kernels": (16, 64, 2048)},
    fresh=5,
    epochs=30,
    memory=(1000, 1 << 15),
    busy=(5, 200),
)
SMALL = Sizes(
    rounds=3,
    loop=(8, 4, 256),
    recurrent=(10, 8, 70, 32, 5),
    first={"small, serial kernels": (4, 2, 8)},
    fresh=1,
    epochs=1,
    memory=(64, 1 << 12),
    busy=(2, 10),
)
CHECK_LOOP, CHECK_RECURRENT = (40, 4, 512), (20, 8, 50, 32, 5)


@dataclass
class Row:
    """One line of the table; `ratio` is to snncell's median, or to that of the figure's first row."""

    figure: str
    contestant: str
    median: float
    unit: str
    minimum: float | None = None
    ratio: float | None = None


class Report:
    """The rows and remarks found so far, printed as they come."""

    def __init__(self, sizes: Sizes, peers: list[str]) -> None:
        self.sizes = sizes
        self.peers = peers
        self.rows: list[Row] = []
        self.notes: list[str] = []

    def add(self, *rows: Row) -> None:
        for row in rows:
            self.rows.append(row)
            print(f"  {_cells(row)}", flush=True)

    def note(self, text: str) -> None:
        self.notes.append(text)
        print(f"  {text}", flush=True)

    def times(self, figure: str, times: dict[str, list[float]], first: str = "snncell") -> None:
        """A row for each contestant, in milliseconds, with the ratio of medians to the first one's."""
        base = statistics.median(times[first])
        for name, values in times.items():
            median = statistics.median(values)
            self.add(Row(figure, name, median * 1e3, "ms", min(values) * 1e3, median / base))

    def present(self, factories: dict[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
        """Those that are installed."""
        return {name: factory for name, factory in factories.items() if name not in MODULES or name in self.peers}


# Contestants are checked -----------------------------------------------------


def arrays(tree: Any) -> list[Any]:
    """The NumPy arrays of what a contestant returns: nested tuples and lists of anybody's tensors."""
    if isinstance(tree, (tuple, list)):
        return [array for item in tree for array in arrays(item)]
    if isinstance(tree, Tensor):
        return [tree.asnumpy()]
    return [np.asarray(tree.detach() if hasattr(tree, "detach") else tree)]


def agree(who: str, mine: list[Any], theirs: list[Any]) -> str:
    """Refuse contestants that compute something else; in words, how close they are.

    What is compared: spikes, the gradient of the input, gradients of Parameters. A compiler may contract a * b + c to
    one rounding, so that one spike in many thousands comes out differently; of the input's gradients those of neurons
    without such a spike are compared.
    """
    assert [a.shape for a in mine] == [a.shape for a in theirs], who
    same = mine[0] == theirs[0]
    different = float(1.0 - same.mean())
    assert different < 2e-4, f"{who}: {different:.2%} of the spikes differ"
    assert 0.02 < mine[0].mean() < 0.6, f"neurons fire at {mine[0].mean():.1%} of the steps: this compares little"
    neurons = same.all(0)
    np.testing.assert_allclose(theirs[1][:, neurons], mine[1][:, neurons], rtol=1e-3, atol=1e-5, err_msg=who)
    distances = [distance(a[:, neurons] if n == 0 else a, b[:, neurons] if n == 0 else b)
                 for n, (a, b) in enumerate(zip(mine[1:], theirs[1:], strict=True))]  # fmt: skip
    assert max(distances) < 1e-3, f"{who}: gradients differ by {max(distances):.1e} of their norm"
    return f"{who}: {round(different * same.size)} of {same.size} spikes differ, gradients by {max(distances):.0e}"


def distance(a: Any, b: Any) -> float:
    """The norm of the difference, in norms of `a`."""
    return float(np.linalg.norm((a - b).ravel()) / np.linalg.norm(a.ravel()))


# What contestants compute: the surrogate -------------------------------------


class SuperSpike(nn.Cell):
    """A step with the derivative 1 / (1 + 10 |x|)^2."""

    def construct(self, x: Tensor) -> Tensor:
        return (x > 0).astype(x.dtype)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor]:
        return (dout / ops.square(1.0 + 10.0 * ops.abs(x)),)


torch_device = "cpu"  # where PyTorch and SpikingJelly compute; `gpu.py` changes it


@functools.cache
def torch_spike() -> Any:
    import torch

    class Spike(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return (x > 0).to(x)

        @staticmethod
        def backward(ctx: Any, dout: Any) -> Any:
            (x,) = ctx.saved_tensors
            return dout / (1.0 + 10.0 * x.abs()).square()

    return Spike.apply


@functools.cache
def spikingjelly_spike() -> Any:
    from spikingjelly.activation_based.surrogate import SurrogateFunctionBase

    class Surrogate(SurrogateFunctionBase):  # type: ignore[misc]
        @staticmethod
        def spiking_function(x: Any) -> Any:
            return torch_spike()(x)

    return Surrogate()


@functools.cache
def jax_spike() -> Any:
    import jax
    import jax.numpy as jnp

    @jax.custom_vjp
    def spike(x: Any) -> Any:
        return (x > 0).astype(x.dtype)

    def backward(x: Any, dout: Any) -> tuple[Any]:
        return (dout / jnp.square(1.0 + 10.0 * jnp.abs(x)),)

    spike.defvjp(lambda x: (spike(x), x), backward)
    return spike


# What contestants compute: loops over time. Each factory takes the input, the gradient of the output and Parameters,
# as NumPy arrays, and gives what is measured: a function that returns (spikes, gradient of x, gradients of Parameters).


def snncell_vjp(net: Any, x: Any, dout: Any, weights: Any = None) -> Run:
    given, seed = Tensor(x), Tensor(dout)

    def run() -> Any:
        out, pull = ops.vjp(net, given, weights=weights)
        return out, pull(seed)

    return run


def torch_vjp(net: Callable[..., Any], x: Any, dout: Any, *weights: Any) -> Run:
    import torch

    leaves = [torch.from_numpy(array).to(torch_device).requires_grad_() for array in (x, *weights)]
    seed = torch.from_numpy(dout).to(torch_device)

    def run() -> Any:
        out = net(*leaves)
        return out.detach(), torch.autograd.grad(out, leaves, seed)

    return run


def jax_vjp(net: Callable[..., Any], x: Any, dout: Any, *weights: Any) -> Run:
    import jax

    @jax.jit
    def both(dout: Any, *leaves: Any) -> Any:
        out, pull = jax.vjp(net, *leaves)
        return out, pull(dout)

    given = [jax.device_put(array) for array in (dout, x, *weights)]
    return lambda: jax.block_until_ready(both(*given))


def snncell_lif(x: Any, dout: Any, every: int | None = None) -> Run:
    """The gradient of the spikes, or if `dout` is for one step, of their numbers."""
    neuron = nn.LIFNode(tau=2.0, surrogate_function=SuperSpike())
    layer = nn.MultiStep(neuron, checkpoint_every=every)
    if dout.ndim == x.ndim:
        return snncell_vjp(layer, x, dout)

    @snncell.jit
    def counted(x: Tensor, dout: Tensor) -> tuple[Tensor, Tensor]:
        out, pull = ops.vjp(lambda x: layer(x).sum(0), x)
        return out, pull(dout)

    given, seed = Tensor(x), Tensor(dout)
    return lambda: counted(given, seed)


def torch_lif(x: Any, dout: Any) -> Run:
    import torch

    spike = torch_spike()

    def net(x: Any) -> Any:
        v, counts = torch.zeros_like(x[0]), torch.zeros_like(x[0])
        out = []
        for now in x.unbind(0):
            h = v + (now - v) / 2.0
            s = spike(h - 1.0)
            v = h - s
            if counted:
                counts = counts + s
            else:
                out.append(s)
        return counts if counted else torch.stack(out)

    counted = dout.ndim < x.ndim
    return torch_vjp(net, x, dout)


def spikingjelly_lif(x: Any, dout: Any) -> Run:
    from spikingjelly.activation_based import functional, neuron

    node = neuron.LIFNode(tau=2.0, v_reset=None, surrogate_function=spikingjelly_spike(), step_mode="m")

    def net(x: Any) -> Any:
        functional.reset_net(node)
        return node(x).sum(0) if dout.ndim < x.ndim else node(x)

    return torch_vjp(net, x, dout)


def jax_lif(x: Any, dout: Any) -> Run:
    import jax
    import jax.numpy as jnp

    spike = jax_spike()

    def step(v: Any, now: Any) -> tuple[Any, Any]:
        h = v + (now - v) / 2.0
        s = spike(h - 1.0)
        return h - s, s

    def counting(states: Any, now: Any) -> tuple[Any, None]:
        v, s = step(states[0], now)
        return (v, states[1] + s), None

    def counts(x: Any) -> Any:
        start = jnp.zeros_like(x[0])
        return jax.lax.scan(counting, (start, start), x)[0][1]

    if dout.ndim < x.ndim:
        return jax_vjp(counts, x, dout)
    return jax_vjp(lambda x: jax.lax.scan(step, jnp.zeros_like(x[0]), x)[1], x, dout)


class Adaptive(nn.Cell):
    """A neuron with a threshold that rises with each spike, and a time constant for each neuron."""

    def __init__(self, w: Any) -> None:
        super().__init__()
        self.w = Parameter(Tensor(w))
        self.spike = SuperSpike()

    def construct(self, x: Tensor, v: Tensor, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h = ops.sigmoid(self.w) * v + x
        s = self.spike(h - 1.0 - a)
        return s, h - s * (1.0 + a), 0.95 * a + 0.1 * s


def snncell_adaptive(x: Any, dout: Any, w: Any) -> Run:
    neuron = Adaptive(w)
    return snncell_vjp(nn.MultiStep(neuron), x, dout, neuron.w)


def torch_adaptive(x: Any, dout: Any, w: Any) -> Run:
    import torch

    spike = torch_spike()

    def net(x: Any, w: Any) -> Any:
        decay = torch.sigmoid(w)
        v, a = torch.zeros_like(x[0]), torch.zeros_like(x[0])
        out = []
        for now in x.unbind(0):
            h = decay * v + now
            s = spike(h - 1.0 - a)
            v = h - s * (1.0 + a)
            a = 0.95 * a + 0.1 * s
            out.append(s)
        return torch.stack(out)

    return torch_vjp(net, x, dout, w)


def jax_adaptive(x: Any, dout: Any, w: Any) -> Run:
    import jax
    import jax.numpy as jnp

    spike = jax_spike()

    def net(x: Any, w: Any) -> Any:
        decay = jax.nn.sigmoid(w)

        def step(states: Any, now: Any) -> tuple[Any, Any]:
            v, a = states
            h = decay * v + now
            s = spike(h - 1.0 - a)
            return (h - s * (1.0 + a), 0.95 * a + 0.1 * s), s

        start = jnp.zeros_like(x[0])
        return jax.lax.scan(step, (start, start), x)[1]

    return jax_vjp(net, x, dout, w)


LIF: dict[str, Callable[..., Run]] = {
    "snncell": snncell_lif,
    "PyTorch": torch_lif,
    "SpikingJelly": spikingjelly_lif,
    "JAX": jax_lif,
}
ADAPTIVE: dict[str, Callable[..., Run]] = {"snncell": snncell_adaptive, "PyTorch": torch_adaptive, "JAX": jax_adaptive}


def currents(shape: tuple[int, ...], seed: int = 0) -> tuple[Any, Any]:
    """The input and the gradient of the output."""
    rng = np.random.default_rng(seed)
    x, dout = rng.standard_normal(shape, np.float32), rng.standard_normal(shape, np.float32)
    x *= 1.5
    x += 0.5
    return x, dout


def time_constants(neurons: int) -> Any:
    return np.random.default_rng(2).uniform(-1.0, 3.0, neurons).astype(np.float32)


def copying(bytes_each: int = 64_000_000) -> Run:
    """A copy of 64 MB by all cores, which says how fast memory is."""
    cores = os.cpu_count() or 1
    source, target = (np.ones(bytes_each, np.uint8) for _ in range(2))
    parts = list(zip(np.array_split(target, cores), np.array_split(source, cores), strict=True))
    pool = ThreadPoolExecutor(cores)
    return lambda: list(pool.map(lambda part: np.copyto(*part), parts))


def check(report: Report, figure: str, factories: dict[str, Callable[..., Run]], *weights: Any) -> None:
    """Compare contestants at one kind of loop; `weights` are functions of the number of neurons."""
    given = (*currents(CHECK_LOOP, 1), *(weight(CHECK_LOOP[2]) for weight in weights))
    found = {name: arrays(factory(*given)()) for name, factory in factories.items()}
    for name in list(found)[1:]:
        report.note(agree(f"{figure}, {name}", found["snncell"], found[name]))


def loops(
    report: Report, figure: str, everyone: dict[str, Callable[..., Run]], stored: int, again: int, *weights: Any
) -> None:
    """Check and measure contestants at one kind of loop; `weights` are functions of the number of neurons.

    `stored` is what snncell stores for the reverse of each step, `again` what the reverse reads of the input.
    """
    factories = report.present(everyone)
    check(report, figure, factories, *weights)
    shape = report.sizes.loop
    given = (*currents(shape), *(weight(shape[2]) for weight in weights))
    contestants: dict[str, Run] = {name: factory(*given) for name, factory in factories.items()}
    copy_name = "copy of 64 MB, all cores"
    times = in_turns({**contestants, copy_name: copying()}, 1, report.sizes.rounds, REST)
    copies = times.pop(copy_name)
    report.times(f"{figure}, forward + backward", times)

    speed = 2 * 64e6 / statistics.median(copies)  # read and written
    sequence = 4 * int(np.prod(shape))
    # Forward: x is read, spikes and what is stored are written. Backward: that and dout are read, dx is written.
    moved = (2 + stored + 2 + stored + again) * sequence
    alone, whole = moved / speed, statistics.median(times["snncell"])
    report.add(
        Row(figure, "that traffic alone", alone * 1e3, "ms", None, alone / whole),
        Row(figure, f"bytes that must move, {stored} sequence(s) stored", moved / 1e6, "MB"),
        Row(figure, "copy bandwidth, reads and writes", speed / 1e9, "GB/s"),
    )
    report.note(f"{figure}: snncell takes {whole / alone:.2f} times as long as that traffic alone.")


def lif(report: Report) -> None:
    loops(report, "lif", LIF, 1, 0)


def adaptive(report: Report) -> None:
    loops(report, "adaptive", ADAPTIVE, 2, 1, time_constants)
    report.note(
        "adaptive: SpikingJelly has no such neuron built in; a subclass of its BaseNode would run the operations of "
        "the PyTorch loop, so it is left out."
    )


# What contestants compute: a training step. Each factory takes data and initial weights, and gives two functions: one
# that returns (hidden spikes, gradient of the hidden layer's input, gradients of the weights), one that takes a step
# and returns the loss.

RATE = 1e-3
Training = tuple[Run, Run]


def task(sizes: tuple[int, int, int, int, int], seed: int = 0) -> tuple[Any, Any, list[Any]]:
    """Random spikes at 5 %, classes, and three matrices, each followed by its bias: input, recurrent, readout."""
    steps, batch, inputs, hidden, classes = sizes
    rng = np.random.default_rng(seed)
    x = (rng.random((steps, batch, inputs)) < 0.05).astype(np.float32)
    scales = {(hidden, inputs): 2.0 / np.sqrt(0.05 * inputs), (hidden, hidden): 1.0 / np.sqrt(hidden),
              (classes, hidden): 1.0 / np.sqrt(hidden)}  # fmt: skip
    weights = []
    for shape, scale in scales.items():
        weights += [rng.standard_normal(shape) * scale, rng.uniform(-0.1, 0.1, shape[0])]
    return x, rng.integers(0, classes, batch), [weight.astype(np.float32) for weight in weights]


def snncell_training(x: Any, y: Any, weights: list[Any]) -> Training:
    w1, b1, w2, b2, w3, b3 = (Tensor(weight) for weight in weights)
    (hidden, inputs), classes = weights[0].shape, len(weights[4])
    dense = nn.Dense(inputs, hidden, w1, b1)
    feedback = nn.Dense(hidden, hidden, w2, b2)
    layer = nn.MultiStep(nn.Recurrent(nn.LIFNode(tau=2.0, surrogate_function=SuperSpike()), feedback))
    readout = nn.Dense(hidden, classes, w3, b3)
    params = [p for cell in (dense, feedback, readout) for p in (cell.weight, cell.bias)]
    loss_fn, optimiser = nn.CrossEntropyLoss(), nn.Adam(params, RATE)
    given, labels = Tensor(x), Tensor(y)

    def loss(x: Tensor, y: Tensor, extra: Any) -> Any:
        spikes = layer(dense(x) + extra)
        return loss_fn(readout(spikes).mean(0), y), spikes

    gradients = snncell.value_and_grad(lambda x, y: loss(x, y, 0.0)[0], None, params)

    @snncell.jit
    def step(x: Tensor, y: Tensor) -> Tensor:
        value, grads = gradients(x, y)
        optimiser(grads)
        return value  # type: ignore[no-any-return]

    def first() -> Any:
        extra = ops.zeros((*x.shape[:2], hidden))
        (_, spikes), grads = snncell.value_and_grad(loss, 2, params, has_aux=True)(given, labels, extra)
        return spikes, grads

    return first, lambda: step(given, labels)


def torch_training(x: Any, y: Any, weights: list[Any], with_spikingjelly: bool = False) -> Training:
    import torch
    from torch.nn.functional import cross_entropy, linear

    params = [torch.from_numpy(weight.copy()).requires_grad_() for weight in weights]
    w1, b1, w2, b2, w3, b3 = params
    adam = torch.optim.Adam(params, RATE, fused=True)
    given, labels = torch.from_numpy(x), torch.from_numpy(y)
    spike = torch_spike()

    def loop(current: Any) -> Any:
        s = v = torch.zeros_like(current[0])
        out = []
        for now in current.unbind(0):
            h = v + (now + linear(s, w2, b2) - v) / 2.0
            s = spike(h - 1.0)
            v = h - s
            out.append(s)
        return torch.stack(out)

    layer = spikingjelly_recurrent(lambda s: linear(s, w2, b2)) if with_spikingjelly else loop

    def loss(extra: Any) -> Any:
        spikes = layer(linear(given, w1, b1) + extra)
        return cross_entropy(linear(spikes, w3, b3).mean(0), labels), spikes

    def first() -> Any:
        extra = torch.zeros(*x.shape[:2], len(b1)).requires_grad_()
        value, spikes = loss(extra)
        return spikes, torch.autograd.grad(value, [extra, *params])

    def step() -> Any:
        adam.zero_grad()
        value, _ = loss(0.0)
        value.backward()
        adam.step()
        return value.detach()

    return first, step


def spikingjelly_recurrent(feedback: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Its ElementWiseRecurrentContainer, with a function that adds the recurrent product to the input.

    LinearRecurrentContainer multiplies (x, y) by one matrix of which half would have to stay the identity. Both are
    called step by step over the slices of unbind; their own loops index the sequence, whose reverse is slower.
    """
    import torch
    from spikingjelly.activation_based import functional, layer, neuron

    node = neuron.LIFNode(tau=2.0, v_reset=None, surrogate_function=spikingjelly_spike(), step_mode="s")
    net = layer.ElementWiseRecurrentContainer(node, lambda y, x: x + feedback(y), step_mode="s")

    def run(current: Any) -> Any:
        functional.reset_net(net)
        return torch.stack([net(now) for now in current.unbind(0)])

    return run


def spikingjelly_training(x: Any, y: Any, weights: list[Any]) -> Training:
    return torch_training(x, y, weights, with_spikingjelly=True)


def jax_training(x: Any, y: Any, weights: list[Any]) -> Training:
    import jax
    import jax.numpy as jnp

    spike = jax_spike()
    given, labels = jax.device_put(x), jax.device_put(y)
    params = [jax.device_put(weight) for weight in weights]

    def loss(params: Any, extra: Any, x: Any, y: Any) -> Any:
        w1, b1, w2, b2, w3, b3 = params

        def one(states: Any, now: Any) -> tuple[Any, Any]:
            s, v = states
            h = v + (now + s @ w2.T + b2 - v) / 2.0
            s = spike(h - 1.0)
            return (s, h - s), s

        current = x @ w1.T + b1 + extra
        start = jnp.zeros_like(current[0])
        spikes = jax.lax.scan(one, (start, start), current)[1]
        logits = jax.nn.log_softmax((spikes @ w3.T + b3).mean(0))
        return -jnp.take_along_axis(logits, y[:, None], 1).mean(), spikes

    @jax.jit
    def train(state: Any, x: Any, y: Any) -> Any:
        t, params, first, second = state
        (value, _), grads = jax.value_and_grad(loss, has_aux=True)(params, 0.0, x, y)
        t = t + 1
        first = [0.9 * m + 0.1 * g for m, g in zip(first, grads, strict=True)]
        second = [0.999 * v + 0.001 * g * g for v, g in zip(second, grads, strict=True)]
        params = [p - RATE * (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.999**t)) + 1e-8)
                  for p, m, v in zip(params, first, second, strict=True)]  # fmt: skip
        return value, (t, params, first, second)

    zeros = [jnp.zeros_like(p) for p in params]
    state = (jnp.float32(0.0), params, zeros, zeros)

    def step() -> Any:
        nonlocal state
        value, state = jax.block_until_ready(train(state, given, labels))
        return value

    def first() -> Any:
        extra = jnp.zeros((*x.shape[:2], weights[0].shape[0]))
        (_, spikes), (grads, of_extra) = jax.value_and_grad(loss, (0, 1), has_aux=True)(params, extra, given, labels)
        return spikes, of_extra, grads

    return first, step


TRAINING = {
    "snncell": snncell_training,
    "PyTorch": torch_training,
    "SpikingJelly": spikingjelly_training,
    "JAX": jax_training,
}


def on_one_thread(run: Run) -> Run:
    """PyTorch's operations without its threads, which gain little from products as small as these."""
    import torch

    def alone() -> Any:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return run()
        finally:
            torch.set_num_threads(threads)

    return alone


def recurrent(report: Report) -> None:
    factories = report.present(TRAINING)
    checked = {name: factory(*task(CHECK_RECURRENT, 1)) for name, factory in factories.items()}
    found = {name: arrays(first()) for name, (first, _) in checked.items()}
    losses = {name: [float(step()) for _ in range(5)] for name, (_, step) in checked.items()}
    for name in list(found)[1:]:
        report.note(agree(f"recurrent, {name}", found["snncell"], found[name]))
        np.testing.assert_allclose(losses[name], losses["snncell"], rtol=1e-2, err_msg=f"{name}: the loss of 5 steps")
    given = task(report.sizes.recurrent)
    trained = {name: factory(*given) for name, factory in factories.items()}
    firing = float(arrays(trained["snncell"][0]())[0].mean())
    steps: dict[str, Run] = {name: step for name, (_, step) in trained.items()}
    if "PyTorch" in steps:
        steps["PyTorch, one thread"] = on_one_thread(steps["PyTorch"])
    report.times("recurrent, training step", in_turns(steps, 1, report.sizes.rounds, REST))
    report.note(f"recurrent: the hidden neurons fire at {firing:.0%} of the steps.")


# snncell alone ---------------------------------------------------------------

NEW_NEURON = """
import time
import numpy as np
import snncell
start = time.perf_counter()
from snncell import Tensor, nn, ops

class Spike(nn.Cell):
    def construct(self, x):
        return (x > 0).astype(x.dtype)

    def bprop(self, x, out, dout):
        return (dout / ops.square(1.0 + 10.0 * ops.abs(x)),)

class Adaptive(nn.Cell):
    def __init__(self):
        super().__init__()
        self.spike = Spike()

    def construct(self, x, v, a):
        h = 0.9 * v + x
        s = self.spike(h - 1.0 - a)
        return s, h - s * (1.0 + a), 0.95 * a + 0.1 * s

x = Tensor(np.ones({shape}, np.float32))
out, pull = ops.vjp(nn.MultiStep(Adaptive()), x)
pull(out)
print(time.perf_counter() - start)
"""

IMPORT_NUMBA = """
import time
import snncell
start = time.perf_counter()
import numba
print(time.perf_counter() - start)
"""


def first(report: Report) -> None:
    sizes = report.sizes
    for kind, shape in sizes.first.items():
        times: dict[str, list[float]] = {"empty disk cache": [], "filled disk cache": []}
        for _ in range(sizes.fresh):
            with tempfile.TemporaryDirectory() as folder:
                for values in times.values():
                    values.append(fresh(NEW_NEURON.format(shape=shape), SNNCELL_CACHE_DIR=folder))
        for name, values in times.items():
            report.add(Row(f"first call, {kind}", name, statistics.median(values), "s", min(values)))
    imports = [fresh(IMPORT_NUMBA) for _ in range(sizes.fresh)]
    report.add(Row("first call", "of which importing Numba", statistics.median(imports), "s", min(imports)))


DEMO = """
import tempfile
import time
start = time.perf_counter()
import snncell.demo
with tempfile.TemporaryDirectory() as folder:
    accuracy = snncell.demo.run(epochs={epochs}, folder=folder, progress=False)
print(time.perf_counter() - start, accuracy)
"""


def demo(report: Report) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in ("empty disk cache", "filled disk cache"):
            code = DEMO.format(epochs=report.sizes.epochs)
            seconds, accuracy = map(float, printed(code, SNNCELL_CACHE_DIR=folder, MPLBACKEND="Agg").split()[-2:])
            report.add(
                Row(f"demo, {report.sizes.epochs} epochs, with imports", name, seconds, "s"),
                Row("demo, test accuracy", name, accuracy * 100, "%"),
            )


# Memory ----------------------------------------------------------------------

MEMORY: dict[str, Callable[..., Run]] = {
    **LIF,
    "snncell, checkpoint_every=32": functools.partial(snncell_lif, every=32),
}


def resident(field: str) -> int:
    """VmRSS or VmHWM of this process, in bytes."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}")


def peak(name: str, steps: int, neurons: int, counted: bool) -> float:
    """In a fresh process: the most that one run adds to the memory in use, in float32 sequences (steps, neurons)."""
    factory = MEMORY[name]
    for _ in range(2):  # compilers and thread pools have what they need
        factory(*signals(64, neurons, counted))()
    gc.collect()
    before = resident("VmRSS")
    run = factory(*signals(steps, neurons, counted))
    result = run()
    found = (resident("VmHWM") - before) / (4 * steps * neurons)
    del result
    return found


def signals(steps: int, neurons: int, counted: bool) -> tuple[Any, Any]:
    """The input, and the gradient of the spikes or of their numbers."""
    x, _ = currents((steps, 1, neurons))
    shape = x.shape[1:] if counted else x.shape
    return x, np.random.default_rng(3).standard_normal(shape, np.float32)


def memory(report: Report) -> None:
    if not Path("/proc/self/status").exists():
        report.note("memory: left out, for this system has no /proc/self/status.")
        return
    steps, neurons = report.sizes.memory
    figure = f"memory, T = {steps}, {neurons} neurons"
    rate = f"{figure}, spikes counted"
    factories = report.present(MEMORY)
    check(report, "memory", factories)

    def measured(counted: bool) -> dict[str, float]:
        code = "import compiler; print(compiler.peak({!r}, {}, {}, {}))"
        return {name: fresh(code.format(name, steps, neurons, counted), PYTHONPATH=_with_here()) for name in factories}

    found = measured(False)
    report.add(Row(figure, "bound: x, dx, spikes, dout, one state", 5.0, "sequences", None, 5.0 / found["snncell"]))
    for title, held, values in ((figure, 4, found), (rate, 2, measured(True))):
        for name, value in values.items():
            report.add(Row(title, name, value, "sequences", None, value / values["snncell"]))
        for name, value in values.items():
            ratio = (value - held) / (values["snncell"] - held)
            report.add(Row(f"{title}, beside inputs and results", name, value - held, "sequences", None, ratio))
    report.note(
        f"memory: VmHWM after the first run of this size minus VmRSS before its inputs were made, in a fresh process "
        f"that had run 64 steps before; in sequences of {4e-6 * steps * neurons:.0f} MB. So inputs (x and dout), "
        "results (spikes and dx) and all in between count; imports and compilers hardly. Where spikes are counted, the "
        "loss depends on their numbers, as with a rate code: dout is one step, and nobody asks for the spikes."
    )


def _with_here() -> str:
    """A PYTHONPATH on which a fresh process finds this file."""
    return os.pathsep.join([str(Path(__file__).resolve().parent), *filter(None, [os.environ.get("PYTHONPATH")])])


# A busy machine --------------------------------------------------------------


@contextmanager
def others_computing(count: int) -> Iterator[None]:
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        time.sleep(0.3)  # they have started
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def busy(report: Report) -> None:
    from snncell.demo import DigitNet

    rounds, calls = report.sizes.busy
    rng = np.random.default_rng(0)
    net, loss_fn = DigitNet(), nn.CrossEntropyLoss()
    params = net.trainable_params()
    optimiser = nn.Adam(params, 1e-3)
    gradients = snncell.value_and_grad(lambda x, y: loss_fn(net(x), y), None, params)
    x, y = Tensor(rng.random((64, 64), np.float32)), Tensor(rng.integers(0, 10, 64))

    @snncell.jit
    def step(x: Tensor, y: Tensor) -> Tensor:
        value, grads = gradients(x, y)
        optimiser(grads)
        return value  # type: ignore[no-any-return]

    step(x, y)
    times: dict[str, list[float]] = {"quiet": [], "two other processes computing": []}

    def measure(values: list[float]) -> None:
        for _ in range(calls):
            start = time.perf_counter()
            step(x, y)
            values.append(time.perf_counter() - start)

    for _ in range(rounds):
        measure(times["quiet"])
        with others_computing(2):
            measure(times["two other processes computing"])
    report.times("busy, training step of 64-128-64-10", times, "quiet")
    means = [statistics.mean(values) for values in times.values()]
    report.note(f"busy: the mean, which counts the steps that had to wait, grows to {means[1] / means[0]:.2f} times.")


# The run ---------------------------------------------------------------------

BENCHMARKS: dict[str, Callable[[Report], None]] = {
    function.__name__: function for function in (lif, adaptive, recurrent, first, demo, memory, busy)
}


def _cells(row: Row) -> str:
    minimum = "" if row.minimum is None else f"{row.minimum:.4g}"
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    return f"| {row.figure} | {row.contestant} | {row.median:.4g} {row.unit} | {minimum} | {ratio} |"


def table(report: Report) -> str:
    lines = ["| figure | contestant | median | minimum | ratio |", "| --- | --- | --- | --- | --- |"]
    return "\n".join([*lines, *map(_cells, report.rows)])


def cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def environment(peers: list[str]) -> dict[str, str]:
    """Versions, the machine, threads, the date, the command."""
    names = ["snncell", "numpy", "numba", *(MODULES[peer] for peer in peers)]
    found = {
        "command": shlex.join(["python", "benchmarks/compiler.py", *sys.argv[1:]]),
        "date": datetime.date.today().isoformat(),
        "processor": f"{cpu_model()}, {os.cpu_count()} cores",
        "versions": ", ".join([f"Python {platform.python_version()}",
                               *(f"{name} {importlib.metadata.version(name)}" for name in names)]),
    }  # fmt: skip
    import numba

    threads = [f"snncell {numba.get_num_threads()}"]
    if "PyTorch" in peers:
        import torch

        threads.append(f"PyTorch {torch.get_num_threads()}")
    if "JAX" in peers:
        threads.append(f"JAX one for each core, {os.cpu_count()}")
    found["threads"] = ", ".join(threads)
    absent = [peer for peer in MODULES if peer not in peers]
    if absent:
        found["not installed"] = ", ".join(absent)
    return found


def installed() -> list[str]:
    """The peers that are there. They are imported now: snncell's first parallel kernel may set how OpenMP waits."""
    found = []
    for peer, module in MODULES.items():
        if importlib.util.find_spec(module) is not None:
            importlib.import_module(module)
            found.append(peer)
        else:
            print(f"{peer} is not installed: it is left out.")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="also write the figures to this file")
    parser.add_argument("--markdown", help="also write the table to this file")
    parser.add_argument("--only", nargs="+", choices=list(BENCHMARKS), help="measure these only", metavar="NAME")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to see whether everything runs")
    arguments = parser.parse_args()
    report = Report(SMALL if arguments.small else FULL, installed())
    for name in arguments.only or BENCHMARKS:
        print(f"{name}:", flush=True)
        BENCHMARKS[name](report)
    about = environment(report.peers)
    header = "\n".join(f"- {key}: {value}" for key, value in about.items())
    notes = "\n".join(f"- {note}" for note in report.notes)
    text = (
        f"# The compiler's figures\n\n{header}\n\nRatios are of medians, to snncell's or to the first row of "
        f"a figure; a machine's speed drifts, so they\nsay more than the times.\n\n{table(report)}\n\n{notes}\n"
    )
    print(f"\n{text}")
    if arguments.markdown:
        Path(arguments.markdown).write_text(text, encoding="utf-8")
    if arguments.json:
        figures = {"about": about, "rows": [asdict(row) for row in report.rows], "notes": report.notes}
        Path(arguments.json).write_text(json.dumps(figures, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
