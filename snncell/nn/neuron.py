"""Spiking neurons, `construct(x, *states) -> (output, *states)` for one time step, and what runs them over time."""

from __future__ import annotations

import inspect
from typing import Any

from snncell import ops
from snncell.cell import Cell
from snncell.dtype import float32
from snncell.errors import ArgumentError
from snncell.surrogate import relusigmoid
from snncell.tape.tensor import Tensor


class _Resetting(Cell):
    """What a neuron with a threshold and a reset has.

    v = h - s v_threshold                    reset="subtract"
    v = (1 - s) h + s v_reset                reset="value" (v_reset), or "zero" (0)
    v = h                                    reset=None
    """

    def __init__(
        self, v_threshold: Any, v_reset: Any, reset: str | None, detach_reset: bool, surrogate_function: Any
    ) -> None:
        super().__init__()
        if reset not in ("subtract", "zero", "value", None):
            raise ArgumentError(f'{type(self).__name__}: reset is "subtract", "zero", "value" or None, not {reset!r}.')
        self.v_threshold = v_threshold
        self.v_reset = v_reset
        self.reset = reset
        self.detach_reset = detach_reset
        self.surrogate_function = surrogate_function

    def after_reset(self, h: Tensor, spike: Tensor) -> Tensor:
        """The potential after the reset, from the one before it and the spikes, 0 or 1."""
        s = ops.stop_gradient(spike) if self.detach_reset else spike
        if self.reset == "subtract":
            lower: Tensor = h - s * self.v_threshold
            return lower
        if self.reset is None:
            return h
        target = self.v_reset if self.reset == "value" else 0.0
        kept: Tensor = h * (1.0 - s)
        return kept + s * target if target else kept

    def init_state(self, x: Tensor) -> Tensor:
        """The state before the first step: v_reset everywhere."""
        return ops.full(x.shape, self.v_reset, x.dtype if x.dtype.is_float else float32)

    def extend_repr(self) -> str:
        return (
            f"v_threshold={self.v_threshold}, v_reset={self.v_reset}, reset={self.reset!r}, "
            f"detach_reset={self.detach_reset}"
        )


class IFNode(_Resetting):
    """Integrate and fire, as MindSpore's guide to custom reverses has it.

    h = v + x;  s = surrogate(h - v_threshold);  spike = s v_threshold;  v = h - spike

    A spike has the size v_threshold, and the reset subtracts it. With `fire=False` the output is v itself.

    Args:
        v_threshold: in units of the membrane potential.
        fire: whether it spikes.
        surrogate_function: the spike function, a Cell.
        v_reset, reset, detach_reset: as for `LIFNode`.

    Inputs:
        x, v: the input and the state, of one shape.

    Returns:
        (spike, v), or (v, v) with `fire=False`.

    Source: MindSpore 1.9 tutorials, "Customizing Reverse Propagation Function of Cell".
    """

    def __init__(
        self,
        v_threshold: float = 1.0,
        fire: bool = True,
        surrogate_function: Any = relusigmoid(),
        v_reset: float = 0.0,
        reset: str | None = "subtract",
        detach_reset: bool = False,
    ) -> None:
        super().__init__(v_threshold, v_reset, reset, detach_reset, surrogate_function)
        self.fire = fire

    def construct(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        h = v + x
        if not self.fire:
            return h, h
        s = self.surrogate_function(h - self.v_threshold)
        return s * self.v_threshold, self.after_reset(h, s)

    def extend_repr(self) -> str:
        return f"fire={self.fire}, {super().extend_repr()}"


class LIFNode(_Resetting):
    """Leaky integrate and fire.

    h = v + (x - (v - v_reset)) / tau        with decay_input
    h = v - (v - v_reset) / tau + x          without
    s = surrogate(h - v_threshold)
    v = h - s v_threshold                    reset="subtract"
    v = (1 - s) h + s v_reset                reset="value" (v_reset), or "zero" (0)
    v = h                                    reset=None

    The membrane equation tau dv/dt = -(v - v_reset) + x, by one Euler step of length 1.

    Args:
        tau: membrane time constant in steps, above 1: each step keeps 1 - 1 / tau of the potential.
        v_threshold: the neuron fires where h > v_threshold.
        v_reset: resting potential, and where reset="value" puts v.
        reset: "subtract", "zero", "value" or None.
        detach_reset: whether the reset counts as a constant in the reverse.
        decay_input: whether the input is divided by tau too.
        surrogate_function: the spike function, a Cell.

    Inputs:
        x, v: the input and the state, of one shape.

    Returns:
        (s, v).

    Source: Gerstner et al., Neuronal Dynamics, section 1.3; Fang et al., SpikingJelly, Science Advances 2023.
    """

    def __init__(
        self,
        tau: Any = 2.0,
        v_threshold: float = 1.0,
        v_reset: float = 0.0,
        reset: str | None = "subtract",
        detach_reset: bool = False,
        decay_input: bool = True,
        surrogate_function: Any = relusigmoid(),
    ) -> None:
        super().__init__(v_threshold, v_reset, reset, detach_reset, surrogate_function)
        if not isinstance(tau, Tensor) and not tau > 1.0:
            raise ArgumentError(f"LIFNode: tau is a number of steps above 1, not {tau!r}.")
        self.tau = tau
        self.decay_input = decay_input

    def construct(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        leak = v if self.v_reset == 0.0 else v - self.v_reset
        h = v + (x - leak) / self.tau if self.decay_input else v - leak / self.tau + x
        spike = self.surrogate_function(h - self.v_threshold)
        return spike, self.after_reset(h, spike)

    def extend_repr(self) -> str:
        return f"tau={self.tau}, {super().extend_repr()}, decay_input={self.decay_input}"


def initial_states(cell: Cell, x: Tensor) -> tuple[Tensor, ...]:
    """The states of a neuron before its first input `x`: its `init_state`, or zeros for each state it takes."""
    init_state = getattr(cell, "init_state", None)
    if init_state is not None:
        states = init_state(x)
        return tuple(states) if isinstance(states, (tuple, list)) else (states,)
    dtype = x.dtype if x.dtype.is_float else float32
    return tuple(ops.zeros_like(x, dtype) for _ in range(state_count(cell)))


def state_count(cell: Cell) -> int:
    """How many states a neuron takes: the arguments of its construct after the first.

    Raises:
        ArgumentError: if the signature does not tell.
    """
    parameters = inspect.signature(cell.construct).parameters.values()
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        raise ArgumentError(
            f"{type(cell).__name__}: construct takes *args, so the number of states is unknown. Give the Cell a method "
            f"init_state(x), or pass the states."
        )
    return sum(p.default is p.empty for p in parameters) - 1


class MultiStep(Cell):
    """Runs a neuron over time: (T, B, ...) -> (T, B, ...).

    Args:
        cell: a Cell of one step, `construct(x, *states) -> (output, *states)`.
        return_states: give `(y, (state, ...))` with the last states, instead of y.
        checkpoint_every: see `ops.scan`.

    Inputs:
        x: (T, B, ...).
        states: the states before the first step; left out, they come from `cell.init_state(x[0])`, or are zeros.

    Raises:
        ArgumentError: for another number of states, or a Cell that does not return (output, *states).
        ShapeError, DTypeError: if a state changes its shape or dtype, naming it.

    Example:
        >>> spikes = MultiStep(LIFNode(tau=2.0))(ops.ones((8, 1, 3)) * 1.5)  # (8, 1, 3)
    """

    def __init__(self, cell: Cell, return_states: bool = False, checkpoint_every: int | None = None) -> None:
        super().__init__()
        if not isinstance(cell, Cell):
            raise ArgumentError(f"MultiStep: takes a Cell, not a {type(cell).__name__}.")
        self.cell = cell
        self.return_states = return_states
        self.checkpoint_every = checkpoint_every

    def construct(self, x: Tensor, *states: Tensor) -> Any:
        if x.ndim == 0 or x.shape[0] == 0:
            raise ArgumentError(f"MultiStep: x is (T, B, ...) with at least one step, its shape is {x.shape}.")
        first = tuple(states) or initial_states(self.cell, x[0])
        name = type(self.cell).__name__

        def step(carry: tuple[Tensor, ...], now: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
            result = self.cell(now, *carry)
            if not isinstance(result, tuple) or len(result) != len(carry) + 1:
                got = f"{len(result)} values" if isinstance(result, tuple) else type(result).__name__
                raise ArgumentError(
                    f"MultiStep: {name}.construct took {len(carry)} state(s) and must return (output, *states) with as "
                    f"many; it returned {got}."
                )
            return tuple(result[1:]), result[0]

        last, y = ops.scan(step, first, x, checkpoint_every=self.checkpoint_every)
        return (y, last) if self.return_states else y


class Recurrent(Cell):
    """A neuron whose output of the step before comes back through a Cell with weights.

    out, *states = cell(x + feedback(out_before), *states)

    It is a Cell of one step itself, whose first state is the output; run it by `MultiStep`.

    Args:
        cell: the neuron.
        feedback: from an output to an input of the neuron, for example `Dense(n, n)`.
    """

    def __init__(self, cell: Cell, feedback: Cell) -> None:
        super().__init__()
        self.cell = cell
        self.feedback = feedback

    def construct(self, x: Tensor, out: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        after: tuple[Tensor, ...] = self.cell(x + self.feedback(out), *states)
        return (after[0], *after)

    def init_state(self, x: Tensor) -> tuple[Tensor, ...]:
        """No output yet, and the neuron's own initial states."""
        return (ops.zeros_like(x), *initial_states(self.cell, x))
