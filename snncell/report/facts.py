"""Recorded arrays of a network over one batch, for measures and plots, and derivatives of surrogates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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

# Below this fraction of its peak, a derivative passes almost no gradient: a thousand such neurons together get as much
# gradient as one neuron at the threshold.
PASSES_NOTHING = 1e-3
# Potentials at which the derivative is evaluated to find its peak and its width.
_GRID = np.concatenate([-np.logspace(2, -4, 241), [0.0], np.logspace(-4, 2, 241)])


def tensor_constants(function: Cell) -> list[Tensor]:
    """The Tensors among the constants of a spike function and of the functions inside of it."""
    cells = [cell for _, cell in function.cells_and_names()]
    return [value for cell in cells for value in vars(cell).values() if isinstance(value, Tensor)]


def device_of_constants(function: Cell) -> str:
    """The device of a spike function's constants."""
    return next((constant.device for constant in tensor_constants(function)), "cpu")


def spike_and_derivative(x: Array, function: Cell) -> tuple[Array, Array]:
    """The output of a spike function, and its bprop with dout = 1. Hooks do not run; random numbers are replayed."""
    with replaying(present_key()), settings(smooth=False):
        run = function.construct if function.bprop is None else lambda v: run_with_bprop(function, (v,), {})
        out, pull = vjp(run, Tensor(x).to(device_of_constants(function)))
        (derivative,) = pull(Tensor(np.ones(out.shape, x.dtype)).to(device_of_constants(function)).astype(out.dtype))
    return np.asarray(out.asnumpy(), np.float64), np.asarray(derivative.asnumpy(), np.float64)


def derivative_at(x: Array, function: Cell) -> Array:
    """The derivative of a spike function (bprop with dout = 1) at x, whose shape must fit the constants."""
    return spike_and_derivative(x, function)[1]


@dataclass(frozen=True)
class Slope:
    """The derivative of a surrogate, relative to its peak."""

    name: str  # of the spike function
    derivative: Callable[[Array], Array]  # at potentials minus threshold, (T, B, *features)
    features: tuple[int, ...] = ()  # the shape of its constants; () if they are numbers

    @cached_property
    def _on_grid(self) -> Array:
        features = self.features or (1,)
        grid = _GRID.reshape(-1, *(1 for _ in features)).astype(np.float32)
        return np.abs(self.derivative(np.broadcast_to(grid, (len(_GRID), *features))))

    @property
    def peak(self) -> Array:
        """The largest derivative: (*features), or (1,)."""
        return np.asarray(self._on_grid.max(0))

    @property
    def width(self) -> float:
        """The largest |x| where the derivative is above `PASSES_NOTHING` of its peak; inf if that is everywhere."""
        above = (self._on_grid > PASSES_NOTHING * self.peak).reshape(len(_GRID), -1).mean(1) > 0.5
        reach = float(np.abs(_GRID[above]).max()) if above.any() else 0.0
        return np.inf if reach >= _GRID[-1] else reach

    @property
    def constant(self) -> bool:
        """True if the derivative is constant, as for a straight-through surrogate."""
        return bool((self._on_grid == self._on_grid[:1]).all())

    def relative(self, above: Array) -> Array:
        """The derivative at these potentials, relative to its peak; 0 if the peak is 0."""
        peak = np.where(self.peak > 0, self.peak, np.inf)
        return np.abs(self.derivative(above)) / peak


def slope_of_surrogate(function: Cell | None, features: tuple[int, ...]) -> Slope | None:
    """The `Slope` of a neuron's spike function; None for a neuron without one."""
    if function is None:
        return None
    several = any(constant.size > 1 for constant in tensor_constants(function))
    return Slope(type(function).__name__, lambda above: derivative_at(above, function), features if several else ())


@dataclass(frozen=True)
class ConstantFacts:
    """A constant of a neuron, learned or fixed: its entries, and its valid range (see `cell.ranges.Range`)."""

    name: str
    value: Array
    low: Any = -np.inf
    high: Any = np.inf
    closed: str = ""
    text: str = "is a finite number"
    learned: bool = False

    @cached_property
    def outside(self) -> Array:
        """A mask of the entries that are out of range or not finite."""
        above = self.value >= self.low if self.closed in ("low", "both") else self.value > self.low
        below = self.value <= self.high if self.closed in ("high", "both") else self.value < self.high
        return np.asarray(~(above & below & np.isfinite(self.value)))

    @property
    def furthest(self) -> float:
        """The entry furthest out of range; NaN if any entry is NaN."""
        beyond = np.maximum(self.low - self.value, self.value - self.high)
        return float(self.value.flat[int(np.argmax(np.where(np.isnan(beyond), np.inf, beyond)))])


@dataclass(frozen=True, repr=False)
class LayerFacts:
    """The facts of one layer of neurons. Unknown facts are None."""

    name: str  # its path in the net
    neuron: str = "neuron"  # its class
    spiking: bool = True  # False for a readout of potentials
    # Recordings of a monitor, (T, B, *features). After the end of a padded sample, `above` and `v` repeat its last
    # step.
    spikes: Array | None = None
    above: Array | None = None
    v: Array | None = None
    grad: Array | None = None
    before_end: Array | None = None  # (T, B): the steps before the end of their sample
    slope: Slope | None = None  # of its surrogate
    threshold: float | None = None  # the mean of its v_threshold
    reach: float | None = None  # the distance from rest to the threshold, in the units of `above`
    constants: Sequence[ConstantFacts] = ()  # those with a range
    detached: bool = False  # True if the reset is a constant in the backward pass
    leak: float | None = None  # the factor of the potential in a step without input and spike
    drop: float = 0.0  # the decrease by a spike; 0 if the reset is detached
    recurrent: bool = False  # True if its output is fed back to its input
    radius: float | None = None  # the spectral radius of the feedback

    def __repr__(self) -> str:
        return f"Layer({self.name!r}, {self.neuron}, shape={self.shape})"

    @property
    def shape(self) -> tuple[int, ...]:
        """(T, B, *features) of the first recorded array; () without any."""
        return next((a.shape for a in (self.spikes, self.v, self.above, self.grad) if a is not None), ())

    @property
    def unit(self) -> str:
        """The noun for a unit: a channel in convolutional layers, else a neuron."""
        return "channel" if len(self.shape) > 3 else "neuron"

    def by_unit(self, array: Array) -> Array:
        """(T, B, *features) as (everything else, units), without the padded steps."""
        if array.ndim <= 2:
            return (array if self.before_end is None else array[self.before_end]).reshape(-1, 1)
        if self.before_end is not None:
            array = array[self.before_end][None]
        return np.moveaxis(array, 2, -1).reshape(-1, array.shape[2])

    def steps_of(self, sample: int) -> int:
        """The number of steps of a sample, without padding."""
        return self.shape[0] if self.before_end is None else int(self.before_end[:, sample].sum())

    def late(self, array: Array, steps: int) -> Array:
        """The last `steps` steps of each sample of (T, B, *features); shorter samples repeat their first step."""
        if self.before_end is None:
            return array[-steps:]
        numbers = np.maximum(self.before_end.sum(0) - steps + np.arange(steps)[:, None], 0)
        return np.take_along_axis(array, numbers.reshape(*numbers.shape, *(1,) * (array.ndim - 2)), 0)

    @cached_property
    def rates(self) -> Array | None:
        """Spikes per step of each unit, (units,)."""
        return None if self.spikes is None or not self.spiking else (self.by_unit(self.spikes) != 0).mean(0)

    @cached_property
    def silent(self) -> bool:
        """True for a spiking layer without a spike."""
        return self.rates is not None and not self.rates.any()

    @cached_property
    def relative_slopes(self) -> Array | None:
        """The surrogate's derivative at every potential, relative to its peak, (everything else, units)."""
        return None if self.slope is None or self.above is None else self.by_unit(self.slope.relative(self.above))

    @cached_property
    def heights(self) -> Array | None:
        """The potential before the reset, relative to its start, in thresholds, (T, B, *features)."""
        if self.above is None or not self.reach:
            return None
        return np.asarray(self.above.astype(np.float64) / self.reach + 1.0)

    @cached_property
    def norms(self) -> Array | None:
        """The norm of the gradient at each step, (T,), as float64."""
        if self.grad is None:
            return None
        return np.asarray(np.sqrt((self.grad.astype(np.float64).reshape(len(self.grad), -1) ** 2).sum(1)))


@dataclass(frozen=True, repr=False)
class Weight:
    """A trainable Parameter: its path, value, gradient, and the change by one update, if known."""

    name: str
    value: Array
    grad: Array | None = None
    update: Array | None = None
    left_out: bool = False  # True if the optimiser does not have it
    group: int | None = None  # its group, if the optimiser has several

    @property
    def size(self) -> float:
        """Its norm."""
        return l2_norm(self.value)

    def __repr__(self) -> str:
        return f"Weight({self.name!r}, shape={self.value.shape})"


@dataclass(frozen=True, repr=False)
class Facts:
    """The facts of a network over one batch."""

    layers: Sequence[LayerFacts] = ()  # in the order of the net
    weights: Sequence[Weight] = ()  # the trainable Parameters
    inputs: Sequence[Array] = ()
    output: Array | None = None  # None for several outputs
    target: Array | None = None
    loss: float | None = None  # of the batch
    halves: float | None = None  # the mean of the losses of the two halves of the batch
    guessing: float | None = None  # the loss of equal scores for all classes, ln C, for a loss of class labels
    differentiated: bool = False  # True if gradients were computed
    updates: int | None = None  # the number of training steps that the optimiser has done
    history: Sequence[Mapping[str, Any]] = ()  # records of a training, each with "loss"
    costs: Mapping[str, Any] = field(default_factory=dict)  # from `Monitor.costs`, for each layer with weights
    unseen: Sequence[str] = ()  # spiking layers that run their time steps themselves, which a monitor cannot record

    def __repr__(self) -> str:
        counts = f"{len(self.layers)} layers, {len(self.weights)} weights, {len(self.history)} epochs"
        return f"Facts({counts}, loss={self.loss}; their arrays are in .layers, .weights, .inputs, .output and .target)"


def l2_norm(array: Array) -> float:
    """The L2 norm of all entries, in float64."""
    return float(np.sqrt((np.asarray(array, np.float64) ** 2).sum()))


def all_finite(array: Array | None) -> bool:
    """True if all entries are finite numbers, or if there is no array."""
    return array is None or bool(np.isfinite(array).all())


def batch_axis(shape: Sequence[int], samples: int) -> int | None:
    """The axis of the samples: 1 for (T, B, ...), 0 for (B, ...), None if neither fits."""
    for axis in (1, 0) if len(shape) > 2 else (0, 1):
        if len(shape) > axis and shape[axis] == samples:
            return axis
    return None
