"""MultiStep: run a neuron over time as compiled loops."""

from __future__ import annotations

import inspect
import math
import threading
from typing import Any

from snncell import ops
from snncell.base.arguments.guard import ours
from snncell.base.arguments.kinds import Count
from snncell.base.arguments.shown import came
from snncell.base.frames import machinery
from snncell.cell.cell import Cell, without_construct
from snncell.compiler.jit import Jitted
from snncell.dtype import float32
from snncell.errors import ArgumentError, OutsideTensorError, ShapeError
from snncell.nn.time.axis import check_time_axis, length_mask
from snncell.ops.control import run_scan
from snncell.tape import structure
from snncell.tape.event_lists import EventLists
from snncell.tape.state import TRACING
from snncell.tape.tensor import Tensor

__all__ = ["MultiStep"]

machinery(__file__)
KEPT_TRACES = 32  # the largest number of traces of one MultiStep, one per combination of input shapes and dtypes


def initial_states(cell: Cell, x: Tensor) -> tuple[Tensor, ...]:
    """The initial states of a neuron for its first input `x`: from its `init_state`, or zeros."""
    init_state = getattr(cell, "init_state", None)
    if init_state is not None:
        states = init_state(x)
        states = tuple(states) if isinstance(states, (tuple, list)) else (states,)
        return states if cell.quantisers is None else tuple(map(cell.quantisers.states, states))
    dtype = x.dtype if x.dtype.is_float else float32
    return tuple(ops.zeros_like(x, dtype) for _ in range(count_states(cell)))


def count_states(cell: Cell) -> int:
    """The number of states of a neuron: the arguments of its construct that have no default, after the first."""
    parameters = _inputs_of(cell)
    if isinstance(cell, MultiStep):
        raise ArgumentError(
            f"MultiStep: the Cell is already a MultiStep of {type(cell.cell).__name__}, which runs over all time "
            f"steps. Call it without another MultiStep around it."
        )
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        raise ArgumentError(
            f"{type(cell).__name__}: construct takes *args, so the number of states is unknown. Define the method "
            f"init_state(x), or pass the states."
        )
    return sum(p.default is p.empty for p in parameters) - 1


def _inputs_of(cell: Cell) -> list[inspect.Parameter]:
    if getattr(cell, "construct", None) is None:
        raise without_construct(cell)
    return list(inspect.signature(cell.construct).parameters.values())


class _Last(threading.local):
    """The last states of a MultiStep that does not return them, for `Stateful`."""

    cell: MultiStep | None = None  # the MultiStep whose states this thread needs
    states: tuple[Tensor, ...] | None = None
    trace: Any = None  # the trace that computed them


LAST = _Last()


def run_with_states(cell: MultiStep, x: Tensor, *states: Tensor) -> Any:
    """Call a MultiStep as a Cell, so that hooks and the construct of a subclass run; return (output, last states)."""
    before = dict(vars(LAST))
    LAST.cell, LAST.states = cell, None
    try:
        result = cell(x, *states)
        if cell.return_states:
            return result
        last = vars(LAST)["states"]
        if last is None or LAST.trace is not TRACING.trace:
            raise ArgumentError(
                f"Stateful: the construct of {type(cell).__name__} does not call MultiStep's construct, so its last "
                f"states are unknown. Set return_states=True, and return (y, states) from it."
            )
        return result, last
    finally:
        vars(LAST).clear()
        vars(LAST).update(before)


class MultiStep(Cell):
    """Run a neuron over time: (T, B, ...) -> (T, B, ...).

    This is the usual way to use a neuron in a network, for example in
    `nn.SequentialCell(nn.Dense(784, 100), nn.MultiStep(nn.LIFNode()))`. It traces the step: it runs the Python code
    once for each combination of input shapes and dtypes, and records the operations. If all operations are elementwise,
    apart from products of states and weights, it compiles one forward and one backward kernel with the time loop
    inside; `snncell.explain` shows this. Because the step is traced:

    - Python code in the Cell runs once, not at each step. A branch on the value of a Tensor is an error.
    - If a Python value that the Cell reads changes between calls, the step is traced again, as by `snncell.jit`.
    - Random numbers from `np.random` or `random` are an error, because all steps would share them. Use `ops.normal`.
    - An attribute that a step both reads and changes is an error. Return it as a state instead.
    - Cells with hooks run step by step, and so do Cells with `bprop_debug = True`, which checks custom gradients.

    Args:
        cell: a Cell of one step, `construct(x, *states) -> (output, *states)`. The output can be any structure of
            Tensors. For example, return `((spike, v), *states)` to record potentials next to spikes.
        return_states: return `(y, (state, ...))` with the last states, instead of y.
        checkpoint_every: n, to save only the states of every n-th step. The backward pass recomputes the steps between,
            which saves memory; see `ops.scan`. By default each step saves the values that the backward pass needs.
    Inputs:
        x: (T, B, ...).
        states: the initial states; by default those of `cell.init_state(x[0])`, or zeros.
        lengths: integers (B,), passed by name: the number of steps of each sample, by default T. After its end, a
            sample's states stay constant and its output is 0, so that padding does not affect any result.
    Raises: ArgumentError for a wrong number of states or results; ShapeError, DTypeError if a state changes its shape
        or dtype; ShapeError for a vector x, because it could be T steps of one neuron or one step of N neurons.
    Example:
        >>> nn.MultiStep(nn.LIFNode(tau=2.0))(ops.ones((8, 1, 3)) * 1.5).shape  # (T, B, N)
        (8, 1, 3)
    """

    _over_time = True

    def __init__(self, cell: Cell, return_states: bool = False, checkpoint_every: Count | None = None) -> None:
        super().__init__()
        self.cell = cell
        self.return_states = return_states
        self.checkpoint_every = checkpoint_every

    def construct(self, x: Tensor | EventLists, *states: Tensor, lengths: Any = None) -> Any:
        if self.cell._all_steps:
            raise ArgumentError(
                f"MultiStep: {type(self.cell).__name__} runs over all time steps itself. Call it directly with x "
                f"(T, B, ...), without a MultiStep around it."
            )
        if isinstance(x, EventLists):
            raise ArgumentError(
                "MultiStep: x must be a Tensor (T, B, ...), not event lists, which only layers with weights accept. "
                "Put such a layer before it, for example nn.Dense(...) or nn.TimeDistributed(nn.Conv2d(...)), or pass "
                "x.to_dense()."
            )
        if not isinstance(x, Tensor):
            raise ArgumentError(f"MultiStep: x must be a Tensor (T, B, ...), not {came(x)}. Pass snncell.Tensor(x).")
        if x.ndim == 0 or x.shape[0] == 0:
            raise ArgumentError(f"MultiStep: x must be (T, B, ...) with at least one step, but has shape {x.shape}.")
        if x.ndim == 1:
            raise ShapeError(
                f"MultiStep: x must be (T, B, ...), but has shape {x.shape}. For one step of {x.shape[0]} neurons "
                f"pass x.reshape((1, -1)); for {x.shape[0]} steps of one neuron pass x.reshape((-1, 1))."
            )
        check_time_axis(x, type(self).__name__)
        valid = None
        if lengths is not None:
            valid = length_mask(x, lengths, "MultiStep")
            x = ops.select(valid, x, 0.0)  # because NaN in the padding would make gradients NaN
        if LAST.cell is not self or self.return_states:
            return self._run_loop(x, valid, self.return_states, states)
        y, LAST.states = self._run_loop(x, valid, True, states)
        LAST.trace = TRACING.trace
        return y

    def _run_loop(self, x: Tensor, valid: Tensor | None, with_states: bool, states: tuple[Tensor, ...]) -> Any:
        if TRACING.trace is not None or TRACING.unfused or self._is_watched():
            return self._run_steps(x, valid, with_states, *states)
        loop = self._loop or Jitted(self._run_steps, f"MultiStep({type(self.cell).__name__})", KEPT_TRACES)
        self.__dict__["_loop"] = loop
        try:
            return loop(x, valid, with_states, *states)
        except OutsideTensorError:  # the Cell holds a Tensor that an outer gradient tracks, so trace it each time
            return self._run_steps(x, valid, with_states, *states)

    def _is_watched(self) -> bool:
        """True if a hook or bprop_debug must see every step."""
        return any(cell.is_hooked or cell.bprop_debug for _, cell in self.cell.cells_and_names())

    def _run_steps(self, x: Tensor, valid: Tensor | None, with_states: bool, *states: Tensor) -> Any:
        name = type(self.cell).__name__
        first = tuple(states) or initial_states(self.cell, x[0])
        names = self._names_of(first)

        def until_end(carry: tuple[Tensor, ...], both: tuple[Tensor, Tensor]) -> tuple[tuple[Tensor, ...], Any]:
            now, valid_now = both
            after, out = step(carry, now)
            kept = [_where(valid_now, new, old) for new, old in zip(after, carry, strict=True)]
            return tuple(kept), structure.map_leaves(lambda part: _where(valid_now, part, 0.0), out)

        def step(carry: tuple[Tensor, ...], now: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
            try:
                result = self.cell(now, *carry)
            except ShapeError as error:
                if states or ours(type(self.cell)):
                    raise
                begun = ", ".join(f"{state} of shape {s.shape}" for state, s in zip(names, first, strict=True))
                origin = "init_state" if hasattr(self.cell, "init_state") else f"zeros, as {name} has no init_state(x)"
                raise ShapeError(
                    f"MultiStep: {name} failed in a step of shape {now.shape} with {begun or 'no state'} from "
                    f"{origin}: {error}"
                ).with_traceback(error.__traceback__) from None
            if not carry and not isinstance(result, tuple):
                raise ArgumentError(
                    f"MultiStep: {name}.construct takes no state, but MultiStep needs states as arguments and results: "
                    f"construct(x, v) -> (output, v). An attribute of self does not change from step to step, because "
                    f"a step is traced once. If the Cell has no states, use nn.TimeDistributed, or call it directly."
                )
            if not isinstance(result, tuple) or len(result) != len(carry) + 1:
                got = f"{len(result)} values" if isinstance(result, tuple) else type(result).__name__
                own, optional = names[: len(carry)], ", ".join(names[len(carry) :])
                hint = f" An argument with a default, here {optional}, is no state." if optional else ""
                raise ArgumentError(
                    f"MultiStep: {name}.construct took {len(carry)} state(s) and must return "
                    f"({', '.join(['output', *own])}{'' if own else ','}); it returned {got}.{hint}"
                )
            return tuple(result[1:]), result[0]

        last, y = run_scan(
            step if valid is None else until_end,
            first,
            x if valid is None else (x, valid),
            checkpoint_every=self.checkpoint_every or (math.isqrt(x.shape[0]) if self._recomputed else None),
            who=f"MultiStep({name})",
            names=names,
            one_by_one=TRACING.trace is None and self._is_watched(),
        )
        return (y, last) if with_states else y

    def _names_of(self, states: tuple[Any, ...]) -> list[str]:
        """The names of the states in construct, after checking the number of states and that they are Tensors."""
        name = type(self.cell).__name__
        if len(states) == 1 and isinstance(states[0], (tuple, list)):
            raise ArgumentError(
                f"MultiStep: got the states as one {type(states[0]).__name__}; pass them one by one, *states."
            )
        parameters = _inputs_of(self.cell)[1:]
        names = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        open_ended = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        least = sum(p.default is p.empty for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD)
        if len(states) < least or (len(states) > len(names) and not open_ended):
            raise ArgumentError(
                f"MultiStep: {name}.construct takes the state(s) {', '.join(names) or 'none'} after its input, but got "
                f"{len(states)}. Pass one for each, as arguments or from init_state."
                + (" If the Cell has no states, use nn.TimeDistributed, or call it directly." if not names else "")
            )
        for position, state in enumerate(states):
            if not isinstance(state, Tensor):
                fix = "make each Tensor in it a separate state: construct(self, x, v, w)"
                if isinstance(state, (bool, int, float)):
                    fix = f"for example ops.full(x.shape, {state!r})"
                raise ArgumentError(f"MultiStep: a state of {name} is a {type(state).__name__}, not a Tensor; {fix}.")
            if position >= len(names):
                names.append(f"number {position}")
        return names


def _where(valid_now: Tensor, part: Tensor, otherwise: Any) -> Tensor:
    """Select `part` (B, ...) of a step for samples that have not ended, and `otherwise` for the others."""
    if part.shape[:1] != valid_now.shape[:1]:
        raise ShapeError(
            f"MultiStep: with lengths, states and outputs must have the shape (B, ...), but one has shape {part.shape} "
            f"and the batch size is {valid_now.shape[0]}."
        )
    return ops.select(valid_now.reshape((*valid_now.shape[:1], *(1,) * (part.ndim - 1))), part, otherwise)
