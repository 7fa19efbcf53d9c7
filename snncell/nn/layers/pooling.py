"""Pooling layers. Names and defaults are MindSpore's; they are over (N, C, L) and (N, C, H, W)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from snncell import ops
from snncell.base.arguments.guard import Unlike
from snncell.base.arguments.kinds import Count, Lengths, PadMode
from snncell.cell.cell import Cell
from snncell.errors import ArgumentError
from snncell.ops.pool import Sizes
from snncell.tape.tensor import Tensor

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AvgPool1d",
    "AvgPool2d",
    "MaxPool1d",
    "MaxPool2d",
    "SumPool2d",
]


def _stride_warning(who: str, given: Mapping[str, Any]) -> str:
    """The warning for a window of several elements without a stride."""
    size = given["kernel_size"]
    if "stride" in given or all(length == 1 for length in (size if isinstance(size, (list, tuple)) else (size,))):
        return ""
    return (
        f"{who}: stride is 1 by default, as in MindSpore, where PyTorch's is the kernel_size: write "
        f"{who}({size}, stride={size}) for windows that do not overlap, or {who}({size}, stride=1) for this one."
    )


Window = Annotated[Lengths, Unlike(_stride_warning)]


class _Pool(Cell):
    """The base of pools over (N, C, H, W): an operation, its window, how far that moves, and what else it takes."""

    operation: Callable[..., Tensor]

    def __init__(self, kernel_size: Lengths, stride: Lengths, **options: Any) -> None:
        super().__init__()
        self.kernel_size, self.stride, self.options = kernel_size, stride, options

    def construct(self, x: Tensor) -> Tensor:
        return self.operation(x, self.kernel_size, self.stride, **self.options)

    def extend_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, pad_mode={self.options['pad_mode'].upper()}"


class _MaxPool(_Pool):
    """The base of pools that take the largest element of each window."""

    def __init__(
        self,
        kernel_size: Window = 1,
        stride: Lengths = 1,
        pad_mode: PadMode = "valid",
        padding: Lengths = 0,
        dilation: Lengths = 1,
        ceil_mode: bool = False,
    ) -> None:
        options = {"dilation": dilation, "ceil_mode": ceil_mode}
        super().__init__(kernel_size, stride, pad_mode=pad_mode, padding=padding, **options)


class MaxPool2d(_MaxPool):
    """Max pooling: the largest element of each window of (N, C, H, W); see `ops.max_pool2d`.

    stride is 1 by default, as in MindSpore. An ArgumentWarning says so where you leave it out, because the default in
    PyTorch is kernel_size.
    """

    operation = staticmethod(ops.max_pool2d)


class AvgPool2d(_Pool):
    """Average pooling: the mean of each window of (N, C, H, W); see `ops.avg_pool2d`. stride is 1 by default."""

    operation = staticmethod(ops.avg_pool2d)

    def __init__(
        self,
        kernel_size: Window = 1,
        stride: Lengths = 1,
        pad_mode: PadMode = "valid",
        padding: Lengths = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: Count | None = None,
    ) -> None:
        options = {"ceil_mode": ceil_mode, "count_include_pad": count_include_pad, "divisor_override": divisor_override}
        super().__init__(kernel_size, stride, pad_mode=pad_mode, padding=padding, **options)


class SumPool2d(_Pool):
    """Sum pooling: the sum of each window of (N, C, H, W), the number of spikes in it. stride is 1 by default.

    Padding adds nothing, in either of its modes. Spikes over time, (T, B, C, H, W), go through `TimeDistributed`.

    Args:
        kernel_size, stride, pad_mode, padding: as for `AvgPool2d`.

    Raises:
        ShapeError: for an input that is not (N, C, H, W).

    Source: the pooling of event cameras' tools, where it merges pixels without losing events (sinabs, NIR's SumPool2d).

    Example:
        >>> nn.SumPool2d(2, 2)(ops.ones((1, 1, 4, 4))).asnumpy().tolist()
        [[[[4.0, 4.0], [4.0, 4.0]]]]
    """

    operation = staticmethod(ops.sum_pool2d)

    def __init__(
        self,
        kernel_size: Window = 1,
        stride: Lengths = 1,
        pad_mode: PadMode = "valid",
        padding: Lengths = 0,
    ) -> None:
        super().__init__(kernel_size, stride, pad_mode=pad_mode, padding=padding)


class MaxPool1d(_MaxPool):
    """Max pooling: the largest element of each window of (N, C, L); see `ops.max_pool1d`. stride is 1 by default."""

    operation = staticmethod(ops.max_pool1d)


class AvgPool1d(_Pool):
    """Average pooling: the mean of each window of (N, C, L); see `ops.avg_pool1d`. stride is 1 by default."""

    operation = staticmethod(ops.avg_pool1d)

    def __init__(
        self,
        kernel_size: Window = 1,
        stride: Lengths = 1,
        pad_mode: PadMode = "valid",
        padding: Lengths = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        options = {"ceil_mode": ceil_mode, "count_include_pad": count_include_pad}
        super().__init__(kernel_size, stride, pad_mode=pad_mode, padding=padding, **options)


# --- to a given size --------------------------------------------------------------------------------------------------


class _AdaptivePool(Cell):
    """The base of pools whose output has a given size."""

    operation: Callable[..., Tensor]

    def __init__(self, output_size: Sizes | None) -> None:
        super().__init__()
        if not isinstance(output_size, int) and output_size is not None and len(output_size) != 2:
            raise ArgumentError(f"{type(self).__name__}: output_size is an int or a pair, not {output_size!r}.")
        self.output_size = output_size

    def construct(self, x: Tensor) -> Tensor:
        return self.operation(x, self.output_size)

    def extend_repr(self) -> str:
        return f"output_size={self.output_size}"


class _AdaptivePool1d(_AdaptivePool):
    def __init__(self, output_size: Count) -> None:
        super().__init__(output_size)


class AdaptiveAvgPool1d(_AdaptivePool1d):
    """Adaptive average pooling of (N, C, L): means of `output_size` windows; see `ops.adaptive_avg_pool1d`."""

    operation = staticmethod(ops.adaptive_avg_pool1d)


class AdaptiveAvgPool2d(_AdaptivePool):
    """Adaptive average pooling of (N, C, H, W): means of windows that cover it evenly; see `ops.adaptive_avg_pool2d`.

    Args:
        output_size: an int or a pair; None in it leaves an axis as it is.

    Example:
        >>> nn.AdaptiveAvgPool2d(1)(ops.ones((2, 3, 5, 7))).shape
        (2, 3, 1, 1)
    """

    operation = staticmethod(ops.adaptive_avg_pool2d)


class AdaptiveMaxPool1d(_AdaptivePool1d):
    """Adaptive max pooling of (N, C, L), in `output_size` windows; see `ops.adaptive_max_pool1d`."""

    operation = staticmethod(ops.adaptive_max_pool1d)


class AdaptiveMaxPool2d(_AdaptivePool):
    """Adaptive max pooling of (N, C, H, W); its argument is that of `AdaptiveAvgPool2d`."""

    operation = staticmethod(ops.adaptive_max_pool2d)
