"""Lower prepared layers and neurons to whole numbers, or refuse those that would not give the same results."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import numpy as np

from snncell import nn
from snncell.cell.cell import Cell
from snncell.errors import ArgumentError
from snncell.kernels.conv.transforms import transforms
from snncell.kernels.conv.winograd import LEAST_CHANNELS
from snncell.nn.dataflow import beyond_threshold, overridden
from snncell.nn.neurons.base import Neuron
from snncell.nn.neurons.constants import add_rest, from_rest
from snncell.nn.neurons.current import CubaLIFNode, synapse
from snncell.nn.neurons.integrate import IFNode, LINode
from snncell.quantise import integer
from snncell.quantise.linear import LinearForm, Unit, bits_behind_point, scale_to_int32
from snncell.tape.tensor import Tensor

Array = Any  # of NumPy

# --- refusals ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ExportedCell:
    """A Cell of the network that is exported.

    Attributes:
        path: as `cells_and_names` gives it.
        cell: the Cell itself.
        over_time: whether it stands in a TimeDistributed.
    """

    path: str
    cell: Any
    over_time: bool = False

    fewer = "take fewer bits, of weights (Uniform(4)), of their scales (scale_bits=4, or 1) or of states"


def export_error(place: ExportedCell, why: str, mend: str) -> ArgumentError:
    """The ArgumentError of a layer that has no integer form with the same results."""
    name = type(place.cell).__name__
    where = f"{place.path} ({name})" if place.path else name
    return ArgumentError(f"export: {where}: {why}. To mend it: {mend}.")


def refuse_export(place: ExportedCell, why: str, mend: str) -> NoReturn:
    """Raise the `export_error`."""
    raise export_error(place, why, mend)


# --- layers with weights, and the largest sums that they can have -----------------------------------------------------


@dataclass(frozen=True)
class IntegerSignal:
    """Bounds of the values between two layers: whole numbers n 2^exponent with |n| up to `bound`.

    Attributes:
        real: whether they are the network's inputs, which may be any numbers until a quantiser has them.
    """

    exponent: int
    bound: float
    real: bool = False


def product_of(
    cell: Any, signal: IntegerSignal, place: ExportedCell, limit: float
) -> tuple[integer.IntegerProduct, float]:
    """The integer layer of a Dense or a convolution, and the largest magnitude of its results.

    Args:
        cell: the layer, prepared.
        signal: its inputs.
        place: for errors.
        limit: up to how many units are exact.
    """
    levels, steps = _levels(cell, place)
    bias = None if not cell.has_bias else _bias(cell, steps) << -signal.exponent
    over = tuple(range(1, levels.ndim))
    sums = np.abs(levels).sum(over) * signal.bound + (0 if bias is None else np.abs(bias))
    bits = bits_behind_point(steps)
    # Each channel has a unit of its own while it is added up, and all have the finest behind it.
    own = np.ldexp(steps, np.vectorize(bits_behind_point, otypes=[np.int64])(steps))
    grown = winograd_growth(cell)
    if grown == math.inf:
        refuse_export(
            place,
            "it is computed by Winograd's tiles, whose transforms have thirds for such a window",
            "use windows of at most 3 elements along an axis, a stride of 2, or fewer than 8 channels",
        )
    largest = float(np.max(sums * own, initial=0.0)) * grown
    bound = float(np.max(sums * np.ldexp(steps, bits), initial=0.0))
    if bits > 60 or not max(largest, bound) <= limit:
        refuse_export(
            place,
            f"its sums reach {max(largest, bound):.3g} units, and are exact up to {limit:.3g}",
            place.fewer,
        )
    if getattr(cell, "activation", None) is not None:
        refuse_export(
            place, "its activation is no whole number", "leave it out; spikes come from a neuron behind the layer"
        )
    layer = integer.IntegerProduct(
        signal.exponent - bits,
        "dense" if isinstance(cell, nn.Dense) else "conv",
        levels.astype(_narrowest(levels)),
        None if bias is None else bias.astype(np.int32),
        np.asarray(np.ldexp(steps, bits), np.int32),
        **({} if isinstance(cell, nn.Dense) else _options(cell)),
    )
    return layer, bound


def _levels(cell: Any, place: ExportedCell) -> tuple[Array, Array]:
    """The levels of the weights, and the steps of the outputs: one, or one for each."""
    if cell.weight.dtype.itemsize < 4:
        refuse_export(place, f"its Parameters are {cell.weight.dtype.name}", "make it with dtype=float32")
    quantiser = cell.quantisers.weight
    levels, step = quantiser.integers(cell.weight)
    if not np.all(np.isfinite(step)):
        refuse_export(place, "its weights are not finite", "train it again, with a smaller learning rate")
    if np.any(levels * step != quantiser(cell.weight).asnumpy()):
        refuse_export(
            place,
            f"what {type(quantiser).__name__} gives are no whole multiples of its step",
            "give a step with fewer significant bits",
        )
    if step.size > 1 and step.shape[0] != levels.shape[0]:
        refuse_export(place, "its scales lie along another axis than its outputs", "prepare it with axis=0")
    return levels, step.reshape(-1) if step.size > 1 else step.reshape(())


def _bias(cell: Any, steps: Array) -> Array:
    """The bias in steps, as the network rounds it: in its own precision."""
    bias = cell.bias.asnumpy()
    return np.rint(bias / steps.astype(bias.dtype)).astype(np.int64)


def _narrowest(levels: Array) -> Any:
    """The least dtype that has room for them."""
    most = int(np.abs(levels).max(initial=0))
    return next(kind for kind in (np.int8, np.int16, np.int32) if most <= np.iinfo(kind).max)


def _options(cell: Any) -> dict[str, Any]:
    """Stride, dilation, padding and groups of a convolution."""
    return {
        "stride": per_axis(cell.stride, cell.axes),
        "dilation": per_axis(cell.dilation, cell.axes),
        "pad_mode": cell.pad_mode,
        "padding": cell.padding,
        "groups": cell.group,
    }


def per_axis(value: Any, count: int) -> tuple[int, ...]:
    """An int for each axis."""
    return tuple(int(n) for n in value) if isinstance(value, (list, tuple)) else (int(value),) * count


# --- growth of sums by Winograd's tiles -------------------------------------------------------------------------------


def winograd_growth(cell: Any) -> float:
    """The factor by which sums of a convolution may grow on the way: 1, or more by Winograd's tiles.

    Windows of up to three elements have transforms of halves; longer ones have thirds, which are not exact: infinity.
    """
    if not isinstance(cell, nn.Conv2d):
        return 1.0
    channels = min(cell.in_channels, cell.out_channels) // cell.group
    if channels < LEAST_CHANNELS or cell.kernel_size == (1, 1):
        return 1.0
    stride = cell.stride if isinstance(cell.stride, (list, tuple)) else (cell.stride,) * 2
    return math.prod(_of_axis(int(k), int(s)) for k, s in zip(cell.window, stride, strict=True))


def _of_axis(window: int, stride: int) -> float:
    """The growth along one axis."""
    if -(-window // stride) > 5:
        return 1.0  # there are no such tiles
    of = transforms(window, stride)
    bits = max(bits_behind_point(matrix) for matrix in of)
    if bits > 8:
        return math.inf
    results, weights, images = (max(sum(map(abs, row)) for row in matrix) for matrix in of)
    return float(2**bits * results * max(1.0, weights) * images)


# --- neurons: their own equations, with linear expressions in place of values -----------------------------------------

KNOWN = "nn.IFNode, LIFNode, LeakyNode, CubaLIFNode, LINode, or a subclass of nn.Neuron with a linear charge(x, v)"


class NeuronRange(NamedTuple):
    """A neuron in whole numbers, and what comes out of it: n 2^exponent, up to `bound`."""

    neuron: integer.IntegerNeuron
    exponent: int
    bound: float


def integer_neuron(cell: Any, exponent: int, bound: float, place: ExportedCell, limit: float) -> NeuronRange:
    """A neuron's step in whole numbers.

    Args:
        cell: the neuron, prepared.
        exponent, bound: of its input: whole numbers times 2^exponent, up to `bound`.
        place: for errors.
        limit: up to how many units are exact.
    """
    _refuse_others(cell, place)
    inner, grid = _constants(cell, place), cell.quantisers.states
    h, current = _equations(inner, cell, exponent, bound, _check_exactness(place, limit), place)
    fraction, low, high = grid.fraction, grid.low, grid.high
    given = {
        **_coefficients(h, fraction, exponent, ("v", "x", "1")),
        **({} if current is None else _coefficients(h, fraction, exponent, ("i",))),
        **({} if current is None else _coefficients(current, fraction, exponent, ("i", "x"), "i")),
        "low": low,
        "high": high,
        "start": _on_grid(inner, "v_rest" if isinstance(cell, LINode) else cell.starts, fraction),
    }
    if isinstance(cell, LINode) or (isinstance(cell, IFNode) and not cell.fire):
        return NeuronRange(integer.IntegerNeuron(-fraction, **given), -fraction, float(-low))
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
        refuse_export(
            place,
            f"on the grid of its states its threshold is {math.ldexp(float(np.min(threshold)), -fraction):g}",
            f"take states with more bits behind the point than {fraction}",
        )
    out = -fraction if worth is not None else 0
    most = float(np.max(high / threshold)) if cell.max_spikes is None else float(cell.max_spikes)
    reached = most * (1.0 if worth is None else float(np.max(worth)))
    return NeuronRange(integer.IntegerNeuron(out, **given, **firing), out, reached)


def _check_exactness(place: ExportedCell, limit: float) -> Callable[[LinearForm], None]:
    """A check of each operation: its result must be exact in float32, and so before it is rounded."""

    def checked(term: LinearForm) -> None:
        units = math.ldexp(term.bound, term.bits)
        if units > limit:
            refuse_export(
                place,
                f"its potential needs {math.log2(units):.1f} bits before it is rounded, of {math.log2(limit):.0f}",
                "take states of fewer bits, states=quantise.FixedPoint(8, 4), fewer decay_bits, or weights whose "
                "scales have fewer, scale_bits=4 or 1",
            )

    return checked


def _equations(
    inner: Any, cell: Any, exponent: int, bound: float, checked: Callable[[LinearForm], None], place: ExportedCell
) -> tuple[LinearForm, LinearForm | None]:
    """The potential before it is rounded, and the current, if there is one, as linear expressions."""
    grid = cell.quantisers.states
    state = Unit(-grid.fraction, math.ldexp(float(-grid.low), -grid.fraction))
    units = {"v": state, "i": state, "x": Unit(exponent, math.ldexp(bound, exponent)), "1": Unit(0, 1.0)}
    x, v, i = (LinearForm({name: 1.0}, units, checked) for name in ("x", "v", "i"))
    try:
        return _charge_exactly(inner, cell, x, v, i)
    except (TypeError, AttributeError):
        refuse_export(place, "its equation of h is not linear in its input and its states", f"use {KNOWN}")


# --- what can be exported ---------------------------------------------------------------------------------------------


def _refuse_others(cell: Any, place: ExportedCell) -> None:
    """Raise for a neuron whose step is another one than that of `integer.Neuron`."""
    base, replaced = overridden(cell, ("charge",))
    if base is LINode and not replaced:
        return
    plain = (Neuron.construct, IFNode.construct, CubaLIFNode.construct)
    same = isinstance(cell, Neuron) and any(type(cell).construct is one for one in plain)
    parts = ("fired", "recall", "spikes", "after_reset", "fire_at") if same else ()
    own = [name for name in parts if getattr(type(cell), name) is not getattr(Neuron, name)] + replaced
    if not same or own or cell.own_function:
        what = f"its {own[0]} is its own" if own and own[0] != "construct" else "its step is its own"
        refuse_export(place, f"{what}, and there is no integer step for it", f"use {KNOWN}")
    function = beyond_threshold(cell.surrogate_function)
    if function is not None:
        refuse_export(
            place,
            f"{type(function).__name__} may fire by another rule than a threshold",
            "use a spike function of snncell.surrogate that does not draw",
        )


def _constants(cell: Any, place: ExportedCell) -> Any:
    """The neuron with the constants that it computes with, as numbers and arrays."""
    inner = object.__new__(type(cell))
    inner.__dict__.update(cell.__dict__)
    for name, value in cell.quantisers.in_place(cell).items():
        inner.__dict__[name] = _plain(value)
    for name in cell.__dict__.get("_constants", ()):
        if name not in cell.quantisers.in_place(cell) and name != "tau":
            inner.__dict__[name] = _plain(getattr(cell, name))
    if np.ndim(inner.__dict__.get("v_rest", 0.0)) or np.ndim(inner.__dict__.get("input_gain", 0.0)):
        refuse_export(place, "v_rest or input_gain differ from neuron to neuron", "use one number for the layer")
    return inner


def _plain(value: Any) -> Any:
    numbers = np.asarray(value.asnumpy() if isinstance(value, Tensor) else value, np.float64)
    return float(numbers.reshape(())) if numbers.size == 1 else numbers


# --- equations --------------------------------------------------------------------------------------------------------


def _charge_exactly(
    inner: Any, cell: Cell, x: LinearForm, v: LinearForm, i: LinearForm
) -> tuple[LinearForm, LinearForm | None]:
    """The potential before it is rounded, and the current, if there is one."""
    if isinstance(cell, CubaLIFNode):
        current, carried = synapse(i, inner.gained(x), inner.alpha, inner.order)
        return add_rest(inner.beta * from_rest(v, inner.v_rest) + inner.read(current), inner.v_rest), carried
    h = inner.charge(x, v)
    if not isinstance(h, LinearForm):
        raise TypeError
    return h, None


def _coefficients(h: LinearForm, fraction: int, exponent: int, names: tuple[str, ...], of: str = "v") -> dict[str, Any]:
    """The coefficients of whole numbers in units of h, and the shift from these to units of the state."""
    bits = max(h.bits, fraction)
    units = {"v": fraction, "i": fraction, "x": -exponent, "1": 0}
    found: dict[str, Any] = {
        f"{of}_from_{name}": scale_to_int32(h.coefficient(name), bits - units[name]) for name in names
    }
    if of == "i":
        return found | {"i_shift": bits - fraction}
    return found | ({"shift": bits - fraction} if "v" in names else {})


def _on_grid(inner: Any, name: str, fraction: int) -> np.ndarray[Any, Any]:
    return scale_to_int32(np.asarray(inner.__dict__.get(name, 0.0), np.float64), fraction)
