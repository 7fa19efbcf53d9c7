"""Membranes that run away quadratically above a potential, with and without adaptation."""

from __future__ import annotations

from typing import Any

from snncell.cell.fields import field, with_fields
from snncell.cell.ranges import FINITE, POSITIVE, TAU
from snncell.nn.neurons.base import Neuron
from snncell.nn.neurons.integrate import MEMBRANE_TAU
from snncell.tape.tensor import Tensor

V_C = field(0.8, FINITE, "critical potential, above which the potential runs away")
A0 = field(1.0, POSITIVE, "steepness")
V_REST = field(0.0, FINITE, "resting potential")


@with_fields
class QIFNode(Neuron):
    """Quadratic integrate and fire.

    h = v + (x + a0 (v - v_rest) (v - v_c)) / tau
    s and v as for every `Neuron`, by default with reset="value"

    Inputs, Returns: x and v, of one shape; (s, v), as for `LIFNode`.

    Raises:
        ArgumentError: for tau not above 1, a0 not positive, or a v_threshold not above v_reset.

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

    Inputs:
        x, v, w: the input, the potential and the adaptation, of one shape.

    Returns:
        (s, v, w).

    Raises:
        ArgumentError: for a time constant not above 1, a0 not positive, or a v_threshold not above v_reset.

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

    def construct(self, x: Tensor, v: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        v, late = self.recall(v)
        h = v + (self.gained(x) + self.a0 * (v - self.v_rest) * (v - self.v_c) - w) / self.tau
        w = w + (self.a * (h - self.v_rest) - w) / self.tau_w
        s, v = self.fired(h, late)
        return s, v, w + self.b * s

    def init_state(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """v_reset, and w_rest."""
        return self.filled(x, self.v_reset), self.filled(x, self.w_rest)
