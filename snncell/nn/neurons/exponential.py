"""Membranes that run away exponentially above a potential, with and without adaptation."""

from __future__ import annotations

from typing import Any, ClassVar, Unpack

from snncell import ops
from snncell.common.ranges import POSITIVE, TAU
from snncell.nn.neurons.base import Firing, Neuron, to_value
from snncell.tape.tensor import Tensor


class EIFNode(Neuron):
    """Exponential integrate and fire.

    h = v + (x - (v - v_rest) + delta_t exp((v - theta_rh) / delta_t)) / tau
    s and v as for every `Neuron`, by default with reset="value"

    The membrane equation tau dv/dt = -(v - v_rest) + delta_t exp((v - theta_rh) / delta_t) + R I, by one Euler step.

    Args:
        tau: membrane time constant in steps, above 1.
        delta_t: how sharply a spike sets in.
        theta_rh: rheobase threshold, above which the potential runs away.
        v_rest: resting potential.
        options: v_threshold, reset, surrogate_function and the others of every `Neuron`.

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

    tau: Any
    delta_t: Any
    theta_rh: Any
    v_rest: Any
    ranges: ClassVar = {"tau": TAU, "delta_t": POSITIVE}

    def __init__(
        self,
        tau: Any = 2.0,
        delta_t: Any = 1.0,
        theta_rh: Any = 0.8,
        v_rest: Any = 0.0,
        **options: Unpack[Firing],
    ) -> None:
        own = {"tau": tau, "delta_t": delta_t, "theta_rh": theta_rh, "v_rest": v_rest}
        super().__init__(own, **to_value(options, -0.1))

    def charge(self, x: Tensor, v: Tensor) -> Any:
        runaway = self.delta_t * ops.exp((v - self.theta_rh) / self.delta_t)
        return v + (self.gained(x) - (v - self.v_rest) + runaway) / self.tau


class AdExNode(Neuron):
    """Adaptive exponential integrate and fire.

    h = v + (x - (v - v_rest) + delta_t exp((v - theta_rh) / delta_t) - w) / tau
    w = w + (a (v - v_rest) - w) / tau_w + b s
    s and v as for every `Neuron`, by default with reset="value"

    The paper's equations divided by the leak's conductance: x = I / g_L, tau = C / g_L, and w, a, b in its units.

    Args:
        tau_w: time constant of the adaptation in steps, above 1.
        a: how strongly the adaptation follows the potential.
        b: what a spike adds to the adaptation.
        tau, delta_t, theta_rh, v_rest, options: as for `EIFNode`.

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

    tau: Any
    tau_w: Any
    a: Any
    b: Any
    delta_t: Any
    theta_rh: Any
    v_rest: Any
    ranges: ClassVar = {"tau": TAU, "tau_w": TAU, "delta_t": POSITIVE}

    def __init__(
        self,
        tau: Any = 2.0,
        tau_w: Any = 20.0,
        a: Any = 0.0,
        b: Any = 0.1,
        delta_t: Any = 1.0,
        theta_rh: Any = 0.8,
        v_rest: Any = 0.0,
        **options: Unpack[Firing],
    ) -> None:
        own = {"tau": tau, "tau_w": tau_w, "a": a, "b": b}
        own |= {"delta_t": delta_t, "theta_rh": theta_rh, "v_rest": v_rest}
        super().__init__(own, **to_value(options, -0.1))

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
