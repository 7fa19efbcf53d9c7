"""Hyperparameter search with joblib: train over a grid of surrogate widths and seeds, in several processes.

joblib gives each process its share of the cores, and all processes share one cache of compiled kernels. On a cluster,
pass the same function to submitit, one job for each setting (see docs/scikit-learn.md). Needs `pip install joblib`.

    python examples/joblib_sweep.py
"""

import itertools
import sys
from pathlib import Path

import joblib
import matplotlib.pyplot as plt
import numpy as np

import snncell
from snncell import encode, nn, surrogate, train
from snncell.data import digits


class Net(nn.Cell):
    """Map pixels (B, 64) to the scores of ten digits, through two layers of spiking neurons."""

    def __init__(self, alpha, hidden=64):
        super().__init__()
        neurons = [nn.MultiStep(nn.LIFNode(2.0, surrogate_function=surrogate.ATan(alpha))) for _ in range(2)]
        self.layers = nn.SequentialCell(nn.Dense(64, hidden), neurons[0], nn.Dense(hidden, hidden), neurons[1])
        self.read = nn.Dense(hidden, 10)

    def construct(self, x):
        return self.read(self.layers(encode.current(x, 8))).mean(0)


def accuracy(alpha, rate, seed, epochs):
    """Train once. The result depends only on the arguments."""
    snncell.set_seed(seed)
    learnt, test = ((x.reshape(-1, 64), y) for x, y in digits())
    net = Net(alpha)
    adam = nn.Adam(net.trainable_params(), rate)
    result = train.fit(net, nn.CrossEntropyLoss(), adam, learnt, epochs, validation=test, progress=False)
    return result.best["test_accuracy"]


def main(epochs=5, seeds=2, folder=".", alphas=(0.5, 2.0, 8.0, 32.0), rates=(1e-3, 1e-2), n_jobs=2):
    settings = [*itertools.product(alphas, rates, range(seeds))]
    found = joblib.Parallel(n_jobs=n_jobs)(joblib.delayed(accuracy)(*one, epochs) for one in settings)
    table = np.reshape(found, (len(alphas), len(rates), seeds))
    figure, axes = plt.subplots(figsize=(4.6, 3.2), layout="constrained")
    for column, rate in enumerate(rates):
        mean, spread = table[:, column].mean(1), table[:, column].std(1)
        print(f"learning rate {rate:g}: {dict(zip(alphas, mean.round(3).tolist(), strict=True))}")
        axes.errorbar(alphas, 100 * mean, 100 * spread, marker="os^D"[column % 4], label=f"learning rate {rate:g}")
    axes.set(xscale="log", xlabel="alpha of ATan: wide to narrow", ylabel="test digits right, %")
    axes.legend()
    figure.savefig(Path(folder) / "joblib_sweep.png")
    return table


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
