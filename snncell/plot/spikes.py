"""Pictures of spike times: a raster, and the differences between two recordings."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from snncell.errors import ArgumentError, ShapeError
from snncell.plot.axes import (
    COLOURS,
    LARGE,
    array_with_axes,
    axes_or_new,
    axes_size,
    has_formula,
    label_axis,
    label_time_axis,
    panel_size,
    refuse_colour,
    series_style,
    set_title,
    whole_ticks,
)
from snncell.plot.rates import bins_of, draw_psth, whole_percent
from snncell.plot.sources import (
    Array,
    ClassRows,
    all_there,
    as_array,
    as_spikes,
    choose_rows,
    group_rows,
    is_monitor,
    neuron_numbers,
    one_layer,
    step_numbers,
    steps_before_end,
)

# --- raster -----------------------------------------------------------------------------------------------------------

_MARKS = (("|", 1.0), ("x", 0.3), ("o", 0.15), ("+", 0.5))  # of classes, with areas that look alike


def raster(
    spikes: Any,
    ax: Any = None,
    title: str | None = None,
    colour: str = COLOURS[0],
    *,
    layer: str | None = None,
    sample: int | None = None,
    neuron: int | None = None,
    classes: Any = None,
    psth: int | None = None,
) -> Any:
    """A raster: a mark for every spike, time to the right, neurons upwards; with `neuron`, samples upwards.

    Args:
        spikes: (T, N), (T, B, ...) with `sample` or `neuron`, or a monitor; every element that is not 0 is a spike.
        ax: the Axes to draw on; a new one if it is left out.
        title: above it; left out, the name of the layer and the number of spikes.
        colour: of the marks, where there are no classes.
        layer: which one of a monitor's, or of a mapping's.
        sample: which one of a batch, whose neurons are the rows; a monitor's first if it is left out.
        neuron: which one, by its number in the layer, if the rows are to be samples.
        classes: a label for each row; rows of a class stand together, with its name at the side.
        psth: draw a histogram in bins of so many steps (`psth`) into the lower part of the Axes' place, as the last
            Axes of its figure; with classes, the lines of it stand beside the rows.

    Raises:
        ShapeError: for another number of axes, or if there are not as many classes as rows.
        ArgumentError: for a sample, neuron, layer or bins that do not exist, a layer that does not fire, or NaN.
    """
    name, array = one_layer(spikes, "spikes", layer, "raster")
    sample = 0 if is_monitor(spikes) and sample is None and neuron is None else sample
    numbers = neuron_numbers(spikes, name, int(np.prod(array.shape[min(2, array.ndim - 1) :])))
    rows = choose_rows(array, sample, neuron, "raster", numbers)
    rows = as_spikes(array_with_axes(rows, 2, "raster", "(T, N)"), "raster")
    what = "neuron" if neuron is None else "sample"
    groups = group_rows(classes, rows.shape[1], "raster", f"{what}s")
    steps = step_numbers(spikes, name, len(rows), "spikes")
    edges = None if psth is None else bins_of(steps, psth, "raster")
    axes = axes_or_new(ax, height=max(2.2, 0.6 + 0.15 * len(groups)) + (0.8 if psth else 0.0))
    _draw_raster(axes, rows, steps, groups, colour)
    label_time_axis(axes)
    if neuron is None and classes is None:
        _number_rows(axes, numbers)
    label_axis(axes.yaxis, *([what] if classes is None else [f"{what}s by class", f"{what}s"]))
    if edges is not None and psth is not None:
        _append_psth(axes, rows, edges, psth, groups)
    said = _say_count(rows, steps_before_end(spikes, name), sample, what)
    set_title(axes, title, f"{name}: {said}" if name else said)
    return axes


def _say_count(rows: Array, live: Array | None, sample: int | None, what: str) -> str:
    """The number of spikes, and the rate over the steps (T, B) that are no padding."""
    count, size = int(rows.sum()), rows.size
    if live is not None:
        size = int(live.sum()) if sample is None else int(live[:, sample].sum()) * rows.shape[1]
    return f"{count} spikes, {count / max(size, 1):.3f} per {what} and step"


def _number_rows(axes: Any, numbers: Array) -> None:
    """Call the rows by the numbers of their neurons, where these are others than those of the rows."""
    if not all_there(numbers):
        axes.yaxis.set_major_formatter(lambda row, _: str(numbers[int(row)]) if row in range(len(numbers)) else "")


def _draw_raster(axes: Any, rows: Array, steps: Array, groups: list[ClassRows], colour: str) -> None:
    refuse_colour(colour, "raster")
    count = max(rows.shape[1], 1)
    points = 0.7 * panel_size(axes)[1] / count  # that a row is high
    area = float(np.clip(0.8 * points, 1.5, 8.0)) ** 2
    thick = float(np.clip(120 / max(len(rows), 1), 0.4, 1.2))
    bottom = 0
    for number, (_, members) in enumerate(groups):
        at, row = np.nonzero(rows[:, members])
        colour = colour if len(groups) == 1 else COLOURS[number % len(COLOURS)]
        mark, part = _MARKS[number % len(_MARKS)] if points > 3 else _MARKS[0]
        # Above some number of marks a drawing of lines is larger than a picture of them.
        many = len(at) > 20_000
        axes.scatter(steps[at], row + bottom, s=part * area, c=colour, marker=mark, linewidths=thick, rasterized=many)
        bottom += len(members)
        if number < len(groups) - 1:
            axes.axhline(bottom - 0.5, color="0.6", linewidth=0.5)
    # A mark of the first and the last row is whole: one may be larger than its row, and the axis is a point thick.
    edge = max(0.75, (0.5 * math.sqrt(area) + 1.0) / points)
    axes.set_ylim(-edge, max(rows.shape[1], 1) - 1.0 + edge)
    whole_ticks(axes.yaxis)
    stride = steps[1] - steps[0] if len(steps) > 1 else 1
    first, last = (steps[0], steps[-1]) if len(steps) else (0, -1)
    axes.set_xlim(first - 0.5 * stride, last + 0.5 * stride)
    if len(groups) > 1 or groups[0].name:
        ends = np.cumsum([len(members) for _, members in groups])
        middles = [end - (len(members) + 1) / 2 for end, (_, members) in zip(ends, groups, strict=True)]
        every = math.ceil(8.5 * len(groups) / axes_size(axes)[1])  # more names do not fit
        names = [name for name, _ in groups][::every]
        axes.set_yticks(middles[::every], names, parse_math=has_formula(*names))
        axes.tick_params(axis="y", length=0)


def _append_psth(axes: Any, rows: Array, edges: Array, width: int, groups: list[ClassRows]) -> None:
    below = axes_or_new(_split(axes, (3, 1.2)))
    draw_psth(below, rows, edges, width, groups)
    label_axis(below.yaxis, "spikes\nper step", "rate")  # short, as the Axes is low
    below.set_xlabel(axes.get_xlabel(), fontsize=LARGE)
    axes.set_xlabel("")
    axes.tick_params(axis="x", labelbottom=False)
    if len(groups) > 1:
        _samples_beside(axes, groups)


def _samples_beside(axes: Any, groups: list[ClassRows]) -> None:
    """The key of the histogram: to the right of the rows of each class, a sample of its line."""
    from matplotlib.lines import Line2D

    bottom = 0
    for number, (_, members) in enumerate(groups):
        middle = bottom + (len(members) - 1) / 2
        place = {"transform": axes.get_yaxis_transform(), "clip_on": False, "linewidth": 1.2}
        axes.add_artist(Line2D([1.02, 1.1], [middle, middle], **place, **series_style(number)))
        bottom += len(members)


def _split(axes: Any, heights: tuple[float, float]) -> Any:
    """A new Axes in the lower part of the place of `axes`, which keeps the upper one; they share the time axis."""
    if (place := axes.get_subplotspec()) is not None:
        parts = place.subgridspec(2, 1, height_ratios=heights, hspace=0.12)
        axes.set_subplotspec(parts[0])
        return axes.figure.add_subplot(parts[1], sharex=axes)
    box = axes.get_position(original=True)
    low = box.height * heights[1] / (1.1 * sum(heights))
    axes.set_position([box.x0, box.y0 + 1.3 * low, box.width, box.height - 1.3 * low])
    return axes.figure.add_axes([box.x0, box.y0, box.width, low], sharex=axes)


# --- differences of spike times ---------------------------------------------------------------------------------------


class Differences(NamedTuple):
    """Spike times of a minus those of b, in steps, pair by pair, and the parts of either's spikes without a partner."""

    steps: Array
    alone_a: float
    alone_b: float


def time_differences(
    a: Any, b: Any, *, match: str = "first", within: float | None = None, who: str = "differences"
) -> Differences:
    """The differences in time between the spikes of two recordings of the same neurons.

    "first" compares the first spikes of each neuron in each sample. "all" compares pairs of spikes of the same neuron
    and sample, each of which is the other's nearest (the earlier one of two); see event synchronisation, R. Quian
    Quiroga, T. Kreuz, P. Grassberger, Phys. Rev. E 66, 041904 (2002).
    """
    if match not in ("first", "all"):
        raise ArgumentError(f'{who}: match is "first" or "all", not {match!r}.')
    if within is not None and not within >= 0:
        raise ArgumentError(f"{who}: within is a number of steps of at least 0, not {within!r}.")
    spikes, other = as_spikes(a, who), as_array(b, who, "b")
    if other.shape not in (spikes.shape, spikes.shape[1:]) or spikes.ndim < 2:
        raise ShapeError(
            f"{who}: a has shape {spikes.shape}, (T, ...), so b has that shape, for spikes, or {spikes.shape[1:]}, "
            f"for times, not {other.shape}."
        )
    trains_a = _trains(spikes)
    trains_b = _trains(as_spikes(b, who)) if other.shape == spikes.shape else _single(other)
    apart, count_a, count_b = [np.zeros(0)], 0, 0
    for left, right in zip(trains_a, trains_b, strict=True):
        if match == "first":
            left, right = left[:1], right[:1]
        count_a, count_b = count_a + len(left), count_b + len(right)
        apart.append(_pairs(left, right, np.inf if within is None else within))
    steps = np.concatenate(apart)
    alone_a, alone_b = ((count - len(steps)) / max(count, 1) for count in (count_a, count_b))
    return Differences(steps, alone_a, alone_b)


def _trains(spikes: Array) -> list[Array]:
    """The times of the spikes of each neuron of each sample."""
    flat = spikes.reshape(len(spikes), -1)
    column, step = np.nonzero(flat.T)
    return np.split(step.astype(np.float64), np.searchsorted(column, np.arange(1, flat.shape[1])))


def _single(times: Array) -> list[Array]:
    return [np.array([time]) if time >= 0 else np.zeros(0) for time in times.reshape(-1).astype(np.float64)]


def _pairs(a: Array, b: Array, within: float) -> Array:
    """The differences of those that are nearest to each other."""
    if not len(a) or not len(b):
        return np.zeros(0)
    apart = a[:, None] - b[None, :]
    nearest = np.abs(apart).argmin(1)
    mutual = np.abs(apart).argmin(0)[nearest] == np.arange(len(a))
    steps: Array = apart[np.arange(len(a)), nearest][mutual]
    return steps[np.abs(steps) <= within]


def spike_time_differences(
    a: Any,
    b: Any,
    ax: Any = None,
    title: str | None = None,
    *,
    match: str = "first",
    within: float | None = None,
    labels: tuple[str, str] = ("a", "b"),
    layer: str | None = None,
) -> Any:
    """Draw how much earlier or later the spikes of one recording are than those of another, or than their target times.

    Right of 0 the spikes of `a` are later. Without a `title` it says how many spikes have no partner at all: a narrow
    histogram says little where there are many of these.

    Args:
        a: (T, N) or (T, B, ...), or a monitor; every element that is not 0 is a spike.
        b: the same shape; or (N,) or (B, ...), target times in steps, NaN or below 0 where there should be no spike;
            or a monitor.
        ax: the Axes to draw on; a new one if it is left out.
        title: above it; left out, the numbers of pairs and of spikes without a partner.
        match: "first" compares first spikes, "all" each spike with the one of the same neuron and sample that is its
            nearest, if it is that one's nearest too.
        within: spikes farther apart than so many steps are no pair; None for any distance.
        labels: what to call a and b.
        layer: which one of a monitor's, or of a mapping's.

    Raises:
        ShapeError: if the shapes do not fit.
        ArgumentError: for another `match`, an unknown layer, or if `within` is below 0.
    """
    who = "spike_time_differences"
    first, second = (
        one_layer(x, "spikes", layer if _name_layers(x) else None, who, name)[1] for name, x in (("a", a), ("b", b))
    )
    pairs = time_differences(first, second, match=match, within=within, who=who)
    axes = axes_or_new(ax)
    wide = _draw_histogram(axes, pairs.steps)
    label_axis(axes.xaxis, f"{labels[0]} later than {labels[1]} by (steps)", "later by (steps)")
    label_axis(axes.yaxis, "pairs of spikes" if wide == 1 else f"pairs per {wide} steps", "pairs")
    median = f", median {np.median(pairs.steps):+g} steps" if len(pairs.steps) else ""
    alone = f"alone: {whole_percent(pairs.alone_a)} % of {labels[0]}, {whole_percent(pairs.alone_b)} % of {labels[1]}"
    set_title(axes, title, f"{len(pairs.steps)} pairs{median}\n{alone}")
    return axes


def _draw_histogram(axes: Any, steps: Array) -> int:
    """The steps that a bin is wide."""
    reach = max(3, int(np.ceil(np.abs(steps).max()))) if len(steps) else 3
    wide = -(-(2 * reach + 1) // 61) | 1  # no more than some 60 bins; odd, so that 0 is in the middle of one
    half = wide * (-(-reach // wide) + 0.5)
    edges = np.arange(-half, half + wide / 2, wide)
    heights = np.histogram(steps, edges)[0]
    axes.stairs(heights, edges, fill=True, facecolor=COLOURS[6], edgecolor=COLOURS[0], linewidth=0.6)
    axes.axvline(0.0, color=COLOURS[0], linestyle=(0, (4, 1.5)), linewidth=0.9)
    axes.set_xlim(edges[0], edges[-1])
    whole_ticks(axes.xaxis)
    return wide


def _name_layers(x: Any) -> bool:
    return hasattr(x, "layers") or hasattr(x, "keys")
