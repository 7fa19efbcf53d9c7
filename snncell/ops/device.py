"""Moves between the host and the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from snncell.dtype import ALL, DType
from snncell.kernels.space import HOST, move_to_space, space_by_name, space_of
from snncell.ops.base import as_tensor, astype
from snncell.tape.primitive import EVERYWHERE, Primitive
from snncell.tape.state import TRACING
from snncell.tape.tensor import Tensor, snapshot
from snncell.tape.value import Value

Grads = Sequence[Any]
NAMES = tuple(dtype.name for dtype in ALL)


class _To(Primitive):
    """A copy in another place; its reverse brings the gradient back."""

    def on_device(self, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
        return self.evaluate(*arrays, **attrs)


_to = _To("to", lambda x, source, target: move_to_space(x, space_by_name(target, "to")))
_to.as_stored = EVERYWHERE
_to.watched = False  # nothing is computed


@_to.def_bprop
def _(_x: Tensor, _out: Tensor, dout: Tensor, *, source: str, target: str) -> Grads:
    return (to(dout, source),)


def to(x: Any, target: Any) -> Tensor:
    """`x` on "cpu" or "gpu", or converted to a dtype: itself if it is so already. Gradients flow through it.

    Args:
        x: any shape.
        target: "cpu", "gpu", or a dtype.

    Raises:
        DeviceError: for another name, or where there is no GPU, saying what is missing.
        TraceError: for a device inside a traced function, which runs where its arguments are.
    """
    tensor = as_tensor(x, "to")
    if isinstance(target, (DType, np.dtype, type)) or (isinstance(target, str) and target in NAMES):
        return astype(tensor, target)
    space = space_by_name(target, "Tensor.to")
    if isinstance(tensor._data, Value):
        assert TRACING.trace is not None  # else `as_tensor` has refused it
        raise TRACING.trace.needs_value("to()")
    if space_of(tensor._data) is space:
        return snapshot(tensor)
    source = "cpu" if space is not HOST else "gpu"  # the other one, where the reverse brings the gradient
    result: Tensor = _to.bind(tensor, source=source, target=space.device)
    return result
