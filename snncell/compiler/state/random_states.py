"""Detection of random draws during a trace.

A trace runs Python code once, so a number that NumPy, Python or PyTorch draws in it would be a constant of the compiled
function. `RandomStates` compares the states of the generators before and after the trace and raises an error.
"""

from __future__ import annotations

import ctypes
import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from snncell.base.forks import after_fork
from snncell.compiler.state.python_state import PythonState
from snncell.compiler.state.reach import NUMPYS, PYTHONS
from snncell.errors import TraceError

_NAMES = {id(NUMPYS): "np.random", id(PYTHONS): "Python's random"}
_PATIENCE = 2.0  # seconds that a trace waits for each thread that loads data to end the sample it is at
_LOOK = 0.005  # seconds in which a thread that draws all the time is noticed

# For each thread that loads data, by its identifier, the lock that it holds while it runs the user's transforms.
LOADING: dict[int, Any] = {}
after_fork(LOADING.clear)  # a child has none of these threads


@contextmanager
def pause_loading() -> Iterator[bool]:
    """Pause the threads that load data, which may draw from the generators that all threads share.

    Yields True if all of them pause. A thread that loads data itself pauses no other one, because two of them could
    wait for each other.
    """
    loads = threading.get_ident() in LOADING
    # A trace within a trace finds the locks owned, and leaves them to the outer one.
    locks = [] if loads else [lock for lock in list(LOADING.values()) if not lock._is_owned()]
    try:
        yield all(lock.acquire(timeout=_PATIENCE) for lock in locks) and not loads
    finally:  # by ownership, because Ctrl-C may come directly after an acquisition
        for lock in locks:
            if lock._is_owned():
                lock.release()


class RandomStates:
    """The states of random generators before a trace: NumPy's and Python's own, and those that the function reads."""

    def __init__(self, state: PythonState, alone: bool) -> None:
        self.state = state
        self.alone = alone  # whether no thread that loads data runs meanwhile
        of_all = state_of if state.draws else _position_of
        self.before = [(x, of_all, of_all(x)) for x in (NUMPYS, PYTHONS)]
        self.before += [(x, state_of, state_of(x)) for x in state.generators if id(x) not in _NAMES]
        if (torch := sys.modules.get("torch")) is not None and hasattr(torch, "default_generator"):
            self.before.append((torch.default_generator, _of_torch, _of_torch(torch.default_generator)))

    def refuse_draws(self, who: str, every: str = "each call") -> None:
        """Raise if one of them has been advanced since: the numbers would be constants of the trace."""
        for name in sorted(self.state.unseeded):
            raise _draw_error(who, f"{name}(), which gets no seed,", every)
        for generator, of, before in self.before:
            if of(generator) == before:
                continue
            named = id(generator) in _NAMES and self.state.draws  # by the code of the function itself
            shared = id(generator) in _NAMES or of is _of_torch
            if shared and not named and self._drawn_by_others(generator, of):
                continue
            name = _NAMES.get(id(generator), f"a {type(generator).__name__}")
            raise _draw_error(who, "PyTorch's random numbers" if of is _of_torch else name, every)

    def _drawn_by_others(self, generator: Any, of: Any) -> bool:
        """True if another thread may have drawn: one that loads data, or one that goes on drawing now."""
        if not self.alone or threading.active_count() == 1:
            return not self.alone
        present = of(generator)
        time.sleep(_LOOK)
        return bool(of(generator) != present)


def _draw_error(who: str, name: str, every: str) -> TraceError:
    return TraceError(
        f"{who}: draws from {name} while it is traced. That happens once, so {every} would have the same numbers. Draw "
        f"with ops.normal(x.shape, 0.0, 1.0) or ops.uniform(x.shape), which give new numbers each time; or pass the "
        f"noise as an argument."
    )


def _position_of(generator: Any) -> Any:
    """The position of NumPy's or Python's own generator: it changes by a draw, and takes 10 us, not 200, to read."""
    if generator is PYTHONS:
        _, words, following = generator.getstate()
        return words[0], words[-1], following
    bits = generator._bit_generator
    if type(bits) is not np.random.MT19937:
        return state_of(generator)
    # The fields of the object after its reference count: one of them is a normal number that is kept for the next draw.
    fields, header = type(generator).__basicsize__, object.__basicsize__
    kept = ctypes.string_at(id(generator) + header, fields - header)
    return ctypes.string_at(bits.ctypes.state_address, 2500) + kept


def _of_torch(generator: Any) -> Any:
    return bytes(generator.get_state().numpy())


def state_of(generator: Any) -> Any:
    """The state of a random generator, as values that can be compared."""
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, np.random.RandomState):
        return _frozen(generator.get_state(legacy=False))
    return _frozen(generator.state if isinstance(generator, np.random.BitGenerator) else generator.bit_generator.state)


def _frozen(state: Any) -> Any:
    if isinstance(state, dict):
        return tuple((key, _frozen(value)) for key, value in state.items())
    return state.tobytes() if isinstance(state, np.ndarray) else state
