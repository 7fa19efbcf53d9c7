"""Neurons as sinabs has them, where they differ from the library's: what they end a step with, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

from snncell import ops
from snncell.common.ranges import DECAY, Range
from snncell.errors import ArgumentError
from snncell.nn.neurons.adaptive import ALIFNode
from snncell.nn.neurons.base import Neuron
from snncell.nn.neurons.constants import Membrane
from snncell.nn.neurons.current import CubaLIFNode
from snncell.nn.neurons.firing import Counting
from snncell.nn.neurons.integrate import LeakyNode
from snncell.surrogate.wrappers import Inclusive, Wrapper
from snncell.tape.tensor import Tensor


def raise_to_floor(v: Any, floor: Any) -> Any:
    """A potential, and where it is below the floor the floor."""
    return v if floor is None else ops.relu(v - floor) + floor


class InPotential(Wrapper):
    """A spike function in units of the potential, for x in thresholds: the other one's of x v_threshold."""

    def __init__(self, surrogate_function: Any, v_threshold: Any) -> None:
        super().__init__(surrogate_function)
        if not isinstance(v_threshold, (int, float)):
            raise ArgumentError(
                "like: sinabs: a surrogate_grad_fn with several spikes in a step needs one number as spike_threshold, "
                f"not {v_threshold!r:.200}."
            )
        self.v_threshold = v_threshold

    def construct(self, x: Tensor) -> Tensor:
        spikes: Tensor = self.surrogate_function.construct(x)
        return spikes

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return self.surrogate_function.bprop(x * self.v_threshold, out, dout * self.v_threshold)

    def primitive(self, x: Tensor) -> Tensor:
        smooth: Tensor = self.surrogate_function.primitive(x * self.v_threshold)
        return smooth


class SinabsEnd(Neuron):
    """A step that ends as sinabs's do: with a reset by a value of its own, and a floor below the potential."""

    starts = "at_first"
    at_first = 0.0
    min_v_mem: Any = None
    subtract_value: Any = None
    resets_all = False
    norm_input = False

    def ending(self, floor: Any, subtract_value: Any, as_shipped: bool, norm_input: bool = False) -> Self:
        """The neuron itself, with these."""
        for name, value in (("min_v_mem", floor), ("subtract_value", subtract_value)):
            if value is not None:
                self.declare(name)
                setattr(self, name, value)
        self.resets_all, self.norm_input = as_shipped and self.reset == "value", norm_input
        return self

    def range_of(self, name: str) -> Range:
        """The range of a constant: the floor is below the threshold."""
        if name == "min_v_mem":
            return Range(high=self.v_threshold, text="is below spike_threshold")
        usual = super().range_of(name)
        if name != "v_threshold" or self.min_v_mem is None:
            return usual
        ends = usual.low, self.min_v_mem
        low = ops.maximum(*ends) if any(isinstance(x, Tensor) for x in ends) else max(ends)
        return Range(low, text=f"{usual.text}, and above min_v_mem")

    def kept(self) -> Any:
        """The factor that a step keeps of the potential."""
        return self.beta

    def gained(self, x: Any) -> Any:
        """The input, with norm_input times what a step does not keep."""
        return x * (1.0 - self.kept()) if self.norm_input else x

    def after_reset(self, h: Any, spike: Any, drop: Any = None) -> Any:
        """The potential after the reset, above the floor."""
        if self.resets_all:
            v = h * (1.0 - ops.minimum(ops.stop_gradient(spike), 1.0)) + self.v_reset
        else:
            v = super().after_reset(h, spike, drop if self.subtract_value is None else self.subtract_value)
        return raise_to_floor(v, self.min_v_mem)

    beta: Any


class SinabsLIF(SinabsEnd, LeakyNode):
    """LIF, IAF."""


class SinabsCuba(SinabsEnd, CubaLIFNode):
    """LIF and IAF with tau_syn; the gain is that of the current."""

    def gained(self, x: Any) -> Any:
        """The input as it is."""
        return x

    def read(self, current: Tensor) -> Any:
        """The current, with norm_input times what a step does not keep."""
        return SinabsEnd.gained(self, current)


class SinabsALIF(SinabsEnd, ALIFNode):
    """ALIF: the surrogate is as wide as the threshold, through which no gradient goes; that of the reset goes on."""

    relative = False

    def in_thresholds(self, relative: bool) -> None:
        """Make a single spike one of h / threshold - 1, as several spikes are already."""
        self.relative = relative
        if relative and isinstance(self.surrogate_function, Inclusive):
            self.fire_by(Counting(self.surrogate_function.surrogate_function, 1, ">="), 1)
            self.own_function = True

    def kept(self) -> Any:
        """The factor that a step keeps of the potential."""
        return self.alpha

    def adapted(self, a: Any, s: Any) -> Any:
        """The adaptation after a step: rho a + (1 - rho) s."""
        rho = self.rho
        return rho * a + (1.0 - rho) * s

    def spikes(self, h: Any, threshold: Any = None) -> Any:
        """The number of spikes, with the threshold as a constant in the reverse."""
        held = ops.stop_gradient(self.v_threshold if threshold is None else threshold)
        return self.fire_at(h / held - 1.0) if self.relative else super().spikes(h, held)

    def init_state(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Nothing yet."""
        return self.filled(x, 0.0), self.filled(x, 0.0)


class SinabsLeak(Membrane):
    """ExpLeak: v = beta v + x, or with norm_input beta v + (1 - beta) x; its output is not limited, its state is."""

    beta: Any
    min_v_mem: Any = None
    ranges: ClassVar = {"beta": DECAY}

    def __init__(self, beta: Any, norm_input: bool, floor: Any, learnable: str | Sequence[str]) -> None:
        super().__init__({"beta": beta}, learnable)
        self.norm_input = norm_input
        if floor is not None:
            self.declare("min_v_mem")
            self.min_v_mem = floor

    def construct(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        beta = self.beta
        h = beta * v + (x * (1.0 - beta) if self.norm_input else x)
        return h, raise_to_floor(h, self.min_v_mem)

    def init_state(self, x: Tensor) -> Tensor:
        """A potential of 0."""
        return self.filled(x, 0.0)
