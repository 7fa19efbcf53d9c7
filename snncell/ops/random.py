"""Counter-based random numbers: a function of (seed, call, element), equal on any number of threads and any device.

The generator is NumPy's Philox, keyed by the seed and the number of the call. Each element uses its own random word of
64 bits, or half a word:

- uniform: 53 bits of the word for float64, 24 bits of half a word for float32, as in NumPy.
- normal: the Box-Muller method makes two numbers of two words, in float64. GPU results may differ in the last bit.
- integers: the upper half of the product of the word and the number n of integers. They are uniform within 2^-64.
- permutations: the order of the words.

The key of the next draw is a Parameter without a gradient. A Program assigns the following key to it, so a jitted
function draws new numbers each time it runs. The key moves to the device of the draws. Each thread has a key, so that
its draws do not depend on the timing of other threads.
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
from snncell.tape.primitive import Primitive
from snncell.tape.state import RECORDING, TRACING, current_space, in_turn
from snncell.tape.tensor import Tensor, on_device_of, snapshot

__all__ = [
    "bernoulli", "dropout", "dropout2d", "get_seed", "multinomial", "normal", "rand", "rand_like", "randint",
    "randn", "randn_like", "randperm", "set_seed", "uniform",
]  # fmt: skip

# --- Key of the next draw ---------------------------------------------------------------------------------------------


class _Sequences(threading.local):
    """The state of each thread's random numbers: the key of its next draw."""

    # The main thread's seed (random, or from `set_seed`), and the number of threads that have drawn since.
    begun: tuple[int, Iterator[int]] = secrets.randbits(62), itertools.count(1)

    def __init__(self) -> None:
        self.main = threading.current_thread() is threading.main_thread()
        if RECORDING.turn is not None:
            return  # this thread draws for another one, see `draw_for`
        seed, threads = self.begun
        if not self.main:
            seed = int(np.random.SeedSequence((seed, next(threads))).generate_state(1, np.uint64)[0]) >> 2
        self.key: Any = np.array([seed, 0])


class _Key(Parameter):
    """The key of the next draw of the current thread, as a Parameter."""

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
    """Set the seed of all random numbers of this thread. Call it at the start of a program for repeatable results.

    Each thread has its own sequence of random numbers. If a thread does not call `set_seed`, its seed is made from the
    main thread's last seed (random by default), and from the number of threads that have drawn before. If several
    threads draw at once, this number depends on timing, so let each of them call `set_seed`.

    Args:
        seed: an integer in [0, 2^63).
        calls: skip that many draws, for example to resume a saved run.
    """
    assign_all([assign_seed(seed, calls)], "set_seed")
    if _SEQUENCES.main:
        _Sequences.begun = as_int(seed, "set_seed", "seed"), itertools.count(1)


def get_seed() -> int:
    """The seed of this thread's random numbers, as set by `set_seed`."""
    return int(present_key().asnumpy()[0])


def assign_seed(seed: Any, calls: Any) -> tuple[Parameter, Tensor]:
    """The key Parameter of this thread and its value after `set_seed`, for an assignment together with others."""
    in_turn()
    key = [as_int(seed, "set_seed", "seed"), as_int(calls, "set_seed", "calls")]
    for name, number in zip(("the seed", "calls"), key, strict=True):
        if not 0 <= number < 2**63:
            raise ArgumentError(f"set_seed: {name} must lie in [0, 2^63), not {number}.")
    return _state, Tensor(key)


def next_key() -> Tensor:
    """The key of the next draw, on the device of that draw. It also advances the key."""
    if TRACING.trace is None:
        in_turn()
    if TRACING.trace is None and (IN_USE or current_space() is not HOST):  # a Program's plan moves the key itself
        _state._data = move_to_space(_state._data, current_space())
    key = _state.value()
    _state.assign(_following.bind(key), "random")
    return key


_following = Primitive("following", lambda key: key + np.array([0, 1]))
_following.def_on_gpu(philox.next_key)
_following.no_gradient()


def replaying(key: Tensor) -> AbstractContextManager[Any]:
    """Context that repeats the draws after `key` and restores the current key afterwards."""
    _state.refuse(key, "random")
    again, present = _state.write_of(key._data), _state.write_of(_state._data)
    return Restoring(undoing([again]), undoing([present]))


def present_key() -> Tensor:
    """The key of the next draw, for `replaying`."""
    if TRACING.trace is None:
        in_turn()
    return _state.value()


def read_key() -> Any:
    """The key of this thread's next draw as an array, for `restore_key`."""
    in_turn()
    return _SEQUENCES.key


def restore_key(key: Any) -> None:
    """Set the key of this thread's next draw."""
    _SEQUENCES.key = key


def draws_for_main() -> bool:
    """True on the main thread, and on a thread that draws for it."""
    return bool(_SEQUENCES.main)


def draw_for(key: Any, main: bool) -> None:
    """Draw for another thread: use its key, and the role of the main thread if `main`."""
    _SEQUENCES.main = main
    restore_key(key)


# --- Draws ------------------------------------------------------------------------------------------------------------


def _beside_operands(*operands: Any) -> AbstractContextManager[Any]:
    """Context that draws on the device of the operands, if one of them is a Tensor."""
    tensors = [x for x in operands if isinstance(x, Tensor)]
    return on_device_of(*tensors) if tensors else nullcontext()


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
    # 1 - u lies in (0, 1], so that its logarithm is finite.
    radius, angle = np.sqrt(-2.0 * np.log(1.0 - unit[:, 0])), 2 * np.pi * unit[:, 1]
    pairs = np.empty(unit.shape, dtype)
    pairs[:, 0], pairs[:, 1] = radius * np.cos(angle), radius * np.sin(angle)
    return pairs.reshape(-1)[:count].reshape(shape)


@primitive
def _integers(key: Any, shape: tuple[int, ...], low: int, high: int) -> Any:
    words, span = _random_words(key, shape), high - low
    half, low_half = np.uint64(32), np.uint64(0xFFFFFFFF)
    # NumPy has no 128-bit integers, so multiply 32-bit halves, (a, b) by (c, d), with carries.
    a, b = words >> half, words & low_half
    c, d = np.uint64(span >> 32), np.uint64(span & 0xFFFFFFFF)
    middle = a * d + (b * d >> half)
    upper = a * c + (middle >> half) + ((b * c + (middle & low_half)) >> half)
    return upper.astype(np.int64) + np.int64(low)


@primitive
def _permutation(key: Any, n: int) -> Any:
    # Drop the last bit, so that words have the same order as signed integers, which the device sorts.
    return np.argsort(_random_words(key, (n,)) >> np.uint64(1), kind="stable")


for _op in (_uniform, _normal, _integers, _permutation):
    _op.def_on_gpu(getattr(philox, _op.name))
    _op.no_gradient()


def _draw_dtype(dtype: Any, name: str) -> Any:
    chosen = dtypes.as_dtype(dtype)
    if chosen not in (dtypes.float32, dtypes.float64):
        raise ArgumentError(
            f"{name}: draws float32 or float64, not {chosen}. Convert the result: .astype({chosen.name!r})."
        )
    return chosen.dtype


def uniform(shape: Lengths, low: Numbers = 0.0, high: Numbers = 1.0, dtype: Dtype = dtypes.float32) -> Tensor:
    """Random numbers from the uniform distribution on [low, high). The bounds may be Tensors and get gradients."""
    with _beside_operands(low, high):
        drawn: Tensor = _uniform.bind(next_key(), shape=as_shape(shape, "uniform"), dtype=_draw_dtype(dtype, "uniform"))
    if (type(low), low, type(high), high) == (float, 0.0, float, 1.0):
        return drawn
    least = number_or_tensor(low, "uniform", "low")
    return ar.add(drawn * (number_or_tensor(high, "uniform", "high") - least), least)


def normal(shape: Lengths, mean: Numbers = 0.0, stddev: Numbers = 1.0, dtype: Dtype = dtypes.float32) -> Tensor:
    """Random numbers from the normal distribution. Mean and standard deviation may be Tensors and get gradients."""
    with _beside_operands(mean, stddev):
        drawn: Tensor = _normal.bind(next_key(), shape=as_shape(shape, "normal"), dtype=_draw_dtype(dtype, "normal"))
    return ar.add(drawn * number_or_tensor(stddev, "normal", "stddev"), number_or_tensor(mean, "normal", "mean"))


def bernoulli(p: Numbers) -> Tensor:
    """Random zeros and ones: 1 with probability `p`, elementwise, in the dtype of `p`; no gradient."""
    if isinstance(p, (int, float)):
        probability(p, "bernoulli", "p")
    tensor = as_float(p, "bernoulli")
    with on_device_of(tensor):  # not by `uniform`, whose check of arguments takes an eighth of this call
        drawn = _uniform.bind(next_key(), shape=tensor.shape, dtype=_dtype_like(tensor).dtype)
    return astype(ar.less(drawn, tensor), tensor.dtype)


def randint(low: Annotated[int, Own()], high: Annotated[int, Own()], shape: Lengths) -> Tensor:
    """Random integers from `low` to `high - 1`, as int64."""
    first, last = as_int(low, "randint", "low"), as_int(high, "randint", "high")
    if last <= first:
        raise ArgumentError(f"randint: high={high} must be above low={low}.")
    if not (dtypes.holds(dtypes.int64, first) and dtypes.holds(dtypes.int64, last - 1)):
        raise ArgumentError(f"randint: numbers from low={low} up to high={high} do not fit int64.")
    return _integers.bind(next_key(), shape=as_shape(shape, "randint"), low=first, high=last)


def randperm(n: Size) -> Tensor:
    """A random permutation of the integers from 0 to n - 1."""
    return _permutation.bind(next_key(), n=n)


def rand(*size: Any, dtype: Dtype = dtypes.float32) -> Tensor:
    """Uniform random numbers on [0, 1) of the given shape, for example `rand(2, 3)`."""
    return uniform(size[0] if len(size) == 1 else size, dtype=dtype)


def randn(*size: Any, dtype: Dtype = dtypes.float32) -> Tensor:
    """Standard normal random numbers of the given shape, for example `randn(2, 3)`."""
    return normal(size[0] if len(size) == 1 else size, dtype=dtype)


def rand_like(x: Numbers) -> Tensor:
    """Uniform random numbers on [0, 1) with the shape of `x`; float64 if `x` is, else float32."""
    return draw_like(uniform, as_float(x, "rand_like"))


def randn_like(x: Numbers) -> Tensor:
    """Standard normal random numbers with the shape of `x`; float64 if `x` is, else float32."""
    return draw_like(normal, as_float(x, "randn_like"))


def draw_like(draw: Any, x: Tensor, *settings: float) -> Tensor:
    """Draw numbers with the shape and device of `x`; float64 if `x` is, else float32."""
    with on_device_of(x):
        drawn: Tensor = draw(x.shape, *settings, dtype=_dtype_like(x))
    return drawn


def _dtype_like(x: Tensor) -> dtypes.DType:
    return dtypes.float64 if x.dtype is dtypes.float64 else dtypes.float32


def multinomial(x: Numbers, num_samples: Count, replacement: bool = True) -> Tensor:
    """Draw indices with probabilities proportional to weights, as int64; no gradient.

    Args:
        x: non-negative weights (N,) or (B, N). Rows need not sum to 1.
        num_samples: the number of draws per row.
        replacement: whether an index can be drawn again.
    Returns: (num_samples,) or (B, num_samples).
    Raises: ShapeError for other shapes; ArgumentError for negative weights, a row of zeros, or, without replacement,
        more draws than positive weights. Values are not checked in a traced function.
    """
    weights, count = as_tensor(x, "multinomial"), as_int(num_samples, "multinomial", "num_samples")
    if weights.ndim not in (1, 2):
        raise ShapeError(f"multinomial: takes weights (N,) or (B, N), but the shape is {weights.shape}.")
    if weights.dtype.category == 3:
        raise DTypeError("multinomial: weights are real numbers. Take ops.abs(x) first.")
    if isinstance(weights._data, np.ndarray):
        _refuse_weights(weights._data, 1 if replacement else count)
    chances = astype(weights, dtypes.float64)
    with on_device_of(chances):
        drawn = uniform((*weights.shape[:-1], count if replacement else weights.shape[-1]), dtype=dtypes.float64)
    if not replacement:
        # Draw waiting times -log(1 - u) / w, exponential with rates w. The shortest are a sample without replacement.
        waiting = -tr.log1p(-drawn) / ar.where(chances > 0.0, chances, 1.0)
        return sorting.topk(ar.where(chances > 0.0, waiting, np.inf), count, -1, False)[1]
    ends = reduce.cumsum(chances, -1)
    marks = sh.expand_dims(drawn * ends[..., -1:], -1)
    passed: Tensor = ar.less_equal(sh.expand_dims(ends, -2), marks)
    last: Tensor = reduce.sum(ar.less(ends, ends[..., -1:]), -1, keepdims=True)  # the last index with a positive weight
    return ar.minimum(reduce.sum(passed, -1), last)


def _refuse_weights(weights: np.ndarray, least: int) -> None:
    if not (weights >= 0).all() or not np.isfinite(weights.astype(np.float64)).all():
        raise ArgumentError("multinomial: weights must be finite and not negative.")
    positive = int((weights > 0).sum(-1).min()) if weights.size else 0
    if positive < least:
        raise ArgumentError(
            f"multinomial: cannot draw {least} different position(s) from a row with {positive} positive weight(s)."
        )


# --- Dropout ----------------------------------------------------------------------------------------------------------


@primitive
def _drop_out(x: Any, key: Any, keep_prob: float, shape: tuple[int, ...]) -> Any:
    mask = _uniform.evaluate(key, shape, np.dtype(np.float32)) < keep_prob
    return np.where(mask, x / x.dtype.type(keep_prob), x.dtype.type(0))


@_drop_out.def_on_gpu
def _(x: Any, key: Any, keep_prob: float, shape: tuple[int, ...]) -> Any:
    if x.shape == shape:
        return philox.drop_elements(x, key, keep_prob)
    mask = ar.less.on_device([philox.uniform(key, shape, np.dtype(np.float32)), keep_prob], {})
    return ar.where.on_device([mask, ar.div.on_device([x, keep_prob], {}), 0.0], {})


@_drop_out.def_bprop
def _(_x: Tensor, key: Tensor, _out: Tensor, dout: Tensor, *, keep_prob: float, shape: Any) -> Grads:
    # Draw the mask again instead of saving it, because the same key gives the same mask.
    return _drop_out.bind(dout, key, keep_prob=keep_prob, shape=shape), None


def dropout(x: Numbers, p: Probability = 0.5, shared_axes: tuple[int, ...] = ()) -> Tensor:
    """Dropout: set each element to 0 with probability p, and divide the others by 1 - p.

    Args:
        p: the probability of dropping an element.
        shared_axes: axes along which elements share one decision: (0,) drops the same ones at all steps of (T, B, N).
    """
    tensor = as_float(x, "dropout")
    keep_prob = 1.0 - probability(p, "dropout", "p")
    if keep_prob == 1.0:
        return snapshot(tensor)
    shared = as_axes(shared_axes, tensor.ndim, "dropout") if shared_axes else ()
    shape = tuple(1 if axis in shared else n for axis, n in enumerate(tensor.shape))
    with on_device_of(tensor):
        result: Tensor = _drop_out.bind(tensor, next_key(), keep_prob=keep_prob, shape=shape)
    return result


def dropout2d(x: Numbers, keep_prob: Probability = 0.5) -> tuple[Tensor, Tensor]:
    """Channel dropout: set whole channels of `x` (N, C, ...) to 0 with probability 1 - keep_prob, and scale the others.

    Returns:
        The result, divided by `keep_prob`, and the boolean mask of the shape of `x`: True where an element was kept.
    """
    keep = probability(keep_prob, "Dropout2D", "keep_prob")
    tensor = as_float(x, "Dropout2D")
    if tensor.ndim < 3:
        raise ShapeError(f"Dropout2D: takes (N, C, ...), but the shape is {tensor.shape}.")
    channels = (*tensor.shape[:2], *(1,) * (tensor.ndim - 2))
    with on_device_of(tensor):
        drawn = _uniform.bind(next_key(), shape=channels, dtype=np.dtype(np.float32))
    mask = sh.broadcast_to(ar.less(drawn, keep), tensor.shape)
    result = ar.where(mask, tensor, 0.0)
    return (result if keep in (0.0, 1.0) else result * (1.0 / keep)), mask  # nothing is left to scale at 0
