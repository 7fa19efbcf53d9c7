"""The demo: a spiking network with custom gradients learns to read handwritten digits, written as a user would."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import snncell
from snncell import Tensor, nn, ops
from snncell.data import batches, digits
from snncell.nn import Cell


class TriangleSpike(Cell):
    """A spike function: 1 above the threshold, with the gradient max(0, 1 - |x|)."""

    def construct(self, x: Tensor) -> Tensor:
        return (x > 0).astype(x.dtype)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor]:
        return (dout * ops.relu(1.0 - ops.abs(x)),)

    def primitive(self, x: Tensor) -> Tensor:
        near = ops.clip(x, -1.0, 1.0)
        return near - near * ops.abs(near) / 2.0


class DigitNet(Cell):
    """A network of 64 pixels, 128 LIF neurons, 64 LIF neurons and 10 readout neurons that do not fire. The brightness
    of a pixel is a constant current for `steps` time steps. The readout neuron with the largest mean potential wins.
    """

    def __init__(self, steps: int = 16) -> None:
        super().__init__()
        self.steps = steps
        self.dense1 = nn.Dense(64, 128)
        self.lif1 = nn.LIFNode(tau=2.0, v_threshold=0.5, surrogate_function=TriangleSpike())
        self.dense2, self.lif2 = nn.Dense(128, 64), nn.LIFNode(tau=2.0, v_threshold=0.5)
        self.dense3, self.readout = nn.Dense(64, 10), nn.IFNode(fire=False)
        self.layer1, self.layer2, self.layer3 = (nn.MultiStep(cell) for cell in (self.lif1, self.lif2, self.readout))

    def construct(self, images: Tensor) -> Tensor:
        current = self.dense1(images)  # the same at every step, so it is computed once
        spikes1 = self.layer1(ops.broadcast_to(current, (self.steps, *current.shape)))
        spikes2 = self.layer2(self.dense2(spikes1))
        membranes: Tensor = self.layer3(self.dense3(spikes2))
        return membranes.mean(0)


@contextmanager
def _clock(seconds: dict[str, float], part: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[part] += time.perf_counter() - start


def accuracy(net: Cell, images: Any, labels: Any) -> float:
    """The fraction of images that are classified correctly."""
    return float((net(Tensor(images)).argmax(1) == Tensor(labels)).mean())


def run(epochs: int = 30, seed: int = 0, folder: str | Path = "demo", progress: bool = True) -> float:
    """Train and test the network, write the plots and the report, and return the test accuracy. `seed` is that of the
    weights and of the order of samples, `folder` that of the plots and the report; `progress` shows a progress bar.
    """
    from tqdm import tqdm

    snncell.set_seed(seed)
    seconds: dict[str, float] = defaultdict(float)
    clock = partial(_clock, seconds)
    with clock("data"):
        (images, labels), (test_images, test_labels) = digits()
        images, test_images = images.reshape(-1, 64), test_images.reshape(-1, 64)
    net = DigitNet()
    net.set_train()
    loss_fn = nn.CrossEntropyLoss(label_smoothing=0.1)
    params = net.trainable_params()
    per_epoch = -(-len(labels) // 64)
    optimiser = nn.AdamW(params, nn.CosineDecayLR(1e-5, 3e-3, epochs * per_epoch), weight_decay=0.01)
    gradients = snncell.value_and_grad(lambda x, y: loss_fn(net(x), y), None, params)

    @snncell.jit  # forward, backward and optimiser as one list of kernels
    def train(x: Tensor, y: Tensor) -> Tensor:
        loss: Tensor
        loss, grads = gradients(x, y)
        optimiser(grads)
        return loss

    with tqdm(total=epochs * per_epoch, unit="step", disable=not progress) as bar:
        for epoch in range(epochs):
            for x, y in batches(images, labels, batch_size=64):
                with clock("training" if epoch else "first epoch"):  # includes tracing and compiling
                    loss = train(x, y)
                bar.update()
            bar.set_postfix(epoch=epoch + 1, loss=f"{float(loss):.4f}")
    net.set_train(False)
    with clock("evaluation"):
        trained, tested = accuracy(net, images, labels), accuracy(net, test_images, test_labels)
    with clock("plots"):
        written = draw(net, test_images[:32], test_labels[:32], Path(folder))
    with clock("report"):
        written.append(page(net, test_images[:128], test_labels[:128], Path(folder)))
    _report(trained, tested, seconds, written)
    return tested


def _report(trained: float, tested: float, seconds: dict[str, float], written: list[Path]) -> None:
    from tqdm import tqdm

    total = sum(seconds.values())
    tqdm.write(f"training accuracy {trained:.4f}\ntest accuracy {tested:.4f}\ntime {total:.1f} s:")
    for part, time_of_part in seconds.items():
        tqdm.write(f"  {part:<11}{time_of_part:6.2f} s  {time_of_part / total:4.0%}")
    tqdm.write("written: " + ", ".join(map(str, written)))


def draw(net: DigitNet, images: Any, labels: Any, folder: Path) -> list[Path]:
    """Plot a spike raster, membrane potentials, and the gradient norms over time of each layer."""
    import matplotlib.pyplot as plt

    from snncell import plot

    folder.mkdir(parents=True, exist_ok=True)
    y = Tensor(labels)
    # The monitor records the spikes of all layers by default.
    with snncell.monitor(net, v="layer3", above="layer2", grad=True) as monitor:
        snncell.grad(lambda x: nn.CrossEntropyLoss()(net(x), y))(Tensor(images))

    def save(name: str, figure: Any) -> Path:
        path = folder / name
        figure.savefig(path, dpi=200)
        plt.close(figure)
        return path

    raster, rows = plt.subplots(2, 1, figsize=(7, 5.5), layout="constrained")
    for row, layer in zip(rows, ("layer1", "layer2"), strict=True):
        plot.raster(monitor, ax=row, layer=layer, title=f"{layer}, input: digit {labels[0]} as a constant current")
    traces, (left, right) = plt.subplots(1, 2, figsize=(7, 3), layout="constrained")
    spikes, threshold = monitor.spikes["layer2"][:, 0], net.lif2.v_threshold
    # Neurons that fire at about every third step show charging, threshold crossing and reset.
    busy = np.argsort(np.abs(spikes.mean(0) - 0.3), kind="stable")[:3]
    before_reset = monitor.above["layer2"][:, 0] + threshold
    plot.membrane(before_reset, spikes, threshold, left, "layer2: potential before the reset", neurons=busy)
    digits = [f"digit {n}" for n in range(10)]
    plot.membrane(monitor.v["layer3"][:, 0], ax=right, labels=digits, title=f"layer3, input: digit {labels[0]}")
    norms = plot.gradient_norms(monitor, title=f"gradient of the loss of {len(labels)} images").figure
    return [save("raster.png", raster), save("membrane.png", traces), save("gradient_norms.png", norms)]


def page(net: DigitNet, images: Any, labels: Any, folder: Path) -> Path:
    """Write the report page with the findings about the network."""
    from snncell import plot

    path = folder / "report.html"
    plot.report(net, (images, labels), nn.CrossEntropyLoss(), path=path)
    return path
