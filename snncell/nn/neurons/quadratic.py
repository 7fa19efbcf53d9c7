"""Membranes that run away quadratically above a potential, with and without adaptation."""

from __future__ import annotations

from typing import Any, ClassVar, Unpack

from snncell.common.ranges import POSITIVE, TAU
from snncell.nn.neurons.base import Firing, Neuron, to_value
from snncell.tape.tensor import Tensor


class QIFNode(Neuron):
    """Quadratic integrate and fire.

    h = v + (x + a0 (v - v_rest) (v - v_c)) / tau
    s and v as for every `Neuron`, by default with reset="value"

    Args:
        tau: membrane time constant in steps, above 1.
        v_c: critical potential, above which it runs away.
        a0: steepness, positive.
        v_rest: resting potential.
        options: v_threshold, reset, surrogate_function and the others of every `Neuron`.

    Inputs, Returns: x and v, of one shape; (s, v), as for `LIFNode`.

    Raises:
        ArgumentError: for tau not above 1, a0 not positive, or a v_threshold not above v_reset.

    Source: Gerstner et al., Neuronal Dynamics, section 5.3; SpikingJelly, QIFNode.

    Example:
        >>> spike, v = nn.QIFNode(tau=2.0)(Tensor([1.0]), Tensor([0.4]))
        >>> print(v)
        [0.82]
    """

    tau: Any
    v_c: Any
    a0: Any
    v_rest: Any
    ranges: ClassVar = {"tau": TAU, "a0": POSITIVE}

    def __init__(
        self, tau: Any = 2.0, v_c: Any = 0.8, a0: Any = 1.0, v_rest: Any = 0.0, **options: Unpack[Firing]
    ) -> None:
        super().__init__({"tau": tau, "v_c": v_c, "a0": a0, "v_rest": v_rest}, **to_value(options, -0.1))

    def charge(self, x: Tensor, v: Tensor) -> Any:
        return v + (self.gained(x) + self.a0 * (v - self.v_rest) * (v - self.v_c)) / self.tau


class AdaptiveQIFNode(Neuron):
    """Quadratic integrate and fire with adaptation: Izhikevich's neuron in units of its own.

    h = v + (x + a0 (v - v_rest) (v - v_c) - w) / tau
    w = w + (a (h - v_rest) - w) / tau_w + b s
    s and v as for every `Neuron`, by default with reset="value"

    Args:
        tau_w: time constant of the adaptation in steps, above 1.
        a: how strongly the adaptation follows the potential.
        b: what a spike adds to the adaptation.
        w_rest: the adaptation at first; the equations pull it to 0, as SpikingJelly's do.
        tau, v_c, a0, v_rest, options: as for `QIFNode`.

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

    tau: Any
    tau_w: Any
    a: Any
    b: Any
    v_c: Any
    a0: Any
    v_rest: Any
    w_rest: Any
    ranges: ClassVar = {"tau": TAU, "tau_w": TAU, "a0": POSITIVE}

    def __init__(
        self,
        tau: Any = 2.0,
        tau_w: Any = 2.0,
        a: Any = 0.0,
        b: Any = 0.0,
        v_c: Any = 0.8,
        a0: Any = 1.0,
        v_rest: Any = -0.1,
        w_rest: Any = 0.0,
        **options: Unpack[Firing],
    ) -> None:
        own = {"tau": tau, "tau_w": tau_w, "a": a, "b": b, "v_c": v_c, "a0": a0, "v_rest": v_rest, "w_rest": w_rest}
        super().__init__(own, **to_value(options))

    def construct(self, x: Tensor, v: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        v, late = self.recall(v)
        h = v + (self.gained(x) + self.a0 * (v - self.v_rest) * (v - self.v_c) - w) / self.tau
        w = w + (self.a * (h - self.v_rest) - w) / self.tau_w
        s, v = self.fired(h, late)
        return s, v, w + self.b * s

    def init_state(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """v_reset, and w_rest."""
        return self.filled(x, self.v_reset), self.filled(x, self.w_rest)
