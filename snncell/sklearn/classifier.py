"""The classifier."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from snncell import nn, train
from snncell.cell.cell import Cell
from snncell.errors import ArgumentError
from snncell.sklearn.estimator import Array, SpikingEstimator


class SNNClassifier(ClassifierMixin, SpikingEstimator):  # type: ignore[misc]
    """A spiking network that learns classes from a table of numbers, as an estimator of scikit-learn's.

    Layers of spiking neurons get the encoded samples, T steps of each; the outputs of a last layer of weights are
    averaged over time, p = softmax(mean over t of z(t)), and the cross-entropy is minimised by `train.fit`.

    Args:
        hidden: how many neurons each layer has, or how many the only one has.
        network: a function (n_features, n_outputs) that makes a network in place of these layers: a Cell, called with
            what the encoder gives, (T, B, n_features), whose output is (T, B, n_outputs) or (B, n_outputs).
        neuron: of each layer: a neuron, of which copies are made, a class, or the name of one in `snncell.nn`.
        surrogate: the neurons' spike function, said in the same ways, of `snncell.surrogate`; None for their own.
        encoder: "current", the values as a constant current; "rate", "latency" or "phase", spikes, of values in [0, 1];
            a function (x, steps) of samples (B, F) that gives (T, B, ...); or None, for a network that takes (B, F).
        steps: T.
        epochs: how often the samples are gone through.
        batch_size: how many samples a step of the optimiser sees.
        optimizer: a class, or the name of one in `snncell.nn`; or a function (params, learning_rate) that makes one.
        learning_rate: a number, or a schedule, which counts steps.
        weight_decay: of the optimiser; None for its own.
        early_stopping: whether some of the samples are set apart, by whose loss the best epoch is found.
        validation_fraction: their share.
        patience: after so many epochs without a better one it stops.
        callbacks: of `train.fit`.
        fit_options: further arguments of `train.fit`, such as {"clip_norm": 1.0}.
        warm_start: whether `fit` goes on with the network and the optimiser of the last one.
        random_state: an integer, for the same initial weights, order of samples and random spikes each time; or a
            RandomState of NumPy's, or None. No other random numbers of snncell's are changed.
        verbose: whether a bar is shown.

    Attributes:
        classes_: the labels, sorted.
        net_: the network, a Cell that takes samples (B, F) as float32 and gives (B, n_outputs).
        optimiser_: which trained it.
        history_: the records of `train.fit`, an epoch each.
        n_iter_: how many there are.
        n_features_in_, feature_names_in_: of X, as everywhere in scikit-learn.

    Raises:
        ArgumentError: by `fit`, for settings that make no sense, and for values that the encoder does not take.

    Sample weights there are none: steps of small batches with a weight of 2 are not those with the sample twice.
    Values should be of the size of a threshold: put a StandardScaler in front.

    Source: the protocol is that of Buitinck et al., "API design for machine learning software", 2013.

    Example:
        >>> from sklearn.datasets import make_blobs
        >>> from sklearn.preprocessing import scale
        >>> from snncell.sklearn import SNNClassifier
        >>> x, y = make_blobs(200, centers=[[0, 0], [3, 3]], random_state=0)
        >>> SNNClassifier(16, epochs=20, random_state=0).fit(scale(x), y).score(scale(x), y) > 0.9
        True
    """

    classes_: Array
    _accuracy = staticmethod(train.accuracy)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:  # noqa: N803
        """Train for one epoch on samples, from where the last call ended.

        Args:
            X, y: as for `fit`.
            classes: all labels that there will be; with the first call, unless y has them all.
        """
        anew = not self.__sklearn_is_fitted__()
        if classes is not None:
            known = np.unique(column_or_1d(classes))
            if not anew and not np.array_equal(known, self.classes_):
                raise ArgumentError(
                    f"{type(self).__name__}: classes were {_labels(self.classes_)}, and are {_labels(known)} now; they "
                    f"stay as they were in the first call."
                )
            self._classes = known
        try:
            return self._train(X, y, anew, epochs=1)
        finally:
            self.__dict__.pop("_classes", None)

    def predict(self, X: Any) -> Array:  # noqa: N803
        """The label (n,) of each sample."""
        largest = self._outputs(X).argmax(1)  # before fit, this says so
        labels: Array = self.classes_[largest]
        return labels

    def predict_proba(self, X: Any) -> Array:  # noqa: N803
        """The probability of each class, (n, n_classes), in the order of `classes_`."""
        outputs = self._outputs(X)
        powers = np.exp(outputs - outputs.max(1, keepdims=True))
        probabilities: Array = powers / powers.sum(1, keepdims=True)
        return probabilities

    # --- for training -------------------------------------------------------------------------------------------------

    def _validation(self) -> dict[str, Any]:
        return {}

    def _targets(self, y: Array, anew: bool) -> tuple[Array, int]:
        check_classification_targets(y)
        y = column_or_1d(y, warn=True)
        known = self.classes_ if not anew else getattr(self, "_classes", np.unique(y))
        if not np.isin(y, known).all():
            raise ArgumentError(
                f"{type(self).__name__}: y has labels that are none of the {len(known)} classes {_labels(known)}: "
                f"{_labels(np.setdiff1d(y, known))}."
            )
        if len(known) < 2:
            raise ArgumentError(
                f"{type(self).__name__}: there are at least two classes to tell from each other; y has one class, "
                f"{_labels(known)}."
            )
        self.classes_ = known
        return np.searchsorted(known, y).astype(np.int64), len(known)

    def _loss(self) -> Cell:
        return nn.CrossEntropyLoss()

    def _strata(self, target: Array) -> Array:
        return target


def _labels(labels: Array) -> str:
    """Labels, for an error."""
    return f"{labels.tolist()!r:.200}"
