"""Pooling in the IR: operations on the windows of images, and how a kernel divides images into parts for them.

    reduce    image (H, W) -> an element for each window      max_pool, sum_pool
    spread    an element for each window -> image (H, W)      their gradients: unpool, spread

If windows tile the image, a row of windows needs only its own rows of the image. A kernel of a loop over time can then
pool the images of a block row by row, while the block is in cache. It processes whole units: a row of windows, or a
whole image if elements are left over after the last row of windows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from snncell.compiler.ir.operations import can_compile
from snncell.compiler.ir.program import values_in
from snncell.dtype import is_storage_only
from snncell.kernels.loops import BLOCK
from snncell.kernels.windows import Ints
from snncell.tape.primitive import Primitive
from snncell.tape.tracing import Instruction


class WindowOperation(Primitive):
    """An operation on each plane of images (N, C, *S) separately, with the attribute `windows`.

    A declaration is a function `(name, lanes, windows)`, also with the attribute `divisor` if there is one. It returns
    the source of the kernel function `name`, with planes, lengths and arrays as arguments (`kernels/windows.py`).
    """

    reduces: Callable[..., str] | None = None  # declared if it reduces windows
    spreads: Callable[..., str] | None = None  # declared if it spreads the element of each window over the window


class WindowUnit(NamedTuple):
    """The smallest part of an image that contains whole windows and no parts of others."""

    lengths: Ints
    counts: Ints  # the number of windows along each axis

    @property
    def elements(self) -> int:
        """The number of elements of the image."""
        return math.prod(self.lengths)

    @property
    def windows(self) -> int:
        """The number of windows."""
        return math.prod(self.counts)


def unit_of(instruction: Instruction) -> WindowUnit:
    """The unit of the images of a reduction or a spread."""
    windows, lengths = instruction.attrs["windows"], lengths_of_image(instruction)
    rows = [windows.size[0]] if len(lengths) == 2 and lengths[0] % windows.size[0] == 0 else lengths[:-1]
    return WindowUnit((*rows, lengths[-1]), windows.counts((*rows, lengths[-1])))


def is_spread(instruction: Instruction) -> bool:
    """True for an instruction that spreads elements over windows, such as the gradient of pooling."""
    return isinstance(instruction.op, WindowOperation) and instruction.op.spreads is not None


def is_reduction_of_windows(instruction: Instruction) -> bool:
    """True for an instruction that reduces windows, such as max pooling."""
    return isinstance(instruction.op, WindowOperation) and instruction.op.reduces is not None


def lengths_of_image(instruction: Instruction) -> Ints:
    """The lengths *S of the images (N, C, *S) of a reduction or a spread."""
    image = instruction.outputs[0] if is_spread(instruction) else instruction.inputs[0]
    lengths: Ints = image.shape[2:]
    return lengths


def obstacle_to_parts(instruction: Instruction) -> str | None:
    """The reason why a kernel cannot process the images of a reduction or a spread in parts; None if it can."""
    windows, lengths = instruction.attrs["windows"], lengths_of_image(instruction)
    if windows.padded:
        return "its windows extend beyond the image, because of padding or ceil_mode"
    if not windows.tiles:
        return "its windows overlap, or leave gaps"
    if not all(lengths) or not all(windows.counts(lengths)):
        return "its images are empty"
    unit = unit_of(instruction)
    if unit.elements > BLOCK:
        rows = "a row of windows" if unit.lengths != tuple(lengths) else "an image"
        return f"{rows} has {unit.elements} elements, and a block of a loop at most {BLOCK}"
    dtypes = [x.dtype for x in (*values_in(instruction), *instruction.outputs)]
    refused = next((dtype for dtype in dtypes if is_storage_only(dtype) or not can_compile([dtype])), None)
    return None if refused is None else f"kernels of loops do not pool in {refused}"
