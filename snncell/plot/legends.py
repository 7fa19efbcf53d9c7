"""Place a legend inside where nothing is drawn, else below the Axes, and over the data only if there is no room.

Matplotlib's `loc="best"` alone is not enough: it puts the legend over the lines if no place is free, for example over
six lines of `gradient_to_weight`, and does not see the lines of a second axis, as in `training_curves`. Its
`loc="outside ..."` is for the legend of a whole figure, not of one of several Axes.
"""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np

from snncell.plot.axes import (
    LARGE,
    SMALL,
    SMALLEST,
    axes_size,
    has_formula,
    has_layout,
    has_twin,
    panel_size,
    text_width,
)

_SHARE = 0.25  # of the height of the Axes' place, that a legend below may always take
_LEAST = 0.45  # of that height, that the Axes keep where a legend below takes more
_UNDER = 46.0  # points, of that height, for the axis' numbers and name
_LEFT = 30.0  # points, left of the Axes, for their numbers
_GAP = 4.0  # points, between the legend and the data, and the edges
# Places of a legend inside, in the order in which they are tried: shares of what is left of width and height.
_PLACES = ((1.0, 1.0), (0.0, 1.0), (1.0, 0.0), (0.0, 0.0), (0.5, 1.0), (0.5, 0.0), (1.0, 0.5), (0.0, 0.5), (0.5, 0.5))


def legend(axes: Any, handles: Any = None, inside: bool = True, beside: float = 0.0) -> None:
    """Draw the legend of `_place_legend`; its labels may be names that users gave."""
    _place_legend(axes, handles, inside, beside)
    for text in [] if axes.get_legend() is None else axes.get_legend().get_texts():
        text.set_parse_math(has_formula(text.get_text()))


def _place_legend(axes: Any, handles: Any, inside: bool, beside: float) -> None:
    """Draw the legend of `axes`, or of `handles`, if there are any.

    It stands inside where nothing is drawn. If there is no such place, or with `inside=False`, for Axes that are full
    to the edges, it stands below, if a layout (constrained or tight) makes room for it and the Axes keep enough of the
    panel. Otherwise it lies over the data, half transparent. `beside` is the width of text next to the Axes, in points.
    """
    handles = axes.get_legend_handles_labels()[0] if handles is None else list(handles)
    if not handles:
        return
    width, height = axes_size(axes)
    width -= beside
    look: dict[str, Any] = {"handles": handles, "columnspacing": 1.2}
    if inside and (place := _free(axes, handles, width, height)) is not None:
        axes.legend(frameon=False, borderaxespad=0.0, **place, **look)
        return
    beneath = _beneath(axes, handles, width, _fits_over(handles, width, height)) if has_layout(axes) else None
    if beneath is not None:
        axes.legend(frameon=False, borderaxespad=0.0, **{**look, **beneath})
        return
    size, sample = _looks(handles)[-1]
    tight = {"columnspacing": 0.8, "labelspacing": 0.2, "borderpad": 0.2}
    axes.legend(loc="best", framealpha=0.8, fontsize=size, handlelength=sample, **{**look, **tight})


def _looks(handles: Any) -> tuple[tuple[float, float], ...]:
    """The size of letters, and the length of a sample in letters: as is usual, and where there is little room."""
    from matplotlib.patches import Patch

    if all(isinstance(handle, Patch) for handle in handles):
        return (SMALL, 1.4), (SMALLEST, 1.2)
    return (SMALL, 2.4), (SMALLEST, 1.6)


def _fits_over(handles: Any, width: float, height: float) -> bool:
    """True if a small legend, in one column, covers a part of the Axes alone."""
    size, sample = _looks(handles)[-1]
    wide, high = _sizes(handles, 1, size, sample)
    return wide <= 0.7 * width and high <= 0.7 * height


def _sizes(handles: Any, columns: int, size: float, sample: float) -> tuple[float, float]:
    """Width and height of a legend of so many columns, in points."""
    labels = [text_width(handle.get_label(), size) for handle in handles]
    wide = sum(part.max() + (sample + 0.8) * size for part in np.array_split(labels, min(columns, len(labels))))
    return wide + (columns - 1) * 1.2 * size, math.ceil(len(handles) / columns) * 1.5 * size


# --- inside -----------------------------------------------------------------------------------------------------------


def _free(axes: Any, handles: Any, width: float, height: float) -> dict[str, Any] | None:
    """A place inside, of that width and height, in which nothing is drawn, with as few columns as it takes."""
    drawn = None
    counts = [n for n in dict.fromkeys((1, 2, 3, len(handles))) if n <= len(handles)]
    for (size, sample), columns in product(_looks(handles), counts):
        wide, high = (points + 2 * _GAP for points in _sizes(handles, columns, size, sample))
        if wide > width or high > height:
            continue
        drawn = _outlines_of(axes) if drawn is None else drawn
        for x, y in _PLACES:
            left, low = x * (1 - wide / width), y * (1 - high / height)
            if not _meets(drawn, left, low, left + wide / width, low + high / height):
                corner = ("lower", "center", "upper")[int(2 * y)] + " " + ("left", "center", "right")[int(2 * x)]
                at = (x + (1 - 2 * x) * _GAP / width, y + (1 - 2 * y) * _GAP / height)
                look = {"ncols": columns, "fontsize": size, "handlelength": sample}
                return {"loc": corner.replace("center center", "center"), "bbox_to_anchor": at, **look}
    return None


def _outlines_of(axes: Any) -> list[tuple[Any, bool]]:
    """The outlines of what is drawn on these Axes and their twins, in shares of the Axes, and whether each is filled.

    A ground (zorder 0 or below) is none of it: a legend may stand on it.
    """
    outlines = []
    for each in axes.figure.axes:
        if each is not axes and each.bbox.bounds != axes.bbox.bounds:
            continue
        each.get_xlim(), each.get_ylim()  # what autoscaling has put off is done now
        to_share = axes.transAxes.inverted()
        for line in each.lines:
            outlines.append((line.get_path().transformed(line.get_transform() + to_share), False))
        for patch in each.patches:
            if patch.get_zorder() > 0:
                outlines.append((patch.get_path().transformed(patch.get_transform() + to_share), patch.get_fill()))
        for marks in each.collections:
            if marks.get_zorder() > 0:
                outlines += _of_marks(marks, to_share)
    return outlines


def _of_marks(marks: Any, to_share: Any) -> list[tuple[Any, bool]]:
    """The outlines of a collection: of marks at places, the places."""
    from matplotlib.path import Path

    places = np.ma.getdata(marks.get_offsets())
    if len(places) and marks.get_offset_transform().frozen() is not None and len(marks.get_paths()) <= 1 < len(places):
        return [(Path(to_share.transform(marks.get_offset_transform().transform(places))), False)]
    return [(path.transformed(marks.get_transform() + to_share), True) for path in marks.get_paths()]


def _meets(drawn: list[tuple[Any, bool]], left: float, low: float, right: float, high: float) -> bool:
    from matplotlib.transforms import Bbox

    box = Bbox.from_extents(left, low, right, high)
    for path, filled in drawn:
        there = path.vertices[np.isfinite(path.vertices).all(1)]
        if ((there >= (left, low)) & (there <= (right, high))).all(1).any():
            return True
        if len(there) > 1 and path.cleaned(remove_nans=True).intersects_bbox(box, filled=filled):
            return True
    return False


# --- beneath ----------------------------------------------------------------------------------------------------------


def _beneath(axes: Any, handles: Any, width: float, elsewhere: bool) -> dict[str, Any] | None:
    """Place a legend below the Axes, in as many columns as fit.

    None if it takes too much of the panel and can stand elsewhere; if it cannot, its lines stand close together.
    """
    from matplotlib.transforms import ScaledTranslation

    down = SMALL + LARGE + 14.0 if axes.get_xlabel() else SMALL + 8.0  # the axis' numbers, and its name
    under = axes.transAxes + ScaledTranslation(0.0, -down / 72.0, axes.figure.dpi_scale_trans)
    height, widest = panel_size(axes)[1], width + (2 if has_twin(axes) else 1) * _LEFT
    shares = _SHARE * height, max(_SHARE * height, (1.0 - _LEAST) * height - _UNDER)
    for most, (size, sample) in product(shares, _looks(handles)):
        fit = [n for n in range(len(handles), 0, -1) if _sizes(handles, n, size, sample)[0] <= widest]
        columns = math.ceil(len(handles) / math.ceil(len(handles) / fit[0])) if fit else 1  # rows of even length
        wide, high = _sizes(handles, columns, size, sample)
        # A legend that is wider than the Axes ends where they end, if there are no numbers on their right.
        side, edge = ("center", 0.5) if wide <= width or has_twin(axes) else ("right", 1.0)
        at = {"loc": f"upper {side}", "bbox_to_anchor": (edge, 0.0), "bbox_transform": under}
        place = {**at, "ncols": columns, "fontsize": size, "handlelength": sample}
        if wide <= widest and high <= max(most, 1.5 * size):
            return place
    close = {"labelspacing": 0.0, "borderpad": 0.0, "columnspacing": 0.8, "handletextpad": 0.4}
    return None if elsewhere else {**place, **close}
