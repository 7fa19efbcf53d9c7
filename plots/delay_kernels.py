"""The response of one synapse of `DelayedDense` to a spike at step 0, with a learned delay of 8.3 steps. The width
shrinks during training, so that the response gathers at the steps next to the delay. For prediction the delay is
rounded, so that the whole weight acts at one step.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from snncell import Tensor, nn

LONGEST = 25


def main() -> Figure:
    plt.style.use(Path(__file__).with_name("house.mplstyle"))
    spike = Tensor(np.eye(LONGEST + 1, dtype=np.float32)[0].reshape(-1, 1, 1))  # (T, B, N)
    layer = nn.DelayedDense(1, 1, LONGEST, weight_init=1.0, delay_init=8.3, has_bias=False).set_train()
    figure, ax = plt.subplots(figsize=(7, 2.8), layout="constrained")
    for width, look in zip((12.5, 4.0, 1.5, 0.5), ("o-", "s--", "v:", "^-."), strict=True):
        layer.width = width
        ax.plot(layer(spike).asnumpy()[:, 0, 0], look, label=f"width {width:g}")
    tap = layer.set_train(False)(spike).asnumpy()[:, 0, 0]
    ax.vlines(tap.argmax(), 0.0, 1.0, "0.5", "--", label="prediction")
    ax.set(xlabel="steps after the spike", ylabel="share of the weight")
    ax.legend()
    return figure


if __name__ == "__main__":
    main().savefig(Path(__file__).with_suffix(".png"), dpi=200)
