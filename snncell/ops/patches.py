"""Patches of images as columns, and back: convolution taken apart."""

from __future__ import annotations

from snncell.base.arguments.kinds import Count, Numbers, Size
from snncell.errors import ArgumentError, ShapeError
from snncell.ops import shape as sh
from snncell.ops.base import as_ints, as_tensor
from snncell.ops.indexing import put_primitive
from snncell.ops.padding import pad
from snncell.tape.tensor import Tensor

Pair = Count | tuple[Count, Count]
Padding = Size | tuple[Size, Size]


def _pair(value: int | tuple[int, ...], name: str, argument: str, least: int = 1) -> tuple[int, int]:
    numbers = as_ints(value, name, argument)
    if len(numbers) not in (1, 2) or min(numbers) < least:
        raise ArgumentError(f"{name}: {argument} is one integer or two, of at least {least}, not {value}.")
    return numbers[0], numbers[-1]


class _Places:
    """The windows of an image: where each element of a window is, over all of them."""

    def __init__(self, name: str, image: tuple[int, ...], kernel: Pair, dilation: Pair, padding: Padding, stride: Pair):
        self.kernel = _pair(kernel, name, "kernel_size")
        apart, step = _pair(dilation, name, "dilation"), _pair(stride, name, "stride")
        self.padding = _pair(padding, name, "padding", 0)
        self.padded = tuple(n + 2 * p for n, p in zip(image, self.padding, strict=True))
        spans = [(k - 1) * d + 1 for k, d in zip(self.kernel, apart, strict=True)]
        if any(span > n for span, n in zip(spans, self.padded, strict=True)):
            raise ShapeError(
                f"{name}: windows of {tuple(spans)} do not fit an image of {self.padded}, padding included."
            )
        self.windows = tuple((n - s) // t + 1 for n, s, t in zip(self.padded, spans, step, strict=True))
        self.slices = [
            tuple(
                slice(place * d, place * d + (count - 1) * t + 1, t)
                for place, d, count, t in zip((i, j), apart, self.windows, step, strict=True)
            )
            for i in range(self.kernel[0])
            for j in range(self.kernel[1])
        ]


def unfold(x: Numbers, kernel_size: Pair, dilation: Pair = 1, padding: Padding = 0, stride: Pair = 1) -> Tensor:
    """The windows of images as columns: (N, C, H, W) gives (N, C * kh * kw, L), for L windows.

    Args:
        x: (N, C, H, W).
        kernel_size, dilation, padding, stride: of the windows, as in a convolution; one integer or (height, width).

    Raises:
        ShapeError: for another number of axes, or windows larger than the image.

    Note:
        A convolution with weights (out, C, kh, kw) is the product of weights.reshape(out, -1) and the columns.
    """
    tensor = as_tensor(x, "unfold")
    if tensor.ndim != 4:
        raise ShapeError(f"unfold: takes images (N, C, H, W), the shape is {tensor.shape}.")
    places = _Places("unfold", tensor.shape[2:], kernel_size, dilation, padding, stride)
    (above, left), (n, channels) = places.padding, tensor.shape[:2]
    padded = pad(tensor, (left, left, above, above))
    windows = sh.stack([padded[:, :, rows, columns] for rows, columns in places.slices], 2)
    size, count = len(places.slices), places.windows[0] * places.windows[1]
    return sh.reshape(windows, (n, channels * size, count))


def fold(
    x: Numbers,
    output_size: Pair,
    kernel_size: Pair,
    dilation: Pair = 1,
    padding: Padding = 0,
    stride: Pair = 1,
) -> Tensor:
    """Columns put back where `unfold` takes them from, overlapping ones added up: (N, C * kh * kw, L) gives
    (N, C, H, W).

    Args:
        x: (N, C * kh * kw, L).
        output_size: (H, W), or one integer for both.
        kernel_size, dilation, padding, stride: as in `unfold`.

    Raises:
        ShapeError: if the columns do not fit.
    """
    tensor, image = as_tensor(x, "fold"), _pair(output_size, "fold", "output_size")
    places = _Places("fold", image, kernel_size, dilation, padding, stride)
    size, count = len(places.slices), places.windows[0] * places.windows[1]
    if tensor.ndim != 3 or tensor.shape[1] % size or tensor.shape[2] != count:
        raise ShapeError(f"fold: takes columns (N, C * {size}, {count}) for these windows, not {tensor.shape}.")
    n, channels = tensor.shape[0], tensor.shape[1] // size
    windows = sh.reshape(tensor, (n, channels, size, *places.windows))
    shape = (n, channels, *places.padded)
    total = None
    for position, (rows, columns) in enumerate(places.slices):
        index = (slice(None), slice(None), rows, columns)
        placed: Tensor = put_primitive.bind(windows[:, :, position], index=index, shape=shape)
        total = placed if total is None else total + placed
    assert total is not None  # a window has an element
    (above, left), (height, width) = places.padding, image
    result: Tensor = total[:, :, above : above + height, left : left + width]
    return result
