"""Variants of the leaky neuron: adaptive, gated, resonating, refractory, and with several spikes in a step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np

from snncell import ops
from snncell.base.arguments.kinds import Own
from snncell.cell.fields import field, with_fields
from snncell.cell.held import Constant
from snncell.cell.ranges import DECAY, FINITE, GATE, LOGIT, NEGATIVE, POSITIVE, Range, check_constant, numbers_of
from snncell.nn.neurons.base import Neuron, Rounding
from snncell.nn.neurons.integrate import DECAY_INPUT, MEMBRANE_TAU, V_REST, EulerLeak, LeakyNode, logit
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor

MOST = Range(1, 2**24, "both", "is a whole number from 1 on", whole=True)


@with_fields
class MultiSpikeLIFNode(LeakyNode):
    """A leaky neuron that gives as many spikes in a step as thresholds fit into its potential.

    h = beta v + x
    s = floor(h / v_threshold), at least 0 and at most max_spikes
    v = h - s v_threshold                    reset="subtract"; the others where s > 0

    The derivative of s is that of one spike at the first threshold. Any `Neuron` counts so with its option max_spikes.

    Source: Weidel, Sheik, "WaveSense: Efficient Temporal Convolutions with Spiking Neural Networks", 2021; sinabs, LIF.

    Example:
        >>> spike, v = nn.MultiSpikeLIFNode(beta=0.5)(Tensor([2.5]), Tensor([0.0]))
        >>> print(spike, v)
        [2.] [0.5]
    """

    compare = field(">=")
    max_spikes = field(None)


@with_fields
class ILIFNode(EulerLeak):
    """Integer leaky integrate and fire: whole numbers of spikes in training, which unfold into spikes on a chip.

    h = v - (v - v_rest) / tau + x           as `LIFNode` without decay_input
    s = round(clip(h / v_threshold, 0, D)),  ds/dh = 1 / v_threshold where 0 <= h / v_threshold <= D, else 0
    v = h - s v_threshold                    reset="subtract"; the others where s > 0

    Source: Luo et al., "Integer-Valued Training and Spike-Driven Inference Spiking Neural Network for High-Performance
    and Energy-Efficient Object Detection", ECCV 2024; SpikingJelly, ILIFNode.

    Example:
        >>> spike, v = nn.ILIFNode()(Tensor([2.6, 9.0]), Tensor([0.0, 0.0]))
        >>> print(spike)
        [3. 4.]
    """

    tau: Any = MEMBRANE_TAU.but(4.0 / 3.0)  # keeps a quarter, as in the paper
    most: Annotated[int, Own()] = field(4, None, "D, the largest number in a step", convert=MOST.check, keep=False)
    v_rest: Any = V_REST
    surrogate_function = compare = max_spikes = field(init=False)
    delays = (None,)
    own_function = True

    def _complete(self, given: dict[str, Any]) -> None:
        """Fire by rounding."""
        self.fire_by(Rounding(given["most"]), given["most"])

    def spikes(self, h: Any, threshold: Any = None) -> Any:
        """The whole number of thresholds nearest to the potential."""
        return self.fire_at(h / (self.v_threshold if threshold is None else threshold))


@with_fields
class RefractoryLIFNode(EulerLeak):
    """A leaky neuron that rests for some steps after a spike.

    free = 1 where rho <= 0, else 0
    h = v + free (u - v),  u = the charged potential of `LIFNode`
    s = free surrogate(h - v_threshold)
    v = the reset of h, as for every `Neuron`
    rho = refractory after a spike, else max(0, rho - 1)

    While it rests, the potential stays where the reset put it, and inputs are lost. The counter has no gradient.

    Inputs, Returns: x, v, rho, the input, the potential and the steps still to rest, of one shape; (s, v, rho).

    Source: Gerstner et al., Neuronal Dynamics, section 1.3.3; Norse, LIFRefrac.

    Example:
        >>> node = nn.RefractoryLIFNode(tau=2.0, refractory=2)
        >>> print(nn.MultiStep(node)(ops.ones((6, 1)) * 4.0)[:, 0])
        [1. 0. 0. 1. 0. 0.]
    """

    tau: Any = MEMBRANE_TAU
    refractory: Annotated[float, Own()] = field(2.0, POSITIVE, "how many steps it rests", learned="never")
    decay_input: bool = DECAY_INPUT
    v_rest: Any = V_REST
    delays = (None,)
    other_states = (0.0,)

    def construct(self, x: Tensor, v: Tensor, rho: Tensor) -> tuple[Tensor, ...]:
        free = (rho <= 0.0).astype(v.dtype)
        h = v + free * (self.charge(x, v) - v)
        s = free * self.spikes(h)
        rho = ops.where(s > 0.5, self.refractory, ops.maximum(rho - 1.0, 0.0)).astype(rho.dtype)
        return s, self.after_reset(h, s), ops.stop_gradient(rho)


@with_fields
class ALIFNode(Neuron):
    """Adaptive leaky integrate and fire (the neuron of LSNNs).

    A = v_threshold + beta a
    h = alpha v + x
    s = surrogate(h - A)
    a = rho a + jump s
    v = h - s v_threshold                    reset="subtract"; the others as for every `Neuron`

    By default the reset comes at the end of the step, as in sinabs, and decays with the potential. In the papers it
    comes in the next step and has not decayed, v = alpha v - s v_threshold + x, and so does the jump: delay="reset".

    Inputs, Returns: x, v, a, the input, the potential and the adaptation, of one shape; (s, v, a).

    Source: Bellec et al., "A solution to the learning dilemma for recurrent networks of spiking neurons", Nature
    Communications 2020; "Long short-term memory and learning-to-learn in networks of spiking neurons", NeurIPS 2018.

    Example:
        >>> spike, v, a = nn.ALIFNode(alpha=0.5, rho=0.5)(Tensor([2.0]), Tensor([0.0]), Tensor([0.2]))
        >>> print(spike, v, a)
        [1.] [1.] [1.1]
    """

    alpha: Any = field(0.9, DECAY, "decay of the potential, exp(-dt / tau_m)")
    rho: Any = field(0.97, DECAY, "decay of the adaptation, exp(-dt / tau_a)")
    beta: Any = field(1.8, FINITE, "rise of the threshold with the adaptation")
    jump: Any = field(
        1.0, FINITE, "rise of the adaptation with a spike: 1 (e-prop 2020), or 1 - rho (LSNN 2018, sinabs, Spyx)"
    )
    subtracts: str = field(
        "v_threshold",
        ("v_threshold", "threshold"),
        'what "subtract" takes off: e-prop 2020 has v_threshold, LSNN 2018, sinabs and Spyx have A',
    )
    delays = (None, "reset", "spike")
    other_states = (0.0,)

    def construct(self, x: Tensor, v: Tensor, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        threshold = self.v_threshold + self.beta * a
        v, late = self.recall(v, threshold)
        h, drop = self.alpha * v + self.gained(x), threshold if self.subtracts == "threshold" else None
        if self.delay == "reset":
            a = self.adapted(a, late)
            return (*self.fired(h, late, self.v_threshold + self.beta * a, drop), a)
        s, v = self.fired(h, late, threshold, drop)
        return s, v, self.adapted(a, s)

    def adapted(self, a: Any, s: Any) -> Any:
        """The adaptation after a step with the spikes s."""
        return self.rho * a + self.jump * s


@with_fields
class KLIFNode(EulerLeak):
    """A leaky neuron with a learned gain k and a rectified potential.

    h = relu(k u),  u = the charged potential of `LIFNode`
    s = surrogate(h - v_threshold)
    v = the reset of h, as for every `Neuron`;  with scale_reset that of h / k with v_threshold / k

    Source: Jiang, Zhang, "KLIF: An optimized spiking neuron unit for tuning surrogate gradient slope and membrane
    potential", 2023; SpikingJelly, KLIFNode.

    Example:
        >>> spike, v = nn.KLIFNode(k=2.0)(Tensor([0.8, -1.0]), Tensor([0.0, 0.0]))
        >>> print(v)
        [0.8 0. ]
    """

    tau: Any = MEMBRANE_TAU
    k: Any = field(1.0, POSITIVE, "the gain at first, for all neurons or one for each", learned="always")
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

    Inputs, Returns: x, v, m, the input, the potential and the complementary potential, of one shape; (s, v, m).

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
    other_states = (0.0,)

    def construct(self, x: Tensor, v: Tensor, m: Tensor) -> tuple[Tensor, ...]:
        h = self.charge(x, v)
        s = self.spikes(h)
        m = m * ops.sigmoid(h / self.tau) + s
        return s, self.after_reset(h, s, self.v_threshold + ops.sigmoid(m)), m


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
    Parameters; give each as a number between 0 and 1 for the layer, or an array, one for each neuron.

    Inputs, Returns: x, v, s, the input, the potential and the last spikes, of one shape; (s, v, s).

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

    starts = 0.0
    other_states = (0.0,)

    def range_of(self, name: str) -> Range:
        """The range of a constant; a gate is a logit."""
        return LOGIT if name in GATES else super().range_of(name)

    @property
    def constants_and_ranges(self) -> tuple[Constant, ...]:
        """The gates, as they are used: the sigmoids of its Parameters."""
        held = ((name, getattr(self, name)) for name in GATES)
        return tuple(Constant(name, numbers_of(ops.sigmoid(value)), GATE, learned=True) for name, value in held)

    def construct(self, x: Tensor, v: Tensor, s: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        gates = [ops.sigmoid(getattr(self, name)) for name in GATES]
        alpha, beta, gamma, tau, v_threshold, decay, v_subreset, conduct = gates
        last = ops.stop_gradient(s) if self.detach_reset else s
        keep = 1.0 - alpha * (1.0 - tau)
        leak = keep * v * (1.0 - gamma * last) - (1.0 - alpha) * decay - (1.0 - gamma) * v_subreset * last
        h = leak + x * (1.0 - beta * (1.0 - conduct))
        s = self.spikes(h, v_threshold)
        return s, h, s

    def extend_repr(self) -> str:
        return f"detach_reset={self.detach_reset}"


@with_fields
class ResonateNode(Neuron):
    """Resonate and fire: a complex potential z = u + i v that turns and shrinks.

    u + i h = exp((b + i omega) dt) (u + i v) + x, the input into the real part, the current
    s = surrogate(h - v_threshold): where the imaginary part, the potential, is high
    v = the reset of h, as for every `Neuron`; u stays as it is

    The equation dz/dt = (b + i omega) z + I, solved exactly between inputs that are jumps.

    Inputs, Returns: x, v, u, the input, the imaginary and the real part, of one shape; (s, v, u).

    Source: Izhikevich, "Resonate-and-fire neurons", Neural Networks 2001, where a spike puts z to i; the reset of v
    alone is SpikingJelly's RAFNode.

    Example:
        >>> spike, v, u = nn.ResonateNode(omega=3.14159)(Tensor([1.0]), Tensor([0.0]), Tensor([1.0]))
        >>> print(ops.round(u * 100.0) / 100.0)  # half a turn, and the input
        [0.18]
    """

    b: Any = field(-0.2, NEGATIVE, "growth of the oscillation, 1 / unit of dt")
    omega: Any = field(1.0, POSITIVE, "angular frequency, rad / unit of dt")
    dt: Annotated[float, Own()] = field(1.0, POSITIVE, "length of a step", learned="never")
    other_states = (0.0,)

    def construct(self, x: Tensor, v: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        v, late = self.recall(v)
        turn, shrink = self.omega * self.dt, self.b * self.dt
        cos, sin = (ops.cos(turn), ops.sin(turn)) if isinstance(turn, Tensor) else (math.cos(turn), math.sin(turn))
        shrink = ops.exp(shrink) if isinstance(shrink, Tensor) else math.exp(shrink)
        h = shrink * (u * sin + v * cos)
        u = shrink * (u * cos - v * sin) + self.gained(x)
        return (*self.fired(h, late), u)
