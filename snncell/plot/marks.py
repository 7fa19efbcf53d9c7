"""The ground of pictures of gradients, weights and trainings: lines on logarithmic axes, a second axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from snncell.plot.axes import SMALL, in_key, label_axis, marker, series


def line_style(number: int, points: int, evaluated: bool = False) -> dict[str, Any]:
    """The style of the `number`-th line of so many points, with markers on a dozen of them; hollow for evaluations."""
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
    """A line of what is above 0; the legend says what no such axis can show: NaN, infinity, zeros alone."""
    array = np.asarray(values, dtype=np.float64)
    lost = int(np.count_nonzero(~np.isfinite(array)))
    shown = np.where(np.isfinite(array) & (array > 0), array, np.nan)
    zero = array.size > lost and not np.isfinite(shown).any()
    said = [f"{lost} NaN or inf"] * bool(lost) + ["zero" if not lost else "else zero"] * zero
    label = f"{name} ({', '.join(said)})" if said else name
    style = line_style(number, array.size) | {"linestyle": series(number)["linestyle"]}
    style["markevery"] = sorted({*range(0, array.size, style["markevery"]), *_alone(shown)})
    axes.plot(x, shown, label=in_key(label) or "_unnamed", **style)


def _alone(values: Any) -> list[int]:
    """Where a value has no neighbour that a line could go to."""
    there = np.pad(np.isfinite(values), 1)
    alone: list[int] = np.nonzero(there[1:-1] & ~there[:-2] & ~there[2:])[0].tolist()
    return alone


def second_axis(axes: Any, name: str) -> Any:
    """A vertical axis on the right, over the same horizontal one."""
    right = axes.twinx()
    right.spines[["top", "left"]].set_visible(False)
    right.tick_params(labelsize=SMALL)
    right.yaxis.get_offset_text().set_fontsize(SMALL)
    label_axis(right.yaxis, name)
    return right
