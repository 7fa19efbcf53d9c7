"""Distances of spike trains, as losses."""

from __future__ import annotations

from typing import Any

from snncell import ops
from snncell.base.arguments.kinds import Positive, Reduction
from snncell.errors import ShapeError
from snncell.nn.layer import positive_number
from snncell.nn.loss import _Loss
from snncell.nn.sequences import until_end
from snncell.nn.spiking import SynapseFilter
from snncell.nn.time import MultiStep
from snncell.ops.base import as_tensor
from snncell.tape.tensor import Tensor


class VanRossumLoss(_Loss):
    """The van Rossum distance of spike trains: the squared difference of the trains, each blurred by a decaying kernel.

    D^2 = (1 / tau) sum_t (f[t] - g[t])^2,  f[t] = sum_{u <= t} s[u] e^(-(t - u) / tau),  g of the target likewise.

    A spike too much costs c = (1 / tau) / (1 - e^(-2 / tau)), which is 1 / 2 for a long tau; one that is d steps late
    2 c (1 - e^(-d / tau)); less near the end, where the last step cuts kernels off. A short tau compares single spikes,
    a long one compares counts. The kernel is one loop over time, forward and backward.

    Args:
        tau: time constant of the kernel in steps, positive.
        reduction: over the trains: "mean", "sum" or "none", which gives (B, ...).

    Inputs:
        outputs, targets: spikes (T, B, ...), of one shape.
        lengths: integers (B,), how many steps each sample has; left out, all T.

    Raises:
        ArgumentError: for a tau that is not positive.
        ShapeError: if the shapes differ.

    Source: van Rossum, "A Novel Spike Distance", Neural Computation 2001; SpikeTime of lava-dl is its mean over time.

    Example:
        >>> spikes, target = Tensor([[1.0], [0.0], [0.0]]), Tensor([[0.0], [0.0], [0.0]])
        >>> round(nn.VanRossumLoss(tau=2.0)(spikes, target).item(), 4)  # (1 + e^-1 + e^-2) / 2
        0.7516
    """

    def __init__(self, tau: Positive = 10.0, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.tau = positive_number(tau, "VanRossumLoss", "tau")
        self.blur = MultiStep(SynapseFilter(self.tau))

    def construct(self, outputs: Tensor, targets: Tensor, lengths: Any = None) -> Tensor:
        other = as_tensor(targets, "VanRossumLoss").astype(outputs.dtype)
        if outputs.shape != other.shape or outputs.ndim < 2 or not outputs.shape[0]:
            raise ShapeError(
                f"VanRossumLoss: takes two sequences of one shape, (T, B, ...) with at least one step; not "
                f"{outputs.shape} and {other.shape}."
            )
        blurred = self.blur(until_end(outputs - other, lengths, "VanRossumLoss"))
        return self.reduced(until_end(ops.square(blurred), lengths, "VanRossumLoss").sum(0) / self.tau)

    def extend_repr(self) -> str:
        return f"tau={self.tau}"
