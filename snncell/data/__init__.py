"""Data sets that come with the package or are made by it, and batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from snncell.arguments.guard import guard as _guard
from snncell.arguments.kinds import Count
from snncell.arguments.vocabulary import Numbers
from snncell.data.cache import Cached as Cached
from snncell.data.datasets import (
    ASLDVS as ASLDVS,
    CIFAR10DVS as CIFAR10DVS,
    NMNIST as NMNIST,
    SHD as SHD,
    DVSGesture as DVSGesture,
    EventFolder as EventFolder,
    NCaltech101 as NCaltech101,
)
from snncell.data.event_lists import to_event_lists as to_event_lists
from snncell.data.events import Events as Events
from snncell.data.formats import read_events as read_events
from snncell.data.frames import to_frames as to_frames
from snncell.data.loader import Loader as Loader, in_turn as _in_turn
from snncell.data.made.camera import EventCamera as EventCamera
from snncell.data.made.classification import randman as randman
from snncell.data.made.digits import MovingDigits as MovingDigits
from snncell.data.made.memory import (
    cue_accumulation as cue_accumulation,
    delayed_match as delayed_match,
    store_recall as store_recall,
)
from snncell.data.made.patterns import poisson_patterns as poisson_patterns
from snncell.data.made.pulses import (
    adding_problem as adding_problem,
    delay_xor as delay_xor,
    pulse_order as pulse_order,
)
from snncell.data.made.shd_like import SHDLike as SHDLike, write_shd_like as write_shd_like
from snncell.data.made.yin_yang import yin_yang as yin_yang
from snncell.data.padding import padded as padded
from snncell.data.shipped import digits as digits
from snncell.data.slices import Sliced as Sliced
from snncell.data.transforms.arrays import (
    ToEventLists as ToEventLists,
    ToFrame as ToFrame,
    ToImage as ToImage,
    ToTimesurface as ToTimesurface,
    ToVoxelGrid as ToVoxelGrid,
)
from snncell.data.transforms.base import Compose as Compose
from snncell.data.transforms.coordinates import (
    Downsample as Downsample,
    MergePolarities as MergePolarities,
    RandomFlipLR as RandomFlipLR,
    RandomFlipPolarity as RandomFlipPolarity,
    RandomFlipUD as RandomFlipUD,
    RandomTimeReversal as RandomTimeReversal,
    SpatialJitter as SpatialJitter,
    TimeAlignment as TimeAlignment,
    TimeJitter as TimeJitter,
    TimeSkew as TimeSkew,
    UniformNoise as UniformNoise,
)
from snncell.data.transforms.selection import (
    CenterCrop as CenterCrop,
    CropTime as CropTime,
    Decimation as Decimation,
    Denoise as Denoise,
    DropEvent as DropEvent,
    DropEventByArea as DropEventByArea,
    DropEventByTime as DropEventByTime,
    DropPixel as DropPixel,
    RandomCrop as RandomCrop,
    RefractoryPeriod as RefractoryPeriod,
)
from snncell.errors import ArgumentError, ShapeError
from snncell.tape.event_lists import EventLists as EventLists
from snncell.tape.given import on_host
from snncell.tape.tensor import Tensor

Array = np.ndarray[Any, Any]


def batches(
    *arrays: Numbers, batch_size: Count, shuffle: bool = True, drop_last: bool = False
) -> Iterator[tuple[Tensor, ...]]:
    """Go through arrays of one length together, a batch at a time, as Tensors.

    Args:
        arrays: what `Tensor` takes, with the same first axis: arrays of NumPy and other libraries, Tensors, lists.
        batch_size: how many entries a batch has; the last may have fewer.
        shuffle: in random order, another one each time (`snncell.set_seed` makes it repeatable).
        drop_last: leave out a last batch that is not full.

    Raises:
        ShapeError: if the first axes differ.
        ArgumentError: for a batch size below 1, or no arrays.
    """
    if not arrays or batch_size < 1:
        raise ArgumentError(f"batches: needs arrays and a batch_size of at least 1, not {batch_size!r}.")
    sources = [on_host(array) for array in arrays]
    lengths = {len(source) if source.ndim else 0 for source in sources}
    if len(lengths) != 1:
        raise ShapeError(f"batches: the arrays have different lengths {sorted(lengths)}.")
    (length,) = lengths
    for chosen in _in_turn(length, batch_size, shuffle, drop_last):
        yield tuple(Tensor(source[chosen]) for source in sources)


_guard(globals(), own=True)
