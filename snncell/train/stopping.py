"""Early stopping."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from snncell.cell import Cell
from snncell.errors import ArgumentError, TrainingError
from snncell.tape.parameter import assign_all
from snncell.tape.tensor import Tensor
from snncell.train.state import weights_of


class EarlyStopping:
    """Says when a measure has not become better for `patience` epochs, and keeps the weights of its best one.

    Args:
        patience: how many epochs without a better one there may be.
        monitor: which number of a record; one with "accuracy" in its name is better higher, any other one lower.
        min_delta: by how much it must be better to count.

    Raises:
        ArgumentError: for a patience below 1, or a record without the number.
        TrainingError: if the number is NaN, which is neither better nor worse.

    Source: Prechelt, "Early Stopping - But When?", 1998.

    Example:
        >>> net, stopping = nn.Dense(1, 1), snncell.train.EarlyStopping(patience=2)
        >>> [stopping.update({"epoch": n, "test_loss": x}, net) for n, x in enumerate((0.5, 0.3, 0.4, 0.35))]
        [False, False, False, True]
        >>> stopping.best_epoch
        1
    """

    def __init__(self, patience: int, monitor: str = "test_loss", min_delta: float = 0.0) -> None:
        if isinstance(patience, bool) or not isinstance(patience, int) or patience < 1:
            raise ArgumentError(f"EarlyStopping: patience is a number of epochs of at least 1, not {patience!r}.")
        self.patience, self.monitor, self.min_delta = patience, monitor, min_delta
        self.best = math.inf
        self.best_epoch, self.waited = 0, 0
        self.weights: dict[str, Any] = {}

    def update(self, record: dict[str, Any], net: Cell, loss: Any = None) -> bool:
        """Look at the record of an epoch; whether to stop. A loss that is a Cell has weights to keep as well."""
        if self.monitor not in record:
            raise ArgumentError(f"EarlyStopping: monitor is one of {', '.join(record)}; there is no {self.monitor!r}.")
        if math.isnan(record[self.monitor]):
            raise TrainingError(
                f"EarlyStopping: {self.monitor} of epoch {record['epoch']} is nan, which is neither better nor worse "
                f"than another; look at what it is measured on, or let monitor be another number."
            )
        value = -record[self.monitor] if "accuracy" in self.monitor else record[self.monitor]
        if value < self.best - self.min_delta:
            self.best, self.best_epoch, self.waited = value, record["epoch"], 0
            self.weights = {path: np.array(p.asnumpy()) for path, p in weights_of(net, loss).items()}
        else:
            self.waited += 1
        return self.stopped

    @property
    def stopped(self) -> bool:
        """True if its patience is at an end."""
        return self.waited >= self.patience

    def restore(self, net: Cell, loss: Any = None) -> None:
        """Put the best weights back, into those that `update` was given."""
        own = weights_of(net, loss)
        assign_all(
            [(own[path], Tensor(value)) for path, value in self.weights.items()], "EarlyStopping.restore", in_range=True
        )

    def notes(self) -> dict[str, Any]:
        """The notes that a checkpoint keeps of it, beside the weights."""
        return {"best": self.best, "best_epoch": self.best_epoch, "waited": self.waited}

    def take(self, notes: dict[str, Any], weights: dict[str, Any]) -> None:
        """Go on from what a checkpoint kept, which `refuse_notes` has looked at."""
        self.best, self.best_epoch, self.waited = notes["best"], notes["best_epoch"], notes["waited"]
        self.weights = weights
