"""Writing to positions in a flat array: the operation behind `scatter` and its kin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from snncell.kernels.cuda import scatter as scatters
from snncell.kernels.cuda.arrays import DeviceArray
from snncell.ops import creation as new, logic as lg
from snncell.ops.indexing import gather
from snncell.tape.primitive import moving, one_after_another, repeat_over_time
from snncell.tape.tensor import Tensor, beside

Grads = Sequence[Any]


@moving
def write_positions(x: Any, positions: Any, values: Any) -> Any:
    """A copy of x (N,) with `values` (K,) at `positions` (K,); of several values for one position the last one."""
    out = np.array(x)
    out[positions] = values
    return out


write_positions.name = "scatter"


@write_positions.def_there
def _(x: Any, positions: Any, values: Any) -> Any:
    return scatters.put(x, positions, values)


def _of_steps(arrays: Sequence[Any], varying: Sequence[bool], attrs: dict[str, Any]) -> Any:
    if any(isinstance(x, DeviceArray) for x in arrays):
        return one_after_another(scatters.put, arrays, varying, attrs)
    x, positions, values = repeat_over_time(arrays, varying)
    out = np.array(x)
    out[np.arange(len(x))[:, None], positions] = values
    return out


write_positions.over_time = _of_steps


@write_positions.def_bprop
def _(_x: Tensor, positions: Tensor, _values: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    def of_values() -> Tensor:
        # The value that is in the result is the last one for its position; those before it get nothing.
        numbers = like(np.arange(positions.size), positions)
        last = gather(
            write_positions.bind(like(np.zeros(dout.size, np.int64), positions), positions, numbers), positions
        )
        taken: Tensor = lg.where(lg.equal(last, numbers), gather(dout, positions), 0.0)
        return taken

    return lambda: write_positions.bind(dout, positions, new.zeros_like(positions, dout.dtype)), None, of_values


def like(array: Any, x: Tensor) -> Tensor:
    """An array as a Tensor, where `x` is."""
    with beside(x):
        return Tensor(array)
