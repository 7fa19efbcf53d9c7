"""Leaky neurons that give several spikes in a step, or whole numbers, or none for a while after a spike."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Unpack

from snncell import ops
from snncell.base.arguments.kinds import Own
from snncell.common.ranges import POSITIVE, Range
from snncell.errors import ArgumentError
from snncell.nn.neurons.base import Firing
from snncell.nn.neurons.firing import SPIKE_FUNCTION, Rounding
from snncell.nn.neurons.integrate import EulerLeak, LeakyNode
from snncell.tape.tensor import Tensor

MOST = Range(1, 2**24, "both", "is a whole number from 1 on", whole=True)


class MultiSpikeLIFNode(LeakyNode):
    """A leaky neuron that gives as many spikes in a step as thresholds fit into its potential.

    h = beta v + x
    s = floor(h / v_threshold), at least 0 and at most max_spikes
    v = h - s v_threshold                    reset="subtract"; the others where s > 0

    In the reverse, s has the derivative of one spike at the first threshold. Any `Neuron` counts so with its option
    max_spikes.

    Args:
        beta: what a step keeps of the potential, from 0 to 1.
        options: max_spikes (None, which is any number), compare (">="), v_threshold, reset, surrogate_function and the
            others of every `Neuron`.

    Inputs, Returns: x and v, of one shape; (s, v), as for `LIFNode`.

    Raises:
        ArgumentError: for beta outside [0, 1], or max_spikes below 1.

    Source: Weidel, Sheik, "WaveSense: Efficient Temporal Convolutions with Spiking Neural Networks", 2021; sinabs, LIF.

    Example:
        >>> spike, v = nn.MultiSpikeLIFNode(beta=0.5)(Tensor([2.5]), Tensor([0.0]))
        >>> print(spike, v)
        [2.] [0.5]
    """

    def __init__(self, beta: Any = 0.9, **options: Unpack[Firing]) -> None:
        defaults: Firing = {"compare": ">=", "max_spikes": None, **options}
        super().__init__(beta, **defaults)


class ILIFNode(EulerLeak):
    """Integer leaky integrate and fire: whole numbers of spikes in training, which unfold into spikes on a chip.

    h = v - (v - v_rest) / tau + x           as `LIFNode` without decay_input
    s = round(clip(h / v_threshold, 0, D)),  ds/dh = 1 / v_threshold where 0 <= h / v_threshold <= D, else 0
    v = h - s v_threshold                    reset="subtract"; the others where s > 0

    Args:
        tau: membrane time constant in steps, above 1; 4 / 3 keeps a quarter, as in the paper.
        most: D, the largest number in a step.
        v_rest: resting potential; v_reset if it is left out.
        options: v_threshold, reset and the others of every `Neuron`, without surrogate_function, compare, max_spikes
            and delay.

    Inputs, Returns: x and v, of one shape; (s, v), as for `LIFNode`.

    Raises:
        ArgumentError: for tau not above 1, a largest number below 1, or an option of the spike function.

    Source: Luo et al., "Integer-Valued Training and Spike-Driven Inference Spiking Neural Network for High-Performance
    and Energy-Efficient Object Detection", ECCV 2024; SpikingJelly, ILIFNode.

    Example:
        >>> spike, v = nn.ILIFNode()(Tensor([2.6, 9.0]), Tensor([0.0, 0.0]))
        >>> print(spike)
        [3. 4.]
    """

    delays = (None,)
    own_function = True

    def __init__(
        self, tau: Any = 4.0 / 3.0, most: Annotated[int, Own()] = 4, v_rest: Any = None, **options: Unpack[Firing]
    ) -> None:
        if refused := [name for name in SPIKE_FUNCTION if name in options]:
            raise ArgumentError(
                f"ILIFNode: its spike function is its own, and takes no {refused[0]}. Leave it out; most=... is the "
                f"largest number of spikes."
            )
        MOST.check(most, "ILIFNode", "most")
        super().__init__(tau, False, v_rest, **options)
        self.fire_by(Rounding(most), most)

    def spikes(self, h: Any, threshold: Any = None) -> Any:
        """The whole number of thresholds nearest to the potential."""
        return self.fire_at(h / (self.v_threshold if threshold is None else threshold))


class RefractoryLIFNode(EulerLeak):
    """A leaky neuron that rests for some steps after a spike.

    free = 1 where rho <= 0, else 0
    h = v + free (u - v),  u = the charged potential of `LIFNode`
    s = free surrogate(h - v_threshold)
    v = the reset of h, as for every `Neuron`
    rho = refractory after a spike, else max(0, rho - 1)

    While it rests, the potential stays where the reset put it, and inputs are lost. The counter has no gradient.

    Args:
        tau: membrane time constant in steps, above 1.
        refractory: how many steps it rests.
        decay_input, v_rest and options: as for `LIFNode`, by keyword.

    Inputs:
        x, v, rho: the input, the potential and the steps still to rest, of one shape.

    Returns:
        (s, v, rho).

    Raises:
        ArgumentError: for tau not above 1, or a refractory period that is not positive.

    Source: Gerstner et al., Neuronal Dynamics, section 1.3.3; Norse, LIFRefrac.

    Example:
        >>> node = nn.RefractoryLIFNode(tau=2.0, refractory=2)
        >>> print(nn.MultiStep(node)(ops.ones((6, 1)) * 4.0)[:, 0])
        [1. 0. 0. 1. 0. 0.]
    """

    refractory: Any
    ranges: ClassVar = {"refractory": POSITIVE}
    delays = (None,)

    def __init__(
        self,
        tau: Any = 2.0,
        refractory: Annotated[float, Own()] = 2.0,
        decay_input: bool = True,
        v_rest: Any = None,
        **options: Unpack[Firing],
    ) -> None:
        super().__init__(tau, decay_input, v_rest, **options)
        self.declare("refractory")
        self.refractory = refractory

    def construct(self, x: Tensor, v: Tensor, rho: Tensor) -> tuple[Tensor, ...]:
        free = (rho <= 0.0).astype(v.dtype)
        h = v + free * (self.charge(x, v) - v)
        s = free * self.spikes(h)
        rho = ops.where(s > 0.5, self.refractory, ops.maximum(rho - 1.0, 0.0)).astype(rho.dtype)
        return s, self.after_reset(h, s), ops.stop_gradient(rho)

    def init_state(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """v_reset, and nothing to rest from."""
        return self.filled(x, self.v_reset), self.filled(x, 0.0)
