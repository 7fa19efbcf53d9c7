"""Neurons in whole numbers: their own equations, with linear expressions in the place of values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from snncell.cell import Cell
from snncell.nn.neurons.base import Neuron
from snncell.nn.neurons.current import CubaLIFNode, synapse
from snncell.nn.neurons.firing import Counting, Thresholded
from snncell.nn.neurons.integrate import IFNode
from snncell.nn.neurons.readout import LINode
from snncell.nn.neurons.constants import from_rest
from snncell.quantise import integer
from snncell.quantise.linear import Linear, Unit, bits_behind_point, whole
from snncell.quantise.problem import Place, refuse
from snncell.surrogate import Inclusive, Scaled, Surrogate, relusigmoid
from snncell.tape.tensor import Tensor

KNOWN = "nn.IFNode, LIFNode, LeakyNode, CubaLIFNode, LINode, or a subclass of nn.Neuron with a linear charge(x, v)"


def integer_neuron(
    cell: Any, exponent: int, bound: float, place: Place, limit: float
) -> tuple[integer.Neuron, int, float]:
    """A neuron's step in whole numbers, and exponent and bound of its output.

    Args:
        cell: the neuron, prepared.
        exponent, bound: of its input: whole numbers times 2^exponent, up to `bound`.
        place: for errors.
        limit: up to how many units are exact.
    """
    grids = cell.quantisers
    states = grids.states
    fraction, low, high = states.fraction, states.low, states.high
    _refuse_others(cell, place)
    inner = _constants(cell, place)

    def checked(term: Linear) -> None:
        units = math.ldexp(term.bound, term.bits)
        if units > limit:
            refuse(
                place,
                f"its potential needs {math.log2(units):.1f} bits before it is rounded, and "
                f"{'float32' if limit < 2**30 else 'int32'} has {math.log2(limit):.0f}",
                f"take states of fewer bits, states=quantise.FixedPoint({max(states.bits - 4, 4)}, {fraction}), fewer "
                f"decay_bits, or weights whose scales have fewer, scale_bits=4 or 1",
            )

    state = Unit(-fraction, math.ldexp(float(-low), -fraction))
    units = {"v": state, "i": state, "x": Unit(exponent, math.ldexp(bound, exponent)), "1": Unit(0, 1.0)}
    x, v, i = (Linear({name: 1.0}, units, checked) for name in ("x", "v", "i"))
    try:
        h, current = _charged(inner, cell, x, v, i)
    except (TypeError, AttributeError):
        refuse(place, "its equation of h is not linear in its input and its states", f"use {KNOWN}")
    threshold = _on_grid(inner, "v_threshold", fraction)
    given = {
        **_coefficients(h, fraction, exponent, ("v", "x", "1")),
        "low": low,
        "high": high,
        "start": _start(inner, cell, fraction),
    }
    if current is not None:
        parts = _coefficients(h, fraction, exponent, ("i",))
        own = _coefficients(current, fraction, exponent, ("i", "x"), "i")
        given |= {"v_from_i": parts["v_from_i"], **own}
    if isinstance(cell, LINode) or (isinstance(cell, IFNode) and not cell.fire):
        return integer.Neuron(-fraction, **given), -fraction, float(-low)
    worth = threshold if isinstance(cell, IFNode) else None
    out = -fraction if worth is not None else 0
    most = 1 if cell.max_spikes == 1 else cell.max_spikes
    neuron = integer.Neuron(
        out,
        threshold=threshold,
        reset_to=_on_grid(inner, "v_reset", fraction),
        reset=cell.reset,
        delay=cell.delay,
        inclusive=cell.compare == ">=",
        most=most,
        worth=worth,
        **given,
    )
    reached = float(most) if most is not None else float(np.max(high / threshold))
    return neuron, out, reached * (1.0 if worth is None else float(np.max(worth)))


# --- what can be exported ---------------------------------------------------------------------------------------------


def _refuse_others(cell: Any, place: Place) -> None:
    """Raise for a neuron whose step is another one than that of `integer.Neuron`."""
    kind = type(cell)
    if kind is LINode:
        return
    plain = (Neuron.construct, IFNode.construct, CubaLIFNode.construct)
    same = isinstance(cell, Neuron) and any(kind.construct is one for one in plain)
    own = [name for name in ("fired", "recall", "spikes", "after_reset", "fire_at") if not _is_plain(kind, name)]
    if not same or own or cell.own_function:
        what = f"its {own[0]} is its own" if own else "its step is its own"
        refuse(place, f"{what}, and there is no integer step for it", f"use {KNOWN}")
    function = cell.surrogate_function
    while isinstance(function, (Counting, Inclusive, Scaled)):
        function = function.surrogate_function
    step = isinstance(function, Surrogate) and type(function).construct is Surrogate.construct
    if not step and not isinstance(function, relusigmoid):
        refuse(
            place,
            f"{type(function).__name__} may fire by another rule than a threshold",
            "use a spike function of snncell.surrogate that does not draw",
        )


def _is_plain(kind: type, name: str) -> bool:
    return getattr(kind, name) is getattr(Thresholded, name)


def _constants(cell: Any, place: Place) -> Any:
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


def _charged(inner: Any, cell: Cell, x: Linear, v: Linear, i: Linear) -> tuple[Linear, Linear | None]:
    """The potential before it is rounded, and the current, if there is one."""
    if isinstance(cell, CubaLIFNode):
        current, carried = synapse(i, inner.gained(x), inner.alpha, inner.order)
        h = inner.beta * from_rest(v, inner.v_rest) + inner.read(current)
        return (h if from_rest(h, inner.v_rest) is h else h + inner.v_rest), carried
    if isinstance(cell, LINode):
        x = x if inner.input_gain == 1.0 else x * inner.input_gain
        leak = from_rest(v, inner.v_rest)
        by = inner.per_step
        return (v + by(x - leak, inner.tau) if inner.decay_input else v - by(leak, inner.tau) + x), None
    h = inner.charge(x, v)
    if not isinstance(h, Linear):
        raise TypeError
    return h, None


def _coefficients(h: Linear, fraction: int, exponent: int, names: tuple[str, ...], of: str = "v") -> dict[str, Any]:
    """The coefficients of whole numbers in units of h, and the shift from these to units of the state."""
    bits = max(h.bits, fraction)
    units = {"v": fraction, "i": fraction, "x": -exponent, "1": 0}
    found: dict[str, Any] = {f"{of}_from_{name}": whole(h.coefficient(name), bits - units[name]) for name in names}
    if of == "i":
        return found | {"i_shift": bits - fraction}
    return found | ({"shift": bits - fraction} if "v" in names else {})


def _on_grid(inner: Any, name: str, fraction: int) -> np.ndarray[Any, Any]:
    return whole(np.asarray(inner.__dict__.get(name, 0.0), np.float64), fraction)


def _start(inner: Any, cell: Any, fraction: int) -> np.ndarray[Any, Any]:
    """The potential before the first step."""
    name = "v_rest" if isinstance(cell, LINode) else cell.starts
    value = np.asarray(inner.__dict__[name], np.float64)
    assert bits_behind_point(value) <= fraction
    return whole(value, fraction)
