"""Data sets, event files, transforms and batches for spiking neural networks."""

from snncell.base.arguments.guard import guard as _guard
from snncell.data.cache import *
from snncell.data.datasets import *
from snncell.data.events import *
from snncell.data.formats import *
from snncell.data.frames import *
from snncell.data.loader import *
from snncell.data.made.camera import *
from snncell.data.made.classification import *
from snncell.data.made.memory import *
from snncell.data.made.shd_like import *
from snncell.data.samples import *
from snncell.data.transforms import *
from snncell.data.transforms.coordinates import *
from snncell.data.transforms.selection import *
from snncell.tape.event_lists import EventLists as EventLists

_guard(globals(), own=True)
