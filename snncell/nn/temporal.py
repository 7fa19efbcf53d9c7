"""Layers that know of time: normalisation and dropout over (T, B, C, ...), and delays."""

from __future__ import annotations

from typing import Any

from snncell import dtype as dtypes, ops
from snncell.cell import Cell
from snncell.common.initializer import initializer
from snncell.errors import ArgumentError, ShapeError
from snncell.nn.layer import Dropout, positive, positive_number
from snncell.nn.norm import BatchStatistics
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor

OVER_TIME = (3, 4, 5, 6)  # (T, B, C), and up to three more axes


# --- normalisation ----------------------------------------------------------------------------------------------------


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

    def __init__(self, num_features: int, v_threshold: float = 1.0, alpha: float = 1.0, **options: Any) -> None:
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

    def __init__(self, num_features: int, steps: int, has_beta: bool = False, **options: Any) -> None:
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
        if x.shape[0] > self.steps or (x.shape[0] < self.steps and self.from_batch):
            raise ShapeError(
                f"{self!r}: the input has {x.shape[0]} steps; there are statistics of {self.steps}, which training "
                f"needs all, and prediction at most. Make it with steps={x.shape[0]}."
            )

    def spread(self, statistic: Tensor, x: Tensor) -> Tensor:
        """Those of the first steps, if there are fewer, with axes of length 1 for batch and places."""
        return super().spread(statistic if x.shape[0] == self.steps else statistic[: x.shape[0]], x)

    def extend_repr(self) -> str:
        return f"{super().extend_repr()}, steps={self.steps}"


# --- dropout ----------------------------------------------------------------------------------------------------------


class TimeFixedDropout(Dropout):
    """Dropout of (T, B, ...) with one mask for all steps: a neuron that is dropped is silent for the whole sample.

    y[t] = m x[t] / (1 - p), where m is 0 with probability p and else 1, for each element of a sample; in prediction y
    is x. A mask that changes from step to step would average out over time instead.

    Args:
        keep_prob: 1 - p, as for `Dropout`.
        p: the probability of dropping; if given, `keep_prob` does not count.

    Inputs:
        x: (T, B, ...).

    Raises:
        ArgumentError: for a probability outside of [0, 1].
        ShapeError: for an input without time and batch.

    Source: Lee, Sarwar, Panda, Srinivasan and Roy, "Enabling Spike-Based Backpropagation for Training Deep Neural
    Network Architectures", Frontiers in Neuroscience 2020.

    Example:
        >>> out = nn.TimeFixedDropout(p=0.5).set_train()(ops.ones((8, 4, 3)))
        >>> bool((out == out[0]).all())
        True
    """

    least = 2

    def shared_axes(self, x: Tensor) -> tuple[int, ...]:
        """Time, and what is dropped together with it."""
        if x.ndim < self.least:
            layout = "(T, B, ...)" if self.least == 2 else "(T, B, C, ...)"
            raise ShapeError(f"{self!r}: takes {layout}, the shape is {x.shape}.")
        return (0,)


class TimeFixedDropout2d(TimeFixedDropout):
    """Dropout of whole channels of (T, B, C, H, W), the same ones at all steps; see `TimeFixedDropout`.

    y[t, b, c] = m[b, c] x[t, b, c] / (1 - p)

    Args:
        p: the probability of dropping a channel.

    Raises:
        ArgumentError: for a probability outside of [0, 1].
        ShapeError: for an input without channels.

    Source: as of `TimeFixedDropout`, with the channels of Tompson et al., CVPR 2015.
    """

    least = 3

    def __init__(self, p: float = 0.5) -> None:
        super().__init__(p=p)

    def shared_axes(self, x: Tensor) -> tuple[int, ...]:
        """Time, and all after the channels."""
        return (*super().shared_axes(x), *range(3, x.ndim))


# --- delays -----------------------------------------------------------------------------------------------------------


class AxonalDelay(Cell):
    """Delays each channel by a number of steps of its own, which is learned.

    y[t, :, c] = (1 - f) x[t - n, :, c] + f x[t - n - 1, :, c],  with d_c = n + f, n whole and 0 <= f < 1

    and x is 0 before it begins. A delay of whole steps moves spikes as they are; one in between shares a spike among
    the two neighbouring steps. The gradient is that of this formula: of y[t] with respect to d it is
    x[t - n - 1] - x[t - n], to the right at whole steps (to the left at `max_delay`). Delays are limited to
    [0, max_delay]; one that an optimiser has moved out of it has the gradient of the edge, and so comes back.

    Args:
        num_features: C.
        max_delay: the longest delay, in steps.
        delay_init: how the delays begin, in steps: a number, a Tensor (C,) or an initializer; by default evenly spread
            over [0, max_delay].
        learnable: whether they are trained.

    Inputs:
        x: (T, B, C, ...).

    Raises:
        ArgumentError: for a delay_init out of range.
        ShapeError: for an input with another number of channels.

    Source: Shrestha and Orchard, "SLAYER: Spike Layer Error Reassignment in Time", NeurIPS 2018 (axonal delays);
    interpolation between steps as Hammouamri, Khalfaoui-Hassani and Masquelier, ICLR 2024, do with kernels.

    Example:
        >>> delay = nn.AxonalDelay(2, max_delay=3, delay_init=Tensor([0.0, 1.5]))
        >>> delay(ops.ones((4, 1, 2)))[:, 0].asnumpy().tolist()
        [[1.0, 0.0], [1.0, 0.5], [1.0, 1.0], [1.0, 1.0]]
    """

    def __init__(
        self,
        num_features: int,
        max_delay: int,
        delay_init: Any = None,
        learnable: bool = True,
        dtype: Any = dtypes.float32,
    ) -> None:
        super().__init__()
        self.num_features = positive(num_features, "AxonalDelay", "num_features")
        self.max_delay = positive(max_delay, "AxonalDelay", "max_delay")
        shape = (num_features,)
        if delay_init is None:
            start = ops.uniform(shape, 0.0, float(max_delay), dtypes.as_dtype(dtype))
        else:
            start = initializer(delay_init, shape, dtype)
        if not ((start >= 0.0).asnumpy() & (start <= max_delay).asnumpy()).all():
            raise ArgumentError(
                f"AxonalDelay: delays lie in [0, max_delay={max_delay}], but delay_init gives "
                f"{start.asnumpy().min():g} to {start.asnumpy().max():g}."
            )
        self.delay = Parameter(start, requires_grad=learnable)

    def construct(self, x: Tensor) -> Tensor:
        if x.ndim < 3 or x.shape[2] != self.num_features:
            raise ShapeError(
                f"{self!r}: the input has shape {x.shape}; it takes (T, B, {self.num_features}, ...), with a delay for "
                f"each channel on axis 2."
            )
        if not x.dtype.is_float:
            x = x.astype(self.delay.dtype)  # spikes as bytes or booleans
        limited = ops.clip(ops.stop_gradient(self.delay), 0.0, float(self.max_delay))
        whole = ops.minimum(ops.floor(limited), float(self.max_delay - 1))
        share = limited - whole + (self.delay - ops.stop_gradient(self.delay))  # the gradient is 1, beyond the edge too
        share = share.astype(x.dtype).reshape((-1, 1, *(1,) * (x.ndim - 2)))
        late = self._late(x, whole.astype(dtypes.int64))  # (C, T + 1, B, ...)
        delayed: Tensor = late[:, 1:] * (1.0 - share) + late[:, :-1] * share
        return delayed.transpose((1, 2, 0, *range(3, x.ndim)))

    def _late(self, x: Tensor, whole: Tensor) -> Tensor:
        """x[t - n - 1] for t from 0 to T, of each channel c with n = whole[c]: (C, T + 1, B, ...)."""
        steps = x.shape[0] + self.max_delay
        begun = ops.pad(x, (*(0, 0) * (x.ndim - 1), self.max_delay, 0))  # silence before the first step
        lines = begun.transpose((2, 0, 1, *range(3, x.ndim)))
        first = ops.arange(self.num_features) * steps + (self.max_delay - 1) - whole
        rows = first.reshape((-1, 1)) + ops.arange(x.shape[0] + 1)
        return ops.gather(ops.flatten(lines, 0, 1), rows)

    def extend_repr(self) -> str:
        return f"num_features={self.num_features}, max_delay={self.max_delay}"
