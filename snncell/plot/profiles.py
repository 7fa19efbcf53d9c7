"""Bars of a profile: the time of each layer, split into forward pass, backward pass and optimiser."""

from __future__ import annotations

from typing import Any

import numpy as np

from snncell.plot.axes import SMALL, axes_or_new, axes_size, label_axis, legend, name_rows, set_title, text_width

MOST_ROWS = 16  # bars; further layers share the last one
_REST = "between launches"  # the legend's name of time without a launch
# Distinct in greyscale, like the bars of energies.
_LOOKS = {
    "forward": {"facecolor": "#0072B2", "hatch": ""},
    "backward": {"facecolor": "#E69F00", "hatch": "////"},
    "optimiser": {"facecolor": "#009E73", "hatch": "...."},
    _REST: {"facecolor": "#F0F0F0", "hatch": ""},
}


def draw_profile(profile: Any, ax: Any = None, title: str | None = None) -> Any:
    """Draw the rows of a `snncell.profile` as stacked bars, slowest first; returns the Axes."""
    rows, rest = profile.rows[:MOST_ROWS], profile.rows[MOST_ROWS:]
    names = [row.name for row in rows]
    parts = [{track: getattr(row, track) for track in _LOOKS if track != _REST} for row in rows]
    seconds = [row.seconds for row in rows]
    if rest:
        names.append(f"{len(rest)} more")
        parts.append({track: sum(getattr(row, track) for row in rest) for track in parts[0]})
        seconds.append(sum(row.seconds for row in rest))
    places = np.arange(len(names))
    axes = axes_or_new(ax, height=1.0 + 0.17 * len(names))
    left = np.zeros(len(names))
    for track, look in _LOOKS.items():
        lengths = np.array([part.get(track, 0.0) for part in parts])
        if track == _REST:
            lengths = np.array(seconds) - left
            lengths[lengths < 1e-9] = 0.0
        if lengths.any():
            style = {"height": 0.75, "edgecolor": "0.2", "linewidth": 0.5, **look}
            axes.barh(places, 1e3 * lengths, left=1e3 * left, label=track, **style)
        left += lengths
    texts = [f"{100 * own / sum(seconds):.2g} %" for own in seconds]
    for place, own, text in zip(places, seconds, texts, strict=True):
        options = {"xytext": (3, 0), "textcoords": "offset points", "va": "center", "fontsize": SMALL}
        axes.annotate(text, (1e3 * own, place), **options)
    beside = 6.0 + max(text_width(text, SMALL) for text in texts)
    wide = max(axes_size(axes)[0] - 60.0, 2.0 * beside)  # points: names of rows stand on the left
    axes.set_xlim(0.0, 1e3 * max(seconds) * wide / (wide - beside))
    axes.set_ylim(len(names) - 0.4, -0.6)
    name_rows(axes, places, names)
    label_axis(axes.xaxis, "median time in a step (ms)", "time (ms)", "ms")
    legend(axes)
    set_title(axes, title, f"{profile.name}: {1e3 * profile.seconds:.3g} ms a step")
    return axes
