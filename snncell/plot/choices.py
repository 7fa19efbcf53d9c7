"""Which sample and which neurons of a layer a plot shows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from snncell.base.arguments.shown import show
from snncell.errors import ArgumentError, ShapeError
from snncell.plot.sources import Array


def choose_rows(array: Array, sample: int | None, neuron: int | None, who: str, numbers: Any = ()) -> Array:
    """Of (T, B, ...): a sample's neurons, or a neuron's samples; what has no choice made stays as it is."""
    if sample is None and neuron is None:
        return array
    if sample is not None and neuron is not None:
        raise ArgumentError(f"{who}: sample={sample} and neuron={neuron} leave one row; choose one of the two.")
    if array.ndim < 3:
        raise ShapeError(f"{who}: sample and neuron choose from (T, B, ...), not from shape {array.shape}.")
    flat = array.reshape(*array.shape[:2], math.prod(array.shape[2:]))
    if neuron is not None:
        return flat[:, :, places_of(neuron, numbers, who)[0]]
    count = flat.shape[1]
    if not isinstance(sample, (int, np.integer)) or not -count <= sample < count:
        raise ArgumentError(f"{who}: there is no sample {sample!r}; there are {count}, from 0.")
    return flat[:, sample]


def places_of(neurons: Any, numbers: Array, who: str) -> list[int]:
    """Where neurons are among those that are there, by their numbers in the layer."""
    held, count = numbers.tolist(), len(numbers)
    places = []
    chosen_numbers = list(neurons) if isinstance(neurons, (list, tuple, range, np.ndarray)) else [neurons]
    for number in chosen_numbers:
        if isinstance(number, bool) or not isinstance(number, (int, np.integer)):
            raise ArgumentError(f"{who}: neurons are numbers of neurons, integers, not {show(number)}.")
        below = isinstance(number, int) and number < 0 and all_there(numbers)  # counted from the end
        if (number + count if below else number) not in held:
            if all_there(numbers):
                raise ArgumentError(f"{who}: there is no neuron {show(number)}; there are {count}, from 0.")
            recorded = ", ".join(map(str, held[:12])) + (", ..." if count > 12 else "")
            raise ArgumentError(
                f"{who}: neuron {show(number)} was not recorded; recorded are {recorded}: m.neurons(layer)."
            )
        places.append(held.index(number + count if below else number))
    return places


def all_there(numbers: Array) -> bool:
    """True if these are the numbers of all neurons of a layer, from 0 on."""
    return np.array_equal(numbers, np.arange(len(numbers)))
