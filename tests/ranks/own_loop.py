"""A rank that trains by a loop of its own: python -m ranks.own_loop FILE."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

import snncell
from snncell import Tensor, distributed, nn, ops


def main() -> None:
    """Train, and write the first gradient, that of the whole batch, and the losses."""
    snncell.set_seed(3)
    distributed.init()
    rng = np.random.default_rng(0)
    x, y = Tensor(rng.normal(size=(5, 22, 6)).astype(np.float32)), Tensor(rng.integers(0, 3, 22))
    net = nn.SequentialCell(nn.Dense(6, 8), nn.MultiStep(nn.LIFNode(tau=2.0)), nn.Dense(8, 3))
    loss, adam = nn.CrossEntropyLoss(), nn.Adam(net.trainable_params(), 0.02)

    @snncell.jit
    def gradients(x: Tensor, y: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        value, grads = ops.value_and_grad(lambda a, b: loss(net(a).mean(0), b), None, adam.parameters)(x, y)
        return value, grads

    written: dict[str, list[list[float]]] = {"whole": [g.asnumpy().ravel().tolist() for g in gradients(x, y)[1]]}
    for step in range(5):
        found, counts = [], []
        for x_part, y_part in distributed.shards(x, y):
            _, grads = gradients(x_part, y_part)
            found.append(grads)
            counts.append(len(y_part))
        mean = distributed.mean_gradients(found, counts)
        if not step:
            written["first"] = [g.asnumpy().ravel().tolist() for g in mean]
        adam(mean)
    written["weights"] = [p.asnumpy().ravel().tolist() for p in net.get_parameters()]
    if distributed.rank() == 0:
        Path(sys.argv[1]).write_text(json.dumps(written), encoding="utf-8")


if __name__ == "__main__":
    main()
