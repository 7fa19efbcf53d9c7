"""Spikes and membrane potentials over time."""

from __future__ import annotations

from typing import Any

import numpy as np

from snncell.errors import ArgumentError, ShapeError
from snncell.plot.axes import COLOURS, LARGE, array_of, axes_or_new, extent, legend, series, titled, whole, whole_steps
from snncell.plot.groups import Group, groups_of
from snncell.plot.rates import bins_of, draw_psth
from snncell.plot.sources import Array, as_array, fired, fires, is_monitor, numbers_of, one_layer, steps_of

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
        title: above it, before the number of spikes.
        colour: of the marks, where there are no classes.
        layer: which one of a monitor's, or of a mapping's.
        sample: which one of a batch, whose neurons are the rows; a monitor's first if it is left out.
        neuron: which one, by its number in the layer, if the rows are to be samples.
        classes: a label for each row; rows of a class stand together, with its name at the side.
        psth: draw a histogram in bins of so many steps (`psth`) into the lower part of the Axes' place, as the last
            Axes of its figure.

    Raises:
        ShapeError: for another number of axes, or if there are not as many classes as rows.
        ArgumentError: for a sample, neuron, layer or bins that do not exist, a layer that does not fire, or NaN.
    """
    name, array = one_layer(spikes, "spikes", layer, "raster")
    sample = 0 if is_monitor(spikes) and sample is None and neuron is None else sample
    numbers = numbers_of(spikes, name, int(np.prod(array.shape[min(2, array.ndim - 1) :])))
    rows = fired(array_of(_chosen(array, sample, neuron, "raster", numbers), 2, "raster", "(T, N)"), "raster")
    what = "neuron" if neuron is None else "sample"
    groups = groups_of(classes, rows.shape[1], "raster", f"{what}s")
    steps = steps_of(spikes, name, len(rows), "spikes")
    edges = None if psth is None else bins_of(steps, psth, "raster")
    axes = axes_or_new(ax, height=max(2.2, 0.6 + 0.15 * len(groups)) + (0.8 if psth else 0.0))
    _draw_raster(axes, rows, steps, groups, colour)
    whole_steps(axes)
    if neuron is None and classes is None:
        _number_rows(axes, numbers)
    axes.set_ylabel(what if classes is None else f"{what}s by class")
    if edges is not None and psth is not None:
        _append_psth(axes, rows, edges, psth, groups)
    count = int(rows.sum())
    head = title or name
    titled(axes, f"{head + ': ' if head else ''}{count} spikes, {count / max(rows.size, 1):.3f} per {what} and step")
    return axes


def _number_rows(axes: Any, numbers: Array) -> None:
    """Call the rows by the numbers of their neurons, where these are others than those of the rows."""
    if not _all_there(numbers):
        axes.yaxis.set_major_formatter(lambda row, _: str(numbers[int(row)]) if row in range(len(numbers)) else "")


def _chosen(array: Array, sample: int | None, neuron: int | None, who: str, numbers: Any = ()) -> Array:
    """Of (T, B, ...): a sample's neurons, or a neuron's samples; what has no choice made stays as it is."""
    if sample is None and neuron is None:
        return array
    if sample is not None and neuron is not None:
        raise ArgumentError(f"{who}: sample={sample} and neuron={neuron} leave one row; choose one of the two.")
    if array.ndim < 3:
        raise ShapeError(f"{who}: sample and neuron choose from (T, B, ...), not from shape {array.shape}.")
    flat = array.reshape(*array.shape[:2], -1)
    if neuron is not None:
        return flat[:, :, _places(neuron, numbers, who)[0]]
    count = flat.shape[1]
    if not isinstance(sample, (int, np.integer)) or not -count <= sample < count:
        raise ArgumentError(f"{who}: there is no sample {sample!r}; there are {count}, from 0.")
    return flat[:, sample]


def _places(wanted: Any, numbers: Array, who: str) -> list[int]:
    """Where neurons are among those that are there, by their numbers in the layer."""
    held, count = numbers.tolist(), len(numbers)
    places = []
    for number in np.atleast_1d(np.asarray(wanted)).tolist():
        below = isinstance(number, int) and number < 0 and _all_there(numbers)  # counted from the end
        if (number + count if below else number) not in held:
            if _all_there(numbers):
                raise ArgumentError(f"{who}: there is no neuron {number!r}; there are {count}, from 0.")
            shown = ", ".join(map(str, held[:12])) + (", ..." if count > 12 else "")
            raise ArgumentError(f"{who}: neuron {number!r} was not recorded; recorded are {shown}: m.neurons(layer).")
        places.append(held.index(number + count if below else number))
    return places


def _all_there(numbers: Array) -> bool:
    return np.array_equal(numbers, np.arange(len(numbers)))


def _draw_raster(axes: Any, rows: Array, steps: Array, groups: list[Group], colour: str) -> None:
    count = max(rows.shape[1], 1)
    points = 0.7 * extent(axes)[1] / count  # that a row is high
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
    axes.set_ylim(-0.75, max(rows.shape[1], 1) - 0.25)
    whole(axes.yaxis)
    stride = steps[1] - steps[0] if len(steps) > 1 else 1
    first, last = (steps[0], steps[-1]) if len(steps) else (0, -1)
    axes.set_xlim(first - 0.5 * stride, last + 0.5 * stride)
    if len(groups) > 1 or groups[0].name:
        ends = np.cumsum([len(members) for _, members in groups])
        middles = [end - (len(members) + 1) / 2 for end, (_, members) in zip(ends, groups, strict=True)]
        axes.set_yticks(middles, [name for name, _ in groups])
        axes.tick_params(axis="y", length=0)


def _append_psth(axes: Any, rows: Array, edges: Array, width: int, groups: list[Group]) -> None:
    below = axes_or_new(_split(axes, (3, 1.2)))
    draw_psth(below, rows, edges, width, groups)
    below.set_ylabel("spikes\nper step", fontsize=LARGE)  # short, as the Axes is low
    below.set_xlabel(axes.get_xlabel())
    axes.set_xlabel("")
    axes.tick_params(axis="x", labelbottom=False)
    if len(groups) > 1:
        legend(below)


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


# --- membrane ---------------------------------------------------------------------------------------------------------

_FEW = 4  # neurons of a monitor that are shown if none are named
_MOST = 12  # of an array: more cannot be told apart in grey
_TRIANGLES = (
    ("^", True),
    ("^", False),
    ("v", True),
    ("v", False),
    ("<", True),
    ("<", False),
    (">", True),
    (">", False),
)


def membrane(
    v: Any,
    spikes: Any = None,
    v_threshold: Any = None,
    ax: Any = None,
    title: str | None = None,
    labels: Any = None,
    *,
    layer: str | None = None,
    sample: int | None = None,
    neurons: Any = None,
) -> Any:
    """Membrane potentials as lines, with the threshold and a triangle where a neuron spikes.

    A triangle stands at the potential, or at the threshold if that is higher, as it is after a reset; each neuron has
    one of its own. A layer of a monitor that does not fire has neither triangles nor a threshold.

    Args:
        v: (T, N), (T, B, ...) with `sample`, or a monitor: after the reset; it also knows spikes and threshold.
        spikes: the shape of v, if they are to be marked.
        v_threshold: drawn as a dashed line; a number, or (N,), one for each neuron.
        ax: the Axes to draw on; a new one if it is left out.
        title: above it.
        labels: a name for each neuron that is drawn.
        layer: which one of a monitor's, or of a mapping's.
        sample: which one of a batch; a monitor's first if it is left out.
        neurons: the numbers of those to draw, in the layer; if it is left out, all of at most twelve; of a monitor the
            four that fire most in the sample, or the first four if no spikes are known.

    Raises:
        ShapeError: if v is not (T, N), or if spikes, v_threshold or labels do not fit it.
        ArgumentError: for a sample, neuron or layer that does not exist, or more than twelve neurons of an array.
    """
    name, array = one_layer(v, "v", layer, "membrane")
    sample = 0 if is_monitor(v) and sample is None else sample
    firing = is_monitor(v) and fires(v, name)
    if firing:
        spikes, v_threshold = _known(v, name, spikes, v_threshold)
    potential = array_of(_chosen(array, sample, None, "membrane"), 2, "membrane", "(T, N)")
    marks = None if spikes is None else _same_shape(fired(spikes, "membrane"), array, potential, sample)
    there = numbers_of(v, name, potential.shape[1])
    places = _shown(marks, len(there), is_monitor(v)) if neurons is None else _places(neurons, there, "membrane")
    levels, names = _levels(v_threshold, there), _names(labels, there[places])
    axes = axes_or_new(ax, height=2.2 + 0.05 * max(0, len(places) - 5))  # room for the legend
    _draw_potentials(axes, steps_of(v, name, len(potential), "v"), potential, marks, levels, places, names)
    whole_steps(axes)
    axes.set_ylabel("membrane potential\nafter reset" if firing else "membrane potential")
    legend(axes)
    titled(axes, title or name)
    return axes


def _known(monitor: Any, name: str, spikes: Any, v_threshold: Any) -> tuple[Any, Any]:
    """Spikes and threshold of a layer, those that are not given as the monitor knows them."""
    if spikes is None and name in monitor.spikes:
        spikes = monitor.spikes[name]
    return spikes, getattr(monitor.cell(name), "v_threshold", None) if v_threshold is None else v_threshold


def _same_shape(marks: Array, array: Array, potential: Array, sample: int | None) -> Array:
    chosen = _chosen(marks, sample, None, "membrane") if marks.shape == array.shape else marks
    if chosen.shape != potential.shape:
        raise ShapeError(f"membrane: v has shape {array.shape}, spikes {marks.shape}; they must agree.")
    return chosen


def _shown(marks: Array | None, count: int, watched: bool) -> list[int]:
    """Where the neurons are that are drawn if none are named: all, or of a monitor those that fire most."""
    if not watched and count <= _MOST:
        return list(range(count))
    if not watched:
        raise ArgumentError(
            f"membrane: {count} neurons in one picture cannot be told apart. Name those to draw, such as "
            f"neurons=range({_MOST})."
        )
    rates = np.zeros(count) if marks is None else marks.sum(0)
    return sorted(np.argsort(-rates, kind="stable")[:_FEW].tolist())


def _names(labels: Any, numbers: Array) -> list[str]:
    if labels is None:
        return [f"neuron {n}" for n in numbers]
    if len(labels) != len(numbers):
        raise ShapeError(f"membrane: {len(numbers)} neurons are drawn, and there are {len(labels)} labels.")
    return [str(label) for label in labels]


def _levels(v_threshold: Any, numbers: Array) -> Array | None:
    """The threshold of each neuron that is there, (N,)."""
    if v_threshold is None:
        return None
    levels, count = as_array(v_threshold, "membrane").reshape(-1), len(numbers)
    if levels.size > count > 0 and numbers.max() < levels.size and not _all_there(numbers):
        levels = levels[numbers]  # of a layer of which some were recorded
    if levels.size not in (1, count):
        raise ShapeError(f"membrane: v_threshold is one number or one for each of {count} neurons, not {levels.size}.")
    return np.broadcast_to(levels, (count,))


def _draw_potentials(
    axes: Any, steps: Array, v: Array, marks: Array | None, levels: Array | None, neurons: list[int], names: list[str]
) -> None:
    for place, (neuron, name) in enumerate(zip(neurons, names, strict=True)):
        style = series(place)
        shape, full = _TRIANGLES[place % len(_TRIANGLES)]
        triangle = {"marker": shape, "markersize": 4.5, "markerfacecolor": style["color"] if full else "white"}
        # The legend shows a line's triangle; the line itself has them elsewhere.
        known = {} if marks is None else triangle | {"markevery": []}
        axes.plot(steps, v[:, neuron], label=name, linewidth=1.2, **style, **known)
        if marks is not None:
            at = np.nonzero(marks[:, neuron])[0]
            height = v[at, neuron] if levels is None else np.maximum(v[at, neuron], levels[neuron])
            axes.plot(steps[at], height, color=style["color"], linestyle="", label="_spikes", **triangle)
    if levels is not None:
        for place, level in enumerate(np.unique(levels[neurons])):
            label = "_threshold" if place else "threshold"
            axes.axhline(level, color="0.5", linestyle=(0, (6, 3)), linewidth=0.9, label=label)
