"""A leaky neuron whose threshold rises with its own spikes."""

from __future__ import annotations

from typing import Any, ClassVar, Unpack

from snncell.common.ranges import DECAY, one_of
from snncell.nn.neurons.base import Firing, Neuron
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
        options: v_threshold, reset and the others of every `Neuron`; delay is None, "reset" or "spike".

    By default the reset comes at the end of the step, as in sinabs, and decays with the potential. In the papers it
    comes in the next step and has not decayed, v = alpha v - s v_threshold + x, and so does the jump: delay="reset".

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
    ranges: ClassVar = {"alpha": DECAY, "rho": DECAY}
    delays = (None, "reset", "spike")

    def __init__(
        self,
        alpha: Any = 0.9,
        rho: Any = 0.97,
        beta: Any = 1.8,
        jump: Any = 1.0,
        subtracts: str = "v_threshold",
        **options: Unpack[Firing],
    ) -> None:
        super().__init__({"alpha": alpha, "rho": rho, "beta": beta, "jump": jump}, **options)
        self.subtracts = one_of(subtracts, ("v_threshold", "threshold"), type(self).__name__, "subtracts")

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

    def init_state(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """v_reset, and no adaptation."""
        return self.filled(x, self.v_reset), self.filled(x, 0.0)
