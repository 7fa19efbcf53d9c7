"""Layers without weights that change shapes: padding, resampling, pixel shuffle, axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from snncell import ops
from snncell.base.arguments.kinds import Count, Extended, Positive, Size
from snncell.cell.cell import Cell
from snncell.cell.fields import field, with_fields
from snncell.errors import ArgumentError, ShapeError
from snncell.ops.padding import Interpolation, Mode
from snncell.tape.event_lists import EventLists
from snncell.tape.tensor import Tensor, snapshot

__all__ = [
    "ConstantPad1d",
    "ConstantPad2d",
    "Flatten",
    "Identity",
    "Pad",
    "PixelShuffle",
    "PixelUnshuffle",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReplicationPad1d",
    "ReplicationPad2d",
    "Unflatten",
    "Upsample",
    "ZeroPad2d",
]

# --- padding ----------------------------------------------------------------------------------------------------------


_MODES: dict[str, Mode] = {"CONSTANT": "constant", "REFLECT": "reflect", "SYMMETRIC": "symmetric"}


@with_fields
class Pad(Cell):
    """Padding: elements around x.

    Raises:
        ShapeError: for an input with another number of axes.

    Example:
        >>> nn.Pad(((0, 0), (1, 2)))(ops.ones((1, 2))).asnumpy().tolist()
        [[0.0, 1.0, 1.0, 0.0, 0.0]]
    """

    paddings: Annotated[
        Sequence[tuple[Size, Size]],
        field(
            meaning="((before, after), ...), a pair for each axis from the first on",
            convert=lambda pairs, who, name: tuple(map(tuple, pairs)),
        ),
    ]
    mode: Literal["CONSTANT", "REFLECT", "SYMMETRIC"] = field(
        "CONSTANT",
        meaning='"CONSTANT" for zeros, or from x itself, as of a, b, c: "REFLECT" (c b | a b c | b a) or "SYMMETRIC" '
        "(b a | a b c | c b)",
    )

    def construct(self, x: Tensor) -> Tensor:
        if x.ndim != len(self.paddings):
            raise ShapeError(f"{self!r}: the input has shape {x.shape}; paddings are for {len(self.paddings)} axes.")
        return ops.pad(x, self.paddings, _MODES[self.mode])


class _PadLast(Cell):
    """The base of padding of the last axes."""

    axes: int
    mode: Mode = "constant"
    value: float = 0.0

    def __init__(self, padding: Size | Sequence[Size]) -> None:
        super().__init__()
        each = (padding,) * (2 * self.axes) if isinstance(padding, int) else tuple(padding)
        if len(each) != 2 * self.axes:
            raise ArgumentError(
                f"{type(self).__name__}: padding is an int or {2 * self.axes} of them, before and after the last axis"
                f"{' and the one before it' if self.axes == 2 else ''}, not {padding!r}."
            )
        self.padding = each

    def construct(self, x: Tensor) -> Tensor:
        if x.ndim <= self.axes:
            raise ShapeError(f"{self!r}: takes (N, C, ...) with {self.axes} more axes, not {x.shape}.")
        return ops.pad(x, self.padding, self.mode, self.value)

    def extend_repr(self) -> str:
        return f"padding={self.padding}"


class ZeroPad2d(_PadLast):
    """Zero padding of (N, C, H, W); `padding` is an int or (left, right, top, bottom)."""

    axes = 2


class ConstantPad1d(_PadLast):
    """Padding of (N, C, L) with a value; `padding` is an int or (left, right)."""

    axes = 1

    def __init__(self, padding: Size | Sequence[Size], value: Extended) -> None:
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


# --- other sizes ------------------------------------------------------------------------------------------------------


@with_fields
class Upsample(Cell):
    """Resampling to another size; see `ops.interpolate`.

    Raises:
        ArgumentError: if not one of `size` and `scale_factor` is given.

    Example:
        >>> nn.Upsample(scale_factor=2.0)(Tensor([[[1.0, 2.0]]])).asnumpy().tolist()
        [[[1.0, 1.0, 2.0, 2.0]]]
    """

    size: Count | Sequence[Count] | None = field(
        None, meaning="the lengths of the axes after the channels: an int or one for each"
    )
    scale_factor: Positive | Sequence[Positive] | None = field(None, meaning="or the factor of each length")
    mode: Interpolation = field("nearest", meaning='"nearest", "linear" of (N, C, L), "bilinear" of (N, C, H, W)')
    align_corners: bool | None = field(
        None, meaning='of "linear" and "bilinear": whether the middles of the outermost pixels stay where they were'
    )

    def _complete(self, given: dict[str, Any]) -> None:
        if (self.size is None) == (self.scale_factor is None):
            raise ArgumentError("Upsample: give size or scale_factor, and not both.")

    def construct(self, x: Tensor) -> Tensor:
        return ops.interpolate(x, self.size, self.scale_factor, self.mode, self.align_corners)

    def extend_repr(self) -> str:
        wanted = f"size={self.size}" if self.scale_factor is None else f"scale_factor={self.scale_factor}"
        return f"{wanted}, mode={self.mode!r}"


@with_fields
class PixelShuffle(Cell):
    """Pixel shuffle: r^2 channels as r x r pixels, (N, C r^2, H, W) -> (N, C, H r, W r)."""

    upscale_factor: Annotated[Count, field(meaning="r")]

    def construct(self, x: Tensor) -> Tensor:
        return ops.pixel_shuffle(x, self.upscale_factor)


@with_fields
class PixelUnshuffle(Cell):
    """Inverse of pixel shuffle: r x r pixels as r^2 channels, (N, C, H r, W r) -> (N, C r^2, H, W)."""

    downscale_factor: Annotated[Count, field(meaning="r")]

    def construct(self, x: Tensor) -> Tensor:
        return ops.pixel_unshuffle(x, self.downscale_factor)


# --- axes -------------------------------------------------------------------------------------------------------------


class Identity(Cell):
    """Identity: the input itself, a placeholder for a layer."""

    def construct(self, x: Any) -> Any:
        return snapshot(x) if isinstance(x, Tensor) else x


@with_fields
class Flatten(Cell):
    """Flatten: the axes from `start_dim` to `end_dim` as one; by default all but the batch."""

    start_dim: int = field(1, meaning="first of the axes")
    end_dim: int = field(-1, meaning="last of the axes")

    def construct(self, x: Tensor | EventLists) -> Tensor | EventLists:
        return ops.flatten(x, self.start_dim, self.end_dim)

    def extend_repr(self) -> str:
        return ""


@with_fields
class Unflatten(Cell):
    """Unflatten: one axis as several.

    Raises:
        ShapeError: for lengths that do not fit.

    Example:
        >>> nn.Unflatten(1, (2, 3))(ops.ones((4, 6))).shape
        (4, 2, 3)
    """

    axis: Annotated[int, field(meaning="which one")]
    unflattened_size: Annotated[
        Sequence[int],
        field(
            meaning="their lengths, whose product is that of the axis; one may be -1",
            convert=lambda lengths, who, name: tuple(lengths),
        ),
    ]

    def construct(self, x: Tensor) -> Tensor:
        if not -x.ndim <= self.axis < x.ndim:
            raise ShapeError(f"{self!r}: the input has shape {x.shape}, which has no axis {self.axis}.")
        axis = self.axis % x.ndim
        return x.reshape((*x.shape[:axis], *self.unflattened_size, *x.shape[axis + 1 :]))
