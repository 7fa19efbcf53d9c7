"""Convolution and pooling layers over (N, C, L) and (N, C, H, W), with MindSpore's names and defaults."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from snncell import dtype as dtypes, ops
from snncell.base.arguments.guard import Unlike
from snncell.base.arguments.kinds import Count, FloatDtype, Lengths, PadMode
from snncell.cell.cell import Cell
from snncell.cell.fields import field, with_fields
from snncell.common.initializer import Init, Uniform
from snncell.errors import ArgumentError, ShapeError
from snncell.nn.layers.activations import OperationCell
from snncell.nn.layers.linear import FAN_IN_UNIFORM, create_parameter
from snncell.nn.layers.rnn import LSTM_EQUATIONS
from snncell.ops.conv import padding_widths, tuple_of
from snncell.ops.pool import Sizes
from snncell.tape.event_lists import EventLists
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor

__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d", "AvgPool1d", "AvgPool2d",
    "Conv1d", "Conv2d", "Conv2dTranspose", "ConvLSTMCell", "MaxPool1d", "MaxPool2d", "SumPool2d",
]  # fmt: skip

# --- convolution ------------------------------------------------------------------------------------------------------


def _places(axes: int) -> str:
    return "L" if axes == 1 else "H, W"


def _layout_hint(x: Tensor | EventLists, axes: int) -> str:
    """The fix for an input with one axis too many or too few."""
    if x.ndim == axes + 3:
        return " For sequences (T, B, ...), wrap the layer: nn.TimeDistributed(...)."
    if x.ndim == axes + 1:
        return " Add the missing axis: ops.expand_dims(x, 1) for one channel, or ops.expand_dims(x, 0) for one sample."
    return ""


@with_fields
class _Conv(Cell):
    """Base of convolutions over `axes` axes."""

    axes: ClassVar[int]
    in_channels: Annotated[Count, field(meaning="C, the channels of the input")]
    out_channels: Annotated[Count, field(meaning="O, the channels of the output")]
    kernel_size: Annotated[Lengths, field(meaning="K, the length of the window along each axis")]
    stride: Lengths = field(1, meaning="distance between windows, in elements")
    pad_mode: PadMode = field(
        "same", meaning='"same" (length ceil(L / stride)), "valid" (no padding, as in PyTorch) or "pad" (by `padding`)'
    )
    padding: Lengths = field(0, meaning='number of elements to add on each side, with pad_mode "pad"')
    dilation: Lengths = field(1, meaning="distance between the elements of a window")
    group: Count = field(1, meaning="number of groups of channels; in_channels makes a depthwise convolution")
    has_bias: bool = field(False, meaning="whether to add a bias; False as in MindSpore, where PyTorch has True")
    weight_init: Init | None = field(None, meaning="initial weight; None is uniform, +-1 / sqrt(fan in)", keep=False)
    bias_init: Init | None = field(None, meaning="initial bias; None as for the weight", keep=False)
    dtype: FloatDtype = field(dtypes.float32, meaning="dtype of the Parameters", keep=False)
    bias: Parameter | None = None  # None without a bias, as in MindSpore

    def _complete(self, given: dict[str, Any]) -> None:
        who = type(self).__name__
        if self.in_channels % self.group or self.out_channels % self.group:
            raise ArgumentError(
                f"{who}: group={self.group} must divide in_channels={self.in_channels} and "
                f"out_channels={self.out_channels}."
            )
        window = self.kernel_size = self.window
        steps, spread = self._of_each_axis()
        padding_widths(window, window, steps, spread, self.pad_mode, self.padding, who)
        shape = self.weight_shape()
        self.weight = create_parameter(given["weight_init"], FAN_IN_UNIFORM, shape, given["dtype"])
        if self.has_bias:
            even = Uniform(1 / math.sqrt(math.prod(shape[1:])))
            self.bias = create_parameter(given["bias_init"], even, (self.out_channels,), given["dtype"])

    @property
    def window(self) -> tuple[int, ...]:
        """The length of the window along each axis."""
        return tuple_of(self.kernel_size, self.axes, type(self).__name__, "kernel_size", 1)

    def _of_each_axis(self) -> list[tuple[int, ...]]:
        who = type(self).__name__
        return [tuple_of(n, self.axes, who, "stride or dilation", 1) for n in (self.stride, self.dilation)]

    def weight_shape(self) -> tuple[int, ...]:
        """(output channels, input channels of a group, *window)."""
        return self.out_channels, self.in_channels // self.group, *self.window

    def construct(self, x: Tensor | EventLists) -> Tensor:
        if x.ndim != self.axes + 2 or x.shape[1] != self.in_channels:
            raise ShapeError(
                f"{self!r}: the input must have shape (N, {self.in_channels}, {_places(self.axes)}), not {x.shape}."
                f"{_layout_hint(x, self.axes)}"
            )
        options = {name: getattr(self, name) for name in ("stride", "pad_mode", "padding", "dilation")}
        return self._convolved(x, bias=self.bias if self.has_bias else None, groups=self.group, **options)

    def _convolved(self, x: Any, **options: Any) -> Tensor:
        return (ops.conv1d if self.axes == 1 else ops.conv2d)(x, self.weight, **options)

    def extend_repr(self) -> str:
        stride, dilation = self._of_each_axis()
        return (
            f"input_channels={self.in_channels}, output_channels={self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={stride}, pad_mode={self.pad_mode}, padding={self.padding}, dilation={dilation}, "
            f"group={self.group}, has_bias={self.has_bias}"
        )


@with_fields
class Conv1d(_Conv):
    """1D convolution over (N, C, L); see `ops.conv1d`. The weight is (O, C // group, K).

    For sequences (T, B, C, L), wrap it in `TimeDistributed`.
    """

    axes = 1


@with_fields
class Conv2d(_Conv):
    """2D convolution over (N, C, H, W); see `ops.conv2d`. The weight is (O, C // group, KH, KW).

    For sequences (T, B, C, H, W), wrap it in `TimeDistributed`. kernel_size, stride, padding and dilation can be an int
    or a pair (rows, columns), and padding also (top, bottom, left, right).
    Example:
        >>> nn.Conv2d(3, 8, 5, stride=2)(ops.ones((1, 3, 32, 32))).shape
        (1, 8, 16, 16)
    """

    axes = 2


@with_fields(
    by_place="in_channels out_channels kernel_size stride pad_mode padding output_padding dilation group has_bias "
    "weight_init bias_init dtype"
)
class Conv2dTranspose(_Conv):
    """Transposed 2D convolution (deconvolution), which enlarges images (N, C, H, W); see `ops.conv_transpose2d`.

    The weight is (in_channels, out_channels // group, KH, KW). Lengths are as for `Conv2d`; "same" gives H stride.
    """

    axes = 2
    output_padding: Lengths = field(0, meaning='elements to add at the end of each output axis, with pad_mode "pad"')

    if TYPE_CHECKING:

        def __init__(
            self, in_channels: Count, out_channels: Count, kernel_size: Lengths, stride: Lengths = ...,
            pad_mode: PadMode = ..., padding: Lengths = ..., output_padding: Lengths = ..., dilation: Lengths = ...,
            group: Count = ..., has_bias: bool = ..., weight_init: Init | None = ..., bias_init: Init | None = ...,
            dtype: FloatDtype = ...,
        ) -> None: ...  # fmt: skip

    def weight_shape(self) -> tuple[int, ...]:
        """(input channels, output channels of a group, *window)."""
        return self.in_channels, self.out_channels // self.group, *self.window

    def _convolved(self, x: Any, **options: Any) -> Tensor:
        return ops.conv_transpose2d(x, self.weight, output_padding=self.output_padding, **options)


@with_fields
class ConvLSTMCell(Cell):
    """One time step of a convolutional LSTM (ConvLSTM): an LSTM of images, with convolutions instead of products.

        i, f, o = sigmoid(W * x + b + U * h), with separate weights for each gate
        g = tanh(W * x + b + U * h)
        c = f c + i g
        h = o tanh(c)

    Use it for videos and event frames: `nn.MultiStep(nn.ConvLSTMCell(2, 16, 3))` runs it over (T, B, C, H, W). It
    convolves the inputs of all steps before the loop, and the states in each step. Padding keeps the size of images.
    The Parameters are `of_x.weight` (4 O, C, KH, KW), `of_x.bias` (4 O,) and `of_h.weight` (4 O, O, KH, KW), in order
    i, f, g, o. There are no peephole weights from c to the gates, which the paper has, as in Keras and snnTorch.
    Inputs: x: (B, C, H, W); h, c: the states, (B, O, H, W), zeros by default in `MultiStep`.
    Returns: (h, h, c).
    Raises: ShapeError for an input or states of other shapes.
    Source: Shi et al., "Convolutional LSTM Network: A Machine Learning Approach for Precipitation Nowcasting", NeurIPS
    2015.
    Example:
        >>> nn.MultiStep(nn.ConvLSTMCell(2, 4, kernel_size=3))(ops.ones((5, 1, 2, 8, 8))).shape  # (T, B, C, H, W)
        (5, 1, 4, 8, 8)
    """

    in_channels: Annotated[Count, field(meaning="C, the channels of the input")]
    out_channels: Annotated[Count, field(meaning="O, the channels of the states")]
    kernel_size: Annotated[Lengths, field(meaning="K, the length of the window along each axis")]
    dtype: FloatDtype = field(dtypes.float32, meaning="dtype of the Parameters", keep=False)

    def _complete(self, given: dict[str, Any]) -> None:
        gates, dtype = 4 * self.out_channels, given["dtype"]
        self.of_x = Conv2d(self.in_channels, gates, self.kernel_size, has_bias=True, dtype=dtype)
        self.of_h = Conv2d(self.out_channels, gates, self.kernel_size, dtype=dtype)

    def construct(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        expected = (x.shape[0], self.out_channels, *x.shape[2:])
        if h.shape != expected or c.shape != expected:
            raise ShapeError(f"ConvLSTMCell: h and c must have shape {expected}, not {h.shape} and {c.shape}.")
        of_x, of_h = (ops.split(one, self.out_channels, 1) for one in (self.of_x(x), self.of_h(h)))
        h, c = LSTM_EQUATIONS.step(of_x, of_h, (h, c))
        return h, h, c

    def init_state(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Zeros."""
        dtype = dtypes.promote(x.dtype, self.of_h.weight.dtype)
        return (ops.zeros((x.shape[0], self.out_channels, *x.shape[2:]), dtype),) * 2

    def extend_repr(self) -> str:
        return ""


# --- pooling ----------------------------------------------------------------------------------------------------------


def _stride_warning(who: str, given: Mapping[str, Any]) -> str:
    """The warning for a window of several elements without a stride."""
    size = given["kernel_size"]
    if "stride" in given or all(length == 1 for length in (size if isinstance(size, (list, tuple)) else (size,))):
        return ""
    return (
        f"{who}: stride is 1 by default, as in MindSpore; in PyTorch it is kernel_size: write "
        f"{who}({size}, stride={size}) for windows that do not overlap, or {who}({size}, stride=1) for a stride of 1."
    )


Window = Annotated[Lengths, Unlike(_stride_warning)]


@with_fields
class _Pool(OperationCell):
    """Base of pools: an operation on each window; `options` are its arguments besides kernel_size and stride."""

    axes: ClassVar[int] = 2
    kernel_size: Window = field(1, meaning="length of a window along each axis: an int, or one per axis")
    stride: Lengths = field(1, meaning="distance between windows; 1 as in MindSpore, where PyTorch has kernel_size")
    pad_mode: PadMode = field("valid", meaning='"same" (length ceil(L / stride)), "valid" or "pad"', keep=False)
    padding: Lengths = field(0, meaning='number of elements to add on each side, with pad_mode "pad"', keep=False)

    def _complete(self, given: dict[str, Any]) -> None:
        self.options = {name: value for name, value in given.items() if name not in ("kernel_size", "stride")}
        who, count = type(self).__name__, self.axes
        size, stride, dilation = (
            tuple_of(value, count, who, name, 1)
            for name, value in (
                ("kernel_size", self.kernel_size), ("stride", self.stride), ("dilation", given.get("dilation", 1))
            )
        )  # fmt: skip
        padding_widths(size, size, stride, dilation, given["pad_mode"], given["padding"], who)

    def construct(self, x: Tensor) -> Tensor:
        if x.ndim != self.axes + 2:
            raise ShapeError(
                f"{self!r}: the input must have shape (N, C, {_places(self.axes)}), not {x.shape}."
                f"{_layout_hint(x, self.axes)}"
            )
        return self.operation(x, self.kernel_size, self.stride, **self.options)

    def extend_repr(self) -> str:
        mode = self.options["pad_mode"]  # in upper case, as in MindSpore
        padding = f", padding={self.options['padding']}" if mode == "pad" else ""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, pad_mode={mode.upper()}{padding}"


CEIL_MODE = field(False, meaning="whether the last window may extend beyond the end", keep=False)
COUNT_INCLUDE_PAD = field(True, meaning="whether the mean includes the padding", keep=False)


@with_fields
class _MaxPool(_Pool):
    dilation: Lengths = field(1, meaning="distance between the elements of a window", keep=False)
    ceil_mode: bool = CEIL_MODE


@with_fields
class MaxPool2d(_MaxPool, operation=ops.max_pool2d):
    """Max pooling of (N, C, H, W): the largest element of each window; see `ops.max_pool2d`.

    Pass stride explicitly: an ArgumentWarning points to the defaults of MindSpore (1) and PyTorch (kernel_size).
    Example:
        >>> nn.MaxPool2d(2, stride=2)(ops.ones((1, 3, 32, 32))).shape
        (1, 3, 16, 16)
    """


@with_fields
class MaxPool1d(_MaxPool, operation=ops.max_pool1d):
    """Max pooling of (N, C, L): the largest element of each window; see `ops.max_pool1d`."""

    axes = 1


@with_fields
class AvgPool2d(_Pool, operation=ops.avg_pool2d):
    """Average pooling of (N, C, H, W): the mean of each window; see `ops.avg_pool2d`."""

    ceil_mode: bool = CEIL_MODE
    count_include_pad: bool = COUNT_INCLUDE_PAD
    divisor_override: Count | None = field(None, meaning="divisor; None is the size of the window", keep=False)


@with_fields
class AvgPool1d(_Pool, operation=ops.avg_pool1d):
    """Average pooling of (N, C, L): the mean of each window; see `ops.avg_pool1d`."""

    axes = 1

    ceil_mode: bool = CEIL_MODE
    count_include_pad: bool = COUNT_INCLUDE_PAD


@with_fields
class SumPool2d(_Pool, operation=ops.sum_pool2d):
    """Sum pooling of (N, C, H, W): the sum of each window, for example the number of its spikes.

    Use it to reduce the resolution of event-camera data without losing events. Padding adds zeros.
    Source: pooling in tools for event cameras (sinabs, NIR's SumPool2d).
    Example:
        >>> nn.SumPool2d(2, 2)(ops.ones((1, 1, 4, 4))).asnumpy().tolist()
        [[[[4.0, 4.0], [4.0, 4.0]]]]
    """


# --- adaptive pooling -------------------------------------------------------------------------------------------------


class _AdaptivePool(OperationCell):
    """Base of pools with a fixed output size."""

    def __init__(self, output_size: Sizes | None) -> None:
        super().__init__()
        if not isinstance(output_size, int) and output_size is not None and len(output_size) != 2:
            raise ArgumentError(f"{type(self).__name__}: output_size must be an int or a pair, not {output_size!r}.")
        self.output_size = output_size

    def construct(self, x: Tensor) -> Tensor:
        return self.operation(x, self.output_size)

    def extend_repr(self) -> str:
        return f"output_size={self.output_size}"


class _AdaptivePool1d(_AdaptivePool):
    def __init__(self, output_size: Count) -> None:
        super().__init__(output_size)


class AdaptiveAvgPool1d(_AdaptivePool1d, operation=ops.adaptive_avg_pool1d):
    """Adaptive average pooling of (N, C, L) to (N, C, output_size); see `ops.adaptive_avg_pool1d`."""


class AdaptiveAvgPool2d(_AdaptivePool, operation=ops.adaptive_avg_pool2d):
    """Adaptive average pooling of (N, C, H, W) to a fixed size; see `ops.adaptive_avg_pool2d`.

    Use it before the last dense layer, so that the network accepts images of any size.

    Args:
        output_size: an int or a pair; None in the pair keeps the length of an axis.
    Example:
        >>> nn.AdaptiveAvgPool2d(1)(ops.ones((2, 3, 5, 7))).shape
        (2, 3, 1, 1)
    """


class AdaptiveMaxPool1d(_AdaptivePool1d, operation=ops.adaptive_max_pool1d):
    """Adaptive max pooling of (N, C, L) to (N, C, output_size); see `ops.adaptive_max_pool1d`."""


class AdaptiveMaxPool2d(_AdaptivePool, operation=ops.adaptive_max_pool2d):
    """Adaptive max pooling of (N, C, H, W) to a fixed size; see `AdaptiveAvgPool2d` for the argument."""
