"""Recordings of what the device is asked for, to be played as one: CUDA graphs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from snncell.kernels.cuda.blocks import Arena, MemoryBlock, NotRecordable


class GraphRecorder:
    """The part of a device that records."""

    recorded = False  # whether there ever was a recording

    def __init__(self) -> None:
        self._local = threading.local()  # the arena of each thread that has one
        self._threads: set[int] = set()  # that have used the device
        self._begin_recordings()

    def _begin_recordings(self) -> None:
        self._recording = threading.RLock()  # held around whatever is put on the stream, and around a recording
        self._recorder: int | None = None

    def _counted(self, size: int) -> MemoryBlock:
        raise NotImplementedError

    @contextmanager
    def allocating_from(self, arena: Arena) -> Iterator[None]:
        """Take this thread's blocks from `arena` in the body; they go back there."""
        self._local.arena = arena
        try:
            yield
        finally:
            self._local.arena = None

    def new_arena(self) -> Arena:
        """Memory for a recording: while it is made, there must be enough in it."""
        return Arena(self._new_outside_of_recordings)

    def _new_outside_of_recordings(self, size: int) -> MemoryBlock:
        if self.recording:
            raise NotRecordable("it needs new memory each time")
        return self._counted(size)

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
                self._let_go()

    def _let_go(self) -> None:
        """Let go of what had to be kept because nobody may wait while something is recorded."""
        raise NotImplementedError

    def in_order(self) -> AbstractContextManager[Any]:
        """Hold the stream: what is asked for in the body is not part of another thread's recording."""
        return self._recording

    @property
    def shared(self) -> bool:
        """True if more than one thread has used the device."""
        return len(self._threads) > 1

    def _refuse_to_record(self, what: str) -> None:
        if self.recording:
            raise NotRecordable(what)

    def _recorded(self, run: Callable[[], None]) -> Any:
        raise NotImplementedError

    def play(self, recording: Any) -> None:
        """Do what was recorded."""
        raise NotImplementedError
