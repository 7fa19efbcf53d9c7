"""The inputs of plots: arrays, Tensors, mappings of layers, and monitors become arrays with names; choices of rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

import numpy as np

from snncell.base.arguments.shown import show
from snncell.errors import ArgumentError, RecordError, ShapeError, SnncellError
from snncell.tape.structure import is_array, on_host

Array = np.ndarray[Any, Any]


def all_layers(x: Any, quantity: str, who: str, name: str = "") -> dict[str, Array]:
    """The arrays of all layers of a monitor, of a mapping, or of one array, whose name is ""."""
    if not is_monitor(x):
        named = x if isinstance(x, Mapping) else {"": x}
        if not named:
            raise ArgumentError(f"{who}: there are no layers to draw: the mapping is empty.")
        return {str(key): as_array(value, who, name or quantity) for key, value in named.items()}
    recorded = getattr(x, quantity, None)
    if not recorded:
        mend = f"Record it: monitor(net, {quantity}=True), and run the net inside the monitor's `with`."
        why = _why_missing(recorded, x.layers[0]) if x.layers else ""
        raise ArgumentError(f"{who}: the monitor holds no {quantity}. {why or mend}")
    return {name: as_array(recorded[name], who) for name in x.layers if name in recorded}


def spiking_layers(x: Any, who: str, name: str = "") -> dict[str, Array]:
    """The spikes of all layers by name; of a monitor, of those that fire."""
    layers = all_layers(x, "spikes", who, name)
    firing = {name: array for name, array in layers.items() if layer_fires(x, name)}
    if not firing:
        _refuse_silent_kind(next(iter(layers)), who)
    return firing


def layer_fires(x: Any, name: str) -> bool:
    """True if a layer gives spikes, which only a monitor knows of: what it holds may be potentials."""
    return not is_monitor(x) or bool(x.fires(name))


def _refuse_silent_kind(name: str, who: str) -> NoReturn:
    raise ArgumentError(
        f"{who}: the layer {name!r} does not fire: what it gives is its potential. Draw that: monitor(net, v=True), "
        f"and plot.membrane(monitor, layer={name!r})."
    )


def one_layer(x: Any, quantity: str, layer: str | None, who: str, name: str = "") -> tuple[str, Array]:
    """The name and the array of one layer; the name of an array alone is ""."""
    layers = all_layers(x, quantity, who, name)
    if quantity == "spikes" and layer is None:
        layers = spiking_layers(x, who, name)
    names = ", ".join(repr(name) for name in layers)
    if layer is None:
        if len(layers) > 1:
            raise ArgumentError(f"{who}: which of the layers {names}? Name one: layer={next(iter(layers))!r}.")
        return next(iter(layers.items()))
    if layer not in layers:
        if is_monitor(x) and (why := _why_missing(getattr(x, quantity), layer)):
            raise ArgumentError(f"{who}: no {quantity} of the layer {layer!r}. {why}")
        there = "this is one array, so leave layer out" if "" in layers else f"there are {names}"
        raise ArgumentError(f"{who}: there is no layer {layer!r}; {there}.")
    if quantity == "spikes" and not layer_fires(x, layer):
        _refuse_silent_kind(layer, who)
    return layer, layers[layer]


def _why_missing(recorded: Any, name: str) -> str:
    """Why a monitor holds no record of a layer, and the mend, as it says so itself."""
    try:
        recorded[name]
    except RecordError as error:
        return str(error).partition("recorded. ")[2]
    except KeyError:  # of what only looks like a monitor
        pass
    return ""


def is_monitor(x: Any) -> bool:
    """True if x holds recordings of a network's layers."""
    return all(hasattr(x, name) for name in ("layers", "spikes", "steps", "cell"))


def step_numbers(x: Any, name: str, count: int, quantity: str) -> Array:
    """The numbers of the time steps that a layer's `count` rows are: a monitor may have recorded every k-th only."""
    return np.asarray(x.steps(name, quantity)) if is_monitor(x) else np.arange(count)


def steps_before_end(x: Any, name: str) -> Array | None:
    """The steps (T, B) of a layer before the end of their sample; None if x knows of no lengths."""
    before_end = getattr(x.spikes, "before_end", None) if is_monitor(x) else None
    there: Array | None = None if before_end is None else before_end(name)
    return there


def neuron_numbers(x: Any, name: str, count: int) -> Array:
    """The numbers of `count` neurons in their layer: a monitor may have recorded some only."""
    return np.asarray(x.neurons(name)) if is_monitor(x) else np.arange(count)


def as_array(x: Any, who: str, name: str = "x") -> Array:
    """x as an array of numbers."""
    try:
        array = on_host(x) if is_array(x) else np.asarray(x)
    except (SnncellError, TypeError, ValueError):  # lists of unequal lengths, or what refuses to become an array
        array = np.empty(0, object)
    if array.dtype == object or not (np.issubdtype(array.dtype, np.number) or array.dtype.kind in "bV"):
        raise ArgumentError(
            f"{who}: {name} is an array or a Tensor of numbers, or a monitor, not a {type(x).__name__} of "
            f"{array.dtype}."
        )
    return array.astype(np.float32) if array.dtype.kind == "V" else array  # bfloat16, which few functions know


def real_array_of(x: Any, who: str, name: str) -> Array:
    """x as an array of float32."""
    array = as_array(x, who, name)
    if array.dtype.kind == "c":
        raise ArgumentError(f"{who}: {name} is made of real numbers, not of {array.dtype}.")
    return array.astype(np.float32)


def as_spikes(spikes: Any, who: str) -> Array:
    """The spikes as booleans: every element that is not 0 is a spike."""
    array = as_array(spikes, who, "spikes")
    if array.dtype.kind == "f" and np.isnan(array).any():
        raise ArgumentError(
            f"{who}: the spikes hold NaN, so the network has diverged; snncell.set_context(check_finite=True) says "
            "where it began."
        )
    where: Array = array != 0
    return where


def check_rows(spikes: Array, who: str) -> Array:
    """The spikes, unless they have no time steps of several rows, or no elements."""
    if spikes.ndim < 2:
        raise ShapeError(f"{who}: takes (T, N) or (T, B, ...), not shape {spikes.shape}. One neuron: x[:, None].")
    if spikes.size == 0:
        raise ArgumentError(f"{who}: an array of shape {spikes.shape} holds nothing to count spikes in.")
    return spikes


# --- choice of a sample or of neurons ---------------------------------------------------------------------------------


def choose_rows(array: Array, sample: int | None, neuron: int | None, who: str, numbers: Any = ()) -> Array:
    """Of (T, B, ...) the neurons of a sample, or the samples of a neuron, (T, N); without a choice the array itself."""
    if sample is None and neuron is None:
        if array.ndim != 2:
            raise ShapeError(f"{who}: takes (T, N), not shape {array.shape}. Choose one sample: x[:, 0].")
        return array
    if sample is not None and neuron is not None:
        raise ArgumentError(f"{who}: sample={sample} and neuron={neuron} leave one row; choose one of the two.")
    if array.ndim < 3:
        raise ShapeError(f"{who}: sample and neuron choose from (T, B, ...), not from shape {array.shape}.")
    flat = array.reshape(*array.shape[:2], math.prod(array.shape[2:]))
    if neuron is not None:
        return flat[:, :, neuron_positions(neuron, numbers, who)[0]]
    return sample_of(flat, sample, who)


def sample_of(array: Array, sample: Any, who: str) -> Array:
    """A sample of (T, B, ...)."""
    count = array.shape[1]
    if not isinstance(sample, (int, np.integer)) or not -count <= sample < count:
        raise ArgumentError(f"{who}: there is no sample {sample!r}; there are {count}, from 0.")
    return array[:, sample]


def neuron_positions(neurons: Any, numbers: Array, who: str) -> list[int]:
    """The positions of neurons among the recorded ones, by their numbers in the layer."""
    held, count, whole = numbers.tolist(), len(numbers), all_there(numbers)
    places = []
    for number in neurons if isinstance(neurons, (list, tuple, range, np.ndarray)) else [neurons]:
        if isinstance(number, bool) or not isinstance(number, (int, np.integer)):
            raise ArgumentError(f"{who}: neurons are numbers of neurons, integers, not {show(number)}.")
        from_start = number + count if whole and isinstance(number, int) and number < 0 else number
        if from_start not in held:
            if whole:
                raise ArgumentError(f"{who}: there is no neuron {show(number)}; there are {count}, from 0.")
            recorded = ", ".join(map(str, held[:12])) + (", ..." if count > 12 else "")
            raise ArgumentError(
                f"{who}: neuron {show(number)} was not recorded; recorded are {recorded}: m.neurons(layer)."
            )
        places.append(held.index(from_start))
    return places


def all_there(numbers: Array) -> bool:
    """True if these are the numbers of all neurons of a layer, from 0 on."""
    return np.array_equal(numbers, np.arange(len(numbers)))


class ClassRows(NamedTuple):
    """A class: its name, and the numbers of the rows that belong to it."""

    name: str
    members: Array


def group_rows(classes: Any, count: int, who: str, rows: str) -> list[ClassRows]:
    """The rows by class, in the order of the classes; without classes all rows in one group, whose name is ""."""
    if classes is None:
        return [ClassRows("", np.arange(count))]
    try:
        labels = np.asarray(classes)
    except ValueError:  # ragged
        labels = np.empty(0, object)
    if labels.dtype.kind not in "biufUS":
        raise ArgumentError(
            f"{who}: classes are a label for each of the {rows}, numbers or names, not {show(classes)}."
        )
    if labels.shape != (count,):
        raise ShapeError(f"{who}: there are {count} {rows}, so classes have shape ({count},), not {labels.shape}.")
    return [ClassRows(str(name), np.nonzero(labels == name)[0]) for name in np.unique(labels)]
