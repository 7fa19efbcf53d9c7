"""States of neurons: kept between calls (Stateful), fed back (Recurrent), cut off from the gradient (Truncated)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, NamedTuple

import numpy as np

from snncell import dtype as dtypes, ops
from snncell.base.arguments.kinds import Count, Own
from snncell.base.arguments.shown import came
from snncell.cell.cell import Cell
from snncell.dtype import int16
from snncell.errors import ArgumentError, ShapeError, SnncellError
from snncell.kernels.space import move_to_space, space_of
from snncell.nn.time.axis import refuse_joined_axes
from snncell.nn.time.multistep import MultiStep, initial_states, run_with_states
from snncell.tape.parameter import Parameter, assign_all, commit
from snncell.tape.state import TRACING, settings
from snncell.tape.tensor import Tensor

__all__ = ["Recurrent", "Stateful", "Truncated"]


class SavedStates(NamedTuple):
    """States between two calls: the shape and dtype of the inputs of one step, and the states' arrays."""

    shape: tuple[int, ...]
    dtype: str
    states: list[Any]


class Stateful(Cell):
    """Keeps a neuron's states from one call to the next, until `reset()`.

    (y, states) = cell(x, states)

    The first call begins with the neuron's initial states. Gradients flow through the steps of one call and stop
    between calls, so that a long stream costs no more memory than its longest chunk. To have gradients flow on, keep
    the states yourself: `MultiStep(cell, return_states=True)`.

    The states belong to this Cell alone and are in no checkpoint; `train.fit` resets them before each pass over its
    data, and `train.evaluate` puts back those that were there. A jitted function writes them at each run, as it writes
    a Parameter, and is traced anew after a change of the batch size.

    Args:
        cell: a neuron of one step, `construct(x, *states) -> (output, *states)`, or a `MultiStep` of one. Its hooks,
            its `recompute()` and the construct of a subclass stay in use.

    Inputs:
        x: one step (B, ...), or a chunk of them (T, B, ...) for a `MultiStep`.

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
            self._write(self._initial(*self._kept["x"]), "Stateful.reset")

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Put the states back at the end of the context."""
        before, values = dict(self._kept), self._arrays()
        try:
            yield
        finally:
            self._kept.clear()
            self._kept.update(before)
            self._write(map(Tensor, values), "Stateful.aside")

    def kept(self) -> SavedStates | None:
        """The states as they are, for a checkpoint; None before the first call."""
        if not self._kept:
            return None
        shape, dtype = self._kept["x"]
        return SavedStates(tuple(shape), dtype.name, self._arrays())

    def fitting(self, given: Any, states: list[Any]) -> SavedStates:
        """States that were kept, from a file; an ArgumentError if they are not of this neuron."""
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
        assign_all([*zip(self._parameters(), map(Tensor, kept.states), strict=True)], "Stateful.put")

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

    def _arrays(self) -> list[Any]:
        return [np.array(state.asnumpy()) for state in self._parameters()]

    def _write(self, values: Iterable[Tensor], who: str) -> None:
        pairs = zip(self._parameters(), values, strict=True)
        assign_all([(state, value.astype(state.dtype)) for state, value in pairs], who)

    def _initial(self, shape: tuple[int, ...], dtype: Any) -> tuple[Tensor, ...]:
        """The states before the first step, which depend on nothing but the shape and dtype of the input."""
        return initial_states(self.neuron, ops.zeros(shape, dtype))

    def _fit(self, shape: tuple[int, ...], x: Tensor) -> None:
        """Make states for inputs like these, unless there are such."""
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


class Recurrent(Cell):
    """Recurrent connections: the neuron's last output comes back through a Cell with weights.

    out, *states = cell(x + feedback(out_before), *states)

    It is a Cell of one step itself, whose first state is the output; run it by `MultiStep`.

    Args:
        cell: the neuron.
        feedback: from an output to an input of the neuron, for example `Dense(n, n)`.

    Raises:
        ArgumentError: for a neuron or a feedback that is no Cell.
    """

    def __init__(self, cell: Annotated[Cell, Own()], feedback: Annotated[Cell, Own()]) -> None:
        super().__init__()
        for name, value, example in (("cell", cell, "nn.LIFNode()"), ("feedback", feedback, "nn.Dense(n, n)")):
            if not isinstance(value, Cell):
                raise ArgumentError(f"Recurrent: {name} is a Cell, an object such as {example}, not {came(value)}.")
        self.cell = cell
        self.feedback = feedback

    def construct(self, x: Tensor, out: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        after: tuple[Tensor, ...] = self.cell(x + self.feedback(out), *states)
        return (after[0], *after)

    def init_state(self, x: Tensor) -> tuple[Tensor, ...]:
        """Zeros for the output before the first step, and the neuron's own initial states.

        They have the dtype of the neuron's input, the sum of x and the feedback: float32 for spikes of bool or bytes,
        and for x of float16 where the feedback has weights of float32.
        """
        dtype = x.dtype if x.dtype.is_float else dtypes.float32
        for parameter in self.feedback.get_parameters():
            if parameter.dtype.is_float:
                dtype = dtypes.promote(dtype, parameter.dtype)
        first = ops.zeros_like(x, dtype)
        return (first, *initial_states(self.cell, first))


LONGEST = 2**15 - 1  # what int16 counts to: the backward pass stores the count with each state


class Truncated(Cell):
    """Truncated backpropagation through time: cuts the gradient through a neuron's states every `every` steps.

    out[t], *states[t] = cell(x[t], *states[t - 1])            where t is no multiple of `every`, and at t = 0
    out[t], *states[t] = cell(x[t], *stop(states[t - 1]))      where t = every, 2 every, ...

    stop is `ops.stop_gradient`, so the values are those of the neuron alone, to the bit, and the gradient is that of
    chunks of `every` steps. It is a Cell of one step itself; run it by `MultiStep`. The first state counts the steps
    since the last cut; a run that is continued with the states of another one is cut where one long run would be.

    The memory of the backward pass still grows with the length of x. For a stream that does not fit in memory run its
    chunks one by one, as in the second example. Each chunk has its own gradient and its own step of the optimiser.

    Args:
        cell: a Cell of one step, `construct(x, *states) -> (output, *states)`; also `Recurrent`.
        every: the number of steps, from 1 to 32767, that a gradient goes back at most. Changing it compiles nothing.

    Inputs:
        x: the input of the neuron, (B, ...).
        count: int16, the steps since the last cut, of the states' shape if they have one, else ().
        states: those of the neuron.

    Returns:
        (output, count, *states).

    Raises:
        ArgumentError: for what is no Cell, or an `every` out of range.

    Source: Williams and Peng, "An Efficient Gradient-Based Algorithm for On-Line Training of Recurrent Network
    Trajectories", Neural Computation 1990.

    Example:
        >>> net = nn.MultiStep(nn.Truncated(nn.LIFNode(decay_input=False), every=2))
        >>> x = ops.ones((6, 1)) * 0.1
        >>> snncell.grad(lambda x: net(x)[3].sum())(x).asnumpy().ravel() != 0  # the last of six steps is cut off too
        array([False, False,  True,  True, False, False])

        A stream in chunks, whose states go on while the gradient does not:

        >>> run = nn.MultiStep(nn.LIFNode(), return_states=True)
        >>> states = (ops.zeros((1, 3)),)
        >>> for chunk in ops.ones((4, 10, 1, 3)):
        ...     spikes, states = run(chunk, *ops.stop_gradient(states))
    """

    def __init__(self, cell: Cell, every: Count) -> None:
        super().__init__()
        if isinstance(cell, MultiStep):
            raise ArgumentError("Truncated: takes the Cell of one time step; write MultiStep(Truncated(cell, every)).")
        self.cell = cell
        self.every = every
        if every > LONGEST:
            raise ArgumentError(f"Truncated: every is at most {LONGEST}, not {every}; a longer gradient needs no cut.")

    def construct(self, x: Tensor, count: Tensor, *states: Tensor) -> tuple[Any, ...]:
        cut = ops.greater_equal(count, self.every)
        begun = [ops.select(cut, ops.stop_gradient(state), state) for state in states]
        out, *after = self.cell(x, *begun)
        return (out, ops.select(cut, 0, count) + 1, *after)

    def init_state(self, x: Tensor) -> tuple[Tensor, ...]:
        """No step since the last cut, and the neuron's own initial states."""
        states = initial_states(self.cell, x)
        shapes = {state.shape for state in states}
        return (ops.zeros(shapes.pop() if len(shapes) == 1 else (), int16), *states)

    def extend_repr(self) -> str:
        return f"every={self.every}"
