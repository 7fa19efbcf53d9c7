"""Integrate and fire, with and without a leak, which may be learned, and leaky integrators: one state, v."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from snncell import ops
from snncell.cell.fields import field, with_fields
from snncell.cell.held import Constant
from snncell.cell.ranges import DECAY, FINITE, LOGIT, TAU, Derived, check_constant, numbers_of
from snncell.dtype import float32
from snncell.errors import ArgumentError
from snncell.nn.neurons.base import Neuron
from snncell.nn.neurons.constants import Membrane, from_rest
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor


@with_fields(by_place="v_threshold fire surrogate_function v_reset reset detach_reset")
class IFNode(Neuron):
    """Integrate and fire, as MindSpore's guide to custom reverses has it.

    h = v + x;  s = surrogate(h - v_threshold);  spike = s v_threshold;  v = h - spike

    A spike has the size v_threshold, and the reset subtracts it; `IFNode.like(...)` returns neurons whose spikes are 1,
    as they are in the other frameworks. With `fire=False` the output is v itself.

    Inputs, Returns: x, v, the input and the state, of one shape; (spike, v), or (v, v) with `fire=False`.

    Source: MindSpore 1.9 tutorials, "Customizing Reverse Propagation Function of Cell".

    Example:
        >>> spike, v = nn.IFNode(v_threshold=0.5)(Tensor([0.3, 0.6]), Tensor([0.0, 0.0]))
        >>> print(spike)
        [0.  0.5]
    """

    fire: bool = field(True, None, "whether it spikes")

    if TYPE_CHECKING:

        def __init__(
            self,
            v_threshold: Any = ...,
            fire: bool = ...,
            surrogate_function: Any = ...,
            v_reset: Any = ...,
            reset: str | None = ...,
            detach_reset: bool = ...,
            **options: Any,
        ) -> None: ...

    def charge(self, x: Tensor, v: Tensor) -> Any:
        return v + self.gained(x)

    def construct(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if not self.fire:
            h = self.on_grid("v", self.charge(x, self.recall(v)[0]))
            return h, h
        s, v = super().construct(x, v)
        return s * self.v_threshold, v


# Fields of neurons with the membrane equation tau dv/dt = -(v - v_rest) + x.
MEMBRANE_TAU = field(2.0, TAU, "membrane time constant")
DECAY_INPUT = field(True, None, "whether the input is divided by tau too")
V_REST = field(None, FINITE, "resting potential", follows="v_reset")


def euler_step(cell: Any, x: Any, v: Any) -> Any:
    """One Euler step of the membrane equation, of length 1; on a grid 1 / tau is a factor in fixed point."""
    x, leak, tau = cell.gained(x), from_rest(v, cell.v_rest), cell.tau
    if cell.quantisers is not None:
        rate = cell.quantisers.rate(tau)
        return v + (x - leak) * rate if cell.decay_input else v - leak * rate + x
    if cell.decay_input:
        return v + (x - leak) / tau
    return v - leak / tau + x


class EulerLeak(Neuron):
    """The base of neurons with the charge of `LIFNode`, one Euler step of the membrane equation."""

    tau: Any
    v_rest: Any
    decay_input = False
    charge = euler_step


@with_fields(by_place="tau v_threshold v_reset reset detach_reset decay_input surrogate_function")
class LIFNode(EulerLeak):
    """Leaky integrate and fire.

    h = v + (x - (v - v_rest)) / tau         with decay_input
    h = v - (v - v_rest) / tau + x           without
    s and v as for every `Neuron`

    The membrane equation tau dv/dt = -(v - v_rest) + x, by one Euler step of length 1, which keeps 1 - 1 / tau of the
    potential.

    Source: Gerstner et al., Neuronal Dynamics, section 1.3; Fang et al., SpikingJelly, Science Advances 2023.

    Example:
        >>> spike, v = nn.LIFNode(tau=4.0)(Tensor([8.0]), Tensor([0.0]))
        >>> print(spike, v)
        [1.] [1.]
    """

    tau: Any = MEMBRANE_TAU
    decay_input: bool = DECAY_INPUT
    v_rest: Any = V_REST

    if TYPE_CHECKING:

        def __init__(
            self,
            tau: Any = ...,
            v_threshold: Any = ...,
            v_reset: Any = ...,
            reset: str | None = ...,
            detach_reset: bool = ...,
            decay_input: bool = ...,
            surrogate_function: Any = ...,
            **options: Any,
        ) -> None: ...


@with_fields
class LeakyNode(Neuron):
    """Leaky integrate and fire, by the factor that a step keeps.

    h = beta v + x;  s and v as for every `Neuron`

    With beta = exp(-dt / tau) it is the exact solution of tau dv/dt = -v between inputs that are jumps; LIFNode's Euler
    step without decay_input has beta = 1 - 1 / tau.

    Source: Eshraghian et al., "Training Spiking Neural Networks Using Lessons From Deep Learning", Proc. IEEE 2023.

    Example:
        >>> spike, v = nn.LeakyNode(beta=0.5)(Tensor([0.5]), Tensor([0.8]))
        >>> print(v)
        [0.9]
    """

    beta: Any = field(0.9, DECAY, "decay of the potential")

    def charge(self, x: Tensor, v: Tensor) -> Any:
        return self.beta * v + self.gained(x)


@with_fields
class LINode(Membrane):
    """A leaky integrator that does not spike: a readout of potentials.

    v = v + (x - (v - v_rest)) / tau         with decay_input
    v = v - (v - v_rest) / tau + x           without

    With decay_input a longer tau weakens the input, too; a memory is learned better with decay_input=False.

    Inputs, Returns: x, v, the input and the state, of one shape; (v, v).

    Source: Gerstner et al., Neuronal Dynamics, section 1.3; SpikingJelly, NonSpikingLIFNode.

    Example:
        >>> readout = nn.SequentialCell(nn.MultiStep(nn.LINode(tau=2.0)), nn.Readout("max"))
        >>> print(readout(Tensor([[1.0], [0.0], [0.0]])))  # (T, N) -> (N)
        [0.5]
    """

    tau: Any = MEMBRANE_TAU
    decay_input: bool = DECAY_INPUT
    v_rest: Any = field(0.0, FINITE, "resting potential")
    input_gain: Any = field(1.0, FINITE, "factor of the input")
    learnable: Any = field((), None, "names of the constants to learn", keep=False)
    charge = euler_step

    def construct(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        v = self.on_grid("v", self.charge(x, v))
        return v, v

    def init_state(self, x: Tensor) -> Tensor:
        """The resting potential."""
        return self.filled(x, self.v_rest)


# --- a learned time constant ------------------------------------------------------------------------------------------


def present_tau(neuron: Any) -> Tensor:
    """The time constant at present, in steps."""
    return 1.0 / ops.sigmoid(neuron.w)


def logit(value: Any, source: Any, name: str) -> Parameter:
    """The Parameter of a logit, limited to its range; float32, or as wide as the Tensor that it was made of."""
    dtype = source.dtype if isinstance(source, Tensor) and source.dtype.is_float else float32
    return Parameter(Tensor(np.clip(value, LOGIT.low, LOGIT.high), dtype), name=name)


@with_fields
class ParametricLIFNode(Neuron):
    """A leaky neuron that learns its time constant.

    1 / tau = sigmoid(w), so that tau stays above 1;  w = -ln(tau - 1) at first
    h = v + (x - (v - v_rest)) / tau         with decay_input
    h = v - (v - v_rest) / tau + x           without
    s and v as for every `Neuron`

    With decay_input a longer tau weakens the input, too; a memory is learned better with decay_input=False.

    Source: Fang et al., "Incorporating Learnable Membrane Time Constant to Enhance Learning of Spiking Neural
    Networks", ICCV 2021.

    Example:
        >>> [p.name for p in nn.ParametricLIFNode(tau=2.0).trainable_params()]
        ['w']
    """

    tau: Any = field(2.0, TAU, "the first time constant, for all neurons or one for each", read=present_tau)
    decay_input: bool = DECAY_INPUT
    v_rest: Any = V_REST
    ranges: ClassVar = {"w": LOGIT}

    def _complete(self, given: dict[str, Any]) -> None:
        """Learn w, of which tau is a function."""
        who, tau = type(self).__name__, given["tau"]
        if isinstance(tau, (Parameter, Derived)):
            raise ArgumentError(
                f"{who}: it learns w, of 1 / tau = sigmoid(w), which it makes itself; give tau as a number, or the "
                f"Parameter to nn.LIFNode(tau=...)."
            )
        first = TAU.check(check_constant(tau, who, "tau"), who, "tau")
        self.w = logit(-np.log(numbers_of(first) - 1.0), tau, "w")

    @property
    def constants_and_ranges(self) -> tuple[Constant, ...]:
        """Its constants, tau in the place of w."""
        return Constant("tau", numbers_of(self.tau), TAU, learned=True), *super().constants_and_ranges

    def charge(self, x: Tensor, v: Tensor) -> Any:
        x, leak, rate = self.gained(x), from_rest(v, self.v_rest), ops.sigmoid(self.w)
        return v + (x - leak) * rate if self.decay_input else v - leak * rate + x
