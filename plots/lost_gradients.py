"""Share of gradient elements that float16 loses in a trained network, by loss scale. Without a scale small elements
become 0, and with a very large scale elements overflow. A dynamic scale stays in the wide range between these cases.
Elements that are 0 in float32 do not count.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

import snncell
from snncell import Tensor, amp, nn, ops
from snncell.data import digits

SCALES = 2.0 ** np.arange(0, 37, 2)


def main() -> Figure:
    plt.style.use(Path(__file__).with_name("house.mplstyle"))
    snncell.set_seed(0)
    images, labels = digits()[0]
    x = np.repeat(images.reshape(1, -1, 64), 20, 0)
    hidden = [cell for i in (64, 100, 100) for cell in (nn.Dense(i, 100), nn.MultiStep(nn.LIFNode(v_threshold=0.1)))]
    net, loss = nn.SequentialCell(*hidden, nn.Dense(100, 10), nn.Readout("mean")), nn.CrossEntropyLoss()
    adam = nn.Adam(net.trainable_params(), 2e-3)
    snncell.train.fit(net, loss, adam, snncell.train.Batches(x, labels, time_first=True), 15, progress=False)
    weights = [p for p in net.trainable_params() if p.ndim == 2]
    gradients = snncell.jit(ops.grad(lambda x, y, scale: loss(net(x), y) * scale, None, weights))
    x, y = Tensor(x[:, :256].copy()), Tensor(labels[:256])
    there = [g.asnumpy() != 0 for g in gradients(x, y, Tensor(1.0))]
    amp.auto_mixed_precision(net, "O1")
    found = [[g.asnumpy() for g in gradients(x, y, Tensor(float(scale)))] for scale in SCALES]
    figure, ax = plt.subplots(figsize=(3.3, 2.4), layout="constrained")
    for layer, nonzero in enumerate(there):
        lost = [100 * ((g[layer] == 0) | ~np.isfinite(g[layer]))[nonzero].mean() or np.nan for g in found]
        ax.plot(SCALES, lost, f"{'os^v'[layer]}-", label=f"layer {layer + 1}")
    ax.set_xscale("log", base=2)
    ax.set(xlabel="loss scale", ylabel="gradients lost (%)", yscale="log")
    ax.legend()
    return figure


if __name__ == "__main__":
    main().savefig(Path(__file__).with_suffix(".png"), dpi=200)
