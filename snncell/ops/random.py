"""Random numbers that are a function of (seed, call, element): the same for any number of threads, and on any device.

The generator is NumPy's Philox, keyed by the seed and the number of the call. It gives one 64-bit word for each
element, of which everything is made element by element:

- uniform: 53 bits of the word for float64, 24 bits of half a word for float32, as NumPy's generator does it;
- normal: by Box and Muller, two numbers from two words, computed in float64 and rounded; on a GPU they may differ from
  the CPU's in the last place, because its logarithm and its sine do;
- integers: the upper half of the 128-bit product of the word with the number of integers. Some come up more often than
  others, by at most that number / 2^64;
- permutations: the order of the words.

The key of each draw comes from `seeds.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Any

import numpy as np

from snncell import dtype as dtypes
from snncell.base.arguments.kinds import Count, Dtype, Lengths, Numbers, Own, Probability, Size
from snncell.errors import ArgumentError, DTypeError, ShapeError
from snncell.kernels.cuda import philox
from snncell.ops import arithmetic, exponentials, logic as lg, reduce, shape as sh, sorting
from snncell.ops.base import (
    as_axes,
    as_float,
    as_int,
    as_shape,
    as_tensor,
    astype,
    number_or_tensor,
    primitive,
    probability,
)
from snncell.ops.seeds import next_key
from snncell.tape.tensor import Tensor, beside, snapshot

__all__ = [
    "bernoulli", "dropout", "dropout2d", "multinomial", "normal", "rand", "rand_like", "randint", "randn", "randn_like",
    "randperm", "uniform",
]  # fmt: skip

_HALF = np.uint64(0xFFFFFFFF)


def _beside_operands(*operands: Any) -> AbstractContextManager[Any]:
    """Draw where the operands are, if one of them is a Tensor, in the body."""
    tensors = [x for x in operands if isinstance(x, Tensor)]
    return beside(*tensors) if tensors else nullcontext()


def _generator(key: Any) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=key.astype(np.uint64)))


def _random_words(key: Any, shape: tuple[int, ...]) -> Any:
    """A 64-bit word for each element."""
    return np.asarray(_generator(key).bit_generator.random_raw(math.prod(shape))).reshape(shape)


def _draw_uniform(key: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    return _generator(key).random(shape, dtype)


@primitive
def _uniform(key: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    return _draw_uniform(key, shape, dtype)


@_uniform.def_there
def _(key: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    return philox.uniform(key, shape, dtype)


@primitive
def _normal(key: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    count = math.prod(shape)
    unit = _generator(key).random((-(-count // 2), 2))
    # 1 - u lies in (0, 1]: its logarithm is finite.
    radius, angle = np.sqrt(-2.0 * np.log(1.0 - unit[:, 0])), 2 * np.pi * unit[:, 1]
    pairs = np.empty(unit.shape, dtype)
    pairs[:, 0], pairs[:, 1] = radius * np.cos(angle), radius * np.sin(angle)
    return pairs.reshape(-1)[:count].reshape(shape)


@_normal.def_there
def _(key: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    return philox.normal(key, shape, dtype)


@primitive
def _integers(key: Any, shape: tuple[int, ...], low: int, high: int) -> Any:
    words, span, half = _random_words(key, shape), high - low, np.uint64(32)
    # NumPy has no 128-bit integers: the product of (a, b) and (c, d), halves of 32 bits, with its carries.
    a, b = words >> half, words & _HALF
    c, d = np.uint64(span >> 32), np.uint64(span & 0xFFFFFFFF)
    middle = a * d + (b * d >> half)
    upper = a * c + (middle >> half) + ((b * c + (middle & _HALF)) >> half)
    return upper.astype(np.int64) + np.int64(low)


@_integers.def_there
def _(key: Any, shape: tuple[int, ...], low: int, high: int) -> Any:
    return philox.integers(key, shape, low, high)


@primitive
def _permutation(key: Any, n: int) -> Any:
    # Without their last bit, words have one order as signed integers too, which the device sorts.
    return np.argsort(_random_words(key, (n,)) >> np.uint64(1), kind="stable")


@_permutation.def_there
def _(key: Any, n: int) -> Any:
    return philox.permutation(key, n)


for _op in (_uniform, _normal, _integers, _permutation):
    _op.no_gradient()


def _draw_dtype(dtype: Any, name: str) -> Any:
    chosen = dtypes.as_dtype(dtype)
    if chosen not in (dtypes.float32, dtypes.float64):
        raise ArgumentError(
            f"{name}: draws float32 or float64, not {chosen}. Convert what it gives: .astype({chosen.name!r})."
        )
    return chosen.dtype


def uniform(shape: Lengths, low: Numbers = 0.0, high: Numbers = 1.0, dtype: Dtype = dtypes.float32) -> Tensor:
    """Numbers spread evenly over [low, high); the bounds may be Tensors and get gradients."""
    with _beside_operands(low, high):
        drawn: Tensor = _uniform.bind(next_key(), shape=as_shape(shape, "uniform"), dtype=_draw_dtype(dtype, "uniform"))
    if (type(low), low, type(high), high) == (float, 0.0, float, 1.0):
        return drawn
    least = number_or_tensor(low, "uniform", "low")
    spread: Tensor = drawn * (number_or_tensor(high, "uniform", "high") - least) + least
    return spread


def normal(shape: Lengths, mean: Numbers = 0.0, stddev: Numbers = 1.0, dtype: Dtype = dtypes.float32) -> Tensor:
    """Numbers of the normal distribution; mean and deviation may be Tensors and get gradients."""
    with _beside_operands(mean, stddev):
        drawn: Tensor = _normal.bind(next_key(), shape=as_shape(shape, "normal"), dtype=_draw_dtype(dtype, "normal"))
    result: Tensor = drawn * number_or_tensor(stddev, "normal", "stddev") + number_or_tensor(mean, "normal", "mean")
    return result


def bernoulli(p: Numbers) -> Tensor:
    """1 with probability p, else 0, for every element of `p`, in its dtype; no gradient.

    Raises:
        ArgumentError: for a number outside of [0, 1].
    """
    if isinstance(p, (int, float)):
        probability(p, "bernoulli", "p")
    tensor = as_float(p, "bernoulli")
    drawn_as = dtypes.float64 if tensor.dtype == dtypes.float64 else dtypes.float32
    with beside(tensor):
        drawn = _uniform.bind(next_key(), shape=tensor.shape, dtype=drawn_as.dtype)
    return astype(lg.less(drawn, tensor), tensor.dtype)


def randint(low: Annotated[int, Own()], high: Annotated[int, Own()], shape: Lengths) -> Tensor:
    """Integers from `low` up to but without `high`, as int64."""
    first, last = as_int(low, "randint", "low"), as_int(high, "randint", "high")
    if last <= first:
        raise ArgumentError(f"randint: high={high} is not above low={low}.")
    if not (dtypes.holds(dtypes.int64, first) and dtypes.holds(dtypes.int64, last - 1)):
        raise ArgumentError(f"randint: numbers from low={low} up to high={high} do not fit int64.")
    drawn: Tensor = _integers.bind(next_key(), shape=as_shape(shape, "randint"), low=first, high=last)
    return drawn


def randperm(n: Size) -> Tensor:
    """The integers from 0 to n - 1 in random order."""
    count = as_int(n, "randperm", "n")
    if count < 0:
        raise ArgumentError(f"randperm: n is not negative, but {n}.")
    drawn: Tensor = _permutation.bind(next_key(), n=count)
    return drawn


def rand(*size: Any, dtype: Dtype = dtypes.float32) -> Tensor:
    """Numbers spread evenly over [0, 1), of the shape that the arguments name: `rand(2, 3)`."""
    return uniform(size[0] if len(size) == 1 else size, dtype=dtype)


def randn(*size: Any, dtype: Dtype = dtypes.float32) -> Tensor:
    """Numbers of the normal distribution with mean 0 and deviation 1: `randn(2, 3)`."""
    return normal(size[0] if len(size) == 1 else size, dtype=dtype)


def rand_like(x: Numbers) -> Tensor:
    """Numbers spread evenly over [0, 1), of the shape of `x`, float64 if it is of that, else float32."""
    return _draw_beside(uniform, x, "rand_like")


def randn_like(x: Numbers) -> Tensor:
    """Numbers of the standard normal distribution, of the shape of `x`, float64 if it is of that, else float32."""
    return _draw_beside(normal, x, "randn_like")


def _draw_beside(draw: Any, x: Numbers, name: str) -> Tensor:
    tensor = as_float(x, name)
    with beside(tensor):
        drawn: Tensor = draw(tensor.shape, dtype=dtypes.float64 if tensor.dtype is dtypes.float64 else dtypes.float32)
    return drawn


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
        drawn = uniform((*weights.shape[:-1], count if replacement else weights.shape[-1]), dtype=dtypes.float64)
    if not replacement:
        # Of exponential times with these rates, the first ones: -log(1 - u) / w.
        waiting = -exponentials.log1p(-drawn) / lg.where(chances > 0.0, chances, 1.0)
        return sorting.topk(lg.where(chances > 0.0, waiting, np.inf), count, -1, False)[1]
    ends = reduce.cumsum(chances, -1)
    marks = sh.expand_dims(drawn * ends[..., -1:], -1)
    passed: Tensor = lg.less_equal(sh.expand_dims(ends, -2), marks)
    last: Tensor = reduce.sum(lg.less(ends, ends[..., -1:]), -1, keepdims=True)  # the last one that has a weight
    return arithmetic.minimum(reduce.sum(passed, -1), last)


def _refuse_weights(weights: np.ndarray, least: int) -> None:
    if not (weights >= 0).all() or not np.isfinite(weights.astype(np.float64)).all():
        raise ArgumentError("multinomial: weights are finite, and none is negative.")
    positive = int((weights > 0).sum(-1).min()) if weights.size else 0
    if positive < least:
        raise ArgumentError(
            f"multinomial: a row has {positive} positive weight(s), and {least} position(s) are to be drawn."
        )


# --- dropout ----------------------------------------------------------------------------------------------------------

# --- dropout ----------------------------------------------------------------------------------------------------------


@primitive
def _drop_out(x: Any, key: Any, keep_prob: float, shape: tuple[int, ...]) -> Any:
    mask = _draw_uniform(key, shape, np.dtype(np.float32)) < keep_prob
    return np.where(mask, x / x.dtype.type(keep_prob), x.dtype.type(0))


@_drop_out.def_there
def _(x: Any, key: Any, keep_prob: float, shape: tuple[int, ...]) -> Any:
    if x.shape == shape:
        return philox.drop_elements(x, key, keep_prob)
    mask = lg.less.on_device([philox.uniform(key, shape, np.dtype(np.float32)), keep_prob], {})
    return lg.where.on_device([mask, arithmetic.div.on_device([x, keep_prob], {}), 0.0], {})


@_drop_out.def_bprop
def _(_x: Tensor, key: Tensor, _out: Tensor, dout: Tensor, *, keep_prob: float, shape: Any) -> Sequence[Any]:
    # The same key gives the same mask: it is drawn again, not kept.
    return _drop_out.bind(dout, key, keep_prob=keep_prob, shape=shape), None


def dropout(x: Numbers, p: Probability = 0.5, shared_axes: tuple[int, ...] = ()) -> Tensor:
    """`x` with each element set to 0 with probability p, the others divided by 1 - p.

    Args:
        x: any shape.
        p: the probability of dropping.
        shared_axes: axes along which elements are dropped together.
    """
    tensor = as_float(x, "dropout")
    keep_prob = 1.0 - probability(p, "dropout", "p")
    if keep_prob == 1.0:
        return snapshot(tensor)
    shared = as_axes(shared_axes, tensor.ndim, "dropout") if shared_axes else ()
    shape = tuple(1 if axis in shared else n for axis, n in enumerate(tensor.shape))
    with beside(tensor):
        result: Tensor = _drop_out.bind(tensor, next_key(), keep_prob=keep_prob, shape=shape)
    return result


def dropout2d(x: Numbers, keep_prob: Probability = 0.5) -> tuple[Tensor, Tensor]:
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
    with beside(tensor):
        drawn = _uniform.bind(next_key(), shape=channels, dtype=np.dtype(np.float32))
    mask = sh.broadcast_to(lg.less(drawn, keep), tensor.shape)
    result = lg.where(mask, tensor, 0.0)
    return (result if keep in (0.0, 1.0) else result * (1.0 / keep)), mask  # at 0, there is nothing to scale
