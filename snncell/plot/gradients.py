"""Pictures of gradients over time: their norms as lines, and as a heat map of layers and steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from snncell.errors import ArgumentError, ShapeError
from snncell.plot.axes import SMALL, axes_or_new, label_axis, label_time_axis, name_rows, positive_line, set_title
from snncell.plot.legends import legend
from snncell.plot.sources import Array, all_layers, step_numbers

NARROWEST = 2.0  # from the darkest colour to the brightest at least, so that noise is not all that is seen


def gradient_norms(gradients: Any, ax: Any = None, title: str | None = None) -> Any:
    """The size of each layer's gradient at each time step, on a logarithmic axis.

    A line that falls steeply to the left is a gradient that vanishes through time, one that rises explodes. Steps at
    which a gradient is exactly zero are left out of the line, and so are NaN and infinity, which the legend counts.

    Args:
        gradients: for each layer's name, the gradient of the loss with respect to its input at every step, (T, ...); or
            a monitor that recorded them, `monitor(net, grad=True)`.
        ax: the Axes to draw on; a new one if it is left out.
        title: above it.

    Raises:
        ArgumentError: if there is no layer, or the monitor recorded no gradients.
        ShapeError: for a gradient without an axis of time steps.
    """
    norms = _norms_of(gradients, "gradient_norms")
    axes = axes_or_new(ax, height=2.2 + 0.05 * len(norms))
    for number, (name, values) in enumerate(norms.items()):
        positive_line(axes, step_numbers(gradients, name, len(values), "grad"), values, name, number)
    axes.set_yscale("log")
    label_time_axis(axes)
    label_axis(axes.yaxis, "gradient norm (L2)", "gradient norm", "gradient")
    legend(axes)
    set_title(axes, title)
    return axes


def gradient_flow(gradients: Any, ax: Any = None, title: str | None = None) -> Any:
    """The size of the gradient in each layer at each time step, as a heat map with logarithmic colours.

    The colour at layer l and step t is ||g[l, t]||_2, over the batch and all neurons. Where it darkens to the left, the
    gradient vanishes through time, where it darkens downwards, it vanishes through the layers; where it brightens, it
    explodes. An exact zero, as in a layer that never fires, is hatched; NaN and infinity are cross-hatched in red.

    Args:
        gradients: for each layer's name, first layer first, the gradient with respect to its input at every step,
            (T, ...); or a monitor that recorded them, `monitor(net, grad=True)`.
        ax: the Axes to draw on; a new one if it is left out. The colour bar takes room from it.
        title: above it.

    Raises:
        ArgumentError: if there is no layer, or the monitor recorded no gradients.
        ShapeError: for a gradient without time steps, or layers with different numbers of them.
    """
    by_layer = _norms_of(gradients, "gradient_flow")
    norms = np.stack(list(_of_one_length(by_layer).values()))
    axes = axes_or_new(ax, height=max(1.8, min(1.2 + 0.2 * len(norms), 8.0)))
    edges = _edges(step_numbers(gradients, next(iter(by_layer)), norms.shape[1], "grad"))
    _heat(axes, norms, edges)
    _hatch_missing(axes, norms, edges)
    every = -(-len(norms) // 16)  # more names than that do not fit
    name_rows(axes, range(0, len(norms), every), list(by_layer)[::every])
    axes.tick_params(axis="y", length=0)
    set_title(axes, title)
    return axes


def _norms_of(gradients: Any, who: str) -> dict[str, Array]:
    """The norm of each layer's gradient, (T,), over all axes but the first."""
    if isinstance(gradients, Mapping) and not gradients:
        raise ArgumentError(f"{who}: there are no gradients to draw: the mapping is empty.")
    return {name: _norms(array, name, who) for name, array in all_layers(gradients, "grad", who).items()}


def _norms(gradient: Array, name: str, who: str) -> Array:
    if gradient.ndim == 0 or not gradient.shape[0]:
        raise ShapeError(f"{who}: the gradient of {name!r} is (T, ...) with a step at least, not {gradient.shape}.")
    rows = gradient.reshape(gradient.shape[0], -1).astype(np.float64)
    # Divided by its largest element, so that no square runs over; NaN stays NaN.
    largest = np.max(np.abs(rows), axis=1, initial=0.0)
    scale = np.where(np.isfinite(largest) & (largest > 0), largest, 1.0)
    sizes: Array = scale * np.sqrt(((rows / scale[:, None]) ** 2).sum(1))
    return sizes


def _of_one_length(norms: dict[str, Array]) -> dict[str, Array]:
    if len({len(values) for values in norms.values()}) > 1:
        steps = ", ".join(f"{name!r}: {len(values)}" for name, values in norms.items())
        raise ShapeError(
            f"gradient_flow: the layers have different numbers of steps ({steps}); draw those of one length together, "
            f"or use gradient_norms."
        )
    return norms


def _edges(steps: Array) -> Array:
    """The edges of the columns, half way between steps."""
    if len(steps) == 1:
        return np.array([steps[0] - 0.5, steps[0] + 0.5])
    middles = (steps[1:] + steps[:-1]) / 2.0
    ends = 1.5 * steps[0] - 0.5 * steps[1], 1.5 * steps[-1] - 0.5 * steps[-2]
    return np.array([ends[0], *middles, ends[1]])


def _heat(axes: Any, norms: Array, edges: Array) -> None:
    """Colours that can be told apart with any kind of colour vision, and become brighter in grey too."""
    from matplotlib.colors import LogNorm

    seen = np.isfinite(norms) & (norms > 0)
    values = norms[seen] if seen.any() else np.ones(1)
    limits = np.array([values.min(), values.max()])
    if limits[1] < NARROWEST * limits[0]:
        limits = np.sqrt(limits[0]) * np.sqrt(limits[1]) * np.sqrt([1.0 / NARROWEST, NARROWEST])
    limits = np.clip(limits, np.finfo(float).tiny, np.finfo(float).max)
    rows = np.arange(len(norms) + 1) - 0.5
    mesh = axes.pcolormesh(
        edges, rows, np.ma.masked_where(~seen, norms), norm=LogNorm(*limits), cmap="cividis", rasterized=True
    )
    label_time_axis(axes)
    if not seen.any():
        return
    colours = axes.figure.colorbar(mesh, ax=axes, pad=0.02, aspect=max(20.0, 1.3 * len(norms)))
    label_axis(colours.ax.yaxis, "gradient norm (L2)", "norm (L2)")
    colours.ax.tick_params(which="both", labelsize=SMALL)


def _hatch_missing(axes: Any, norms: Array, edges: Array) -> None:
    """Hatch what has no place on a logarithmic scale, and say what the hatches are."""
    from matplotlib.patches import Patch

    broken: dict[str, Any] = {"facecolor": "#D55E00", "edgecolor": "black", "hatch": "xxxx", "linewidth": 0.6}
    looks = {
        "zero": {"facecolor": "white", "edgecolor": "0.4", "hatch": "////", "linewidth": 0.0},
        "NaN or inf": broken,
    }
    keys = []
    for (name, style), where in zip(looks.items(), (norms == 0, ~np.isfinite(norms)), strict=True):
        for row, begin, end in _runs(where):
            axes.add_patch(_rectangle(edges[begin], edges[end], row, style))
        keys += [Patch(label=name, **style)] if where.any() else []
    legend(axes, keys, inside=False)


def _rectangle(left: float, right: float, row: int, style: dict[str, Any]) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((left, row - 0.5), right - left, 1.0, **style)


def _runs(where: Array) -> list[tuple[int, int, int]]:
    """For each run of true elements in a row: the row, its first column, and the one after its last."""
    padded = np.pad(where.astype(np.int8), ((0, 0), (1, 1)))
    rows, begins = np.nonzero(np.diff(padded, axis=1) == 1)
    ends = np.nonzero(np.diff(padded, axis=1) == -1)[1]
    return list(zip(rows.tolist(), begins.tolist(), ends.tolist(), strict=True))
