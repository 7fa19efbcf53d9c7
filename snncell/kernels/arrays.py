"""CPU arrays: a memory pool for large arrays, lookups per row, and calls without floating-point warnings."""

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

# The C library caches the memory of smaller arrays itself. It returns larger blocks to the system each time. The page
# faults of fresh memory then cost as much as filling it.
POOLED_BYTES = 1 << 18


def empty(shape: Sequence[int], dtype: Any) -> Any:
    """A new, uninitialised array; a large array gets memory from the pool, and returns it with its last view."""
    size = math.prod(shape) * dtype.itemsize
    if size < POOLED_BYTES:
        return np.empty(shape, dtype)
    return np.asarray(_Lease(POOL, size)).view(dtype).reshape(shape)


ALIGNMENT = 64  # bytes: a cache line, and a vector register


def allocate_aligned(size: int) -> Any:
    """An array of `size` bytes, aligned to ALIGNMENT."""
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]


class ArrayPool:
    """Memory pool: keep unused blocks of the most recently used sizes, up to `get_context(limit)` bytes."""

    def __init__(self, allocate: Callable[[int], Any] = allocate_aligned, limit: str | None = "pool_limit") -> None:
        self._allocate = allocate
        self._setting = limit
        self.ended = False
        self._begin()
        # At interpreter shutdown, arrays may die after the names of this module, so the pool then keeps nothing.
        atexit.register(self._end)
        after_fork(self._begin)  # in the child, a thread that does not exist there may hold the lock

    def _begin(self) -> None:
        self._free: dict[int, list[Any]] = {}
        self._lock = threading.RLock()  # reentrant, because the garbage collector may call `give` inside of the pool
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
                self._free[size] = self._free.pop(size)  # mark this size as the most recently used
                return block
        return self._allocate(size)

    def give(self, block: Any) -> None:
        """Take back a block, within the limit."""
        if self.ended:
            return
        size, limit = block.size, self._limit()
        with self._lock:
            while self._free and self.held + size > limit:
                self._evict()
            if size <= limit:
                self._free.setdefault(size, []).append(block)
                self.held += size

    def _limit(self) -> float:
        return math.inf if self._setting is None else config.get_context(self._setting)

    def _evict(self) -> None:
        oldest = next(iter(self._free))
        blocks = self._free[oldest]
        if blocks:
            blocks.pop()
            self.held -= oldest
        if not blocks:
            del self._free[oldest]

    def fit(self) -> None:
        """Free blocks until the pool is within its limit."""
        with self._lock:
            while self._free and self.held > self._limit():
                self._evict()

    def clear(self) -> None:
        """Free all blocks."""
        with self._lock:
            self._free.clear()
            self.held = 0


def _round_up_size(size: int) -> int:
    """Round a size up by at most an eighth, so that arrays of similar sizes can share blocks."""
    grain = 1 << max(size.bit_length() - 4, 12)
    return -(-size // grain) * grain


class _Lease:
    """Owns a block on behalf of an array, and returns the block to the pool when the array dies."""

    __slots__ = ("__array_interface__", "_block", "_pool")

    def __init__(self, pool: ArrayPool, size: int) -> None:
        self._pool = pool
        self._block = pool.take(size)
        start = self._block.ctypes.data
        self.__array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (start, False), "version": 3}

    def __del__(self) -> None:
        block = getattr(self, "_block", None)
        if block is not None:  # None if the allocation failed
            self._pool.give(block)


POOL = ArrayPool()
config.LISTENERS.append(POOL.fit)


def empty_pool() -> None:
    """Return the memory of freed arrays to the system."""
    POOL.clear()


def quiet_runner() -> Callable[..., Any]:
    """Make `run(function, *args, **kwargs)`, a call without NumPy's warnings, for one thread and without nesting."""
    # NumPy keeps its error state in a context variable. Running in a prepared context, which can be entered only once
    # at a time, costs a twentieth of a microsecond; entering `np.errstate` costs as much as a small operation.
    context = contextvars.copy_context()
    context.run(np.seterr, all="ignore")
    return context.run


# --- Lookups with different indices for each row ----------------------------------------------------------------------

# Each row is (A, n, B), with indices (I) into axis `axis` of length n; A, I and B stand for any axes.


def take_from_rows(x: Any, indices: Any, axis: int) -> Any:
    """Take the elements at each row's indices: x (rows, A, n, B), indices (rows, I) -> (rows, A, I, B)."""
    inner = range(1, indices.ndim)
    taken = np.moveaxis(x, axis + 1, 1)[_row_numbers(indices), indices]  # (rows, I, A, B)
    return np.moveaxis(taken, inner, [n + axis for n in inner])


def add_to_rows(x: Any, indices: Any, axis: int, shape: tuple[int, ...]) -> Any:
    """Add elements to zeros (rows, *shape) at each row's indices: x (rows, A, I, B), indices (rows, I)."""
    inner = range(1, indices.ndim)
    out = np.zeros((len(x), *shape), x.dtype)
    terms = np.moveaxis(x, [n + axis for n in inner], inner)
    np.add.at(np.moveaxis(out, axis + 1, 1), (_row_numbers(indices), indices), terms)
    return out


def _row_numbers(indices: Any) -> Any:
    return np.arange(len(indices)).reshape(len(indices), *(1,) * (indices.ndim - 1))
