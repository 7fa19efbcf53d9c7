"""Normalisation of each sample by itself: over groups of channels, or over each channel."""

from __future__ import annotations

import math

from snncell import dtype as dtypes, ops
from snncell.base.arguments.kinds import Count, FloatDtype, NotNegative, Probability
from snncell.cell.cell import Cell
from snncell.common.initializer import Init, initializer
from snncell.errors import ArgumentError, ShapeError
from snncell.nn.norm import narrow_result, widen
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor


class GroupNorm(Cell):
    """y = (x - mean) / sqrt(var + eps) gamma + beta, over groups of channels of each sample.

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
        self.gamma = Parameter(initializer(gamma_init, (num_channels,), dtype), requires_grad=affine)
        self.beta = Parameter(initializer(beta_init, (num_channels,), dtype), requires_grad=affine)

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
    """y = (x - mean) / sqrt(var + eps) gamma + beta, over L of each channel of (N, C, L).

    Args:
        num_features: C.
        eps: added to the variance.
        momentum: kept for MindSpore's signature; mean and variance are always the input's own.
        affine: whether gamma and beta are trained.
        gamma_init, beta_init: how the Parameters begin.
        dtype: of the Parameters.

    Source: Ulyanov, Vedaldi and Lempitsky, "Instance Normalization", 2016.
    """

    axes = 1


class InstanceNorm2d(_InstanceNorm):
    """Normalisation over H and W of each channel of (N, C, H, W); see `InstanceNorm1d`."""

    axes = 2
