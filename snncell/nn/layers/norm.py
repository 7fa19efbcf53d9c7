"""Batch, layer, group and instance normalisation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from snncell import dtype as dtypes, ops
from snncell.base.arguments.guard import Unlike
from snncell.base.arguments.kinds import Count, FloatDtype, NotNegative, Probability
from snncell.cell.cell import Cell
from snncell.cell.fields import field, with_fields
from snncell.common.initializer import Init, initializer
from snncell.errors import ArgumentError, ShapeError
from snncell.ops.base import as_shape
from snncell.tape.parameter import Parameter, assign_all
from snncell.tape.tensor import Tensor

__all__ = ["BatchNorm1d", "BatchNorm2d", "GroupNorm", "InstanceNorm1d", "InstanceNorm2d", "LayerNorm"]


def widen(x: Tensor) -> Tensor:
    """Cast `x` to float32 at least, because a variance above 65504 would be infinite in float16."""
    return x.astype(dtypes.compute_dtype(x.dtype.dtype))


def narrow_result(result: Tensor, x: Tensor, parameter: Tensor) -> Tensor:
    """Cast the result back to the dtype of x, if the Parameters have that dtype."""
    return result.astype(x.dtype) if x.dtype is parameter.dtype else result


def create_pair(first: Init, second: Init, shape: tuple[int, ...], dtype: Any, trained: bool = True) -> list[Parameter]:
    """Create two Parameters of one shape, such as gamma and beta."""
    return [Parameter(initializer(init, shape, dtype), requires_grad=trained) for init in (first, second)]


def _momentum_warning(who: str, given: Mapping[str, Any]) -> str:
    """The warning for a momentum below 0.5, which may follow PyTorch's convention."""
    momentum = given["momentum"]
    if not 0.0 <= momentum < 0.5:
        return ""
    other = f"{1.0 - momentum:g}"
    return (
        f"{who}: momentum={momentum:g} keeps {momentum:g} of the moving statistics and takes {other} of each "
        f"batch, as in MindSpore. PyTorch's momentum={momentum:g} is the opposite: write momentum={other} for "
        f"it. If you do mean {momentum:g} here, set it afterwards: layer.momentum = {momentum:g}."
    )


# --- statistics of a batch --------------------------------------------------------------------------------------------


class BatchStatistics(Cell):
    """Base of batch normalisations over all axes but `kept`: y = gain (x - mean) / sqrt(var + eps) gamma + beta."""

    dims: tuple[int, ...]  # allowed numbers of axes of an input
    kept: tuple[int, ...] = (1,)
    gain: float = 1.0

    def __init__(
        self,
        num_features: Count,
        eps: NotNegative = 1e-5,
        momentum: Annotated[float, Unlike(_momentum_warning)] = 0.9,
        affine: bool = True,
        gamma_init: Init = "ones",
        beta_init: Init = "zeros",
        moving_mean_init: Init = "zeros",
        moving_var_init: Init = "ones",
        use_batch_statistics: bool | None = None,
        dtype: FloatDtype = dtypes.float32,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        shape = self.statistics_shape()
        if not 0.0 <= momentum <= 1.0:
            raise ArgumentError(f"{type(self).__name__}: momentum must be in [0, 1], not {momentum!r}.")
        self.eps, self.momentum = eps, momentum
        self.use_batch_statistics = use_batch_statistics
        self.moving_mean, self.moving_variance = create_pair(moving_mean_init, moving_var_init, shape, dtype, False)
        self.gamma, self.beta = create_pair(gamma_init, beta_init, shape, dtype, affine)

    def statistics_shape(self) -> tuple[int, ...]:
        """The shape of mean, variance, gamma and beta: the lengths of the kept axes."""
        return (self.num_features,)

    @property
    def from_batch(self) -> bool:
        """True if the layer normalises by the statistics of the batch."""
        return self.training if self.use_batch_statistics is None else self.use_batch_statistics

    def refuse_shape(self, x: Tensor, lengths: Any = None) -> None:
        """Raise a ShapeError unless the input has the right axes."""
        channels = self.kept[-1]
        if x.ndim not in self.dims or x.shape[channels] != self.num_features:
            per_step = self.kept == (1,) and x.ndim - 1 in self.dims and x.shape[2] == self.num_features
            name = f"nn.{type(self).__name__}({self.num_features})"
            fix = f" For (T, B, C, ...), write nn.TimeDistributed({name})." if per_step else ""
            raise ShapeError(
                f"{self!r}: the input has shape {x.shape}, but must have {' or '.join(map(str, self.dims))} axes with "
                f"{self.num_features} channels on axis {channels}.{fix}"
            )

    def statistics(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance of the input, and update the moving statistics."""
        axes = tuple(axis for axis in range(x.ndim) if axis not in self.kept)
        count = math.prod(x.shape[axis] for axis in axes)
        if count < 2:
            values = "one value" if count else "no value"
            raise ShapeError(
                f"{self!r}: an input of shape {x.shape} has {values} per channel, but a variance needs two or more."
            )
        # Var(x) = E[(x - c)^2] - E[x - c]^2 for any c, so one pass over x gives both statistics. If c is the mean of
        # the first sample, cancellation enlarges the rounding error by at most the number of samples.
        first = ops.stop_gradient(ops.mean(x[:1], axes, keepdims=True))
        distance = x - first
        offset, squares = ops.mean(distance, axes, keepdims=True), ops.mean(ops.square(distance), axes, keepdims=True)
        shape = tuple(x.shape[axis] for axis in range(x.ndim) if axis in self.kept)
        mean, var = (first + offset).reshape(shape), ops.relu(squares - ops.square(offset)).reshape(shape)
        self.follow(mean, var * (count / (count - 1)))
        return mean, var

    def follow(self, mean: Tensor, var: Tensor, where: Tensor | None = None) -> None:
        """Update the moving mean and variance, only the elements where `where` is True; on an error, neither."""
        followed = []
        for moving, value in ((self.moving_mean, mean), (self.moving_variance, var)):
            after = (moving * self.momentum + ops.stop_gradient(value) * (1.0 - self.momentum)).astype(moving.dtype)
            followed.append((moving, after if where is None else ops.select(where, after, moving)))
        assign_all(followed, type(self).__name__)

    def spread(self, statistic: Tensor, x: Tensor) -> Tensor:
        """Reshape a statistic of the kept axes so that it broadcasts to x."""
        return statistic.reshape(tuple(n if axis in self.kept else 1 for axis, n in enumerate(x.shape)))

    def construct(self, x: Tensor) -> Tensor:
        self.refuse_shape(x)
        wide = widen(x)
        result = self.normalised(wide, *(self.statistics(wide) if self.from_batch else self.moving()))
        return narrow_result(result, x, self.gamma)

    def moving(self) -> tuple[Tensor, Tensor]:
        """The moving mean and variance."""
        return self.moving_mean.value(), self.moving_variance.value()

    def normalised(self, x: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        """Normalise the input by a mean and a variance."""
        gamma: Tensor = self.gamma if self.gain == 1.0 else self.gamma * self.gain
        mean, scale, beta = (self.spread(p, x) for p in (mean, ops.rsqrt(var + self.eps) * gamma, self.beta))
        return (x - mean) * scale + beta

    def extend_repr(self) -> str:
        return f"num_features={self.num_features}, eps={self.eps}, momentum={self.momentum}"


class BatchNorm1d(BatchStatistics):
    """Batch normalisation of (N, C) or (N, C, L), per channel.

        y = (x - mean) / sqrt(var + eps) gamma + beta

    In training, the layer uses the mean and the biased variance of the batch, and updates the moving statistics:
    moving = momentum moving + (1 - momentum) batch, with the unbiased variance. In prediction it uses these.

    For currents of spiking neurons over time, (T, B, C), write `nn.TimeDistributed(nn.BatchNorm1d(C))`, or consider
    `ThresholdBatchNorm`. Without TimeDistributed, the layer reads (T, B, C) as (N, C, L). If B == C, it raises no
    error, but computes the statistics of the samples instead of the channels.

    Args:
        num_features: C.
        eps: added to the variance, so that a constant channel does not divide by 0.
        momentum: the share of the moving statistics that is kept, 1 minus PyTorch's; values below 0.5 give a warning.
        affine: whether to train gamma and beta.
        gamma_init, beta_init, moving_mean_init, moving_var_init: initial values.
        use_batch_statistics: True or False overrides the training flag; None follows it.
    Source: Ioffe and Szegedy, "Batch Normalization", ICML 2015.
    """

    dims = (2, 3)


class BatchNorm2d(BatchStatistics):
    """Batch normalisation of (N, C, H, W), per channel; see `BatchNorm1d`."""

    dims = (4,)


# --- statistics of each sample ----------------------------------------------------------------------------------------


LAST_AXES = field(
    meaning="the lengths of the last axes, which are normalised together, and the shape of gamma and beta",
    convert=lambda lengths, who, _: as_shape(lengths, who),
)
GAMMA_INIT, BETA_INIT = (field(rule, meaning="initial values", keep=False) for rule in ("ones", "zeros"))
DTYPE = field(dtypes.float32, meaning="dtype of the Parameters", keep=False)


@with_fields
class LayerNorm(Cell):
    """Layer normalisation: y = (x - mean) / sqrt(var + eps) gamma + beta, over the last axes of each sample.

    Use it if batches are small or sequences have different lengths, because it does not depend on other samples.
    Source: Ba, Kiros and Hinton, "Layer Normalization", 2016.
    """

    normalized_shape: Annotated[Count | Sequence[Count], LAST_AXES]
    begin_norm_axis: int = field(
        -1, meaning="accepted for MindSpore's signature: -1, or the first of these axes", quiet=True
    )
    begin_params_axis: int = field(-1, meaning="as begin_norm_axis", quiet=True)
    gamma_init: Init = GAMMA_INIT
    beta_init: Init = BETA_INIT
    epsilon: NotNegative = field(1e-7, meaning="added to the variance; 1e-7 as in MindSpore")
    dtype: FloatDtype = DTYPE

    def _complete(self, given: dict[str, Any]) -> None:
        shape = given["normalized_shape"]
        self.norm_axes = tuple(range(-len(shape), 0))
        axes = self.begin_norm_axis, self.begin_params_axis
        if not {axis for axis in axes if axis < 0} <= {-1, -len(shape)}:
            raise ArgumentError(
                f"LayerNorm: got begin_norm_axis={axes[0]} and begin_params_axis={axes[1]}, but normalized_shape "
                f"{shape} determines the axes. Leave both at -1."
            )
        self.gamma, self.beta = create_pair(given["gamma_init"], given["beta_init"], shape, given["dtype"])

    def construct(self, x: Tensor) -> Tensor:
        shape, first = self.gamma.shape, x.ndim - self.gamma.ndim
        if x.shape[-len(shape) :] != shape:
            raise ShapeError(f"{self!r}: the input has shape {x.shape}, but its last axes must be {shape}.")
        for axis in (self.begin_norm_axis, self.begin_params_axis):
            if axis >= 0 and axis != first:
                raise ShapeError(
                    f"{self!r}: in an input of shape {x.shape}, the axes {shape} begin with axis "
                    f"{first}, not {axis} (begin_norm_axis={self.begin_norm_axis}, "
                    f"begin_params_axis={self.begin_params_axis}). Leave both at -1."
                )
        wide = widen(x)
        mean, var = (of(wide, self.norm_axes, keepdims=True) for of in (ops.mean, ops.var))
        return narrow_result((wide - mean) * ops.rsqrt(var + self.epsilon) * self.gamma + self.beta, x, self.gamma)


@with_fields
class GroupNorm(Cell):
    """Group normalisation: y = (x - mean) / sqrt(var + eps) gamma + beta, over groups of channels of each sample.

    Use it instead of batch normalisation if batches are small.
    Inputs: x: (N, C, ...).
    Source: Wu and He, "Group Normalization", ECCV 2018.
    Example:
        >>> nn.GroupNorm(2, 4)(ops.ones((3, 4, 5))).shape
        (3, 4, 5)
    """

    num_groups: Annotated[Count, field(meaning="the number of groups of channels; 1 normalises over all channels")]
    num_channels: Annotated[Count, field(meaning="C; gamma and beta have one value per channel")]
    eps: NotNegative = field(1e-5, meaning="added to the variance")
    affine: bool = field(True, meaning="whether to train gamma and beta", keep=False)
    gamma_init: Init = GAMMA_INIT
    beta_init: Init = BETA_INIT
    dtype: FloatDtype = DTYPE

    def _complete(self, given: dict[str, Any]) -> None:
        groups, channels = self.num_groups, self.num_channels
        if channels % groups:
            raise ArgumentError(f"{type(self).__name__}: num_groups={groups} must divide num_channels={channels}.")
        inits, dtype = (given["gamma_init"], given["beta_init"]), given["dtype"]
        self.gamma, self.beta = create_pair(*inits, (channels,), dtype, given["affine"])

    def construct(self, x: Tensor) -> Tensor:
        if x.ndim < 2 or x.shape[1] != self.num_channels:
            raise ShapeError(f"{self!r}: the input must be (N, {self.num_channels}, ...), but has shape {x.shape}.")
        in_group = math.prod(x.shape[1:]) // self.num_groups
        groups = widen(x).reshape((x.shape[0], self.num_groups, in_group))
        mean = ops.mean(groups, 2, keepdims=True)
        normal = ((groups - mean) * ops.rsqrt(ops.var(groups, 2, keepdims=True) + self.eps)).reshape(x.shape)
        each = (-1, *(1,) * (x.ndim - 2))
        return narrow_result(normal * self.gamma.reshape(each) + self.beta.reshape(each), x, self.gamma)


class _InstanceNorm(GroupNorm):
    """Base of instance normalisations: a group normalisation with one channel per group."""

    axes: int

    def __init__(
        self,
        num_features: Count,
        eps: NotNegative = 1e-5,
        momentum: Probability = 0.1,
        affine: bool = True,
        gamma_init: Init = "ones",
        beta_init: Init = "zeros",
        dtype: FloatDtype = dtypes.float32,
    ) -> None:
        super().__init__(num_features, num_features, eps, affine, gamma_init, beta_init, dtype)
        self.num_features = num_features

    def construct(self, x: Tensor) -> Tensor:
        if x.ndim != (axes := self.axes + 2):
            raise ShapeError(f"{self!r}: the input must have {axes} axes, (N, C, ...), but has shape {x.shape}.")
        return super().construct(x)

    def extend_repr(self) -> str:
        return f"num_features={self.num_features}, eps={self.eps}"


class InstanceNorm1d(_InstanceNorm):
    """Instance normalisation: y = (x - mean) / sqrt(var + eps) gamma + beta, over L for each channel of (N, C, L).

    Args:
        num_features: C.
        momentum: unused, accepted for MindSpore's signature; the layer always takes statistics from the input.
        eps, affine, gamma_init, beta_init, dtype: see `GroupNorm`.
    Source: Ulyanov, Vedaldi and Lempitsky, "Instance Normalization", 2016.
    """

    axes = 1


class InstanceNorm2d(_InstanceNorm):
    """Instance normalisation over H and W for each channel of (N, C, H, W).

    Args: num_features, eps, momentum, affine, gamma_init, beta_init, dtype: see `InstanceNorm1d`.
    """

    axes = 2
