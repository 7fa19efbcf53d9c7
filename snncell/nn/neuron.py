"""Spiking neurons: Cells of one time step, `construct(x, *states) -> (output, *states)`."""

from __future__ import annotations

from typing import Any

import numpy as np

from snncell import ops
from snncell.cell import Cell
from snncell.dtype import float32
from snncell.errors import ArgumentError
from snncell.surrogate import relusigmoid
from snncell.tape.tensor import Tensor


def constant(value: Any, who: str, name: str) -> Any:
    """A constant of a neuron: a number, or a Tensor or Parameter.

    Raises:
        ArgumentError: for anything else.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number, Tensor)):
        raise ArgumentError(f"{who}: {name} is a number, a Tensor or a Parameter, not {value!r}.")
    return value


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
        who = type(self).__name__
        self.v_threshold = constant(v_threshold, who, "v_threshold")
        self.v_reset = constant(v_reset, who, "v_reset")
        if isinstance(surrogate_function, type) or not callable(surrogate_function):
            raise ArgumentError(
                f"{who}: surrogate_function is a spike function, an object such as surrogate.ATan(), not "
                f"{surrogate_function!r}."
            )
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
        if not isinstance(constant(tau, "LIFNode", "tau"), Tensor) and not tau > 1.0:
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
