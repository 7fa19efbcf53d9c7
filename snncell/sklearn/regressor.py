"""The regressor."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import Tags

from snncell import nn
from snncell.cell.cell import Cell
from snncell.errors import ArgumentError
from snncell.sklearn.estimator import Array, SpikingEstimator


class SNNRegressor(RegressorMixin, SpikingEstimator):  # type: ignore[misc]
    """A spiking network that learns numbers from a table of numbers, as an estimator of scikit-learn's.

    The network of `SNNClassifier`, trained by the mean squared error of (y - mean) / deviation; both are those of the
    samples of the first call, of each column of y, and are put back into what it predicts.

    Args:
        hidden, network, neuron, surrogate, encoder, steps, epochs, batch_size, optimizer, learning_rate, weight_decay,
            early_stopping, validation_fraction, patience, callbacks, fit_options, warm_start, random_state, verbose:
            as for `SNNClassifier`.

    Attributes:
        target_mean_, target_scale_: of the columns of y.
        net_, optimiser_, history_, n_iter_, n_features_in_, feature_names_in_: as for `SNNClassifier`; losses in the
            history are of the scaled y.

    Raises:
        ArgumentError: by `fit`, for settings that make no sense, and for values that the encoder does not take.

    Example:
        >>> import numpy as np
        >>> from snncell.sklearn import SNNRegressor
        >>> x = np.linspace(-1.5, 1.5, 100)[:, np.newaxis]
        >>> model = SNNRegressor(32, epochs=40, random_state=0).fit(x, np.column_stack([x**2, 100 * x]))
        >>> model.predict(x).shape, model.score(x, np.column_stack([x**2, 100 * x])) > 0.8
        ((100, 2), True)
    """

    target_mean_: Array
    target_scale_: Array

    def partial_fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Train for one epoch on samples, from where the last call ended."""
        return self._train(X, y, not self.__sklearn_is_fitted__(), epochs=1)

    def predict(self, X: Any) -> Array:  # noqa: N803
        """The numbers of each sample, (n,), or (n, n_targets) if y had two axes."""
        found: Array = self._outputs(X) * self.target_scale_ + self.target_mean_
        return found[:, 0] if self._flat else found

    # --- for training -------------------------------------------------------------------------------------------------

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _validation(self) -> dict[str, Any]:
        return {"multi_output": True, "y_numeric": True}

    def _targets(self, y: Array, anew: bool) -> tuple[Array, int]:
        flat, columns = y.ndim == 1, y.reshape(len(y), -1).astype(np.float64)
        if anew:
            self._flat = flat
            self.target_mean_ = columns.mean(0)
            deviation = columns.std(0)
            self.target_scale_ = np.where(deviation > 0.0, deviation, 1.0)
        elif columns.shape[1] != len(self.target_mean_):
            raise ArgumentError(
                f"{type(self).__name__}: y had {len(self.target_mean_)} columns before, and has {columns.shape[1]} now."
            )
        scaled = (columns - self.target_mean_) / self.target_scale_
        return scaled.astype(np.float32), columns.shape[1]

    def _loss(self) -> Cell:
        return nn.MSELoss()
