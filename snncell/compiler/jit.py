"""jit: trace a function once for each kind of arguments, and replay its Program afterwards."""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from types import MethodType
from typing import Annotated, Any

from snncell.arguments.kinds import Own
from snncell.arguments.shown import came
from snncell.compiler.copies import reduced
from snncell.compiler.dependencies import Dependencies, cells_in, refuse_leaks
from snncell.compiler.explain import difference, report, report_on_passes
from snncell.compiler.passes.canonicalise import from_trace
from snncell.compiler.pipeline import stages
from snncell.compiler.runtime.plan import Plan
from snncell.compiler.runtime.plans import Plans
from snncell.compiler.vjp import TracedVjp
from snncell.config import FINITE
from snncell.errors import ArgumentError, TraceError
from snncell.tape import structure
from snncell.tape.given import TENSORS, with_tensors
from snncell.tape.state import STATE, recording_on, tracing_to
from snncell.tape.tape import Entry, Tape, watched
from snncell.tape.taps import Events, Note, NotedResults, noting
from snncell.tape.tensor import Tensor, snapshot, stale, wrap
from snncell.tape.tracing import Trace, Value

STORM = 8  # from so many traces of one function on, something is probably wrong


class Compiled:
    """A function compiled for one signature: shapes, dtypes, Python arguments, and the state of the Cells in it.

    Args:
        name: for errors.
        fn: the function.
        leaves: the Tensors among the arguments.
        arguments: the structure of (args, kwargs).
        taped: whether gradients are to be taken through it from outside.
        entries: for each of `leaves` the tape entry of the Parameter that it is, if that is to be told apart.
    """

    def __init__(
        self,
        name: str,
        fn: Callable[..., Any],
        leaves: Sequence[Tensor],
        arguments: Any,
        taped: bool,
        entries: Sequence[Entry | None],
    ) -> None:
        trace, tape, notes = Trace(taped=taped), Tape(), list[Note]()
        with tracing_to(trace), recording_on(None), tape.active() if taped else nullcontext(), noting(notes):
            stand_ins = [trace.new_input(leaf.shape, leaf._data.dtype) for leaf in leaves]
            if taped:
                stand_ins = [watched(x) for x in stand_ins]
            pairs = zip(stand_ins, entries, strict=True)
            stand_ins = [x if entry is None else wrap(x._data, entry) for x, entry in pairs]
            trace.cells.update(cells_in(arguments, fn))  # fn may read attributes of Cells without calling them
            args, kwargs = structure.unflatten(arguments, stand_ins)
            outs, self.structure_of_out = structure.flatten(fn(*args, **kwargs))
            self.noted = NotedResults(notes, outs)
            outs += self.noted.extra
            outputs = [trace.lift(out) for out in outs]
            refuse_leaks(trace)
            # Taken after the trace: what construct itself sets on a Cell belongs to the state it leaves behind.
            self.dependencies = Dependencies(trace)
            self.gradient_targets = trace.gradient_targets
            self.vjp = self.plans = None
            if taped:
                self.vjp = TracedVjp(f"jit({name})", trace, tape.live(), stand_ins, outs, self.up_to_date)
        if not taped:
            self.plans = Plans(from_trace(trace, outputs))
            self.plans.of([leaf._data for leaf in leaves])  # so that errors of compilation come at once

    def up_to_date(self) -> bool:
        """True if nothing that was traced, forward or reverse, has been changed since."""
        return self.dependencies.unchanged() and (self.vjp is None or self.vjp.unchanged())

    def changed(self) -> str:
        """The change that makes this trace out of date."""
        if self.vjp is not None and self.dependencies.unchanged():
            return self.vjp.changed()
        return self.dependencies.changed()

    def plan(self, arrays: Sequence[Any]) -> Plan:
        """The plan to replay for these arguments; on a tape there is none."""
        assert self.plans is not None  # the caller's choice
        return self.plans.of(arrays)

    def __call__(self, leaves: Sequence[Tensor]) -> Any:
        events: Events = {}
        if self.vjp is not None:
            results = self.vjp(leaves, events)
        else:
            arrays = [leaf._data for leaf in leaves]
            results = tuple([wrap(array) for array in self.plan(arrays).replay(arrays)])
        return structure.unflatten(self.structure_of_out, self.noted.pass_on(results, events))


class Jitted:
    """The result of `jit`: call it as the function it wraps.

    Args:
        fn: the function.
        name: what it is called in errors.
        limit: how many signatures are kept; beyond it, the oldest goes.
    """

    def __init__(self, fn: Callable[..., Any], name: str | None = None, limit: int | None = None) -> None:
        self.fn = fn
        self.limit = limit
        self.name = str(name or getattr(fn, "__name__", type(fn).__name__))
        self.compiled: dict[Any, Compiled] = {}
        self.stale = 0  # how often a trace was out of date
        self.reported = False  # whether its user was warned of tracing again and again

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if STATE.trace is not None:
            return self.fn(*args, **kwargs)  # part of the Program that is being traced
        if FINITE or STATE.unfused:  # operation by operation, each of which is looked at
            return structure.mapped(snapshot, self.fn(*with_tensors(args), **with_tensors(kwargs)))
        compiled, leaves = self.lookup(args, kwargs)
        return compiled(leaves)

    def __reduce__(self) -> Any:
        return reduced(self, _jitted)

    def __copy__(self) -> Jitted:
        return _jitted(self.fn, self.name, self.limit)

    def __deepcopy__(self, memo: Any) -> Jitted:
        return _jitted(copy.deepcopy(self.fn, memo), self.name, self.limit)

    def __get__(self, instance: Any, owner: type) -> Any:
        return self if instance is None else MethodType(self, instance)  # a decorated method

    def lookup(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Compiled, list[Tensor]]:
        """The trace that is compiled for these arguments, and the Tensors among them."""
        if kwargs or not TENSORS.issuperset(map(type, args)):
            args, kwargs = with_tensors(args), with_tensors(kwargs)
        leaves, tree = structure.flatten((args, kwargs))
        for leaf in leaves:
            if isinstance(leaf._data, Value):
                raise stale()
        taped = STATE.tape is not None
        watched = None if STATE.watch is None else STATE.watch.key
        specs = tuple([(leaf._data.shape, leaf._data.dtype) for leaf in leaves])
        # With the settings of this thread that change what is traced.
        signature = ((None,) * len(leaves), taped, STATE.smooth, STATE.wide, STATE.stops, watched, tree, specs)
        compiled = self._compiled_for(signature, leaves)
        # A Parameter as an argument is a Tensor like any other, unless a gradient with respect to it is taken inside.
        targets = compiled.gradient_targets
        entries = [x._entry if x._entry in targets else None for x in leaves] if targets else ()
        if any(entry is not None for entry in entries):
            compiled = self._compiled_for((tuple(entries), *signature[1:]), leaves)
        return compiled, leaves

    def _compiled_for(self, signature: Any, leaves: list[Tensor]) -> Compiled:
        try:
            compiled = self.compiled.get(signature)
        except TypeError as error:
            raise ArgumentError(
                f"jit({self.name}): arguments are Tensors, numbers, and tuples, lists or dicts of them; what is fixed "
                f"must be hashable: {error}."
            ) from None
        if compiled is None or not compiled.up_to_date():
            self._report_storm(signature, compiled)
            entries, taped, *_, tree, _ = signature
            compiled = Compiled(self.name, self.fn, leaves, tree, taped, entries)
            if self.limit is not None and len(self.compiled) >= self.limit:
                del self.compiled[next(iter(self.compiled))]
            self.compiled[signature] = compiled
        return compiled

    def _report_storm(self, signature: Any, outdated: Compiled | None) -> None:
        """Say once that a function is traced again and again, and what for."""
        self.stale += outdated is not None
        if self.reported or self.limit is not None or max(self.stale, len(self.compiled)) < STORM:
            return
        self.reported = True
        if outdated is not None and self.stale >= STORM:
            cause = f"{outdated.changed()} is changed between the calls. Make what changes an argument or a Parameter"
        else:
            other = [known for known in self.compiled if known != signature][-1]
            cause = f"{difference(other, signature)}. Pad to a few shapes, or pass a number that changes as a Tensor"
        warnings.warn(
            f"jit({self.name}): is traced for the {STORM + 1}th time: {cause}; each trace takes as long as many calls.",
            RuntimeWarning,
            stacklevel=4,
        )

    def explain(self, *args: Any, **kwargs: Any) -> str:
        """Describe what it becomes for these arguments, as text; see `explain`."""
        with recording_on(None):
            compiled, leaves = self.lookup(args, kwargs)
        return report(self.name, compiled.plan([leaf._data for leaf in leaves]))

    def explain_passes(self, *args: Any, **kwargs: Any) -> str:
        """Its Program for these arguments after each pass, as text; see `explain_passes`."""
        with recording_on(None):
            compiled, leaves = self.lookup(args, kwargs)
        assert compiled.plans is not None  # off the tape there are
        return report_on_passes(stages(compiled.plans.program, compiled.plan([x._data for x in leaves]).space))


def jit(fn: Annotated[Callable[..., Any] | None, Own()] = None) -> Any:
    """Compile a function of Tensors: it is traced once for each signature and replayed as a list of kernels.

    The signature is made of the Tensors' shapes and dtypes and of all other arguments as they are. Gradients,
    optimiser steps and writes to Parameters inside `fn` become part of the Program. If an attribute of a Cell that
    `fn` calls is changed, `fn` is traced again. Other values that it finds outside of its arguments, Tensors among
    them, are constants: they stay as they were when it was traced. A Python number among the arguments is part of the
    signature, so each new value is traced again (which compiles nothing new); what changes at every step is better a
    Tensor or a Parameter. Results agree with eager ones to rounding, and to the bit in arithmetic and comparisons.
    While `snncell.set_context(check_finite=True)` holds, `fn` is not compiled but run operation by operation.

    Args:
        fn: a function or Cell. Python code in it runs while it is traced, so a branch on a Tensor's value is an error.

    Returns:
        A callable with the same arguments and results.

    Raises:
        TraceError: if `fn` looks at a value that is not there yet, naming the line.
        ArgumentError: for an argument that is neither Tensor nor hashable.

    Example:
        >>> jit(lambda x: x * 2 + 1)(Tensor([1.0, 2.0]))
        Tensor(shape=[2], dtype=Float32, value= [ 3.00000000e+00,  5.00000000e+00])
    """
    if fn is None:
        return jit
    if not callable(fn) or isinstance(fn, type):
        raise TraceError(f"jit: fn is a function or a Cell, not {came(fn)}.")
    return _jitted(fn)


def _jitted(fn: Callable[..., Any], name: str | None = None, limit: int | None = None) -> Jitted:
    jitted = Jitted(fn, name, limit)
    if hasattr(fn, "__name__"):
        functools.update_wrapper(jitted, fn, updated=())
    return jitted


def explain(fn: Callable[..., Any], *inputs: Any, **kwargs: Any) -> str:
    """Describe what `fn` becomes when it is compiled for these inputs, as text.

    A summary; then launch by launch the operations it fuses with the lines they come from, the bytes it moves, and why
    it is apart from those it takes something from; of a loop over time whether it is one kernel or why it is not, what
    it stores for its reverse, and what is done before and after it; last the Program. Nothing is run. A gradient is
    explained where it is taken: `explain(snncell.value_and_grad(...), ...)`, or the whole training step.

    Args:
        fn: a function or Cell, jitted or not.
        inputs, kwargs: arguments like those it will get.

    Example:
        >>> print(explain(lambda x: ops.exp(x) * 2.0, ops.ones(3)).splitlines()[0])
        <lambda>: 1 loop, 0 loops over time, 0 calls, 0 views; 24 B read and written by one run
    """
    return _explained("explain", fn).explain(*inputs, **kwargs)


def explain_passes(fn: Callable[..., Any], *inputs: Any, **kwargs: Any) -> str:
    """The Program that `fn` becomes for these inputs, as text: as it was traced, then after each pass of the compiler.

    A pass that changes nothing is named, and no more. Nothing is run. The passes, and what each is there for, are
    listed in `snncell/compiler/pipeline.py`.

    Args:
        fn: a function or Cell, jitted or not.
        inputs, kwargs: arguments like those it will get.

    Example:
        >>> print(explain_passes(lambda x: ops.exp(x) * 2.0, ops.ones(3)).splitlines()[0])
        traced:
    """
    return _explained("explain_passes", fn).explain_passes(*inputs, **kwargs)


def _explained(who: str, fn: Any) -> Jitted:
    if not callable(fn) or isinstance(fn, (Tensor, type)):
        raise TraceError(f"{who}: fn is a function or a Cell, not {came(fn)}.")
    return fn if isinstance(fn, Jitted) else Jitted(fn)
