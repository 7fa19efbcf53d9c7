"""Worker threads and processes that prefetch batches and return them in order.

With processes, each thread sends numbers of batches to one process and waits, without holding the interpreter lock. The
queues are `SimpleQueue`s, because their methods are C functions: an interrupt cannot leave their locks taken.
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
_LOOK = 1.0  # seconds between a process's checks that its parent is alive


def make_by_workers(
    make: Make, numbers: range, workers: int, ahead: int, processes: bool
) -> Generator[Any, None, None]:
    """Yield `make(number, over)` for each number in order, computed by workers up to `ahead` numbers in advance. `over`
    becomes non-empty when the result is no longer needed. When the generator is closed, all workers have ended.
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
            del batch  # free its memory while waiting for the next one
    finally:
        pool.close()


class _ThreadPool:
    """Worker threads, and the queues of requested and finished batches."""

    def __init__(self, make: Make, workers: int, processes: bool) -> None:
        self._asked: SimpleQueue[Any] = SimpleQueue()
        self._made: SimpleQueue[Any] = SimpleQueue()
        self._ready: dict[int, tuple[Any, Any]] = {}
        self._over: list[bool] = []  # non-empty once no more batches are needed
        self._own = os.getpid()
        self._processes = [_Process(make) for _ in range(workers if processes else 0)]
        makes: list[Make] = [process.make for process in self._processes] or [make] * workers
        arguments = [(one, self._asked, self._made, self._over) for one in makes]
        self._threads = [
            threading.Thread(target=contextvars.copy_context().run, args=(_run, *each), name=NAME, daemon=True)
            for each in arguments
        ]
        # If an interrupt prevents `close`, the threads end when this object is garbage collected.
        self._forgotten = weakref.ref(self, partial(_end, self._asked, self._over, workers))

    def start(self) -> None:
        """Start the processes, then the threads, because a fork would not copy running threads."""
        for process in self._processes:
            deferring(process.start)
        for thread in self._threads:
            deferring(thread.start)

    def ask(self, number: int) -> None:
        self._asked.put(number)

    def take(self, number: int) -> Any:
        """Wait for a requested batch."""
        while number not in self._ready:
            if os.getpid() != self._own:
                raise ForkError(
                    "this process was forked while its parent's workers made batches, and a fork does not copy them. "
                    "Iterate over the Loader in one process only, or pass workers=0."
                )
            made, batch, error = take_from(self._made)
            self._ready[made] = batch, error
        batch, error = self._ready.pop(number)
        if error is not None:
            try:
                raise error
            finally:
                del error  # it refers to this frame: a reference cycle
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
    LOADING[threading.get_ident()] = lock = threading.RLock()  # a trace takes this lock to pause the thread
    try:
        while (number := asked.get()) is not None and not over:
            batch = error = None
            try:
                with lock:
                    batch = make(number, over)
            except BaseException as caught:
                error = caught
            made.put((number, batch, error))
            del batch, error  # the error refers to this frame: a reference cycle
    finally:
        del LOADING[threading.get_ident()]


class _Process:
    """The handle of a worker process; one thread uses it to send requests and receive batches."""

    def __init__(self, make: Make) -> None:
        self._make = make
        self._ours: Any = None
        self._process: Any = None

    def start(self) -> None:
        context: Any = multiprocessing.get_context()
        # Starts are serial: a process forked by another thread now would inherit both ends and keep the pipe open.
        with _STARTING, warnings.catch_warnings():
            self._ours, theirs = context.Pipe()
            forked = context.get_start_method() == "fork"
            arguments = theirs, self._ours if forked else None, self._make, os.getpid() if forked else None
            # Python warns about forks in processes with threads. Ours are safe, because our threads hold no lock.
            warnings.filterwarnings("ignore", ".*multi-threaded.*fork", DeprecationWarning)
            self._process = context.Process(target=_serve, args=arguments, name=NAME, daemon=True)
            try:
                self._process.start()
            except (pickle.PicklingError, AttributeError, TypeError) as error:
                raise ArgumentError(
                    f"Loader: processes=True: this system does not fork processes, so the data set, transform and "
                    f"collate must be pickled, and that fails: {error}. Define functions and classes at the top level "
                    f"of a module, or use threads, processes=False."
                ) from error
            finally:
                theirs.close()

    def make(self, number: int, over: list[bool]) -> Any:
        """Request a batch and wait for it."""
        try:
            self._ours.send(number)
            batch, error = _receive(self._ours)
        except (EOFError, OSError):
            self._process.join(_LOOK)
            raise WorkerError(
                f"Loader: the process that made batch {number} has ended, with exit code {self._process.exitcode}"
                f"{_cause(self._process.exitcode)}. See stderr for its messages. With workers=0, batches are made in "
                f"this process, where you can debug them."
            ) from None
        if error is not None:
            raise error
        return batch

    def close(self) -> None:
        if self._process is not None and self._process.pid is not None:
            self._process.terminate()
            self._process.join()


def _cause(code: int | None) -> str:
    """The signal that ended a process, for the error message."""
    if code is None or code >= 0:
        return ""
    killed = " (out of memory?)" if -code == getattr(signal, "SIGKILL", 0) else ""
    return f", killed by {signal.Signals(-code).name}{killed}"


def _serve(connection: Any, others: Any, make: Make, parent: int | None) -> None:
    """Main function of a worker process: make batches until the parent (None if not forked) exits."""
    # Ctrl-C reaches all processes of a terminal, but only the parent should end this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if others is not None:
        others.close()
    with contextlib.suppress(EOFError, OSError):  # the parent has exited
        while _lives(parent):
            # Poll, because processes forked later may keep a dead parent's end of the pipe open.
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
    # Not forked: a fork server may be the parent, or the system may reuse the parent's process id.
    own = multiprocessing.parent_process()
    return own is not None and own.is_alive()


def _send(connection: Any, answer: Any) -> None:
    """Send a batch; arrays go as raw buffers, without a copy into the pickle."""
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
    """Add an error's traceback as a note for sending, or convert the error to WorkerError if it cannot be pickled."""
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
