"""Pictures of weights: histograms, and the size of updates or gradients relative to the weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np

from snncell.base.arguments.kinds import Own, check_count
from snncell.base.arguments.shown import came, show
from snncell.cell.cell import Cell
from snncell.errors import ArgumentError, ShapeError
from snncell.nn.optim.optimizer import Optimizer
from snncell.plot.axes import COLOURS, SMALL, axes_or_new, label_axis, name_rows, positive_line, set_title, whole_ticks
from snncell.plot.legends import legend
from snncell.plot.sources import Array, as_array
from snncell.tape.parameter import Parameter

_HEIGHT = 0.8  # of a histogram, the rows being 1 apart


def update_ratios(before: Any, after: Any, optimiser: Annotated[Optimizer | None, Own()] = None) -> dict[str, float]:
    """The size of each weight's move, in parts of its size: ||after - before||_2 / ||before||_2.

    A weight that did not move has the ratio 0, one that was all 0 and moved has infinity.

    Args:
        before: for each name the weights before the update, any shape; copies, since a Parameter changes. With
            gradients, `update_ratios(weights, {name: w + gradient})`, it is the size of the gradient instead.
        after: those after it, or the net, of which the Parameters with requires_grad count, by their paths.
        optimiser: whose groups of Parameters are each taken as one vector, as "group 0", "group 1", ...; `after` is
            the net then.

    Returns:
        The ratio by name, in the order of `after`, or of each group.

    Raises:
        ArgumentError: if the names differ, or `before` and `after` are the same Parameters.
        ShapeError: if a weight has another shape after than before.

    Example:
        >>> net = nn.Dense(2, 1, weight_init="ones", has_bias=False)
        >>> before = {name: p.asnumpy().copy() for name, p in net.parameters_and_names()}
        >>> _ = net.weight.set_data(net.weight * 1.01)
        >>> {name: round(ratio, 4) for name, ratio in snncell.plot.update_ratios(before, net).items()}
        {'weight': 0.01}
        >>> sgd = nn.SGD([{"params": net.trainable_params()}], 0.1)
        >>> {name: round(ratio, 4) for name, ratio in snncell.plot.update_ratios(before, net, sgd).items()}
        {'group 0': 0.01}
    """
    old, new = (_parameters(x, "update_ratios", n, True) for n, x in (("before", before), ("after", after)))
    if old.keys() != new.keys():
        differ = ", ".join(map(repr, sorted(old.keys() ^ new.keys())))
        raise ArgumentError(f"update_ratios: before and after name the same weights; only one of them has {differ}.")
    for name, value in new.items():
        if isinstance(value, Parameter) and value is old[name]:
            raise ArgumentError(
                f"update_ratios: {name!r} before and after are one Parameter. Keep a copy of it before the update: "
                f"p.asnumpy().copy()."
            )
    pairs = {name: (_numbers(old[name]), _numbers(value)) for name, value in new.items()}
    for name, (one, other) in pairs.items():
        if one.shape != other.shape:
            raise ShapeError(
                f"update_ratios: {name!r} has shape {one.shape} before the update, {other.shape} after it."
            )
    pairs = pairs if optimiser is None else _by_group(pairs, new, optimiser)
    return {name: _ratio(*pair) for name, pair in pairs.items()}


def _by_group(pairs: dict[str, tuple[Array, Array]], new: dict[str, Any], optimiser: Any) -> dict[str, Any]:
    """The weights of each group in a row, before and after."""
    if not isinstance(optimiser, Optimizer):
        raise ArgumentError(f"update_ratios: optimiser is one of snncell.nn, such as nn.Adam, not {came(optimiser)}.")
    numbers = optimiser.group_numbers()
    groups: dict[str, Any] = {f"group {n}": ([], []) for n in range(len(optimiser.groups))}
    for name, pair in pairs.items():
        if id(new[name]) not in numbers:
            raise ArgumentError(
                f"update_ratios: {name!r} is not in the optimiser; give the net that it was made of as after, and in "
                f"before the Parameters that it trains."
            )
        for several, array in zip(groups[f"group {numbers[id(new[name])]}"], pair, strict=True):
            several.append(array.ravel())
    return {name: tuple(map(np.concatenate, two)) for name, two in groups.items() if two[0]}


def gradient_to_weight(
    ratios: Any, ax: Any = None, title: str | None = None, band: tuple[float, float] = (1e-4, 1e-2)
) -> Any:
    """Draw the size of each update (or gradient) beside its weight, update by update, on a logarithmic axis.

    Above the band a weight is thrown about: the learning rate is too high, or a gradient explodes. Below it the weight
    hardly learns. The band is a rule of thumb around 1e-3. Ratios of 0 are left out of the lines; NaN and infinity too,
    which the legend counts.

    Args:
        ratios: for each weight's name its ratios, (updates,); or a list with what `update_ratios` gave each time.
        ax: the Axes to draw on; a new one if it is left out.
        title: above it.
        band: from where to where the ground is shaded.

    Raises:
        ArgumentError: if there is no ratio, or the band does not rise from above 0.
        ShapeError: for ratios that are no sequence of numbers.
    """
    named = _transpose_ratios(ratios)
    low, high = band
    if not 0.0 < low < high < np.inf:
        raise ArgumentError(f"gradient_to_weight: band is (low, high) with 0 < low < high, not {band!r}.")
    axes = axes_or_new(ax, height=2.2 + 0.14 * (len(named) // 2))
    for number, (name, values) in enumerate(named.items()):
        array = as_array(values, "gradient_to_weight", "ratios")
        if array.ndim != 1 or not array.size:
            raise ShapeError(f"gradient_to_weight: the ratios of {name!r} are (updates,), not {array.shape}.")
        positive_line(axes, np.arange(1, len(array) + 1), array, name, number)
    axes.axhspan(low, high, color="0.9", linewidth=0, zorder=0, label=f"usual: {low:g} to {high:g}")
    axes.set_yscale("log")
    whole_ticks(axes.xaxis)
    label_axis(axes.xaxis, "update")
    label_axis(axes.yaxis, "update / weight (L2)", "update / weight")
    legend(axes)
    set_title(axes, title)
    return axes


def weight_histograms(
    net: Any, ax: Any = None, title: str | None = None, bins: int = 60, before: Any = None, trained: bool = True
) -> Any:
    """Draw a histogram of the elements of each Parameter, one above the other, over one axis of values.

    Each is as high as its fullest bin; its standard deviation (sd) stands beside it, or, of elements that are all
    equal, the value, and how many elements are NaN or infinite, if any. The first Parameter is at the top. The
    outermost bins hold what lies further out, at most one part in 1000 of a Parameter on each side.

    Args:
        net: a Cell, or for each name an array.
        ax: the Axes to draw on; a new one if it is left out.
        title: above it.
        bins: between the least and the largest value.
        before: the weights at another time, in the same way, drawn as a dashed outline.
        trained: of a Cell, whether only the Parameters with requires_grad are drawn.

    Raises:
        ArgumentError: if there is no Parameter, no bin, or `before` does not have all of them.
    """
    arrays = {name: _numbers(value) for name, value in _parameters(net, "weight_histograms", "net", trained).items()}
    others = {} if before is None else _parameters(before, "weight_histograms", "before", trained)
    if missing := arrays.keys() - others.keys() if before is not None else set():
        raise ArgumentError(f"weight_histograms: before has no {', '.join(map(repr, sorted(missing)))}.")
    axes = axes_or_new(ax, height=max(1.6, 0.7 + 0.28 * len(arrays)))
    old = {name: _numbers(others[name]) for name in arrays} if others else {}
    edges = np.linspace(*_limits([*arrays.values(), *old.values()]), check_count(bins, "weight_histograms", "bins") + 1)
    rows = dict(zip(arrays, range(len(arrays))[::-1], strict=True))
    for name, array in arrays.items():
        _stairs(axes, array, edges, rows[name], fill=True, color=COLOURS[6], label="now")
        if name in old:
            _stairs(axes, old[name], edges, rows[name], color=COLOURS[0], linestyle="--", linewidth=0.8, label="before")
    _name_rows(axes, arrays, rows)
    axes.set_xlim(edges[0], edges[-1])
    label_axis(axes.xaxis, "value")
    if old:
        legend(axes, axes.patches[:2], beside=4 * SMALL)
    set_title(axes, title)
    return axes


# --- values -----------------------------------------------------------------------------------------------------------


def _parameters(x: Any, who: str, name: str, trained: bool) -> dict[str, Any]:
    """Parameters or arrays by name."""
    if isinstance(x, Cell):
        parameters = {path: p for path, p in x.parameters_and_names() if p.requires_grad or not trained}
    elif isinstance(x, Mapping):
        parameters = {str(key): value for key, value in x.items()}
        for key, value in parameters.items():
            as_array(value, who, f"{name}[{key!r}]")
    else:
        raise ArgumentError(f"{who}: {name} is a Cell, or a mapping from names to arrays, not {came(x)}.")
    if not parameters:
        raise ArgumentError(
            f"{who}: {name}: the {type(x).__name__} has no Parameters" + " with requires_grad." * trained
        )
    return parameters


def _numbers(x: Any) -> Array:
    """The elements, on whichever device they are, as float64."""
    return np.asarray(x.asnumpy() if hasattr(x, "asnumpy") else x, dtype=np.float64)


def _ratio(old: Array, new: Array) -> float:
    moved, size = float(np.linalg.norm(new - old)), float(np.linalg.norm(old))
    if moved == 0.0:
        return 0.0
    return moved / size if size else float("inf")


def _transpose_ratios(ratios: Any) -> dict[str, Any]:
    """Ratios by name, of what one dictionary for each update holds too."""
    if isinstance(ratios, Sequence) and ratios and all(isinstance(each, Mapping) for each in ratios):
        names = dict.fromkeys(name for each in ratios for name in each)
        return {str(name): [each.get(name, np.nan) for each in ratios] for name in names}
    if not isinstance(ratios, Mapping) or not ratios:
        raise ArgumentError(
            "gradient_to_weight: takes the ratios of each weight by name, or a list of what update_ratios gave, with "
            f"one of them at least, not {show(ratios)}."
        )
    return {str(name): values for name, values in ratios.items()}


def _limits(arrays: list[Array]) -> tuple[float, float]:
    """Around what lies within 0.1 % from either end of each array."""
    finite = [array[np.isfinite(array)] for array in arrays]
    ends = [np.quantile(array, [0.001, 0.999], method="closest_observation") for array in finite if array.size]
    low, high = (min(e[0] for e in ends), max(e[1] for e in ends)) if ends else (0.0, 0.0)
    spare = 0.02 * (high - low) or 0.5 * (abs(high) or 1.0)
    return float(low - spare), float(high + spare)


# --- looks ------------------------------------------------------------------------------------------------------------


def _stairs(axes: Any, array: Array, edges: Array, row: int, **style: Any) -> None:
    """A histogram that stands on its row."""
    counts = np.histogram(np.clip(array[np.isfinite(array)], edges[0], edges[-1]), edges)[0]
    heights = np.where(counts > 0, row + _HEIGHT * counts / max(int(counts.max()), 1), np.nan)
    axes.stairs(heights, edges, baseline=row, **style)


def _name_rows(axes: Any, arrays: dict[str, Array], rows: dict[str, int]) -> None:
    name_rows(axes, [rows[name] + _HEIGHT / 2 for name in arrays], list(arrays))
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(-0.1, len(arrays))
    for name, array in arrays.items():
        axes.axhline(rows[name], color="0.7", linewidth=0.6, zorder=0)
        finite = array[np.isfinite(array)]
        lost = array.size - finite.size
        text = _say_spread(finite)
        text += f"\n{lost} NaN or inf" if lost and finite.size else ""
        place = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points"}
        axes.annotate(text, (1.0, rows[name] + _HEIGHT / 2), (3, 0), va="center", fontsize=SMALL, **place)


def _say_spread(finite: Array) -> str:
    if not finite.size:
        return "nothing finite"
    if finite.size == 1:
        return f"= {finite.flat[0]:.3g}"
    return f"all {finite.flat[0]:.3g}" if np.ptp(finite) == 0 else f"sd {finite.std():.2g}"
