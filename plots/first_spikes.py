"""First spikes of a net that classifies the Yin-Yang data by exact gradients (EventProp). The neuron that spikes first
is the answer; darker points are answered later. Crosses are errors. They lie at the borders of the classes.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

import snncell
from snncell import Tensor, nn


def main(epochs: int = 6, hidden: int = 100) -> Figure:
    snncell.set_seed(0)
    points, labels = snncell.data.yin_yang(5000)
    others, wanted = snncell.data.yin_yang(1000, seed=40)
    times = [np.pad(30.0 * each, ((0, 0), (0, 1))).astype(np.float32) for each in (points, others)]
    normal = snncell.common.initializer.Normal
    net = nn.SequentialCell(
        nn.EventPropLIF(5, hidden, weight_init=normal(0.78, 1.5)),
        nn.EventPropLIF(hidden, 3, weight_init=normal(0.1, 0.93)),
    )
    step = snncell.train.training_step(net, nn.FirstSpikeLoss(), nn.Adam(net.trainable_params(), 5e-3))
    for batch in np.arange(5000 * epochs).reshape(-1, 40) % 5000:
        step(Tensor(times[0][batch]), Tensor(labels[batch].astype(np.int32)))
    first = net(Tensor(times[1]))[..., 0].asnumpy()
    answers, right = first.argmin(1), first.argmin(1) == wanted
    figure, axes = plt.subplots(figsize=(3.3, 2.9), layout="constrained")
    for kind, colours in enumerate(("Blues", "Oranges", "Greens")):
        own = (answers == kind) & right
        axes.scatter(*others[own, :2].T, 9, first[own, kind], cmap=colours, vmin=0, vmax=35)
    axes.scatter(*others[~right, :2].T, 25, "black", marker="x", label=f"errors, {(~right).mean():.1%}")
    axes.set(aspect="equal", xlabel="x", ylabel="y")
    axes.legend(loc="upper right", fontsize=7)
    return figure


if __name__ == "__main__":
    main().savefig(Path(__file__).with_suffix(".png"), dpi=200)
