"""Animations of spikes over an image."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from snncell.base.arguments.kinds import check_positive
from snncell.errors import ArgumentError, ShapeError
from snncell.plot.axes import COLOURS, LARGE, axes_or_new, set_title
from snncell.plot.legends import legend
from snncell.plot.sources import Array, as_spikes, is_monitor, one_layer, real_array_of, step_numbers

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
    """Spikes over time on a plane, over an image if there is one: each lights up and fades.

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
        matplotlib's FuncAnimation; keep it as long as it is to run. Its Axes are `animation._fig.axes`, or `ax`.

    Raises:
        ShapeError: if the neurons are not on a plane of that shape, or if images do not fit.
        ArgumentError: for fps or fade that make no sense, for another ending of path, or where ffmpeg is missing.
    """
    _check(path, fps, fade)
    name, array = one_layer(spikes, "spikes", layer, "animate")
    sample = 0 if is_monitor(spikes) and sample is None else sample
    planes = _planes(as_spikes(_of_sample(array, sample), "animate"), shape)
    backgrounds = _backgrounds(images, len(planes))
    axes = _empty(axes_or_new(ax, 3.3, 3.3), planes)
    steps = step_numbers(spikes, name, len(planes), "spikes")
    animation = _animation(axes, _trails(planes, fade), backgrounds, steps, name if title is None else title, fps)
    if path is not None:
        animation.save(path, writer="pillow" if Path(path).suffix.lower() == ".gif" else "ffmpeg", fps=fps)
    return animation


def _check(path: str | Path | None, fps: float, fade: float) -> None:
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


def _of_sample(array: Array, sample: int | None) -> Array:
    if sample is None:
        return array
    if array.ndim < 3:
        raise ShapeError(f"animate: sample chooses from (T, B, ...), not from shape {array.shape}.")
    if not isinstance(sample, (int, np.integer)) or not -array.shape[1] <= sample < array.shape[1]:
        raise ArgumentError(f"animate: there is no sample {sample!r}; there are {array.shape[1]}, from 0.")
    return array[:, sample]


def _planes(spikes: Array, shape: tuple[int, ...] | None) -> Array:
    """(T, C, H, W), with C at most 3."""
    if spikes.ndim == 2 and shape is None:
        shape = _rectangle(spikes.shape[1])
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


def _rectangle(count: int) -> tuple[int, int]:
    height = next((h for h in range(math.isqrt(count), 0, -1) if count % h == 0), 1)
    return height, count // height


def _backgrounds(images: Any, steps: int) -> Array | None:
    if images is None:
        return None
    pictures = real_array_of(images, "animate", "images")
    if pictures.ndim == 2:
        pictures = pictures[None]
    if pictures.ndim != 3 or len(pictures) not in (1, steps) or not pictures.size:
        raise ShapeError(f"animate: images are (h, w), or ({steps}, h, w), one for each step, not {np.shape(images)}.")
    return pictures


def _trails(planes: Array, fade: float) -> Array:
    """The opacity of each spike's light."""
    trails = planes.astype(np.float32)
    for step in range(1, len(trails)):
        np.maximum(trails[step], fade * trails[step - 1], out=trails[step])
    return trails


def _empty(axes: Any, planes: Array) -> Any:
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(True)
    height, width = planes.shape[2:]
    axes.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5), aspect="equal")
    if planes.shape[1] > 1:
        from matplotlib.lines import Line2D

        style: dict[str, Any] = {"marker": "s", "linestyle": "none", "markersize": 5}
        keys = [Line2D([], [], color=_CHANNELS[n], label=f"channel {n}", **style) for n in range(planes.shape[1])]
        axes.set_xlabel("step", fontsize=LARGE)
        legend(axes, keys, inside=False)
    return axes


def _animation(axes: Any, trails: Array, backgrounds: Array | None, steps: Array, title: str, fps: float) -> Any:
    from matplotlib.animation import FuncAnimation
    from matplotlib.colors import to_rgb

    height, width = trails.shape[2:]
    place = {"extent": (-0.5, width - 0.5, height - 0.5, -0.5), "interpolation": "nearest", "aspect": "equal"}
    picture = None
    if backgrounds is not None:
        low, high = float(backgrounds.min()), float(backgrounds.max())
        # From white to half way to black, so that all spikes stand out.
        picture = axes.imshow(backgrounds[0], cmap="Greys", vmin=low, vmax=low + 2 * ((high - low) or 1.0), **place)
    lights = []
    for channel in range(trails.shape[1]):
        colour = np.broadcast_to(np.array(to_rgb(_CHANNELS[channel]), np.float32), (height, width, 3))
        lights.append((colour, axes.imshow(np.zeros((height, width, 4), np.float32), **place)))

    def show(frame: int) -> list[Any]:
        if picture is not None and backgrounds is not None and len(backgrounds) > 1:
            picture.set_data(backgrounds[frame])
        for (colour, light), trail in zip(lights, trails[frame], strict=True):
            light.set_data(np.concatenate([colour, trail[:, :, None]], 2))
        axes.set_xlabel(f"step {steps[frame]}", fontsize=LARGE)
        return [light for _, light in lights]

    set_title(axes, title)
    show(0)
    return FuncAnimation(axes.figure, show, frames=len(trails), interval=1000 / fps, repeat=True)
