"""Progress of compilation: which kernel is being compiled, and how many are left.

Kernels that are known before the first of them is compiled are expected. Others are added as they are begun, because a
product, for example, finds only when it runs how many spikes there are.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator

# Called with the number of a kernel that is begun, from 1 on, of how many, and whether another process is compiling it.
Told = Callable[[int, int, bool], None]


class Listener:
    """One who listens, in one thread, and is told by a call of `told`."""

    def __init__(self, told: Told) -> None:
        self.told = told
        self.expected: dict[Hashable, None] = {}
        self.begun: dict[Hashable, int] = {}
        self.seen = False  # whether a kernel was built, compiled or loaded, since that was last asked

    def take(self) -> bool:
        """True if a kernel was built since the last time; the next one counts from 1 again."""
        seen, self.seen = self.seen, False
        if seen:
            self.expected, self.begun = {}, {}
        return seen


class _Here(threading.local):
    listener: Listener | None = None


_here = _Here()


@contextlib.contextmanager
def telling(listener: Listener | None) -> Iterator[None]:
    """A context in which a listener is told of the kernels that this thread builds."""
    before, _here.listener = _here.listener, listener
    try:
        yield
    finally:
        _here.listener = before


def listening() -> bool:
    """True if anybody is told."""
    return _here.listener is not None


def expect(kernels: Iterable[Hashable]) -> None:
    """Say which kernels will be compiled."""
    if _here.listener is not None:
        _here.listener.expected.update(dict.fromkeys(kernels))


def builds() -> None:
    """Say that a kernel is built, from code that there is or that is compiled."""
    if _here.listener is not None:
        _here.listener.seen = True


def begin(kernel: Hashable, elsewhere: bool = False) -> None:
    """Say that a kernel is compiled now, here or by another process."""
    listener = _here.listener
    if listener is not None:
        listener.expected[kernel] = None
        number = listener.begun.setdefault(kernel, len(listener.begun) + 1)
        listener.told(number, len(listener.expected), elsewhere)
