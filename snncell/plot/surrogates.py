"""Pictures of surrogates: their curves, their derivative over the potentials of a layer, the share outside of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from snncell.base.arguments.kinds import Numbers, check_count, check_positive
from snncell.cell.cell import Cell
from snncell.errors import ArgumentError
from snncell.plot.axes import COLOURS, axes_or_new, label_axis, legend_label, line_style, second_axis, set_title
from snncell.plot.legends import legend
from snncell.plot.sources import Array, is_monitor, one_layer, real_array_of
from snncell.report.slopes import derivative_at, device_of_constants, spike_and_derivative, tensor_constants
from snncell.surrogate.base import check_spike_function
from snncell.tape.tensor import Tensor

ABOVE = ("potential minus threshold", "above threshold")  # what the horizontal axis is called
_DRAWS = 64  # of a spike function that fires at random
_REACH = np.geomspace(1e-6, 1e2, 401)
_PLACES = np.concatenate([-_REACH[::-1], [0.0], _REACH])  # where the largest derivative is looked for


def surrogate(
    surrogates: Any, ax: Any = None, range: tuple[float, float] = (-2.0, 2.0), title: str | None = None
) -> Any:
    """The shape of spike functions: the spike, the primitive, and the derivative, which is the bprop with dout = 1.

    Of one that fires at random the mean of 64 draws is shown, which leaves snncell's random numbers as they were. Where
    its constants are arrays, the mean over them is shown.

    Args:
        surrogates: a spike function, a sequence of them, or a mapping from names to them. Each is a Cell with
            construct and bprop; if it has no primitive, there is no line of it.
        ax: the Axes to draw on; a new one if it is left out.
        range: from where to where, in potential minus threshold.
        title: above it; left out, the name of one spike function.

    Raises:
        ArgumentError: if there is no spike function, for something else than a Cell with a bprop, or for a range that
            is none.
    """
    cells = _name_surrogates(surrogates)
    low, high = map(float, range)
    if not (np.isfinite([low, high]).all() and low < high):
        raise ArgumentError(f"surrogate: range is (low, high), two finite numbers that rise, not {range!r}.")
    x = np.linspace(low, high, 501)
    axes = axes_or_new(ax, height=2.2 + 0.12 * len(cells))
    curves = {name: _curves(x, cell) for name, cell in cells.items()}
    for number, (name, kinds) in enumerate(curves.items()):
        for kind, y in kinds.items():
            axes.plot(x, y, label=legend_label(f"{name}: {kind}"), **_look(kind, number, len(cells)))
    axes.set_xlim(low, high)
    label_axis(axes.xaxis, *ABOVE)
    label_axis(axes.yaxis, "value")
    legend(axes, _key(curves))
    set_title(axes, title, next(iter(curves)) if len(curves) == 1 else "")
    return axes


def share_outside(above: Numbers, surrogate_function: Any, below: float = 1e-3) -> float:
    """The share of elements at which the derivative of a spike function is a small part of its largest value, or less.

    The mean over all elements of [ |f'(above)| <= below max |f'| ]. No gradient that is of use passes such a neuron at
    such a step. Elements that are NaN or infinite count as outside.

    Args:
        above: potential minus threshold, any shape, such as (T, B, N): what a neuron gives its spike function.
        surrogate_function: the spike function, a Cell with a bprop.
        below: which part of the largest derivative is small.

    Returns:
        A number from 0 (the derivative reaches everything) to 1.

    Raises:
        ArgumentError: if there is no element, for something else than a spike function, or a part that is no number
            above 0.

    Example:
        >>> above = Tensor([-3.0, -0.5, 0.2, 1.5])
        >>> snncell.plot.share_outside(above, snncell.surrogate.Triangle())
        0.5
    """
    cell, part = (
        check_spike_function(surrogate_function, "share_outside"),
        check_positive(below, "share_outside", "below"),
    )
    array = real_array_of(above, "share_outside", "above")
    if not array.size:
        raise ArgumentError(f"share_outside: there are no potentials in an array of shape {array.shape}.")
    finite = np.isfinite(array)
    inside = np.abs(derivative_at(np.where(finite, array, 0.0), cell)) > part * _largest(cell)
    return float(1.0 - np.mean(inside & finite))


def surrogate_and_membrane(
    above: Any,
    surrogate_function: Any = None,
    layer: str | None = None,
    ax: Any = None,
    title: str | None = None,
    bins: int = 60,
    below: float = 1e-3,
) -> Any:
    """Draw the histogram of the potentials of a layer over the derivative of its spike function.

    The histogram of potential minus threshold over neurons, samples and steps, and on an axis to the right the
    derivative. Where that is at most `below` times its largest value, the ground is grey: neurons there are out of its
    reach, and learn nothing. Without a `title` it says how many there are, `share_outside`; if it is most of them, the
    spike function is too narrow for these potentials. The outermost bins hold what lies further out: one part in 1000
    on each side, if any; what is out of reach there alone shows no grey.

    Args:
        above: potential minus threshold, any shape, such as (T, B, N); or a monitor that recorded it,
            `monitor(net, above=True)`.
        surrogate_function: the spike function, a Cell with a bprop; of a monitor, that of the layer if left out.
        layer: which one of a monitor's layers, if it has several.
        ax: the Axes of the histogram; a new one if it is left out.
        title: above it; left out, the layer's name and the share.
        bins: of the histogram.
        below: which part of the largest derivative is small.

    Returns:
        The Axes of the histogram.

    Raises:
        ArgumentError: if there is no finite element, no spike function, or no bin.
    """
    name, array = one_layer(above, "above", layer, "surrogate_and_membrane")
    cell = check_spike_function(_its_surrogate(above, name, surrogate_function), "surrogate_and_membrane")
    values = array[np.isfinite(array)].astype(np.float64)
    if not values.size:
        raise ArgumentError(f"surrogate_and_membrane: no finite potential in an array of shape {array.shape}.")
    said = _say_share(array, cell, below)
    edges = np.linspace(*_limits(values), check_count(bins, "surrogate_and_membrane", "bins") + 1)
    axes = axes_or_new(ax, height=2.5)
    _histogram(axes, values, edges)
    _derivative_beside(axes, cell, edges, below)
    set_title(axes, title, ": ".join(part for part in (name, said) if part))
    return axes


# --- values -----------------------------------------------------------------------------------------------------------


def _name_surrogates(surrogates: Any) -> dict[str, Any]:
    """Spike functions by name: that of the class, with the constants where two are of one class."""
    if isinstance(surrogates, Mapping):
        named = {str(name): cell for name, cell in surrogates.items()}
    else:
        cells = list(surrogates) if isinstance(surrogates, (list, tuple)) else [surrogates]
        kinds = [type(check_spike_function(cell, "surrogate")).__name__ for cell in cells]
        names = [kind if kinds.count(kind) == 1 else _in_full(cell) for kind, cell in zip(kinds, cells, strict=True)]
        repeated = {name for name in names if names.count(name) > 1}
        named = {
            f"{name} {n + 1}" if name in repeated else name: c
            for n, (name, c) in enumerate(zip(names, cells, strict=True))
        }
    if not named:
        raise ArgumentError("surrogate: there is no spike function to draw; give one, such as surrogate.ATan().")
    return {name: check_spike_function(cell, "surrogate") for name, cell in named.items()}


def _in_full(cell: Any) -> str:
    constants = cell.extend_repr()
    return f"{type(cell).__name__}({constants})" if constants else type(cell).__name__


def _its_surrogate(above: Any, name: str, function: Any) -> Any:
    if function is None and is_monitor(above):
        function = above.spike_function(name)
    if function is None:
        raise ArgumentError(
            "surrogate_and_membrane: which spike function? An array does not know it. Give it, such as "
            "surrogate_function=surrogate.ATan(); or give a monitor, which knows it: monitor(net, above=True)."
        )
    return function


def _spread(x: Array, cell: Cell) -> Array:
    """x (P,) as (P, 1, ...), or as (P, ...) with the shape that the constants have."""
    shape = np.broadcast_shapes(*[constant.shape for constant in tensor_constants(cell)])
    return np.broadcast_to(x.reshape(-1, *[1] * len(shape)), (len(x), *shape)).copy()


def _largest(cell: Cell) -> Array:
    """The largest size of the derivative, for each of the constants."""
    largest: Array = np.max(np.abs(derivative_at(_spread(_PLACES, cell).astype(np.float32), cell)), axis=0)
    return largest


def _mean(values: Any, points: int) -> Array:
    means: Array = np.asarray(values, np.float64).reshape(points, -1).mean(1)
    return means


def _curves(x: Array, cell: Cell) -> dict[str, Array]:
    """Spike, primitive (if there is one) and derivative at x, (P,)."""
    points = _spread(x, cell)
    if points.size == len(x):  # room for draws: those of one that does not draw are all the same
        points = np.broadcast_to(x[:, None], (len(x), _DRAWS)).copy()
    spike, derivative = (_mean(y, len(x)) for y in spike_and_derivative(points, cell))
    primitive = getattr(cell, "primitive", None)
    if primitive is None:
        return {"spike": spike, "derivative": derivative}
    smooth = primitive(Tensor(points).to(device_of_constants(cell))).asnumpy()
    return {"spike": spike, "primitive": _mean(smooth, len(x)), "derivative": derivative}


# --- looks ------------------------------------------------------------------------------------------------------------

_STYLES: dict[str, Any] = {"spike": ":", "primitive": "--", "derivative": "-"}


def _look(kind: str, number: int, of: int) -> dict[str, Any]:
    """Lines tell the kind; colours too if there is one spike function, else, with markers, which one it is."""
    style = {"linestyle": _STYLES[kind], "linewidth": 1.4}
    if of == 1:
        return {"color": COLOURS[list(_STYLES).index(kind)], **style}
    if kind == "spike":  # most have the same
        return {"color": "0.4", **style}
    return line_style(number, 0) | style | {"markevery": (20 + 12 * (number % 7), 100)}


def _key(curves: dict[str, dict[str, Array]]) -> list[Any]:
    """The entries of the legend: if there are several spike functions, each of them, and each kind of line."""
    from matplotlib.lines import Line2D

    drawn = [kind for kind in _STYLES if any(kind in kinds for kinds in curves.values())]
    if len(curves) == 1:
        return [Line2D([], [], label=kind, **_look(kind, 0, 1)) for kind in drawn]
    kinds = [Line2D([], [], label=kind, color="0.4", linestyle=_STYLES[kind]) for kind in drawn]
    return [
        Line2D([], [], label=legend_label(name), **line_style(number, 0)) for number, name in enumerate(curves)
    ] + kinds


def _limits(values: Array) -> tuple[float, float]:
    """Around what lies within 0.1 % from either end, the threshold, and one unit around it."""
    low, high = np.quantile(values, [0.001, 0.999])
    return min(low, -1.0), max(high, 1.0)


def _say_share(array: Array, cell: Cell, below: float) -> str:
    share, lost = share_outside(array, cell, below), int(np.count_nonzero(~np.isfinite(array)))
    return f"{100.0 * share:.3g} % of neuron-steps out of reach" + (f" ({lost} NaN or inf)" if lost else "")


def _histogram(axes: Any, values: Array, edges: Array) -> None:
    counts = np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0]
    axes.stairs(counts / values.size, edges, fill=True, color=COLOURS[6], label="potentials")
    axes.set_xlim(edges[0], edges[-1])
    label_axis(axes.xaxis, *ABOVE)
    label_axis(axes.yaxis, "share of neuron-steps", "share of steps", "share")


def _derivative_beside(axes: Any, cell: Cell, edges: Array, below: float) -> None:
    x = np.unique(np.concatenate([np.linspace(edges[0], edges[-1], 1001), _PLACES[np.abs(_PLACES) < 1.0]]))
    y = _mean(derivative_at(_spread(x, cell), cell), len(x))
    beside = second_axis(axes, "derivative")
    (line,) = beside.plot(x, y, color=COLOURS[0], linewidth=1.4, label="derivative")
    beside.set_ylim(min(0.0, 1.05 * y.min()), 1.05 * max(y.max(), 1e-12))
    out = np.abs(y) <= below * np.abs(y).max()
    look = {"color": "0.88", "linewidth": 0, "zorder": 0, "label": f"out of reach (≤ {below:g} max)"}
    ground = axes.fill_between(x, 0, 1, where=out, transform=axes.get_xaxis_transform(), **look)
    legend(axes, [axes.patches[0], line, *([ground] if out.any() else [])])
