"""Convolutions. Names and defaults are MindSpore's."""

from __future__ import annotations

import math
from typing import Any

from snncell import dtype as dtypes, ops
from snncell.base.arguments.kinds import Count, FloatDtype, Lengths, PadMode
from snncell.cell.cell import Cell
from snncell.common.initializer import Init, Uniform
from snncell.errors import ArgumentError, ShapeError
from snncell.nn.layers.linear import FAN_IN_UNIFORM, create_parameter
from snncell.ops.conv import padding_widths, tuple_of
from snncell.tape.event_lists import EventLists
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor

__all__ = ["Conv1d", "Conv2d", "Conv2dTranspose"]


class _Conv(Cell):
    """The base of convolutions over `axes` axes."""

    axes: int
    bias: Parameter | None = None  # without a bias, as in MindSpore

    def __init__(
        self,
        in_channels: Count,
        out_channels: Count,
        kernel_size: Lengths,
        stride: Lengths = 1,
        pad_mode: PadMode = "same",
        padding: Lengths = 0,
        dilation: Lengths = 1,
        group: Count = 1,
        has_bias: bool = False,
        weight_init: Init | None = None,
        bias_init: Init | None = None,
        dtype: FloatDtype = dtypes.float32,
    ) -> None:
        super().__init__()
        who = type(self).__name__
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.group = group
        if in_channels % group or out_channels % group:
            raise ArgumentError(
                f"{who}: group={group} must divide in_channels={in_channels} and out_channels={out_channels}."
            )
        self.kernel_size = tuple_of(kernel_size, self.axes, who, "kernel_size", 1)
        self.stride, self.pad_mode, self.padding, self.dilation = stride, pad_mode, padding, dilation
        steps, spread = (tuple_of(n, self.axes, who, "stride or dilation", 1) for n in (stride, dilation))
        padding_widths(
            self.kernel_size, self.kernel_size, steps, spread, pad_mode, padding, who
        )  # refuses what is wrong
        self.has_bias = has_bias
        shape = self.weight_shape()
        self.weight = create_parameter(weight_init, FAN_IN_UNIFORM, shape, dtype)
        if has_bias:
            self.bias = create_parameter(
                bias_init, Uniform(1 / math.sqrt(math.prod(shape[1:]))), (out_channels,), dtype
            )

    def weight_shape(self) -> tuple[int, ...]:
        """Output channels, input channels of a group, and the window."""
        return self.out_channels, self.in_channels // self.group, *self.kernel_size

    def construct(self, x: Tensor | EventLists) -> Tensor:
        if x.ndim != self.axes + 2 or x.shape[1] != self.in_channels:
            places = "L" if self.axes == 1 else "H, W"
            raise ShapeError(
                f"{self!r}: the input has shape {x.shape}; it takes (N, {self.in_channels}, {places}). "
                f"Time goes around it: nn.TimeDistributed(...)."
            )
        return self.convolved(
            x,
            bias=self.bias if self.has_bias else None,
            stride=self.stride,
            pad_mode=self.pad_mode,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.group,
        )

    def convolved(self, x: Any, **options: Any) -> Tensor:
        """The operation itself."""
        return (ops.conv1d if self.axes == 1 else ops.conv2d)(x, self.weight, **options)

    def extend_repr(self) -> str:
        stride, dilation = (
            tuple_of(n, self.axes, type(self).__name__, "stride or dilation", 1) for n in (self.stride, self.dilation)
        )
        return (
            f"input_channels={self.in_channels}, output_channels={self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={stride}, pad_mode={self.pad_mode}, padding={self.padding}, dilation={dilation}, "
            f"group={self.group}, has_bias={self.has_bias}"
        )


class Conv1d(_Conv):
    """1D convolution over (N, C, L), see `ops.conv1d`; weight (O, C // group, K).

    Args:
        in_channels, out_channels: C and O.
        kernel_size: K.
        stride, dilation: in elements.
        pad_mode: "same" (output length ceil(L / stride)), "valid" (no padding) or "pad" (by `padding`).
        padding: elements on both sides, with pad_mode "pad".
        group: into how many parts the channels are divided.
        has_bias: whether there is a bias; not by default, as in MindSpore.
        weight_init, bias_init: by default even within 1 / sqrt(fan in).

    Raises:
        ShapeError: naming this Cell, for an input of another shape.
        ArgumentError: for options that do not fit.
    """

    axes = 1


class Conv2d(_Conv):
    """2D convolution over (N, C, H, W), see `ops.conv2d`; weight (O, C // group, KH, KW).

    Its arguments are those of `Conv1d`, each an int or a pair; `padding` may be (top, bottom, left, right).
    """

    axes = 2


class Conv2dTranspose(_Conv):
    """Transposed 2D convolution, (N, C, H, W) -> larger images; see `ops.conv_transpose2d`.

    It is the adjoint of a convolution; weight (in_channels, out_channels // group, KH, KW). Its arguments are those of
    `Conv2d`; with pad_mode "same" the output has length H stride; `output_padding` is for pad_mode "pad".
    """

    axes = 2

    def __init__(
        self,
        in_channels: Count,
        out_channels: Count,
        kernel_size: Lengths,
        stride: Lengths = 1,
        pad_mode: PadMode = "same",
        padding: Lengths = 0,
        output_padding: Lengths = 0,
        dilation: Lengths = 1,
        group: Count = 1,
        has_bias: bool = False,
        weight_init: Init | None = None,
        bias_init: Init | None = None,
        dtype: FloatDtype = dtypes.float32,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, pad_mode, padding, dilation, group, has_bias, weight_init,
            bias_init, dtype,
        )  # fmt: skip
        self.output_padding = output_padding

    def weight_shape(self) -> tuple[int, ...]:
        """Input channels, output channels of a group, and the window."""
        return self.in_channels, self.out_channels // self.group, *self.kernel_size

    def convolved(self, x: Any, **options: Any) -> Tensor:
        """The operation itself."""
        return ops.conv_transpose2d(x, self.weight, output_padding=self.output_padding, **options)
