"""The look of all plots: Axes, sizes, labels and titles, and series that can be told apart, in grey too."""

from __future__ import annotations

import textwrap
from itertools import combinations, pairwise, product
from typing import Any

import numpy as np

from snncell.base.arguments.shown import show
from snncell.base.signals import import_once
from snncell.errors import ArgumentError, ShapeError

# Okabe and Ito's palette, distinguishable with any kind of colour vision; black first, for grey prints.
COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
LINES = ("-", "--", ":", "-.")
MARKERS = "osv^Dx+*"
# Colour and line of the first twelve series: those with the same line are far apart in grey. More do not fit.
_APART = ((0, 0), (1, 1), (2, 2), (3, 3), (4, 0), (5, 1), (6, 2), (0, 1), (5, 3), (0, 2), (1, 0), (0, 3))
_PAIRS = (*_APART, *(pair for pair in product(range(len(COLOURS)), range(len(LINES))) if pair not in _APART))

_NAMES = 0.33  # of the width of the Axes' place, that the name of a row may take in one line
COLUMN = 3.3  # inches: a column of a paper of two
LARGE, SMALL, SMALLEST = 8, 7, 6  # points: titles and labels; ticks, legends and notes; what has little room


def axes_or_new(ax: Any, width: float = COLUMN, height: float = 2.2) -> Any:
    """`ax`, or the Axes of a new figure of that size in inches, in the look of all plots."""
    if ax is None:
        plt = import_once("matplotlib.pyplot")  # on first use: importing it takes half a second
        # As large as on paper; the many dots per inch make it large enough on a screen.
        ax = plt.subplots(figsize=(width, height), layout="constrained", dpi=200)[1]
    if not all(hasattr(ax, name) for name in ("xaxis", "yaxis", "tick_params")):
        raise ArgumentError(
            f"plot: ax is one Axes to draw on, not a {type(ax).__name__}. Of a figure give figure.subplots() or "
            f"figure.axes[0]; of an array of Axes one of them, axes[0] or axes[0, 0]; or leave ax out."
        )
    ax.tick_params(which="both", labelsize=SMALL)
    for axis in (ax.xaxis, ax.yaxis):
        axis.label.set_fontsize(LARGE)
        axis.get_offset_text().set_fontsize(SMALL)
    for side in ("top", "right"):
        if side in ax.spines:
            ax.spines[side].set_visible(False)
    return ax


def series_style(number: int) -> dict[str, Any]:
    """Colour and line style of a plot's `number`-th series, from 0."""
    colour, line = _PAIRS[number % len(_PAIRS)]
    return {"color": COLOURS[colour], "linestyle": LINES[line]}


def marker(number: int) -> str:
    """The marker of a plot's `number`-th series, from 0."""
    return MARKERS[number % len(MARKERS)]


def panel_size(axes: Any) -> tuple[float, float]:
    """Width and height of the place of `axes`, with its labels, in points, before a layout moves it."""
    box, page = axes.get_position(original=True), axes.figure.bbox
    points = 72 / axes.figure.dpi
    return page.width * box.width * points / 0.775, page.height * box.height * points / 0.77  # a lone Axes' share


def has_layout(axes: Any) -> bool:
    """True if a layout, constrained or tight, makes room for what stands outside of the Axes."""
    return getattr(axes.figure, "get_layout_engine", lambda: None)() is not None


def axes_size(axes: Any) -> tuple[float, float]:
    """Width and height of the Axes themselves, in points, as far as can be said before a layout moves them."""
    width, height = panel_size(axes)
    if not has_layout(axes):
        return 0.775 * width, 0.77 * height
    return max(0.4 * width, width - (80 if has_twin(axes) else 44)), max(0.4 * height, height - 46)


def has_twin(axes: Any) -> bool:
    """True if a second vertical axis stands on the right."""
    return any(each is not axes and each.bbox.bounds == axes.bbox.bounds for each in axes.figure.axes)


def label_axis(axis: Any, *names: str) -> None:
    """Name an axis by the first of the names, from long to short, that fits along it."""
    upright = axis.axis_name == "y"
    points = axes_size(axis.axes)[1] if upright else 0.95 * panel_size(axis.axes)[0]
    fits = (name for name in names if 0.56 * LARGE * max(map(len, name.split("\n"))) <= 1.05 * points)
    text = next(fits, names[-1])
    axis.set_label_text(text, fontsize=LARGE, parse_math=has_formula(text))


def has_formula(*texts: str) -> bool:
    """True if Matplotlib can read the formulas ($) in these texts; otherwise they are drawn letter by letter.

    A name that a user gave, for example of a Cell, may have a lone $ in it. Every text that is not ours goes through
    this: `parse_math=has_formula(text)`.
    """
    formulas = [text for text in texts if "$" in text]
    # Of an odd number, Matplotlib reads none as a formula.
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


def legend_label(name: str) -> str:
    """A label of a key: Matplotlib leaves those out that begin with "_"."""
    return f" {name}" if name.startswith("_") else name


def set_title(axes: Any, title: str | None, otherwise: str = "") -> None:
    """Write `title` above the Axes as it is given, `otherwise` if it is None; lines that are too long are broken.

    The parts of a line are about as long as each other. A line with a formula ($) stays whole.
    """
    text = otherwise if title is None else title
    letters = max(20, int(0.75 * panel_size(axes)[0] / (0.51 * LARGE)))
    lines = [line if "$" in line else break_line(line, letters) for line in text.split("\n")]
    if text:
        axes.set_title("\n".join(lines), fontsize=LARGE, parse_math=has_formula(*lines))


def break_line(line: str, letters: int) -> str:
    """A line in as few parts as there must be, none longer than `letters` if that can be, of like lengths.

    A part ends rather after a comma than within a phrase. A name and its colon stand alone only if nothing has room
    beside them; they are a heading then, without the colon.
    """
    if len(line) <= letters:
        return line
    words = line.replace(" %", "\0%").split(" ")  # a number stays with its sign
    count = len(textwrap.wrap(line.replace(" %", "\0%"), letters, break_long_words=False, break_on_hyphens=False))
    mean = len(line) / count

    def cost(parts: list[str]) -> tuple[int, float]:
        over = sum(max(0, len(part) - letters) for part in parts)
        uneven = sum((len(part) - mean) ** 2 - 0.25 * mean**2 * part.endswith((",", ";")) for part in parts)
        return over, uneven

    cuts = combinations(range(1, len(words)), count - 1) if len(words) < 24 and count < 5 else ()
    ways = ([" ".join(words[a:b]) for a, b in pairwise((0, *cut, len(words)))] for cut in cuts)
    parts = min(ways, key=cost, default=textwrap.wrap(line, letters))
    if parts[0].endswith(":") and " " not in parts[0]:
        parts[0] = parts[0][:-1]
    return "\n".join(parts).replace("\0", " ")


def label_time_axis(axes: Any) -> None:
    """Label the time axis at whole steps."""
    whole_ticks(axes.xaxis)
    axes.set_xlabel("time step", fontsize=LARGE)


def whole_ticks(axis: Any) -> None:
    """Ticks at whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10]))


def refuse_colour(colour: str, who: str) -> None:
    """Raise an ArgumentError for what Matplotlib knows no colour by."""
    from matplotlib.colors import is_color_like

    if not is_color_like(colour):
        raise ArgumentError(
            f'{who}: colour is one of Matplotlib\'s, such as "tab:blue" or "#1f77b4", not {show(colour)}.'
        )


def array_with_axes(x: Any, ndim: int, who: str, axes: str) -> np.ndarray[Any, Any]:
    """`x` as an array with `ndim` axes."""
    array = np.asarray(x)
    if array.ndim != ndim:
        raise ShapeError(f"{who}: takes {axes}, not shape {array.shape}. Choose one sample: x[:, 0].")
    return array


# --- lines, and a second axis -----------------------------------------------------------------------------------------


def line_style(number: int, points: int, evaluated: bool = False) -> dict[str, Any]:
    """The style of the `number`-th line of so many points, with markers on a dozen of them; hollow for evaluations."""
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
    """A line of what is above 0; the legend says what no such axis can show: NaN, infinity, zeros alone."""
    array = np.asarray(values, dtype=np.float64)
    lost = int(np.count_nonzero(~np.isfinite(array)))
    shown = np.where(np.isfinite(array) & (array > 0), array, np.nan)
    zero = array.size > lost and not np.isfinite(shown).any()
    said = [f"{lost} NaN or inf"] * bool(lost) + ["zero" if not lost else "else zero"] * zero
    label = f"{name} ({', '.join(said)})" if said else name
    style = line_style(number, array.size) | {"linestyle": series_style(number)["linestyle"]}
    style["markevery"] = sorted({*range(0, array.size, style["markevery"]), *_alone(shown)})
    axes.plot(x, shown, label=legend_label(label) or "_unnamed", **style)


def _alone(values: Any) -> list[int]:
    """The positions of values without a finite neighbour, to which no line is drawn."""
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


# --- names of rows ----------------------------------------------------------------------------------------------------


def text_width(text: str, size: float) -> float:
    """The width of a text, in points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(size=size)
    return max(float(text_to_path.get_text_width_height_descent(line, font, False)[0]) for line in text.split("\n"))


def name_rows(axes: Any, places: Any, names: list[str]) -> None:
    """Name rows at the left; a name that takes much of the panel is broken at a dot or a "_", if its row has room."""
    wide, high = panel_size(axes)[0], axes_size(axes)[1] / max(len(names), 1)
    broken = [name if text_width(name, SMALL) <= _NAMES * wide else _break_name(name) for name in names]
    axes.set_yticks(places, broken if high >= 2.4 * SMALL else names, parse_math=has_formula(*names))


def _break_name(name: str) -> str:
    """A name in two lines, as even as its dots and "_" let them be."""
    cuts = [n for n, letter in enumerate(name) if n and letter in "._"]
    if not cuts:
        return name
    cut = min(cuts, key=lambda n: abs(2 * n - len(name)))
    return f"{name[:cut]}\n{name[cut:]}"
