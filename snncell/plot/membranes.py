"""Plots of membrane potentials over time, and of surrogate gradients over potentials."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np

from snncell.base.arguments.kinds import Count, Numbers, Positive
from snncell.base.arguments.shown import show
from snncell.cell.cell import Cell
from snncell.errors import ArgumentError, ShapeError
from snncell.plot import axes as drawing, sources
from snncell.plot.axes import COLOURS
from snncell.plot.sources import Array
from snncell.report.facts import derivative_at, device_of_constants, spike_and_derivative, tensor_constants
from snncell.surrogate.base import check_spike_function
from snncell.tape.tensor import Tensor

_FEW = 4  # default number of neurons for a monitor
_MOST = 12  # largest number of neurons of an array, because more lines are indistinguishable in grey
_TRIANGLES = tuple(product("^v<>", (True, False)))  # markers, filled or not


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
    """Membrane potentials over time, with the threshold and a triangle at each spike.

    Each neuron has its own kind of triangle, which is drawn on its line. A layer that does not fire has no triangles.

    Args:
        v: (T, N), (T, B, ...) with `sample`, or a monitor, which also provides spikes and threshold. If it recorded
            `above` too, and the threshold is constant, the potentials are those before the reset, otherwise after it.
        spikes: the spikes to mark, with the shape of v.
        v_threshold: the threshold, drawn as a dashed line; a number, or (N,), one per neuron.
        ax, title: the Axes to draw on (new Axes by default), and the title.
        labels: a name for each drawn neuron.
        layer, sample: the name of a layer, for a monitor or a mapping, and the index of a sample; for a monitor 0.
        neurons: the indices of the neurons to draw. By default all neurons of an array, at most twelve; for a monitor
            the four neurons that fire most in the sample, or the first four if none fires.
    """
    name, array = sources.one_layer(v, "v", layer, "membrane")
    sample = 0 if sources.is_monitor(v) and sample is None else sample
    called: tuple[str, ...] = ("membrane potential", "potential")
    if sources.is_monitor(v) and sources.layer_fires(v, name):
        array, called, spikes, v_threshold = _complete(v, name, array, spikes, v_threshold)
    potential = sources.choose_rows(array, sample, None, "membrane")
    marks = None if spikes is None else _marks_of(sources.as_spikes(spikes, "membrane"), array, potential, sample)
    there = sources.neuron_numbers(v, name, potential.shape[1])
    places = _places_to_draw(neurons, marks, there, sources.is_monitor(v))
    levels, names = _levels(v_threshold, there), _names(labels, there[places])
    axes = drawing.axes_or_new(ax, height=2.2 + 0.05 * max(0, len(places) - 5))  # room for the legend
    _draw_potentials(axes, sources.step_numbers(v, name, len(potential), "v"), potential, marks, levels, places, names)
    return drawing.finish(axes, title, None, called, sources.title_of(name))


def _complete(
    monitor: Any, name: str, v: Array, spikes: Any, v_threshold: Any
) -> tuple[Array, tuple[str, ...], Any, Any]:
    """From a monitor: potential (before the reset if possible), axis labels, spikes and threshold of a layer."""
    known = getattr(monitor.cell(name), "v_threshold", None)
    recorded, above = monitor.spikes.get(name), monitor.above.get(name)
    before = None if recorded is None or above is None else before_reset(v, above, recorded, known)
    when = "after" if before is None else "before"
    called = (f"membrane potential\n{when} reset", f"potential\n{when} reset", "potential")
    spikes, v_threshold = recorded if spikes is None else spikes, known if v_threshold is None else v_threshold
    return v if before is None else before, called, spikes, v_threshold


def before_reset(v: Array, above: Array, spikes: Array, v_threshold: Any) -> Array | None:
    """The potential before the reset: `above` + threshold. None if that differs from v where no neuron fired."""
    if v_threshold is None or not v.size == above.size == spikes.size:
        return None
    threshold = sources.as_array(v_threshold, "membrane", "v_threshold")
    try:
        before: Array = above.reshape(v.shape) + threshold
    except ValueError:  # one threshold per neuron, but only some neurons were recorded
        return None
    quiet = (spikes == 0).reshape(v.shape) & np.isfinite(v)
    return before if np.allclose(before[quiet], v[quiet], rtol=1e-4, atol=1e-4 * np.abs(threshold).max()) else None


def _marks_of(spikes: Array, array: Array, potential: Array, sample: int | None) -> Array:
    of_sample = sources.choose_rows(spikes, sample, None, "membrane") if spikes.shape == array.shape else spikes
    if of_sample.shape != potential.shape:
        raise ShapeError(f"membrane: v has shape {array.shape}, spikes {spikes.shape}; they must agree.")
    return of_sample


def _places_to_draw(neurons: Any, marks: Array | None, there: Array, watched: bool) -> list[int]:
    """The positions of the neurons to draw: the requested ones, those that fire most (for a monitor), or all."""
    count = len(there)
    if neurons is not None:
        return sources.neuron_positions(neurons, there, "membrane")
    if watched:
        rates = np.zeros(count) if marks is None else marks.sum(0)
        return sorted(np.argsort(-rates, kind="stable")[:_FEW].tolist())
    if count > _MOST:
        raise ArgumentError(
            f"membrane: {count} neurons in one plot cannot be distinguished. Select some of them, for example "
            f"neurons=range({_MOST})."
        )
    return list(range(count))


def _names(labels: Any, numbers: Array) -> list[str]:
    if labels is None:
        return [f"neuron {n}" for n in numbers]
    if not isinstance(labels, (list, tuple, np.ndarray)):
        raise ArgumentError(f"membrane: labels must be a list of names, one for each drawn neuron, not {show(labels)}.")
    if len(labels) != len(numbers):
        raise ShapeError(f"membrane: {len(numbers)} neurons are drawn, but there are {len(labels)} labels.")
    return [str(label) for label in labels]


def _levels(v_threshold: Any, numbers: Array) -> Array | None:
    """The threshold of each available neuron, (N,)."""
    if v_threshold is None:
        return None
    levels, count = sources.as_array(v_threshold, "membrane", "v_threshold").reshape(-1), len(numbers)
    if levels.size > count > 0 and numbers.max() < levels.size and not sources.all_there(numbers):
        levels = levels[numbers]  # only some neurons of the layer were recorded
    if levels.size not in (1, count):
        raise ShapeError(
            f"membrane: v_threshold must be one number or one for each of {count} neurons, not {levels.size}."
        )
    return np.broadcast_to(levels, (count,))


def _draw_potentials(
    axes: Any, steps: Array, v: Array, marks: Array | None, levels: Array | None, neurons: list[int], names: list[str]
) -> None:
    for place, (neuron, name) in enumerate(zip(neurons, names, strict=True)):
        style = drawing.series_style(place)
        shape, full = _TRIANGLES[place % len(_TRIANGLES)]
        triangle = {"marker": shape, "markersize": 4.5, "markerfacecolor": style["color"] if full else "white"}
        # This line has no markers, but the legend shows its triangle.
        known = {} if marks is None else triangle | {"markevery": []}
        axes.plot(steps, v[:, neuron], label=drawing.legend_label(name), linewidth=1.2, **style, **known)
        if marks is not None:
            at = np.nonzero(marks[:, neuron])[0]
            axes.plot(steps[at], v[at, neuron], color=style["color"], linestyle="", label="_spikes", **triangle)
    for place, level in enumerate([] if levels is None else np.unique(levels[neurons])):
        label = "_threshold" if place else "threshold"
        axes.axhline(level, color="0.5", linestyle=(0, (6, 3)), linewidth=0.9, label=label)


ABOVE = ("potential minus threshold", "above threshold")  # labels of the horizontal axis
_DRAWS = 64  # of a stochastic spike function
_REACH = np.geomspace(1e-6, 1e2, 401)
_PLACES = np.concatenate([-_REACH[::-1], [0.0], _REACH])  # points at which the largest derivative is searched


def surrogate(
    surrogates: Any, ax: Any = None, range: tuple[float, float] = (-2.0, 2.0), title: str | None = None
) -> Any:
    """Plot surrogate gradients: the spike function, its primitive, and the derivative used in the backward pass.

    The derivative is the bprop with dout = 1. A stochastic spike function is shown as the mean of 64 draws, which do
    not change the state of snncell's random numbers. A function with array constants is shown as the mean over them.

    Args:
        surrogates: a spike function, a sequence of them, or a mapping from names to them. Each is a Cell with construct
            and bprop. The primitive is drawn only if the Cell has one.
        ax, title: the Axes to draw on (new Axes by default), and the title, by default the name of a single function.
        range: the ends of the horizontal axis, potential minus threshold.
    """
    cells = _name_surrogates(surrogates)
    low, high = map(float, range)
    if not (np.isfinite([low, high]).all() and low < high):
        raise ArgumentError(f"surrogate: range must be (low, high), two finite numbers that rise, not {range!r}.")
    x = np.linspace(low, high, 501)
    axes = drawing.axes_or_new(ax, height=2.2 + 0.12 * len(cells))
    curves = {name: _curves(x, cell) for name, cell in cells.items()}
    for number, (name, kinds) in enumerate(curves.items()):
        for kind, y in kinds.items():
            axes.plot(x, y, label=drawing.legend_label(f"{name}: {kind}"), **_look(kind, number, len(cells)))
    axes.set_xlim(low, high)
    return drawing.finish(axes, title, ABOVE, ("value",), next(iter(curves)) if len(curves) == 1 else "", _key(curves))


def share_outside(above: Numbers, surrogate_function: Any, below: Positive = 1e-3) -> float:
    """Share of potentials outside of the surrogate's range, from 0 (none) to 1 (all).

    An element is outside if |f'(above)| <= below * max |f'|, where f' is the derivative of the surrogate, because the
    neuron then passes no useful gradient at this step. NaN and infinite elements count as outside.

    Args:
        above: potential minus threshold, any shape, for example (T, B, N): the input of a spike function in a neuron.
        surrogate_function: the spike function, a Cell with a bprop.
        below: the fraction of the largest derivative that counts as small.
    Example:
        >>> above = Tensor([-3.0, -0.5, 0.2, 1.5])
        >>> snncell.plot.share_outside(above, snncell.surrogate.Triangle())
        0.5
    """
    cell = check_spike_function(surrogate_function, "share_outside")
    array = sources.real_array_of(above, "share_outside", "above")
    if not array.size:
        raise ArgumentError(f"share_outside: there are no potentials in an array of shape {array.shape}.")
    finite = np.isfinite(array)
    largest = np.max(np.abs(derivative_at(_spread(_PLACES, cell).astype(np.float32), cell)), axis=0)  # per constant
    inside = np.abs(derivative_at(np.where(finite, array, 0.0), cell)) > below * largest
    return float(1.0 - np.mean(inside & finite))


def surrogate_and_membrane(
    above: Any,
    surrogate_function: Any = None,
    layer: str | None = None,
    ax: Any = None,
    title: str | None = None,
    bins: Count = 60,
    below: Positive = 1e-3,
) -> Any:
    """Histogram of a layer's potentials together with the derivative of its spike function.

    The background is grey where the derivative is at most `below` times its largest value, because neurons there get no
    useful gradient. If most potentials lie in the grey range (see `share_outside`), you should choose a wider
    surrogate. The first and the last bin also contain the potentials outside of the axis, at most 0.1 % on each side.

    Args:
        above: potential minus threshold, any shape, for example (T, B, N); or a monitor with `above=True`.
        surrogate_function: the spike function, a Cell with a bprop; for a monitor, that of the layer by default.
        layer: the name of a layer, for a monitor with several.
        ax, title: the Axes to draw on (new Axes by default), and the title, by default layer and share outside.
        bins, below: the number of bins, and the fraction of the largest derivative that counts as small.
    """
    name, array = sources.one_layer(above, "above", layer, "surrogate_and_membrane")
    cell = _spike_function(above, name, surrogate_function)
    values = array[np.isfinite(array)].astype(np.float64)
    if not values.size:
        raise ArgumentError(f"surrogate_and_membrane: no finite potential in an array of shape {array.shape}.")
    lost = array.size - values.size
    text = f"{100.0 * share_outside(array, cell, below):.3g} % of neuron-steps out of reach"
    text += f" ({lost} NaN or inf)" if lost else ""
    low, high = np.quantile(values, [0.001, 0.999])
    edges = np.linspace(min(low, -1.0), max(high, 1.0), bins + 1)  # at least one unit around the threshold
    axes = drawing.axes_or_new(ax, height=2.5)
    _draw_over_derivative(axes, values, cell, edges, below)
    drawing.set_title(axes, title, f"{sources.title_of(name)}: {text}" if name else text)
    return axes


def _spike_function(above: Any, name: str, function: Any) -> Any:
    if function is None and sources.is_monitor(above):
        function = above.spike_function(name)
    if function is None:
        raise ArgumentError(
            "surrogate_and_membrane: an array has no spike function. Pass one, for example "
            "surrogate_function=surrogate.ATan(), or pass a monitor, which has it: monitor(net, above=True)."
        )
    return check_spike_function(function, "surrogate_and_membrane")


def _name_surrogates(surrogates: Any) -> dict[str, Any]:
    """Spike functions by class name, with constants in the name if a class occurs more than once."""
    if isinstance(surrogates, Mapping):
        named = {str(name): cell for name, cell in surrogates.items()}
    else:
        cells = list(surrogates) if isinstance(surrogates, (list, tuple)) else [surrogates]
        names = [type(check_spike_function(cell, "surrogate")).__name__ for cell in cells]
        inside = [cell.extend_repr() if names.count(name) > 1 else "" for name, cell in zip(names, cells, strict=True)]
        names = [f"{name}({x})" if x else name for name, x in zip(names, inside, strict=True)]
        numbered = [f"{name} {n}" if names.count(name) > 1 else name for n, name in enumerate(names, 1)]
        named = dict(zip(numbered, cells, strict=True))
    if not named:
        raise ArgumentError("surrogate: there is no spike function to draw. Pass one, for example surrogate.ATan().")
    return {name: check_spike_function(cell, "surrogate") for name, cell in named.items()}


def _spread(x: Array, cell: Cell) -> Array:
    """x (P,) as (P, ...), with further axes of the shape of the spike function's constants."""
    shape = np.broadcast_shapes(*[constant.shape for constant in tensor_constants(cell)])
    return np.broadcast_to(x.reshape(-1, *[1] * len(shape)), (len(x), *shape)).copy()


def _mean(values: Any, points: int) -> Array:
    means: Array = np.asarray(values, np.float64).reshape(points, -1).mean(1)
    return means


def _curves(x: Array, cell: Cell) -> dict[str, Array]:
    """Spike, primitive (if there is one) and derivative at x, (P,)."""
    points = _spread(x, cell)
    if points.size == len(x):  # repeat each point for random draws; deterministic functions give equal values
        points = np.broadcast_to(x[:, None], (len(x), _DRAWS)).copy()
    spike, derivative = (_mean(y, len(x)) for y in spike_and_derivative(points, cell))
    primitive = getattr(cell, "primitive", None)
    if primitive is None:
        return {"spike": spike, "derivative": derivative}
    smooth = primitive(Tensor(points).to(device_of_constants(cell))).asnumpy()
    return {"spike": spike, "primitive": _mean(smooth, len(x)), "derivative": derivative}


_STYLES: dict[str, Any] = {"spike": ":", "primitive": "--", "derivative": "-"}


def _look(kind: str, number: int, of: int) -> dict[str, Any]:
    """Line style by kind. The colour shows the kind, or the spike function if there are several."""
    style = {"linestyle": _STYLES[kind], "linewidth": 1.4}
    if of == 1:
        return {"color": COLOURS[list(_STYLES).index(kind)], **style}
    if kind == "spike":  # it is the same step for most functions
        return {"color": "0.4", **style}
    return drawing.line_style(number, 0) | style | {"markevery": (20 + 12 * (number % 7), 100)}


def _key(curves: dict[str, dict[str, Array]]) -> list[Any]:
    """Legend entries: each kind of line, preceded by the spike functions if there are several."""
    from matplotlib.lines import Line2D

    drawn = [kind for kind in _STYLES if any(kind in kinds for kinds in curves.values())]
    if len(curves) == 1:
        return [Line2D([], [], label=kind, **_look(kind, 0, 1)) for kind in drawn]
    keys = [
        Line2D([], [], label=drawing.legend_label(name), **drawing.line_style(n, 0)) for n, name in enumerate(curves)
    ]
    return keys + [Line2D([], [], label=kind, color="0.4", linestyle=_STYLES[kind]) for kind in drawn]


def _draw_over_derivative(axes: Any, values: Array, cell: Cell, edges: Array, below: float) -> None:
    heights = np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0] / values.size
    axes.stairs(heights, edges, fill=True, color=COLOURS[6], label="potentials")
    axes.set_xlim(edges[0], edges[-1])
    drawing.label_axis(axes.xaxis, *ABOVE)
    drawing.label_axis(axes.yaxis, "share of neuron-steps", "share of steps", "share")
    x = np.unique(np.concatenate([np.linspace(edges[0], edges[-1], 1001), _PLACES[np.abs(_PLACES) < 1.0]]))
    y = _mean(derivative_at(_spread(x, cell), cell), len(x))
    beside = drawing.second_axis(axes, "derivative")
    (line,) = beside.plot(x, y, color=COLOURS[0], linewidth=1.4, label="derivative")
    beside.set_ylim(min(0.0, 1.05 * y.min()), 1.05 * max(y.max(), 1e-12))
    out = np.abs(y) <= below * np.abs(y).max()
    look = {"color": "0.88", "linewidth": 0, "zorder": 0, "label": f"out of reach (≤ {below:g} max)"}
    ground = axes.fill_between(x, 0, 1, where=out, transform=axes.get_xaxis_transform(), **look)
    drawing.legend(axes, [axes.patches[0], line, *([ground] if out.any() else [])])
