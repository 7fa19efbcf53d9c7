"""A leaky neuron whose threshold rises with its own spikes."""

from __future__ import annotations

from typing import Any, Unpack

from snncell.nn.neurons.base import Firing, Neuron
from snncell.nn.neurons.constants import bounded, check_decay, one_of
from snncell.tape.tensor import Tensor


class ALIFNode(Neuron):
    """Adaptive leaky integrate and fire (the neuron of LSNNs).

    A = v_threshold + beta a
    h = alpha v + x
    s = surrogate(h - A)
    a = rho a + jump s
    v = h - s v_threshold                    reset="subtract"; the others as for every `Neuron`

    Args:
        alpha: what a step keeps of the potential, from 0 to 1: exp(-dt / tau_m).
        rho: what a step keeps of the adaptation, from 0 to 1: exp(-dt / tau_a).
        beta: how much the adaptation raises the threshold.
        jump: what a spike adds to the adaptation: 1 (e-prop 2020), or 1 - rho (LSNN 2018, sinabs, Spyx).
        subtracts: "v_threshold" (e-prop 2020), or "threshold", which is A (LSNN 2018, sinabs, Spyx).
        options: v_threshold, reset and the others of every `Neuron`; delay is None or "spike".

    Inputs:
        x, v, a: the input, the potential and the adaptation, of one shape.

    Returns:
        (s, v, a).

    Raises:
        ArgumentError: for a decay factor outside [0, 1], or an unknown option.

    Source: Bellec et al., "A solution to the learning dilemma for recurrent networks of spiking neurons", Nature
    Communications 2020; "Long short-term memory and learning-to-learn in networks of spiking neurons", NeurIPS 2018.

    Example:
        >>> spike, v, a = nn.ALIFNode(alpha=0.5, rho=0.5)(Tensor([2.0]), Tensor([0.0]), Tensor([0.2]))
        >>> print(spike, v, a)
        [1.] [1.] [1.1]
    """

    alpha: Any
    rho: Any
    beta: Any
    jump: Any
    delays = (None, "spike")

    def __init__(
        self,
        alpha: Any = 0.9,
        rho: Any = 0.97,
        beta: Any = 1.8,
        jump: Any = 1.0,
        subtracts: str = "v_threshold",
        **options: Unpack[Firing],
    ) -> None:
        who = type(self).__name__
        decays = {"alpha": check_decay(alpha, who, "alpha"), "rho": check_decay(rho, who, "rho")}
        super().__init__(decays | {"beta": beta, "jump": jump}, **options)
        self.subtracts = one_of(subtracts, ("v_threshold", "threshold"), who, "subtracts")

    def construct(self, x: Tensor, v: Tensor, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        threshold = self.v_threshold + self.beta * a
        v, late = self.recall(v, threshold)
        h = bounded(self.alpha) * v + self.gained(x)
        s, v = self.fired(h, late, threshold, threshold if self.subtracts == "threshold" else None)
        return s, v, bounded(self.rho) * a + self.jump * s

    def init_state(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """v_reset, and no adaptation."""
        return self.filled(x, self.v_reset), self.filled(x, 0.0)
