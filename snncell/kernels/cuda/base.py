"""The common part of a card and its simulator: blocks of memory from a pool, and the list of what they can do."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from snncell.base.signals import after_fork
from snncell.errors import DeviceMemoryError
from snncell.kernels.arrays import ArrayPool
from snncell.kernels.cuda.blocks import (
    MemoryBlock as MemoryBlock,
    NotRecordable as NotRecordable,
    OutOfMemory as OutOfMemory,
    readable,
)
from snncell.kernels.cuda.recording import GraphRecorder

Place: TypeAlias = tuple[MemoryBlock, int]  # a block, and how many bytes behind its start


class Matrix(NamedTuple):
    """A matrix, or a batch of them, as an operand of `Runtime.matmul`."""

    block: MemoryBlock  # the memory it lies in, by rows
    offset: int  # bytes before its first element
    leading: int  # elements from the start of one row, as it is stored, to the start of the next
    stride: int = 0  # elements from one matrix of the batch to the next; 0 where all are the same one
    turned: bool = False  # whether what is stored is its transpose


class Runtime(GraphRecorder):
    """A device: its memory, its one stream (whatever is asked for happens in that order), and its libraries."""

    name: str  # what it calls itself
    capability: tuple[int, int]  # its compute capability, (8, 0) for instance
    stream: int | None = None  # the number by which other libraries know the stream; None where there is none
    lost = False  # whether this is a forked child, which cannot use the device of its parent

    def __init__(self) -> None:
        super().__init__()
        self._total = 0
        self._unsettled: list[Any] = []  # memory that was let go of while something was recorded
        self._counting = threading.RLock()  # a block may die, and be counted, while this thread counts another
        after_fork(self._in_child)  # before the pool does so: it drops its blocks in the child
        self._pool = ArrayPool(self._counted, limit=None)

    def _in_child(self) -> None:
        self._counting = threading.RLock()  # a thread that the child does not have may have held it
        self._begin_recordings()

    # --- memory ---

    def enter(self) -> None:
        """Make the device that of the calling thread."""

    def allocate(self, size: int) -> MemoryBlock:
        """A block of at least `size` bytes, not filled, if there is room when the pool has been emptied."""
        size = max(size, 1)
        try:
            return self._take(size)
        except OutOfMemory:
            held = self.held
        self.empty_pool()
        try:
            return self._take(size)
        except OutOfMemory:
            raise self._no_room(size, held) from None

    def _take(self, size: int) -> MemoryBlock:
        pool = getattr(self._local, "arena", None) or self._pool
        block: MemoryBlock = pool.take(size)
        block.pool = pool
        return block

    def release(self, block: MemoryBlock) -> None:
        """Take back a block that nothing uses any more; what it was given for is done before its next use begins."""
        if block.pool is not None:
            block.pool.give(block)

    def empty_pool(self) -> None:
        """Give the memory of released blocks back to the device."""
        self._pool.clear()

    @property
    def held(self) -> int:
        """The bytes of released blocks that are kept for later."""
        return self._pool.held

    @property
    def live(self) -> int:
        """The bytes of blocks that are in use."""
        return self._total - self._pool.held

    def _counted(self, size: int) -> MemoryBlock:
        """A new block, for the pool."""
        pointer, memory = self._new(size)
        with self._counting:
            self._total += size
        return MemoryBlock(pointer, size, self._freed, memory)

    def _freed(self, block: MemoryBlock) -> None:
        if self._pool.ended:  # so does the process, and with it all it has on the device
            return
        with self._counting:
            self._total -= block.size
        self._free(block.pointer)

    def _no_room(self, size: int, held: int) -> DeviceMemoryError:
        free, total = self._memory()
        return DeviceMemoryError(
            f"No memory on {self.name} for an array of {readable(size)}: live arrays hold {readable(self.live)}, and "
            f"freed ones held {readable(held)}, which was given back first; of the card's {readable(total)} "
            f"{readable(free)} are free. Use a smaller batch or fewer time steps, store the state less often "
            f"(checkpoint_every), or let go of Tensors that are no longer needed."
        )

    def _new(self, size: int) -> tuple[int, Any]:
        """The address of new memory, and itself where the host can see it. Raises OutOfMemory."""
        raise NotImplementedError

    def _free(self, pointer: int) -> None:
        raise NotImplementedError

    def _memory(self) -> tuple[int, int]:
        """The bytes that the device has free, and in all."""
        raise NotImplementedError

    # --- what other libraries share ---

    def settle(self, memory: Any, everywhere: bool = False) -> None:
        """Wait until nothing that was asked for uses shared memory; with `everywhere`, nothing on any stream."""
        if self.recording:
            self._unsettled.append(memory)  # nobody may wait now
        elif not (self.lost or self._pool.ended):
            (self._wait_for_all if everywhere else self.synchronize)()

    def _let_go(self) -> None:
        memory, self._unsettled = self._unsettled, []  # it dies when this returns
        if memory and not (self.lost or self._pool.ended):
            self._wait_for_all()

    def _wait_for_all(self) -> None:
        self.synchronize()

    # --- copies ---

    def upload(self, array: Any, block: MemoryBlock, offset: int = 0) -> None:
        """Copy a C-contiguous NumPy array to the device. It may be changed as soon as this returns."""
        raise NotImplementedError

    def download(self, block: MemoryBlock, offset: int, array: Any) -> None:
        """Copy from the device to a C-contiguous NumPy array, and wait until it is there."""
        raise NotImplementedError

    def copy(self, source: MemoryBlock, source_offset: int, target: MemoryBlock, target_offset: int, size: int) -> None:
        """Copy `size` bytes on the device, between places that do not overlap."""
        raise NotImplementedError

    def clear(self, block: MemoryBlock, offset: int, size: int) -> None:
        """Fill `size` bytes with zeros."""
        raise NotImplementedError

    def synchronize(self) -> None:
        """Wait until all that was asked for is done."""
        raise NotImplementedError

    def wait_for(self, stream: int | None) -> None:
        """Wait until all is done that another library has put on its stream, given by number; None is none."""
        raise NotImplementedError

    # --- kernels and libraries ---

    def load(self, cubin: bytes, name: str) -> Any:
        """The kernel `name` of a cubin, for `launch`."""
        raise NotImplementedError

    def launch(self, kernel: Any, grid: int, threads: int, arguments: Sequence[Any], shared: int = 0) -> None:
        """Run a kernel on `grid` blocks of `threads` threads; a grid of 0 runs nothing.

        Args:
            kernel: from `build`.
            arguments: (Block, offset in bytes, NumPy's dtype) for arrays, Python's int for int64, NumPy's scalars for
                all other numbers.
            shared: bytes of shared memory for arrays whose size the kernel does not say; 48 KiB at most.
        """
        raise NotImplementedError

    def matmul(
        self,
        out: Matrix,
        a: Matrix,
        b: Matrix,
        sizes: tuple[int, int, int],
        *,
        dtype: Any,
        batch: int = 1,
        tf32: bool = False,
        accumulate: bool = False,
    ) -> None:
        """`out = a @ b` for matrices (m, n) = (m, k) @ (k, n), or for a batch of them.

        Args:
            out: not turned.
            sizes: (m, n, k).
            dtype: of all three: float16 and bfloat16 (added up in float32), float32, float64, complex64 or complex128.
            tf32: whether float32 may be multiplied with 10 bits after the point, which is faster.
            accumulate: add to `out` instead of replacing it.
        """
        raise NotImplementedError

    def fft(
        self,
        kind: str,
        source: Place,
        target: Place,
        length: int,
        batch: int,
        *,
        double: bool = False,
        inverse: bool = False,
    ) -> None:
        """Fourier transforms along the last axis of contiguous arrays, (batch, ...); neither way divides by the length.

        Args:
            kind: "c2c", "r2c" ((batch, length) to (batch, length // 2 + 1)) or "c2r" (the reverse of it). Of what c2r
                reads, the imaginary part of the first element, and for even lengths of the last, must be 0.
            length: of the transform, 1 or more.
            double: whether in double precision.
            inverse: the sign of the exponent of c2c.
        """
        raise NotImplementedError


def as_bytes(array: Any) -> Any:
    """The bytes of a C-contiguous NumPy array, not copied."""
    return array.reshape(-1, copy=False).view(np.uint8)
