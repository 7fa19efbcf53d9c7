"""Normalisation for spiking networks: tdBN, BNTT and TEBN over time, and NeuNorm step by step."""

from __future__ import annotations

import math
from typing import Annotated, Any

from snncell import dtype as dtypes, ops
from snncell.base.arguments.kinds import Count, Positive, Share
from snncell.cell.cell import Cell
from snncell.cell.fields import field, with_fields
from snncell.common.initializer import initializer
from snncell.errors import ShapeError
from snncell.nn.layers.linear import FAN_IN_UNIFORM, create_parameter
from snncell.nn.layers.norm import BatchStatistics, narrow_result, widen
from snncell.nn.time.axis import check_time_axis, length_mask, sum_over_time
from snncell.ops.base import as_float
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor

__all__ = ["BatchNormThroughTime", "NeuNorm", "TemporalEffectiveBatchNorm", "ThresholdBatchNorm"]


class _NormOverTime(BatchStatistics):
    """Base of batch normalisations of sequences (T, B, C, ...), which can have different lengths."""

    dims = (3, 4, 5, 6)  # (T, B, C), and up to three more axes
    kept: tuple[int, ...] = (2,)

    def construct(self, x: Tensor, lengths: Any = None) -> Tensor:
        self.refuse_shape(x, lengths)
        check_time_axis(x, type(self).__name__)
        if lengths is None:
            return super().construct(x)
        valid = length_mask(x, lengths, type(self).__name__)
        wide = widen(ops.select(valid, as_float(x, type(self).__name__), 0.0))
        mean, var = self.masked_statistics(wide, valid) if self.from_batch else self.moving()
        return narrow_result(ops.select(valid, self.normalised(wide, mean, var), 0.0), x, self.gamma)

    def masked_statistics(self, x: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance of the valid steps of x, and update the moving statistics."""
        count = self.sum_kept_axes(valid.astype(dtypes.int64)) * math.prod(x.shape[3:])
        enough, count = count > 1, ops.maximum(count, 2).astype(x.dtype)
        mean = self.sum_kept_axes(x) / count
        var = self.sum_kept_axes(ops.square(ops.select(valid, x - self.spread(mean, x), 0.0))) / count
        own = mean, var
        used = [ops.select(enough, a, b.astype(x.dtype)) for a, b in zip(own, self.moving(), strict=True)]
        self.follow(own[0], own[1] * (count / (count - 1.0)), enough)
        return used[0], used[1]

    def sum_kept_axes(self, x: Tensor) -> Tensor:
        """The sum over all axes except the kept ones."""
        # Sum within each step first. A sum over several axes at once may be split into parts, whose borders would
        # depend on the number of padded steps, and so would the rounding.
        each = ops.sum(x, tuple(axis for axis in range(1, x.ndim) if axis not in self.kept))
        return each if 0 in self.kept else sum_over_time(each)

    def spread(self, statistic: Tensor, x: Tensor) -> Tensor:
        """Broadcast a statistic to each step, so that the backward pass too sums within each step first."""
        one = super().spread(statistic, x)
        columns = one if one.size > 1 else ops.broadcast_to(one, (1, 2, *one.shape[2:]))  # see `sum_over_time`
        spread = ops.broadcast_to(columns, (x.shape[0], *columns.shape[1:]))
        return spread if columns is one else spread[:, :1]


class _NormPerStep(_NormOverTime):
    """Base of batch normalisations with separate statistics or scales for each of `steps` steps."""

    steps: Count
    things: str

    def refuse_shape(self, x: Tensor, lengths: Any = None) -> None:
        """Raise a ShapeError for wrong axes, too many steps, or too few in training without lengths."""
        super().refuse_shape(x)
        if x.shape[0] > self.steps or (lengths is None and self.from_batch and x.shape[0] < self.steps):
            raise ShapeError(
                f"{self!r}: the input has {x.shape[0]} steps, but the layer has {self.things} for {self.steps}. "
                f"Training without lengths needs exactly as many, and no input can have more. Create the layer with "
                f"steps={x.shape[0]}."
            )

    def extend_repr(self) -> str:
        return f"{super().extend_repr()}, steps={self.steps}"


class ThresholdBatchNorm(_NormOverTime):
    """Threshold-dependent batch normalisation (tdBN) of currents, over time and batch, per channel.

        y = gamma * alpha * v_threshold * (x - mean) / sqrt(var + eps) + beta

    Put it between a layer with weights and its spiking neurons in deep networks. It scales currents to the threshold,
    so that neurons neither fall silent nor saturate. In training, mean and variance are those of all steps and samples;
    in prediction they are moving statistics, as in `BatchNorm1d`.

    Args:
        num_features: C.
        v_threshold: the threshold of the neurons after this layer.
        alpha: the default 1 is for a chain of layers; use 1 / sqrt(2) on each of two branches that are added.
        options: eps, momentum, affine, ... as for `BatchNorm1d`.
    Inputs:
        x: (T, B, C, ...).
        lengths: integers (B,), the number of steps of each sample, by default T. Later steps do not count and y is 0
            there, so padding changes no bit. With fewer than two values, the layer uses the moving statistics and does
            not update them.
    Source: Zheng, Wu, Deng, Hu and Li, "Going Deeper With Directly-Trained Larger Spiking Neural Networks", AAAI 2021.
    Example:
        >>> layer = nn.ThresholdBatchNorm(3, v_threshold=0.5)
        >>> layer.set_train()(ops.normal((8, 4, 3), mean=7.0)).shape  # (T, B, C)
        (8, 4, 3)
    """

    def __init__(self, num_features: Count, v_threshold: Positive = 1.0, alpha: Positive = 1.0, **options: Any) -> None:
        super().__init__(num_features, **options)
        self.v_threshold, self.alpha = float(v_threshold), float(alpha)
        self.gain = self.alpha * self.v_threshold

    def extend_repr(self) -> str:
        return f"{super().extend_repr()}, v_threshold={self.v_threshold}, alpha={self.alpha}"


class BatchNormThroughTime(_NormPerStep):
    """Batch normalisation through time (BNTT): separate statistics and scales for each time step, per channel.

        y[t] = gamma[t] (x[t] - mean[t]) / sqrt(var[t] + eps) + beta[t]

    Use it if the statistics of currents change over time, for example after the onset of a static image. In training,
    mean[t] and var[t] are those of the batch at step t; in prediction they are moving statistics, and T can be smaller.

    Args:
        num_features: C.
        steps: T, the number of steps in training.
        has_beta: whether to train beta; False as in the paper, where beta stays 0.
        options: eps, momentum, affine, ... as for `BatchNorm1d`.
    Inputs:
        x: (T, B, C, ...).
        lengths: as for `ThresholdBatchNorm`. With lengths, x can have fewer steps in training too.
    Source: Kim and Panda, "Revisiting Batch Normalization for Training Low-Latency Deep Spiking Neural Networks From
    Scratch", Frontiers in Neuroscience 2021.
    Example:
        >>> layer = nn.BatchNormThroughTime(3, steps=8)
        >>> layer.set_train()(ops.normal((8, 4, 3))).shape, layer.gamma.shape  # (T, B, C), (T, C)
        ((8, 4, 3), (8, 3))
    """

    kept = (0, 2)
    things = "statistics"

    def __init__(self, num_features: Count, steps: Count, has_beta: bool = False, **options: Any) -> None:
        Cell.__init__(self)
        self.steps = steps
        super().__init__(num_features, **options)
        if not has_beta:
            self.beta.requires_grad = False

    def statistics_shape(self) -> tuple[int, ...]:
        return self.steps, self.num_features

    def sum_kept_axes(self, x: Tensor) -> Tensor:
        """The sum of each step, (T, C); 0 for steps that x does not have."""
        return ops.pad(super().sum_kept_axes(x), (0, 0, 0, self.steps - x.shape[0]))

    def spread(self, statistic: Tensor, x: Tensor) -> Tensor:
        """The statistics of the steps of x, with axes of length 1 for batch and places."""
        return super().spread(statistic if x.shape[0] == self.steps else statistic[: x.shape[0]], x)


class TemporalEffectiveBatchNorm(_NormPerStep):
    """Temporal effective batch normalisation (TEBN): common statistics, and a learned scale for each time step.

        y[t] = scale[t] (gamma (x[t] - mean) / sqrt(var + eps) + beta)

    Compared with `BatchNormThroughTime` it has T instead of 4 T C numbers per layer, and more values for each
    statistic. Mean and variance are those of `ThresholdBatchNorm`. scale starts at 1. In prediction T can be smaller.

    Args:
        num_features: C.
        steps: T, the number of steps in training.
        options: eps, momentum, affine, ... as for `BatchNorm1d`.
    Inputs: as for `BatchNormThroughTime`.
    Source: Duan et al., "Temporal Effective Batch Normalization in Spiking Neural Networks", NeurIPS 2022.
    Example:
        >>> layer = nn.TemporalEffectiveBatchNorm(3, steps=8)
        >>> layer.set_train()(ops.normal((8, 4, 3))).shape, layer.scale.shape  # (T, B, C), (T,)
        ((8, 4, 3), (8,))
    """

    things = "scales"

    def __init__(self, num_features: Count, steps: Count, **options: Any) -> None:
        super().__init__(num_features, **options)
        self.steps = steps
        self.scale = Parameter(initializer("ones", (self.steps,), self.gamma.dtype))

    def normalised(self, x: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        """Normalise the input, and scale each step."""
        scale = self.scale if x.shape[:1] == (self.steps,) else self.scale[: x.shape[0]]
        return super().normalised(x, mean, var) * scale.reshape((-1, *(1,) * (x.ndim - 1)))


@with_fields
class NeuNorm(Cell):
    """Neuron normalisation (NeuNorm): subtract from spikes a trace of the spikes of all channels at the same pixel.

        a[t] = k a[t-1] + (1 - k) / C^2 sum over c of x[t, c]
        y[t, c] = x[t, c] - weight[c] a[t]

    Use it after the spiking neurons of a convolution, to balance the channels. Run it by `MultiStep`.
    Inputs: x: spikes, (B, C, H, W); a: the state, (B, 1, H, W).
    Returns: (y, a).
    Source: Wu et al., "Direct Training for Spiking Neural Networks", AAAI 2019; initial weight as in SpikingJelly.
    Example:
        >>> layer = nn.MultiStep(nn.NeuNorm(3, 4, 4))
        >>> layer(ops.ones((5, 2, 3, 4, 4))).shape  # (T, B, C, H, W)
        (5, 2, 3, 4, 4)
    """

    num_features: Annotated[Count, field(meaning="C", keep=False)]
    height: Annotated[Count, field(meaning="H", keep=False)]
    width: Annotated[Count, field(meaning="W", keep=False)]
    k: Share = field(0.9, meaning="decay factor of the trace a, in [0, 1)")
    shared: bool = field(False, meaning="whether all channels share one weight (1, H, W)", keep=False)
    weight_init: Any = field(None, meaning="initial weight, (C, H, W); None is uniform", keep=False)
    dtype: Any = field(dtypes.float32, meaning="dtype of the weight", keep=False)

    def _complete(self, given: dict[str, Any]) -> None:
        self.features = given["num_features"], given["height"], given["width"]
        shape = (1, *self.features[1:]) if given["shared"] else self.features
        self.weight = create_parameter(given["weight_init"], FAN_IN_UNIFORM, shape, given["dtype"])

    def construct(self, x: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        if x.ndim != 4 or x.shape[1:] != self.features:
            raise ShapeError(f"{self!r}: the input of a step must be (B, C, H, W), but has shape {x.shape}.")
        fired = ops.sum(x, 1, True)
        a = a * self.k + fired * ((1.0 - self.k) / self.features[0] ** 2)
        return x - self.weight * a, a

    def init_state(self, x: Tensor) -> Tensor:
        """Start with a trace of 0."""
        return ops.zeros((x.shape[0], 1, *x.shape[2:]), x.dtype if x.dtype.is_float else dtypes.float32)

    def extend_repr(self) -> str:
        return f"features={self.features}, k={self.k}"
