"""Neurons as Norse has them, where their steps differ from the library's."""

from __future__ import annotations

from typing import Any, Self

from snncell import ops
from snncell.nn.neurons.adaptive import ALIFNode
from snncell.nn.neurons.constants import from_rest
from snncell.nn.neurons.variants import RefractoryLIFNode
from snncell.tape.tensor import Tensor


class NorseLSNN(ALIFNode):
    """LSNN: the adaptation decays before it is looked at, and the potential leaks to a value of its own.

    a' = rho a;  h = v_rest + alpha (v - v_rest) + x;  s = surrogate(h - (v_threshold + a'));  a = a' + jump s
    """

    v_rest: Any = 0.0

    def resting_at(self, v_rest: Any) -> Self:
        """The neuron itself, with that resting potential."""
        self.declare("v_rest")
        self.v_rest = v_rest
        return self

    def construct(self, x: Tensor, v: Tensor, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a = self.rho * a
        leaked = self.alpha * from_rest(v, self.v_rest) + self.gained(x)
        h = leaked if from_rest(leaked, self.v_rest) is leaked else leaked + self.v_rest
        s, v = self.fired(h, None, self.v_threshold + self.beta * a)
        return s, v, a + self.jump * (ops.stop_gradient(s) if self.detach_reset else s)

    def init_state(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The resting potential, and no adaptation."""
        return self.filled(x, self.v_rest), self.filled(x, 0.0)


class NorseRefractory(RefractoryLIFNode):
    """LIFRefrac: whether it rests is a spike of the surrogate too, so that the counter has a gradient.

    rests = surrogate(rho);  s = (1 - rests) surrogate(h - v_threshold);  v = (1 - rests) reset(h) + rests v
    rho = (1 - s) relu(rho - rests) + s refractory
    """

    def construct(self, x: Tensor, v: Tensor, rho: Tensor) -> tuple[Tensor, ...]:
        h = self.charge(x, v)
        s, rests = self.spikes(h), self.fire_at(rho)
        v = (1.0 - rests) * self.after_reset(h, s) + rests * v
        s = (1.0 - rests) * s
        return s, v, (1.0 - s) * ops.relu(rho - rests) + s * self.refractory

    def init_state(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The resting potential, and nothing to rest from."""
        return self.filled(x, self.v_rest), self.filled(x, 0.0)
