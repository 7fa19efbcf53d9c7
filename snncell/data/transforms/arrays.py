"""Convert events to images, voxel grids and time surfaces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.base.arguments.kinds import Count, Dtype, FloatDtype, Positive
from snncell.data.events import Events, has_rows
from snncell.data.frames import Binning, make_frames
from snncell.data.transforms.base import Array, Transform, check_inside, grid_of, in_order, places_of, span
from snncell.errors import ArgumentError

__all__ = ["ToImage", "ToTimesurface", "ToVoxelGrid"]


@dataclass(frozen=True)
class ToImage(Transform):
    """Count all events per pixel and polarity in one image, (P, H, W), or (P, W) for events without y.

    Args:
        dtype: of the counts, which stop at its largest number.
        sensor_size: (W, H, P), for structured arrays, which contain no sensor size.
    """

    dtype: Dtype = np.int32

    def _of(self, events: Events) -> Any:
        return make_frames("ToImage", Binning(n_bins=1, dtype=self.dtype), events)[0]


@dataclass(frozen=True)
class ToVoxelGrid(Transform):
    """Voxel grid: sum the signs of events in time bins, where each event is shared by its two nearest bins.

    With tau = n (t - t0) / (t1 - t0), where t0 and t1 are the times of the first and the last event, bin b of a pixel
    is

        V_b = sum_events s max(0, 1 - |b - tau|),  s = 1 for polarity 1, -1 for polarity 0.

    The last event has tau = n and is therefore in no bin, as in tonic; the article uses n - 1 instead of n. For a
    sensor with one polarity, s = 1. If all events have the same time, tau = 0.

    Args:
        n_time_bins: n.
        dtype: float32 or float64.
        sensor_size: (W, H, P), for structured arrays, which contain no sensor size; P is at most 2.
    Returns: When called, (n, 1, H, W), or (n, 1, W) for events without y.
    Source: Zhu, Yuan, Chaney and Daniilidis, "Unsupervised Event-based Learning of Optical Flow, Depth, and
    Egomotion", CVPR 2019.
    """

    n_time_bins: Count
    dtype: FloatDtype = np.float32

    def _of(self, events: Events) -> Any:
        count = events.sensor_size[2]
        if count > 2:
            raise ArgumentError(f"ToVoxelGrid: needs a sensor with one or two polarities, and this one has {count}.")
        kind = dtypes.as_dtype(self.dtype).dtype
        (width, height), bins = grid_of(events), self.n_time_bins
        places, pixels = places_of("ToVoxelGrid", events), width * height
        grid = np.zeros(bins * pixels)
        if len(events):
            first, last = span(events)
            tau = bins * ((events["t"] - first) / max(last - first, 1))
            low = tau.astype(np.int64)
            signs = np.where(events["p"] > 0, 1.0, -1.0) if count == 2 else np.ones(len(events))
            for share, bin_of in ((1.0 - (tau - low), low), (tau - low, low + 1)):
                inside = bin_of < bins
                cells = bin_of[inside] * pixels + places[inside]
                grid += np.bincount(cells, (signs * share)[inside], minlength=len(grid))
        shape = (bins, 1, height, width) if has_rows(events) else (bins, 1, width)
        return grid.reshape(shape).astype(kind)


@dataclass(frozen=True)
class ToTimesurface(Transform):
    """Time surfaces: an exponentially decaying trace of each pixel's last event, sampled every dt microseconds.

    With t0 the time of the first event, surface i is exp(-(t0 + (i + 1) dt - t_last) / tau). Here t_last is the time of
    the pixel's last event before t0 + (i + 1) dt; without such an event the value is 0. There are as many surfaces as
    needed to include all events, whereas tonic leaves out the last surface.

    Args:
        dt: microseconds between surfaces.
        tau: time constant of the decay, in microseconds.
        dtype: a floating dtype.
        sensor_size: (W, H, P), for structured arrays, which contain no sensor size.
    Returns: When called, (T, P, H, W), or (T, P, W) for events without y; T = 0 without events.
    Source: Lagorce, Orchard, Galluppi, Shi and Benosman, "HOTS: A Hierarchy of Event-Based Time-Surfaces for Pattern
    Recognition", TPAMI 2017; here over the whole sensor.
    """

    dt: Count
    tau: Positive
    dtype: FloatDtype = np.float32

    def _of(self, events: Events) -> Array:
        check_inside("ToTimesurface", events)
        kind = dtypes.as_dtype(self.dtype).dtype
        (width, height), polarities = grid_of(events), events.sensor_size[2]
        ordered = in_order(events)
        first, last = span(events) if len(events) else (0, -1)
        number = (last - first) // self.dt + 1
        cells = places_of("ToTimesurface", ordered) + ordered["p"] * np.int64(width * height)
        # `latest` holds the last time of each pixel; each surface updates it by its own events.
        since = ordered["t"] - first
        ends = np.searchsorted(since, np.arange(1, number + 1) * self.dt)
        latest = np.full(polarities * width * height, -np.inf)
        surfaces = np.empty((number, len(latest)), kind)
        begin = 0
        for i, end in enumerate(ends):
            latest[cells[begin:end]] = since[begin:end]  # if a pixel occurs twice, NumPy keeps the later time
            surfaces[i] = np.exp((latest - (i + 1) * self.dt) / self.tau)
            begin = end
        shape = (polarities, height, width) if has_rows(events) else (polarities, width)
        return surfaces.reshape(number, *shape)
