"""Random numbers that are a function of (seed, call, element): the same for any number of threads.

The generator is NumPy's Philox, keyed by the seed and the number of the call. The pair is a Parameter without a
gradient, so a jitted function draws new numbers each time it runs: advancing it is one of the Program's effects.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.errors import ArgumentError, ShapeError
from snncell.ops import logic as lg, shape as sh
from snncell.ops.base import as_axes, as_float, as_int, as_shape, astype, primitive
from snncell.tape.parameter import Parameter
from snncell.tape.state import EFFECTS
from snncell.tape.tensor import Tensor

_state = Parameter(np.array([secrets.randbits(62), 0]), name="random_state", requires_grad=False)
_ADVANCE = Tensor([0, 1])


def set_seed(seed: int) -> None:
    """Begin the sequence of random numbers that belongs to `seed`, a non-negative integer."""
    number = as_int(seed, "set_seed", "seed")
    if not 0 <= number < 2**63:
        raise ArgumentError(f"set_seed: the seed lies in [0, 2^63), not {number}.")
    _state.set_data(Tensor([number, 0]))


def next_key() -> Tensor:
    """The key of the next draw."""
    with EFFECTS:  # two threads must not draw the same numbers
        key = _state.value()
        _state.assign(key + _ADVANCE, "random")
    return key


@contextmanager
def replaying(key: Tensor) -> Iterator[None]:
    """Draw the numbers that come after `key` once more, and go on afterwards as if nothing had happened."""
    present = _state.value()
    _state.assign(key, "random")
    try:
        yield
    finally:
        _state.assign(present, "random")


def present_key() -> Tensor:
    """The key that the next draw will have, for `replaying`."""
    return _state.value()


def _generator(key: Any) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=key.astype(np.uint64)))


def _draw(key: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    return _generator(key).random(shape, dtype)


@primitive
def _uniform(key: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    return _draw(key, shape, dtype)


@primitive
def _normal(key: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    return _generator(key).standard_normal(shape, dtype)


@primitive
def _integers(key: Any, shape: tuple[int, ...], low: int, high: int) -> Any:
    return _generator(key).integers(low, high, shape)


@primitive
def _permutation(key: Any, n: int) -> Any:
    return _generator(key).permutation(n)


for _op in (_uniform, _normal, _integers, _permutation):
    _op.no_gradient()


def _real(dtype: Any, name: str) -> Any:
    chosen = dtypes.as_dtype(dtype)
    if chosen not in (dtypes.float32, dtypes.float64):
        raise ArgumentError(f"{name}: draws float32 or float64, not {chosen}.")
    return chosen.dtype


def uniform(shape: Any, low: Any = 0.0, high: Any = 1.0, dtype: Any = dtypes.float32) -> Tensor:
    """Numbers spread evenly over [low, high); the bounds may be Tensors and get gradients."""
    drawn: Tensor = _uniform.bind(next_key(), shape=as_shape(shape, "uniform"), dtype=_real(dtype, "uniform"))
    return drawn if (type(low), low, type(high), high) == (float, 0.0, float, 1.0) else drawn * (high - low) + low


def normal(shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = dtypes.float32) -> Tensor:
    """Numbers of the normal distribution; mean and deviation may be Tensors and get gradients."""
    drawn: Tensor = _normal.bind(next_key(), shape=as_shape(shape, "normal"), dtype=_real(dtype, "normal"))
    result: Tensor = drawn * stddev + mean
    return result


def bernoulli(p: Any) -> Tensor:
    """1 with probability p, else 0, for every element of `p`, in its dtype; no gradient.

    Raises:
        ArgumentError: for a number outside of [0, 1].
    """
    if isinstance(p, (int, float)):
        probability(p, "bernoulli", "p")
    tensor = as_float(p, "bernoulli")
    drawn_as = dtypes.float64 if tensor.dtype == dtypes.float64 else dtypes.float32
    drawn = _uniform.bind(next_key(), shape=tensor.shape, dtype=drawn_as.dtype)
    return astype(lg.less(drawn, tensor), tensor.dtype)


def randint(low: int, high: int, shape: Any) -> Tensor:
    """Integers from `low` up to but without `high`, as int64."""
    first, last = as_int(low, "randint", "low"), as_int(high, "randint", "high")
    if last <= first:
        raise ArgumentError(f"randint: high={high} is not above low={low}.")
    drawn: Tensor = _integers.bind(next_key(), shape=as_shape(shape, "randint"), low=first, high=last)
    return drawn


def randperm(n: int) -> Tensor:
    """The integers from 0 to n - 1 in random order."""
    count = as_int(n, "randperm", "n")
    if count < 0:
        raise ArgumentError(f"randperm: n is not negative, but {n}.")
    drawn: Tensor = _permutation.bind(next_key(), n=count)
    return drawn


# --- dropout ----------------------------------------------------------------------------------------------------------


@primitive
def _dropped(x: Any, key: Any, keep_prob: float, shape: tuple[int, ...]) -> Any:
    kept = _draw(key, shape, np.dtype(np.float32)) < keep_prob
    return np.where(kept, x / x.dtype.type(keep_prob), x.dtype.type(0))


@_dropped.def_bprop
def _(_x: Tensor, key: Tensor, _out: Tensor, dout: Tensor, *, keep_prob: float, shape: Any) -> Sequence[Any]:
    # The same key gives the same mask: it is drawn again, not kept.
    return _dropped.bind(dout, key, keep_prob=keep_prob, shape=shape), None


def dropout(x: Any, p: float = 0.5, shared_axes: tuple[int, ...] = ()) -> Tensor:
    """`x` with each element set to 0 with probability p, the others divided by 1 - p.

    Args:
        x: any shape.
        p: the probability of dropping.
        shared_axes: axes along which elements are dropped together.
    """
    tensor = as_float(x, "dropout")
    keep_prob = 1.0 - probability(p, "dropout", "p")
    if keep_prob == 1.0:
        return tensor
    shared = as_axes(shared_axes, tensor.ndim, "dropout") if shared_axes else ()
    shape = tuple(1 if axis in shared else n for axis, n in enumerate(tensor.shape))
    result: Tensor = _dropped.bind(tensor, next_key(), keep_prob=keep_prob, shape=shape)
    return result


def dropout2d(x: Any, keep_prob: float = 0.5) -> tuple[Tensor, Tensor]:
    """Whole channels of `x`, (N, C, ...), set to 0 with probability 1 - keep_prob, the others divided by keep_prob.

    Returns:
        The result, and the mask (bool, the shape of `x`): True where an element was kept.

    Raises:
        ArgumentError: if keep_prob is outside of [0, 1].
        ShapeError: if `x` has no axes after its channels.
    """
    keep = probability(keep_prob, "Dropout2D", "keep_prob")
    tensor = as_float(x, "Dropout2D")
    if tensor.ndim < 3:
        raise ShapeError(f"Dropout2D: takes (N, C, ...), the shape is {tensor.shape}.")
    channels = (*tensor.shape[:2], *(1,) * (tensor.ndim - 2))
    drawn = _uniform.bind(next_key(), shape=channels, dtype=np.dtype(np.float32))
    mask = sh.broadcast_to(lg.less(drawn, keep), tensor.shape)
    kept = lg.where(mask, tensor, 0.0)
    return (kept if keep in (0.0, 1.0) else kept * (1.0 / keep)), mask


def probability(p: Any, name: str, argument: str) -> float:
    """`p` as it is, if it is a number in [0, 1].

    Raises:
        ArgumentError: for anything else.
    """
    if isinstance(p, bool) or not isinstance(p, (int, float)) or not 0.0 <= p <= 1.0:
        raise ArgumentError(f"{name}: {argument} is a number in [0, 1], not {p!r}.")
    return float(p)
