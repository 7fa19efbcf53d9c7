"""Bars of a profile: the time of each layer, split into forward pass, backward pass and optimiser."""

from __future__ import annotations

from typing import Any

import numpy as np

from snncell.plot.axes import (
    COLUMN,
    SMALL,
    axes_or_new,
    label_axis,
    legend,
    name_rows,
    set_title,
    stacked_bars,
    text_width,
)

MOST_ROWS = 16  # bars; further layers share the last one
_REST = "between launches"  # the legend's name of time without a launch
_LOOKS = {  # colour and hatch, distinct in greyscale
    "forward": ("#0072B2", ""), "backward": ("#E69F00", "////"), "optimiser": ("#009E73", "...."),
    _REST: ("#F0F0F0", ""),
}  # fmt: skip


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
    beside = max(text_width(name, SMALL) for name in names)  # points
    # The names may take 43 % of a column, or else the figure is as wide as a page.
    axes = axes_or_new(ax, COLUMN if beside < 31 * COLUMN else 7.0, 1.35 + 0.17 * len(names))
    tracks = {track: 1e3 * np.array([part[track] for part in parts]) for track in _LOOKS if track != _REST}
    left = 1e3 * np.array(seconds) - sum(tracks.values())
    tracks[_REST] = np.where(left < 1e-6, 0.0, left)
    stacked_bars(axes, places, tracks, _LOOKS, [f"{100 * own / sum(seconds):.1f} %" for own in seconds])
    if ax is None:  # the figure is wide enough for the names, and its rows are too low for two lines
        axes.set_yticks(places, names, parse_math=False)
    else:
        name_rows(axes, places, names)
    label_axis(axes.xaxis, "median time in a step (ms)", "time (ms)", "ms")
    legend(axes, inside=False, beside=max(0.0, beside - 30.0))  # inside, it would cover the shares
    set_title(axes, title, f"{profile.name}: {1e3 * profile.seconds:.3g} ms a step")
    return axes
