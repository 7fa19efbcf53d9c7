"""What is active on this thread: the tape that records, the trace that collects a Program, smooth spikes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from snncell.kernels.arrays import quiet_runner

if TYPE_CHECKING:
    from snncell.tape.tape import Tape
    from snncell.tape.tracing import Trace


class _State(threading.local):
    def __init__(self) -> None:
        self.quiet = quiet_runner()  # calls a function without floating-point warnings

    tape: Tape | None = None
    trace: Trace | None = None
    paused = False  # whether a tape waits while the forward of a custom reverse runs unrecorded
    smooth = False  # whether Cells that have a smooth primitive run it instead of construct


STATE = _State()
EFFECTS = threading.RLock()  # held while Parameters are read, computed with, and written: draws of random numbers


@contextmanager
def recording_on(tape: Tape | None) -> Iterator[None]:
    """Record on `tape` in the body; with None, record nothing."""
    outer, STATE.tape = STATE.tape, tape
    try:
        yield
    finally:
        STATE.tape = outer


@contextmanager
def tracing_to(trace: Trace | None) -> Iterator[None]:
    """Append operations to `trace` in the body instead of evaluating them; with None, evaluate them."""
    outer, STATE.trace = STATE.trace, trace
    try:
        yield
    finally:
        STATE.trace = outer


@contextmanager
def smoothed(value: bool) -> Iterator[None]:
    """Set whether Cells run their smooth primitives."""
    outer, STATE.smooth = STATE.smooth, value
    try:
        yield
    finally:
        STATE.smooth = outer


def smooth() -> AbstractContextManager[None]:
    """A context in which every Cell that has a method `primitive` runs that smooth function instead of its construct.

    Example:
        >>> net = nn.MultiStep(nn.LIFNode())
        >>> with snncell.surrogate.smooth():  # finite differences see a network without steps
        ...     snncell.testing.check_grads(net, ops.uniform((5, 2, 3)))
    """
    return smoothed(True)
