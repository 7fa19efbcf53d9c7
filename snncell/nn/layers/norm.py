"""Batch, layer, group and instance normalisation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

from snncell import dtype as dtypes, ops
from snncell.base.arguments.guard import Unlike
from snncell.base.arguments.kinds import Count, FloatDtype, Lengths, NotNegative, Probability, check_count
from snncell.cell.cell import Cell
from snncell.common.initializer import Init, initializer
from snncell.errors import ArgumentError, ShapeError
from snncell.tape.parameter import Parameter, assign_all
from snncell.tape.tensor import Tensor

__all__ = ["BatchNorm1d", "BatchNorm2d", "GroupNorm", "InstanceNorm1d", "InstanceNorm2d", "LayerNorm"]


def widen(x: Tensor) -> Tensor:
    """`x` in float32 at least: in float16 a variance above 65504 would be infinite, and each output 0."""
    return x.astype(dtypes.compute_dtype(x.dtype.dtype))


def narrow_result(result: Tensor, x: Tensor, parameter: Tensor) -> Tensor:
    """The result of `widen(x)` in the dtype of x, if that of the Parameters is the same."""
    return result.astype(x.dtype) if x.dtype is parameter.dtype else result


def create_pair(first: Init, second: Init, shape: tuple[int, ...], dtype: Any, trained: bool = True) -> list[Parameter]:
    """Two new Parameters of one shape, such as gamma and beta."""
    return [Parameter(initializer(init, shape, dtype), requires_grad=trained) for init in (first, second)]


def _momentum_warning(who: str, given: Mapping[str, Any]) -> str:
    """The warning for a momentum below 0.5, which may be written in the convention of PyTorch."""
    momentum = given["momentum"]
    if not 0.0 <= momentum < 0.5:
        return ""
    other = f"{1.0 - momentum:g}"
    return (
        f"{who}: momentum={momentum:g} keeps {momentum:g} of the moving statistics and takes {other} of each "
        f"batch, as in MindSpore. PyTorch's momentum={momentum:g} is the opposite: write momentum={other} for "
        f"it. For {momentum:g} of this convention set it afterwards: layer.momentum = {momentum:g}."
    )


# --- statistics of a batch --------------------------------------------------------------------------------------------


class BatchStatistics(Cell):
    """The base of batch normalisations: y = gain (x - mean) / sqrt(var + eps) gamma + beta.

    Mean and variance are taken over all axes but `kept`, and there is one gamma and one beta for each place on these.
    """

    dims: tuple[int, ...]  # how many axes an input has
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
            raise ArgumentError(f"{type(self).__name__}: momentum lies in [0, 1], not {momentum!r}.")
        self.eps, self.momentum = eps, momentum
        self.use_batch_statistics = use_batch_statistics
        self.moving_mean, self.moving_variance = create_pair(moving_mean_init, moving_var_init, shape, dtype, False)
        self.gamma, self.beta = create_pair(gamma_init, beta_init, shape, dtype, affine)

    def statistics_shape(self) -> tuple[int, ...]:
        """The shape of mean, variance, gamma and beta: the lengths of the axes `kept`."""
        return (self.num_features,)

    @property
    def from_batch(self) -> bool:
        """True if mean and variance are the input's own."""
        return self.training if self.use_batch_statistics is None else self.use_batch_statistics

    def refuse_shape(self, x: Tensor, lengths: Any = None) -> None:
        """Raise a ShapeError if the input has other axes."""
        channels = self.kept[-1]
        if x.ndim not in self.dims or x.shape[channels] != self.num_features:
            raise ShapeError(
                f"{self!r}: the input has shape {x.shape}; it takes {' or '.join(map(str, self.dims))} axes with "
                f"{self.num_features} channels on axis {channels}."
            )

    def statistics(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance that are the input's own, after the moving ones have followed them."""
        axes = tuple(axis for axis in range(x.ndim) if axis not in self.kept)
        count = math.prod(x.shape[axis] for axis in axes)
        if count < 2:
            values = "one value" if count else "no value"
            raise ShapeError(f"{self!r}: an input of shape {x.shape} has {values} per channel, so no variance.")
        # With its axes kept, the mean is the one that the variance takes.
        mean, var = ops.mean(x, axes, keepdims=True), ops.var(x, axes)
        mean = mean.reshape(var.shape)
        self.follow(mean, var * (count / (count - 1)))
        return mean, var

    def follow(self, mean: Tensor, var: Tensor, where: Tensor | None = None) -> None:
        """Write the moving mean and variance after a batch that has these, where there are any; both, or neither."""
        followed = []
        for moving, value in ((self.moving_mean, mean), (self.moving_variance, var)):
            after = (moving * self.momentum + ops.stop_gradient(value) * (1.0 - self.momentum)).astype(moving.dtype)
            followed.append((moving, after if where is None else ops.select(where, after, moving)))
        assign_all(followed, type(self).__name__)

    def spread(self, statistic: Tensor, x: Tensor) -> Tensor:
        """One number for each place on the axes `kept`, with axes of length 1 for the others."""
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
        """The input, by a mean and a variance."""
        gamma: Tensor = self.gamma if self.gain == 1.0 else self.gamma * self.gain
        mean, scale, beta = (self.spread(p, x) for p in (mean, ops.rsqrt(var + self.eps) * gamma, self.beta))
        return (x - mean) * scale + beta

    def extend_repr(self) -> str:
        return f"num_features={self.num_features}, eps={self.eps}, momentum={self.momentum}"


class BatchNorm1d(BatchStatistics):
    """Batch normalisation of (N, C) or (N, C, L), per channel.

    y = (x - mean) / sqrt(var + eps) gamma + beta. In training, mean and (biased) variance are those of the batch, and
    the moving ones follow: moving = momentum moving + (1 - momentum) batch, with the unbiased variance. In prediction
    the moving ones are used.

    Args:
        num_features: C.
        eps: added to the variance.
        momentum: the share of the moving statistics that a batch keeps, as in MindSpore: 1 - momentum of PyTorch. An
            ArgumentWarning says so for one below 0.5.
        affine: whether gamma and beta are trained.
        gamma_init, beta_init, moving_mean_init, moving_var_init: how the Parameters begin.
        use_batch_statistics: True or False decides regardless of training.

    Source: Ioffe and Szegedy, "Batch Normalization", ICML 2015.
    """

    dims = (2, 3)


class BatchNorm2d(BatchStatistics):
    """Batch normalisation of (N, C, H, W), per channel; see `BatchNorm1d`."""

    dims = (4,)


# --- statistics of each sample ----------------------------------------------------------------------------------------


class LayerNorm(Cell):
    """Layer normalisation: y = (x - mean) / sqrt(var + eps) gamma + beta, over the last axes of each sample.

    Args:
        normalized_shape: an int or the lengths of the last axes, which are normalised together; gamma and beta have it.
        begin_norm_axis, begin_params_axis: -1, or the first of those axes, counted from either end, as in MindSpore.
        gamma_init, beta_init: how the Parameters begin.
        epsilon: added to the variance.

    Source: Ba, Kiros and Hinton, "Layer Normalization", 2016.
    """

    def __init__(
        self,
        normalized_shape: Lengths,
        begin_norm_axis: int = -1,
        begin_params_axis: int = -1,
        gamma_init: Init = "ones",
        beta_init: Init = "zeros",
        epsilon: NotNegative = 1e-7,
        dtype: FloatDtype = dtypes.float32,
    ) -> None:
        super().__init__()
        shape = normalized_shape if isinstance(normalized_shape, (tuple, list)) else (normalized_shape,)
        self.normalized_shape = tuple(check_count(n, "LayerNorm", "normalized_shape") for n in shape)
        first = -len(self.normalized_shape)
        self.begin_norm_axis, self.begin_params_axis = begin_norm_axis, begin_params_axis
        if not {axis for axis in (begin_norm_axis, begin_params_axis) if axis < 0} <= {-1, first}:
            raise ArgumentError(
                f"LayerNorm: begin_norm_axis={begin_norm_axis}, begin_params_axis={begin_params_axis}; here the axes "
                f"that are normalised are those of normalized_shape {self.normalized_shape}, so leave both at -1."
            )
        self.norm_axes = tuple(range(first, 0))
        self.epsilon = epsilon
        self.gamma, self.beta = create_pair(gamma_init, beta_init, self.normalized_shape, dtype)

    def construct(self, x: Tensor) -> Tensor:
        if x.shape[-len(self.normalized_shape) :] != self.normalized_shape:
            raise ShapeError(f"{self!r}: the input has shape {x.shape}; its last axes must be {self.normalized_shape}.")
        first = x.ndim - len(self.normalized_shape)
        for axis in (self.begin_norm_axis, self.begin_params_axis):
            if axis >= 0 and axis != first:
                raise ShapeError(
                    f"{self!r}: the input has shape {x.shape}, of which the axes {self.normalized_shape} begin with "
                    f"axis {first}, not {axis} (begin_norm_axis={self.begin_norm_axis}, "
                    f"begin_params_axis={self.begin_params_axis}). Leave both at -1."
                )
        wide = widen(x)
        mean, var = (of(wide, self.norm_axes, keepdims=True) for of in (ops.mean, ops.var))
        return narrow_result((wide - mean) * ops.rsqrt(var + self.epsilon) * self.gamma + self.beta, x, self.gamma)

    def extend_repr(self) -> str:
        return f"normalized_shape={self.normalized_shape}, epsilon={self.epsilon}"


class GroupNorm(Cell):
    """Group normalisation: y = (x - mean) / sqrt(var + eps) gamma + beta, over groups of channels of each sample.

    Args:
        num_groups: into how many groups the channels are divided; 1 is over all of a sample.
        num_channels: C; there is one gamma and one beta for each.
        eps: added to the variance.
        affine: whether gamma and beta are trained.
        gamma_init, beta_init: how the Parameters begin.
        dtype: of the Parameters.

    Inputs:
        x: (N, C, ...).

    Raises:
        ArgumentError: for groups that do not divide the channels.
        ShapeError: naming this Cell, for an input of other channels.

    Source: Wu and He, "Group Normalization", ECCV 2018.

    Example:
        >>> nn.GroupNorm(2, 4)(ops.ones((3, 4, 5))).shape
        (3, 4, 5)
    """

    def __init__(
        self,
        num_groups: Count,
        num_channels: Count,
        eps: NotNegative = 1e-5,
        affine: bool = True,
        gamma_init: Init = "ones",
        beta_init: Init = "zeros",
        dtype: FloatDtype = dtypes.float32,
    ) -> None:
        super().__init__()
        if num_channels % num_groups:
            raise ArgumentError(
                f"{type(self).__name__}: num_groups={num_groups} must divide num_channels={num_channels}."
            )
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        self.gamma, self.beta = create_pair(gamma_init, beta_init, (num_channels,), dtype, affine)

    def construct(self, x: Tensor) -> Tensor:
        if x.ndim < 2 or x.shape[1] != self.num_channels:
            raise ShapeError(f"{self!r}: the input has shape {x.shape}; it takes (N, {self.num_channels}, ...).")
        in_group = math.prod(x.shape[1:]) // self.num_groups
        groups = widen(x).reshape((x.shape[0], self.num_groups, in_group))
        mean = ops.mean(groups, 2, keepdims=True)
        normal = ((groups - mean) * ops.rsqrt(ops.var(groups, 2, keepdims=True) + self.eps)).reshape(x.shape)
        each = (-1, *(1,) * (x.ndim - 2))
        return narrow_result(normal * self.gamma.reshape(each) + self.beta.reshape(each), x, self.gamma)

    def extend_repr(self) -> str:
        return f"num_groups={self.num_groups}, num_channels={self.num_channels}, eps={self.eps}"


class _InstanceNorm(GroupNorm):
    """The base of instance normalisations: each channel is a group."""

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
        if x.ndim != self.axes + 2:
            raise ShapeError(f"{self!r}: the input has shape {x.shape}; it takes {self.axes + 2} axes, (N, C, ...).")
        return super().construct(x)

    def extend_repr(self) -> str:
        return f"num_features={self.num_features}, eps={self.eps}"


class InstanceNorm1d(_InstanceNorm):
    """Instance normalisation: y = (x - mean) / sqrt(var + eps) gamma + beta, over L of each channel of (N, C, L).

    Args:
        num_features: C.
        momentum: kept for MindSpore's signature; mean and variance are always the input's own.
        eps, affine, gamma_init, beta_init, dtype: as for `GroupNorm`.

    Source: Ulyanov, Vedaldi and Lempitsky, "Instance Normalization", 2016.
    """

    axes = 1


class InstanceNorm2d(_InstanceNorm):
    """Instance normalisation over H and W of each channel of (N, C, H, W); see `InstanceNorm1d`."""

    axes = 2
