"""Neurons as snnTorch has them, where they differ from the library's: graded spikes, inhibition, and its defects."""

from __future__ import annotations

from typing import Any, Self

from snncell import ops
from snncell.errors import ShapeError
from snncell.nn.neurons.base import Neuron
from snncell.nn.neurons.current import AlphaNode, CubaLIFNode
from snncell.nn.neurons.integrate import LeakyNode
from snncell.tape.tensor import Tensor


class TorchEnd(Neuron):
    """A step that ends as snnTorch's may: with graded spikes, one winner, or a reset that swallows spikes."""

    swallows = False
    inhibition = False
    graded_spikes_factor: Any = None

    def ending(self, swallows: bool, inhibition: bool, factor: Any = None, learned: bool = False) -> Self:
        """The neuron itself, with these."""
        self.swallows, self.inhibition = swallows, inhibition
        if factor is not None:
            self.declare("graded_spikes_factor")
            self.graded_spikes_factor = self.to_learn("graded_spikes_factor", factor) if learned else factor
        return self

    def recall(self, v: Tensor, threshold: Any = None) -> tuple[Tensor, Tensor | None]:
        """At the beginning of a step: v, and where spikes are swallowed that of v, which counts as a constant."""
        if not self.swallows:
            return super().recall(v, threshold)
        return v, ops.stop_gradient(self.spikes(v, threshold))

    def fired(self, h: Tensor, late: Tensor | None, threshold: Any = None, drop: Any = None) -> tuple[Tensor, Tensor]:
        """At the end of a step: the spikes as they are given, and the potential to carry on.

        Where spikes are swallowed, what is left above the threshold is lowered in the next step as if it had fired,
        h = h - R v_threshold, and what fires then is lowered by s - R only.
        """
        if self.swallows and late is not None:
            h = h - late * self.v_threshold
            s = self.spikes(h)
            v = h - (s - late) * self.v_threshold
        else:
            s, v = super().fired(h, late, threshold, drop)
        if self.inhibition:
            s = s * self.winner(v)
        return s if self.graded_spikes_factor is None else s * self.graded_spikes_factor, v

    def winner(self, v: Tensor) -> Tensor:
        """1 for the neuron of a sample that is furthest above its threshold, 0 for the others."""
        if v.ndim != 2:
            raise ShapeError(f"like: snntorch: inhibition is among the neurons of (B, N), not of {v.shape}.")
        first = ops.argmax(ops.stop_gradient(v - self.v_threshold), 1).expand_dims(1)
        return ops.equal(ops.arange(v.shape[1]), first).astype(v.dtype)


class TorchLeaky(TorchEnd, LeakyNode):
    """Leaky and Lapicque."""


class TorchSynaptic(TorchEnd, CubaLIFNode):
    """Synaptic."""


class TorchAlpha(AlphaNode):
    """Alpha, whose "subtract" takes the threshold off e, clears i, and adds the last i to the potential."""

    def construct(self, x: Tensor, e: Tensor, i: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        alpha, beta = self.alpha, self.beta
        late = ops.stop_gradient(self.spikes(v))
        slow, fast = alpha * e + x, beta * i - x
        h = self.scale(alpha, beta) * (slow + fast) + i * late
        return self.spikes(h), slow - late * self.v_threshold, fast * (1.0 - late), h
