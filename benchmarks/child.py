"""Child processes that begin with all imports done, so that a crash or an endless call costs one row, not the run.

A fork server imports snncell and the peers once. It runs no kernel, so it has no threads, and a child begins where an
ordinary process is after its imports. Where a system cannot fork, a child imports everything itself.
"""

from __future__ import annotations

import contextlib
import inspect
import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable
from typing import Any

CONTEXT: Any = multiprocessing.get_context(
    "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
)
_running: set[Child] = set()


class ChildError(RuntimeError):
    """A child raised an error, ended early with an exit code, or was late."""

    def __init__(self, message: str, exit_code: int | None = None, late: bool = False) -> None:
        super().__init__(message)
        self.exit_code, self.late = exit_code, late


def import_early(modules: list[str]) -> None:
    """Let the fork server import these modules. Call it before the first child."""
    if hasattr(CONTEXT, "set_forkserver_preload"):
        CONTEXT.set_forkserver_preload(modules)


class Child:
    """A process that runs a function of a module. If this is a generator, each call of `next` runs it to a `yield`."""

    def __init__(self, function: Callable[..., Any], *given: Any) -> None:
        self.connection, other = CONTEXT.Pipe()
        self.process = CONTEXT.Process(target=_serve, args=(other, function, given))
        self.process.start()
        other.close()
        _running.add(self)

    def next(self, limit: float | None = None) -> Any:
        """The result, or the next one of a generator.

        Raises:
            ChildError: the function raised an error, the process ended, or `limit` seconds have passed.
        """
        try:
            self.connection.send(None)
            if not self.connection.poll(limit):
                raise ChildError(f"not finished in {limit:g} s", late=True)
            found, fault = self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode
            raise ChildError(f"its process ended with exit code {code}", code) from None
        if fault:
            raise ChildError(fault)
        return found

    def end(self) -> None:
        """Kill the process and those that it has started, for example compilers."""
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.join()
        _running.discard(self)


def call(function: Callable[..., Any], *given: Any, limit: float | None = None) -> Any:
    """The result of a function that a child runs; the errors are those of `Child.next`."""
    child = Child(function, *given)
    try:
        return child.next(limit)
    finally:
        child.end()


def end_all() -> None:
    """End all children, for example after Ctrl-C."""
    for child in [*_running]:
        child.end()


def _serve(connection: Any, function: Callable[..., Any], given: tuple[Any, ...]) -> None:
    if hasattr(os, "setsid"):
        os.setsid()  # a group of its own, which `Child.end` kills
    with contextlib.suppress(EOFError):
        connection.recv()
        try:
            found = function(*given)
            if not inspect.isgenerator(found):
                connection.send((found, ""))
                return
            for each in found:
                connection.send((each, ""))
                connection.recv()
        except Exception as error:  # of any framework
            traceback.print_exc()
            connection.send((None, f"{type(error).__name__}: {error}"))
