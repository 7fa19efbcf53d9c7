"""Traceback filtering: errors end at the user's line, without the frames of this package.

Each entry point (a public function, a call of a Cell, of a jitted function, of a gradient function) takes the package's
frames out of an exception that passes through it. Without an exception that costs nothing, because Python's `try` does
not. `set_context(full_traceback=True)` keeps all frames.
"""

from __future__ import annotations

import ast
import contextlib
import dis
import inspect
import linecache
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from snncell.base.config import get_context
from snncell.errors import SnncellError

PACKAGE = str(Path(__file__).resolve().parents[2]) + os.sep  # the folder of snncell
# Packages that this one calls: an error that starts in one of them, called from here, is a fault of ours.
_BELOW = frozenset(("numpy", "scipy", "numba", "llvmlite", "matplotlib", "h5py", "nir", "safetensors", "tqdm"))


def hide_frames(error: BaseException) -> None:
    """Take the package's frames out of the traceback of an error, and of those that led to it.

    An error that is not raised on purpose and starts within the package keeps them: they are needed to report it.
    """
    if get_context("full_traceback"):
        return
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        links = _links(one.__traceback__)
        on_purpose = isinstance(one, SnncellError)
        if on_purpose or _starts_outside(links):
            one.__traceback__ = _join_links([x for x in links if not (_ours(x) or (on_purpose and _of_contextlib(x)))])
        waiting += [one.__cause__, None if one.__suppress_context__ else one.__context__]


def traceback_at(function: Callable[..., Any]) -> TracebackType | None:
    """A traceback that ends in a function which has returned: at its return, if there is one, or at its first line.

    Raise an error with it if the function returned the wrong thing: no frame of the function is left to be shown. None
    for a function that is the package's own, or not written in Python.
    """
    code = getattr(inspect.unwrap(getattr(function, "__func__", function)), "__code__", None)
    if code is None or code.co_filename.startswith(PACKAGE):
        return None
    places = {step.positions for step in dis.get_instructions(code) if step.opname.startswith("RETURN_VALUE")}
    line = linecache.getline(code.co_filename, code.co_firstlineno)
    columns = len(line) - len(line.lstrip()), len(line.rstrip())
    first = dis.Positions(code.co_firstlineno, code.co_firstlineno, *columns)
    place = (len(places) == 1 and places.pop()) or first
    stand_in = ast.parse("raise ValueError")  # only of code that runs there is a frame
    for node in ast.walk(stand_in):
        node.__dict__.update(zip(("lineno", "end_lineno", "col_offset", "end_col_offset"), place, strict=True))
    named = compile(stand_in, code.co_filename, "exec").replace(co_name=code.co_name, co_qualname=code.co_qualname)
    try:
        exec(named, {"__name__": getattr(function, "__module__", "")})
    except ValueError as error:
        return _links(error.__traceback__)[-1]
    return None


def _links(traceback: TracebackType | None) -> list[TracebackType]:
    links = []
    while traceback is not None:
        links.append(traceback)
        traceback = traceback.tb_next
    return links


def _join_links(links: list[TracebackType]) -> TracebackType | None:
    rest: TracebackType | None = None
    for link in reversed(links):
        rest = TracebackType(rest, link.tb_frame, link.tb_lasti, link.tb_lineno)
    return rest


def _ours(link: TracebackType) -> bool:
    return link.tb_frame.f_code.co_filename.startswith(PACKAGE)


def _of_contextlib(link: TracebackType) -> bool:
    """True of a frame that leads from a `with` of the package into its context manager."""
    return link.tb_frame.f_code.co_filename == contextlib.__file__


def _starts_outside(links: list[TracebackType]) -> bool:
    """True if an error starts in the user's code, or in what that calls, rather than in what the package calls."""
    last = max((n for n, link in enumerate(links) if _ours(link)), default=-1)
    if last + 1 == len(links):
        return False
    module = str(links[last + 1].tb_frame.f_globals.get("__name__", "")).partition(".")[0]
    return module == "__main__" or module not in _BELOW.union(sys.stdlib_module_names)
