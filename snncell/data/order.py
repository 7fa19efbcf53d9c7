"""The samples of batches, in the order in which they are gone through."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from snncell.kernels.space import HOST
from snncell.ops.random import randperm
from snncell.tape.state import settings


def in_turn(samples: int, batch_size: int, shuffle: bool, drop_last: bool) -> Iterator[np.ndarray[Any, Any]]:
    """The numbers of the samples of each batch; where they are shuffled, in an order that is drawn at the beginning."""
    # On the host wherever the network is: they index arrays of NumPy.
    with settings(space=HOST):
        order = randperm(samples).asnumpy() if shuffle else np.arange(samples)
    for start in range(0, samples, batch_size):
        chosen = order[start : start + batch_size]
        if drop_last and len(chosen) < batch_size:
            return
        yield chosen
