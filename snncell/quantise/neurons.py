"""Neurons in whole numbers: their own equations, with linear expressions in the place of values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from snncell.cell import Cell
from snncell.nn.dataflow import beyond_threshold, overridden
from snncell.nn.neurons.base import Neuron
from snncell.nn.neurons.constants import add_rest, from_rest
from snncell.nn.neurons.current import CubaLIFNode, synapse
from snncell.nn.neurons.firing import Thresholded
from snncell.nn.neurons.integrate import IFNode
from snncell.nn.neurons.readout import LINode
from snncell.quantise import steps
from snncell.quantise.linear import LinearForm, Unit, whole
from snncell.quantise.problem import ExportedCell, refuse
from snncell.tape.tensor import Tensor

KNOWN = "nn.IFNode, LIFNode, LeakyNode, CubaLIFNode, LINode, or a subclass of nn.Neuron with a linear charge(x, v)"


class NeuronRange(NamedTuple):
    """A neuron in whole numbers, and what comes out of it: n 2^exponent, up to `bound`."""

    neuron: steps.IntegerNeuron
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
        return NeuronRange(steps.IntegerNeuron(-fraction, **given), -fraction, float(-low))
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
        refuse(
            place,
            f"on the grid of its states its threshold is {math.ldexp(float(np.min(threshold)), -fraction):g}",
            f"take states with more bits behind the point than {fraction}",
        )
    out = -fraction if worth is not None else 0
    most = float(np.max(high / threshold)) if cell.max_spikes is None else float(cell.max_spikes)
    reached = most * (1.0 if worth is None else float(np.max(worth)))
    return NeuronRange(steps.IntegerNeuron(out, **given, **firing), out, reached)


def _check_exactness(place: ExportedCell, limit: float) -> Callable[[LinearForm], None]:
    """A check of each operation: its result must be exact in float32, and so before it is rounded."""

    def checked(term: LinearForm) -> None:
        units = math.ldexp(term.bound, term.bits)
        if units > limit:
            refuse(
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
        refuse(place, "its equation of h is not linear in its input and its states", f"use {KNOWN}")


# --- what can be exported ---------------------------------------------------------------------------------------------


def _refuse_others(cell: Any, place: ExportedCell) -> None:
    """Raise for a neuron whose step is another one than that of `integer.Neuron`."""
    base, replaced = overridden(cell, ("charge",))
    if base is LINode and not replaced:
        return
    plain = (Neuron.construct, IFNode.construct, CubaLIFNode.construct)
    same = isinstance(cell, Neuron) and any(type(cell).construct is one for one in plain)
    parts = ("fired", "recall", "spikes", "after_reset", "fire_at") if same else ()
    own = [name for name in parts if getattr(type(cell), name) is not getattr(Thresholded, name)] + replaced
    if not same or own or cell.own_function:
        what = f"its {own[0]} is its own" if own and own[0] != "construct" else "its step is its own"
        refuse(place, f"{what}, and there is no integer step for it", f"use {KNOWN}")
    function = beyond_threshold(cell.surrogate_function)
    if function is not None:
        refuse(
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
        refuse(place, "v_rest or input_gain differ from neuron to neuron", "use one number for the layer")
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
    found: dict[str, Any] = {f"{of}_from_{name}": whole(h.coefficient(name), bits - units[name]) for name in names}
    if of == "i":
        return found | {"i_shift": bits - fraction}
    return found | ({"shift": bits - fraction} if "v" in names else {})


def _on_grid(inner: Any, name: str, fraction: int) -> np.ndarray[Any, Any]:
    return whole(np.asarray(inner.__dict__.get(name, 0.0), np.float64), fraction)
