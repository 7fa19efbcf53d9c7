"""Batches made ahead, on a thread of their own, while the caller computes with the one before.

    thread:  make 1 | make 2 | make 3 | ...
    caller:         | step 1 | step 2 | ...

Two queues join them: the caller asks for a batch, the thread gives it, and is at most one batch ahead of what it was
asked for. The random numbers of both are one sequence, in the order that it has without a thread: data that draw wait
in `_Maker.turn` until the caller asks for the batch that is being made, when all steps before it are done, go on from
the caller's key, and hand it back with the batch. What draws nothing waits for nothing.

The queues are `SimpleQueue`s, whose methods are C functions: an interruption leaves no lock of theirs behind.
"""

from __future__ import annotations

import contextvars
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from queue import SimpleQueue
from typing import Any

from snncell.base.signals import deferring, take_from
from snncell.errors import ForkError
from snncell.kernels.space import IN_USE
from snncell.ops.seeds import draw_for, draws_for_main, go_on_from, own_key
from snncell.tape.state import adopt_settings, present_settings
from snncell.train.pieces import Batches

# The fewest bytes of a batch that pay for a thread, which costs some 0.1 ms a batch: on two busy cores it made copies
# of 2 MB beside a step of 1.4 ms 4 % slower, and those of 4 MB 5 % faster.
LEAST_BYTES = 1 << 22
_SETTINGS = ("space", "smooth", "wide", "unfused", "stops")  # of the caller's thread, which data may depend on
_END: Any = object()


def make_ahead(
    source: Iterable[Any], convert: Callable[[Any], Any], prefetch: bool
) -> AbstractContextManager[Iterable[Any]]:
    """Each item of `source`, converted, in its order: made ahead if `prefetch`.

    Where a GPU is in use nothing is made ahead: its steps run beside the host as it is.
    """
    return _Ahead(source, convert) if prefetch and not IN_USE else nullcontext(map(convert, source))


def pays(source: Any) -> bool:
    """True for data of which to make batches ahead is safe and pays: Batches of a size at which a thread does.

    Only they are known to depend on nothing that a step changes but the random numbers.
    """
    if getattr(type(source), "__iter__", None) is not Batches.__iter__:
        return False
    size = sum(array.nbytes for array in source.arrays)
    return bool(size / len(source.arrays[0]) * min(source.batch_size, len(source.arrays[0])) >= LEAST_BYTES)


class _Ahead:
    """The caller's side: a context, within which one goes through the batches once."""

    def __init__(self, source: Iterable[Any], convert: Callable[[Any], Any]) -> None:
        self._asked: SimpleQueue[Any] = SimpleQueue()
        self._made: SimpleQueue[Any] = SimpleQueue()
        self._process = os.getpid()
        settings = present_settings(*_SETTINGS)
        maker = _Maker(source, convert, self._asked, self._made, settings, own_key(), draws_for_main())
        # If an interruption comes between the start and `__exit__`, the thread ends when nobody has this any more.
        self._forgotten = weakref.ref(self, self._asked.put)
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(maker.run,), name="snncell data", daemon=True)

    def __enter__(self) -> _Ahead:
        deferring(self._thread.start)  # interrupted, `threading` would keep a thread that never begins, and our data
        return self

    def __exit__(self, *_: Any) -> None:
        """End the thread, which finishes the batch that it is making, and has closed its iterator then."""
        self._asked.put(None)
        self._thread.join()

    def __iter__(self) -> Iterator[Any]:
        while True:
            if os.getpid() != self._process:
                raise ForkError(
                    "this process was forked while a thread of its parent made batches ahead, which is not here. Go "
                    "through the data in the process that began to, or give prefetch=False."
                )
            self._asked.put((own_key(),))
            batch, key, error = take_from(self._made)
            if key is not None:
                go_on_from(key)
            if error is not None:
                try:
                    raise error
                finally:
                    del error  # which refers to this frame
            if batch is _END:
                return
            yield batch


class _Maker:
    """The thread's side."""

    def __init__(
        self,
        source: Iterable[Any],
        convert: Callable[[Any], Any],
        asked: SimpleQueue[Any],
        made: SimpleQueue[Any],
        settings: dict[str, Any],
        key: Any,
        main: bool,
    ) -> None:
        self.source, self.convert, self.asked, self.made, self.settings = source, convert, asked, made, settings
        self.key = key  # the caller's, when it asked last
        self.main = main  # whether the caller draws as the main thread
        self.number = 0  # of the batch that is being made
        self.wanted = 0  # the batches that were asked for
        self.drawing = False  # whether it is this thread's turn to draw
        self.over = False

    def run(self) -> None:
        """Make batches until there are no more, or nobody wants them."""
        adopt_settings({**self.settings, "turn": self.turn})
        draw_for(self.key, self.main)
        batch = error = items = None
        try:
            while batch is not _END and error is None and self.may_begin():
                try:
                    items = iter(self.source) if items is None else items
                    batch = next(items, _END)
                    if batch is not _END:
                        batch = self.convert(batch)
                except BaseException as caught:
                    error = caught
                self.made.put((batch, own_key() if self.drawing else None, error))
                self.drawing = False
                self.number += 1
        finally:
            # An error refers to this frame: what it refers to would not be closed, nor be freed.
            del batch, error, items
            del self.source, self.convert

    def may_begin(self) -> bool:
        """Wait until the next batch may be made; whether it is wanted."""
        while not self.over and (self.number > self.wanted or not self.asked.empty()):
            self.hear()
        return not self.over

    def turn(self) -> None:
        """Wait until the caller asks for the batch that is being made, and draw from its random numbers then."""
        if self.drawing:
            return
        while not self.over and self.wanted <= self.number:
            self.hear()
        self.drawing = True  # also if it is over: nobody gets what is drawn then
        go_on_from(self.key)

    def hear(self) -> None:
        """Take what the caller says: its key, as it asks for a batch, or that it wants no more."""
        word = self.asked.get()
        if isinstance(word, tuple):
            (self.key,) = word
            self.wanted += 1
        else:
            self.over = True
