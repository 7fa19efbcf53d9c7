"""Membranes that run away above a potential: quadratic and exponential ones, and Izhikevich's model."""

from __future__ import annotations

from typing import Annotated, Any

from snncell import ops
from snncell.base.arguments.kinds import Own
from snncell.cell.fields import field, with_fields
from snncell.cell.ranges import FINITE, POSITIVE, TAU, Range
from snncell.errors import ArgumentError
from snncell.nn.neurons.base import Neuron
from snncell.nn.neurons.integrate import MEMBRANE_TAU
from snncell.tape.tensor import Tensor

V_C = field(0.8, FINITE, "critical potential, above which the potential runs away")
A0 = field(1.0, POSITIVE, "steepness")
DELTA_T = field(1.0, POSITIVE, "sharpness of the onset of a spike")
THETA_RH = field(0.8, FINITE, "rheobase threshold, above which the potential runs away")
V_REST = field(0.0, FINITE, "resting potential")


@with_fields
class QIFNode(Neuron):
    """Quadratic integrate and fire.

    h = v + (x + a0 (v - v_rest) (v - v_c)) / tau
    s and v as for every `Neuron`, by default with reset="value"

    Source: Gerstner et al., Neuronal Dynamics, section 5.3; SpikingJelly, QIFNode.

    Example:
        >>> spike, v = nn.QIFNode(tau=2.0)(Tensor([1.0]), Tensor([0.4]))
        >>> print(v)
        [0.82]
    """

    tau: Any = MEMBRANE_TAU
    v_c: Any = V_C
    a0: Any = A0
    v_rest: Any = V_REST
    v_reset = field(-0.1)
    reset = field("value")

    def charge(self, x: Tensor, v: Tensor) -> Any:
        return v + (self.gained(x) + self.a0 * (v - self.v_rest) * (v - self.v_c)) / self.tau


@with_fields
class AdaptiveQIFNode(Neuron):
    """Quadratic integrate and fire with adaptation: Izhikevich's neuron in units of its own.

    h = v + (x + a0 (v - v_rest) (v - v_c) - w) / tau
    w = w + (a (h - v_rest) - w) / tau_w + b s
    s and v as for every `Neuron`, by default with reset="value"

    Inputs, Returns: x, v, w, the input, the potential and the adaptation, of one shape; (s, v, w).

    Source: Izhikevich, Dynamical Systems in Neuroscience, section 8.1.4; SpikingJelly, IzhikevichNode.

    Example:
        >>> spike, v, w = nn.AdaptiveQIFNode(b=0.5)(Tensor([2.0]), Tensor([0.5]), Tensor([0.0]))
        >>> print(spike, w)
        [1.] [0.5]
    """

    tau: Any = MEMBRANE_TAU
    tau_w: Any = field(2.0, TAU, "time constant of the adaptation")
    a: Any = field(0.0, FINITE, "strength with which the adaptation follows the potential")
    b: Any = field(0.0, FINITE, "rise of the adaptation with a spike")
    v_c: Any = V_C
    a0: Any = A0
    v_rest: Any = V_REST.but(-0.1)
    w_rest: Any = field(0.0, FINITE, "the adaptation at first; the equations pull it to 0, as SpikingJelly's do")
    reset = field("value")
    other_states = ("w_rest",)

    def construct(self, x: Tensor, v: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        v, late = self.recall(v)
        h = v + (self.gained(x) + self.a0 * (v - self.v_rest) * (v - self.v_c) - w) / self.tau
        w = w + (self.a * (h - self.v_rest) - w) / self.tau_w
        s, v = self.fired(h, late)
        return s, v, w + self.b * s


@with_fields
class EIFNode(Neuron):
    """Exponential integrate and fire.

    h = v + (x - (v - v_rest) + delta_t exp((v - theta_rh) / delta_t)) / tau
    s and v as for every `Neuron`, by default with reset="value"

    The membrane equation tau dv/dt = -(v - v_rest) + delta_t exp((v - theta_rh) / delta_t) + R I, by one Euler step.

    The input x is R I, in units of the potential.

    Source: Fourcaud-Trocme et al. 2003; Gerstner et al., Neuronal Dynamics, section 5.2; SpikingJelly, EIFNode.

    Example:
        >>> spike, v = nn.EIFNode(tau=2.0)(Tensor([1.0]), Tensor([0.8]))
        >>> print(spike, v)
        [1.] [-0.1]
    """

    tau: Any = MEMBRANE_TAU
    delta_t: Any = DELTA_T
    theta_rh: Any = THETA_RH
    v_rest: Any = V_REST
    v_reset = field(-0.1)
    reset = field("value")

    def charge(self, x: Tensor, v: Tensor) -> Any:
        runaway = self.delta_t * ops.exp((v - self.theta_rh) / self.delta_t)
        return v + (self.gained(x) - (v - self.v_rest) + runaway) / self.tau


@with_fields
class AdExNode(Neuron):
    """Adaptive exponential integrate and fire.

    h = v + (x - (v - v_rest) + delta_t exp((v - theta_rh) / delta_t) - w) / tau
    w = w + (a (v - v_rest) - w) / tau_w + b s
    s and v as for every `Neuron`, by default with reset="value"

    The paper's equations divided by the leak's conductance: x = I / g_L, tau = C / g_L, and w, a, b in its units.

    Inputs, Returns: x, v, w, the input, the potential and the adaptation, of one shape; (s, v, w).

    Source: Brette, Gerstner, "Adaptive exponential integrate-and-fire model", J. Neurophysiology 2005.

    Example:
        >>> node = nn.AdExNode(9.37, 144.0, 4 / 30, 80.5 / 30, 2.0, -50.4, -70.6, v_threshold=20.0, v_reset=-70.6)
        >>> spikes = nn.MultiStep(node)(ops.ones((300, 1)) * (1000 / 30))  # 1 nA for 300 ms, in mV
        >>> print(spikes.sum())  # the paper's neuron
        11.0
    """

    tau: Any = MEMBRANE_TAU
    tau_w: Any = field(20.0, TAU, "time constant of the adaptation")
    a: Any = field(0.0, FINITE, "strength with which the adaptation follows the potential")
    b: Any = field(0.1, FINITE, "rise of the adaptation with a spike")
    delta_t: Any = DELTA_T
    theta_rh: Any = THETA_RH
    v_rest: Any = V_REST
    v_reset = field(-0.1)
    reset = field("value")
    starts = "v_rest"
    other_states = (0.0,)

    def construct(self, x: Tensor, v: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        v, late = self.recall(v)
        runaway = self.delta_t * ops.exp((v - self.theta_rh) / self.delta_t)
        h = v + (self.gained(x) - (v - self.v_rest) + runaway - w) / self.tau
        w = w + (self.a * (v - self.v_rest) - w) / self.tau_w
        s, v = self.fired(h, late)
        return s, v, w + self.b * s


KINDS = {  # a, b, c, d of the paper's figure 2
    "RS": (0.02, 0.2, -65.0, 8.0),
    "IB": (0.02, 0.2, -55.0, 4.0),
    "CH": (0.02, 0.2, -50.0, 2.0),
    "FS": (0.1, 0.2, -65.0, 2.0),
    "TC": (0.02, 0.25, -65.0, 0.05),
    "RZ": (0.1, 0.26, -65.0, 2.0),
    "LTS": (0.02, 0.25, -65.0, 2.0),
}


SUBSTEPS = Range(1, 1000, "both", "is a number from 1 on", whole=True)  # each is a part of the program


@with_fields
class IzhikevichNode(Neuron):
    """Izhikevich's neuron of 2003, in mV and ms.

    dv/dt = 0.04 v^2 + 5 v + 140 - u + x
    du/dt = a (b v - u)
    where v >= 30: a spike, v = c, u = u + d

    One step is `substeps` Euler steps of v, then one of u, as in the paper's program; the spike and the reset are at
    its end. The surrogate sees (v - 30) / scale.

    Inputs, Returns: x, v, u, the input, the potential in mV, and the recovery, of one shape; (s, v, u).

    Source: Izhikevich, "Simple Model of Spiking Neurons", IEEE Trans. Neural Networks 2003.

    Example:
        >>> node = nn.IzhikevichNode.named("RS")  # regular spiking; also IB, CH, FS, LTS, TC, RZ
        >>> print(nn.MultiStep(node)(ops.ones((200, 1)) * 10.0).sum())  # 10 for 200 ms
        5.0
    """

    a: Any = field(0.02, FINITE, "rate of the recovery u, 1 / ms")
    b: Any = field(0.2, FINITE, "strength with which the recovery follows the potential")
    c: Any = field(-65.0, None, "potential after a spike, mV", keep=False)
    d: Any = field(8.0, FINITE, "rise of u with a spike")
    dt: Annotated[float, Own()] = field(1.0, POSITIVE, "ms of a step", learned="never")
    substeps: Annotated[int, Own()] = field(
        2, SUBSTEPS, "steps of v in a step; the paper has 2 of 0.5 ms", learned="never"
    )
    scale: Annotated[float, Own()] = field(1.0, POSITIVE, "mV that the surrogate counts as 1", learned="never")
    order: str = field(
        "in turn", ("in turn", "together"), "u from the new v, as the paper's program, or from the old one (Norse)"
    )
    v_threshold = field(30.0)
    v_reset = field(None, follows="c")
    reset = field("value")
    compare = field(">=")
    resets = ("value",)
    delays = (None,)
    one_at_most = True

    @classmethod
    def named(cls, kind: str, **options: Any) -> IzhikevichNode:
        """One of the paper's cells.

        Args:
            kind: "RS" regular spiking, "IB" intrinsically bursting, "CH" chattering, "FS" fast spiking, "TC"
                thalamo-cortical, "RZ" resonator, "LTS" low-threshold spiking.
            options: as for the class.

        Raises:
            ArgumentError: for another name.
        """
        if kind not in KINDS:
            raise ArgumentError(f"IzhikevichNode.named: no kind {kind!r}; there are {', '.join(KINDS)}.")
        return cls(*KINDS[kind], **options)

    def construct(self, x: Tensor, v: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, before = self.gained(x), v
        for _ in range(self.substeps):
            v = v + (0.04 * v * v + 5.0 * v + 140.0 - u + x) * (self.dt / self.substeps)
        u = u + self.dt * self.a * (self.b * (v if self.order == "in turn" else before) - u)
        s = self.fire_at((v - self.v_threshold) / self.scale)
        return s, self.after_reset(v, s), u + self.d * s

    def init_state(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The paper's: v = -65 mV, u = b v."""
        return self.filled(x, -65.0), self.filled(x, self.b) * -65.0
