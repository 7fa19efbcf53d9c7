"""Child processes that start with all imports done, so that a crash or an endless call costs one row, not the run.

A fork server imports snncell and the peers once. It runs no kernel, so it has no threads, and a child is like a fresh
process after its imports. On a system without fork, each child imports everything itself.
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
    """A child raised an error, ended early with an exit code, or took longer than its limit."""

    def __init__(self, message: str, exit_code: int | None = None, late: bool = False) -> None:
        super().__init__(message)
        self.exit_code, self.late = exit_code, late


def import_early(modules: list[str]) -> None:
    """Let the fork server import these modules. Call it before the first child."""
    if hasattr(CONTEXT, "set_forkserver_preload"):
        CONTEXT.set_forkserver_preload(modules)


class Child:
    """A process that runs a function of a module. Each `next` runs a generator function to its next `yield`."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.connection, other = CONTEXT.Pipe()
        self.process = CONTEXT.Process(target=_serve, args=(other, function, arguments))
        self.process.start()
        other.close()
        _running.add(self)

    def next(self, limit: float | None = None) -> Any:
        """Return the result of the function, or the next result of a generator.

        Raises:
            ChildError: the function raised an error, the process ended, or `limit` seconds have passed.
        """
        try:
            self.connection.send(None)
            if not self.connection.poll(limit):
                raise ChildError(f"not finished in {limit:g} s", late=True)
            result, fault = self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode
            raise ChildError(f"its process ended with exit code {code}", code) from None
        if fault:
            raise ChildError(fault)
        return result

    def end(self) -> None:
        """Kill the process and its own children, for example compilers."""
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.join()
        _running.discard(self)


def call(function: Callable[..., Any], *arguments: Any, limit: float | None = None) -> Any:
    """Run a function in a child and return its result. It raises the errors of `Child.next`."""
    child = Child(function, *arguments)
    try:
        return child.next(limit)
    finally:
        child.end()


def end_all() -> None:
    """End all children, for example after Ctrl-C."""
    for child in [*_running]:
        child.end()


def _serve(connection: Any, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    if hasattr(os, "setsid"):
        os.setsid()  # a new process group, which `Child.end` kills
    with contextlib.suppress(EOFError):
        connection.recv()
        try:
            result = function(*arguments)
            if not inspect.isgenerator(result):
                connection.send((result, ""))
                return
            for each in result:
                connection.send((each, ""))
                connection.recv()
        except Exception as error:  # any framework can raise any error
            traceback.print_exc()
            connection.send((None, f"{type(error).__name__}: {error}"))
