"""Common style of all plots: Axes, sizes, labels, titles, series styles, and placement of legends."""

from __future__ import annotations

import math
import textwrap
from itertools import combinations, pairwise, product
from typing import Any

import numpy as np

from snncell.base.signals import import_once
from snncell.errors import ArgumentError

# Okabe and Ito's palette, distinguishable with any kind of colour vision; black first, for prints in grey.
COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
LINES = ("-", "--", ":", "-.")
MARKERS = "osv^Dx+*"
# Colour and line of the first twelve series. Series with the same line style have clearly different greys.
_APART = ((0, 0), (1, 1), (2, 2), (3, 3), (4, 0), (5, 1), (6, 2), (0, 1), (5, 3), (0, 2), (1, 0), (0, 3))
_PAIRS = (*_APART, *(pair for pair in product(range(len(COLOURS)), range(len(LINES))) if pair not in _APART))

_NAMES = 0.33  # largest width of a row name in one line, as a fraction of the panel
COLUMN = 3.3  # inches, the width of a column in a two-column paper
LARGE, SMALL, SMALLEST = 8, 7, 6  # points: titles and labels; ticks, legends and notes; text in little space


def axes_or_new(ax: Any, width: float = COLUMN, height: float = 2.2) -> Any:
    """Return `ax`, or the Axes of a new figure of this size in inches, in the common style."""
    if ax is None:
        plt = import_once("matplotlib.pyplot")  # on first use: importing it takes half a second
        # Sizes are those on paper; a high resolution makes the figure large enough on a screen.
        ax = plt.subplots(figsize=(width, height), layout="constrained", dpi=200)[1]
    if not all(hasattr(ax, name) for name in ("xaxis", "yaxis", "tick_params")):
        raise ArgumentError(
            f"plot: ax must be one Axes to draw on, not a {type(ax).__name__}. For a figure pass figure.subplots() or "
            f"figure.axes[0], for an array of Axes one of them, axes[0] or axes[0, 0]; or leave ax out."
        )
    ax.tick_params(which="both", labelsize=SMALL)
    for axis in (ax.xaxis, ax.yaxis):
        axis.label.set_fontsize(LARGE)
        axis.get_offset_text().set_fontsize(SMALL)
    for side in ("top", "right"):
        if side in ax.spines:
            ax.spines[side].set_visible(False)
    return ax


def panel_size(axes: Any) -> tuple[float, float]:
    """Width and height in points of the panel, the Axes with their labels, before a layout moves them."""
    box, page = axes.get_position(original=True), axes.figure.bbox
    points = 72 / axes.figure.dpi
    # 0.775 and 0.77 are the fractions of the figure that a single Axes takes.
    return page.width * box.width * points / 0.775, page.height * box.height * points / 0.77


def _has_layout(axes: Any) -> bool:
    """True if a constrained or tight layout makes room for labels outside of the Axes."""
    return getattr(axes.figure, "get_layout_engine", lambda: None)() is not None


def axes_size(axes: Any) -> tuple[float, float]:
    """Estimate width and height of the Axes without labels, in points, before a layout moves them."""
    width, height = panel_size(axes)
    if not _has_layout(axes):
        return 0.775 * width, 0.77 * height
    return max(0.4 * width, width - (80 if _twins(axes) else 44)), max(0.4 * height, height - 46)


def _twins(axes: Any) -> list[Any]:
    return [each for each in axes.figure.axes if each is not axes and each.bbox.bounds == axes.bbox.bounds]


# --- Labels and titles ------------------------------------------------------------------------------------------------


def finish(
    axes: Any,
    title: str | None,
    x: tuple[str, ...] | None,
    y: tuple[str, ...],
    otherwise: str = "",
    handles: Any = None,
    beside: float = 0.0,
) -> Any:
    """Label the axes, each by names from long to short (x=None: time steps), and draw legend and title."""
    if x is None:
        label_time_axis(axes)
    for axis, names in ((axes.xaxis, x), (axes.yaxis, y)):
        if names:
            label_axis(axis, *names)
    legend(axes, handles, beside=beside)
    set_title(axes, title, otherwise)
    return axes


def label_axis(axis: Any, *names: str) -> None:
    """Label an axis with the first of the names, from long to short, that fits along it."""
    upright = axis.axis_name == "y"
    points = axes_size(axis.axes)[1] if upright else 0.95 * panel_size(axis.axes)[0]
    fits = (name for name in names if 0.56 * LARGE * max(map(len, name.split("\n"))) <= 1.05 * points)
    text = next(fits, names[-1])
    axis.set_label_text(text, fontsize=LARGE, parse_math=has_formula(text))


def has_formula(*texts: str) -> bool:
    """True if Matplotlib can parse the formulas ($) in these texts. A user's name may contain a single $."""
    formulas = [text for text in texts if "$" in text]
    # Matplotlib parses no formula if the number of $ is odd.
    if not formulas or any(text.replace(r"\$", "").count("$") % 2 for text in formulas):
        return False
    from matplotlib.mathtext import MathTextParser

    parser: Any = MathTextParser("agg")
    try:
        for text in formulas:
            parser.parse(text)
    except ValueError:
        return False
    return True


def set_title(axes: Any, title: str | None, otherwise: str = "") -> None:
    """Write `title`, or `otherwise` if it is None, in lines that fit. Lines with a formula ($) are not broken."""
    text = otherwise if title is None else title
    letters = max(20, int(0.75 * panel_size(axes)[0] / (0.51 * LARGE)))
    lines = [line if "$" in line else break_line(line, letters) for line in text.split("\n")]
    if text:
        axes.set_title("\n".join(lines), fontsize=LARGE, parse_math=has_formula(*lines))


def break_line(line: str, letters: int) -> str:
    """Break a line into as few parts as possible, of similar length and at most `letters` long, best after a comma."""
    if len(line) <= letters:
        return line
    words = line.replace(" %", "\0%").split(" ")  # do not separate a number from its % sign
    count = len(textwrap.wrap(line.replace(" %", "\0%"), letters, break_long_words=False, break_on_hyphens=False))
    mean = len(line) / count

    def cost(parts: list[str]) -> tuple[int, float]:
        over = sum(max(0, len(part) - letters) for part in parts)
        uneven = sum((len(part) - mean) ** 2 - 0.25 * mean**2 * part.endswith((",", ";")) for part in parts)
        return over, uneven

    cuts = combinations(range(1, len(words)), count - 1) if len(words) < 24 and count < 5 else ()
    ways = ([" ".join(words[a:b]) for a, b in pairwise((0, *cut, len(words)))] for cut in cuts)
    parts = min(ways, key=cost, default=textwrap.wrap(line, letters))
    if parts[0].endswith(":") and " " not in parts[0]:  # a name alone on its line becomes a heading
        parts[0] = parts[0][:-1]
    return "\n".join(parts).replace("\0", " ")


def label_time_axis(axes: Any) -> None:
    """Label the time axis, with ticks at whole steps."""
    whole_ticks(axes.xaxis)
    axes.set_xlabel("time step", fontsize=LARGE)


def whole_ticks(axis: Any) -> None:
    """Place ticks at whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10]))


def text_width(text: str, size: float) -> float:
    """Width of a text in points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(size=size)
    return max(float(text_to_path.get_text_width_height_descent(line, font, False)[0]) for line in text.split("\n"))


def name_rows(axes: Any, places: Any, names: list[str]) -> None:
    """Name rows at the left. Long names are broken at a dot or a "_" if the row is high enough."""
    wide, high = panel_size(axes)[0], axes_size(axes)[1] / max(len(names), 1)
    broken = [name if text_width(name, SMALL) <= _NAMES * wide else _break_name(name) for name in names]
    axes.set_yticks(places, broken if high >= 2.4 * SMALL else names, parse_math=has_formula(*names))


def _break_name(name: str) -> str:
    cuts = [n for n, letter in enumerate(name) if n and letter in "._"]
    if not cuts:
        return name
    cut = min(cuts, key=lambda n: abs(2 * n - len(name)))
    return f"{name[:cut]}\n{name[cut:]}"


# --- Series, a second axis, colours -----------------------------------------------------------------------------------


def series_style(number: int) -> dict[str, Any]:
    """Colour and line style of series `number`, from 0."""
    colour, line = _PAIRS[number % len(_PAIRS)]
    return {"color": COLOURS[colour], "linestyle": LINES[line]}


def marker(number: int) -> str:
    """Marker of series `number`, from 0."""
    return MARKERS[number % len(MARKERS)]


def line_style(number: int, points: int, evaluated: bool = False) -> dict[str, Any]:
    """Style of line `number`: markers on about twelve of its `points`, hollow for evaluations on test data."""
    colour = series_style(number)["color"]
    return {
        "color": colour,
        "marker": marker(number),
        "markerfacecolor": "white" if evaluated else colour,
        "markevery": max(1, -(-points // 12)),
        "markersize": 3.5,
        "linewidth": 1.2,
    }


def positive_line(axes: Any, x: Any, values: Any, name: str, number: int) -> None:
    """Plot the positive values of a line. The label counts NaN and infinity, or says that all other values are zero."""
    array = np.asarray(values, dtype=np.float64)
    lost = int(np.count_nonzero(~np.isfinite(array)))
    shown = np.where(np.isfinite(array) & (array > 0), array, np.nan)
    there = np.isfinite(shown)
    zero = array.size > lost and not there.any()
    notes = [f"{lost} NaN or inf"] * bool(lost) + ["zero" if not lost else "else zero"] * zero
    label = f"{name} ({', '.join(notes)})" if notes else name
    style = line_style(number, array.size) | {"linestyle": series_style(number)["linestyle"]}
    around = np.pad(there, 1)
    alone = np.nonzero(there & ~around[:-2] & ~around[2:])[0].tolist()  # isolated values need a marker
    style["markevery"] = sorted({*range(0, array.size, style["markevery"]), *alone})
    axes.plot(x, shown, label=legend_label(label) or "_unnamed", **style)


def second_axis(axes: Any, name: str) -> Any:
    """Add a vertical axis on the right with the same horizontal axis."""
    right = axes.twinx()
    right.spines[["top", "left"]].set_visible(False)
    right.tick_params(labelsize=SMALL)
    right.yaxis.get_offset_text().set_fontsize(SMALL)
    label_axis(right.yaxis, name)
    return right


def colour_bar(axes: Any, image: Any, *names: str, **options: Any) -> Any:
    """Add a colour bar next to `axes`, labelled with the first of the names that fits."""
    bar = axes.figure.colorbar(image, ax=axes, pad=0.02, **options).ax
    label_axis(bar.yaxis, *names)
    bar.tick_params(which="both", labelsize=SMALL)
    return bar


def stacked_bars(
    axes: Any, rows: Any, parts: dict[str, Any], looks: dict[str, tuple[str, str]], texts: list[str]
) -> None:
    """Draw bars of stacked parts, and a text at the end of each; parts that are 0 everywhere have no label."""
    left = np.zeros(len(rows))
    for name, lengths in parts.items():
        (colour, hatch), style = looks[name], {"height": 0.8, "edgecolor": "0.2", "linewidth": 0.5}
        if lengths.any():
            axes.barh(rows, lengths, left=left, label=name, facecolor=colour, hatch=hatch, **style)
        left = left + lengths
    for row, end, text in zip(rows, left, texts, strict=True):
        axes.annotate(text, (end, row), (3, 0), textcoords="offset points", va="center", fontsize=SMALL)
    beside = 6.0 + max(text_width(text, SMALL) for text in texts)
    wide = max(axes_size(axes)[0] - 60.0, 2.0 * beside)  # points: names of rows stand on the left
    axes.set_xlim(0.0, (float(left.max()) or 1.0) * wide / (wide - beside))
    axes.set_ylim(rows[-1] + 0.7, -0.7)


# --- Legends ----------------------------------------------------------------------------------------------------------
# Matplotlib's loc="best" alone is not enough. If no place is free, it puts the legend over the lines, for example over
# six lines of `gradient_to_weight`. It also ignores the lines of a second axis, as in `training_curves`. Its
# loc="outside ..." is for the legend of a whole figure, not of one of several Axes.

_SHARE = 0.25  # a legend below the Axes may always use this fraction of the panel's height
_LEAST = 0.45  # if it uses more, the Axes must keep this fraction
_UNDER = 46.0  # points below the Axes for tick labels and the axis label
_LEFT = 30.0  # points left of the Axes for tick labels
_GAP = 4.0  # points between the legend, the data and the edges
# Positions inside the Axes in the order of trials, as fractions of the free width and height.
_PLACES = ((1.0, 1.0), (0.0, 1.0), (1.0, 0.0), (0.0, 0.0), (0.5, 1.0), (0.5, 0.0), (1.0, 0.5), (0.0, 0.5), (0.5, 0.5))


def legend_label(name: str) -> str:
    """Make a label visible in the legend, because Matplotlib hides labels that begin with "_"."""
    return f" {name}" if name.startswith("_") else name


def legend(axes: Any, handles: Any = None, inside: bool = True, beside: float = 0.0) -> None:
    """Draw the legend of `axes`, or of `handles`, if there are any entries.

    It is placed inside the Axes where nothing is drawn. If there is no such place, or with `inside=False`, it is placed
    below, which needs a constrained or tight layout to make room, and Axes that keep enough of the panel. Otherwise it
    covers data, half transparent. `beside` is the width in points of text to the right of the Axes.
    """
    handles = axes.get_legend_handles_labels()[0] if handles is None else list(handles)
    if not handles:
        return
    width, height = axes_size(axes)
    width -= beside
    place = _find_free_place(axes, handles, width, height) if inside else None
    if place is None and _has_layout(axes):
        place = _place_below(axes, handles, width, height)
    if place is not None:
        look = {"frameon": False, "borderaxespad": 0.0, "columnspacing": 1.2, **place}
    else:
        size, sample = _looks(handles)[-1]
        look = {"loc": "best", "framealpha": 0.8, "fontsize": size, "handlelength": sample}
        look |= {"columnspacing": 0.8, "labelspacing": 0.2, "borderpad": 0.2}
    for text in axes.legend(handles=handles, **look).get_texts():
        text.set_parse_math(has_formula(text.get_text()))


def _looks(handles: Any) -> tuple[tuple[float, float], ...]:
    """Font size and length of the line samples (in letters): the usual ones, and smaller ones for little space."""
    from matplotlib.patches import Patch

    if all(isinstance(handle, Patch) for handle in handles):
        return (SMALL, 1.4), (SMALLEST, 1.2)
    return (SMALL, 2.4), (SMALLEST, 1.6)


def _legend_size(handles: Any, columns: int, size: float, sample: float) -> tuple[float, float]:
    """Width and height of a legend in points, for a number of columns."""
    labels = [text_width(handle.get_label(), size) for handle in handles]
    wide = sum(part.max() + (sample + 0.8) * size for part in np.array_split(labels, min(columns, len(labels))))
    return wide + (columns - 1) * 1.2 * size, math.ceil(len(handles) / columns) * 1.5 * size


def _find_free_place(axes: Any, handles: Any, width: float, height: float) -> dict[str, Any] | None:
    """A free place inside Axes of this width and height, with as few columns as possible."""
    drawn = None
    counts = [n for n in dict.fromkeys((1, 2, 3, len(handles))) if n <= len(handles)]
    for (size, sample), columns in product(_looks(handles), counts):
        wide, high = (points + 2 * _GAP for points in _legend_size(handles, columns, size, sample))
        if wide > width or high > height:
            continue
        drawn = _outlines_of(axes) if drawn is None else drawn
        for x, y in _PLACES:
            left, low = x * (1 - wide / width), y * (1 - high / height)
            if not _overlaps(drawn, left, low, left + wide / width, low + high / height):
                corner = ("lower", "center", "upper")[int(2 * y)] + " " + ("left", "center", "right")[int(2 * x)]
                at = (x + (1 - 2 * x) * _GAP / width, y + (1 - 2 * y) * _GAP / height)
                look = {"ncols": columns, "fontsize": size, "handlelength": sample}
                return {"loc": corner.replace("center center", "center"), "bbox_to_anchor": at, **look}
    return None


def _outlines_of(axes: Any) -> list[tuple[Any, bool]]:
    """Outlines of all that is drawn in these Axes and their twins, in Axes coordinates, each with a flag for filled."""
    from matplotlib.path import Path

    outlines = []
    for each in (axes, *_twins(axes)):
        each.get_xlim(), each.get_ylim()  # carry out pending autoscaling
        to_share = axes.transAxes.inverted()
        shown = [(line, False) for line in each.lines]
        shown += [(patch, patch.get_fill()) for patch in each.patches if patch.get_zorder() > 0]
        outlines += [(one.get_path().transformed(one.get_transform() + to_share), fill) for one, fill in shown]
        for marks in each.collections:
            if marks.get_zorder() <= 0:
                continue
            places, move, paths = np.ma.getdata(marks.get_offsets()), marks.get_offset_transform(), marks.get_paths()
            if len(places) > 1 >= len(paths):  # markers: only their positions count
                outlines.append((Path(to_share.transform(move.transform(places))), False))
            else:
                outlines += [(path.transformed(marks.get_transform() + to_share), True) for path in paths]
    return outlines


def _overlaps(drawn: list[tuple[Any, bool]], left: float, low: float, right: float, high: float) -> bool:
    from matplotlib.transforms import Bbox

    box = Bbox.from_extents(left, low, right, high)
    for path, filled in drawn:
        there = path.vertices[np.isfinite(path.vertices).all(1)]
        if ((there >= (left, low)) & (there <= (right, high))).all(1).any():
            return True
        if len(there) > 1 and path.cleaned(remove_nans=True).intersects_bbox(box, filled=filled):
            return True
    return False


def _place_below(axes: Any, handles: Any, width: float, height: float) -> dict[str, Any] | None:
    """A place below the Axes, with as many columns as fit. If this takes too much of the panel: None, if a small legend
    inside covers only part of the Axes, otherwise a place below with tight lines.
    """
    from matplotlib.transforms import ScaledTranslation

    down = SMALL + LARGE + 14.0 if axes.get_xlabel() else SMALL + 8.0  # tick labels, and the axis label
    under = axes.transAxes + ScaledTranslation(0.0, -down / 72.0, axes.figure.dpi_scale_trans)
    panel, widest = panel_size(axes)[1], width + (2 if _twins(axes) else 1) * _LEFT
    shares = _SHARE * panel, max(_SHARE * panel, (1.0 - _LEAST) * panel - _UNDER)
    for most, (size, sample) in product(shares, _looks(handles)):
        fit = [n for n in range(len(handles), 0, -1) if _legend_size(handles, n, size, sample)[0] <= widest]
        columns = math.ceil(len(handles) / math.ceil(len(handles) / fit[0])) if fit else 1  # rows of even length
        wide, high = _legend_size(handles, columns, size, sample)
        # A legend wider than the Axes is aligned with their right edge, unless there are tick labels on the right.
        side, edge = ("center", 0.5) if wide <= width or _twins(axes) else ("right", 1.0)
        at = {"loc": f"upper {side}", "bbox_to_anchor": (edge, 0.0), "bbox_transform": under}
        place = {**at, "ncols": columns, "fontsize": size, "handlelength": sample}
        if wide <= widest and high <= max(most, 1.5 * size):
            return place
    wide, high = _legend_size(handles, 1, *_looks(handles)[-1])
    if wide <= 0.7 * width and high <= 0.7 * height:
        return None
    return {**place, "labelspacing": 0.0, "borderpad": 0.0, "columnspacing": 0.8, "handletextpad": 0.4}
