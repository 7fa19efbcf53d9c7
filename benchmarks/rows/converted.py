"""A converted ReLU network: prediction after some time steps, by `quantise.to_spiking` and SpikingJelly's ann2snn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import snncell
from benchmarks.row import Contestant, Row
from snncell import Tensor, encode, nn, quantise


@dataclass(frozen=True)
class Sizes:
    """Sizes of a network of two convolutions with average pooling, and a dense layer."""

    steps: int
    batch: int
    side: int
    channels: int

    def arrays(self) -> tuple[Any, ...]:
        """Return the number of steps, the images (B, 1, H, W), and weights and biases of the three layers."""
        rng, n = np.random.default_rng(0), self.channels
        shapes = (n, 1, 3, 3), (2 * n, n, 3, 3), (10, 2 * n * (self.side // 4) ** 2)
        weights = [rng.standard_normal(shape) * np.sqrt(2.0 / np.prod(shape[1:])) for shape in shapes]
        parameters = [each for w in weights for each in (w, rng.uniform(-0.1, 0.1, len(w)))]
        x = rng.random((self.batch, 1, self.side, self.side), np.float32)
        return self.steps, x, [each.astype(np.float32) for each in parameters]


def snncell_converted(steps: int, x: Any, parameters: list[Any]) -> Contestant:
    first, second, last = ([Tensor(p) for p in parameters[n : n + 2]] for n in (0, 2, 4))
    (n, channels, *_), features = first[0].shape, last[0].shape[1]
    cells = [nn.Conv2d(channels, n, 3, has_bias=True), nn.ReLU(), nn.AvgPool2d(2, 2)]
    cells += [nn.Conv2d(n, 2 * n, 3, has_bias=True), nn.ReLU(), nn.AvgPool2d(2, 2), nn.Flatten()]
    ann = nn.SequentialCell(*cells, nn.Dense(features, 10))
    for own, given in zip(ann.trainable_params(), (*first, *second, *last), strict=True):
        own.set_data(given)
    snn = snncell.jit(quantise.to_spiking(ann, x, percentile=100.0, initial=0.0))
    currents = encode.current(Tensor(x), steps)
    return Contestant(lambda: {"output": snn(currents)})


def spikingjelly_converted(steps: int, x: Any, parameters: list[Any]) -> Contestant:
    import torch
    from spikingjelly.activation_based import functional
    from spikingjelly.activation_based.ann2snn import FXConverter
    from spikingjelly.activation_based.ann2snn.recipes.rate_coding import RateCodingRecipe

    n = len(parameters[0])
    layers = [torch.nn.Conv2d(1, n, 3, padding=1), torch.nn.ReLU(), torch.nn.AvgPool2d(2)]
    layers += [torch.nn.Conv2d(n, 2 * n, 3, padding=1), torch.nn.ReLU(), torch.nn.AvgPool2d(2), torch.nn.Flatten()]
    ann = torch.nn.Sequential(*layers, torch.nn.Linear(parameters[4].shape[1], 10)).eval()
    for own, given in zip(ann.parameters(), parameters, strict=True):
        own.data = torch.tensor(given)
    images = torch.tensor(x)
    snn = FXConverter(RateCodingRecipe([images], mode="Max")).convert(ann)
    functional.set_step_mode(snn, "m")
    currents = images.expand(steps, *images.shape).contiguous()

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def run() -> dict[str, Any]:
        functional.reset_net(snn)
        return {"output": snn(currents).mean(0)}

    return Contestant(run)


ROWS = [
    Row(
        "converted-net",
        "converted ReLU net, conv 3x3 1-16-32, pooling, 28x28, T 32, batch 16, prediction",
        Sizes(32, 16, 28, 16),
        Sizes(6, 4, 8, 4),
        Sizes.arrays,
        {"snncell": snncell_converted, "SpikingJelly": spikingjelly_converted},
    )
]
