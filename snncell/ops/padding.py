"""Padding: with a number, or with a Tensor's own elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from snncell.base.arguments.kinds import Extended, Numbers
from snncell.base.arguments.shown import show
from snncell.errors import ShapeError
from snncell.ops.base import as_ints, as_tensor
from snncell.ops.gathering import take_slices
from snncell.tape.primitive import moving, with_axis_of_steps
from snncell.tape.tensor import Tensor, snapshot

__all__ = ["pad"]

Grads = Sequence[Any]
Mode = Literal["constant", "reflect", "symmetric", "replicate", "circular"]

# NumPy's name, and how many of an axis' elements cannot be put on a side; None where they are repeated at will.
_FROM_X: dict[str, tuple[Any, int | None]] = {
    "reflect": ("reflect", 1),
    "symmetric": ("symmetric", 0),
    "replicate": ("edge", None),
    "circular": ("wrap", 0),
}


@moving
def _pad(x: Any, widths: tuple[tuple[int, int], ...], value: float) -> Any:
    return np.pad(x, widths, constant_values=value)


with_axis_of_steps(_pad, lambda attrs, steps: {**attrs, "widths": ((0, 0), *attrs["widths"])})


@_pad.def_bprop
def _(_x: Tensor, _out: Tensor, dout: Tensor, *, widths: tuple[tuple[int, int], ...], value: float) -> Grads:
    inner = zip(widths, dout.shape, strict=True)
    return (dout[tuple(slice(low, n - high) for (low, high), n in inner)],)


def pad(
    x: Numbers,
    padding: Sequence[int | Sequence[int]],
    mode: Mode = "constant",
    value: Extended | bool = 0,
) -> Tensor:
    """`x` with elements put around it: `value`, or its own.

    Args:
        x: any shape.
        padding: before and after, of the last axis, then of the last but one, and so on: PyTorch's order, (1, 2, 0, 1);
            or pairs (before, after), one for each axis from the first on, or one for all: NumPy's, ((0, 1), (1, 2)).
        mode: "constant"; or from x itself, as of a, b, c: "reflect" (c b | a b c | b a), "symmetric"
            (b a | a b c | c b), "replicate" (a a | a b c | c c), "circular" (b c | a b c | a b).
        value: the number to pad with, with mode "constant".

    Raises:
        ShapeError: for another number of them, one that is negative, or more elements than x has for its mode.
    """
    tensor = as_tensor(x, "pad")
    if padding and all(isinstance(pair, (tuple, list)) for pair in padding):
        padding = _from_the_last(padding, tensor)
    amounts = as_ints(padding, "pad", "padding")
    if len(amounts) % 2 or len(amounts) > 2 * tensor.ndim or min(amounts, default=0) < 0:
        raise ShapeError(
            f"pad: padding {amounts} for a Tensor with {tensor.ndim} axes; give pairs, before and after "
            f"the last axis, the last but one, ..., none negative; or ((before, after), ...) from the first axis on."
        )
    pairs = [(amounts[i], amounts[i + 1]) for i in range(0, len(amounts), 2)][::-1]
    widths = ((0, 0),) * (tensor.ndim - len(pairs)) + tuple(pairs)
    if not any(map(any, widths)):
        return snapshot(tensor)
    if mode != "constant":
        return _pad_by_copies(tensor, widths, mode)
    result: Tensor = _pad.bind(tensor, widths=widths, value=value)
    return result


def _from_the_last(pairs: Sequence[Any], tensor: Tensor) -> list[int]:
    """NumPy's padding as PyTorch's."""
    if any(len(pair) != 2 for pair in pairs) or len(pairs) not in (1, tensor.ndim):
        raise ShapeError(
            f"pad: padding {show(pairs)} for a Tensor with {tensor.ndim} axes; give a pair (before, after) for each "
            f"of them, or one for all."
        )
    each = list(pairs) * tensor.ndim if len(pairs) == 1 else pairs
    return [number for pair in each[::-1] for number in pair]


def _pad_by_copies(x: Tensor, widths: tuple[tuple[int, int], ...], mode: str) -> Tensor:
    """`x` with its own elements around it."""
    numpys, least = _FROM_X[mode]
    for axis, (before, after) in enumerate(widths):
        if not before and not after:
            continue
        length = x.shape[axis]
        most = 0 if not length else math.inf if least is None else length - least
        if max(before, after) > most:
            raise ShapeError(
                f"pad: axis {axis} of a Tensor of shape {x.shape} is padded by {(before, after)}; with mode {mode!r} "
                f"it is by at most {most} elements on a side."
            )
        x = take_slices(x, np.pad(np.arange(length), (before, after), numpys), axis)
    return x
