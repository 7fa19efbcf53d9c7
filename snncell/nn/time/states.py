"""States over time: kept between calls (Stateful), fed back (Recurrent), detached from the gradient (Truncated)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Annotated, Any, NamedTuple

import numpy as np

from snncell import dtype as dtypes, ops
from snncell.base.arguments.kinds import Count, Own
from snncell.base.arguments.shown import came
from snncell.cell.cell import Cell
from snncell.cell.fields import field, with_fields
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
    """Saved states of a `Stateful`: shape and dtype of the input of one step, and the arrays of the states."""

    shape: tuple[int, ...]
    dtype: str
    states: list[Any]


class Stateful(Cell):
    """Keep a neuron's states from one call to the next, until `reset()`.

    Use it for streams in chunks, or step by step, for example on a live sensor. Call `reset()` between independent
    samples; `train.fit` does so before each pass over its data, and `train.evaluate` restores the states afterwards.
    Checkpoints do not contain the states. A jitted function updates them, and is traced again for other batch sizes.

    Gradients flow through the steps of one call and stop between calls, so a long stream needs no more memory than its
    longest chunk. If they should not stop, pass the states yourself: `MultiStep(cell, return_states=True)`.

    Args:
        cell: a neuron `construct(x, *states) -> (output, *states)`, or a `MultiStep` of one; it may have hooks.
    Inputs: x: one step (B, ...), or a chunk (T, B, ...) for a `MultiStep`.
    Returns: The output. `states` has the states.
    Raises: ArgumentError unless `cell` is a neuron; ShapeError if the batch size or the shape of a sample changes.
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
            raise ArgumentError(f"Stateful: cell must be a neuron, or a MultiStep of one, not {came(cell)}.")
        self.cell = cell
        # In a dict, checkpoints and lists of Parameters do not contain the states, but a trace finds them.
        self._kept: dict[str, Any] = {}

    @property
    def neuron(self) -> Cell:
        """The Cell of one time step."""
        return self.cell.cell if isinstance(self.cell, MultiStep) else self.cell

    @property
    def states(self) -> tuple[Tensor, ...]:
        """The current states; none before the first call."""
        return tuple(state.value() for state in self._parameters())

    def reset(self) -> None:
        """Restore the initial states; the next call can have another batch size."""
        if self._kept:
            self._write(self._initial(*self._kept["x"]), "Stateful.reset")

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Context manager that restores the current states at its end, for example around an evaluation."""
        before, values = dict(self._kept), self._arrays()
        try:
            yield
        finally:
            self._kept.clear()
            self._kept.update(before)
            self._write(map(Tensor, values), "Stateful.aside")

    def kept(self) -> SavedStates | None:
        """The current states for a checkpoint; None before the first call."""
        if not self._kept:
            return None
        shape, dtype = self._kept["x"]
        return SavedStates(tuple(shape), dtype.name, self._arrays())

    def fitting(self, given: Any, states: list[Any]) -> SavedStates:
        """Convert states from a file; raise an ArgumentError if they do not fit this neuron."""
        try:
            shape, dtype = tuple(given[0]), str(given[1])
            with settings(trace=None, tape=None):
                own = [(one.shape, one.dtype.name) for one in self._initial(shape, dtype)]
        except (TypeError, ValueError, IndexError, SnncellError, MemoryError):
            own = None
        if own != [(x.shape, x.dtype.name) for x in states]:
            raise ArgumentError(
                f"the saved states of a {type(self).__name__} do not fit inputs of shape and dtype {str(given)[:100]}."
            )
        return SavedStates(shape, dtype, states)

    def put(self, kept: SavedStates | None) -> None:
        """Continue from saved states."""
        if kept is None:
            return
        self._create_states(kept.shape, ops.zeros(kept.shape, kept.dtype))
        assign_all([*zip(self._parameters(), map(Tensor, kept.states), strict=True)], "Stateful.put")

    def construct(self, x: Tensor) -> Any:
        if not isinstance(x, Tensor) or x.ndim == 0:
            raise ArgumentError(f"{self!r}: x must be a Tensor with one step or a chunk of steps, not {x!r:.40}.")
        refuse_joined_axes(x, f"Stateful({type(self.neuron).__name__})")
        chunk = isinstance(self.cell, MultiStep)
        self._create_states(x.shape[1:] if chunk else x.shape, x)
        states = self._parameters()
        values = [state.value() for state in states]
        result = run_with_states(self.cell, x, *values) if isinstance(self.cell, MultiStep) else self.cell(x, *values)
        if not isinstance(result, tuple) or len(result) != (2 if chunk else len(states) + 1):
            raise ArgumentError(
                f"Stateful: {type(self.neuron).__name__}.construct takes {len(states)} state(s), so it must return "
                f"(output, *states) with as many; it returned a {type(result).__name__}."
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
        """The initial states, which depend only on the shape and dtype of the input."""
        return initial_states(self.neuron, ops.zeros(shape, dtype))

    def _create_states(self, shape: tuple[int, ...], x: Tensor) -> None:
        """Create states for this shape and dtype of inputs, unless they exist."""
        if self._kept.get("x") == (shape, x.dtype):
            self._move_states(x)
            return
        if self._kept and not self._is_initial():
            raise ShapeError(
                f"{type(self).__name__}({type(self.neuron).__name__}): has states for steps of shape "
                f"{self._kept['x'][0]} and dtype {self._kept['x'][1]}, but gets {shape} and {x.dtype}. Call its "
                f"reset() before a new batch, or skip an incomplete last batch (drop_last=True)."
            )
        with settings(trace=None, tape=None):  # a jitted function too creates them once, not at each run
            states = [_StoredState(value, f"state.{i}", False) for i, value in enumerate(self._initial(shape, x.dtype))]
        self._kept["x"], self._kept["states"] = (shape, x.dtype), tuple(states)
        self._move_states(x)

    def _move_states(self, x: Tensor) -> None:
        """Move the states to the input's device; a Program moves them itself."""
        if TRACING.trace is None:
            commit([state.write_of(move_to_space(state._data, space_of(x._data))) for state in self._parameters()])

    def _is_initial(self) -> bool:
        """True if the states equal the initial states, so that discarding them loses nothing."""
        if TRACING.trace is not None and any(state in TRACING.trace.written for state in self._parameters()):
            return False
        with settings(trace=None, tape=None):
            pairs = zip(self._parameters(), self._initial(*self._kept["x"]), strict=True)
            return all(np.array_equal(state.asnumpy(), value.asnumpy()) for state, value in pairs)

    def __getstate__(self) -> dict[str, Any]:
        """The attributes of a copy, which starts without states."""
        return {**super().__getstate__(), "_kept": {}}


class _StoredState(Parameter):
    """A state that follows the inputs to their device."""

    __slots__ = ()
    follows = True


class Recurrent(Cell):
    """Recurrent connections: feed a neuron's output back through a layer with weights.

        out, *states = cell(x + feedback(out_before), *states)

    Use it for recurrent spiking networks. The result is a Cell of one time step, for `MultiStep`. Its first state is
    the output of the previous step; the states of `cell` follow.

    Args:
        cell: the neuron.
        feedback: a layer from the output to the input of the neuron, for example `Dense(n, n)`.
    Example:
        >>> nn.MultiStep(nn.Recurrent(nn.LIFNode(), nn.Dense(3, 3)))(ops.ones((5, 2, 3))).shape  # (T, B, N)
        (5, 2, 3)
    """

    def __init__(self, cell: Annotated[Cell, Own()], feedback: Annotated[Cell, Own()]) -> None:
        super().__init__()
        for name, value, such in (("cell", cell, "nn.LIFNode()"), ("feedback", feedback, "nn.Dense(n, n)")):
            if not isinstance(value, Cell):
                raise ArgumentError(f"Recurrent: {name} must be a Cell, an object such as {such}, not {came(value)}.")
        self.cell = cell
        self.feedback = feedback

    def construct(self, x: Tensor, out: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        fed = self.feedback(out)
        try:
            total = x + fed
        except ShapeError:
            raise ShapeError(
                f"Recurrent: the feedback {self.feedback!r} returns {fed.shape}, which cannot be added to the input of "
                f"shape {x.shape}. Use a layer from the neuron's output to its input, for example nn.Dense(n, n)."
            ) from None
        after: tuple[Tensor, ...] = self.cell(total, *states)
        return (after[0], *after)

    def init_state(self, x: Tensor) -> tuple[Tensor, ...]:
        """Start with an output of 0 and the neuron's own initial states.

        The states have the dtype of x + feedback(x): float32 for spikes of bytes, or float16 with float32 weights.
        """
        dtype = x.dtype if x.dtype.is_float else dtypes.float32
        for parameter in self.feedback.get_parameters():
            if parameter.dtype.is_float:
                dtype = dtypes.promote(dtype, parameter.dtype)
        first = ops.zeros_like(x, dtype)
        return (first, *initial_states(self.cell, first))


LONGEST = 2**15 - 1  # the largest int16; the count is int16 because the backward pass stores it for each state
EVERY = field(
    meaning="the largest number of steps over which gradients flow, from 1 to 32767. A new value needs no compilation"
)


@with_fields
class Truncated(Cell):
    """Truncated backpropagation through time (TBPTT): detach a neuron's states every `every` steps.

        out[t], *states[t] = cell(x[t], *stop_gradient(states[t - 1]))      if t = every, 2 every, ...
        out[t], *states[t] = cell(x[t], *states[t - 1])                     at the other steps

    Use it if gradients over long sequences explode, vanish or take too long. Run it by `MultiStep`. Its first state
    counts the steps since the last cut, so you can split a run into several calls. Outputs have the bits of `cell`.

    The memory of the backward pass grows with T. If a stream does not fit into memory, run its chunks one by one as in
    the second example, each with its own gradient and optimiser step.
    Inputs:
        x: the input of the neuron, (B, ...).
        count: int16, the steps since the last cut, in the common shape of the states, else ().
        states: the states of the neuron.
    Returns: (output, count, *states).
    Source: Williams and Peng, "An Efficient Gradient-Based Algorithm for On-Line Training of Recurrent Network
    Trajectories", Neural Computation 1990.
    Example:
        >>> net = nn.MultiStep(nn.Truncated(nn.LIFNode(decay_input=False), every=2))
        >>> x = ops.ones((6, 1)) * 0.1
        >>> snncell.grad(lambda x: net(x)[3].sum())(x).asnumpy().ravel() != 0  # the last of six steps is cut off too
        array([False, False,  True,  True, False, False])

        A stream in chunks: the states continue from chunk to chunk, the gradient does not.

        >>> run = nn.MultiStep(nn.LIFNode(), return_states=True)
        >>> states = (ops.zeros((1, 3)),)
        >>> for chunk in ops.ones((4, 10, 1, 3)):
        ...     spikes, states = run(chunk, *ops.stop_gradient(states))
    """

    cell: Annotated[Cell, field(meaning="a Cell of one step, for example `LIFNode` or `Recurrent`")]
    every: Annotated[Count, EVERY]

    def _complete(self, given: dict[str, Any]) -> None:
        if isinstance(self.cell, MultiStep):
            raise ArgumentError(
                "Truncated: cell must be a Cell of one time step, not a MultiStep; write "
                "MultiStep(Truncated(cell, every))."
            )
        if self.every > LONGEST:
            raise ArgumentError(
                f"Truncated: every must be at most {LONGEST}, not {self.every}. Leave Truncated out instead."
            )

    def construct(self, x: Tensor, count: Tensor, *states: Tensor) -> tuple[Any, ...]:
        cut = ops.greater_equal(count, self.every)
        begun = [ops.select(cut, ops.stop_gradient(state), state) for state in states]
        out, *after = self.cell(x, *begun)
        return (out, ops.select(cut, 0, count) + 1, *after)

    def init_state(self, x: Tensor) -> tuple[Tensor, ...]:
        """Start with a count of 0 and the neuron's own initial states."""
        states = initial_states(self.cell, x)
        shapes = {state.shape for state in states}
        return (ops.zeros(shapes.pop() if len(shapes) == 1 else (), int16), *states)


def cells_of(*parts: Any) -> list[Cell]:
    """All Cells of a network, its loss and so on; parts that are not Cells are skipped."""
    return [cell for part in parts if isinstance(part, Cell) for _, cell in part.cells_and_names()]


def find_statefuls(*parts: Any) -> list[Stateful]:
    """All `Stateful` Cells of a network, its loss and so on."""
    return list(dict.fromkeys(cell for cell in cells_of(*parts) if isinstance(cell, Stateful)))


@contextmanager
def put_aside(*parts: Any) -> Iterator[None]:
    """Context manager: restore the states of all `Stateful` Cells at the end."""
    with ExitStack() as stack:
        for stateful in find_statefuls(*parts):
            stack.enter_context(stateful.aside())
        yield
