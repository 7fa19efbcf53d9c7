"""Random numbers that are a function of (seed, call, element): the same for any number of threads, and on any device.

The generator is NumPy's Philox, keyed by the seed and the number of the call. It gives one 64-bit word for each
element, of which everything is made element by element:

- uniform: 53 bits of the word for float64, 24 bits of half a word for float32, as NumPy's generator does it;
- normal: by Box and Muller, two numbers from two words, computed in float64 and rounded; on a GPU they may differ from
  the CPU's in the last place, because its logarithm and its sine do;
- integers: the upper half of the 128-bit product of the word with the number of integers. Some come up more often than
  others, by at most that number / 2^64;
- permutations: the order of the words.

The key of the next draw, the seed and the number of the call, is a Parameter without a gradient, so a jitted function
draws new numbers each time it runs: advancing it is one of the Program's effects. It follows the draws to the GPU and
back. Its value belongs to a thread, so that the draws of one thread do not depend on the timing of another one.
"""

from __future__ import annotations

import itertools
import math
import secrets
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Any

import numpy as np

from snncell import dtype as dtypes
from snncell.base.arguments.kinds import Count, Dtype, Lengths, Numbers, Own, Probability, Size
from snncell.base.signals import Restoring, Write, undoing
from snncell.errors import ArgumentError, DTypeError, ShapeError
from snncell.kernels.cuda import philox
from snncell.kernels.space import HOST, IN_USE, move_to_space
from snncell.ops import arithmetic as ar, reduce, shape as sh, sorting, transcendental as tr
from snncell.ops.base import (
    Grads,
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
from snncell.tape.parameter import Parameter, assign_all
from snncell.tape.state import RECORDING, TRACING, here, in_turn
from snncell.tape.tensor import Tensor, beside, snapshot

__all__ = [
    "bernoulli", "dropout", "dropout2d", "get_seed", "multinomial", "normal", "rand", "rand_like", "randint",
    "randn", "randn_like", "randperm", "set_seed", "uniform",
]  # fmt: skip

# --- the key of the next draw -----------------------------------------------------------------------------------------


class _Sequences(threading.local):
    """Where the thread is in its sequence of random numbers: the key of its next draw."""

    # The main thread's seed, from chance or from `set_seed`, and a count of the threads that have begun to draw since.
    begun: tuple[int, Iterator[int]] = secrets.randbits(62), itertools.count(1)

    def __init__(self) -> None:
        self.main = threading.current_thread() is threading.main_thread()
        if RECORDING.turn is not None:
            return  # it draws for another thread: `draw_for`
        seed, threads = self.begun
        if not self.main:
            seed = int(np.random.SeedSequence((seed, next(threads))).generate_state(1, np.uint64)[0]) >> 2
        self.key: Any = np.array([seed, 0])


class _Key(Parameter):
    """The key of the next draw, of whichever thread asks."""

    __slots__ = ()
    follows = True

    @property
    def _data(self) -> Any:
        return _SEQUENCES.key

    @_data.setter
    def _data(self, key: Any) -> None:
        _SEQUENCES.key = key

    def write_of(self, array: Any) -> Write:
        return _SEQUENCES, "key", array


_SEQUENCES = _Sequences()
_state = _Key(_SEQUENCES.key, name="random_state", requires_grad=False)


def set_seed(seed: Annotated[int, Own()], calls: Annotated[int, Own()] = 0) -> None:
    """Begin the sequence of random numbers that belongs to `seed`, on this thread.

    Each thread has a sequence of its own, so its numbers do not depend on what other threads draw meanwhile. One that
    has not called `set_seed` draws from a sequence made of the main thread's last seed (of chance, if it has set none)
    and of how many threads have begun to draw since then: where several do at once, let each call `set_seed`.

    Args:
        seed: an integer in [0, 2^63).
        calls: go on after so many draws.
    """
    assign_all([assign_seed(seed, calls)], "set_seed")
    if _SEQUENCES.main:
        _Sequences.begun = as_int(seed, "set_seed", "seed"), itertools.count(1)


def get_seed() -> int:
    """The seed of this thread's sequence of random numbers, which `set_seed` begins anew.

    Example:
        >>> snncell.set_seed(7)
        >>> snncell.get_seed()
        7
    """
    return int(present_key().asnumpy()[0])


def assign_seed(seed: Any, calls: Any) -> tuple[Parameter, Tensor]:
    """The key of this thread, and the value that `set_seed` gives it, to be assigned with others."""
    in_turn()
    key = [as_int(seed, "set_seed", "seed"), as_int(calls, "set_seed", "calls")]
    for name, number in zip(("the seed", "calls"), key, strict=True):
        if not 0 <= number < 2**63:
            raise ArgumentError(f"set_seed: {name} lies in [0, 2^63), not {number}.")
    return _state, Tensor(key)


def next_key() -> Tensor:
    """The key of the next draw, where that is made."""
    if TRACING.trace is None:
        in_turn()
    if TRACING.trace is None and (IN_USE or here() is not HOST):  # a Program's key goes with its plan
        _state._data = move_to_space(_state._data, here())
    key = _state.value()
    _state.assign(_following.bind(key), "random")
    return key


@primitive
def _following(key: Any) -> Any:
    """The key of the draw after."""
    return key + np.array([0, 1])


_following.def_there(philox.next_key)
_following.no_gradient()


def replaying(key: Tensor) -> AbstractContextManager[Any]:
    """Draw the numbers that come after `key` once more, and go on afterwards as if nothing had happened."""
    _state.refuse(key, "random")
    again, present = _state.write_of(key._data), _state.write_of(_state._data)
    return Restoring(undoing([again]), undoing([present]))


def present_key() -> Tensor:
    """The key that the next draw will have, for `replaying`."""
    if TRACING.trace is None:
        in_turn()
    return _state.value()


def own_key() -> Any:
    """The key of this thread's next draw, as an array, for `go_on_from`."""
    in_turn()
    return _SEQUENCES.key


def go_on_from(key: Any) -> None:
    """Draw from a key on, on this thread."""
    _SEQUENCES.key = key


def draws_for_main() -> bool:
    """True on the main thread, and on one that draws for it."""
    return bool(_SEQUENCES.main)


def draw_for(key: Any, main: bool) -> None:
    """Begin to draw for another thread: from its key on, and for the main thread if that is the one."""
    _SEQUENCES.main = main
    go_on_from(key)


# --- draws ------------------------------------------------------------------------------------------------------------


def _beside_operands(*operands: Any) -> AbstractContextManager[Any]:
    """Draw where the operands are, if one of them is a Tensor, in the body."""
    tensors = [x for x in operands if isinstance(x, Tensor)]
    return beside(*tensors) if tensors else nullcontext()


def _generator(key: Any) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=key.astype(np.uint64)))


def _random_words(key: Any, shape: tuple[int, ...]) -> Any:
    """A 64-bit word for each element."""
    return np.asarray(_generator(key).bit_generator.random_raw(math.prod(shape))).reshape(shape)


@primitive
def _uniform(key: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    return _generator(key).random(shape, dtype)


@primitive
def _normal(key: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    count = math.prod(shape)
    unit = _generator(key).random((-(-count // 2), 2))
    # 1 - u lies in (0, 1]: its logarithm is finite.
    radius, angle = np.sqrt(-2.0 * np.log(1.0 - unit[:, 0])), 2 * np.pi * unit[:, 1]
    pairs = np.empty(unit.shape, dtype)
    pairs[:, 0], pairs[:, 1] = radius * np.cos(angle), radius * np.sin(angle)
    return pairs.reshape(-1)[:count].reshape(shape)


@primitive
def _integers(key: Any, shape: tuple[int, ...], low: int, high: int) -> Any:
    words, span = _random_words(key, shape), high - low
    half, low_half = np.uint64(32), np.uint64(0xFFFFFFFF)
    # NumPy has no 128-bit integers: the product of (a, b) and (c, d), halves of 32 bits, with its carries.
    a, b = words >> half, words & low_half
    c, d = np.uint64(span >> 32), np.uint64(span & 0xFFFFFFFF)
    middle = a * d + (b * d >> half)
    upper = a * c + (middle >> half) + ((b * c + (middle & low_half)) >> half)
    return upper.astype(np.int64) + np.int64(low)


@primitive
def _permutation(key: Any, n: int) -> Any:
    # Without their last bit, words have one order as signed integers too, which the device sorts.
    return np.argsort(_random_words(key, (n,)) >> np.uint64(1), kind="stable")


for _op, _there in (
    (_uniform, philox.uniform),
    (_normal, philox.normal),
    (_integers, philox.integers),
    (_permutation, philox.permutation),
):
    _op.def_there(_there)
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
    return ar.add(drawn * (number_or_tensor(high, "uniform", "high") - least), least)


def normal(shape: Lengths, mean: Numbers = 0.0, stddev: Numbers = 1.0, dtype: Dtype = dtypes.float32) -> Tensor:
    """Numbers of the normal distribution; mean and deviation may be Tensors and get gradients."""
    with _beside_operands(mean, stddev):
        drawn: Tensor = _normal.bind(next_key(), shape=as_shape(shape, "normal"), dtype=_draw_dtype(dtype, "normal"))
    return ar.add(drawn * number_or_tensor(stddev, "normal", "stddev"), number_or_tensor(mean, "normal", "mean"))


def bernoulli(p: Numbers) -> Tensor:
    """1 with probability p, else 0, for every element of `p`, in its dtype; no gradient."""
    if isinstance(p, (int, float)):
        probability(p, "bernoulli", "p")
    tensor = as_float(p, "bernoulli")
    drawn_as = dtypes.float64 if tensor.dtype == dtypes.float64 else dtypes.float32
    with beside(tensor):
        drawn = _uniform.bind(next_key(), shape=tensor.shape, dtype=drawn_as.dtype)
    return astype(ar.less(drawn, tensor), tensor.dtype)


def randint(low: Annotated[int, Own()], high: Annotated[int, Own()], shape: Lengths) -> Tensor:
    """Integers from `low` up to but without `high`, as int64."""
    first, last = as_int(low, "randint", "low"), as_int(high, "randint", "high")
    if last <= first:
        raise ArgumentError(f"randint: high={high} is not above low={low}.")
    if not (dtypes.holds(dtypes.int64, first) and dtypes.holds(dtypes.int64, last - 1)):
        raise ArgumentError(f"randint: numbers from low={low} up to high={high} do not fit int64.")
    return _integers.bind(next_key(), shape=as_shape(shape, "randint"), low=first, high=last)


def randperm(n: Size) -> Tensor:
    """The integers from 0 to n - 1 in random order."""
    count = as_int(n, "randperm", "n")
    if count < 0:
        raise ArgumentError(f"randperm: n is not negative, but {n}.")
    return _permutation.bind(next_key(), n=count)


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
        waiting = -tr.log1p(-drawn) / ar.where(chances > 0.0, chances, 1.0)
        return sorting.topk(ar.where(chances > 0.0, waiting, np.inf), count, -1, False)[1]
    ends = reduce.cumsum(chances, -1)
    marks = sh.expand_dims(drawn * ends[..., -1:], -1)
    passed: Tensor = ar.less_equal(sh.expand_dims(ends, -2), marks)
    last: Tensor = reduce.sum(ar.less(ends, ends[..., -1:]), -1, keepdims=True)  # the last one that has a weight
    return ar.minimum(reduce.sum(passed, -1), last)


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
    mask = _uniform.evaluate(key, shape, np.dtype(np.float32)) < keep_prob
    return np.where(mask, x / x.dtype.type(keep_prob), x.dtype.type(0))


@_drop_out.def_there
def _(x: Any, key: Any, keep_prob: float, shape: tuple[int, ...]) -> Any:
    if x.shape == shape:
        return philox.drop_elements(x, key, keep_prob)
    mask = ar.less.on_device([philox.uniform(key, shape, np.dtype(np.float32)), keep_prob], {})
    return ar.where.on_device([mask, ar.div.on_device([x, keep_prob], {}), 0.0], {})


@_drop_out.def_bprop
def _(_x: Tensor, key: Tensor, _out: Tensor, dout: Tensor, *, keep_prob: float, shape: Any) -> Grads:
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
    """
    keep = probability(keep_prob, "Dropout2D", "keep_prob")
    tensor = as_float(x, "Dropout2D")
    if tensor.ndim < 3:
        raise ShapeError(f"Dropout2D: takes (N, C, ...), the shape is {tensor.shape}.")
    channels = (*tensor.shape[:2], *(1,) * (tensor.ndim - 2))
    with beside(tensor):
        drawn = _uniform.bind(next_key(), shape=channels, dtype=np.dtype(np.float32))
    mask = sh.broadcast_to(ar.less(drawn, keep), tensor.shape)
    result = ar.where(mask, tensor, 0.0)
    return (result if keep in (0.0, 1.0) else result * (1.0 / keep)), mask  # at 0, there is nothing to scale
