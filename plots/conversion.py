"""ANN-to-SNN conversion: test accuracy by number of time steps, for `data.digits` (left) and pictures of the events of
`data.MovingDigits` (right). With ReLU, thresholds are the maximum ("max") or a percentile of the activations. An SNN
needs fewer steps if potentials start at half of the threshold instead of 0, and with thresholds below the maximum."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from snncell import Tensor, data, encode, nn, quantise, set_seed, train

STEPS = (1, 2, 4, 8, 16, 32, 64)
WAYS = {"max, from 0": ("o-", 100, 0.0), "max": ("s-", 100, 0.5), "99.9 %": ("^-", 99.9, 0.5), "99 %": ("D-", 99, 0.5)}


def moving(samples: int, training: bool = True) -> tuple[np.ndarray, np.ndarray]:
    recordings = data.MovingDigits(samples, training, sensor_size=(20, 20, 2), digit=16, saccades=2, duration=64_000)
    events, labels = zip(*(recordings[i] for i in range(samples)), strict=True)
    return data.to_frames(events, n_bins=1)[0] / np.float32(8.0), np.array(labels)


def main() -> Figure:
    plt.style.use(Path(__file__).with_name("house.mplstyle"))
    figure, axes = plt.subplots(1, 2, figsize=(7.0, 2.6), layout="constrained")
    sets = {"digits": [(x[:, None], y) for x, y in data.digits()], "moving digits": [moving(1500), moving(300, False)]}
    for ax, (name, (old, (x, y))) in zip(axes, sets.items(), strict=True):
        for relu, colour, ways in ((nn.ReLU, "0.5", WAYS), (quantise.QCFS, "C4", {"QCFS": ("v-", 100, 0.5)})):
            set_seed(0)
            first = nn.Conv2d(x.shape[1], 8, 5, stride=2), nn.BatchNorm2d(8), relu(), nn.Conv2d(8, 16, 3)
            ann = nn.SequentialCell(*first, nn.BatchNorm2d(16), relu(), nn.Flatten(), nn.Dense(4 * x[0, 0].size, 10))
            train.fit(ann, nn.CrossEntropyLoss(), nn.Adam(ann.trainable_params(), 3e-3), old, 8, progress=False)
            right = 100 * float((ann(Tensor(x)).asnumpy().argmax(1) == y).mean())
            ax.axhline(right, color=colour, linestyle="--" if relu is nn.ReLU else ":", label=f"ANN, {relu.__name__}")
            for label, (form, percentile, start) in ways.items():
                snn = quantise.to_spiking(ann, old[0][:500], percentile=percentile, initial=start)
                hits = [snn(encode.current(Tensor(x), n)).asnumpy().argmax(1) == y for n in STEPS]
                ax.semilogx(STEPS, [100 * float(one.mean()) for one in hits], form, label=f"SNN, {label}")
        ax.set(title=name, xlabel="time steps", ylabel="test accuracy (%)", xticks=STEPS, xticklabels=STEPS)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right upper")
    return figure


if __name__ == "__main__":
    main().savefig(Path(__file__).with_suffix(".png"), dpi=200)
