"""Blocks of device memory, the arenas that recordings take theirs from, and what cannot be had."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from snncell.errors import DeviceError, DeviceMemoryError


class MemoryBlock:
    """Memory on the device.

    It is freed when nothing refers to it; give it to `Runtime.release` instead, so that it is used again.
    """

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


class NotRecordable(DeviceError):  # noqa: N818 - what is raised is a refusal
    """Something that cannot be part of a recording."""


class Arena:
    """Blocks that belong to one recording: they stay where they are as long as it lives."""

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


class OutOfMemory(DeviceMemoryError):  # noqa: N818 - the driver's name
    """The device has no memory of that size: what `allocate` answers by emptying the pool."""


def readable(size: int) -> str:
    """A number of bytes for people."""
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << power:
            return f"{size / (1 << power):.1f} {unit}"
    return f"{size} bytes"
