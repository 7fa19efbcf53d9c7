"""Which spikes come earlier and later than others, or than they should."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from snncell.errors import ArgumentError, ShapeError
from snncell.plot.axes import COLOURS, axes_or_new, label_axis, set_title, whole
from snncell.plot.rates import percent
from snncell.plot.sources import Array, as_array, find_spikes, one_layer


class Differences(NamedTuple):
    """Spike times of a minus those of b, in steps, pair by pair, and the parts of either's spikes without a partner."""

    steps: Array
    alone_a: float
    alone_b: float


def differences(
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
    spikes, other = find_spikes(a, who), as_array(b, who, "b")
    if other.shape not in (spikes.shape, spikes.shape[1:]) or spikes.ndim < 2:
        raise ShapeError(
            f"{who}: a has shape {spikes.shape}, (T, ...), so b has that shape, for spikes, or {spikes.shape[1:]}, "
            f"for times, not {other.shape}."
        )
    trains_a = _trains(spikes)
    trains_b = _trains(find_spikes(b, who)) if other.shape == spikes.shape else _single(other)
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
    pairs = differences(first, second, match=match, within=within, who=who)
    axes = axes_or_new(ax)
    wide = _draw_histogram(axes, pairs.steps)
    label_axis(axes.xaxis, f"{labels[0]} later than {labels[1]} by (steps)", "later by (steps)")
    label_axis(axes.yaxis, "pairs of spikes" if wide == 1 else f"pairs per {wide} steps", "pairs")
    median = f", median {np.median(pairs.steps):+g} steps" if len(pairs.steps) else ""
    alone = f"alone: {percent(pairs.alone_a)} % of {labels[0]}, {percent(pairs.alone_b)} % of {labels[1]}"
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
    whole(axes.xaxis)
    return wide


def _name_layers(x: Any) -> bool:
    return hasattr(x, "layers") or hasattr(x, "keys")
