"""Nonlinear integrate-and-fire neurons: quadratic, exponential, with adaptation, and Izhikevich's model."""

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

__all__ = ["AdExNode", "AdaptiveQIFNode", "EIFNode", "IzhikevichNode", "QIFNode"]

V_C = field(0.8, FINITE, "critical potential, above which the potential grows without input until the neuron fires")
A0 = field(1.0, POSITIVE, "curvature of the quadratic term, 1 / unit of v")
DELTA_T = field(1.0, POSITIVE, "sharpness of the spike onset, in the unit of v (smaller is sharper)")
THETA_RH = field(0.8, FINITE, "rheobase threshold, near which the exponential term takes over")
V_REST = field(0.0, FINITE, "resting potential")


@with_fields
class QIFNode(Neuron):
    """Quadratic integrate and fire (QIF): above a critical potential v_c, v grows until the neuron fires.

        h = v + (x + a0 (v - v_rest) (v - v_c)) / tau
        s = surrogate(h - v_threshold)
        v = (1 - s) h + s * v_reset              reset="value"; see `Neuron` for the others

    Use it to model the onset of a spike cheaply; `EIFNode` fits recordings better. The defaults are SpikingJelly's.
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
    """Adaptive quadratic integrate and fire: Izhikevich's neuron with dimensionless constants.

        h = v + (x + a0 (v - v_rest) (v - v_c) - w) / tau
        w = w + (a (h - v_rest) - w) / tau_w + b s
        s = surrogate(h - v_threshold)
        v = (1 - s) h + s * v_reset              reset="value"; see `Neuron` for the others

    SpikingJelly calls it IzhikevichNode. For the published constants in mV and ms, use `IzhikevichNode`. With the
    defaults a = b = 0, which are SpikingJelly's, it does not adapt. For example, b=0.5 lets each spike delay the next.
    Inputs: x, v, w: the input, the potential and the adaptation, of the same shape.
    Returns: (s, v, w).
    Source: Izhikevich, Dynamical Systems in Neuroscience, section 8.1.4; SpikingJelly, IzhikevichNode.
    Example:
        >>> spike, v, w = nn.AdaptiveQIFNode(b=0.5)(Tensor([2.0]), Tensor([0.5]), Tensor([0.0]))
        >>> print(spike, w)
        [1.] [0.5]
    """

    tau: Any = MEMBRANE_TAU
    tau_w: Any = field(2.0, TAU, "time constant of the adaptation")
    a: Any = field(0.0, FINITE, "coupling of the adaptation to the potential")
    b: Any = field(0.0, FINITE, "rise of the adaptation by a spike")
    v_c: Any = V_C
    a0: Any = A0
    v_rest: Any = V_REST.but(-0.1)
    w_rest: Any = field(0.0, FINITE, "initial adaptation; it decays to 0, as in SpikingJelly")
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
    """Exponential integrate and fire (EIF): an exponential term models the fast onset of a spike.

        h = v + (x - (v - v_rest) + delta_t * exp((v - theta_rh) / delta_t)) / tau
        s = surrogate(h - v_threshold)
        v = (1 - s) h + s * v_reset              reset="value"; see `Neuron` for the others

    This is one Euler step of tau dv/dt = -(v - v_rest) + delta_t * exp((v - theta_rh) / delta_t) + x, where x is the
    input current times the resistance, in the unit of v. Use `AdExNode` if the neuron should also adapt. The defaults
    are SpikingJelly's, with potentials of the order of 1 instead of mV.
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
    """Adaptive exponential integrate and fire (AdEx).

        h = v + (x - (v - v_rest) + delta_t * exp((v - theta_rh) / delta_t) - w) / tau
        w = w + (a (v - v_rest) - w) / tau_w + b s
        s = surrogate(h - v_threshold)
        v = (1 - s) h + s * v_reset              reset="value"; see `Neuron` for the others

    Use it to reproduce firing patterns of cortical neurons, such as adaptation and bursting. The equations are the
    paper's, with w, a and b divided by the leak conductance g_L. So x = I / g_L and tau = C / g_L.
    Inputs: x, v, w: the input, the potential and the adaptation, of the same shape.
    Returns: (s, v, w).
    Source: Brette, Gerstner, "Adaptive exponential integrate-and-fire model", J. Neurophysiology 2005.
    Example:
        >>> node = nn.AdExNode(9.37, 144.0, 4 / 30, 80.5 / 30, 2.0, -50.4, -70.6, v_threshold=20.0, v_reset=-70.6)
        >>> spikes = nn.MultiStep(node)(ops.ones((300, 1)) * (1000 / 30))  # 1 nA for 300 ms, in mV
        >>> print(spikes.sum())  # the paper's neuron
        11.0
    """

    tau: Any = MEMBRANE_TAU
    tau_w: Any = field(20.0, TAU, "time constant of the adaptation (usually much longer than tau)")
    a: Any = field(0.0, FINITE, "coupling of the adaptation to the potential (subthreshold adaptation)")
    b: Any = field(0.1, FINITE, "rise of the adaptation by a spike (spike-triggered adaptation)")
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


# Limited, because the compiled step contains the instructions of each substep.
SUBSTEPS = Range(1, 1000, "both", "is a whole number of at least 1", whole=True)


@with_fields
class IzhikevichNode(Neuron):
    """Izhikevich's neuron (2003), in mV and ms.

        dv/dt = 0.04 v^2 + 5 v + 140 - u + x
        du/dt = a (b v - u)
        if v >= 30: spike, v = c, u = u + d

    Use it to reproduce firing patterns at low cost. `IzhikevichNode.named("CH")` creates one of the paper's seven
    cells; the default is its regular spiking cell, "RS". For constants of the order of 1, use `AdaptiveQIFNode`.

    As in the paper's program, a time step has `substeps` Euler steps of v, then one of u, then spike and reset. The
    argument of the surrogate is (v - 30) / scale.
    Inputs: x, v, u: the input, the potential in mV, and the recovery, of the same shape.
    Returns: (s, v, u).
    Source: Izhikevich, "Simple Model of Spiking Neurons", IEEE Trans. Neural Networks 2003.
    Example:
        >>> node = nn.IzhikevichNode.named("RS")  # regular spiking; also IB, CH, FS, LTS, TC, RZ
        >>> print(nn.MultiStep(node)(ops.ones((200, 1)) * 10.0).sum())  # 10 for 200 ms
        5.0
    """

    a: Any = field(0.02, FINITE, "rate of the recovery u, 1 / ms")
    b: Any = field(0.2, FINITE, "coupling of the recovery to the potential")
    c: Any = field(-65.0, None, "potential after a spike, mV", keep=False)
    d: Any = field(8.0, FINITE, "rise of u by a spike")
    dt: Annotated[float, Own()] = field(1.0, POSITIVE, "length of a time step, ms", learned="never")
    substeps: Annotated[int, Own()] = field(
        2, SUBSTEPS, "Euler steps of v per time step (the paper uses 2 of 0.5 ms, for stability)", learned="never"
    )
    scale: Annotated[float, Own()] = field(
        1.0, POSITIVE, "unit of the surrogate's argument, mV (larger: gradients further from 30 mV)", learned="never"
    )
    order: str = field("in turn", ("in turn", "together"), "u follows from the new v (the paper) or the old v (Norse)")
    v_threshold = field(30.0)
    v_reset = field(None, follows="c")
    reset = field("value")
    compare = field(">=")
    resets = ("value",)
    delays = (None,)
    one_at_most = True

    @classmethod
    def named(cls, kind: str, **options: Any) -> IzhikevichNode:
        """Create one of the cells of the paper's figure 2.

        Args:
            kind: "RS" regular spiking, "IB" intrinsically bursting, "CH" chattering, "FS" fast spiking, "TC"
                thalamo-cortical, "RZ" resonator, "LTS" low-threshold spiking.
            options: further arguments of the class.
        """
        if kind not in KINDS:
            raise ArgumentError(f"IzhikevichNode.named: unknown kind {kind!r}. The kinds are {', '.join(KINDS)}.")
        return cls(*KINDS[kind], **options)

    def construct(self, x: Tensor, v: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, before = self.gained(x), v
        for _ in range(self.substeps):
            v = v + (0.04 * v * v + 5.0 * v + 140.0 - u + x) * (self.dt / self.substeps)
        u = u + self.dt * self.a * (self.b * (v if self.order == "in turn" else before) - u)
        s = self.fire_at((v - self.v_threshold) / self.scale)
        return s, self.after_reset(v, s), u + self.d * s

    def init_state(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Start as in the paper: v = -65 mV, u = b v."""
        return self.filled(x, -65.0), self.filled(x, self.b) * -65.0
