"""Membranes that run away exponentially above a potential, with and without adaptation."""

from __future__ import annotations

from typing import Any

from snncell import ops
from snncell.cell.fields import field, with_fields
from snncell.cell.ranges import FINITE, POSITIVE, TAU
from snncell.nn.neurons.base import Neuron
from snncell.nn.neurons.integrate import MEMBRANE_TAU
from snncell.tape.tensor import Tensor

DELTA_T = field(1.0, POSITIVE, "sharpness of the onset of a spike")
THETA_RH = field(0.8, FINITE, "rheobase threshold, above which the potential runs away")
V_REST = field(0.0, FINITE, "resting potential")


@with_fields
class EIFNode(Neuron):
    """Exponential integrate and fire.

    h = v + (x - (v - v_rest) + delta_t exp((v - theta_rh) / delta_t)) / tau
    s and v as for every `Neuron`, by default with reset="value"

    The membrane equation tau dv/dt = -(v - v_rest) + delta_t exp((v - theta_rh) / delta_t) + R I, by one Euler step.

    Inputs:
        x, v: the input R I, in units of the potential, and the state, of one shape.

    Returns:
        (s, v).

    Raises:
        ArgumentError: for tau not above 1, delta_t not positive, or a v_threshold not above v_reset.

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

    Inputs:
        x, v, w: the input, the potential and the adaptation, of one shape.

    Returns:
        (s, v, w).

    Raises:
        ArgumentError: for a time constant not above 1, delta_t not positive, or a v_threshold not above v_reset.

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

    def construct(self, x: Tensor, v: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        v, late = self.recall(v)
        runaway = self.delta_t * ops.exp((v - self.theta_rh) / self.delta_t)
        h = v + (self.gained(x) - (v - self.v_rest) + runaway - w) / self.tau
        w = w + (self.a * (v - self.v_rest) - w) / self.tau_w
        s, v = self.fired(h, late)
        return s, v, w + self.b * s

    def init_state(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The resting potential, and no adaptation."""
        return self.filled(x, self.v_rest), self.filled(x, 0.0)
