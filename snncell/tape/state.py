"""The state of this thread: the tape that records, the trace that collects a Program, smooth spikes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from snncell import config, dtype as dtypes
from snncell.forks import in_child
from snncell.interrupts import Write, hold_attributes
from snncell.kernels.arrays import quiet_runner
from snncell.kernels.space import DEVICE, HOST, Space

if TYPE_CHECKING:
    pass
    from snncell.tape.tape import Tape
    from snncell.tape.taps import Watch
    from snncell.tape.tracing import Trace


class _ThreadState(threading.local):
    def __init__(self) -> None:
        self.quiet = quiet_runner()  # calls a function without floating-point warnings

    tape: Tape | None = None
    trace: Trace | None = None
    paused = False  # whether a tape waits while the forward of a custom reverse runs unrecorded
    space: Space | None = None  # where Tensors are made, if not where `set_context` says
    smooth = False  # whether Cells that have a smooth primitive run it instead of construct
    watch: Watch | None = None  # the monitor that sees the calls of Cells
    undo: Undo | None = None  # the old values of Parameters that are written together
    notes: list[Any] | None = None  # the notes taken while a function is traced; see `taps.py`
    wide = False  # whether float32 means float64: networks written for float32 are checked so
    unfused = False  # whether loops over time go step by step, and jitted functions run as they are
    step: int | None = None  # the time step of a loop that goes step by step
    stops: Callable[[Any, Any], Any] | None = None  # the hook of stop_gradient: (x, x stopped) -> what it returns
    turn: Callable[[], None] | None = None  # of a thread that makes data ahead: waits until it may draw and write


STATE = _ThreadState()


def here() -> Space:
    """The space in which Tensors are made: that of the running Cell's inputs, or else that of `set_context`."""
    return STATE.space or (HOST if config.get_context("device_target") == "CPU" else DEVICE)


# Python's own locks, not classes around them: their `__enter__` and `__exit__` are in C, see `interrupts.py`.
EFFECTS_LOCK: Any = threading.RLock()  # held while Parameters are read, computed with, and written
TRACING_LOCK: Any = threading.RLock()  # held while what several threads share is traced or planned
if hasattr(os, "register_at_fork"):  # a thread that the child does not have may have held them
    # Registered after the fork's own locks (`forks.py`), so a turn is waited for before they are taken: a child draws
    # what its parent would.
    os.register_at_fork(before=lambda: in_turn(), after_in_child=lambda: in_child(EFFECTS_LOCK, TRACING_LOCK))


def in_turn() -> None:
    """Wait, on a thread that makes data ahead, until what it draws and writes comes in the order of the program.

    Called before `EFFECTS` is taken, which the steps that are waited for need.
    """
    if STATE.turn is not None:
        STATE.turn()


def quietly(function: Callable[..., Any], *args: Any) -> Any:
    """Call `function` without floating-point warnings."""
    try:
        return STATE.quiet(function, *args)
    except RuntimeError as error:
        if not str(error).startswith("cannot enter context"):
            raise
    # This thread is inside of the context already: a signal handler has interrupted a quiet call, so warnings are off.
    return function(*args)


def requested_dtype(dtype: Any) -> dtypes.DType:
    """The dtype that is asked for; while gradients are checked in float64, float64 in place of other floats.

    Raises:
        DTypeError: for an unknown dtype.
    """
    target = dtypes.as_dtype(dtype)
    return dtypes.float64 if STATE.wide and dtypes.is_float(target.dtype) else target


def settings(**values: Any) -> AbstractContextManager[Any]:
    """Hold these settings of the thread in the body."""
    return hold_attributes(vars(STATE), values, {name: getattr(STATE, name) for name in values})


def recording_on(tape: Tape | None) -> AbstractContextManager[Any]:
    """Record on `tape` in the body; with None, record nothing."""
    return settings(tape=tape)


def tracing_to(trace: Trace | None) -> AbstractContextManager[Any]:
    """Append operations to `trace` in the body instead of evaluating them; with None, evaluate them."""
    return settings(trace=trace)


def set_smooth(value: bool) -> AbstractContextManager[Any]:
    """Set whether Cells run their smooth primitives."""
    return settings(smooth=value)


def smooth() -> AbstractContextManager[Any]:
    """A context in which every Cell that has a method `primitive` runs that smooth function instead of its construct.

    Example:
        >>> net = nn.MultiStep(nn.LIFNode())
        >>> with snncell.surrogate.smooth():  # finite differences see a network without steps
        ...     found = snncell.testing.check_grads(net, ops.uniform((5, 2, 3)))
    """
    return set_smooth(True)


def unfused() -> AbstractContextManager[Any]:
    """A context in which nothing is compiled: `ops.scan` and `nn.MultiStep` go step by step on the tape.

    A function made by `jit` runs as it is, and what a MultiStep compiled before is left aside. Results are those of the
    kernels but for rounding; a debugger, a print or a hook in a Cell sees each step and its values.

    Example:
        >>> net, x = nn.MultiStep(nn.LIFNode()), ops.ones((5, 1, 2)) * 3.0
        >>> with snncell.testing.unfused():
        ...     slowly = net(x)
        >>> bool((slowly == net(x)).all())
        True
    """
    return settings(unfused=True)


class Undo(list[Write]):
    """The values that the Parameters written in a context had before; see `together`."""

    outer: Undo | None = None

    def note(self, before: list[Write]) -> None:
        """Note values that are about to be overwritten: the first ones noted are put back last."""
        self[:0] = before
        if self.outer is not None:
            self.outer.note(before)
