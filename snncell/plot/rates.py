"""Plots of spike statistics: firing rates, dead and saturated neurons, spike-timing errors."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from snncell.base.arguments.kinds import Count
from snncell.errors import ArgumentError, ShapeError
from snncell.plot import axes as drawing
from snncell.plot.axes import COLOURS, SMALL
from snncell.plot.sources import Array, as_array, as_spikes, check_rows, one_layer, spiking_layers


def _rates_by_layer(spikes: Any, who: str) -> dict[str, Array]:
    """Spikes per step of each neuron, over all samples, by layer: (T, N) or (T, B, ...) -> (N,)."""
    rates = {}
    for name, array in spiking_layers(spikes, who).items():
        rows = check_rows(as_spikes(array, who), who)
        rates[name] = rows.mean(0) if rows.ndim == 2 else rows.mean((0, 1)).reshape(-1)
    return rates


def firing_rates(spikes: Any, ax: Any = None, title: str | None = None, *, bins: Count = 20) -> Any:
    """Distribution of the firing rates of each layer's neurons, with a vertical line at each median.

    The rate of a neuron is its number of spikes / (steps * samples), between 0 and 1. A bin shows the fraction of the
    layer's neurons, so that you can compare layers of different sizes.

    Args:
        spikes: a monitor (only layers that fire are drawn), a mapping from names to arrays, or one array; nonzero
            elements of (T, N) or (T, B, ...) are spikes.
        ax, title: the Axes to draw on (new Axes by default), and the title.
        bins: the number of bins, from 0 to the highest rate of all layers.
    Raises: ArgumentError if no layer of the monitor fires.
    """
    rates = _rates_by_layer(spikes, "firing_rates")
    from matplotlib.lines import Line2D

    axes = drawing.axes_or_new(ax, height=2.0 + 0.15 * len(rates))  # one line of the legend per layer
    edges = np.linspace(0.0, max(float(rate.max()) for rate in rates.values()) or 1.0, bins + 1)
    keys, peak = [], 0.0
    for number, (name, rate) in enumerate(rates.items()):
        style = drawing.series_style(number)
        heights = np.histogram(rate, edges)[0] / rate.size
        median = float(np.median(rate))
        axes.stairs(heights, edges, linewidth=1.2, **style)
        # The line ends at the outline of the histogram, at the height of the bin that contains the median.
        height = heights[min(int(np.searchsorted(edges, median, "right")) - 1, bins - 1)]
        look = {"marker": drawing.marker(number), "markersize": 5, "markevery": [1], "clip_on": False, "linewidth": 0.8}
        axes.plot([median, median], [0.0, height], label="_median", **look, **style)
        label = drawing.legend_label(f"{name or 'all'}: median {median:.3g}")
        keys.append(Line2D([], [], label=label, linewidth=1.2, **style))
        peak = max(peak, float(heights.max()))
    _leave_headroom(axes, peak, len(rates))
    x, y = ("spikes per neuron and step", "spikes per step"), ("fraction of neurons", "fraction")
    return drawing.finish(axes, title, x, y, handles=keys)


def _leave_headroom(axes: Any, peak: float, lines: int) -> None:
    """Leave room for a legend of `lines` lines above the highest bin, even if a layout makes the Axes narrow."""
    points = drawing.axes_size(axes)[1]
    above = min((1.5 * lines + 1.5) * SMALL, 0.4 * points)
    axes.set_ylim(0.0, peak * points / (points - above))
    ticks = axes.get_yticks()
    if ticks[-1] > 1.0:  # a fraction cannot exceed 1
        top = axes.get_ylim()
        axes.set_yticks(ticks[ticks <= 1.0])
        axes.set_ylim(top)


class Fractions(NamedTuple):
    """The fractions of a layer's neurons that are dead, healthy and saturated; they add up to 1."""

    dead: float
    healthy: float
    saturated: float


def fractions(spikes: Any, dead: float = 0.0, saturated: float = 0.95, who: str = "fractions") -> dict[str, Fractions]:
    """The `Fractions` of each layer, with the limits of `dead_and_saturated`."""
    if not 0.0 <= dead < saturated <= 1.0:
        raise ArgumentError(
            f"{who}: rates are spikes per step, so 0 <= dead < saturated <= 1; dead is {dead!r}, saturated "
            f"{saturated!r}."
        )
    return {
        name: Fractions(*(float(part.mean()) for part in (r <= dead, (r > dead) & (r < saturated), r >= saturated)))
        for name, r in _rates_by_layer(spikes, who).items()
    }


_THICKEST = 24.0  # points, largest height of a bar

# Dead neurons are dark and saturated ones hatched, so that both stand out from the light rest in grey.
_BARS = {"dead": ("#0072B2", ""), "healthy": ("#F0F0F0", ""), "saturated": ("#E69F00", "////")}


def dead_and_saturated(
    spikes: Any, ax: Any = None, title: str | None = None, *, dead: float = 0.0, saturated: float = 0.95
) -> Any:
    """Fractions of dead, healthy and saturated neurons, one bar per layer.

    The rate r of a neuron is its number of spikes / (steps * samples). A neuron is dead if r <= dead, saturated if
    r >= saturated, and healthy otherwise. If the plot is at least two inches wide, percentages stand next to the bars.

    Args:
        spikes, ax, title: as for `firing_rates`.
        dead: the highest rate of a dead neuron. By default only neurons that never fire are dead.
        saturated: the lowest rate of a saturated neuron.
    """
    by_layer = fractions(spikes, dead, saturated, "dead_and_saturated")
    axes = drawing.axes_or_new(ax, height=1.2 + 0.22 * len(by_layer))
    places, left = np.arange(len(by_layer)), np.zeros(len(by_layer))
    high = 4.0 * SMALL  # points, room for two lines of the legend above the first layer
    rows = max(drawing.axes_size(axes)[1] - high, high)  # points
    thick = min(0.7, _THICKEST * len(by_layer) / rows)  # in rows, limited so that a single bar does not fill the panel
    axes.set_ylim(len(by_layer) - 0.5, -0.5 - len(by_layer) * high / rows)
    beside = 0.0  # points for the numbers next to the bars; a narrow panel has none
    if drawing.panel_size(axes)[0] >= 2 * 72:
        texts = [" / ".join(map(whole_percent, layer)) + " %" for layer in by_layer.values()]
        beside = 4.0 + max(drawing.text_width(text, SMALL) for text in texts)
        options: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": SMALL}
        for row, text in enumerate(texts):
            axes.annotate(text, (1.0, row), (4, 0), **options)
    style = {"height": thick, "edgecolor": "0.2", "linewidth": 0.6}
    for part, (colour, hatch) in _BARS.items():
        lengths = np.array([getattr(layer, part) for layer in by_layer.values()])
        axes.barh(places, lengths, left=left, label=part, facecolor=colour, hatch=hatch, **style)
        left += lengths
    drawing.name_rows(axes, places, [name or "all" for name in by_layer])
    axes.set_xlim(0.0, 1.0)
    return drawing.finish(axes, title, ("fraction of neurons", "fraction"), (), beside=beside)


def whole_percent(part: float) -> str:
    """A fraction in whole percent, with "<1" and ">99" instead of a rounded 0 or 100."""
    if 0.0 < part < 0.005:
        return "<1"
    return ">99" if 0.995 <= part < 1.0 else f"{100 * part:.0f}"


class Differences(NamedTuple):
    """Spike times of a minus those of b, in steps, and the fractions of the spikes of a and of b without a partner."""

    steps: Array
    alone_a: float
    alone_b: float


def time_differences(
    a: Any, b: Any, *, match: str = "first", within: float | None = None, who: str = "time_differences"
) -> Differences:
    """Differences in time between the spikes of two recordings of the same neurons.

    "first" compares the first spikes of each neuron in each sample. "all" pairs spikes of the same neuron and sample. A
    pair counts if each spike is the nearest one to the other; of two equally near spikes, the earlier one counts. See
    event synchronisation, R. Quian Quiroga, T. Kreuz, P. Grassberger, Phys. Rev. E 66, 041904 (2002).
    """
    if match not in ("first", "all"):
        raise ArgumentError(f'{who}: match must be "first" or "all", not {match!r}.')
    if within is not None and not within >= 0:
        raise ArgumentError(f"{who}: within must be a number of steps of at least 0, not {within!r}.")
    spikes, other = as_spikes(a, who), as_array(b, who, "b")
    if other.shape not in (spikes.shape, spikes.shape[1:]) or spikes.ndim < 2:
        raise ShapeError(
            f"{who}: a has shape {spikes.shape}, (T, ...), so b must have that shape, for spikes, or "
            f"{spikes.shape[1:]}, for times, not {other.shape}."
        )
    trains_a = _trains(spikes)
    if other.shape == spikes.shape:
        trains_b = _trains(as_spikes(b, who))
    else:  # target times
        times = other.reshape(-1).astype(np.float64)
        trains_b = [np.array([time]) if time >= 0 else np.zeros(0) for time in times]
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
    flat = spikes.reshape(len(spikes), -1)
    column, step = np.nonzero(flat.T)
    return np.split(step.astype(np.float64), np.searchsorted(column, np.arange(1, flat.shape[1])))


def _pairs(a: Array, b: Array, within: float) -> Array:
    """The differences of pairs that are each other's nearest."""
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
    """Spike-timing errors: a histogram of time differences between two recordings, or to target times.

    Positive differences mean that spikes of `a` are later. Spikes without a partner are not in the histogram. If many
    have none, a narrow histogram says little, so the default title counts these spikes.

    Args:
        a: spikes (T, N) or (T, B, ...), nonzero elements; or a monitor.
        b: the same; or target times in steps, (N,) or (B, ...), with NaN or a negative number for no spike.
        ax, title: the Axes to draw on (new Axes by default), and the title, by default counts of pairs and lone spikes.
        match: "first" for first spikes; "all" for spikes of the same neuron and sample that are each other's nearest.
        within: the largest distance of a pair in steps; None for any distance.
        labels: names of a and b.
        layer: the name of a layer, for monitors and mappings.
    """
    who = "spike_time_differences"
    first, second = (
        one_layer(x, "spikes", layer if hasattr(x, "layers") or hasattr(x, "keys") else None, who, name)[1]
        for name, x in (("a", a), ("b", b))
    )
    pairs = time_differences(first, second, match=match, within=within, who=who)
    axes = drawing.axes_or_new(ax)
    wide = _draw_histogram(axes, pairs.steps)
    x = f"{labels[0]} later than {labels[1]} by (steps)", "later by (steps)"
    y = "pairs of spikes" if wide == 1 else f"pairs per {wide} steps", "pairs"
    median = f", median {np.median(pairs.steps):+g} steps" if len(pairs.steps) else ""
    alone = f"alone: {whole_percent(pairs.alone_a)} % of {labels[0]}, {whole_percent(pairs.alone_b)} % of {labels[1]}"
    return drawing.finish(axes, title, x, y, f"{len(pairs.steps)} pairs{median}\n{alone}", handles=())


def _draw_histogram(axes: Any, steps: Array) -> int:
    """Draw the histogram of the differences, and return the width of a bin in steps."""
    reach = max(3, int(np.ceil(np.abs(steps).max()))) if len(steps) else 3
    wide = -(-(2 * reach + 1) // 61) | 1  # about 60 bins at most; an odd width, so that 0 is the centre of a bin
    half = wide * (-(-reach // wide) + 0.5)
    edges = np.arange(-half, half + wide / 2, wide)
    heights = np.histogram(steps, edges)[0]
    axes.stairs(heights, edges, fill=True, facecolor=COLOURS[6], edgecolor=COLOURS[0], linewidth=0.6)
    axes.axvline(0.0, color=COLOURS[0], linestyle=(0, (4, 1.5)), linewidth=0.9)
    axes.set_xlim(edges[0], edges[-1])
    drawing.whole_ticks(axes.xaxis)
    return wide
