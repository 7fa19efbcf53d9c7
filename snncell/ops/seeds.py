"""Random state: the seed of a thread's random numbers, and the key of its next draw.

The key, seed and number of the call, is a Parameter without a gradient, so a jitted function draws new numbers each
time it runs: advancing it is one of the Program's effects. It follows the draws to the GPU and back. Its value belongs
to a thread, so that the draws of one thread do not depend on the timing of another one.
"""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Annotated, Any

import numpy as np

from snncell.base.arguments.kinds import Own
from snncell.base.signals import Restoring, Write, undoing
from snncell.errors import ArgumentError
from snncell.kernels.cuda import philox
from snncell.kernels.space import HOST, IN_USE, move_to_space
from snncell.ops.base import as_int, primitive
from snncell.tape.parameter import Parameter, assign_all
from snncell.tape.state import RECORDING, TRACING, here, in_turn
from snncell.tape.tensor import Tensor

__all__ = ["get_seed", "set_seed"]


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
_CALL = np.array([0, 1])


def set_seed(seed: Annotated[int, Own()], calls: Annotated[int, Own()] = 0) -> None:
    """Begin the sequence of random numbers that belongs to `seed`, on this thread.

    Each thread has a sequence of its own, so its numbers do not depend on what other threads draw meanwhile. One that
    has not called `set_seed` draws from a sequence made of the main thread's last seed (of chance, if it has set none)
    and of how many threads have begun to draw since then: where several do at once, let each call `set_seed`.

    Args:
        seed: an integer in [0, 2^63).
        calls: go on after so many draws.

    Raises:
        ArgumentError: for other numbers.
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
    """The key of this thread, and the value that `set_seed` gives it, to be assigned with others.

    Raises:
        ArgumentError: for numbers that no sequence has.
    """
    in_turn()
    number, drawn = as_int(seed, "set_seed", "seed"), as_int(calls, "set_seed", "calls")
    if not 0 <= number < 2**63:
        raise ArgumentError(f"set_seed: the seed lies in [0, 2^63), not {number}.")
    if not 0 <= drawn < 2**63:
        raise ArgumentError(f"set_seed: calls lies in [0, 2^63), not {drawn}.")
    return _state, Tensor([number, drawn])


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
    return key + _CALL


@_following.def_there
def _(key: Any) -> Any:
    return philox.following(key)


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
