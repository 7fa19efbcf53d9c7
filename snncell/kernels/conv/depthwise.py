"""Depthwise convolutions: one input and one output channel per group, computed without copies of images.

`taps.py` computes the results of one channel of an image, or adds to its weight gradient. Sums have a fixed order, so
the bits do not depend on the number of threads.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from snncell.kernels.arrays import empty
from snncell.kernels.conv import taps as taps_of
from snncell.kernels.conv.planes import Axes, Shape, WeightOrder, flat
from snncell.kernels.conv.taps import Plane, Taps
from snncell.kernels.intrinsics.elements import row, tail
from snncell.kernels.intrinsics.panels import VECTOR
from snncell.kernels.numba.build import PARALLEL_WORK, grain_of, kernel_for

# --- Kernels ----------------------------------------------------------------------------------------------------------

# Functions that `taps.py` generates for one size of the window and one stride; `_kernel` inserts them.
correlate_plane: Any = None
add_taps: Any = None


def correlate_planes(
    start: Any, stop: Any, x: Any, weights: Any, places: Any, blank: Any, out: Any, geometry: Any
) -> None:
    """Compute results. A unit is one channel of an image."""
    groups, height, width, down = geometry[0], geometry[1], geometry[2], geometry[3]
    rows, columns, first, plane, pitch = geometry[4], geometry[5], geometry[6], geometry[7], geometry[8]
    for unit in range(start, stop):
        correlate_plane(
            tail(out, unit * plane + first), pitch, tail(x, unit * height * width), row(weights, unit % groups),
            tail(places, 0), tail(blank, 0), height, width, down, rows, columns,
        )  # fmt: skip


def contract_planes(
    start: Any, stop: Any, x: Any, gradient: Any, places: Any, blank: Any, partial: Any, geometry: Any
) -> None:
    """Compute the weight gradient. A unit is a channel of a range of images; its row of `partial` gets its sums."""
    groups, height, width, down = geometry[0], geometry[1], geometry[2], geometry[3]
    rows, columns, images, parts = geometry[4], geometry[5], geometry[6], geometry[7]
    for unit in range(start, stop):
        group, part = unit % groups, unit // groups
        first, end = part * images // parts, (part + 1) * images // parts
        member = first * groups + group
        add_taps(
            row(partial, unit), end - first, tail(gradient, member * rows * columns), groups * rows * columns,
            tail(x, member * height * width), groups * height * width, tail(places, 0), tail(blank, 0), height, width,
            down, rows, columns,
        )  # fmt: skip


Ints = tuple[int, ...]

UNITS = 16  # enough units to balance the load of threads
MOST_TAPS = 49  # code is generated for each tap
SMALL = 256  # the most pixels and the most results of an image in registers: 16 registers of AVX-512 in float32
MOST_PRODUCTS = 25 * SMALL  # of such an image, because code is generated for each vector of products


def supports(shape: Shape) -> bool:
    """Return True for one input and one output channel per group, windows of at most MOST_TAPS elements (7x7), and a
    stride and a step of results of at most 2 columns.
    """
    across = shape.axes[1]
    known = shape.channels == shape.outputs == 1 and math.prod(shape.window) <= MOST_TAPS
    return known and max(across.stride, across.step) <= 2


def _taps(shape: Shape, dtype: Any) -> Taps:
    across = shape.axes[1]
    wide = min(64, max(16, 1 << (across.results * dtype.itemsize - 1).bit_length()))
    rows, columns = shape.window
    return Taps((rows, columns), across.stride, across.step, wide)


def _operands(shape: Shape, dtype: Any) -> tuple[Any, Any]:
    """The places of the taps, and the zeros of a row outside of the image."""
    places = np.array([*shape.axes[0].places, *shape.axes[1].places], np.int64)
    return places, np.zeros(shape.axes[1].length, dtype)


def plane_of(phases: Sequence[tuple[Axes, Ints]], out: Ints) -> Plane | None:
    """The convolution if its images fit into registers, otherwise None. A phase has two axes and its taps."""
    image = tuple(axis.length for axis in phases[0][0])
    products = sum(len(taps) * down.results * across.results for (down, across), taps in phases)
    if max(math.prod(image), math.prod(out)) > SMALL or products > MOST_PRODUCTS:
        return None
    return Plane(image, out, tuple((taps, tuple(down), tuple(across)) for (down, across), taps in phases))


def correlate(x: Any, weights: Any, order: WeightOrder, out: Any, shape: Shape) -> None:
    """Compute results into `out`; the arguments are those of `direct._correlate`."""
    plane = None
    if math.prod(axis.results for axis in shape.axes) == math.prod(out.shape[2:]):
        plane = plane_of([(shape.axes, tuple(range(len(order.taps))))], out.shape[2:])
    own = flat(weights).reshape(shape.groups, -1)
    if order.taps != tuple(range(order.group)):
        own = np.take(own, order.taps, axis=1)
    kernel, *sizes, places, blank, geometry = _plan(shape, out.shape[2:], plane, x.dtype)
    kernel(*sizes, flat(x), own, places, blank, out.reshape(-1), geometry)


def correlate_phases(x: Any, weights: Any, out: Any, phases: Sequence[tuple[Shape, WeightOrder]]) -> bool:
    """Compute all phases of small images at once, for example an image gradient of stride 2; False for others."""
    if len(phases) < 2 or not all(supports(shape) for shape, _ in phases):
        return False
    plane = plane_of([(shape.axes, order.taps) for shape, order in phases], out.shape[2:])
    if plane is None:
        return False
    kernel, *sizes, places, blank, geometry = _plan(phases[0][0], out.shape[2:], plane, x.dtype)
    kernel(*sizes, flat(x), flat(weights).reshape(len(weights), -1), places, blank, out.reshape(-1), geometry)
    return True


@functools.lru_cache(maxsize=512)
def _plan(shape: Shape, out: Ints, plane: Plane | None, dtype: Any) -> tuple[Any, ...]:
    """The kernel for results, its units and their grain, and its arguments `places`, `blank` and `geometry`."""
    down, across = shape.axes
    height, width = out
    geometry = [
        *(shape.groups, down.length, across.length, down.stride, down.results, across.results),
        *(0 if plane else down.first * width + across.first, height * width, down.step * width),
    ]
    kernel = _kernel(correlate_planes, plane or _taps(shape, dtype), dtype)
    units = shape.images * shape.groups
    return kernel, units, _grain(shape, units), *_operands(shape, dtype), np.array(geometry, np.int64)


def contract(x: Any, dout: Any, out: Any, shape: Shape) -> None:
    """Compute the gradient of weights into `out`: see `direct.convolve_weight`."""
    plane = plane_of([(shape.axes, tuple(range(math.prod(shape.window))))], dout.shape[2:])
    kernel, (parts, lanes), *sizes, places, blank, geometry = _weight_plan(shape, plane, x.dtype)
    partial = empty((parts * shape.groups, math.prod(shape.window) * lanes), x.dtype)
    partial[...] = 0
    kernel(*sizes, flat(x), flat(dout), places, blank, partial, geometry)
    out[...] = partial.reshape(parts, *out.shape, lanes).sum((0, -1))


@functools.lru_cache(maxsize=512)
def _weight_plan(shape: Shape, plane: Plane | None, dtype: Any) -> tuple[Any, ...]:
    """The kernel for the weight gradient, the parts of the images, the lanes of a tap, and the rest as for `_plan`."""
    down, across = shape.axes
    taps = _taps(shape, dtype)
    parts = max(1, min(shape.images, -(-UNITS // shape.groups)))
    lengths = down.length, across.length, down.stride, down.results, across.results
    geometry = np.array([shape.groups, *lengths, shape.images, parts], np.int64)
    kernel, units = _kernel(contract_planes, plane or taps, dtype), parts * shape.groups
    lanes = (VECTOR if plane else taps.wide) // dtype.itemsize
    return kernel, (parts, lanes), units, _grain(shape, units), *_operands(shape, dtype), geometry


def _grain(shape: Shape, units: int) -> int:
    work = shape.images * shape.groups * math.prod(shape.window) * math.prod(axis.results for axis in shape.axes)
    return grain_of(units) if work > PARALLEL_WORK else 0


@functools.cache
def _kernel(function: Any, taps: Taps | Plane, dtype: Any) -> Any:
    small = isinstance(taps, Plane)
    if function is correlate_planes:
        kinds, name = "T[1] T[2] int64[1] T[1] T[1]* int64[1]", "correlate_plane"
        make = taps_of.correlation_of_plane if small else taps_of.correlation
    else:
        kinds, name = "T[1] T[1] int64[1] T[1] T[2]* int64[1]", "add_taps"
        make = taps_of.contraction_of_plane if small else taps_of.contraction
    return kernel_for(function, kinds, dtype, **{name: functools.partial(make, taps)})
