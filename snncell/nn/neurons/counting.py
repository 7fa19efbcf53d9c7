"""Spike functions that give several spikes in a step, and what a neuron makes of the one that it is given."""

from __future__ import annotations

from typing import Any

from snncell import ops
from snncell.cell import Cell
from snncell.common.ranges import quoted
from snncell.errors import ArgumentError
from snncell.surrogate.base import firing
from snncell.surrogate.wrappers import Inclusive, Wrapper
from snncell.tape.tensor import Tensor


class Counting(Wrapper):
    """The number of thresholds that fit into the potential: floor(h / v_threshold), from x = h / v_threshold - 1.

    Its reverse is that of one spike at the first threshold: the surrogate's, of x.

    Args:
        surrogate_function: the spike function whose bprop and primitive it has.
        most: the largest number of spikes, or None.
        compare: ">=" counts a threshold that is met exactly, ">" does not.

    Inputs:
        x: how far the potential is above the threshold, in thresholds.

    Returns:
        the number of spikes, in the dtype of x.

    Source: sinabs, MultiSpike and MaxSpike.
    """

    def __init__(self, surrogate_function: Any, most: int | None = None, compare: str = ">=") -> None:
        super().__init__(surrogate_function)
        self.most = most
        self.compare = compare

    def construct(self, x: Tensor) -> Tensor:
        count = ops.maximum(ops.floor(x) + 1.0 if self.compare == ">=" else ops.ceil(x), 0.0)
        return count if self.most is None else ops.minimum(count, float(self.most))


class Rounding(Cell):
    """The integer nearest to x, from 0 to `most`, with the derivative of x itself there, and 0 beyond.

    construct: round(clip(x, 0, most)); primitive: clip(x, 0, most); bprop: 1 where 0 <= x <= most, else 0.

    Args:
        most: the largest number of spikes.

    Inputs:
        x: the potential in thresholds.

    Source: Luo et al., "Integer-Valued Training and Spike-Driven Inference Spiking Neural Network for High-Performance
    and Energy-Efficient Object Detection", ECCV 2024; SpikingJelly's MultiLevelSpikeCount.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def construct(self, x: Tensor) -> Tensor:
        return ops.round(ops.clip(x, 0.0, float(self.most)))

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor]:
        inside = ops.logical_and(x >= 0.0, x <= float(self.most))
        return (dout * inside.astype(dout.dtype),)

    def primitive(self, x: Tensor) -> Tensor:
        return ops.clip(x, 0.0, float(self.most))


def spike_function(surrogate_function: Any, compare: str, max_spikes: int | None, who: str) -> Any:
    """The spike function of a neuron, made to fire at the threshold too, or to count, where that is asked for.

    Raises:
        ArgumentError: if it is no Cell with a reverse of its own, or `max_spikes` no number from 1 on.
    """
    firing(surrogate_function, who)
    if max_spikes is not None and (
        isinstance(max_spikes, bool)
        or not isinstance(max_spikes, (int, float))
        or not 1 <= max_spikes <= 2**53
        or max_spikes % 1
    ):
        raise ArgumentError(
            f"{who}: max_spikes is a whole number from 1 on, or None for any, not {quoted(max_spikes)}."
        )
    if max_spikes != 1:
        return Counting(surrogate_function, max_spikes, compare)
    return Inclusive(surrogate_function) if compare == ">=" else surrogate_function
