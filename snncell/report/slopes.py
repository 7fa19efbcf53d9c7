"""The derivative of a spike function: at potentials, and in parts of its peak."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from snncell.cell.calls import run_with_bprop
from snncell.cell.cell import Cell
from snncell.ops.random import present_key, replaying
from snncell.tape.state import settings
from snncell.tape.tensor import Tensor
from snncell.tape.transforms import vjp

Array = np.ndarray[Any, Any]

# A derivative below this part of its peak hardly passes a gradient: beside one neuron at the threshold, it would take a
# thousand such neurons to matter as much.
PASSES_NOTHING = 1e-3
# Where the derivative is looked at to find its peak and its width: 0, and both sides of it, in units of potential.
_GRID = np.concatenate([-np.logspace(2, -4, 241), [0.0], np.logspace(-4, 2, 241)])


def tensor_constants(function: Cell) -> list[Tensor]:
    """The Tensors among the constants of a spike function, and of what it is made of."""
    cells = [cell for _, cell in function.cells_and_names()]
    return [value for cell in cells for value in vars(cell).values() if isinstance(value, Tensor)]


def device_of_constants(function: Cell) -> str:
    """The device of its constants."""
    return next((constant.device for constant in tensor_constants(function)), "cpu")


def spike_and_derivative(x: Array, function: Cell) -> tuple[Array, Array]:
    """The output of a spike function, and its bprop with dout = 1. Nobody hears of it: no hook, no random number."""
    with replaying(present_key()), settings(smooth=False):
        run = function.construct if function.bprop is None else lambda v: run_with_bprop(function, (v,), {})
        out, pull = vjp(run, Tensor(x).to(device_of_constants(function)))
        (derivative,) = pull(Tensor(np.ones(out.shape, x.dtype)).to(device_of_constants(function)).astype(out.dtype))
    return np.asarray(out.asnumpy(), np.float64), np.asarray(derivative.asnumpy(), np.float64)


def derivative_at(x: Array, function: Cell) -> Array:
    """The derivative of a spike function, its bprop with dout = 1, at x, of a shape that its constants fit."""
    return spike_and_derivative(x, function)[1]


@dataclass(frozen=True)
class Slope:
    """The derivative of a surrogate, in parts of its peak.

    name: of the spike function.
    derivative: from potentials minus threshold, (T, B, *features), to the derivative there.
    features: the shape that its constants need at the end of what it is given; () if they are numbers.
    """

    name: str
    derivative: Callable[[Array], Array]
    features: tuple[int, ...] = ()

    @cached_property
    def _on_grid(self) -> Array:
        features = self.features or (1,)
        grid = _GRID.reshape(-1, *(1 for _ in features)).astype(np.float32)
        return np.abs(self.derivative(np.broadcast_to(grid, (len(_GRID), *features))))

    @property
    def peak(self) -> Array:
        """The largest derivative: (*features), or (1,)."""
        peak: Array = self._on_grid.max(0)
        return peak

    @property
    def width(self) -> float:
        """The distance to which the derivative is above `PASSES_NOTHING` of its peak; inf if it is everywhere."""
        above = (self._on_grid > PASSES_NOTHING * self.peak).reshape(len(_GRID), -1).mean(1) > 0.5
        reach = float(np.abs(_GRID[above]).max()) if above.any() else 0.0
        return np.inf if reach >= _GRID[-1] else reach

    @property
    def constant(self) -> bool:
        """True if it is the same wherever it is looked at, as that of a straight-through surrogate."""
        return bool((self._on_grid == self._on_grid[:1]).all())

    def relative(self, above: Array) -> Array:
        """The derivative at these potentials, in parts of its peak; 0 where that is 0."""
        peak = np.where(self.peak > 0, self.peak, np.inf)
        return np.abs(self.derivative(above)) / peak


def slope_of_surrogate(function: Cell | None, features: tuple[int, ...]) -> Slope | None:
    """The derivative of the spike function of a neuron; None if it has none."""
    if function is None:
        return None
    several = any(constant.size > 1 for constant in tensor_constants(function))
    return Slope(type(function).__name__, lambda above: derivative_at(above, function), features if several else ())
