"""Stateful neurons: states that are kept from one call to the next."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, NamedTuple

import numpy as np

from snncell import ops
from snncell.base.arguments.kinds import Own
from snncell.base.arguments.shown import came
from snncell.cell.cell import Cell
from snncell.errors import ArgumentError, ShapeError, SnncellError
from snncell.kernels.space import move_to_space, space_of
from snncell.nn.time.axis import refuse_joined_axes
from snncell.nn.time.multistep import MultiStep, initial_states, run_with_states
from snncell.tape.parameter import Parameter, assign_all, commit
from snncell.tape.state import TRACING, settings
from snncell.tape.tensor import Tensor

__all__ = ["Stateful"]


class SavedStates(NamedTuple):
    """States between two calls: the shape and dtype of the inputs of one step, and the states' arrays."""

    shape: tuple[int, ...]
    dtype: str
    states: list[Any]


class Stateful(Cell):
    """Keeps a neuron's states from one call to the next, until `reset()`.

    (y, states) = cell(x, states)

    Called with one step (B, ...) if `cell` is a neuron, or with a chunk of them (T, B, ...) if it is a `MultiStep`. The
    first call begins with the neuron's initial states. Gradients flow through the steps of one call and stop between
    calls: what is kept is detached, so that a long stream costs no more memory than its longest chunk. To have
    gradients flow on, keep the states yourself: `MultiStep(cell, return_states=True)`.

    The states belong to this Cell alone and are in no checkpoint; `train.fit` resets them before each pass over its
    data, and `train.evaluate` puts back those that were there. In a jitted function they are written as a Parameter is,
    in order, at each run; after a change of the batch size that function is traced anew.

    Args:
        cell: a neuron of one step, `construct(x, *states) -> (output, *states)`, or a `MultiStep` of one. Its hooks,
            its `recompute()` and the construct of a subclass stay in use.

    Inputs:
        x: (B, ...), or (T, B, ...) for a `MultiStep`.

    Returns:
        The output, without the states; `states` shows them.

    Raises:
        ArgumentError: for something that is no neuron.
        ShapeError: if the batch size, or the shape of a sample, is another one than in the call before.

    Example:
        >>> stream = nn.Stateful(nn.MultiStep(nn.IFNode()))
        >>> chunk = ops.full((2, 1, 1), 0.375)
        >>> [stream(chunk).asnumpy().sum().item() for _ in range(3)]
        [0.0, 1.0, 1.0]
        >>> stream.reset()
        >>> stream(chunk).asnumpy().sum().item()
        0.0
    """

    def __init__(self, cell: Annotated[Cell, Own()]) -> None:
        super().__init__()
        if not isinstance(cell, Cell) or isinstance(cell, Stateful):
            raise ArgumentError(f"Stateful: cell is a neuron, or a MultiStep of one, not {came(cell)}.")
        self.cell = cell
        # In a dict they are no members: not in checkpoints, not among the Parameters. A trace looks into it, though.
        self._kept: dict[str, Any] = {}

    @property
    def neuron(self) -> Cell:
        """The Cell of one step."""
        inner: Cell = self.cell.cell if isinstance(self.cell, MultiStep) else self.cell
        return inner

    @property
    def states(self) -> tuple[Tensor, ...]:
        """The states as they are, none before the first call."""
        return tuple(state.value() for state in self._parameters())

    def reset(self) -> None:
        """Go back to the initial states; the next call may have another batch size."""
        if self._kept:
            pairs = zip(self._parameters(), self._initial(*self._kept["x"]), strict=True)
            assign_all([(state, value.astype(state.dtype)) for state, value in pairs], "Stateful.reset")

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Whatever is done within, afterwards the states are those that were there before."""
        before = dict(self._kept)
        values = [np.array(state.asnumpy()) for state in self._parameters()]
        try:
            yield
        finally:
            self._kept.clear()
            self._kept.update(before)
            pairs = zip(self._parameters(), values, strict=True)
            assign_all([(state, Tensor(value)) for state, value in pairs], "Stateful.aside")

    def kept(self) -> SavedStates | None:
        """The states as they are, for a checkpoint; None before the first call."""
        if not self._kept:
            return None
        shape, dtype = self._kept["x"]
        return SavedStates(tuple(shape), dtype.name, [np.array(state.asnumpy()) for state in self._parameters()])

    def fitting(self, given: Any, states: list[Any]) -> SavedStates:
        """States that were kept, from a file, once it is clear that they are such.

        Raises:
            ArgumentError: if they are not.
        """
        try:
            shape, dtype = tuple(given[0]), str(given[1])
            with settings(trace=None, tape=None):
                own = [(one.shape, one.dtype.name) for one in self._initial(shape, dtype)]
        except (TypeError, ValueError, IndexError, SnncellError, MemoryError):
            own = None
        if own != [(x.shape, x.dtype.name) for x in states]:
            raise ArgumentError(f"the states of a {type(self).__name__} are no such of inputs {str(given)[:100]}.")
        return SavedStates(shape, dtype, states)

    def put(self, kept: SavedStates | None) -> None:
        """Go on from states that were kept."""
        if kept is None:
            return
        self._fit(kept.shape, ops.zeros(kept.shape, kept.dtype))
        pairs = zip(self._parameters(), kept.states, strict=True)
        assign_all([(state, Tensor(value)) for state, value in pairs], "Stateful.put")

    def construct(self, x: Tensor) -> Any:
        if not isinstance(x, Tensor) or x.ndim == 0:
            raise ArgumentError(f"{self!r}: takes a Tensor of one step or of a chunk, not {x!r:.40}.")
        refuse_joined_axes(x, f"Stateful({type(self.neuron).__name__})")
        chunk = isinstance(self.cell, MultiStep)
        self._fit(x.shape[1:] if chunk else x.shape, x)
        states = self._parameters()
        values = [state.value() for state in states]
        result = run_with_states(self.cell, x, *values) if isinstance(self.cell, MultiStep) else self.cell(x, *values)
        if not isinstance(result, tuple) or len(result) != (2 if chunk else len(states) + 1):
            raise ArgumentError(
                f"Stateful: {type(self.neuron).__name__}.construct returns (output, *states), with the {len(states)} "
                f"state(s) that it takes; it returned a {type(result).__name__}."
            )
        after = list(zip(states, result[1] if chunk else result[1:], strict=True))
        for position, (state, value) in enumerate(after):
            state.refuse(value, f"Stateful: state {position} of {type(self.neuron).__name__}")
        assign_all(after)
        return result[0]

    def _parameters(self) -> list[_StoredState]:
        return list(self._kept.get("states", ()))

    def _initial(self, shape: tuple[int, ...], dtype: Any) -> tuple[Tensor, ...]:
        """The states before the first step, which depend on nothing but the shape and dtype of the input."""
        return initial_states(self.neuron, ops.zeros(shape, dtype))

    def _fit(self, shape: tuple[int, ...], x: Tensor) -> None:
        """Have states for inputs like these."""
        if self._kept.get("x") == (shape, x.dtype):
            self._follow(x)
            return
        if self._kept and not self._at_rest():
            raise ShapeError(
                f"{type(self).__name__}({type(self.neuron).__name__}): has states for steps of shape "
                f"{self._kept['x'][0]} and dtype {self._kept['x'][1]}, but gets {shape} and {x.dtype}. Call its "
                f"reset() before a new batch, or leave out a last batch that is not full (drop_last=True)."
            )
        with settings(trace=None, tape=None):  # also in a jitted function, they are made once, not at each run
            states = [_StoredState(value, f"state.{i}", False) for i, value in enumerate(self._initial(shape, x.dtype))]
        self._kept["x"], self._kept["states"] = (shape, x.dtype), tuple(states)
        self._follow(x)

    def _follow(self, x: Tensor) -> None:
        """Move the states to where the input is; a Program does so itself."""
        if TRACING.trace is None:
            commit([state.write_of(move_to_space(state._data, space_of(x._data))) for state in self._parameters()])

    def _at_rest(self) -> bool:
        """True if nothing would be lost with the states: they are the initial ones."""
        if TRACING.trace is not None and any(state in TRACING.trace.written for state in self._parameters()):
            return False
        with settings(trace=None, tape=None):
            pairs = zip(self._parameters(), self._initial(*self._kept["x"]), strict=True)
            return all(np.array_equal(state.asnumpy(), value.asnumpy()) for state, value in pairs)

    def __getstate__(self) -> dict[str, Any]:
        """The state for a copy: no states; it begins at rest."""
        return {**super().__getstate__(), "_kept": {}}


class _StoredState(Parameter):
    """A state that is kept: it is where the inputs are."""

    __slots__ = ()
    follows = True
