"""Numbers in the cells of an image, and a colour bar as high as the image, even after a layout resizes the image."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.text import Text  # this module is imported only when something is drawn
from matplotlib.transforms import Bbox

from snncell.plot.axes import LARGE, SMALLEST, panel_size
from snncell.plot.sources import Array


def fit_font_size(points: float, letters: int) -> float:
    """Font size of a number with `letters` digits in a cell `points` wide; 0 if it would be unreadable."""
    size = min(LARGE, 0.7 * points, 0.75 * points / (0.62 * letters))
    return size if size >= SMALLEST else 0.0


class Number(Text):
    """A number in a cell, hidden while the cell is too small."""

    def __init__(self, row: int, column: int, text: str, cells: int, letters: int, colour: str) -> None:
        super().__init__(column, row, text, color=colour, ha="center", va="center")
        self._said, self._cells, self._letters = text, cells, letters
        self.set_in_layout(False)  # because it lies within the image, for which the layout makes room

    def draw(self, renderer: Any, *args: Any, **kwargs: Any) -> None:
        """Adapt the font size to the current size of the cell, and draw."""
        axes: Any = self.axes
        box = axes.get_window_extent()
        size = fit_font_size(72.0 * min(box.width, box.height) / axes.figure.dpi / self._cells, self._letters)
        self.set_text(self._said if size else "")
        self.set_fontsize(size or SMALLEST)
        super().draw(renderer, *args, **kwargs)


def number_cells(axes: Any, counts: Array, depth: Array) -> None:
    """Write the counts into their cells, unless the cells cannot become large enough to read them."""
    letters, side = len(str(counts.max())), min(panel_size(axes))
    if not fit_font_size(side / len(counts), letters):
        return
    for row, column in zip(*np.nonzero(counts), strict=True):
        colour = "white" if depth[row, column] > 0.55 else "black"
        axes.add_artist(Number(row, column, str(counts[row, column]), len(counts), letters, colour))


class Beside:
    """Locator of Axes next to an image: as high as the drawn image, as wide as the layout makes them."""

    def __init__(self, image: Any, beside: Any) -> None:
        self._image = image
        self.get_subplotspec = beside.get_subplotspec  # a tight layout asks the locator for it

    def __call__(self, beside: Any, renderer: Any) -> Bbox:
        self._image.apply_aspect()
        image, own = self._image.get_position(), beside.get_position(original=True)
        left = image.x1 + 0.02 * self._image.get_position(original=True).width
        return Bbox.from_extents(left, image.y0, left + own.width, image.y1)
