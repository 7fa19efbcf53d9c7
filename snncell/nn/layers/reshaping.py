"""Layers without weights that change shapes: padding, resampling, pixel shuffle, flattening."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from snncell import ops
from snncell.base.arguments.kinds import Count, ExtendedReal, Positive, Size
from snncell.cell.cell import Cell
from snncell.cell.fields import field, with_fields
from snncell.errors import ArgumentError, ShapeError
from snncell.ops.padding import Interpolation, Mode
from snncell.tape.event_lists import EventLists
from snncell.tape.tensor import Tensor, snapshot

__all__ = [
    "ConstantPad1d", "ConstantPad2d", "Flatten", "Identity", "Pad", "PixelShuffle", "PixelUnshuffle",
    "ReflectionPad1d", "ReflectionPad2d", "ReplicationPad1d", "ReplicationPad2d", "Unflatten", "Upsample",
    "ZeroPad2d",
]  # fmt: skip

# --- padding ----------------------------------------------------------------------------------------------------------


_MODES: dict[str, Mode] = {"CONSTANT": "constant", "REFLECT": "reflect", "SYMMETRIC": "symmetric"}
PAIRS = field(meaning="((before, after), ...), one for each axis", convert=lambda pairs, *_: tuple(map(tuple, pairs)))
LENGTHS = field(meaning="the new lengths, one of which may be -1", convert=lambda lengths, *_: tuple(lengths))


@with_fields
class Pad(Cell):
    """Padding: add elements around x.
    Example:
        >>> nn.Pad(((0, 0), (1, 2)))(ops.ones((1, 2))).asnumpy().tolist()
        [[0.0, 1.0, 1.0, 0.0, 0.0]]
    """

    paddings: Annotated[Sequence[tuple[Size, Size]], PAIRS]
    mode: Literal["CONSTANT", "REFLECT", "SYMMETRIC"] = field(
        "CONSTANT",
        meaning='"CONSTANT" adds zeros. The others add elements of x; for example a, b, c becomes c b | a b c | b a '
        'with "REFLECT", and b a | a b c | c b with "SYMMETRIC"',
    )

    def construct(self, x: Tensor) -> Tensor:
        if x.ndim != (count := len(self.paddings)):
            raise ShapeError(f"{self!r}: the input has shape {x.shape}, but paddings has pairs for {count} axes.")
        return ops.pad(x, self.paddings, _MODES[self.mode])


class _PadLast(Cell):
    """Base of padding of the last axes."""

    axes: int
    mode: Mode = "constant"
    value: float = 0.0

    def __init__(self, padding: Size | Sequence[Size]) -> None:
        super().__init__()
        each = (padding,) * (2 * self.axes) if isinstance(padding, int) else tuple(padding)
        if len(each) != 2 * self.axes:
            raise ArgumentError(
                f"{type(self).__name__}: padding must be an int, or {2 * self.axes} of them, before and after the last "
                f"axis{' and the axis before it' if self.axes == 2 else ''}, not {padding!r}."
            )
        self.padding = each

    def construct(self, x: Tensor) -> Tensor:
        if x.ndim <= self.axes:
            raise ShapeError(f"{self!r}: x must be (N, C, ...) with {self.axes} more axes, not {x.shape}.")
        return ops.pad(x, self.padding, self.mode, self.value)

    def extend_repr(self) -> str:
        return f"padding={self.padding}"


class ZeroPad2d(_PadLast):
    """Zero padding of (N, C, H, W); `padding` is an int or (left, right, top, bottom)."""

    axes = 2


class ConstantPad1d(_PadLast):
    """Padding of (N, C, L) with a value; `padding` is an int or (left, right)."""

    axes = 1

    def __init__(self, padding: Size | Sequence[Size], value: ExtendedReal) -> None:
        super().__init__(padding)
        self.value = value


class ConstantPad2d(ConstantPad1d):
    """Padding of (N, C, H, W) with a value; `padding` is an int or (left, right, top, bottom)."""

    axes = 2


class ReflectionPad1d(_PadLast):
    """Reflection padding: (N, C, L) mirrored at its ends; `padding` is an int or (left, right)."""

    axes, mode = 1, "reflect"


class ReflectionPad2d(_PadLast):
    """Reflection padding: (N, C, H, W) mirrored at its edges; `padding` is an int or (left, right, top, bottom)."""

    axes, mode = 2, "reflect"


class ReplicationPad1d(_PadLast):
    """Replication padding: the ends of (N, C, L) repeated; `padding` is an int or (left, right)."""

    axes, mode = 1, "replicate"


class ReplicationPad2d(_PadLast):
    """Replication padding: the edges of (N, C, H, W) repeated; `padding` is an int or (left, right, top, bottom)."""

    axes, mode = 2, "replicate"


# --- resampling -------------------------------------------------------------------------------------------------------


@with_fields
class Upsample(Cell):
    """Resample to another size, by nearest neighbours or interpolation; see `ops.interpolate`.
    Example:
        >>> nn.Upsample(scale_factor=2.0)(Tensor([[[1.0, 2.0]]])).asnumpy().tolist()
        [[[1.0, 1.0, 2.0, 2.0]]]
    """

    size: Count | Sequence[Count] | None = field(None, meaning="the lengths after the channels: an int or one per axis")
    scale_factor: Positive | Sequence[Positive] | None = field(None, meaning="factor of the lengths instead of size")
    mode: Interpolation = field("nearest", meaning='"nearest", "linear" for (N, C, L), or "bilinear" for (N, C, H, W)')
    align_corners: bool | None = field(None, meaning="whether the centres of the corner pixels stay, if interpolated")

    def _complete(self, given: dict[str, Any]) -> None:
        if (self.size is None) == (self.scale_factor is None):
            raise ArgumentError("Upsample: pass exactly one of size and scale_factor.")

    def construct(self, x: Tensor) -> Tensor:
        return ops.interpolate(x, self.size, self.scale_factor, self.mode, self.align_corners)

    def extend_repr(self) -> str:
        wanted = f"size={self.size}" if self.scale_factor is None else f"scale_factor={self.scale_factor}"
        return f"{wanted}, mode={self.mode!r}"


@with_fields
class PixelShuffle(Cell):
    """Pixel shuffle: rearrange r^2 channels to r x r pixels, (N, C r^2, H, W) -> (N, C, H r, W r)."""

    upscale_factor: Annotated[Count, field(meaning="r, the factor of height and width")]

    def construct(self, x: Tensor) -> Tensor:
        return ops.pixel_shuffle(x, self.upscale_factor)


@with_fields
class PixelUnshuffle(Cell):
    """Inverse of pixel shuffle: rearrange r x r pixels to r^2 channels, (N, C, H r, W r) -> (N, C r^2, H, W)."""

    downscale_factor: Annotated[Count, field(meaning="r, the divisor of height and width")]

    def construct(self, x: Tensor) -> Tensor:
        return ops.pixel_unshuffle(x, self.downscale_factor)


# --- axes -------------------------------------------------------------------------------------------------------------


class Identity(Cell):
    """Identity: returns its input, as a placeholder for a layer."""

    def construct(self, x: Any) -> Any:
        return snapshot(x) if isinstance(x, Tensor) else x


@with_fields
class Flatten(Cell):
    """Flatten: join the axes from `start_dim` to `end_dim`; by default all but the batch.

    For sequences (T, B, ...), use `nn.Flatten(2)`, or wrap it in `TimeDistributed`.
    Example:
        >>> nn.Flatten()(ops.ones((4, 2, 3))).shape
        (4, 6)
    """

    start_dim: int = field(1, meaning="the first axis to join", quiet=True)
    end_dim: int = field(-1, meaning="the last axis to join", quiet=True)

    def construct(self, x: Tensor | EventLists) -> Tensor | EventLists:
        return ops.flatten(x, self.start_dim, self.end_dim)


@with_fields
class Unflatten(Cell):
    """Unflatten: split one axis into several.
    Example:
        >>> nn.Unflatten(1, (2, 3))(ops.ones((4, 6))).shape
        (4, 2, 3)
    """

    axis: Annotated[int, field(meaning="the axis to split")]
    unflattened_size: Annotated[Sequence[int], LENGTHS]

    def construct(self, x: Tensor) -> Tensor:
        if not -x.ndim <= self.axis < x.ndim:
            raise ShapeError(f"{self!r}: the input has shape {x.shape}, which has no axis {self.axis}.")
        axis = self.axis % x.ndim
        return x.reshape((*x.shape[:axis], *self.unflattened_size, *x.shape[axis + 1 :]))
