"""Pictures of firing rates: over time (PSTH), over a layer, and the fractions of dead and saturated neurons."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from snncell.base.arguments.kinds import check_count
from snncell.errors import ArgumentError, ShapeError
from snncell.plot.axes import (
    SMALL,
    axes_or_new,
    axes_size,
    label_axis,
    label_time_axis,
    legend_label,
    marker,
    name_rows,
    panel_size,
    series_style,
    set_title,
    text_width,
)
from snncell.plot.legends import legend
from snncell.plot.sources import Array, ClassRows, as_spikes, group_rows, one_layer, spiking_layers, step_numbers

# --- over time --------------------------------------------------------------------------------------------------------


def psth(
    spikes: Any,
    ax: Any = None,
    title: str | None = None,
    *,
    width: int = 1,
    layer: str | None = None,
    classes: Any = None,
) -> Any:
    """The peri-stimulus time histogram: spikes per neuron and step, over time, with its standard error as a band.

    A bin of `width` steps shows r = (number of spikes in it) / (rows * steps in it); the band is r +- s / sqrt(rows),
    s the standard deviation of the rows' own r. Rows are the neurons of (T, N), and the samples of (T, B, ...).

    Args:
        spikes: (T, N) or (T, B, ...), or a monitor; every element that is not 0 is a spike.
        ax: the Axes to draw on; a new one if it is left out.
        title: above it.
        width: of a bin, in steps; the last bin may be shorter.
        layer: which one of a monitor's, or of a mapping's.
        classes: a label for each row; each class gets a line of its own.

    Raises:
        ShapeError: if spikes have fewer than two axes, or if there are not as many classes as rows.
        ArgumentError: if width is no integer of at least 1, for an array without elements, or for a layer that is
            unknown or does not fire.
    """
    name, array = one_layer(spikes, "spikes", layer, "psth")
    rows = rows_of(as_spikes(array, "psth"), "psth")
    groups = group_rows(classes, rows.shape[1], "psth", "neurons" if array.ndim == 2 else "samples")
    edges = bins_of(step_numbers(spikes, name, len(rows), "spikes"), width, "psth")
    axes = axes_or_new(ax)
    draw_psth(axes, rows, edges, width, groups, band=True)
    label_time_axis(axes)
    if len(groups) > 1:
        legend(axes)
    set_title(axes, title)
    return axes


def rows_of(spikes: Array, who: str) -> Array:
    """(T, N) as it is, (T, B, ...) as the means of its samples, (T, B)."""
    _has_rows(spikes, who)
    return spikes if spikes.ndim == 2 else spikes.reshape(*spikes.shape[:2], -1).mean(2)


def _has_rows(spikes: Array, who: str) -> None:
    if spikes.ndim < 2:
        raise ShapeError(f"{who}: takes (T, N) or (T, B, ...), not shape {spikes.shape}. One neuron: x[:, None].")
    if spikes.size == 0:
        raise ArgumentError(f"{who}: an array of shape {spikes.shape} holds nothing to count spikes in.")


def bins_of(steps: Array, width: int, who: str) -> Array:
    """The edges of bins of `width` recorded steps: half a step before the first step of each, and after the last."""
    check_count(width, who, "a bin's width in steps")
    stride = steps[1] - steps[0] if len(steps) > 1 else 1
    return np.append(steps[::width], steps[-1:] + stride) - 0.5 * stride


def bin_rows(rows: Array, width: int) -> Array:
    """The means of bins of `width` steps: (T, N) -> (bins, N); the last bin may be shorter."""
    starts = np.arange(0, len(rows), width)
    if not len(starts):
        return np.zeros((0, rows.shape[1]))
    counts = np.diff(np.append(starts, len(rows)))
    sums: Array = np.add.reduceat(rows.astype(np.float64), starts, axis=0)
    return sums / counts[:, None]


def draw_psth(axes: Any, rows: Array, edges: Array, width: int, groups: list[ClassRows], band: bool = False) -> None:
    """A line of steps for each group: the mean of its rows, in bins."""
    for number, (name, members) in enumerate(groups):
        each = bin_rows(rows[:, members], width)
        rate = each.mean(1) if len(members) else np.zeros(len(each))
        style = series_style(number)
        axes.stairs(rate, edges, label=legend_label(name), linewidth=1.2, baseline=None, **style)
        if band and len(members) > 1:
            error = each.std(1, ddof=1) / np.sqrt(len(members))
            options = {"fill": True, "alpha": 0.2, "color": style["color"], "linewidth": 0}
            axes.stairs(rate + error, edges, baseline=rate - error, **options)
    axes.set_ylim(bottom=0.0)
    axes.set_xlim(edges[0], edges[-1])
    label_axis(axes.yaxis, "spikes per\nneuron and step", "spikes\nper step", "rate")


# --- over a layer -----------------------------------------------------------------------------------------------------


def rates_of(spikes: Array, who: str) -> Array:
    """Spikes per step of each neuron, over all samples: (T, N) or (T, B, ...) -> (N,)."""
    array = as_spikes(spikes, who)
    _has_rows(array, who)
    means: Array = array.mean(0) if array.ndim == 2 else array.mean((0, 1)).reshape(-1)
    return means


def firing_rates(spikes: Any, ax: Any = None, title: str | None = None, *, bins: int = 20) -> Any:
    """Draw the distribution of the firing rates of each layer's neurons, with an upright line at the median of each.

    The rate of a neuron is its number of spikes / (steps * samples), between 0 and 1. A bin shows the fraction of its
    layer's neurons, so that layers of different sizes can be compared.

    Args:
        spikes: a monitor, whose layers that fire are drawn, a mapping from names to arrays, or one array, (T, N) or
            (T, B, ...); every element that is not 0 is a spike.
        ax: the Axes to draw on; a new one if it is left out.
        title: above it.
        bins: how many, from 0 to the highest rate of all layers.

    Raises:
        ArgumentError: if there are no layers, none that fires or nothing in one, or if bins is no integer of at least
            1.
        ShapeError: if an array has fewer than two axes.
    """
    rates = {name: rates_of(array, "firing_rates") for name, array in spiking_layers(spikes, "firing_rates").items()}
    check_count(bins, "firing_rates", "bins")
    from matplotlib.lines import Line2D

    axes = axes_or_new(ax, height=2.0 + 0.15 * len(rates))  # a line of the legend for each
    edges = np.linspace(0.0, max(float(rate.max()) for rate in rates.values()) or 1.0, bins + 1)
    keys, peak = [], 0.0
    for number, (name, rate) in enumerate(rates.items()):
        style = series_style(number)
        heights = np.histogram(rate, edges)[0] / rate.size
        median = float(np.median(rate))
        label = f"{name or 'all'}: median {median:.3g}"
        axes.stairs(heights, edges, linewidth=1.2, **style)
        # Up to the outline, where the eye finds it: a median between bins has the height of the bin it falls in.
        height = heights[min(int(np.searchsorted(edges, median, "right")) - 1, bins - 1)]
        look = {"marker": marker(number), "markersize": 5, "markevery": [1], "clip_on": False, "linewidth": 0.8}
        axes.plot([median, median], [0.0, height], label="_median", **look, **style)
        keys.append(Line2D([], [], label=legend_label(label), linewidth=1.2, **style))
        peak = max(peak, float(heights.max()))
    _headroom(axes, peak, len(rates))
    label_axis(axes.xaxis, "spikes per neuron and step", "spikes per step")
    label_axis(axes.yaxis, "fraction of neurons", "fraction")
    legend(axes, keys)
    set_title(axes, title)
    return axes


def _headroom(axes: Any, peak: float, lines: int) -> None:
    """Room for the key above the highest bin, so that it is free however narrow a layout makes the Axes."""
    points = axes_size(axes)[1]
    above = min((1.5 * lines + 1.5) * SMALL, 0.4 * points)
    axes.set_ylim(0.0, peak * points / (points - above))
    ticks = axes.get_yticks()
    if ticks[-1] > 1.0:  # there are no more than all neurons
        top = axes.get_ylim()
        axes.set_yticks(ticks[ticks <= 1.0])
        axes.set_ylim(top)


# --- never and always -------------------------------------------------------------------------------------------------


class Fractions(NamedTuple):
    """The fractions of a layer's neurons that are dead, healthy and saturated; they add up to 1."""

    dead: float
    healthy: float
    saturated: float


def fractions(spikes: Any, dead: float = 0.0, saturated: float = 0.95, who: str = "fractions") -> dict[str, Fractions]:
    """For each layer, the fractions of its neurons that are dead, healthy and saturated.

    With r a neuron's number of spikes / (steps * samples): it is dead if r <= dead, saturated if r >= saturated, and
    healthy otherwise.
    """
    if not 0.0 <= dead < saturated <= 1.0:
        raise ArgumentError(
            f"{who}: rates are spikes per step, so 0 <= dead < saturated <= 1; dead is {dead!r}, saturated "
            f"{saturated!r}."
        )
    by_layer = {}
    for name, array in spiking_layers(spikes, who).items():
        rate = rates_of(array, who)
        low, high = float((rate <= dead).mean()), float((rate >= saturated).mean())
        by_layer[name] = Fractions(low, float(((rate > dead) & (rate < saturated)).mean()), high)
    return by_layer


_THICKEST = 24.0  # points, of a bar

# Dead neurons are dark and saturated ones hatched, so that both stand out from the light rest in grey.
_BARS = {
    "dead": {"facecolor": "#0072B2", "hatch": ""},
    "healthy": {"facecolor": "#F0F0F0", "hatch": ""},
    "saturated": {"facecolor": "#E69F00", "hatch": "////"},
}


def dead_and_saturated(
    spikes: Any, ax: Any = None, title: str | None = None, *, dead: float = 0.0, saturated: float = 0.95
) -> Any:
    """For each layer a bar: which part of its neurons never fires, which fires at (almost) every step, and the rest.

    With r a neuron's number of spikes / (steps * samples) in what was recorded: it is dead if r <= dead, saturated if
    r >= saturated, and healthy otherwise. The numbers beside a bar are these parts in percent: dead /
    healthy / saturated. A panel that is narrower than two inches has none.

    Args:
        spikes: a monitor, whose layers that fire are drawn, a mapping from names to arrays, or one array, (T, N) or
            (T, B, ...); every element that is not 0 is a spike.
        ax: the Axes to draw on; a new one if it is left out.
        title: above it.
        dead: the highest rate of a dead neuron.
        saturated: the lowest rate of a saturated one.

    Raises:
        ArgumentError: if there are no layers, none that fires or nothing in one, or unless 0 <= dead < saturated <= 1.
        ShapeError: if an array has fewer than two axes.
    """
    by_layer = fractions(spikes, dead, saturated, "dead_and_saturated")
    axes = axes_or_new(ax, height=1.2 + 0.22 * len(by_layer))
    beside, thick = _head(axes, list(by_layer.values()))
    left = np.zeros(len(by_layer))
    for part, look in _BARS.items():
        lengths = np.array([getattr(layer, part) for layer in by_layer.values()])
        style = {"height": thick, "edgecolor": "0.2", "linewidth": 0.6, **look}
        axes.barh(np.arange(len(by_layer)), lengths, left=left, label=part, **style)
        left += lengths
    name_rows(axes, np.arange(len(by_layer)), [name or "all" for name in by_layer])
    axes.set_xlim(0.0, 1.0)
    label_axis(axes.xaxis, "fraction of neurons", "fraction")
    legend(axes, beside=beside)
    set_title(axes, title)
    return axes


def _head(axes: Any, layers: list[Fractions]) -> tuple[float, float]:
    """The first layer on top; above it room for the key; beside the bars what they are in percent.

    In a narrow panel the bars need all of it. Gives the width of what stands beside them, in points, and how thick a
    bar is, in rows: a single one does not fill the panel.
    """
    high = 4.0 * SMALL  # points: two lines
    rows = max(axes_size(axes)[1] - high, high)  # points
    free = len(layers) * high / rows  # in rows
    thick = min(0.7, _THICKEST * len(layers) / rows)
    axes.set_ylim(len(layers) - 0.5, -0.5 - free)
    if panel_size(axes)[0] < 2 * 72:
        return 0.0, thick
    said = [" / ".join(map(whole_percent, layer)) + " %" for layer in layers]
    for row, text in enumerate(said):
        options = {"xytext": (4, 0), "textcoords": "offset points", "va": "center", "fontsize": SMALL}
        axes.annotate(text, (1.0, row), **options)
    return 4.0 + max(text_width(text, SMALL) for text in said), thick


def whole_percent(part: float) -> str:
    """A fraction in whole percent; what is not quite 0 or 100 does not look like it."""
    if 0.0 < part < 0.005:
        return "<1"
    return ">99" if 0.995 <= part < 1.0 else f"{100 * part:.0f}"
