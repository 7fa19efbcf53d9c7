"""NIR: train a recurrent network, write it to a NIR file for other tools, read it back, and continue to train.

Run it with `python examples/nir_exchange.py`; it needs `pip install snncell[nir]`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import snncell
from snncell import Tensor, nn

DT = 1e-3  # duration of a time step in seconds, because NIR's time constants are in seconds


def patterns(count: int, rng: Any) -> tuple[Any, Any]:
    """Return spikes (T, count, 12) of two classes: the first or the second half of the channels fires first."""
    labels = rng.integers(0, 2, count)
    early = np.arange(12) // 6 == labels[:, None]
    rates = np.stack([np.where(early, 0.3, 0.05)] * 15 + [np.where(early, 0.05, 0.3)] * 15)
    return (rng.random(rates.shape) < rates).astype(np.float32), labels


def network() -> nn.Cell:
    """Spikes -> a recurrent layer -> two potentials."""
    recurrent = nn.Recurrent(nn.LIFNode(tau=10.0, v_threshold=0.3, reset="zero"), nn.Dense(24, 24))
    readout = nn.MultiStep(nn.LINode(tau=15.0))
    return nn.SequentialCell(nn.Dense(12, 24), nn.MultiStep(recurrent), nn.Dense(24, 2), readout)


def train(net: nn.Cell, x: Tensor, labels: Tensor, steps: int) -> float:
    """Train a network on all patterns and return the accuracy."""
    parameters = net.trainable_params()
    adam, loss = nn.Adam(parameters, 0.01), nn.CrossEntropyLoss()
    step = snncell.jit(snncell.value_and_grad(lambda x, y: loss(net(x)[-1], y), None, parameters))
    for _ in range(steps):
        adam(step(x, labels)[1])
    return float((net(x)[-1].asnumpy().argmax(-1) == labels.asnumpy()).mean())


def main(steps: int = 60) -> dict[str, float]:
    """Train, write, read, compare, continue to train."""
    import nir

    snncell.set_seed(0)
    spikes, classes = patterns(64, np.random.default_rng(0))
    x, labels = Tensor(spikes), Tensor(classes)
    net = network()
    found = {"before": train(net, x, labels, steps)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.nir"
        nir.write(path, snncell.nir.to_nir(net, DT, input_shape=12))
        print(f"{path.name}: {path.stat().st_size} bytes, nodes {', '.join(nir.read(path, type_check=False).nodes)}")
        again = snncell.nir.from_nir(path, DT, learnable="tau")
    found["difference"] = float(np.abs(again(x).asnumpy() - net(x).asnumpy()).max())
    found["after"] = train(again, x, labels, steps)
    print(f"accuracy {found['before']:.2f}; read back and trained with time constants: {found['after']:.2f}")
    return found


if __name__ == "__main__":
    main()
