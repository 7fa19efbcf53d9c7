"""Event files: read recordings in the N-MNIST format, and train a network to tell growing rings from shrinking ones.

The example writes the files itself, into one folder for each class, so you need no download. If you have N-MNIST, use
`data.NMNIST(folder)` instead of the `EventFolder`.

    python examples/event_files.py
"""

import tempfile
from pathlib import Path

import numpy as np

import snncell
from snncell import Tensor, data, nn

SIZE, LONGEST = 16, 50_000  # pixels, microseconds


def write(path, grows, rng):
    """Write a ring around a random point, five bytes an event: [x] [y] [p, t22..t16] [t15..t8] [t7..t0]."""
    t = np.sort(rng.integers(0, LONGEST, 400))
    part = t / LONGEST if grows else 1.0 - t / LONGEST
    angle, radius = rng.uniform(0.0, 2.0 * np.pi, t.size), 1.0 + 4.0 * part
    x, y = (rng.uniform(5.5, 9.5) + radius * turn(angle) for turn in (np.cos, np.sin))
    p = angle < np.pi
    np.stack([x, y, p * 128 + t // 65_536, t // 256 % 256, t % 256], 1).astype(np.uint8).tofile(path)


def main(samples=64, epochs=10, n_bins=10):
    rng = np.random.default_rng(0)
    snncell.set_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("growing", "shrinking"):
            (Path(folder) / name).mkdir()
            for number in range(samples):
                write(Path(folder) / name / f"{number}.bin", name == "growing", rng)
        ds = data.EventFolder(folder, sensor_size=(SIZE, SIZE, 2))
        print(ds)
        recordings, labels = zip(*ds, strict=True)
    frames = data.to_frames(list(recordings), n_bins=n_bins, dtype=np.float32)  # (T, N, P, H, W)
    x, y = frames.reshape(n_bins, len(labels), -1), np.array(labels)

    net = nn.SequentialCell(
        nn.Dense(2 * SIZE**2, 64),
        nn.MultiStep(nn.LIFNode(tau=4.0, decay_input=False)),
        nn.Dense(64, 2),
        nn.MultiStep(nn.LINode(tau=4.0)),
    )
    loss_of, optimiser = nn.CrossEntropyLoss(), nn.Adam(net.trainable_params(), learning_rate=0.005)
    gradients = snncell.value_and_grad(lambda x, y: loss_of(net(x).mean(0), y), None, net.trainable_params())

    @snncell.jit
    def step(x, y):
        loss, grads = gradients(x, y)
        optimiser(grads)
        return loss

    order = rng.permutation(len(y))
    training, testing = order[: len(y) * 3 // 4], order[len(y) * 3 // 4 :]
    for epoch in range(epochs):
        losses = [step(Tensor(x[:, part]), Tensor(y[part])) for part in np.split(rng.permutation(training), 4)]
        print(f"epoch {epoch + 1}: loss {np.mean([float(loss) for loss in losses]):.3f}")
    accuracy = float((net(Tensor(x[:, testing])).mean(0).asnumpy().argmax(1) == y[testing]).mean())
    print(f"test accuracy {accuracy:.0%}")
    return accuracy


if __name__ == "__main__":
    main()
