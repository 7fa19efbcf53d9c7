"""The interface of a CUDA device, shared by a card and its simulator: pooled memory, recordings, copies, launches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from snncell.base.signals import after_fork
from snncell.errors import DeviceError, DeviceMemoryError
from snncell.kernels.arrays import ArrayPool


class MemoryBlock:
    """Device memory, freed with its last reference, unless `Runtime.release` has put it into the pool."""

    __slots__ = ("_free", "bytes", "owner", "pointer", "pool", "size")

    def __init__(self, pointer: int, size: int, free: Any = None, bytes: Any = None, owner: Any = None) -> None:
        self.pointer = pointer
        self.size = size  # in bytes; may be more than was requested
        self.bytes = bytes  # in the simulator, the memory itself as a NumPy array
        self.owner = owner  # keeps another library's memory alive
        self.pool: Any = None  # the pool that takes it back
        self._free = free  # a function that is called with the block when it dies; None for another library's memory

    def __del__(self) -> None:
        if self._free is not None:
            self._free(self)


Place: TypeAlias = tuple[MemoryBlock, int]  # a block, and an offset in bytes
ProductSizes: TypeAlias = tuple[int, int, int]  # m, n and k of (m, n) = (m, k) @ (k, n)


class Matrix(NamedTuple):
    """A matrix, or a batch of matrices, as an operand of `Runtime.matmul`."""

    block: MemoryBlock  # its memory, in row-major order
    offset: int  # bytes before its first element
    leading: int  # the leading dimension: elements from the start of one stored row to the next
    stride: int = 0  # elements from one matrix of the batch to the next; 0 if all are the same
    turned: bool = False  # True if the memory has its transpose


class NotRecordable(DeviceError):  # noqa: N818 - it is a refusal, not a failure
    """An operation that cannot be part of a recording."""


class OutOfMemory(DeviceMemoryError):  # noqa: N818 - the driver's name
    """The device has no memory of the requested size; `allocate` then empties the pool and tries again."""


class Arena:
    """The memory blocks of one recording, which keep their addresses as long as the recording lives."""

    def __init__(self, allocate: Callable[[int], MemoryBlock]) -> None:
        self._allocate = allocate
        self._free: dict[int, list[MemoryBlock]] = {}

    def take(self, size: int) -> MemoryBlock:
        """A block of at least `size` bytes."""
        blocks = self._free.get(size)
        return blocks.pop() if blocks else self._allocate(size)

    def give(self, block: MemoryBlock) -> None:
        """Take back a block, so that this recording can use it again."""
        block.pool = None  # avoids a reference cycle between the block and the arena
        self._free.setdefault(block.size, []).append(block)


class Runtime:
    """A device: memory, libraries, and one stream, which runs operations in order, or stores them during `record`."""

    name: str  # the device's name
    capability: tuple[int, int]  # its compute capability, for example (8, 0)
    stream: int | None = None  # the handle of the stream for other libraries; None in the simulator
    lost = False  # True in a forked child, which cannot use its parent's device
    recorded = False  # True once a recording has been made

    def __init__(self) -> None:
        self._local = threading.local()  # the arena of each thread that has one
        self._threads: set[int] = set()  # threads that have used the device
        self._total = 0
        self._unsettled: list[Any] = []  # shared memory that was released during a recording
        self._begin()
        after_fork(self._in_child)  # registered before the pool's handler, which drops the pool's blocks in the child
        self._pool = ArrayPool(self._new_block, limit=None)

    def _begin(self) -> None:
        self._recording = threading.RLock()  # held while anything is put on the stream, and during a recording
        self._recorder: int | None = None
        self._counting = threading.RLock()  # reentrant: a block may die while this thread counts another one

    def _in_child(self) -> None:
        self._begin()  # a thread that does not exist in the child may have held the locks

    # --- memory ---

    def enter(self) -> None:
        """Make the device current in the calling thread."""

    def allocate(self, size: int) -> MemoryBlock:
        """Allocate at least `size` uninitialised bytes; empty the pool and try again if the device has no room."""
        size = max(size, 1)
        try:
            return self._take(size)
        except OutOfMemory:
            held = self.held
        self.empty_pool()
        try:
            return self._take(size)
        except OutOfMemory:
            raise self._memory_error(size, held) from None

    def _take(self, size: int) -> MemoryBlock:
        pool = getattr(self._local, "arena", None) or self._pool
        block: MemoryBlock = pool.take(size)
        block.pool = pool
        return block

    def release(self, block: MemoryBlock) -> None:
        """Take back an unused block. Pending work on it ends before its next use, because both use the one stream."""
        if block.pool is not None:
            block.pool.give(block)

    def empty_pool(self) -> None:
        """Return the memory of released blocks to the device."""
        self._pool.clear()

    @property
    def held(self) -> int:
        """The bytes of released blocks that the pool keeps."""
        return self._pool.held

    @property
    def live(self) -> int:
        """The bytes of blocks in use."""
        return self._total - self._pool.held

    def _new_block(self, size: int) -> MemoryBlock:
        pointer, memory = self._new(size)
        with self._counting:
            self._total += size
        return MemoryBlock(pointer, size, self._free_block, memory)

    def _free_block(self, block: MemoryBlock) -> None:
        if self._pool.ended:  # the process is ending, which frees all of its device memory
            return
        with self._counting:
            self._total -= block.size
        self._free(block.pointer)

    def _memory_error(self, size: int, held: int) -> DeviceMemoryError:
        free, total = self._memory()
        return DeviceMemoryError(
            f"Out of memory on {self.name}: there is no room for an array of {readable(size)}. Live arrays hold "
            f"{readable(self.live)}. Freed arrays held {readable(held)}, which snncell has returned to the card first. "
            f"Of the card's {readable(total)}, {readable(free)} are free. Use a smaller batch or fewer time steps, "
            f"store the state less often (checkpoint_every), or delete Tensors that you no longer need."
        )

    def _new(self, size: int) -> tuple[int, Any]:
        """Allocate memory; return its address, and in the simulator the array itself. Raises OutOfMemory."""
        raise NotImplementedError

    def _free(self, pointer: int) -> None:
        raise NotImplementedError

    def _memory(self) -> tuple[int, int]:
        raise NotImplementedError

    # --- recordings: device operations that are run together, as a CUDA graph ---

    def new_arena(self) -> Arena:
        """An arena for a recording; it cannot grow while the recording is made."""
        return Arena(self._new_outside_of_recordings)

    def _new_outside_of_recordings(self, size: int) -> MemoryBlock:
        self._refuse_to_record("it needs new memory each time")
        return self._new_block(size)

    @contextmanager
    def allocating_from(self, arena: Arena) -> Iterator[None]:
        """Context manager: let this thread allocate from `arena`, and release to it."""
        self._local.arena = arena
        try:
            yield
        finally:
            self._local.arena = None

    @property
    def recording(self) -> bool:
        """True if this thread's operations are recorded instead of run."""
        return self._recorder == threading.get_ident()

    def record(self, run: Callable[[], None]) -> Any:
        """Record the operations of `run` for `play`; raises NotRecordable if one needs the host or new memory."""
        with self._recording:
            self._recorder = threading.get_ident()
            self.recorded = True
            try:
                return self._capture(run)
            finally:
                self._recorder = None
                memory, self._unsettled = self._unsettled, []
                if memory and not (self.lost or self._pool.ended):
                    self._wait_for_all()
                del memory  # freed after the wait, while the lock is still held

    def play(self, recording: Any) -> None:
        """Run a recording."""
        raise NotImplementedError

    def _capture(self, run: Callable[[], None]) -> Any:
        raise NotImplementedError

    def _refuse_to_record(self, what: str) -> None:
        if self.recording:
            raise NotRecordable(what)

    def in_order(self) -> AbstractContextManager[Any]:
        """Context manager: lock the stream, so that the recording of another thread gets no operations of the body."""
        return self._recording

    # --- memory that threads and other libraries share ---

    @property
    def shared(self) -> bool:
        """True if more than one thread has used the device."""
        return len(self._threads) > 1

    def settle(self, memory: Any, everywhere: bool = False) -> None:
        """Wait until no pending operation uses shared memory; with `everywhere`, on all streams of the device."""
        if self.recording:
            self._unsettled.append(memory)  # waiting is not allowed during a recording
        elif not (self.lost or self._pool.ended):
            (self._wait_for_all if everywhere else self.synchronize)()

    def _wait_for_all(self) -> None:
        self.synchronize()

    # --- copies ---

    def upload(self, array: Any, block: MemoryBlock, offset: int = 0) -> None:
        """Copy a C-contiguous NumPy array to the device. You may change the array as soon as this returns."""
        raise NotImplementedError

    def download(self, block: MemoryBlock, offset: int, array: Any) -> None:
        """Copy from the device to a C-contiguous NumPy array, and wait for the result."""
        raise NotImplementedError

    def copy(self, source: MemoryBlock, source_offset: int, target: MemoryBlock, target_offset: int, size: int) -> None:
        """Copy `size` bytes on the device; the two places do not overlap."""
        raise NotImplementedError

    def clear(self, block: MemoryBlock, offset: int, size: int) -> None:
        """Fill `size` bytes with zeros."""
        raise NotImplementedError

    def synchronize(self) -> None:
        """Wait until all operations are done."""
        raise NotImplementedError

    def wait_for(self, stream: int | None) -> None:
        """Wait until the work on another library's stream, given by its handle, is done; None does nothing."""
        raise NotImplementedError

    # --- kernels and libraries ---

    def load(self, cubin: bytes, name: str) -> Any:
        """Load the kernel `name` of a cubin, for `launch`."""
        raise NotImplementedError

    def launch(self, kernel: Any, grid: int, threads: int, arguments: Sequence[Any], shared: int = 0) -> None:
        """Launch a kernel of `build` on `grid` blocks of `threads` threads; a grid of 0 runs nothing.
        `arguments` has (MemoryBlock, offset in bytes, NumPy dtype) for arrays, Python ints for int64, and NumPy scalars
        for all other numbers. `shared` is the size of dynamic shared memory in bytes, at most 48 KiB.
        """
        raise NotImplementedError

    def matmul(self, out: Matrix, a: Matrix, b: Matrix, sizes: ProductSizes, dtype: Any, batch: int = 1) -> None:
        """`out = a @ b` for matrices, or batches of them, of `sizes` (m, n, k); `out` is never `turned`. All have one
        `dtype`: float16 or bfloat16 (with sums in float32), float32, float64, complex64 or complex128.
        """
        raise NotImplementedError

    def fft(
        self, kind: str, source: Place, target: Place, length: int, batch: int, double: bool, inverse: bool
    ) -> None:
        """Unnormalised Fourier transforms of `batch` rows. `kind` is "c2c", with `inverse` for the sign of the
        exponent; "r2c", from (batch, length) to (batch, length // 2 + 1); or its inverse "c2r". The input of
        "c2r" must have imaginary part 0 in its first element, and for even lengths in its last element.
        """
        raise NotImplementedError


def as_bytes(array: Any) -> Any:
    """A byte view of a C-contiguous NumPy array."""
    return array.reshape(-1, copy=False).view(np.uint8)


def readable(size: int) -> str:
    """Format a number of bytes with a unit."""
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << power:
            return f"{size / (1 << power):.1f} {unit}"
    return f"{size} bytes"
