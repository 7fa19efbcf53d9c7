"""A wide layer with few synapses: a training step with cross entropy and Adam."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import snncell
from benchmarks.frameworks import RATE
from benchmarks.peers import compile_part
from benchmarks.row import Contestant, Row
from snncell import Tensor, nn


@dataclass(frozen=True)
class Sizes:
    """A layer, its share of synapses, and the share of nonzero elements of its input: 1 for normal numbers.
    The input of a hidden layer has a gradient, too.
    """

    batch: int
    width: int
    density: float = 0.05
    rate: float = 1.0
    hidden: bool = False

    def arrays(self) -> tuple[Any, ...]:
        """Return inputs (B, N), classes, the weight (N, N) with zeros, and `hidden`."""
        rng = np.random.default_rng(0)
        x = rng.standard_normal((self.batch, self.width), np.float32)
        if self.rate < 1.0:
            x = (rng.random(x.shape) < self.rate).astype(np.float32)
        w = rng.standard_normal((self.width, self.width), np.float32) / np.float32(np.sqrt(self.density * self.width))
        w *= rng.random(w.shape) < self.density
        return x, rng.integers(0, self.width, self.batch), w, self.hidden


def snncell_step(layer: Any, x: Any, y: Any, hidden: bool) -> Contestant:
    loss, adam = nn.CrossEntropyLoss(), nn.Adam(layer.trainable_params(), RATE)
    given, labels = Tensor(x), Tensor(y)
    place = 0 if hidden else None
    gradients = snncell.value_and_grad(lambda x, y: loss(layer(x), y), place, adam.parameters)

    @snncell.jit
    def step(x: Tensor, y: Tensor) -> Any:
        value, grads = gradients(x, y)
        of_x, grads = grads if hidden else (None, grads)
        adam(grads)
        return value, of_x

    return Contestant(lambda: step(given, labels), lambda: {"output": layer(given)})


def snncell_sparse(x: Any, y: Any, w: Any, hidden: bool) -> Contestant:
    weights = Tensor(w.T[w.T != 0])
    layer = nn.SparseDense(*w.shape[::-1], pattern=w, weight_init=weights, has_bias=False)
    return snncell_step(layer, x, y, hidden)


def snncell_dense(x: Any, y: Any, w: Any, hidden: bool) -> Contestant:
    return snncell_step(nn.Dense(*w.shape[::-1], Tensor(w), has_bias=False), x, y, hidden)


def torch_step(weight: Any, product: Callable[[Any, Any], Any], x: Any, y: Any, hidden: bool) -> Contestant:
    import torch

    product = compile_part("network", product)
    param = torch.from_numpy(weight.copy()).requires_grad_()
    adam = torch.optim.Adam([param], RATE, fused=True)
    given, labels = torch.from_numpy(x).requires_grad_(hidden), torch.from_numpy(y)

    def step() -> Any:
        adam.zero_grad()
        value = torch.nn.functional.cross_entropy(product(given, param), labels)
        value.backward()
        adam.step()
        return value.detach()

    return Contestant(step, lambda: {"output": product(given, param).detach()})


def torch_dense(x: Any, y: Any, w: Any, hidden: bool) -> Contestant:
    return torch_step(w, lambda x, w: x @ w.T, x, y, hidden)


def torch_sparse(x: Any, y: Any, w: Any, hidden: bool) -> Contestant:
    """With the values of a sparse COO matrix as the Parameter."""
    import torch

    places = torch.from_numpy(np.stack(np.nonzero(w)))

    def product(x: Any, values: Any) -> Any:
        matrix = torch.sparse_coo_tensor(places, values, w.shape, is_coalesced=True, check_invariants=False)
        return torch.sparse.mm(matrix, x.T).T

    return torch_step(w[w != 0], product, x, y, hidden)


CONTESTANTS: dict[str, Callable[..., Contestant]] = {
    "snncell": snncell_sparse,
    "snncell, dense": snncell_dense,
    "PyTorch": torch_dense,
    "PyTorch, sparse": torch_sparse,
}


def row(name: str, sizes: Sizes, kind: str) -> Row:
    title = f"{sizes.width} to {sizes.width} with {100 * sizes.density:g} % of synapses, batch {sizes.batch}, {kind}"
    few = Sizes(6, 40, 0.2, sizes.rate, sizes.hidden)
    return Row(name, title, sizes, few, Sizes.arrays, CONTESTANTS, 5.0, "layers", "a training step with Adam")


ROWS = [
    row("sparse-4096", Sizes(64, 4096), "dense input"),
    row("sparse-hidden", Sizes(64, 4096, hidden=True), "dense input with a gradient"),
    row("sparse-spikes", Sizes(640, 4096, rate=0.02), "2 % input"),
]
