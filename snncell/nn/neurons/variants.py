"""Leaky neurons that give several spikes in a step, or whole numbers, or none for a while after a spike."""

from __future__ import annotations

from typing import Annotated, Any

from snncell import ops
from snncell.base.arguments.kinds import Own
from snncell.cell.fields import field, with_fields
from snncell.cell.ranges import POSITIVE, Range
from snncell.nn.neurons.base import Rounding
from snncell.nn.neurons.integrate import DECAY_INPUT, MEMBRANE_TAU, V_REST, EulerLeak, LeakyNode
from snncell.tape.tensor import Tensor

MOST = Range(1, 2**24, "both", "is a whole number from 1 on", whole=True)


@with_fields
class MultiSpikeLIFNode(LeakyNode):
    """A leaky neuron that gives as many spikes in a step as thresholds fit into its potential.

    h = beta v + x
    s = floor(h / v_threshold), at least 0 and at most max_spikes
    v = h - s v_threshold                    reset="subtract"; the others where s > 0

    In the reverse, s has the derivative of one spike at the first threshold. Any `Neuron` counts so with its option
    max_spikes.

    Inputs, Returns: x and v, of one shape; (s, v), as for `LIFNode`.

    Raises:
        ArgumentError: for beta outside [0, 1], or max_spikes below 1.

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
    """Integer leaky integrate and fire: whole numbers of spikes in training, which unfold into spikes on a chip.

    h = v - (v - v_rest) / tau + x           as `LIFNode` without decay_input
    s = round(clip(h / v_threshold, 0, D)),  ds/dh = 1 / v_threshold where 0 <= h / v_threshold <= D, else 0
    v = h - s v_threshold                    reset="subtract"; the others where s > 0

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

    tau: Any = MEMBRANE_TAU.but(4.0 / 3.0)  # keeps a quarter, as in the paper
    most: Annotated[int, Own()] = field(4, None, "D, the largest number in a step", convert=MOST.check, keep=False)
    v_rest: Any = V_REST
    surrogate_function = compare = max_spikes = field(init=False)
    delays = (None,)
    own_function = True

    def _complete(self, given: dict[str, Any]) -> None:
        """Fire by rounding."""
        self.fire_by(Rounding(given["most"]), given["most"])

    def spikes(self, h: Any, threshold: Any = None) -> Any:
        """The whole number of thresholds nearest to the potential."""
        return self.fire_at(h / (self.v_threshold if threshold is None else threshold))


@with_fields
class RefractoryLIFNode(EulerLeak):
    """A leaky neuron that rests for some steps after a spike.

    free = 1 where rho <= 0, else 0
    h = v + free (u - v),  u = the charged potential of `LIFNode`
    s = free surrogate(h - v_threshold)
    v = the reset of h, as for every `Neuron`
    rho = refractory after a spike, else max(0, rho - 1)

    While it rests, the potential stays where the reset put it, and inputs are lost. The counter has no gradient.

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

    tau: Any = MEMBRANE_TAU
    refractory: Annotated[float, Own()] = field(2.0, POSITIVE, "how many steps it rests", learned="never")
    decay_input: bool = DECAY_INPUT
    v_rest: Any = V_REST
    delays = (None,)

    def construct(self, x: Tensor, v: Tensor, rho: Tensor) -> tuple[Tensor, ...]:
        free = (rho <= 0.0).astype(v.dtype)
        h = v + free * (self.charge(x, v) - v)
        s = free * self.spikes(h)
        rho = ops.where(s > 0.5, self.refractory, ops.maximum(rho - 1.0, 0.0)).astype(rho.dtype)
        return s, self.after_reset(h, s), ops.stop_gradient(rho)

    def init_state(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """v_reset, and nothing to rest from."""
        return self.filled(x, self.v_reset), self.filled(x, 0.0)
