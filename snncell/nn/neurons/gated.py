"""Leaky neurons with learned gains, complementary memories and gates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from snncell import ops
from snncell.cell.fields import field, with_fields
from snncell.cell.held import Constant
from snncell.cell.ranges import GATE, LOGIT, POSITIVE, Range, check_constant, numbers_of
from snncell.nn.neurons.base import Neuron
from snncell.nn.neurons.integrate import DECAY_INPUT, MEMBRANE_TAU, V_REST, EulerLeak, logit
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor


@with_fields
class KLIFNode(EulerLeak):
    """A leaky neuron with a learned gain k and a rectified potential.

    h = relu(k u),  u = the charged potential of `LIFNode`
    s = surrogate(h - v_threshold)
    v = the reset of h, as for every `Neuron`;  with scale_reset that of h / k with v_threshold / k

    Inputs, Returns: x and v, of one shape; (s, v), as for `LIFNode`.

    Raises:
        ArgumentError: for tau not above 1, a gain or threshold that is not positive, or an unknown reset.

    Source: Jiang, Zhang, "KLIF: An optimized spiking neuron unit for tuning surrogate gradient slope and membrane
    potential", 2023; SpikingJelly, KLIFNode.

    Example:
        >>> spike, v = nn.KLIFNode(k=2.0)(Tensor([0.8, -1.0]), Tensor([0.0, 0.0]))
        >>> print(v)
        [0.8 0. ]
    """

    tau: Any = MEMBRANE_TAU
    k: Any = field(
        1.0, POSITIVE, "the gain at first, for the layer, or an array, one for each neuron", learned="always"
    )
    scale_reset: bool = field(False, None, "whether k is taken out again before the reset")
    decay_input: bool = DECAY_INPUT
    v_rest: Any = V_REST
    delays = (None,)

    def construct(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        h = ops.relu(self.k * self.charge(x, v))
        s = self.spikes(h)
        if self.scale_reset:
            return s, self.after_reset(h / self.k, s, self.v_threshold / self.k)
        return s, self.after_reset(h, s)


@with_fields
class CLIFNode(EulerLeak):
    """A leaky neuron with a complementary potential m, which remembers spikes and carries gradients further back.

    h = v - (v - v_rest) / tau + x           as `LIFNode` without decay_input
    s = surrogate(h - v_threshold)
    m = m sigmoid(h / tau) + s
    v = h - s (v_threshold + sigmoid(m))     reset="subtract"; the others as for every `Neuron`

    Inputs:
        x, v, m: the input, the potential and the complementary potential, of one shape.

    Returns:
        (s, v, m).

    Raises:
        ArgumentError: for tau not above 1, a threshold that is not positive, or an unknown reset.

    Source: Huang et al., "CLIF: Complementary Leaky Integrate-and-Fire Neuron for Spiking Neural Networks", ICML 2024;
    SpikingJelly, ComplementaryLIFNode.

    Example:
        >>> spike, v, m = nn.CLIFNode(tau=2.0)(Tensor([2.0]), Tensor([0.0]), Tensor([0.0]))
        >>> print(v, m)
        [0.2689414] [1.]
    """

    tau: Any = MEMBRANE_TAU
    v_rest: Any = V_REST
    delays = (None,)

    def construct(self, x: Tensor, v: Tensor, m: Tensor) -> tuple[Tensor, ...]:
        h = self.charge(x, v)
        s = self.spikes(h)
        m = m * ops.sigmoid(h / self.tau) + s
        return s, self.after_reset(h, s, self.v_threshold + ops.sigmoid(m)), m

    def init_state(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """v_reset, and no memory."""
        return self.filled(x, self.v_reset), self.filled(x, 0.0)


# Each is the sigmoid of the Parameter of that name.
GATES = ("alpha", "beta", "gamma", "tau", "v_threshold", "linear_decay", "v_subreset", "conduct")


def gate(value: Any, who: str, name: str) -> Parameter:
    """The Parameter whose sigmoid is `value`."""
    if isinstance(value, Parameter):
        return value
    number = numbers_of(GATE.check(check_constant(value, who, name), who, name))
    return logit(np.log(number) - np.log1p(-number), value, name)


@with_fields(by_place=" ".join(GATES) + " detach_reset surrogate_function compare")
class GLIFNode(Neuron):
    """A gated leaky neuron, which learns what kind of leak, input and reset it has.

    keep = 1 - alpha (1 - tau)
    h = keep v (1 - gamma s) - (1 - alpha) linear_decay - (1 - gamma) v_subreset s + x (1 - beta (1 - conduct))
    s = surrogate(h - v_threshold)
    v = h

    Here s on the right is the spike of the step before: gamma chooses between a reset to 0 and one that subtracts,
    alpha between an exponential and a linear leak, beta how much of the input comes in. All are sigmoids of learned
    Parameters, so they stay between 0 and 1.

    Each is between 0 and 1: a number for the layer, or an array, one for each neuron.

    Inputs:
        x, v, s: the input, the potential and the last spikes, of one shape.

    Returns:
        (s, v, s).

    Raises:
        ArgumentError: for a value outside (0, 1).

    Source: Yao et al., "GLIF: A Unified Gated Leaky Integrate-and-Fire Neuron for Spiking Neural Networks", NeurIPS
    2022; SpikingJelly, GatedLIFNode.

    Example:
        >>> spike, v, _ = nn.GLIFNode()(Tensor([1.0]), Tensor([0.0]), Tensor([0.0]))
        >>> print(spike)
        [1.]
    """

    alpha: Any = field(0.5, None, "gate of the leak: exponential, or linear", convert=gate)
    beta: Any = field(0.5, None, "gate of the input", convert=gate)
    gamma: Any = field(0.5, None, "gate of the reset: to 0, or by v_subreset", convert=gate)
    tau: Any = field(0.25, None, "factor that the exponential leak keeps, as the paper calls it", convert=gate)
    v_threshold: Any = field(0.5, None, "where it fires", convert=gate)
    linear_decay: Any = field(0.05, None, "the linear leak of a step; the paper has v_threshold / (2 T)", convert=gate)
    v_subreset: Any = field(None, None, "size of the reset that subtracts", follows="v_threshold", convert=gate)
    conduct: Any = field(0.5, None, "what beta leaves of the input; the paper has one for each step", convert=gate)
    v_reset = reset = delay = input_gain = max_spikes = learnable = field(init=False)
    ranges: ClassVar = dict.fromkeys(GATES, LOGIT)
    one_at_most = True

    if TYPE_CHECKING:

        def __init__(
            self,
            alpha: Any = ...,
            beta: Any = ...,
            gamma: Any = ...,
            tau: Any = ...,
            v_threshold: Any = ...,
            linear_decay: Any = ...,
            v_subreset: Any = ...,
            conduct: Any = ...,
            detach_reset: bool = ...,
            surrogate_function: Any = ...,
            compare: str = ...,
        ) -> None: ...

    def range_of(self, name: str) -> Range:
        """The range of a constant; a gate is a logit."""
        return LOGIT if name in GATES else super().range_of(name)

    @property
    def constants_and_ranges(self) -> tuple[Constant, ...]:
        """The gates, as they are used: the sigmoids of its Parameters."""
        held = ((name, getattr(self, name)) for name in GATES)
        return tuple(Constant(name, numbers_of(ops.sigmoid(value)), GATE, learned=True) for name, value in held)

    def construct(self, x: Tensor, v: Tensor, s: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        alpha, beta, gamma, tau, v_threshold, decay, v_subreset, conduct = (
            ops.sigmoid(getattr(self, name)) for name in GATES
        )
        last = ops.stop_gradient(s) if self.detach_reset else s
        keep = 1.0 - alpha * (1.0 - tau)
        leak = keep * v * (1.0 - gamma * last) - (1.0 - alpha) * decay - (1.0 - gamma) * v_subreset * last
        h = leak + x * (1.0 - beta * (1.0 - conduct))
        s = self.spikes(h, v_threshold)
        return s, h, s

    def init_state(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """A potential of 0, and no spike."""
        return self.filled(x, 0.0), self.filled(x, 0.0)

    def extend_repr(self) -> str:
        return f"detach_reset={self.detach_reset}"
