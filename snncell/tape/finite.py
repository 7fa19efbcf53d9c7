"""NaN detection for `set_context(check_finite=True)`: find the first operation with NaN or inf, and its source line.

If a result is not finite, this module reads the user's line, the running Cells, and the Parameter that an optimiser is
updating from Python's frames. It also does so for each entry of the tape, because an error in a backward pass must name
the line and Cells of the forward pass. The operations of a replayed loop (`compiler/nan_replay.py`) get the line that
called the loop.
"""

from __future__ import annotations

import inspect
import math
import sys
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any, NamedTuple, Self

import numpy as np

from snncell.base import config
from snncell.base.frames import (
    PACKAGE,
    Reversing,
    Running,
    Updating,
    describe_frame,
    is_machinery,
    layer_among,
    mark_of,
)
from snncell.base.signals import hold_attributes
from snncell.dtype import INEXACT
from snncell.errors import NotFiniteError
from snncell.kernels.cuda.arrays import DeviceArray
from snncell.kernels.space import HOST
from snncell.tape.parameter import Parameter
from snncell.tape.primitive import Primitive
from snncell.tape.state import TRACING
from snncell.tape.tensor import Tensor


class SourceLine(str):
    """A line of the user's code as text."""

    __slots__ = ("about", "backward", "caller", "cells")

    cells: tuple[tuple[Any, tuple[Any, ...]], ...]  # the Cells that run there, innermost first, with their arguments
    caller: str  # the innermost line outside of the package
    backward: bool  # whether a gradient is being computed
    about: str  # " (Parameter 'w')" if an optimiser is updating that Parameter, else ""

    def __new__(cls, line: str, cells: Any = (), caller: str = "", backward: bool = False, about: str = "") -> Self:
        place = super().__new__(cls, line)
        place.cells, place.caller, place.backward, place.about = tuple(cells), caller, backward, about
        return place

    def cells_in_words(self) -> tuple[str, str]:
        """The running Cells and their layer as text, and the layer's path."""
        cells = [cell for cell, _ in self.cells]
        if not cells:
            return "", ""
        paths = {id(cell): path for path, cell in cells[-1].cells_and_names()}
        known = [cell for cell in cells if id(cell) in paths]
        text, layer = _layer(known, paths)
        # A temporary Cell, or a Cell that is no descendant of the outermost one, has no path.
        return text if cells[0] is known[0] else f"{type(cells[0]).__name__} within {text}", layer

    def name_of(self, operand: Any, number: int) -> str:
        """The user's name of an operand: a Parameter, an input of a running Cell, or its number."""
        if isinstance(operand, Parameter):
            for cell, _ in reversed(self.cells):
                for path, own in cell.parameters_and_names() if cell._naming.names_children else ():
                    if own is operand:
                        return f"Parameter {path!r}"
            return f"Parameter {operand.name!r}{_owner(operand)}"
        for cell, args in reversed(self.cells):
            names = list(inspect.signature(cell.construct).parameters)
            for position, arg in enumerate(args):
                if arg is operand:
                    name = names[min(position, len(names) - 1)] if names else position
                    return f"input {name} of {type(cell).__name__}"
        if not isinstance(operand, Tensor):
            return f"operand {number}, {operand!r},"
        return f"operand {number}, a {operand.dtype.name}{list(operand.shape)} that is not an operation's result,"

    def over_time(self, operand: Any) -> bool:
        """True if `operand` is an input of the outermost Cell, and this Cell runs over time."""
        if not self.cells or not any(x is operand for x in self.cells[-1][1]):
            return False
        return any(cell._over_time for _, cell in self.cells[-1][0].cells_and_names())


def _owner(parameter: Parameter) -> str:
    return "" if parameter.owner is None else f" ({parameter.owner.label})"


def _layer(cells: list[Any], paths: dict[int, str]) -> tuple[str, str]:
    """Text and path of the layer that runs: the loop over a running Cell, else a neuron, else the innermost Cell."""
    inner, outer = cells[0], cells[-1]
    number, found = layer_among(cells)
    layer = paths[id(found)]
    text = type(inner).__name__
    if number:
        text += f" ({paths[id(inner)]!r}) of {type(cells[number]).__name__}"
    if layer:
        text += f", layer {layer!r} of {type(outer).__name__}"
    return text, layer


def place_at(floor: FrameType | None, home: SourceLine, arguments: bool) -> SourceLine:
    """The running line of the user's code with the running Cells, and with `arguments` also their arguments. While a
    loop is replayed, the search in the stack ends at `floor`, the frame of the replay, and continues with `home`, the
    line that called the loop.
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
            line = line or (f"backward of {mark.line}" if mark.line else "")
            outer = mark.line if isinstance(mark.line, SourceLine) else None
        elif isinstance(mark, Running):
            if not cells or cells[-1].cell is not mark.cell:  # a Cell calls itself to switch devices
                cells.append(mark if arguments else Running(mark.cell, ()))
        elif not is_machinery(frame):
            line = line or describe_frame(frame)
            caller = caller or ("" if frame.f_code.co_filename.startswith(PACKAGE) else describe_frame(frame))
            if isinstance(mark, Updating):
                about = about or f" (Parameter {mark.parameter.name!r}{_owner(mark.parameter)})"
        if outer is not None:
            return SourceLine(line or outer, [*cells, *outer.cells], caller or outer.caller, backward, about)
        frame = frame.f_back
    return SourceLine(line, cells, caller, backward, about)


class _Thread(threading.local):
    paused = False  # whether this thread checks nothing
    floor: FrameType | None = None  # the frame that replays a loop
    home = SourceLine("")  # the line that called the loop


_THREAD = _Thread()


def is_paused() -> bool:
    """True in the body of `pause_watch`."""
    return _THREAD.paused


def pause_watch() -> AbstractContextManager[Any]:
    """Context manager: check nothing."""
    return hold_attributes(vars(_THREAD), {"paused": True}, {"paused": _THREAD.paused})


def report_at(home: SourceLine, floor: FrameType) -> AbstractContextManager[Any]:
    """Context manager: errors of operations that the frame `floor` calls report the line `home`."""
    before = {"floor": _THREAD.floor, "home": _THREAD.home}
    return hold_attributes(vars(_THREAD), {"floor": floor, "home": home}, before)


class Spot(NamedTuple):
    """The first element of an array that is not finite, and the number of others."""

    kind: str  # "NaN", "inf" or "-inf"
    entry: tuple[int, ...]
    others: int
    shape: tuple[int, ...]

    def __str__(self) -> str:
        at = f" at entry {self.entry}" if self.shape else ""
        return f"{self.kind}{at}" + (f" (and {self.others} more, of {math.prod(self.shape)})" if self.others else "")


def find_nonfinite(data: Any) -> Spot | None:
    """The first NaN of an array, a Tensor or a number, or else the first inf; None if all elements are finite."""
    data = data._data if isinstance(data, Tensor) else data
    if isinstance(data, (float, complex)):
        data = np.asarray(data)
    if getattr(data, "dtype", None) not in INEXACT:
        return None
    array = HOST.widen(data.host() if isinstance(data, DeviceArray) else data)
    fine = np.isfinite(array)
    if fine.all():
        return None
    nan = np.isnan(array)
    entry = np.unravel_index(int(np.argmax(nan if nan.any() else ~fine)), array.shape)
    number = array[entry]
    kind = "NaN" if np.isnan(number) else "-inf" if number.real < 0 else "inf"
    return Spot(kind, tuple(map(int, entry)), int(np.size(fine) - np.count_nonzero(fine)) - 1, array.shape)


class Fault(NamedTuple):
    """The facts about a result that is not finite."""

    operation: str
    spot: Spot  # the element of its result, or of an outside operand
    cause: str  # such as "of finite operands: it starts here"
    place: SourceLine
    operand: Any = None  # the outside Tensor that was not finite
    source: str = ""  # the name of that Tensor
    loop: str = ""  # such as "MultiStep(LIFNode), time step 37: "
    step: int | None = None
    reached: str = ""  # a sentence such as " It reaches state v of that step."

    def within(self, loop: str, **known: Any) -> Fault:
        """The same fault in a step of an outer loop."""
        return self._replace(loop=loop + self.loop, **known)

    def _headline(self) -> str:
        phase = "" if "backward of" in self.loop or not self.place.backward else "in the backward pass, "
        if not self.source:
            return f"{self.loop}{phase}{self.operation} gives {self.spot}, {self.cause}.{self.reached}"
        step = "" if self.loop or self.step is None else f", time step {self.step} where axis 0 is time"
        first = f"The first operation that uses it is {self.operation}{self.place.about}."
        return f"{self.loop}{phase}{self.source} holds {self.spot}{step}: it came from outside. {first}{self.reached}"

    def error(self) -> NotFiniteError:
        """The NotFiniteError to raise."""
        text, layer = self.place.cells_in_words()
        lines = [self._headline()]
        lines += [f"  at {self.place}"] * bool(self.place)
        caller = self.place.caller
        lines += [f"  called from {caller}"] * (caller != "" and not self.place.endswith(caller))
        error = NotFiniteError("\n".join([*lines, *[f"  in {text}"] * bool(text)]))
        error.operation, error.step, error.entry = self.operation, self.step, self.spot.entry
        error.layer, error.line, error.fault = layer, str(self.place), self
        return error


class FiniteWatch:
    """The object in `config.FINITE` while `check_finite` is on."""

    def place(self) -> SourceLine:
        """The running line of the user's code, for a tape entry."""
        return place_at(_THREAD.floor, _THREAD.home, arguments=False)

    def results(self, op: Primitive, inputs: Sequence[Any], data: Any, attrs: dict[str, Any]) -> None:
        """Raise a NotFiniteError if an operation returned NaN, or inf from finite operands."""
        if _THREAD.paused or not op.watched:
            return
        for part in data if op.multiple else (data,):
            if part.dtype in INEXACT and (spot := find_nonfinite(part)) is not None:
                self._raise_fault(op, inputs, spot, attrs)

    def _raise_fault(self, op: Primitive, inputs: Sequence[Any], spot: Spot, attrs: dict[str, Any]) -> None:
        place = place_at(_THREAD.floor, _THREAD.home, arguments=True)
        spots = [(n, x, at) for n, x in enumerate(inputs) if (at := find_nonfinite(x)) is not None]
        # inf in an operand may be intended, as in a mask. NaN, or inf in a weight, is an error.
        weights = {n for n, x, _ in spots if isinstance(x, Parameter) and x.requires_grad}
        wrong = [(n, x, at) for n, x, at in spots if at.kind == "NaN" or n in weights]
        has_inf_operand = len(spots) > len(wrong) or any(find_nonfinite(value) is not None for value in attrs.values())
        if spot.kind != "NaN" and has_inf_operand:
            return
        if wrong:
            number, operand, spot = wrong[0]
            step = spot.entry[0] if spot.shape and place.over_time(operand) else None
            raise Fault(op.name, spot, "", place, operand, place.name_of(operand, number), step=step).error()
        cause = "of finite operands"
        if spots:
            cause = f"from inf in {place.name_of(spots[0][1], spots[0][0]).removesuffix(',')}"
        raise Fault(op.name, spot, f"{cause}: it starts here{place.about}", place).error()

    def gradient(self, who: str, what: str, grad: Tensor | None) -> None:
        """Raise a NotFiniteError if the gradient that `who` returned for `what` is not finite."""
        if _THREAD.paused or grad is None or TRACING.trace is not None:
            return
        if (spot := find_nonfinite(grad)) is not None:
            cause = f"for {what}, but no checked operation produced it"
            raise Fault(who, spot, cause, self.place()).error()


def _follow() -> None:
    config.FINITE[:] = [_WATCH] if config.SETTINGS["check_finite"] else []


_WATCH = FiniteWatch()
config.LISTENERS.append(_follow)
