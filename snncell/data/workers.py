"""Batches made ahead by several threads, or by a process behind each of them, and given in their order.

What a thread makes depends on the batch's number alone, so it does not matter which one does. A thread that has a
process sends it the number and waits for the batch, without Python's lock.
The queues are `SimpleQueue`s, whose methods are C functions: an interruption leaves no lock of theirs behind.
"""

from __future__ import annotations

import contextlib
import contextvars
import multiprocessing
import os
import pickle
import signal
import threading
import traceback
import warnings
import weakref
from collections.abc import Callable, Generator
from functools import partial
from queue import SimpleQueue
from typing import Any

from snncell.base.signals import after_fork, deferring, in_child, take_from
from snncell.compiler.state.python_state import LOADING
from snncell.errors import ArgumentError, ForkError, WorkerError

Make = Callable[[int, list[bool]], Any]
NAME = "snncell data"
_STARTING: Any = threading.RLock()
_LOOK = 1.0  # seconds after which a process looks whether its parent still lives


def make_by_workers(
    make: Make, numbers: range, workers: int, ahead: int, processes: bool
) -> Generator[Any, None, None]:
    """`make` of each number, in their order, made by workers, up to `ahead` of them before they are taken.

    `make` is also given a list, which is no longer empty when its result is not wanted any more. An error comes out
    where its batch would, and ends it. However it ends, the workers are gone afterwards.
    """
    pool = _ThreadPool(make, min(workers, len(numbers)), processes)
    try:
        pool.start()
        for number in numbers[:ahead]:
            pool.ask(number)
        for number in numbers:
            batch = pool.take(number)
            if number + ahead < numbers.stop:
                pool.ask(number + ahead)
            yield batch
            del batch  # or it would be kept while the next one is waited for
    finally:
        pool.close()


class _ThreadPool:
    """Threads, and the two queues between them and the reader."""

    def __init__(self, make: Make, workers: int, processes: bool) -> None:
        self._asked: SimpleQueue[Any] = SimpleQueue()
        self._made: SimpleQueue[Any] = SimpleQueue()
        self._ready: dict[int, tuple[Any, Any]] = {}
        self._over: list[bool] = []  # not empty when nobody wants batches any more
        self._own = os.getpid()
        self._processes = [_Process(make) for _ in range(workers if processes else 0)]
        makes: list[Make] = [process.make for process in self._processes] or [make] * workers
        arguments = [(one, self._asked, self._made, self._over) for one in makes]
        self._threads = [
            threading.Thread(target=contextvars.copy_context().run, args=(_run, *each), name=NAME, daemon=True)
            for each in arguments
        ]
        # If an interruption comes before `close`, the threads end when nobody has this any more.
        self._forgotten = weakref.ref(self, partial(_end, self._asked, self._over, workers))

    def start(self) -> None:
        """Start the processes, before there are threads that a fork would not take along, and the threads."""
        for process in self._processes:
            deferring(process.start)
        for thread in self._threads:
            deferring(thread.start)

    def ask(self, number: int) -> None:
        self._asked.put(number)

    def take(self, number: int) -> Any:
        """Wait for a batch that was asked for."""
        while number not in self._ready:
            if os.getpid() != self._own:
                raise ForkError(
                    "this process was forked while workers of its parent made batches, which are not here. "
                    "Go through the Loader in the process that began to, or give workers=0."
                )
            made, batch, error = take_from(self._made)
            self._ready[made] = batch, error
        batch, error = self._ready.pop(number)
        if error is not None:
            try:
                raise error
            finally:
                del error  # which refers to this frame
        return batch

    def close(self) -> None:
        if os.getpid() != self._own:
            return
        _end(self._asked, self._over, len(self._threads))
        for process in self._processes:
            process.close()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()


def _end(asked: SimpleQueue[Any], over: list[bool], workers: int, reference: Any = None) -> None:
    over.append(True)
    for _ in range(workers):
        asked.put(None)


def _run(make: Make, asked: SimpleQueue[Any], made: SimpleQueue[Any], over: list[bool]) -> None:
    """Make batches until nobody wants any."""
    LOADING[threading.get_ident()] = lock = threading.RLock()  # a trace holds it, and so pauses this thread
    try:
        while (number := asked.get()) is not None and not over:
            batch = error = None
            try:
                with lock:
                    batch = make(number, over)
            except BaseException as caught:
                error = caught
            made.put((number, batch, error))
            del batch, error  # which refers to this frame
    finally:
        del LOADING[threading.get_ident()]


# --- processes --------------------------------------------------------------------------------------------------------


class _Process:
    """A process that makes what it is asked for, seen from the thread that asks."""

    def __init__(self, make: Make) -> None:
        self._make = make
        self._ours: Any = None
        self._process: Any = None

    def start(self) -> None:
        """Start it."""
        context: Any = multiprocessing.get_context()
        # A process that is forked while both ends are open here would keep them open when this one has died.
        with _STARTING, warnings.catch_warnings():
            self._ours, theirs = context.Pipe()
            forked = context.get_start_method() == "fork"
            arguments = theirs, self._ours if forked else None, self._make, os.getpid() if forked else None
            # Python warns of every fork of a process with threads; those of ours wait until none is inside of anything.
            warnings.filterwarnings("ignore", ".*multi-threaded.*fork", DeprecationWarning)
            self._process = context.Process(target=_serve, args=arguments, name=NAME, daemon=True)
            try:
                self._process.start()
            except (pickle.PicklingError, AttributeError, TypeError) as error:
                raise ArgumentError(
                    f"Loader: processes=True: processes are not forked here, so the data set, transform and collate "
                    f"are pickled, and that fails: {error}. Functions and classes at the top of a module can be; or "
                    f"let threads make the batches, processes=False."
                ) from error
            finally:
                theirs.close()

    def make(self, number: int, over: list[bool]) -> Any:
        """Have it make a batch."""
        try:
            self._ours.send(number)
            batch, error = _receive(self._ours)
        except (EOFError, OSError):
            self._process.join(_LOOK)
            raise WorkerError(
                f"Loader: a process that made batch {number} has ended, with exit code {self._process.exitcode}"
                f"{_cause(self._process.exitcode)}. Its own words, if it had any, are on stderr; workers=0 makes the "
                f"batches in this process."
            ) from None
        if error is not None:
            raise error
        return batch

    def close(self) -> None:
        if self._process is not None and self._process.pid is not None:
            self._process.terminate()
            self._process.join()


def _cause(code: int | None) -> str:
    """The signal that ended a process, in words."""
    if code is None or code >= 0:
        return ""
    killed = " (out of memory?)" if -code == getattr(signal, "SIGKILL", 0) else ""
    return f", killed by {signal.Signals(-code).name}{killed}"


def _serve(connection: Any, others: Any, make: Make, parent: int | None) -> None:
    """Make batches for the parent, whose number is given where it has forked this process, until it has gone."""
    # Ctrl-C goes to all processes of a terminal; the parent ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if others is not None:
        others.close()
    with contextlib.suppress(EOFError, OSError):  # the parent has gone
        while _lives(parent):
            # A killed parent's end of the pipe may live on, in processes that were forked later.
            if not connection.poll(_LOOK):
                continue
            number = connection.recv()
            answer: Any = None
            try:
                answer = make(number, []), None
            except BaseException as error:
                answer = None, _portable(error)
            _send(connection, answer)
            del answer


def _lives(parent: int | None) -> bool:
    if parent is not None:
        return os.getppid() == parent
    # A server may have started this process, or a system that keeps the number of a parent that has gone.
    own = multiprocessing.parent_process()
    return own is not None and own.is_alive()


def _send(connection: Any, answer: Any) -> None:
    """Send a batch, its arrays as they lie in memory."""
    buffers: list[Any] = []
    try:
        words = pickle.dumps(answer, 5, buffer_callback=buffers.append)
    except Exception as error:
        buffers = []
        words = pickle.dumps((None, WorkerError(f"Loader: a batch cannot be sent from its process: {error}.")), 5)
    connection.send(len(buffers))
    connection.send_bytes(words)
    for buffer in buffers:
        connection.send_bytes(buffer.raw())


def _receive(connection: Any) -> Any:
    count = connection.recv()
    words = connection.recv_bytes()
    return pickle.loads(words, buffers=[connection.recv_bytes() for _ in range(count)])


def _portable(error: BaseException) -> BaseException:
    """An error as it can be sent, with where it was raised as a note; one that cannot, in words."""
    trace = "".join(traceback.format_exception(error))
    try:
        error.add_note(f"raised in a process of a Loader:\n{trace}")
        copy: Any = pickle.loads(pickle.dumps(error))
        if type(copy) is type(error):
            return error
    except Exception:
        pass
    return WorkerError(f"Loader: {type(error).__name__} in a process that made a batch:\n{trace}")


after_fork(partial(in_child, _STARTING))
