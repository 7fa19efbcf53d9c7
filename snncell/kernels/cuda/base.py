"""The common part of a CUDA card and its simulator: memory from a pool, recordings, and what they can do."""

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
    """Memory on the device, freed when nothing refers to it; `Runtime.release` keeps it for another use instead."""

    __slots__ = ("_free", "bytes", "owner", "pointer", "pool", "size")

    def __init__(
        self,
        pointer: int,
        size: int,
        free: Callable[[MemoryBlock], None] | None = None,
        bytes: Any = None,
        owner: Any = None,
    ) -> None:
        self.pointer = pointer
        self.size = size  # in bytes, of which there may be more than were asked for
        self.bytes = bytes  # the memory itself, as NumPy's array, in the simulator
        self.owner = owner  # what keeps somebody else's memory alive
        self.pool: Any = None  # where it goes back to
        self._free = free  # called with the block when it dies; None for memory that somebody else owns

    def __del__(self) -> None:
        if self._free is not None:
            self._free(self)


Place: TypeAlias = tuple[MemoryBlock, int]  # a block, and how many bytes after its start


class Matrix(NamedTuple):
    """A matrix, or a batch of them, as an operand of `Runtime.matmul`."""

    block: MemoryBlock  # the memory it lies in, by rows
    offset: int  # bytes before its first element
    leading: int  # elements from the start of one row, as it is stored, to the start of the next
    stride: int = 0  # elements from one matrix of the batch to the next; 0 where all are the same one
    turned: bool = False  # whether what is stored is its transpose


class NotRecordable(DeviceError):  # noqa: N818 - what is raised is a refusal
    """Something that cannot be part of a recording."""


class OutOfMemory(DeviceMemoryError):  # noqa: N818 - the driver's name
    """The device has no memory of that size: what `allocate` answers by emptying the pool."""


class Arena:
    """The memory blocks of one recording: they stay where they are as long as it lives."""

    def __init__(self, allocate: Callable[[int], MemoryBlock]) -> None:
        self._allocate = allocate
        self._free: dict[int, list[MemoryBlock]] = {}

    def take(self, size: int) -> MemoryBlock:
        """A block of at least `size` bytes."""
        blocks = self._free.get(size)
        return blocks.pop() if blocks else self._allocate(size)

    def give(self, block: MemoryBlock) -> None:
        """Keep a block for this recording's next use."""
        block.pool = None  # while it lies here: it and the arena would keep each other
        self._free.setdefault(block.size, []).append(block)


class Runtime:
    """A device: its memory, its one stream (whatever is asked for happens in that order), and its libraries.

    While a thread records (`record`), the device notes what that thread asks for instead of doing it.
    """

    name: str  # what it calls itself
    capability: tuple[int, int]  # its compute capability, (8, 0) for instance
    stream: int | None = None  # the number by which other libraries know the stream; None where there is none
    lost = False  # whether this is a forked child, which cannot use the device of its parent
    recorded = False  # whether there ever was a recording

    def __init__(self) -> None:
        self._local = threading.local()  # the arena of each thread that has one
        self._threads: set[int] = set()  # that have used the device
        self._total = 0
        self._unsettled: list[Any] = []  # memory that was let go of while something was recorded
        self._begin()
        after_fork(self._in_child)  # before the pool does so: it drops its blocks in the child
        self._pool = ArrayPool(self._counted, limit=None)

    def _begin(self) -> None:
        self._recording = threading.RLock()  # held around whatever is put on the stream, and around a recording
        self._recorder: int | None = None
        self._counting = threading.RLock()  # a block may die, and be counted, while this thread counts another

    def _in_child(self) -> None:
        self._begin()  # a thread that the child does not have may have held the locks

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

    # --- recordings of what the device is asked for, to be played as one: CUDA graphs ---

    def new_arena(self) -> Arena:
        """Memory for a recording: while it is made, there must be enough in it."""
        return Arena(self._new_outside_of_recordings)

    def _new_outside_of_recordings(self, size: int) -> MemoryBlock:
        self._refuse_to_record("it needs new memory each time")
        return self._counted(size)

    @contextmanager
    def allocating_from(self, arena: Arena) -> Iterator[None]:
        """Take this thread's blocks from `arena` in the body; they go back there."""
        self._local.arena = arena
        try:
            yield
        finally:
            self._local.arena = None

    @property
    def recording(self) -> bool:
        """True if what this thread asks for is recorded instead of done."""
        return self._recorder == threading.get_ident()

    def record(self, run: Callable[[], None]) -> Any:
        """Record what `run` asks the device for; `play` does it as often as one likes, at the same addresses.

        NotRecordable is raised if something of it needs the host in between, or memory of its own.
        """
        with self._recording:
            self._recorder = threading.get_ident()
            self.recorded = True
            try:
                return self._recorded(run)
            finally:
                self._recorder = None
                memory, self._unsettled = self._unsettled, []
                if memory and not (self.lost or self._pool.ended):
                    self._wait_for_all()
                del memory  # freed after the wait, and while the recording is still locked

    def play(self, recording: Any) -> None:
        """Do what was recorded."""
        raise NotImplementedError

    def _recorded(self, run: Callable[[], None]) -> Any:
        raise NotImplementedError

    def _refuse_to_record(self, what: str) -> None:
        if self.recording:
            raise NotRecordable(what)

    def in_order(self) -> AbstractContextManager[Any]:
        """Hold the stream: what is asked for in the body is not part of another thread's recording."""
        return self._recording

    # --- what threads and other libraries share ---

    @property
    def shared(self) -> bool:
        """True if more than one thread has used the device."""
        return len(self._threads) > 1

    def settle(self, memory: Any, everywhere: bool = False) -> None:
        """Wait until nothing that was asked for uses shared memory; with `everywhere`, nothing on any stream."""
        if self.recording:
            self._unsettled.append(memory)  # nobody may wait now
        elif not (self.lost or self._pool.ended):
            (self._wait_for_all if everywhere else self.synchronize)()

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
        """Run a kernel of `build` on `grid` blocks of `threads` threads; a grid of 0 runs nothing.

        Args:
            arguments: (MemoryBlock, offset in bytes, NumPy's dtype) for arrays, Python's int for int64, NumPy's scalars
                for all other numbers.
            shared: bytes of shared memory for arrays whose size the kernel does not say; 48 KiB at most.
        """
        raise NotImplementedError

    def matmul(
        self, out: Matrix, a: Matrix, b: Matrix, sizes: tuple[int, int, int], dtype: Any, batch: int = 1
    ) -> None:
        """`out = a @ b` for matrices (m, n) = (m, k) @ (k, n), or for a batch of them; `out` is not turned.

        `sizes` are (m, n, k). The `dtype` of all three is float16 or bfloat16 (added up in float32), float32, float64,
        complex64 or complex128.
        """
        raise NotImplementedError

    def fft(
        self, kind: str, source: Place, target: Place, length: int, batch: int, double: bool, inverse: bool
    ) -> None:
        """Fourier transforms of some `length` along the last axis, (batch, ...); neither way divides by the length.

        Args:
            kind: "c2c", "r2c" ((batch, length) to (batch, length // 2 + 1)) or "c2r" (the reverse of it). Of what c2r
                reads, the imaginary part of the first element, and for even lengths of the last, must be 0.
            double: whether in double precision.
            inverse: the sign of the exponent of c2c.
        """
        raise NotImplementedError


def as_bytes(array: Any) -> Any:
    """The bytes of a C-contiguous NumPy array, not copied."""
    return array.reshape(-1, copy=False).view(np.uint8)


def readable(size: int) -> str:
    """A number of bytes for people."""
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << power:
            return f"{size / (1 << power):.1f} {unit}"
    return f"{size} bytes"
