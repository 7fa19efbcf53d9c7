"""Random generators of NumPy and Python, which must not be advanced by a trace: what it draws would be constants."""

from __future__ import annotations

import ctypes
import random
import threading
from typing import Any

import numpy as np

from snncell.compiler.python_state import PythonState
from snncell.compiler.reached import NUMPYS, PYTHONS
from snncell.errors import TraceError

_NAMES = {id(NUMPYS): "np.random", id(PYTHONS): "Python's random"}


class RandomStates:
    """The states of random generators before a trace: NumPy's and Python's own, and those that the function reads."""

    def __init__(self, state: PythonState) -> None:
        self.state = state
        of_all = state_of if state.draws else _position_of
        self.before = [(x, of_all, of_all(x)) for x in (NUMPYS, PYTHONS)]
        self.before += [(x, state_of, state_of(x)) for x in state.generators if id(x) not in _NAMES]

    def refuse_draws(self, who: str, every: str = "each call") -> None:
        """Raise if one of them has been advanced since: the numbers would be constants of the trace."""
        for name in sorted(self.state.unseeded):
            raise _drawn(who, f"{name}(), which gets no seed,", every)
        for generator, of, before in self.before:
            if of(generator) == before:
                continue
            shared = id(generator) in _NAMES
            # Another thread, which loads data, may have drawn from the generator that all share.
            if shared and threading.active_count() > 1 and not self.state.draws:
                continue
            name = _NAMES.get(id(generator), f"a {type(generator).__name__}")
            raise _drawn(who, name, every)


def _drawn(who: str, name: str, every: str) -> TraceError:
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
    return ctypes.string_at(bits.ctypes.state_address, 2500) if type(bits) is np.random.MT19937 else state_of(generator)


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
