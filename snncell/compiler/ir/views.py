"""Views that passes ask for by class: the same elements in another shape, copied only where no strides give it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from snncell.kernels.space import space_of
from snncell.tape.primitive import EVERYWHERE, Primitive


class Reshape(Primitive):
    """The same elements in the same order."""

    as_stored = EVERYWHERE
    view = additive = True

    def __init__(self) -> None:
        super().__init__("reshape", lambda x, shape: x.reshape(shape))

    def over_time(self, arrays: Sequence[Any], varying: Sequence[bool], attrs: dict[str, Any]) -> Any:
        """Each step in that shape."""
        return arrays[0].reshape(len(arrays[0]), *attrs["shape"])


class Transpose(Primitive):
    """The same elements with their axes in another order."""

    as_stored = EVERYWHERE
    view = additive = True

    def __init__(self) -> None:
        super().__init__("transpose", lambda x, axes: x.transpose(axes))

    def over_time(self, arrays: Sequence[Any], varying: Sequence[bool], attrs: dict[str, Any]) -> Any:
        """Each step so."""
        return arrays[0].transpose((0, *(axis + 1 for axis in attrs["axes"])))


class Broadcast(Primitive):
    """The same elements along further axes, or along axes of length 1."""

    as_stored = EVERYWHERE
    view = additive = True

    def __init__(self) -> None:
        super().__init__("broadcast_to", lambda x, shape: np.broadcast_to(x, shape))

    def over_time(self, arrays: Sequence[Any], varying: Sequence[bool], attrs: dict[str, Any]) -> Any:
        """Each step so: new axes go between the steps and their axes."""
        (x,), shape = arrays, attrs["shape"]
        new = (1,) * (len(shape) + 1 - x.ndim)
        return np.broadcast_to(x.reshape(len(x), *new, *x.shape[1:]), (len(x), *shape))


class Contiguous(Primitive):
    """The same elements, one after another in memory: the array itself where they are so already."""

    as_stored = EVERYWHERE
    view = True
    differentiable = False

    def __init__(self) -> None:
        super().__init__("contiguous", lambda x: space_of(x).contiguous(x))


CONTIGUOUS = Contiguous()
