"""Tracebacks that end at the user's line, and information read from Python's stack frames.

Public functions, calls of Cells, jitted functions and gradient functions remove the package's frames from an exception
that passes through them. `set_context(full_traceback=True)` keeps all frames.

    @frame_mark(Updating, lambda local: Updating(local["parameter"]) if "parameter" in local else None)
    def construct(self, gradients): ...

An error can name the user's line, the running Cells, and the Parameter that is being updated. A decorator declares how
to read them from the frame of a function, so they cost nothing until there is an error.
"""

from __future__ import annotations

import ast
import contextlib
import dis
import inspect
import linecache
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any, NamedTuple, TypeVar

from snncell.base.config import SETTINGS
from snncell.errors import SnncellError

PACKAGE = str(Path(__file__).resolve().parents[1]) + os.sep  # the folder of snncell
# Packages that snncell calls. An error that starts in one of them, called from snncell, is a bug of snncell.
_BELOW = frozenset(("numpy", "scipy", "numba", "llvmlite", "matplotlib", "h5py", "nir", "safetensors", "tqdm"))


def hide_frames(error: BaseException) -> None:
    """Remove the package's frames from the tracebacks of an error and of its causes. An internal error (it starts in
    the package and is no SnncellError) keeps its frames, because a bug report needs them.
    """
    if SETTINGS["full_traceback"]:
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
            # Frames of contextlib appear between a `with` statement and the package's context manager.
            hidden = (PACKAGE, contextlib.__file__) if on_purpose else PACKAGE
            one.__traceback__ = _join_links([x for x in links if not x.tb_frame.f_code.co_filename.startswith(hidden)])
        waiting += [one.__cause__, None if one.__suppress_context__ else one.__context__]


def traceback_at(function: Callable[..., Any]) -> TracebackType | None:
    """A traceback for an error about the return value of `function`, which has ended and so has no frame. It points to
    the only `return` of the function, or else to its first line. None for functions of the package or in C.
    """
    code = getattr(inspect.unwrap(getattr(function, "__func__", function)), "__code__", None)
    if code is None or code.co_filename.startswith(PACKAGE):
        return None
    places = {step.positions for step in dis.get_instructions(code) if step.opname.startswith("RETURN_VALUE")}
    line = linecache.getline(code.co_filename, code.co_firstlineno)
    columns = len(line) - len(line.lstrip()), len(line.rstrip())
    first = dis.Positions(code.co_firstlineno, code.co_firstlineno, *columns)
    place = (len(places) == 1 and places.pop()) or first
    stand_in = ast.parse("raise ValueError")  # run code with this location, because only running code has a frame
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


def _starts_outside(links: list[TracebackType]) -> bool:
    """True if an error starts in the user's code or its libraries, and not in a library that snncell calls."""
    ours = [n for n, link in enumerate(links) if link.tb_frame.f_code.co_filename.startswith(PACKAGE)]
    last = max(ours, default=-1)
    if last + 1 == len(links):
        return False
    module = str(links[last + 1].tb_frame.f_globals.get("__name__", "")).partition(".")[0]
    return module == "__main__" or module not in _BELOW.union(sys.stdlib_module_names)


# --- marked frames ----------------------------------------------------------------------------------------------------

_Function = TypeVar("_Function", bound=Callable[..., Any])


class Running(NamedTuple):
    """A Cell that is running, with its arguments."""

    cell: Any
    args: tuple[Any, ...]


class Reversing(NamedTuple):
    """An operation whose backward pass is running; `line` is the user's line of the forward pass."""

    line: str


class Updating(NamedTuple):
    """The Parameter that an optimiser is updating."""

    parameter: Any


Mark = Running | Reversing | Updating  # information for errors, read from a frame

_READERS: dict[CodeType, tuple[type, Callable[[Mapping[str, Any]], Mark | None]]] = {}
_machinery: tuple[str, ...] = ()  # beginnings of paths, for `str.startswith`


def frame_mark(kind: type, reader: Callable[[Mapping[str, Any]], Mark | None]) -> Callable[[_Function], _Function]:
    """Decorator: `reader` makes a Mark of this kind from the local variables of the function's frame."""

    def register(function: _Function) -> _Function:
        _READERS[function.__code__] = kind, reader
        return function

    return register


def mark_of(frame: FrameType, sought: type | None = None) -> Mark | None:
    """The Mark of a frame, if it has one (of the kind `sought`, by default of any kind); else None."""
    kind, reader = _READERS.get(frame.f_code, (None, None))
    if reader is None or (sought is not None and kind is not sought):  # avoid f_locals, which builds a dict
        return None
    return reader(frame.f_locals)


def machinery(file: str) -> None:
    """Register a module, or a package by its `__init__.py`, as machinery: errors never show its lines. Neurons and
    layers are not machinery, because errors show their equations like those of a user.
    """
    global _machinery
    path = os.path.abspath(file)
    _machinery += (os.path.dirname(path) + os.sep if os.path.basename(path) == "__init__.py" else path,)


machinery(os.path.join(os.path.dirname(__file__), "__init__.py"))


def is_machinery(frame: FrameType) -> bool:
    """True if the frame's code is machinery."""
    return frame.f_code.co_filename.startswith(_machinery)


def describe_frame(frame: FrameType) -> str:
    """File, line number and text of a frame, such as "net.py:12: v = v + x"."""
    path, number = frame.f_code.co_filename, frame.f_lineno
    return f"{os.path.basename(path)}:{number}: {linecache.getline(path, number).strip()}"


def user_line() -> str:
    """The innermost running line outside of the package; in a bprop of the package, that of the forward pass."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        mark = mark_of(frame, Reversing)
        if isinstance(mark, Reversing):
            return f"backward of {mark.line}"
        frame = frame.f_back
    return describe_frame(frame)


# --- layers -----------------------------------------------------------------------------------------------------------


class Place(str):
    """The line of an instruction as text, and its layer."""

    __slots__ = ("backward", "layer")

    layer: str  # the path and the class of the layer, such as "layers.1 MultiStep(LIFNode)"; "" outside of Cells
    backward: bool  # whether the instruction computes a gradient

    def __new__(cls, line: str, layer: str = "", backward: bool = False) -> Place:
        place = super().__new__(cls, line)
        place.layer, place.backward = layer, backward
        return place


def place_of_instruction() -> Place:
    """The place of the operation that is being traced: the innermost line that is not machinery."""
    frame: FrameType | None = sys._getframe(1)
    cells: list[Any] = []
    line, backward = "", False
    while frame is not None:
        mark = mark_of(frame)
        if isinstance(mark, Reversing):
            line, backward = line or f"backward of {mark.line}", True
            cells.clear()  # a gradient belongs to the layer of its forward pass, not to Cells that its bprop calls
            if layer := getattr(mark.line, "layer", ""):
                return Place(line, layer, backward)
        elif isinstance(mark, Running):
            cells.append(mark.cell)
        elif not line and (frame.f_back is None or not frame.f_code.co_filename.startswith(_machinery)):
            line = describe_frame(frame)
        frame = frame.f_back
    return Place(line, name_of_layer(layer_among(cells)[1]) if cells else "", backward)


def layer_among(cells: Sequence[Any]) -> tuple[int, Any]:
    """The position in `cells` (innermost first) of the running neuron, or else of the innermost Cell, and its layer. If
    a Cell runs the neuron over time, this Cell is the layer, also for the neuron's surrogate.
    """
    looped = [n for n, cell in enumerate(cells[1:]) if cell._over_time and cells[n] is cell.cell]
    neurons = [n for n, cell in enumerate(cells) if hasattr(type(cell), "init_state")]
    number = (looped or neurons or [0])[0]
    return number, cells[number + 1] if looped else cells[number]


def name_of_layer(cell: Any) -> str:
    """The path of a Cell in its network, as in its Parameters' names, and its class."""
    kind = type(cell).__name__
    kind += f"({type(cell.cell).__name__})" if cell._over_time else ""
    return f"{cell._naming.prefix.removesuffix('.')} {kind}".lstrip()
