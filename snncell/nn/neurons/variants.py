"""Variants of the LIF neuron: adaptive, gated, two compartments, resonating, refractory, several spikes per step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np

from snncell import ops
from snncell.base.arguments.kinds import Own
from snncell.cell.constants import Constant
from snncell.cell.fields import field, with_fields
from snncell.cell.ranges import (
    DECAY,
    FINITE,
    GATE,
    LOGIT,
    NEGATIVE,
    NOT_NEGATIVE,
    POSITIVE,
    Range,
    check_constant,
    numbers_of,
)
from snncell.nn.neurons.base import Neuron, Rounding
from snncell.nn.neurons.integrate import DECAY_INPUT, MEMBRANE_TAU, V_REST, EulerLeak, LeakyNode, logit
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor

__all__ = [
    "ALIFNode", "BalancedResonateNode", "CLIFNode", "GLIFNode", "ILIFNode", "KLIFNode", "MultiSpikeLIFNode",
    "RefractoryLIFNode", "ResonateNode", "TCLIFNode",
]  # fmt: skip

MOST = Range(1, 2**24, "both", "is a whole number of at least 1", whole=True)


@with_fields
class MultiSpikeLIFNode(LeakyNode):
    """Multi-spike LIF: in each step, one spike for each time that the threshold fits into the potential.

        h = beta v + x
        s = floor(h / v_threshold), at least 0 and at most max_spikes
        v = h - s * v_threshold                  reset="subtract"; the other resets act if s > 0

    Use it for long time steps, which can contain several spikes. The gradient has one surrogate peak, at
    h = v_threshold, and none at 2 v_threshold, 3 v_threshold, ... Most other neurons can also fire several spikes in a
    step if you pass max_spikes. `GLIFNode` and `IzhikevichNode` cannot; `ILIFNode` has `most`.
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
    """Integer LIF (I-LIF): a spike count per step, which a neuromorphic chip sends as that many binary spikes.

        h = v - (v - v_rest) / tau + x           as `LIFNode` with decay_input=False
        s = round(clip(h / v_threshold, 0, D))   ds/dh = 1 / v_threshold inside of the clip, else 0
        v = h - s * v_threshold                  reset="subtract"; the other resets act if s > 0

    Integer counts carry more information per step, so that training needs few steps. The defaults D = 4 and tau = 4/3
    are the paper's; with this tau a step keeps 1/4 of the potential.
    Source: Luo et al., "Integer-Valued Training and Spike-Driven Inference Spiking Neural Network for High-Performance
    and Energy-Efficient Object Detection", ECCV 2024; SpikingJelly, ILIFNode.
    Example:
        >>> spike, v = nn.ILIFNode()(Tensor([2.6, 9.0]), Tensor([0.0, 0.0]))
        >>> print(spike)
        [3. 4.]
    """

    tau: Any = MEMBRANE_TAU.but(4.0 / 3.0)
    most: Annotated[int, Own()] = field(4, None, "D, the largest number of spikes", convert=MOST.check, keep=False)
    v_rest: Any = V_REST
    surrogate_function = compare = max_spikes = field(init=False)
    delays = (None,)
    own_function = True

    def _complete(self, given: dict[str, Any]) -> None:
        self.fire_by(Rounding(given["most"]), given["most"])

    def spikes(self, h: Any, threshold: Any = None) -> Any:
        """The spike count: the potential divided by the threshold, rounded to the nearest integer."""
        return self.fire_at(h / (self.v_threshold if threshold is None else threshold))


@with_fields
class RefractoryLIFNode(EulerLeak):
    """LIF with a refractory period: the neuron cannot fire for some steps after a spike.

        free = 1 if rho <= 0, else 0
        h = v + free (u - v)                     u is the charged potential of `LIFNode`
        s = free surrogate(h - v_threshold)
        v = h - s * v_threshold                  reset="subtract"; see `Neuron` for the others
        rho = refractory after a spike, else max(0, rho - 1)

    Use it to limit firing rates. In the refractory period v is constant, inputs are lost, and rho has no gradient.
    Inputs: x, v, rho: the input, the potential and the remaining refractory steps, of the same shape.
    Returns: (s, v, rho).
    Source: Gerstner et al., Neuronal Dynamics, section 1.3.3; Norse, LIFRefrac.
    Example:
        >>> node = nn.RefractoryLIFNode(tau=2.0, refractory=2)
        >>> print(nn.MultiStep(node)(ops.ones((6, 1)) * 4.0)[:, 0])
        [1. 0. 0. 1. 0. 0.]
    """

    tau: Any = MEMBRANE_TAU
    refractory: Annotated[float, Own()] = field(2.0, POSITIVE, "refractory period, in steps", learned="never")
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
    """Adaptive LIF (ALIF), the neuron of long short-term memory SNNs (LSNN): spikes raise a slowly decaying threshold.

        A = v_threshold + beta a
        h = alpha v + x
        s = surrogate(h - A)
        a = rho a + jump s
        v = h - s * v_threshold                  reset="subtract"; see `Neuron` for the others

    Use it in recurrent networks for long time scales, because a decays more slowly than v. It also keeps firing rates
    low. The default beta=1.8 is Norse's. With the defaults the adaptation lasts about 33 steps, the potential about 10.

    By default, as in sinabs, v is reset and a is raised in the step of the spike, so that alpha acts on the potential
    after the reset. With delay="reset" both happen in the next step, as in the papers: v = alpha v - s v_threshold + x.
    Inputs: x, v, a: the input, the potential and the adaptation, of the same shape.
    Returns: (s, v, a).
    Source: Bellec et al., "A solution to the learning dilemma for recurrent networks of spiking neurons", Nature
    Communications 2020; "Long short-term memory and learning-to-learn in networks of spiking neurons", NeurIPS 2018.
    Example:
        >>> spike, v, a = nn.ALIFNode(alpha=0.5, rho=0.5)(Tensor([2.0]), Tensor([0.0]), Tensor([0.2]))
        >>> print(spike, v, a)
        [1.] [1.] [1.1]
    """

    alpha: Any = field(0.9, DECAY, "decay factor of the potential, exp(-dt / tau_m)")
    rho: Any = field(0.97, DECAY, "decay factor of the adaptation, exp(-dt / tau_a) (closer to 1 than alpha)")
    beta: Any = field(1.8, FINITE, "rise of the threshold per unit of adaptation")
    jump: Any = field(1.0, FINITE, "rise of the adaptation by a spike: 1 (e-prop), or 1 - rho (LSNN, sinabs, Spyx)")
    subtracts: str = field(
        "v_threshold",
        ("v_threshold", "threshold"),
        'the amount that reset="subtract" subtracts (v_threshold in e-prop 2020, the adapted threshold A in LSNN 2018, '
        "sinabs and Spyx)",
    )
    delays = (None, "reset", "spike")
    other_states = (0.0,)

    def construct(self, x: Tensor, v: Tensor, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        threshold = self.v_threshold + self.beta * a
        v, late = self.recall(v, threshold)
        h, drop = self.alpha * v + self.gained(x), threshold if self.subtracts == "threshold" else None
        if self.delay == "reset":
            a = self.adapt(a, late)
            return (*self.fired(h, late, self.v_threshold + self.beta * a, drop), a)
        s, v = self.fired(h, late, threshold, drop)
        return s, v, self.adapt(a, s)

    def adapt(self, a: Any, s: Any) -> Any:
        """The adaptation after a step with the spikes s."""
        return self.rho * a + self.jump * s


@with_fields
class KLIFNode(EulerLeak):
    """KLIF: a LIF neuron with a learned gain k and a rectified potential.

        h = relu(k u)                            u is the charged potential of `LIFNode`
        s = surrogate(h - v_threshold)
        v = h - s * v_threshold                  reset="subtract"; see `Neuron` for the others

    Learning k adapts the effective slope of the surrogate, so you need not tune the slope by hand. With
    scale_reset=True, the reset uses h / k and v_threshold / k.
    Source: Jiang, Zhang, "KLIF: An optimized spiking neuron unit for tuning surrogate gradient slope and membrane
    potential", 2023; SpikingJelly, KLIFNode.
    Example:
        >>> spike, v = nn.KLIFNode(k=2.0)(Tensor([0.8, -1.0]), Tensor([0.0, 0.0]))
        >>> print(v)
        [0.8 0. ]
    """

    tau: Any = MEMBRANE_TAU
    k: Any = field(1.0, POSITIVE, "initial gain, one for the layer or one per neuron", learned="always")
    scale_reset: bool = field(False, None, "whether the reset acts on h / k instead of h")
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
    """Complementary LIF (CLIF): a second potential m remembers spikes and carries gradients over more steps.

        h = v - (v - v_rest) / tau + x           as `LIFNode` with decay_input=False
        s = surrogate(h - v_threshold)
        m = m sigmoid(h / tau) + s
        v = h - s * (v_threshold + sigmoid(m))   reset="subtract"; see `Neuron` for the others

    Use it instead of `LIFNode` if gradients vanish over time. It has no further constants to tune.
    Inputs: x, v, m: the input, the potential and the complementary potential, of the same shape.
    Returns: (s, v, m).
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


@with_fields
class TCLIFNode(Neuron):
    """Two-compartment LIF (TC-LIF), a multi-compartment neuron: a dendrite keeps the input, and the soma fires.

        d = d + beta1 v + x                      dendrite; beta1 < 0 is the feedback of the soma
        h = v + beta2 d                          soma
        s = surrogate(h - v_threshold)
        v = h - s * v_threshold,  d = d - gamma s  reset="subtract"; the other resets of `Neuron` do not change d

    Use it for dependencies over hundreds of steps. This is a semi-implicit Euler step of dd/dt = beta1 v + x and
    dv/dt = beta2 d. Without spikes the compartments oscillate without a leak, because the product of the eigenvalues of
    a step is 1. With the defaults a period lasts 12 steps. The paper learns the logits of -beta1 and beta2;
    learnable=("beta1", "beta2") learns the values themselves.
    Inputs: x, v, d: the input, and the potentials of soma and dendrite, of the same shape.
    Returns: (s, v, d).
    Source: Zhang et al., "TC-LIF: A Two-Compartment Spiking Neuron Model for Long-Term Sequential Modelling", AAAI
    2024, with the order and the resets of the authors' program.
    Example:
        >>> spike, v, d = nn.TCLIFNode()(Tensor([3.0]), Tensor([0.0]), Tensor([0.0]))
        >>> print(spike, v, d)
        [1.] [0.5] [2.5]
    """

    beta1: Any = field(-0.5, Range(-1.0, 0.0), "coupling from soma to dendrite")
    beta2: Any = field(0.5, Range(0.0, 1.0), "coupling from dendrite to soma")
    gamma: Any = field(0.5, FINITE, "drop of the dendrite by a spike")
    delays = (None,)
    other_states = (0.0,)

    def construct(self, x: Tensor, v: Tensor, d: Tensor) -> tuple[Tensor, ...]:
        d = d + self.beta1 * v + self.gained(x)
        s, v = self.fired(v + self.beta2 * d, None)
        return s, v, self.after_reset(d, s, self.gamma) if self.reset == "subtract" else d


# The value of each gate is the sigmoid of the Parameter of that name.
GATES = ("alpha", "beta", "gamma", "tau", "v_threshold", "linear_decay", "v_subreset", "conduct")


def gate(value: Any, who: str, name: str) -> Parameter:
    """Create the Parameter of a gate: the logit of `value`."""
    if isinstance(value, Parameter):
        return value
    number = numbers_of(GATE.check(check_constant(value, who, name), who, name))
    return logit(np.log(number) - np.log1p(-number), value, name)


@with_fields(by_place=" ".join(GATES) + " detach_reset surrogate_function compare")
class GLIFNode(Neuron):
    """Gated LIF (GLIF): learns its leak, its input scaling and its reset.

        keep = 1 - alpha (1 - tau)
        i = x (1 - beta (1 - conduct))
        h = keep v (1 - gamma s) - (1 - alpha) * linear_decay - (1 - gamma) * v_subreset * s + i
        s = surrogate(h - v_threshold)
        v = h

    Use it if the neurons of a layer should differ. The s on the right is the spike of the previous step. alpha mixes an
    exponential and a linear leak, gamma mixes a reset to 0 and one by subtraction, and beta scales the input.

    All constants are learned; each is the sigmoid of a Parameter. Pass an initial value between 0 and 1 for the layer,
    or an array with one value per neuron. The gates alpha, beta and gamma start at 0.5, halfway between two choices.
    Inputs: x, v, s: the input, the potential and the previous spikes, of the same shape.
    Returns: (s, v, s).
    Source: Yao et al., "GLIF: A Unified Gated Leaky Integrate-and-Fire Neuron for Spiking Neural Networks", NeurIPS
    2022; SpikingJelly, GatedLIFNode.
    Example:
        >>> spike, v, _ = nn.GLIFNode()(Tensor([1.0]), Tensor([0.0]), Tensor([0.0]))
        >>> print(spike)
        [1.]
    """

    alpha: Any = field(0.5, None, "gate of the leak: 1 is exponential, 0 linear", convert=gate)
    beta: Any = field(0.5, None, "gate of the input: 1 multiplies it by conduct, 0 leaves it unchanged", convert=gate)
    gamma: Any = field(0.5, None, "gate of the reset: 1 resets to 0, 0 subtracts v_subreset", convert=gate)
    tau: Any = field(
        0.25,
        None,
        "decay factor of the exponential leak, not a time constant; the name tau is the paper's",
        convert=gate,
    )
    v_threshold: Any = field(0.5, None, "the potential at which the neuron fires", convert=gate)
    linear_decay: Any = field(0.05, None, "linear leak per step; the paper uses v_threshold / (2 T)", convert=gate)
    v_subreset: Any = field(None, None, "size of the subtractive reset", follows="v_threshold", convert=gate)
    conduct: Any = field(0.5, None, "scale of the gated input; the paper has one per time step", convert=gate)
    v_reset = reset = delay = input_gain = max_spikes = learnable = field(init=False)
    ranges: ClassVar = dict.fromkeys(GATES, LOGIT)
    one_at_most = True

    if TYPE_CHECKING:

        def __init__(
            self, alpha: Any = ..., beta: Any = ..., gamma: Any = ..., tau: Any = ..., v_threshold: Any = ...,
            linear_decay: Any = ..., v_subreset: Any = ..., conduct: Any = ..., detach_reset: bool = ...,
            surrogate_function: Any = ..., compare: str = ...,
        ) -> None: ...  # fmt: skip

    starts = 0.0
    other_states = (0.0,)

    def range_of(self, name: str) -> Range:
        return LOGIT if name in GATES else super().range_of(name)

    @property
    def constants_and_ranges(self) -> tuple[Constant, ...]:
        """The values of the gates: the sigmoids of the Parameters."""
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
    """Resonate and fire: a damped oscillator that responds to inputs at its own frequency.

        u + i h = exp((b + i omega) dt) (u + i v) + x      the real part u plays the role of a synaptic current
        s = surrogate(h - v_threshold)                     the imaginary part h is the potential
        v = h - s * v_threshold                            reset="subtract"; see `Neuron` for the others

    Use it for signals with rhythm, such as audio or radar: the neuron fires if inputs arrive in phase. The first line
    solves dz/dt = (b + i omega) z with z = u + i v exactly between steps. Each input is an impulse: u jumps by x. A
    spike does not change u. With the defaults a period lasts 6.3 steps, and the oscillation decays over 5 steps.
    Inputs: x, v, u: the input, the imaginary and the real part, of the same shape.
    Returns: (s, v, u).
    Source: Izhikevich, "Resonate-and-fire neurons", Neural Networks 2001, where a spike sets z to i; SpikingJelly's
        RAFNode resets v alone.
    Example:
        >>> spike, v, u = nn.ResonateNode(omega=3.14159)(Tensor([1.0]), Tensor([0.0]), Tensor([1.0]))
        >>> print(ops.round(u * 100.0) / 100.0)  # half a turn, and the input
        [0.18]
    """

    b: Any = field(-0.2, NEGATIVE, "growth rate of the oscillation, 1 / unit of dt")
    omega: Any = field(1.0, POSITIVE, "angular frequency, rad / unit of dt")
    dt: Annotated[float, Own()] = field(1.0, POSITIVE, "length of a time step", learned="never")
    other_states = (0.0,)

    def construct(self, x: Tensor, v: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        v, late = self.recall(v)
        turn, shrink = self.omega * self.dt, self.b * self.dt
        cos, sin = (ops.cos(turn), ops.sin(turn)) if isinstance(turn, Tensor) else (math.cos(turn), math.sin(turn))
        shrink = ops.exp(shrink) if isinstance(shrink, Tensor) else math.exp(shrink)
        h = shrink * (u * sin + v * cos)
        u = shrink * (u * cos - v * sin) + self.gained(x)
        return (*self.fired(h, late), u)


@with_fields
class BalancedResonateNode(Neuron):
    """Balanced resonate and fire (BRF): an oscillator that stays stable, with a refractory period in place of a reset.

        keep = sqrt(1 - omega^2) - damping - jump q
        h = keep v - omega u + x                 the real part is the potential
        u = keep u + omega v                     the imaginary part
        s = surrogate(h - v_threshold - q)
        q = gamma q + s                          spikes raise the threshold and the damping for some steps
        v = h                                    reset=None, the default; see `Neuron` for the others

    Use it for long memory: spikes do not reset the oscillation, which lasts about 1 / damping steps. A period has
    2 pi / asin(omega) steps. An array (N,) as omega makes a bank of N filters, one per frequency.

    This is an Euler step. sqrt(1 - omega^2) is the largest `keep` for which the amplitude does not grow. With
    `keep` = 1 it would grow by the factor sqrt(1 + omega^2) in each step. `ResonateNode` solves the oscillation exactly
    and needs no root. To get the paper's neuron with its dt = 0.01, pass omega = (its omega) dt, damping = (its b) dt,
    jump = dt and input_gain = dt. The default of input_gain is 1, not dt.
    Inputs: x, v, u, q: the input, the real and the imaginary part, and the refractory state, of the same shape.
    Returns: (s, v, u, q).
    Source: Higuchi, Kairat, Bohte and Otte, "Balanced Resonate-and-Fire Neurons", ICML 2024.
    Example:
        >>> bank = nn.BalancedResonateNode(omega=np.array([0.05, 0.1, 0.2]), damping=0.02)
        >>> wave = 0.2 * ops.sin(ops.arange(400.0) * 0.1).reshape((-1, 1, 1)) * ops.ones((1, 1, 3))
        >>> print(nn.MultiStep(bank)(wave).sum(0)[0])  # the neuron of the wave's frequency fires most
        [26. 38.  0.]
    """

    omega: Any = field(0.1, Range(0.0, 1.0), "sine of the angle by which the state turns in a step")
    damping: Any = field(0.01, NOT_NEGATIVE, "loss of amplitude per step; values below 0.1 are usual")
    jump: Any = field(0.01, NOT_NEGATIVE, "additional damping per unit of q")
    gamma: Any = field(0.9, DECAY, "decay factor of q, exp(-1 / steps)")
    reset = field(None)
    delays = (None,)
    other_states = (0.0, 0.0)

    def construct(self, x: Tensor, v: Tensor, u: Tensor, q: Tensor) -> tuple[Tensor, ...]:
        omega, square = self.omega, 1.0 - self.omega * self.omega
        largest = ops.sqrt(square) if isinstance(square, Tensor) else math.sqrt(square)
        keep = largest - self.damping - self.jump * q
        h = keep * v - omega * u + self.gained(x)
        u = keep * u + omega * v
        s, v = self.fired(h, None, self.v_threshold + q)
        return s, v, u, self.gamma * q + s
