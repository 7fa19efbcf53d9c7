"""Lower prepared layers and neurons to integer ones; refuse those whose integer form would give other results."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import numpy as np

from snncell import nn
from snncell.cell.ranges import numbers_of
from snncell.errors import ArgumentError
from snncell.kernels.conv.transforms import transforms
from snncell.kernels.conv.winograd import LEAST_CHANNELS
from snncell.nn.dataflow import beyond_threshold, overridden
from snncell.nn.neurons.base import Neuron
from snncell.nn.neurons.constants import add_rest, from_rest
from snncell.nn.neurons.current import CubaLIFNode, synapse
from snncell.nn.neurons.integrate import IFNode, LINode
from snncell.quantise import integer

Array = np.ndarray[Any, Any]

FEWER_BITS = "use fewer bits for weights (Uniform(4)), for their scales (scale_bits=4, or 1) or for states"


@dataclass(frozen=True)
class ExportedCell:
    """A Cell of the exported network, and its path."""

    path: str
    cell: Any
    over_time: bool = False  # True in a TimeDistributed

    def error(self, why: str, fix: str) -> ArgumentError:
        """The ArgumentError for a Cell without an integer form that gives the same results."""
        name = type(self.cell).__name__
        where = f"{self.path} ({name})" if self.path else name
        return ArgumentError(f"export: {where}: {why}. To fix it: {fix}.")

    def refuse(self, why: str, fix: str) -> NoReturn:
        """Raise `error(why, fix)`."""
        raise self.error(why, fix)


@dataclass(frozen=True)
class IntegerSignal:
    """Values between two layers: n 2^exponent with |n| up to `bound`; `real` for network inputs of any value."""

    exponent: int
    bound: float
    real: bool = False


# --- layers with weights, and bounds of their sums --------------------------------------------------------------------


def product_of(
    cell: Any, signal: IntegerSignal, place: ExportedCell, limit: float
) -> tuple[integer.IntegerProduct, IntegerSignal]:
    """The integer layer of a prepared Dense or convolution, exact up to `limit` units, and its results' bounds."""
    levels, steps = _levels(cell, place)
    bias = None
    if cell.has_bias:  # in steps, rounded in the precision of the network
        own_bias = cell.bias.asnumpy()
        bias = np.rint(own_bias / steps.astype(own_bias.dtype)).astype(np.int64) << -signal.exponent
    sums = np.abs(levels).sum(tuple(range(1, levels.ndim))) * signal.bound + (0 if bias is None else np.abs(bias))
    bits = bits_behind_point(steps)
    # Each channel is summed in its own unit; afterwards all channels share the finest unit.
    own = np.ldexp(steps, np.vectorize(bits_behind_point, otypes=[np.int64])(steps))
    grown = _winograd_growth(cell)
    if grown == math.inf:
        place.refuse(
            "it is computed by Winograd tiles, and their transforms contain thirds for this window",
            "use windows of at most 3 elements along an axis, a stride of 2, or fewer than 8 channels",
        )
    largest = float(np.max(sums * own, initial=0.0)) * grown
    bound = float(np.max(sums * np.ldexp(steps, bits), initial=0.0))
    if bits > 60 or not max(largest, bound) <= limit:
        place.refuse(f"its sums reach {max(largest, bound):.3g} units, but are exact up to {limit:.3g}", FEWER_BITS)
    if getattr(cell, "activation", None) is not None:
        place.refuse("its activation has no integer form", "remove it, and put a neuron after the layer")
    options: dict[str, Any] = {}
    if not isinstance(cell, nn.Dense):
        options |= {"stride": per_axis(cell.stride, cell.axes), "dilation": per_axis(cell.dilation, cell.axes)}
        options |= {"pad_mode": cell.pad_mode, "padding": cell.padding, "groups": cell.group}
    layer = integer.IntegerProduct(
        signal.exponent - bits,
        "conv" if options else "dense",
        levels.astype(narrowest(0, int(np.abs(levels).max(initial=0)))),
        None if bias is None else bias.astype(np.int32),
        np.asarray(np.ldexp(steps, bits), np.int32),
        **options,
    )
    return layer, IntegerSignal(layer.exponent, bound)


def narrowest(low: int, high: int) -> Any:
    """The smallest integer dtype for values in [low, high]."""
    kinds: Any = (np.dtype(kind) for kind in (np.int8, np.int16, np.int32))
    return next(kind for kind in kinds if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max)


def _levels(cell: Any, place: ExportedCell) -> tuple[Array, Array]:
    if cell.weight.dtype.itemsize < 4:
        place.refuse(f"its Parameters are {cell.weight.dtype.name}", "make it with dtype=float32")
    quantiser = cell.quantisers.weight
    levels, step = quantiser.integers(cell.weight)
    if not np.all(np.isfinite(step)):
        place.refuse("its weights are not finite", "train it again, with a smaller learning rate")
    if np.any(levels * step != quantiser(cell.weight).asnumpy()):
        place.refuse(
            f"the values of {type(quantiser).__name__} are not multiples of its step",
            "use a step with fewer significant bits",
        )
    if step.size > 1 and step.shape[0] != levels.shape[0]:
        place.refuse("its scales are along another axis than its outputs", "prepare it with axis=0")
    return levels, step.reshape(-1) if step.size > 1 else step.reshape(())


def per_axis(value: Any, count: int) -> tuple[int, ...]:
    """An int for each axis."""
    return tuple(int(n) for n in value) if isinstance(value, (list, tuple)) else (int(value),) * count


def _winograd_growth(cell: Any) -> float:
    """The factor by which Winograd tiles enlarge sums; infinite if their transforms contain thirds (not exact)."""
    if not isinstance(cell, nn.Conv2d) or cell.window == (1, 1):
        return 1.0
    if min(cell.in_channels, cell.out_channels) // cell.group < LEAST_CHANNELS:
        return 1.0
    growth = 1.0
    for window, stride in zip(cell.window, per_axis(cell.stride, 2), strict=True):
        if -(-window // stride) > 5:
            continue  # no tiles exist for this window
        of = transforms(window, stride)
        bits = max(bits_behind_point(matrix) for matrix in of)
        if bits > 8:
            return math.inf
        results, weights, images = (max(sum(map(abs, row)) for row in matrix) for matrix in of)
        growth *= float(2**bits * results * max(1.0, weights) * images)
    return growth


# --- symbolic evaluation of a neuron: linear forms in its input and states, with exact coefficients -------------------

MOST_BITS = 80  # bits after the point; a number that needs more is treated as one with this many


class Unit(NamedTuple):
    """A variable that is an integer times 2^exponent, with a magnitude up to `bound`."""

    exponent: int
    bound: float


def bits_behind_point(values: Any) -> int:
    """The fewest bits after the point that represent all numbers exactly, at most MOST_BITS."""
    numbers = np.asarray(values, np.float64)
    for bits in range(MOST_BITS):
        scaled = np.ldexp(numbers, bits)
        if np.all(scaled == np.rint(scaled)):
            return bits
    return MOST_BITS


class LinearForm:
    """A sum of variables times numbers. A neuron that computes with it instead of Tensors returns its equation, if this
    is linear. `check` is called with each intermediate result.
    """

    __array_ufunc__ = None  # so that NumPy arrays defer to the operators of this class

    def __init__(self, terms: Mapping[str, Any], units: Mapping[str, Unit], check: Callable[..., None]) -> None:
        self.terms, self.units, self.check = dict(terms), units, check
        check(self)

    @property
    def bits(self) -> int:
        """Bits after the point that represent every value of the form exactly."""
        found = [bits_behind_point(c) - self.units[name].exponent for name, c in self.terms.items() if np.any(c)]
        return max([0, *found])

    @property
    def bound(self) -> float:
        """The largest possible magnitude."""
        return float(np.max(sum(np.abs(c) * self.units[name].bound for name, c in self.terms.items())))

    def _sum(self, other: Any, sign: float) -> LinearForm:
        terms = other.terms if isinstance(other, LinearForm) else {"1": numbers_of(other)}
        names = self.terms.keys() | terms.keys()
        total = {name: self.terms.get(name, 0.0) + sign * terms.get(name, 0.0) for name in names}
        return LinearForm(total, self.units, self.check)

    def __add__(self, other: Any) -> LinearForm:
        return self._sum(other, 1.0)

    __radd__ = __add__

    def __sub__(self, other: Any) -> LinearForm:
        return self._sum(other, -1.0)

    def __rsub__(self, other: Any) -> LinearForm:
        return (self * -1.0)._sum(other, 1.0)

    def __mul__(self, other: Any) -> LinearForm:
        if isinstance(other, LinearForm):
            return NotImplemented
        factor = numbers_of(other)
        return LinearForm({name: c * factor for name, c in self.terms.items()}, self.units, self.check)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> LinearForm:
        numbers = numbers_of(other)
        if np.any(np.frexp(numbers)[0] != 0.5):
            return NotImplemented  # only powers of two divide exactly
        return self * (1.0 / numbers)


def _scale_to_int32(coefficient: Any, bits: int) -> Array:
    """A coefficient in units of 2^-bits, as int32."""
    scaled = np.ldexp(np.asarray(coefficient, np.float64), bits)
    assert np.all(scaled == np.rint(scaled)) and np.all(np.abs(scaled) < math.ldexp(1.0, 31))
    return np.asarray(scaled, np.int32)


# --- neurons: evaluate their equations with linear forms --------------------------------------------------------------

KNOWN = "nn.IFNode, LIFNode, LeakyNode, CubaLIFNode, LINode, or a subclass of nn.Neuron with a linear charge(x, v)"


def integer_neuron(
    cell: Any, signal: IntegerSignal, place: ExportedCell, limit: float
) -> tuple[integer.IntegerNeuron, IntegerSignal]:
    """The integer step of a prepared neuron, exact up to `limit` units, and the bounds of its output."""
    _refuse_others(cell, place)
    inner, grid = _with_constants(cell, place), cell.quantisers.states
    fraction, low, high = grid.fraction, grid.low, grid.high
    h, current = _equations(inner, cell, signal, place, limit)
    names = ("v", "x", "1") if current is None else ("v", "x", "1", "i")
    fields = {
        **_coefficients(h, fraction, signal.exponent, "v", names),
        **({} if current is None else _coefficients(current, fraction, signal.exponent, "i", ("i", "x"))),
        "low": low,
        "high": high,
        "start": _on_grid(inner, "v_rest" if isinstance(cell, LINode) else cell.starts, fraction),
    }
    if isinstance(cell, LINode) or (isinstance(cell, IFNode) and not cell.fire):
        return integer.IntegerNeuron(-fraction, **fields), IntegerSignal(-fraction, float(-low))
    threshold = _on_grid(inner, "v_threshold", fraction)
    worth = threshold if isinstance(cell, IFNode) else None
    firing = {
        "threshold": threshold,
        "reset_to": _on_grid(inner, "v_reset", fraction),
        "reset": cell.reset,
        "delay": cell.delay,
        "inclusive": cell.compare == ">=",
        "most": cell.max_spikes,
        "worth": worth,
    }
    if np.any(threshold <= 0) and (cell.reset != "value" or cell.max_spikes != 1):
        place.refuse(
            f"on the grid of its states its threshold is {math.ldexp(float(np.min(threshold)), -fraction):g}",
            f"use states with more than {fraction} bits after the point",
        )
    exponent = -fraction if worth is not None else 0
    most = float(np.max(high / threshold)) if cell.max_spikes is None else float(cell.max_spikes)
    bound = most * (1.0 if worth is None else float(np.max(worth)))
    return integer.IntegerNeuron(exponent, **fields, **firing), IntegerSignal(exponent, bound)


def _equations(
    inner: Any, cell: Any, signal: IntegerSignal, place: ExportedCell, limit: float
) -> tuple[LinearForm, LinearForm | None]:
    """Linear forms of the potential before rounding, and of the current (None without one), exact in float32."""

    def check(term: LinearForm) -> None:
        units = math.ldexp(term.bound, term.bits)
        if units > limit:
            place.refuse(
                f"its potential needs {math.log2(units):.1f} bits before rounding, of {math.log2(limit):.0f} at most",
                "use states of fewer bits, states=quantise.FixedPoint(8, 4), fewer decay_bits, or weights with shorter "
                "scales, scale_bits=4 or 1",
            )

    grid, exponent = cell.quantisers.states, signal.exponent
    state = Unit(-grid.fraction, math.ldexp(float(-grid.low), -grid.fraction))
    units = {"v": state, "i": state, "x": Unit(exponent, math.ldexp(signal.bound, exponent)), "1": Unit(0, 1.0)}
    x, v, i = (LinearForm({name: 1.0}, units, check) for name in ("x", "v", "i"))
    try:
        if isinstance(cell, CubaLIFNode):
            current, carried = synapse(i, inner.gained(x), inner.alpha, inner.order)
            return add_rest(inner.beta * from_rest(v, inner.v_rest) + inner.read(current), inner.v_rest), carried
        h = inner.charge(x, v)
    except (TypeError, AttributeError):
        h = None
    if not isinstance(h, LinearForm):
        place.refuse("its equation of h is not linear in its input and states", f"use {KNOWN}")
    return h, None


def _refuse_others(cell: Any, place: ExportedCell) -> None:
    """Raise for a neuron with a step that `integer.IntegerNeuron` cannot compute."""
    base, replaced = overridden(cell, ("charge",))
    if base is LINode and not replaced:
        return
    plain = (Neuron.construct, IFNode.construct, CubaLIFNode.construct)
    same = isinstance(cell, Neuron) and any(type(cell).construct is one for one in plain)
    parts = ("fired", "recall", "spikes", "after_reset", "fire_at") if same else ()
    own = [name for name in parts if getattr(type(cell), name) is not getattr(Neuron, name)] + replaced
    if not same or own or cell.own_function:
        part = own[0] if own and own[0] != "construct" else "step"
        place.refuse(f"it defines its own {part}, which has no integer form", f"use {KNOWN}")
    function = beyond_threshold(cell.surrogate_function)
    if function is not None:
        place.refuse(
            f"{type(function).__name__} may fire by another rule than a threshold",
            "use a spike function of snncell.surrogate that is not random",
        )


def _with_constants(cell: Any, place: ExportedCell) -> Any:
    """A copy of the neuron with its rounded constants, as numbers and arrays."""
    inner = object.__new__(type(cell))
    inner.__dict__.update(cell.__dict__)
    constants = cell.quantisers.in_place(cell)
    names = [name for name in cell.__dict__.get("_constants", ()) if name != "tau"]
    for name, value in ({name: getattr(cell, name) for name in names if name not in constants} | constants).items():
        numbers = numbers_of(value)
        inner.__dict__[name] = float(numbers.reshape(())) if numbers.size == 1 else numbers
    if np.ndim(inner.__dict__.get("v_rest", 0.0)) or np.ndim(inner.__dict__.get("input_gain", 0.0)):
        place.refuse("v_rest or input_gain differ between neurons", "use one number for the layer")
    return inner


def _coefficients(form: LinearForm, fraction: int, exponent: int, state: str, names: tuple[str, ...]) -> dict[str, Any]:
    """Integer coefficients of a linear form, and the shift that converts its unit to the unit of the state."""
    bits = max(form.bits, fraction)
    units = {"v": fraction, "i": fraction, "x": -exponent, "1": 0}
    found: dict[str, Any] = {"shift" if state == "v" else "i_shift": bits - fraction}
    for name in names:
        found[f"{state}_from_{name}"] = _scale_to_int32(form.terms.get(name, 0.0), bits - units[name])
    return found


def _on_grid(inner: Any, name: str, fraction: int) -> Array:
    return _scale_to_int32(inner.__dict__.get(name, 0.0), fraction)
