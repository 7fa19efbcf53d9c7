"""Interruptions of a training that has a checkpoint: the first ends it after the step, the second at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_USUAL: dict[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}


@contextmanager
def note_signals(stop: Callable[[str], None]) -> Iterator[None]:
    """Within it, Ctrl-C calls `stop`, and so does the signal by which schedulers end a job, which goes on afterwards.

    A second signal acts at once. Handlers that the user has set are left in place, and so are all of them on other
    threads than the main one, which alone has signals.
    """
    received: list[int] = []

    def first(number: int, frame: FrameType | None) -> None:
        signal.signal(number, _USUAL[number])
        received.append(number)
        stop("interrupted")

    on_main = threading.current_thread() is threading.main_thread()
    taken = [number for number, usual in _USUAL.items() if on_main and signal.getsignal(number) is usual]
    for number in taken:
        signal.signal(number, first)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, _USUAL[number])
    if signal.SIGTERM in received:
        signal.raise_signal(signal.SIGTERM)
