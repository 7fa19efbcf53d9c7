"""Convolutions of spikes by their events: when they pay, and how the kernels of `cpu/conv_events.py` are told."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any, NamedTuple

import numpy as np

from snncell import dtype as dtypes
from snncell.kernels.arrays import ALIGNMENT, empty
from snncell.kernels.conv import event_lists, winograd
from snncell.kernels.conv.planes import LANES, Shape, Sizes, flat
from snncell.kernels.cpu.conv_events import convolve_events, correlate_events, weights_as_panels, weights_from_panels
from snncell.kernels.intrinsics.panels import VECTORS
from snncell.kernels.numba.build import build_function
from snncell.kernels.numba.launcher import parts_of
from snncell.kernels.products.csr import Rows

Ints = tuple[int, ...]

PARTS = 16  # of images, whose gradients are added up in order; where those are large, of channels
MOST_SLOPES = 1 << 18  # bytes of gradients of results that are near at once: a part of a second-level cache
MOST_PARTIAL = 1 << 20  # elements of the gradients of all parts
SAMPLES = 4096  # elements that are looked at for the density, in whole rows of images
# Cycles, fitted to times over densities and sizes: of a vector of sums, dense and of an event; of an event in a window,
# for each panel; of an element that the dense way copies, that is looked at, or that is moved between the two orders of
# channels and pixels.
DENSE, ADDED, EVENT, COPIED, LOOKED, MOVED = 0.9, 1.75, 1.7, 0.2, 1.0, 0.6
NEAR = 1 << 19  # bytes of a panel that stay in the second-level cache


class ConvolutionCosts(NamedTuple):
    """The costs that differ between results and gradients of weights.

    Attributes:
        pixel: cycles of a pixel of the results, for each panel.
        far: how many times as long a vector takes where a panel is larger than NEAR.
    """

    pixel: float
    far: float


OF_RESULTS, OF_WEIGHTS = ConvolutionCosts(60.0, 2.0), ConvolutionCosts(0.0, 1.35)


class Grid(NamedTuple):
    """The pixels of the results, with room around them, and where the windows are that an element of an image is in.

    Attributes:
        bases: for each element of an image, the first pixel of the grid that it may be for.
        phases: its place in a stride.
        firsts: for each place in a stride, the number of its first tap; and of all taps.
        offsets: for each tap, how far from the base the pixel is.
        taps: which element of the window it is.
        size, pitch, corner: pixels of the grid, of one of its rows, and before the first result.
    """

    bases: Any
    phases: Any
    firsts: Any
    offsets: Any
    taps: Any
    size: int
    pitch: int
    corner: int


@functools.lru_cache(maxsize=256)
def _grid_of(sizes: Sizes) -> Grid:
    lengths, size, stride, dilation, before, _ = sizes
    lows, highs = [], []
    for n, own, s, d, low, many in zip(*sizes, strict=True):
        # Along an axis, element y is in the windows of results q with q stride + k dilation = y + before.
        ends = np.arange(n)[:, None] + low - np.arange(own) * d
        results = ends[ends % s == 0] // s
        lows.append(int(results.min(initial=0)))
        highs.append(int(results.max(initial=many - 1)) + 1)
    rows, pitch = (high - low for high, low in zip(highs, lows, strict=True))
    shifts, within, starts = [], [], [0]
    for a, b in itertools.product(*(range(s) for s in stride)):
        down, across = (
            [((p + low - k * d) // s, k) for k in range(own) if (p + low - k * d) % s == 0]
            for p, own, s, d, low in zip((a, b), size, stride, dilation, before, strict=True)
        )
        pairs = [(i * pitch + j, k * size[1] + m) for i, k in down for j, m in across]
        shifts += [i - lows[0] * pitch - lows[1] for i, _ in pairs]
        within += [tap for _, tap in pairs]
        starts.append(len(within))
    y, x = np.indices(lengths).reshape(2, -1)
    bases, phases = y // stride[0] * pitch + x // stride[1], y % stride[0] * stride[1] + x % stride[1]
    corner = -lows[0] * pitch - lows[1]
    firsts, offsets, taps = (np.array(numbers, np.int64) for numbers in (starts, shifts, within))
    return Grid(bases, phases, firsts, offsets, taps, rows * pitch, pitch, corner)


@functools.lru_cache(maxsize=256)
def _pieces_of(sizes: Sizes) -> tuple[Any, int, int]:
    """The rows of a window and the parts of a row, as `cpu/conv_events.py` takes them, and how many there are."""
    (rows, columns), (down, across), (top, left) = sizes.window, sizes.dilation, sizes.before
    length = columns if across == 1 else 1
    lines = [(k * down - top, k * columns) for k in range(rows)]
    parts = [(k * across - left, k, length) for k in range(0, columns, length)]
    return np.array([*itertools.chain(*lines, *parts)], np.int64), len(lines), len(parts)


def pay(x: Any, shape: Shape, costs: ConvolutionCosts = OF_RESULTS) -> bool:
    """True if images have so few elements that are not zero that their events are less work than all of them."""
    below = limit(shape, max(4, x.dtype.itemsize), costs) if x.size else 0.0  # bytes become floats
    if below <= 0 or isinstance(x, Rows):
        return below > 0 and x.density < below
    rows = x.reshape(-1, x.shape[-1])
    some = rows[:: max(1, rows.size // SAMPLES)]
    return bool(np.count_nonzero(some) < below * some.size)


@functools.lru_cache(maxsize=512)
def limit(shape: Shape, itemsize: int, costs: ConvolutionCosts = OF_RESULTS) -> float:
    """The part of the elements of images, at most, that may not be zero if events are to pay; not above 0 if never."""
    images, _, channels, own, (down, across) = shape
    pixels, results = down.length * across.length, down.results * across.results
    terms = channels * math.prod(shape.window)
    vectors, panels = -(-own // LANES), -(-own // (VECTORS * LANES))
    # For each image and group. The dense way has windows at the border reach beyond it.
    reach = math.prod(axis.results + size - 1 for axis, size in zip((down, across), shape.window, strict=True))
    dense = terms * own / LANES * reach * DENSE + (channels * pixels + own * results) * COPIED
    if winograd.pays(shape):
        dense = min(dense, winograd.cycles(shape))
    fixed = (
        (own * results + own * terms / max(1, images)) * MOVED
        + channels * pixels * LOOKED
        + results * panels * costs.pixel
    )
    far = costs.far if terms * min(own, VECTORS * LANES) * itemsize > NEAR else 1
    each = terms * results * (EVENT * panels + ADDED * far * vectors)
    return float((dense - fixed) / each) if each else 0.0


def convolve(x: Any, weight: Any, out: Any, sizes: Sizes, groups: int) -> None:
    """Put into `out` the convolution of images, which may be of bytes or Rows, by their events."""
    kind = dtypes.BY_NUMPY[out.dtype]
    outputs, terms, pixels = len(weight) // groups, math.prod(weight.shape[1:]), math.prod(x.shape[2:])
    panels = empty((groups, terms * _width(outputs, out)), out.dtype)
    units = groups * -(-terms // _lanes(out))
    geometry = _numbers(groups, outputs, terms, weight.shape[1])
    _kernel(weights_as_panels, kind)(units, int(panels.size > 1 << 18), flat(weight), panels, geometry)
    pieces, rows, in_row = _pieces_of(sizes)
    room = weight.shape[1] * pixels + LANES
    geometry = _numbers(
        *(groups, outputs, terms, weight.shape[1], 0, *sizes.lengths, sizes.results[1], math.prod(sizes.results)),
        *(*sizes.stride, room, rows, in_row),
    )
    grain, parts = parts_of(len(x) * groups)
    near = 2 * rows + terms + LANES
    spikes, listed = _operands(x, out)
    _kernel(convolve_events, kind, dtypes.BY_NUMPY[spikes[0].dtype], listed)(
        len(x) * groups, grain if parts > 1 else 0, grain, *spikes, panels, np.arange(pixels), pieces,
        out.reshape(-1), empty((parts, 3 * room + pixels + 1 + near), np.dtype(np.int32)),
        empty((parts, 2 * room + near), out.dtype), geometry,
    )  # fmt: skip


def convolve_weight(x: Any, dout: Any, out: Any, sizes: Sizes, groups: int) -> None:
    """Put into `out` the gradient of the weight, by the events of the images, which may be of bytes or Rows."""
    channels, outputs, terms = x.shape[1] // groups, len(out) // groups, math.prod(out.shape[1:])
    width, pixels = _width(outputs, out), math.prod(x.shape[2:])
    units = max(1, min(len(x), PARTS, MOST_PARTIAL // (groups * terms * width)))
    split_channels = -(-channels // min(channels, -(-PARTS // units)))
    splits = -(-channels // split_channels)
    grid = _grid_of(sizes)
    step, phases = min(width, _panel(out)), len(grid.firsts) - 1
    together = max(1, min(-(-len(x) // units), MOST_SLOPES // (grid.size * step * out.itemsize)))
    room = together * split_channels * pixels + LANES
    geometry = _numbers(
        *(groups, outputs, terms, channels, terms * width, pixels, grid.size, grid.pitch, grid.corner),
        *(sizes.results[1], math.prod(sizes.results), len(x), units, split_channels, together, phases, room, step),
    )
    kind = dtypes.BY_NUMPY[out.dtype]
    grain, parts = parts_of(units * splits)
    partial = empty((units, groups * terms * width + LANES), out.dtype)
    spikes, listed = _operands(x, out)
    _kernel(correlate_events, kind, dtypes.BY_NUMPY[spikes[0].dtype], listed)(
        units * splits, grain if parts > 1 else 0, grain, *spikes, flat(dout), grid.phases, grid.bases, grid.firsts,
        grid.offsets, grid.taps, partial, empty((parts, together * grid.size * step + LANES), out.dtype),
        empty((parts, 3 * room + split_channels * phases + 1 + LANES), np.dtype(np.int32)),
        empty((parts, 2 * room), out.dtype), geometry,
    )  # fmt: skip
    units = groups * -(-terms // _lanes(out))
    _kernel(weights_from_panels, kind)(units, int(partial.size > 1 << 18), partial, out.reshape(-1), geometry)


_NOTHING = np.zeros(1, np.int64), np.zeros(1, np.int32)


def _operands(x: Any, out: Any) -> tuple[tuple[Any, Any, Any], bool]:
    """Images as the kernels take them: elements, or the values of events, where they begin and what they are of."""
    if not isinstance(x, Rows):
        return (flat(x), *_NOTHING), False
    return ((x if x.dtype in dtypes.BYTES else x.astype(out.dtype)).values, x.starts, x.places), True


def _numbers(*numbers: int) -> Any:
    """The `geometry` that the kernels take."""
    return np.array(numbers, np.int64)


def _lanes(out: Any) -> int:
    """The elements of a vector."""
    return int(ALIGNMENT // out.itemsize)


def _width(outputs: int, out: Any) -> int:
    """As many outputs as whole vectors have."""
    return -(-outputs // _lanes(out)) * _lanes(out)


def _panel(out: Any) -> int:
    """The outputs of a panel."""
    return VECTORS * _lanes(out)


@functools.cache
def _kernel(function: Any, dtype: Any, spikes: Any = None, listed: bool = False) -> Any:
    """One of the kernels of `cpu/conv_events.py`, compiled for arrays of `dtype`, and images of `spikes`.

    If `listed`, the events of the images are known.
    """
    lanes = ALIGNMENT // dtype.itemsize
    line, to_line, rows, to_rows = (dtype, 1, False), (dtype, 1, True), (dtype, 2, False), (dtype, 2, True)
    numbers, to_numbers = (dtypes.int64, 1, False), (dtypes.int32, 2, True)
    images = (spikes, 1, False), numbers, (dtypes.int32, 1, False)
    signature = {
        weights_as_panels: (line, to_rows, numbers),
        convolve_events: (
            dtypes.int64,
            *images,
            rows,
            *[numbers] * 2,
            to_line,
            to_numbers,
            to_rows,
            numbers,
        ),
        correlate_events: (
            *(dtypes.int64, *images, line, *[numbers] * 5, to_rows, to_rows, to_numbers, to_rows, numbers),
        ),
        weights_from_panels: (rows, to_line, numbers),
    }[function]
    given: dict[str, Any] = {"LANES": lanes, "WIDTH": VECTORS * lanes}
    if listed:
        given["list_events"] = event_lists.take_events
    return build_function(function, signature, **given)
