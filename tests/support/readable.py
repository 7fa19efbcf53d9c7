"""Legibility checks of figures: at column width, for colour-blind readers, and printed in grey."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
from matplotlib.colors import to_rgba
from matplotlib.lines import Line2D
from matplotlib.text import Text

WIDTH = 3.3  # inches: a column of a paper of two
SMALLEST = 6.0  # points
APART = 0.15  # between two grey values, black to white being 1


def assert_readable(axes: Any, widest: float = WIDTH) -> None:
    """Assert that the figure of `axes` is legible at column width, and that its series differ in grey."""
    figure = axes.figure
    width, height = figure.get_size_inches()
    if width > widest:
        figure.set_size_inches(widest, max(height * widest / width, min(height, 2.2)))
    figure.draw_without_rendering()
    texts = list(shown_texts(figure))
    assert texts, "nothing is written"
    small = [(text.get_text(), text.get_fontsize()) for text in texts if text.get_fontsize() < SMALLEST]
    assert not small, f"under {SMALLEST} pt: {small}"
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts]
    page = figure.bbox
    out = [text for text, box in boxes if box.x0 < -1 or box.y0 < -1 or box.x1 > page.x1 + 1 or box.y1 > page.y1 + 1]
    assert not out, f"cut off: {out}"
    over = [(a, b) for (a, first), (b, second) in combinations(boxes, 2) if overlap(first, second)]
    assert not over, f"one over the other: {over}"
    for each in all_axes(figure):
        assert_told_apart(each)


def assert_told_apart(axes: Any) -> None:
    """Assert that any two series of the legend, or labelled lines, differ in marker, line, hatch, or grey value."""
    legend = axes.get_legend()
    if legend is not None:
        series = [
            (text.get_text(), look(key)) for text, key in zip(legend.get_texts(), legend.legend_handles, strict=True)
        ]
    else:
        series = [(line.get_label(), look(line)) for line in axes.lines if not line.get_label().startswith("_")]
    for (a, (form, grey)), (b, (other_form, other_grey)) in combinations(series, 2):
        assert form != other_form or abs(grey - other_grey) >= APART, f"in grey, {a} looks like {b}"


def look(artist: Any) -> tuple[tuple[Any, ...], float]:
    """The appearance of an artist without colour: its form and its grey value."""
    if isinstance(artist, Line2D):
        line = "none" if artist.get_linestyle() in ("None", "none", "", " ") else str(artist._unscaled_dash_pattern)
        full = artist.get_fillstyle(), grey(artist.get_markerfacecolor()) > 0.9
        return (line, str(artist.get_marker()), *(full if str(artist.get_marker()) != "None" else ())), grey(
            artist.get_color()
        )
    if hasattr(artist, "get_hatch"):
        face = np.atleast_2d(artist.get_facecolor())
        edge = np.atleast_2d(artist.get_edgecolor())
        seen = face[0] if len(face) and face[0][-1] > 0 else edge[0]
        return (artist.get_hatch(), str(artist.get_linestyle())), grey(seen)
    return (type(artist).__name__,), 0.0


def grey(colour: Any) -> float:
    """The grey value of a colour on white paper; 0 is black."""
    red, green, blue, alpha = to_rgba(colour)
    return float(alpha * (0.299 * red + 0.587 * green + 0.114 * blue) + 1.0 - alpha)


def overlap(first: Any, second: Any) -> bool:
    """True if two boxes share more than one pixel."""
    wide = min(first.x1, second.x1) - max(first.x0, second.x0)
    high = min(first.y1, second.y1) - max(first.y0, second.y0)
    return bool(wide > 1 and high > 1)


def all_axes(figure: Any) -> Iterator[Any]:
    """The figure's Axes and their inset Axes."""
    for axes in figure.get_axes():
        yield axes
        yield from axes.child_axes


def shown_texts(figure: Any) -> Iterator[Text]:
    """All visible texts: titles, axis labels, tick labels within the limits, legends, and annotations."""
    candidates = [
        *figure.texts,
        *([figure._suptitle] if figure._suptitle and figure._suptitle not in figure.texts else []),
    ]
    for axes in dict.fromkeys(all_axes(figure)):
        if not axes.get_visible():
            continue
        candidates += [axes.title, axes._left_title, axes._right_title, *axes.texts]
        if (legend := axes.get_legend()) is not None:
            candidates += [*legend.get_texts(), legend.get_title()]
        if axes.axison:
            for axis in (axes.xaxis, axes.yaxis):
                candidates += [axis.label, axis.get_offset_text(), *tick_labels(axis)]
    yield from (text for text in candidates if text.get_visible() and text.get_text().strip())


def tick_labels(axis: Any) -> Iterator[Text]:
    """The tick labels within the axis limits."""
    low, high = sorted(axis.get_view_interval())
    for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
        if low <= tick.get_loc() <= high and axis.get_visible():
            yield tick.label1
            yield tick.label2


def assert_drawn_where_asked(draw: Any) -> None:
    """Assert that `draw(ax=axes)` draws on these Axes, returns them, and keeps its legend inside the figure."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots()
    assert draw(ax=axes) is axes
    figure.draw_without_rendering()
    legend = axes.get_legend()  # inside, for nothing makes room for it elsewhere
    assert legend is None or figure.bbox.containsx(legend.get_window_extent().x0)
    assert legend is None or figure.bbox.containsy(legend.get_window_extent().y0)
