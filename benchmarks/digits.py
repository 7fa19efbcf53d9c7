"""Time to train on digits until 97 % of the test images are right, with the same network, weights and order of samples.

The input is 64 pixels as constant currents of 16 time steps. The network has 128 LIF neurons and 10 classes, and trains
by Adam with batches of 64. The time includes the creation of the network, imports, tracing and compilation. The table
has the first training of a process and the second one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import snncell
from benchmarks.frameworks import jax_lif_layer, snncell_lif_layer, spikingjelly_lif_layer, torch_lif_layer
from snncell import Tensor, nn, ops
from snncell.data import digits

STEPS, HIDDEN, BATCH, RATE, TARGET, MAX_EPOCHS = 16, 128, 64, 3e-3, 0.97, 60
Trainer = tuple[Callable[[Any, Any], Any], Callable[[Any], Any]]  # a training step, and a function for scores of images


def initial_weights() -> list[Any]:
    rng = np.random.default_rng(0)
    sizes = [((HIDDEN, 64), 3.0), ((10, HIDDEN), 1.0)]
    pairs = [[rng.standard_normal(s) * scale / np.sqrt(s[1]), np.zeros(s[0])] for s, scale in sizes]
    return [w.astype(np.float32) for pair in pairs for w in pair]


def snncell_trainer() -> Trainer:
    w1, b1, w2, b2 = (Tensor(w) for w in initial_weights())
    hidden, readout, layer = nn.Dense(64, HIDDEN, w1, b1), nn.Dense(HIDDEN, 10, w2, b2), snncell_lif_layer()
    params = [hidden.weight, hidden.bias, readout.weight, readout.bias]

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.hidden, self.readout, self.layer = hidden, readout, layer

        def construct(self, x: Tensor) -> Tensor:
            current = self.hidden(x)
            return self.readout(self.layer(ops.broadcast_to(current, (STEPS, *current.shape)))).mean(0)

    net = Net()
    step = snncell.train.training_step(net, nn.CrossEntropyLoss(), nn.Adam(params, RATE), accuracy=None)
    scores = snncell.jit(net)
    return lambda x, y: step(x, y)["loss"], lambda x: scores(Tensor(x)).asnumpy()


def torch_trainer(spikingjelly: bool = False) -> Trainer:
    import torch
    from torch.nn.functional import cross_entropy, linear

    params = [torch.from_numpy(w).requires_grad_() for w in initial_weights()]
    adam = torch.optim.Adam(params, RATE, fused=True)
    layer = spikingjelly_lif_layer() if spikingjelly else torch_lif_layer()

    def net(x: Any) -> Any:
        current = linear(torch.from_numpy(x), *params[:2])
        return linear(layer(current.expand(STEPS, *current.shape)), *params[2:]).mean(0)

    def step(x: Any, y: Any) -> Any:
        adam.zero_grad()
        loss = cross_entropy(net(x), torch.from_numpy(y))
        loss.backward()
        adam.step()
        return loss.detach()

    def scores(x: Any) -> Any:
        with torch.no_grad():
            return net(x).numpy()

    return step, scores


def jax_trainer() -> Trainer:
    import jax
    import jax.numpy as jnp

    from benchmarks.training import adam_in_jax

    def net(params: Any, x: Any) -> Any:
        current = x @ params[0].T + params[1]
        spikes = jax_lif_layer(jnp.broadcast_to(current, (STEPS, *current.shape)))
        return (spikes @ params[2].T + params[3]).mean(0)

    def loss(params: Any, x: Any, y: Any) -> tuple[Any, None]:
        return -jnp.take_along_axis(jax.nn.log_softmax(net(params, x)), y[:, None], 1).mean(), None

    train, state = adam_in_jax(loss, [jax.device_put(w) for w in initial_weights()], RATE)
    scores = jax.jit(net)

    def step(x: Any, y: Any) -> Any:
        nonlocal state
        value, state = train(state, x, y)
        return value

    return step, lambda x: np.asarray(scores(state[1], x))


TRAINERS: dict[str, Callable[[], Trainer]] = {
    "snncell": snncell_trainer,
    "PyTorch": torch_trainer,
    "SpikingJelly": lambda: torch_trainer(spikingjelly=True),
    "JAX": jax_trainer,
}


def train(name: str, max_epochs: int = MAX_EPOCHS) -> tuple[float, int, float, list[float]]:
    """Train once. Return seconds, epochs and accuracy, and the losses of the first five steps."""
    (x, y), (test_x, test_y) = digits()
    x, test_x = x.reshape(-1, 64) * 2.0, test_x.reshape(-1, 64) * 2.0
    rng, losses, accuracy, epoch = np.random.default_rng(1), [], 0.0, 0
    start = time.perf_counter()
    step, scores = TRAINERS[name]()
    while accuracy < TARGET and epoch < max_epochs:
        epoch += 1
        order = rng.permutation(len(x))
        for first in range(0, len(x) - BATCH + 1, BATCH):
            batch = order[first : first + BATCH]
            loss = step(x[batch], y[batch])
            if len(losses) < 5:
                losses.append(float(loss))
        accuracy = float((scores(test_x).argmax(1) == test_y).mean())
    return time.perf_counter() - start, epoch, accuracy, losses


def table(peers: list[str], quick: bool) -> str:
    """Return a table with a line for each framework. The losses of its first steps are compared with snncell's."""
    lines = ["| digits to 97 % | first, s | again, s | epochs | test images right |", "| --- | --- | --- | --- | --- |"]
    expected: list[float] = []
    for name in TRAINERS:
        if name != "snncell" and name not in peers:
            continue
        first, *_ = train(name, 1 if quick else MAX_EPOCHS)
        seconds, epochs, accuracy, losses = train(name, 1 if quick else MAX_EPOCHS)
        expected = expected or losses
        np.testing.assert_allclose(losses, expected, rtol=1e-2, err_msg=f"digits, {name}: the first losses")
        lines.append(f"| {name} | {first:.3g} | {seconds:.3g} | {epochs} | {accuracy:.1%} |")
        print(f"  {lines[-1]}", flush=True)
    return "\n".join(lines)
