"""Pictures of spikes over time: rasters, peri-stimulus time histograms (PSTH), animations."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from snncell.base.arguments.kinds import check_count, check_positive
from snncell.base.arguments.shown import show
from snncell.errors import ArgumentError, ShapeError
from snncell.plot.axes import (
    COLOURS,
    LARGE,
    axes_or_new,
    axes_size,
    finish,
    has_formula,
    label_axis,
    label_time_axis,
    legend,
    legend_label,
    panel_size,
    series_style,
    set_title,
    whole_ticks,
)
from snncell.plot.sources import (
    Array,
    ClassRows,
    all_there,
    as_spikes,
    check_rows,
    choose_rows,
    group_rows,
    is_monitor,
    neuron_numbers,
    one_layer,
    real_array_of,
    sample_of,
    step_numbers,
    steps_before_end,
)

# --- raster -----------------------------------------------------------------------------------------------------------

_MARKS = (("|", 1.0), ("x", 0.3), ("o", 0.15), ("+", 0.5))  # of classes, with areas that look alike


def raster(
    spikes: Any,
    ax: Any = None,
    title: str | None = None,
    colour: str = COLOURS[0],
    *,
    layer: str | None = None,
    sample: int | None = None,
    neuron: int | None = None,
    classes: Any = None,
    psth: int | None = None,
) -> Any:
    """A raster: a mark for every spike, time to the right, neurons upwards; with `neuron`, samples upwards.

    Args:
        spikes: (T, N), (T, B, ...) with `sample` or `neuron`, or a monitor; every element that is not 0 is a spike.
        ax: the Axes to draw on; a new one if it is left out.
        title: above it; left out, the name of the layer and the number of spikes.
        colour: of the marks, where there are no classes.
        layer: which one of a monitor's, or of a mapping's.
        sample: which one of a batch, whose neurons are the rows; a monitor's first if it is left out.
        neuron: which one, by its number in the layer, if the rows are to be samples.
        classes: a label for each row; rows of a class stand together, with its name at the side.
        psth: draw a histogram in bins of so many steps (`psth`) into the lower part of the Axes' place, as the last
            Axes of its figure; with classes, the lines of it stand beside the rows.

    Raises:
        ShapeError: for another number of axes, or if there are not as many classes as rows.
        ArgumentError: for a sample, neuron, layer or bins that do not exist, a layer that does not fire, or NaN.
    """
    name, array = one_layer(spikes, "spikes", layer, "raster")
    sample = 0 if is_monitor(spikes) and sample is None and neuron is None else sample
    numbers = neuron_numbers(spikes, name, int(np.prod(array.shape[min(2, array.ndim - 1) :])))
    rows = as_spikes(choose_rows(array, sample, neuron, "raster", numbers), "raster")
    what = "neuron" if neuron is None else "sample"
    groups = group_rows(classes, rows.shape[1], "raster", f"{what}s")
    steps = step_numbers(spikes, name, len(rows), "spikes")
    edges = None if psth is None else _edges_of_bins(steps, psth, "raster")
    axes = axes_or_new(ax, height=max(2.2, 0.6 + 0.15 * len(groups)) + (0.8 if psth else 0.0))
    _draw_raster(axes, rows, steps, groups, colour)
    label_time_axis(axes)
    if neuron is None and classes is None and not all_there(numbers):  # the numbers of neurons, not those of rows
        axes.yaxis.set_major_formatter(lambda row, _: str(numbers[int(row)]) if row in range(len(numbers)) else "")
    label_axis(axes.yaxis, *([what] if classes is None else [f"{what}s by class", f"{what}s"]))
    if edges is not None and psth is not None:
        _append_psth(axes, rows, edges, psth, groups)
    said = _count_spikes(rows, steps_before_end(spikes, name), sample, what)
    set_title(axes, title, f"{name}: {said}" if name else said)
    return axes


def _count_spikes(rows: Array, live: Array | None, sample: int | None, what: str) -> str:
    """The number of spikes, and the rate over the steps (T, B) that are no padding."""
    count, size = int(rows.sum()), rows.size
    if live is not None:
        size = int(live.sum()) if sample is None else int(live[:, sample].sum()) * rows.shape[1]
    return f"{count} spikes, {count / max(size, 1):.3f} per {what} and step"


def _draw_raster(axes: Any, rows: Array, steps: Array, groups: list[ClassRows], colour: str) -> None:
    from matplotlib.colors import is_color_like

    if not is_color_like(colour):
        raise ArgumentError(
            f'raster: colour is one of Matplotlib\'s, such as "tab:blue" or "#1f77b4", not {show(colour)}.'
        )
    count = max(rows.shape[1], 1)
    points = 0.7 * panel_size(axes)[1] / count  # that a row is high
    area = float(np.clip(0.8 * points, 1.5, 8.0)) ** 2
    thick = float(np.clip(120 / max(len(rows), 1), 0.4, 1.2))
    bottom, middles = 0, []
    for number, (_, members) in enumerate(groups):
        at, row = np.nonzero(rows[:, members])
        colour = colour if len(groups) == 1 else COLOURS[number % len(COLOURS)]
        mark, part = _MARKS[number % len(_MARKS)] if points > 3 else _MARKS[0]
        # Above some number of marks a drawing of lines is larger than a picture of them.
        many = len(at) > 20_000
        axes.scatter(steps[at], row + bottom, s=part * area, c=colour, marker=mark, linewidths=thick, rasterized=many)
        middles.append(bottom + (len(members) - 1) / 2)
        bottom += len(members)
        if number < len(groups) - 1:
            axes.axhline(bottom - 0.5, color="0.6", linewidth=0.5)
    # A mark of the first and the last row is whole: one may be larger than its row, and the axis is a point thick.
    edge = max(0.75, (0.5 * math.sqrt(area) + 1.0) / points)
    axes.set_ylim(-edge, count - 1.0 + edge)
    whole_ticks(axes.yaxis)
    stride = steps[1] - steps[0] if len(steps) > 1 else 1
    first, last = (steps[0], steps[-1]) if len(steps) else (0, -1)
    axes.set_xlim(first - 0.5 * stride, last + 0.5 * stride)
    if len(groups) > 1 or groups[0].name:
        every = math.ceil(8.5 * len(groups) / axes_size(axes)[1])  # more names do not fit
        names = [name for name, _ in groups][::every]
        axes.set_yticks(middles[::every], names, parse_math=has_formula(*names))
        axes.tick_params(axis="y", length=0)


def _append_psth(axes: Any, rows: Array, edges: Array, width: int, groups: list[ClassRows]) -> None:
    """Draw the histogram below the raster; a sample of the line of each class stands to the right of its rows."""
    from matplotlib.lines import Line2D

    below = axes_or_new(_split_place(axes, (3, 1.2)))
    _draw_psth(below, rows, edges, width, groups)
    label_axis(below.yaxis, "spikes\nper step", "rate")  # short, as the Axes is low
    below.set_xlabel(axes.get_xlabel(), fontsize=LARGE)
    axes.set_xlabel("")
    axes.tick_params(axis="x", labelbottom=False)
    bottom = 0
    for number, (_, members) in enumerate(groups if len(groups) > 1 else ()):
        middle = bottom + (len(members) - 1) / 2
        place = {"transform": axes.get_yaxis_transform(), "clip_on": False, "linewidth": 1.2}
        axes.add_artist(Line2D([1.02, 1.1], [middle, middle], **place, **series_style(number)))
        bottom += len(members)


def _split_place(axes: Any, heights: tuple[float, float]) -> Any:
    """A new Axes in the lower part of the place of `axes`, which keeps the upper one; they share the time axis."""
    if (place := axes.get_subplotspec()) is not None:
        parts = place.subgridspec(2, 1, height_ratios=heights, hspace=0.12)
        axes.set_subplotspec(parts[0])
        return axes.figure.add_subplot(parts[1], sharex=axes)
    box = axes.get_position(original=True)
    low = box.height * heights[1] / (1.1 * sum(heights))
    axes.set_position([box.x0, box.y0 + 1.3 * low, box.width, box.height - 1.3 * low])
    return axes.figure.add_axes([box.x0, box.y0, box.width, low], sharex=axes)


# --- peri-stimulus time histogram -------------------------------------------------------------------------------------


def psth(
    spikes: Any,
    ax: Any = None,
    title: str | None = None,
    *,
    width: int = 1,
    layer: str | None = None,
    classes: Any = None,
) -> Any:
    """The peri-stimulus time histogram: spikes per neuron and step, over time, with its standard error as a band.

    A bin of `width` steps shows r = (number of spikes in it) / (rows * steps in it); the band is r +- s / sqrt(rows),
    s the standard deviation of the rows' own r. Rows are the neurons of (T, N), and the samples of (T, B, ...).

    Args:
        spikes: (T, N) or (T, B, ...), or a monitor; every element that is not 0 is a spike.
        ax, title: the Axes to draw on, by default new ones, and the title above them.
        width: of a bin, in steps; the last bin may be shorter.
        layer: which one of a monitor's, or of a mapping's.
        classes: a label for each row; each class gets a line of its own.

    Raises:
        ShapeError: if spikes have fewer than two axes, or if there are not as many classes as rows.
        ArgumentError: for a width below 1, an array without elements, or a layer that is unknown or does not fire.
    """
    name, array = one_layer(spikes, "spikes", layer, "psth")
    rows = check_rows(as_spikes(array, "psth"), "psth")
    rows = rows if rows.ndim == 2 else rows.reshape(*rows.shape[:2], -1).mean(2)  # (T, N), or the means of samples
    groups = group_rows(classes, rows.shape[1], "psth", "neurons" if array.ndim == 2 else "samples")
    edges = _edges_of_bins(step_numbers(spikes, name, len(rows), "spikes"), width, "psth")
    axes = axes_or_new(ax)
    _draw_psth(axes, rows, edges, width, groups, band=True)
    return finish(axes, title, None, (), handles=None if len(groups) > 1 else ())


def _edges_of_bins(steps: Array, width: int, who: str) -> Array:
    """The edges of bins of `width` recorded steps: half a step before the first step of each, and after the last."""
    check_count(width, who, "a bin's width in steps")
    stride = steps[1] - steps[0] if len(steps) > 1 else 1
    return np.append(steps[::width], steps[-1:] + stride) - 0.5 * stride


def _draw_psth(axes: Any, rows: Array, edges: Array, width: int, groups: list[ClassRows], band: bool = False) -> None:
    """A line of steps for each group: the mean of its rows (T, N), in bins of `width` steps."""
    starts = np.arange(0, len(rows), width)
    counts = np.diff(np.append(starts, len(rows)))[:, None]  # the last bin may be shorter
    for number, (name, members) in enumerate(groups):
        each = np.zeros((0, len(members)))
        if len(starts):
            each = np.add.reduceat(rows[:, members].astype(np.float64), starts, axis=0) / counts
        rate = each.mean(1) if len(members) else np.zeros(len(each))
        style = series_style(number)
        axes.stairs(rate, edges, label=legend_label(name), linewidth=1.2, baseline=None, **style)
        if band and len(members) > 1:
            error = each.std(1, ddof=1) / np.sqrt(len(members))
            options = {"fill": True, "alpha": 0.2, "color": style["color"], "linewidth": 0}
            axes.stairs(rate + error, edges, baseline=rate - error, **options)
    axes.set_ylim(bottom=0.0)
    axes.set_xlim(edges[0], edges[-1])
    label_axis(axes.yaxis, "spikes per\nneuron and step", "spikes\nper step", "rate")


# --- animation --------------------------------------------------------------------------------------------------------

_CHANNELS = (COLOURS[1], COLOURS[5], COLOURS[0])  # far apart in grey, too


def animate(
    spikes: Any,
    images: Any = None,
    path: str | Path | None = None,
    fps: float = 10.0,
    ax: Any = None,
    title: str | None = None,
    *,
    fade: float = 0.6,
    shape: tuple[int, ...] | None = None,
    layer: str | None = None,
    sample: int | None = None,
) -> Any:
    """Animate spikes over time on a plane, over an image if there is one: each lights up and fades.

    A spike is drawn with an opacity of 1, which is multiplied by `fade` at each step. Up to three channels, such as the
    polarities of an event camera, have colours of their own; of more, a spike of any is shown.

    Args:
        spikes: (T, H, W) or (T, C, H, W), (T, N) with `shape`, (T, B, ...) with `sample`, or a monitor; every element
            that is not 0 is a spike.
        images: (h, w), or (T, h, w), one for each step, stretched to the plane; drawn in light grey.
        path: a file to write, .gif, or .mp4 where there is ffmpeg.
        fps: steps in a second.
        ax: the Axes to draw on; a new one if it is left out.
        title: above it; left out, the name of the layer. The time step stands beneath.
        fade: what is left of a spike after a step, from 0 up to, not including, 1.
        shape: (H, W) or (C, H, W) of the neurons; if left out for (T, N), the rectangle nearest to a square.
        layer: which one of a monitor's, or of a mapping's.
        sample: which one of a batch; a monitor's first if it is left out.

    Returns:
        Matplotlib's FuncAnimation; keep it as long as it is to run. Its Axes are `animation._fig.axes`, or `ax`.

    Raises:
        ShapeError: if the neurons are not on a plane of that shape, or if images do not fit.
        ArgumentError: for fps or fade that make no sense, for another ending of path, or where ffmpeg is missing.
    """
    _check_film(path, fps, fade)
    name, array = one_layer(spikes, "spikes", layer, "animate")
    sample = 0 if is_monitor(spikes) and sample is None else sample
    planes = _planes(array, sample, shape)
    backgrounds = _backgrounds(images, len(planes))
    steps = step_numbers(spikes, name, len(planes), "spikes")
    animation = _film(
        axes_or_new(ax, 3.3, 3.3), planes, fade, backgrounds, steps, name if title is None else title, fps
    )
    if path is not None:
        animation.save(path, writer="pillow" if Path(path).suffix.lower() == ".gif" else "ffmpeg", fps=fps)
    return animation


def _check_film(path: str | Path | None, fps: float, fade: float) -> None:
    check_positive(fps, "animate", "fps")
    if not 0.0 <= fade < 1.0:
        raise ArgumentError(f"animate: fade is a number of at least 0 and below 1, not {fade!r}.")
    ending = ".gif" if path is None else Path(path).suffix.lower()
    if ending not in (".gif", ".mp4"):
        raise ArgumentError(f"animate: path ends in .gif or .mp4, not {str(path)!r}.")
    if ending == ".mp4":
        from matplotlib.animation import FFMpegWriter

        if not FFMpegWriter.isAvailable():
            raise ArgumentError(
                f"animate: {str(path)!r} needs ffmpeg, and there is no program of that name on the PATH. Install it, "
                "or write a .gif, which needs nothing."
            )


def _planes(array: Array, sample: int | None, shape: tuple[int, ...] | None) -> Array:
    """(T, C, H, W), with C at most 3."""
    if sample is not None:
        if array.ndim < 3:
            raise ShapeError(f"animate: sample chooses from (T, B, ...), not from shape {array.shape}.")
        array = sample_of(array, sample, "animate")
    spikes = as_spikes(array, "animate")
    if spikes.ndim == 2 and shape is None:
        count = spikes.shape[1]
        height = next((h for h in range(math.isqrt(count), 0, -1) if count % h == 0), 1)
        shape = height, count // height
    if shape is not None:
        if spikes.ndim < 2 or len(shape) not in (2, 3) or math.prod(shape) != math.prod(spikes.shape[1:]):
            raise ShapeError(
                f"animate: shape is (H, W) or (C, H, W) of the {math.prod(spikes.shape[1:])} neurons, not {shape!r}."
            )
        spikes = spikes.reshape(len(spikes), *shape)
    if spikes.ndim not in (3, 4):
        raise ShapeError(
            f"animate: takes (T, H, W), (T, C, H, W) or (T, N), not shape {spikes.shape}. Choose one of a batch: "
            "sample=0."
        )
    if spikes.size == 0:
        raise ArgumentError(f"animate: an array of shape {spikes.shape} holds nothing to show.")
    planes = spikes if spikes.ndim == 4 else spikes[:, None]
    return planes if planes.shape[1] <= len(_CHANNELS) else np.any(planes, axis=1, keepdims=True)


def _backgrounds(images: Any, steps: int) -> Array | None:
    if images is None:
        return None
    pictures = real_array_of(images, "animate", "images")
    if pictures.ndim == 2:
        pictures = pictures[None]
    if pictures.ndim != 3 or len(pictures) not in (1, steps) or not pictures.size:
        raise ShapeError(f"animate: images are (h, w), or ({steps}, h, w), one for each step, not {np.shape(images)}.")
    return pictures


def _film(
    axes: Any, planes: Array, fade: float, backgrounds: Array | None, steps: Array, title: str, fps: float
) -> Any:
    from matplotlib.animation import FuncAnimation
    from matplotlib.colors import to_rgb
    from matplotlib.lines import Line2D

    (channels, height, width), colours = planes.shape[1:], _CHANNELS[: planes.shape[1]]
    trails = planes.astype(np.float32)  # the opacity of each spike's light
    for step in range(1, len(trails)):
        np.maximum(trails[step], fade * trails[step - 1], out=trails[step])
    axes.set(xticks=[], yticks=[], xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5), aspect="equal")
    for spine in axes.spines.values():
        spine.set_visible(True)
    if channels > 1:
        style: dict[str, Any] = {"marker": "s", "linestyle": "none", "markersize": 5}
        keys = [Line2D([], [], color=colour, label=f"channel {n}", **style) for n, colour in enumerate(colours)]
        axes.set_xlabel("step", fontsize=LARGE)
        legend(axes, keys, inside=False)
    place = {"extent": (-0.5, width - 0.5, height - 0.5, -0.5), "interpolation": "nearest", "aspect": "equal"}
    picture = None
    if backgrounds is not None:
        low, high = float(backgrounds.min()), float(backgrounds.max())
        # From white to half way to black, so that all spikes stand out.
        picture = axes.imshow(backgrounds[0], cmap="Greys", vmin=low, vmax=low + 2 * ((high - low) or 1.0), **place)
    lights = []
    for colour in colours:
        plane = np.broadcast_to(np.array(to_rgb(colour), np.float32), (height, width, 3))
        lights.append((plane, axes.imshow(np.zeros((height, width, 4), np.float32), **place)))

    def show(frame: int) -> list[Any]:
        if picture is not None and backgrounds is not None and len(backgrounds) > 1:
            picture.set_data(backgrounds[frame])
        for (plane, light), trail in zip(lights, trails[frame], strict=True):
            light.set_data(np.concatenate([plane, trail[:, :, None]], 2))
        axes.set_xlabel(f"step {steps[frame]}", fontsize=LARGE)
        return [light for _, light in lights]

    set_title(axes, title)
    show(0)
    return FuncAnimation(axes.figure, show, frames=len(trails), interval=1000 / fps, repeat=True)
