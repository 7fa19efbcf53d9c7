"""Normalisation that knows of time: over (T, B, C, ...), or step by step."""

from __future__ import annotations

from typing import Any

from snncell import dtype as dtypes, ops
from snncell.arguments.kinds import Count
from snncell.cell import Cell
from snncell.common.initializer import initializer
from snncell.errors import ShapeError
from snncell.nn.layer import EVEN, positive, positive_number, weights
from snncell.nn.norm import BatchStatistics
from snncell.nn.optim import number_in
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor

OVER_TIME = (3, 4, 5, 6)  # (T, B, C), and up to three more axes


class ThresholdBatchNorm(BatchStatistics):
    """Threshold-dependent batch normalisation (tdBN) of currents, over time and batch, per channel.

    y = gamma alpha v_threshold (x - mean) / sqrt(var + eps) + beta

    In training, mean and (biased) variance are those of all steps and samples of x, and the moving ones follow:
    moving = momentum moving + (1 - momentum) batch, with the unbiased variance. In prediction the moving ones are used.
    So a current begins as normal numbers of the width alpha v_threshold, whatever comes before it, and the neurons
    behind it neither fall silent nor saturate. gamma and beta begin at 1 and 0.

    Args:
        num_features: C.
        v_threshold: of the neurons that take y.
        alpha: 1 in a chain; 1 / sqrt(2) on each of two branches that are added.
        options: eps, momentum, affine, ... as for `BatchNorm1d`.

    Inputs:
        x: (T, B, C, ...).

    Raises:
        ArgumentError: for a threshold or alpha that is not positive.
        ShapeError: for an input with other axes, or one value per channel.

    Source: Zheng, Wu, Deng, Hu and Li, "Going Deeper With Directly-Trained Larger Spiking Neural Networks", AAAI 2021.

    Example:
        >>> layer = nn.ThresholdBatchNorm(3, v_threshold=0.5)
        >>> layer.set_train()(ops.normal((8, 4, 3), mean=7.0)).shape  # (T, B, C)
        (8, 4, 3)
    """

    dims = OVER_TIME
    kept = (2,)

    def __init__(self, num_features: Count, v_threshold: float = 1.0, alpha: float = 1.0, **options: Any) -> None:
        super().__init__(num_features, **options)
        self.v_threshold = positive_number(v_threshold, "ThresholdBatchNorm", "v_threshold")
        self.alpha = positive_number(alpha, "ThresholdBatchNorm", "alpha")
        self.gain = self.alpha * self.v_threshold

    def extend_repr(self) -> str:
        return f"{super().extend_repr()}, v_threshold={self.v_threshold}, alpha={self.alpha}"


class BatchNormThroughTime(BatchStatistics):
    """Batch normalisation through time (BNTT): statistics and scales of their own for each step, per channel.

    y[t] = gamma[t] (x[t] - mean[t]) / sqrt(var[t] + eps) + beta[t]

    In training, mean[t] and (biased) variance[t] are those of the batch at step t, and the moving ones of that step
    follow, as in `BatchNorm1d`. In prediction the moving ones are used, and x may stop early: the first steps are then
    normalised as they are in the whole.

    Args:
        num_features: C.
        steps: T, the number of steps in training.
        has_beta: whether beta is trained; as it is published there is none, and it stays 0.
        options: eps, momentum, affine, ... as for `BatchNorm1d`.

    Inputs:
        x: (T, B, C, ...).

    Raises:
        ShapeError: for an input with other axes, more steps than T, or fewer in training.

    Source: Kim and Panda, "Revisiting Batch Normalization for Training Low-Latency Deep Spiking Neural Networks From
    Scratch", Frontiers in Neuroscience 2021.

    Example:
        >>> layer = nn.BatchNormThroughTime(3, steps=8)
        >>> layer.set_train()(ops.normal((8, 4, 3))).shape, layer.gamma.shape  # (T, B, C), (T, C)
        ((8, 4, 3), (8, 3))
    """

    dims = OVER_TIME
    kept = (0, 2)

    def __init__(self, num_features: Count, steps: Count, has_beta: bool = False, **options: Any) -> None:
        Cell.__init__(self)
        self.steps = positive(steps, "BatchNormThroughTime", "steps")
        super().__init__(num_features, **options)
        if not has_beta:
            self.beta.requires_grad = False

    def statistics_shape(self) -> tuple[int, ...]:
        """(T, C)."""
        return self.steps, self.num_features

    def refuse_shape(self, x: Tensor) -> None:
        """Raise a ShapeError if the input has other axes, or another number of steps."""
        super().refuse_shape(x)
        refuse_steps(self, x, self.steps, "statistics")

    def spread(self, statistic: Tensor, x: Tensor) -> Tensor:
        """Those of the first steps, if there are fewer, with axes of length 1 for batch and places."""
        return super().spread(statistic if x.shape[0] == self.steps else statistic[: x.shape[0]], x)

    def extend_repr(self) -> str:
        return f"{super().extend_repr()}, steps={self.steps}"


class TemporalEffectiveBatchNorm(BatchStatistics):
    """Temporal effective batch normalisation (TEBN): statistics of all steps together, and a learned scale for each.

    y[t] = scale[t] (gamma (x[t] - mean) / sqrt(var + eps) + beta)

    In training, mean and (biased) variance are those of all steps and samples of x, per channel, and the moving ones
    follow, as in `BatchNorm1d`. In prediction the moving ones are used, and x may stop early. scale begins at 1.

    Args:
        num_features: C.
        steps: T, the number of steps in training.
        options: eps, momentum, affine, ... as for `BatchNorm1d`.

    Inputs:
        x: (T, B, C, ...).

    Raises:
        ShapeError: for an input with other axes, more steps than T, or fewer in training.

    Source: Duan, Ding, Chen, Yu and Huang, "Temporal Effective Batch Normalization in Spiking Neural Networks",
    NeurIPS 2022; SpikingJelly, TemporalEffectiveBatchNorm1d.

    Example:
        >>> layer = nn.TemporalEffectiveBatchNorm(3, steps=8)
        >>> layer.set_train()(ops.normal((8, 4, 3))).shape, layer.scale.shape  # (T, B, C), (T,)
        ((8, 4, 3), (8,))
    """

    dims = OVER_TIME
    kept = (2,)

    def __init__(self, num_features: Count, steps: Count, **options: Any) -> None:
        super().__init__(num_features, **options)
        self.steps = positive(steps, "TemporalEffectiveBatchNorm", "steps")
        self.scale = Parameter(initializer("ones", (self.steps,), self.gamma.dtype))

    def refuse_shape(self, x: Tensor) -> None:
        """Raise a ShapeError if the input has other axes, or another number of steps."""
        super().refuse_shape(x)
        refuse_steps(self, x, self.steps, "scales")

    def construct(self, x: Tensor) -> Tensor:
        scale = self.scale if x.shape[:1] == (self.steps,) else self.scale[: x.shape[0]]
        return super().construct(x) * scale.reshape((-1, *(1,) * (x.ndim - 1)))

    def extend_repr(self) -> str:
        return f"{super().extend_repr()}, steps={self.steps}"


def refuse_steps(layer: BatchStatistics, x: Tensor, steps: Count, what: str) -> None:
    """Raise a ShapeError if x has more steps than a layer knows, or fewer in training."""
    if x.shape[0] > steps or (x.shape[0] < steps and layer.from_batch):
        raise ShapeError(
            f"{layer!r}: the input has {x.shape[0]} steps; there are {what} of {steps}, which training "
            f"needs all, and prediction at most. Make it with steps={x.shape[0]}."
        )


class NeuNorm(Cell):
    """Neuron normalisation (NeuNorm): spikes less what all channels of their place have fired lately.

    a[t] = k a[t-1] + (1 - k) / C^2 sum over c of x[t, c];  y[t, c] = x[t, c] - weight[c] a[t]

    A Cell of one step; `MultiStep` runs it. It stands behind the spikes of a convolution.

    Args:
        num_features: C.
        height, width: H and W.
        k: what a step keeps of a, in [0, 1).
        shared: whether the channels share one weight (1, H, W).
        weight_init: of the weight, (C, H, W), which is learned.
        dtype: of the weight.

    Inputs:
        x: (B, C, H, W), the spikes.
        a: (B, 1, H, W), the state.

    Returns:
        (y, a).

    Raises:
        ArgumentError: for a size that is not positive, or a k outside [0, 1).
        ShapeError: for an input of another shape.

    Source: Wu, Deng, Li, Zhu, Xie and Shi, "Direct Training for Spiking Neural Networks: Faster, Larger, Better", AAAI
    2019; SpikingJelly, NeuNorm, which begins its weight as `weight_init` is here.

    Example:
        >>> layer = nn.MultiStep(nn.NeuNorm(3, 4, 4))
        >>> layer(ops.ones((5, 2, 3, 4, 4))).shape  # (T, B, C, H, W)
        (5, 2, 3, 4, 4)
    """

    def __init__(
        self,
        num_features: Count,
        height: int,
        width: int,
        k: float = 0.9,
        shared: bool = False,
        weight_init: Any = None,
        dtype: Any = dtypes.float32,
    ) -> None:
        super().__init__()
        sizes = {"num_features": num_features, "height": height, "width": width}
        self.features = tuple(positive(value, "NeuNorm", name) for name, value in sizes.items())
        self.k = number_in(k, 0.0, 1.0, "NeuNorm", "k")
        shape = (1 if shared else num_features, height, width)
        self.weight = weights(weight_init, EVEN, shape, dtype)

    def construct(self, x: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        if x.ndim != 4 or x.shape[1:] != self.features:
            raise ShapeError(f"{self!r}: an input of one step is (B, C, H, W), its shape is {x.shape}.")
        fired = ops.sum(x, 1, True)
        a = a * self.k + fired * ((1.0 - self.k) / self.features[0] ** 2)
        return x - self.weight * a, a

    def init_state(self, x: Tensor) -> Tensor:
        """Nothing has fired yet."""
        return ops.zeros((x.shape[0], 1, *x.shape[2:]), x.dtype if x.dtype.is_float else dtypes.float32)

    def extend_repr(self) -> str:
        return f"features={self.features}, k={self.k}"
