"""Cosine similarity between gradients of online rules and of BPTT for the weights of the first layer of LIF neurons, by
number of layers (left) and of steps (middle). For one layer, e-prop is exact; OTTT is not, as it ignores the reset.
Right: bytes of the potentials and traces of a layer, for a batch of 4; with BPTT they grow with the steps."""

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from snncell import grad, nn, ops, set_seed


class Layer(nn.Cell):
    def construct(self, x, v):
        return self.neuron(self.dense(x), v)


def direction(cells, x, signal, weight):
    net = nn.SequentialCell([nn.MultiStep(cell) for cell in cells])
    g = grad(lambda x: net(x) * signal[: len(x)], None, weight)(x)
    return g / ops.sqrt(ops.square(g).sum())


def main() -> Figure:
    set_seed(0)
    x, signal = ops.bernoulli(ops.full((80, 4, 32), 0.15)), ops.normal((80, 4, 32), 0.0, 1.0)
    layers = [Layer(dense=nn.Dense(32, 32, ops.normal((32, 32), 0.2, 0.8)), neuron=nn.LIFNode(4.0)) for _ in range(4)]
    figure, axes = plt.subplots(1, 3, figsize=(7.0, 2.5), layout="constrained")
    sizes = [(n, 40) for n in (1, 2, 3, 4)], [(2, t) for t in (5, 10, 20, 40, 80)]
    for rule, style in {"e-prop": "o-", "OTTT": "s--", "SLTT": "^:"}.items():
        online, rest = [nn.Online(layer, rule) for layer in layers], (signal, layers[0].dense.weight)
        for k, title in enumerate(("after 40 steps", "two layers")):
            pairs = [[direction(cells[:n], x[:t], *rest) for cells in (layers, online)] for n, t in sizes[k]]
            axes[k].plot([size[k] for size in sizes[k]], [float((a * b).sum()) for a, b in pairs], style)
            axes[k].set(title=title, xlabel=("layers", "steps")[k], ylabel="cosine similarity to BPTT")
        axes[2].loglog((1, 1e4), [sum(state.size * 4 for state in online[0].init_state(x[0]))] * 2, style, label=rule)
    axes[2].loglog((1, 1e4), (512, 512e4), "k-.", label="BPTT")  # the potentials, as `explain` shows
    axes[2].set(title="memory of one layer", xlabel="steps", ylabel="bytes for the gradient")
    axes[2].legend(frameon=False, fontsize=7)
    return figure


if __name__ == "__main__":
    main().savefig(Path(__file__).with_suffix(".png"), dpi=200)
