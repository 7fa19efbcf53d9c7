"""The frames of Python's stack, and the protocol by which functions of higher floors give them a meaning.

    @tells(lambda local: Updating(local["parameter"]) if "parameter" in local else None)
    def construct(self, gradients): ...

An error names the user's line, the Cells that run there, and the Parameter that is being updated. All that costs
nothing until there is an error: it is read from the frames that are on the stack then. A function whose frames mean
something registers that with `tells`; nothing here knows the names of its local variables.
"""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Callable, Mapping
from types import CodeType, FrameType
from typing import Any, NamedTuple, TypeVar

from snncell.base import arguments
from snncell.base.arguments.tracebacks import PACKAGE as PACKAGE

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
    """Decorate a function whose frames mean something.

    Args:
        kind: the class of the Mark.
        teller: makes it from the local variables; None where there is none yet.
    """

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


machinery(os.path.join(os.path.dirname(os.path.abspath(__file__)), "__init__.py"))
machinery(str(arguments.__file__))


def is_machinery(frame: FrameType) -> bool:
    """True if the frame's code carries operations out."""
    return frame.f_code.co_filename.startswith(_machinery)


def text_of(frame: FrameType) -> str:
    """File, line and text of where a frame is: "net.py:12: v = v + x"."""
    path, number = frame.f_code.co_filename, frame.f_lineno
    return f"{os.path.basename(path)}:{number}: {linecache.getline(path, number).strip()}"


def user_line(*, within: bool = False) -> str:
    """File, line and text of the innermost caller outside of the package; `within`, of one that is no machinery.

    An operation that a bprop of the package calls belongs to the line of the operation that is being reversed.
    """
    beyond = _machinery if within else PACKAGE
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(beyond):
        mark = mark_of(frame, Reversing)
        if isinstance(mark, Reversing):
            return f"reverse of {mark.line}"
        frame = frame.f_back
    return text_of(frame)
