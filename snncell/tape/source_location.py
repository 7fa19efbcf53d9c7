"""Source locations in the user's code: a line, the Cells that run there, the Parameter that is updated, from frames."""

from __future__ import annotations

import inspect
import sys
from types import FrameType
from typing import Any

from snncell.tape.frames import PACKAGE, Reversing, Running, Updating, is_machinery, mark_of, text_of
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor


class SourceLine(str):
    """A line of the user's, as text, or "reverse of" one.

    Attributes:
        cells: the Cells that run there, innermost first, each with its arguments.
        caller: the innermost line outside of the package.
        backward: whether a gradient is being taken.
        about: " (Parameter 'w')", if an optimiser is updating that.
    """

    __slots__ = ("about", "backward", "caller", "cells")

    cells: tuple[tuple[Any, tuple[Any, ...]], ...]
    caller: str
    backward: bool
    about: str

    def __new__(
        cls, line: str, cells: Any = (), caller: str = "", backward: bool = False, about: str = ""
    ) -> SourceLine:
        place = super().__new__(cls, line)
        place.cells, place.caller, place.backward, place.about = tuple(cells), caller, backward, about
        return place

    def cells_in_words(self) -> tuple[str, str]:
        """The innermost Cell, its layer and the outermost Cell, as text; and the layer's path."""
        cells = [cell for cell, _ in self.cells]
        if not cells:
            return "", ""
        paths = {id(cell): path for path, cell in cells[-1].cells_and_names()}
        known = [cell for cell in cells if id(cell) in paths]
        inner = cells[0]
        if inner is not known[0]:  # a temporary Cell, or one that no attribute of the outermost leads to
            text, layer = _layer(known, paths)
            return f"{type(inner).__name__} within {text}", layer
        return _layer(known, paths)

    def name_of(self, operand: Any, number: int) -> str:
        """The user's name of an operand: a Parameter, an input of a Cell that runs, or its number."""
        if isinstance(operand, Parameter):
            return self._parameter(operand)
        for cell, args in reversed(self.cells):
            names = list(inspect.signature(cell.construct).parameters)
            for position, arg in enumerate(args):
                if arg is operand:
                    name = names[min(position, len(names) - 1)] if names else position
                    return f"input {name} of {type(cell).__name__}"
        if not isinstance(operand, Tensor):
            return f"operand {number}, {operand!r},"
        return f"operand {number}, a {operand.dtype.name}{list(operand.shape)} that no operation gave,"

    def over_time(self, operand: Any) -> bool:
        """True if it is an input of the outermost Cell, and that runs something over time: along its first axis."""
        if not self.cells or not any(x is operand for x in self.cells[-1][1]):
            return False
        return any(cell._over_time for _, cell in self.cells[-1][0].cells_and_names())

    def _parameter(self, parameter: Parameter) -> str:
        for cell, _ in reversed(self.cells):
            if cell._naming.names_children:
                for path, own in cell.parameters_and_names():
                    if own is parameter:
                        return f"Parameter {path!r}"
        return f"Parameter {parameter.name!r}{_owner(parameter)}"


def _owner(parameter: Parameter) -> str:
    return "" if parameter.owner is None else f" ({parameter.owner.label})"


def _layer(cells: list[Any], paths: dict[int, str]) -> tuple[str, str]:
    """Of the Cells that run, innermost first, the innermost and its layer.

    The layer is what a MultiStep runs, called by the MultiStep's path; else a neuron, or the innermost Cell.
    """
    inner, outer = cells[0], cells[-1]
    looped = [n for n, cell in enumerate(cells[1:]) if cell._over_time and cells[n] is cell.cell]
    neurons = [n for n, cell in enumerate(cells) if hasattr(cell, "init_state")]
    number = (looped or neurons or [0])[0]
    layer = paths[id(cells[number + 1] if looped else cells[number])]
    text = type(inner).__name__
    if number:
        text += f" ({paths[id(inner)]!r}) of {type(cells[number]).__name__}"
    if layer:
        text += f", layer {layer!r} of {type(outer).__name__}"
    return text, layer


def place_at(floor: FrameType | None, home: SourceLine, arguments: bool) -> SourceLine:
    """The place in the user's code that is running now.

    Args:
        floor: a frame that replays what ran at `home`: the walk up the stack ends there, and goes on with that place.
        home: that place.
        arguments: whether the place holds the arguments of the Cells: one that is kept for long is not to keep those.
    """
    frame: FrameType | None = sys._getframe(1)
    line, caller, about, backward = "", "", "", False
    cells: list[Running] = []
    while frame is not None:
        mark = mark_of(frame)
        outer: SourceLine | None = None
        if frame is floor:
            outer = home
        elif isinstance(mark, Reversing):
            backward = True
            line = line or (f"reverse of {mark.line}" if mark.line else "")
            outer = mark.line if isinstance(mark.line, SourceLine) else None
        elif isinstance(mark, Running):
            if not cells or cells[-1].cell is not mark.cell:  # it may call itself for another device
                cells.append(mark if arguments else Running(mark.cell, ()))
        elif not is_machinery(frame):
            line = line or text_of(frame)
            caller = caller or ("" if frame.f_code.co_filename.startswith(PACKAGE) else text_of(frame))
            if isinstance(mark, Updating):
                about = about or f" (Parameter {mark.parameter.name!r}{_owner(mark.parameter)})"
        if outer is not None:
            return SourceLine(line or outer, [*cells, *outer.cells], caller or outer.caller, backward, about)
        frame = frame.f_back
    return SourceLine(line, cells, caller, backward, about)
