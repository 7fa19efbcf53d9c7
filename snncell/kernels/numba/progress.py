"""Progress of compilation: the kernel that is being compiled, and how many are left.

The compiler announces kernels that it knows in advance by `expect`. Others are added when they begin. For example, the
kernel of a sparse product depends on the number of spikes, which is known only at run time.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator

# A callback (number of the kernel from 1 on, number of all kernels, True if another process compiles it).
Report = Callable[[int, int, bool], None]


class Listener:
    """Counts the kernels of one thread, and calls `report` when the compilation of one begins."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.expected: dict[Hashable, None] = {}
        self.begun: dict[Hashable, int] = {}
        self.seen = False  # whether a kernel was compiled or loaded since the last `take`

    def take(self) -> bool:
        """True if a kernel was built since the last call; the count then restarts from 1."""
        seen, self.seen = self.seen, False
        if seen:
            self.expected, self.begun = {}, {}
        return seen


class _Here(threading.local):
    listener: Listener | None = None


_here = _Here()


@contextlib.contextmanager
def report_to(listener: Listener | None) -> Iterator[None]:
    """Context manager: report the kernels that this thread builds to a listener."""
    before, _here.listener = _here.listener, listener
    try:
        yield
    finally:
        _here.listener = before


def listening() -> bool:
    """True if this thread has a listener."""
    return _here.listener is not None


def expect(kernels: Iterable[Hashable]) -> None:
    """Announce kernels that will be compiled."""
    if _here.listener is not None:
        _here.listener.expected.update(dict.fromkeys(kernels))


def builds() -> None:
    """Report that a kernel is built: loaded or compiled."""
    if _here.listener is not None:
        _here.listener.seen = True


def begin(kernel: Hashable, elsewhere: bool = False) -> None:
    """Report that the compilation of a kernel begins, here or in another process."""
    listener = _here.listener
    if listener is not None:
        listener.expected[kernel] = None
        number = listener.begun.setdefault(kernel, len(listener.begun) + 1)
        listener.report(number, len(listener.expected), elsewhere)
