"""CPU arrays: memory for large ones, lookups that differ from row to row, and evaluating without warnings."""

from __future__ import annotations

import atexit
import contextvars
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from snncell.base import config
from snncell.base.signals import after_fork

# Smaller arrays are left to the C library, which keeps their memory too; larger ones it gives back to the system each
# time, and a page that comes anew costs as much as filling it.
POOLED_BYTES = 1 << 18


def empty(shape: Sequence[int], dtype: Any) -> Any:
    """A new array that is not filled; if it is large, of memory from the pool, to which its last view gives it back."""
    size = math.prod(shape) * dtype.itemsize
    if size < POOLED_BYTES:
        return np.empty(shape, dtype)
    return np.asarray(_Lease(POOL, size)).view(dtype).reshape(shape)


ALIGNMENT = 64  # bytes: a cache line, and a vector register


def allocate_aligned(size: int) -> Any:
    """An array of `size` bytes that begins at a multiple of ALIGNMENT."""
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]


class ArrayPool:
    """Memory that nothing uses at present: blocks by their size.

    At most `snncell.get_context(limit)` bytes are kept, those of the last sizes; `clear` lets go of all. New blocks are
    given by `allocate(bytes)`, and have an attribute `size`.
    """

    def __init__(self, allocate: Callable[[int], Any] = allocate_aligned, limit: str | None = "pool_limit") -> None:
        self._allocate = allocate
        self._setting = limit
        self.ended = False
        self._begin()
        # Arrays may die when the interpreter ends and the names of this module are gone: nothing is kept from then on.
        atexit.register(self._end)
        after_fork(self._begin)  # the lock may be held by a thread that the child does not have

    def _begin(self) -> None:
        self._free: dict[int, list[Any]] = {}
        self._lock = threading.RLock()  # a lease may end while this thread is in here, if the collector runs
        self.held = 0

    def _end(self) -> None:
        self.ended = True
        self.clear()

    def take(self, size: int) -> Any:
        """A block of at least `size` bytes."""
        size = _round_up_size(size)
        with self._lock:
            blocks = self._free.get(size)
            if blocks:
                block = blocks.pop()
                self.held -= size
                self._free[size] = self._free.pop(size)  # the last that was asked for
                return block
        return self._allocate(size)

    def give(self, block: Any) -> None:
        """Keep a block for later, within the limit."""
        if self.ended:
            return
        size, limit = block.size, self._limit()
        with self._lock:
            while self._free and self.held + size > limit:
                self._let_go()
            if size <= limit:
                self._free.setdefault(size, []).append(block)
                self.held += size

    def _limit(self) -> float:
        return math.inf if self._setting is None else config.get_context(self._setting)

    def _let_go(self) -> None:
        """Free a block of the size that was asked for the longest ago."""
        oldest = next(iter(self._free))
        blocks = self._free[oldest]
        if blocks:
            blocks.pop()
            self.held -= oldest
        if not blocks:
            del self._free[oldest]

    def fit(self) -> None:
        """Free what is beyond the limit."""
        with self._lock:
            while self._free and self.held > self._limit():
                self._let_go()

    def clear(self) -> None:
        """Let go of all blocks."""
        with self._lock:
            self._free.clear()
            self.held = 0


def _round_up_size(size: int) -> int:
    """`size` rounded up by at most an eighth, so that arrays of nearly equal sizes share blocks."""
    grain = 1 << max(size.bit_length() - 4, 12)
    return -(-size // grain) * grain


class _Lease:
    """The right of an array to its block. The array refers to it; when it goes, the block goes back."""

    __slots__ = ("__array_interface__", "_block", "_pool")

    def __init__(self, pool: ArrayPool, size: int) -> None:
        self._pool = pool
        self._block = pool.take(size)
        start = self._block.ctypes.data
        self.__array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (start, False), "version": 3}

    def __del__(self) -> None:
        block = getattr(self, "_block", None)
        if block is not None:  # there was no memory for it
            self._pool.give(block)


POOL = ArrayPool()
config.LISTENERS.append(POOL.fit)


def empty_pool() -> None:
    """Give the memory that freed arrays have left behind back to the system."""
    POOL.clear()


def quiet_runner() -> Callable[..., Any]:
    """`run(function, *args, **kwargs)` calls it with NumPy's floating-point warnings off: inf and NaN are values here.

    Each thread needs a runner of its own, and what it runs must not call it again: a context is entered once at a time.
    """
    # NumPy keeps its error state in a context variable. Running in a context that was prepared once costs a twentieth
    # of a microsecond; entering `np.errstate` costs one, as much as a small operation.
    context = contextvars.copy_context()
    context.run(np.seterr, all="ignore")
    return context.run


# --- Lookups by integers that differ from row to row of what they look into -------------------------------------------

# Each row is (A, n, B), with positions (I) along n, its axis `axis`; A, I and B stand for any axes.


def take_from_rows(x: Any, indices: Any, axis: int) -> Any:
    """The elements at each row's positions: x (rows, A, n, B), indices (rows, I) -> (rows, A, I, B)."""
    inner = range(1, indices.ndim)
    taken = np.moveaxis(x, axis + 1, 1)[_row_numbers(indices), indices]  # (rows, I, A, B)
    return np.moveaxis(taken, inner, [n + axis for n in inner])


def add_to_rows(x: Any, indices: Any, axis: int, shape: tuple[int, ...]) -> Any:
    """Zeros (rows, *shape) with each row's elements added at its positions: x (rows, A, I, B), indices (rows, I)."""
    inner = range(1, indices.ndim)
    out = np.zeros((len(x), *shape), x.dtype)
    terms = np.moveaxis(x, [n + axis for n in inner], inner)
    np.add.at(np.moveaxis(out, axis + 1, 1), (_row_numbers(indices), indices), terms)
    return out


def _row_numbers(indices: Any) -> Any:
    return np.arange(len(indices)).reshape(len(indices), *(1,) * (indices.ndim - 1))
