"""Draws of positions by weights."""

from __future__ import annotations

import numpy as np

from snncell import dtype as dtypes
from snncell.base.arguments.kinds import Count, Numbers
from snncell.errors import ArgumentError, DTypeError, ShapeError
from snncell.ops import elementwise as el, logic as lg, random, reduce, shape as sh, statistics
from snncell.ops.base import as_int, as_tensor, astype
from snncell.tape.tensor import Tensor, beside


def multinomial(x: Numbers, num_samples: Count, replacement: bool = True) -> Tensor:
    """Positions drawn with probabilities in proportion to weights, as int64; no gradient.

    Args:
        x: weights (N,) or (B, N), none negative; a row need not add up to 1.
        num_samples: draws of each row.
        replacement: whether one position may be drawn again.

    Returns:
        (num_samples,) or (B, num_samples).

    Raises:
        ShapeError: for other axes.
        ArgumentError: for negative weights, a row of zeros, or without replacement more draws than there are positive
            weights. In a traced function values are not looked at.
    """
    weights, count = as_tensor(x, "multinomial"), as_int(num_samples, "multinomial", "num_samples")
    if weights.ndim not in (1, 2):
        raise ShapeError(f"multinomial: takes weights (N,) or (B, N), the shape is {weights.shape}.")
    if weights.dtype.category == 3:
        raise DTypeError("multinomial: weights are real numbers. Take ops.abs(x) first.")
    if isinstance(weights._data, np.ndarray):
        _refuse_weights(weights._data, 1 if replacement else count)
    chances = astype(weights, dtypes.float64)
    with beside(chances):
        drawn = random.uniform((*weights.shape[:-1], count if replacement else weights.shape[-1]), dtype=dtypes.float64)
    if not replacement:
        # Of exponential times with these rates, the first ones: -log(1 - u) / w.
        waiting = -el.log1p(-drawn) / lg.where(chances > 0.0, chances, 1.0)
        return statistics.topk(lg.where(chances > 0.0, waiting, np.inf), count, -1, False)[1]
    ends = reduce.cumsum(chances, -1)
    marks = sh.expand_dims(drawn * ends[..., -1:], -1)
    passed: Tensor = lg.less_equal(sh.expand_dims(ends, -2), marks)
    last: Tensor = reduce.sum(lg.less(ends, ends[..., -1:]), -1, keepdims=True)  # the last one that has a weight
    return el.minimum(reduce.sum(passed, -1), last)


def _refuse_weights(weights: np.ndarray, least: int) -> None:
    if not (weights >= 0).all() or not np.isfinite(weights.astype(np.float64)).all():
        raise ArgumentError("multinomial: weights are finite, and none is negative.")
    positive = int((weights > 0).sum(-1).min()) if weights.size else 0
    if positive < least:
        raise ArgumentError(
            f"multinomial: a row has {positive} positive weight(s), and {least} position(s) are to be drawn."
        )
