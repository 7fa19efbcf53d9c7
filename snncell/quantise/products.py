"""Layers with weights in whole numbers, and the largest sums that they can have."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from snncell import nn
from snncell.quantise import integer
from snncell.quantise.linear import bits_behind_point
from snncell.quantise.problem import ExportedCell, refuse
from snncell.quantise.winograd import growth

Array = Any  # of NumPy


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
    grown = growth(cell)
    if grown == math.inf:
        refuse(
            place,
            "it is computed by Winograd's tiles, whose transforms have thirds for such a window",
            "use windows of at most 3 elements along an axis, a stride of 2, or fewer than 8 channels",
        )
    largest = float(np.max(sums * own, initial=0.0)) * grown
    bound = float(np.max(sums * np.ldexp(steps, bits), initial=0.0))
    if bits > 60 or not max(largest, bound) <= limit:
        refuse(
            place,
            f"its sums reach {max(largest, bound):.3g} units, and are exact up to {limit:.3g}",
            place.fewer,
        )
    if getattr(cell, "activation", None) is not None:
        refuse(place, "its activation is no whole number", "leave it out; spikes come from a neuron behind the layer")
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
        refuse(place, f"its Parameters are {cell.weight.dtype.name}", "make it with dtype=float32")
    quantiser = cell.quantisers.weight
    levels, step = quantiser.integers(cell.weight)
    if not np.all(np.isfinite(step)):
        refuse(place, "its weights are not finite", "train it again, with a smaller learning rate")
    if np.any(levels * step != quantiser(cell.weight).asnumpy()):
        refuse(
            place,
            f"what {type(quantiser).__name__} gives are no whole multiples of its step",
            "give a step with fewer significant bits",
        )
    if step.size > 1 and step.shape[0] != levels.shape[0]:
        refuse(place, "its scales lie along another axis than its outputs", "prepare it with axis=0")
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
        "stride": several(cell.stride, cell.axes),
        "dilation": several(cell.dilation, cell.axes),
        "pad_mode": cell.pad_mode,
        "padding": cell.padding,
        "groups": cell.group,
    }


def several(value: Any, count: int) -> tuple[int, ...]:
    """An int for each axis."""
    return tuple(int(n) for n in value) if isinstance(value, (list, tuple)) else (int(value),) * count
