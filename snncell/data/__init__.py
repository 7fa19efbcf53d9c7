"""Data sets that come with the package or are made by it, and batches."""

from snncell.arguments.guard import guard as _guard
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
from snncell.data.events import Events as Events
from snncell.data.formats import read_events as read_events
from snncell.data.frames import to_event_lists as to_event_lists, to_frames as to_frames
from snncell.data.loader import Loader as Loader, batches as batches
from snncell.data.made.camera import EventCamera as EventCamera
from snncell.data.made.classification import (
    poisson_patterns as poisson_patterns,
    randman as randman,
    yin_yang as yin_yang,
)
from snncell.data.made.digits import MovingDigits as MovingDigits, digits as digits
from snncell.data.made.memory import (
    adding_problem as adding_problem,
    cue_accumulation as cue_accumulation,
    delay_xor as delay_xor,
    delayed_match as delayed_match,
    pulse_order as pulse_order,
    store_recall as store_recall,
)
from snncell.data.made.shd_like import SHDLike as SHDLike, write_shd_like as write_shd_like
from snncell.data.padding import padded as padded
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
from snncell.tape.event_lists import EventLists as EventLists

_guard(globals(), own=True)
