"""scikit-learn: a spiking network in a pipeline, with cross-validation and a grid search in several processes.

Needs `pip install "snncell[sklearn]"`.

    python examples/scikit_learn.py
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import ConfusionMatrixDisplay
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from snncell import nn
from snncell.data import digits
from snncell.sklearn import SNNClassifier


def recurrent(n_features, n_outputs):
    """Your own network: recurrent neurons, (T, B, n_features) -> (T, B, n_outputs)."""
    neurons = nn.MultiStep(nn.Recurrent(nn.LIFNode(2.0), nn.Dense(48, 48)))
    return nn.SequentialCell(nn.Dense(n_features, 48), neurons, nn.Dense(48, n_outputs))


def main(epochs=15, samples=600, folder=".", n_jobs=2):
    (x, y), (x_test, y_test) = ((x.reshape(len(x), -1), y) for x, y in digits())
    x, y = x[:samples], y[:samples]
    common = {"epochs": epochs, "random_state": 0}
    models = {
        "no spikes": make_pipeline(StandardScaler(), LogisticRegression()),
        "currents": make_pipeline(StandardScaler(), SNNClassifier(**common)),
        "first spikes": make_pipeline(MinMaxScaler(clip=True), SNNClassifier(encoder="latency", steps=12, **common)),
        "recurrent": make_pipeline(StandardScaler(), SNNClassifier(network=recurrent, **common)),
    }
    for name, model in models.items():
        scores = cross_val_score(model, x, y, cv=3)
        print(f"{name:13s} accuracy {scores.mean():.3f}, mean of three folds {np.round(scores, 3)}")

    grid = {
        "snnclassifier__hidden": [(32,), (64,), (128,)],
        "snnclassifier__neuron": [nn.LIFNode(1.5), nn.LIFNode(3.0), nn.LIFNode(6.0)],
    }
    search = GridSearchCV(models["currents"], grid, cv=3, n_jobs=n_jobs).fit(x, y)
    found = search.cv_results_["mean_test_score"].reshape(3, 3)

    figure, (left, right) = plt.subplots(1, 2, figsize=(8.2, 3.4), layout="constrained")
    image = left.imshow(found, cmap="cividis")
    left.set(xlabel="membrane time constant", ylabel="hidden neurons", title="right, mean of three folds")
    left.set_xticks(range(3), ["1.5", "3", "6"])
    left.set_yticks(range(3), ["32", "64", "128"])
    figure.colorbar(image, ax=left)
    ConfusionMatrixDisplay.from_estimator(search, x_test, y_test, ax=right, colorbar=False, cmap="Greys")
    right.set_title(f"the best on test digits: {100 * search.score(x_test, y_test):.1f} % right")
    figure.savefig(Path(folder) / "scikit_learn.png")
    return search


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
