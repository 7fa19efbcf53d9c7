"""Inputs of plots: arrays, Tensors, mappings and monitors as named arrays; selection of samples and neurons."""

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
    """The arrays of all layers by name, from a monitor or a mapping; a single array gets the name ""."""
    if not is_monitor(x):
        named = x if isinstance(x, Mapping) else {"": x}
        if not named:
            raise ArgumentError(f"{who}: there are no layers to draw, because the mapping is empty.")
        return {str(key): as_array(value, who, name or quantity) for key, value in named.items()}
    recorded = getattr(x, quantity, None)
    if not recorded:
        fix = f"Record it with monitor(net, {quantity}=True), and run the net inside the monitor's `with`."
        why = _why_missing(recorded, x.layers[0]) if x.layers else ""
        raise ArgumentError(f"{who}: the monitor has not recorded {quantity!r}. {why or fix}")
    return {name: as_array(recorded[name], who) for name in x.layers if name in recorded}


def spiking_layers(x: Any, who: str, name: str = "") -> dict[str, Array]:
    """The spikes of all layers by name; for a monitor, only of layers that fire."""
    layers = all_layers(x, "spikes", who, name)
    firing = {name: array for name, array in layers.items() if layer_fires(x, name)}
    if not firing:
        _refuse_silent_kind(next(iter(layers)), who)
    return firing


def layer_fires(x: Any, name: str) -> bool:
    """True if a layer outputs spikes. Only a monitor knows of layers that output potentials instead."""
    return not is_monitor(x) or bool(x.fires(name))


def _refuse_silent_kind(name: str, who: str) -> NoReturn:
    raise ArgumentError(
        f"{who}: the layer {name!r} does not fire: its output is its potential. To draw that, use monitor(net, v=True) "
        f"and plot.membrane(monitor, layer={name!r})."
    )


def one_layer(x: Any, quantity: str, layer: str | None, who: str, name: str = "") -> tuple[str, Array]:
    """The name and the array of the layer `layer`, or of the only layer."""
    layers = all_layers(x, quantity, who, name)
    if quantity == "spikes" and layer is None:
        layers = spiking_layers(x, who, name)
    names = ", ".join(repr(name) for name in layers)
    if layer is None:
        if len(layers) > 1:
            raise ArgumentError(
                f"{who}: choose one of the layers {names} of {name or quantity}, for example "
                f"layer={next(iter(layers))!r}."
            )
        return next(iter(layers.items()))
    if layer not in layers:
        if is_monitor(x) and (why := _why_missing(getattr(x, quantity), layer)):
            raise ArgumentError(f"{who}: no {quantity} of the layer {layer!r}. {why}")
        there = "this is one array, so leave layer out" if "" in layers else f"the layers are {names}"
        raise ArgumentError(f"{who}: unknown layer {layer!r}; {there}.")
    if quantity == "spikes" and not layer_fires(x, layer):
        _refuse_silent_kind(layer, who)
    return layer, layers[layer]


def title_of(name: str) -> str:
    """A layer's name as the title of a plot: a number, for example of an nn.SequentialCell, becomes "layer 0"."""
    return f"layer {name}" if name[:1].isdigit() else name


def _why_missing(recorded: Any, name: str) -> str:
    """The reason why a monitor has no record of a layer, and the fix, from the monitor's own error."""
    try:
        recorded[name]
    except RecordError as error:
        return str(error).partition("recorded. ")[2]
    except KeyError:  # an object that resembles a monitor
        pass
    return ""


def is_monitor(x: Any) -> bool:
    """True if x has recordings of a network's layers."""
    return all(hasattr(x, name) for name in ("layers", "spikes", "steps", "cell"))


def step_numbers(x: Any, name: str, count: int, quantity: str) -> Array:
    """The time steps of a layer's `count` rows, because a monitor may record only every k-th step."""
    return np.asarray(x.steps(name, quantity)) if is_monitor(x) else np.arange(count)


def steps_before_end(x: Any, name: str) -> Array | None:
    """Mask (T, B) of the steps before each sample's end; None if x has no lengths of samples."""
    before_end = getattr(x.spikes, "before_end", None) if is_monitor(x) else None
    there: Array | None = None if before_end is None else before_end(name)
    return there


def neuron_numbers(x: Any, name: str, count: int) -> Array:
    """The indices in the layer of the `count` recorded neurons, because a monitor may record only some of them."""
    return np.asarray(x.neurons(name)) if is_monitor(x) else np.arange(count)


def as_array(x: Any, who: str, name: str = "x") -> Array:
    """Convert x to an array of numbers."""
    try:
        array = on_host(x) if is_array(x) else np.asarray(x)
    except (SnncellError, TypeError, ValueError):  # lists of unequal lengths, or objects that are not arrays
        array = np.empty(0, object)
    if array.dtype == object or not (np.issubdtype(array.dtype, np.number) or array.dtype.kind in "bV"):
        raise ArgumentError(
            f"{who}: {name} must be an array or a Tensor of numbers, or a monitor, not a {type(x).__name__} of "
            f"{array.dtype}."
        )
    return array.astype(np.float32) if array.dtype.kind == "V" else array  # bfloat16, which few functions support


def real_array_of(x: Any, who: str, name: str) -> Array:
    """Convert x to a float32 array."""
    array = as_array(x, who, name)
    if array.dtype.kind == "c":
        raise ArgumentError(f"{who}: {name} must contain real numbers, not {array.dtype}.")
    return array.astype(np.float32)


def as_spikes(spikes: Any, who: str) -> Array:
    """Convert to booleans: every nonzero element is a spike."""
    array = as_array(spikes, who, "spikes")
    if array.dtype.kind == "f" and np.isnan(array).any():
        raise ArgumentError(
            f"{who}: the spikes contain NaN, so the network has diverged. Use snncell.set_context(check_finite=True) "
            "to find the first NaN."
        )
    return np.asarray(array != 0)


def check_rows(spikes: Array, who: str) -> Array:
    """Raise unless spikes are (T, N) or (T, B, ...) with at least one element."""
    if spikes.ndim < 2:
        raise ShapeError(f"{who}: takes (T, N) or (T, B, ...), not shape {spikes.shape}. One neuron: x[:, None].")
    if spikes.size == 0:
        raise ArgumentError(f"{who}: an array of shape {spikes.shape} is empty, so there are no spikes to count.")
    return spikes


# --- Selection of a sample or of neurons ------------------------------------------------------------------------------


def choose_rows(array: Array, sample: int | None, neuron: int | None, who: str, numbers: Any = ()) -> Array:
    """Select the neurons of a sample, or the samples of a neuron: (T, B, ...) -> (T, N). By default return `array`."""
    if sample is None and neuron is None:
        if array.ndim != 2:
            raise ShapeError(f"{who}: takes (T, N), not shape {array.shape}. Choose one sample: x[:, 0].")
        return array
    if sample is not None and neuron is not None:
        raise ArgumentError(f"{who}: sample={sample} and neuron={neuron} select a single row. Pass only one of them.")
    if array.ndim < 3:
        raise ShapeError(f"{who}: to select a sample or a neuron, pass (T, B, ...), not shape {array.shape}.")
    flat = array.reshape(*array.shape[:2], math.prod(array.shape[2:]))
    if neuron is not None:
        return flat[:, :, neuron_positions(neuron, numbers, who)[0]]
    return sample_of(flat, sample, who)


def sample_of(array: Array, sample: Any, who: str) -> Array:
    """Select a sample of (T, B, ...)."""
    count = array.shape[1]
    if not isinstance(sample, (int, np.integer)) or not -count <= sample < count:
        raise ArgumentError(f"{who}: there is no sample {sample!r}; there are {count}, from 0.")
    return array[:, sample]


def neuron_positions(neurons: Any, numbers: Array, who: str) -> list[int]:
    """The positions among the recorded neurons of the neurons with these indices in the layer."""
    available, count, whole = numbers.tolist(), len(numbers), all_there(numbers)
    places = []
    for number in neurons if isinstance(neurons, (list, tuple, range, np.ndarray)) else [neurons]:
        if isinstance(number, bool) or not isinstance(number, (int, np.integer)):
            raise ArgumentError(f"{who}: neurons must be indices of neurons, not {show(number)}.")
        from_start = number + count if whole and isinstance(number, int) and number < 0 else number
        if from_start not in available:
            if whole:
                raise ArgumentError(f"{who}: there is no neuron {show(number)}; there are {count}, from 0.")
            recorded = ", ".join(map(str, available[:12])) + (", ..." if count > 12 else "")
            raise ArgumentError(
                f"{who}: neuron {show(number)} was not recorded; recorded are {recorded} (see m.neurons(layer))."
            )
        places.append(available.index(from_start))
    return places


def all_there(numbers: Array) -> bool:
    """True if these are the indices of all neurons of a layer."""
    return np.array_equal(numbers, np.arange(len(numbers)))


class ClassRows(NamedTuple):
    """A class: its name, and the indices of its rows."""

    name: str
    members: Array


def group_rows(classes: Any, count: int, who: str, rows: str) -> list[ClassRows]:
    """Group rows by class, in sorted order; without classes all rows form one group named ""."""
    if classes is None:
        return [ClassRows("", np.arange(count))]
    try:
        labels = np.asarray(classes)
    except ValueError:  # ragged
        labels = np.empty(0, object)
    if labels.dtype.kind not in "biufUS":
        raise ArgumentError(
            f"{who}: classes must be a label for each of the {rows}, numbers or names, not {show(classes)}."
        )
    if labels.shape != (count,):
        raise ShapeError(f"{who}: there are {count} {rows}, so classes must have shape ({count},), not {labels.shape}.")
    return [ClassRows(str(name), np.nonzero(labels == name)[0]) for name in np.unique(labels)]
