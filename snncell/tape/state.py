"""The tape, the Values of traces, and the state of each thread: what is recorded, traced and checked now.

    y = x * w; z = exp(y)       tape: mul(x, w), exp(y)
    backward from dz:           exp.pull -> dy;  mul.pull -> dx, dw

The Tensors that came out of an Entry keep it alive, and so do the entries that used them. The tape holds weak
references only, so an entry that nothing needs any more is gone before the backward pass (`backward.py`) begins.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Protocol

from snncell import dtype as dtypes
from snncell.base.config import FINITE, SETTINGS
from snncell.base.signals import Write, hold_attributes, hold_together, in_child
from snncell.errors import TraceError
from snncell.kernels.arrays import quiet_runner
from snncell.kernels.space import DEVICE, HOST, Space

Hook = Callable[[Any], Any]  # of a gradient: returns another one, or None to leave it
Hooks = dict[int, tuple[int, Hook]]  # by number: the index of the output, and the function


class _Operation(Protocol):
    """An operation, as far as the tape uses it; `name` is for errors."""

    @property
    def name(self) -> str: ...

    def pull(self, entry: Any, douts: list[Any]) -> Sequence[Any]:
        """The gradients of the inputs, each a Tensor, None for zero, or a function that computes it on demand.

        Args:
            entry: the call of the operation.
            douts: the gradient of each output, a Tensor, or None for zero.
        """


class Entry:
    """One operation that was carried out: its parents, and the values that its `bprop` needs.

    Args:
        op: the operation; None for a source of gradients.
        attrs: its options.
        parents: for each input the entry that it came out of, or None if no gradient flows there.
        indices: for each input its number among the outputs of that entry.
        inputs: for each input its value, or None if the bprop does not need it.
        outputs: the output arrays if the bprop needs them, else None.
        specs: shape and dtype of each output.
    """

    __slots__ = (
        "__weakref__", "attrs", "hooks", "indices", "inputs", "line", "op", "outputs", "parents", "released", "specs",
    )  # fmt: skip

    def __init__(
        self,
        op: _Operation | None,
        attrs: Any,
        parents: list[Entry | None],
        indices: list[int],
        inputs: Any,
        outputs: Any,
        specs: Sequence[tuple[tuple[int, ...], Any]],
    ) -> None:
        self.op, self.attrs = op, attrs
        self.parents, self.indices = parents, indices
        self.inputs, self.outputs, self.specs = inputs, outputs, specs
        self.released = False  # set by `clear`, because an entry without parents looks the same
        self.line = ""  # the user's line, if it was traced
        self.hooks: Hooks | None = None

    @classmethod
    def source(cls, data: Any) -> Entry:
        """An entry without parents: gradients are taken with respect to it."""
        return cls(None, None, [], [], (), None, ((data.shape, data.dtype),))

    def clear(self) -> None:
        """Drop all references, so that a Tensor that a user keeps does not keep a whole graph."""
        self.parents, self.indices, self.inputs, self.outputs = [], [], (), None
        self.released = True


class Tape:
    """The entries of one recording; see `state.record_on` for how tapes nest.

    Attributes:
        entries: weak references, in the order of the forward pass.
        depth: the number of nested tapes, this one included: the highest order of gradients that you can take.
    """

    __slots__ = ("depth", "entries")

    def __init__(self) -> None:
        self.entries: list[weakref.ref[Entry]] = []
        self.depth = 1

    def live(self) -> list[Entry]:
        """The entries that something still refers to, in the order of the forward pass."""
        return [entry for reference in self.entries if (entry := reference()) is not None]


# --- traces -----------------------------------------------------------------------------------------------------------


def stale() -> TraceError:
    """The error for a traced Tensor that is used after its trace has ended."""
    return TraceError(
        "This Tensor belongs to a function that snncell.jit traced earlier, or to a step that MultiStep, scan or vmap "
        "traced. It has no value outside, where it was kept, for example in a list. Return it from the function."
    )


class _TraceLike(Protocol):
    """The part of a trace that Tensors, Parameters and the tape use; `tracing.Trace` documents it."""

    count: int
    line: str
    eager: bool
    cells: dict[Any, None]
    written: dict[Any, Any]
    gradient_targets: dict[Any, None]

    def outside(self, inputs: Any) -> bool: ...
    def stepping_out(self) -> AbstractContextManager[Any]: ...
    def record(self, op: Any, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> Any: ...
    def note(self, x: Any) -> None: ...
    def lift(self, x: Any) -> Any: ...
    def present(self, parameter: Any) -> Any: ...
    def write(self, parameter: Any, value: Any) -> None: ...
    def needs_value(self, what: str) -> TraceError: ...
    def made_inside(self, what: str) -> TraceError: ...


class Value:
    """A variable of a Program: the shape and dtype of an array that there will be when the Program runs."""

    __slots__ = ("dtype", "number", "shape", "trace")
    __array_ufunc__ = None  # NumPy is to refuse it, not to make an array of one object

    def __init__(self, trace: _TraceLike, shape: tuple[int, ...], dtype: Any) -> None:
        self.trace, self.shape, self.dtype, self.number = trace, shape, dtype, trace.count
        trace.count += 1

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise stale()

    @property
    def spec(self) -> tuple[tuple[int, ...], Any]:
        """Shape and dtype."""
        return self.shape, self.dtype

    def __repr__(self) -> str:
        return f"%{self.number}:{self.dtype}[{','.join(map(str, self.shape))}]"


# --- the state of each thread -----------------------------------------------------------------------------------------

#     RECORDING   the tape and the log of overwritten values; where new Tensors are made
#     TRACING     the trace that collects a Program; how loops over time run
#     CHECKING    monitors, and the settings of gradient checks
#
# Read a field as an attribute (`RECORDING.tape`); set it in the body of a `with`: `with settings(tape=None):`.


class Watch(Protocol):
    """A monitor of the calls of Cells. `hooks.py` has the labels and events of its notes."""

    wishes: Hashable  # its selection of each quantity

    @property
    def key(self) -> Hashable:
        """The wishes and the names of the Cells: another key needs another trace."""

    def around(self, cell: Any, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a Cell: `run(args, kwargs)`."""

    def chosen(self, label: Any, x: Any) -> Any:
        """The selected part of a Tensor whose first axis is time."""

    def take(self, label: Any, x: Any) -> None:
        """Record a note."""


class Undo(list[Write]):
    """The values that Parameters had before a transaction wrote them; see `parameter.together`."""

    outer: Undo | None = None

    def note(self, before: list[Write]) -> None:
        """Note values that are about to be overwritten. The first ones noted are put back last."""
        self[:0] = before
        if self.outer is not None:
            self.outer.note(before)


class _RecordingState(threading.local):
    tape: Tape | None = None
    paused = False  # whether a tape waits while the forward of a custom reverse runs unrecorded
    undo: Undo | None = None  # the old values of Parameters that are written together
    space: Space | None = None  # where Tensors are made; None for the device that `set_context` sets
    turn: Callable[[], None] | None = None  # of a thread that makes data ahead: waits until it may draw and write


class _TracingState(threading.local):
    trace: _TraceLike | None = None
    notes: list[Any] | None = None  # the notes of monitors in a traced function; see `hooks.py`
    step: int | None = None  # the time step of a loop that goes step by step
    unfused = False  # whether loops over time go step by step, and jitted functions run as they are


class _CheckingState(threading.local):
    watch: Watch | None = None  # the monitor that sees the calls of Cells
    smooth = False  # whether Cells that have a smooth primitive run it instead of construct
    wide = False  # whether float32 means float64, so that networks in float32 can be checked precisely
    stops: Callable[[Any, Any], Any] | None = None  # the hook of stop_gradient: (x, x stopped) -> its result


RECORDING = _RecordingState()
TRACING = _TracingState()
CHECKING = _CheckingState()
_OBJECT_OF = {
    name: state for state in (RECORDING, TRACING, CHECKING) for name in dir(type(state)) if not name.startswith("_")
}


def here() -> Space:
    """The space in which Tensors are made: that of the running Cell's inputs, or else that of `set_context`."""
    return RECORDING.space or (HOST if SETTINGS["device_target"] == "CPU" else DEVICE)


# Python's own locks, not classes around them: their `__enter__` and `__exit__` are in C, see `base/signals.py`.
EFFECTS_LOCK: Any = threading.RLock()  # held while Parameters are read, computed with, and written
TRACING_LOCK: Any = threading.RLock()  # held while what several threads share is traced or planned
if hasattr(os, "register_at_fork"):  # a thread that the child does not have may have held them
    # Registered after the fork's own locks (`base/signals.py`), so a turn is waited for before they are taken: a child
    # draws what its parent would.
    os.register_at_fork(before=lambda: in_turn(), after_in_child=lambda: in_child(EFFECTS_LOCK, TRACING_LOCK))


def in_turn() -> None:
    """Wait, on a thread that makes data ahead, until what it draws and writes comes in the order of the program.

    Called before `EFFECTS_LOCK` is taken, which the steps that are waited for need.
    """
    if RECORDING.turn is not None:
        RECORDING.turn()


class _QuietRunner(threading.local):
    def __init__(self) -> None:
        self.run = quiet_runner()


_QUIET = _QuietRunner()


def quietly(function: Callable[..., Any], *args: Any) -> Any:
    """Call `function` without floating-point warnings."""
    try:
        return _QUIET.run(function, *args)
    except RuntimeError as error:
        if not str(error).startswith("cannot enter context"):
            raise
    return function(*args)  # a signal handler has interrupted a quiet call, so warnings are off already


def requested_dtype(dtype: Any) -> dtypes.DType:
    """The dtype that is asked for; while gradients are checked in float64, float64 in place of other floats."""
    target = dtypes.as_dtype(dtype)
    return dtypes.float64 if CHECKING.wide and dtypes.is_float(target.dtype) else target


def settings(**values: Any) -> AbstractContextManager[Any]:
    """Set fields of RECORDING, TRACING and CHECKING for this thread in the body of a `with` statement."""
    states = {_OBJECT_OF[name] for name in values}
    changes = []
    for state in states:
        new = {name: value for name, value in values.items() if _OBJECT_OF[name] is state}
        changes.append((vars(state), new, {name: getattr(state, name) for name in new}))
    return hold_attributes(*changes[0]) if len(changes) == 1 else hold_together(changes)


def present_settings(*names: str) -> dict[str, Any]:
    """The values of these fields on this thread; of all fields without an argument."""
    return {name: getattr(_OBJECT_OF[name], name) for name in names or _OBJECT_OF}


def adopt_settings(values: dict[str, Any]) -> None:
    """Set fields for the whole life of this thread, for example to those of the thread that started it."""
    for name, value in values.items():
        setattr(_OBJECT_OF[name], name, value)


def recording_on(tape: Tape | None) -> AbstractContextManager[Any]:
    """Record on `tape` in the body; with None, record nothing."""
    return hold_attributes(vars(RECORDING), {"tape": tape}, {"tape": RECORDING.tape})


def record_on(tape: Tape) -> AbstractContextManager[Any]:
    """Record on a new tape in the body, inside of the tape that is active.

    When the body ends, the entries of `tape` go on to the outer tape, because they are part of both recordings.
    """
    outer = RECORDING.tape
    tape.depth = 1 if outer is None else 1 + outer.depth
    passed_on = () if outer is None else (partial(outer.entries.extend, tape.entries),)
    return hold_attributes(vars(RECORDING), {"tape": tape}, {"tape": outer}, *passed_on)


def add_entry(tape: Tape, entry: Entry) -> None:
    """Append an operation that has just been carried out to a tape."""
    if TRACING.trace is not None:
        entry.line = TRACING.trace.line
    else:
        for watch in FINITE:  # the user's line takes long to find eagerly, so only `check_finite` asks for it
            entry.line = watch.place()
    tape.entries.append(weakref.ref(entry))


def smooth() -> AbstractContextManager[Any]:
    """A context in which every Cell that has a method `primitive` runs that smooth function instead of its construct.

    Example:
        >>> net = nn.MultiStep(nn.LIFNode())
        >>> with snncell.surrogate.smooth():  # finite differences see a network without steps
        ...     found = snncell.testing.check_grads(net, ops.uniform((5, 2, 3)))
    """
    return settings(smooth=True)


def unfused() -> AbstractContextManager[Any]:
    """A context in which nothing is compiled: `ops.scan` and `nn.MultiStep` go step by step on the tape.

    Functions of `jit` run as they are. Results are those of the kernels up to rounding; a debugger, a print or a hook
    in a Cell sees each step and its values.

    Example:
        >>> net, x = nn.MultiStep(nn.LIFNode()), ops.ones((5, 1, 2)) * 3.0
        >>> with snncell.testing.unfused():
        ...     slowly = net(x)
        >>> bool((slowly == net(x)).all())
        True
    """
    return settings(unfused=True)
