"""Quantisation from float32 to int4: train, fine-tune with rounded weights and states, export integers."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import snncell
from snncell import Tensor, nn, quantise
from snncell.data import digits
from snncell.encode import rate


def network() -> nn.Cell:
    snncell.set_seed(0)
    return nn.SequentialCell(
        nn.Dense(64, 100),
        nn.ThresholdBatchNorm(100, v_threshold=0.5),
        nn.MultiStep(nn.LeakyNode(0.9, v_threshold=0.5)),
        nn.Dense(100, 10),
        nn.MultiStep(nn.LINode(tau=8.0)),
        nn.Readout("last"),
    )


def main(epochs: int = 6, tuning: int = 3) -> dict[str, float]:
    """Train in float32, quantise, fine-tune, export. Return the test accuracy after each of these steps."""
    snncell.set_seed(1)
    (images, labels), (test_images, test_labels) = digits()
    spikes, test_spikes = (rate(Tensor(x.reshape(-1, 64)), 20).asnumpy() for x in (images, test_images))
    data = snncell.train.Batches(spikes, labels, time_first=True)
    test = snncell.train.Batches(test_spikes, test_labels, time_first=True)
    loss, found = nn.CrossEntropyLoss(), {}

    def accuracy(net: nn.Cell) -> float:
        net.set_train(False)
        return float((net(Tensor(test_spikes)).asnumpy().argmax(1) == test_labels).mean())

    net = network()
    adam = nn.Adam(net.trainable_params(), 5e-3)
    snncell.train.fit(net, loss, adam, data, epochs, validation=test, progress=False)
    found["float32"] = accuracy(net)

    net = quantise.fold(net)  # makes the normalisation part of the weights, before they are rounded
    quantise.prepare(net, quantise.Uniform(4, per_channel=True), quantise.FixedPoint(12, 8))
    found["rounded to int4"] = accuracy(net)
    adam = nn.Adam(net.trainable_params(), 1e-3)  # after `prepare`, because the learned scales are Parameters too
    snncell.train.fit(net, loss, adam, data, tuning, validation=test, progress=False)
    found["int4, trained on"] = accuracy(net)

    with TemporaryDirectory() as folder:
        quantise.export(net).save(Path(folder) / "digits.safetensors")
        whole = quantise.IntegerNet.load(Path(folder) / "digits.safetensors")
    potentials = whole.run(test_spikes)
    found["whole numbers"] = float((potentials.argmax(1) == test_labels).mean())
    same = np.array_equal(potentials * whole.step, net(Tensor(test_spikes)).asnumpy())
    print("\n".join(f"{name}: test accuracy {value:.3f}" for name, value in found.items()))
    print(f"identical potentials: {same}\n{whole}")
    return found


if __name__ == "__main__":
    main()
