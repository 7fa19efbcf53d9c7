"""The tape, the Values of traces, and the state of each thread: recording, tracing and checking.

    y = x * w; z = exp(y)       tape: mul(x, w), exp(y)
    backward from dz:           exp.pull -> dy;  mul.pull -> dx, dw

The tape holds only weak references to its entries. An Entry lives as long as its output Tensors or the entries that use
them, so unused entries are freed before the backward pass (`backward.py`) begins.
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

Hook = Callable[[Any], Any]  # a function of a gradient that returns a new one, or None to keep it
Hooks = dict[int, tuple[int, Hook]]  # by hook number: the index of the output, and the function


class _Operation(Protocol):
    """The part of an operation that the tape uses; error messages contain `name`."""

    @property
    def name(self) -> str: ...

    def pull(self, entry: Any, douts: list[Any]) -> Sequence[Any]:
        """The gradients of the inputs from `douts`: Tensors, None for zero, or functions that compute one on demand."""


class Entry:
    """One executed operation on the tape: its parents, and the values that its `bprop` needs."""

    __slots__ = (
        "__weakref__", "attrs", "hooks", "indices", "inputs", "line", "op", "outputs", "parents", "released", "specs",
    )  # fmt: skip

    def __init__(
        self,
        op: _Operation | None,  # None for a source of gradients
        attrs: Any,  # the options of the operation
        parents: list[Entry | None],  # for each input the entry that computed it, or None if no gradient flows there
        indices: list[int],  # for each input its position among the outputs of that entry
        inputs: Any,  # for each input its value, or None if the bprop does not need it
        outputs: Any,  # the output arrays if the bprop needs them, else None
        specs: Sequence[tuple[tuple[int, ...], Any]],  # shape and dtype of each output
    ) -> None:
        self.op, self.attrs = op, attrs
        self.parents, self.indices = parents, indices
        self.inputs, self.outputs, self.specs = inputs, outputs, specs
        self.released = False  # True after `clear`; without it, a cleared entry would look like a source
        self.line = ""  # the user's line, if it was traced
        self.hooks: Hooks | None = None

    @classmethod
    def source(cls, data: Any) -> Entry:
        """An entry without parents: a source, with respect to which gradients are taken."""
        return cls(None, None, [], [], (), None, ((data.shape, data.dtype),))

    def clear(self) -> None:
        """Drop all references, so that a Tensor that the user keeps does not keep the whole graph."""
        self.parents, self.indices, self.inputs, self.outputs = [], [], (), None
        self.released = True


class Tape:
    """The entries of one recording; see `record_on` for nested tapes."""

    __slots__ = ("depth", "entries")

    def __init__(self) -> None:
        self.entries: list[weakref.ref[Entry]] = []  # in the order of the forward pass
        self.depth = 1  # the number of nested tapes including this one: the highest order of gradients you can take

    def live(self) -> list[Entry]:
        """The entries that still exist, in the order of the forward pass."""
        return [entry for reference in self.entries if (entry := reference()) is not None]


def stale_error() -> TraceError:
    """The error for a traced Tensor that is used after its trace has ended."""
    return TraceError(
        "This Tensor belongs to a function that snncell.jit traced earlier, or to a step that MultiStep, scan or vmap "
        "traced. It was kept, for example in a list, but has no value outside. Return it from the function."
    )


class _TraceLike(Protocol):
    """The part of a trace that Tensors, Parameters and the tape use; `tracing.Trace` documents it."""

    count: int
    eager: bool
    cells: dict[Any, None]
    written: dict[Any, Any]
    gradient_targets: dict[Any, None]

    @property
    def line(self) -> str: ...  # a property, because traces store a Place, a subclass of str
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
    """A variable of a Program: the shape and dtype of an array that will exist when the Program runs."""

    __slots__ = ("dtype", "number", "shape", "trace")
    __array_ufunc__ = None  # so that NumPy raises instead of making an array of objects

    def __init__(self, trace: _TraceLike, shape: tuple[int, ...], dtype: Any) -> None:
        self.trace, self.shape, self.dtype, self.number = trace, shape, dtype, trace.count
        trace.count += 1

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise stale_error()

    @property
    def spec(self) -> tuple[tuple[int, ...], Any]:
        """Shape and dtype."""
        return self.shape, self.dtype

    def __repr__(self) -> str:
        return f"%{self.number}:{self.dtype}[{','.join(map(str, self.shape))}]"


# --- the state of each thread -----------------------------------------------------------------------------------------

#     RECORDING   the tape, the log of overwritten values, and the device of new Tensors
#     TRACING     the trace that collects a Program, and how time loops run
#     CHECKING    monitors, and the settings of gradient checks
#
# Read a field as an attribute (`RECORDING.tape`). Set it for the body of a `with`: `with settings(tape=None):`.


class Watch(Protocol):
    """A monitor, which notes Tensors in calls of Cells; `hooks.py` defines the labels of the notes."""

    selection: Hashable  # the quantities that it records, and the part of each

    @property
    def key(self) -> Hashable:
        """The recorded quantities and the names of the Cells; another key needs another trace."""

    def around(self, cell: Any, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a Cell: `run(args, kwargs)`."""

    def chosen(self, label: Any, x: Any) -> Any:
        """The selected part of a Tensor whose first axis is time."""

    def take(self, label: Any, x: Any) -> None:
        """Note a Tensor under a label."""


class Undo(list[Write]):
    """The values of Parameters before a transaction; see `parameter.together`."""

    outer: Undo | None = None

    def note(self, before: list[Write]) -> None:
        """Add values that are about to be overwritten, at the front, because the newest are restored first."""
        self[:0] = before
        if self.outer is not None:
            self.outer.note(before)


class _RecordingState(threading.local):
    tape: Tape | None = None
    paused = False  # whether a tape is paused while the forward pass of a custom gradient runs
    undo: Undo | None = None  # the old values of the present transaction
    space: Space | None = None  # where new Tensors are created; None for the device of `set_context`
    turn: Callable[[], None] | None = None  # in a prefetching thread: waits until it may draw random numbers and write


class _TracingState(threading.local):
    trace: _TraceLike | None = None
    notes: list[Any] | None = None  # the notes of monitors in a traced function; see `hooks.py`
    step: int | None = None  # the time step of a loop that runs step by step
    unfused = False  # whether time loops run step by step, and jitted functions uncompiled


class _CheckingState(threading.local):
    watch: Watch | None = None  # the active monitor
    smooth = False  # whether Cells with a smooth primitive run it instead of construct
    wide = False  # whether float32 means float64, so that gradients of float32 networks can be checked precisely
    stops: Callable[[Any, Any], Any] | None = None  # the hook of stop_gradient: (x, x stopped) -> its result


RECORDING = _RecordingState()
TRACING = _TracingState()
CHECKING = _CheckingState()
_OBJECT_OF = {name: state for state in (RECORDING, TRACING, CHECKING) for name in dir(type(state)) if name[0] != "_"}


def current_space() -> Space:
    """The space of new Tensors: that of the inputs of the running Cell, or else that of `set_context`."""
    return RECORDING.space or (HOST if SETTINGS["device_target"] == "CPU" else DEVICE)


# Plain locks without wrapper classes, because their `__enter__` and `__exit__` are in C; see `base/signals.py`.
EFFECTS_LOCK: Any = threading.RLock()  # held while Parameters are read, updated and written
TRACING_LOCK: Any = threading.RLock()  # held while shared functions are traced or planned
if hasattr(os, "register_at_fork"):  # another thread, which the child lacks, may have held them
    # Handlers registered last run first, so this one waits for the turn before `base/signals.py` takes its locks. Then
    # the child draws the random numbers that its parent would draw next.
    os.register_at_fork(before=lambda: in_turn(), after_in_child=lambda: in_child(EFFECTS_LOCK, TRACING_LOCK))


def in_turn() -> None:
    """In a prefetching thread, wait until its random numbers and writes are next in program order. Call it before
    taking `EFFECTS_LOCK`, because the steps that it waits for need this lock.
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
    return function(*args)  # we are in a signal handler during a quiet call, so warnings are off already


def requested_dtype(dtype: Any) -> dtypes.DType:
    """The DType of `dtype`; float64 for any float while gradients are checked in float64."""
    target = dtypes.as_dtype(dtype)
    return dtypes.float64 if CHECKING.wide and dtypes.is_float(target.dtype) else target


def settings(**values: Any) -> AbstractContextManager[Any]:
    """Context manager: set fields of RECORDING, TRACING and CHECKING for this thread."""
    states = {_OBJECT_OF[name] for name in values}
    changes = []
    for state in states:
        new = {name: value for name, value in values.items() if _OBJECT_OF[name] is state}
        changes.append((vars(state), new, {name: getattr(state, name) for name in new}))
    return hold_attributes(*changes[0]) if len(changes) == 1 else hold_together(changes)


def present_settings(*names: str) -> dict[str, Any]:
    """The values of these fields on this thread; of all fields by default."""
    return {name: getattr(_OBJECT_OF[name], name) for name in names or _OBJECT_OF}


def adopt_settings(values: dict[str, Any]) -> None:
    """Set fields for the rest of this thread's life, for example to the values of the thread that started it."""
    for name, value in values.items():
        setattr(_OBJECT_OF[name], name, value)


def recording_on(tape: Tape | None) -> AbstractContextManager[Any]:
    """Context manager: record on `tape`, or with None record nothing."""
    return hold_attributes(vars(RECORDING), {"tape": tape}, {"tape": RECORDING.tape})


def record_on(tape: Tape) -> AbstractContextManager[Any]:
    """Context manager: record on a new tape. At the end, its entries are appended to the outer tape, too."""
    outer = RECORDING.tape
    tape.depth = 1 if outer is None else 1 + outer.depth
    passed_on = () if outer is None else (partial(outer.entries.extend, tape.entries),)
    return hold_attributes(vars(RECORDING), {"tape": tape}, {"tape": outer}, *passed_on)


def add_entry(tape: Tape, entry: Entry) -> None:
    """Append an executed operation to a tape."""
    if TRACING.trace is not None:
        entry.line = TRACING.trace.line
    else:
        for watch in FINITE:  # only for `check_finite`, because it takes long to find the user's line
            entry.line = watch.place()
    tape.entries.append(weakref.ref(entry))


def smooth() -> AbstractContextManager[Any]:
    """Context manager: Cells with a method `primitive`, such as spike functions, run that instead of construct.

    `primitive` is the smooth function whose derivative is the surrogate gradient. Use this for gradient checks, because
    finite differences of a step function are useless.

    Example:
        >>> net = nn.MultiStep(nn.LIFNode())
        >>> with snncell.surrogate.smooth():  # finite differences see a network without steps
        ...     found = snncell.testing.check_grads(net, ops.uniform((5, 2, 3)))
    """
    return settings(smooth=True)


def unfused() -> AbstractContextManager[Any]:
    """Context manager for debugging: `ops.scan`, `nn.MultiStep` and `jit` run operation by operation, uncompiled.

    A debugger, a print or a hook in a Cell then sees the values of each time step. Results are equal up to rounding.

    Example:
        >>> net, x = nn.MultiStep(nn.LIFNode()), ops.ones((5, 1, 2)) * 3.0
        >>> with snncell.testing.unfused():
        ...     slowly = net(x)
        >>> bool((slowly == net(x)).all())
        True
    """
    return settings(unfused=True)
