"""Frames of Python's stack: tracebacks that end at the user's line, and frames of functions that mean something.

Each entry point (a public function, a call of a Cell, of a jitted function, of a gradient function) takes the package's
frames out of an exception that passes through it. `set_context(full_traceback=True)` keeps all frames.

    @tells(Updating, lambda local: Updating(local["parameter"]) if "parameter" in local else None)
    def construct(self, gradients): ...

An error names the user's line, the Cells that run there, and the Parameter that is being updated. All of this costs
nothing until there is an error, because it is read from the frames that are on the stack then.
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
# Packages that this one calls: an error that starts in one of them, called from here, is a fault of ours.
_BELOW = frozenset(("numpy", "scipy", "numba", "llvmlite", "matplotlib", "h5py", "nir", "safetensors", "tqdm"))


def hide_frames(error: BaseException) -> None:
    """Take the package's frames out of the traceback of an error, and of those that led to it.

    An error that is not raised on purpose and starts within the package keeps them: they are needed to report it.
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
            # Frames of contextlib lead from a `with` of the package into its context manager.
            hidden = (PACKAGE, contextlib.__file__) if on_purpose else PACKAGE
            one.__traceback__ = _join_links([x for x in links if not x.tb_frame.f_code.co_filename.startswith(hidden)])
        waiting += [one.__cause__, None if one.__suppress_context__ else one.__context__]


def traceback_at(function: Callable[..., Any]) -> TracebackType | None:
    """A traceback that ends in a function which has returned: at its only return, or at its first line.

    Raise an error with it if the function returned the wrong thing. None for a function of the package, or of C.
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


def _starts_outside(links: list[TracebackType]) -> bool:
    """True if an error starts in the user's code, or in what that calls, rather than in what the package calls."""
    ours = [n for n, link in enumerate(links) if link.tb_frame.f_code.co_filename.startswith(PACKAGE)]
    last = max(ours, default=-1)
    if last + 1 == len(links):
        return False
    module = str(links[last + 1].tb_frame.f_globals.get("__name__", "")).partition(".")[0]
    return module == "__main__" or module not in _BELOW.union(sys.stdlib_module_names)


# --- frames that mean something ---------------------------------------------------------------------------------------

_Function = TypeVar("_Function", bound=Callable[..., Any])


class Running(NamedTuple):
    """A Cell runs, with these arguments."""

    cell: Any
    args: tuple[Any, ...]


class Reversing(NamedTuple):
    """The tape asks an operation for its gradients; `line` is where the user asked for the operation."""

    line: str


class Updating(NamedTuple):
    """An optimiser is at this Parameter."""

    parameter: Any


Mark = Running | Reversing | Updating
_TELLERS: dict[CodeType, tuple[type, Callable[[Mapping[str, Any]], Mark | None]]] = {}
_machinery: tuple[str, ...] = ()  # beginnings of paths, as `str.startswith` takes them


def tells(kind: type, teller: Callable[[Mapping[str, Any]], Mark | None]) -> Callable[[_Function], _Function]:
    """Decorate a function whose frames mean something: `teller` makes a Mark of this kind from its local variables."""

    def register(function: _Function) -> _Function:
        _TELLERS[function.__code__] = kind, teller
        return function

    return register


def mark_of(frame: FrameType, sought: type | None = None) -> Mark | None:
    """The meaning of a frame, if its function has registered one, of the kind that is sought, and it holds now."""
    kind, teller = _TELLERS.get(frame.f_code, (None, None))
    if teller is None or (sought is not None and kind is not sought):  # to read the variables makes a dict of them
        return None
    return teller(frame.f_locals)


def machinery(file: str) -> None:
    """Count a module, or with its `__init__.py` a package, among what carries operations out.

    Lines of it are never the user's. The package's neurons and layers are equations like a user's.
    """
    global _machinery
    path = os.path.abspath(file)
    _machinery += (os.path.dirname(path) + os.sep if os.path.basename(path) == "__init__.py" else path,)


machinery(os.path.join(os.path.dirname(__file__), "__init__.py"))


def is_machinery(frame: FrameType) -> bool:
    """True if the frame's code carries operations out."""
    return frame.f_code.co_filename.startswith(_machinery)


def text_of(frame: FrameType) -> str:
    """File, line and text of where a frame is: "net.py:12: v = v + x"."""
    path, number = frame.f_code.co_filename, frame.f_lineno
    return f"{os.path.basename(path)}:{number}: {linecache.getline(path, number).strip()}"


def user_line() -> str:
    """File, line and text of the innermost caller outside of the package.

    An operation that a bprop of the package calls belongs to the line of the operation that is being differentiated.
    """
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        mark = mark_of(frame, Reversing)
        if isinstance(mark, Reversing):
            return f"backward of {mark.line}"
        frame = frame.f_back
    return text_of(frame)


# --- layers -----------------------------------------------------------------------------------------------------------


class Place(str):
    """The place of an instruction in the code and in the network: a line as text, and its layer.

    Attributes:
        layer: the path and the class of the layer, such as "layers.1 MultiStep(LIFNode)"; "" outside of Cells.
        backward: whether the instruction computes a gradient.
    """

    __slots__ = ("backward", "layer")

    layer: str
    backward: bool

    def __new__(cls, line: str, layer: str = "", backward: bool = False) -> Place:
        place = super().__new__(cls, line)
        place.layer, place.backward = layer, backward
        return place


def place_of_instruction() -> Place:
    """The place that a trace notes for an operation that runs now: the innermost line that is no machinery."""
    frame: FrameType | None = sys._getframe(1)
    line, cells, backward = "", [], False
    while frame is not None:
        mark = mark_of(frame)
        if isinstance(mark, Reversing):
            line, backward = line or f"backward of {mark.line}", True
            cells.clear()  # a gradient belongs to the layer of its forward pass, whichever Cells its bprop calls
            if layer := getattr(mark.line, "layer", ""):
                return Place(line, layer, backward)
        elif isinstance(mark, Running):
            cells.append(mark.cell)
        elif not line and (frame.f_back is None or not frame.f_code.co_filename.startswith(_machinery)):
            line = text_of(frame)
        frame = frame.f_back
    return Place(line, name_of_layer(layer_among(cells)[1]) if cells else "", backward)


def layer_among(cells: Sequence[Any]) -> tuple[int, Any]:
    """The number of the running neuron, or of the innermost Cell, and its layer; `cells` are innermost first.

    The layer is the Cell that runs the neuron over time, if there is one, so that surrogates and neurons belong to it.
    """
    looped = [n for n, cell in enumerate(cells[1:]) if cell._over_time and cells[n] is cell.cell]
    neurons = [n for n, cell in enumerate(cells) if hasattr(cell, "init_state")]
    number = (looped or neurons or [0])[0]
    return number, cells[number + 1] if looped else cells[number]


def name_of_layer(cell: Any) -> str:
    """The path of a Cell in its network, as in the names of its Parameters, and its class."""
    kind = type(cell).__name__
    kind += f"({type(cell.cell).__name__})" if cell._over_time else ""
    return f"{cell._naming.prefix.removesuffix('.')} {kind}".lstrip()
