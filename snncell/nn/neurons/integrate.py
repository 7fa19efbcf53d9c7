"""Integrate-and-fire neurons with one state v: IF, LIF, parametric LIF, and leaky integrators without spikes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from snncell import ops
from snncell.cell.constants import Constant
from snncell.cell.fields import field, with_fields
from snncell.cell.ranges import DECAY, FINITE, LOGIT, TAU, Derived, check_constant, numbers_of
from snncell.dtype import float32
from snncell.errors import ArgumentError
from snncell.nn.neurons.base import Neuron
from snncell.nn.neurons.constants import Membrane, from_rest
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor

__all__ = ["IFNode", "LIFNode", "LINode", "LeakyNode", "ParametricLIFNode"]


@with_fields(by_place="v_threshold fire surrogate_function v_reset reset detach_reset")
class IFNode(Neuron):
    """Integrate and fire (IF): the potential sums the input without a leak.

        h = v + x
        s = surrogate(h - v_threshold)           1 if h > v_threshold, else 0; smooth only in the backward pass
        spike = s * v_threshold
        v = h - spike

    Use it if the number of spikes should be proportional to the summed input, as in converted ReLU networks. The spike
    has the size v_threshold, as in MindSpore's guide; for the size 1 of other frameworks, call `IFNode.like(...)`.
    Inputs: x, v: the input and the potential, of the same shape.
    Returns: (spike, v), or (v, v) with `fire=False`.
    Source: MindSpore 1.9 tutorials, "Customizing Reverse Propagation Function of Cell".
    Example:
        >>> spike, v = nn.IFNode(v_threshold=0.5)(Tensor([0.3, 0.6]), Tensor([0.0, 0.0]))
        >>> print(spike)
        [0.  0.5]
    """

    fire: bool = field(True, None, "whether the neuron spikes; with False it returns the potential, as a readout")

    if TYPE_CHECKING:

        def __init__(
            self, v_threshold: Any = ..., fire: bool = ..., surrogate_function: Any = ..., v_reset: Any = ...,
            reset: str | None = ..., detach_reset: bool = ..., **options: Any,
        ) -> None: ...  # fmt: skip

    def charge(self, x: Tensor, v: Tensor) -> Any:
        return v + self.gained(x)

    def construct(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if not self.fire:
            h = self.on_grid(self.charge(x, self.recall(v)[0]))
            return h, h
        s, v = super().construct(x, v)
        return s * self.v_threshold, v


# Fields of neurons with the membrane equation tau dv/dt = -(v - v_rest) + x.
MEMBRANE_TAU = field(2.0, TAU, "membrane time constant")
DECAY_INPUT = field(
    True, None, "whether tau divides the input too, so that the potential approaches v_rest + x if x is constant"
)
V_REST = field(None, FINITE, "resting potential, to which the potential decays without input", follows="v_reset")


def euler_step(cell: Any, x: Any, v: Any) -> Any:
    """One Euler step of length 1 of the membrane equation; quantised neurons multiply by 1 / tau in fixed point."""
    x, leak, tau = cell.gained(x), from_rest(v, cell.v_rest), cell.tau
    if cell.quantisers is not None:
        rate = cell.quantisers.rate(tau)
        return v + (x - leak) * rate if cell.decay_input else v - leak * rate + x
    if cell.decay_input:
        return v + (x - leak) / tau
    return v - leak / tau + x


class EulerLeak(Neuron):
    """Base of neurons that charge like `LIFNode`: one Euler step of the membrane equation."""

    tau: Any
    v_rest: Any
    decay_input = False
    charge = euler_step


@with_fields(by_place="tau v_threshold v_reset reset detach_reset decay_input surrogate_function")
class LIFNode(EulerLeak):
    """Leaky integrate and fire (LIF): the potential follows the input, decays, and fires at a threshold.

        h = v + (x - (v - v_rest)) / tau         decay_input=True
        h = v - (v - v_rest) / tau + x           decay_input=False
        s = surrogate(h - v_threshold)           1 if h > v_threshold, else 0; smooth only in the backward pass
        v = h - s * v_threshold                  reset="subtract"; see `Neuron` for the others

    This is the usual first choice for deep spiking networks. Each time step is one Euler step of length 1 of the
    membrane equation tau dv/dt = -(v - v_rest) + x, so it keeps 1 - 1 / tau of the potential. If you know this decay
    factor, use `LeakyNode`. To learn tau, pass `learnable="tau"` or use `ParametricLIFNode`.

    The defaults tau=2.0 and decay_input=True are SpikingJelly's. Each step then forgets half of the potential, which
    suits inputs of few steps; hundreds of steps need a longer tau. With decay_input=True a longer tau also divides the
    input by more, so you should then raise the weights or pass decay_input=False.
    Inputs: x, v: the input and the potential, both of shape (B, ...). `nn.MultiStep(node)` takes the input (T, B, ...).
    Returns: (s, v): the spikes, 0 or 1, and the potential after the reset, in the shape and dtype of x.
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
            self, tau: Any = ..., v_threshold: Any = ..., v_reset: Any = ..., reset: str | None = ...,
            detach_reset: bool = ..., decay_input: bool = ..., surrogate_function: Any = ..., **options: Any,
        ) -> None: ...  # fmt: skip


@with_fields
class LeakyNode(Neuron):
    """Leaky integrate and fire (LIF) with a decay factor: h = beta v + x.

    See `Neuron` for spike and reset. Use it if you know the factor beta by which the potential decays in a step. With
    the default 0.9 it forgets its input over about 10 steps. `LeakyNode.like("snntorch", beta=0.9)` has the defaults of
    snnTorch's Leaky: the surrogate ATan, and a detached reset that comes one step later.

    With beta = exp(-dt / tau), the decay tau dv/dt = -v between steps is exact, and each input is an impulse, which
    makes the potential jump by x. With beta = 1 - 1 / tau the neuron equals `LIFNode(tau, decay_input=False)`.
    Source: Eshraghian et al., "Training Spiking Neural Networks Using Lessons From Deep Learning", Proc. IEEE 2023.
    Example:
        >>> spike, v = nn.LeakyNode(beta=0.5)(Tensor([0.5]), Tensor([0.8]))
        >>> print(v)
        [0.9]
    """

    beta: Any = field(0.9, DECAY, "decay factor of the potential")

    def charge(self, x: Tensor, v: Tensor) -> Any:
        return self.beta * v + self.gained(x)


@with_fields
class LINode(Membrane):
    """Leaky integrator (LI) without spikes: an output layer of potentials, for a decoder such as `Readout`.

        v = v + (x - (v - v_rest)) / tau         decay_input=True
        v = v - (v - v_rest) / tau + x           decay_input=False

    For example, let `nn.Readout` take the maximum of the potentials over time as class scores. With decay_input=True a
    longer tau also weakens the input, so use decay_input=False for long memories.
    Inputs: x, v: the input and the potential, of the same shape.
    Returns: (v, v): the potential as output and as state.
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
        v = self.on_grid(self.charge(x, v))
        return v, v

    def init_state(self, x: Tensor) -> Tensor:
        """Start at the resting potential."""
        return self.filled(x, self.v_rest)


# --- a learned time constant ------------------------------------------------------------------------------------------


def present_tau(neuron: Any) -> Tensor:
    """The current time constant of a ParametricLIFNode, in steps."""
    return 1.0 / ops.sigmoid(neuron.w)


def logit(value: Any, source: Any, name: str) -> Parameter:
    """Create the Parameter of a logit, clipped to its range; its dtype is that of `source`, or float32 for a number."""
    dtype = source.dtype if isinstance(source, Tensor) and source.dtype.is_float else float32
    return Parameter(Tensor(np.clip(value, LOGIT.low, LOGIT.high), dtype), name=name)


@with_fields
class ParametricLIFNode(Neuron):
    """Parametric LIF (PLIF): a leaky neuron that learns its time constant.

        1 / tau = sigmoid(w)                     w is the Parameter, at first -ln(tau - 1)
        h = v + (x - (v - v_rest)) / tau         decay_input=True
        h = v - (v - v_rest) / tau + x           decay_input=False

    See `Neuron` for spike and reset. Use it if you do not know a good time constant. It learns w, which stays in
    [-80, 16], so tau is always above 1. `LIFNode(learnable="tau")` learns tau itself. With decay_input=True a longer
    tau also weakens the input, so use decay_input=False for long memories.
    Source: Fang et al., "Incorporating Learnable Membrane Time Constant to Enhance Learning of Spiking Neural
    Networks", ICCV 2021.
    Example:
        >>> [p.name for p in nn.ParametricLIFNode(tau=2.0).trainable_params()]
        ['w']
    """

    tau: Any = field(2.0, TAU, "initial time constant, one for the layer or one per neuron", read=present_tau)
    decay_input: bool = DECAY_INPUT
    v_rest: Any = V_REST
    ranges: ClassVar = {"w": LOGIT}

    def _complete(self, given: dict[str, Any]) -> None:
        who, tau = type(self).__name__, given["tau"]
        if isinstance(tau, (Parameter, Derived)):
            raise ArgumentError(
                f"{who} creates and learns its own Parameter w, with 1 / tau = sigmoid(w). Pass tau as a number, or "
                f"pass the Parameter to nn.LIFNode(tau=...)."
            )
        first = TAU.check(check_constant(tau, who, "tau"), who, "tau")
        self.w = logit(-np.log(numbers_of(first) - 1.0), tau, "w")

    @property
    def constants_and_ranges(self) -> tuple[Constant, ...]:
        """The constants, with tau in place of w."""
        return Constant("tau", numbers_of(self.tau), TAU, learned=True), *super().constants_and_ranges

    def charge(self, x: Tensor, v: Tensor) -> Any:
        x, leak, rate = self.gained(x), from_rest(v, self.v_rest), ops.sigmoid(self.w)
        return v + (x - leak) * rate if self.decay_input else v - leak * rate + x
