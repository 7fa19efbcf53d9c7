"""Pictures of membrane potentials over time, with thresholds and spikes."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from snncell.base.arguments.shown import show
from snncell.errors import ArgumentError, ShapeError
from snncell.plot.axes import (
    array_with_axes,
    axes_or_new,
    label_axis,
    label_time_axis,
    legend_label,
    series_style,
    set_title,
)
from snncell.plot.legends import legend
from snncell.plot.sources import (
    Array,
    all_there,
    as_array,
    as_spikes,
    choose_rows,
    is_monitor,
    layer_fires,
    neuron_numbers,
    neuron_positions,
    one_layer,
    step_numbers,
)

_FEW = 4  # neurons of a monitor that are shown if none are named
_MOST = 12  # of an array: more cannot be told apart in grey
_TRIANGLES = tuple(product("^v<>", (True, False)))  # and whether each is filled

# What the vertical axis is called, for a layer that does not fire and one that does, from long to short.
_POTENTIAL = {
    False: ("membrane potential", "potential"),
    True: ("membrane potential\nafter reset", "potential\nafter reset", "potential"),
}
_BEFORE = ("membrane potential\nbefore reset", "potential\nbefore reset", "potential")


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

    Each neuron has a triangle of its own, which stands on its line. A layer that does not fire has none.

    Args:
        v: (T, N), (T, B, ...) with `sample`, or a monitor, which knows spikes and threshold too: before the reset, if
            it also recorded `above` and that is v minus a constant threshold, else after it.
        spikes: the shape of v, if they are to be marked.
        v_threshold: drawn as a dashed line; a number, or (N,), one for each neuron.
        ax: the Axes to draw on; a new one if it is left out.
        title: above it.
        labels: a name for each neuron that is drawn.
        layer: which one of a monitor's, or of a mapping's.
        sample: which one of a batch; a monitor's first if it is left out.
        neurons: the numbers of those to draw, in the layer; left out, all of at most twelve; of a monitor the four
            that fire most in the sample, or the first four if no spikes are known.

    Raises:
        ShapeError: if v is not (T, N), or if spikes, v_threshold or labels do not fit it.
        ArgumentError: for a sample, neuron or layer that does not exist, or more than twelve neurons of an array.
    """
    name, array = one_layer(v, "v", layer, "membrane")
    sample = 0 if is_monitor(v) and sample is None else sample
    firing = is_monitor(v) and layer_fires(v, name)
    spikes, v_threshold = _complete_spikes(v, name, spikes, v_threshold) if firing else (spikes, v_threshold)
    array, called = _drawn_potential(v, name, array, firing)
    potential = array_with_axes(choose_rows(array, sample, None, "membrane"), 2, "membrane", "(T, N)")
    marks = None if spikes is None else _same_shape(as_spikes(spikes, "membrane"), array, potential, sample)
    there = neuron_numbers(v, name, potential.shape[1])
    places = _to_draw(neurons, marks, there, is_monitor(v))
    levels, names = _levels(v_threshold, there), _names(labels, there[places])
    axes = axes_or_new(ax, height=2.2 + 0.05 * max(0, len(places) - 5))  # room for the legend
    _draw_potentials(axes, step_numbers(v, name, len(potential), "v"), potential, marks, levels, places, names)
    label_time_axis(axes)
    label_axis(axes.yaxis, *called)
    legend(axes)
    set_title(axes, title, name)
    return axes


def before_reset(v: Array, above: Array, spikes: Array, v_threshold: Any) -> Array | None:
    """The potential at which neurons decide to fire: what their spike function is given, plus the threshold.

    None where that is no potential: where a neuron that did not fire has another one, as with a threshold that moves,
    or a spike function that is given potentials in parts of a threshold.
    """
    if v_threshold is None or not v.size == above.size == spikes.size:
        return None
    threshold = as_array(v_threshold, "membrane", "v_threshold")
    try:
        before: Array = above.reshape(v.shape) + threshold
    except ValueError:  # a threshold for each of more neurons than were recorded
        return None
    quiet = (spikes == 0).reshape(v.shape) & np.isfinite(v)
    return before if np.allclose(before[quiet], v[quiet], rtol=1e-4, atol=1e-4 * np.abs(threshold).max()) else None


def _drawn_potential(x: Any, name: str, v: Array, firing: bool) -> tuple[Array, tuple[str, ...]]:
    """The potential of a layer that is drawn, and what its axis is called: before the reset, if a monitor knows it."""
    if firing and name in x.above and name in x.spikes:
        before = before_reset(v, x.above[name], x.spikes[name], getattr(x.cell(name), "v_threshold", None))
        if before is not None:
            return before, _BEFORE
    return v, _POTENTIAL[firing]


def _complete_spikes(monitor: Any, name: str, spikes: Any, v_threshold: Any) -> tuple[Any, Any]:
    """Spikes and threshold of a layer, those that are not given as the monitor knows them."""
    if spikes is None and name in monitor.spikes:
        spikes = monitor.spikes[name]
    return spikes, getattr(monitor.cell(name), "v_threshold", None) if v_threshold is None else v_threshold


def _same_shape(marks: Array, array: Array, potential: Array, sample: int | None) -> Array:
    of_sample = choose_rows(marks, sample, None, "membrane") if marks.shape == array.shape else marks
    if of_sample.shape != potential.shape:
        raise ShapeError(f"membrane: v has shape {array.shape}, spikes {marks.shape}; they must agree.")
    return of_sample


def _to_draw(neurons: Any, marks: Array | None, there: Array, watched: bool) -> list[int]:
    """The positions of the neurons to draw: those that are named, else all, or of a monitor those that fire most."""
    count = len(there)
    if neurons is not None:
        return neuron_positions(neurons, there, "membrane")
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
    if not isinstance(labels, (list, tuple, np.ndarray)):
        raise ArgumentError(
            f"membrane: labels are a list of names, one for each neuron that is drawn, not {show(labels)}."
        )
    if len(labels) != len(numbers):
        raise ShapeError(f"membrane: {len(numbers)} neurons are drawn, and there are {len(labels)} labels.")
    return [str(label) for label in labels]


def _levels(v_threshold: Any, numbers: Array) -> Array | None:
    """The threshold of each neuron that is there, (N,)."""
    if v_threshold is None:
        return None
    levels, count = as_array(v_threshold, "membrane", "v_threshold").reshape(-1), len(numbers)
    if levels.size > count > 0 and numbers.max() < levels.size and not all_there(numbers):
        levels = levels[numbers]  # of a layer of which some were recorded
    if levels.size not in (1, count):
        raise ShapeError(f"membrane: v_threshold is one number or one for each of {count} neurons, not {levels.size}.")
    return np.broadcast_to(levels, (count,))


def _draw_potentials(
    axes: Any, steps: Array, v: Array, marks: Array | None, levels: Array | None, neurons: list[int], names: list[str]
) -> None:
    for place, (neuron, name) in enumerate(zip(neurons, names, strict=True)):
        style = series_style(place)
        shape, full = _TRIANGLES[place % len(_TRIANGLES)]
        triangle = {"marker": shape, "markersize": 4.5, "markerfacecolor": style["color"] if full else "white"}
        # The legend shows a line's triangle; the line itself has them elsewhere.
        known = {} if marks is None else triangle | {"markevery": []}
        axes.plot(steps, v[:, neuron], label=legend_label(name), linewidth=1.2, **style, **known)
        if marks is not None:
            at = np.nonzero(marks[:, neuron])[0]
            axes.plot(steps[at], v[at, neuron], color=style["color"], linestyle="", label="_spikes", **triangle)
    if levels is not None:
        for place, level in enumerate(np.unique(levels[neurons])):
            label = "_threshold" if place else "threshold"
            axes.axhline(level, color="0.5", linestyle=(0, (6, 3)), linewidth=0.9, label=label)
