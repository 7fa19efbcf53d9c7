"""Plots of gradients over time and layers, of weights, and of update-to-weight ratios."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np

from snncell.base.arguments.kinds import Count, Own
from snncell.base.arguments.shown import came, show
from snncell.cell.cell import Cell
from snncell.errors import ArgumentError, ShapeError
from snncell.nn.optim.optimizer import Optimizer
from snncell.plot import axes as drawing
from snncell.plot.axes import COLOURS, SMALL
from snncell.plot.sources import Array, all_layers, as_array, step_numbers
from snncell.tape.parameter import Parameter

NARROWEST = 2.0  # smallest ratio of the brightest to the darkest colour, so that noise does not fill the colour range


def gradient_norms(gradients: Any, ax: Any = None, title: str | None = None) -> Any:
    """Gradient norms: the L2 norm of each layer's gradient at each time step, on a logarithmic axis.

    Backpropagation runs from right to left. A gradient vanishes through time if its line falls steeply to the left, and
    explodes if it rises to the left. Lines leave out steps with a gradient of exactly 0, NaN or infinity; the legend
    counts NaN and infinity.

    Args:
        gradients: a mapping from layer names to the gradient of the loss with respect to the layer's input at every
            step, (T, ...); or a monitor that recorded them, `monitor(net, grad=True)`.
        ax, title: the Axes to draw on (new Axes by default), and the title.
    """
    norms = _norms_of(gradients, "gradient_norms")
    axes = drawing.axes_or_new(ax, height=2.2 + 0.05 * len(norms))
    for number, (name, values) in enumerate(norms.items()):
        drawing.positive_line(axes, step_numbers(gradients, name, len(values), "grad"), values, name, number)
    axes.set_yscale("log")
    return drawing.finish(axes, title, None, ("gradient norm (L2)", "gradient norm", "gradient"))


def gradient_flow(gradients: Any, ax: Any = None, title: str | None = None) -> Any:
    """Gradient flow: a heat map of each layer's gradient norm at each time step, with logarithmic colours.

    The colour at layer l and step t is ||g[l, t]||_2, over the batch and all neurons. If colours become darker to the
    left, the gradient vanishes through time, and if brighter, it explodes; from row to row, it does so through layers.
    Exact zeros, as in a layer that never fires, are hatched; NaN and infinity are cross-hatched in red.

    Args:
        gradients: as for `gradient_norms`, first layer first.
        ax, title: as for `gradient_norms`. The colour bar takes room from the Axes.
    Raises: ShapeError for layers with different numbers of time steps, which `gradient_norms` can draw.
    """
    by_layer = _norms_of(gradients, "gradient_flow")
    if len({len(values) for values in by_layer.values()}) > 1:
        steps = ", ".join(f"{name!r}: {len(values)}" for name, values in by_layer.items())
        raise ShapeError(
            f"gradient_flow: the layers have different numbers of steps ({steps}). Draw layers of equal length "
            f"together, or use gradient_norms."
        )
    norms = np.stack(list(by_layer.values()))
    axes = drawing.axes_or_new(ax, height=max(1.8, min(1.2 + 0.2 * len(norms), 8.0)))
    edges = _edges(step_numbers(gradients, next(iter(by_layer)), norms.shape[1], "grad"))
    _heat(axes, norms, edges)
    _hatch_missing(axes, norms, edges)
    every = -(-len(norms) // 16)  # at most 16 names fit
    drawing.name_rows(axes, range(0, len(norms), every), list(by_layer)[::every])
    axes.tick_params(axis="y", length=0)
    drawing.set_title(axes, title)
    return axes


def _norms_of(gradients: Any, who: str) -> dict[str, Array]:
    """The norm of each layer's gradient at each step, (T,)."""
    if isinstance(gradients, Mapping) and not gradients:
        raise ArgumentError(f"{who}: there are no gradients to draw: the mapping is empty.")
    norms = {}
    for name, gradient in all_layers(gradients, "grad", who).items():
        if gradient.ndim == 0 or not gradient.shape[0]:
            raise ShapeError(
                f"{who}: the gradient of {name!r} must be (T, ...) with at least one step, not {gradient.shape}."
            )
        rows = gradient.reshape(gradient.shape[0], -1).astype(np.float64)
        # Divide by the largest element, so that no square overflows; NaN stays NaN.
        largest = np.max(np.abs(rows), axis=1, initial=0.0)
        scale = np.where(np.isfinite(largest) & (largest > 0), largest, 1.0)
        norms[name] = scale * np.sqrt(((rows / scale[:, None]) ** 2).sum(1))
    return norms


def _edges(steps: Array) -> Array:
    if len(steps) == 1:
        return np.array([steps[0] - 0.5, steps[0] + 0.5])
    middles = (steps[1:] + steps[:-1]) / 2.0
    ends = 1.5 * steps[0] - 0.5 * steps[1], 1.5 * steps[-1] - 0.5 * steps[-2]
    return np.array([ends[0], *middles, ends[1]])


def _heat(axes: Any, norms: Array, edges: Array) -> None:
    from matplotlib.colors import LogNorm

    seen = np.isfinite(norms) & (norms > 0)
    values = norms[seen] if seen.any() else np.ones(1)
    limits = np.array([values.min(), values.max()])
    if limits[1] < NARROWEST * limits[0]:
        limits = np.sqrt(limits[0]) * np.sqrt(limits[1]) * np.sqrt([1.0 / NARROWEST, NARROWEST])
    limits = np.clip(limits, np.finfo(float).tiny, np.finfo(float).max)
    rows, shown = np.arange(len(norms) + 1) - 0.5, np.ma.masked_where(~seen, norms)
    mesh = axes.pcolormesh(
        edges, rows, shown, norm=LogNorm(*limits), cmap="cividis", rasterized=True
    )  # readable in grey
    drawing.label_time_axis(axes)
    if seen.any():
        drawing.colour_bar(axes, mesh, "gradient norm (L2)", "norm (L2)", aspect=max(20.0, 1.3 * len(norms)))


def _hatch_missing(axes: Any, norms: Array, edges: Array) -> None:
    """Hatch zeros, NaN and infinity, which have no place on a logarithmic scale, with a legend."""
    from matplotlib.patches import Patch, Rectangle

    zero: dict[str, Any] = {"facecolor": "white", "edgecolor": "0.4", "hatch": "////", "linewidth": 0.0}
    broken: dict[str, Any] = {"facecolor": "#D55E00", "edgecolor": "black", "hatch": "xxxx", "linewidth": 0.6}
    keys = []
    for name, style, where in (("zero", zero, norms == 0), ("NaN or inf", broken, ~np.isfinite(norms))):
        for row, begin, end in _runs(where):
            axes.add_patch(Rectangle((edges[begin], row - 0.5), edges[end] - edges[begin], 1.0, **style))
        keys += [Patch(label=name, **style)] if where.any() else []
    drawing.legend(axes, keys, inside=False)


def _runs(where: Array) -> list[tuple[int, int, int]]:
    """The runs of true elements in each row: the row, the first column, and the column after the last."""
    padded = np.pad(where.astype(np.int8), ((0, 0), (1, 1)))
    rows, begins = np.nonzero(np.diff(padded, axis=1) == 1)
    ends = np.nonzero(np.diff(padded, axis=1) == -1)[1]
    return list(zip(rows.tolist(), begins.tolist(), ends.tolist(), strict=True))


_HEIGHT = 0.8  # height of a histogram, relative to the distance of rows


def update_ratios(before: Any, after: Any, optimiser: Annotated[Optimizer | None, Own()] = None) -> dict[str, float]:
    """Update-to-weight ratios: ||after - before||_2 / ||before||_2 of each weight.

    Ratios around 1e-3 usually show a suitable learning rate. The ratio is infinite for a weight that was all 0.

    Args:
        before: a mapping from names to copies of the weights before the update (an update changes Parameters in place).
        after: the weights after the update in the same form, or the net: then its trainable Parameters count, by path.
            `update_ratios(weights, {name: w + gradient})` gives gradient-to-weight ratios.
        optimiser: treat each of its groups as one vector, "group 0", "group 1", ...; `after` must then be the net.
    Returns: The ratio by name, in the order of `after`, or of each group.
    Example:
        >>> net = nn.Dense(2, 1, weight_init="ones", has_bias=False)
        >>> before = {name: p.asnumpy().copy() for name, p in net.parameters_and_names()}
        >>> _ = net.weight.set_data(net.weight * 1.01)
        >>> {name: round(ratio, 4) for name, ratio in snncell.plot.update_ratios(before, net).items()}
        {'weight': 0.01}
    """
    old, new = (_parameters(x, "update_ratios", n, True) for n, x in (("before", before), ("after", after)))
    if old.keys() != new.keys():
        differ = ", ".join(map(repr, sorted(old.keys() ^ new.keys())))
        raise ArgumentError(f"update_ratios: before and after must name the same weights; only one has {differ}.")
    for name, value in new.items():
        if isinstance(value, Parameter) and value is old[name]:
            raise ArgumentError(
                f"update_ratios: {name!r} before and after are the same Parameter. Copy it before the update: "
                f"p.asnumpy().copy()."
            )
    pairs = {name: (np.asarray(old[name], np.float64), np.asarray(value, np.float64)) for name, value in new.items()}
    for name, (a, b) in pairs.items():
        if a.shape != b.shape:
            raise ShapeError(f"update_ratios: {name!r} has shape {a.shape} before the update, {b.shape} after it.")
    ratios = {}
    for name, (one, other) in (pairs if optimiser is None else _by_group(pairs, new, optimiser)).items():
        moved, size = float(np.linalg.norm(other - one)), float(np.linalg.norm(one))
        ratios[name] = moved / size if size else (float("inf") if moved else 0.0)
    return ratios


def _by_group(pairs: dict[str, tuple[Array, Array]], new: dict[str, Any], optimiser: Any) -> dict[str, Any]:
    if not isinstance(optimiser, Optimizer):
        raise ArgumentError(
            f"update_ratios: optimiser must be one of snncell.nn, such as nn.Adam, not {came(optimiser)}."
        )
    numbers = optimiser.group_numbers()
    groups: dict[str, Any] = {f"group {n}": ([], []) for n in range(len(optimiser.groups))}
    for name, pair in pairs.items():
        if id(new[name]) not in numbers:
            raise ArgumentError(
                f"update_ratios: {name!r} is not in the optimiser. Pass the net that the optimiser trains as after, "
                f"and in before the Parameters that it trains."
            )
        for several, array in zip(groups[f"group {numbers[id(new[name])]}"], pair, strict=True):
            several.append(array.ravel())
    return {name: tuple(map(np.concatenate, two)) for name, two in groups.items() if two[0]}


def gradient_to_weight(
    ratios: Any, ax: Any = None, title: str | None = None, band: tuple[float, float] = (1e-4, 1e-2)
) -> Any:
    """Update-to-weight (or gradient-to-weight) ratios over the updates, on a logarithmic axis.

    The shaded band is a rule of thumb. Above it, the learning rate is too high or a gradient explodes; below it, the
    weight hardly learns. Lines leave out ratios of 0, NaN and infinity; the legend counts NaN and infinity.

    Args:
        ratios: a mapping from each weight's name to its ratios, (updates,); or a list of results of `update_ratios`.
        ax, title: the Axes to draw on (new Axes by default), and the title.
        band: the bounds of the shaded band.
    """
    named = _transpose_ratios(ratios)
    low, high = band
    if not 0.0 < low < high < np.inf:
        raise ArgumentError(f"gradient_to_weight: band must be (low, high) with 0 < low < high, not {band!r}.")
    axes = drawing.axes_or_new(ax, height=2.2 + 0.14 * (len(named) // 2))
    for number, (name, values) in enumerate(named.items()):
        array = as_array(values, "gradient_to_weight", "ratios")
        if array.ndim != 1 or not array.size:
            raise ShapeError(f"gradient_to_weight: the ratios of {name!r} must be (updates,), not {array.shape}.")
        drawing.positive_line(axes, np.arange(1, len(array) + 1), array, name, number)
    axes.axhspan(low, high, color="0.9", linewidth=0, zorder=0, label=f"usual: {low:g} to {high:g}")
    axes.set_yscale("log")
    drawing.whole_ticks(axes.xaxis)
    return drawing.finish(axes, title, ("update",), ("update / weight (L2)", "update / weight"))


def weight_histograms(
    net: Any, ax: Any = None, title: str | None = None, bins: Count = 60, before: Any = None, trained: bool = True
) -> Any:
    """Histograms of the elements of each Parameter, one above the other, over a common axis.

    Each histogram is scaled so that its fullest bin has the full height. The text next to it gives the standard
    deviation (sd), or the value if all elements are equal, and the number of NaN and infinite elements. The first and
    the last bin also contain the elements outside of the axis, at most 0.1 % of a Parameter on each side.

    Args:
        net: a Cell, or a mapping from names to arrays.
        ax, title: the Axes to draw on (new Axes by default), and the title.
        bins: the number of bins.
        before: the weights at an earlier time, in the same form, drawn as a dashed outline.
        trained: for a Cell, draw only the Parameters with requires_grad.
    """
    arrays = {
        name: np.asarray(value, np.float64)
        for name, value in _parameters(net, "weight_histograms", "net", trained).items()
    }
    old: dict[str, Array] = {}
    if before is not None:
        others = _parameters(before, "weight_histograms", "before", trained)
        if missing := arrays.keys() - others.keys():
            raise ArgumentError(f"weight_histograms: before has no {', '.join(map(repr, sorted(missing)))}.")
        old = {name: np.asarray(others[name], np.float64) for name in arrays}
    axes = drawing.axes_or_new(ax, height=max(1.6, 0.7 + 0.28 * len(arrays)))
    edges = np.linspace(*_limits([*arrays.values(), *old.values()]), bins + 1)
    rows = dict(zip(arrays, range(len(arrays))[::-1], strict=True))
    for name, array in arrays.items():
        _stairs(axes, array, edges, rows[name], fill=True, color=COLOURS[6], label="now")
        if name in old:
            _stairs(axes, old[name], edges, rows[name], color=COLOURS[0], linestyle="--", linewidth=0.8, label="before")
    _name_histograms(axes, arrays, rows)
    axes.set_xlim(edges[0], edges[-1])
    return drawing.finish(axes, title, ("value",), (), handles=axes.patches[:2] if old else (), beside=4 * SMALL)


def _parameters(x: Any, who: str, name: str, trained: bool) -> dict[str, Any]:
    if isinstance(x, Cell):
        parameters = {path: p for path, p in x.parameters_and_names() if p.requires_grad or not trained}
    elif isinstance(x, Mapping):
        parameters = {str(key): value for key, value in x.items()}
        for key, value in parameters.items():
            as_array(value, who, f"{name}[{key!r}]")
    else:
        raise ArgumentError(f"{who}: {name} must be a Cell, or a mapping from names to arrays, not {came(x)}.")
    if not parameters:
        raise ArgumentError(
            f"{who}: {name}: the {type(x).__name__} has no Parameters" + " with requires_grad." * trained
        )
    return parameters


def _transpose_ratios(ratios: Any) -> dict[str, Any]:
    """Ratios by name, from such a mapping or from a list with one dictionary per update."""
    if isinstance(ratios, Sequence) and ratios and all(isinstance(each, Mapping) for each in ratios):
        names = dict.fromkeys(name for each in ratios for name in each)
        return {str(name): [each.get(name, np.nan) for each in ratios] for name in names}
    if not isinstance(ratios, Mapping) or not ratios:
        raise ArgumentError(
            "gradient_to_weight: takes the ratios of each weight by name, or a list of results of update_ratios, with "
            f"at least one entry, not {show(ratios)}."
        )
    return {str(name): values for name, values in ratios.items()}


def _limits(arrays: list[Array]) -> tuple[float, float]:
    """The range of all elements without the outermost 0.1 % at each end of each array."""
    finite = [array[np.isfinite(array)] for array in arrays]
    ends = [np.quantile(array, [0.001, 0.999], method="closest_observation") for array in finite if array.size]
    low, high = (min(e[0] for e in ends), max(e[1] for e in ends)) if ends else (0.0, 0.0)
    spare = 0.02 * (high - low) or 0.5 * (abs(high) or 1.0)
    return float(low - spare), float(high + spare)


def _stairs(axes: Any, array: Array, edges: Array, row: int, **style: Any) -> None:
    counts = np.histogram(np.clip(array[np.isfinite(array)], edges[0], edges[-1]), edges)[0]
    heights = np.where(counts > 0, row + _HEIGHT * counts / max(int(counts.max()), 1), np.nan)
    axes.stairs(heights, edges, baseline=row, **style)


def _name_histograms(axes: Any, arrays: dict[str, Array], rows: dict[str, int]) -> None:
    drawing.name_rows(axes, [rows[name] + _HEIGHT / 2 for name in arrays], list(arrays))
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(-0.1, len(arrays))
    look: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": SMALL}
    for name, array in arrays.items():
        axes.axhline(rows[name], color="0.7", linewidth=0.6, zorder=0)
        finite = array[np.isfinite(array)]
        lost = array.size - finite.size
        text = _say_spread(finite) + (f"\n{lost} NaN or inf" if lost and finite.size else "")
        place = (1.0, rows[name] + _HEIGHT / 2)
        axes.annotate(text, place, (3, 0), xycoords=axes.get_yaxis_transform(), **look)


def _say_spread(finite: Array) -> str:
    if not finite.size:
        return "nothing finite"
    if finite.size == 1:
        return f"= {finite.flat[0]:.3g}"
    return f"all {finite.flat[0]:.3g}" if np.ptp(finite) == 0 else f"sd {finite.std():.2g}"
