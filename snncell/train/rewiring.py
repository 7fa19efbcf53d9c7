"""Rewiring of sparse layers during training: DEEP R and RigL, as callbacks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from snncell import ops
from snncell.amp import values_of
from snncell.base.arguments.kinds import Count, NotNegative, Probability
from snncell.errors import ArgumentError, DeviceError
from snncell.kernels.products import matmul
from snncell.nn.layers import sparse
from snncell.nn.layers.sparse import SparseDense
from snncell.nn.optim.optimizer import Optimizer
from snncell.nn.time.states import put_aside
from snncell.ops.random import present_key, replaying
from snncell.tape.parameter import assign_all
from snncell.tape.tensor import Tensor
from snncell.tape.transforms import value_and_grad
from snncell.train.callbacks import Callback, Training
from snncell.train.measures import measure
from snncell.train.state import weights_of

__all__ = ["DeepR", "RigL"]


def _layers(training: Training, who: str) -> list[SparseDense]:
    """The sparse layers whose weights are trained."""
    trained = {id(p) for p in training.optimiser.trainable_params()}
    cells = training.net.cells_and_names()
    found = [cell for _, cell in cells if isinstance(cell, SparseDense) and id(cell.weight) in trained]
    if not found:
        raise ArgumentError(
            f"{who}: the net has no nn.SparseDense whose weight the optimiser trains. Replace an nn.Dense by "
            f"nn.SparseDense(in_channels, out_channels, density=0.1)."
        )
    return found


def _weights(layer: SparseDense) -> Any:
    return layer.weight.asnumpy().astype(np.float32 if layer.weight.dtype.itemsize < 8 else np.float64)


def _rewire(layer: SparseDense, optimiser: Optimizer, weights: Any, kept: Any, grown: Any, fresh: Any) -> None:
    """Give the layer the synapses of the mask `kept`, with their weights and moments, and new ones at places `grown`,
    with the weights `fresh` and with moments of 0.
    """
    places = np.concatenate([layer.places()[kept], grown])
    order = np.argsort(places, kind="stable")
    starts, indices = sparse.pointers(places[order], (layer.in_channels, layer.out_channels))
    pairs = [(layer.indptr, Tensor(starts)), (layer.indices, Tensor(indices))]
    moments = [(p, p.asnumpy(), np.zeros(len(grown))) for p in optimiser.moments_of(layer.weight)]
    for p, old, new in [(layer.weight, weights, fresh), *moments]:
        pairs.append((p, Tensor(np.concatenate([old[kept], new.astype(old.dtype)])[order], p.dtype)))
    assign_all(pairs, "rewiring")


class DeepR(Callback):
    """DEEP R: train sparse layers by a random walk of their synapses, with a constant number of synapses.

        w = s theta,   theta <- theta - rate l1 + sqrt(2 rate temperature) normal(0, 1)

    This step follows each step of the optimiser, for each `nn.SparseDense`. A synapse keeps its sign s. If theta falls
    below 0, the synapse is removed, and a new one with theta = 0 and a random sign grows at a free place, drawn
    uniformly. Use it if the right connections are unknown, and if no dense gradient may be computed, for example
    because training itself must fit on a chip. For large layers `RigL` is faster and usually better.

    Args:
        l1: the strength of the decay of theta, which removes synapses that are not needed.
        temperature: the strength of the noise. 0 moves synapses only by their gradients and the decay.
    Raises: ArgumentError if the optimiser trains no `nn.SparseDense`.
    Source: Bellec, Kappel, Maass and Legenstein, "Deep Rewiring: Training very sparse deep networks", ICLR 2018.
    Example:
        >>> layer = nn.SparseDense(16, 4, density=0.25)
        >>> adam, data = nn.Adam(layer.trainable_params(), 0.01), (ops.normal((64, 16)), ops.ones((64, 4)))
        >>> options = {"accuracy": None, "progress": False, "callbacks": [snncell.train.DeepR(l1=0.1)]}
        >>> _ = snncell.train.fit(layer, nn.MSELoss(), adam, data, 5, **options)
        >>> layer.weight.shape  # as before, at other places
        (16,)
    """

    def __init__(self, l1: NotNegative = 1e-4, temperature: NotNegative = 0.0) -> None:
        self.l1, self.temperature = l1, temperature
        self.signs: list[tuple[SparseDense, Any]] = []  # whether each weight is negative, also for -0.0

    def on_fit_begin(self, training: Training) -> None:
        self.signs = [(layer, np.signbit(_weights(layer))) for layer in _layers(training, "DeepR")]

    def on_step_end(self, training: Training) -> None:
        if training.updated:
            self.signs = [(layer, self._walk(training, layer, negative)) for layer, negative in self.signs]

    def _walk(self, training: Training, layer: SparseDense, negative: Any) -> Any:
        rate = float(training.optimiser.get_lr_parameter(layer.weight).item())
        theta = np.where(negative, -1, 1).astype(np.float32) * _weights(layer) - rate * self.l1
        if self.temperature:
            theta += math.sqrt(2.0 * rate * self.temperature) * ops.normal(theta.shape).asnumpy()
        kept = ~(theta < 0.0)  # a NaN stays, so that it is noticed
        count = len(kept) - int(kept.sum())
        grown = sparse.draw_places(count, layer.in_channels * layer.out_channels, layer.places()[kept])
        fresh = np.where(ops.uniform((count,)).asnumpy() < 0.5, -0.0, 0.0)
        _rewire(layer, training.optimiser, np.where(negative, -theta, theta), kept, grown, fresh)
        return np.signbit(_weights(layer))


class RigL(Callback):
    """RigL: from time to time, replace the smallest weights of sparse layers by synapses with the largest gradients.

    Every `every` steps, each `nn.SparseDense` loses its k smallest weights by magnitude. At the free places with the
    largest gradients it gets k new synapses, with a weight of 0. With z the finished share of the training,

        k = fraction / 2 (1 + cos(pi z / until)) synapses

    The gradients at all places come from a further pass over the last batch. They are computed in blocks, so the memory
    stays proportional to the number of synapses.

    Args:
        every: the number of optimiser steps between two updates.
        fraction: the share of synapses that the first update replaces.
        until: the share of the training after which the synapses stay.
    Raises: ArgumentError if the optimiser trains no `nn.SparseDense`, or if training is distributed.
    Source: Evci, Gale, Menick, Castro and Elsen, "Rigging the Lottery: Making All Tickets Winners", ICML 2020.
    Example:
        >>> layer = nn.SparseDense(16, 4, density=0.25, weight_init="zeros")
        >>> x = ops.normal((512, 16))
        >>> adam, data = nn.Adam(layer.trainable_params(), 0.05), (x, x[:, :4])  # synapse (i, i) is right
        >>> options = {"accuracy": None, "progress": False, "callbacks": [snncell.train.RigL(every=4)]}
        >>> _ = snncell.train.fit(layer, nn.MSELoss(), adam, data, 10, **options)
        >>> bool(layer.to_scipy().diagonal().min() > 0.5)
        True
    """

    def __init__(self, every: Count = 100, fraction: Probability = 0.3, until: Probability = 0.75) -> None:
        self.every, self.fraction, self.until = every, fraction, until

    def on_fit_begin(self, training: Training) -> None:
        _layers(training, "RigL")

    def on_step_end(self, training: Training) -> None:
        done = (training.epoch - 1 + training.batch / (training.batches or math.inf)) / training.epochs
        if not training.updated or training.step % self.every or done >= self.until:
            return
        share = self.fraction / 2.0 * (1.0 + math.cos(math.pi * done / self.until))
        layers = _layers(training, "RigL")
        for layer, pairs in zip(layers, _operands(training, layers), strict=True):
            weights, count = _weights(layer), int(share * layer.weight.size)
            if count and pairs:  # a layer that the loss does not depend on has no gradient
                kept = np.ones(len(weights), bool)
                kept[np.argpartition(np.abs(weights), count - 1)[:count]] = False
                grown = _steepest(pairs, layer.places()[kept], count)
                _rewire(layer, training.optimiser, weights, kept, grown, np.zeros(count))


def _operands(training: Training, layers: list[SparseDense]) -> list[list[tuple[Any, Any]]]:
    """For each layer, pairs of its input x and the gradient y of its output, whose products x.T @ y are summed."""
    if type(training.present) is not tuple:
        raise ArgumentError(
            "RigL: fit(distributed=True) gives each rank a part of the batch only, so ranks would rewire differently. "
            "Train in one process, or use train.DeepR, which needs no such gradients."
        )
    if any(layer.weight.device != "cpu" for layer in layers):
        raise DeviceError('RigL: works on the CPU only. Move the net by net.to("cpu"), or use train.DeepR.')
    trained = {id(p) for p in training.optimiser.parameters}
    before = values_of(p for p in weights_of(training.net, training.loss).values() if id(p) not in trained)
    gradients = value_and_grad(
        measure(training.net, training.loss, None), None, [layer.weight for layer in layers], has_aux=True
    )
    patterns, heard = [layer.indices._data.ctypes.data for layer in layers], list[Any]()
    sparse.on_pattern.heard = heard
    try:
        with put_aside(training.net, training.loss), replaying(present_key()):
            gradients(*training.present)
    finally:
        sparse.on_pattern.heard = None
        assign_all(before, "RigL", in_range=True)  # statistics, such as those of BatchNorm
    return [[(x, y) for places, x, y in heard if places.ctypes.data == own] for own in patterns]


_BLOCK = 1 << 20  # gradients in memory at a time


def _steepest(pairs: list[tuple[Any, Any]], taken: Any, count: int) -> Any:
    """The `count` places outside of `taken` with the largest elements of the dense gradient, the sum of x.T @ y."""
    inputs, outputs = pairs[0][0].shape[1], pairs[0][1].shape[1]
    step = max(1, _BLOCK // outputs)
    best, sizes, least = np.zeros(0, np.int64), np.zeros(0, pairs[0][1].dtype), 0.0
    for first in range(0, inputs, step):
        steep = np.abs(sum(matmul.matmul(np.ascontiguousarray(x[:, first : first + step]).T, y) for x, y in pairs))
        steep = steep.reshape(-1)
        low, high = np.searchsorted(taken, (first * outputs, first * outputs + len(steep)))
        steep[taken[low:high] - first * outputs] = -1.0
        own = np.flatnonzero(~(steep < least))  # a NaN counts as large, so that the number of places is right
        best, sizes = np.concatenate([best, own + first * outputs]), np.concatenate([sizes, steep[own]])
        if len(best) > count:
            largest = np.argpartition(sizes, -count)[-count:]
            best, sizes = best[largest], sizes[largest]
            least = sizes.min()
    return best
