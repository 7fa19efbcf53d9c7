"""Plots of spikes over time: raster plots, peri-stimulus time histograms (PSTH), animations."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from snncell.base.arguments.kinds import AtLeastOne, Positive
from snncell.base.arguments.shown import show
from snncell.errors import ArgumentError, ShapeError
from snncell.plot import axes as drawing, sources
from snncell.plot.axes import COLOURS, LARGE
from snncell.plot.sources import Array, ClassRows

_MARKS = (("|", 1.0), ("x", 0.3), ("o", 0.15), ("+", 0.5))  # markers of classes, with areas of similar visual weight


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
    psth: AtLeastOne | None = None,
) -> Any:
    """Raster plot: a mark for each spike, with time on the horizontal and neurons (or samples) on the vertical axis.

    Args:
        spikes: an array (T, N), or (T, B, ...) with `sample` or `neuron`; a mapping from layer names to such arrays; or
            a monitor. Nonzero elements are spikes.
        ax, title: the Axes to draw on (new Axes by default), and the title, by default layer and number of spikes.
        colour: the colour of the marks. If there are several classes, each of them has its own colour instead.
        layer: the name of a layer, for a monitor or a mapping.
        sample: the index of the sample to draw. Each of its neurons becomes a row. For a monitor the default is 0.
        neuron: the index of the neuron to draw, within its layer. Each sample then becomes a row.
        classes: a label for each row. The plot groups the rows by class and shows the class names.
        psth: the width of a bin in steps, if you also want a histogram (see `psth`) below the raster. Its Axes are the
            last Axes of the figure. Each class has its own line in the histogram, and a short line of the same style
            to the right of its rows in the raster.
    Raises: ShapeError if spikes have another number of axes, or if `classes` does not have one label for each row;
        ArgumentError for spikes with NaN, or a layer that outputs potentials instead of spikes, such as `LINode`.
    """
    name, array = sources.one_layer(spikes, "spikes", layer, "raster")
    sample = 0 if sources.is_monitor(spikes) and sample is None and neuron is None else sample
    numbers = sources.neuron_numbers(spikes, name, int(np.prod(array.shape[min(2, array.ndim - 1) :])))
    rows = sources.as_spikes(sources.choose_rows(array, sample, neuron, "raster", numbers), "raster")
    what = "neuron" if neuron is None else "sample"
    groups = sources.group_rows(classes, rows.shape[1], "raster", f"{what}s")
    steps = sources.step_numbers(spikes, name, len(rows), "spikes")
    edges = None if psth is None else _edges_of_bins(steps, psth)
    axes = drawing.axes_or_new(ax, height=max(2.2, 0.6 + 0.15 * len(groups)) + (0.8 if psth else 0.0))
    middles = _draw_raster(axes, rows, steps, groups, colour)
    drawing.label_time_axis(axes)
    if neuron is None and classes is None and not sources.all_there(numbers):  # label rows by the neurons' indices
        axes.yaxis.set_major_formatter(lambda row, _: str(numbers[int(row)]) if row in range(len(numbers)) else "")
    drawing.label_axis(axes.yaxis, *([what] if classes is None else [f"{what}s by class", f"{what}s"]))
    if edges is not None and psth is not None:
        _append_psth(axes, rows, edges, psth, groups, middles)
    text = _count_spikes(rows, sources.steps_before_end(spikes, name), sample, what)
    drawing.set_title(axes, title, f"{sources.title_of(name)}: {text}" if name else text)
    return axes


def _count_spikes(rows: Array, live: Array | None, sample: int | None, what: str) -> str:
    """The number of spikes, and their rate; `live` (T, B) masks steps that are not padding."""
    count, size = int(rows.sum()), rows.size
    if live is not None:
        size = int(live.sum()) if sample is None else int(live[:, sample].sum()) * rows.shape[1]
    return f"{count} spikes, {count / max(size, 1):.3f} per {what} and step"


def _draw_raster(axes: Any, rows: Array, steps: Array, groups: list[ClassRows], colour: str) -> list[float]:
    """Draw the marks, and return the middle of each group's rows."""
    from matplotlib.colors import is_color_like

    if not is_color_like(colour):
        raise ArgumentError(
            f'raster: colour must be a Matplotlib colour, for example "tab:blue" or "#1f77b4", not {show(colour)}.'
        )
    count = max(rows.shape[1], 1)
    points = 0.7 * drawing.panel_size(axes)[1] / count  # height of a row
    area = float(np.clip(0.8 * points, 1.5, 8.0)) ** 2
    thick = float(np.clip(120 / max(len(rows), 1), 0.4, 1.2))
    bottom, middles = 0, []
    for number, (_, members) in enumerate(groups):
        at, row = np.nonzero(rows[:, members])
        colour = colour if len(groups) == 1 else COLOURS[number % len(COLOURS)]
        mark, part = _MARKS[number % len(_MARKS)] if points > 3 else _MARKS[0]
        # Rasterise many marks, because a vector file would be larger.
        many = len(at) > 20_000
        axes.scatter(steps[at], row + bottom, s=part * area, c=colour, marker=mark, linewidths=thick, rasterized=many)
        middles.append(bottom + (len(members) - 1) / 2)
        bottom += len(members)
        if number < len(groups) - 1:
            axes.axhline(bottom - 0.5, color="0.6", linewidth=0.5)
    # Leave room for whole marks in the first and last row, because a mark may be larger than its row.
    edge = max(0.75, (0.5 * math.sqrt(area) + 1.0) / points)
    axes.set_ylim(-edge, count - 1.0 + edge)
    drawing.whole_ticks(axes.yaxis)
    stride = steps[1] - steps[0] if len(steps) > 1 else 1
    first, last = (steps[0], steps[-1]) if len(steps) else (0, -1)
    axes.set_xlim(first - 0.5 * stride, last + 0.5 * stride)
    if len(groups) > 1 or groups[0].name:
        every = math.ceil(8.5 * len(groups) / drawing.axes_size(axes)[1])  # skip names that do not fit
        names = [name for name, _ in groups][::every]
        axes.set_yticks(middles[::every], names, parse_math=drawing.has_formula(*names))
        axes.tick_params(axis="y", length=0)
    return middles


def _append_psth(
    axes: Any, rows: Array, edges: Array, width: int, groups: list[ClassRows], middles: list[float]
) -> None:
    """Draw the histogram below the raster, and a piece of each class's line to the right of its rows."""
    from matplotlib.lines import Line2D

    below = drawing.axes_or_new(_split_place(axes, (3, 1.2)))
    _draw_psth(below, rows, edges, width, groups)
    drawing.label_axis(below.yaxis, "spikes\nper step", "rate")  # short labels, because the Axes is low
    below.set_xlabel(axes.get_xlabel(), fontsize=LARGE)
    axes.set_xlabel("")
    axes.tick_params(axis="x", labelbottom=False)
    place = {"transform": axes.get_yaxis_transform(), "clip_on": False, "linewidth": 1.2}
    for number, middle in enumerate(middles if len(groups) > 1 else ()):
        axes.add_artist(Line2D([1.02, 1.1], [middle, middle], **place, **drawing.series_style(number)))


def _split_place(axes: Any, heights: tuple[float, float]) -> Any:
    """Give the lower part of `axes` to new Axes with the same time axis."""
    if (place := axes.get_subplotspec()) is not None:
        parts = place.subgridspec(2, 1, height_ratios=heights, hspace=0.12)
        axes.set_subplotspec(parts[0])
        return axes.figure.add_subplot(parts[1], sharex=axes)
    box = axes.get_position(original=True)
    low = box.height * heights[1] / (1.1 * sum(heights))
    axes.set_position([box.x0, box.y0 + 1.3 * low, box.width, box.height - 1.3 * low])
    return axes.figure.add_axes([box.x0, box.y0, box.width, low], sharex=axes)


def psth(
    spikes: Any,
    ax: Any = None,
    title: str | None = None,
    *,
    width: AtLeastOne = 1,
    layer: str | None = None,
    classes: Any = None,
) -> Any:
    """Peri-stimulus time histogram (PSTH): spikes per neuron and step over time, with the standard error as a band.

    Rows are the neurons of (T, N), or the samples of (T, B, ...). A bin of `width` steps shows the rate r = (number of
    spikes in it) / (rows * steps in it), for samples also divided by the number of neurons. The band is
    r +- s / sqrt(rows), with s the standard deviation of the rows' rates.

    Args:
        spikes, ax, title, layer: as for `raster`, without a default title.
        width: the width of a bin in steps. The last bin may be shorter.
        classes: a label for each row; each class gets its own line.
    """
    name, array = sources.one_layer(spikes, "spikes", layer, "psth")
    rows = sources.check_rows(sources.as_spikes(array, "psth"), "psth")
    rows = rows if rows.ndim == 2 else rows.reshape(*rows.shape[:2], -1).mean(2)  # (T, N), or means per sample (T, B)
    groups = sources.group_rows(classes, rows.shape[1], "psth", "neurons" if array.ndim == 2 else "samples")
    edges = _edges_of_bins(sources.step_numbers(spikes, name, len(rows), "spikes"), width)
    axes = drawing.axes_or_new(ax)
    _draw_psth(axes, rows, edges, width, groups, band=True)
    return drawing.finish(axes, title, None, (), handles=None if len(groups) > 1 else ())


def _edges_of_bins(steps: Array, width: int) -> Array:
    """The edges of bins of `width` recorded steps: half a step before each bin, and half a step after the last step."""
    stride = steps[1] - steps[0] if len(steps) > 1 else 1
    return np.append(steps[::width], steps[-1:] + stride) - 0.5 * stride


def _draw_psth(axes: Any, rows: Array, edges: Array, width: int, groups: list[ClassRows], band: bool = False) -> None:
    """Draw a line for each group: the mean of its rows (T, N), in bins of `width` steps."""
    starts = np.arange(0, len(rows), width)
    counts = np.diff(np.append(starts, len(rows)))[:, None]  # the last bin may be shorter
    for number, (name, members) in enumerate(groups):
        each = np.zeros((0, len(members)))
        if len(starts):
            each = np.add.reduceat(rows[:, members].astype(np.float64), starts, axis=0) / counts
        rate = each.mean(1) if len(members) else np.zeros(len(each))
        style = drawing.series_style(number)
        axes.stairs(rate, edges, label=drawing.legend_label(name), linewidth=1.2, baseline=None, **style)
        if band and len(members) > 1:
            error = each.std(1, ddof=1) / np.sqrt(len(members))
            options = {"fill": True, "alpha": 0.2, "color": style["color"], "linewidth": 0}
            axes.stairs(rate + error, edges, baseline=rate - error, **options)
    axes.set_ylim(bottom=0.0)
    axes.set_xlim(edges[0], edges[-1])
    drawing.label_axis(axes.yaxis, "spikes per\nneuron and step", "spikes\nper step", "rate")


_CHANNELS = (COLOURS[1], COLOURS[5], COLOURS[0])  # also clearly different in grey


def animate(
    spikes: Any,
    images: Any = None,
    path: str | Path | None = None,
    fps: Positive = 10.0,
    ax: Any = None,
    title: str | None = None,
    *,
    fade: float = 0.6,
    shape: tuple[int, ...] | None = None,
    layer: str | None = None,
    sample: int | None = None,
) -> Any:
    """Animate spikes on a plane, optionally over an image: each spike lights up and fades. Below is the step's number.

    A spike starts with opacity 1, which is multiplied by `fade` at each step. Up to three channels, for example the
    polarities of an event camera, have their own colours. With more channels, a pixel shows a spike of any channel.

    Args:
        spikes: a monitor, or (T, H, W), (T, C, H, W), (T, N) (see `shape`), (T, B, ...) with `sample`; 0 is no spike.
        images: a background in light grey, (h, w), or (T, h, w) with one image per step, stretched to the plane.
        path: a file to write: .gif, or .mp4, which needs ffmpeg.
        fps: steps per second.
        ax, title: the Axes to draw on (new Axes by default), and the title, by default the layer.
        fade: the fraction of a spike's opacity that remains after a step, at least 0 and below 1.
        shape: (H, W) or (C, H, W) of the neurons. By default (T, N) becomes the rectangle closest to a square.
        layer, sample: the name of a layer, for a monitor or a mapping, and the index of a sample (0 for a monitor).
    Returns: Matplotlib's FuncAnimation. You must keep a reference to it, because Python otherwise deletes it and the
        animation stops. Its Axes are `ax` or `animation._fig.axes`.
    Raises: ShapeError if the neurons or images do not fit the plane; ArgumentError for a missing ffmpeg.
    """
    _check_film(path, fade)
    name, array = sources.one_layer(spikes, "spikes", layer, "animate")
    sample = 0 if sources.is_monitor(spikes) and sample is None else sample
    planes = _planes(array, sample, shape)
    backgrounds = _backgrounds(images, len(planes))
    steps = sources.step_numbers(spikes, name, len(planes), "spikes")
    title = name if title is None else title
    animation = _film(drawing.axes_or_new(ax, 3.3, 3.3), planes, fade, backgrounds, steps, title, fps)
    if path is not None:
        animation.save(path, writer="pillow" if Path(path).suffix.lower() == ".gif" else "ffmpeg", fps=fps)
    return animation


def _check_film(path: str | Path | None, fade: float) -> None:
    if not 0.0 <= fade < 1.0:
        raise ArgumentError(f"animate: fade must be a number of at least 0 and below 1, not {fade!r}.")
    ending = ".gif" if path is None else Path(path).suffix.lower()
    if ending not in (".gif", ".mp4"):
        raise ArgumentError(f"animate: path must end in .gif or .mp4, not {str(path)!r}.")
    if ending == ".mp4":
        from matplotlib.animation import FFMpegWriter

        if not FFMpegWriter.isAvailable():
            raise ArgumentError(
                f"animate: {str(path)!r} needs ffmpeg, which is not on the PATH. Install it, "
                "or write a .gif, which needs no other program."
            )


def _planes(array: Array, sample: int | None, shape: tuple[int, ...] | None) -> Array:
    """Spikes as (T, C, H, W), with C at most 3."""
    if sample is not None:
        if array.ndim < 3:
            raise ShapeError(f"animate: sample needs spikes of shape (T, B, ...), not {array.shape}.")
        array = sources.sample_of(array, sample, "animate")
    spikes = sources.as_spikes(array, "animate")
    if spikes.ndim == 2 and shape is None:
        count = spikes.shape[1]
        height = next((h for h in range(math.isqrt(count), 0, -1) if count % h == 0), 1)
        shape = height, count // height
    if shape is not None:
        if spikes.ndim < 2 or len(shape) not in (2, 3) or math.prod(shape) != math.prod(spikes.shape[1:]):
            raise ShapeError(
                f"animate: shape must be (H, W) or (C, H, W) of {math.prod(spikes.shape[1:])} neurons, not {shape!r}."
            )
        spikes = spikes.reshape(len(spikes), *shape)
    if spikes.ndim not in (3, 4):
        raise ShapeError(
            f"animate: takes (T, H, W), (T, C, H, W) or (T, N), not shape {spikes.shape}. For a batch, choose one "
            "sample: sample=0."
        )
    if spikes.size == 0:
        raise ArgumentError(f"animate: an array of shape {spikes.shape} is empty, so there is nothing to show.")
    planes = spikes if spikes.ndim == 4 else spikes[:, None]
    return planes if planes.shape[1] <= len(_CHANNELS) else np.any(planes, axis=1, keepdims=True)


def _backgrounds(images: Any, steps: int) -> Array | None:
    if images is None:
        return None
    pictures = sources.real_array_of(images, "animate", "images")
    if pictures.ndim == 2:
        pictures = pictures[None]
    if pictures.ndim != 3 or len(pictures) not in (1, steps) or not pictures.size:
        raise ShapeError(
            f"animate: images must be (h, w), or ({steps}, h, w), one for each step, not {np.shape(images)}."
        )
    return pictures


def _film(
    axes: Any, planes: Array, fade: float, backgrounds: Array | None, steps: Array, title: str, fps: float
) -> Any:
    from matplotlib.animation import FuncAnimation
    from matplotlib.colors import to_rgb
    from matplotlib.lines import Line2D

    (channels, height, width), colours = planes.shape[1:], _CHANNELS[: planes.shape[1]]
    trails = planes.astype(np.float32)  # opacities
    for step in range(1, len(trails)):
        np.maximum(trails[step], fade * trails[step - 1], out=trails[step])
    axes.set(xticks=[], yticks=[], xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5), aspect="equal")
    for spine in axes.spines.values():
        spine.set_visible(True)
    if channels > 1:
        style: dict[str, Any] = {"marker": "s", "linestyle": "none", "markersize": 5}
        keys = [Line2D([], [], color=colour, label=f"channel {n}", **style) for n, colour in enumerate(colours)]
        axes.set_xlabel("step", fontsize=LARGE)
        drawing.legend(axes, keys, inside=False)
    place = {"extent": (-0.5, width - 0.5, height - 0.5, -0.5), "interpolation": "nearest", "aspect": "equal"}
    picture = None
    if backgrounds is not None:
        low, high = float(backgrounds.min()), float(backgrounds.max())
        # Use only the lighter half of the greys, so that all spikes stand out.
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

    drawing.set_title(axes, title)
    show(0)
    return FuncAnimation(axes.figure, show, frames=len(trails), interval=1000 / fps, repeat=True)
