"""Distributed training with MPI: the same weights, to the last bit, on any number of processes.

python examples/distributed.py
mpiexec -n 2 python examples/distributed.py
mpiexec -n 4 python examples/distributed.py
"""

import hashlib

import numpy as np

import snncell
from snncell import data, distributed, nn, ops, train


def network() -> nn.Cell:
    return nn.SequentialCell(
        nn.Dense(64, 48),
        nn.BatchNorm1d(48),
        nn.Dropout(keep_prob=0.9),
        nn.Dense(48, 40),
        nn.MultiStep(nn.LIFNode(v_threshold=0.3)),
        nn.Dense(40, 10),
        nn.Readout("mean"),
    )


class OverTime(nn.Cell):
    """Show each image to a network for some time steps."""

    def __init__(self, net: nn.Cell, steps: int) -> None:
        super().__init__()
        first, self.rest = net[:4], net[4:]
        self.first, self.steps = first, steps

    def construct(self, pictures: snncell.Tensor) -> snncell.Tensor:
        return self.rest(ops.stack([self.first(pictures)] * self.steps))


def main(epochs: int = 3) -> str:
    """Train, and return a digest of all weights. It is the same for any number of ranks."""
    distributed.init()  # first, so that networks begin with the same weights on all ranks
    snncell.set_seed(0)
    (images, labels), test = data.digits()
    net = OverTime(network(), steps=8)
    adam = nn.Adam(net.trainable_params(), 5e-3)

    def flat(pictures: np.ndarray) -> np.ndarray:
        return pictures.reshape(len(pictures), 64)

    # Each rank gets all data, and takes its shards of each batch.
    result = train.fit(
        net,
        nn.CrossEntropyLoss(),
        adam,
        (flat(images), labels),
        epochs,
        validation=(flat(test[0]), test[1]),
        progress=False,
        distributed=True,
    )
    weights = b"".join(p.asnumpy().tobytes() for p in net.get_parameters())
    digest = hashlib.blake2b(weights, digest_size=8).hexdigest()
    if distributed.rank() == 0:  # otherwise each rank would print it
        ranks = distributed.size()
        print(f"{ranks} rank{'s' * (ranks > 1)}: test accuracy {result.history[-1]['test_accuracy']:.3f}, {digest}")
    return digest


if __name__ == "__main__":
    main()
