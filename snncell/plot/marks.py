"""What pictures of gradients, weights and trainings share: lines on logarithmic axes, keys beneath, a second axis."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from snncell.plot.axes import LARGE, SMALL, extent, marker, series


def marked(number: int, points: int, evaluated: bool = False) -> dict[str, Any]:
    """How the `number`-th line of so many points is drawn, with markers on a dozen of them; hollow for evaluations."""
    colour = series(number)["color"]
    return {
        "color": colour,
        "marker": marker(number),
        "markerfacecolor": "white" if evaluated else colour,
        "markevery": max(1, -(-points // 12)),
        "markersize": 3.5,
        "linewidth": 1.2,
    }


def positive_line(axes: Any, x: Any, values: Any, name: str, number: int) -> None:
    """A line of what is above 0; the legend says how many values are NaN or infinite, which no axis can show."""
    array = np.asarray(values, dtype=np.float64)
    lost = int(np.count_nonzero(~np.isfinite(array)))
    label = f"{name} ({lost} NaN or inf)" if lost else name
    shown = np.where(np.isfinite(array) & (array > 0), array, np.nan)
    style = marked(number, array.size) | {"linestyle": series(number)["linestyle"]}
    style["markevery"] = sorted({*range(0, array.size, style["markevery"]), *_alone(shown)})
    axes.plot(x, shown, label=label or "_unnamed", **style)


def _alone(values: Any) -> list[int]:
    """Where a value has no neighbour that a line could go to."""
    there = np.pad(np.isfinite(values), 1)
    alone: list[int] = np.nonzero(there[1:-1] & ~there[:-2] & ~there[2:])[0].tolist()
    return alone


def legend_under(axes: Any, handles: Any = None) -> None:
    """A legend beneath the label of the horizontal axis, if there is anything to name; inside, where no layout makes
    room for it."""
    handles = axes.get_legend_handles_labels()[0] if handles is None else handles
    figure = axes.figure
    if handles and hasattr(figure, "get_layout_engine") and figure.get_layout_engine() is not None:
        axes.legend(handles=handles, fontsize=SMALL, frameon=False, handlelength=2.4, **_beneath(axes, handles))
    elif handles:
        axes.legend(handles=handles, fontsize=SMALL, framealpha=0.8, handlelength=2.4, loc="best")


def _beneath(axes: Any, handles: Any) -> dict[str, Any]:
    """Where a legend stands beneath the Axes, in as many columns as fit."""
    from matplotlib.transforms import ScaledTranslation

    widest = max(_width(handle.get_label()) for handle in handles) + 4.6 * SMALL  # with the sample, and room between
    columns = max(1, min(len(handles), int(0.92 * extent(axes)[0] // widest)))
    down = SMALL + LARGE + 14.0 if axes.get_xlabel() else SMALL + 8.0  # the axis' numbers, and its name
    place = axes.transAxes + ScaledTranslation(0.0, -down / 72.0, axes.figure.dpi_scale_trans)
    columns = math.ceil(len(handles) / math.ceil(len(handles) / columns))  # rows of even length
    options = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "bbox_transform": place, "borderaxespad": 0.0}
    return {**options, "ncols": columns, "columnspacing": 1.2}


def _width(text: str) -> float:
    """How wide a text of a legend is, in points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    width, _, _ = text_to_path.get_text_width_height_descent(text, FontProperties(size=SMALL), False)
    return float(width)


def second_axis(axes: Any, name: str) -> Any:
    """A vertical axis on the right, over the same horizontal one."""
    right = axes.twinx()
    right.spines[["top", "left"]].set_visible(False)
    right.tick_params(labelsize=SMALL)
    right.set_ylabel(name, fontsize=LARGE)
    return right
